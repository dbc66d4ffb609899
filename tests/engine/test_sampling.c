/* SPDX-License-Identifier: Apache-2.0 */
/* test_sampling.c: sampling through reprise.h: refused options, the same text on any number of threads,
 * log-probabilities, stop strings, bias and penalties, callbacks. test_sampler.c and test_text_stream.c test the parts
 * alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "reprise.h"
#include "reprise_test.h"
#include "reprise_pml.h"
#include "support/tiny_model.h"
#include "support/experiments.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static const char schema_text[] =
    "<schema name='s'>Once <module name='a'>upon a time</module> there <module name='b'>was a</module></schema>";
static const char prompt_text[] = "<prompt schema='s'><a/><b/> little</prompt>";

static rp_model *model;
static rp_engine *engine;
static int32_t n_vocab;

static rp_engine *new_engine(int32_t n_threads) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e;
    o.n_threads = n_threads;
    assert_int_equal(rp_engine_new(&e, model, &o, NULL), RP_OK);
    assert_int_equal(rp_schema_parse(e, schema_text, strlen(schema_text), "s.xml", NULL, NULL, NULL, NULL), RP_OK);
    return e;
}

static int open_model(void **state) {
    (void)state;
    tiny_model_shape shape = tiny_model_defaults();
    rp_model_info info = {.struct_size = sizeof(info)};
    model = tiny_model_open(&shape, "chatml");
    rp_model_describe(model, &info);
    n_vocab = info.n_vocab;
    engine = new_engine(1);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    rp_engine_free(engine);
    rp_model_close(model);
    return 0;
}

static rp_request request_of(int32_t max_tokens) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(prompt_text);
    q.max_tokens = max_tokens;
    q.ignore_eos = true;
    return q;
}

/* All sampling steps are enabled. */
static rp_sampling all_on(uint64_t seed) {
    static const rp_logit_bias bias[] = {{300, 1.5f}, {301, -INFINITY}};
    return (rp_sampling){
        .temperature = 1.2f,
        .top_k = 100,
        .typical = 0.98f,
        .top_p = 0.97f,
        .min_p = 0.01f,
        .repeat_penalty = 1.2f,
        .presence_penalty = 0.1f,
        .frequency_penalty = 0.1f,
        .repeat_last = 20,
        .bias = bias,
        .n_bias = 2,
        .seed = seed,
    };
}

/* ---- refused options ---- */

static void expect_refused(const rp_request *q, rp_code code, const char *says) {
    rp_error err = {0};
    rp_result *r;
    assert_int_equal(rp_engine_run(engine, q, &r, &err), code);
    assert_null(r);
    if (!strstr(err.message, says)) fail_msg("'%s' does not say '%s'", err.message, says);
}

static void values_out_of_range_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t offset;
        float value;
        const char *says;
    } wrong[] = {
        {offsetof(rp_sampling, temperature), -1, "temperature is -1: give a number from 0 to 100 (0: off)"},
        {offsetof(rp_sampling, temperature), NAN, "temperature is"},
        {offsetof(rp_sampling, temperature), INFINITY, "temperature is inf"},
        {offsetof(rp_sampling, typical), 1.5f, "typical is 1.5"},
        {offsetof(rp_sampling, top_p), -0.5f, "top_p is -0.5: give a number from 0 to 1 (1: off)"},
        {offsetof(rp_sampling, top_p), NAN, "top_p is"},
        {offsetof(rp_sampling, min_p), 2, "min_p is 2"},
        {offsetof(rp_sampling, repeat_penalty), 0, "repeat_penalty is 0: give a number from 0.01 to 100 (1: off)"},
        {offsetof(rp_sampling, presence_penalty), -101, "presence_penalty is -101"},
        {offsetof(rp_sampling, frequency_penalty), INFINITY, "frequency_penalty is inf"},
    };
    for (size_t i = 0; i < LEN(wrong); i++) {
        rp_request q = request_of(4);
        memcpy((char *)&q.sampling + wrong[i].offset, &wrong[i].value, sizeof wrong[i].value);
        expect_refused(&q, RP_ERR_INVALID, wrong[i].says);
    }
    rp_request q = request_of(4);
    q.sampling.top_k = -1;
    expect_refused(&q, RP_ERR_INVALID, "top_k is -1");
    q.sampling.top_k = 0;
    q.sampling.repeat_last = -2;
    expect_refused(&q, RP_ERR_INVALID, "repeat_last is -2");
    q = request_of(4);
    q.n_logprobs = -1;
    expect_refused(&q, RP_ERR_INVALID, "n_logprobs is -1");
    q.n_logprobs = RP_MAX_LOGPROBS + 1;
    expect_refused(&q, RP_ERR_LIMIT, "give at most 100");
}

