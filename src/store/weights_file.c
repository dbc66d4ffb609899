/* SPDX-License-Identifier: Apache-2.0 */
/* weights_file.c: see weights_file.h. */
#include "store/weights_file.h"

#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

#define FIXED_BYTES 144
#define ROW_BYTES 16
#define SUM_BYTES 8
#define PAGE_BYTES 4096                /* data begin at a multiple: pages of the map */
#define HUGE_BYTES ((uint64_t)2 << 20) /* of larger files: file systems with large folios map them in huge pages */
#define HUGE_FROM (8 * HUGE_BYTES)
#define FILE_VERSION 1
#define MAX_MATRICES (1u << 20)          /* 4,096 layers with 256 matrices each */
#define PIECE_BYTES ((size_t)8 << 20)    /* of a write or a read, between two calls of on_progress */
#define SYNC_BYTES ((uint64_t)256 << 20) /* written between two syncs: the last one then takes no minute */

static const uint8_t magic[8] = {0x89, 'R', 'P', 'W', 0x0d, 0x0a, 0x1a, 0x0a};

const char *weights_fault_name(weights_fault fault) {
    static const char *const names[] = {
#define X(id, name) name,
        WEIGHTS_FAULTS(X)
#undef X
    };
    return names[fault];
}

/* ---- numbers ---- */

static void put_u32(uint8_t *to, uint32_t v) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(v >> 8 * i);
}

static void put_u64(uint8_t *to, uint64_t v) {
    for (int i = 0; i < 8; i++) to[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t get_u32(const uint8_t *from) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) v |= (uint32_t)from[i] << 8 * i;
    return v;
}

static uint64_t get_u64(const uint8_t *from) { return get_u32(from) | (uint64_t)get_u32(from + 4) << 32; }

static uint64_t header_bytes(uint64_t n) { return FIXED_BYTES + ROW_BYTES * n + SUM_BYTES; }

static uint64_t data_offset(const backend_packed *packed) {
    const uint64_t unit = packed->total < HUGE_FROM ? PAGE_BYTES : HUGE_BYTES;
    return (header_bytes(packed->n) + unit - 1) / unit * unit;
}

uint64_t weights_file_bytes(const backend_packed *packed) { return data_offset(packed) + packed->total; }

/* ---- reading ---- */

void weights_header_free(weights_header *h) {
    base_free(h->bytes);
    base_free(h->sums);
    h->bytes = h->sums = NULL;
}

/* Reads exactly n bytes. */
static weights_fault read_exactly(const base_io_file *f, uint64_t offset, void *to, size_t n, rp_error *err) {
    size_t n_read;
    if (base_io_read(f, offset, to, n, &n_read, err)) return WEIGHTS_IO;
    return n_read == n ? WEIGHTS_OK : WEIGHTS_TRUNCATED;
}

static weights_fault get_fixed(weights_header *out, const uint8_t *b) {
    if (memcmp(b, magic, sizeof(magic)) != 0) return WEIGHTS_DAMAGED;
    if (get_u32(b + 8) != FILE_VERSION) return WEIGHTS_VERSION;
    out->n = get_u32(b + 12);
    memcpy(out->digest.bytes, b + 16, BASE_KEY_BYTES);
    out->side = get_u32(b + 48);
    out->version = get_u32(b + 52);
    out->file_bytes = get_u64(b + 56);
    out->data_begin = get_u64(b + 64);
    out->created = (int64_t)get_u64(b + 72);
    memcpy(out->name, b + 80, WEIGHTS_NAME_BYTES);
    const bool fits = out->n > 0 && out->n <= MAX_MATRICES && out->data_begin % PAGE_BYTES == 0;
    return fits && out->data_begin >= header_bytes(out->n) && out->data_begin <= out->file_bytes ? WEIGHTS_OK
                                                                                                 : WEIGHTS_DAMAGED;
}

/* The table adds up to the file's end: every offset is inside the file. */
static weights_fault get_table(weights_header *out, const uint8_t *b) {
    BASE_ASSERT(out->n > 0 && out->n <= MAX_MATRICES && out->data_begin <= out->file_bytes); /* get_fixed */
    uint64_t end = out->data_begin;
    for (uint32_t i = 0; i < out->n; i++) {
        out->bytes[i] = get_u64(b + ROW_BYTES * (size_t)i);
        out->sums[i] = get_u64(b + ROW_BYTES * (size_t)i + 8);
        if (out->bytes[i] % BACKEND_PACKED_ALIGNMENT != 0 || out->bytes[i] > out->file_bytes - end)
            return WEIGHTS_DAMAGED;
        end += out->bytes[i];
    }
    return end == out->file_bytes ? WEIGHTS_OK : WEIGHTS_DAMAGED;
}

static weights_fault read_table(const base_io_file *f, weights_header *out, rp_error *err) {
    const size_t n = (size_t)header_bytes(out->n);
    uint8_t *b = base_alloc(n);
    out->bytes = base_calloc(out->n, sizeof(*out->bytes));
    out->sums = base_calloc(out->n, sizeof(*out->sums));
    weights_fault fault = b && out->bytes && out->sums ? read_exactly(f, 0, b, n, err) : WEIGHTS_IO;
    if (!b || !out->bytes || !out->sums) base_fail_memory(err, n, "a file of repacked weights");
    if (!fault && XXH3_64bits(b, n - SUM_BYTES) != get_u64(b + n - SUM_BYTES)) fault = WEIGHTS_DAMAGED;
    if (!fault) fault = get_table(out, b + FIXED_BYTES);
    base_free(b);
    return fault;
}

