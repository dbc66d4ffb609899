/* SPDX-License-Identifier: Apache-2.0 */
/* test_reductions.c: modules with keep: their reduced KV is computed in the background and used from then on; hit =
 * miss for every method, format, number of threads, chunk size and tier; what uses full KV all the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/core/commands.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/schemas.h"
#include "support/calls.h"
#include "support/oracle_run.h"
#include "support/shared_model.h"
#include "support/store_folder.h"
#include "reprise_pml.h"
#include "support/experiments.h"
#include "reprise_test.h"

#define WORDS 120 /* of a module: more tokens than a block, and, as bytes of a tiny vocabulary, than a span */
static const int32_t forced[] = {20, 31, 42};

/* A schema with two modules of the same length; the second has a parameter. keep: its attribute, or "". */
static char *schema_of_words(const char *keep, int n_words) {
    char *a = calls_text(1, n_words), *b = calls_text(2, n_words), *out = malloc(strlen(a) + strlen(b) + 512);
    sprintf(out,
            "<schema name=\"s\"%s><system>Read.<module name=\"a\">%s</module><module name=\"b\">In <param name=\"p\" "
            "len=\"6\"/> %s</module>"
            "</system></schema>",
            keep, a, b);
    free(a);
    free(b);
    return out;
}

static char *schema_of(const char *keep) { return schema_of_words(keep, WORDS); }

typedef struct setting {
    rp_kv_format format;
    const char *keep, *method, *dir;
    int32_t threads, chunk, ctx;
    uint64_t budget;
} setting;

static rp_engine *new_engine(const setting *s, const char *schema) {
    rp_engine_options o = rp_engine_options_defaults();
    o.kv_format = s->format;
    o.keep_share = s->keep;
    o.keep_method = s->method;
    o.store_dir = s->dir;
    o.n_threads = s->threads;
    o.chunk_tokens = s->chunk;
    o.kv_budget_bytes = s->budget;
    o.n_ctx = s->ctx;
    rp_engine *e = open_engine(&o);
    load_schema(e, schema, "s");
    return e;
}

static rp_request request_of(const char *prompt) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(prompt);
    static const rp_request_experiment experiment = {
        .struct_size = sizeof(experiment), .forced = forced, .n_forced = 3};
    q.experiment = &experiment;
    return q;
}

static void run(oracle_run *out, rp_engine *e, const char *prompt, rp_reuse reuse) {
    rp_request q = request_of(prompt);
    q.reuse = reuse;
    oracle_run_make(out, e, &q);
    if (out->rc) fail_msg("%s", out->err.message);
}

#define BOTH "<prompt schema=\"s\"><b p=\"me\"/><a/><user>What?</user></prompt>"
#define ONLY_A "<prompt schema=\"s\"><a/><user>What?</user></prompt>"

/* The line of a module's view. */
static const rp_plan_item *view_of(const oracle_run *r, const char *module) {
    for (int32_t i = 0; i < r->result->n_plan; i++)
        if (r->result->plan[i].is_view && strcmp(r->result->plan[i].module, module) == 0) return &r->result->plan[i];
    return NULL;
}

static void expect_kept(const oracle_run *r, const char *module, float share, const char *method, const char *tier,
                        const char *reason) {
    const rp_plan_item *v = view_of(r, module);
    assert_non_null(v);
    assert_true(v->kept == share);
    assert_string_equal(v->kept_by, method);
    assert_string_equal(v->tier, tier);
    assert_string_equal(v->reason, reason);
    if (share < 1) assert_string_equal(v->full_reason, "");
    if (share < 1) assert_false(v->exact);
}

/* ---- the course of things ---- */

static void modules_are_reduced_in_the_background(void **state) {
    const setting s = {.format = RP_KV_F16, .keep = "25%"};
    char *schema = schema_of("");
    rp_engine *e = new_engine(&s, schema);
    oracle_run first, second, off;
    (void)state;
    run(&first, e, BOTH, RP_REUSE_ON);
    expect_kept(&first, "a", 1, "", "computed", "new");
    assert_true(rp_engine_drain(e, -1));
    run(&second, e, BOTH, RP_REUSE_ON);
    expect_kept(&second, "a", 0.25f, "kvzip", "ram", "");
    expect_kept(&second, "b", 0.25f, "kvzip", "ram", "");
    assert_int_equal(second.result->cached_tokens, first.result->prompt_tokens - second.result->fresh_tokens);
    assert_int_equal(second.result->prompt_tokens, first.result->prompt_tokens);
    assert_true(second.result->kv_bytes < first.result->kv_bytes / 2);
    assert_false(oracle_run_same(&first, &second));
    run(&off, e, BOTH, RP_REUSE_OFF);
    expect_kept(&off, "a", 0.25f, "kvzip", "computed", "off");
    assert_true(oracle_run_same(&second, &off));
    oracle_run_free(&first), oracle_run_free(&second), oracle_run_free(&off);
    rp_engine_free(e);
    free(schema);
}

