/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c: frames of a span stream, written and read.
 *
 * Owns the byte format, its limits and tags; not the meaning of frames (view.c), nor the time of writing (journal.c). A
 * reader has one user at a time, all other functions are stateless. A reader's memory is proportional to the bytes that
 * have arrived, up to one frame: a length alone allocates nothing.
 */
#define _POSIX_C_SOURCE 200809L /* strnlen */
#include "cluster/wire.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"

#define LENGTH_BYTES ((size_t)4)
#define SHORTEST_FRAME ((size_t)1 + CLUSTER_TAG_BYTES)
#define HELLO_BYTES 48 /* before its strings */
#define LOAD_BYTES 217
#define LONGEST_HELLO (HELLO_BYTES + 5 * 256)

_Static_assert(LOAD_BYTES == 80 + 8 * RP_COST_KNOTS + 4 * 8 + 1, "the table in wire.h");
_Static_assert(CLUSTER_NODE_NAME_BYTES <= 256, "a string's length has one byte");

/* ---- Numbers ---- */

static void put_f64(uint8_t *p, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    base_put_u64(p, bits);
}

static double get_f64(const uint8_t *p) {
    const uint64_t bits = base_get_u64(p);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint64_t at_most(uint64_t v, uint64_t most) { return BASE_MIN(v, most); }
static uint32_t natural_i32(int32_t v) { return v < 0 ? 0 : (uint32_t)v; }
static uint64_t natural_i64(int64_t v, uint64_t most) { return v < 0 ? 0 : at_most((uint64_t)v, most); }
static double natural_f64(double v) { return v > 0 ? fmin(v, CLUSTER_MOST_COEFFICIENT_US) : 0; } /* NaN: 0 */

uint64_t cluster_name_hash(const rp_name *name, uint32_t tiers) {
    /* Names are hashes already: it suffices that both halves and the tiers affect every bit (the finalizer of
     * MurmurHash3). */
    uint64_t h = base_get_u64(name->bytes) ^ (base_get_u64(name->bytes + 8) + tiers) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 33;
}

/* ---- Tags ---- */

void cluster_stream_key_make(cluster_stream_key *out, const uint8_t *secret, const uint8_t nonce[CLUSTER_NONCE_BYTES]) {
    base_hash h;
    base_key key;
    base_hash_init(&h, "reprise cluster stream 1");
    base_hash_bytes(&h, secret, RP_CLUSTER_KEY_BYTES);
    base_hash_bytes(&h, nonce, CLUSTER_NONCE_BYTES);
    base_hash_final(&h, &key);
    memcpy(out->bytes, key.bytes, sizeof out->bytes);
}

/* content: kind and body. */
static void frame_tag(uint8_t tag[CLUSTER_TAG_BYTES], const cluster_stream_key *key, uint64_t number,
                      const uint8_t *content, size_t n) {
    crypto_generichash_state state;
    uint8_t prefix[8];
    base_put_u64(prefix, number);
    int rc = crypto_generichash_init(&state, key->bytes, sizeof key->bytes, CLUSTER_TAG_BYTES);
    rc |= crypto_generichash_update(&state, prefix, sizeof prefix);
    rc |= crypto_generichash_update(&state, content, n);
    rc |= crypto_generichash_final(&state, tag, CLUSTER_TAG_BYTES);
    BASE_ASSERT(rc == 0);
}

/* ---- Writing ---- */

/* Reserves space for a frame with a body of n bytes, to be written to *body. frame_end signs it then. */
static int frame_begin(base_buffer *out, uint8_t kind, size_t n, uint8_t **body) {
    if (n > CLUSTER_MAX_FRAME - SHORTEST_FRAME) return RP_ERR_LIMIT;
    int rc = base_buffer_reserve(out, LENGTH_BYTES + SHORTEST_FRAME + n);
    if (rc) return rc;
    uint8_t *p = (uint8_t *)out->data + out->len;
    base_put_u32(p, (uint32_t)(SHORTEST_FRAME + n));
    p[LENGTH_BYTES] = kind;
    *body = p + LENGTH_BYTES + 1;
    return RP_OK;
}

static void frame_end(base_buffer *out, const cluster_stream_key *key, uint64_t number, const uint8_t *body, size_t n) {
    const size_t bytes = LENGTH_BYTES + SHORTEST_FRAME + n;
    BASE_ASSERT(body == (const uint8_t *)out->data + out->len + LENGTH_BYTES + 1); /* from frame_begin */
    frame_tag((uint8_t *)out->data + out->len + bytes - CLUSTER_TAG_BYTES, key, number, body - 1, n + 1);
    out->len += bytes;
    out->data[out->len] = '\0';
}

int cluster_write_frame(base_buffer *out, const cluster_stream_key *key, uint64_t number, uint8_t kind,
                        const void *body, size_t n) {
    uint8_t *to;
    int rc = frame_begin(out, kind, n, &to);
    if (rc) return rc;
    if (n > 0) memcpy(to, body, n);
    frame_end(out, key, number, to, n);
    return RP_OK;
}

/* Writes length and text at p and returns their end. Bytes that a reader would refuse become '?'. most: size of the
 * field, with its NUL. */
static uint8_t *put_string(uint8_t *p, const char *text, size_t most) {
    const size_t n = strnlen(text, BASE_MIN(most - 1, (size_t)255));
    const unsigned char *s = (const unsigned char *)text;
    *p++ = (uint8_t)n;
    for (size_t i = 0; i < n;) {
        int length = base_utf8_length(s + i, n - i);
        if (length <= 0 || s[i] < 0x20 || s[i] == 0x7f) p[i++] = '?';
        else
            for (int k = 0; k < length; k++, i++) p[i] = s[i];
    }
    return p + n;
}

int cluster_write_hello(base_buffer *out, const cluster_stream_key *key, uint64_t number, const cluster_hello *hello) {
    uint8_t b[LONGEST_HELLO] = {0}, *p = b + HELLO_BYTES;
    BASE_ASSERT(hello->epoch != 0);
    base_put_u32(b, CLUSTER_WIRE_VERSION);
    base_put_u64(b + 8, hello->epoch);
    base_put_u32(b + 16, natural_i32(hello->n_ctx));
    base_put_u32(b + 20, natural_i32(hello->max_sequences));
    base_put_u32(b + 24, natural_i32(hello->max_queue));
    base_put_u64(b + 32, at_most(hello->kv_budget_bytes, CLUSTER_MOST_BYTES));
    base_put_u64(b + 40, at_most(hello->disk_budget_bytes, CLUSTER_MOST_BYTES));
    p = put_string(p, hello->identity, sizeof hello->identity);
    p = put_string(p, hello->node, sizeof hello->node);
    p = put_string(p, hello->model, sizeof hello->model);
    p = put_string(p, hello->kv_format, sizeof hello->kv_format);
    p = put_string(p, hello->weights, sizeof hello->weights);
    BASE_ASSERT((size_t)(p - b) <= sizeof b);
    return cluster_write_frame(out, key, number, CLUSTER_HELLO, b, (size_t)(p - b));
}

int cluster_write_snapshot(base_buffer *out, const cluster_stream_key *key, uint64_t number, uint64_t seq, uint64_t n) {
    uint8_t b[16];
    BASE_ASSERT(n <= CLUSTER_MAX_NAMES); /* a reader refuses more */
    base_put_u64(b, seq);
    base_put_u64(b + 8, n);
    return cluster_write_frame(out, key, number, CLUSTER_SNAPSHOT, b, sizeof b);
}

static void put_changes(uint8_t *p, const rp_span_change *changes, size_t n) {
    for (size_t i = 0; i < n; i++, p += CLUSTER_CHANGE_BYTES) {
        memcpy(p, changes[i].name.bytes, RP_NAME_BYTES);
        p[RP_NAME_BYTES] = (uint8_t)(changes[i].tiers & (RP_TIER_RAM | RP_TIER_DISK));
    }
}

int cluster_write_names(base_buffer *out, const cluster_stream_key *key, uint64_t number, const rp_span_change *names,
                        size_t n) {
    uint8_t *body;
    if (n > CLUSTER_MAX_CHANGES) return RP_ERR_LIMIT;
    int rc = frame_begin(out, CLUSTER_NAMES, n * CLUSTER_CHANGE_BYTES, &body);
    if (rc) return rc;
    put_changes(body, names, n);
    frame_end(out, key, number, body, n * CLUSTER_CHANGE_BYTES);
    return RP_OK;
}

int cluster_write_changes(base_buffer *out, const cluster_stream_key *key, uint64_t number, uint64_t seq,
                          const rp_span_change *changes, size_t n) {
    uint8_t *body;
    BASE_ASSERT(seq > 0 && n > 0);
    if (n > CLUSTER_MAX_CHANGES) return RP_ERR_LIMIT;
    const size_t bytes = 8 + n * CLUSTER_CHANGE_BYTES;
    int rc = frame_begin(out, CLUSTER_CHANGES, bytes, &body);
    if (rc) return rc;
    base_put_u64(body, seq);
    put_changes(body + 8, changes, n);
    frame_end(out, key, number, body, bytes);
    return RP_OK;
}

int cluster_write_load(base_buffer *out, const cluster_stream_key *key, uint64_t number, const cluster_load *load) {
    const rp_engine_load *e = &load->engine;
    uint8_t b[LOAD_BYTES];
    base_put_u64(b, at_most(load->sent_us, CLUSTER_MOST_US));
    base_put_u32(b + 8, natural_i32(e->running));
    base_put_u32(b + 12, natural_i32(e->waiting));
    base_put_u32(b + 16, natural_i32(e->decoding));
    base_put_u32(b + 20, natural_i32(e->background));
    base_put_u64(b + 24, natural_i64(e->queued_tokens, CLUSTER_MOST_TOKENS));
    base_put_u64(b + 32, natural_i64(e->context_tokens, CLUSTER_MOST_TOKENS));
    base_put_u64(b + 40, at_most(e->drain_us, CLUSTER_MOST_US));
    base_put_u64(b + 48, at_most(e->gap_p95_us, CLUSTER_MOST_US));
    base_put_u64(b + 56, at_most(e->kv_bytes_per_token, CLUSTER_MOST_BYTES));
    base_put_u64(b + 64, at_most(e->free_bytes, CLUSTER_MOST_BYTES));
    base_put_u32(b + 72, natural_i32(e->max_running));
    base_put_u32(b + 76, natural_i32(e->chunk_tokens));
    for (int i = 0; i < RP_COST_KNOTS; i++) put_f64(b + 80 + 8 * i, natural_f64(e->knot_us[i]));
    put_f64(b + 184, natural_f64(e->row_slot_us));
    put_f64(b + 192, natural_f64(e->slot_us));
    put_f64(b + 200, natural_f64(e->read_byte_us));
    base_put_u64(b + 208, load->schemas);
    b[216] = load->draining;
    return cluster_write_frame(out, key, number, CLUSTER_LOAD, b, sizeof b);
}

int cluster_write_digest(base_buffer *out, const cluster_stream_key *key, uint64_t number,
                         const cluster_digest *digest) {
    uint8_t b[24];
    base_put_u64(b, digest->seq);
    base_put_u64(b + 8, digest->count);
    base_put_u64(b + 16, digest->sum);
    return cluster_write_frame(out, key, number, CLUSTER_DIGEST, b, sizeof b);
}

/* ---- Reading: a body into a frame ---- */

struct cluster_reader {
    cluster_stream_key key;
    uint64_t number;         /* of the next frame */
    base_buffer part;        /* bytes of the next frame so far */
    rp_span_change *changes; /* of the last frame */
    size_t changes_cap;
    cluster_frame frame;
};

/* Bytes of a body that were not read yet. bad: a read went past the end, or gave a number outside its limits. */
typedef struct body_cursor {
    const uint8_t *p, *end;
    bool bad;
} body_cursor;

static const uint8_t *body_take(body_cursor *c, size_t n) {
    static const uint8_t zeros[8];
    BASE_DCHECK(c->p <= c->end);
    if ((size_t)(c->end - c->p) < n) {
        BASE_ASSERT(n <= sizeof zeros); /* callers check that longer fields are complete */
        c->bad = true;
        c->p = c->end;
        return zeros;
    }
    c->p += n;
    return c->p - n;
}

static uint64_t body_u64(body_cursor *c, uint64_t most) {
    const uint64_t v = base_get_u64(body_take(c, 8));
    c->bad |= v > most;
    return c->bad ? 0 : v;
}

static uint32_t body_u32(body_cursor *c, uint32_t most) {
    const uint32_t v = base_get_u32(body_take(c, 4));
    c->bad |= v > most;
    return c->bad ? 0 : v;
}

static int32_t body_i32(body_cursor *c) { return (int32_t)body_u32(c, INT32_MAX); }

static double body_f64(body_cursor *c) {
    const double v = get_f64(body_take(c, 8));
    c->bad |= !(v >= 0 && v <= CLUSTER_MOST_COEFFICIENT_US); /* NaN too */
    return c->bad ? 0 : v;
}

/* cap: size of the field, with its NUL. */
static void body_string(body_cursor *c, char *out, size_t cap) {
    const size_t n = *body_take(c, 1);
    if (n >= cap || (size_t)(c->end - c->p) < n) c->bad = true;
    if (c->bad) return;
    const uint8_t *s = body_take(c, n);
    for (size_t i = 0; i < n;) {
        const int length = base_utf8_length(s + i, n - i);
        c->bad |= length <= 0 || s[i] < 0x20 || s[i] == 0x7f;
        i += length <= 0 ? 1 : (size_t)length;
    }
    memcpy(out, s, n);
    out[n] = '\0';
}

static void read_hello(body_cursor *c, cluster_hello *h) {
    *h = (cluster_hello){0};
    c->bad |= body_u32(c, UINT32_MAX) != CLUSTER_WIRE_VERSION;
    body_u32(c, 0);
    h->epoch = body_u64(c, UINT64_MAX);
    c->bad |= h->epoch == 0;
    h->n_ctx = body_i32(c);
    h->max_sequences = body_i32(c);
    h->max_queue = body_i32(c);
    body_u32(c, 0);
    h->kv_budget_bytes = body_u64(c, CLUSTER_MOST_BYTES);
    h->disk_budget_bytes = body_u64(c, CLUSTER_MOST_BYTES);
    body_string(c, h->identity, sizeof h->identity);
    body_string(c, h->node, sizeof h->node);
    body_string(c, h->model, sizeof h->model);
    body_string(c, h->kv_format, sizeof h->kv_format);
    body_string(c, h->weights, sizeof h->weights);
}

static void read_load(body_cursor *c, cluster_load *l) {
    rp_engine_load *e = &l->engine;
    *l = (cluster_load){.engine.struct_size = sizeof *e};
    l->sent_us = body_u64(c, CLUSTER_MOST_US);
    e->running = body_i32(c);
    e->waiting = body_i32(c);
    e->decoding = body_i32(c);
    e->background = body_i32(c);
    e->queued_tokens = (int64_t)body_u64(c, CLUSTER_MOST_TOKENS);
    e->context_tokens = (int64_t)body_u64(c, CLUSTER_MOST_TOKENS);
    e->drain_us = body_u64(c, CLUSTER_MOST_US);
    e->gap_p95_us = body_u64(c, CLUSTER_MOST_US);
    e->kv_bytes_per_token = body_u64(c, CLUSTER_MOST_BYTES);
    e->free_bytes = body_u64(c, CLUSTER_MOST_BYTES);
    e->max_running = body_i32(c);
    e->chunk_tokens = body_i32(c);
    for (int i = 0; i < RP_COST_KNOTS; i++) e->knot_us[i] = body_f64(c);
    e->row_slot_us = body_f64(c);
    e->slot_us = body_f64(c);
    e->read_byte_us = body_f64(c);
    l->schemas = body_u64(c, UINT64_MAX);
    const uint8_t draining = *body_take(c, 1);
    c->bad |= draining > 1;
    l->draining = draining == 1;
}

/* Reads the rest of a body as names with tiers. */
static int read_changes(body_cursor *c, cluster_reader *r, uint8_t least_tiers) {
    const size_t bytes = (size_t)(c->end - c->p), n = bytes / CLUSTER_CHANGE_BYTES;
    if (bytes % CLUSTER_CHANGE_BYTES != 0) c->bad = true;
    if (c->bad) return RP_OK;
    int rc = n > r->changes_cap
                 ? base_grow((void **)&r->changes, &r->changes_cap, n, CLUSTER_MAX_CHANGES, sizeof *r->changes)
                 : RP_OK;
    if (rc) return rc;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = body_take(c, CLUSTER_CHANGE_BYTES), tiers = p[RP_NAME_BYTES];
        memcpy(r->changes[i].name.bytes, p, RP_NAME_BYTES);
        r->changes[i].tiers = tiers;
        c->bad |= tiers < least_tiers || tiers > (RP_TIER_RAM | RP_TIER_DISK);
    }
    r->frame.changes = r->changes;
    r->frame.n_changes = n;
    return RP_OK;
}

