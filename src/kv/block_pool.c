/* SPDX-License-Identifier: Apache-2.0 */
/* block_pool.c: see block_pool.h. A stack of free blocks over slabs that grow on demand. */
#include "kv/block_pool.h"

#include <pthread.h>

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernels/kernels.h"

/* Bytes allocated at once: large enough that the system call and its page faults are rare, small compared to a
 * budget. */
#define SLAB_BYTES ((size_t)16 << 20)
#define MAX_SLABS ((size_t)1 << 24)

struct kv_pool {
    kv_shape shape;
    kv_memory memory;
    size_t block_bytes;
    int32_t *column; /* kv_pool_column */
    uint64_t max_blocks;
    kv_reclaim_fn reclaim;
    void *reclaim_user;

    pthread_cond_t filled; /* with the lock: kv_pool_wait_filled */
    pthread_mutex_t lock;  /* guards the members below */
    void **slabs;
    size_t n_slabs, cap_slabs;
    uint64_t n_blocks;    /* in all slabs */
    void **free_blocks;   /* a stack with capacity for every block of every slab */
    size_t n_free, cap_free;
    uint64_t taken_total; /* blocks */
    int64_t n_reserved;   /* blocks that sequences may still take */
};

static void *cpu_alloc(void *user, size_t bytes) {
    (void)user;
    return base_alloc_aligned(bytes, 64);
}

static void cpu_release(void *user, void *p) {
    (void)user;
    base_free(p);
}

/* ---- sizes ---- */

static size_t side_bytes(const kv_shape *s, bool is_key) {
    const kv_element e = kv_format_side(s->format, is_key);
    const int32_t dim = is_key ? s->key_dim : s->value_dim;
    if (e == KV_ELEMENT_INT8) return (size_t)kernel_int8_bytes(dim);
    if (kv_element_is_encoded(e)) return (size_t)(is_key ? kernel_bits_key_bytes : kernel_bits_value_bytes)(kv_element_bits(e), dim);
    return (size_t)KV_BLOCK_SLOTS * (size_t)dim * (size_t)kv_element_bits(e) / 8;
}

size_t kv_shape_key_bytes(const kv_shape *s) { return side_bytes(s, true); }
size_t kv_shape_value_bytes(const kv_shape *s) { return side_bytes(s, false); }

size_t kv_shape_cell_bytes(const kv_shape *s) { return kv_shape_key_bytes(s) + kv_shape_value_bytes(s); }
size_t kv_shape_block_bytes(const kv_shape *s) { return (size_t)s->n_kv_heads * kv_shape_cell_bytes(s); }

bool kv_shape_mixes(const kv_shape *s) {
    bool mixes = false;
    for (int32_t i = 0; i < s->n_layers && !mixes; i++) mixes = kv_shape_layer_format(s, i) != s->format;
    return mixes;
}

size_t kv_shape_most_block_bytes(const kv_shape *s) {
    const kv_shape f16 = kv_shape_in(s, RP_KV_F16);
    return kv_shape_block_bytes(kv_shape_mixes(s) ? &f16 : s);
}

uint64_t kv_shape_token_bytes(const kv_shape *s) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < s->n_layers; i++) {
        const kv_shape layer = kv_shape_of_layer(s, i);
        bytes += kv_shape_block_bytes(&layer);
    }
    return bytes / KV_BLOCK_SLOTS;
}

#define INT8_MAX_DIM 16384 /* sums of 16-bit queries by codes fit 32 bits */

bool kv_shape_is_supported(const kv_shape *s) {
    return !kv_format_is_int(s->format) || (s->key_dim % 2 == 0 && s->value_dim % 2 == 0 && s->key_dim <= INT8_MAX_DIM);
}

