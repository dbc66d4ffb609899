/* SPDX-License-Identifier: Apache-2.0 */
/* draft_model.c: see draft_model.h. */
#include "engine/core/draft_model.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "kv/block_pool.h"
#include "kv/span.h"
#include "backend/backend.h"
#include "backend/backend_registry.h"
#include "model/forward.h"
#include "model/model.h"
#include "model/tokenizer/tokenizer.h"
#include "sampling/sampler.h"
#include "reprise_test.h"

#define CHUNK 64            /* rows of a step besides one of each request */
#define MOST_POSITIONS 8192 /* of a context, if the model has more: its rotations and scores take memory */
#define LEAST_POSITIONS (DRAFT_FIRST + 2 * RP_MAX_DRAFT + 2)
#define PADDING 1024  /* tokens by which one vocabulary may be longer: files of one family are padded differently */
#define KV_SHARE 8    /* divisor of the KV budget: the most that the draft's KV takes by default */
#define WAIT_STEPS 64 /* after a lack of memory */
/* The first estimate of a rate, as if this many tokens had been seen, and the weight of a token relative to the next
 * one: of a request, and of all. */
#define FIRST_RATE 0.6
#define FIRST_WEIGHT 4.0
#define FORGETTING 0.95
#define FORGETTING_ALL 0.999
#define FADING 0.97     /* of a request's own rate, per step without a draft: it is tried again after some */
#define LEAST_RATE 0.45 /* that a request begins with, whatever others had */

/* ---- life ---- */

static int check_vocabulary(const rp_model *draft, const rp_model *target, rp_error *err) {
    const tokenizer *a = draft->tokenizer, *b = target->tokenizer;
    const int32_t n = BASE_MIN(tokenizer_n_vocab(a), tokenizer_n_vocab(b));
    if (tokenizer_n_vocab(a) - n > PADDING || tokenizer_n_vocab(b) - n > PADDING)
        return base_fail(err, RP_ERR_INVALID, "draft_model has a vocabulary of %d tokens, the model one of %d: they "
                                              "must have the same tokens",
                         tokenizer_n_vocab(a), tokenizer_n_vocab(b));
    for (int32_t i = 0; i < n; i++) {
        size_t n_a, n_b;
        const char *x = tokenizer_bytes(a, i, true, &n_a), *y = tokenizer_bytes(b, i, true, &n_b);
        BASE_ASSERT(x && y); /* ids of both */
        if (n_a != n_b || memcmp(x, y, n_a) != 0 || tokenizer_is_end(a, i) != tokenizer_is_end(b, i))
            return base_fail(err, RP_ERR_INVALID, "draft_model has other tokens than the model: number %d is '%.40s', "
                                                  "not '%.40s'",
                             i, x, y);
    }
    return RP_OK;
}

static int check_model(const rp_model *draft, const rp_model *target, rp_error *err) {
    int rc = model_check_whole(draft, err);
    if (rc) return rc;
    if (model_is_encoder(draft))
        return base_fail(err, RP_ERR_UNSUPPORTED, "draft_model is an encoder, which generates no text");
    if (!model_capabilities(draft).truncates)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "draft_model has recurrent layers, whose state cannot lose rejected tokens: give another one");
    if (draft->net.hp.n_ctx_train < LEAST_POSITIONS)
        return base_fail(err, RP_ERR_UNSUPPORTED, "draft_model has %d positions only: %d are needed",
                         draft->net.hp.n_ctx_train, LEAST_POSITIONS);
    return check_vocabulary(draft, target, err);
}

static int open_arrays(draft_model *d, rp_error *err) {
    const size_t n = (size_t)d->max_parts;
    d->rows = base_calloc((size_t)d->max_rows, sizeof(*d->rows));
    d->contexts = base_calloc(n, sizeof(*d->contexts));
    d->drawn = base_calloc(n, sizeof(*d->drawn));
    d->parts = base_calloc(n, sizeof(*d->parts));
    d->logits = base_calloc(n * (size_t)d->n_outputs, sizeof(float));
    d->widened = base_calloc((size_t)d->n_vocab, sizeof(float));
    if (d->rows && d->contexts && d->drawn && d->parts && d->logits && d->widened) return RP_OK;
    return base_fail_memory(err, n * (size_t)d->n_outputs * sizeof(float), "a draft model");
}

