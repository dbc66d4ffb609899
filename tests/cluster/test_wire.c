/* SPDX-License-Identifier: Apache-2.0 */
/* test_wire.c: frames of a span stream: what was written is read, in any cut; a changed bit, another key, another order
 * or place is refused; so is every number out of its limits; no allocation fails otherwise than by an error. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "cluster/wire.h"
#include "support/seed.h"
#include "support/span_names.h"
#include "reprise_cluster.h"

static const uint8_t secret[RP_CLUSTER_KEY_BYTES] = "32 bytes of a secret, as a file";
static const uint8_t nonce[CLUSTER_NONCE_BYTES] = "a nonce, 16 byte";

static cluster_hello some_hello(void) {
    cluster_hello h = {.epoch = 0xfedcba9876543210, .n_ctx = 4096, .max_sequences = 8, .max_queue = 100};
    h.kv_budget_bytes = (uint64_t)1 << 40;
    h.disk_budget_bytes = 7;
    memset(h.identity, 'a', 64);
    strcpy(h.node, "node-1:8080");
    strcpy(h.model, "Ein Modell \xc3\xbc");
    strcpy(h.kv_format, "f16");
    strcpy(h.weights, "Q8_0");
    return h;
}

static cluster_load some_load(void) {
    cluster_load l = {.draining = true, .sent_us = 123456789};
    rp_engine_load *e = &l.engine;
    e->struct_size = sizeof *e;
    e->running = 1, e->waiting = 2, e->decoding = 3, e->background = 4;
    e->queued_tokens = 5000000000, e->context_tokens = 6;
    e->drain_us = 7, e->gap_p95_us = 8, e->kv_bytes_per_token = 9, e->free_bytes = 10;
    e->max_running = 11, e->chunk_tokens = 12;
    e->row_slot_us = 0.5, e->slot_us = 1e-9, e->read_byte_us = 3;
    for (int i = 0; i < RP_COST_KNOTS; i++) e->knot_us[i] = i * 1.25;
    return l;
}

typedef struct stream {
    cluster_stream_key key;
    base_buffer bytes;
    uint64_t number;
} stream;

/* A stream with one frame of each kind, and a long one. */
static void stream_make(stream *s) {
    static rp_span_change changes[5000];
    const cluster_hello hello = some_hello();
    const cluster_load load = some_load();
    const cluster_digest digest = {5003, 5, 0xabcdefabcdefabcd};
    for (uint64_t i = 0; i < 5000; i++) changes[i] = (rp_span_change){span_name_at(i), 1 + (uint32_t)(i % 3)};
    *s = (stream){.bytes = BASE_BUFFER((size_t)1 << 22)};
    cluster_stream_key_make(&s->key, secret, nonce);
    int rc = cluster_write_hello(&s->bytes, &s->key, s->number++, &hello);
    rc |= cluster_write_snapshot(&s->bytes, &s->key, s->number++, 3, 5000);
    rc |= cluster_write_names(&s->bytes, &s->key, s->number++, changes, 2);
    rc |= cluster_write_load(&s->bytes, &s->key, s->number++, &load);
    rc |= cluster_write_names(&s->bytes, &s->key, s->number++, NULL, 0);
    changes[0].tiers = 0;
    rc |= cluster_write_changes(&s->bytes, &s->key, s->number++, 4, changes, 5000);
    rc |= cluster_write_digest(&s->bytes, &s->key, s->number++, &digest);
    assert_int_equal(rc, RP_OK);
}

/* What a reader saw, as a hash of each field, so that two readers can be compared. */
typedef struct seen {
    size_t n;
    cluster_frame last[16];
    uint64_t names; /* of all changes */
} seen;

static int see(void *user, const cluster_frame *f) {
    seen *s = user;
    assert_true(s->n < 16);
    for (size_t i = 0; i < f->n_changes; i++)
        s->names = s->names * 31 + cluster_name_hash(&f->changes[i].name, f->changes[i].tiers);
    s->last[s->n++] = *f;
    return RP_OK;
}

