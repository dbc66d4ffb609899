/* SPDX-License-Identifier: Apache-2.0 */
/* test_content_decode.c: decoders of content codings with every allocation failing, and with a sink that ends them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "server/http/content_coding.h"

/* "reprise" in each coding; deflate as a zlib stream and as a raw one. */
static const struct {
    content_coding coding;
    size_t n;
    const char *bytes;
} inputs[] = {
    {CONTENT_GZIP, 27, "\x1f\x8b\x08\0\0\0\0\0\x02\x03\x2b\x4a\x2d\x28\xca\x2c\x4e\x05\0\0\x47\x8a\xf8\x07\0\0\0"},
    {CONTENT_DEFLATE, 15, "\x78\xda\x2b\x4a\x2d\x28\xca\x2c\x4e\x05\0\x0c\x01\x02\xfb"},
    {CONTENT_DEFLATE, 9, "\x2b\x4a\x2d\x28\xca\x2c\x4e\x05\0"},
    {CONTENT_ZSTD, 16, "\x28\xb5\x2f\xfd\0\x68\x39\0\0"
                       "reprise"},
};

typedef struct taken {
    size_t n;
    char bytes[16];
} taken;

static int take(void *user, const void *bytes, size_t n) {
    taken *t = user;
    assert_true(t->n + n < sizeof(t->bytes));
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
    return RP_OK;
}

static int refuse(void *user, const void *bytes, size_t n) {
    (void)bytes;
    *(size_t *)user += n;
    return RP_ERR_LIMIT;
}

static void test_failing_allocations(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(inputs) / sizeof(*inputs); i++) {
        int rc = RP_ERR_MEMORY;
        uint64_t n = 0;
        while (rc != RP_OK) {
            taken t = {0};
            rp_error err = {0};
            base_alloc_fail_at(++n, 0);
            rc = content_decode(inputs[i].coding, inputs[i].bytes, inputs[i].n, take, &t, &err);
            base_alloc_fail_at(0, 0);
            assert_true(rc == RP_OK || (rc == RP_ERR_MEMORY && err.message[0]));
            if (rc == RP_OK) assert_memory_equal(t.bytes, "reprise", sizeof("reprise"));
        }
        assert_true(n > 2); /* the decoder's own memory is counted, besides the piece */
    }
}

static void test_sink(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(inputs) / sizeof(*inputs); i++) {
        size_t n = 0;
        assert_int_equal(content_decode(inputs[i].coding, inputs[i].bytes, inputs[i].n, refuse, &n, NULL),
                         RP_ERR_LIMIT);
        assert_int_equal(n, 7);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failing_allocations), cmocka_unit_test(test_sink)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
