/* SPDX-License-Identifier: Apache-2.0 */
/* bench_sampler.c: time to sample a token from a vocabulary of realistic size.
 *
 *   bench_sampler [VOCABULARY]     150000
 *
 * Logits are random: peaked ones, as from trained models, where a few tokens hold most of the probability, and flat
 * ones, where no filter can remove many. Medians in microseconds; the variants take turns.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/file.h"
#include "sampling/sampler.h"
#include "support/tiny_random.h"

#define ROUNDS 41

typedef struct way {
    const char *name;
    rp_sampling options;
    int32_t n_logprobs; /* > 0: measures these; no token is sampled */
} way;

static const way ways[] = {
    {"greedy", {.typical = 1, .top_p = 1, .repeat_penalty = 1}, 0},
    {"greedy, penalties", {.typical = 1, .top_p = 1, .repeat_penalty = 1.1f, .repeat_last = 64}, 0},
    {"temperature 1", {.temperature = 1, .typical = 1, .top_p = 1, .repeat_penalty = 1}, 0},
    {"top-k 40", {.temperature = 1, .top_k = 40, .typical = 1, .top_p = 1, .repeat_penalty = 1}, 0},
    {"top-k 20000", {.temperature = 1, .top_k = 20000, .typical = 1, .top_p = 1, .repeat_penalty = 1}, 0},
    {"typical 0.95", {.temperature = 1, .typical = 0.95f, .top_p = 1, .repeat_penalty = 1}, 0},
    {"top-p 0.95", {.temperature = 1, .typical = 1, .top_p = 0.95f, .repeat_penalty = 1}, 0},
    {"min-p 0.05", {.temperature = 1, .typical = 1, .top_p = 1, .min_p = 0.05f, .repeat_penalty = 1}, 0},
    {"llama.cpp's defaults",
     {.temperature = 0.8f, .top_k = 40, .typical = 1, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1},
     0},
    {"5 log-probabilities", {.typical = 1}, 5},
    {"100 log-probabilities", {.typical = 1}, 100},
};

static double run(const way *w, sampler *s, const logprobs *l, const float *logits) {
    rp_token_logprob top[RP_MAX_LOGPROBS];
    uint64_t begin = base_clock_us();
    if (w->n_logprobs > 0) (void)logprobs_measure(l, logits, 0, top);
    else sampler_accept(s, sampler_draw(s, logits));
    return (double)(base_clock_us() - begin);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, float spread, int32_t n) {
    enum { n_ways = (int)BASE_ARRAY_LEN(ways) };
    static double us[n_ways][ROUNDS];
    sampler samplers[n_ways] = {{.n_vocab = 0}};
    logprobs measures[n_ways] = {{.n_vocab = 0}};
    tiny_random r = {.state = 1};
    float *logits = malloc((size_t)n * sizeof *logits);
    if (!logits) exit(1);
    for (int32_t i = 0; i < n; i++) logits[i] = spread * tiny_random_normal(&r);
    for (int w = 0; w < n_ways; w++)
        if (sampler_open(&samplers[w], &ways[w].options, n, ROUNDS, NULL) ||
            logprobs_open(&measures[w], ways[w].n_logprobs, n, NULL))
            exit(1);
    for (int i = 0; i < ROUNDS; i++)
        for (int w = 0; w < n_ways; w++) us[w][i] = run(&ways[w], &samplers[w], &measures[w], logits);
    for (int w = 0; w < n_ways; w++) {
        qsort(us[w], ROUNDS, sizeof us[w][0], by_value);
        printf("%-8s %-24s %8.0f us\n", name, ways[w].name, us[w][ROUNDS / 2]);
        sampler_close(&samplers[w]);
        logprobs_close(&measures[w]);
    }
    free(logits);
}

int main(int argc, char **argv) {
    long n = argc > 1 ? strtol(argv[1], NULL, 10) : 150000;
    if (n < 1 || n > 10000000) {
        fprintf(stderr, "usage: bench_sampler [VOCABULARY]\n");
        return 2;
    }
    measure("peaked", 4, (int32_t)n);
    measure("flat", 0.05f, (int32_t)n);
    return 0;
}