kv_packing kv_shape_packing(const kv_shape *s, rp_kv_format format) {
    const kv_shape shape = kv_shape_in(s, format);
    kv_packing packing = {.per_cell = 1};
    if (!kv_shape_is_supported(&shape)) return packing;
    const size_t block = kv_shape_block_bytes(s), apart = BASE_MAX(kv_shape_key_bytes(&shape), kv_shape_value_bytes(&shape));
    packing.part_bytes = kv_shape_cell_bytes(&shape);
    if (format == RP_KV_F16 && block / apart > 2 * (block / packing.part_bytes)) packing = (kv_packing){.per_cell = 2, .part_bytes = apart};
    const size_t n = block / packing.part_bytes;
    packing.per_block = n > INT32_MAX ? INT32_MAX : (int32_t)n;
    return packing;
}

int32_t kv_shape_f16_blocks(const kv_shape *s) {
    const kv_packing packing = kv_shape_packing(s, RP_KV_F16);
    return packing.per_block > 0 ? (s->n_kv_heads * packing.per_cell + packing.per_block - 1) / packing.per_block : 0;
}

/* ---- slots of a block ---- */

/* One head's keys or values as rows of 64 slots of `unit` bytes; the codes of int8 values, of pairs of slots, are apart. */
typedef struct slot_rows {
    size_t n_rows, unit, first; /* first: offset of the rows in the head */
    int32_t paired_dim;         /* > 0: int8 values */
} slot_rows;

static slot_rows rows_of(const kv_shape *s, bool is_key) {
    const int32_t dim = is_key ? s->key_dim : s->value_dim;
    const kv_element e = kv_format_side(s->format, is_key);
    const size_t element = (size_t)kv_element_bits(e) / 8;
    if (kv_element_is_encoded(e)) return (slot_rows){0, 0, 0, 0}; /* bits of unused slots are 0 (kernel_encode_keys) */
    if (e == KV_ELEMENT_INT8 && is_key) return (slot_rows){(size_t)dim / 2 + 1, 2, 0, 0};
    if (e == KV_ELEMENT_INT8) return (slot_rows){1, 2, (size_t)dim * KV_BLOCK_SLOTS, dim};
    return is_key ? (slot_rows){(size_t)dim, element, 0, 0} : (slot_rows){1, element * (size_t)dim, 0, 0};
}

static void clear_rows(const slot_rows *r, uint8_t *head, int from) {
    for (size_t i = 0; i < r->n_rows; i++) {
        uint8_t *row = head + r->first + i * r->unit * KV_BLOCK_SLOTS;
        memset(row + r->unit * (size_t)from, 0, r->unit * (size_t)(KV_BLOCK_SLOTS - from));
    }
    for (int slot = from; r->paired_dim > 0 && slot < KV_BLOCK_SLOTS; slot++)
        for (int32_t d = 0; d < r->paired_dim; d++) head[(slot / 2 * r->paired_dim + d) * 2 + slot % 2] = 0;
}

static bool same_rows(const slot_rows *r, const uint8_t *a, int slot_a, const uint8_t *b, int slot_b) {
    for (size_t i = 0; i < r->n_rows; i++) {
        const size_t row = r->first + i * r->unit * KV_BLOCK_SLOTS;
        if (memcmp(a + row + r->unit * (size_t)slot_a, b + row + r->unit * (size_t)slot_b, r->unit) != 0) return false;
    }
    for (int32_t d = 0; d < r->paired_dim; d++)
        if (a[(slot_a / 2 * r->paired_dim + d) * 2 + slot_a % 2] != b[(slot_b / 2 * r->paired_dim + d) * 2 + slot_b % 2]) return false;
    return true;
}

void kv_copy_slot(const kv_shape *s, bool is_key, const void *from, int slot_from, void *to, int slot_to) {
    const slot_rows r = rows_of(s, is_key);
    const uint8_t *a = from;
    uint8_t *b = to;
    BASE_ASSERT(!kv_element_is_encoded(kv_format_side(s->format, is_key)));
    for (size_t i = 0; i < r.n_rows; i++) {
        const size_t row = r.first + i * r.unit * KV_BLOCK_SLOTS;
        memcpy(b + row + r.unit * (size_t)slot_to, a + row + r.unit * (size_t)slot_from, r.unit);
    }
    for (int32_t d = 0; d < r.paired_dim; d++)
        b[(slot_to / 2 * r.paired_dim + d) * 2 + slot_to % 2] = a[(slot_from / 2 * r.paired_dim + d) * 2 + slot_from % 2];
}