static void what_changes_a_view_in_part_uses_full_kv(void **state) {
    static const rp_quality qualities[] = {{RP_QUALITY_LINK, 4}, {RP_QUALITY_BLEND, 20}, {RP_QUALITY_EXACT, 0}};
    const setting with = {.format = RP_KV_F16, .keep = "25%"}, without = {.format = RP_KV_F16};
    char *schema = schema_of("");
    rp_engine *e = new_engine(&with, schema), *full = new_engine(&without, schema);
    oracle_run r, other;
    (void)state;
    run(&r, e, BOTH, RP_REUSE_ON);
    oracle_run_free(&r);
    assert_true(rp_engine_drain(e, -1));
    for (size_t i = 0; i < sizeof(qualities) / sizeof(qualities[0]); i++) {
        rp_request q = request_of(BOTH);
        q.quality = qualities[i];
        oracle_run_make(&r, e, &q);
        oracle_run_make(&other, full, &q);
        assert_int_equal(r.rc, RP_OK);
        assert_true(oracle_run_same(&r, &other));
        oracle_run_free(&r), oracle_run_free(&other);
    }
    rp_engine_free(e), rp_engine_free(full);
    free(schema);
}

/* Why a module with keep has full KV. */
static void full_kv_has_a_reason(void **state) {
    enum { REDUCED = 2 };
    static const char plain[] = "<schema name=\"s\"%s><system>Read.<module name=\"a\">%s</module> <module "
                                "name=\"b\">%s</module></system></schema>";
    static const char bare[] =
        "<schema name=\"s\"%s><module name=\"a\">%s</module> <module name=\"b\">%s</module></schema>";
    static const char joint[] =
        "<schema name=\"s\"%s><system>Read.<module name=\"a\">%s</module> <module name=\"b\">%s</module></system>"
        "<scaffold modules=\"a b\"/></schema>";
    static const char both[] = "<prompt schema=\"s\"><a/><b/><user>What?</user></prompt>",
                      last[] = "<prompt schema=\"s\"><a/></prompt>";
    static const struct {
        const char *schema, *keep, *prompt, *reason;
        rp_quality quality;
        int n_words;
        bool narrow; /* the context ends shortly after the module */
    } cases[] = {
        {plain, "", ONLY_A, "", {RP_QUALITY_LINK, 8}, WORDS, false},
        {plain, " keep=\"100%\"", ONLY_A, "", {0}, WORDS, false},
        [REDUCED] = {plain, " keep=\"25%\"", both, "", {0}, WORDS, false},
        {plain, " keep=\"25%\"", ONLY_A, "short", {0}, 5, false},
        {plain, " keep=\"25%\"", ONLY_A, "quality", {RP_QUALITY_FOCUS, 15}, WORDS, false},
        {plain, " keep=\"25%\"", both, "quality", {RP_QUALITY_BLEND, 15}, WORDS, false},
        {bare, " keep=\"25%\"", last, "last", {0}, WORDS, false},
        {joint, " keep=\"25%\"", both, "scaffold", {0}, WORDS, false},
        {plain, " keep=\"25%\"", ONLY_A, "context", {0}, WORDS, true},
    };
    char *b = calls_text(2, WORDS), *schema = malloc(2 * strlen(b) + 512);
    int32_t end = 0; /* of module a */
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const setting s = {.format = RP_KV_F16, .ctx = cases[i].narrow ? end + 100 : 0};
        char *text = calls_text(1, cases[i].n_words);
        sprintf(schema, cases[i].schema, cases[i].keep, text, b);
        rp_engine *e = new_engine(&s, schema);
        for (int k = 0; k < 2; k++) {
            rp_request q = request_of(cases[i].prompt);
            oracle_run r;
            q.quality = cases[i].quality;
            oracle_run_make(&r, e, &q);
            if (r.rc) fail_msg("case %d: %s", (int)i, r.err.message);
            assert_string_equal(view_of(&r, "a")->full_reason, k == 0 && i == REDUCED ? "new" : cases[i].reason);
            assert_int_equal(view_of(&r, "a")->kept < 1, k == 1 && i == REDUCED);
            if (i == REDUCED) end = view_of(&r, "a")->position + view_of(&r, "a")->n_tokens;
            oracle_run_free(&r);
            assert_true(rp_engine_drain(e, -1));
        }
        rp_engine_free(e);
        free(text);
    }
    free(b), free(schema);
}

