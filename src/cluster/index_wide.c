/* SPDX-License-Identifier: Apache-2.0 */
/* index_wide.c: see index_wide.h. */
#include "cluster/index_wide.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "cluster/index.h"

static uint64_t *wide_words(const index_wide_pool *p, uint32_t entry, size_t *n_words) {
    BASE_DCHECK(entry / INDEX_WIDE_CHUNK < p->n_chunks);
    const index_wide_chunk *c = &p->chunks[entry / INDEX_WIDE_CHUNK];
    *n_words = c->n_words;
    return c->words + (size_t)(entry % INDEX_WIDE_CHUNK) * INDEX_WIDE_PLANES * c->n_words;
}

static uint64_t chunk_bytes(size_t n_words) {
    return (uint64_t)INDEX_WIDE_CHUNK * INDEX_WIDE_PLANES * n_words * sizeof(uint64_t);
}

void index_wide_close(index_wide_pool *p) {
    for (size_t i = 0; i < p->n_chunks; i++) base_free(p->chunks[i].words);
    base_free(p->chunks);
    *p = (index_wide_pool){0};
}

/* Adds a chunk of free entries, the last one first, so that low numbers are used first. */
static int wide_add_chunk(index_wide_pool *p) {
    if (p->n_chunks >= CLUSTER_INDEX_MAX_WIDE / INDEX_WIDE_CHUNK) return RP_ERR_LIMIT;
    const size_t cap = p->chunks_cap;
    if (p->n_chunks == cap) {
        int rc = base_grow((void **)&p->chunks, &p->chunks_cap, p->n_chunks + 1,
                           CLUSTER_INDEX_MAX_WIDE / INDEX_WIDE_CHUNK, sizeof *p->chunks);
        if (rc) return rc;
        p->bytes += (p->chunks_cap - cap) * sizeof *p->chunks;
    }
    index_wide_chunk c = {.words = base_calloc(1, chunk_bytes(1)), .n_words = 1};
    if (!c.words) return RP_ERR_MEMORY;
    p->bytes += chunk_bytes(1);
    p->chunks[p->n_chunks] = c;
    for (uint32_t i = INDEX_WIDE_CHUNK; i-- > 0;) {
        c.words[(size_t)i * INDEX_WIDE_PLANES] = p->free;
        p->free = (uint32_t)p->n_chunks * INDEX_WIDE_CHUNK + i + 1;
    }
    p->n_chunks++;
    return RP_OK;
}

int index_wide_add(index_wide_pool *p, uint32_t *entry) {
    size_t n_words;
    int rc = p->free ? RP_OK : wide_add_chunk(p);
    if (rc) return rc;
    *entry = p->free - 1;
    uint64_t *words = wide_words(p, *entry, &n_words);
    p->free = (uint32_t)words[0];
    words[0] = 0;
    p->used++;
    BASE_ASSERT(p->used <= p->n_chunks * INDEX_WIDE_CHUNK);
    return RP_OK;
}

void index_wide_remove(index_wide_pool *p, uint32_t entry) {
    size_t n_words;
    BASE_ASSERT(p->used > 0 && p->free != entry + 1); /* no entry is freed twice */
    uint64_t *words = wide_words(p, entry, &n_words);
    memset(words, 0, INDEX_WIDE_PLANES * n_words * sizeof *words);
    words[0] = p->free;
    p->free = entry + 1;
    if (--p->used == 0) index_wide_close(p);
}

static int wide_grow(index_wide_pool *p, index_wide_chunk *c, size_t n_words) {
    BASE_ASSERT(n_words > c->n_words && n_words <= CLUSTER_MAX_NODES / 64);
    uint64_t *words = base_calloc(1, chunk_bytes(n_words));
    if (!words) return RP_ERR_MEMORY;
    for (size_t i = 0; i < (size_t)INDEX_WIDE_CHUNK * INDEX_WIDE_PLANES; i++)
        memcpy(words + i * n_words, c->words + i * c->n_words, c->n_words * sizeof *words);
    p->bytes += chunk_bytes(n_words) - chunk_bytes(c->n_words);
    base_free(c->words);
    *c = (index_wide_chunk){words, (uint32_t)n_words};
    return RP_OK;
}

int index_wide_set(index_wide_pool *p, uint32_t entry, int32_t node, uint32_t planes) {
    size_t n_words, word = (size_t)node / 64;
    BASE_ASSERT(planes >> INDEX_WIDE_PLANES == 0 && (planes == 0 || (planes & 7) != 0)); /* a holder has tiers */
    if (word >= p->chunks[entry / INDEX_WIDE_CHUNK].n_words) {
        int rc = planes ? wide_grow(p, &p->chunks[entry / INDEX_WIDE_CHUNK], word + 1) : RP_OK;
        if (rc || !planes) return rc;
    }
    uint64_t *words = wide_words(p, entry, &n_words);
    const uint64_t bit = (uint64_t)1 << node % 64;
    for (int i = 0; i < INDEX_WIDE_PLANES; i++) {
        uint64_t *w = &words[(size_t)i * n_words + word];
        *w = planes >> i & 1 ? *w | bit : *w & ~bit;
    }
    return RP_OK;
}

uint32_t index_wide_get(const index_wide_pool *p, uint32_t entry, int32_t node) {
    size_t n_words, word = (size_t)node / 64;
    const uint64_t *words = wide_words(p, entry, &n_words);
    uint32_t planes = 0;
    for (int i = 0; i < INDEX_WIDE_PLANES && word < n_words; i++)
        planes |= (uint32_t)(words[(size_t)i * n_words + word] >> node % 64 & 1) << i;
    return planes;
}

/* Nodes of a word that hold the name. */
static uint64_t wide_holders(const uint64_t *words, size_t n_words, size_t word) {
    return words[word] | words[n_words + word] | words[2 * n_words + word];
}

int32_t index_wide_next(const index_wide_pool *p, uint32_t entry, int32_t node) {
    size_t n_words;
    const uint64_t *words = wide_words(p, entry, &n_words);
    size_t from = (size_t)(node + 1);
    for (size_t word = from / 64; word < n_words; word++, from = 0) {
        const uint64_t left = wide_holders(words, n_words, word) & ~(uint64_t)0 << from % 64;
        if (left) return (int32_t)(word * 64 + (size_t)base_ctz64(left));
    }
    return -1;
}

bool index_wide_word(const index_wide_pool *p, uint32_t entry, int32_t word, uint64_t planes[3], uint64_t *holders) {
    size_t n_words;
    const uint64_t *words = wide_words(p, entry, &n_words);
    if ((size_t)word >= n_words) return false;
    for (size_t i = 0; i < 3; i++) planes[i] = words[i * n_words + (size_t)word];
    *holders = planes[0] | planes[1] | planes[2];
    return true;
}

int32_t index_wide_count(const index_wide_pool *p, uint32_t entry) {
    size_t n_words;
    const uint64_t *words = wide_words(p, entry, &n_words);
    int32_t n = 0;
    for (size_t word = 0; word < n_words; word++) n += base_popcount64(wide_holders(words, n_words, word));
    return n;
}