static void a_bias_that_has_no_token_or_no_number_is_refused(void **state) {
    (void)state;
    rp_logit_bias bias[2] = {{0, 1}, {0, 1}};
    rp_request q = request_of(4);
    q.sampling.n_bias = 1;
    expect_refused(&q, RP_ERR_INVALID, "bias is NULL");
    q.sampling.bias = bias;
    q.sampling.n_bias = -1;
    expect_refused(&q, RP_ERR_INVALID, "n_bias is -1");
    q.sampling.n_bias = 2;
    const struct {
        rp_logit_bias bias;
        const char *says;
    } wrong[] = {
        {{-1, 1}, "a bias is for token -1"},
        {{n_vocab, 1}, "give an id from 0 to 511"},
        {{1, NAN}, "the bias of token 1 is"},
        {{1, INFINITY}, "the bias of token 1 is inf"},
        {{1, 1001}, "from -1000 to 1000, or -inf"},
        {{1, -1001}, "from -1000 to 1000, or -inf"},
    };
    for (size_t i = 0; i < LEN(wrong); i++) {
        bias[1] = wrong[i].bias;
        expect_refused(&q, RP_ERR_INVALID, wrong[i].says);
    }
}

static void stop_strings_that_cannot_be_are_refused(void **state) {
    (void)state;
    const char *many[RP_MAX_STOPS + 1];
    char longest[RP_MAX_STOP_BYTES + 2];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (size_t i = 0; i < LEN(many); i++) many[i] = "stop";
    rp_request q = request_of(4);
    q.n_stops = 1;
    expect_refused(&q, RP_ERR_INVALID, "stops is NULL");
    q.stops = many;
    q.n_stops = -1;
    expect_refused(&q, RP_ERR_INVALID, "n_stops is -1");
    q.n_stops = RP_MAX_STOPS + 1;
    expect_refused(&q, RP_ERR_LIMIT, "give at most 64");
    static const char *const wrong[][2] = {
        {"", "stop string 2 is empty"},
        {NULL, "stop string 2 is empty"},
        {"\xe2\x82", "stop string 2 is not UTF-8"},
        {"a\xff", "stop string 2 is not UTF-8"},
    };
    q.n_stops = 2;
    for (size_t i = 0; i < LEN(wrong); i++) {
        many[1] = wrong[i][0];
        expect_refused(&q, RP_ERR_INVALID, wrong[i][1]);
    }
    many[1] = longest;
    expect_refused(&q, RP_ERR_LIMIT, "stop string 2 has 1025 bytes: give at most 1024");
    longest[RP_MAX_STOP_BYTES] = '\0';
    rp_result_free(tiny_model_answer(engine, &q));
}

/* ---- the same text ---- */

static void threads_and_reuse_do_not_change_what_is_drawn(void **state) {
    (void)state;
    rp_engine *many = new_engine(3);
    for (uint64_t seed = 0; seed < 8; seed++) {
        rp_request q = request_of(24);
        q.sampling = all_on(seed);
        rp_result *a = tiny_model_answer(engine, &q), *b = tiny_model_answer(many, &q),
                  *c = tiny_model_answer(engine, &q);
        q.reuse = RP_REUSE_OFF;
        rp_result *d = tiny_model_answer(many, &q);
        q.sampling.seed += 100;
        rp_result *other = tiny_model_answer(engine, &q);
        assert_int_equal(a->n_tokens, 24);
        assert_memory_equal(a->tokens, b->tokens, 24 * sizeof(int32_t));
        assert_memory_equal(a->tokens, c->tokens, 24 * sizeof(int32_t));
        assert_memory_equal(a->tokens, d->tokens, 24 * sizeof(int32_t));
        assert_memory_not_equal(a->tokens, other->tokens, 24 * sizeof(int32_t));
        assert_string_equal(a->text, b->text);
        rp_result_free(a);
        rp_result_free(b);
        rp_result_free(c);
        rp_result_free(d);
        rp_result_free(other);
    }
    rp_engine_free(many);
}

