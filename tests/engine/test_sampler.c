/* SPDX-License-Identifier: Apache-2.0 */
/* test_sampler.c: sorting, filters, penalties, sampling and log-probabilities, each against a slow, obvious version on
 * random logits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "sampling/sampler.h"
#include "support/oracle_run.h"
#include "support/seed.h"
#include "support/tiny_random.h"
#include "support/vector_file.h"

#define MOST 300 /* tokens of a small vocabulary */

static uint64_t seed;

static double uniform(tiny_random *r) { return (double)(tiny_random_u64(r) >> 11) * 0x1p-53; }

/* ---- logits ---- */

typedef enum logits_kind { SMOOTH,
                           TIED,
                           EQUAL,
                           WIDE,
                           ONE_LEFT,
                           RULED_OUT,
                           N_KINDS } logits_kind;

static void fill_logits(tiny_random *r, logits_kind kind, float *logits, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        float v = 3 * tiny_random_normal(r);
        switch (kind) {
        case SMOOTH: logits[i] = v; break;
        case TIED: logits[i] = floorf(v * 2) / 2; break;
        case EQUAL: logits[i] = 1.25f; break;
        case WIDE: logits[i] = v * 100; break;
        case ONE_LEFT: logits[i] = -INFINITY; break;
        case RULED_OUT: logits[i] = tiny_random_below(r, 3) == 0 ? -INFINITY : floorf(v * 4) / 4; break;
        case N_KINDS: break;
        }
    }
    if (kind == ONE_LEFT || kind == RULED_OUT) logits[tiny_random_below(r, (uint64_t)n)] = -2;
}

/* ---- the slow filters: full sorted lists of probabilities ---- */

typedef struct slow_token {
    int32_t id;
    float logit;
    double p, rank; /* of equal ones, the lower rank is first */
} slow_token;

static int by_rank(const void *a, const void *b) {
    const slow_token *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void slow_softmax(slow_token *t, int32_t n) {
    double highest = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++) highest = fmax(highest, t[i].logit);
    for (int32_t i = 0; i < n; i++) sum += t[i].p = exp(t[i].logit - highest);
    for (int32_t i = 0; i < n; i++) t[i].p /= sum;
}

static void slow_sort(slow_token *t, int32_t n) { qsort(t, (size_t)n, sizeof *t, by_rank); }

static int32_t slow_share(slow_token *t, int32_t n, double share) {
    double sum = 0;
    slow_sort(t, n);
    for (int32_t i = 0; i < n; i++)
        if ((sum += t[i].p) >= share) return i + 1;
    return n;
}

static void rank_by_logit(slow_token *t, int32_t n) {
    for (int32_t i = 0; i < n; i++) t[i].rank = -(double)t[i].logit;
}

static int32_t slow_typical(slow_token *t, int32_t n, double share) {
    double entropy = 0;
    slow_softmax(t, n);
    for (int32_t i = 0; i < n; i++) entropy -= t[i].p > 0 ? t[i].p * log(t[i].p) : 0;
    for (int32_t i = 0; i < n; i++) t[i].rank = fabs(-log(t[i].p) - entropy);
    return slow_share(t, n, share);
}

static int32_t slow_min_p(slow_token *t, int32_t n, double min_p) {
    double highest = 0;
    int32_t left = 0;
    slow_softmax(t, n);
    for (int32_t i = 0; i < n; i++) highest = fmax(highest, t[i].p);
    for (int32_t i = 0; i < n; i++)
        if (t[i].p >= min_p * highest) t[left++] = t[i];
    return left;
}

static int32_t slow_filter(const rp_sampling *o, const float *logits, int32_t n_vocab, slow_token *t) {
    int32_t n = 0;
    for (int32_t i = 0; i < n_vocab; i++)
        if (logits[i] > -INFINITY) t[n++] = (slow_token){.id = i, .logit = logits[i]};
    if (o->top_k > 0) {
        rank_by_logit(t, n);
        slow_sort(t, n);
        n = BASE_MIN(n, o->top_k);
    }
    if (o->typical < 1) n = slow_typical(t, n, o->typical);
    if (o->top_p < 1) {
        slow_softmax(t, n);
        rank_by_logit(t, n);
        n = slow_share(t, n, o->top_p);
    }
    if (o->min_p > 0) n = slow_min_p(t, n, o->min_p);
    return n;
}

