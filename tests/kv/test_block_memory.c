/* SPDX-License-Identifier: Apache-2.0 */
/* test_block_memory.c: spans and records in memory that the host cannot reach (support/trap_memory.h) against the same
 * in memory of the host: the same bytes, and no byte touched but through the memory's operations. tests/trapped does
 * this for the engine.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "kv/host_memory.h"
#include "store/record/record.h"
#include "support/kv_shapes.h"
#include "support/must.h"
#include "support/record_forge.h"
#include "support/reduced_run.h"
#include "support/scratch_file.h"
#include "support/seed.h"
#include "support/trap_memory.h"

#define BUDGET_BYTES (1 << 24)

static int32_t below(tiny_random *r, int32_t n) { return (int32_t)tiny_random_below(r, (uint64_t)n); }

/* ---- the trap ---- */

/* Does a process end that touches a byte? */
static bool is_trapped(const kv_span *s, int32_t layer, int32_t block, size_t at, bool writes) {
    const pid_t child = fork();
    int status = 0;
    assert_true(child >= 0);
    if (child == 0) {
        volatile char *p = (char *)kv_host_bytes(kv_span_keys(s, layer, block, 0)) + at;
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        if (writes) *p = 1;
        else (void)*p;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static bool reaches_a_system_call(const kv_span *s) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const bool reaches = write(ends[1], kv_host_bytes(kv_span_values(s, 0, 0, 0)), 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return reaches;
}

/* What makes the other tests, here and in tests/trapped, able to fail. */
static void who_touches_a_block_is_caught(void **state) {
    const kv_shape shape = {KV_SAME(2, 2, 8, 8), .format = RP_KV_F16};
    tiny_random *r = *state;
    kv_pool *pool;
    kv_span *run[REDUCED_RUN_SPANS];
    assert_int_equal(kv_pool_new(&pool, &shape, BUDGET_BYTES, trap_memory(), NULL), RP_OK);
    reduced_run_make(r, pool, RP_KV_F16, 0, 100, run);
    const size_t last = kv_span_layer(run[0], 0)->key_bytes - 1;
    for (int i = 0; i < 8; i++) assert_true(is_trapped(run[0], i & 1, i >> 1 & 1, i < 4 ? 0 : last, i % 3 == 0));
    assert_false(reaches_a_system_call(run[0]));
    assert_false(kv_span_is_in_place(run[0], 0));
    trap_memory_open();
    trap_memory_open();
    trap_memory_close();
    assert_false(is_trapped(run[0], 0, 0, last, true));
    assert_true(reaches_a_system_call(run[0]));
    trap_memory_close();
    assert_true(is_trapped(run[0], 0, 0, last, false));
    reduced_run_free(run);
    kv_pool_free(pool);
    assert_int_equal(kv_pool_new(&pool, &shape, BUDGET_BYTES, NULL, NULL), RP_OK); /* the host's */
    reduced_run_make(r, pool, RP_KV_F16, 0, 100, run);
    assert_false(is_trapped(run[0], 0, 0, 0, true));
    assert_true(kv_span_is_in_place(run[0], 0));
    reduced_run_free(run);
    kv_pool_free(pool);
}

/* ---- spans ---- */

static const kv_shape shapes[] = {
    {KV_SAME(3, 2, 8, 4), .format = RP_KV_F32},
    {KV_SAME(2, 4, 16, 16), .format = RP_KV_F16},
    {KV_SAME(2, 1, 16, 16), .format = RP_KV_INT8},
    {KV_ROWS(3, KV_ROW(2, 16, 16, 70, false), KV_ROW(2, 16, 16, 0, true), KV_ROW(2, 16, 16, 10, false)),
     .format = RP_KV_INT8},
    {KV_ROWS(3, KV_ROW(2, 16, 8, 70, false), KV_ROW(2, 16, 8, 0, false), KV_ROW(2, 16, 8, 10, false)),
     .format = RP_KV_F16},
};

/* The same KV in both memories. */
typedef struct pair {
    kv_pool *pools[2]; /* of the host, trapped */
    kv_span *runs[2][REDUCED_RUN_SPANS];
} pair;

/* One of the formats that tokens are stored in and the pool takes. */
static rp_kv_format some_format(tiny_random *r, const kv_pool *pool) {
    static const rp_kv_format formats[] = {RP_KV_F16, RP_KV_INT8};
    const rp_kv_format f = formats[below(r, (int32_t)BASE_ARRAY_LEN(formats))];
    return kv_pool_takes(pool, f) ? f : kv_pool_shape(pool)->format;
}

static void open_pair(pair *p, tiny_random *r, const kv_shape *shape, int32_t n) {
    kv_memory *memories[] = {kv_host_memory(), trap_memory()};
    const int32_t pos = below(r, 500);
    const uint64_t seed = tiny_random_u64(r), choice = tiny_random_u64(r);
    for (int i = 0; i < 2; i++) {
        tiny_random bytes = {seed}, format = {choice};
        assert_int_equal(kv_pool_new(&p->pools[i], shape, BUDGET_BYTES, memories[i], NULL), RP_OK);
        reduced_run_make(&bytes, p->pools[i], some_format(&format, p->pools[i]), pos, n, p->runs[i]);
    }
}

static void close_pair(pair *p) {
    for (int i = 0; i < 2; i++) {
        reduced_run_free(p->runs[i]);
        assert_int_equal(kv_pool_get_stats(p->pools[i]).used_bytes, 0);
        kv_pool_free(p->pools[i]);
    }
}

static void expect_same_blocks(const kv_span *a, const kv_span *b) {
    const size_t most = kv_shape_most_block_bytes(kv_span_shape(a));
    uint8_t *x = base_calloc(2, most);
    for (int32_t l = 0; l < kv_span_shape(a)->n_layers; l++)
        for (int32_t block = 0; block * KV_BLOCK_SLOTS < kv_span_tokens(a); block++) {
            assert_int_equal(kv_span_has(a, l, block), kv_span_has(b, l, block));
            if (!kv_span_has(a, l, block)) continue;
            kv_span_get_block(a, l, block, x);
            kv_span_get_block(b, l, block, x + most);
            const kv_layer *row = kv_span_layer(a, l);
            const int32_t used = BASE_MIN(kv_span_tokens(a) - block * KV_BLOCK_SLOTS, KV_BLOCK_SLOTS);
            kv_block_clear_slots(row, x, used);
            kv_block_clear_slots(row, x + most, used);
            assert_memory_equal(x, x + most, row->block_bytes);
        }
    base_free(x);
}

static void expect_same_cells(const kv_span *a, const kv_span *b) {
    const kv_shape *shape = kv_span_shape(a);
    uint8_t *x = base_calloc(2, kv_shape_most_block_bytes(shape));
    for (int32_t i = 0; i < shape->n_layers * kv_shape_heads(shape); i++) {
        const int32_t l = i / kv_shape_heads(shape), head = i % kv_shape_heads(shape), n = kv_span_slots(a, l, head);
        const kv_layer cell = kv_layer_cell(kv_span_layer(a, l));
        uint8_t *y = x + cell.cell_bytes;
        assert_int_equal(n, kv_span_slots(b, l, head));
        for (int32_t block = 0; block * KV_BLOCK_SLOTS < n; block++) {
            const int32_t used = BASE_MIN(n - block * KV_BLOCK_SLOTS, KV_BLOCK_SLOTS);
            kv_span_get_cell(a, l, block, head, x);
            kv_span_get_cell(b, l, block, head, y);
            kv_block_clear_slots(&cell, x, used);
            kv_block_clear_slots(&cell, y, used);
            assert_memory_equal(x, y, cell.cell_bytes);
        }
    }
    base_free(x);
}

static void spans_have_the_same_bytes(void **state) {
    tiny_random *r = *state;
    const trap_memory_use before = trap_memory_used();
    for (int round = 0; round < test_rounds(40); round++) {
        const kv_shape *shape = &shapes[round % (int)BASE_ARRAY_LEN(shapes)];
        const int32_t n = 1 + below(r, REDUCED_RUN_SPANS * KV_SPAN_TOKENS);
        pair p;
        open_pair(&p, r, shape, n);
        for (size_t i = 0; i < reduced_run_spans(p.runs[0]); i++) expect_same_blocks(p.runs[0][i], p.runs[1][i]);
        kv_selection *s = reduced_run_select(r, shape, n);
        for (int32_t part = 0; part < kv_reduced_spans(s); part++) {
            kv_span *parts[2];
            for (int i = 0; i < 2; i++)
                assert_int_equal(kv_span_reduce(&parts[i], (const kv_span *const *)p.runs[i],
                                                reduced_run_spans(p.runs[i]), s, part, NULL),
                                 RP_OK);
            expect_same_cells(parts[0], parts[1]);
            kv_span_unref(parts[0]);
            kv_span_unref(parts[1]);
        }
        kv_selection_free(s);
        close_pair(&p);
    }
    const trap_memory_use after = trap_memory_used();
    assert_true(after.read > before.read && after.written > before.written && after.copied > before.copied);
}

/* ---- records ---- */

static void write_record(const kv_span *s, const kv_shape *shape, const record_cipher *cipher) {
    static const int32_t tokens[KV_SPAN_TOKENS];
    const record_format format = {.shape = *shape, .any_format = true};
    const record content = {
        .key = *kv_span_key(s), .kind = RECORD_MODULE, .n_tokens = kv_span_tokens(s), .tokens = tokens, .label = ""};
    rp_error err = {0};
    must(record_write(scratch_file_path(), &format, &content, s, cipher, NULL, &err), &err);
}

static kv_span *read_record(kv_pool *pool, const base_key *key, const record_cipher *cipher) {
    const record_format format = {.shape = *kv_pool_shape(pool), .any_format = true};
    record_reader *reader;
    kv_span *s;
    rp_error err = {0};
    assert_int_equal(record_reader_open(&reader, scratch_file_path(), &format, key, cipher, &err), RECORD_FAULT_NONE);
    must(kv_span_restore(&s, pool, &record_reader_record(reader)->form, key, &err), &err);
    for (int32_t l = 0; l < format.shape.n_layers; l++)
        assert_int_equal(record_read_layer(reader, l, s, &err), RECORD_FAULT_NONE);
    kv_span_set_ready(s, format.shape.n_layers);
    record_reader_close(reader);
    return s;
}

/* Whether layers are read and written in place or not. Encrypted records differ in each file: their content comes
   back. */
static void records_have_the_same_bytes(void **state) {
    tiny_random *r = *state;
    record_cipher *cipher = forge_cipher(3);
    for (int round = 0; round < test_rounds(40); round++) {
        const kv_shape *shape = &shapes[round % (int)BASE_ARRAY_LEN(shapes)];
        const record_cipher *with = round % 4 == 3 ? cipher : NULL;
        const base_key key = {{(uint8_t)round}};
        forged files[2];
        pair p;
        open_pair(&p, r, shape, 1 + below(r, KV_SPAN_TOKENS));
        kv_span *spans[2] = {p.runs[0][0], p.runs[1][0]};
        for (int i = 0; i < 2; i++) {
            kv_span_trim(spans[i], kv_span_end(spans[i]), NULL, 0);
            kv_span_seal(spans[i], &key);
            write_record(spans[i], shape, with);
            files[i] = forge_load(scratch_file_path());
            kv_span *other = read_record(p.pools[1 - i], &key, with);
            expect_same_blocks(spans[i], other);
            kv_span_unref(other);
        }
        assert_int_equal(files[0].n, files[1].n);
        if (!with) assert_memory_equal(files[0].bytes, files[1].bytes, files[0].n);
        forge_free(&files[0]);
        forge_free(&files[1]);
        close_pair(&p);
    }
    record_cipher_close(cipher);
}

int main(void) {
    tiny_random random = {test_seed("test_block_memory", 20261128)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(who_touches_a_block_is_caught, &random),
        cmocka_unit_test_prestate(spans_have_the_same_bytes, &random),
        cmocka_unit_test_prestate(records_have_the_same_bytes, &random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