static void greedy_is_not_moved_by_filters_and_seed(void **state) {
    (void)state;
    rp_request q = request_of(16);
    rp_result *a = tiny_model_answer(engine, &q);
    q.sampling =
        (rp_sampling){.top_k = 3, .typical = 0.2f, .top_p = 0.3f, .min_p = 0.4f, .repeat_penalty = 1, .seed = 5};
    rp_result *b = tiny_model_answer(engine, &q);
    assert_memory_equal(a->tokens, b->tokens, 16 * sizeof(int32_t));
    rp_result_free(a);
    rp_result_free(b);
}

/* ---- log-probabilities, tokens ---- */

typedef struct listener {
    float *logits; /* before each token */
    int32_t n_logits;
    rp_token tokens[64];
    rp_token_logprob top[64][8];
    int32_t n_tokens, stop_at; /* received by on_text */
    char text[4096];           /* received by on_text */
} listener;

static void on_logits(void *user, const float *logits, int32_t n) {
    listener *l = user;
    if (!l->logits) return;
    memcpy(l->logits + (size_t)l->n_logits++ * (size_t)n, logits, (size_t)n * sizeof *logits);
}

static bool on_token(void *user, const rp_token *token) {
    listener *l = user;
    assert_true(l->n_tokens < 64 && token->n_top <= 8);
    l->tokens[l->n_tokens] = *token;
    if (token->n_top > 0) memcpy(l->top[l->n_tokens], token->top, (size_t)token->n_top * sizeof *token->top);
    return l->n_tokens++ != l->stop_at;
}

static bool on_text(void *user, const char *text, size_t n) {
    listener *l = user;
    assert_int_equal(strlen(text), n);
    assert_true(strlen(l->text) + n < sizeof l->text);
    strcat(l->text, text);
    return true;
}

static void listen(listener *l, rp_request *q) {
    q->on_token = on_token;
    q->on_text = on_text;
    q->on_logits = on_logits;
    q->user = l;
}

static double slow_logprob(const float *logits, int32_t token) {
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i]);
    return logits[token] - log(sum);
}

static void check_logprobs(const rp_result *r, const listener *l) {
    assert_int_equal(l->n_tokens, r->n_tokens);
    assert_int_equal(l->n_logits, r->n_tokens);
    for (int32_t i = 0; i < r->n_tokens; i++) {
        const float *logits = l->logits + (size_t)i * (size_t)n_vocab;
        const rp_token_logprob *top = r->top_logprobs + (size_t)i * (size_t)r->n_top;
        assert_true(fabs(r->logprobs[i] - slow_logprob(logits, r->tokens[i])) < 1e-4);
        for (int32_t k = 0; k < r->n_top; k++) {
            assert_true(fabs(top[k].logprob - slow_logprob(logits, top[k].token)) < 1e-4);
            if (k > 0) assert_true(top[k - 1].logprob >= top[k].logprob);
        }
        for (int32_t t = 0; t < n_vocab; t++) assert_true(logits[t] <= logits[top[0].token]);
        assert_true(l->tokens[i].id == r->tokens[i] && l->tokens[i].logprob == r->logprobs[i] &&
                    l->tokens[i].n_top == r->n_top);
        assert_memory_equal(l->top[i], top, (size_t)r->n_top * sizeof *top);
    }
}

/* They are the model's, before any change to its logits; forced tokens have them as well. */
static void logprobs_are_told_with_each_token(void **state) {
    (void)state;
    static const int32_t forced[] = {5, 2, 400, 400};
    const rp_request_experiment experiment = experiment_forced(forced, 4);
    for (int way = 0; way < 3; way++) {
        listener *l = calloc(1, sizeof *l);
        rp_request q = request_of(12);
        l->stop_at = -1;
        l->logits = calloc(12 * (size_t)n_vocab, sizeof(float));
        listen(l, &q);
        q.n_logprobs = 5;
        if (way == 1) q.sampling = all_on(3);
        if (way == 2) q.experiment = &experiment;
        rp_result *r = tiny_model_answer(engine, &q);
        assert_int_equal(r->n_top, 5);
        assert_int_equal(r->n_tokens, way == 2 ? 4 : 12);
        check_logprobs(r, l);
        assert_string_equal(r->text, l->text);
        rp_result_free(r);
        free(l->logits);
        free(l);
    }
}