void kv_block_clear_slots(const kv_shape *s, void *block, int from) {
    const slot_rows keys = rows_of(s, true), values = rows_of(s, false);
    uint8_t *at = block;
    BASE_ASSERT(from >= 0 && from <= KV_BLOCK_SLOTS);
    for (int32_t h = 0; h < s->n_kv_heads; h++, at += kv_shape_key_bytes(s)) clear_rows(&keys, at, from);
    for (int32_t h = 0; h < s->n_kv_heads; h++, at += kv_shape_value_bytes(s)) clear_rows(&values, at, from);
}

bool kv_block_same_slot(const kv_shape *s, const void *a, int slot_a, const void *b, int slot_b) {
    const slot_rows keys = rows_of(s, true), values = rows_of(s, false);
    size_t at = 0;
    bool same = true;
    BASE_ASSERT(!kv_format_is_encoded(s->format));
    for (int32_t h = 0; h < s->n_kv_heads && same; h++, at += kv_shape_key_bytes(s))
        same = same_rows(&keys, (const uint8_t *)a + at, slot_a, (const uint8_t *)b + at, slot_b);
    at = (size_t)s->n_kv_heads * kv_shape_key_bytes(s);
    for (int32_t h = 0; h < s->n_kv_heads && same; h++, at += kv_shape_value_bytes(s))
        same = same_rows(&values, (const uint8_t *)a + at, slot_a, (const uint8_t *)b + at, slot_b);
    return same;
}

/* ---- used slots ---- */

/* Rows of bytes, of which the first ones belong to used slots. */
typedef struct used_rows {
    size_t n_rows, row_bytes, used_bytes;
} used_rows;

#define MAX_USED_ROWS 3

/* Those of one head's keys or values, in their order, with n used slots. Returns their number. */
static int used_rows_of(const kv_shape *s, bool is_key, int n, used_rows out[MAX_USED_ROWS]) {
    const size_t dim = (size_t)(is_key ? s->key_dim : s->value_dim), used = (size_t)n, pairs = (used + 1) / 2;
    const kv_element e = kv_format_side(s->format, is_key);
    const int bits = kv_element_bits(e);
    const size_t element = (size_t)bits / 8;
    const used_rows scales = {1, 2 * KV_BLOCK_SLOTS, 2 * used}, zero_points = {1, KV_BLOCK_SLOTS, used}, ranges = {1, 4 * dim, 4 * dim};
    if (!kv_element_is_int(e)) {
        out[0] = is_key ? (used_rows){dim, KV_BLOCK_SLOTS * element, used * element}
                        : (used_rows){1, KV_BLOCK_SLOTS * dim * element, used * dim * element};
        return 1;
    }
    if (bits == 8) {
        out[0] = is_key ? (used_rows){dim / 2, 2 * KV_BLOCK_SLOTS, 2 * used} : (used_rows){1, KV_BLOCK_SLOTS * dim, pairs * 2 * dim};
        out[1] = scales;
        return 2;
    }
    if (is_key) {
        const size_t row = bits == 4 ? KV_BLOCK_SLOTS : KV_BLOCK_SLOTS / 2; /* 2 bits: a byte holds slots j and j + 32 */
        out[0] = (used_rows){dim / 2, row, BASE_MIN(used, row)};
        out[1] = ranges;
        return 2;
    }
    const size_t rows = bits == 4 ? KV_BLOCK_SLOTS / 2 : KV_BLOCK_SLOTS / 4; /* 2 bits: slots 2 i, 2 i + 1, and 32 after them */
    out[0] = (used_rows){1, rows * dim, BASE_MIN(pairs, rows) * dim};
    out[1] = scales;
    out[2] = zero_points;
    return 3;
}

