/* SPDX-License-Identifier: Apache-2.0 */
/* test_latent.c: latent attention (tests/golden, deepseek2 and deepseek3; deepseek32, with an indexer): the KV of a
 * token in RAM, on disk and after a restart, in modules at any place, with every quality of reuse, by the bytes of
 * other divisions of the work; and what such KV refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "model/model.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "support/gguf_variant.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/store_folder.h"

#define N_MODELS 3

static golden *all;
static rp_model *models[N_MODELS];

static int open_models(void **state) {
    static const char *const names[N_MODELS] = {"deepseek2", "deepseek3", "deepseek32"};
    (void)state;
    all = golden_open();
    for (int i = 0; i < N_MODELS; i++) {
        rp_error err = {0};
        must(rp_model_open(&models[i], golden_find(all, names[i])->path, NULL, &err), &err);
    }
    return 0;
}

static int close_models(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) rp_model_close(models[i]);
    golden_close(all);
    return 0;
}

/* "b" is imported after "a" in one prompt, before it in the other: its KV is moved. */
static const char schema[] = "<schema name='s'><module name='a'>Seven hills and a river that runs to the sea.</module>"
                             "<module name='b'>The <param name='p' len='4'/> wall is long, and nobody has counted its "
                             "stones.</module></schema>";
static const char *const prompts[] = {"<prompt schema='s'><a/><b p='old'/> How long?</prompt>",
                                      "<prompt schema='s'><b p='new'/><a/> How many?</prompt>"};

static rp_engine *new_engine(rp_model *model, const rp_engine_options *o) {
    rp_engine *e;
    rp_error err = {0};
    must(rp_engine_new(&e, model, o, &err), &err);
    must(rp_schema_parse(e, schema, strlen(schema), "s", NULL, NULL, NULL, &err), &err);
    return e;
}

static void ask(rp_engine *e, const char *prompt, rp_quality quality, oracle_run *out) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(prompt);
    q.quality = quality;
    q.max_tokens = 6;
    q.ignore_eos = true;
    oracle_run_make(out, e, &q);
    if (out->rc) fail_msg("%s", out->err.message);
}

/* KV is written to disk and read by another process's engine; nothing of the modules is computed there. */
static void latent_kv_survives_a_restart(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++)
        for (size_t k = 0; k < BASE_ARRAY_LEN(prompts); k++) {
            char folder[STORE_FOLDER_BYTES];
            oracle_run runs[3];
            store_folder_make(folder);
            rp_engine_options o = rp_engine_options_defaults();
            o.n_threads = 1;
            o.store_dir = folder;
            o.store_write = RP_STORE_WRITE_THROUGH;
            for (int n = 0; n < 3; n++) { /* cold, from RAM, from disk */
                rp_engine *e = n == 1 ? NULL : new_engine(models[i], &o);
                if (e) ask(e, prompts[k], (rp_quality){0}, &runs[n]);
                if (n == 0) ask(e, prompts[k], (rp_quality){0}, &runs[1]);
                if (e) rp_engine_free(e);
            }
            assert_int_equal(runs[0].result->cached_tokens, 0);
            assert_true(runs[2].result->cached_tokens > 20);
            assert_true(oracle_run_same(&runs[0], &runs[1]) && oracle_run_same(&runs[0], &runs[2]));
            for (int n = 0; n < 3; n++) oracle_run_free(&runs[n]);
            store_folder_remove(folder);
        }
}

/* Whatever the quality, chunks and threads change no byte; exact is the prompt without reuse. */
static void every_quality_is_exact_in_its_way(void **state) {
    static const rp_quality qualities[] = {
        {RP_QUALITY_REUSE, 0},
        {RP_QUALITY_LINK, 4},
        {RP_QUALITY_BLEND, 40},
        {RP_QUALITY_FOCUS, 40},
        {RP_QUALITY_SCAFFOLD, 0},
        {RP_QUALITY_EXACT, 0},
    };
    (void)state;
    for (int i = 0; i < N_MODELS; i++)
        for (size_t k = 0; k < BASE_ARRAY_LEN(qualities); k++) {
            oracle_run first = {0}, run;
            for (int32_t chunk = 5; chunk <= 256; chunk += 251)
                for (int32_t threads = 1; threads <= 2; threads++) {
                    rp_engine_options o = rp_engine_options_defaults();
                    o.n_threads = threads;
                    o.chunk_tokens = chunk;
                    rp_engine *e = new_engine(models[i], &o);
                    ask(e, prompts[1], qualities[k], first.result ? &run : &first);
                    rp_engine_free(e);
                    if (chunk == 5 && threads == 1) continue;
                    assert_true(oracle_run_same(&first, &run));
                    oracle_run_free(&run);
                }
            oracle_run_free(&first);
        }
}

