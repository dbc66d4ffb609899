/* SPDX-License-Identifier: Apache-2.0 */
/* template_memory.c: an arena: memory in chunks, freed together, with a limit. Errors and limits of a rendering. One
   thread. */
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "template/template_internal.h"
#include "reprise_chat.h"

#define FIRST_CHUNK_BYTES ((size_t)16 << 10)
#define MAX_CHUNK_BYTES ((size_t)4 << 20)
#define LOOK_STEPS ((uint64_t)1 << 16) /* between two looks at the caller's wish to cancel: under a millisecond */

struct arena_chunk {
    arena_chunk *before;
    alignas(max_align_t) char bytes[];
};

static bool arena_add_chunk(arena *a, size_t bytes) {
    BASE_ASSERT(a->total <= a->limit);
    size_t cap = a->cap == 0 ? FIRST_CHUNK_BYTES : a->cap * 2;
    if (cap > MAX_CHUNK_BYTES) cap = MAX_CHUNK_BYTES;
    if (cap < bytes) cap = bytes;
    if (cap > a->limit || a->total > a->limit - cap) return false;
    arena_chunk *chunk = base_alloc(sizeof(*chunk) + cap);
    if (!chunk) return false;
    chunk->before = a->last;
    a->last = chunk;
    a->used = 0;
    a->cap = cap;
    a->total += cap;
    return true;
}

void *arena_alloc(arena *a, size_t bytes) {
    BASE_ASSERT(a->used <= a->cap);
    const size_t align = alignof(max_align_t);
    if (bytes > a->limit) return NULL;
    bytes = (bytes + align - 1) / align * align;
    if ((!a->last || bytes > a->cap - a->used) && !arena_add_chunk(a, bytes)) return NULL;
    void *p = a->last->bytes + a->used;
    a->used += bytes;
    memset(p, 0, bytes);
    return p;
}

void arena_free(arena *a) {
    while (a->last) {
        arena_chunk *chunk = a->last;
        a->last = chunk->before;
        base_free(chunk);
    }
    *a = (arena){.limit = a->limit};
}

/* ---- Errors and limits ---- */

#define TEMPLATE_EXCEPTION(id, name) [id] = name,
static const char *const exception_names[N_EXCEPTIONS] = {TEMPLATE_EXCEPTIONS(TEMPLATE_EXCEPTION)};
#undef TEMPLATE_EXCEPTION

void state_fail(state *s, exception as, const char *fmt, ...) {
    va_list ap;
    BASE_ASSERT((unsigned)as < N_EXCEPTIONS);
    if (s->failed) return;
    s->failed = true;
    s->failed_as = as;
    s->code = RP_ERR_INVALID;
    int n = snprintf(s->message, sizeof(s->message), "%s: ", exception_names[as]);
    va_start(ap, fmt);
    if (n >= 0 && (size_t)n < sizeof(s->message)) vsnprintf(s->message + n, sizeof(s->message) - (size_t)n, fmt, ap);
    va_end(ap);
}

void state_fail_as(state *s, exception as, const char *message) {
    BASE_ASSERT(as < N_EXCEPTIONS);
    state_fail(s, as, "%s", "");
    snprintf(s->message, sizeof(s->message), "%s", message);
}

void state_fail_memory(state *s) {
    if (s->failed) return;
    bool limit = s->memory.total >= s->memory.limit / 2;
    state_fail(s, MEMORY_ERROR, limit ? "the template needs more than %zu bytes" : "out of memory: more than %zu bytes",
               limit ? s->memory.limit : s->memory.total);
    s->code = limit ? RP_ERR_LIMIT : RP_ERR_MEMORY;
}

bool state_look(state *s) {
    const rp_template_options *o = s->options;
    if (s->failed) return false;
    if (s->steps > s->max_steps) {
        state_fail(s, TIMEOUT_ERROR, "the template takes more than %llu steps", (unsigned long long)s->max_steps);
        s->code = RP_ERR_LIMIT;
    } else if (o->on_look && !o->on_look(o->user)) {
        state_fail(s, CANCELLED_ERROR, "the rendering was cancelled");
        s->code = RP_ERR_CANCELLED;
    }
    s->next_look = BASE_MIN(s->max_steps, s->steps + LOOK_STEPS) + 1;
    return !s->failed;
}

void *state_alloc(state *s, size_t bytes) {
    const size_t before = s->memory.total;
    void *p = state_step(s, bytes / STEP_COPIED) ? arena_alloc(&s->memory, bytes) : NULL;
    const size_t fresh = s->memory.total - before;
    if (!p) state_fail_memory(s);
    else if (fresh >= MAX_CHUNK_BYTES && !state_step(s, fresh / STEP_FRESH)) p = NULL;
    return p;
}

bool state_grow(state *s, void **items, size_t *cap, size_t need, size_t item_bytes) {
    BASE_ASSERT(item_bytes > 0);
    if (need <= *cap) return !s->failed;
    size_t more = *cap < 8 ? 16 : *cap * 2;
    if (more < need) more = need;
    void *grown = more > SIZE_MAX / item_bytes ? NULL : state_alloc(s, more * item_bytes);
    if (!grown) return false;
    if (*cap > 0) memcpy(grown, *items, *cap * item_bytes);
    *items = grown;
    *cap = more;
    return true;
}