/* Feeds the bytes in pieces of up to `most` bytes. */
static int read_all(const cluster_stream_key *key, const char *bytes, size_t n, size_t most, uint64_t *seed,
                    seen *out) {
    cluster_reader *r;
    rp_error err = {0};
    int rc = cluster_reader_new(&r, key, &err);
    *out = (seen){0};
    for (size_t at = 0, take; rc == RP_OK && at < n; at += take) {
        take = 1 + span_below(seed, most);
        take = take < n - at ? take : n - at;
        char *copy = malloc(take); /* so that a sanitizer sees what is read beyond it */
        memcpy(copy, bytes + at, take);
        rc = cluster_reader_feed(r, copy, take, see, out, &err);
        free(copy);
    }
    if (rc) assert_true(err.code == rc && err.message[0]);
    cluster_reader_free(r);
    return rc;
}

static void what_was_written_is_read_in_any_cut(void **state) {
    (void)state;
    static seen whole, cut;
    stream s;
    uint64_t seed = test_seed("test_wire", 3);
    stream_make(&s);
    assert_int_equal(read_all(&s.key, s.bytes.data, s.bytes.len, s.bytes.len * 100000, &seed, &whole), RP_OK);
    const cluster_hello hello = some_hello();
    const cluster_load load = some_load();
    static const cluster_frame_kind kinds[] = {CLUSTER_HELLO, CLUSTER_SNAPSHOT, CLUSTER_NAMES, CLUSTER_LOAD,
                                               CLUSTER_NAMES, CLUSTER_CHANGES, CLUSTER_DIGEST};
    assert_int_equal(whole.n, 7);
    for (int i = 0; i < 7; i++) assert_int_equal(whole.last[i].kind, kinds[i]);
    assert_memory_equal(&whole.last[0].hello, &hello, sizeof hello);
    assert_true(whole.last[1].seq == 3 && whole.last[1].n == 5000);
    assert_int_equal(whole.last[2].n_changes, 2);
    assert_memory_equal(&whole.last[3].load.engine, &load.engine, sizeof load.engine);
    assert_true(whole.last[3].load.draining && whole.last[3].load.sent_us == load.sent_us);
    assert_int_equal(whole.last[4].n_changes, 0);
    assert_true(whole.last[5].seq == 4 && whole.last[5].n_changes == 5000);
    assert_true(whole.last[6].digest.seq == 5003 && whole.last[6].digest.count == 5 &&
                whole.last[6].digest.sum == 0xabcdefabcdefabcd);
    for (size_t most = 1; most < 200000; most += 1 + most / 2) {
        assert_int_equal(read_all(&s.key, s.bytes.data, s.bytes.len, most, &seed, &cut), RP_OK);
        assert_true(cut.n == 7 && cut.names == whole.names);
        assert_memory_equal(&cut.last[0].hello, &whole.last[0].hello, sizeof hello);
        assert_memory_equal(&cut.last[6].load, &whole.last[6].load, sizeof load);
    }
    base_buffer_free(&s.bytes);
}

static size_t frame_bytes(const char *p) {
    return 4 + ((size_t)(uint8_t)p[0] | (size_t)(uint8_t)p[1] << 8 | (size_t)(uint8_t)p[2] << 16 |
                (size_t)(uint8_t)p[3] << 24);
}

