/* SPDX-License-Identifier: Apache-2.0 */
/* model.c: opening a model: the steps in order.
 *
 * The file is untrusted: all shapes are checked against each other once, at opening, so that the forward pass needs no
 * checks.
 */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/model_internal.h"
#include "model/model_template.h"

#define ALIKE 3 /* letters that an unknown architecture has in common with those that its error line names */

/* ---- opening ---- */

/* GGUF files that are no models, by general.type, or by general.architecture in older files. */
static const struct {
    const char *type, *architecture, *advice;
} other_files[] = {
    {"", "controlvector", "this is a control vector, which is not supported: give a model"},
    {"adapter", "", "this is a LoRA adapter: use it with rp_adapter_open, and its base model with rp_model_open"},
    {"mmproj", "clip",
     "this is the projector of images or audio (mmproj) of a model: give the model itself; only text is supported"},
    {"imatrix", "imatrix", "this is an importance matrix for quantization: give a model"},
};

/* The string of a key; empty if it has none. */
static gguf_string model_word(const gguf_file *f, const char *key) {
    gguf_string s = {.bytes = "", .n = 0};
    return gguf_get_string(f, key, &s) ? s : (gguf_string){.bytes = "", .n = 0};
}

static int check_is_model(const rp_model *m, rp_error *err) {
    const gguf_string type = model_word(m->file, "general.type"), arch = model_word(m->file, "general.architecture");
    for (size_t i = 0; i < BASE_ARRAY_LEN(other_files); i++) {
        if (!(type.n && gguf_string_is(type, other_files[i].type)) &&
            !(arch.n && gguf_string_is(arch, other_files[i].architecture)))
            continue;
        return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0, "%s", other_files[i].advice);
    }
    return RP_OK;
}

static int find_arch(rp_model *m, rp_error *err) {
    gguf_string name;
    if (!gguf_get_string(m->file, "general.architecture", &name))
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "metadata 'general.architecture' is missing");
    m->arch = model_arch_find(name.bytes, (size_t)name.n);
    if (m->arch) return RP_OK;
    char similar[RP_ERROR_MESSAGE_BYTES / 2] = ""; /* names with the same beginning: a message has no room for all */
    size_t n = 0, used = 0;
    for (const model_arch *arch; (arch = model_arch_at(n)); n++)
        if (name.n >= ALIKE && strncmp(arch->name, name.bytes, ALIKE) == 0 && used < sizeof(similar))
            used += (size_t)snprintf(similar + used, sizeof(similar) - used, "%s%s", used ? ", " : "; similar: ",
                                     arch->name);
    return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                        "architecture '%.*s' is not supported%s (docs/models.md has all %zu, and why others are not "
                        "supported)",
                        (int)BASE_MIN(name.n, 64), name.bytes, similar, n);
}

static int choose_chat_format(rp_model *m, const char *wanted, rp_error *err) {
    m->chat = wanted ? chat_format_find(wanted) : chat_format_detect(m->file, m->tokenizer, &m->chat_guessed);
    if (m->chat_guessed)
        base_log(BASE_LOG_WARN, "%s: unknown chat template: roles in PML use chat format '%s'", gguf_name(m->file),
                 chat_format_name(m->chat));
    if (m->chat) return RP_OK;
    char list[RP_ERROR_MESSAGE_BYTES] = "";
    for (int i = 0; chat_format_at(i); i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", chat_format_name(chat_format_at(i)));
    }
    return base_fail(err, RP_ERR_NAME, "unknown chat format '%s' (known: %s)", wanted, list);
}

/* Copies the texts that callers see, with a NUL after each. */
static int model_take_texts(rp_model *m, rp_error *err) {
    gguf_string name, source;
    model_read_advice(m);
    bool named = gguf_get_string(m->file, "general.name", &name);
    m->name = named ? base_strndup(name.bytes, (size_t)BASE_MIN(name.n, 256)) : base_strdup("");
    if (!m->name) return base_fail_memory(err, 256, "a name");
    if (!gguf_get_string(m->file, "tokenizer.chat_template", &source)) return RP_OK;
    m->chat_template = base_strndup(source.bytes, (size_t)source.n);
    return m->chat_template ? RP_OK : base_fail_memory(err, (size_t)source.n, "a chat template");
}

/* Without tensors the metadata alone have the shape. */
static void set_bare_layers(rp_model *m) {
    BASE_ASSERT(m->net.hp.n_shared < m->net.hp.n_layers);
    for (int32_t i = 0; i < m->net.hp.n_layers; i++) {
        m->net.layers[i].mixer = model_layer_mixer(m, i);
        m->net.layers[i].owns_kv =
            m->net.layers[i].mixer != MODEL_NO_MIXER && i < m->net.hp.n_layers - m->net.hp.n_shared;
    }
}

static void free_network(rp_model *m) {
    for (int32_t i = 0; m->made && i < m->net.hp.n_layers + m->net.hp.n_draft_layers; i++) base_free(m->made[i]);
    base_free(m->made);
    base_free(m->ones);
    base_free(m->kv_layers);
    base_free(m->net.layers);
    base_free(m->net.matrices);
    base_free(m->net.alibi_slopes);
    base_free(m->net.token_classes);
    for (int i = 0; i < MODEL_N_ROPES; i++) base_free(m->net.ropes[i].frequencies);
}

/* The shape of the model that a vocabulary is of, for plans: as the model itself would have it, if the file has its
 * tensors, too (they are mapped, and not read); from the metadata, if it has these alone; else none. */
