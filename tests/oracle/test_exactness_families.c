/* SPDX-License-Identifier: Apache-2.0 */
/* test_exactness_families.c: the exactness rule (test_exactness.c) for every family of tests/golden: experts, windows,
 * ALiBi, learned positions, sinks. The same bytes whatever the chunks, the threads, reuse, and what ran before.
 *
 *   test_exactness_families [NAME...]   those of these names alone
 *   REPRISE_TEST_ROUNDS=N               sizes of chunks, of 3
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/golden.h"
#include "support/oracle_run.h"
#include "support/seed.h"
#include "reprise_pml.h"

#define STEPS 6
#define N_CHUNKS 3

/* Longer than every window (24), in a context of 128. */
static const char schema[] =
    "<schema name='s'>Be brief.<module name='m'>The river runs to <param name='p' len='4'/> the sea"
    "<module name='inner'>and back</module> again.</module><module name='n'>Seven hills</module></schema>";
static const char prompt[] = "<prompt schema='s'><m p='x'><inner/></m><n/> why?</prompt>";

static golden *models;
static char **names; /* NULL at the end; empty: all */

typedef struct variant {
    int32_t chunk, threads;
    rp_reuse reuse;
    rp_kv_format format;
    const char *f16_layers; /* NULL: none */
    rp_module_states states;
} variant;

static rp_engine *new_engine(rp_model *model, variant v) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *engine;
    rp_error err = {0};
    o.chunk_tokens = v.chunk;
    o.n_threads = v.threads;
    o.kv_format = v.format;
    o.kv_f16_layers = v.f16_layers;
    o.module_states = v.states;
    if (rp_engine_new(&engine, model, &o, &err) ||
        rp_schema_parse(engine, schema, strlen(schema), "s", NULL, NULL, NULL, &err))
        fail_msg("%s", err.message);
    return engine;
}

static void ask(rp_engine *engine, variant v, oracle_run *run) {
    rp_request req = rp_request_defaults();
    req.prompt = rp_prompt_pml(prompt);
    req.reuse = v.reuse;
    req.max_tokens = STEPS;
    req.ignore_eos = true;
    oracle_run_make(run, engine, &req);
    if (run->rc) fail_msg("%s", run->err.message);
}

/* Two requests, the second with the cache of the first. */
static void check(rp_model *model, const char *name, variant v, const oracle_run *expected) {
    rp_engine *engine = new_engine(model, v);
    for (int i = 0; i < 2; i++) {
        oracle_run run;
        ask(engine, v, &run);
        if (!oracle_run_same(expected, &run))
            fail_msg("%s: not the same bytes: chunks of %d, %d threads, reuse %s, request %d", name, (int)v.chunk,
                     (int)v.threads, v.reuse == RP_REUSE_OFF ? "off" : "on", i + 1);
        assert_true(v.reuse == RP_REUSE_OFF ? run.result->cached_tokens == 0 : i == 0 || run.result->cached_tokens > 0);
        oracle_run_free(&run);
    }
    rp_engine_free(engine);
}

static void check_format(rp_model *model, const char *name, rp_kv_format format, const char *f16_layers,
                         rp_module_states states) {
    static const int32_t chunks[N_CHUNKS] = {7, 1, 64};
    oracle_run expected;
    const variant usual = {.chunk = 256, .threads = 1, .format = format, .f16_layers = f16_layers, .states = states};
    rp_engine *engine = new_engine(model, usual);
    ask(engine, (variant){.reuse = RP_REUSE_ON}, &expected);
    assert_true(expected.result->prompt_tokens > 2 * 24);
    rp_engine_free(engine);
    for (int k = 0; k < 4 * BASE_MIN(test_rounds(N_CHUNKS), N_CHUNKS); k++)
        check(model, name,
              (variant){chunks[k / 4], 1 + (int32_t)(k & 1), k & 2 ? RP_REUSE_OFF : RP_REUSE_ON, format, f16_layers,
                        states},
              &expected);
    oracle_run_free(&expected);
}

/* KV of latent attention is of floats. */
static bool takes_integers(rp_model *model) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *engine;
    o.kv_format = RP_KV_INT8;
    const int rc = rp_engine_new(&engine, model, &o, NULL);
    assert_true(rc == RP_OK || rc == RP_ERR_UNSUPPORTED);
    if (!rc) rp_engine_free(engine);
    return !rc;
}

static bool is_wanted(const char *name) {
    bool is = *names == NULL;
    for (char **n = names; *n; n++) is |= strcmp(*n, name) == 0;
    return is;
}

static void chunks_threads_and_reuse_leave_every_familys_bytes(void **state) {
    (void)state;
    for (int32_t i = 0; i < models->n_models; i++) {
        rp_error err = {0};
        rp_model *model;
        if (!is_wanted(models->models[i].name)) continue;
        if (rp_model_open(&model, models->models[i].path, NULL, &err)) fail_msg("%s", err.message);
        rp_model_info info = {.struct_size = sizeof(info)};
        rp_model_describe(model, &info);
        const char *const windows = info.window > 0 ? "windows" : "0";
        const int32_t n_states = info.n_recurrent_layers == 0 ? 1 : info.states_compose ? 3
                                                                                        : 2;
        for (int32_t k = 0; k < n_states; k++)
            check_format(model, models->models[i].name, RP_KV_F16, NULL, (rp_module_states)k);
        if (!takes_integers(model)) {
            check_format(model, models->models[i].name, RP_KV_F32, NULL, RP_MODULE_STATES_EXACT);
            rp_model_close(model);
            continue;
        }
        check_format(model, models->models[i].name, RP_KV_INT8, NULL, RP_MODULE_STATES_EXACT);
        check_format(model, models->models[i].name, i % 2 ? RP_KV_KIVI4 : RP_KV_K4V2, NULL, RP_MODULE_STATES_EXACT);
        check_format(model, models->models[i].name, i % 3 ? RP_KV_INT8 : RP_KV_K4V2, windows, RP_MODULE_STATES_EXACT);
        rp_model_close(model);
    }
}

int main(BASE_UNUSED int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(chunks_threads_and_reuse_leave_every_familys_bytes)};
    models = golden_open();
    names = argv + 1;
    for (char **n = names; *n; n++)
        if (!golden_find(models, *n)) {
            fprintf(stderr, "there is no model '%s'\n", *n);
            return 2;
        }
    int failed = cmocka_run_group_tests_name("exactness of families", tests, NULL, NULL);
    golden_close(models);
    return failed;
}