/* Reads a body into r->frame. */
static int reader_decode(cluster_reader *r, uint8_t kind, const uint8_t *body, size_t n, rp_error *err) {
    body_cursor c = {body, body + n, false};
    cluster_frame *f = &r->frame;
    int rc = RP_OK;
    f->kind = (cluster_frame_kind)kind;
    f->seq = f->n = 0;
    f->changes = NULL;
    f->n_changes = 0;
    switch (kind) {
    case CLUSTER_HELLO: read_hello(&c, &f->hello); break;
    case CLUSTER_SNAPSHOT:
        f->seq = body_u64(&c, UINT64_MAX);
        f->n = body_u64(&c, CLUSTER_MAX_NAMES);
        break;
    case CLUSTER_NAMES: rc = read_changes(&c, r, 1); break;
    case CLUSTER_CHANGES:
        f->seq = body_u64(&c, UINT64_MAX - CLUSTER_MAX_CHANGES);
        rc = read_changes(&c, r, 0);
        c.bad |= f->seq == 0 || (rc == RP_OK && f->n_changes == 0);
        break;
    case CLUSTER_LOAD: read_load(&c, &f->load); break;
    case CLUSTER_DIGEST:
        f->digest.seq = body_u64(&c, UINT64_MAX);
        f->digest.count = body_u64(&c, CLUSTER_MAX_NAMES);
        f->digest.sum = body_u64(&c, UINT64_MAX);
        break;
    default: c.bad = true;
    }
    if (rc) return base_fail_memory(err, n, "a frame of a span stream");
    c.bad |= c.p != c.end || (kind == CLUSTER_HELLO) != (r->number == 0);
    if (!c.bad) return RP_OK;
    if (kind == CLUSTER_HELLO && r->number == 0 && n >= 4 && base_get_u32(body) != CLUSTER_WIRE_VERSION)
        return base_fail(err, RP_ERR_FORMAT,
                         "span stream: version %u is not supported: run the same release on nodes and routers",
                         (unsigned)base_get_u32(body));
    return base_fail(err, RP_ERR_FORMAT, "span stream: frame %llu of kind %u is malformed",
                     (unsigned long long)r->number, (unsigned)kind);
}

