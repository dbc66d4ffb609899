/* SPDX-License-Identifier: Apache-2.0 */
/* models.c: models and tokens: the plain parts of the public interface. */
#include "base/check.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/threads.h"
#include "kernels/kernels.h"
#include "kv/kv_format.h"
#include "kv/kv_plan.h"
#include "model/gguf/gguf.h"
#include "model/model.h"
#include "model/model_template.h"
#include "model/reduction.h"
#include "model/sequence_methods.h"
#include "model/tokenizer/tokenizer.h"
#include "pml/plan.h"
#include "pml/quality.h"
#include "template/template.h"
#include "reprise_chat.h"
#include "reprise_test.h"

void rp_model_options_init(rp_model_options *options, uint32_t struct_size) {
    base_sized_init(options, struct_size, &(rp_model_options){.chat_format = NULL}, sizeof(rp_model_options));
}

int rp_model_open(rp_model **out, const char *path, const rp_model_options *options, rp_error *err) {
    if (!out || !path) return base_fail(err, RP_ERR_INVALID, "rp_model_open: out and path are needed");
    *out = NULL;
    rp_model_options o = rp_model_options_defaults();
    int rc = base_sized_read(&o, sizeof(o), options, "rp_model_options", err);
    return rc ? rc : model_open(out, path, &o, err);
}

int rp_model_open_mock(rp_model **out, const char *path, const rp_mock_options *options, rp_error *err) {
    if (!out || !path) return base_fail(err, RP_ERR_INVALID, "rp_model_open_mock: out and path are needed");
    *out = NULL;
    rp_mock_options o = {.struct_size = sizeof(o)};
    const int rc = base_sized_read(&o, sizeof(o), options, "rp_mock_options", err);
    if (rc) return rc;
    if (!(o.step_us >= 0 && o.row_us >= 0 && o.row_slot_us >= 0) || o.step_us + o.row_us + o.row_slot_us > 1e9)
        return base_fail(err, RP_ERR_INVALID, "step_us, row_us and row_slot_us: give 0 or more, up to 1e9 together");
    return model_open_mock(out, path, &o, err);
}

void rp_model_close(rp_model *model) { model_close(model); }

