/* SPDX-License-Identifier: Apache-2.0 */
/* test_constrained.c: grammar-constrained decoding through reprise.h: each answer is in the language of its grammar, or
 * a prefix of such a text, by the slow search of random_grammar.h; each token is the most likely one that the search
 * allows; drafts, stop strings, triggers, log-probabilities and other requests change nothing. Grammars and their
 * limits: tests/grammar.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reprise.h"
#include "reprise_test.h"
#include "support/oracle_run.h"
#include "support/random_grammar.h"
#include "support/seed.h"
#include "support/tiny_model.h"
#include "support/experiments.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MOST_VOCAB 1024
#define TOO_DEEP 5000 /* more than MATCHER_MAX_NESTING */

static uint64_t seed;
static const tiny_vocab_kind kinds[] = {TINY_VOCAB_SPM, TINY_VOCAB_BPE, TINY_VOCAB_UNIGRAM};

static rp_model *models[LEN(kinds)];
static rp_engine *engines[LEN(kinds)];

static int open_models(void **state) {
    (void)state;
    for (size_t i = 0; i < LEN(kinds); i++) {
        tiny_model_shape shape = tiny_model_defaults();
        rp_engine_options o = rp_engine_options_defaults();
        shape.vocab = kinds[i];
        models[i] = tiny_model_open(&shape, "chatml");
        o.n_threads = 1;
        assert_int_equal(rp_engine_new(&engines[i], models[i], &o, NULL), RP_OK);
    }
    return 0;
}

static int close_models(void **state) {
    (void)state;
    for (size_t i = 0; i < LEN(kinds); i++) {
        rp_engine_free(engines[i]);
        rp_model_close(models[i]);
    }
    return 0;
}

static rp_request request_of(const char *grammar) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_text("Once upon a time there was a little girl who");
    q.grammar = grammar;
    q.max_tokens = 12;
    return q;
}

static rp_result *run(size_t m, const rp_request *q) {
    rp_result *r;
    rp_error err;
    if (rp_engine_run(engines[m], q, &r, &err)) fail_msg("%s", err.message);
    return r;
}

static void expect_same(const rp_result *a, const rp_result *b) {
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof *a->tokens);
    assert_string_equal(a->text, b->text);
    assert_string_equal(a->finish_reason, b->finish_reason);
}

static void expect_text(const rp_request *q, const char *text, const char *finish) {
    rp_result *r = run(0, q);
    assert_string_equal(r->text, text);
    assert_string_equal(r->finish_reason, finish);
    rp_result_free(r);
}

/* ---- the language ---- */

static void expect_in_language(const random_grammar *g, const rp_result *r) {
    size_t n = strlen(r->text);
    if (n > RANDOM_GRAMMAR_MOST) return;
    random_verdict v = random_grammar_judge(g, r->text, n);
    bool whole = strcmp(r->finish_reason, "stop") == 0;
    if (!whole) assert_string_equal(r->finish_reason, "length");
    if (whole ? !v.whole : !v.beginning) fail_msg("'%s' (%s) is no text of\n%s", r->text, r->finish_reason, g->text);
}

static void answers_are_texts_of_their_grammars(void **state) {
    (void)state;
    tiny_random r = {.state = seed};
    random_grammar *g = malloc(sizeof *g);
    int n_whole = 0;
    for (int round = 0; round < 60; round++) {
        size_t m = (size_t)round % LEN(kinds);
        random_grammar_make(g, &r, true);
        rp_request q = request_of(g->text);
        if (round % 4 == 3) q.prompt = rp_prompt_text(""); /* a space before the first word is not part of the text */
        q.sampling.temperature = (float)(round / 2 % 2);
        q.sampling.seed = tiny_random_u64(&r);
        q.ignore_eos = round % 5 == 4;
        rp_result *plain = run(m, &q);
        expect_in_language(g, plain);
        n_whole += strcmp(plain->finish_reason, "stop") == 0;
        q.n_draft = 8;
        rp_result *drafted = run(m, &q);
        expect_same(plain, drafted);
        rp_result_free(plain);
        rp_result_free(drafted);
    }
    assert_true(n_whole > 10);
    free(g);
}

