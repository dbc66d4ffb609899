/* SPDX-License-Identifier: Apache-2.0 */
/* check_f8.c: a KV format that the product does not have, f8, works everywhere: names, sizes, blocks, attention against
 * f32, reuse, modules of a schema, recomputed tokens, layers in f16, records and restarts. No source of the product
 * knows it. The whole change is a row in each of two lists, and one file with the kernels and their row of functions:
 *
 *   include/reprise_quality.h, RP_KV_FORMATS  +    X(F8, 100, "f8", F8, F8)
 *   src/kv/kv_format.h, KV_ELEMENTS      +    X(F8, 8, KV_FLOATS)
 *   f8_element.c                         +    its lines
 *
 * cmake/Tests.cmake adds the rows to copies of the headers. The sources that have a table of all formats or elements
 * are compiled with them and linked with the product's other objects.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu_kv_elements.h"
#include "kernels/kernels.h"
#include "kv/kv_layer.h"
#include "support/oracle_run.h"
#include "support/shared_model.h"
#include "support/store_folder.h"
#include "support/tiny_random.h"
#include "support/experiments.h"
#include "reprise_test.h"

#define ROUNDS_TO 0x1p-4f /* half a step of three bits of fraction */
#define LIMIT 0.07        /* of logits, from those in f32; the worst here is 0.027 */
#define DIM 12

static void it_has_a_name_and_sizes(void **state) {
    rp_kv_format f;
    (void)state;
    assert_true(kv_format_parse("f8", &f) && f == RP_KV_F8 && strcmp(rp_kv_format_name((int32_t)f), "f8") == 0);
    assert_true(kv_format_of_number(100, &f) && f == RP_KV_F8);
    assert_true(kv_format_is_small(f) && !kv_format_is_int(f) && !kv_format_is_encoded(f));
    assert_non_null(strstr(RP_KV_FORMAT_NAMES, " f8"));
    const kv_layer_shape shape = {.n_heads = 3, .key_dim = 16, .value_dim = DIM};
    const kv_layer half = kv_layer_make(&shape, RP_KV_F16), l = kv_layer_make(&shape, RP_KV_F8);
    assert_int_equal(l.block_bytes * 2, half.block_bytes);
    for (int n = 1; n <= KV_BLOCK_SLOTS; n++)
        assert_int_equal(kv_block_used_bytes(&l, n) * 2, kv_block_used_bytes(&half, n));
}

/* A slot is stored, packed for a record, unpacked and read. */
static void blocks_keep_its_elements(void **state) {
    const kv_layer_shape shape = {.n_heads = 1, .key_dim = DIM, .value_dim = DIM};
    const kv_layer l = kv_layer_make(&shape, RP_KV_F8);
    const cpu_element *e = cpu_element_rows[KV_ELEMENT_F8];
    uint8_t *block = calloc(1, l.block_bytes);
    float x[2][KV_BLOCK_SLOTS][DIM];
    tiny_random r = {8};
    (void)state;
    const int n = 41;
    for (int slot = 0; slot < n; slot++)
        for (int is_key = 0; is_key < 2; is_key++) {
            for (int d = 0; d < DIM; d++)
                x[is_key][slot][d] = ldexpf(tiny_random_normal(&r), (int)tiny_random_below(&r, 9) - 4);
            e->store(NULL, is_key)(x[is_key][slot], DIM,
                                   block + (is_key ? kv_block_keys_at(&l, 0) : kv_block_values_at(&l, 0)), slot);
        }
    assert_int_equal(kv_block_pack(&l, block, n), kv_block_used_bytes(&l, n));
    kv_block_unpack(&l, block, n);
    for (int i = 0; i < 2 * n * DIM; i++) {
        const int is_key = i % 2, slot = i / 2 / DIM, d = i / 2 % DIM;
        const void *head = block + (is_key ? kv_block_keys_at(&l, 0) : kv_block_values_at(&l, 0));
        const float y = e->load(head, is_key, DIM, slot, d), given = x[is_key][slot][d];
        assert_true(y == e->round(given));
        assert_true(fabsf(y - given) <= fmaxf(ROUNDS_TO * fabsf(given), 0x1p-10f));
    }
    free(block);
}