int draft_model_open(draft_model **out, const rp_model *model, const rp_model *target, int32_t n_threads,
                     int32_t max_sequences, rp_error *err) {
    const struct backend_row *row;
    base_cpu_level level;
    int rc = check_model(model, target, err);
    if (rc || (rc = backend_find(&row, NULL, &model->net, err)) || (rc = base_cpu_detect(&level, err))) return rc;
    draft_model *d = *out = base_calloc(1, sizeof(*d));
    if (!d) return base_fail_memory(err, sizeof(*d), "a draft model");
    d->model = model;
    d->bos = tokenizer_adds_bos(model->tokenizer) ? tokenizer_bos(model->tokenizer) : -1;
    d->n_vocab = target->net.hp.n_vocab;
    d->n_outputs = model->net.hp.n_outputs;
    d->max_parts = max_sequences;
    d->max_rows = max_sequences + CHUNK;
    d->most_pos = BASE_MIN(model->net.hp.n_ctx_train, MOST_POSITIONS);
    d->rate = (draft_rate){FIRST_RATE * FIRST_WEIGHT, FIRST_WEIGHT};
    cost_model_init(&d->cost);
    const backend_options options = {.shape = model_kv_shape(model, RP_KV_F16),
                                     .level = level,
                                     .n_ctx = d->most_pos,
                                     .n_threads = n_threads,
                                     .max_rows = d->max_rows,
                                     .times = model->times};
    if ((rc = backend_open(&d->backend, row->name, &model->net, &options, err)) ||
        (rc = model_forward_new(&d->forward, model, d->backend, d->max_rows, d->max_parts, err)))
        return rc;
    return open_arrays(d, err);
}

int draft_head_open(draft_model **out, const rp_model *target, backend *b, model_forward *f, int32_t max_sequences,
                    int32_t max_rows, int32_t n_ctx, rp_error *err) {
    BASE_ASSERT(model_has_draft_head(target));
    draft_model *d = *out = base_calloc(1, sizeof(*d));
    if (!d) return base_fail_memory(err, sizeof(*d), "a draft head");
    d->model = target;
    d->is_head = true;
    d->backend = b;
    d->forward = f;
    d->bos = -1;
    d->n_vocab = target->net.hp.n_vocab;
    d->n_outputs = target->net.hp.n_outputs;
    d->max_parts = max_sequences;
    d->max_rows = BASE_MIN(max_rows, max_sequences + CHUNK);
    d->most_pos = n_ctx;
    d->rate = (draft_rate){FIRST_RATE * FIRST_WEIGHT, FIRST_WEIGHT};
    cost_model_init(&d->cost);
    const size_t n_embd = (size_t)target->net.hp.n_embd, n = (size_t)(d->max_rows + d->max_parts);
    d->hidden_in = base_calloc((size_t)d->max_rows * n_embd, sizeof(float));
    d->hidden_out = base_calloc((size_t)d->max_parts * n_embd, sizeof(float));
    if (!d->hidden_in || !d->hidden_out) return base_fail_memory(err, n * n_embd * sizeof(float), "a draft head");
    return open_arrays(d, err);
}

int draft_model_open_kv(draft_model *d, uint64_t most, uint64_t *budget, rp_error *err) {
    const kv_shape shape = d->is_head ? model_draft_kv_shape(d->model) : model_kv_shape(d->model, RP_KV_F16);
    const uint64_t each = kv_shape_token_bytes(&shape) * (DRAFT_WINDOW + 2 * KV_SPAN_TOKENS);
    const uint64_t own =
        most ? BASE_MIN(most, *budget / 2) : BASE_MIN(each * (uint64_t)d->max_parts, *budget / KV_SHARE);
    *budget -= own;
    return kv_pool_new(&d->pool, &shape, own, d->backend->ops->memory(d->backend), err);
}

void draft_model_close(draft_model *d) {
    if (!d) return;
    if (!d->is_head) model_forward_free(d->forward);
    kv_pool_free(d->pool);
    if (d->backend && !d->is_head) d->backend->ops->free(d->backend);
    base_free(d->rows);
    base_free(d->contexts);
    base_free(d->drawn);
    base_free(d->parts);
    base_free(d->logits);
    base_free(d->widened);
    base_free(d->hidden_in);
    base_free(d->hidden_out);
    base_free(d);
}