static void attributes_override_the_option(void **state) {
    static const struct {
        const char *option, *attribute;
        float kept;
    } cases[] = {{NULL, "", 1},
                 {NULL, " keep=\"50%\"", 0.5f},
                 {"25%", "", 0.25f},
                 {"25%", " keep=\"12.5%\"", 0.125f},
                 {"25%", " keep=\"100%\"", 1}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const setting s = {.format = RP_KV_F16, .keep = cases[i].option};
        char *schema = schema_of(cases[i].attribute);
        rp_engine *e = new_engine(&s, schema);
        oracle_run r;
        for (int k = 0; k < 2; k++) {
            run(&r, e, ONLY_A, RP_REUSE_ON);
            if (k == 1) expect_kept(&r, "a", cases[i].kept, cases[i].kept < 1 ? "kvzip" : "", "ram", "");
            oracle_run_free(&r);
            assert_true(rp_engine_drain(e, -1));
        }
        rp_engine_free(e);
        free(schema);
    }
}

/* ---- the same bytes ---- */

static const char *const methods[] = {"kvzip", "kvzip+", "expected", "compactor"};

/* Reduced KV of every method and format: hits, misses of engines with other threads and chunks, and no other
   method's. */
static void hits_equal_misses(void **state) {
    static const rp_kv_format formats[] = {RP_KV_F16, RP_KV_INT8, RP_KV_KIVI4, RP_KV_F32};
    char *schema = schema_of("");
    (void)state;
    for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
        oracle_run runs[sizeof(methods) / sizeof(methods[0])];
        const size_t n = f == 0 ? sizeof(methods) / sizeof(methods[0]) : 2;
        for (size_t m = 0; m < n; m++) {
            const setting s = {.format = formats[f], .keep = "25%", .method = methods[m], .threads = 2, .chunk = 64};
            const setting t = {.format = formats[f],
                               .keep = "25%",
                               .method = methods[m],
                               .threads = 1 + (int32_t)(m % 3),
                               .chunk = 17};
            rp_engine *e = new_engine(&s, schema), *other = new_engine(&t, schema);
            oracle_run r;
            run(&r, e, BOTH, RP_REUSE_ON), oracle_run_free(&r);
            run(&r, other, ONLY_A, RP_REUSE_ON), oracle_run_free(&r);
            run(&r, other, BOTH, RP_REUSE_ON), oracle_run_free(&r);
            assert_true(rp_engine_drain(e, -1) && rp_engine_drain(other, -1));
            run(&runs[m], e, BOTH, RP_REUSE_ON);
            expect_kept(&runs[m], "b", 0.25f, methods[m], "ram", "");
            run(&r, other, BOTH, RP_REUSE_ON);
            expect_kept(&r, "b", 0.25f, methods[m], "ram", "");
            assert_true(oracle_run_same(&runs[m], &r));
            oracle_run_free(&r);
            run(&r, other, BOTH, RP_REUSE_OFF);
            assert_true(oracle_run_same(&runs[m], &r));
            oracle_run_free(&r);
            rp_engine_free(e), rp_engine_free(other);
            for (size_t k = 0; k < m; k++) assert_false(oracle_run_same(&runs[m], &runs[k]));
        }
        for (size_t m = 0; m < n; m++) oracle_run_free(&runs[m]);
    }
    free(schema);
}