/* ---- tokens that the program chooses ---- */

typedef struct chooser {
    int32_t answer; /* a fixed return value; 0: the second most likely token of every second call */
    int32_t n_calls, chosen[16];
} chooser;

static int32_t on_choose(void *user, const float *logits, int32_t n) {
    chooser *c = user;
    int32_t best = 0, second = -1;
    for (int32_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) second = best, best = i;
        else if (second < 0 || logits[i] > logits[second]) second = i;
    }
    assert_int_equal(n, n_vocab);
    assert_true(c->n_calls < 16);
    c->chosen[c->n_calls] = c->answer ? c->answer : c->n_calls % 2 ? RP_CHOOSE_SAMPLED : second;
    return c->chosen[c->n_calls++];
}

/* The tokens are those that were chosen, with and without drafts; the others those that the sampler draws after them. */
static void tokens_can_be_chosen(void **state) {
    (void)state;
    for (int way = 0; way < 4; way++) {
        rp_request q = request_of(12);
        chooser c = {0};
        q.ignore_eos = true;
        q.on_choose = on_choose;
        q.user = &c;
        q.n_draft = way % 2 ? 4 : 0;
        if (way > 1) q.sampling = all_on(9);
        rp_result *r = tiny_model_answer(engine, &q);
        assert_true(r->n_tokens == 12 && c.n_calls == 12);
        for (int i = 0; i < 12; i += 2) assert_int_equal(r->tokens[i], c.chosen[i]);
        q.on_choose = NULL; /* the same draws follow the same tokens */
        q.resumed = r->tokens;
        q.n_resumed = 11;
        rp_result *again = tiny_model_answer(engine, &q);
        assert_memory_equal(r->tokens, again->tokens, 12 * sizeof(int32_t));
        rp_result_free(again);
        rp_result_free(r);
    }
}

static void wrong_choices_end_the_job(void **state) {
    (void)state;
    size_t n;
    int32_t no_digit = 0;
    for (const char *s; no_digit < n_vocab; no_digit++)
        if ((s = rp_token_bytes(model, no_digit, false, &n)) && n > 0 && (s[0] < '0' || s[0] > '9')) break;
    const struct {
        int32_t answer;
        const char *grammar, *says;
    } wrong[] = {
        {n_vocab, NULL, "on_choose returned"},
        {-2, NULL, "on_choose returned -2"},
        {no_digit, "root ::= [0-9]+", "which the grammar excludes"},
    };
    assert_true(no_digit > 0 && no_digit < n_vocab);
    for (size_t i = 0; i < LEN(wrong); i++)
        for (int way = 0; way < 2; way++) {
            rp_request q = request_of(12);
            chooser c = {.answer = wrong[i].answer};
            rp_result *r;
            rp_error err = {0};
            q.grammar = wrong[i].grammar;
            q.on_choose = on_choose;
            q.user = &c;
            if (way) q.sampling = all_on(9);
            assert_int_equal(rp_engine_run(engine, &q, &r, &err), RP_ERR_INVALID);
            assert_non_null(strstr(err.message, wrong[i].says));
            assert_int_equal(c.n_calls, 1);
        }
}

/* ---- what is left out ---- */

static void logprobs_are_left_out_unless_asked_for(void **state) {
    (void)state;
    listener l = {.stop_at = -1};
    rp_request q = request_of(6);
    listen(&l, &q);
    rp_result *r = tiny_model_answer(engine, &q);
    assert_true(!r->logprobs && !r->top_logprobs && r->n_top == 0);
    assert_int_equal(l.n_tokens, 6);
    for (int i = 0; i < 6; i++)
        assert_true(l.tokens[i].id == r->tokens[i] && !l.tokens[i].top && l.tokens[i].n_top == 0);
    rp_result_free(r);
}

/* The token is in the result, its text is not. */
static void an_answer_ends_at_the_token_where_the_caller_says_so(void **state) {
    (void)state;
    rp_request q = request_of(10);
    rp_result *whole = tiny_model_answer(engine, &q);
    for (int32_t at = 0; at < 10; at++) {
        listener l = {.stop_at = at};
        listen(&l, &q);
        rp_result *r = tiny_model_answer(engine, &q);
        assert_string_equal(r->finish_reason, "cancelled");
        assert_int_equal(r->n_tokens, at + 1);
        assert_memory_equal(r->tokens, whole->tokens, (size_t)r->n_tokens * sizeof(int32_t));
        assert_string_equal(r->text, l.text);
        assert_true(strncmp(whole->text, r->text, strlen(r->text)) == 0);
        rp_result_free(r);
    }
    rp_result_free(whole);
}