static int read_shape(rp_model *m, rp_error *err) {
    BASE_ASSERT(m->vocabulary_only);
    rp_error why = {0};
    int rc = m->arch ? model_read_hparams(m, &why) : RP_ERR_FORMAT;
    if (!rc && gguf_n_tensors(m->file) > 0) rc = model_bind_tensors(m, &why);
    else if (!rc) set_bare_layers(m);
    if (!rc) rc = model_set_layers(m, &why);
    if (!rc) rc = model_set_ropes(m, &why);
    m->has_shape = rc == RP_OK;
    if (!rc) model_identify(m);
    else { /* no shape: only the vocabulary's size is left */
        free_network(m);
        m->kv_layers = NULL;
        m->made = NULL;
        m->ones = NULL;
        m->n_kv_layers = 0;
        m->net = (model_network){.hp.n_vocab = tokenizer_n_vocab(m->tokenizer)};
    }
    if (rc != RP_ERR_MEMORY) return RP_OK;
    if (err) *err = why;
    return rc;
}

static int open_vocabulary(rp_model *m, const char *format, rp_error *err) {
    gguf_string arch;
    int rc = tokenizer_new(&m->tokenizer, m->file, err);
    if (!rc) rc = choose_chat_format(m, format, err);
    if (!rc) rc = model_take_texts(m, err);
    if (!rc && !format) rc = model_read_template(m, err);
    if (rc) return rc;
    m->net.hp.n_vocab = tokenizer_n_vocab(m->tokenizer);
    if (gguf_get_string(m->file, "general.architecture", &arch)) m->arch = model_arch_find(arch.bytes, (size_t)arch.n);
    return RP_OK;
}

int model_check_shape(const rp_model *m, rp_error *err) {
    if (!m->vocabulary_only || m->has_shape) return RP_OK;
    return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                        "the file has a vocabulary, but not the shape of a supported model: give the model's own file");
}

int model_check_whole(const rp_model *m, rp_error *err) {
    if (!m->vocabulary_only) return RP_OK;
    return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                        "the model was opened with vocabulary_only: open it without");
}

static int model_open_parts(rp_model *m, const rp_model_options *options, const rp_mock_options *mock, rp_error *err) {
    int rc = check_is_model(m, err);
    if (rc) return rc;
    if (mock) {
        rc = open_vocabulary(m, mock->chat_format, err);
        m->times = (backend_times){mock->step_us, mock->row_us, mock->row_slot_us};
        return rc ? rc : model_make_mock(m, err);
    }
    if (options && options->vocabulary_only) {
        rc = open_vocabulary(m, options->chat_format, err);
        m->vocabulary_only = true;
        return rc ? rc : read_shape(m, err);
    }
    if ((rc = find_arch(m, err))) return rc;
    if (gguf_n_tensors(m->file) == 0) /* files of a vocabulary are models without tensors */
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0,
                            "the file has a vocabulary, but no weights: give a whole model");
    if ((rc = tokenizer_new(&m->tokenizer, m->file, err)) ||
        (rc = choose_chat_format(m, options ? options->chat_format : NULL, err)) || (rc = model_read_hparams(m, err)) ||
        (rc = model_bind_tensors(m, err)) || (rc = model_set_layers(m, err)) || (rc = model_set_ropes(m, err)))
        return rc;
    if ((rc = model_take_texts(m, err)) || (!(options && options->chat_format) && (rc = model_read_template(m, err))))
        return rc;
    model_identify(m);
    return RP_OK;
}

static int open_model(rp_model **out, gguf_file *file, const rp_model_options *options, const rp_mock_options *mock,
                      rp_error *err) {
    *out = NULL;
    rp_model *m = base_calloc(1, sizeof(*m));
    if (!m) {
        gguf_close(file);
        return base_fail_memory(err, sizeof(*m), "a model");
    }
    m->file = file;
    int rc = (m->has_lock = pthread_mutex_init(&m->lock, NULL) == 0) ? RP_OK
                                                                     : base_fail_memory(err, sizeof(m->lock), "a lock");
    if (!rc) rc = model_open_parts(m, options, mock, err);
    if (rc) {
        model_close(m);
        return rc;
    }
    *out = m;
    return RP_OK;
}

int model_open_gguf(rp_model **out, gguf_file *file, const rp_model_options *options, rp_error *err) {
    return open_model(out, file, options, NULL, err);
}

int model_open_mock(rp_model **out, const char *path, const rp_mock_options *options, rp_error *err) {
    gguf_file *file = NULL;
    const int rc = gguf_open(&file, path, err);
    return rc ? rc : open_model(out, file, NULL, options, err);
}

int model_open(rp_model **out, const char *path, const rp_model_options *options, rp_error *err) {
    gguf_file *file = NULL;
    uint64_t start = base_clock_us();
    *out = NULL;
    int rc = gguf_open(&file, path, err);
    if (!rc) rc = model_open_gguf(out, file, options, err);
    if (rc || (*out)->vocabulary_only) return rc;
    BASE_TRACE(MODEL, "opened %s in %.1f ms: %s, %d layers, chat format %s", path,
               (double)(base_clock_us() - start) / 1e3, (*out)->arch->name, (*out)->net.hp.n_layers,
               chat_format_name((*out)->chat));
    return RP_OK;
}

void model_close(rp_model *m) {
    if (!m) return;
    model_free_template(m);
    base_free(m->name);
    base_free(m->chat_template);
    free_network(m);
    tokenizer_free(m->tokenizer);
    gguf_close(m->file);
    if (m->has_lock) pthread_mutex_destroy(&m->lock);
    base_free(m);
}
