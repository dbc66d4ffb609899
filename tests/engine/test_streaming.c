/* SPDX-License-Identifier: Apache-2.0 */
/* test_streaming.c: perplexity of a stream that is many contexts long (StreamingLLM's check; Xiao et al., 2024): of
 * stories, by stories260K in REPRISE_TEST_DATA, skipped without it; of conversations of models/eval, by the bundled
 * model:
 *
 *   recomputed  the last three quarters of the context are prefilled again, from position 0 on, before each quarter of
 *   new tokens
 *   sinks       the first 4 tokens and the last ones are kept, and move back: what rp_request.context_shift does
 *   window      the last ones alone
 *
 * sinks and window are composed here of views; the engine's logits are those of sinks, byte for byte.
 *
 *   REPRISE_TEST_ROUNDS=N  contexts, 10 by default; docs/quality.md has the table of 40
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

#include "base/compiler.h"
#include "model/model_internal.h"
#include "support/eval_items.h"
#include "support/forward_run.h"
#include "support/must.h"
#include "support/reference_model.h"
#include "support/seed.h"
#include "support/experiments.h"
#include "reprise_test.h"

#define CONTEXT 512 /* that stories260K was trained for */
#define PIECE (CONTEXT / 4)
#define SINKS 4
#define N_PROMPT 100

static rp_model *model;
static int32_t *tokens, n_tokens; /* of the stream */
static base_cpu_level level;

/* The text of models/eval/stories.txt without the lines between stories. */
static char *read_stories(size_t *n) {
    char path[512], *text = reference_alloc(1 << 20, 1);
    FILE *f = fopen(eval_path(path, "models/eval/stories.txt"), "r");
    assert_non_null(f);
    *n = 0;
    while (fgets(text + *n, 1 << 16, f)) {
        if (text[*n] != '#' && strcmp(text + *n, "---\n") != 0) *n += strlen(text + *n);
        assert_true(*n < (1 << 20) - (1 << 16));
    }
    fclose(f);
    return text;
}

/* Fewer have too few shifts to compare. */
static int n_contexts(void) { return BASE_MAX(test_rounds(10), 4); }

/* false: the model is not there. */
static bool open_stories(void) {
    char path[512];
    const char *data = getenv("REPRISE_TEST_DATA");
    rp_error err = {0};
    size_t n, count;
    snprintf(path, sizeof path, "%s/models/stories260K.gguf", data ? data : "");
    if (!data || rp_model_open(&model, path, NULL, &err)) return false;
    char *text = read_stories(&n);
    int32_t *all;
    must(rp_tokenize(model, text, n, true, true, &all, &count, &err), &err);
    n_tokens = BASE_MIN((int32_t)count, CONTEXT * n_contexts());
    tokens = reference_alloc((size_t)n_tokens, sizeof *tokens);
    memcpy(tokens, all, (size_t)n_tokens * sizeof *tokens);
    rp_free(all);
    free(text);
    return true;
}

/* Documents, question and answer of one item after the other. */
static void open_conversations(void) {
    static const char *const tasks[] = {"facts-8", "pairs-16", "two-hop", "persona"};
    const int n_items = 20 * n_contexts();
    char path[512];
    rp_error err = {0};
    must(rp_model_open(&model, eval_path(path, "models/reprise-mini.gguf"), NULL, &err), &err);
    eval_item *items = reference_alloc((size_t)n_items, sizeof *items);
    tokens = reference_alloc((size_t)(CONTEXT * n_contexts()), sizeof *tokens);
    n_tokens = 0;
    for (size_t t = 0; t < BASE_ARRAY_LEN(tasks); t++) {
        const int n = eval_items_read(model, tasks[t], FORWARD_RUN_ROWS, items, n_items / (int)BASE_ARRAY_LEN(tasks));
        for (int i = 0; i < n; i++) {
            for (int32_t k = 0; k < items[i].n && n_tokens < CONTEXT * n_contexts(); k++)
                tokens[n_tokens++] = items[i].tokens[k];
            eval_item_free(&items[i]);
        }
    }
    free(items);
}

static void close_stream(void) {
    free(tokens);
    rp_model_close(model);
    tokens = NULL;
    model = NULL;
}

/* ---- a stream, piece by piece ---- */