/* A calibrated share is the same for every engine and on a miss; other methods, formats and texts have others. */
static void shares_are_calibrated(void **state) {
    static const struct {
        rp_kv_format format;
        const char *method;
    } cases[] = {{RP_KV_F16, "kvzip"}, {RP_KV_KIVI4, "kvzip"}, {RP_KV_INT8, "expected"}, {RP_KV_F16, "compactor"}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *schema = schema_of_words(" keep=\"auto\"", i == 0 ? 2 * WORDS : WORDS); /* more tokens than are judged */
        const setting s = {.format = cases[i].format, .method = cases[i].method, .threads = 2, .chunk = 64};
        const setting t = {.format = cases[i].format, .method = cases[i].method, .threads = 1, .chunk = 17};
        rp_engine *e = new_engine(&s, schema), *other = new_engine(&t, schema);
        oracle_run r, first;
        run(&r, e, BOTH, RP_REUSE_ON), oracle_run_free(&r);
        run(&r, other, BOTH, RP_REUSE_ON), oracle_run_free(&r);
        assert_true(rp_engine_drain(e, -1) && rp_engine_drain(other, -1));
        run(&first, e, BOTH, RP_REUSE_ON);
        const float kept = view_of(&first, "a")->kept;
        assert_true(kept > 0.03f && kept <= 1);
        assert_string_equal(view_of(&first, "a")->kept_by, cases[i].method);
        for (int k = 0; k < 3; k++) {
            run(&r, k < 2 ? other : e, BOTH, k % 2 ? RP_REUSE_OFF : RP_REUSE_ON);
            assert_true(view_of(&r, "a")->kept == kept);
            assert_true(oracle_run_same(&first, &r));
            oracle_run_free(&r);
        }
        oracle_run_free(&first);
        rp_engine_free(e), rp_engine_free(other);
        free(schema);
    }
}

/* Of a module longer than a chunk of a repetition: n_ctx leaves few positions after it. */
static void long_modules_are_repeated_in_chunks(void **state) {
    char *schema = schema_of(" keep=\"50%\"");
    oracle_run r[2], full;
    (void)state;
    for (int i = 0; i < 2; i++) {
        rp_engine_options o = rp_engine_options_defaults();
        o.n_ctx = 1000;
        o.chunk_tokens = i ? 64 : 31;
        rp_engine *e = open_engine(&o);
        load_schema(e, schema, "s");
        run(&full, e, ONLY_A, RP_REUSE_ON);
        assert_true(2 * view_of(&full, "a")->n_tokens > 1000 - 128); /* no room for a whole repetition */
        oracle_run_free(&full);
        assert_true(rp_engine_drain(e, -1));
        run(&r[i], e, ONLY_A, i ? RP_REUSE_OFF : RP_REUSE_ON);
        expect_kept(&r[i], "a", 0.5f, "kvzip", i ? "computed" : "ram", i ? "off" : "");
        rp_engine_free(e);
    }
    assert_true(oracle_run_same(&r[0], &r[1]));
    oracle_run_free(&r[0]), oracle_run_free(&r[1]);
    free(schema);
}

/* ---- memory ---- */

/* With a text that leaves no room for anything else. */
static void fill_memory(rp_engine *e, int number, uint64_t budget) {
    const int32_t n_tokens = (int32_t)(budget / column_bytes * 64);
    char *text = calls_text(number, n_tokens); /* a word has more than one token */
    size_t n = 0;
    int32_t *tokens;
    rp_error err = {0};
    assert_int_equal(rp_tokenize(model, text, strlen(text), false, true, &tokens, &n, &err), RP_OK);
    rp_request q = calls_request(NULL, 1);
    q.prompt = rp_prompt_tokens(tokens, n_tokens - 64);
    assert_true(n > (size_t)n_tokens);
    calls_end(calls_submit(e, &q));
    rp_free(tokens);
    free(text);
}

/* Full KV and reduced KV are evicted in turn: what was reduced once is computed again, with the same bytes. */
static void evicted_reduced_kv_is_computed_again(void **state) {
    char *schema = schema_of(" keep=\"25%\"");
    const setting large = {.format = RP_KV_F16};
    rp_engine *e = new_engine(&large, schema);
    oracle_run r, expected;
    bool evicted = false;
    (void)state;
    run(&r, e, ONLY_A, RP_REUSE_ON);
    const uint64_t bytes = r.result->kv_bytes;
    oracle_run_free(&r);
    assert_true(rp_engine_drain(e, -1));
    run(&expected, e, ONLY_A, RP_REUSE_ON);
    rp_engine_free(e);
    const setting small = {.format = RP_KV_F16, .budget = 4 * bytes, .ctx = 4096}; /* enough to compute it again */
    e = new_engine(&small, schema);
    run(&r, e, ONLY_A, RP_REUSE_ON), oracle_run_free(&r);
    assert_true(rp_engine_drain(e, -1));
    for (int i = 0; i < 3; i++) {
        fill_memory(e, 100 + i, small.budget);
        run(&r, e, ONLY_A, RP_REUSE_ON);
        const rp_plan_item *v = view_of(&r, "a");
        assert_true(v->kept == 0.25f);
        evicted |= strcmp(v->reason, "evicted") == 0;
        assert_true(oracle_run_same(&r, &expected));
        oracle_run_free(&r);
    }
    assert_true(evicted);
    rp_engine_free(e);
    oracle_run_free(&expected);
    free(schema);
}

