/* SPDX-License-Identifier: Apache-2.0 */
/* test_bytes.c: numbers as bytes, hexadecimal digits (base/bytes.h), and lists (base/list.h) against an array under
   random operations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/list.h"
#include "support/seed.h"
#include "support/tiny_random.h"

static void numbers_are_little_endian(void **state) {
    static const uint8_t expected[] = {0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
    const uint64_t v = UINT64_C(0x1122334455667788);
    (void)state;
    for (int n = 0; n <= 8; n++) {
        uint8_t bytes[10];
        memset(bytes, 0xee, sizeof(bytes));
        base_put_le(bytes + 1, v, n);
        assert_memory_equal(bytes + 1, expected, (size_t)n);
        assert_true(bytes[0] == 0xee && bytes[n + 1] == 0xee);
        assert_true(base_get_le(bytes + 1, n) == (n == 8 ? v : v & ((UINT64_C(1) << 8 * n) - 1)));
    }
    uint8_t bytes[12];
    base_put_u32(bytes, UINT32_MAX - 1), base_put_u64(bytes + 4, v);
    assert_int_equal(base_get_u32(bytes), UINT32_MAX - 1);
    assert_true(base_get_u64(bytes + 4) == v);
}

static void digits_have_values(void **state) {
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    (void)state;
    for (int c = -1; c < 256; c++) {
        const char *in_lower = c > 0 ? strchr(lower, c) : NULL, *in_upper = c > 0 ? strchr(upper, c) : NULL;
        const int value = in_lower ? (int)(in_lower - lower) : in_upper ? (int)(in_upper - upper)
                                                                        : -1;
        assert_int_equal(base_hex_digit(c), value);
    }
}

/* ---- lists ---- */

#define N_ITEMS 12

typedef struct item {
    BASE_LINKS(struct item)
    queued;
    bool is_queued;
} item;

typedef BASE_LIST(item) item_list;

static void check_list(const item_list *list, item *const *expected, int n) {
    const item *i = list->first, *previous = NULL;
    for (int k = 0; k < n; k++, previous = i, i = i->queued.next) {
        assert_ptr_equal(i, expected[k]);
        assert_ptr_equal(i->queued.previous, previous);
    }
    assert_null(i);
    assert_ptr_equal(list->last, previous);
}

static void lists_are_arrays(void **state) {
    item items[N_ITEMS] = {0};
    item *expected[N_ITEMS];
    item_list list = {0};
    int n = 0;
    tiny_random r = {test_seed("lists", 20261128)};
    (void)state;
    for (int round = 0; round < 5000; round++) {
        item *i = &items[tiny_random_below(&r, N_ITEMS)];
        if (i->is_queued) {
            int k = 0;
            while (expected[k] != i) k++;
            memmove(&expected[k], &expected[k + 1], (size_t)(n - k - 1) * sizeof(*expected));
            n--;
            BASE_LIST_REMOVE(&list, i, queued);
        } else if (tiny_random_below(&r, 2)) {
            expected[n++] = i;
            BASE_LIST_APPEND(&list, i, queued);
        } else {
            memmove(&expected[1], expected, (size_t)n++ * sizeof(*expected));
            expected[0] = i;
            BASE_LIST_PREPEND(&list, i, queued);
        }
        i->is_queued = !i->is_queued;
        check_list(&list, expected, n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_little_endian),
        cmocka_unit_test(digits_have_values),
        cmocka_unit_test(lists_are_arrays),
    };
    return cmocka_run_group_tests_name("bytes and lists", tests, NULL, NULL);
}