typedef struct stream {
    forward_run run;
    float *logits; /* [FORWARD_RUN_ROWS][n_vocab] */
    double sum;    /* of negative log-likelihoods of judged tokens */
    int32_t n;
    double worst_piece; /* the highest mean of a piece */
} stream;

static void open_run(stream *s) {
    *s = (stream){0};
    forward_run_open(&s->run, model, level, CONTEXT, FORWARD_RUN_ROWS, 2);
    s->logits = reference_alloc((size_t)FORWARD_RUN_ROWS * (size_t)model->net.hp.n_vocab, sizeof(float));
}

static void close_run(stream *s) {
    forward_run_close(&s->run);
    free(s->logits);
}

static double loss_of(const float *logits, int32_t n_vocab, int32_t token) {
    double most = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) most = fmax(most, (double)logits[i]);
    for (int32_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - most);
    return log(sum) + most - (double)logits[token];
}

/* Feeds tokens [first, end) of the stream from position pos on; judges the tokens after each of them. */
static void feed(stream *s, int32_t first, int32_t end, int32_t pos, bool judges) {
    const int32_t n_vocab = model->net.hp.n_vocab;
    double sum = 0;
    for (int32_t i = first, n; i < end; i += n) {
        n = BASE_MIN(end - i, FORWARD_RUN_ROWS);
        forward_run_feed(&s->run, tokens + i, pos + i - first, n, judges ? n : 0, s->logits);
        for (int32_t k = 0; k < n && judges; k++)
            sum += loss_of(s->logits + (int64_t)k * n_vocab, n_vocab, tokens[i + k + 1]);
    }
    if (!judges) return;
    s->sum += sum;
    s->n += end - first;
    s->worst_piece = fmax(s->worst_piece, sum / (end - first));
}

/* The views' slots before position `end`, but the first n_kept, are dropped, and the others move back by a piece. */
static void shift_views(stream *s, int32_t n_kept) {
    static const base_key key = {{1}};
    rp_error err = {0};
    kv_context *from = &s->run.context, to;
    kv_context_init(&to, s->run.pool);
    kv_context_close(from);
    for (size_t i = 0; i < from->n_views; i++)
        if (!kv_span_is_sealed(from->views[i].span)) kv_span_seal(from->views[i].span, &key);
    for (int keeps = n_kept > 0; keeps >= 0; keeps--) /* the kept ones first */
        for (size_t i = 0; i < from->n_views; i++) {
            const kv_view *v = &from->views[i];
            uint64_t mask[KV_SPAN_BLOCKS];
            const int32_t first = kv_span_position(v->span) + v->shift;
            memcpy(mask, v->mask, sizeof mask);
            if (keeps) kv_mask_clear(mask, n_kept - first, KV_SPAN_TOKENS);
            else kv_mask_clear(mask, 0, n_kept + PIECE - first);
            if (kv_mask_count(mask) > 0)
                must(kv_context_add(&to, v->span, keeps ? v->shift : v->shift - PIECE, mask, &err), &err);
        }
    kv_context_clear(from);
    *from = to;
}

static void run_stream(stream *s, int32_t n_kept) {
    open_run(s);
    feed(s, 0, CONTEXT, 0, false);
    for (int32_t i = CONTEXT; i + PIECE < n_tokens; i += PIECE) {
        shift_views(s, n_kept);
        feed(s, i, i + PIECE, CONTEXT - PIECE, true);
    }
    close_run(s);
}

static void run_recomputed(stream *s) {
    open_run(s);
    for (int32_t i = CONTEXT; i + PIECE < n_tokens; i += PIECE) {
        feed(s, i - (CONTEXT - PIECE), i, 0, false);
        feed(s, i, i + PIECE, CONTEXT - PIECE, true);
        kv_context_clear(&s->run.context);
    }
    close_run(s);
}

/* ---- the engine ---- */

typedef struct judge {
    double sum, piece;
    int32_t n, n_judged, end;
} judge;

static void judge_logits(void *user, const float *logits, int32_t n_vocab) {
    judge *j = user;
    const int32_t next = N_PROMPT + j->n++; /* the token that the logits predict */
    if (next <= CONTEXT || next > j->end) return;
    j->piece += loss_of(logits, n_vocab, tokens[next]);
    if (++j->n_judged % PIECE == 0) j->sum += j->piece, j->piece = 0; /* in the order of feed's sums */
}