/* ---- Reading: frames from pieces of bytes ---- */

int cluster_reader_new(cluster_reader **out, const cluster_stream_key *key, rp_error *err) {
    cluster_reader *r = base_calloc(1, sizeof *r);
    *out = r;
    if (!r) return base_fail_memory(err, sizeof *r, "a reader of a span stream");
    r->key = *key;
    r->part = BASE_BUFFER(LENGTH_BYTES + CLUSTER_MAX_FRAME);
    return RP_OK;
}

void cluster_reader_free(cluster_reader *r) {
    if (!r) return;
    base_buffer_free(&r->part);
    base_free(r->changes);
    base_free(r);
}

/* Checks and decodes a frame. content: its kind, body and tag, n bytes. */
static int reader_take(cluster_reader *r, const uint8_t *content, size_t n, cluster_reader_fn fn, void *user,
                       rp_error *err) {
    uint8_t tag[CLUSTER_TAG_BYTES];
    BASE_ASSERT(n >= SHORTEST_FRAME && n <= CLUSTER_MAX_FRAME); /* reader_length */
    frame_tag(tag, &r->key, r->number, content, n - CLUSTER_TAG_BYTES);
    if (sodium_memcmp(tag, content + n - CLUSTER_TAG_BYTES, sizeof tag) != 0)
        return base_fail(err, RP_ERR_FORMAT,
                         "span stream: frame %llu is corrupt, or not signed with the cluster's secret",
                         (unsigned long long)r->number);
    int rc = reader_decode(r, content[0], content + 1, n - SHORTEST_FRAME, err);
    if (rc) return rc;
    r->number++;
    return fn(user, &r->frame);
}