#define SCHEMA(attributes) \
    "<schema name=\"s\"" attributes \
    "><system>Read on.</system><module name=\"a\">one two three four five six</module>" \
    "<module name=\"b\">seven eight nine ten eleven twelve</module></schema>"
#define PROMPT "<prompt schema=\"s\"><a/><b/><user>What?</user></prompt>"
#define TEXT "Once upon a time there was a river, and beside the river a city with seven hills and a wall. " \
             "The wall had four gates, and each gate had a keeper who knew one word."

static const int32_t answer[] = {20, 31, 42, 53};

static rp_engine *new_engine_with(rp_kv_format format, const char *schema, const char *dir, const char *f16_layers) {
    rp_engine_options o = rp_engine_options_defaults();
    o.kv_format = format;
    o.kv_f16_layers = f16_layers;
    o.store_dir = dir;
    rp_engine *e = open_engine(&o);
    if (schema) load_schema(e, schema, "s");
    return e;
}

static rp_engine *new_engine(rp_kv_format format, const char *schema, const char *dir) {
    return new_engine_with(format, schema, dir, NULL);
}

/* Returns the cached tokens. */
static int32_t ask_with(oracle_run *out, rp_engine *e, bool uses_schema, rp_reuse reuse, rp_quality quality) {
    rp_request q = rp_request_defaults();
    q.quality = quality;
    q.prompt = uses_schema ? rp_prompt_pml(PROMPT) : rp_prompt_text(TEXT);
    q.reuse = reuse;
    const rp_request_experiment forced = experiment_forced(answer, 4);
    q.experiment = &forced;
    oracle_run_make(out, e, &q);
    if (out->rc) fail_msg("%s", out->err.message);
    return out->result->cached_tokens;
}

static int32_t ask(oracle_run *out, rp_engine *e, bool uses_schema, rp_reuse reuse) {
    return ask_with(out, e, uses_schema, reuse, (rp_quality){0});
}

static void check_near(const oracle_run *a, const oracle_run *b, double least) {
    assert_int_equal(a->n_steps, b->n_steps);
    double worst = 0;
    for (int32_t i = 0; i < a->n_steps; i++)
        worst = fmax(worst, oracle_deviation(oracle_run_logits(a, i), oracle_run_logits(b, i), a->n_vocab));
    print_message("deviation %g\n", worst);
    assert_true(worst > least && worst < LIMIT);
}

static void attention_is_near_f32_and_the_same_cached(void **state) {
    oracle_run f32, f8, again, plain;
    (void)state;
    for (int uses_schema = 0; uses_schema < 2; uses_schema++) {
        rp_engine *exact = new_engine(RP_KV_F32, SCHEMA(""), NULL), *e = new_engine(RP_KV_F8, SCHEMA(""), NULL);
        ask(&f32, exact, uses_schema, RP_REUSE_ON);
        ask(&f8, e, uses_schema, RP_REUSE_ON);
        check_near(&f8, &f32, 1e-4);
        assert_true(ask(&again, e, uses_schema, RP_REUSE_ON) > 0);
        assert_true(oracle_run_same(&f8, &again));
        assert_int_equal(ask(&plain, e, uses_schema, RP_REUSE_OFF), 0);
        assert_true(uses_schema || oracle_run_same(&f8, &plain));
        oracle_run_free(&f32), oracle_run_free(&f8), oracle_run_free(&again), oracle_run_free(&plain);
        rp_engine_free(exact);
        rp_engine_free(e);
    }
}

/* Of a schema in an engine of another format, and a schema of another format in its engine. */
static void modules_may_have_it(void **state) {
    static const struct {
        rp_kv_format text;
        const char *schema;
    } cases[] = {
        {RP_KV_F16, SCHEMA(" kv=\"f8\"")},
        {RP_KV_INT8, SCHEMA(" kv=\"f8\"")},
        {RP_KV_F8, SCHEMA(" kv=\"kivi4\"")},
        {RP_KV_F8, SCHEMA(" kv=\"f16\"")},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        oracle_run f32, mixed;
        rp_engine *exact = new_engine(RP_KV_F32, SCHEMA(""), NULL),
                  *e = new_engine(cases[i].text, cases[i].schema, NULL);
        ask(&f32, exact, true, RP_REUSE_ON);
        ask(&mixed, e, true, RP_REUSE_ON);
        check_near(&mixed, &f32, 1e-4);
        oracle_run_free(&f32), oracle_run_free(&mixed);
        rp_engine_free(exact);
        rp_engine_free(e);
    }
}

