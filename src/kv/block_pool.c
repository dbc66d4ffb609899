/* SPDX-License-Identifier: Apache-2.0 */
/* block_pool.c: see block_pool.h. A stack of free blocks over slabs that grow on demand. */
#include "kv/block_pool.h"

#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "kv/host_memory.h"

/* Bytes allocated at once: large enough that the system call and its page faults are rare, small compared to a
 * budget. */
#define SLAB_BYTES ((size_t)16 << 20)
#define MAX_SLABS ((size_t)1 << 24)

struct kv_pool {
    kv_shape shape;
    kv_memory *memory;
    kv_pool *home; /* NULL: itself */
    size_t block_bytes;
    kv_plan plans[RP_N_KV_FORMATS];
    uint64_t max_blocks;
    kv_reclaim_fn reclaim;
    void *reclaim_user;

    pthread_cond_t filled; /* with the lock: kv_pool_wait_filled */
    pthread_mutex_t lock;  /* guards the members below */
    kv_address *slabs;
    size_t n_slabs, cap_slabs;
    uint64_t n_blocks;       /* in all slabs */
    kv_address *free_blocks; /* a stack with capacity for every block of every slab */
    size_t n_free, cap_free;
    uint64_t taken_total; /* blocks */
    int64_t n_reserved;   /* blocks that sequences may still take */
};

/* ---- life ---- */

#define MAX_STATE_BYTES (UINT32_C(1) << 30)

static bool layer_is_valid(const kv_layer_shape *l) {
    if (l->kind == KV_STATE)
        return l->state_bytes > 0 && l->state_bytes <= MAX_STATE_BYTES && l->n_heads == 0 && l->window == 0;
    return l->n_heads > 0 && l->n_heads <= 65536 && l->key_dim > 0 && l->key_dim <= 65536 && l->value_dim > 0 &&
           l->value_dim <= 65536 && l->window >= 0 && l->state_bytes == 0 &&
           (l->kind == KV_PAIRS || (l->n_heads == 1 && l->value_dim <= l->key_dim));
}

static bool shape_is_valid(const kv_shape *s) {
    bool is_valid = s->n_layers > 0 && s->n_layers <= 4096;
    for (int32_t i = 0; i < s->n_layers && is_valid; i++) is_valid = layer_is_valid(&s->layers[i]);
    return is_valid;
}

static int check_layer(const kv_plan *plan, int32_t i, rp_error *err) {
    const kv_layer *l = &plan->layers[i];
    const char *format = kv_format_name(plan->shape.format);
    if (l->kind == KV_STATE || plan->places[i].packing.per_block > 0) return RP_OK;
    if (l->kind == KV_LATENT)
        return base_fail(err, RP_ERR_UNSUPPORTED, "%s KV does not support layers with latent attention: choose f16",
                         format);
    if (!kv_layer_is_supported(l))
        return base_fail(
            err, RP_ERR_UNSUPPORTED,
            "%s KV needs heads of an even number of dimensions, at most %d: this model has %d and %d: choose f16",
            format, KV_INT_MAX_DIM, l->key_dim, l->value_dim);
    return base_fail(
        err, RP_ERR_UNSUPPORTED,
        "layers in %s do not fit into blocks of %s KV with %d heads of %d and %d dimensions: choose f16 for all layers",
        kv_format_name(l->format), format, l->n_heads, l->key_dim, l->value_dim);
}

/* Blocks of a column fit the numbers of a span's places. */
#define MAX_COLUMN_BLOCKS ((int64_t)1 << 20)