/* Requests that arrive while a module is being reduced, and take its memory. */
static void requests_precede_reductions(void **state) {
    char *schema = schema_of(" keep=\"25%\"");
    const setting s = {.format = RP_KV_F16};
    rp_engine *e = new_engine(&s, schema);
    oracle_run r, expected;
    (void)state;
    run(&r, e, BOTH, RP_REUSE_ON), oracle_run_free(&r);
    assert_true(rp_engine_drain(e, -1));
    run(&expected, e, BOTH, RP_REUSE_ON);
    rp_engine_free(e);
    int n_full = 0, n_mixed = 0;
    for (int i = 0; i < 8; i++) {
        const setting t = {.format = RP_KV_F16, .chunk = 16 + i};
        e = new_engine(&t, schema);
        run(&r, e, BOTH, RP_REUSE_ON), oracle_run_free(&r);
        for (int k = 0; k < 40; k++) {
            rp_engine_drain(e, k % 4);
            run(&r, e, BOTH, RP_REUSE_ON);
            const int n_reduced = (view_of(&r, "a")->kept < 1) + (view_of(&r, "b")->kept < 1);
            n_full += n_reduced == 0;
            n_mixed += n_reduced == 1;
            if (n_reduced == 2) assert_true(oracle_run_same(&r, &expected));
            oracle_run_free(&r);
        }
        assert_true(rp_engine_drain(e, -1));
        run(&r, e, BOTH, RP_REUSE_ON);
        assert_true(oracle_run_same(&r, &expected));
        oracle_run_free(&r);
        rp_engine_free(e);
    }
    assert_true(n_full > 0 && n_mixed > 0); /* they were interrupted */
    oracle_run_free(&expected);
    free(schema);
}

/* What a plan may need besides its reduced KV counts when it is decided whether that fits: tokens that blend and focus
 * recompute, KV that is reduced for the answer. No budget refuses a request with reduced KV that it accepts with full
 * KV. */
static void reduced_kv_is_used_only_where_all_of_the_plan_fits(void **state) {
    static const struct {
        const char *attribute, *kv_keep; /* of module b; of the request */
    } cases[] = {{" quality=\"focus:100\"", NULL},
                 {" quality=\"blend:100\"", NULL},
                 {"", "90%"},
                 {" kv=\"kivi4\"", NULL},
                 {" kv=\"int8\"", "90%"}};
    char *a = calls_text(1, WORDS), *b = calls_text(2, 3 * WORDS), *schema = malloc(strlen(a) + strlen(b) + 512),
         dir[STORE_FOLDER_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int n_reduced = 0, n_full = 0;
        store_folder_make(dir);
        sprintf(schema,
                "<schema name=\"s\"><system>Read.<module name=\"a\" keep=\"25%%\">%s</module><module "
                "name=\"b\"%s>%s</module></system></schema>",
                a, cases[i].attribute, b);
        setting s = {.format = RP_KV_F16, .dir = dir, .ctx = 8192};
        rp_engine *e = new_engine(&s, schema);
        oracle_run r, full;
        run(&r, e, ONLY_A, RP_REUSE_ON), oracle_run_free(&r);
        assert_true(rp_engine_drain(e, -1));
        rp_engine_free(e);
        for (int32_t columns = 8; n_reduced < 2; columns++) {
            rp_request q = request_of("<prompt schema=\"s\"><a/><b/><user>What?</user></prompt>");
            s.budget = (uint64_t)columns * column_bytes;
            q.kv_keep = cases[i].kv_keep;
            setting other = s;
            other.dir = NULL; /* there the module is not known */
            e = new_engine(&s, schema);
            rp_engine *none = new_engine(&other, schema);
            oracle_run_make(&r, e, &q);
            oracle_run_make(&full, none, &q);
            assert_true(r.rc == full.rc && (r.rc == RP_OK || r.rc == RP_ERR_BUDGET));
            n_reduced += !r.rc && view_of(&r, "a")->kept < 1;
            n_full += !r.rc && view_of(&r, "a")->kept == 1;
            if (!r.rc) assert_string_equal(view_of(&r, "a")->full_reason, view_of(&r, "a")->kept < 1 ? "" : "memory");
            oracle_run_free(&r), oracle_run_free(&full);
            rp_engine_free(e), rp_engine_free(none);
            assert_true(columns < 200);
        }
        assert_true(n_full > 0);
        store_folder_remove(dir);
    }
    free(a), free(b), free(schema);
}

