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

/* Blocks in one memory. */
typedef struct pool_part {
    kv_memory *memory;
    uint64_t max_blocks; /* of the part alone */
    kv_address *slabs;
    size_t n_slabs, cap_slabs;
    uint64_t n_blocks;       /* in all slabs */
    kv_address *free_blocks; /* a stack with capacity for every block of every slab */
    size_t n_free, cap_free;
} pool_part;

/* The part of a block is a bit of its name (kv_block_address). */
enum { PART_OWN,
       PART_HOST, /* of layers before host_layers */
       N_PARTS };
#define HOST_BIT ((uint64_t)1)

struct kv_pool {
    kv_shape shape;
    kv_pool *home; /* NULL: itself */
    size_t block_bytes;
    kv_plan plans[RP_N_KV_FORMATS];
    uint64_t max_blocks; /* of all parts */
    int32_t host_layers; /* 0: all blocks are of PART_OWN */
    kv_reclaim_fn reclaim;
    void *reclaim_user;

    pthread_cond_t filled; /* with the lock: kv_pool_wait_filled */
    pthread_mutex_t lock;  /* guards the members below */
    pool_part parts[N_PARTS];
    uint64_t taken_total; /* blocks */
    int64_t n_reserved;   /* blocks that sequences may still take */
};

/* In all slabs. */
static uint64_t blocks_of(const kv_pool *p) { return p->parts[PART_OWN].n_blocks + p->parts[PART_HOST].n_blocks; }
static uint64_t used_of(const kv_pool *p) {
    return blocks_of(p) - p->parts[PART_OWN].n_free - p->parts[PART_HOST].n_free;
}

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
    p->parts[PART_OWN].memory = memory ? memory : kv_host_memory();
    p->parts[PART_HOST].memory = kv_host_memory();
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
    for (pool_part *part = p->parts; part < p->parts + N_PARTS; part++) {
        for (size_t i = 0; i < part->n_slabs; i++) part->memory->ops->free(part->memory, part->slabs[i]);
        base_free(part->slabs);
        base_free(part->free_blocks);
    }
    pthread_cond_destroy(&p->filled);
    pthread_mutex_destroy(&p->lock);
    base_free(p);
}

void kv_pool_set_reclaim(kv_pool *p, kv_reclaim_fn reclaim, void *user) {
    p->reclaim = reclaim;
    p->reclaim_user = user;
}

void kv_pool_set_budget(kv_pool *p, uint64_t budget_bytes) {
    BASE_ASSERT(blocks_of(p) == 0 && p->host_layers == 0);
    p->max_blocks = p->parts[PART_OWN].max_blocks = budget_bytes / p->block_bytes;
}

/* ---- two memories ---- */

/* Blocks of a span in the two parts. */
typedef struct part_blocks {
    uint64_t own, host;
} part_blocks;

/* Of 64 tokens, without layers with a window of less than `least`: they are freed before those with a larger one. */
static part_blocks column_of(const kv_pool *p, int32_t least) {
    const kv_plan *plan = &p->plans[p->shape.format];
    part_blocks n = {0};
    for (int32_t i = 0; i < p->shape.n_layers; i++) {
        const int32_t window = p->shape.layers[i].window;
        if (window > 0 && window < least) continue;
        *(i < p->host_layers ? &n.host : &n.own) += (uint64_t)plan->places[i].n_blocks;
    }
    return n;
}

static part_blocks states_of(const kv_pool *p) {
    part_blocks n = {0};
    for (int32_t i = 0; i < p->shape.n_layers; i++)
        *(i < p->host_layers ? &n.host : &n.own) += kv_state_blocks(&p->shape.layers[i], p->block_bytes);
    return n;
}

/* The most blocks of spans that are divided so, of which the part takes at most `most`. */
static uint64_t most_of_all(uint64_t most, uint64_t of_part, part_blocks n) {
    const uint64_t all = n.own + n.host;
    return of_part == 0 ? UINT64_MAX : most / of_part * all + most % of_part * all / of_part;
}

