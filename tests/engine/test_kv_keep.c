/* SPDX-License-Identifier: Apache-2.0 */
/* test_kv_keep.c: a request's KV is reduced for its answer (rp_request.kv_keep): the same logits whatever is cached, by
 * any number of threads and in any chunks; the store is not touched; memory is free again while the answer is decoded.
 * tests/exactness draws such requests too; tests/model/test_sequence_methods.c judges the selections.
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
#include "model/sequence_methods.h"
#include "support/calls.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/store_folder.h"
#include "reprise_pml.h"

#define CTX 4096
#define N_ANSWER 12
#define MOST_PML (1 << 14)

static const char *const methods[] = {"snapkv", "sinks", "quest"};
#define N_METHODS BASE_ARRAY_LEN(methods)
#define N_DROPPING (N_METHODS - 1) /* the others do not */

static bool drops(const char *method) { return strcmp(method, "quest") != 0; }

static golden *models;
static rp_model *model;

static rp_model *open_golden(const char *name) {
    rp_error err = {0};
    rp_model *m;
    must(rp_model_open(&m, golden_find(models, name)->path, NULL, &err), &err);
    return m;
}

static int open_all(void **state) {
    (void)state;
    models = golden_open();
    model = open_golden("llama");
    return 0;
}

static int close_all(void **state) {
    (void)state;
    rp_model_close(model);
    golden_close(models);
    return 0;
}

/* ---- engines and requests ---- */

static rp_engine_options options_of(int32_t threads, int32_t chunk, const char *dir) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_ctx = CTX;
    o.n_threads = threads;
    o.chunk_tokens = chunk;
    o.store_dir = dir;
    return o;
}

/* Modules far longer than a span, with a nested one and a parameter; they are moved if some are left out. */
static const char *schema_text(void) {
    static char pml[MOST_PML];
    char *one = calls_text(1, 90), *two = calls_text(2, 110), *three = calls_text(3, 40);
    snprintf(pml, sizeof pml,
             "<schema name='s'>Here is what is known. <module name='a'>%s</module><module name='b'>%s<param name='p' "
             "len='4'/>"
             "<module name='c'>%s</module></module></schema>",
             one, two, three);
    free(one), free(two), free(three);
    return pml;
}

static rp_engine *engine_of(rp_model *m, const rp_engine_options *o) {
    rp_error err = {0};
    rp_engine *e;
    must(rp_engine_new(&e, m, o, &err), &err);
    must(rp_schema_parse(e, schema_text(), strlen(schema_text()), "schema", NULL, NULL, NULL, &err), &err);
    return e;
}

static rp_engine *new_engine(rp_model *m, int32_t threads, int32_t chunk, const char *dir) {
    const rp_engine_options o = options_of(threads, chunk, dir);
    return engine_of(m, &o);
}

/* A text, or a prompt over the schema. */
static rp_request request_of(const char *text, const char *keep, const char *method) {
    rp_request q = rp_request_defaults();
    q.prompt = text[0] == '<' ? rp_prompt_pml(text) : rp_prompt_text(text);
    q.max_tokens = N_ANSWER;
    q.ignore_eos = true;
    q.kv_keep = keep;
    q.kv_method = method;
    return q;
}

static void run(rp_engine *e, const rp_request *q, oracle_run *out) {
    oracle_run_make(out, e, q);
    must(out->rc, &out->err);
}

/* The request gives the expected logits; returns its cached tokens. */
static int32_t check_same(rp_engine *e, rp_request q, const oracle_run *expected, const char *where) {
    oracle_run again;
    run(e, &q, &again);
    const char *kind = q.prompt.kind == RP_PROMPT_TEXT ? "text" : "modules";
    if (!oracle_run_same(&again, expected)) fail_msg("%s, %s, %s: other logits", where, q.kv_method, kind);
    /* the bytes of all KV depend on where it is cut into spans */
    if (drops(q.kv_method)) assert_int_equal(again.result->kv_reduction.bytes, expected->result->kv_reduction.bytes);
    const int32_t cached = again.result->cached_tokens;
    oracle_run_free(&again);
    return cached;
}

/* ---- hit = miss ---- */