/* ---- disk ---- */

/* After a restart modules with reduced KV on disk are known at once: no prefill, and the same bytes. */
static void reduced_kv_survives_a_restart(void **state) {
    static const rp_kv_format formats[] = {RP_KV_F16, RP_KV_K4V2};
    char *schema = schema_of("");
    (void)state;
    for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
        char dir[STORE_FOLDER_BYTES];
        store_folder_make(dir);
        const setting s = {.format = formats[f], .keep = "25%", .dir = dir};
        rp_engine *e = new_engine(&s, schema);
        oracle_run r, expected;
        run(&r, e, BOTH, RP_REUSE_ON), oracle_run_free(&r);
        assert_true(rp_engine_drain(e, -1));
        run(&expected, e, BOTH, RP_REUSE_ON);
        rp_engine_free(e);
        e = new_engine(&s, schema);
        run(&r, e, BOTH, RP_REUSE_ON);
        expect_kept(&r, "a", 0.25f, "kvzip", "disk", "");
        expect_kept(&r, "b", 0.25f, "kvzip", "disk", "");
        assert_true(oracle_run_same(&r, &expected));
        oracle_run_free(&r);
        rp_engine_free(e);
        store_folder_flip(dir, ".rps"); /* damaged records are misses, and computed again */
        e = new_engine(&s, schema);
        run(&r, e, BOTH, RP_REUSE_ON);
        expect_kept(&r, "a", 0.25f, "kvzip", "computed", view_of(&r, "a")->reason);
        assert_true(view_of(&r, "a")->reason[0] != '\0');
        assert_true(oracle_run_same(&r, &expected));
        oracle_run_free(&r), oracle_run_free(&expected);
        rp_engine_free(e);
        store_folder_remove(dir);
    }
    free(schema);
}

/* ---- which slots are kept ---- */

/* What a module's reduced spans have: of each position of its segment, the heads that keep its slot. */
typedef struct kept_heads {
    const char *module;
    int32_t n_heads, n_tokens; /* of all layers; of the segment, its parameter's place included */
    int32_t *heads;            /* [n_tokens], the caller's */
    bool *is_own;              /* [n_tokens] not the parameter's place; the caller's */
} kept_heads;

static const pml_segment *segment_of(const pml_layout *l, const char *module) {
    for (int32_t i = 0; i < l->n_segments; i++)
        if (l->segments[i].holder > 0 && strcmp(l->schema->nodes[l->segments[i].holder].name, module) == 0 &&
            l->segments[i].keep > 0)
            return &l->segments[i];
    fail_msg("no segment of %s is reduced", module);
    return NULL;
}

/* An engine_command_fn: asks each head for its positions, one by one. */
static void read_kept_heads(rp_engine *e, void *arg) {
    kept_heads *k = arg;
    rp_schema *schema;
    rp_error err;
    assert_int_equal(engine_find_schema(e, &e->salt, "s", &schema, &err), RP_OK);
    const pml_layout *l = schema->layout;
    const pml_segment *s = segment_of(l, k->module);
    k->n_heads = e->states->shape.n_layers * kv_shape_heads(&e->states->shape);
    k->n_tokens = s->n_tokens;
    k->heads = calloc((size_t)s->n_tokens, sizeof(*k->heads));
    k->is_own = calloc((size_t)s->n_tokens, sizeof(*k->is_own));
    for (int32_t i = 0; i < s->n_tokens; i++) k->is_own[i] = true;
    for (int32_t i = 0; i < s->n_holes; i++)
        for (int32_t j = 0; j < pml_segment_holes(l, s)[i].len; j++)
            k->is_own[pml_segment_holes(l, s)[i].offset + j] = false;
    for (int32_t part = 0, n_parts = 1; part < n_parts; part++) {
        const base_key key = pml_reduced_key(s, part);
        kv_span *span = span_store_get(e->store, &key, NULL);
        assert_non_null(span);
        n_parts = kv_span_parts(span);
        for (int32_t head = 0; head < k->n_heads; head++) {
            const int32_t layer = head / kv_shape_heads(&e->states->shape),
                          kv_head = head % kv_shape_heads(&e->states->shape);
            for (int32_t i = 0; i < kv_span_slots(span, layer, kv_head); i++)
                k->heads[kv_span_positions(span, layer, kv_head)[i] - s->pos]++;
        }
        kv_span_unref(span);
    }
    engine_schema_unref(e, schema);
}

