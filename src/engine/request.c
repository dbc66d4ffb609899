/* request.c: one request from its document to its answer.
 *
 *   plan -> compose views (computing what is missing) -> compute fresh tokens -> answer, token by token -> result
 */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/answer.h"
#include "engine/engine_internal.h"

#define DEFAULT_MAX_TOKENS 128
#define PATH_BYTES 256

/* What one request holds while it runs. */
typedef struct request {
    rp_engine *e;
    const rp_request *options;
    pml_document *document;
    pml_plan *plan;
    kv_context context;
    engine_encoding encoding;
    bool *computed; /* by item: its segment was not in the store */
    rp_result *result;
    answer answer;
    uint64_t start_us, planned_us;
    rp_error *err;
} request;

/* Strings that a result's plan points to. */
typedef struct result_owner {
    char *paths; /* [n_plan][PATH_BYTES] */
} result_owner;

rp_request rp_request_defaults(void) {
    return (rp_request){.max_tokens = DEFAULT_MAX_TOKENS, .sampling = rp_sampling_defaults()};
}

/* ---- planning ---- */

static int check_options(request *q) {
    const rp_request *o = q->options;
    int32_t n_vocab = q->e->model->hp.n_vocab;
    if (!o->prompt && !o->text) return base_fail(q->err, RP_ERR_INVALID, "a request needs a prompt or a text");
    for (int32_t i = 0; o->forced && i < o->n_forced; i++)
        if (o->forced[i] < 0 || o->forced[i] >= n_vocab)
            return base_fail(q->err, RP_ERR_INVALID, "forced token %d is %d, the vocabulary has %d", i, o->forced[i], n_vocab);
    return sampling_check(o, n_vocab, q->err);
}

static int make_plan(request *q) {
    const rp_request *o = q->options;
    rp_schema *schema;
    int rc;
    if (!o->prompt) return pml_plan_text(&q->plan, q->e->model, o->text, q->err);
    const char *name = o->prompt_name ? o->prompt_name : "prompt";
    if ((rc = pml_prompt_parse(&q->document, o->prompt, strlen(o->prompt), name, q->err)) ||
        (rc = engine_find_schema(q->e, q->document->nodes[0].name, &schema, q->err)))
        return rc;
    return pml_plan_new(&q->plan, schema->layout, q->document, q->err);
}

static int check_plan(request *q) {
    if (q->options->first_position < 0)
        return base_fail(q->err, RP_ERR_INVALID, "first_position is %d", q->options->first_position);
    if (q->options->first_position > 0 && q->document && !model_is_movable(q->e->model))
        return base_fail(q->err, RP_ERR_INVALID, "first_position is %d, and modules of architecture '%s' cannot move",
                         q->options->first_position, q->e->model->arch->name);
    int64_t end = (int64_t)q->plan->end + q->options->first_position;
    if (end > q->e->n_ctx)
        return base_fail(q->err, RP_ERR_CONTEXT,
                         "the prompt takes %lld positions, the context holds %d: shorten the prompt, or raise --ctx (the model was "
                         "trained for %d)",
                         (long long)end, q->e->n_ctx, q->e->model->hp.n_ctx_train);
    pml_plan_move(q->plan, q->options->first_position);
    return RP_OK;
}

/* ---- composing ---- */

static uint64_t tokens_of_views(const pml_plan *p) {
    uint64_t n = 0;
    for (size_t i = 0; i < p->n_items; i++)
        if (p->items[i].is_view) n += (uint64_t)p->layout->segments[p->items[i].segment].n_tokens;
    return n;
}

/* One small struct for each span; no states are touched but those that have to be computed first. */
static int compose(request *q) {
    const pml_plan *p = q->plan;
    q->computed = base_calloc(p->n_items, sizeof(bool));
    if (!q->computed) return base_fail_memory(q->err, p->n_items, "a plan");
    q->encoding = (engine_encoding){.on_progress = q->options->on_progress, .user = q->options->user, .total = tokens_of_views(p)};
    for (size_t i = 0; i < p->n_items; i++) {
        const pml_item *item = &p->items[i];
        if (!item->is_view) continue;
        segment_view view = {item->segment, item->shift, item->n_tokens, true};
        uint64_t encoded = q->encoding.done, taken = kv_pool_get_stats(q->e->pool).taken_bytes_total;
        int rc = engine_add_segment(q->e, &q->context, p->layout, &view, &q->encoding, &q->computed[i], q->err);
        if (rc) return rc;
        /* What composing took from the pool, where nothing had to be computed, is what it copied. */
        if (q->encoding.done == encoded) q->result->bytes_copied += kv_pool_get_stats(q->e->pool).taken_bytes_total - taken;
    }
    return RP_OK;
}

