/* SPDX-License-Identifier: Apache-2.0 */
/* kv_blocks.c: see kv_blocks.h. The table is open-addressed: names are hashes already. */
#include "server/node/kv_blocks.h"

#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/list.h"
#include "base/memory.h"

#define FIRST_BUCKETS 1024 /* a power of two */

typedef struct held_block {
    BASE_LINKS(struct held_block)
    order, change;
    rp_name name, parent;
    uint64_t round;     /* of `taken`: in a later round nothing has been taken */
    uint8_t now, taken; /* RP_TIER_* */
    bool changed;       /* is in `changed` */
    int32_t tokens[RP_NAME_TOKENS];
} held_block;

struct kv_blocks {
    pthread_mutex_t lock; /* guards all of the rest */
    held_block **buckets; /* [n_buckets], at most half of them used */
    size_t n_buckets, n;
    BASE_LIST(held_block)
    order, changed;
    held_block *cursor;
    uint64_t round, left_out;
};

int kv_blocks_new(kv_blocks **out, rp_error *err) {
    kv_blocks *b = *out = base_calloc(1, sizeof(*b));
    if (!b) return base_fail_memory(err, sizeof(*b), "blocks of KV events");
    pthread_mutex_init(&b->lock, NULL);
    b->n_buckets = FIRST_BUCKETS;
    b->buckets = base_calloc(b->n_buckets, sizeof(held_block *));
    return b->buckets ? RP_OK : base_fail_memory(err, b->n_buckets * sizeof(held_block *), "blocks of KV events");
}

void kv_blocks_free(kv_blocks *b) {
    if (!b) return;
    for (held_block *h = b->order.first, *next; h; h = next) {
        next = h->order.next;
        base_free(h);
    }
    base_free(b->buckets);
    pthread_mutex_destroy(&b->lock);
    base_free(b);
}

/* ---- the table ---- */

static size_t name_bucket(const kv_blocks *b, const rp_name *name) {
    uint64_t h;
    memcpy(&h, name->bytes, sizeof(h));
    return (size_t)h & (b->n_buckets - 1);
}

/* The bucket of a name, or the empty one where it would be. */
static size_t find_bucket(const kv_blocks *b, const rp_name *name) {
    BASE_ASSERT(b->n * 2 <= b->n_buckets && (b->n_buckets & (b->n_buckets - 1)) == 0); /* there is an empty one */
    size_t i = name_bucket(b, name);
    while (b->buckets[i] && memcmp(&b->buckets[i]->name, name, sizeof(*name)) != 0) i = (i + 1) & (b->n_buckets - 1);
    return i;
}

static int grow_buckets(kv_blocks *b) {
    held_block **grown = base_calloc(2 * b->n_buckets, sizeof(held_block *));
    if (!grown) return RP_ERR_MEMORY;
    base_free(b->buckets);
    b->buckets = grown;
    b->n_buckets *= 2;
    for (held_block *h = b->order.first; h; h = h->order.next) b->buckets[find_bucket(b, &h->name)] = h;
    return RP_OK;
}

/* Empties a bucket, and moves those after it that would not be found any more. */
static void clear_bucket(kv_blocks *b, size_t i) {
    BASE_ASSERT(i < b->n_buckets && b->buckets[i]);
    const size_t mask = b->n_buckets - 1;
    b->buckets[i] = NULL;
    for (size_t k = (i + 1) & mask; b->buckets[k]; k = (k + 1) & mask) {
        const size_t home = name_bucket(b, &b->buckets[k]->name);
        if (((k - home) & mask) < ((k - i) & mask)) continue;
        b->buckets[i] = b->buckets[k];
        b->buckets[k] = NULL;
        i = k;
    }
}

/* ---- lists ---- */

static void unlink_order(kv_blocks *b, held_block *h) {
    if (b->cursor == h) b->cursor = h->order.next;
    BASE_LIST_REMOVE(&b->order, h, order);
}

/* ---- changes ---- */