/* ---- sorting ---- */

static int by_key(const void *a, const void *b) {
    const sampler_candidate *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void the_best_come_first_and_nothing_is_lost(void **state) {
    (void)state;
    tiny_random r = {.state = seed};
    for (int round = 0; round < 2000; round++) {
        sampler_candidate ours[MOST] = {0}, theirs[MOST];
        int32_t n = (int32_t)tiny_random_below(&r, MOST + 1), k = (int32_t)tiny_random_below(&r, (uint64_t)n + 1);
        uint64_t keys = 1 + tiny_random_below(&r, 400);
        for (int32_t i = 0; i < n; i++) ours[i] = (sampler_candidate){(double)tiny_random_below(&r, keys), n - i};
        memcpy(theirs, ours, sizeof ours);
        candidates_sort(ours, n, k);
        qsort(theirs, (size_t)n, sizeof *theirs, by_key);
        for (int32_t i = 0; i < k; i++) assert_true(ours[i].id == theirs[i].id && ours[i].key == theirs[i].key);
        qsort(ours, (size_t)n, sizeof *ours, by_key);
        for (int32_t i = 0; i < n; i++) assert_int_equal(ours[i].id, theirs[i].id);
    }
}

/* ---- filters ---- */

/* Each step is enabled in about every second round. */
static rp_sampling random_filters(tiny_random *r, int32_t n) {
    rp_sampling o = rp_sampling_defaults();
    uint64_t on = tiny_random_u64(r);
    o.temperature = 1;
    if (on & 1) o.top_k = 1 + (int32_t)tiny_random_below(r, (uint64_t)n + 2);
    if (on & 2) o.typical = (float)uniform(r);
    if (on & 4) o.top_p = (float)uniform(r);
    if (on & 8) o.min_p = (float)uniform(r);
    return o;
}

static void compare_filters(const rp_sampling *o, const float *logits, int32_t n, sampler_candidate *ours,
                            slow_token *theirs) {
    int32_t n_ours = sampler_filter(o, logits, n, ours), n_theirs = slow_filter(o, logits, n, theirs);
    for (int32_t i = 0; i < n_ours; i++) assert_true(ours[i].key == logits[ours[i].id]);
    qsort(ours, (size_t)n_ours, sizeof *ours, by_key);
    rank_by_logit(theirs, n_theirs);
    slow_sort(theirs, n_theirs);
    if (n_ours != n_theirs)
        fail_msg("%d left of %d, should be %d: top_k %d typical %.9g top_p %.9g min_p %.9g", n_ours, n, n_theirs,
                 o->top_k, (double)o->typical, (double)o->top_p, (double)o->min_p);
    for (int32_t i = 0; i < n_ours; i++) assert_int_equal(ours[i].id, theirs[i].id);
}

static void filters_keep_what_the_slow_ones_keep(void **state) {
    (void)state;
    tiny_random r = {.state = seed + 1};
    for (int round = 0; round < 6000; round++) {
        float logits[MOST];
        sampler_candidate ours[MOST];
        slow_token theirs[MOST];
        int32_t n = 1 + (int32_t)tiny_random_below(&r, round % 2 ? 8 : MOST);
        fill_logits(&r, (logits_kind)(round % N_KINDS), logits, n);
        rp_sampling o = random_filters(&r, n);
        compare_filters(&o, logits, n, ours, theirs);
    }
}

/* ---- llama.cpp's samplers (tests/golden/samplers.txt) ---- */

/* Numbers separated by spaces; returns how many. */
static int32_t read_numbers(char *text, double *out, int32_t most) {
    int32_t n = 0;
    for (char *end = NULL;; text = end) {
        double v = strtod(text, &end);
        if (end == text) return n;
        assert_true(n < most);
        out[n++] = v;
    }
}

static void compare_with_llama_cpp(void *user, vector_case *v) {
    enum { n_options = 8 };
    double numbers[MOST], kept[MOST];
    float logits[MOST];
    sampler_candidate ours[MOST];
    (void)user;
    int32_t n_numbers = read_numbers(v->fields[0], numbers, MOST);
    rp_sampling o = {
        .temperature = 1,
        .top_k = (int32_t)numbers[0],
        .typical = (float)numbers[1],
        .top_p = (float)numbers[2],
        .min_p = (float)numbers[3],
        .repeat_penalty = (float)numbers[4],
        .frequency_penalty = (float)numbers[5],
        .presence_penalty = (float)numbers[6],
        .repeat_last = (int32_t)numbers[7],
    };
    int32_t n = read_numbers(v->fields[1], kept, MOST);
    for (int32_t i = 0; i < n; i++) logits[i] = (float)kept[i];
    int32_t n_kept = read_numbers(v->fields[2], kept, MOST);
    sampler s = {0};
    assert_int_equal(sampler_open(&s, &o, n, n_numbers, NULL), RP_OK);
    for (int32_t i = n_options; i < n_numbers; i++) sampler_accept(&s, (int32_t)numbers[i]);
    int32_t token = sampler_draw(&s, logits), drawn = 0;
    int32_t n_ours = sampler_filter(&o, s.adjusted ? s.adjusted : logits, n, ours);
    sampler_close(&s);
    if (n_ours != n_kept) fail_msg("line %d: %d tokens are left, should be %d", v->line, n_ours, n_kept);
    for (int32_t i = 0; i < n_kept; i++) {
        int32_t found = 0;
        for (int32_t k = 0; k < n_ours; k++) found += ours[k].id == (int32_t)kept[i];
        if (found != 1) fail_msg("line %d: token %g is not left", v->line, kept[i]);
        drawn += token == (int32_t)kept[i];
    }
    assert_int_equal(drawn, 1);
}

static void filters_and_penalties_are_those_of_llama_cpp(void **state) {
    (void)state;
    assert_int_equal(vector_file_each("samplers.txt", 3, compare_with_llama_cpp, NULL), 250);
}

/* A vocabulary of realistic size, with its mass in few tokens and in many, and with one token far below the others. */
static void a_large_vocabulary_is_no_different(void **state) {
    (void)state;
    enum { n = 150000 };
    tiny_random r = {.state = seed + 2};
    float *logits = malloc(n * sizeof *logits);
    sampler_candidate *ours = malloc(n * sizeof *ours);
    slow_token *theirs = malloc(n * sizeof *theirs);
    static const float spread[] = {0.05f, 1, 4};
    for (size_t s = 0; s < BASE_ARRAY_LEN(spread); s++) {
        for (int32_t i = 0; i < n; i++) logits[i] = spread[s] * tiny_random_normal(&r);
        if (s == 1) logits[n / 2] = -1000;
        const rp_sampling options[] = {
            {.typical = 0.95f, .top_p = 0.97f},
            {.typical = 1, .top_p = 0.9999f},
            {.top_k = 40, .typical = 1, .top_p = 0.95f, .min_p = 0.05f},
            {.typical = 1, .top_p = 0.9f},
            {.typical = 0.2f, .top_p = 1},
            {.top_k = 20000, .typical = 1, .top_p = 1},
        };
        for (size_t i = 0; i < BASE_ARRAY_LEN(options); i++) compare_filters(&options[i], logits, n, ours, theirs);
    }
    free(logits);
    free(ours);
    free(theirs);
}

static void shares_of_none_and_of_all_leave_a_token(void **state) {
    (void)state;
    const float logits[] = {1, 3, 2, 3};
    sampler_candidate c[4];
    rp_sampling o = rp_sampling_defaults();
    o.top_p = 0;
    assert_int_equal(sampler_filter(&o, logits, 4, c), 1);
    assert_int_equal(c[0].id, 1);
    o = rp_sampling_defaults();
    o.typical = 0;
    assert_int_equal(sampler_filter(&o, logits, 4, c), 1);
    o = rp_sampling_defaults();
    o.min_p = 1;
    assert_int_equal(sampler_filter(&o, logits, 4, c), 2);
    assert_true(c[0].id == 1 && c[1].id == 3);
    o = rp_sampling_defaults();
    assert_int_equal(sampler_filter(&o, logits, 4, c), 4);
    const float none[] = {-INFINITY, -INFINITY};
    assert_int_equal(sampler_filter(&o, none, 2, c), 0);
}

/* ---- sampling ---- */

static int32_t draw_once(const rp_sampling *o, const float *logits, int32_t n) {
    sampler s = {0};
    assert_int_equal(sampler_open(&s, o, n, 1, NULL), RP_OK);
    int32_t token = sampler_draw(&s, logits);
    sampler_close(&s);
    return token;
}

/* The only remaining token, whatever the options; the first if none remains. */
static void what_is_left_alone_is_drawn(void **state) {
    (void)state;
    tiny_random r = {.state = seed + 3};
    for (int round = 0; round < 500; round++) {
        float logits[MOST];
        int32_t n = 1 + (int32_t)tiny_random_below(&r, MOST), only = (int32_t)tiny_random_below(&r, (uint64_t)n);
        for (int32_t i = 0; i < n; i++) logits[i] = -INFINITY;
        rp_sampling o = random_filters(&r, n);
        o.temperature = round % 5 == 0 ? 0 : (float)uniform(&r) * 3;
        assert_int_equal(draw_once(&o, logits, n), 0);
        logits[only] = 30 * tiny_random_normal(&r);
        assert_int_equal(draw_once(&o, logits, n), only);
    }
}

/* Greedy, one candidate, or a temperature near zero: the first of the most likely tokens. */
static void the_first_of_equals_is_the_likeliest(void **state) {
    (void)state;
    tiny_random r = {.state = seed + 4};
    for (int round = 0; round < 500; round++) {
        float logits[MOST];
        int32_t n = 1 + (int32_t)tiny_random_below(&r, MOST), best = 0;
        fill_logits(&r, TIED, logits, n);
        for (int32_t i = 1; i < n; i++)
            if (logits[i] > logits[best]) best = i;
        rp_sampling greedy = rp_sampling_defaults(), one = greedy, cold = greedy;
        one.top_k = 1;
        one.temperature = 5;
        cold.temperature = 1e-30f;
        cold.top_p = 0.001f;
        cold.seed = (uint64_t)round;
        assert_int_equal(draw_once(&greedy, logits, n), best);
        assert_int_equal(draw_once(&one, logits, n), best);
        assert_int_equal(draw_once(&cold, logits, n), best);
    }
}

/* Logits of a corrupt model: the answer is useless, but nothing fails, and an infinite logit is the most likely token.
 * */
static void logits_that_are_no_numbers_do_no_harm(void **state) {
    (void)state;
    tiny_random r = {.state = seed + 7};
    for (int round = 0; round < 2000; round++) {
        static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
        float logits[MOST];
        int32_t n = 2 + (int32_t)tiny_random_below(&r, MOST - 1),
                infinite = (int32_t)tiny_random_below(&r, (uint64_t)n);
        for (int32_t i = 0; i < n; i++)
            logits[i] =
                tiny_random_below(&r, 3) ? 3 * tiny_random_normal(&r) : odd[tiny_random_below(&r, BASE_ARRAY_LEN(odd))];
        rp_sampling o = random_filters(&r, n);
        o.temperature = (float)(round % 3);
        int32_t token = draw_once(&o, logits, n);
        assert_true(token >= 0 && token < n);
        for (int32_t i = 0; i < n; i++)
            if (logits[i] == INFINITY) logits[i] = i % 2 ? NAN : 0;
        logits[infinite] = INFINITY;
        assert_int_equal(draw_once(&o, logits, n), infinite);
    }
}

/* Pearson's chi-square of the samples, under softmax(logits / temperature) of the tokens that the slow filters keep.
 * The limit is five deviations above the mean, and the seed is fixed: the test cannot fail by chance. */
static void check_distribution(const rp_sampling *o, const float *logits, int32_t n) {
    enum { draws = 40000 };
    slow_token left[MOST];
    double expected[MOST] = {0}, sum = 0, chi = 0;
    int32_t counts[MOST] = {0}, n_left = slow_filter(o, logits, n, left);
    for (int32_t i = 0; i < n_left; i++) sum += expected[left[i].id] = exp(left[i].logit / (double)o->temperature);
    sampler s = {0};
    assert_int_equal(sampler_open(&s, o, n, 1, NULL), RP_OK);
    for (int i = 0; i < draws; i++) counts[sampler_draw(&s, logits)]++;
    sampler_close(&s);
    for (int32_t i = 0; i < n; i++) {
        double e = expected[i] / sum * draws;
        if (expected[i] == 0) assert_int_equal(counts[i], 0);
        else chi += (counts[i] - e) * (counts[i] - e) / e;
    }
    double freedom = n_left - 1;
    if (chi > freedom + 5 * sqrt(2 * freedom) + 1e-9)
        fail_msg("chi-square %g with %g degrees of freedom", chi, freedom);
}

static void draws_follow_the_distribution(void **state) {
    (void)state;
    static const float logits[] = {0.5f, -1, 2, 0, 2, 1.25f, -0.5f, 1, -INFINITY, 0.75f, 1.5f, -1.5f};
    static const rp_sampling options[] = {
        {.temperature = 1, .typical = 1, .top_p = 1},
        {.temperature = 0.6f, .typical = 1, .top_p = 1, .seed = 9},
        {.temperature = 2.5f, .typical = 1, .top_p = 1, .seed = 1},
        {.temperature = 1, .top_k = 4, .typical = 1, .top_p = 1, .seed = 2},
        {.temperature = 1, .typical = 0.7f, .top_p = 1, .seed = 3},
        {.temperature = 1.5f, .typical = 1, .top_p = 0.8f, .seed = 4},
        {.temperature = 3, .typical = 1, .top_p = 1, .min_p = 0.3f, .seed = 5},
        {.temperature = 0.8f, .top_k = 9, .typical = 0.95f, .top_p = 0.9f, .min_p = 0.1f, .seed = 6},
        {.temperature = 1, .top_k = 1, .typical = 1, .top_p = 1, .seed = 7},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(options); i++) {
        rp_sampling o = options[i];
        o.repeat_penalty = 1;
        check_distribution(&o, logits, (int32_t)BASE_ARRAY_LEN(logits));
    }
}

/* ---- bias and penalties ---- */

/* From the whole history, token by token. */
static float slow_adjust(const rp_sampling *o, const int32_t *history, int32_t n_history, float logit, int32_t token) {
    int32_t first = o->repeat_last < 0 || o->repeat_last > n_history ? 0 : n_history - o->repeat_last, count = 0;
    for (int32_t i = 0; i < o->n_bias; i++)
        if (o->bias[i].token == token) logit += o->bias[i].bias;
    for (int32_t i = first; i < n_history; i++) count += history[i] == token;
    if (count == 0) return logit;
    logit = logit > 0 ? logit / o->repeat_penalty : logit * o->repeat_penalty;
    return logit - o->presence_penalty - (float)count * o->frequency_penalty;
}

static void penalties_look_back_on_their_window(void **state) {
    (void)state;
    enum { vocabulary = 40,
           steps = 300 };
    static const int32_t windows[] = {-1, 0, 1, 2, 7, 64, 1000};
    tiny_random r = {.state = seed + 5};
    for (int round = 0; round < 60; round++) {
        float logits[vocabulary];
        int32_t history[steps];
        const rp_logit_bias bias[] = {{3, -INFINITY}, {4, 2.5f}, {7, -1}, {4, 1}};
        rp_sampling o = rp_sampling_defaults();
        uint64_t on = tiny_random_u64(&r);
        o.repeat_last = windows[round % (int)BASE_ARRAY_LEN(windows)];
        if (on & 1) o.repeat_penalty = 0.5f + (float)uniform(&r);
        if (on & 2) o.presence_penalty = tiny_random_normal(&r);
        if (on & 4) o.frequency_penalty = tiny_random_normal(&r);
        if (on & 8) o.bias = bias, o.n_bias = (int32_t)BASE_ARRAY_LEN(bias);
        sampler s = {0};
        assert_int_equal(sampler_open(&s, &o, vocabulary, steps, NULL), RP_OK);
        for (int32_t n = 0; n < steps; n++) {
            float expected[vocabulary], before[vocabulary];
            fill_logits(&r, n % 2 ? SMOOTH : RULED_OUT, logits, vocabulary);
            memcpy(before, logits, sizeof logits);
            int32_t best = 0;
            for (int32_t i = 0; i < vocabulary; i++) {
                expected[i] = slow_adjust(&o, history, n, logits[i], i);
                if (expected[i] > expected[best]) best = i;
            }
            assert_int_equal(sampler_draw(&s, logits), best);
            assert_memory_equal(logits, before, sizeof logits);
            if (s.adjusted) assert_memory_equal(s.adjusted, expected, sizeof expected);
            history[n] = (int32_t)tiny_random_below(&r, n % 50 < 40 ? 6 : vocabulary);
            sampler_accept(&s, history[n]);
        }
        sampler_close(&s);
    }
}

static void greedy_without_penalties_allocates_nothing(void **state) {
    (void)state;
    rp_sampling o = rp_sampling_defaults();
    sampler s = {0};
    o.repeat_penalty = 1.5f;
    o.repeat_last = 0; /* no history */
    assert_int_equal(sampler_open(&s, &o, 10, 10, NULL), RP_OK);
    assert_true(!s.adjusted && !s.candidates && !s.counts && !s.window);
    sampler_close(&s);
}

/* ---- log-probabilities ---- */

static void logprobs_are_those_of_the_model(void **state) {
    (void)state;
    tiny_random r = {.state = seed + 6};
    for (int round = 0; round < 600; round++) {
        float logits[MOST];
        slow_token slow[MOST];
        rp_token_logprob top[RP_MAX_LOGPROBS];
        int32_t n = 1 + (int32_t)tiny_random_below(&r, round % 2 ? 10 : MOST),
                token = (int32_t)tiny_random_below(&r, (uint64_t)n);
        fill_logits(&r, (logits_kind)(round % N_KINDS), logits, n);
        for (int32_t i = 0; i < n; i++) slow[i] = (slow_token){.id = i, .logit = logits[i], .rank = -(double)logits[i]};
        logprobs l = {0};
        assert_int_equal(logprobs_open(&l, 1 + (int32_t)tiny_random_below(&r, 20), n, NULL), RP_OK);
        assert_true(l.n_top >= 1 && l.n_top <= n);
        float own = logprobs_measure(&l, logits, token, top);
        slow_softmax(slow, n);
        double p = slow[token].p;
        assert_true(logits[token] > -INFINITY ? fabs(exp(own) - p) <= 1e-6 : own == -INFINITY);
        slow_sort(slow, n);
        for (int32_t i = 0; i < l.n_top; i++) {
            assert_int_equal(top[i].token, slow[i].id);
            assert_true(slow[i].logit > -INFINITY ? fabs(exp(top[i].logprob) - slow[i].p) <= 1e-6
                                                  : top[i].logprob == -INFINITY);
            if (top[i].token == token) assert_true(top[i].logprob == own);
        }
        logprobs_close(&l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_come_first_and_nothing_is_lost),
        cmocka_unit_test(filters_keep_what_the_slow_ones_keep),
        cmocka_unit_test(a_large_vocabulary_is_no_different),
        cmocka_unit_test(shares_of_none_and_of_all_leave_a_token),
        cmocka_unit_test(what_is_left_alone_is_drawn),
        cmocka_unit_test(the_first_of_equals_is_the_likeliest),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(penalties_look_back_on_their_window),
        cmocka_unit_test(greedy_without_penalties_allocates_nothing),
        cmocka_unit_test(logprobs_are_those_of_the_model),
        cmocka_unit_test(logits_that_are_no_numbers_do_no_harm),
        cmocka_unit_test(filters_and_penalties_are_those_of_llama_cpp),
    };
    seed = test_seed("sampler", 20261123);
    return cmocka_run_group_tests_name("engine/sampler", tests, NULL, NULL);
}