/* ---- fresh tokens ---- */

/* Positions of all runs, which rise from run to run (plan.h). */
static void list_runs(const pml_plan *p, int32_t *tokens, int32_t *positions) {
    size_t n = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        const pml_item *item = &p->items[i];
        for (int32_t k = 0; k < item->n_tokens && !item->is_view; k++) {
            tokens[n] = p->tokens.ids[item->first_token + (size_t)k];
            positions[n++] = item->pos + k;
        }
    }
}

static int compute_fresh(request *q) {
    const pml_plan *p = q->plan;
    bool exact = q->options->reuse == RP_REUSE_EXACT;
    size_t n = (size_t)p->n_fresh + (exact ? (size_t)p->n_cached : 0);
    int32_t *tokens = base_alloc(2 * n * sizeof(int32_t));
    if (!tokens) return base_fail_memory(q->err, 2 * n * sizeof(int32_t), "a prompt");
    int32_t *positions = tokens + n;
    int rc = RP_OK;
    if (exact) rc = pml_plan_flatten(p, tokens, positions, q->err);
    else list_runs(p, tokens, positions);
    if (!rc) rc = engine_compute(q->e, &q->context, tokens, positions, n, q->e->logits, q->err);
    base_free(tokens);
    return rc;
}

/* ---- the result ---- */

static void describe_item(const request *q, const pml_item *item, bool computed, rp_plan_item *out, char *path) {
    const pml_layout *l = q->plan->layout;
    *out = (rp_plan_item){.is_view = item->is_view, .exact = item->exact, .n_tokens = item->n_counted, .position = item->pos,
                          .shift = item->shift, .module = path, .tier = ""};
    if (item->holder < 0) memcpy(path, "prompt", sizeof("prompt"));
    else pml_path(l->schema, item->holder, path, PATH_BYTES);
    if (!item->is_view) return;
    const pml_segment *s = &l->segments[item->segment];
    base_key_hex(&pml_segment_keys(l, s)[s->n_spans - 1], out->key, 16);
    out->tier = computed ? "computed" : "ram";
}

static int describe_plan(request *q) {
    rp_result *r = q->result;
    const pml_plan *p = q->plan;
    bool exact = q->options->reuse == RP_REUSE_EXACT;
    result_owner *owner = r->owner;
    r->plan = base_calloc(p->n_items, sizeof(*r->plan));
    owner->paths = base_calloc(p->n_items, PATH_BYTES);
    if (!r->plan || !owner->paths) return base_fail_memory(q->err, p->n_items * PATH_BYTES, "a result");
    for (size_t i = 0; i < p->n_items; i++) {
        rp_plan_item *out = &r->plan[r->n_plan++];
        describe_item(q, &p->items[i], q->computed && q->computed[i], out, owner->paths + i * PATH_BYTES);
        if (!exact) continue;
        out->is_view = false;
        out->exact = true;
        out->shift = 0;
        out->tier = "";
        out->key[0] = '\0';
    }
    return RP_OK;
}

static void count_tokens(request *q) {
    rp_result *r = q->result;
    bool reused = q->options->reuse == RP_REUSE_ON;
    r->prompt_tokens = q->plan->n_cached + q->plan->n_fresh;
    for (size_t i = 0; i < q->plan->n_items && reused; i++)
        if (q->plan->items[i].is_view && !q->computed[i]) r->cached_tokens += q->plan->items[i].n_counted;
    r->fresh_tokens = r->prompt_tokens - r->cached_tokens;
}

