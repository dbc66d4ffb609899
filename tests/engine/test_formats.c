/* SPDX-License-Identifier: Apache-2.0 */
/* test_formats.c: KV formats of modules: what a plan says of them, their bytes, formats that do not go together; layers
 * that stay in f16. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/oracle_run.h"
#include "support/shared_model.h"
#include "support/store_folder.h"
#include "reprise_pml.h"
#include "support/experiments.h"
#include "reprise_test.h"

static const int32_t answer[] = {20, 31, 42};

#define SCHEMA(attributes, of_a) \
    "<schema name=\"s\"" attributes "><system>Read on.</system><module name=\"a\"" of_a \
    ">one two three four five six</module></schema>"
#define PROMPT "<prompt schema=\"s\"><a/><user>What?</user></prompt>"

/* f16_layers, dir: may be NULL. */
static rp_engine *new_engine_with(rp_kv_format format, const char *f16_layers, const char *dir, const char *schema) {
    rp_engine_options o = rp_engine_options_defaults();
    o.kv_format = format;
    o.kv_f16_layers = f16_layers;
    o.store_dir = dir;
    rp_engine *e = open_engine(&o);
    load_schema(e, schema, "s");
    return e;
}

static rp_engine *new_engine(rp_kv_format format, const char *schema) {
    return new_engine_with(format, NULL, NULL, schema);
}

static void run(oracle_run *out, rp_kv_format format, const char *schema, rp_quality_mode mode) {
    rp_engine *e = new_engine(format, schema);
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(PROMPT);
    q.quality = (rp_quality){mode, 0};
    const rp_request_experiment forced = experiment_forced(answer, 3);
    q.experiment = &forced;
    oracle_run_make(out, e, &q);
    assert_int_equal(out->rc, RP_OK);
    rp_engine_free(e);
}

/* Number of leading items that are exact; those after them must not be. */
static int32_t exact_items(const oracle_run *r) {
    int32_t n = 0;
    while (n < r->result->n_plan && r->result->plan[n].exact) n++;
    for (int32_t i = n; i < r->result->n_plan; i++) assert_false(r->result->plan[i].exact);
    return n;
}

#define ALL INT32_MAX