int kv_pool_new(kv_pool **out, const kv_shape *shape, uint64_t budget_bytes, kv_memory *memory, rp_error *err) {
    *out = NULL;
    if (!shape_is_valid(shape)) return base_fail(err, RP_ERR_INVALID, "a KV cache of this shape is not supported");
    const size_t n_layers = (size_t)shape->n_layers, rows = RP_N_KV_FORMATS * n_layers;
    const size_t bytes =
        sizeof(kv_pool) + (sizeof(kv_layer) + sizeof(kv_place)) * rows + sizeof(int32_t) * (n_layers + 1);
    kv_pool *p = base_calloc(1, bytes);
    if (!p) return base_fail_memory(err, bytes, "the KV block pool");
    p->shape = *shape;
    p->memory = memory ? memory : kv_host_memory();
    p->block_bytes = kv_shape_block_bytes(shape);
    kv_pool_set_budget(p, budget_bytes);
    kv_layer *layers = (kv_layer *)(p + 1);
    kv_place *places = (kv_place *)(layers + rows);
    int32_t *column = (int32_t *)(places + rows);
    for (size_t f = 0; f < RP_N_KV_FORMATS; f++)
        kv_plan_init(&p->plans[f], shape, (rp_kv_format)f, layers + f * n_layers, places + f * n_layers,
                     f == (size_t)shape->format ? column : NULL);
    const kv_plan *plan = &p->plans[shape->format];
    int rc = RP_OK;
    for (int32_t i = 0; i < plan->shape.n_layers && !rc; i++) rc = check_layer(plan, i, err);
    if (!rc && plan->column_blocks > MAX_COLUMN_BLOCKS)
        rc = base_fail(err, RP_ERR_UNSUPPORTED, "the KV of 64 tokens takes %d blocks: at most %lld",
                       plan->column_blocks, (long long)MAX_COLUMN_BLOCKS);
    if (rc) {
        base_free(p);
        return rc;
    }
    bool has_lock = pthread_mutex_init(&p->lock, NULL) == 0;
    if (!has_lock || pthread_cond_init(&p->filled, NULL) != 0) {
        if (has_lock) pthread_mutex_destroy(&p->lock);
        base_free(p);
        return base_fail_memory(err, sizeof(*p), "a lock");
    }
    *out = p;
    return RP_OK;
}

void kv_pool_set_home(kv_pool *p, kv_pool *home) {
    BASE_ASSERT(home != p && home->block_bytes == p->block_bytes);
    p->home = home;
}

kv_pool *kv_pool_home(kv_pool *p) { return p->home ? p->home : p; }

void kv_pool_free(kv_pool *p) {
    if (!p) return;
    for (size_t i = 0; i < p->n_slabs; i++) p->memory->ops->free(p->memory, p->slabs[i]);
    base_free(p->slabs);
    base_free(p->free_blocks);
    pthread_cond_destroy(&p->filled);
    pthread_mutex_destroy(&p->lock);
    base_free(p);
}

void kv_pool_set_reclaim(kv_pool *p, kv_reclaim_fn reclaim, void *user) {
    p->reclaim = reclaim;
    p->reclaim_user = user;
}

void kv_pool_set_budget(kv_pool *p, uint64_t budget_bytes) {
    BASE_ASSERT(p->n_blocks == 0);
    p->max_blocks = budget_bytes / p->block_bytes;
}

const kv_shape *kv_pool_shape(const kv_pool *p) { return &p->shape; }
size_t kv_pool_block_bytes(const kv_pool *p) { return p->block_bytes; }
kv_memory *kv_pool_memory(const kv_pool *p) { return p->memory; }
const kv_plan *kv_pool_plan(const kv_pool *p, rp_kv_format format) { return &p->plans[format]; }

/* Adds a slab of up to SLAB_BYTES (at least one block) within the budget. The caller holds the lock. False: budget or
 * memory is used up. */
static bool add_slab(kv_pool *p) {
    uint64_t left = p->max_blocks - p->n_blocks;
    uint64_t n = BASE_MAX(SLAB_BYTES / p->block_bytes, 1);
    n = BASE_MIN(n, left);
    if (n == 0) return false;
    if (base_grow((void **)&p->slabs, &p->cap_slabs, p->n_slabs + 1, MAX_SLABS, sizeof(*p->slabs))) return false;
    if (base_grow((void **)&p->free_blocks, &p->cap_free, p->n_blocks + n, SIZE_MAX / sizeof(*p->free_blocks),
                  sizeof(*p->free_blocks)))
        return false;
    const kv_address slab = p->memory->ops->alloc(p->memory, (size_t)n * p->block_bytes, p->block_bytes);
    if (kv_address_is_none(slab)) return false;
    p->slabs[p->n_slabs++] = slab;
    p->n_blocks += n;
    BASE_ASSERT(p->n_blocks <= p->max_blocks); /* invariant 5 */
    for (uint64_t i = n; i-- > 0;) p->free_blocks[p->n_free++] = kv_address_plus(slab, i * p->block_bytes);
    BASE_TRACE(KV, "slab of %llu blocks, %zu slabs", (unsigned long long)n, p->n_slabs);
    return true;
}

