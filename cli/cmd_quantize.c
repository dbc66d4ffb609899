/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_quantize.c: `reprise quantize`: a copy of a model in a smaller weight type. Owns nothing. One thread; the library
 * has its own. */
#define _POSIX_C_SOURCE 200809L

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

#include "common/command.h"
#include "common/console.h"
#include "reprise_tools.h"

typedef struct quantize_options {
    const char *in, *out, *type;
    int32_t threads;
} quantize_options;

#define AT(field) offsetof(quantize_options, field)
static const cli_option options[] = {
    {.name = "in",
     .kind = CLI_TEXT,
     .value = "IN",
     .offset = AT(in),
     .required = true,
     .positional = true,
     .help = "model file (GGUF) in F32, F16 or BF16"},
    {.name = "out",
     .kind = CLI_TEXT,
     .value = "OUT",
     .offset = AT(out),
     .required = true,
     .positional = true,
     .help = "file to write; it appears only when complete"},
    {.name = "type",
     .kind = CLI_TEXT,
     .value = "TYPE",
     .offset = AT(type),
     .required = true,
     .positional = true,
     .help = "type of the weights: Q8_0 (8.5 bits per weight), Q6_K (6.6), Q4_K or Q4_0 (4.5)"},
    {.name = "threads",
     .letter = 't',
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(threads),
     .min = 0,
     .max = 256,
     .help = "number of threads; 0: one per processor (0)"},
    {.name = NULL},
};
#undef AT

static int quantize_main(int argc, char **argv);

const cli_command cli_command_quantize = {
    .name = "quantize",
    .summary = "quantize the weights of a model",
    .synopsis = "IN OUT TYPE [--threads N]",
    .notes = "Vectors, norms, biases, positions and routers of experts become F32. Matrices with rows that are not\n"
             "whole blocks of TYPE get another type, and a note reports it.\n",
    .options = options,
    .main = quantize_main,
};

#define FALLBACKS_MAX 4 /* the library falls back to one of two types */

typedef struct fallback {
    char type[16];
    uint64_t n;
} fallback;

typedef struct session {
    cli_progress progress;
    fallback fallbacks[FALLBACKS_MAX];
    uint64_t n_tensors, read_bytes;
} session;

static void count_fallback(session *s, const char *type) {
    for (int i = 0; i < FALLBACKS_MAX; i++) {
        fallback *f = &s->fallbacks[i];
        if (f->n == 0) snprintf(f->type, sizeof f->type, "%s", type);
        if (strcmp(f->type, type) != 0) continue;
        f->n++;
        return;
    }
}

static bool quantize_on_step(void *user, const rp_quantize_step *step) {
    session *s = user;
    if (step->tensor != NULL && step->is_first_row) {
        s->n_tensors++;
        if (step->is_fallback) count_fallback(s, step->to);
    }
    s->read_bytes = step->total_bytes;
    cli_progress_draw(&s->progress, "quantizing", NULL, step->done_bytes, step->total_bytes);
    return !cli_interrupted();
}

static uint64_t quantize_size_of(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static double quantize_mebibytes(uint64_t bytes) { return (double)bytes / 1048576.0; }

static void quantize_print_summary(const session *s, const quantize_options *o, const char *type) {
    for (int i = 0; i < FALLBACKS_MAX && s->fallbacks[i].n > 0; i++)
        fprintf(stderr, "reprise: note: %llu of %llu tensors are %s: their rows are not whole blocks of %s\n",
                (unsigned long long)s->fallbacks[i].n, (unsigned long long)s->n_tensors, s->fallbacks[i].type, type);
    fprintf(stderr, "%s: %.1f MiB, from %.1f MiB of weights\n", type, quantize_mebibytes(quantize_size_of(o->out)),
            quantize_mebibytes(s->read_bytes));
}

static int quantize_main(int argc, char **argv) {
    quantize_options o = {0};
    cli_parsed parsed = cli_options_parse(&cli_command_quantize, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    char type[16] = "";
    for (size_t i = 0; i + 1 < sizeof type && o.type[i] != '\0'; i++) type[i] = (char)toupper((unsigned char)o.type[i]);
    session s = {0};
    rp_quantize_options library = rp_quantize_options_defaults();
    rp_error err;
    library.n_threads = o.threads;
    library.on_step = quantize_on_step;
    library.user = &s;
    cli_interrupt_catch();
    int rc = rp_model_quantize(o.in, o.out, type, &library, &err);
    cli_progress_clear(&s.progress);
    if (rc == RP_ERR_CANCELLED) return CLI_INTERRUPTED;
    if (rc == RP_ERR_NAME) return cli_fail(CLI_WRONG_USE, "%s", err.message);
    if (rc != RP_OK) return cli_fail_library(&err);
    quantize_print_summary(&s, &o, type);
    return CLI_OK;
}