/* The numbers of an item, step by step, from the counts; and their mean, the share of the item. */
static void expect_kept_shares(const rp_result *r, const rp_plan_item *item, const kept_heads *k) {
    double sum = 0;
    int32_t first = 0, end = k->n_tokens, n_own_tokens = 0;
    while (!k->is_own[first]) first++;
    while (!k->is_own[end - 1]) end--;
    assert_int_equal(item->n_kept_shares, (end - first + r->kept_step - 1) / r->kept_step);
    for (int32_t i = 0; i < item->n_kept_shares; i++) {
        int32_t n_own = 0, n_kept = 0;
        for (int32_t j = first + i * r->kept_step; j < first + (i + 1) * r->kept_step && j < end; j++) {
            n_own += k->is_own[j], n_kept += k->heads[j];
            assert_true(k->is_own[j] || k->heads[j] == 0);
        }
        const float share = r->kept_shares[item->first_kept_share + i];
        assert_float_equal(share, n_own > 0 ? (double)n_kept / n_own / k->n_heads : 0, 1e-6);
        sum += (double)share * n_own;
        n_own_tokens += n_own;
    }
    assert_int_equal(item->n_tokens, n_own_tokens);
    assert_float_equal(item->kept, sum / n_own_tokens, 1.0 / n_own_tokens); /* heads round up to whole slots */
}

/* Numbers of two modules, one with a parameter, of several spans and methods, from RAM, from disk and computed
   again. */
static void results_show_which_slots_are_kept(void **state) {
    static const struct {
        const char *keep, *method;
        int32_t most; /* rp_request.n_kept_shares */
    } cases[] = {
        {"25%", "kvzip", RP_MAX_KEPT_SHARES},
        {"50%", "expected", 100},
        {"auto", "kvzip", RP_MAX_KEPT_SHARES},
        {"12.5%", "expected", 7},
        {"25%", "compactor", 1},
    };
    char *schema = schema_of("");
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char dir[STORE_FOLDER_BYTES];
        store_folder_make(dir);
        const setting s = {
            .format = i % 2 ? RP_KV_INT8 : RP_KV_F16, .keep = cases[i].keep, .method = cases[i].method, .dir = dir};
        rp_request q = request_of(BOTH);
        kept_heads a = {.module = "a"}, b = {.module = "b"};
        oracle_run r, plain;
        rp_engine *e = new_engine(&s, schema);
        q.n_kept_shares = cases[i].most;
        oracle_run_make(&r, e, &q);
        assert_null(r.result->kept_shares); /* nothing is reduced yet */
        oracle_run_free(&r);
        assert_true(rp_engine_drain(e, -1));
        assert_int_equal(engine_do(e, read_kept_heads, &a, NULL), RP_OK);
        assert_int_equal(engine_do(e, read_kept_heads, &b, NULL), RP_OK);
        run(&plain, e, BOTH, RP_REUSE_ON);
        assert_null(plain.result->kept_shares);
        assert_int_equal(plain.result->n_kept_shares + plain.result->kept_step + view_of(&plain, "a")->n_kept_shares,
                         0);
        for (int k = 0; k < 4; k++) { /* from RAM, a miss, from disk, reduced once more for the answer */
            if (k == 2) rp_engine_free(e), e = new_engine(&s, schema);
            q.reuse = k == 1 ? RP_REUSE_OFF : RP_REUSE_ON;
            q.kv_keep = k == 3 ? "50%" : NULL;
            oracle_run_make(&r, e, &q);
            assert_int_equal(r.rc, RP_OK);
            if (k < 3) assert_true(oracle_run_same(&r, &plain));
            if (k == 2) assert_string_equal(view_of(&r, "a")->tier, "disk");
            assert_true(r.result->n_kept_shares > 0 && r.result->n_kept_shares <= cases[i].most + 2);
            assert_int_equal(r.result->n_kept_shares,
                             view_of(&r, "a")->n_kept_shares + view_of(&r, "b")->n_kept_shares);
            expect_kept_shares(r.result, view_of(&r, "a"), &a);
            expect_kept_shares(r.result, view_of(&r, "b"), &b);
            oracle_run_free(&r);
        }
        oracle_run_free(&plain);
        free(a.heads), free(a.is_own), free(b.heads), free(b.is_own);
        rp_engine_free(e);
        store_folder_remove(dir);
    }
    free(schema);
}

