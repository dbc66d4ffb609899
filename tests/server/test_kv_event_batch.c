/* SPDX-License-Identifier: Apache-2.0 */
/* test_kv_event_batch.c: KV events against bytes written by hand from the MessagePack specification, and blocks against
 * a naive copy of what a subscriber knows: after any changes, takes and restarts it knows what is held, no block came
 * before its parent, and none twice into a tier.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "server/node/kv_blocks.h"
#include "server/node/kv_event_batch.h"
#include "support/must.h"
#include "support/seed.h"
#include "support/tiny_random.h"
#include "reprise_cluster.h"

static rp_name name_of(uint8_t first, uint8_t last) {
    rp_name n = {{first, 2, 3, 4, 5, 6, 7, last, 9}};
    return n;
}

/* ---- bytes ---- */

static kv_block_change block(uint8_t number, uint8_t parent, uint32_t stored, uint32_t removed) {
    kv_block_change c = {.name = name_of(number, 8), .stored = stored, .removed = removed};
    if (parent) c.parent = name_of(parent, 8);
    for (int i = 0; i < RP_NAME_TOKENS; i++) c.tokens[i] = i;
    return c;
}

typedef struct expected {
    uint8_t bytes[4096];
    size_t n;
} expected;

static void expect_bytes(expected *e, const void *bytes, size_t n) {
    memcpy(e->bytes + e->n, bytes, n);
    e->n += n;
}

#define BYTES(e, ...) \
    do { \
        const uint8_t own[] = {__VA_ARGS__}; \
        expect_bytes(e, own, sizeof(own)); \
    } while (0)
#define TEXT(e, text) expect_bytes(e, text, sizeof(text) - 1)

/* 1.5 seconds, and the number of events as an array of 32 bits. */
static void expect_head(expected *e, uint8_t n_events) {
    BYTES(e, 0x93, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0xdd, 0, 0, 0, n_events);
}

static void check_batch(expected *e, bool cleared, const kv_block_change *changes, size_t n) {
    base_buffer out = BASE_BUFFER(1 << 20);
    BYTES(e, 0); /* the data-parallel rank */
    assert_int_equal(kv_event_batch_write(&out, 1.5, cleared, changes, n), RP_OK);
    assert_int_equal(out.len, e->n);
    assert_memory_equal(out.data, e->bytes, e->n);
    base_buffer_free(&out);
}

static void test_cleared(void **state) {
    expected e = {0};
    (void)state;
    expect_head(&e, 1);
    BYTES(&e, 0x91, 0xb0);
    TEXT(&e, "AllBlocksCleared");
    check_batch(&e, true, NULL, 0);
}

static void expect_tokens(expected *e, int blocks, bool large) {
    if (large) BYTES(e, 0xdc, 0, (uint8_t)(64 * blocks));
    for (int b = 0; b < blocks; b++)
        for (uint8_t i = 0; i < RP_NAME_TOKENS; i++) BYTES(e, i);
}

/* Two blocks that follow each other are one event; the third begins another text. */
static void test_stored(void **state) {
    expected e = {0};
    kv_block_change c[] = {block(1, 0, RP_TIER_RAM, 0), block(0x10, 1, RP_TIER_RAM, 0),
                           block(0xff, 7, RP_TIER_DISK, 0)};
    (void)state;
    c[2].tokens[0] = 127, c[2].tokens[1] = 128, c[2].tokens[2] = 255, c[2].tokens[3] = 256, c[2].tokens[4] = 65535,
    c[2].tokens[5] = 65536;
    expect_head(&e, 2);
    BYTES(&e, 0x98, 0xab);
    TEXT(&e, "BlockStored");
    BYTES(&e, 0x92, 0xcf, 1, 2, 3, 4, 5, 6, 7, 8, 0xcf, 0x10, 2, 3, 4, 5, 6, 7, 8, 0xc0);
    expect_tokens(&e, 2, true);
    BYTES(&e, 64, 0xc0, 0xa3);
    TEXT(&e, "CPU");
    BYTES(&e, 0xc0, 0x98, 0xab);
    TEXT(&e, "BlockStored");
    BYTES(&e, 0x91, 0xcf, 0xff, 2, 3, 4, 5, 6, 7, 8, 0xcf, 7, 2, 3, 4, 5, 6, 7, 8, 0xdc, 0, 64);
    BYTES(&e, 0x7f, 0xcc, 0x80, 0xcc, 0xff, 0xcd, 1, 0, 0xcd, 0xff, 0xff, 0xce, 0, 1, 0, 0);
    for (uint8_t i = 6; i < RP_NAME_TOKENS; i++) BYTES(&e, i);
    BYTES(&e, 64, 0xc0, 0xa4);
    TEXT(&e, "DISK");
    BYTES(&e, 0xc0);
    check_batch(&e, false, c, 3);
}

