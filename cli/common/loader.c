/* SPDX-License-Identifier: Apache-2.0 */
/* loader.c: opens models and engines for the commands and reports errors. Owns nothing. One thread. */
#define _POSIX_C_SOURCE 200809L /* sigaction */

#include "common/loader.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/command.h"
#include "common/console.h"
#include "common/text.h"
#include "models/model_path.h"
#include "reprise_device.h"

#define X(NAME, number, name, keys, values) name,
const char *const cli_kv_formats[RP_N_KV_FORMATS + 1] = {RP_KV_FORMATS(X)};
#undef X
const char *const cli_module_states_names[] = {"exact", "last", "composed", NULL};
const char *const cli_kv_in_place_names[] = {"auto", "always", "never", NULL};
const char *const cli_arithmetic_names[] = {"int8", "f32", NULL};
const char *const cli_write_names[] = {"back", "through", "off", NULL};

const char *cli_weights_dir(const char *store) {
    static char dir[4096];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (store != NULL) n = snprintf(dir, sizeof dir, "%s/weights", store);
    else if (cache != NULL && cache[0] == '/') n = snprintf(dir, sizeof dir, "%s/reprise/weights", cache);
    else if (home != NULL && home[0] == '/') n = snprintf(dir, sizeof dir, "%s/.cache/reprise/weights", home);
    return n > 0 && (size_t)n < sizeof dir ? dir : NULL;
}

/* A limit that was given applies to models of every size. */
static void set_weights(const cli_engine_args *args, rp_engine_options *o) {
    if (args->weights == CLI_OFF) return;
    o->weights_dir = cli_weights_dir(args->store);
    o->weights_budget_bytes = args->weights;
    o->weights_min_bytes = args->weights > 0 ? 1 : 0;
}

rp_engine_options cli_engine_options(const cli_engine_args *args) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = args->threads;
    o.n_ctx = args->ctx;
    o.chunk_tokens = args->chunk;
    o.max_sequences = 1; /* commands run one request at a time */
    o.kv_format = (rp_kv_format)args->states;
    o.kv_f16_layers = args->kv_f16_layers;
    o.module_states = (rp_module_states)args->module_states;
    o.keep_share = args->keep;
    o.keep_method = args->keep_method;
    o.ram_bytes = args->ram;
    o.kv_budget_bytes = args->kv_ram;
    o.store_dir = args->store;
    o.store_key_file = args->store_key;
    o.store_budget_bytes = args->disk;
    o.store_write = (rp_store_write)args->write;
    o.store_read_only = args->read_only;
    set_weights(args, &o);
    static rp_device_options device;
    device = (rp_device_options){.struct_size = sizeof device,
                                 .name = args->device,
                                 .ram_bytes = args->device_ram,
                                 .layers = args->device_layers,
                                 .kv_in_place = (rp_kv_in_place)args->kv_in_place,
                                 .arithmetic = (rp_device_arithmetic)args->device_arithmetic};
    o.device = &device;
    return o;
}

/* Checked before the model is opened: a wrong name is a usage error for every model. */
int cli_check_chat_format(const char *name) {
    if (name == NULL) return CLI_OK;
    cli_nearest nearest = cli_nearest_start(name);
    char all[512] = "";
    for (int i = 0; rp_chat_format_name(i) != NULL; i++) {
        const char *known = rp_chat_format_name(i);
        if (strcmp(known, name) == 0) return CLI_OK;
        cli_nearest_try(&nearest, known);
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "", known);
    }
    if (nearest.best != NULL)
        return cli_fail(CLI_WRONG_USE, "unknown --chat-format '%s': did you mean '%s'?", name, nearest.best);
    return cli_fail(CLI_WRONG_USE, "unknown --chat-format '%s': give one of %s", name, all);
}

/* ---- truncation of the mapped model file ---- */

/* The handler's message, formatted in advance: few functions are async-signal-safe. */
static char truncated_line[2048];
static size_t truncated_bytes;

static atomic_flag is_truncated = ATOMIC_FLAG_INIT;

/* The mapped file was truncated. Each thread repeats its access until the first one has written the line; then the
 * signal's default action ends the program. */
static void meet_sigbus(int number) {
    if (atomic_flag_test_and_set(&is_truncated)) return;
    ssize_t n = write(STDERR_FILENO, truncated_line, truncated_bytes);
    (void)n;
    signal(number, SIG_DFL);
}

