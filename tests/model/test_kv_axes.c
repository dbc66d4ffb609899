/* SPDX-License-Identifier: Apache-2.0 */
/* test_kv_axes.c: why keys of 4 and 2 bits have ranges by channel and values have ranges by token (KIVI; Liu et al.,
 * ICML 2024, table 2). An experiment in f32: the KV of a document is quantized in place, and a question about it is
 * computed over the result, with exact KV of its own.
 *
 *   by channel  a range for each dimension of a head over the slots of a block
 *   by token    a range for each slot over the dimensions of a head
 *
 * The bundled model has neither outlier channels nor outlier tokens. A second subject has planted ones, in a way that
 * leaves its logits without quantization as they are, bit for bit:
 *
 *   channels of keys  both rows of one rotary pair of W_k times 16, the same rows of W_q divided by 16: powers of two
 *   tokens of values  one slot of each complete block, to which the question does not attend (a mask; it does not in
 *   the
 *                     other subject either), has values times 16. Attention is sparse: in a large model nearly all
 *                     weights are nearly 0
 *
 * Keys by channel and values by token are encoded by the kernels of the formats (kernel_encode_keys and
 * kernel_encode_values) at 2 and 4 bits. The other axes, and 3 bits, which no format has, by least and most elements.
 *
 *   REPRISE_TEST_ROUNDS=N  items of each task, 2 by default; docs/quality.md has the table of 100
 */
#define _POSIX_C_SOURCE 200809L /* unlink */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "backend/cpu/cpu_backend.h"
#include "support/eval_items.h"
#include "support/forward_run.h"
#include "support/gguf_variant.h"
#include "support/must.h"
#include "support/reference_model.h"
#include "support/seed.h"

#define MODEL "models/reprise-mini.gguf"
#define OUTLIER 16.0f
#define UNSEEN_SLOT 5              /* of each complete block */
#define MOST_ROWS FORWARD_RUN_ROWS /* of a question and its answer */
#define MOST_DIM 256

static const char *const tasks[] = {"pairs-16", "facts-8", "passkey"};
#define N_TASKS ((int)BASE_ARRAY_LEN(tasks))

typedef enum axis { CHANNEL,
                    TOKEN } axis;
static const char *const axis_names[] = {"channel", "token"};
typedef struct scheme {
    axis keys, values;
    int bits;
} scheme;
#define N_SCHEMES 12
/* index = keys + 2 values + 4 (bits - 2) */
static scheme scheme_of(int i) { return (scheme){(axis)(i & 1), (axis)(i >> 1 & 1), 2 + i / 4}; }

/* Sums over all items. */
typedef struct outcome {
    double kl, error, energy; /* KL of the first token; squares of differences of attention outputs, and of outputs */
    int same, right, n;
} outcome;

/* What a model computes for a question. */
typedef struct answer {
    float *logits;   /* [rows of the answer][vocabulary] */
    float *attended; /* outputs of attention of all layers and rows, one after the other */
    size_t n_attended;
} answer;

static void *allocate(size_t n, size_t bytes) { return reference_alloc(n, bytes); }

/* ---- models
   -------------------------------------------------------------------------------------------------------- */

static int64_t head_dim; /* of the model */

/* The slowest pair: as in models with outlier channels, its sign hardly changes within a document. */
static void plant(const char *name, float *x, int64_t n_rows, int64_t width) {
    const bool is_key = strstr(name, "attn_k.weight") != NULL;
    if (!is_key && !strstr(name, "attn_q.weight")) return;
    for (int64_t row = 0; row < n_rows; row++)
        for (int64_t i = 0; i < width && row % head_dim >= head_dim - 2; i++)
            x[row * width + i] *= is_key ? OUTLIER : 1 / OUTLIER;
}

static rp_model *open_variant(bool has_outliers) {
    char from[512], path[64];
    rp_error err = {0};
    rp_model *m;
    gguf_variant_write(eval_path(from, MODEL), &(gguf_variant){.change = has_outliers ? plant : NULL}, path);
    must(rp_model_open(&m, path, NULL, &err), &err);
    unlink(path);
    return m;
}

/* ---- quantization in place
   ----------------------------------------------------------------------------------------- */

/* n elements, `step` apart. */
static void round_range(float *x, int64_t n, int64_t step, int bits) {
    float least = FLT_MAX, most = -FLT_MAX;
    for (int64_t i = 0; i < n; i++) {
        least = fminf(least, x[i * step]);
        most = fmaxf(most, x[i * step]);
    }
    const float scale = (most - least) / (float)((1 << bits) - 1);
    for (int64_t i = 0; i < n && scale > 0; i++) x[i * step] = roundf((x[i * step] - least) / scale) * scale + least;
}