/* ---- options ---- */

static void wrong_shares_and_methods_are_refused(void **state) {
    static const struct {
        const char *keep, *method, *words;
    } cases[] = {
        {"25", NULL, "keep_share '25': write a share from 0.1% to 100%, \"25%\", or auto"},
        {"0%", NULL, "keep_share '0%'"},
        {"101%", NULL, "keep_share '101%'"},
        {"12.55%", NULL, "keep_share '12.55%'"},
        {"25%", "snapkv", "keep_method 'snapkv': give kvzip, kvzip+, expected or compactor"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rp_engine_options o = rp_engine_options_defaults();
        rp_engine *e = NULL;
        rp_error err = {0};
        o.keep_share = cases[i].keep;
        o.keep_method = cases[i].method;
        assert_int_equal(rp_engine_new(&e, model, &o, &err), RP_ERR_INVALID);
        assert_non_null(strstr(err.message, cases[i].words));
    }
    rp_engine *e = open_engine(NULL);
    rp_error err = {0};
    rp_job *job = NULL;
    rp_request q = calls_request("one", 1);
    q.n_kept_shares = -1;
    assert_int_equal(rp_engine_submit(e, &q, &job, &err), RP_ERR_INVALID);
    q.n_kept_shares = RP_MAX_KEPT_SHARES + 1;
    assert_int_equal(rp_engine_submit(e, &q, &job, &err), RP_ERR_LIMIT);
    const char *pml = "<schema name=\"t\"><module name=\"a\" keep=\"half\">one</module></schema>";
    assert_int_equal(rp_schema_parse(e, pml, strlen(pml), "x.xml", NULL, NULL, NULL, &err), RP_ERR_SYNTAX);
    assert_non_null(strstr(err.message, "write a share"));
    rp_engine_free(e);
}

/* Names of methods are those that options take, the default first. */
static void methods_have_names(void **state) {
    rp_error err = {0};
    int32_t n = 0;
    (void)state;
    for (const char *name; (name = rp_keep_method_name(n)) != NULL; n++) {
        const setting s = {.format = RP_KV_F16, .keep = "25%", .method = name};
        rp_engine_free(new_engine(&s, "<schema name=\"t\"><module name=\"a\">one</module></schema>"));
        for (int32_t i = 0; i < n; i++) assert_string_not_equal(name, rp_keep_method_name(i));
    }
    assert_true(n >= (int32_t)(sizeof(methods) / sizeof(methods[0])));
    assert_string_equal(rp_keep_method_name(0), "kvzip");
    rp_engine *e = open_engine(NULL);
    n = 0;
    for (const char *name; (name = rp_kv_method_name(n)) != NULL; n++) {
        rp_request q = calls_request("one two three", 1);
        q.kv_keep = "50%";
        q.kv_method = name;
        calls_end(calls_submit(e, &q));
    }
    rp_request q = calls_request("one", 1);
    rp_job *job = NULL;
    q.kv_keep = "50%";
    q.kv_method = "kvzip"; /* of modules */
    assert_int_equal(rp_engine_submit(e, &q, &job, &err), RP_ERR_INVALID);
    assert_true(n >= 3);
    assert_string_equal(rp_kv_method_name(0), "snapkv");
    assert_null(rp_keep_method_name(-1));
    assert_null(rp_kv_method_name(-1));
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_are_reduced_in_the_background),
        cmocka_unit_test(what_changes_a_view_in_part_uses_full_kv),
        cmocka_unit_test(full_kv_has_a_reason),
        cmocka_unit_test(attributes_override_the_option),
        cmocka_unit_test(hits_equal_misses),
        cmocka_unit_test(shares_are_calibrated),
        cmocka_unit_test(long_modules_are_repeated_in_chunks),
        cmocka_unit_test(evicted_reduced_kv_is_computed_again),
        cmocka_unit_test(requests_precede_reductions),
        cmocka_unit_test(reduced_kv_is_used_only_where_all_of_the_plan_fits),
        cmocka_unit_test(reduced_kv_survives_a_restart),
        cmocka_unit_test(results_show_which_slots_are_kept),
        cmocka_unit_test(methods_have_names),
        cmocka_unit_test(wrong_shares_and_methods_are_refused),
    };
    return cmocka_run_group_tests_name("reductions", tests, open_model, close_model);
}