static void a_module_in_another_format_is_not_exact(void **state) {
    static const struct {
        rp_kv_format format;
        const char *schema;
        int32_t exact; /* items; ALL: of the whole plan */
    } cases[] = {
        {RP_KV_F16, SCHEMA("", ""), ALL},
        {RP_KV_INT8, SCHEMA("", ""), ALL},
        {RP_KV_KIVI4, SCHEMA("", ""), 0},
        {RP_KV_F16, SCHEMA("", " kv=\"k4v2\""), 1}, /* the text before it */
        {RP_KV_F16, SCHEMA(" kv=\"int8\"", ""), 0},
        {RP_KV_KIVI2, SCHEMA(" kv=\"int8\"", ""), ALL}, /* text is int8 as well */
        {RP_KV_INT8, SCHEMA("", " kv=\"int8\""), ALL},
        {RP_KV_INT8, SCHEMA("", " kv=\"kivi4\""), 1}, /* encoded from int8 */
        {RP_KV_F16, SCHEMA(" kv=\"k4v2\"", ""), 0},
        {RP_KV_F16, SCHEMA(" kv=\"kivi4\"", " kv=\"f16\""), 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        oracle_run r;
        run(&r, cases[i].format, cases[i].schema, RP_QUALITY_REUSE);
        assert_int_equal(exact_items(&r), cases[i].exact == ALL ? r.result->n_plan : cases[i].exact);
        oracle_run_free(&r);
    }
}

static void exact_quality_is_the_plain_run_in_the_format_of_text(void **state) {
    oracle_run plain, small;
    (void)state;
    run(&plain, RP_KV_INT8, SCHEMA("", ""), RP_QUALITY_EXACT);
    run(&small, RP_KV_KIVI2, SCHEMA("", ""), RP_QUALITY_EXACT);
    assert_true(oracle_run_same(&plain, &small));
    oracle_run_free(&small);
    run(&small, RP_KV_KIVI2, SCHEMA("", ""), RP_QUALITY_REUSE);
    assert_false(oracle_run_same(&plain, &small));
    oracle_run_free(&small);
    run(&small, RP_KV_F16, SCHEMA(" kv=\"kivi2\"", ""), RP_QUALITY_EXACT);
    oracle_run_free(&plain);
    run(&plain, RP_KV_F16, SCHEMA("", ""), RP_QUALITY_EXACT);
    assert_true(oracle_run_same(&plain, &small));
    oracle_run_free(&plain);
    oracle_run_free(&small);
}

static void engines_say_their_format_and_its_bytes(void **state) {
    uint64_t bytes = UINT64_MAX;
    static const rp_kv_format by_size[] = {RP_KV_F32, RP_KV_F16, RP_KV_INT8, RP_KV_KIVI4, RP_KV_K4V2, RP_KV_KIVI2};
    (void)state;
    for (size_t i = 0; i < RP_N_KV_FORMATS; i++) {
        rp_engine *e = new_engine(by_size[i], SCHEMA("", ""));
        rp_engine_info info = {.struct_size = sizeof(info)};
        assert_int_equal(rp_engine_describe(e, &info), RP_OK);
        assert_int_equal(info.kv_format, by_size[i]);
        assert_true(info.kv_bytes_per_token < bytes && info.kv_bytes_per_token > 0);
        bytes = info.kv_bytes_per_token;
        rp_engine_free(e);
    }
}

static void check_refused(rp_engine *e, const char *schema, rp_code code, const char *words, const char *where) {
    rp_error err = {0};
    assert_int_equal(rp_schema_parse(e, schema, strlen(schema), "x.xml", NULL, NULL, NULL, &err), code);
    assert_non_null(strstr(err.message, words));
    assert_string_equal(err.where, where);
}

static void what_does_not_go_together_is_refused(void **state) {
    rp_engine *e = new_engine(RP_KV_KIVI4, SCHEMA("", ""));
    (void)state;
    check_refused(e, "<schema name=\"t\">\n<module name=\"a\" kv=\"f32\">one</module></schema>", RP_ERR_UNSUPPORTED,
                  "KV in f32", "x.xml:2:1");
    check_refused(e, "<schema name=\"t\" kv=\"q4_0\">one</schema>", RP_ERR_SYNTAX, "give one of f16 f32 int8 ",
                  "x.xml:1:1");
    check_refused(e, "<schema name=\"t\" kv=\"fp8\">one</schema>", RP_ERR_SYNTAX,
                  "fp8 was removed: use int8, which is about as small and more exact (KV formats: f16 f32 int8 ",
                  "x.xml:1:1");
    check_refused(e, "<schema name=\"t\" kv=\"k8v4\">one</schema>", RP_ERR_SYNTAX,
                  "k8v4 was removed: use int8, which is as exact, or k4v2, which is smaller (KV formats: f16 f32 int8 ",
                  "x.xml:1:1");
    rp_engine_free(e);
}

/* ---- a tenant's default ---- */

static void run_in(oracle_run *out, rp_engine *e, const char *own_schema, const char *modules_in) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(PROMPT);
    q.prompt.schema = own_schema;
    q.kv_format = modules_in;
    const rp_request_experiment forced = experiment_forced(answer, 3);
    q.experiment = &forced;
    oracle_run_make(out, e, &q);
    assert_int_equal(out->rc, RP_OK);
    rp_engine_free(e);
}

/* The default of a schema's options, or of a request with its own schema, is what kv would be; kv overrides it. */
static void a_default_format_is_that_of_modules_without_kv(void **state) {
    static const struct {
        const char *schema, *kv_format, *same;
    } cases[] = {
        {SCHEMA("", ""), "k4v2", SCHEMA(" kv=\"k4v2\"", "")},
        {SCHEMA("", " kv=\"int8\""), "k4v2", SCHEMA(" kv=\"k4v2\"", " kv=\"int8\"")},
        {SCHEMA(" kv=\"f16\"", ""), "kivi4", SCHEMA("", "")},
        {SCHEMA("", ""), NULL, SCHEMA("", "")},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rp_schema_options o = rp_schema_options_defaults();
        rp_error err = {0};
        oracle_run by_options, by_request, written;
        rp_engine *e = open_engine(NULL);
        o.kv_format = cases[i].kv_format;
        if (rp_schema_parse(e, cases[i].schema, strlen(cases[i].schema), "s", NULL, &o, NULL, &err))
            fail_msg("%s", err.message);
        run_in(&by_options, e, NULL, NULL);
        run_in(&by_request, open_engine(NULL), cases[i].schema, cases[i].kv_format);
        run_in(&written, new_engine(RP_KV_F16, cases[i].same), NULL, NULL);
        assert_true(oracle_run_same(&by_options, &written) && oracle_run_same(&by_request, &written));
        oracle_run_free(&by_options);
        oracle_run_free(&by_request);
        oracle_run_free(&written);
    }
}

static void an_unknown_default_is_refused(void **state) {
    rp_schema_options o = rp_schema_options_defaults();
    rp_engine *e = open_engine(NULL);
    rp_error err = {0};
    rp_result *r;
    (void)state;
    o.kv_format = "q4_0";
    assert_int_equal(rp_schema_parse(e, SCHEMA("", ""), strlen(SCHEMA("", "")), "s", NULL, &o, NULL, &err),
                     RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "give one of f16 f32 int8 "));
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(PROMPT);
    q.prompt.schema = SCHEMA("", "");
    q.kv_format = "";
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_INVALID);
    rp_engine_free(e);
}