/* The prompts share prefixes of all lengths with others that are run before. */
static void warm(rp_engine *e, const char *text, size_t n_bytes) {
    char *part = calloc(n_bytes + 1, 1);
    memcpy(part, text, n_bytes);
    rp_request q = request_of(part, NULL, NULL);
    oracle_run r;
    if (text[0] != '<') {
        run(e, &q, &r);
        oracle_run_free(&r);
    }
    free(part);
}

static void check_everywhere(rp_model *m, const char *text, const char *keep, const char *method) {
    char dir[STORE_FOLDER_BYTES];
    oracle_run cold;
    rp_request q = request_of(text, keep, method);
    q.reuse = RP_REUSE_OFF;
    rp_engine *e = new_engine(m, 1, 0, NULL);
    run(e, &q, &cold);
    rp_engine_free(e);
    assert_string_equal(cold.result->kv_reduction.method, method);
    const rp_kv_reduction *k = &cold.result->kv_reduction;
    assert_true(k->share < 1);
    assert_true(drops(method) ? k->bytes < k->bytes_before : k->bytes > k->bytes_before);
    q.reuse = RP_REUSE_ON;
    store_folder_make(dir);
    static const int32_t chunks[] = {1, 7, 64, 600};
    for (int32_t i = 0; i < 4; i++) {
        e = new_engine(m, i + 1, chunks[i], dir);
        const int32_t found = check_same(e, q, &cold, i == 0 ? "cold" : "from disk");
        if (i > 0 && text[0] == '<') assert_true(found > 300); /* modules are hits */
        check_same(e, q, &cold, "warm");
        rp_engine_free(e);
    }
    e = new_engine(m, 2, 0, NULL);
    for (size_t n = 40; n < strlen(text); n += 351) {
        warm(e, text, n);
        check_same(e, q, &cold, "after a shorter text");
    }
    q.n_draft = 4;
    check_same(e, q, &cold, "with drafts");
    rp_engine_free(e);
    store_folder_remove(dir);
    oracle_run_free(&cold);
}

static void hits_are_misses(void **state) {
    (void)state;
    char *text = calls_text(7, 150);
    for (size_t i = 0; i < N_METHODS; i++) {
        check_everywhere(model, text, "20%", methods[i]);
        check_everywhere(model, "<prompt schema='s'><b p='x'><c/></b><user>And which of them is it?</user></prompt>",
                         "12.5%", methods[i]);
    }
    free(text);
}

/* Sliding windows: blocks of the prompt are freed before it is complete, unless others may share them. */
static void windows_change_nothing(void **state) {
    (void)state;
    static const char *const names[] = {"gemma3", "gpt-oss"};
    char *text = calls_text(8, 120);
    for (size_t i = 0; i < 2; i++) {
        rp_model *m = open_golden(names[i]);
        for (size_t k = 0; k < N_METHODS; k += 1 + i) check_everywhere(m, text, "10%", methods[k]);
        rp_model_close(m);
    }
    free(text);
}

/* All slots: as without the option. */
static void all_slots_are_no_reduction(void **state) {
    (void)state;
    char *text = calls_text(9, 60);
    oracle_run whole;
    rp_engine *e = new_engine(model, 2, 0, NULL);
    rp_request q = request_of(text, NULL, NULL);
    run(e, &q, &whole);
    assert_string_equal(whole.result->kv_reduction.method, "");
    for (int i = 0; i < 2; i++) {
        oracle_run all;
        q = request_of(text, i ? "100000" : "100%", NULL);
        run(e, &q, &all);
        assert_true(oracle_run_same(&all, &whole));
        assert_true(all.result->kv_reduction.share >= 1);
        oracle_run_free(&all);
    }
    oracle_run_free(&whole);
    rp_engine_free(e);
    free(text);
}

/* Modules in an encoded format stay whole; the prompt's own text is reduced. */
static void formats_are_read_as_they_are(void **state) {
    (void)state;
    static const rp_kv_format formats[] = {RP_KV_F32, RP_KV_INT8, RP_KV_KIVI4};
    static char pml[MOST_PML];
    char *text = calls_text(10, 90);
    snprintf(pml, sizeof pml, "<prompt schema='s'><a/><user>%s</user></prompt>", text);
    for (size_t i = 0; i < BASE_ARRAY_LEN(formats); i++) {
        oracle_run cold, warm_run;
        rp_engine_options o = options_of(2, 0, NULL);
        o.kv_format = formats[i];
        rp_engine *e = engine_of(model, &o);
        rp_request q = request_of(pml, "10%", NULL);
        run(e, &q, &cold);
        run(e, &q, &warm_run);
        assert_true(oracle_run_same(&cold, &warm_run));
        const rp_kv_reduction *k = &cold.result->kv_reduction;
        if (formats[i] == RP_KV_KIVI4) assert_true(k->share < 0.2 && k->bytes < k->bytes_before);
        else assert_true(k->bytes * 5 < k->bytes_before);
        oracle_run_free(&cold);
        oracle_run_free(&warm_run);
        rp_engine_free(e);
    }
    free(text);
}