weights_fault weights_file_read(const base_io_file *f, weights_header *out, rp_error *err) {
    uint8_t fixed[FIXED_BYTES];
    base_io_sizes sizes;
    *out = (weights_header){0};
    if (base_io_stat_file(f, &sizes, err)) return WEIGHTS_IO;
    if (!sizes.is_private) return WEIGHTS_OWNER;
    weights_fault fault = read_exactly(f, 0, fixed, sizeof(fixed), err);
    if (!fault) fault = get_fixed(out, fixed);
    if (!fault && out->file_bytes != sizes.bytes)
        fault = sizes.bytes < out->file_bytes ? WEIGHTS_TRUNCATED : WEIGHTS_DAMAGED;
    if (!fault) fault = read_table(f, out, err);
    if (fault) weights_header_free(out);
    return fault;
}

weights_fault weights_file_match(const weights_header *h, const base_key *digest, const backend_packed *packed) {
    if (!base_key_equal(&h->digest, digest)) return WEIGHTS_MODEL;
    if (h->side != packed->side || h->version != packed->version) return WEIGHTS_LEVEL;
    if (h->n != packed->n || memcmp(h->bytes, packed->bytes, packed->n * sizeof(*packed->bytes)) != 0)
        return WEIGHTS_LAYOUT;
    return WEIGHTS_OK;
}

weights_fault weights_file_verify(const base_io_file *f, const weights_header *h, rp_on_progress on_progress,
                                  void *user, rp_error *err) {
    uint64_t at = h->data_begin;
    weights_fault fault = WEIGHTS_OK;
    void *piece = base_alloc(PIECE_BYTES);
    if (!piece) {
        base_fail_memory(err, PIECE_BYTES, "a file of repacked weights");
        return WEIGHTS_IO;
    }
    for (uint32_t i = 0; i < h->n && !fault; i++) {
        XXH3_state_t state;
        XXH3_INITSTATE(&state);
        XXH3_64bits_reset(&state);
        for (uint64_t done = 0, n; done < h->bytes[i] && !fault; done += n, at += n) {
            n = BASE_MIN((uint64_t)PIECE_BYTES, h->bytes[i] - done);
            fault = read_exactly(f, at, piece, (size_t)n, err);
            if (!fault) XXH3_64bits_update(&state, piece, (size_t)n);
            if (on_progress) on_progress(user, at + n, h->file_bytes);
        }
        BASE_ASSERT(fault || at <= h->file_bytes); /* get_table */
        if (!fault && XXH3_64bits_digest(&state) != h->sums[i]) fault = WEIGHTS_DAMAGED;
    }
    base_free(piece);
    return fault;
}

/* ---- writing ---- */

/* The header with the zeros after it: data_offset bytes. */
static void put_header(uint8_t *b, const base_key *digest, const backend_packed *packed, const char *name,
                       const char *data) {
    memcpy(b, magic, sizeof(magic));
    put_u32(b + 8, FILE_VERSION);
    put_u32(b + 12, (uint32_t)packed->n);
    memcpy(b + 16, digest->bytes, BASE_KEY_BYTES);
    put_u32(b + 48, packed->side);
    put_u32(b + 52, packed->version);
    put_u64(b + 56, weights_file_bytes(packed));
    put_u64(b + 64, data_offset(packed));
    put_u64(b + 72, (uint64_t)time(NULL));
    for (size_t i = 0; i < WEIGHTS_NAME_BYTES && name[i]; i++) b[80 + i] = (uint8_t)name[i];
    for (size_t i = 0; i < packed->n; i++) {
        put_u64(b + FIXED_BYTES + ROW_BYTES * i, packed->bytes[i]);
        put_u64(b + FIXED_BYTES + ROW_BYTES * i + 8, XXH3_64bits(data, (size_t)packed->bytes[i]));
        data += packed->bytes[i];
    }
    const size_t sum_at = (size_t)header_bytes(packed->n) - SUM_BYTES;
    BASE_ASSERT(sum_at + SUM_BYTES <= data_offset(packed) && sum_at == FIXED_BYTES + ROW_BYTES * packed->n);
    put_u64(b + sum_at, XXH3_64bits(b, sum_at));
}

static int write_data(const base_io_file *f, const char *data, uint64_t total, rp_on_progress on_progress, void *user,
                      rp_error *err) {
    int rc = RP_OK;
    uint64_t unsynced = 0;
    for (uint64_t done = 0; done < total && !rc;) {
        const size_t n = (size_t)BASE_MIN((uint64_t)PIECE_BYTES, total - done);
        rc = base_io_writev(f, &(struct iovec){(void *)(uintptr_t)(data + done), n}, 1, err);
        done += n;
        unsynced += n;
        BASE_ASSERT(n > 0 && done <= total);
        if (!rc && unsynced >= SYNC_BYTES && done < total) {
            rc = base_io_sync(f, err);
            unsynced = 0;
        }
        if (on_progress) on_progress(user, done, total);
    }
    return rc ? rc : base_io_sync(f, err);
}

int weights_file_write(const base_io_file *f, const base_key *digest, const backend_packed *packed, const char *name,
                       const char *data, rp_on_progress on_progress, void *user, rp_error *err) {
    const size_t n = (size_t)data_offset(packed);
    BASE_ASSERT(packed->n > 0 && packed->n <= MAX_MATRICES);
    int rc = base_io_reserve(f, weights_file_bytes(packed), err);
    if (rc) return rc;
    uint8_t *header = base_calloc(1, n);
    if (!header) return base_fail_memory(err, n, "a file of repacked weights");
    put_header(header, digest, packed, name, data);
    rc = base_io_writev(f, &(struct iovec){header, n}, 1, err);
    base_free(header);
    return rc ? rc : write_data(f, data, packed->total, on_progress, user, err);
}