/* ---- layers in f16 ---- */

static void run_with(oracle_run *out, rp_kv_format format, const char *f16_layers, const char *dir,
                     uint64_t *kv_bytes) {
    rp_engine *e = new_engine_with(format, f16_layers, dir, SCHEMA("", ""));
    rp_engine_info info = {.struct_size = sizeof(info)};
    assert_int_equal(rp_engine_describe(e, &info), RP_OK);
    *kv_bytes = info.kv_bytes_per_token;
    run_in(out, e, NULL, NULL);
}

/* The model has two layers. With both in f16 an engine has the bytes of one in f16, with one of them those of
   neither. */
static void layers_in_f16_have_its_bytes(void **state) {
    static const rp_kv_format formats[] = {RP_KV_INT8, RP_KV_KIVI4, RP_KV_K4V2, RP_KV_KIVI2};
    oracle_run f16, small, mixed;
    uint64_t f16_bytes, small_bytes, mixed_bytes;
    (void)state;
    run_with(&f16, RP_KV_F16, NULL, NULL, &f16_bytes);
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        static const char *const lists[] = {"0", "1"};
        run_with(&mixed, formats[i], "0-1", NULL, &mixed_bytes);
        assert_true(oracle_run_same(&mixed, &f16));
        assert_int_equal(mixed_bytes, f16_bytes);
        oracle_run_free(&mixed);
        run_with(&small, formats[i], NULL, NULL, &small_bytes);
        for (size_t k = 0; k < 2; k++) {
            run_with(&mixed, formats[i], lists[k], NULL, &mixed_bytes);
            assert_false(oracle_run_same(&mixed, &f16) || oracle_run_same(&mixed, &small));
            assert_int_equal(2 * mixed_bytes, f16_bytes + small_bytes);
            oracle_run_free(&mixed);
        }
        oracle_run_free(&small);
    }
    oracle_run_free(&f16);
}

/* Engines with one store hit what an engine with the same layers in f16 wrote, and nothing else. */
static void layers_in_f16_are_part_of_keys(void **state) {
    static const struct {
        const char *f16_layers;
        bool hits;
    } runs[] = {
        {NULL, false},
        {"0", false},
        {"1", false},
        {"0-1", false},
        {"0", true},
        {"0,0", true},
        {NULL, true},
        {"1,0", true},
    };
    char dir[STORE_FOLDER_BYTES];
    (void)state;
    store_folder_make(dir);
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        oracle_run r, alone;
        uint64_t kv_bytes;
        run_with(&alone, RP_KV_K4V2, runs[i].f16_layers, NULL, &kv_bytes);
        run_with(&r, RP_KV_K4V2, runs[i].f16_layers, dir, &kv_bytes);
        assert_int_equal(r.result->cached_tokens > 0, runs[i].hits);
        assert_true(oracle_run_same(&r, &alone));
        oracle_run_free(&r);
        oracle_run_free(&alone);
    }
    store_folder_remove(dir);
}

static void layers_in_f16_need_a_smaller_format(void **state) {
    static const struct {
        rp_kv_format format;
        const char *list, *words;
    } cases[] = {
        {RP_KV_F16, "0", "kv_f16_layers is for KV of less than 16 bits, but the KV format is f16"},
        {RP_KV_F32, "0", "but the KV format is f32"},
        {RP_KV_INT8, "2", "kv_f16_layers '2': there is no layer 2: this model has layers 0 to 1"},
        {RP_KV_KIVI2, "windows", "kv_f16_layers 'windows': no layer of this model has a sliding window"},
        {RP_KV_INT8, "first", "kv_f16_layers 'first': give layers and ranges"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rp_engine_options o = rp_engine_options_defaults();
        rp_engine *e;
        rp_error err = {0};
        o.kv_format = cases[i].format;
        o.kv_f16_layers = cases[i].list;
        assert_int_equal(rp_engine_new(&e, model, &o, &err), RP_ERR_INVALID);
        assert_null(e);
        if (!strstr(err.message, cases[i].words)) fail_msg("%s", err.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_in_another_format_is_not_exact),
        cmocka_unit_test(exact_quality_is_the_plain_run_in_the_format_of_text),
        cmocka_unit_test(engines_say_their_format_and_its_bytes),
        cmocka_unit_test(what_does_not_go_together_is_refused),
        cmocka_unit_test(a_default_format_is_that_of_modules_without_kv),
        cmocka_unit_test(an_unknown_default_is_refused),
        cmocka_unit_test(layers_in_f16_have_its_bytes),
        cmocka_unit_test(layers_in_f16_are_part_of_keys),
        cmocka_unit_test(layers_in_f16_need_a_smaller_format),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