/* ---- each token ---- */

typedef struct watch {
    const rp_model *model;
    const random_grammar *g;
    char text[RANDOM_GRAMMAR_MOST + 1];
    size_t n;
    int32_t best; /* of the tokens that the search allows; -1: none */
    bool may_end, over;
    int n_seen;
} watch;

static bool allows(watch *w, int32_t token) {
    char text[RANDOM_GRAMMAR_MOST + 64];
    size_t n = 0;
    const char *bytes = rp_token_bytes(w->model, token, false, &n);
    if (!bytes || n == 0 || w->n + n > RANDOM_GRAMMAR_MOST) return false;
    memcpy(text, w->text, w->n);
    memcpy(text + w->n, bytes, n);
    return random_grammar_judge(w->g, text, w->n + n).beginning;
}

/* End-of-text tokens are left out here, as the search cannot judge them; they may be sampled instead. */
static void on_logits(void *user, const float *logits, int32_t n_vocab) {
    watch *w = user;
    w->best = -1;
    w->may_end = random_grammar_judge(w->g, w->text, w->n).whole;
    for (int32_t i = 0; i < n_vocab && !w->over; i++)
        if ((w->best < 0 || logits[i] > logits[w->best]) && allows(w, i)) w->best = i;
}

static bool on_token(void *user, const rp_token *token) {
    watch *w = user;
    size_t n;
    const char *bytes = rp_token_bytes(w->model, token->id, false, &n);
    if (w->n + 16 > RANDOM_GRAMMAR_MOST) w->over = true; /* more cannot be judged */
    if (w->over) return false;
    if (token->id != w->best)
        fail_msg("'%.*s': token %d, and %d was to be drawn of\n%s", (int)w->n, w->text, token->id, w->best, w->g->text);
    memcpy(w->text + w->n, bytes, n);
    w->n += n;
    w->n_seen++;
    return true;
}

static void each_token_is_the_likeliest_that_fits(void **state) {
    (void)state;
    tiny_random r = {.state = seed + 1};
    random_grammar *g = malloc(sizeof *g);
    int n_seen = 0;
    for (int round = 0; round < 24; round++) {
        random_grammar_make(g, &r, true);
        watch w = {.model = models[round % 3], .g = g};
        rp_request q = request_of(g->text);
        q.on_logits = on_logits;
        q.on_token = on_token;
        q.user = &w;
        q.ignore_eos = true;
        rp_result *got = run((size_t)round % 3, &q);
        if (!w.over && strcmp(got->finish_reason, "stop") == 0) {
            assert_int_equal(w.n, strlen(got->text));
            assert_true(random_grammar_judge(g, w.text, w.n).whole);
        }
        n_seen += w.n_seen;
        rp_result_free(got);
    }
    assert_true(n_seen > 24);
    free(g);
}

/* A grammar is a bias of -infinity for all tokens that it excludes, before all other sampling steps. */
static void drawing_is_as_with_a_bias_for_all_others(void **state) {
    (void)state;
    static rp_logit_bias bias[MOST_VOCAB];
    for (size_t m = 0; m < LEN(kinds); m++) {
        rp_model_info info = {.struct_size = sizeof(info)};
        rp_model_describe(models[m], &info);
        int32_t n = 0;
        for (int32_t i = 0; i < info.n_vocab; i++) {
            size_t bytes;
            const char *s = rp_token_bytes(models[m], i, false, &bytes);
            bool fits = bytes > 0;
            for (size_t k = 0; k < bytes; k++) fits = fits && s[k] >= 'a' && s[k] <= 'p';
            if (!fits) bias[n++] = (rp_logit_bias){i, -INFINITY};
        }
        for (uint64_t i = 0; i < 30; i++) {
            rp_request q = request_of("root ::= [a-p]+");
            q.max_tokens = 5;
            q.ignore_eos = true;
            q.sampling = (rp_sampling){
                .temperature = 1.3f,
                .top_k = i % 2 ? 20 : 0,
                .typical = 0.97f,
                .top_p = 0.9f,
                .min_p = 0.02f,
                .repeat_penalty = 1.1f,
                .repeat_last = 10,
                .seed = i,
            };
            rp_result *a = run(m, &q);
            q.grammar = NULL;
            q.sampling.bias = bias;
            q.sampling.n_bias = n;
            rp_result *b = run(m, &q);
            expect_same(a, b);
            rp_result_free(a);
            rp_result_free(b);
        }
    }
}