static double run_engine(int32_t n_judged) {
    rp_error err = {0};
    rp_engine *e;
    rp_result *r;
    judge j = {.end = CONTEXT + n_judged};
    rp_engine_options o = rp_engine_options_defaults();
    o.n_ctx = CONTEXT;
    o.kv_format = RP_KV_F32;
    must(rp_engine_new(&e, model, &o, &err), &err);
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_tokens(tokens, N_PROMPT);
    const rp_request_experiment forced = experiment_forced(tokens + N_PROMPT, CONTEXT + n_judged + 1 - N_PROMPT);
    q.experiment = &forced;
    q.ignore_eos = true;
    q.context_shift = true;
    q.on_logits = judge_logits;
    q.user = &j;
    must(rp_engine_run(e, &q, &r, &err), &err);
    assert_int_equal(r->n_tokens, forced.n_forced);
    assert_int_equal(r->context_shifts, n_judged / PIECE);
    assert_int_equal(j.n_judged, n_judged);
    rp_result_free(r);
    rp_engine_free(e);
    return j.sum;
}

static void print_stream(const char *name, const stream *s) {
    printf("| %-10s | %8.3f | %8.3f |\n", name, exp(s->sum / s->n), exp(s->worst_piece));
}

/* The share of attention that the last rows of the first context give its first tokens. */
static double attention_of_first(void) {
    const kv_shape shape = model_kv_shape(model, RP_KV_F32);
    const int32_t group = model->net.hp.n_heads / model->net.hp.n_kv_heads;
    rp_error err = {0};
    stream s;
    double sum = 0;
    open_run(&s);
    feed(&s, 0, CONTEXT - FORWARD_RUN_ROWS, 0, false);
    must(attention_observer_new(&s.run.observer, shape.n_layers, kv_shape_heads(&shape), ATTENTION_SUM,
                                (int64_t)FORWARD_RUN_ROWS * group, 0, 1, &err),
         &err);
    feed(&s, CONTEXT - FORWARD_RUN_ROWS, CONTEXT, CONTEXT - FORWARD_RUN_ROWS, false);
    for (int32_t i = 0; i < shape.n_layers * kv_shape_heads(&shape) * SINKS; i++)
        sum += attention_observer_weight(s.run.observer, i / SINKS / kv_shape_heads(&shape),
                                         i / SINKS % kv_shape_heads(&shape), 0, i % SINKS);
    attention_observer_free(s.run.observer);
    close_run(&s);
    return sum / (FORWARD_RUN_ROWS * model->net.hp.n_heads * shape.n_layers);
}

/* Perplexities of the three, in their order. */
static void check_streams(double out[3]) {
    stream recomputed, sinks, window;
    rp_error err = {0};
    must(base_cpu_detect(&level, &err), &err);
    run_recomputed(&recomputed);
    run_stream(&sinks, SINKS);
    run_stream(&window, 0);
    printf("| %d tokens, contexts of %d | perplexity | worst %d tokens |\n", n_tokens, CONTEXT, PIECE);
    print_stream("recomputed", &recomputed);
    print_stream("sinks", &sinks);
    print_stream("window", &window);
    printf("the first %d tokens get %.1f %% of the attention\n", SINKS, 100 * attention_of_first());
    assert_int_equal(sinks.n, recomputed.n);
    assert_true(run_engine(sinks.n) == sinks.sum);
    const stream *all[] = {&recomputed, &sinks, &window};
    for (int i = 0; i < 3; i++) out[i] = exp(all[i]->sum / all[i]->n);
}

static void stories_go_on(void **state) {
    double perplexity[3];
    (void)state;
    if (!open_stories()) skip();
    check_streams(perplexity);
    assert_true(perplexity[1] < 1.1 * perplexity[0]);
    close_stream();
}

static void conversations_go_on(void **state) {
    double perplexity[3];
    (void)state;
    open_conversations();
    check_streams(perplexity);
    assert_true(perplexity[1] < 1.1 * perplexity[0]);
    close_stream();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stories_go_on), cmocka_unit_test(conversations_go_on)};
    return cmocka_run_group_tests_name("streaming", tests, NULL, NULL);
}
