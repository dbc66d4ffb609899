/* SPDX-License-Identifier: Apache-2.0 */
/* test_context_shift.c: answers that are longer than the context (rp_request.context_shift), against the slow
 * transformer of reference_model.h, which gets for each token the ones that are left and their distances; the same
 * bytes whatever is cached, by any number of threads, in any chunks, with drafts and beside other requests; flat memory
 * within a budget of one context. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "model/model_internal.h"
#include "support/calls.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/reference_model.h"
#include "support/seed.h"
#include "support/shared_model.h"
#include "support/store_folder.h"
#include "reprise_pml.h"
#include "support/experiments.h"
#include "reprise_test.h"

#define CONTEXT 256
#define PIECE (CONTEXT / 4)
#define SINKS 4
#define N_PROMPT 150
#define N_ANSWER (6 * CONTEXT)

static golden *models;

static int open_all(void **state) {
    models = golden_open();
    return open_model(state);
}

static int close_all(void **state) {
    golden_close(models);
    return close_model(state);
}

static rp_model *open_golden(const char *name) {
    rp_error err = {0};
    rp_model *m;
    must(rp_model_open(&m, golden_find(models, name)->path, NULL, &err), &err);
    return m;
}

static rp_engine *engine_of(rp_model *m, int32_t threads, int32_t chunk, rp_kv_format format, const char *dir) {
    rp_error err = {0};
    rp_engine *e;
    rp_engine_options o = rp_engine_options_defaults();
    o.n_ctx = CONTEXT;
    o.n_threads = threads;
    o.chunk_tokens = chunk;
    o.kv_format = format;
    o.store_dir = dir;
    must(rp_engine_new(&e, m, &o, &err), &err);
    return e;
}

static void draw_tokens(const rp_model *m, int32_t *ids, int32_t n, uint64_t seed) {
    tiny_random r = {seed};
    for (int32_t i = 0; i < n; i++) ids[i] = (int32_t)tiny_random_below(&r, (uint64_t)m->net.hp.n_vocab);
}

/* Tokens as the prompt, and as the answer; the answer's are in *forced. */
static rp_request request_of(const int32_t *ids, int32_t n_prompt, int32_t n_answer, rp_request_experiment *forced) {
    rp_request q = rp_request_defaults();
    *forced = experiment_forced(ids + n_prompt, n_answer);
    q.prompt = rp_prompt_tokens(ids, (size_t)n_prompt);
    q.experiment = forced;
    q.ignore_eos = true;
    q.context_shift = true;
    return q;
}

static void run(rp_engine *e, const rp_request *q, oracle_run *out) {
    oracle_run_make(out, e, q);
    must(out->rc, &out->err);
}

/* ---- the definition ---- */

typedef struct left {
    int32_t token, pos;
} left;

/* What is left of the tokens so far; *pos: position of the next one. */
static void shift_left(left *list, int32_t *n, int32_t *pos) {
    int32_t k = 0;
    if (*pos < CONTEXT) return;
    for (int32_t i = 0; i < *n; i++) {
        if (list[i].pos >= SINKS && list[i].pos < SINKS + PIECE) continue;
        list[k] = list[i];
        if (list[k].pos >= SINKS) list[k].pos -= PIECE;
        k++;
    }
    *n = k;
    *pos -= PIECE;
}