static void log_probabilities_are_the_models(void **state) {
    (void)state;
    rp_request q = request_of(NULL);
    q.max_tokens = 1;
    q.n_logprobs = 5;
    rp_result *free_one = run(0, &q);
    q.grammar = "root ::= [0-9]";
    rp_result *bound = run(0, &q);
    assert_int_equal(bound->n_tokens, 1);
    assert_true(bound->text[0] >= '0' && bound->text[0] <= '9');
    assert_memory_equal(free_one->top_logprobs, bound->top_logprobs, 5 * sizeof(rp_token_logprob));
    assert_true(bound->logprobs[0] < free_one->logprobs[0]);
    rp_result_free(free_one);
    rp_result_free(bound);
}

/* ---- ends ---- */

static void an_answer_ends_where_nothing_else_can_come(void **state) {
    (void)state;
    rp_request q = request_of("root ::= \"never again\"");
    q.max_tokens = 100;
    expect_text(&q, "never again", "stop");
    q.ignore_eos = true;
    expect_text(&q, "never again", "stop");
    q.grammar = "root ::= \"\"";
    expect_text(&q, "", "stop");
    q.grammar = "root ::= \"never again\"";
    q.max_tokens = 1;
    rp_result *r = run(0, &q);
    assert_string_equal(r->finish_reason, "length");
    assert_int_equal(r->n_tokens, 1);
    rp_result_free(r);
}

static void where_no_token_fits_the_answer_says_so(void **state) {
    (void)state;
    static rp_logit_bias bias[MOST_VOCAB];
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(models[0], &info);
    rp_request q = request_of("root ::= \"a\"");
    q.sampling.bias = bias;
    for (int32_t i = 0; i < info.n_vocab; i++) bias[q.sampling.n_bias++] = (rp_logit_bias){i, -INFINITY};
    expect_text(&q, "", "grammar");
    q.sampling.temperature = 1;
    expect_text(&q, "", "grammar");
    q.grammar = "root ::= \"a\"?"; /* ends as soon as the grammar may end */
    expect_text(&q, "", "stop");
}

static void stop_strings_end_it_too(void **state) {
    (void)state;
    static const char *const stops[] = {"er a"};
    rp_request q = request_of("root ::= \"never again\"");
    q.max_tokens = 100;
    q.stops = stops;
    q.n_stops = 1;
    expect_text(&q, "nev", "stop");
}

static void forced_tokens_are_not_asked(void **state) {
    (void)state;
    int32_t forced[] = {300, 301, 302};
    rp_request q = request_of("root ::= \"never again\"");
    const rp_request_experiment experiment = experiment_forced(forced, 3);
    q.experiment = &experiment;
    rp_result *r = run(0, &q);
    assert_int_equal(r->n_tokens, 3);
    assert_memory_equal(r->tokens, forced, sizeof forced);
    rp_result_free(r);
}

/* The text may end or continue at every byte, and no position repeats: their number finally exceeds the limit. */
static void what_cannot_be_followed_ends_by_its_name(void **state) {
    (void)state;
    char text[4096] = "root ::= r0 \"!\"\n";
    for (int i = 0; i < 12; i++)
        sprintf(text + strlen(text), "r%d ::= \"a\" r%d \"a\" | \"a\" r%d \"b\" | \"a\" r%d \"c\" | \"y\"\n", i,
                (i + 1) % 12, (i + 5) % 12, i);
    rp_model_info info = {.struct_size = sizeof(info)};
    static rp_logit_bias bias[MOST_VOCAB];
    rp_model_describe(models[0], &info);
    rp_request q = request_of(text);
    q.max_tokens = 60;
    q.sampling.bias = bias;
    for (int32_t i = 0; i < info.n_vocab; i++) { /* nothing but "a" */
        size_t n;
        const char *bytes = rp_token_bytes(models[0], i, false, &n);
        if (n != 1 || bytes[0] != 'a') bias[q.sampling.n_bias++] = (rp_logit_bias){i, -INFINITY};
    }
    rp_result *r = run(0, &q);
    assert_string_equal(r->finish_reason, "grammar");
    assert_true(r->n_tokens > 3 && r->n_tokens < 60);
    rp_result_free(r);
}