/* By the kernels: x is [dim][64] (keys) or [64][dim] (values). */
static void encode_head(float *x, int n, int64_t dim, int bits, bool is_key) {
    static float rows[KERNEL_SLOTS * MOST_DIM];
    static uint8_t head[KERNEL_SLOTS * MOST_DIM];
    const int64_t by_slot = is_key ? 1 : dim, by_dim = is_key ? KERNEL_SLOTS : 1;
    for (int slot = 0; slot < n; slot++)
        for (int64_t d = 0; d < dim; d++) rows[slot * dim + d] = x[slot * by_slot + d * by_dim];
    (is_key ? kernel_encode_keys : kernel_encode_values)(bits, rows, n, dim, head);
    for (int slot = 0; slot < n; slot++)
        for (int64_t d = 0; d < dim; d++)
            x[slot * by_slot + d * by_dim] = (is_key ? kernel_bits_key : kernel_bits_value)(head, bits, dim, slot, d);
}

static void quantize_head(float *x, int n, int64_t dim, axis a, int bits, bool is_key) {
    const int64_t by_slot = is_key ? 1 : dim, by_dim = is_key ? KERNEL_SLOTS : 1;
    if (bits != 3 && (a == CHANNEL) == is_key) encode_head(x, n, dim, bits, is_key);
    else if (a == CHANNEL)
        for (int64_t d = 0; d < dim; d++) round_range(x + d * by_dim, n, by_slot, bits);
    else
        for (int slot = 0; slot < n; slot++) round_range(x + slot * by_slot, dim, by_dim, bits);
}

typedef void (*block_fn)(void *arg, const kv_layer *l, void *block, int n_slots);

static void each_block(const kv_context *c, block_fn fn, void *arg) {
    const kv_shape *shape = kv_pool_shape(c->pool);
    for (size_t v = 0; v < c->n_views; v++) {
        const kv_span *span = c->views[v].span;
        for (int32_t at = 0; at < kv_span_tokens(span); at += KV_BLOCK_SLOTS)
            for (int32_t l = 0; l < shape->n_layers; l++)
                fn(arg, kv_span_layer(span, l), kv_span_in_place(span, l, at / KV_BLOCK_SLOTS),
                   BASE_MIN(KV_BLOCK_SLOTS, kv_span_tokens(span) - at));
    }
}

static void quantize_block(void *arg, const kv_layer *l, void *block, int n_slots) {
    const scheme *s = arg;
    for (int32_t h = 0; h < l->n_heads; h++) {
        quantize_head((float *)((char *)block + kv_block_keys_at(l, h)), n_slots, l->key_dim, s->keys, s->bits, true);
        quantize_head((float *)((char *)block + kv_block_values_at(l, h)), n_slots, l->value_dim, s->values, s->bits,
                      false);
    }
}

typedef struct copier {
    char *at;
    size_t bytes;
    bool is_saved;
} copier;

static void copy_block(void *arg, const kv_layer *l, void *block, int n_slots) {
    copier *c = arg;
    (void)l;
    (void)n_slots;
    memcpy(c->is_saved ? block : c->at, c->is_saved ? c->at : block, c->bytes);
    c->at += c->bytes;
}

/* arg: bool: multiply. */
static void plant_values(void *arg, const kv_layer *l, void *block, int n_slots) {
    for (int32_t h = 0; h < l->n_heads && *(const bool *)arg && n_slots == KV_BLOCK_SLOTS; h++) {
        float *x = (float *)((char *)block + kv_block_values_at(l, h)) + UNSEEN_SLOT * l->value_dim;
        for (int32_t d = 0; d < l->value_dim; d++) x[d] *= OUTLIER;
    }
}

/* In all complete blocks. */
static void hide_slots(kv_context *c) {
    for (size_t v = 0; v < c->n_views; v++)
        for (int b = 0; b < KV_SPAN_BLOCKS; b++)
            if (c->views[v].mask[b] == UINT64_MAX) c->views[v].mask[b] &= ~(UINT64_C(1) << UNSEEN_SLOT);
}

/* ---- computing
   ------------------------------------------------------------------------------------------------------ */

static answer *recorded; /* by attention of a step, if not NULL */
static void (*attend)(backend *b, int32_t layer, const backend_buffer *queries, backend_buffer *dst);
static int32_t n_step_rows;

static void recording_attend(backend *b, int32_t layer, const backend_buffer *queries, backend_buffer *dst) {
    attend(b, layer, queries, dst);
    if (!recorded) return;
    for (int32_t row = 0; row < n_step_rows; row++, recorded->n_attended += (size_t)dst->width)
        memcpy(recorded->attended + recorded->n_attended, cpu_row_of(dst, row), (size_t)dst->width * sizeof(float));
}