/* Few rounds (the sanitizers): two contexts are enough for several shifts. */
static void check_reference(const char *name, const gguf_file *file, rp_model *m, double bound) {
    const int32_t n_answer = BASE_MIN(test_rounds(6) * CONTEXT, N_ANSWER);
    static int32_t ids[N_PROMPT + N_ANSWER];
    static left list[CONTEXT + 1];
    static reference_sight sights[CONTEXT + 1];
    const int32_t n_vocab = m->net.hp.n_vocab;
    rp_error err = {0};
    reference_model *ref;
    oracle_run answer;
    int32_t n_left = 0, pos = 0;
    double worst = 0;
    must(reference_model_open(&ref, file, CONTEXT, &err), &err);
    reference_kv *kv = reference_kv_new(ref);
    float *logits = reference_alloc((size_t)n_vocab, sizeof(*logits));
    draw_tokens(m, ids, N_PROMPT + n_answer, 5);
    rp_engine *e = engine_of(m, 2, 0, RP_KV_F32, NULL);
    rp_request_experiment forced;
    const rp_request q = request_of(ids, N_PROMPT, n_answer, &forced);
    run(e, &q, &answer);
    assert_int_equal(answer.n_steps, n_answer);
    assert_int_equal(answer.result->context_shifts, (N_PROMPT + n_answer - 1 - CONTEXT + PIECE - 1) / PIECE);
    for (int32_t i = 0; i < N_PROMPT + n_answer - 1; i++, pos++) {
        shift_left(list, &n_left, &pos);
        for (int32_t k = 0; k < n_left; k++) sights[k] = (reference_sight){list[k].token, pos - list[k].pos};
        reference_kv_add(kv, ids[i], pos, sights, (size_t)n_left, logits);
        list[n_left++] = (left){i, pos};
        if (i + 1 < N_PROMPT) continue;
        const double d = oracle_deviation(oracle_run_logits(&answer, i + 1 - N_PROMPT), logits, n_vocab);
        if (d > bound) fail_msg("%s: answer token %d deviates by %g", name, (int)(i + 1 - N_PROMPT), d);
        worst = d > worst ? d : worst;
    }
    printf("%-8s %d tokens, %d shifts: at most %g from the reference\n", name, n_answer, answer.result->context_shifts,
           worst);
    oracle_run_free(&answer);
    rp_engine_free(e);
    free(logits);
    reference_kv_free(kv);
    reference_model_close(ref);
}

static void answers_agree_with_the_reference(void **state) {
    static const char *const names[] = {"gemma3", "bloom"}; /* windows; distances instead of rotations */
    oracle_model m;
    tiny_model_shape shape = tiny_model_defaults();
    rp_error err = {0};
    (void)state;
    oracle_model_open(&m, &shape, "plain");
    check_reference("llama", m.file, m.model, 1e-3);
    oracle_model_close(&m);
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        gguf_file *file;
        rp_model *model_of = open_golden(names[i]);
        must(gguf_open(&file, golden_find(models, names[i])->path, &err), &err);
        check_reference(names[i], file, model_of, 1e-3);
        gguf_close(file);
        rp_model_close(model_of);
    }
}

/* ---- hit = miss ---- */

#define N_DRAWN 500 /* tokens of an answer that the model draws itself */

static rp_request drawn_request(const char *text) {
    rp_request q = calls_request(text, N_DRAWN);
    q.context_shift = true;
    return q;
}

static void check_same(rp_engine *e, const rp_request *q, const oracle_run *expected, const char *where) {
    oracle_run again;
    run(e, q, &again);
    if (!oracle_run_same(&again, expected)) fail_msg("%s: other logits", where);
    assert_int_equal(again.result->context_shifts, expected->result->context_shifts);
    oracle_run_free(&again);
}

static void check_everywhere(rp_model *m, rp_kv_format format, rp_request q, const char *pml) {
    char dir[STORE_FOLDER_BYTES];
    rp_error err = {0};
    oracle_run cold;
    static const int32_t chunks[] = {1, 64, 7};
    store_folder_make(dir);
    q.reuse = RP_REUSE_OFF;
    for (int i = 0; i < 4; i++) {
        rp_engine *e = engine_of(m, 1 + i % 3, i > 0 ? chunks[i - 1] : 0, format, i > 0 ? dir : NULL);
        if (pml) must(rp_schema_parse(e, pml, strlen(pml), "schema", NULL, NULL, NULL, &err), &err);
        if (i == 0) {
            run(e, &q, &cold);
            assert_true(cold.result->context_shifts >= 4);
            q.reuse = RP_REUSE_ON;
            rp_engine_free(e);
            continue;
        }
        check_same(e, &q, &cold, i == 1 ? "cold" : "from disk");
        check_same(e, &q, &cold, "warm");
        q.n_draft = 4;
        check_same(e, &q, &cold, "with drafts");
        q.n_draft = 0;
        if (i > 1) {
            rp_engine_free(e);
            continue;
        }
        oracle_run twins[3]; /* beside each other */
        rp_job *jobs[3];
        for (int k = 0; k < 3; k++) must(oracle_run_submit(&twins[k], e, &q, &jobs[k]), &twins[k].err);
        for (int k = 0; k < 3; k++) {
            oracle_run_finish(&twins[k], jobs[k]);
            assert_true(oracle_run_same(&twins[k], &cold));
            oracle_run_free(&twins[k]);
        }
        rp_engine_free(e);
    }
    oracle_run_free(&cold);
    store_folder_remove(dir);
}