void draft_model_usage(const draft_model *d, rp_memory *out) {
    rp_memory own = {0};
    if (!d->is_head) d->backend->ops->usage(d->backend, &own);
    const uint64_t n_hidden = d->is_head ? (uint64_t)d->max_rows + (uint64_t)d->max_parts * (DRAFT_LAG + 2) : 0;
    own.activations += n_hidden * (uint64_t)d->model->net.hp.n_embd * sizeof(float);
    own.activations += ((uint64_t)d->max_parts * (uint64_t)d->n_outputs + (uint64_t)d->n_vocab) * sizeof(float);
    out->weights += own.weights;
    out->file += own.file;
    out->activations += own.activations;
}

int draft_model_prepare(draft_model *d, rp_on_progress on_progress, void *user, rp_error *err) {
    return d->is_head ? RP_OK : d->backend->ops->prepare(d->backend, on_progress, user, err);
}

/* ---- contexts ---- */

static void draft_context_release(draft_context *c) {
    if (c->kv.pool) kv_context_clear(&c->kv);
    c->kv.pool = NULL;
    c->n = c->n_ahead = c->slots = c->n_hidden = 0;
}

void draft_context_close(draft_context *c) {
    draft_context_release(c);
    base_free(c->hidden);
    c->hidden = NULL;
}

/* There was no memory for it: it gives back what it has, and is not tried for some steps. */
static void draft_context_fail(draft_context *c) {
    draft_context_release(c);
    c->lacked_memory = true;
    c->waits = WAIT_STEPS;
}

static void draft_context_begin(draft_model *d, draft_context *c, int32_t n) {
    draft_context_release(c);
    kv_context_init(&c->kv, d->pool);
    c->first = c->next = BASE_MAX(n - DRAFT_FIRST, 0);
    c->pos = 0;
}

/* Drops the oldest span after the first one until there is room for `more` tokens. */
static void draft_context_slide(draft_context *c, int32_t more) {
    while (c->slots + more > DRAFT_WINDOW && c->kv.n_views > 2) {
        c->slots -= kv_span_tokens(c->kv.views[1].span);
        kv_context_remove(&c->kv, 1);
    }
}

void draft_context_see(draft_model *d, draft_context *c, const float *hidden, int32_t n, int32_t first) {
    const size_t width = (size_t)d->model->net.hp.n_embd;
    BASE_ASSERT(d->is_head && n > 0 && n <= DRAFT_LAG && first >= 0);
    if (!c->hidden && !(c->hidden = base_calloc((DRAFT_LAG + 1) * width, sizeof(float)))) {
        draft_context_fail(c);
        return;
    }
    const bool follows = (c->kv.pool || c->n_hidden > 0) && c->next - 1 + c->n_hidden == first;
    if (!follows || c->n_hidden + n > DRAFT_LAG) {
        draft_context_release(c);
        c->next = first + 1;
    }
    memcpy(c->hidden + (size_t)c->n_hidden * width, hidden, (size_t)n * width * sizeof(float));
    c->n_hidden += n;
}

/* Rows of drafts are computed again, with the target's hidden states. */
static int32_t draft_head_follow(const draft_model *d, draft_context *c, int32_t n) {
    if (c->n_hidden == 0 || c->next + c->n_hidden != n) return 0;
    if (c->kv.pool) kv_context_truncate(&c->kv, c->n_ahead);
    c->slots -= c->n_ahead;
    c->n_ahead = 0;
    if (c->kv.pool && c->pos + c->n_hidden + RP_MAX_DRAFT >= d->most_pos) {
        kv_context_clear(&c->kv);
        c->kv.pool = NULL;
    }
    if (!c->kv.pool) {
        kv_context_init(&c->kv, d->pool);
        c->pos = c->slots = 0;
    }
    return c->n_hidden;
}

int32_t draft_context_follow(draft_model *d, draft_context *c, const int32_t *history, int32_t n) {
    int32_t right = 0;
    BASE_ASSERT(n > 0);
    c->n = 0;
    if (c->waits > 0) return c->waits--, 0;
    if (d->is_head) return draft_head_follow(d, c, n);
    if (c->kv.pool) {
        while (right < c->n_ahead && c->next + right < n - 1 && c->ahead[right] == history[c->next + right]) right++;
        kv_context_truncate(&c->kv, c->n_ahead - right);
        c->slots -= c->n_ahead - right;
        c->pos += right;
        c->next += right;
        c->n_ahead = 0;
        BASE_ASSERT(c->next < n);
    }
    const bool is_late = n - c->next > DRAFT_FIRST, ends = c->pos + n - c->next + RP_MAX_DRAFT + 1 > d->most_pos;
    if (!c->kv.pool || is_late || ends) draft_context_begin(d, c, n);
    return n - c->next;
}