/* weights_dir: NULL, or a folder with files that are mapped, too. */
static void watch_maps(const char *model, const char *weights_dir) {
    static char first[1024];
    struct sigaction action = {.sa_handler = meet_sigbus};
    if (first[0] == '\0') snprintf(first, sizeof first, "%s", model);
    const bool is_only = strncmp(first, model, sizeof first - 1) == 0;
    int n = snprintf(
        truncated_line, sizeof truncated_line,
        "reprise: bus error: a memory-mapped file was truncated or became unreadable, probably %s%.800s%s%s%.800s%s: "
        "replace models by rename (write a new file, then mv), never in place\n",
        is_only ? "the model '" : "one of the models", is_only ? model : "", is_only ? "'" : "",
        weights_dir != NULL ? ", or its repacked weights in '" : "", weights_dir != NULL ? weights_dir : "",
        weights_dir != NULL ? "'" : "");
    truncated_bytes = n > 0 && (size_t)n < sizeof truncated_line ? (size_t)n : 0;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

static int open_model(cli_loaded *l, const char *path, const char *chat_format, rp_error *err) {
    rp_model_options options = rp_model_options_defaults();
    l->path = path;
    watch_maps(path, NULL);
    if (l->mock != NULL) {
        rp_mock_options mock = *l->mock;
        mock.chat_format = chat_format;
        return rp_model_open_mock(&l->model, path, &mock, err);
    }
    options.chat_format = chat_format;
    return rp_model_open(&l->model, path, &options, err);
}

int cli_load_model(cli_loaded *l, const char *path, const char *chat_format) {
    rp_error err;
    int status = cli_check_chat_format(chat_format);
    if (status == CLI_OK) status = model_path_find(path, &l->found);
    if (status != CLI_OK) return status;
    return open_model(l, l->found, chat_format, &err) == RP_OK ? CLI_OK : cli_fail_library(&err);
}

int cli_load_vocabulary(cli_loaded *l, const char *path) {
    rp_model_options options = rp_model_options_defaults();
    rp_error err;
    options.vocabulary_only = true;
    int status = model_path_find(path, &l->found);
    if (status != CLI_OK) return status;
    return rp_model_open(&l->model, l->found, &options, &err) == RP_OK ? CLI_OK : cli_fail_library(&err);
}

int cli_find_draft(cli_loaded *l, const char *name) {
    if (name == NULL) return CLI_OK;
    const int status = model_path_find(name, &l->draft_found);
    l->draft_path = l->draft_found;
    return status;
}

static int open_engine(cli_loaded *l, const rp_engine_options *options, const cli_list *schemas, bool warns,
                       rp_error *err) {
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_engine_options o = *options;
    int rc = RP_OK;
    if (l->draft_path != NULL) {
        watch_maps(l->draft_path, NULL);
        rc = rp_model_open(&l->draft, l->draft_path, NULL, err);
        o.draft_model = l->draft;
    }
    if (options->weights_dir != NULL) watch_maps(l->path, options->weights_dir);
    if (rc == RP_OK) rc = rp_engine_new(&l->engine, l->model, &o, err);
    if (rc != RP_OK) return rc;
    rp_model_describe(l->model, &info);
    if (warns && options->n_ctx > info.n_ctx_train)
        cli_warn("--ctx %d: the model was trained for %d positions; output beyond them may be wrong",
                 (int)options->n_ctx, (int)info.n_ctx_train);
    for (size_t i = 0; i < schemas->n && rc == RP_OK; i++)
        rc = rp_schema_load(l->engine, schemas->items[i], NULL, &l->schema, err);
    return rc;
}

int cli_load_engine(cli_loaded *l, const rp_engine_options *options, const cli_list *schemas) {
    rp_error err;
    return open_engine(l, options, schemas, true, &err) == RP_OK ? CLI_OK : cli_fail_library(&err);
}

typedef struct prepare_state {
    cli_progress bar;
    const char *dir; /* where repacked weights will be kept, until it was printed; or NULL */
} prepare_state;

/* The path as a user writes it. */
static void prepare_print_dir(const char *dir) {
    const char *home = getenv("HOME");
    size_t n = home != NULL ? strlen(home) : 0;
    bool is_below = n > 1 && strncmp(dir, home, n) == 0 && dir[n] == '/';
    if (is_below) dir += n;
    fprintf(stderr, "packing weights, once: later starts map them from %s", is_below ? "~" : "");
    cli_print_safe(stderr, dir, strlen(dir));
    fputc('\n', stderr);
}

static void loader_on_progress(void *user, uint64_t done, uint64_t total) {
    prepare_state *s = user;
    if (s->dir != NULL && cli_is_terminal(stderr)) prepare_print_dir(s->dir);
    s->dir = NULL;
    cli_progress_draw(&s->bar, "preparing weights", NULL, done, total);
}

/* The folder that a file of this model's repacked weights would be written to, by the options' limits. */
static const char *prepare_dir(const cli_loaded *l, const rp_engine_options *o) {
    rp_model_info info = {.struct_size = sizeof(info)};
    const uint64_t limit = o->weights_budget_bytes > 0 ? o->weights_budget_bytes : CLI_WEIGHTS_BYTES;
    const uint64_t min = o->weights_min_bytes > 0 ? o->weights_min_bytes : CLI_WEIGHTS_MIN_BYTES;
    rp_model_describe(l->model, &info);
    return !o->store_read_only && info.weight_bytes >= min && info.weight_bytes <= limit ? o->weights_dir : NULL;
}

static int prepare_engine(cli_loaded *l, const rp_engine_options *options, rp_error *err) {
    prepare_state state = {.dir = prepare_dir(l, options)};
    int rc = rp_engine_prepare(l->engine, loader_on_progress, &state, err);
    cli_progress_clear(&state.bar);
    return rc;
}

int cli_prepare_engine(cli_loaded *l, const rp_engine_options *options) {
    rp_error err;
    return prepare_engine(l, options, &err) == RP_OK ? CLI_OK : cli_fail_library(&err);
}

int cli_open(cli_loaded *l, const char *path, const char *chat_format, const rp_engine_options *options,
             const cli_list *schemas, bool shows_progress, rp_error *err) {
    int rc = open_model(l, path, chat_format, err);
    if (rc == RP_OK) rc = open_engine(l, options, schemas, shows_progress, err);
    if (rc == RP_OK)
        rc = shows_progress ? prepare_engine(l, options, err) : rp_engine_prepare(l->engine, NULL, NULL, err);
    if (rc != RP_OK) cli_loaded_free(l);
    return rc;
}

void cli_loaded_free(cli_loaded *l) {
    rp_engine_close(l->engine, l->close_ms != NULL ? *l->close_ms : -1);
    rp_model_close(l->model);
    rp_model_close(l->draft);
    free(l->found);
    free(l->draft_found);
    *l = (cli_loaded){0};
}