static void compute(forward_run *r, const eval_item *it, answer *out) {
    const int32_t n = it->n - 1 - it->n_document, rows = it->n - it->n_prompt;
    out->n_attended = 0;
    n_step_rows = n;
    recorded = out;
    forward_run_feed(r, it->tokens + it->n_document, it->n_document, n, rows, out->logits);
    recorded = NULL;
    kv_context_clear(&r->context);
}

static double log_sum(const float *logits, int32_t n) {
    double most = (double)logits[eval_best_of(logits, n)], sum = 0;
    for (int32_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return most + log(sum);
}

static double divergence(const float *exact, const float *other, int32_t n) {
    const double a = log_sum(exact, n), b = log_sum(other, n);
    double kl = 0;
    for (int32_t i = 0; i < n; i++) kl += exp((double)exact[i] - a) * ((double)exact[i] - a - (double)other[i] + b);
    return kl;
}

static void add_outcome(outcome *o, const eval_item *it, const answer *exact, const answer *a, int32_t n_vocab) {
    assert_int_equal(exact->n_attended, a->n_attended);
    for (size_t i = 0; i < a->n_attended; i++) {
        const double x = (double)exact->attended[i], d = (double)a->attended[i] - x;
        o->error += d * d;
        o->energy += x * x;
    }
    o->kl += divergence(exact->logits, a->logits, n_vocab);
    o->same += eval_best_of(exact->logits, n_vocab) == eval_best_of(a->logits, n_vocab);
    o->right += eval_is_right(it, a->logits, n_vocab);
    o->n++;
}

/* ---- a model
   -------------------------------------------------------------------------------------------------------- */

typedef struct subject {
    rp_model *model;
    bool has_outliers;
    forward_run run;
    backend_ops ops;
    answer exact, other;
    outcome all[N_SCHEMES], plain; /* plain: not quantized */
} subject;

static void open_subject(subject *s, bool has_outliers) {
    base_cpu_level level;
    rp_error err = {0};
    *s = (subject){.model = open_variant(has_outliers), .has_outliers = has_outliers};
    must(base_cpu_detect(&level, &err), &err);
    forward_run_open(&s->run, s->model, level, 2048, FORWARD_RUN_ROWS, 1);
    s->ops = *s->run.backend->ops;
    attend = s->ops.attend;
    s->ops.attend = recording_attend;
    s->run.backend->ops = &s->ops;
    const size_t n_attended =
        (size_t)(MOST_ROWS * s->model->net.hp.n_layers * s->model->net.hp.n_heads * s->model->net.hp.value_dim);
    for (int i = 0; i < 2; i++) {
        answer *a = i ? &s->other : &s->exact;
        a->logits = allocate((size_t)(MOST_ROWS * s->model->net.hp.n_vocab), sizeof(float));
        a->attended = allocate(n_attended, sizeof(float));
    }
}

static void close_subject(subject *s) {
    forward_run_close(&s->run);
    for (int i = 0; i < 2; i++) {
        free((i ? &s->other : &s->exact)->logits);
        free((i ? &s->other : &s->exact)->attended);
    }
    rp_model_close(s->model);
}

/* The document's KV again. saved NULL: computed. */
static void feed_document(forward_run *r, const eval_item *it, char *saved) {
    copier c = {.at = saved, .bytes = kv_pool_block_bytes(r->pool), .is_saved = true};
    rp_error err = {0};
    for (int32_t i = 0; saved && i < it->n_document; i++) {
        kv_span *span;
        int32_t slot;
        must(kv_context_append(&r->context, i, &span, &slot, &err), &err);
    }
    if (saved) each_block(&r->context, copy_block, &c);
    else forward_run_feed(r, it->tokens, 0, it->n_document, 0, NULL);
}

static void run_item(subject *s, const eval_item *it) {
    forward_run *r = &s->run;
    const int32_t n_blocks = (it->n_document + KV_BLOCK_SLOTS - 1) / KV_BLOCK_SLOTS * s->model->net.hp.n_layers;
    char *saved = allocate((size_t)n_blocks, kv_pool_block_bytes(r->pool));
    copier c = {.at = saved, .bytes = kv_pool_block_bytes(r->pool)};
    feed_document(r, it, NULL);
    each_block(&r->context, plant_values, &s->has_outliers);
    each_block(&r->context, copy_block, &c);
    hide_slots(&r->context);
    compute(r, it, &s->exact);
    add_outcome(&s->plain, it, &s->exact, &s->exact, s->model->net.hp.n_vocab);
    for (int i = 0; i < N_SCHEMES; i++) {
        scheme how = scheme_of(i);
        feed_document(r, it, saved);
        each_block(&r->context, quantize_block, &how);
        hide_slots(&r->context);
        compute(r, it, &s->other);
        add_outcome(&s->all[i], it, &s->exact, &s->other, s->model->net.hp.n_vocab);
    }
    free(saved);
}

static double error_of(const outcome *o) { return sqrt(o->error / o->energy); }

static void print_subject(const subject *s, const char *name) {
    printf("| %s, %d items | keys by | values by | error of attention | KL | agreement, %% | right, %% |\n", name,
           s->plain.n);
    printf("| exact | | | | | 100.0 | %.1f |\n", 100.0 * s->plain.right / s->plain.n);
    for (int i = 0; i < N_SCHEMES; i++) {
        const scheme how = scheme_of(i);
        const outcome *o = &s->all[i];
        printf("| %d bits | %s | %s | %.1f %% | %.4f | %.1f | %.1f |\n", how.bits, axis_names[how.keys],
               axis_names[how.values], 100 * error_of(o), o->kl / o->n, 100.0 * o->same / o->n,
               100.0 * o->right / o->n);
    }
    fflush(stdout);
}

/* ---- tests
   ---------------------------------------------------------------------------------------------------------- */

static subject plain, planted;

/* The planted channels change nothing without quantization: each product of a score is the same, bit for bit. */
static void check_equal(const subject *a, const subject *b, const eval_item *it) {
    assert_memory_equal(a->exact.logits, b->exact.logits,
                        (size_t)((it->n - it->n_prompt) * a->model->net.hp.n_vocab) * sizeof(float));
}

static void run_all(void **state) {
    (void)state;
    const int n = test_rounds(2);
    rp_error err = {0};
    char path[512];
    rp_model *m;
    must(rp_model_open(&m, eval_path(path, MODEL), NULL, &err), &err);
    head_dim = m->net.hp.key_dim;
    rp_model_close(m);
    open_subject(&plain, false);
    open_subject(&planted, true);
    eval_item *items = allocate((size_t)n, sizeof(*items));
    for (int t = 0; t < N_TASKS; t++) {
        const int n_items = eval_items_read(plain.model, tasks[t], MOST_ROWS, items, n);
        for (int i = 0; i < n_items; i++) {
            run_item(&plain, &items[i]);
            run_item(&planted, &items[i]);
            check_equal(&plain, &planted, &items[i]);
            eval_item_free(&items[i]);
        }
    }
    free(items);
    print_subject(&plain, "as it is");
    print_subject(&planted, "planted outliers");
    assert_true(plain.plain.n > 0 && plain.plain.right > 0);
}

static const outcome *result_of(const subject *s, axis keys, axis values, int bits) {
    return &s->all[(int)keys + 2 * (int)values + 4 * (bits - 2)];
}

/* Where there are outliers, each of the other axes costs, and keys by token cost most. */
static void keys_by_channel_and_values_by_token_are_best(void **state) {
    (void)state;
    for (int bits = 2; bits <= 4; bits++) {
        const outcome *best = result_of(&planted, CHANNEL, TOKEN, bits);
        assert_true(error_of(result_of(&planted, CHANNEL, CHANNEL, bits)) > 1.5 * error_of(best));
        for (int values = CHANNEL; values <= TOKEN; values++) {
            const outcome *by_token = result_of(&planted, TOKEN, (axis)values, bits);
            assert_true(error_of(by_token) > 3 * error_of(best) && by_token->kl > 5 * best->kl &&
                        by_token->right <= best->right);
        }
        assert_true(error_of(result_of(&planted, TOKEN, CHANNEL, bits)) >
                    error_of(result_of(&planted, TOKEN, TOKEN, bits)) * 0.99);
    }
}

/* The formats of the project do not see the outliers. */
static void they_do_not_depend_on_outliers(void **state) {
    (void)state;
    for (int bits = 2; bits <= 4; bits++) {
        const double with = error_of(result_of(&planted, CHANNEL, TOKEN, bits)),
                     without = error_of(result_of(&plain, CHANNEL, TOKEN, bits));
        assert_true(fabs(with - without) < 0.01 * without);
        assert_int_equal(result_of(&planted, CHANNEL, TOKEN, bits)->right,
                         result_of(&plain, CHANNEL, TOKEN, bits)->right);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_all),
        cmocka_unit_test(keys_by_channel_and_values_by_token_are_best),
        cmocka_unit_test(they_do_not_depend_on_outliers),
    };
    int failed = cmocka_run_group_tests_name("axes", tests, NULL, NULL);
    close_subject(&plain);
    close_subject(&planted);
    return failed;
}