/* The type of most bytes of weights. */
static kernel_type main_type(const rp_model *m, uint64_t *bytes, uint64_t *parameters) {
    uint64_t by_type[KERNEL_TYPE_END] = {0};
    kernel_type best = KERNEL_F32;
    *bytes = *parameters = 0;
    for (size_t i = 0; i < gguf_n_tensors(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        BASE_ASSERT((unsigned)t->type < KERNEL_TYPE_END); /* gguf.c refuses others */
        by_type[t->type] += t->bytes;
        if (by_type[t->type] > by_type[best]) best = t->type;
        *bytes += t->bytes;
        *parameters += (uint64_t)t->dims[0] * (uint64_t)t->dims[1] * (uint64_t)t->dims[2] * (uint64_t)t->dims[3];
    }
    return best;
}

static const char *name_positions(const rp_model *m) {
    if (!model_is_movable(m)) return "learned";
    return m->net.alibi_slopes ? "ALiBi" : m->net.hp.rot_dim > 0 ? "rotary"
                                                                 : "none";
}

static rp_model_info describe_vocabulary(const rp_model *m) {
    return (rp_model_info){
        .name = m->name,
        .architecture = m->arch ? m->arch->name : "",
        .weights = "",
        .chat_format = chat_format_name(m->chat),
        .chat_format_guessed = m->chat_guessed,
        .n_vocab = m->net.hp.n_vocab,
        .positions = "",
        .fingerprint = "",
        .pooling = "",
        .chat_template = m->chat_template,
        .infills = tokenizer_infills(m->tokenizer),
    };
}

static rp_model_info describe_model(const rp_model *m) {
    kv_shape f16 = model_kv_shape(m, RP_KV_F16);
    rp_model_info info = {
        .name = m->name,
        .architecture = m->arch->name,
        .chat_format = chat_format_name(m->chat),
        .chat_format_guessed = m->chat_guessed,
        .n_layers = m->net.hp.n_layers,
        .n_heads = m->net.hp.n_heads,
        .n_kv_heads = m->net.hp.n_kv_heads,
        .head_dim = m->net.hp.key_dim,
        .n_embd = m->net.hp.n_embd,
        .n_ff = m->net.hp.n_ff,
        .n_vocab = m->net.hp.n_vocab,
        .n_ctx_train = m->net.hp.n_ctx_train,
        .positions = name_positions(m),
        .movable = model_is_movable(m) && model_capabilities(m).shifts,
        .window = m->net.hp.window,
        .n_experts = m->net.hp.n_experts,
        .n_experts_used = m->net.hp.n_experts_used,
        .kv_bytes_per_token = kv_shape_token_bytes(&f16),
        .is_encoder = model_is_encoder(m),
        .pooling = rp_pooling_name(m->net.hp.pooling),
        .n_scores = model_is_encoder(m) ? m->net.hp.n_outputs : 0,
        .fingerprint = atomic_load(&((rp_model *)(uintptr_t)m)->has_fingerprint) ? m->fingerprint_hex : "",
        .chat_template = m->chat_template,
        .infills = tokenizer_infills(m->tokenizer),
        .states_compose = model_states_compose(&m->net),
    };
    for (int32_t l = 0; l < m->net.hp.n_layers; l++) info.n_window_layers += m->net.layers[l].window > 0;
    for (int32_t l = 0; l < m->n_kv_layers; l++) {
        info.n_recurrent_layers += m->kv_layers[l].kind == KV_STATE;
        info.state_bytes += m->kv_layers[l].state_bytes;
    }
    info.weights = m->net.is_mock ? "none" : kernel_type_name(main_type(m, &info.weight_bytes, &info.parameters));
    return info;
}

int rp_model_describe(const rp_model *m, rp_model_info *out) {
    if (!m || base_sized_check(out, "rp_model_info", NULL)) return RP_ERR_INVALID;
    rp_model_info info = m->vocabulary_only ? describe_vocabulary(m) : describe_model(m);
    base_sized_write(out, &info, sizeof(info));
    return RP_OK;
}

int rp_model_fingerprint(rp_model *m, int32_t n_threads, rp_on_progress on_progress, void *user, const char **out,
                         rp_error *err) {
    if (!m || !out) return base_fail(err, RP_ERR_INVALID, "rp_model_fingerprint: model and out are needed");
    *out = "";
    int rc = base_threads_check(n_threads, err);
    if (!rc) rc = model_fingerprint(m, NULL, n_threads ? n_threads : base_cpu_count(), on_progress, user, err);
    BASE_ASSERT(rc || atomic_load(&m->has_fingerprint));
    if (!rc) *out = m->fingerprint_hex;
    return rc;
}

uint32_t rp_model_sampling(const rp_model *m, rp_sampling *s) {
    if (!m || !s) return 0;
    if (m->advised & RP_ADVISES_TEMPERATURE) s->temperature = m->advice.temperature;
    if (m->advised & RP_ADVISES_TOP_K) s->top_k = m->advice.top_k;
    if (m->advised & RP_ADVISES_TOP_P) s->top_p = m->advice.top_p;
    if (m->advised & RP_ADVISES_MIN_P) s->min_p = m->advice.min_p;
    if (m->advised & RP_ADVISES_REPEAT_PENALTY) s->repeat_penalty = m->advice.repeat_penalty;
    if (m->advised & RP_ADVISES_REPEAT_LAST) s->repeat_last = m->advice.repeat_last;
    return m->advised;
}

const rp_template *rp_model_template(const rp_model *m) { return m ? m->template : NULL; }

const char *rp_chat_format_name(int i) {
    const chat_format *f = i >= 0 ? chat_format_at(i) : NULL;
    return f ? chat_format_name(f) : NULL;
}

int rp_tokenize(const rp_model *m, const char *text, size_t n, bool parse_special, bool add_bos, int32_t **tokens,
                size_t *n_tokens, rp_error *err) {
    token_list list = {0};
    int rc = RP_OK;
    if (!m || (!text && n > 0) || !tokens || !n_tokens)
        return base_fail(err, RP_ERR_INVALID, "rp_tokenize: model, text, tokens and n_tokens are needed");
    *tokens = NULL;
    *n_tokens = 0;
    if (!text) text = "";
    if (add_bos && tokenizer_adds_bos(m->tokenizer) && tokenizer_bos(m->tokenizer) >= 0)
        rc = token_list_push(&list, tokenizer_bos(m->tokenizer));
    if (rc) rc = base_fail_memory(err, sizeof(int32_t), "tokens");
    else
        rc = tokenizer_encode(m->tokenizer, text, n,
                              (tokenizer_options){.parse_special = parse_special, .space_prefix = true}, &list, err);
    if (rc) {
        token_list_free(&list);
        return rc;
    }
    *tokens = list.ids;
    *n_tokens = list.n;
    return RP_OK;
}

int rp_tokenize_embedding(const rp_model *m, const char *text, size_t n, const char *second, size_t n_second,
                          size_t max_tokens, int32_t **tokens, size_t *n_tokens, rp_error *err) {
    token_list list = {0};
    if (!m || (!text && n > 0) || (!second && n_second > 0) || !tokens || !n_tokens)
        return base_fail(err, RP_ERR_INVALID, "rp_tokenize_embedding: model, text, tokens and n_tokens are needed");
    *tokens = NULL;
    *n_tokens = 0;
    int rc = tokenizer_encode_embedding(m->tokenizer, text ? text : "", n, second, n_second, max_tokens, &list, err);
    if (rc) token_list_free(&list);
    *tokens = list.ids;
    *n_tokens = list.n;
    return rc;
}

static bool infill_is_whole(const rp_infill *in) {
    if ((!in->prefix && in->n_prefix > 0) || (!in->suffix && in->n_suffix > 0) || (!in->begun && in->n_begun > 0))
        return false;
    if (in->n_files < 0 || (!in->files && in->n_files > 0)) return false;
    for (int32_t i = 0; i < in->n_files; i++)
        if (!in->files[i].text && in->files[i].n_bytes > 0) return false;
    return true;
}

int rp_tokenize_infill(const rp_model *m, const rp_infill *infill, int32_t **tokens, size_t *n_tokens, rp_error *err) {
    token_list list = {0};
    rp_infill in = {0};
    if (!m || !infill || !tokens || !n_tokens)
        return base_fail(err, RP_ERR_INVALID, "rp_tokenize_infill: model, infill, tokens and n_tokens are needed");
    *tokens = NULL;
    *n_tokens = 0;
    int rc = base_sized_read(&in, sizeof(in), infill, "rp_infill", err);
    if (rc) return rc;
    if (!infill_is_whole(&in))
        return base_fail(err, RP_ERR_INVALID, "rp_tokenize_infill: a text is NULL, but has a length");
    if (!tokenizer_infills(m->tokenizer))
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "the model has no fill-in-the-middle tokens: use a model for code, or leave the suffix out");
    if (tokenizer_adds_bos(m->tokenizer) && tokenizer_bos(m->tokenizer) >= 0)
        rc = token_list_push(&list, tokenizer_bos(m->tokenizer));
    if (rc) rc = base_fail_memory(err, sizeof(int32_t), "tokens");
    else rc = tokenizer_encode_infill(m->tokenizer, &in, &list, err);
    if (rc) token_list_free(&list);
    *tokens = rc ? NULL : list.ids;
    *n_tokens = rc ? 0 : list.n;
    return rc;
}