static void fill_timings(request *q) {
    rp_timings *t = &q->result->timings;
    uint64_t end = base_clock_us(), first = q->answer.first_us ? q->answer.first_us : end;
    /* With RP_REUSE_OFF computing the modules is part of the request; with RP_REUSE_ON it is the modules' own cost. */
    uint64_t encode = q->options->reuse == RP_REUSE_OFF ? 0 : q->encoding.us;
    t->encode_ms = (double)encode / 1e3;
    t->plan_ms = (double)(q->planned_us - q->start_us - q->encoding.us) / 1e3;
    t->ttft_ms = (double)(first - q->start_us - encode) / 1e3;
    t->decode_ms = (double)(end - first) / 1e3;
    if (q->result->n_tokens > 1 && end > first) t->decode_tokens_per_second = (q->result->n_tokens - 1) * 1e6 / (double)(end - first);
}

/* What the request's context holds, modules that others hold too included. */
static uint64_t state_bytes(const kv_context *c) {
    uint64_t n = 0;
    for (size_t i = 0; i < c->n_views; i++) n += kv_span_bytes(c->views[i].span);
    return n;
}

static int finish(request *q) {
    int rc = describe_plan(q);
    if (rc) return rc;
    q->result->state_bytes = state_bytes(&q->context);
    fill_timings(q);
    return RP_OK;
}

void rp_result_free(rp_result *r) {
    if (!r) return;
    result_owner *owner = r->owner;
    if (owner) base_free(owner->paths);
    base_free(owner);
    base_free(r->text);
    base_free(r->tokens);
    base_free(r->logprobs);
    base_free(r->top_logprobs);
    base_free(r->plan);
    base_free(r);
}

/* ---- running ---- */

static int run(request *q) {
    int rc;
    q->start_us = base_clock_us();
    q->result->owner = base_calloc(1, sizeof(result_owner));
    if (!q->result->owner) return base_fail_memory(q->err, sizeof(result_owner), "a result");
    if (q->options->reuse == RP_REUSE_OFF && (rc = span_store_new(&q->e->private_store, q->err))) return rc;
    if ((rc = check_options(q)) || (rc = make_plan(q)) || (rc = check_plan(q)) ||
        (rc = answer_open(&q->answer, q->e, q->options, q->plan, q->result, q->err)))
        return rc;
    if (q->options->reuse != RP_REUSE_EXACT && (rc = compose(q))) return rc;
    q->planned_us = base_clock_us();
    if (q->options->reuse == RP_REUSE_EXACT) q->result->prompt_tokens = q->result->fresh_tokens = q->plan->n_cached + q->plan->n_fresh;
    else count_tokens(q);
    if ((rc = compute_fresh(q)) || (rc = answer_generate(&q->answer, &q->context, q->err))) return rc;
    return finish(q);
}

static void release(request *q) {
    kv_context_clear(&q->context);
    span_store_free(q->e->private_store);
    q->e->private_store = NULL;
    answer_close(&q->answer);
    base_free(q->computed);
    pml_plan_free(q->plan);
    pml_document_free(q->document);
}

int rp_engine_run(rp_engine *e, const rp_request *options, rp_result **out, rp_error *err) {
    *out = NULL;
    request q = {.e = e, .options = options, .err = err};
    q.result = base_calloc(1, sizeof(*q.result));
    if (!q.result) return base_fail_memory(err, sizeof(*q.result), "a result");
    kv_context_init(&q.context, e->pool);
    int rc = rp_engine_prepare(e, NULL, NULL, err); /* before any clock starts */
    if (!rc) rc = run(&q);
    release(&q);
    if (rc) rp_result_free(q.result);
    else *out = q.result;
    return rc;
}

/* ---- encoding a whole schema ---- */

static bool is_cached(const pml_layout *l, const pml_segment *s) { return s->holder == 0 || l->schema->nodes[s->holder].cache; }

int rp_schema_encode(rp_engine *e, const char *name, rp_on_progress on_progress, void *user, rp_error *err) {
    rp_schema *schema;
    int rc = engine_find_schema(e, name, &schema, err);
    if (rc) return rc;
    const pml_layout *l = schema->layout;
    engine_encoding encoding = {.on_progress = on_progress, .user = user, .total = l->tokens.n};
    for (int32_t i = 0; i < l->n_segments && !rc; i++) {
        if (!is_cached(l, &l->segments[i])) continue;
        kv_context c;
        kv_context_init(&c, e->pool);
        segment_view view = {i, 0, l->segments[i].n_tokens, true};
        rc = engine_add_segment(e, &c, l, &view, &encoding, NULL, err);
        kv_context_clear(&c);
    }
    return rc;
}