double draft_context_rate(const draft_model *d, draft_context *c) {
    const double all = BASE_MAX(d->rate.right / d->rate.all, LEAST_RATE);
    if (c->rate.all == 0) c->rate = (draft_rate){all * FIRST_WEIGHT, FIRST_WEIGHT};
    return c->rate.right / c->rate.all;
}

static void rate_see(draft_rate *r, double forgetting, bool is_right) {
    r->right = r->right * forgetting + is_right;
    r->all = r->all * forgetting + 1;
}

void draft_context_learn(draft_model *d, draft_context *c, int32_t right, int32_t n) {
    BASE_ASSERT(right >= 0 && right <= n);
    for (int32_t i = 0; i < right + (right < n); i++) {
        rate_see(&c->rate, FORGETTING, i < right);
        rate_see(&d->rate, FORGETTING_ALL, i < right);
    }
}

void draft_context_forget(draft_context *c) {
    if (c->rate.all == 0) return;
    const double rate = c->rate.right / c->rate.all, faded = FIRST_RATE + (rate - FIRST_RATE) * FADING;
    c->rate.all = BASE_MAX(c->rate.all * FADING, FIRST_WEIGHT);
    c->rate.right = faded * c->rate.all;
}

/* ---- runs ---- */

/* Of contexts of middling length: their slots matter little beside the weights. */
static cost_load draft_load(int32_t rows, double slots) {
    return (cost_load){.rows = rows, .row_slots = rows * slots, .slots = slots};
}

double draft_model_step_us(const draft_model *d, int32_t rows) {
    const cost_load load = draft_load(rows, DRAFT_WINDOW / 2.0);
    return rows > 0 ? cost_model_predict(&d->cost, &load) : 0;
}

typedef struct draft_step {
    int32_t n_rows, n_contexts, n_drawn;
    double slots;
} draft_step;

/* Appends a token of a part. hidden: of a head, of the token before it; else not read. RP_ERR_BUDGET, RP_ERR_MEMORY.
 */
static int draft_append(draft_model *d, draft_step *s, draft_context *c, int32_t token, const float *hidden,
                        int32_t row) {
    const size_t width = (size_t)d->model->net.hp.n_embd;
    rp_error err;
    model_row *r = &d->rows[row];
    BASE_ASSERT(row < d->max_rows && c->pos + c->n_ahead < d->most_pos);
    *r = (model_row){.token = token, .pos = c->pos + c->n_ahead, .context = s->n_contexts};
    const int rc = kv_context_append(&c->kv, r->pos, &r->span, &r->slot, &err);
    c->slots += rc == RP_OK;
    if (d->is_head) memcpy(d->hidden_in + (size_t)row * width, hidden, width * sizeof(float));
    return rc;
}

/* Of a head: the hidden state of pending token i; of the last draft: DRAFT_LAG. */
static float *hidden_of(const draft_model *d, const draft_context *c, int32_t i) {
    return d->is_head ? c->hidden + (size_t)i * (size_t)d->model->net.hp.n_embd : NULL;
}

/* Adds the rows of a part to a step: the tokens that it reads, or its last draft. */
static void add_part(draft_model *d, draft_step *s, draft_part *p) {
    draft_context *c = p->context;
    int32_t rows = 0;
    int rc = RP_OK;
    draft_context_slide(c, BASE_MAX(p->n_read, 1) + 1);
    if (p->n_read > 0 && c->pos == 0 && c->first > 0 && d->bos >= 0 && s->n_rows + p->n_read < d->max_rows) {
        if (!(rc = draft_append(d, s, c, d->bos, NULL, s->n_rows))) rows++, c->pos++;
    }
    for (int32_t i = 0; i < p->n_read && !rc; i++)
        if (!(rc = draft_append(d, s, c, p->history[c->next], hidden_of(d, c, i), s->n_rows + rows)))
            rows++, c->next++, c->pos++;
    if (p->n_read > 0) c->n_hidden = 0;
    if (p->n_read == 0 &&
        !(rc = draft_append(d, s, c, c->tokens[c->n - 1], hidden_of(d, c, DRAFT_LAG), s->n_rows))) {
        rows++;
        c->ahead[c->n_ahead++] = c->tokens[c->n - 1];
    }
    p->n_read = 0;
    if (rc) {
        draft_context_fail(c);
        p->n_draft = 0;
        return;
    }
    d->contexts[s->n_contexts++] = &c->kv;
    s->n_rows += rows;
    s->slots += c->slots;
    if (p->n_draft == 0) return;
    d->rows[s->n_rows - 1].wants_logits = true;
    d->drawn[s->n_drawn++] = p;
}