static void limit(kv_pool *p, part_blocks n) {
    p->max_blocks = BASE_MIN(p->max_blocks, most_of_all(p->parts[PART_OWN].max_blocks, n.own, n));
    p->max_blocks = BASE_MIN(p->max_blocks, most_of_all(p->parts[PART_HOST].max_blocks, n.host, n));
}

#define MOST_PART_BLOCKS ((uint64_t)1 << 40)

/* Spans are columns of 64 tokens, some of them without the layers of smaller windows, and states: no sum of these takes
 * a larger share of a part than one of them. */
void kv_pool_divide(kv_pool *p, int32_t n_layers, uint64_t host_bytes, uint64_t most_bytes) {
    BASE_ASSERT(blocks_of(p) == 0 && p->host_layers == 0 && n_layers > 0 && n_layers < p->shape.n_layers);
    p->host_layers = n_layers;
    p->parts[PART_OWN].max_blocks = BASE_MIN(p->parts[PART_OWN].max_blocks, MOST_PART_BLOCKS);
    p->parts[PART_HOST].max_blocks = BASE_MIN(host_bytes / p->block_bytes, MOST_PART_BLOCKS);
    p->max_blocks = BASE_MIN(most_bytes / p->block_bytes, N_PARTS * MOST_PART_BLOCKS);
    limit(p, states_of(p));
    limit(p, column_of(p, INT32_MAX));
    limit(p, column_of(p, 0));
    for (int32_t i = 0; i < p->shape.n_layers; i++)
        if (p->shape.layers[i].window > 0) limit(p, column_of(p, p->shape.layers[i].window));
    for (size_t f = 0; f < RP_N_KV_FORMATS; f++) /* their cells share blocks */
        if (f != (size_t)p->shape.format) p->plans[f].column_blocks = -1;
}

int32_t kv_pool_host_layers(const kv_pool *p) { return p->host_layers; }

kv_memory *kv_pool_layer_memory(const kv_pool *p, int32_t layer) {
    return p->parts[layer < p->host_layers ? PART_HOST : PART_OWN].memory;
}

const kv_shape *kv_pool_shape(const kv_pool *p) { return &p->shape; }
size_t kv_pool_block_bytes(const kv_pool *p) { return p->block_bytes; }
kv_memory *kv_pool_memory(const kv_pool *p) { return p->parts[PART_OWN].memory; }
const kv_plan *kv_pool_plan(const kv_pool *p, rp_kv_format format) { return &p->plans[format]; }

/* Adds a slab of up to SLAB_BYTES (at least one block) within the part's budget. The caller holds the lock. False:
 * budget or memory is used up. */
static bool add_slab(kv_pool *p, pool_part *part) {
    uint64_t left = part->max_blocks - part->n_blocks;
    uint64_t n = BASE_MAX(SLAB_BYTES / p->block_bytes, 1);
    n = BASE_MIN(n, left);
    if (n == 0) return false;
    if (base_grow((void **)&part->slabs, &part->cap_slabs, part->n_slabs + 1, MAX_SLABS, sizeof(*part->slabs)))
        return false;
    if (base_grow((void **)&part->free_blocks, &part->cap_free, part->n_blocks + n,
                  SIZE_MAX / sizeof(*part->free_blocks), sizeof(*part->free_blocks)))
        return false;
    const kv_address slab = part->memory->ops->alloc(part->memory, (size_t)n * p->block_bytes, p->block_bytes);
    if (kv_address_is_none(slab)) return false;
    part->slabs[part->n_slabs++] = slab;
    part->n_blocks += n;
    BASE_ASSERT(part->n_blocks <= part->max_blocks); /* invariant 5 */
    const uint64_t bit = part == &p->parts[PART_HOST] ? HOST_BIT : 0;
    BASE_ASSERT((slab.at & HOST_BIT) == 0); /* blocks are aligned */
    for (uint64_t i = n; i-- > 0;)
        part->free_blocks[part->n_free++] = (kv_address){(slab.at + i * p->block_bytes) | bit};
    BASE_TRACE(KV, "slab of %llu blocks, %zu slabs", (unsigned long long)n, part->n_slabs);
    return true;
}