/* ---- the store ---- */

static void the_prompt_is_cached_as_ever(void **state) {
    (void)state;
    char *text = calls_text(11, 100);
    oracle_run reduced, fresh, again, next;
    rp_engine *e = new_engine(model, 2, 0, NULL), *other = new_engine(model, 2, 0, NULL);
    rp_request q = request_of(text, "10%", NULL);
    run(e, &q, &reduced);
    q = request_of(text, NULL, NULL);
    run(other, &q, &fresh);
    run(e, &q, &again);
    assert_true(oracle_run_same(&again, &fresh)); /* the complete KV, */
    assert_int_equal(again.result->cached_tokens, again.result->prompt_tokens - 1);
    assert_true(memcmp(oracle_run_logits(&reduced, 0), oracle_run_logits(&fresh, 0),
                       sizeof(float) * (size_t)fresh.n_vocab) == 0);
    assert_false(oracle_run_same(&reduced, &fresh)); /* which the reduced answer did not see */
    rp_engine_free(e);
    e = new_engine(model, 2, 0, NULL);
    oracle_run_free(&reduced);
    q = request_of(text, "10%", NULL);
    run(e, &q, &reduced);
    int32_t *tokens, n_answer = reduced.result->n_tokens;
    size_t n;
    rp_error err = {0};
    must(rp_tokenize(model, text, strlen(text), true, true, &tokens, &n, &err), &err);
    int32_t *all = calloc(n + (size_t)n_answer + 1, sizeof *all);
    memcpy(all, tokens, n * sizeof *all);
    memcpy(all + n, reduced.result->tokens, (size_t)n_answer * sizeof *all);
    q = rp_request_defaults();
    q.prompt = rp_prompt_tokens(all, (int32_t)n + n_answer);
    q.max_tokens = 1;
    run(e, &q, &next);
    assert_int_equal(next.result->cached_tokens, n); /* nothing of the answer */
    oracle_run_free(&reduced), oracle_run_free(&fresh), oracle_run_free(&again), oracle_run_free(&next);
    rp_free(tokens);
    free(all), free(text);
    rp_engine_free(e), rp_engine_free(other);
}

/* What the first question did not look at is there for the second. */
static void another_question_loses_nothing(void **state) {
    (void)state;
    static const char first[] = "<prompt schema='s'><a/><b p='x'/><user>Which one was first?</user></prompt>";
    static const char second[] = "<prompt schema='s'><a/><b p='x'/><user>And how many of them?</user></prompt>";
    oracle_run one, two, alone;
    rp_engine *e = new_engine(model, 2, 0, NULL), *other = new_engine(model, 2, 0, NULL);
    rp_request q = request_of(first, "5%", NULL);
    run(e, &q, &one);
    q = request_of(second, NULL, NULL);
    run(e, &q, &two);
    run(other, &q, &alone);
    assert_true(two.result->cached_tokens > 300);
    assert_true(oracle_run_same(&two, &alone));
    oracle_run_free(&one), oracle_run_free(&two), oracle_run_free(&alone);
    rp_engine_free(e), rp_engine_free(other);
}

/* ---- memory ---- */

static void little_is_held(void **state) {
    (void)state;
    char *text = calls_text(12, 500);
    oracle_run r;
    rp_engine *e = new_engine(model, 2, 0, NULL);
    for (size_t i = 0; i < N_DROPPING; i++) {
        rp_request q = request_of(text, "12.5%", methods[i]);
        run(e, &q, &r);
        printf("%-13s keeps %.3f of %d tokens: %llu of %llu bytes\n", methods[i], r.result->kv_reduction.share,
               r.result->prompt_tokens, (unsigned long long)r.result->kv_reduction.bytes,
               (unsigned long long)r.result->kv_reduction.bytes_before);
        assert_true(r.result->prompt_tokens > 1500);
        assert_true((double)r.result->kv_reduction.bytes <= 0.2 * (double)r.result->kv_reduction.bytes_before);
        assert_true(r.result->kv_bytes < r.result->kv_reduction.bytes_before / 4);
        oracle_run_free(&r);
    }
    rp_engine_free(e);
    free(text);
}