/* A frame with a changed bit is not seen, nor any after it. */
static void a_changed_bit_is_refused(void **state) {
    (void)state;
    static seen whole, cut;
    stream s;
    uint64_t seed = test_seed("test_wire", 4);
    stream_make(&s);
    size_t end = 0; /* of hello, snapshot, names and load */
    for (int i = 0; i < 4; i++) end += frame_bytes(s.bytes.data + end);
    s.bytes.len = end + 100;
    assert_int_equal(read_all(&s.key, s.bytes.data, s.bytes.len, 100000, &seed, &whole), RP_OK);
    for (size_t bit = 0; bit < 8 * end; bit++) {
        s.bytes.data[bit / 8] ^= (char)(1 << bit % 8);
        int rc = read_all(&s.key, s.bytes.data, s.bytes.len, 300, &seed, &cut);
        /* A longer length may just wait for more bytes. */
        assert_true(rc == RP_ERR_FORMAT || (rc == RP_OK && cut.n < whole.n));
        for (size_t i = 0; i < cut.n; i++)
            assert_true(cut.last[i].kind == whole.last[i].kind && cut.last[i].seq == whole.last[i].seq);
        s.bytes.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    base_buffer_free(&s.bytes);
}

static void a_frame_of_another_stream_or_place_is_refused(void **state) {
    (void)state;
    static seen cut;
    stream s, other;
    uint64_t seed = 5;
    cluster_stream_key key;
    uint8_t other_nonce[CLUSTER_NONCE_BYTES], other_secret[RP_CLUSTER_KEY_BYTES];
    stream_make(&s);
    memcpy(other_nonce, nonce, sizeof nonce);
    memcpy(other_secret, secret, sizeof secret);
    other_nonce[15] ^= 1;
    other_secret[31] ^= 1;
    cluster_stream_key_make(&key, secret, other_nonce);
    assert_int_equal(read_all(&key, s.bytes.data, s.bytes.len, 100000, &seed, &cut), RP_ERR_FORMAT);
    cluster_stream_key_make(&key, other_secret, nonce);
    assert_int_equal(read_all(&key, s.bytes.data, s.bytes.len, 100000, &seed, &cut), RP_ERR_FORMAT);
    assert_int_equal(cut.n, 0);
    /* Left out, twice, and exchanged. */
    const size_t first = frame_bytes(s.bytes.data), second = frame_bytes(s.bytes.data + first);
    other = (stream){.bytes = BASE_BUFFER((size_t)1 << 22)};
    assert_int_equal(base_buffer_append(&other.bytes, s.bytes.data, first), RP_OK);
    assert_int_equal(base_buffer_append(&other.bytes, s.bytes.data + first + second, s.bytes.len - first - second),
                     RP_OK);
    assert_int_equal(read_all(&s.key, other.bytes.data, other.bytes.len, 100000, &seed, &cut), RP_ERR_FORMAT);
    assert_int_equal(cut.n, 1);
    base_buffer_truncate(&other.bytes, first);
    assert_int_equal(base_buffer_append(&other.bytes, s.bytes.data, s.bytes.len), RP_OK);
    assert_int_equal(read_all(&s.key, other.bytes.data, other.bytes.len, 100000, &seed, &cut), RP_ERR_FORMAT);
    assert_int_equal(cut.n, 1);
    base_buffer_free(&other.bytes);
    base_buffer_free(&s.bytes);
}

/* A frame of this body, after a hello or as the first one, signed. */
static int read_body(uint8_t kind, const void *body, size_t n, bool first) {
    static seen cut;
    stream s = {.bytes = BASE_BUFFER((size_t)1 << 22)};
    uint64_t seed = 6;
    const cluster_hello hello = some_hello();
    cluster_stream_key_make(&s.key, secret, nonce);
    int rc = first ? RP_OK : cluster_write_hello(&s.bytes, &s.key, s.number++, &hello);
    if (rc == RP_OK) rc = cluster_write_frame(&s.bytes, &s.key, s.number++, kind, body, n);
    assert_int_equal(rc, RP_OK);
    rc = read_all(&s.key, s.bytes.data, s.bytes.len, s.bytes.len, &seed, &cut);
    base_buffer_free(&s.bytes);
    return rc;
}

/* The body of a frame that is right, with `size` bytes at `at` replaced by those of a number. */
static int read_changed(const char *frame, bool first, size_t at, size_t size, uint64_t number) {
    uint8_t body[2048];
    const size_t n = frame_bytes(frame) - 4 - 1 - CLUSTER_TAG_BYTES;
    assert_true(n <= sizeof body && at + size <= n);
    memcpy(body, frame + 5, n);
    for (size_t i = 0; i < size; i++) body[at + i] = (uint8_t)(number >> 8 * i);
    return read_body((uint8_t)frame[4], body, n, first);
}

/* `size` bytes at `at` of a body: a number that is accepted there, and one that is not. */
typedef struct limit {
    size_t at, size;
    uint64_t good, bad;
} limit;
static const limit of_hello[] = {
    {0, 4, 1, 2},
    {0, 4, 1, 0},
    {4, 4, 0, 1},
    {8, 8, UINT64_MAX, 0},
    {16, 4, INT32_MAX, UINT32_MAX},
    {20, 4, 0, 0x80000000},
    {24, 4, 1, 0x80000000},
    {28, 4, 0, 1},
    {32, 8, CLUSTER_MOST_BYTES, CLUSTER_MOST_BYTES + 1},
    {40, 8, 0, UINT64_MAX},
    {48, 1, 64, 65},
    {49, 1, ' ', '\n'},
    {50, 1, '~', 127},
    {51, 1, 'x', 0},
    {52, 1, 'x', 0xff},
    {53, 1, 'x', 0xc3},
};
static const limit of_snapshot[] = {
    {8, 8, CLUSTER_MAX_NAMES, CLUSTER_MAX_NAMES + 1},
};
static const limit of_names[] = {
    {16, 1, 3, 4},
    {16, 1, 1, 0},
    {33, 1, 2, 255},
};
static const limit of_load[] = {
    {0, 8, CLUSTER_MOST_US, CLUSTER_MOST_US + 1},
    {8, 4, INT32_MAX, 0x80000000},
    {12, 4, 0, UINT32_MAX},
    {16, 4, 0, UINT32_MAX},
    {20, 4, 0, UINT32_MAX},
    {24, 8, CLUSTER_MOST_TOKENS, UINT64_MAX},
    {32, 8, CLUSTER_MOST_TOKENS, CLUSTER_MOST_TOKENS + 1},
    {40, 8, 0, UINT64_MAX},
    {48, 8, 0, UINT64_MAX},
    {56, 8, 0, UINT64_MAX},
    {64, 8, CLUSTER_MOST_BYTES, UINT64_MAX},
    {72, 4, 0, 0x80000000},
    {76, 4, 0, 0x80000000},
    {216, 1, 0, 2},
};

static void check_limits(const char *frame, bool first, const limit *limits, size_t n) {
    for (const limit *l = limits; l < limits + n; l++) {
        assert_int_equal(read_changed(frame, first, l->at, l->size, l->good), RP_OK);
        assert_int_equal(read_changed(frame, first, l->at, l->size, l->bad), RP_ERR_FORMAT);
    }
}

static uint64_t bits_of(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static void numbers_beyond_their_limits_are_refused(void **state) {
    (void)state;
    stream s;
    stream_make(&s);
    const char *hello = s.bytes.data, *snapshot = hello + frame_bytes(hello), *names = snapshot + frame_bytes(snapshot),
               *load = names + frame_bytes(names);
    check_limits(hello, true, of_hello, BASE_ARRAY_LEN(of_hello));
    check_limits(snapshot, false, of_snapshot, BASE_ARRAY_LEN(of_snapshot));
    check_limits(names, false, of_names, BASE_ARRAY_LEN(of_names));
    check_limits(load, false, of_load, BASE_ARRAY_LEN(of_load));
    const double bad[] = {NAN, -1, INFINITY, 2e12, -INFINITY};
    for (size_t at = 80; at < 208; at += 8)
        for (size_t i = 0; i < 5; i++)
            assert_int_equal(read_changed(load, false, at, 8, bits_of(bad[i])), RP_ERR_FORMAT);
    base_buffer_free(&s.bytes);
}

static void bodies_of_a_wrong_size_are_refused(void **state) {
    (void)state;
    static const uint8_t zeros[2048];
    uint8_t change[8 + 17] = {1};
    change[24] = 3;
    assert_int_equal(read_body(CLUSTER_CHANGES, change, 25, false), RP_OK);
    change[0] = 0;
    assert_int_equal(read_body(CLUSTER_CHANGES, change, 25, false), RP_ERR_FORMAT); /* seq 0 */
    memset(change, 255, 8);
    assert_int_equal(read_body(CLUSTER_CHANGES, change, 25, false), RP_ERR_FORMAT); /* the next one would be 0 */
    change[0] = 1;
    memset(change + 1, 0, 7);
    assert_int_equal(read_body(CLUSTER_CHANGES, change, 8, false), RP_ERR_FORMAT); /* none */
    for (size_t n = 0; n < 25; n++) assert_int_equal(read_body(CLUSTER_CHANGES, change, n, false), RP_ERR_FORMAT);
    for (size_t n = 0; n < 300; n++) {
        assert_int_equal(read_body(CLUSTER_LOAD, zeros, n, false), n == 217 ? RP_OK : RP_ERR_FORMAT);
        assert_int_equal(read_body(CLUSTER_DIGEST, zeros, n, false), n == 24 ? RP_OK : RP_ERR_FORMAT);
        assert_int_equal(read_body(CLUSTER_SNAPSHOT, zeros, n, false), n == 16 ? RP_OK : RP_ERR_FORMAT);
        assert_int_equal(read_body(CLUSTER_NAMES, zeros, n, false), n == 0 ? RP_OK : RP_ERR_FORMAT);
        assert_int_equal(read_body(CLUSTER_HELLO, zeros, n, true), RP_ERR_FORMAT);
        assert_int_equal(read_body(0, zeros, n, false), RP_ERR_FORMAT);
        assert_int_equal(read_body(7, zeros, n, false), RP_ERR_FORMAT);
    }
    stream s;
    stream_make(
        &s); /* a hello that is not the first frame, another frame that is, and hellos that are cut or too long */
    uint8_t body[2048] = {0};
    const size_t n = frame_bytes(s.bytes.data) - 21;
    memcpy(body, s.bytes.data + 5, n);
    assert_int_equal(read_body(CLUSTER_HELLO, body, n, true), RP_OK);
    assert_int_equal(read_body(CLUSTER_HELLO, body, n, false), RP_ERR_FORMAT);
    assert_int_equal(read_body(CLUSTER_DIGEST, zeros, 24, true), RP_ERR_FORMAT);
    for (size_t k = 0; k < n; k++) assert_int_equal(read_body(CLUSTER_HELLO, body, k, true), RP_ERR_FORMAT);
    assert_int_equal(read_body(CLUSTER_HELLO, body, n + 1, true), RP_ERR_FORMAT);
    base_buffer_free(&s.bytes);
}

/* Lengths are refused before anything is allocated for them. */
static void lengths_are_limited(void **state) {
    (void)state;
    static const uint32_t lengths[] = {0, 1, 16, CLUSTER_MAX_FRAME + 1, 0x7fffffff, 0xffffffff};
    static seen cut;
    cluster_stream_key key;
    uint64_t seed = 7;
    cluster_stream_key_make(&key, secret, nonce);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t most = 1; most <= 4; most++)
            assert_int_equal(read_all(&key, (const char *)&lengths[i], 4, most, &seed, &cut), RP_ERR_FORMAT);
    base_buffer out = BASE_BUFFER((size_t)1 << 22);
    static rp_span_change changes[CLUSTER_MAX_CHANGES + 1];
    assert_int_equal(cluster_write_names(&out, &key, 1, changes, CLUSTER_MAX_CHANGES + 1), RP_ERR_LIMIT);
    assert_int_equal(cluster_write_changes(&out, &key, 1, 1, changes, CLUSTER_MAX_CHANGES + 1), RP_ERR_LIMIT);
    assert_int_equal(out.len, 0);
    assert_int_equal(cluster_write_changes(&out, &key, 1, 1, changes, CLUSTER_MAX_CHANGES), RP_OK);
    assert_true(out.len <= CLUSTER_MAX_FRAME + 4);
    base_buffer_free(&out);
}

/* A node's own odd numbers and names do not end its streams. */
static void a_writer_writes_what_readers_accept(void **state) {
    (void)state;
    static seen cut;
    stream s = {.bytes = BASE_BUFFER((size_t)1 << 22)};
    uint64_t seed = 8;
    cluster_hello hello = some_hello();
    cluster_load load = some_load();
    hello.n_ctx = -1;
    hello.kv_budget_bytes = UINT64_MAX;
    memset(hello.model, '\xc3', sizeof hello.model); /* without its end, too */
    strcpy(hello.node, "a\nb\x7f");
    load.engine.queued_tokens = -5;
    load.engine.drain_us = UINT64_MAX;
    load.engine.knot_us[3] = NAN;
    load.engine.slot_us = -INFINITY;
    load.engine.row_slot_us = INFINITY;
    cluster_stream_key_make(&s.key, secret, nonce);
    assert_int_equal(cluster_write_hello(&s.bytes, &s.key, 0, &hello) | cluster_write_load(&s.bytes, &s.key, 1, &load),
                     RP_OK);
    assert_int_equal(read_all(&s.key, s.bytes.data, s.bytes.len, 1000, &seed, &cut), RP_OK);
    assert_string_equal(cut.last[0].hello.node, "a?b?");
    assert_true(cut.last[0].hello.n_ctx == 0 && cut.last[0].hello.kv_budget_bytes == CLUSTER_MOST_BYTES);
    assert_true(strlen(cut.last[0].hello.model) == 255 && cut.last[0].hello.model[254] == '?');
    const rp_engine_load *e = &cut.last[1].load.engine;

    assert_true(e->queued_tokens == 0 && e->drain_us == CLUSTER_MOST_US);
    assert_true(e->knot_us[3] == 0 && e->slot_us == 0 && e->row_slot_us == CLUSTER_MOST_COEFFICIENT_US);
    base_buffer_free(&s.bytes);
}

static void every_allocation_fails_cleanly(void **state) {
    (void)state;
    static seen cut;
    stream s;
    uint64_t seed = 9;
    stream_make(&s);
    for (uint64_t i = 1;; i++) {
        base_alloc_fail_at(i, i % 2 == 0);
        int rc = read_all(&s.key, s.bytes.data, s.bytes.len, 5000, &seed, &cut);
        base_alloc_fail_at(0, 0);
        assert_true(rc == RP_OK || rc == RP_ERR_MEMORY);
        if (rc == RP_OK) break;
        base_alloc_fail_at(1, 0);
        base_buffer out = BASE_BUFFER((size_t)1 << 20);
        assert_int_equal(cluster_write_digest(&out, &s.key, 1, &(cluster_digest){0}), RP_ERR_MEMORY);
        base_alloc_fail_at(0, 0);
        assert_true(i < 100);
    }
    base_buffer_free(&s.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read_in_any_cut),
        cmocka_unit_test(a_changed_bit_is_refused),
        cmocka_unit_test(a_frame_of_another_stream_or_place_is_refused),
        cmocka_unit_test(numbers_beyond_their_limits_are_refused),
        cmocka_unit_test(bodies_of_a_wrong_size_are_refused),
        cmocka_unit_test(lengths_are_limited),
        cmocka_unit_test(a_writer_writes_what_readers_accept),
        cmocka_unit_test(every_allocation_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