/* RP_ERR_BUDGET: the budget is used up; RP_ERR_MEMORY: it is not, but the machine is out of memory. */
static int try_take(kv_pool *p, kv_address *out, size_t n) {
    pthread_mutex_lock(&p->lock);
    while (p->n_free < n && add_slab(p)) {}
    int rc = p->n_free >= n ? RP_OK : p->n_blocks < p->max_blocks ? RP_ERR_MEMORY
                                                                  : RP_ERR_BUDGET;
    if (!rc) {
        for (size_t i = 0; i < n; i++) out[i] = p->free_blocks[--p->n_free];
        p->taken_total += n;
        BASE_ASSERT(p->n_free <= p->n_blocks);
    }
    pthread_mutex_unlock(&p->lock);
    return rc;
}

int kv_pool_take(kv_pool *p, kv_address *out, size_t n, rp_error *err) {
    for (int rc; (rc = try_take(p, out, n));) {
        if (p->reclaim && p->reclaim(p->reclaim_user)) continue;
        if (rc == RP_ERR_MEMORY) return base_fail_memory(err, (uint64_t)n * p->block_bytes, "KV blocks");
        return base_fail(err, RP_ERR_BUDGET,
                         "out of KV cache: %zu more blocks of %zu bytes exceed the budget of %llu bytes: raise "
                         "kv_budget_bytes or ram_bytes, or shorten the prompt",
                         n, p->block_bytes, (unsigned long long)(p->max_blocks * p->block_bytes));
    }
    return RP_OK;
}

void kv_pool_give(kv_pool *p, const kv_address *blocks, size_t n) {
    pthread_mutex_lock(&p->lock);
    BASE_ASSERT(n <= p->n_blocks - p->n_free); /* invariant 5: no block is freed twice */
    for (size_t i = 0; i < n; i++) p->free_blocks[p->n_free++] = blocks[i];
    pthread_mutex_unlock(&p->lock);
}

void kv_pool_wait_filled(kv_pool *p, const atomic_int *count, int n) {
    pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(count, memory_order_acquire) < n) pthread_cond_wait(&p->filled, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void kv_pool_notify_filled(kv_pool *p) {
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->filled);
    pthread_mutex_unlock(&p->lock);
}

void kv_pool_give_last(kv_pool *p, const kv_address *blocks, size_t n) {
    pthread_mutex_lock(&p->lock);
    BASE_ASSERT(n <= p->n_blocks - p->n_free); /* invariant 5 */
    memmove(p->free_blocks + n, p->free_blocks, sizeof(*blocks) * p->n_free);
    for (size_t i = 0; i < n; i++) p->free_blocks[i] = blocks[n - 1 - i];
    p->n_free += n;
    pthread_mutex_unlock(&p->lock);
}

void kv_pool_reserve(kv_pool *p, int64_t delta) {
    pthread_mutex_lock(&p->lock);
    p->n_reserved += delta;
    BASE_ASSERT(p->n_reserved >= 0);
    pthread_mutex_unlock(&p->lock);
}

kv_pool_stats kv_pool_get_stats(kv_pool *p) {
    pthread_mutex_lock(&p->lock);
    kv_pool_stats s = {
        .budget_bytes = p->max_blocks * p->block_bytes,
        .used_bytes = (p->n_blocks - p->n_free) * p->block_bytes,
        .slab_bytes = p->n_blocks * p->block_bytes,
        .taken_bytes_total = p->taken_total * p->block_bytes,
        .reserved_blocks = p->n_reserved,
    };
    pthread_mutex_unlock(&p->lock);
    return s;
}
