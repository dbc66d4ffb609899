/* SPDX-License-Identifier: Apache-2.0 */
/* loader.c: opens models and engines for the commands and reports errors. Owns nothing. One thread. */
#define _POSIX_C_SOURCE 200809L /* sigaction */

#include "common/loader.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/command.h"
#include "common/console.h"
#include "common/text.h"

const char *const cli_kv_formats[] = {"f16", "f32", "int8", "k8v4", "kivi4", "k4v2", "kivi2", "fp8", NULL};
const char *const cli_write_names[] = {"back", "through", "off", NULL};

rp_engine_options cli_engine_options(const cli_engine_args *args) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = args->threads;
    o.n_ctx = args->ctx;
    o.chunk_tokens = args->chunk;
    o.max_sequences = 1; /* commands run one request at a time */
    o.kv_format = (rp_kv_format)args->states;
    o.ram_bytes = args->ram;
    o.kv_budget_bytes = args->kv_ram;
    o.store_dir = args->store;
    o.store_key_file = args->store_key;
    o.store_budget_bytes = args->disk;
    o.store_write = (rp_store_write)args->write;
    o.store_read_only = args->read_only;
    return o;
}

/* Checked before the model is opened: a wrong name is a usage error for every model. */
static int check_chat_format(const char *name) {
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
static char truncated_line[1024];
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

static void watch_map(const char *path) {
    struct sigaction action = {.sa_handler = meet_sigbus};
    int n = snprintf(truncated_line, sizeof truncated_line,
                     "reprise: bus error: a memory-mapped file was truncated or became unreadable, probably the model "
                     "'%.800s': replace models by rename (write a new file, then mv), never in place\n", path);
    truncated_bytes = n > 0 && (size_t)n < sizeof truncated_line ? (size_t)n : 0;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

int cli_load_model(cli_loaded *l, const char *path, const char *chat_format) {
    rp_model_options options = rp_model_options_defaults();
    options.chat_format = chat_format;
    if (chat_format != NULL) {
        int status = check_chat_format(chat_format);
        if (status != CLI_OK) return status;
    }
    rp_error err;
    watch_map(path);
    return rp_model_open(&l->model, path, &options, &err) == RP_OK ? CLI_OK : cli_fail_library(&err);
}

int cli_load_vocabulary(cli_loaded *l, const char *path) {
    rp_model_options options = rp_model_options_defaults();
    rp_error err;
    options.vocabulary_only = true;
    return rp_model_open(&l->model, path, &options, &err) == RP_OK ? CLI_OK : cli_fail_library(&err);
}

int cli_load_engine(cli_loaded *l, const rp_engine_options *options, const cli_list *schemas) {
    rp_error err;
    rp_model_info info = {.struct_size = sizeof(info)};
    if (rp_engine_new(&l->engine, l->model, options, &err) != RP_OK) return cli_fail_library(&err);
    rp_model_describe(l->model, &info);
    if (options->n_ctx > info.n_ctx_train)
        cli_warn("--ctx %d: the model was trained for %d positions; output beyond them may be wrong", (int)options->n_ctx,
                 (int)info.n_ctx_train);
    for (size_t i = 0; i < schemas->n; i++)
        if (rp_schema_load(l->engine, schemas->items[i], NULL, &l->schema, &err) != RP_OK) return cli_fail_library(&err);
    return CLI_OK;
}

static void loader_on_progress(void *user, uint64_t done, uint64_t total) {
    cli_progress_draw(user, "preparing weights", NULL, done, total);
}

int cli_prepare_engine(cli_loaded *l) {
    cli_progress progress = {0};
    rp_error err;
    int rc = rp_engine_prepare(l->engine, loader_on_progress, &progress, &err);
    cli_progress_clear(&progress);
    return rc == RP_OK ? CLI_OK : cli_fail_library(&err);
}

void cli_loaded_free(cli_loaded *l) {
    rp_engine_close(l->engine, l->close_ms != NULL ? *l->close_ms : -1);
    rp_model_close(l->model);
    *l = (cli_loaded){0};
}