/* Before its first character the language nests deeper than a stack may: it has no text. */
static void a_language_that_is_too_deep_is_empty(void **state) {
    (void)state;
    char *text = malloc((size_t)32 * (TOO_DEEP + 3)), *end = text + sprintf(text, "root ::= r0 \"!\"\n");
    for (int i = 0; i < TOO_DEEP; i++) end += sprintf(end, "r%d ::= r%d \"!\"\n", i, i + 1);
    sprintf(end, "r%d ::= \"a\"\n", TOO_DEEP);
    rp_request q = request_of(text);
    expect_text(&q, "", "grammar");
    q.sampling.temperature = 1;
    expect_text(&q, "", "grammar");
    free(text);
}

/* ---- triggers ---- */

/* Any two adjacent characters of an answer as its trigger: the answer is unchanged up to the trigger, then in the
 * language. */
static void up_to_the_trigger_the_answer_is_free(void **state) {
    (void)state;
    for (size_t m = 0; m < LEN(kinds); m++) {
        rp_request q = request_of(NULL);
        q.max_tokens = 20;
        q.ignore_eos = true;
        rp_result *plain = run(m, &q);
        size_t n = strlen(plain->text), n_held = 0;
        for (size_t i = 2; i + 2 < n && i < 12; i++) {
            char trigger[3] = {plain->text[i], plain->text[i + 1], '\0'};
            if ((trigger[0] & 0x80) || (trigger[1] & 0x80)) continue;
            size_t place = (size_t)(strstr(plain->text, trigger) - plain->text) + 2;
            q.grammar = "root ::= \"<\" [0-9]{3} \">\"";
            q.grammar_trigger = trigger;
            rp_result *r = run(m, &q);
            char *found = strstr(r->text, trigger);
            if (found) { /* else the token with the trigger had further characters */
                int digits, length = 0;
                size_t at = (size_t)(found - r->text) + 2;
                if (at == place) assert_memory_equal(r->text, plain->text, place);
                assert_string_equal(r->finish_reason, "stop");
                assert_int_equal(sscanf(found + 2, "<%3d>%n", &digits, &length), 1);
                assert_int_equal(length, 5);
                assert_string_equal(found + 7, "");
                n_held++;
            } else assert_string_equal(r->finish_reason, "length");
            rp_result_free(r);
        }
        assert_true(n_held > 0);
        rp_result_free(plain);
    }
}

static void a_trigger_that_never_comes_changes_nothing(void **state) {
    (void)state;
    for (size_t m = 0; m < LEN(kinds); m++)
        for (int t = 0; t < 2; t++) {
            rp_request q = request_of(NULL);
            q.max_tokens = 30;
            q.sampling.temperature = (float)t;
            q.sampling.seed = 7;
            rp_result *plain = run(m, &q);
            q.grammar = "root ::= \"x\"";
            q.grammar_trigger = "\xe2\x82\xac\xe2\x82\xac";
            rp_result *r = run(m, &q);
            expect_same(plain, r);
            rp_result_free(plain);
            rp_result_free(r);
        }
}

/* ---- many at once ---- */