/* Older files have the keys and values of a head in one matrix: the same bytes. */
static void older_files_give_the_same_logits(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const gguf_variant v = {.joint_keys_values = true};
        const rp_engine_options o = rp_engine_options_defaults();
        char path[64];
        rp_model *older;
        rp_error err = {0};
        oracle_run runs[2];
        gguf_variant_write(golden_find(all, i ? "deepseek3" : "deepseek2")->path, &v, path);
        must(rp_model_open(&older, path, NULL, &err), &err);
        for (int k = 0; k < 2; k++) {
            rp_engine *e = new_engine(k ? older : models[i], &o);
            ask(e, prompts[0], (rp_quality){0}, &runs[k]);
            rp_engine_free(e);
        }
        assert_true(oracle_run_same(&runs[0], &runs[1]));
        for (int k = 0; k < 2; k++) oracle_run_free(&runs[k]);
        assert_non_null(older->made[0]);
        rp_model_close(older);
        rp_model_options plans = rp_model_options_defaults(); /* the shape is enough: no weight is read */
        plans.vocabulary_only = true;
        must(rp_model_open(&older, path, &plans, &err), &err);
        assert_true(older->has_shape && !older->made[0]);
        rp_model_close(older);
        unlink(path);
    }
}

static void add_long_choice(gguf_writer *w) { gguf_writer_u32(w, "deepseek32.attention.indexer.top_k", 4096); }

/* What an indexer chooses matters, unless it chooses all: then the bytes are those without one. */
static void an_indexer_that_chooses_all_changes_nothing(void **state) {
    const gguf_variant v = {.without_key = "deepseek32.attention.indexer.top_k", .add = add_long_choice};
    const rp_engine_options o = rp_engine_options_defaults();
    char path[64];
    oracle_run runs[3]; /* 24 tokens, all, no choice */
    (void)state;
    gguf_variant_write(golden_find(all, "deepseek32")->path, &v, path);
    for (int k = 0; k < 3; k++) {
        rp_model *m = models[2];
        rp_error err = {0};
        if (k > 0) must(rp_model_open(&m, path, NULL, &err), &err);
        for (int32_t l = 0; l < m->net.hp.n_layers && k == 2; l++) m->net.layers[l].is_chosen = false;
        rp_engine *e = new_engine(m, &o);
        ask(e, prompts[0], (rp_quality){0}, &runs[k]);
        rp_engine_free(e);
        if (k > 0) rp_model_close(m);
    }
    assert_true(runs[0].result->prompt_tokens > 2 * models[2]->net.hp.index_top_k);
    assert_true(oracle_run_same(&runs[1], &runs[2]));
    assert_false(oracle_run_same(&runs[0], &runs[1]));
    for (int k = 0; k < 3; k++) oracle_run_free(&runs[k]);
    unlink(path);
}

static void latent_kv_is_of_floats(void **state) {
    (void)state;
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e;
    rp_error err = {0};
    o.kv_format = RP_KV_INT8;
    assert_int_equal(rp_engine_new(&e, models[0], &o, &err), RP_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "int8 KV does not support layers with latent attention: choose f16");
    o = rp_engine_options_defaults();
    e = new_engine(models[0], &o);
    rp_request q = rp_request_defaults();
    rp_result *r = NULL;
    q.prompt = rp_prompt_pml(prompts[0]);
    q.kv_keep = "50%";
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "latent KV"));
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latent_kv_survives_a_restart),
        cmocka_unit_test(every_quality_is_exact_in_its_way),
        cmocka_unit_test(older_files_give_the_same_logits),
        cmocka_unit_test(an_indexer_that_chooses_all_changes_nothing),
        cmocka_unit_test(latent_kv_is_of_floats),
    };
    return cmocka_run_group_tests_name("latent attention", tests, open_models, close_models);
}