/* From RAM to disk: stored there before it is removed here. Blocks that are removed are one event, whatever their
   parents. */
static void test_removed(void **state) {
    expected e = {0};
    const kv_block_change c[] = {block(1, 0, RP_TIER_DISK, RP_TIER_RAM), block(2, 0, 0, RP_TIER_RAM),
                                 block(3, 9, 0, RP_TIER_RAM), block(4, 9, 0, RP_TIER_RAM | RP_TIER_DISK)};
    (void)state;
    expect_head(&e, 5);
    BYTES(&e, 0x98, 0xab);
    TEXT(&e, "BlockStored");
    BYTES(&e, 0x91, 0xcf, 1, 2, 3, 4, 5, 6, 7, 8, 0xc0);
    expect_tokens(&e, 1, true);
    BYTES(&e, 64, 0xc0, 0xa4);
    TEXT(&e, "DISK");
    BYTES(&e, 0xc0, 0x93, 0xac);
    TEXT(&e, "BlockRemoved");
    BYTES(&e, 0x91, 0xcf, 1, 2, 3, 4, 5, 6, 7, 8, 0xa3);
    TEXT(&e, "CPU");
    BYTES(&e, 0x93, 0xac);
    TEXT(&e, "BlockRemoved");
    BYTES(&e, 0x92, 0xcf, 2, 2, 3, 4, 5, 6, 7, 8, 0xcf, 3, 2, 3, 4, 5, 6, 7, 8, 0xa3);
    TEXT(&e, "CPU");
    for (int tier = 0; tier < 2; tier++) {
        BYTES(&e, 0x93, 0xac);
        TEXT(&e, "BlockRemoved");
        BYTES(&e, 0x91, 0xcf, 4, 2, 3, 4, 5, 6, 7, 8, tier ? 0xa4 : 0xa3);
        if (tier) TEXT(&e, "DISK");
        else TEXT(&e, "CPU");
    }
    check_batch(&e, false, c, 4);
}

static void test_limits(void **state) {
    kv_block_change many[20] = {0};
    base_buffer out = BASE_BUFFER(1 << 20), small = BASE_BUFFER(1000);
    (void)state;
    for (uint8_t i = 0; i < 20; i++) many[i] = block((uint8_t)(i + 1), i, RP_TIER_RAM, 0);
    memset(&many[0].name, 0, sizeof(rp_name)); /* a hash of 0 says "no parent" */
    many[1].parent = many[0].name;
    assert_int_equal(kv_event_batch_write(&out, 1.5, false, many, 20), RP_OK);
    const uint8_t head[] = {0x93, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0xdd, 0, 0, 0, 1, 0x98, 0xab};
    assert_memory_equal(out.data, head, sizeof(head));
    const uint8_t first[] = {0xdc, 0, 20, 0x01, 0xcf, 2};
    assert_memory_equal(out.data + sizeof(head) + 11, first, sizeof(first));
    assert_int_equal(kv_event_batch_write(&small, 1.5, false, many, 20), RP_ERR_LIMIT);
    base_buffer_free(&out);
    base_buffer_free(&small);
}

static void test_no_memory(void **state) {
    const kv_block_change c = block(1, 0, RP_TIER_RAM, 0);
    (void)state;
    for (uint64_t n = 1;; n++) {
        base_buffer out = BASE_BUFFER(1 << 20);
        base_alloc_fail_at(n, 0);
        const int rc = kv_event_batch_write(&out, 1.5, true, &c, 1);
        base_alloc_fail_at(0, 0);
        base_buffer_free(&out);
        if (rc == RP_OK) {
            assert_true(n > 1);
            return;
        }
        assert_int_equal(rc, RP_ERR_MEMORY);
    }
}

/* ---- blocks ---- */

#define N_BLOCKS 600 /* block i > 0 of a text has the parent (i - 1) / 2: a tree */
#ifdef BASE_SANITIZED
#define N_STEPS 20000
#else
#define N_STEPS 60000
#endif

typedef struct copy {
    kv_blocks *blocks;
    uint8_t held[N_BLOCKS], known[N_BLOCKS];
    bool seen[N_BLOCKS]; /* since the restart: gateways remember hashes */
} copy;

