/* SPDX-License-Identifier: Apache-2.0 */
/* context.h: a context, the ordered list of views that tokens attend to, ending in spans that grow.
 *
 *   [view of a module][view of a module][open span: fresh tokens ...]
 *
 * Composing a prompt is kv_context_add for each span: it writes one small struct and copies no states. Fresh tokens are appended: they
 * get slots in an open span, which the context made and alone holds; a token that does not follow the one before it (by
 * position, or because a view was added in between) begins another, unless the context scatters. The order of the list is the order of attention's sums.
 *
 * A context belongs to one thread, but many threads may read it while a step is computed.
 */
#ifndef KV_CONTEXT_H
#define KV_CONTEXT_H

#include "kv/span.h"

#define KV_MAX_VIEWS ((size_t)1 << 20)

typedef struct kv_context {
    kv_pool *pool;
    kv_view *views; /* each holds one reference to its span */
    size_t n_views, cap_views;
    bool open;      /* the last view's span takes appended tokens */
    bool scatters;  /* set before the first append: an open span takes any token that stands higher than its last; none is ever sealed */
    bool filling;   /* spans of views may still be read from elsewhere (kv_span_restore), or could not be */
    const kv_positions *later; /* [n_later], borrowed: where a module's arguments will read what is appended now */
    size_t n_later;
} kv_context;

void kv_context_init(kv_context *c, kv_pool *pool);
void kv_context_clear(kv_context *c); /* drops all references and memory */

/* Adds a view of a sealed span (takes a reference). mask NULL: all its tokens. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int kv_context_add(kv_context *c, kv_span *span, int32_t shift, const uint64_t *mask, rp_error *err);

/* Makes a slot for a token at position pos. *span (borrowed) and *slot say where its states go. RP_ERR_BUDGET (the pool's budget), RP_ERR_MEMORY. */
int kv_context_append(kv_context *c, int32_t pos, kv_span **span, int32_t *slot, rp_error *err);

/* Takes back the last n appended tokens, which nobody reads: drafts that were wrong. All of them stand behind the last close. */
void kv_context_truncate(kv_context *c, int32_t n);

/* Trims (span.h) the spans that tokens were appended to: what is to come stands at `from` or behind it, or reads from c->later.
 * Returns how many blocks it gave back. */
int64_t kv_context_trim(kv_context *c, int32_t from);

/* From here on appended tokens go into a new span (the end of a run). */
void kv_context_close(kv_context *c);

/* Drops the last n views, for instance the spans of a run that was only computed to be kept elsewhere. */
void kv_context_drop(kv_context *c, size_t n);

/* Are layers [0, n) of all spans ready? */
bool kv_context_is_ready(const kv_context *c, int32_t n);
/* Waits until they are. Any thread, while nobody changes the context. */
void kv_context_wait(const kv_context *c, int32_t n);
/* Could one of the spans not be filled in? */
bool kv_context_has_failed(const kv_context *c);

/* Slots that count, over all views: no token sees more. */
int64_t kv_context_slots(const kv_context *c);

#endif