int rp_tokenize_messages(const rp_model *m, const rp_message *messages, size_t n, bool continues, int32_t **tokens,
                         size_t *n_tokens, rp_error *err) {
    token_list list = {0};
    if (!m || !messages || !tokens || !n_tokens)
        return base_fail(err, RP_ERR_INVALID, "rp_tokenize_messages: model, messages, tokens and n_tokens are needed");
    int rc = pml_append_messages(m, messages, n, continues, &list, err);
    if (rc) token_list_free(&list);
    *tokens = rc ? NULL : list.ids;
    *n_tokens = rc ? 0 : list.n;
    return rc;
}

int rp_model_render(const rp_model *m, const char *json, size_t n, const rp_template_options *options,
                    rp_template_text **out, rp_error *err) {
    rp_template_input *in = NULL;
    if (!m || !out || (!json && n > 0))
        return base_fail(err, RP_ERR_INVALID, "rp_model_render: model, json and out are needed");
    *out = NULL;
    int rc = template_input_read(&in, json, n, err);
    if (!rc) rc = rp_model_render_input(m, in, options, out, err);
    rp_template_input_free(in);
    return rc;
}

int rp_model_render_input(const rp_model *m, const rp_template_input *in, const rp_template_options *options,
                          rp_template_text **out, rp_error *err) {
    const char *items[8];
    template_tokens tokens = {.items = items};
    if (!m || !in || !out) return base_fail(err, RP_ERR_INVALID, "rp_model_render: model, input and out are needed");
    *out = NULL;
    if (!m->template)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "the model has no chat template of its own: use messages, or give a template");
    model_template_tokens(m, items, &tokens.n);
    BASE_ASSERT(2 * tokens.n <= BASE_ARRAY_LEN(items)); /* pairs */
    int rc = template_render(m->template, in, &tokens, options, out, err);
    if (!rc && (rc = model_complete_rendered(m, *out, err))) {
        rp_template_text_free(*out);
        *out = NULL;
    }
    return rc;
}