static rp_name tree_name(int i) {
    rp_name n = {{0}};
    n.bytes[0] = 1;
    n.bytes[1] = (uint8_t)(i & 3); /* few buckets: many names collide */
    n.bytes[8] = (uint8_t)i, n.bytes[9] = (uint8_t)(i >> 8);
    return n;
}

static int number_of(const rp_name *n) { return n->bytes[8] | n->bytes[9] << 8; }

static void change(copy *c, int i, uint8_t tiers) {
    static int32_t tokens[RP_NAME_TOKENS];
    rp_block_change b = {.name = tree_name(i), .tiers = tiers, .tokens = tokens};
    if (i > 0) b.parent = tree_name((i - 1) / 2);
    tokens[0] = i;
    kv_blocks_change(c->blocks, &b, 1);
    c->held[i] = tiers;
}

/* As the store: what is below goes with it. */
static void drop(copy *c, int i) {
    if (i >= N_BLOCKS || c->held[i] == 0) return;
    change(c, i, 0);
    drop(c, 2 * i + 1);
    drop(c, 2 * i + 2);
}

static size_t take(copy *c, size_t most) {
    static kv_block_change out[KV_BLOCKS_PIECE];
    const size_t n = kv_blocks_take(c->blocks, out, most);
    for (size_t k = 0; k < n; k++) {
        const int i = number_of(&out[k].name), parent = (i - 1) / 2;
        assert_int_equal(out[k].tokens[0], i);
        assert_true(out[k].stored | out[k].removed);
        assert_int_equal(c->known[i] & out[k].stored, 0);
        assert_int_equal(c->known[i] & out[k].removed, out[k].removed);
        c->known[i] = (uint8_t)((c->known[i] | out[k].stored) & ~out[k].removed);
        if (!out[k].stored) continue;
        c->seen[i] = true;
        if (i > 0) {
            assert_int_equal(number_of(&out[k].parent), parent);
            assert_true(c->seen[parent]);
        }
    }
    return n;
}

static void test_blocks(void **state) {
    copy c = {0};
    rp_error err = {0};
    tiny_random r = {test_seed("kv_event_batch", 20261126)};
    (void)state;
    must(kv_blocks_new(&c.blocks, &err), &err);
    for (int step = 0; step < N_STEPS; step++) {
        const int i = (int)tiny_random_below(&r, N_BLOCKS), what = (int)tiny_random_below(&r, 100);
        const uint8_t tiers = (uint8_t)(1 + tiny_random_below(&r, 3));
        if (what < 70 && (i == 0 || c.held[(i - 1) / 2])) change(&c, i, tiers);
        else if (what < 80) drop(&c, i);
        else if (what < 99) take(&c, 1 + (size_t)what % 7);
        else {
            kv_blocks_restart(c.blocks);
            memset(c.known, 0, sizeof(c.known));
            memset(c.seen, 0, sizeof(c.seen));
        }
    }
    while (take(&c, KV_BLOCKS_PIECE) > 0) continue;
    assert_memory_equal(c.known, c.held, sizeof(c.held));
    size_t n = 0;
    for (int i = 0; i < N_BLOCKS; i++) n += c.held[i] != 0;
    assert_int_equal(kv_blocks_count(c.blocks), n);
    assert_int_equal(kv_blocks_left_out(c.blocks), 0);
    drop(&c, 0);
    while (take(&c, KV_BLOCKS_PIECE) > 0) continue;
    assert_int_equal(kv_blocks_count(c.blocks), 0);
    kv_blocks_free(c.blocks);
}

/* A block without memory is left out, and is there when it changes again. */
static void test_blocks_no_memory(void **state) {
    copy c = {0};
    rp_error err = {0};
    (void)state;
    base_alloc_fail_at(1, 0);
    assert_int_equal(kv_blocks_new(&c.blocks, &err), RP_ERR_MEMORY);
    kv_blocks_free(c.blocks);
    base_alloc_fail_at(0, 0);
    must(kv_blocks_new(&c.blocks, &err), &err);
    base_alloc_fail_at(1, 0);
    change(&c, 0, 1);
    base_alloc_fail_at(0, 0);
    assert_int_equal(kv_blocks_left_out(c.blocks), 1);
    assert_int_equal(take(&c, 9), 0);
    change(&c, 0, 3);
    assert_int_equal(take(&c, 9), 1);
    assert_int_equal(c.known[0], 3);
    kv_blocks_free(c.blocks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cleared),
        cmocka_unit_test(test_stored),
        cmocka_unit_test(test_removed),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_blocks_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