/* While an answer is decoded over reduced KV, and paused, a request is admitted that needs nearly the whole budget. */
static void memory_is_free_during_the_answer(void **state) {
    (void)state;
    char *text = calls_text(13, 300), *large = calls_text(14, 300);
    oracle_run r;
    rp_engine *e = new_engine(model, 1, 0, NULL);
    rp_request q = request_of(text, NULL, NULL);
    q.max_tokens = 1;
    run(e, &q, &r);
    const uint64_t prompt_bytes = r.result->kv_bytes;
    oracle_run_free(&r);
    rp_engine_free(e);
    rp_engine_options o = options_of(1, 0, NULL);
    o.kv_budget_bytes = prompt_bytes * 3 / 2;
    e = engine_of(model, &o);
    for (int reduces = 1; reduces >= 0; reduces--) {
        q = request_of(text, reduces ? "5%" : NULL, NULL);
        q.max_tokens = 200;
        rp_job *paused = calls_submit(e, &q);
        rp_job_status status = {.struct_size = sizeof(status)};
        rp_job_pause(paused); /* from its first token on */
        do rp_job_get_status(paused, &status);
        while (status.state != RP_JOB_DECODE);
        q = request_of(large, NULL, NULL);
        q.max_tokens = 2;
        rp_job *other = calls_submit(e, &q);
        assert_int_equal(rp_job_wait(other, reduces ? 20000 : 300), reduces); /* else it waits for the paused one */
        rp_job_resume(paused);
        calls_end(paused);
        calls_end(other);
    }
    rp_engine_free(e);
    free(text), free(large);
}

/* From the smallest budget that is accepted on: never a lack of blocks, always the same answer. */
static void small_budgets_are_enough(void **state) {
    (void)state;
    static const char prompt[] = "<prompt schema='s'><b p='x'/><user>Which one?</user></prompt>";
    oracle_run expected;
    rp_engine *e = new_engine(model, 1, 0, NULL);
    rp_request q = request_of(prompt, "30%", NULL);
    run(e, &q, &expected);
    const uint64_t column = expected.result->kv_reduction.bytes_before / 16,
                   most = 4 * expected.result->kv_reduction.bytes_before;
    rp_engine_free(e);
    int n_accepted = 0;
    for (uint64_t budget = column; budget < most && n_accepted < 12; budget += column / 2) {
        oracle_run r;
        rp_engine_options o = options_of(1, 0, NULL);
        o.kv_budget_bytes = budget;
        e = engine_of(model, &o);
        oracle_run_make(&r, e, &q);
        if (r.rc) assert_int_equal(r.rc, RP_ERR_BUDGET);
        else if (r.result->n_tokens == N_ANSWER) {
            assert_true(oracle_run_same(&r, &expected));
            n_accepted++;
        }
        oracle_run_free(&r);
        rp_engine_free(e);
    }
    assert_int_equal(n_accepted, 12);
    oracle_run_free(&expected);
}

/* ---- an engine's default ---- */

static const char over_modules[] = "<prompt schema='s'><a/><b p='x'/><user>Which one?</user></prompt>";

