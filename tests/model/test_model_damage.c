/* SPDX-License-Identifier: Apache-2.0 */
/* test_model_damage.c: corrupt metadata and tensor tables: each model is refused with one line, or opens and computes
 * without harm.
 *
 * Every golden file, with every number of its metadata replaced by extremes, and with random bytes of its header
 * changed. A model that opens runs some tokens, so that a sanitizer checks the accepted values. REPRISE_TEST_SEED,
 * REPRISE_TEST_ROUNDS (changes of a file's header).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cpu.h"
#include "base/file.h"
#include "support/forward_run.h"
#include "support/golden.h"
#include "support/oracle_run.h"
#include "support/seed.h"
#include "support/vector_file.h"

#define MAX_FILE_BYTES ((size_t)16 << 20)
#define N_TOKENS 40 /* past the windows */

typedef struct tally {
    int opened, refused;
    base_cpu_level highest;
} tally;

static void fail(const char *what, const char *name) {
    fprintf(stderr, "test_model_damage: %s: %s\n", name, what);
    exit(1);
}

/* Plain C uses the file's weights; this machine's level repacks them first. */
static void compute(const rp_model *m, base_cpu_level level) {
    int32_t tokens[N_TOKENS], n = m->net.hp.n_ctx_train < N_TOKENS ? m->net.hp.n_ctx_train : N_TOKENS;
    float *logits = calloc((size_t)m->net.hp.n_outputs + 1, sizeof(float));
    forward_run r;
    for (int32_t i = 0; i < n; i++) tokens[i] = (int32_t)((uint32_t)i * 7919 % (uint32_t)m->net.hp.n_vocab);
    forward_run_open(&r, m, level, m->net.hp.n_ctx_train, 16, 2);
    forward_run_feed(&r, tokens, 0, n, m->net.hp.n_outputs > 0, logits); /* an encoder without a rank head has none */
    forward_run_close(&r);
    free(logits);
}

static void try_file(const base_buffer *bytes, const char *name, tally *t) {
    rp_error err = {0};
    gguf_file *f;
    rp_model *m = NULL;
    int rc = gguf_open_memory(&f, bytes->data, bytes->len, name, &err);
    if (!rc) rc = model_open_gguf(&m, f, NULL, &err);
    if (rc && (err.code != rc || err.message[0] == '\0' || strchr(err.message, '\n')))
        fail("refused without a line that says why", name);
    t->opened += !rc;
    t->refused += rc != 0;
    if (!rc) compute(m, t->opened % 2 ? t->highest : BASE_CPU_GENERIC);
    model_close(m);
}

/* ---- numbers of the metadata ---- */

/* Extremes of a number's type, as bytes. Returns the size, or 0 after the last. */
static size_t extreme(gguf_value_type type, int i, unsigned char out[8]) {
    static const uint64_t integers[] = {0, 1, 2, 3, 7, 1000, 0x7fffffff, 0x80000000u, 0xffffffff, UINT64_MAX};
    const float floats[] = {0.0f, -1.0f, 1e-30f, 1e30f, INFINITY, NAN};
    size_t n = type == GGUF_U32 || type == GGUF_I32 ? 4 : type == GGUF_U64 || type == GGUF_I64 ? 8
                                                      : type == GGUF_F32                       ? 4
                                                                                               : type == GGUF_BOOL;
    if (type == GGUF_F32) {
        if (i >= (int)(sizeof(floats) / sizeof(floats[0]))) return 0;
        memcpy(out, &floats[i], 4);
    } else {
        if (i >= (type == GGUF_BOOL ? 2 : (int)(sizeof(integers) / sizeof(integers[0])))) return 0;
        memcpy(out, &integers[i], 8);
    }
    return n;
}

static void change_numbers(base_buffer *bytes, const char *name, tally *t) {
    gguf_file *f;
    rp_error err = {0};
    if (gguf_open_memory(&f, bytes->data, bytes->len, name, &err)) fail(err.message, name);
    for (size_t i = 0; i < gguf_n_metadata(f); i++) {
        gguf_value_type type;
        gguf_bytes value = gguf_metadata_raw(f, i, &type);
        unsigned char before[8], after[8];
        size_t n;
        for (int k = 0; value.n <= 8 && (n = extreme(type, k, after)) > 0; k++) {
            char *at = bytes->data + ((const char *)value.data - bytes->data);
            memcpy(before, at, n);
            memcpy(at, after, n);
            try_file(bytes, name, t);
            memcpy(at, before, n);
        }
    }
    gguf_close(f);
}

/* ---- any bytes of the header ---- */

static void change_header(base_buffer *bytes, const char *name, tiny_random *random, int rounds, tally *t) {
    gguf_file *f;
    rp_error err = {0};
    size_t header = 0;
    if (gguf_open_memory(&f, bytes->data, bytes->len, name, &err)) fail(err.message, name);
    gguf_header(f, 0, &header);
    gguf_close(f);
    for (int i = 0; i < rounds; i++) {
        size_t at[3];
        char before[3];
        for (int k = 0; k < 3; k++) {
            at[k] = (size_t)tiny_random_below(random, (uint32_t)header);
            before[k] = bytes->data[at[k]];
            bytes->data[at[k]] =
                (char)(k ? before[k] ^ (1 << tiny_random_below(random, 8)) : (int)tiny_random_below(random, 256));
        }
        try_file(bytes, name, t);
        for (int k = 2; k >= 0; k--) bytes->data[at[k]] = before[k];
    }
}

static void change_file(const char *path, const char *name, tiny_random *random, int rounds, tally *numbers,
                        tally *headers) {
    base_buffer bytes = {0};
    rp_error err = {0};
    if (base_file_read(path, MAX_FILE_BYTES, &bytes, &err)) fail(err.message, name);
    change_numbers(&bytes, name, numbers);
    change_header(&bytes, name, random, rounds, headers);
    base_buffer_free(&bytes);
}

int main(void) {
    static const char *const encoders[] = {"embeddings/bert.gguf", "embeddings/nomic-bert.gguf",
                                           "embeddings/modern-bert.gguf", "embeddings/gemma-embedding.gguf",
                                           "embeddings/eurobert.gguf", "embeddings/reranker.gguf"};
    golden *g = golden_open();
    tiny_random random = {test_seed("model_damage", 20261123)};
    int rounds = test_rounds(100);
    rp_error found = {0};
    tally numbers = {0}, headers = {0};
    if (base_cpu_detect(&numbers.highest, &found)) fail(found.message, "the processor");
    headers.highest = numbers.highest;
    for (int32_t i = 0; i < g->n_models; i++)
        change_file(g->models[i].path, g->models[i].name, &random, rounds, &numbers, &headers);
    for (size_t i = 0; i < sizeof(encoders) / sizeof(encoders[0]); i++)
        change_file(vector_path(encoders[i]), encoders[i], &random, rounds, &numbers, &headers);
    golden_close(g);
    printf("numbers: %d opened, %d refused; headers: %d opened, %d refused\n", numbers.opened, numbers.refused,
           headers.opened, headers.refused);
    return numbers.opened == 0 || numbers.refused == 0 || headers.refused == 0;
}
