/* SPDX-License-Identifier: Apache-2.0 */
/* test_block.c: the used slots of a block, packed and unpacked, in every KV format. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "kv/kv_layer.h"
#include "support/kv_shapes.h"
#include "support/seed.h"
#include "support/tiny_random.h"

static const kv_layer_shape shapes[] = {KV_ROW(1, 2, 2, 0, false), KV_ROW(3, 10, 34, 0, false),
                                        KV_ROW(2, 64, 64, 0, false)};

static kv_layer layer_of(size_t shape, int format) { return kv_layer_make(&shapes[shape], (rp_kv_format)format); }

static void check_block(const kv_layer *l, int n, tiny_random *r) {
    const size_t bytes = l->block_bytes, used = kv_block_used_bytes(l, n);
    uint8_t *first = malloc(bytes), *block = malloc(bytes), *packed = malloc(bytes);
    assert_true(first && block && packed && used <= bytes && (n < KV_BLOCK_SLOTS || used == bytes));
    for (size_t i = 0; i < bytes; i++) block[i] = (uint8_t)tiny_random_u64(r);
    kv_block_clear_slots(l, block, n);
    assert_int_equal(kv_block_pack(l, block, n), used);
    memcpy(packed, block, used);
    memset(block + used, 0xff, bytes - used); /* what stands after the packed bytes does not matter */
    kv_block_unpack(l, block, n);
    memcpy(first, block, bytes);
    kv_block_clear_slots(l, block, n);
    assert_memory_equal(block, first, bytes); /* unused slots are zeros */
    kv_block_pack(l, block, n);
    assert_memory_equal(block, packed, used); /* and used ones are what they were */
    free(first);
    free(block);
    free(packed);
}

static void used_slots_are_packed(void **state) {
    tiny_random r = {test_seed("block", 20261124)};
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(shapes); i++)
        for (int format = 0; format < RP_N_KV_FORMATS; format++)
            for (int n = 1; n <= KV_BLOCK_SLOTS; n++) {
                const kv_layer l = layer_of(i, format);
                check_block(&l, n, &r);
            }
}

/* Slots of tokens keep their bytes: in f16, where a slot's place is simple. */
static void packing_is_in_order(void **state) {
    enum { DIM = 4,
           N = 3 };
    const kv_layer l = kv_layer_make(&(kv_layer_shape)KV_ROW(1, DIM, DIM, 0, false), RP_KV_F16);
    uint16_t block[2 * DIM * KV_BLOCK_SLOTS] = {0};
    (void)state;
    for (int d = 0; d < DIM; d++)
        for (int slot = 0; slot < N; slot++) {
            block[d * KV_BLOCK_SLOTS + slot] = (uint16_t)(1000 + 10 * d + slot);
            block[DIM * KV_BLOCK_SLOTS + slot * DIM + d] = (uint16_t)(2000 + 10 * slot + d);
        }
    assert_int_equal(kv_block_pack(&l, block, N), 2 * 2 * DIM * N);
    for (int i = 0; i < DIM * N; i++) {
        assert_int_equal(block[i], 1000 + 10 * (i / N) + i % N);
        assert_int_equal(block[DIM * N + i], 2000 + 10 * (i / DIM) + i % DIM);
    }
}

/* Bytes of a token in a short span: 10 of 64 slots take about 10 of 64 bytes. */
static void short_spans_are_small(void **state) {
    (void)state;
    for (int format = 0; format < RP_N_KV_FORMATS; format++) {
        const kv_layer l = layer_of(2, format);
        const size_t all = kv_block_used_bytes(&l, 64), ten = kv_block_used_bytes(&l, 10);
        const size_t ranges =
            kv_element_is_encoded(kv_format_keys(l.format)) ? 4 * 64 * 2 : 0; /* of keys: for each dimension */
        assert_in_range(ten - ranges, (all - ranges) * 10 / 64,
                        (all - ranges) * (kv_format_keys(l.format) == KV_ELEMENT_2BIT ? 22 : 14) / 64);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(used_slots_are_packed),
        cmocka_unit_test(packing_is_in_order),
        cmocka_unit_test(short_spans_are_small),
    };
    return cmocka_run_group_tests_name("block", tests, NULL, NULL);
}