/* What a request does not name is the engine's; what it names is its own. */
static void requests_without_fields_get_the_default(void **state) {
    (void)state;
    static const struct {
        const char *usual_keep, *usual_method, *keep, *method; /* of the engine; of the request */
        const char *as_keep, *as_method;                       /* of an equal request without a default */
    } cases[] = {
        {"12.5%", "sinks", NULL, NULL, "12.5%", "sinks"},
        {"12.5%", "sinks", "40", NULL, "40", "sinks"},
        {"40", "sinks", "25%", "quest", "25%", "quest"},
        {"40", NULL, NULL, "sinks", "40", "sinks"},
        {"40", NULL, NULL, NULL, "40", "snapkv"},
        {"40", "sinks", "off", NULL, NULL, NULL},
        {"40", NULL, "off", "quest", NULL, NULL},
        {"off", NULL, NULL, NULL, NULL, NULL},
        {"off", "sinks", "30%", NULL, "30%", "sinks"},
    };
    char *text = calls_text(16, 150);
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        rp_engine_options o = options_of(1, 0, NULL);
        o.kv_keep = cases[i].usual_keep;
        o.kv_method = cases[i].usual_method;
        rp_engine *e = engine_of(model, &o), *plain = new_engine(model, 1, 0, NULL);
        for (int k = 0; k < 2; k++) {
            const char *prompt = k ? over_modules : text;
            const rp_request q = request_of(prompt, cases[i].keep, cases[i].method),
                             as = request_of(prompt, cases[i].as_keep, cases[i].as_method);
            oracle_run r, expected;
            run(e, &q, &r), run(plain, &as, &expected);
            assert_true(oracle_run_same(&r, &expected));
            assert_string_equal(r.result->kv_reduction.method, cases[i].as_method ? cases[i].as_method : "");
            assert_string_equal(r.result->kv_reduction.reason, "");
            assert_int_equal(r.result->kv_reduction.bytes, expected.result->kv_reduction.bytes);
            oracle_run_free(&r), oracle_run_free(&expected);
        }
        rp_engine_free(e), rp_engine_free(plain);
    }
    free(text);
}

/* Quality focus refuses kv_keep of a request, and overrides a default. */
static void a_default_yields_to_focus(void **state) {
    (void)state;
    rp_engine_options o = options_of(1, 0, NULL);
    o.kv_keep = "12.5%";
    rp_engine *e = engine_of(model, &o), *plain = new_engine(model, 1, 0, NULL);
    rp_request q = request_of(over_modules, NULL, NULL);
    oracle_run r, expected;
    q.quality = (rp_quality){RP_QUALITY_FOCUS, 15};
    run(e, &q, &r), run(plain, &q, &expected);
    assert_true(oracle_run_same(&r, &expected));
    assert_string_equal(r.result->kv_reduction.method, "");
    assert_string_equal(r.result->kv_reduction.reason, "focus");
    assert_string_equal(expected.result->kv_reduction.reason, "");
    oracle_run_free(&r), oracle_run_free(&expected);
    q.kv_method = "snapkv";
    oracle_run_make(&r, e, &q);
    assert_int_equal(r.rc, RP_ERR_CONFLICT);
    oracle_run_free(&r);
    rp_engine_free(e), rp_engine_free(plain);
}

/* Whatever the budget, a default neither refuses a request nor shortens its answer. */
static void a_default_yields_to_the_budget(void **state) {
    (void)state;
    rp_engine *e = new_engine(model, 1, 0, NULL);
    rp_request q = request_of(over_modules, "30%", NULL);
    oracle_run reduced, r, expected;
    run(e, &q, &reduced);
    const uint64_t column = reduced.result->kv_reduction.bytes_before / 16;
    rp_engine_free(e);
    int n_reduced = 0, n_memory = 0, n_refused = 0;
    q.kv_keep = NULL;
    for (uint64_t budget = column; n_reduced < 3; budget += column) {
        rp_engine_options o = options_of(1, 0, NULL);
        o.kv_budget_bytes = budget;
        rp_engine *plain = engine_of(model, &o);
        o.kv_keep = "30%";
        e = engine_of(model, &o);
        oracle_run_make(&r, e, &q);
        oracle_run_make(&expected, plain, &q);
        assert_int_equal(r.rc, expected.rc);
        n_refused += r.rc == RP_ERR_BUDGET;
        if (!r.rc) {
            const bool yields = strcmp(r.result->kv_reduction.reason, "memory") == 0;
            assert_int_equal(r.result->n_tokens, expected.result->n_tokens);
            assert_int_equal(r.result->kv_reduction.method[0] == '\0', yields);
            assert_true(oracle_run_same(&r, yields ? &expected : &reduced));
            n_memory += yields;
            n_reduced += !yields;
        }
        oracle_run_free(&r), oracle_run_free(&expected);
        rp_engine_free(e), rp_engine_free(plain);
        assert_true(budget < 100 * column);
    }
    assert_true(n_refused > 0 && n_memory > 0);
    oracle_run_free(&reduced);
}

