/* SPDX-License-Identifier: Apache-2.0 */
/* test_audit_formats.c: the auditor judges KV formats: one that is too inexact for a model is given up, for f16.
 *
 *   planted   a model of the gpt-oss kind (sinks, windows, YaRN) whose keys have one rotary pair 2^PLANTED times as
 *         large, and
 *             whose queries have it as much smaller: scores, and all logits in f16, are those of the healthy model to
 *             the bit. One scale for each token's key in int8 leaves little of the other dimensions, though
 *             keys are transformed (kernel_hadamard).
 *   healthy   the same without that; and the bundled model
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

#include "reprise_store.h"
#include "support/cache_world.h"
#include "support/golden.h"
#include "support/gguf_variant.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/tiny_random.h"
#include "reprise_pml.h"

#define PLANTED 11
#define MAX_DIVERGENCE 0.05F
#define ENOUGH 8 /* samples for a verdict */
#define N_VOCAB 320

/* ---- models ---- */

enum { HEAD_DIM = 16,
       N_SOURCES = 48 };

static rp_model *planted, *sensitive, *healthy, *bundled, *one_head; /* sensitive: planted in its first layer of two */

/* Rows of both halves of the first rotary pair of each head. */
static void plant(const char *name, float *x, int64_t n_rows, int64_t width) {
    const bool is_key = strstr(name, "attn_k.") != NULL, is_query = strstr(name, "attn_q.") != NULL;
    const bool is_bias = strstr(name, ".bias") != NULL;
    const int64_t n = is_bias ? width : n_rows, row = is_bias ? 1 : width;
    if (!is_key && !is_query) return;
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < row && r % (HEAD_DIM / 2) == HEAD_DIM / 2 - 1; i++)
            x[r * row + i] *= is_key ? (float)(1 << PLANTED) : 1 / (float)(1 << PLANTED);
}

static void plant_first(const char *name, float *x, int64_t n_rows, int64_t width) {
    if (strstr(name, "blk.0.")) plant(name, x, n_rows, width);
}

static rp_model *open_variant(const char *from, void (*change)(const char *, float *, int64_t, int64_t)) {
    gguf_variant v = {.change = change};
    char path[64];
    rp_model *m;
    rp_error err = {0};
    gguf_variant_write(from, &v, path);
    must(rp_model_open(&m, path, NULL, &err), &err);
    unlink(path);
    return m;
}

static int open_models(void **state) {
    const char *tree = getenv("REPRISE_SOURCE_DIR");
    char path[512];
    rp_error err = {0};
    golden *g = golden_open();
    tiny_model_shape shape = tiny_model_defaults();
    (void)state;
    planted = open_variant(golden_find(g, "gpt-oss")->path, plant);
    sensitive = open_variant(golden_find(g, "gpt-oss")->path, plant_first);
    healthy = open_variant(golden_find(g, "gpt-oss")->path, NULL);
    golden_close(g);
    snprintf(path, sizeof(path), "%s/models/reprise-mini.gguf", tree ? tree : ".");
    must(rp_model_open(&bundled, path, NULL, &err), &err);
    shape.n_kv_heads = 1;
    one_head = tiny_model_open(&shape, "chatml");
    return 0;
}

static int close_models(void **state) {
    (void)state;
    rp_model_close(planted);
    rp_model_close(sensitive);
    rp_model_close(healthy);
    rp_model_close(bundled);
    rp_model_close(one_head);
    return 0;
}

/* ---- engines and requests ---- */

static rp_engine_options options(rp_kv_format format, int32_t every, bool raises) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.n_ctx = 512;
    o.kv_format = format;
    o.audit_every = every;
    o.max_divergence = MAX_DIVERGENCE;
    o.audit_raises = raises;
    return o;
}

#define SYSTEM "<system>Read all of it, from the first word to the last one, and then say what comes next. "
#define DOCUMENTS \
    "<module name=\"a\">The river bends here, and the old mill stands where the bridge was; nobody remembers the " \
    "year, and the miller's " \
    "daughter keeps the keys of the house by the ford.</module> " \
    "<module name=\"b\">There are seven boats in the harbour. Four of them are blue, two are grey, and one has no " \
    "colour at all, for it " \
    "was never painted.</module> "