/* Tokens of blend are chosen by the deviation of their KV from what is stored, rounded as it is. */
static void recomputed_tokens_are_chosen_and_stored(void **state) {
    oracle_run f32, reused, blended, again;
    (void)state;
    rp_engine *exact = new_engine(RP_KV_F32, SCHEMA(" scope=\"module\""), NULL),
              *e = new_engine(RP_KV_F8, SCHEMA(" scope=\"module\""), NULL);
    const rp_quality half = {RP_QUALITY_BLEND, 50};
    ask_with(&f32, exact, true, RP_REUSE_ON, half);
    ask(&reused, e, true, RP_REUSE_ON);
    ask_with(&blended, e, true, RP_REUSE_ON, half);
    ask_with(&again, e, true, RP_REUSE_ON, half);
    assert_int_equal(blended.result->quality.used.mode, RP_QUALITY_BLEND);
    assert_true(oracle_run_same(&blended, &again) && !oracle_run_same(&blended, &reused));
    if (oracle_run_same_choice(&blended, &f32)) check_near(&blended, &f32, 1e-4);
    oracle_run_free(&f32), oracle_run_free(&reused), oracle_run_free(&blended), oracle_run_free(&again);
    rp_engine_free(exact);
    rp_engine_free(e);
}

/* The model has two layers. */
static void layers_in_f16_have_its_bytes(void **state) {
    oracle_run f16, one, both;
    (void)state;
    rp_engine *half = new_engine(RP_KV_F16, SCHEMA(""), NULL),
              *first = new_engine_with(RP_KV_F8, SCHEMA(""), NULL, "0"),
              *all = new_engine_with(RP_KV_F8, SCHEMA(""), NULL, "0-1");
    ask(&f16, half, true, RP_REUSE_ON);
    ask(&one, first, true, RP_REUSE_ON);
    ask(&both, all, true, RP_REUSE_ON);
    assert_true(oracle_run_same(&both, &f16) && !oracle_run_same(&one, &f16));
    check_near(&one, &f16, 1e-4);
    oracle_run_free(&f16), oracle_run_free(&one), oracle_run_free(&both);
    rp_engine_free(half), rp_engine_free(first), rp_engine_free(all);
}

static void records_outlive_the_engine(void **state) {
    (void)state;
    for (int uses_schema = 0; uses_schema < 2; uses_schema++) {
        char dir[STORE_FOLDER_BYTES];
        oracle_run before, after;
        store_folder_make(dir);
        rp_engine *e = new_engine(RP_KV_F8, SCHEMA(""), dir);
        ask(&before, e, uses_schema, RP_REUSE_ON);
        rp_engine_free(e);
        assert_true(store_folder_count(dir, ".rps") > 0);
        e = new_engine(RP_KV_F8, SCHEMA(""), dir);
        assert_true(ask(&after, e, uses_schema, RP_REUSE_ON) > 0);
        assert_true(oracle_run_same(&before, &after));
        rp_engine_free(e);
        oracle_run_free(&before), oracle_run_free(&after);
        store_folder_remove(dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_has_a_name_and_sizes),
        cmocka_unit_test(blocks_keep_its_elements),
        cmocka_unit_test(attention_is_near_f32_and_the_same_cached),
        cmocka_unit_test(modules_may_have_it),
        cmocka_unit_test(recomputed_tokens_are_chosen_and_stored),
        cmocka_unit_test(layers_in_f16_have_its_bytes),
        cmocka_unit_test(records_outlive_the_engine),
    };
    return cmocka_run_group_tests_name("f8", tests, open_model, close_model);
}
