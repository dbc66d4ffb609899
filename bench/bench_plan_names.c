/* SPDX-License-Identifier: Apache-2.0 */
/* bench_plan_names.c: time of a router to plan a prompt and to name its KV (rp_plan_names_of), without tokenizing.
 *
 *   bench_plan_names [TOKENS [ROUNDS]]      default: 100000 tokens, 101 rounds
 *
 * An engine with plans_only over a made-up model's vocabulary; the prompt is given as tokens. Processor time of one
 * thread, medians: of all of it, and of a prompt of two tokens, for what does not depend on length.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "reprise_cluster.h"
#include "support/support.h"
#include "support/tiny_model.h"

#define MOST_TOKENS 10000000L
#define MOST_ROUNDS 10001L

static const uint8_t secret[RP_CLUSTER_KEY_BYTES] = {1};

static double cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The median time of a request. *n_names: of its names. */
static double measure(rp_engine *e, const rp_request *q, long rounds, double *us, int32_t *n_names) {
    for (long i = 0; i < rounds; i++) {
        rp_plan_names *names = NULL;
        rp_error err;
        const double start = cpu_us();
        if (rp_plan_names_of(e, q, &names, &err)) bench_die("rp_plan_names_of", &err);
        us[i] = cpu_us() - start;
        *n_names = names->n_items;
        rp_plan_names_free(names);
    }
    return bench_median(us, (size_t)rounds);
}

int main(int argc, char **argv) {
    const long n = argc > 1 ? strtol(argv[1], NULL, 10) : 100000, rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 101;
    bench_name = "bench_plan_names";
    if (n < 2 || n > MOST_TOKENS || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_plan_names [TOKENS [ROUNDS]]\n");
        return 2;
    }
    tiny_model_shape shape = tiny_model_defaults();
    rp_engine_options o = rp_engine_options_defaults();
    rp_request q = rp_request_defaults();
    rp_engine *e = NULL;
    rp_error err;
    int32_t *tokens = malloc((size_t)n * sizeof(*tokens)), n_names = 0, none = 0;
    double *us = malloc((size_t)rounds * sizeof(*us));
    if (!tokens || !us) bench_die("out of memory", NULL);
    shape.n_ctx = (int32_t)n + 1;
    rp_model *m = tiny_model_open(&shape, NULL);
    const rp_cluster_options cluster = {.struct_size = sizeof(cluster), .key = secret, .plans_only = true};
    o.cluster = &cluster;
    if (rp_engine_new(&e, m, &o, &err)) bench_die("rp_engine_new", &err);
    for (long i = 0; i < n; i++) tokens[i] = (int32_t)(i * 7919 % 400);
    q.prompt = rp_prompt_tokens(tokens, (size_t)n);
    q.max_tokens = 1;
    const double whole = measure(e, &q, rounds, us, &n_names);
    q.prompt.n = 2;
    const double empty = measure(e, &q, rounds, us, &none);
    printf("%ld tokens, %d names: %.0f us (a prompt of 2 tokens: %.1f us)\n", n, n_names, whole, empty);
    rp_engine_free(e);
    rp_model_close(m);
    free(tokens);
    free(us);
    return 0;
}
