/* SPDX-License-Identifier: Apache-2.0 */
/* test_weight_types.c: a model of every weight type through the whole pipeline: its logits are near those of an F32
 * model with the same weights, and bit-identical with and without reuse, with one thread and three, in other chunks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/oracle_run.h"
#include "reprise_pml.h"

/* Quantized weights use activations rounded to 8 bits: by at most 1/254 of the largest of 32, again in each layer.
 * Measured: 0.013 to 0.025. */
#define LIMIT 0.04
#define STEPS 3

static const char schema[] = "<schema name=\"s\"><module name=\"a\">once upon a time there was</module>"
                             "<module name=\"b\">a house on a hill with seven windows</module></schema>";
static const char prompt[] = "<prompt schema=\"s\"><b/><a/>who lived in it?</prompt>";

/* Rows are whole blocks of every type. */
static void open_model(oracle_model *m, kernel_type weights, kernel_type round_trip) {
    const char *chat;
    tiny_model_shape shape = oracle_shape(1, &chat);
    shape.n_embd = 256, shape.n_ff = 512, shape.head_dim = 64;
    shape.weight_type = shape.embd_type = weights;
    shape.round_trip = round_trip;
    oracle_model_open(m, &shape, chat);
}

static void ask(oracle_run *run, const oracle_model *m, int32_t threads, int32_t chunk, rp_reuse reuse) {
    rp_engine_options options = rp_engine_options_defaults();
    rp_request req = rp_request_defaults();
    rp_engine *engine = NULL;
    rp_error err = {0};
    options.n_threads = threads;
    options.chunk_tokens = chunk;
    if (rp_engine_new(&engine, m->model, &options, &err)) fail_msg("%s", err.message);
    if (rp_schema_parse(engine, schema, strlen(schema), "schema", NULL, NULL, NULL, &err)) fail_msg("%s", err.message);
    req.prompt = rp_prompt_pml(prompt);
    req.reuse = reuse;
    req.max_tokens = STEPS;
    req.ignore_eos = true;
    oracle_run_make(run, engine, &req);
    if (run->rc) fail_msg("%s", run->err.message);
    rp_engine_free(engine);
}

/* The first step only: later ones may have sampled other tokens. */
static void check_near_f32(kernel_type t, const oracle_run *run) {
    oracle_model m;
    oracle_run plain;
    open_model(&m, KERNEL_F32, t);
    ask(&plain, &m, 1, 64, RP_REUSE_ON);
    double deviation = oracle_deviation(oracle_run_logits(run, 0), oracle_run_logits(&plain, 0), plain.n_vocab);
    printf("%-6s %.4f\n", kernel_type_name(t), deviation);
    if (deviation > LIMIT) fail_msg("%s: logits deviate by %.3g", kernel_type_name(t), deviation);
    oracle_run_free(&plain);
    oracle_model_close(&m);
}

static void check_type(kernel_type t) {
    static const struct {
        int32_t threads, chunk;
        rp_reuse reuse;
    } others[] = {{1, 64, RP_REUSE_OFF}, {3, 64, RP_REUSE_ON}, {1, 5, RP_REUSE_ON}, {3, 7, RP_REUSE_OFF}};
    oracle_model m;
    oracle_run run, other;
    open_model(&m, t, KERNEL_F32);
    ask(&run, &m, 1, 64, RP_REUSE_ON);
    check_near_f32(t, &run);
    for (size_t i = 0; i < BASE_ARRAY_LEN(others); i++) {
        ask(&other, &m, others[i].threads, others[i].chunk, others[i].reuse);
        if (!oracle_run_same(&run, &other)) fail_msg("%s: other bytes in run %zu", kernel_type_name(t), i);
        oracle_run_free(&other);
    }
    oracle_run_free(&run);
    oracle_model_close(&m);
}

static void every_type_gives_the_logits_of_its_weights(void **state) {
    (void)state;
#define X(name, number, block, bytes) check_type(KERNEL_##name);
    KERNEL_TYPES(X)
#undef X
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_type_gives_the_logits_of_its_weights)};
    return cmocka_run_group_tests_name("weight_types", tests, NULL, NULL);
}