static void calls_with_and_without_grammars_do_not_meet(void **state) {
    (void)state;
    static const char *const grammars[] = {NULL, "root ::= [a-z ]+", "root ::= \"{\" [0-9]+ (\",\" [0-9]+)* \"}\"",
                                           NULL, ".", "root ::= (\"ab\" | [^a])*"};
    rp_result *alone[LEN(grammars)] = {NULL}, *together[LEN(grammars)];
    rp_job *calls[LEN(grammars)], *cancelled;
    rp_request q[LEN(grammars)];
    rp_error err;
    for (size_t i = 0; i < LEN(grammars); i++) {
        q[i] = request_of(grammars[i]);
        q[i].max_tokens = 24;
        q[i].ignore_eos = true;
        q[i].sampling.temperature = (float)(i % 2);
        if (i != 4) alone[i] = run(1, &q[i]);
    }
    for (size_t i = 0; i < LEN(grammars); i++)
        assert_int_equal(rp_engine_submit(engines[1], &q[i], &calls[i], &err), i == 4 ? RP_ERR_SYNTAX : RP_OK);
    q[1].max_tokens = 200;
    assert_int_equal(rp_engine_submit(engines[1], &q[1], &cancelled, &err), RP_OK);
    rp_job_cancel(cancelled);
    for (size_t i = 0; i < LEN(grammars); i++) {
        if (i == 4) continue;
        assert_int_equal(rp_job_result(calls[i], &together[i], &err), RP_OK);
        expect_same(alone[i], together[i]);
        rp_result_free(alone[i]);
        rp_result_free(together[i]);
        rp_job_free(calls[i]);
    }
    rp_job_free(cancelled);
}

/* ---- refused requests ---- */

static void expect_refused(const rp_request *q, rp_code code, const char *where, const char *says) {
    rp_error err = {0};
    rp_result *r;
    assert_int_equal(rp_engine_run(engines[0], q, &r, &err), code);
    assert_null(r);
    assert_string_equal(err.where, where);
    if (!strstr(err.message, says)) fail_msg("'%s' does not say '%s'", err.message, says);
}

static void a_bad_grammar_is_refused_with_its_place(void **state) {
    (void)state;
    char trigger[RP_MAX_TRIGGER_BYTES + 2];
    rp_request q = request_of("root ::= itme\nitem ::= \"a\"");
    expect_refused(&q, RP_ERR_SYNTAX, "grammar:1:10", "unknown rule 'itme': did you mean 'item'?");
    q.grammar = "root ::= root \"a\"";
    expect_refused(&q, RP_ERR_SYNTAX, "grammar:1:1", "begins with itself");
    q.grammar = "root ::= \"a\"{9999999}";
    expect_refused(&q, RP_ERR_LIMIT, "grammar:1:14", "more than 65536 repetitions");
    q.grammar = "root ::= \"a\"";
    q.grammar_trigger = "";
    expect_refused(&q, RP_ERR_INVALID, "", "grammar_trigger is empty");
    memset(trigger, 'x', sizeof trigger - 1);
    trigger[sizeof trigger - 1] = '\0';
    q.grammar_trigger = trigger;
    expect_refused(&q, RP_ERR_LIMIT, "", "grammar_trigger has 1025 bytes: give at most 1024");
}

static void the_tree_of_tokens_is_counted_once_it_is_there(void **state) {
    (void)state;
    tiny_model_shape shape = tiny_model_defaults();
    rp_model *model = tiny_model_open(&shape, "chatml");
    rp_engine *engine;
    rp_memory before = {.struct_size = sizeof(before)}, after = {.struct_size = sizeof(after)};
    rp_result *r;
    rp_request q = request_of(NULL);
    assert_int_equal(rp_engine_new(&engine, model, NULL, NULL), RP_OK);
    assert_int_equal(rp_engine_run(engine, &q, &r, NULL), RP_OK);
    rp_result_free(r);
    rp_engine_memory(engine, &before);
    q.grammar = "root ::= \"a\"";
    assert_int_equal(rp_engine_run(engine, &q, &r, NULL), RP_OK);
    rp_result_free(r);
    rp_engine_memory(engine, &after);
    assert_int_equal(before.token_trie, 0);
    assert_true(after.token_trie > 512);
    rp_engine_free(engine);
    rp_model_close(model);
}

/* ---- control tokens as text ---- */

static const char *const control_names[] = {"<|im_end|>", "[TOOL_CALLS]", NULL};