/* Has the part n free blocks? The caller holds the lock. RP_ERR_BUDGET: its budget is used up; RP_ERR_MEMORY: it is
 * not, but the memory is. */
static int part_fill(kv_pool *p, pool_part *part, size_t n) {
    while (part->n_free < n && add_slab(p, part)) {}
    return part->n_free >= n ? RP_OK : part->n_blocks < part->max_blocks ? RP_ERR_MEMORY
                                                                         : RP_ERR_BUDGET;
}

static void part_take(pool_part *part, kv_address *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = part->free_blocks[--part->n_free];
    BASE_ASSERT(part->n_free <= part->n_blocks);
}

/* RP_ERR_BUDGET: the budget is used up; RP_ERR_MEMORY: it is not, but the machine is out of memory. */
static int try_take(kv_pool *p, kv_address *out, size_t n_host, size_t n) {
    pthread_mutex_lock(&p->lock);
    int rc = part_fill(p, &p->parts[PART_OWN], n - n_host);
    if (!rc) rc = part_fill(p, &p->parts[PART_HOST], n_host);
    if (!rc && used_of(p) + n > p->max_blocks) rc = RP_ERR_BUDGET;
    if (!rc) {
        part_take(&p->parts[PART_HOST], out, n_host);
        part_take(&p->parts[PART_OWN], out + n_host, n - n_host);
        p->taken_total += n;
    }
    pthread_mutex_unlock(&p->lock);
    return rc;
}

int kv_pool_take_both(kv_pool *p, kv_address *out, size_t n_host, size_t n, rp_error *err) {
    BASE_ASSERT(n_host <= n && (n_host == 0 || p->host_layers > 0));
    for (int rc; (rc = try_take(p, out, n_host, n));) {
        if (p->reclaim && p->reclaim(p->reclaim_user)) continue;
        if (rc == RP_ERR_MEMORY) return base_fail_memory(err, (uint64_t)n * p->block_bytes, "KV blocks");
        return base_fail(err, RP_ERR_BUDGET,
                         "out of KV cache: %zu more blocks of %zu bytes exceed the budget of %llu bytes: raise "
                         "kv_budget_bytes or ram_bytes, or shorten the prompt",
                         n, p->block_bytes, (unsigned long long)(p->max_blocks * p->block_bytes));
    }
    return RP_OK;
}

int kv_pool_take(kv_pool *p, kv_address *out, size_t n, rp_error *err) {
    BASE_ASSERT(p->host_layers == 0);
    return kv_pool_take_both(p, out, 0, n, err);
}

void kv_pool_give(kv_pool *p, const kv_address *blocks, size_t n) {
    pthread_mutex_lock(&p->lock);
    BASE_ASSERT(n <= used_of(p)); /* invariant 5: no block is freed twice */
    for (size_t i = 0; i < n; i++) {
        pool_part *part = &p->parts[blocks[i].at & HOST_BIT ? PART_HOST : PART_OWN];
        BASE_ASSERT(part->n_free < part->n_blocks);
        part->free_blocks[part->n_free++] = blocks[i];
    }
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
    pool_part *part = &p->parts[PART_OWN];
    pthread_mutex_lock(&p->lock);
    BASE_ASSERT(p->host_layers == 0 && n <= part->n_blocks - part->n_free); /* invariant 5 */
    memmove(part->free_blocks + n, part->free_blocks, sizeof(*blocks) * part->n_free);
    for (size_t i = 0; i < n; i++) part->free_blocks[i] = blocks[n - 1 - i];
    part->n_free += n;
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
        .used_bytes = used_of(p) * p->block_bytes,
        .slab_bytes = blocks_of(p) * p->block_bytes,
        .host_slab_bytes = p->parts[PART_HOST].n_blocks * p->block_bytes,
        .host_budget_bytes = BASE_MIN(p->parts[PART_HOST].max_blocks, p->max_blocks) * p->block_bytes,
        .taken_bytes_total = p->taken_total * p->block_bytes,
        .reserved_blocks = p->n_reserved,
    };
    pthread_mutex_unlock(&p->lock);
    return s;
}