static size_t used_bytes_of(const kv_shape *s, bool is_key, int n) {
    used_rows rows[MAX_USED_ROWS];
    size_t bytes = 0;
    const int n_parts = used_rows_of(s, is_key, n, rows);
    for (int i = 0; i < n_parts; i++) bytes += rows[i].n_rows * rows[i].used_bytes;
    return bytes;
}

size_t kv_block_used_bytes(const kv_shape *s, int n) {
    BASE_ASSERT(n >= 1 && n <= KV_BLOCK_SLOTS);
    return (size_t)s->n_kv_heads * (used_bytes_of(s, true, n) + used_bytes_of(s, false, n));
}

size_t kv_block_pack(const kv_shape *s, void *block, int n) {
    const uint8_t *from = block;
    uint8_t *to = block;
    used_rows rows[MAX_USED_ROWS];
    for (int is_key = 1; is_key >= 0; is_key--) {
        const int n_parts = used_rows_of(s, is_key, n, rows);
        for (int32_t i = 0; i < s->n_kv_heads * n_parts; i++) {
            const used_rows *r = &rows[i % n_parts];
            for (size_t row = 0; row < r->n_rows; row++, from += r->row_bytes, to += r->used_bytes) memmove(to, from, r->used_bytes);
        }
    }
    BASE_DCHECK(to == (uint8_t *)block + kv_block_used_bytes(s, n));
    return (size_t)(to - (uint8_t *)block);
}

void kv_block_unpack(const kv_shape *s, void *block, int n) {
    const uint8_t *from = (const uint8_t *)block + kv_block_used_bytes(s, n);
    uint8_t *to = (uint8_t *)block + kv_shape_block_bytes(s);
    used_rows rows[MAX_USED_ROWS];
    for (int is_key = 0; is_key < 2; is_key++) { /* from the end: no row overwrites one that is still to be moved */
        const int n_parts = used_rows_of(s, is_key, n, rows);
        for (int32_t i = s->n_kv_heads * n_parts; i-- > 0;) {
            const used_rows *r = &rows[i % n_parts];
            for (size_t row = 0; row < r->n_rows; row++) {
                from -= r->used_bytes;
                to -= r->row_bytes;
                memmove(to, from, r->used_bytes);
                memset(to + r->used_bytes, 0, r->row_bytes - r->used_bytes);
            }
        }
    }
    BASE_DCHECK(from == block && to == block);
}

static bool shape_is_valid(const kv_shape *s) {
    return s->n_layers > 0 && s->n_layers <= 4096 && s->n_kv_heads > 0 && s->n_kv_heads <= 65536 && s->key_dim > 0 &&
           s->key_dim <= 65536 && s->value_dim > 0 && s->value_dim <= 65536;
}

static int check_pool_shape(const kv_shape *shape, rp_error *err) {
    if (!shape_is_valid(shape)) return base_fail(err, RP_ERR_INVALID, "a KV cache of this shape is not supported");
    if (!kv_shape_is_supported(shape))
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "%s KV needs heads of an even number of dimensions, at most %d: this model has %d and %d: choose f16",
                         kv_format_name(shape->format), INT8_MAX_DIM, shape->key_dim, shape->value_dim);
    if (kv_shape_mixes(shape) && kv_shape_f16_blocks(shape) == 0)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "layers in f16 do not fit into blocks of %s KV with %d heads of %d and %d dimensions: choose f16 for all layers",
                         kv_format_name(shape->format), shape->n_kv_heads, shape->key_dim, shape->value_dim);
    return RP_OK;
}

static void fill_column(const kv_shape *shape, int32_t *column) {
    for (int32_t i = 0; i < shape->n_layers; i++)
        column[i + 1] = column[i] + (kv_shape_layer_format(shape, i) == shape->format ? 1 : kv_shape_f16_blocks(shape));
}