/* ---- stop strings ---- */

/* Every piece of an answer, within tokens and across them. */
static void an_answer_ends_before_its_stop_string(void **state) {
    (void)state;
    rp_request q = request_of(16);
    rp_result *whole = tiny_model_answer(engine, &q);
    size_t n = strlen(whole->text);
    assert_true(n > 12);
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k <= n && k <= i + 12; k++) {
            if (((unsigned char)whole->text[i] & 0xc0) == 0x80 || ((unsigned char)whole->text[k] & 0xc0) == 0x80)
                continue;
            char stop[16] = "";
            const char *stops[] = {"this is not in it", stop};
            listener l = {.stop_at = -1};
            memcpy(stop, whole->text + i, k - i);
            listen(&l, &q);
            q.stops = stops;
            q.n_stops = 2;
            rp_result *r = tiny_model_answer(engine, &q);
            size_t left = (size_t)(strstr(whole->text, stop) - whole->text);
            assert_string_equal(r->finish_reason, "stop");
            assert_int_equal(strlen(r->text), left);
            assert_memory_equal(r->text, whole->text, left);
            assert_string_equal(l.text, r->text);
            assert_int_equal(l.n_tokens, r->n_tokens);
            assert_memory_equal(r->tokens, whole->tokens, (size_t)r->n_tokens * sizeof(int32_t));
            /* The stop string was complete with the last of these tokens, not before. */
            rp_request shorter = request_of(r->n_tokens - 1);
            rp_result *before = r->n_tokens > 1 ? tiny_model_answer(engine, &shorter) : NULL;
            if (before) assert_null(strstr(before->text, stop));
            rp_result_free(before);
            rp_result_free(r);
        }
    rp_result_free(whole);
}

static void stop_strings_that_do_not_come_change_nothing(void **state) {
    (void)state;
    listener l = {.stop_at = -1};
    rp_request q = request_of(16);
    rp_result *whole = tiny_model_answer(engine, &q);
    size_t end = strlen(whole->text) - 1;
    while (((unsigned char)whole->text[end] & 0xc0) == 0x80) end--;
    char stop[16];
    snprintf(stop, sizeof stop, "%s\x01", whole->text + end); /* begins with the end of the answer */
    const char *stops[] = {stop};
    listen(&l, &q);
    q.stops = stops;
    q.n_stops = 1;
    rp_result *r = tiny_model_answer(engine, &q);
    assert_string_equal(r->finish_reason, "length");
    assert_string_equal(r->text, whole->text);
    assert_string_equal(l.text, whole->text);
    rp_result_free(r);
    /* Forced tokens are not matched against stop strings. */
    const rp_request_experiment forced = experiment_forced(whole->tokens, 16);
    q.experiment = &forced;
    stop[strlen(stop) - 1] = '\0';
    l.text[0] = '\0';
    l.n_tokens = 0;
    r = tiny_model_answer(engine, &q);
    assert_string_equal(r->text, whole->text);
    rp_result_free(r);
    rp_result_free(whole);
}

/* ---- bias and penalties ---- */

static void a_bias_forbids_and_forces(void **state) {
    (void)state;
    rp_request q = request_of(12);
    rp_result *a = tiny_model_answer(engine, &q);
    rp_logit_bias bias[] = {{a->tokens[0], -INFINITY}, {7, 600}};
    q.sampling.bias = bias;
    q.sampling.n_bias = 1;
    rp_result *b = tiny_model_answer(engine, &q);
    for (int i = 0; i < 12; i++) assert_int_not_equal(b->tokens[i], a->tokens[0]);
    q.sampling.n_bias = 2;
    q.sampling.temperature = 1;
    rp_result *c = tiny_model_answer(engine, &q);
    for (int i = 0; i < 12; i++) assert_int_equal(c->tokens[i], 7);
    rp_result_free(a);
    rp_result_free(b);
    rp_result_free(c);
}