static int reader_length(const uint8_t *p, size_t *length, rp_error *err) {
    *length = base_get_u32(p);
    if (*length >= SHORTEST_FRAME && *length <= CLUSTER_MAX_FRAME) return RP_OK;
    return base_fail(err, RP_ERR_FORMAT, "span stream: %zu bytes are no valid length of a frame", *length);
}

/* Appends bytes to r->part until it has `want` bytes. */
static int reader_collect(cluster_reader *r, const uint8_t **p, size_t *n, size_t want, rp_error *err) {
    const size_t take = r->part.len < want ? BASE_MIN(*n, want - r->part.len) : 0;
    if (take > 0 && base_buffer_append(&r->part, *p, take))
        return base_fail_memory(err, want, "a frame of a span stream");
    *p += take;
    *n -= take;
    return RP_OK;
}

int cluster_reader_feed(cluster_reader *r, const void *bytes, size_t n, cluster_reader_fn fn, void *user,
                        rp_error *err) {
    const uint8_t *p = bytes;
    size_t length;
    int rc = RP_OK;
    while (rc == RP_OK && n > 0) {
        if (r->part.len == 0 && n >= LENGTH_BYTES) { /* a complete frame is not copied */
            if ((rc = reader_length(p, &length, err))) return rc;
            if (n - LENGTH_BYTES >= length) {
                rc = reader_take(r, p + LENGTH_BYTES, length, fn, user, err);
                p += LENGTH_BYTES + length;
                n -= LENGTH_BYTES + length;
                continue;
            }
        }
        if ((rc = reader_collect(r, &p, &n, LENGTH_BYTES, err)) || r->part.len < LENGTH_BYTES) return rc;
        const uint8_t *part = (const uint8_t *)r->part.data;
        if ((rc = reader_length(part, &length, err)) || (rc = reader_collect(r, &p, &n, LENGTH_BYTES + length, err)))
            return rc;
        if (r->part.len < LENGTH_BYTES + length) return RP_OK;
        rc = reader_take(r, (const uint8_t *)r->part.data + LENGTH_BYTES, length, fn, user, err);
        base_buffer_clear(&r->part);
    }
    return rc;
}