int rp_tokenize_rendered(const rp_model *m, const rp_template_text *text, int32_t **tokens, size_t *n_tokens,
                         rp_error *err) {
    token_list list = {0};
    if (!m || !text || !tokens || !n_tokens)
        return base_fail(err, RP_ERR_INVALID, "rp_tokenize_rendered: model, text, tokens and n_tokens are needed");
    int rc = model_check_rendered(text, err);
    if (!rc) rc = pml_append_rendered(m, text, NULL, 0, NULL, &list, err);
    if (rc) token_list_free(&list);
    *tokens = rc ? NULL : list.ids;
    *n_tokens = rc ? 0 : list.n;
    return rc;
}

int rp_count_rendered(const rp_model *m, const rp_template_text *text, const rp_rendered_turn *ended, size_t n_turns,
                      size_t *ends, size_t *n_tokens, rp_error *err) {
    token_list list = {0};
    if (!m || !text || !n_tokens || (n_turns > 0 && (!ended || !ends)))
        return base_fail(err, RP_ERR_INVALID, "rp_count_rendered: model, text, turns, ends and n_tokens are needed");
    *n_tokens = 0;
    int rc = model_check_rendered(text, err);
    if (!rc && n_turns > RP_MAX_MESSAGES)
        rc = base_fail(err, RP_ERR_LIMIT, "%zu turns: give at most %d", n_turns, RP_MAX_MESSAGES);
    if (rc) return rc;
    pml_turn *found = base_calloc(BASE_MAX(n_turns, 1), sizeof(*found));
    if (!found) return base_fail_memory(err, n_turns * sizeof(*found), "turns of a conversation");
    rc = pml_append_rendered(m, text, ended, n_turns, found, &list, err);
    for (size_t i = 0; i < n_turns && !rc; i++) {
        BASE_ASSERT(found[i].end <= list.n && (i == 0 || found[i - 1].end <= found[i].end));
        ends[i] = found[i].end;
    }
    *n_tokens = rc ? 0 : list.n;
    base_free(found);
    token_list_free(&list);
    return rc;
}

int rp_quality_parse(const char *text, rp_quality *out, rp_error *err) {
    if (!text || !out) return base_fail(err, RP_ERR_INVALID, "rp_quality_parse: text and out are needed");
    if (pml_quality_read(text, out)) return RP_OK;
    return base_fail(err, RP_ERR_INVALID, "quality '%.32s': " PML_QUALITY_ADVICE, text);
}

const char *rp_kv_format_name(int32_t i) {
    return i >= 0 && i < RP_N_KV_FORMATS ? kv_format_name((rp_kv_format)i) : NULL;
}

const char *rp_keep_method_name(int32_t i) {
    return i >= 0 && i < REDUCTION_N_METHODS ? reduction_method_name((reduction_method)i) : NULL;
}
const char *rp_kv_method_name(int32_t i) {
    return i >= 0 && i < SEQUENCE_N_METHODS ? sequence_method_name((sequence_method)i) : NULL;
}

char *rp_quality_text(rp_quality quality, char out[RP_QUALITY_BYTES]) { return pml_quality_write(quality, out); }

const char *rp_token_bytes(const rp_model *m, int32_t token, bool special, size_t *n_bytes) {
    return tokenizer_bytes(m->tokenizer, token, special, n_bytes);
}

void rp_free(void *p) { base_free(p); }