static held_block *new_block(kv_blocks *b, const rp_block_change *c) {
    if (b->n >= KV_BLOCKS_MAX || (b->n * 2 >= b->n_buckets && grow_buckets(b))) return NULL;
    held_block *h = base_calloc(1, sizeof(*h));
    if (!h) return NULL;
    h->name = c->name;
    h->parent = c->parent;
    h->round = b->round;
    memcpy(h->tokens, c->tokens, sizeof(h->tokens));
    const size_t i = find_bucket(b, &h->name);
    BASE_ASSERT(!b->buckets[i]); /* change_block has not found it */
    b->buckets[i] = h;
    BASE_LIST_APPEND(&b->order, h, order);
    b->n++;
    return h;
}

static void change_block(kv_blocks *b, const rp_block_change *c) {
    held_block *h = b->buckets[find_bucket(b, &c->name)];
    const uint8_t tiers = (uint8_t)(c->tiers & (RP_TIER_RAM | RP_TIER_DISK));
    if (!h && tiers == 0) return;
    if (!h && !(h = new_block(b, c))) {
        b->left_out++;
        return;
    }
    if (h->now == 0) { /* its parent may be held for a shorter time than it was */
        unlink_order(b, h);
        BASE_LIST_APPEND(&b->order, h, order);
    }
    h->now = tiers;
    if (h->changed) return;
    h->changed = true;
    BASE_LIST_APPEND(&b->changed, h, change);
}

void kv_blocks_change(void *blocks, const rp_block_change *changes, size_t n) {
    kv_blocks *b = blocks;
    pthread_mutex_lock(&b->lock);
    for (size_t i = 0; i < n; i++) change_block(b, &changes[i]);
    pthread_mutex_unlock(&b->lock);
}

/* ---- taking ---- */

/* Whether there is a difference, which is taken. */
static bool take_block(kv_blocks *b, held_block *h, kv_block_change *out) {
    const uint32_t now = h->now, taken = h->round == b->round ? h->taken : 0;
    h->round = b->round;
    h->taken = h->now;
    if (now == taken) return false;
    *out = (kv_block_change){.name = h->name, .parent = h->parent, .stored = now & ~taken, .removed = taken & ~now};
    memcpy(out->tokens, h->tokens, sizeof(out->tokens));
    return true;
}

static void free_unheld(kv_blocks *b, held_block *h) {
    BASE_DCHECK(h->now == 0 && !h->changed);
    const size_t i = find_bucket(b, &h->name);
    BASE_ASSERT(b->n > 0 && b->buckets[i] == h);
    clear_bucket(b, i);
    unlink_order(b, h);
    base_free(h);
    b->n--;
}

/* The next block to look at: all of `order` after a restart, then what has changed. */
static held_block *next_block(kv_blocks *b) {
    held_block *h = b->cursor;
    if (h) {
        b->cursor = h->order.next;
        return h;
    }
    h = b->changed.first;
    if (!h) return NULL;
    BASE_ASSERT(h->changed);
    BASE_LIST_REMOVE(&b->changed, h, change);
    h->changed = false;
    return h;
}

size_t kv_blocks_take(kv_blocks *b, kv_block_change *out, size_t most) {
    size_t n = 0;
    held_block *h;
    most = BASE_MIN(most, (size_t)KV_BLOCKS_PIECE);
    pthread_mutex_lock(&b->lock);
    for (size_t steps = 1; n < most && (h = next_block(b)); steps++) {
        n += take_block(b, h, &out[n]);
        if (h->now == 0 && !h->changed) free_unheld(b, h);
        if (steps % KV_BLOCKS_PIECE) continue;
        if (n > 0) break;
        pthread_mutex_unlock(&b->lock); /* many that make no difference: the engine's thread may wait */
        pthread_mutex_lock(&b->lock);
    }
    pthread_mutex_unlock(&b->lock);
    return n;
}

void kv_blocks_restart(kv_blocks *b) {
    pthread_mutex_lock(&b->lock);
    b->round++;
    b->cursor = b->order.first;
    pthread_mutex_unlock(&b->lock);
}

size_t kv_blocks_count(kv_blocks *b) {
    pthread_mutex_lock(&b->lock);
    const size_t n = b->n;
    pthread_mutex_unlock(&b->lock);
    return n;
}

uint64_t kv_blocks_left_out(kv_blocks *b) {
    pthread_mutex_lock(&b->lock);
    const uint64_t n = b->left_out;
    pthread_mutex_unlock(&b->lock);
    return n;
}
