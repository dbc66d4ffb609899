/* SPDX-License-Identifier: Apache-2.0 */
/* test_capacity.c: how many tokens of modules fit the same budgets in each KV format. TinyLlama-1.1B's shape (22
 * layers, 4 KV heads of 64 dimensions), spans of 256 tokens.
 *
 *   RAM   a pool of an engine with that format, filled until it refuses a span: used bytes of its statistics
 *   disk  records, written until the budget is used up: the bytes that their files take
 *
 * The printed table is that of docs/performance.md, "KV formats".
 */
#define _POSIX_C_SOURCE 200809L /* lstat */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "store/record/record.h"
#include "support/kv_shapes.h"
#include "support/must.h"
#include "support/store_folder.h"

#define RAM_BUDGET ((uint64_t)64 << 20)
#define DISK_BUDGET ((uint64_t)24 << 20)
#define MOST_SPANS 256

static const kv_shape shape = {KV_SAME(22, 4, 64, 64), .format = RP_KV_F16};

/* Least ratios to f16. Four bits miss 3.5 in RAM: seven cells of 4,544 bytes leave 6 % of a block of 33,792 unused. */
static const struct {
    rp_kv_format format;
    double ram, disk;
} limits[] = {
    {RP_KV_F16, 1, 1},
    {RP_KV_F32, 0.5, 0.5},
    {RP_KV_INT8, 1.9, 1.9},
    {RP_KV_KIVI4, 3.3, 3.5},
    {RP_KV_K4V2, 4.2, 4.6},
    {RP_KV_KIVI2, 6, 6},
};

typedef struct capacity {
    int32_t ram_tokens, disk_tokens;
    double ram, disk; /* tokens per MiB of the bytes in use */
} capacity;

static kv_span *new_span(kv_pool *pool, rp_kv_format format, uint8_t no) {
    static const uint8_t kept[] = {15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
                                   15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15};
    const kv_span_form form = {.format = format, .n_tokens = KV_SPAN_TOKENS, .readable_from = INT32_MIN, .kept = kept};
    const base_key key = {{no, (uint8_t)format, 1}};
    kv_span *s;
    return kv_span_restore(&s, pool, &form, &key, NULL) ? NULL : s;
}

static kv_pool *new_pool(rp_kv_format format, uint64_t budget) {
    const kv_shape s = kv_shape_in(&shape, kv_format_is_encoded(format) ? RP_KV_INT8 : format);
    kv_pool *pool;
    rp_error err = {0};
    must(kv_pool_new(&pool, &s, budget, NULL, &err), &err);
    return pool;
}

static void fill_ram(rp_kv_format format, capacity *c) {
    kv_span *spans[MOST_SPANS];
    int n = 0;
    kv_pool *pool = new_pool(format, RAM_BUDGET);
    while (n < MOST_SPANS && (spans[n] = new_span(pool, format, (uint8_t)n))) n++;
    assert_true(n > 0 && n < MOST_SPANS);
    const kv_pool_stats stats = kv_pool_get_stats(pool);
    assert_true(stats.used_bytes <= RAM_BUDGET);
    c->ram_tokens = n * KV_SPAN_TOKENS;
    c->ram = c->ram_tokens / ((double)stats.used_bytes / (1 << 20));
    while (n > 0) kv_span_unref(spans[--n]);
    kv_pool_free(pool);
}

static kv_span *filled_span(kv_pool *pool, rp_kv_format format) {
    const kv_shape s = kv_shape_in(&shape, format);
    const size_t bytes = kv_shape_block_bytes(&s);
    char *block = malloc(bytes);
    kv_span *span = new_span(pool, format, 0);
    assert_true(block && span);
    for (size_t i = 0; i < bytes; i++) block[i] = (char)(i * 2654435761u >> 13);
    for (int32_t l = 0; l < shape.n_layers; l++)
        for (int32_t b = 0; b < KV_SPAN_BLOCKS; b++) kv_span_put_block(span, l, b, block);
    kv_span_set_ready(span, shape.n_layers);
    free(block);
    return span;
}

static void fill_disk(rp_kv_format format, capacity *c) {
    static int32_t tokens[KV_SPAN_TOKENS];
    char dir[STORE_FOLDER_BYTES], path[STORE_FOLDER_BYTES + 16];
    rp_error err = {0};
    uint64_t bytes = 0;
    int n = 0;
    kv_pool *pool = new_pool(format, UINT64_C(1) << 30);
    kv_span *span = filled_span(pool, format);
    const record_format expected = {.fingerprint = {{1}}, .any_format = true, .shape = *kv_pool_shape(pool)};
    store_folder_make(dir);
    for (;; n++) {
        const record r = {.key = *kv_span_key(span),
                          .kind = RECORD_MODULE,
                          .n_tokens = KV_SPAN_TOKENS,
                          .tokens = tokens,
                          .label = "a/module"};
        struct stat st;
        snprintf(path, sizeof path, "%s/%d.rps", dir, n);
        must(record_write(path, &expected, &r, span, NULL, NULL, &err), &err);
        assert_int_equal(stat(path, &st), 0);
        const uint64_t taken = (uint64_t)st.st_blocks * 512;
        if (bytes + taken > DISK_BUDGET) break;
        bytes += taken;
    }
    assert_true(n > 0);
    c->disk_tokens = n * KV_SPAN_TOKENS;
    c->disk = c->disk_tokens / ((double)bytes / (1 << 20));
    store_folder_remove(dir);
    kv_span_unref(span);
    kv_pool_free(pool);
}

static void small_formats_hold_more_tokens(void **state) {
    capacity all[BASE_ARRAY_LEN(limits)];
    (void)state;
    printf("| modules | tokens in %d MiB of RAM | a MiB | ratio | tokens in %d MiB on disk | a MiB | ratio |\n",
           (int)(RAM_BUDGET >> 20), (int)(DISK_BUDGET >> 20));
    for (size_t i = 0; i < BASE_ARRAY_LEN(limits); i++) {
        fill_ram(limits[i].format, &all[i]);
        fill_disk(limits[i].format, &all[i]);
        const double ram = all[i].ram / all[0].ram, disk = all[i].disk / all[0].disk;
        printf("| %s | %d | %.1f | %.2f x | %d | %.1f | %.2f x |\n", kv_format_name(limits[i].format),
               all[i].ram_tokens, all[i].ram, ram, all[i].disk_tokens, all[i].disk, disk);
        assert_true(ram >= limits[i].ram * 0.9999 && disk >= limits[i].disk * 0.995);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_formats_hold_more_tokens)};
    return cmocka_run_group_tests_name("capacity", tests, NULL, NULL);
}