static int32_t id_of(const rp_model *m, const char *name) {
    int32_t *ids, id;
    size_t n;
    assert_int_equal(rp_tokenize(m, name, strlen(name), true, false, &ids, &n, NULL), RP_OK);
    assert_int_equal(n, 1);
    id = ids[0];
    rp_free(ids);
    return id;
}

static void expect_special(rp_engine *e, const rp_request *q, const char *text, int32_t first) {
    rp_error err;
    rp_result *r;
    if (rp_engine_run(e, q, &r, &err)) fail_msg("%s", err.message);
    assert_string_equal(r->text, text);
    assert_int_equal(r->tokens[0] == first, first >= 0);
    rp_result_free(r);
}

static void control_tokens_are_text_if_asked_for(void **state) {
    (void)state;
    for (size_t kind = 0; kind < LEN(kinds); kind++) {
        tiny_model_shape shape = tiny_model_defaults();
        shape.vocab = kinds[kind];
        shape.control = control_names;
        rp_model *m = tiny_model_open(&shape, "chatml");
        rp_engine *e;
        assert_int_equal(rp_engine_new(&e, m, NULL, NULL), RP_OK);
        const int32_t call = id_of(m, "[TOOL_CALLS]"), end = id_of(m, "<|im_end|>");
        const rp_logit_bias first = {call, 1000};
        rp_request q = request_of("root ::= \"[TOOL_CALLS][1]\"");
        q.max_tokens = 40;
        q.sampling.bias = &first;
        q.sampling.n_bias = 1;
        expect_special(e, &q, "[TOOL_CALLS][1]", -1); /* its characters */
        q.special_text = true;
        expect_special(e, &q, "[TOOL_CALLS][1]", call);
        q.sampling.temperature = 1;
        expect_special(e, &q, "[TOOL_CALLS][1]", call);
        q.sampling.temperature = 0;
        q.n_draft = 4;
        expect_special(e, &q, "[TOOL_CALLS][1]", call);
        q.n_draft = 0;
        q.grammar = "root ::= \"[1]\"";
        q.grammar_trigger = "[TOOL_CALLS]";
        expect_special(e, &q, "[TOOL_CALLS][1]", call);
        q.grammar = q.grammar_trigger = NULL;
        q.max_tokens = 2;
        expect_special(e, &q, "[TOOL_CALLS][TOOL_CALLS]", call);
        q.special_text = false;
        expect_special(e, &q, "", call);
        const char *stop = "CALLS][T";
        q.special_text = true;
        q.stops = &stop;
        q.n_stops = 1;
        expect_special(e, &q, "[TOOL_", call);
        q.n_stops = 0;
        const rp_logit_bias last = {end, 1000};
        q.sampling.bias = &last;
        q.ignore_eos = true; /* the end of a turn is never text */
        expect_special(e, &q, "", end);
        rp_engine_free(e);
        rp_model_close(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_tokens_are_text_if_asked_for),
        cmocka_unit_test(answers_are_texts_of_their_grammars),
        cmocka_unit_test(each_token_is_the_likeliest_that_fits),
        cmocka_unit_test(drawing_is_as_with_a_bias_for_all_others),
        cmocka_unit_test(log_probabilities_are_the_models),
        cmocka_unit_test(an_answer_ends_where_nothing_else_can_come),
        cmocka_unit_test(where_no_token_fits_the_answer_says_so),
        cmocka_unit_test(stop_strings_end_it_too),
        cmocka_unit_test(forced_tokens_are_not_asked),
        cmocka_unit_test(what_cannot_be_followed_ends_by_its_name),
        cmocka_unit_test(a_language_that_is_too_deep_is_empty),
        cmocka_unit_test(up_to_the_trigger_the_answer_is_free),
        cmocka_unit_test(a_trigger_that_never_comes_changes_nothing),
        cmocka_unit_test(calls_with_and_without_grammars_do_not_meet),
        cmocka_unit_test(a_bad_grammar_is_refused_with_its_place),
        cmocka_unit_test(the_tree_of_tokens_is_counted_once_it_is_there),
    };
    seed = test_seed("constrained", 20261123);
    return cmocka_run_group_tests_name("engine/constrained", tests, open_models, close_models);
}