/* A penalty above any logit: no token repeats within the window, which includes the prompt's tokens. */
static void penalties_see_prompt_and_answer(void **state) {
    (void)state;
    rp_request q = request_of(60);
    q.prompt = rp_prompt_text("Once upon a time there was a little girl");
    int32_t *prompt, window[200];
    size_t n_prompt;
    assert_int_equal(rp_tokenize(model, q.prompt.content, q.prompt.n, false, true, &prompt, &n_prompt, NULL), RP_OK);
    assert_true(n_prompt < 100);
    static const int32_t looks_back[] = {-1, 5, 1};
    for (size_t k = 0; k < LEN(looks_back); k++) {
        q.sampling.presence_penalty = 100;
        q.sampling.repeat_last = looks_back[k];
        rp_result *r = tiny_model_answer(engine, &q);
        memcpy(window, prompt, n_prompt * sizeof *prompt);
        memcpy(window + n_prompt, r->tokens, (size_t)r->n_tokens * sizeof *prompt);
        for (size_t i = n_prompt; i < n_prompt + (size_t)r->n_tokens; i++) {
            size_t first = looks_back[k] < 0 ? 0 : i - (size_t)looks_back[k];
            for (size_t j = first; j < i; j++) assert_int_not_equal(window[i], window[j]);
        }
        rp_result_free(r);
    }
    rp_free(prompt);
}

/* The order in which penalties see a composed prompt is that of a plain run. */
static void penalties_see_the_same_prompt_composed_and_plain(void **state) {
    (void)state;
    for (int32_t last = 1; last < 12; last++) {
        rp_request q = request_of(12);
        q.sampling.repeat_penalty = 3;
        q.sampling.frequency_penalty = 2;
        q.sampling.repeat_last = last;
        rp_result *a = tiny_model_answer(engine, &q);
        q.reuse = RP_REUSE_OFF;
        rp_result *b = tiny_model_answer(engine, &q);
        assert_memory_equal(a->tokens, b->tokens, 12 * sizeof(int32_t));
        rp_result_free(a);
        rp_result_free(b);
    }
}

/* ---- memory ---- */

typedef struct allocation_count {
    int32_t n_tokens;
    uint64_t n; /* allocations after the first token */
} allocation_count;

static bool count_allocations(void *user, const rp_token *token) {
    allocation_count *c = user;
    uint64_t n = base_alloc_count(); /* since the last query */
    (void)token;
    if (c->n_tokens++ > 0) c->n += n;
    return true;
}

/* Everything a token needs is allocated before the first one. KV is allocated by spans of 256 tokens: this answer stays
 * in its first span. */
static void a_generated_token_allocates_nothing(void **state) {
    (void)state;
    static const char *const stops[] = {"never in this text"};
    allocation_count c = {0};
    rp_request q = request_of(150);
    q.sampling = all_on(3);
    q.n_logprobs = 5;
    q.stops = stops;
    q.n_stops = 1;
    q.on_token = count_allocations;
    q.user = &c;
    rp_result_free(tiny_model_answer(engine, &q));
    assert_int_equal(c.n_tokens, 150);
    assert_int_equal(c.n, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(a_bias_that_has_no_token_or_no_number_is_refused),
        cmocka_unit_test(stop_strings_that_cannot_be_are_refused),
        cmocka_unit_test(threads_and_reuse_do_not_change_what_is_drawn),
        cmocka_unit_test(greedy_is_not_moved_by_filters_and_seed),
        cmocka_unit_test(logprobs_are_told_with_each_token),
        cmocka_unit_test(logprobs_are_left_out_unless_asked_for),
        cmocka_unit_test(an_answer_ends_at_the_token_where_the_caller_says_so),
        cmocka_unit_test(an_answer_ends_before_its_stop_string),
        cmocka_unit_test(stop_strings_that_do_not_come_change_nothing),
        cmocka_unit_test(a_bias_forbids_and_forces),
        cmocka_unit_test(tokens_can_be_chosen),
        cmocka_unit_test(wrong_choices_end_the_job),
        cmocka_unit_test(penalties_see_prompt_and_answer),
        cmocka_unit_test(penalties_see_the_same_prompt_composed_and_plain),
        cmocka_unit_test(a_generated_token_allocates_nothing),
    };
    return cmocka_run_group_tests_name("engine/sampling", tests, open_model, close_model);
}
