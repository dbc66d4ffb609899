/* SPDX-License-Identifier: Apache-2.0 */
/* context.c: see context.h. */
#include "kv/context.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

void kv_context_init(kv_context *c, kv_pool *pool) {
    *c = (kv_context){.pool = pool, .format = kv_pool_shape(pool)->format};
}

void kv_context_drop(kv_context *c, size_t n) {
    BASE_ASSERT(n <= c->n_views);
    for (; n > 0; n--) kv_span_unref(c->views[--c->n_views].span);
    c->open = false;
}

void kv_context_remove(kv_context *c, size_t view) {
    BASE_ASSERT(view + 1 < c->n_views);
    kv_span_unref(c->views[view].span);
    memmove(c->views + view, c->views + view + 1, (c->n_views - view - 1) * sizeof(*c->views));
    c->n_views--;
}

void kv_context_clear(kv_context *c) {
    kv_context_drop(c, c->n_views);
    base_free(c->views);
    kv_context_init(c, c->pool);
}

void kv_context_replace(kv_context *c, size_t view, kv_span *span) {
    BASE_ASSERT(view < c->n_views && kv_span_tokens(span) == kv_span_tokens(c->views[view].span));
    kv_span_unref(c->views[view].span);
    c->views[view].span = span;
}

/* Makes capacity for one more view, *v. The caller fills it in and increments n_views. */
static int next_view(kv_context *c, kv_view **v, rp_error *err) {
    int rc = base_grow((void **)&c->views, &c->cap_views, c->n_views + 1, KV_MAX_VIEWS, sizeof(kv_view));
    if (rc == RP_ERR_MEMORY) base_fail_memory(err, sizeof(kv_view) * c->n_views, "the views of a prompt");
    else if (rc) base_fail(err, rc, "the prompt needs more than %zu spans", KV_MAX_VIEWS);
    else *v = &c->views[c->n_views];
    return rc;
}

int kv_context_add(kv_context *c, kv_span *span, int32_t shift, const uint64_t *mask, rp_error *err) {
    kv_view *v = NULL;
    int rc = next_view(c, &v, err);
    if (rc) return rc;
    BASE_ASSERT(!mask || !kv_span_is_reduced(span)); /* invariant 9 */
    BASE_ASSERT(!kv_span_is_states(span));
    v->span = kv_span_ref(span);
    v->shift = shift;
    if (mask) memcpy(v->mask, mask, sizeof(v->mask));
    else kv_mask_first(v->mask, kv_span_tokens(span));
    c->n_views++;
    c->open = false;
    c->filling |= kv_span_layers_ready(span) < kv_pool_shape(c->pool)->n_layers || kv_span_has_failed(span);
    return RP_OK;
}

bool kv_context_is_ready(const kv_context *c, int32_t n) {
    for (size_t i = 0; c->filling && i < c->n_views; i++)
        if (kv_span_layers_ready(c->views[i].span) < n) return false;
    return true;
}

void kv_context_wait(const kv_context *c, int32_t n) {
    for (size_t i = 0; c->filling && i < c->n_views; i++) kv_span_wait(c->views[i].span, n);
}

bool kv_context_has_failed(const kv_context *c) {
    for (size_t i = 0; c->filling && i < c->n_views; i++)
        if (kv_span_has_failed(c->views[i].span)) return true;
    return false;
}

/* Returns true if the last span can take a token at pos. */
static bool kv_context_continues(const kv_context *c, int32_t pos) {
    if (!c->open) return false;
    BASE_ASSERT(c->n_views > 0);
    const kv_span *s = c->views[c->n_views - 1].span;
    return kv_span_tokens(s) < KV_SPAN_TOKENS &&
           (kv_span_is_scattered(s) ? pos >= kv_span_end(s) : pos == kv_span_end(s));
}

static int open_span(kv_context *c, int32_t pos, rp_error *err) {
    kv_view *v = NULL;
    int rc = next_view(c, &v, err);
    if (rc) return rc;
    *v = (kv_view){0};
    rc = c->scatters ? kv_span_new_scattered(&v->span, c->pool, c->format, pos, err)
                     : kv_span_new_in(&v->span, c->pool, c->format, pos, err);
    if (rc) return rc;
    c->n_views++;
    c->open = true;
    return RP_OK;
}

int kv_context_append(kv_context *c, int32_t pos, kv_span **span, int32_t *slot, rp_error *err) {
    int rc;
    if (!kv_context_continues(c, pos) && (rc = open_span(c, pos, err))) return rc;
    kv_view *v = &c->views[c->n_views - 1];
    if ((rc = kv_span_append(v->span, slot, err))) return rc;
    if (c->scatters) kv_span_place(v->span, pos);
    v->mask[*slot / KV_BLOCK_SLOTS] |= UINT64_C(1) << (*slot % KV_BLOCK_SLOTS);
    BASE_ASSERT(*slot < KV_SPAN_TOKENS && !kv_span_is_sealed(v->span)); /* invariant 2 */
    *span = v->span;
    return RP_OK;
}

/* Unsealed spans belong to the context. */
int64_t kv_context_trim(kv_context *c, int32_t from) {
    int64_t n = 0;
    if (!kv_pool_plan(c->pool, kv_pool_shape(c->pool)->format)->has_windows) return 0;
    for (size_t i = 0; i < c->n_views; i++) {
        const kv_view *v = &c->views[i];
        BASE_ASSERT(c->n_later == 0 || v->shift == 0 || kv_span_is_sealed(v->span));
        if (!kv_span_is_sealed(v->span)) n += kv_span_trim(v->span, from - v->shift, c->later, c->n_later);
    }
    return n;
}

void kv_context_truncate(kv_context *c, int32_t n) {
    BASE_ASSERT(n >= 0);
    while (n > 0) {
        BASE_ASSERT(c->n_views > 0);
        kv_view *v = &c->views[c->n_views - 1];
        int32_t tokens = kv_span_tokens(v->span), taken = BASE_MIN(n, tokens);
        n -= taken;
        if (taken == tokens) {
            kv_context_drop(c, 1); /* the view before it may be closed */
            continue;
        }
        kv_span_truncate(v->span, taken);
        kv_mask_clear(v->mask, tokens - taken, tokens);
        c->open = true;
    }
}

void kv_context_close(kv_context *c) { c->open = false; }

int64_t kv_context_slots(const kv_context *c) {
    int64_t n = 0;
    for (size_t i = 0; i < c->n_views; i++)
        n += kv_mask_count(c->views[i].mask);
    return n;
}

uint64_t kv_context_bytes(const kv_context *c) {
    uint64_t n = 0;
    for (size_t i = 0; i < c->n_views; i++) n += kv_span_bytes(c->views[i].span);
    return n;
}