/* The logits of the target's tokens. */
static const float *logits_for(draft_model *d, const float *logits) {
    if (d->n_outputs >= d->n_vocab) return logits;
    memcpy(d->widened, logits, (size_t)d->n_outputs * sizeof(*logits));
    for (int32_t i = d->n_outputs; i < d->n_vocab; i++) d->widened[i] = -INFINITY;
    return d->widened;
}

/* For measurements: the token of the known answer, or a wrong one, by its number alone. */
static int32_t draft_known(const draft_model *d, const draft_part *p, int32_t token) {
    const rp_request_experiment *x = p->experiment;
    const int32_t i = p->n_answer + p->context->n;
    if (!x->known || i >= x->n_known) return token;
    const uint64_t hash = ((uint64_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    const uint64_t mixed = (hash ^ hash >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return (double)(mixed >> 40) / (1 << 24) < (double)x->known_share ? x->known[i] : (x->known[i] + 1) % d->n_vocab;
}

/* Computes a step. false: nothing was computed; the parts in it have lost their contexts. */
static bool draft_compute(draft_model *d, const draft_step *s, const draft_part *parts, int32_t n) {
    const model_step step = {
        .rows = d->rows, .n_rows = s->n_rows, .contexts = d->contexts, .n_contexts = s->n_contexts};
    rp_error err;
    const uint64_t start = base_clock_us();
    BASE_ASSERT(s->n_rows <= d->max_rows && s->n_contexts <= d->max_parts);
    const int rc = d->is_head ? model_forward_draft(d->forward, &step, d->hidden_in, d->logits, d->hidden_out, &err)
                              : model_forward_step(d->forward, &step, d->logits, &err);
    if (rc == RP_OK) {
        const cost_load load = draft_load(s->n_rows, s->slots / s->n_contexts);
        cost_model_learn(&d->cost, &load, (double)(base_clock_us() - start));
        return true;
    }
    BASE_TRACE(ENGINE, "a step of the draft model failed: %s", err.message);
    for (int32_t i = 0; i < n; i++) draft_context_fail(parts[i].context);
    return false;
}

void draft_model_run(draft_model *d, draft_part *parts, int32_t n) {
    sampler drawer;
    bool goes_on = n > 0;
    BASE_ASSERT(n <= d->max_parts);
    for (int32_t k = 0; goes_on; k++) {
        draft_step s = {0};
        for (int32_t i = 0; i < n; i++)
            if (k == 0 ? parts[i].n_read > 0 : parts[i].n_draft > k && parts[i].context->n == k)
                add_part(d, &s, &parts[i]);
        if (s.n_rows == 0 || !draft_compute(d, &s, parts, n)) return;
        goes_on = false;
        for (int32_t i = 0; i < s.n_drawn; i++) {
            draft_part *p = d->drawn[i];
            draft_context *c = p->context;
            /* its arrays are scratch that each draw fills again; its random numbers are those of the answer's next
             * tokens, so that alike distributions give the same token */
            drawer = *p->sampler;
            drawer.allowed = NULL;
            for (int32_t skipped = 0; skipped < k; skipped++) sampler_skip(&drawer);
            const int32_t token =
                sampler_draw(&drawer, logits_for(d, d->logits + (size_t)i * (size_t)d->n_outputs));
            c->tokens[c->n] = draft_known(d, p, token);
            c->n++;
            const size_t width = (size_t)d->model->net.hp.n_embd;
            if (d->is_head)
                memcpy(hidden_of(d, c, DRAFT_LAG), d->hidden_out + (size_t)i * width, width * sizeof(float));
            goes_on |= p->n_draft > c->n;
        }
    }
}
