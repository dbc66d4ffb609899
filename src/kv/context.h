/* SPDX-License-Identifier: Apache-2.0 */
/* context.h: a context, the ordered list of views that tokens attend to, ending in spans that grow.
 *
 *   [view of a module][view of a module][open span: fresh tokens ...]
 *
 * A prompt is composed by kv_context_add for each span, which writes one small struct and copies no KV. Fresh tokens
 * are appended to an open span that the context created and alone references. A token that does not directly follow the
 * previous one (by position, or because a view was added in between) starts a new open span, unless the context
 * scatters. Attention sums in the order of the list.
 *
 * A context belongs to one thread; while a step is computed, many threads may read it.
 */
#ifndef KV_CONTEXT_H
#define KV_CONTEXT_H

#include "kv/span_view.h"

#define KV_MAX_VIEWS ((size_t)1 << 20)

typedef struct kv_context {
    kv_pool *pool;
    kv_view *views; /* each holds one reference to its span */
    size_t n_views, cap_views;
    bool open;           /* the last view's span takes appended tokens */
    rp_kv_format format; /* of spans that tokens are appended to: the pool's, unless set before the first append */
    /* set before the first append: an open span takes any token at a higher position than its last; none is ever
     * sealed */
    bool scatters;
    bool filling; /* some spans of views may still be loading (kv_span_restore), or failed to load */
    /* [n_later], borrowed: positions of a module's later arguments, which attend to tokens appended now */
    const kv_positions *later;
    size_t n_later;
} kv_context;

void kv_context_init(kv_context *c, kv_pool *pool);
void kv_context_clear(kv_context *c); /* releases all references and memory */

/* Adds a view of a sealed span (takes a reference). mask NULL: all its tokens, as always of a reduced one.
   RP_ERR_MEMORY, RP_ERR_LIMIT. */
int kv_context_add(kv_context *c, kv_span *span, int32_t shift, const uint64_t *mask, rp_error *err);

/* Appends a slot for a token at position pos; its KV must be stored into *slot of *span (borrowed). RP_ERR_BUDGET (the
 * pool's budget), RP_ERR_MEMORY. */
int kv_context_append(kv_context *c, int32_t pos, kv_span **span, int32_t *slot, rp_error *err);

/* Removes the last n appended tokens, which nobody reads: rejected drafts. All of them must have been appended after
 * the last close. */
void kv_context_truncate(kv_context *c, int32_t n);

/* Trims (span.h) the spans that tokens were appended to. Later tokens must be at `from` or after it, or in c->later.
 * Returns the number of freed blocks. */
int64_t kv_context_trim(kv_context *c, int32_t from);

/* Ends a run: tokens appended later start a new span. */
void kv_context_close(kv_context *c);

/* Replaces the span of a view by one with the same tokens, whose only reference it takes. */
void kv_context_replace(kv_context *c, size_t view, kv_span *span);

/* Removes a view; later ones stay where they are by position. Not the last one. */
void kv_context_remove(kv_context *c, size_t view);

/* Removes the last n views, for instance the spans of a run that was computed for the store alone. */
void kv_context_drop(kv_context *c, size_t n);

/* Returns true if layers [0, n) of all spans are ready. */
bool kv_context_is_ready(const kv_context *c, int32_t n);
/* Waits until they are ready. Any thread, while no thread changes the context. */
void kv_context_wait(const kv_context *c, int32_t n);
/* Returns true if a span failed to load. */
bool kv_context_has_failed(const kv_context *c);

/* Number of selected slots of all views, of reduced ones in the head that has most: an upper bound of the slots that a
   token sees. */
int64_t kv_context_slots(const kv_context *c);
/* Bytes of the spans of all views, shared ones included. */
uint64_t kv_context_bytes(const kv_context *c);

#endif