static const char *schema_text(void) {
    static char pml[1 << 13];
    char *one = calls_text(1, 8), *two = calls_text(2, 12);
    snprintf(pml, sizeof pml,
             "<schema name='s'>Here is what is known. <module name='a' keep='50%%'>%s</module><module "
             "name='b'>%s</module></schema>",
             one, two);
    free(one), free(two);
    return pml;
}

/* Each kind of prompt and each format once, then the other pairs of them. */
static const struct shifted_case {
    rp_kv_format format;
    bool has_modules;
    int32_t blend; /* %: scattered spans */
} shifted_cases[] = {
    {RP_KV_INT8, false, 0},
    {RP_KV_KIVI4, true, 0},
    {RP_KV_F16, true, 20},
    {RP_KV_F16, false, 0},
    {RP_KV_F16, true, 0},
    {RP_KV_INT8, true, 0},
    {RP_KV_KIVI4, false, 0},
};
#define CASES_A_ROUND 3

static void hits_are_misses(void **state) {
    const int32_t n_all = (int32_t)BASE_ARRAY_LEN(shifted_cases);
    (void)state;
    char *text = calls_text(3, 20);
    for (int32_t i = 0; i < BASE_MIN(test_rounds(3) * CASES_A_ROUND, n_all); i++) {
        const struct shifted_case *one = &shifted_cases[i];
        rp_request q = drawn_request(one->has_modules ? NULL : text);
        if (one->has_modules)
            q.prompt = rp_prompt_pml(
                "<prompt schema='s'><b/><a/><user>And which of them is it?</user></prompt>");
        if (one->blend) q.quality = (rp_quality){RP_QUALITY_BLEND, one->blend};
        check_everywhere(model, one->format, q, one->has_modules ? schema_text() : NULL);
    }
    rp_model *m = open_golden("gemma3");
    check_everywhere(m, RP_KV_F16, drawn_request(text), NULL);
    rp_model_close(m);
    free(text);
}

/* ---- memory ---- */

typedef struct watch {
    rp_engine *e;
    uint64_t most[2]; /* before the answer has two contexts, and after */
    int32_t n;
} watch;

static void note_memory(const rp_step *s, watch *w) {
    if (s->kv_bytes > w->most[w->n > 2 * CONTEXT]) w->most[w->n > 2 * CONTEXT] = s->kv_bytes;
    w->n++;
}

static void on_step(void *user, const rp_step *s) { note_memory(s, user); }

/* The budget is that of one context and the span that is dropped in part. */
static void memory_is_flat(void **state) {
    static int32_t ids[N_PROMPT + 20 * CONTEXT];
    const int32_t n_answer = BASE_MIN(4 + test_rounds(16), 20) * CONTEXT; /* beyond the first two contexts */
    (void)state;
    for (int is_small = 0; is_small < 2; is_small++) {
        watch w = {0};
        rp_error err = {0};
        oracle_run r;
        rp_engine_options o = rp_engine_options_defaults();
        o.n_ctx = CONTEXT;
        o.on_step = on_step;
        o.step_user = &w;
        if (is_small) o.kv_budget_bytes = column_bytes * ((N_PROMPT + CONTEXT + 256) / 64 + 20);
        rp_engine *e;
        must(rp_engine_new(&e, model, &o, &err), &err);
        draw_tokens(model, ids, N_PROMPT + n_answer, 9);
        rp_request_experiment forced;
        const rp_request q = request_of(ids, N_PROMPT, n_answer, &forced);
        run(e, &q, &r);
        assert_int_equal(r.result->n_tokens, n_answer); /* the budget does not shorten it */
        printf("%d tokens: at most %llu bytes of KV in the first two contexts, %llu after them; %llu bytes are 64 "
               "tokens\n",
               n_answer, (unsigned long long)w.most[0], (unsigned long long)w.most[1],
               (unsigned long long)column_bytes);
        assert_true(w.most[1] <= w.most[0] && w.most[1] > column_bytes * (CONTEXT * 3 / 4 / 64));
        assert_true(r.result->kv_bytes <= column_bytes * (CONTEXT / 64 + 6));
        oracle_run_free(&r);
        rp_engine_free(e);
    }
}

/* ---- the cache ---- */