static void wrong_defaults_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *keep, *method, *words;
    } cases[] = {{"12x", NULL, "kv_keep '12x': give a number of slots (1024), a share (12.5%, to 100%) or off"},
                 {"0", NULL, "kv_keep '0'"},
                 {"auto", NULL, "kv_keep 'auto'"},
                 {"25%", "kvzip", "kv_method 'kvzip': give snapkv"},
                 {"25%", "h2o", "kv_method 'h2o': give snapkv, sinks or quest"}, /* it was there in 0.2.0 */
                 {NULL, "sinks", "kv_method 'sinks' without kv_keep"}};
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        rp_engine_options o = options_of(1, 0, NULL);
        rp_engine *e = NULL;
        rp_error err = {0};
        o.kv_keep = cases[i].keep;
        o.kv_method = cases[i].method;
        assert_int_equal(rp_engine_new(&e, model, &o, &err), RP_ERR_INVALID);
        assert_non_null(strstr(err.message, cases[i].words));
    }
}

/* ---- several answers, stop strings ---- */

/* Samples of one prompt at once: the prompt is computed by one of them, but for the rows that each observes. */
static void several_samples_share_the_prompt(void **state) {
    (void)state;
    char *text = calls_text(15, 200);
    enum { N = 4 };
    oracle_run alone[N], together[N];
    rp_job *jobs[N];
    rp_request q = request_of(text, "10%", NULL);
    rp_engine *e = new_engine(model, 2, 32, NULL);
    q.sampling.temperature = 1;
    for (uint64_t i = 0; i < N; i++) {
        q.sampling.seed = i + 1;
        rp_engine *own = new_engine(model, 1, 0, NULL);
        run(own, &q, &alone[i]);
        rp_engine_free(own);
    }
    for (uint64_t i = 0; i < N; i++) {
        q.sampling.seed = i + 1;
        must(oracle_run_submit(&together[i], e, &q, &jobs[i]), &together[i].err);
    }
    int32_t computed = 0;
    for (int i = 0; i < N; i++) {
        oracle_run_finish(&together[i], jobs[i]);
        assert_true(oracle_run_same(&together[i], &alone[i]));
        computed += together[i].result->fresh_tokens;
        if (i > 0) assert_false(oracle_run_same(&together[i], &together[i - 1]));
    }
    assert_true(computed <= alone[0].result->prompt_tokens + (N - 1) * SEQUENCE_WINDOW);
    for (int i = 0; i < N; i++) oracle_run_free(&alone[i]), oracle_run_free(&together[i]);
    rp_engine_free(e);
    free(text);
}

static void bad_settings_are_refused(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"", NULL},
        {"0", NULL},
        {"-1", NULL},
        {"12x", NULL},
        {"0%", NULL},
        {"100.1%", NULL},
        {"101%", NULL},
    };
    static const char *const others[][2] = {
        {"12.55%", NULL},
        {"%", NULL},
        {"99999999999", NULL},
        {"10%", "kvzip"},
        {"10%", ""},
        {NULL, "snapkv"},
    };
    rp_engine *e = new_engine(model, 1, 0, NULL);
    for (size_t i = 0; i < BASE_ARRAY_LEN(bad) + BASE_ARRAY_LEN(others); i++) {
        rp_error err = {0};
        rp_job *job;
        const char *const *row = i < BASE_ARRAY_LEN(bad) ? bad[i] : others[i - BASE_ARRAY_LEN(bad)];
        const rp_request q = request_of("A text.", row[0], row[1]);
        assert_int_equal(rp_engine_submit(e, &q, &job, &err), RP_ERR_INVALID);
        assert_non_null(strstr(err.message, "kv_"));
    }
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_are_misses),
        cmocka_unit_test(windows_change_nothing),
        cmocka_unit_test(all_slots_are_no_reduction),
        cmocka_unit_test(formats_are_read_as_they_are),
        cmocka_unit_test(the_prompt_is_cached_as_ever),
        cmocka_unit_test(another_question_loses_nothing),
        cmocka_unit_test(little_is_held),
        cmocka_unit_test(memory_is_free_during_the_answer),
        cmocka_unit_test(small_budgets_are_enough),
        cmocka_unit_test(requests_without_fields_get_the_default),
        cmocka_unit_test(a_default_yields_to_focus),
        cmocka_unit_test(a_default_yields_to_the_budget),
        cmocka_unit_test(wrong_defaults_are_refused),
        cmocka_unit_test(several_samples_share_the_prompt),
        cmocka_unit_test(bad_settings_are_refused),
    };
    return cmocka_run_group_tests_name("kv_keep", tests, open_all, close_all);
}