int kv_pool_new(kv_pool **out, const kv_shape *shape, uint64_t budget_bytes, const kv_memory *memory, rp_error *err) {
    *out = NULL;
    int rc = check_pool_shape(shape, err);
    if (rc) return rc;
    const size_t bytes = sizeof(kv_pool) + sizeof(int32_t) * ((size_t)shape->n_layers + 1);
    kv_pool *p = base_calloc(1, bytes);
    if (!p) return base_fail_memory(err, bytes, "the KV block pool");
    p->shape = *shape;
    p->memory = memory ? *memory : (kv_memory){cpu_alloc, cpu_release, NULL};
    p->block_bytes = kv_shape_block_bytes(shape);
    p->max_blocks = budget_bytes / p->block_bytes;
    p->column = (int32_t *)(p + 1);
    fill_column(shape, p->column);
    bool has_lock = pthread_mutex_init(&p->lock, NULL) == 0;
    if (!has_lock || pthread_cond_init(&p->filled, NULL) != 0) {
        if (has_lock) pthread_mutex_destroy(&p->lock);
        base_free(p);
        return base_fail_memory(err, sizeof(*p), "a lock");
    }
    *out = p;
    return RP_OK;
}

void kv_pool_free(kv_pool *p) {
    if (!p) return;
    for (size_t i = 0; i < p->n_slabs; i++) p->memory.release(p->memory.user, p->slabs[i]);
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

const kv_shape *kv_pool_shape(const kv_pool *p) { return &p->shape; }
size_t kv_pool_block_bytes(const kv_pool *p) { return p->block_bytes; }
const int32_t *kv_pool_column(const kv_pool *p) { return p->column; }

/* Adds a slab of up to SLAB_BYTES (at least one block) within the budget. The caller holds the lock. False: budget or
 * memory is used up. */
static bool add_slab(kv_pool *p) {
    uint64_t left = p->max_blocks - p->n_blocks;
    uint64_t n = BASE_MAX(SLAB_BYTES / p->block_bytes, 1);
    n = BASE_MIN(n, left);
    if (n == 0) return false;
    if (base_grow((void **)&p->slabs, &p->cap_slabs, p->n_slabs + 1, MAX_SLABS, sizeof(void *))) return false;
    if (base_grow((void **)&p->free_blocks, &p->cap_free, p->n_blocks + n, SIZE_MAX / sizeof(void *), sizeof(void *)))
        return false;
    char *slab = p->memory.alloc(p->memory.user, (size_t)n * p->block_bytes);
    if (!slab) return false;
    p->slabs[p->n_slabs++] = slab;
    p->n_blocks += n;
    BASE_ASSERT(p->n_blocks <= p->max_blocks); /* invariant 5 */
    for (uint64_t i = n; i-- > 0;) p->free_blocks[p->n_free++] = slab + i * p->block_bytes;
    BASE_TRACE(KV, "slab of %llu blocks, %zu slabs", (unsigned long long)n, p->n_slabs);
    return true;
}

/* RP_ERR_BUDGET: the budget is used up; RP_ERR_MEMORY: it is not, but the machine is out of memory. */
static int try_take(kv_pool *p, void **out, size_t n) {
    pthread_mutex_lock(&p->lock);
    while (p->n_free < n && add_slab(p)) {}
    int rc = p->n_free >= n ? RP_OK : p->n_blocks < p->max_blocks ? RP_ERR_MEMORY : RP_ERR_BUDGET;
    if (!rc) {
        for (size_t i = 0; i < n; i++) out[i] = p->free_blocks[--p->n_free];
        p->taken_total += n;
        BASE_ASSERT(p->n_free <= p->n_blocks);
    }
    pthread_mutex_unlock(&p->lock);
    return rc;
}

int kv_pool_take(kv_pool *p, void **out, size_t n, rp_error *err) {
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

void kv_pool_give(kv_pool *p, void *const *blocks, size_t n) {
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