static const char schema_plain[] = "<schema name=\"docs\">" SYSTEM DOCUMENTS "</system></schema>";
static const char schema_int8[] = "<schema name=\"docs\" kv=\"int8\">" SYSTEM DOCUMENTS "</system></schema>";
static const char schema_k4v2[] = "<schema name=\"docs\" kv=\"k4v2\">" SYSTEM DOCUMENTS "</system></schema>";

static rp_engine *new_engine(rp_model *m, const rp_engine_options *o, const char *schema) {
    rp_engine *e;
    rp_error err = {0};
    must(rp_engine_new(&e, m, o, &err), &err);
    if (schema) must(rp_schema_parse(e, schema, strlen(schema), "docs.xml", NULL, NULL, NULL, &err), &err);
    return e;
}

static int32_t tokens[400];

/* Prompt i: tokens of its own. */
static rp_request text_request(int i) {
    tiny_random random = {(uint64_t)i + 1};
    rp_request r = rp_request_defaults();
    for (size_t k = 0; k < sizeof(tokens) / sizeof(tokens[0]); k++)
        tokens[k] = 4 + (int32_t)tiny_random_below(&random, N_VOCAB - 4);
    r.prompt = rp_prompt_tokens(tokens, 60 + 13 * (i % 8));
    r.max_tokens = 3;
    return r;
}

static const char *const questions[] = {"Why?", "Who has the keys?", "How many boats?", "And then?",
                                        "Where was it?", "Which one?", "What colour?", "Is it old?"};

static rp_request module_request(int i) {
    static char prompt[512];
    rp_request r = rp_request_defaults();
    snprintf(prompt, sizeof(prompt), "<prompt schema=\"docs\">%s%s<user>%s</user></prompt>", i % 3 != 1 ? "<a/>" : "",
             i % 3 ? "<b/>" : "", questions[i % 8]);
    r.prompt = rp_prompt_pml(prompt);
    r.max_tokens = 3;
    return r;
}

typedef rp_request (*request_fn)(int i);

static oracle_run run(rp_engine *e, const rp_request *r) {
    oracle_run out;
    oracle_run_make(&out, e, r);
    if (out.rc) fail_msg("%s", out.err.message);
    return out;
}

/* Audits requests [0, n), one by one. */
static void ask(rp_engine *e, request_fn make, int n) {
    for (int i = 0; i < n; i++) {
        rp_request r = make(i);
        oracle_run out = run(e, &r);
        oracle_run_free(&out);
        assert_true(rp_engine_drain(e, -1));
    }
}

/* The row of text, or of the only schema; NULL: none. */
static bool find_row(rp_engine *e, bool of_text, rp_audit_format *out) {
    rp_audit *a;
    bool found = false;
    assert_true(rp_engine_drain(e, -1));
    assert_int_equal(rp_engine_audit(e, &a, NULL), RP_OK);
    for (size_t i = 0; i < a->n_formats; i++)
        if ((a->formats[i].schema == RP_AUDIT_TEXT) == of_text) *out = a->formats[i], found = true;
    assert_int_equal(a->dropped + a->waiting, 0);
    rp_audit_free(a);
    return found;
}

static void print_row(const char *name, const rp_audit_format *f) {
    print_message("%s in %s: %d samples, %d with another first token, mean KL %.4f, max %.4f\n", name, f->format,
                  (int)f->figures.samples, (int)(f->figures.samples - f->figures.agreed), f->figures.mean_kl,
                  f->figures.max_kl);
}

static rp_kv_format format_of(rp_engine *e) {
    rp_engine_info info = {.struct_size = sizeof(info)};
    assert_int_equal(rp_engine_describe(e, &info), RP_OK);
    return info.kv_format;
}

/* Requests in e have the bytes of those in an engine that was in f16 from the start: as a miss, as a hit, without
   reuse. */
static void check_like(rp_engine *e, rp_engine *like, request_fn make, rp_quality quality) {
    for (int i = 0; i < 3; i++)
        for (int pass = 0; pass < 3; pass++) {
            rp_request r = make(i);
            r.quality = quality;
            r.reuse = pass == 2 ? RP_REUSE_OFF : RP_REUSE_ON;
            oracle_run a = run(e, &r), b = run(like, &r);
            assert_true(oracle_run_same(&a, &b));
            if (pass == 1)
                assert_true(a.result->cached_tokens > 0 && a.result->cached_tokens == b.result->cached_tokens);
            oracle_run_free(&a);
            oracle_run_free(&b);
        }
}