static void the_prompt_is_cached_and_the_answer_is_not(void **state) {
    static int32_t ids[N_PROMPT + N_ANSWER];
    (void)state;
    oracle_run r, again;
    rp_engine *e = engine_of(model, 2, 0, RP_KV_F16, NULL);
    draw_tokens(model, ids, N_PROMPT + N_ANSWER, 11);
    rp_request_experiment forced;
    rp_request q = request_of(ids, N_PROMPT, N_ANSWER, &forced);
    run(e, &q, &r);
    q = request_of(ids, N_PROMPT + 100, 5, &forced); /* its answer fits: nothing is shifted */
    run(e, &q, &again);
    assert_int_equal(again.result->context_shifts, 0);
    assert_int_equal(again.result->cached_tokens, N_PROMPT);
    oracle_run_free(&r), oracle_run_free(&again);
    rp_engine_free(e);
}

/* Leading system messages stay, if they are short. */
static void system_messages_stay(void **state) {
    (void)state;
    char *rules = calls_text(1, 5), *question = calls_text(2, 6);
    const rp_message messages[] = {{.role = RP_ROLE_SYSTEM, .text = rules, .n = strlen(rules)},
                                   {.role = RP_ROLE_USER, .text = question, .n = strlen(question)}};
    rp_engine *e = engine_of(model, 1, 0, RP_KV_F16, NULL);
    oracle_run with, without;
    rp_request q = drawn_request(NULL);
    q.prompt = rp_prompt_messages(messages, 2);
    run(e, &q, &with);
    assert_true(with.result->context_shifts > 2 && with.result->n_tokens == N_DRAWN);
    q.prompt = rp_prompt_messages(messages + 1, 1); /* other tokens stay: other answers, in the end */
    run(e, &q, &without);
    assert_false(oracle_run_same(&with, &without));
    oracle_run_free(&with), oracle_run_free(&without);
    rp_engine_free(e);
    free(rules), free(question);
}

/* ---- errors ---- */

static void check_refused(rp_engine *e, const rp_request *q, rp_code code, const char *says) {
    rp_error err = {0};
    rp_result *r = NULL;
    if (rp_engine_run(e, q, &r, &err) != (int)code) fail_msg("not refused: %s", says);
    if (!strstr(err.message, says)) fail_msg("'%s' does not say '%s'", err.message, says);
}

static void what_cannot_be_shifted_is_refused(void **state) {
    (void)state;
    rp_engine *e = engine_of(model, 1, 0, RP_KV_F16, NULL);
    rp_error err = {0};
    const char *pml = schema_text();
    must(rp_schema_parse(e, pml, strlen(pml), "schema", NULL, NULL, NULL, &err), &err);
    rp_request q = drawn_request("one two three");
    q.kv_keep = "50%";
    check_refused(e, &q, RP_ERR_CONFLICT, "kv_keep");
    q = drawn_request(NULL);
    q.prompt = rp_prompt_pml("<prompt schema='s'><b/><a/><user>Which?</user></prompt>");
    q.quality = (rp_quality){RP_QUALITY_FOCUS, 20};
    check_refused(e, &q, RP_ERR_CONFLICT, "focus");
    rp_engine_free(e);
    rp_engine_options o = rp_engine_options_defaults();
    o.n_ctx = CONTEXT;
    o.kv_keep = "50%"; /* a default yields */
    must(rp_engine_new(&e, model, &o, &err), &err);
    oracle_run r;
    q = drawn_request("one two three");
    run(e, &q, &r);
    assert_true(r.result->context_shifts > 0);
    assert_string_equal(r.result->kv_reduction.reason, "context_shift");
    oracle_run_free(&r);
    rp_engine_free(e);
    static const char *const names[] = {"gpt2", "deepseek2", "gemma4"}; /* the others: latent KV, different heads */
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        rp_model *m = open_golden(names[i]);
        o = rp_engine_options_defaults();
        o.n_ctx = 64;
        must(rp_engine_new(&e, m, &o, &err), &err);
        q = drawn_request("one two three");
        check_refused(e, &q, RP_ERR_UNSUPPORTED, names[i]);
        q.max_tokens = 10; /* fits: nothing would be shifted */
        run(e, &q, &r);
        oracle_run_free(&r);
        rp_engine_free(e);
        rp_model_close(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_agree_with_the_reference),
        cmocka_unit_test(hits_are_misses),
        cmocka_unit_test(memory_is_flat),
        cmocka_unit_test(the_prompt_is_cached_and_the_answer_is_not),
        cmocka_unit_test(system_messages_stay),
        cmocka_unit_test(what_cannot_be_shifted_is_refused),
    };
    return cmocka_run_group_tests_name("context shift", tests, open_all, close_all);
}
