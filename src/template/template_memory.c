/* SPDX-License-Identifier: Apache-2.0 */
/* template_memory.c: an arena: memory in chunks, freed together, with a limit. One thread. */
#include <stdalign.h>
#include <string.h>

#include "base/memory.h"
#include "template/template_internal.h"

#define FIRST_CHUNK_BYTES ((size_t)16 << 10)
#define MAX_CHUNK_BYTES ((size_t)4 << 20)

struct arena_chunk {
    arena_chunk *before;
    alignas(max_align_t) char bytes[];
};

static bool arena_add_chunk(arena *a, size_t bytes) {
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