/* Text, modules, and links. */
static void check_all_like(rp_engine *e, rp_engine *like) {
    check_like(e, like, text_request, (rp_quality){0});
    check_like(e, like, module_request, (rp_quality){RP_QUALITY_REUSE, 0});
    check_like(e, like, module_request, (rp_quality){RP_QUALITY_LINK, 4});
}

/* ---- the models are what they should be ---- */

static int top(const float *logits) {
    int best = 0;
    for (int i = 1; i < N_VOCAB; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static int count_changed(rp_engine *e, rp_engine *f16, int n) {
    int changed = 0;
    for (int i = 0; i < n; i++) {
        rp_request r = text_request(i);
        r.max_tokens = 1;
        oracle_run a = run(e, &r), b = run(f16, &r);
        changed += top(oracle_run_logits(&a, 0)) != top(oracle_run_logits(&b, 0));
        oracle_run_free(&a);
        oracle_run_free(&b);
    }
    return changed;
}

static void the_planted_model_is_spoiled_by_8_bits_alone(void **state) {
    enum { N = 400 };
    rp_engine_options f16 = options(RP_KV_F16, 0, false), int8 = options(RP_KV_INT8, 0, false);
    rp_engine *p16 = new_engine(planted, &f16, NULL), *p8 = new_engine(planted, &int8, NULL),
              *h16 = new_engine(healthy, &f16, NULL), *h8 = new_engine(healthy, &int8, NULL);
    (void)state;
    for (int i = 0; i < 4; i++) {
        rp_request r = text_request(i);
        oracle_run a = run(p16, &r), b = run(h16, &r);
        assert_true(oracle_run_same(&a, &b));
        oracle_run_free(&a);
        oracle_run_free(&b);
    }
    const int changed = count_changed(p8, p16, N), unhurt = count_changed(h8, h16, N);
    print_message("top tokens changed by int8: %d of %d with the planted model, %d with the healthy one\n", changed, N,
                  unhurt);
    assert_true(changed * 4 >= 3 * N && unhurt * 20 <= N);
    rp_engine_free(p16);
    rp_engine_free(p8);
    rp_engine_free(h16);
    rp_engine_free(h8);
}

/* ---- text ---- */

static void an_engine_goes_back_to_f16(void **state) {
    rp_engine_options o = options(RP_KV_INT8, 1, true), f16 = options(RP_KV_F16, 0, false),
                      int8 = options(RP_KV_INT8, 0, false);
    rp_engine *e = new_engine(planted, &o, schema_plain), *like = new_engine(planted, &f16, schema_plain),
              *before = new_engine(planted, &int8, NULL);
    rp_audit_format row;
    (void)state;
    for (int i = 0; i < ENOUGH; i++) { /* a request is wholly in int8, */
        rp_request r = text_request(i);
        oracle_run a = run(e, &r), b = run(before, &r);
        assert_true(oracle_run_same(&a, &b));
        assert_int_equal(format_of(e), RP_KV_INT8);
        oracle_run_free(&a);
        oracle_run_free(&b);
        assert_true(rp_engine_drain(e, -1));
    }
    assert_true(find_row(e, true, &row));
    print_row("planted, text", &row);
    assert_true(row.falls_back && !row.exceeds && row.figures.samples == ENOUGH);
    assert_string_equal(row.format, "int8");
    assert_int_equal(format_of(e), RP_KV_F16);
    check_all_like(e, like); /* or wholly in f16 */
    check_like(e, like, module_request, (rp_quality){RP_QUALITY_EXACT, 0});
    check_like(e, like, module_request, (rp_quality){RP_QUALITY_SCAFFOLD, 0});
    assert_true(find_row(e, true, &row));
    assert_int_equal(row.figures.samples, ENOUGH); /* f16 is not judged */
    rp_engine_free(e);
    rp_engine_free(like);
    rp_engine_free(before);
}

static void layers_in_f16_save_a_format(void **state) {
    rp_engine_options o = options(RP_KV_INT8, 1, true), f16 = options(RP_KV_F16, 0, false);
    rp_engine *e = new_engine(sensitive, &o, schema_plain), *like = new_engine(planted, &f16, schema_plain);
    rp_audit_format row;
    (void)state;
    ask(e, text_request, ENOUGH);
    assert_true(find_row(e, true, &row));
    print_row("sensitive, text", &row);
    assert_true(row.falls_back);
    rp_engine_free(e);
    o.kv_f16_layers = "0";
    e = new_engine(sensitive, &o, schema_plain);
    ask(e, text_request, ENOUGH);
    ask(e, module_request, ENOUGH);
    assert_true(find_row(e, true, &row));
    print_row("sensitive, all, its layer in f16", &row);
    assert_true(!row.falls_back && !row.exceeds && row.figures.samples == 2 * ENOUGH);
    assert_int_equal(format_of(e), RP_KV_INT8);
    rp_engine_free(e);
    o.max_divergence = 1e-12F; /* as a model whose other layer needs f16, too */
    e = new_engine(planted, &o, schema_plain);
    ask(e, text_request, ENOUGH);
    assert_true(find_row(e, true, &row) && row.falls_back);
    assert_int_equal(format_of(e), RP_KV_F16);
    check_all_like(e, like);
    rp_engine_free(e);
    rp_engine_free(like);
}

static void without_leave_it_is_only_reported(void **state) {
    rp_engine_options o = options(RP_KV_INT8, 1, false);
    rp_engine *e = new_engine(planted, &o, NULL);
    rp_audit_format row;
    (void)state;
    ask(e, text_request, ENOUGH - 1);
    assert_true(find_row(e, true, &row) && !row.exceeds);
    ask(e, text_request, 1);
    assert_true(find_row(e, true, &row) && row.exceeds && !row.falls_back);
    assert_int_equal(format_of(e), RP_KV_INT8);
    rp_engine_free(e);
}

static void a_healthy_model_keeps_its_format(void **state) {
    rp_engine_options o = options(RP_KV_INT8, 1, true);
    rp_engine *engines[] = {new_engine(bundled, &o, schema_plain), new_engine(healthy, &o, schema_plain)};
    rp_audit_format row;
    (void)state;
    for (int k = 0; k < 2; k++) {
        ask(engines[k], text_request, 12);
        ask(engines[k], module_request, 12);
        assert_true(find_row(engines[k], true, &row));
        print_row(k ? "healthy, all" : "bundled, all", &row);
        assert_true(!row.exceeds && !row.falls_back && row.figures.samples == 24);
        assert_true(find_row(engines[k], false, &row));
        print_row(k ? "healthy, modules" : "bundled, modules", &row);
        assert_true(!row.exceeds && !row.falls_back && row.figures.samples == 12);
        assert_int_equal(format_of(engines[k]), RP_KV_INT8);
        rp_engine_free(engines[k]);
    }
}

static void f16_is_not_judged(void **state) {
    rp_engine_options o = options(RP_KV_F16, 1, true);
    rp_engine *e = new_engine(planted, &o, schema_plain);
    rp_audit_format row;
    (void)state;
    ask(e, text_request, 2);
    ask(e, module_request, 3);
    assert_false(find_row(e, true, &row) || find_row(e, false, &row));
    rp_engine_free(e);
}

/* A block of int8 is smaller than the keys and values of the only head in f16. */
static void one_head_falls_back_as_well(void **state) {
    rp_engine_options o = options(RP_KV_INT8, 1, true), f16 = options(RP_KV_F16, 0, false);
    o.max_divergence = 1e-12F;
    rp_engine *e = new_engine(one_head, &o, schema_plain), *like = new_engine(one_head, &f16, schema_plain);
    (void)state;
    ask(e, module_request, ENOUGH);
    assert_int_equal(format_of(e), RP_KV_F16);
    check_all_like(e, like);
    rp_engine_free(e);
    rp_engine_free(like);
}

/* ---- modules ---- */

static void a_schema_goes_back_to_f16_alone(void **state) {
    rp_engine_options o = options(RP_KV_F16, 1, true), f16 = options(RP_KV_F16, 0, false);
    rp_engine *e = new_engine(planted, &o, schema_int8), *like = new_engine(planted, &f16, schema_plain);
    rp_audit_format row;
    (void)state;
    ask(e, module_request, 2 * ENOUGH);
    assert_true(find_row(e, false, &row));
    print_row("planted, modules", &row);
    assert_true(row.falls_back && row.figures.samples == ENOUGH);
    assert_false(find_row(e, true, &row));
    check_like(e, like, module_request, (rp_quality){RP_QUALITY_REUSE, 0}); /* whatever quality the auditor gave it */
    check_like(e, like, text_request, (rp_quality){0});
    rp_error err = {0}; /* another text of the schema is judged anew */
    must(rp_schema_parse(e, schema_k4v2, sizeof(schema_k4v2) - 1, "docs.xml", NULL, NULL, NULL, &err), &err);
    ask(e, module_request, ENOUGH);
    assert_true(find_row(e, false, &row));
    print_row("planted, modules", &row);
    assert_true(!row.falls_back && !row.exceeds); /* a range for each channel of the keys */
    rp_engine_free(e);
    rp_engine_free(like);
}

/* Modules in another format than text are judged with it, and text is judged by other requests. */
static void formats_are_judged_apart_from_reuse(void **state) {
    rp_engine_options o = options(RP_KV_INT8, 1, false);
    rp_engine *e = new_engine(bundled, &o, schema_k4v2);
    rp_audit_format row;
    rp_audit *a;
    (void)state;
    ask(e, module_request, 9);
    assert_false(find_row(e, true, &row));
    assert_true(find_row(e, false, &row));
    print_row("bundled, modules", &row);
    assert_string_equal(row.format, "k4v2");
    assert_int_equal(row.figures.samples, 9);
    assert_int_equal(rp_engine_audit(e, &a, NULL), RP_OK);
    print_message("reuse: %d samples, mean KL %.4f\n", (int)a->schemas[0].all.samples, a->schemas[0].all.mean_kl);
    rp_audit_free(a);
    rp_engine_free(e);
}

/* ---- on disk ---- */

static char dir[STORE_FOLDER_BYTES];

static int make_folder(void **state) {
    (void)state;
    store_folder_make(dir);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    store_folder_remove(dir);
    return 0;
}

static void a_verdict_outlives_the_engine(void **state) {
    rp_engine_options o = options(RP_KV_INT8, 1, true), f16 = options(RP_KV_F16, 0, false);
    (void)state;
    o.store_dir = dir;
    rp_engine *like = new_engine(planted, &f16, schema_plain), *e = new_engine(planted, &o, schema_plain);
    ask(e, text_request, ENOUGH);
    check_like(e, like, text_request, (rp_quality){0});
    check_like(e, like, module_request, (rp_quality){RP_QUALITY_REUSE, 0});
    rp_engine_free(e);
    e = new_engine(planted, &o, schema_plain);
    assert_int_equal(format_of(e), RP_KV_F16);
    rp_request r = text_request(0);
    oracle_run a = run(e, &r), b = run(like, &r);
    assert_true(oracle_run_same(&a, &b));
    assert_true(a.result->cached_tokens > 0); /* from disk */
    oracle_run_free(&a);
    oracle_run_free(&b);
    check_like(e, like, text_request, (rp_quality){0});
    check_like(e, like, module_request, (rp_quality){RP_QUALITY_REUSE, 0});
    rp_engine_free(e);
    o.audit_raises = false; /* not without leave */
    e = new_engine(planted, &o, schema_plain);
    assert_int_equal(format_of(e), RP_KV_INT8);
    rp_engine_free(e);
    rp_engine_free(like);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_planted_model_is_spoiled_by_8_bits_alone),
        cmocka_unit_test(an_engine_goes_back_to_f16),
        cmocka_unit_test(layers_in_f16_save_a_format),
        cmocka_unit_test(without_leave_it_is_only_reported),
        cmocka_unit_test(a_healthy_model_keeps_its_format),
        cmocka_unit_test(f16_is_not_judged),
        cmocka_unit_test(one_head_falls_back_as_well),
        cmocka_unit_test(a_schema_goes_back_to_f16_alone),
        cmocka_unit_test(formats_are_judged_apart_from_reuse),
        cmocka_unit_test_setup_teardown(a_verdict_outlives_the_engine, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
