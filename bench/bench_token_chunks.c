/* SPDX-License-Identifier: Apache-2.0 */
/* bench_token_chunks.c: time to find the chunks of a prompt for automatic modules: borders, keys and counts.
 *
 *   bench_token_chunks [TOKENS]     10000
 *
 * Random tokens; one in 12 ends a line. Medians in microseconds.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "engine/background/chunk_index.h"
#include "engine/reuse/token_chunks.h"
#include "support/tiny_random.h"

#define ROUNDS 201
#define VOCABULARY 150000

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *us) {
    qsort(us, ROUNDS, sizeof(*us), by_value);
    return us[ROUNDS / 2];
}

static void count_all(chunk_index *index, const int32_t *tokens, const int32_t *ends, int32_t n) {
    for (int32_t i = 1; i < n; i++) {
        base_hash h;
        base_key key;
        base_hash_init(&h, "bench");
        base_hash_bytes(&h, tokens + ends[i - 1], (size_t)(ends[i] - ends[i - 1]) * sizeof(*tokens));
        base_hash_final(&h, &key);
        chunk_index_count(index, &key);
    }
}

int main(int argc, char **argv) {
    static double cut_us[ROUNDS], count_us[ROUNDS];
    const int32_t n = argc > 1 ? (int32_t)strtol(argv[1], NULL, 10) : 10000;
    tiny_random r = {.state = 1};
    uint8_t *classes = calloc(VOCABULARY, 1);
    int32_t *tokens = calloc((size_t)n, sizeof(*tokens)), *ends = calloc((size_t)n, sizeof(*ends)), n_ends = 0;
    chunk_index *index = chunk_index_new();
    if (n < 1 || !classes || !tokens || !ends || !index) return 1;
    for (int32_t i = 0; i < VOCABULARY; i++) classes[i] = i % 12 == 0 ? TOKEN_CLASS_LINE_END : TOKEN_CLASS_TEXT;
    for (int32_t i = 0; i < n; i++) tokens[i] = (int32_t)tiny_random_below(&r, VOCABULARY);
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t begin = base_clock_us();
        n_ends = token_chunks_cut(tokens, n, classes, ends);
        const uint64_t middle = base_clock_us();
        count_all(index, tokens, ends, n_ends);
        cut_us[round] = (double)(middle - begin);
        count_us[round] = (double)(base_clock_us() - middle);
    }
    printf("%d tokens, %d chunks: borders %.0f us, keys and counts %.0f us\n", n, n_ends, median(cut_us),
           median(count_us));
    chunk_index_free(index);
    free(classes);
    free(tokens);
    free(ends);
    return 0;
}
