/* SPDX-License-Identifier: Apache-2.0 */
/* test_tier.c: the store over any tier: it knows a tier by its table alone (store/tier.h). The same lives of a store,
 * once over the disk tier and once over a second one (support/plain_tier.h), which can be slow, absent, full, and
 * lie. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/file.h"
#include "store/record/record_cipher.h"
#include "store/disk/disk_tier.h"
#include "store/span_store.h"
#include "support/kv_shapes.h"
#include "support/must.h"
#include "support/plain_tier.h"
#include "support/record_forge.h"
#include "support/store_folder.h"
#include "reprise_store.h"

#define N_SPANS 6
#define BUDGET (UINT64_C(4) << 20)
#define WAIT_US 20000000

static const kv_shape shape = {KV_SAME(3, 2, 8, 8), .format = RP_KV_F16};

typedef enum tier_choice {
    DISK,
    PLAIN,
    CHOICES,
} tier_choice;

typedef struct world {
    tier_choice kind;
    char dir[STORE_FOLDER_BYTES];
    record_world spans[N_SPANS]; /* what was prefilled */
    plain_medium medium;
    plain_tier_options plain;
    disk_tier_options disk;
    record_format format;
    kv_pool *pool;
    span_store *store;
    span_store_write write;
    uint64_t budget_bytes;
} world;

static void ignore_event(void *user) { (void)user; }

/* Texts have no tree here: each is its own owner. */
static int own_text(void *user, const record_row *row, span_claim *claim, rp_error *err) {
    (void)row, (void)err;
    *claim = (span_claim){.owner = user, .is_known = true};
    return RP_OK;
}

/* RP_ERR_INVALID: the budget is too small. */
static int try_open(world *w, rp_error *err) {
    const span_store_disk disk = {
        .source = w->kind == DISK ? (tier_source){.open = disk_tier_open, .options = &w->disk}
                                  : (tier_source){.open = plain_tier_open, .options = &w->plain},
        .format = &w->format,
        .notify = ignore_event,
        .write = w->write,
        .budget_bytes = w->budget_bytes,
    };
    must(kv_pool_new(&w->pool, &shape, UINT64_C(8) << 20, NULL, err), err);
    must(span_store_new(&w->store, w->pool, err), err);
    kv_pool_set_reclaim(w->pool, span_store_reclaim, w->store);
    return span_store_open_disk(w->store, &disk, own_text, w, err);
}

static void open_store(world *w) {
    rp_error err = {0};
    must(try_open(w, &err), &err);
}

static size_t close_store(world *w) {
    const size_t n_lost = span_store_close(w->store, UINT64_MAX);
    assert_int_equal(kv_pool_get_stats(w->pool).used_bytes, 0);
    kv_pool_free(w->pool);
    return n_lost;
}

static void open_world(world *w, tier_choice kind) {
    *w = (world){.kind = kind, .write = SPAN_STORE_WRITE_THROUGH, .budget_bytes = BUDGET};
    store_folder_make(w->dir);
    for (uint64_t i = 0; i < N_SPANS; i++)
        record_world_open(&w->spans[i], &(record_plan){.shape = &shape, .n_slots = 70, .seed = i + 1});
    w->format = w->spans[0].format;
    w->medium.dir = w->disk.dir = w->dir;
    w->plain.medium = &w->medium;
}

static void close_world(world *w) {
    for (int i = 0; i < N_SPANS; i++) record_world_close(&w->spans[i]);
    store_folder_remove(w->dir);
}

static const base_key *key_of(const world *w, int i) { return &w->spans[i].record.key; }

static rp_store_stats stats_of(const world *w) {
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    span_store_stats(w->store, &stats);
    return stats;
}

/* Until nothing is read, written or synced. */
static void wait_idle(world *w) {
    const uint64_t end = base_clock_us() + WAIT_US;
    while (span_store_is_busy(w->store) || stats_of(w).disk_waiting > 0) {
        span_store_poll(w->store);
        if (base_clock_us() > end) fail_msg("the tier does not end");
    }
    span_store_settle_writer(w->store);
}

/* The same, and no span is referenced outside the store. */
static void settle(world *w) {
    wait_idle(w);
    assert_true(span_store_is_consistent(w->store, kv_pool_get_stats(w->pool).used_bytes));
}

/* The i-th span as it was prefilled, in the store's pool. */
static kv_span *prefill(world *w, int i) {
    rp_error err = {0};
    kv_span *s;
    const kv_span *from = w->spans[i].span;
    must(kv_span_restore(&s, w->pool, &w->spans[i].record.form, key_of(w, i), &err), &err);
    char *block = malloc(kv_pool_block_bytes(w->pool));
    assert_non_null(block);
    for (int32_t l = 0; l < shape.n_layers; l++) {
        for (int32_t b = 0; b * KV_BLOCK_SLOTS < kv_span_tokens(from); b++) {
            kv_span_get_block(from, l, b, block);
            kv_span_put_block(s, l, b, block);
        }
        kv_span_set_ready(s, l + 1);
    }
    free(block);
    return s;
}

static void put_kind(world *w, int i, record_kind kind, void *owner) {
    rp_error err = {0};
    kv_span *s = prefill(w, i);
    const record *r = &w->spans[i].record;
    const record about = {.kind = kind,
                          .n_tokens = r->n_tokens,
                          .tokens = r->tokens,
                          .cost_us = 1000000,
                          .label = kind == RECORD_TEXT ? "" : "a/module"};
    must(span_store_put(w->store, s, owner, &about, NULL, &err), &err);
    kv_span_unref(s);
}

static void put(world *w, int i) { put_kind(w, i, RECORD_MODULE, NULL); }

static void put_all(world *w) {
    for (int i = 0; i < N_SPANS; i++) put(w, i);
    settle(w);
}

static void empty_ram(world *w) {
    while (span_store_reclaim(w->store)) continue;
    assert_int_equal(stats_of(w).spans, 0);
}

/* Gets a span from the tier and polls until it is read, or has failed. */
static kv_span *get(world *w, int i) {
    span_found found;
    kv_span *s = span_store_get(w->store, key_of(w, i), &found);
    assert_int_equal(found, s ? SPAN_FOUND_DISK : SPAN_FOUND_NOTHING);
    if (s) settle(w);
    return s;
}

static void expect_hit(world *w, int i) {
    kv_span *s = get(w, i);
    assert_non_null(s);
    assert_false(kv_span_has_failed(s));
    assert_int_equal(kv_span_layers_ready(s), shape.n_layers);
    assert_true(forge_spans_equal(&shape, w->spans[i].span, s));
    kv_span_unref(s);
}

/* ---- any tier ---- */

static void what_is_evicted_is_read_from_the_tier(tier_choice kind) {
    world w;
    open_world(&w, kind);
    open_store(&w);
    put_all(&w);
    empty_ram(&w);
    for (int i = 0; i < N_SPANS; i++) assert_true(span_store_has(w.store, key_of(&w, i)));
    for (int i = N_SPANS - 1; i >= 0; i--) expect_hit(&w, i);
    rp_store_stats stats = stats_of(&w);
    assert_true(stats.disk_writes == N_SPANS && stats.disk_reads == N_SPANS && stats.disk_faults == 0 &&
                stats.disk_spans == N_SPANS);
    assert_int_equal(close_store(&w), 0);
    close_world(&w);
}

static void a_restart_finds_what_the_tier_has(tier_choice kind) {
    world w;
    open_world(&w, kind);
    open_store(&w);
    put_all(&w);
    const uint64_t bytes = stats_of(&w).disk_bytes;
    close_store(&w);
    open_store(&w);
    assert_true(stats_of(&w).disk_spans == N_SPANS && stats_of(&w).disk_bytes <= bytes && stats_of(&w).spans == 0);
    for (int i = 0; i < N_SPANS; i++) expect_hit(&w, i);
    close_store(&w);
    close_world(&w);
}

/* The budget of the tier holds three records and less than two more: the others are evicted from it, and are misses. */
static void a_full_tier_evicts(tier_choice kind) {
    world w;
    rp_error err = {0};
    open_world(&w, kind);
    open_store(&w);
    put(&w, 0);
    settle(&w);
    const uint64_t one = stats_of(&w).disk_bytes;
    put_all(&w);
    close_store(&w);
    int rc = RP_ERR_INVALID;
    for (w.budget_bytes = one; rc; w.budget_bytes += one) {
        rc = try_open(&w, &err);
        close_store(&w);
        assert_true((rc == RP_OK || rc == RP_ERR_INVALID) && w.budget_bytes < BUDGET);
    }
    w.budget_bytes += 2 * one;
    open_store(&w);
    span_store_fit_disk(w.store);
    rp_store_stats stats = stats_of(&w);
    assert_true(stats.disk_evictions > 0 && stats.disk_spans >= 3 && stats.disk_spans < 5);
    /* Those that were evicted, again. The space that a record may need is free before it is written, and a record that
     * is being written is no victim: how many of six are kept depends on the writer's speed. */
    put_all(&w);
    stats = stats_of(&w);
    assert_true(stats.disk_spans >= 1 && stats.disk_spans < 5);
    empty_ram(&w);
    int n_hits = 0;
    for (int i = 0; i < N_SPANS; i++)
        if (span_store_has(w.store, key_of(&w, i))) expect_hit(&w, i), n_hits++;
    assert_int_equal(n_hits, (int)stats.disk_spans);
    close_store(&w);
    close_world(&w);
}

static void what_is_removed_stays_away(tier_choice kind) {
    world w;
    span_sync sync;
    open_world(&w, kind);
    open_store(&w);
    put_all(&w);
    assert_true(span_store_remove(w.store, key_of(&w, 2)));
    span_store_sync(w.store, &sync, false);
    settle(&w);
    assert_true(sync.done && sync.rc == RP_OK);
    assert_null(get(&w, 2));
    close_store(&w);
    open_store(&w);
    assert_int_equal(stats_of(&w).disk_spans, N_SPANS - 1);
    assert_null(get(&w, 2));
    expect_hit(&w, 3);
    close_store(&w);
    close_world(&w);
}

#define FOR_EACH_KIND(name) \
    static void name##_any(void **state) { \
        (void)state; \
        for (int k = 0; k < CHOICES; k++) name((tier_choice)k); \
    }
FOR_EACH_KIND(what_is_evicted_is_read_from_the_tier)
FOR_EACH_KIND(a_restart_finds_what_the_tier_has)
FOR_EACH_KIND(a_full_tier_evicts)
FOR_EACH_KIND(what_is_removed_stays_away)

/* ---- a bad one ---- */

/* Layers arrive one by one, the next request's after the first one's, and each is right when it is ready. */
static void layers_of_a_slow_tier_arrive_one_by_one(void **state) {
    (void)state;
    world w;
    open_world(&w, PLAIN);
    open_store(&w);
    put_all(&w);
    empty_ram(&w);
    w.medium.patience = 5;
    kv_span *first = span_store_get(w.store, key_of(&w, 1), NULL);
    span_store_next_request(w.store);
    kv_span *second = span_store_get(w.store, key_of(&w, 4), NULL);
    assert_true(first && second);
    int32_t ready = 0;
    for (int i = 1; ready < shape.n_layers; i++) {
        assert_true(i <= 64 && !kv_span_has_failed(first) && kv_span_layers_ready(second) == 0);
        span_store_poll(w.store);
        const int32_t now = kv_span_layers_ready(first);
        assert_true(now == ready || (now == ready + 1 && i % (w.medium.patience + 1) == 0));
        ready = now;
    }
    settle(&w);
    assert_true(forge_spans_equal(&shape, w.spans[1].span, first) &&
                forge_spans_equal(&shape, w.spans[4].span, second));
    kv_span_unref(first);
    kv_span_unref(second);
    close_store(&w);
    close_world(&w);
}

/* A layer's first block is as it was prefilled. */
static void expect_block(const world *w, int i, const kv_span *s, int32_t layer) {
    const size_t n = kv_pool_block_bytes(w->pool);
    char *blocks = malloc(2 * n);
    assert_non_null(blocks);
    kv_span_get_block(w->spans[i].span, layer, 0, blocks);
    kv_span_get_block(s, layer, 0, blocks + n);
    assert_memory_equal(blocks, blocks + n, n);
    free(blocks);
}

/* Whatever the medium returns instead of a record: the read fails with a reason, no layer that is ready has other
 * bytes, and the next lookup is a miss, after which the KV is prefilled and written again. */
static void a_lie_is_a_miss(void **state) {
    (void)state;
    for (plain_lie lie = PLAIN_HONEST + 1; lie < PLAIN_LIES; lie++) {
        world w;
        char other[256], digits[65];
        open_world(&w, PLAIN);
        open_store(&w);
        put_all(&w);
        empty_ram(&w);
        base_key_hex(key_of(&w, 3), digits, 64);
        snprintf(other, sizeof(other), "%s/%s.plain", w.dir, digits);
        w.medium.lie = lie;
        w.medium.other = other;
        kv_span *s = span_store_get(w.store, key_of(&w, 0), NULL);
        assert_non_null(s);
        while (span_store_is_busy(w.store)) {
            span_store_poll(w.store);
            for (int32_t l = 0; !kv_span_has_failed(s) && l < kv_span_layers_ready(s); l++) expect_block(&w, 0, s, l);
        }
        if (!kv_span_has_failed(s)) fail_msg("lie %d was believed", (int)lie);
        kv_span_unref(s);
        span_store_poll(w.store);
        assert_int_equal(stats_of(&w).disk_faults, 1);
        assert_null(get(&w, 0));
        assert_int_equal(w.medium.n_reads, 1);
        assert_int_equal(span_store_has(w.store, key_of(&w, 0)),
                         lie == PLAIN_BREAKS); /* it may be right another time */
        assert_int_equal(w.medium.n_set_aside, lie != PLAIN_BREAKS && lie != PLAIN_LOSES);
        w.medium.lie = PLAIN_HONEST;
        put(&w, 0);
        settle(&w);
        empty_ram(&w);
        expect_hit(&w, 0);
        expect_hit(&w, 3);
        close_store(&w);
        close_world(&w);
    }
}

/* ---- unreadable records and failed spans ---- */

/* In RAM, and not the one that failed. */
static void expect_recomputed(world *w, int i, const kv_span *failed) {
    span_found found;
    kv_span *s = span_store_get(w->store, key_of(w, i), &found);
    assert_true(s && s != failed && found == SPAN_FOUND_MEMORY);
    for (int32_t l = 0; l < shape.n_layers; l++) expect_block(w, i, s, l);
    kv_span_unref(s);
}

/* The key of such a record is a miss, a recomputed span takes its entry over, and its own record the file. */
static void check_taken_over(world *w, int i, record_kind kind) {
    const uint64_t n_disk = stats_of(w).disk_spans, n_misses = stats_of(w).misses;
    assert_true(span_store_has(w->store, key_of(w, i)) && !span_store_owner(w->store, key_of(w, i)));
    assert_null(get(w, i));
    assert_null(span_store_fetch(w->store, key_of(w, i)));
    put_kind(w, i, kind, kind == RECORD_TEXT ? w : NULL);
    expect_recomputed(w, i, NULL);
    settle(w);
    assert_int_equal(stats_of(w).disk_spans, n_disk);
    empty_ram(w);
    expect_hit(w, i);
    assert_int_equal(stats_of(w).misses, n_misses + 1);
    assert_ptr_equal(span_store_owner(w->store, key_of(w, i)), kind == RECORD_TEXT ? w : NULL);
}

/* Records of another model that have the keys of this one's: modules and texts, in either order. */
static void a_record_of_another_model_is_taken_over(tier_choice kind) {
    static const record_kind kinds[] = {RECORD_MODULE, RECORD_TEXT};
    world w;
    open_world(&w, kind);
    open_store(&w);
    for (int i = 0; i < N_SPANS; i++) put_kind(&w, i, kinds[i % 2], &w);
    settle(&w);
    close_store(&w);
    const base_key own = w.format.fingerprint;
    w.format.fingerprint.bytes[5] ^= 1;
    open_store(&w);
    for (int i = 0; i < 4; i++) check_taken_over(&w, i, kinds[i / 2]);
    assert_int_equal(stats_of(&w).disk_faults, 0); /* nothing was read to find that out */
    close_store(&w);
    w.format.fingerprint = own; /* now those are the other model's */
    open_store(&w);
    for (int i = 0; i < N_SPANS; i++) assert_int_equal(span_store_owner(w.store, key_of(&w, i)) != NULL, i == 5);
    check_taken_over(&w, 0, RECORD_MODULE);
    expect_hit(&w, 4);
    expect_hit(&w, 5);
    close_store(&w);
    close_world(&w);
}
FOR_EACH_KIND(a_record_of_another_model_is_taken_over)

/* Encrypted with another key: the header is unreadable, and nothing but the name of the file is known. */
static void a_record_with_an_unreadable_header_is_taken_over(void **state) {
    char path[2][STORE_FOLDER_BYTES];
    record_cipher *ciphers[2];
    world w;
    rp_error err = {0};
    (void)state;
    open_world(&w, DISK);
    for (int k = 0; k < 2; k++) {
        store_folder_key(w.dir, path[k], (unsigned char)(k + 1));
        must(record_cipher_open(&ciphers[k], path[k], &err), &err);
        w.disk.cipher = ciphers[k];
        open_store(&w);
        if (k == 0) put_all(&w);
        else
            for (int i = 0; i < 4; i++) check_taken_over(&w, i, i % 2 ? RECORD_TEXT : RECORD_MODULE);
        assert_int_equal(stats_of(&w).disk_spans, N_SPANS);
        close_store(&w);
    }
    for (int k = 0; k < 2; k++) record_cipher_close(ciphers[k]);
    close_world(&w);
}

/* Of a span that failed and is still referenced: the key is a miss, the recomputed span is a hit at once, and the
 * reference stays valid. polls: the store has the event of the failure before the next lookup. */
static void check_replaced_while_held(tier_choice kind, plain_lie lie, bool polls) {
    world w;
    open_world(&w, kind);
    open_store(&w);
    put_all(&w);
    close_store(&w);
    if (kind == DISK) store_folder_flip(w.dir, ".rps");
    open_store(&w);
    w.medium.lie = lie;
    kv_span *failed = span_store_get(w.store, key_of(&w, 0), NULL);
    assert_non_null(failed);
    if (polls) wait_idle(&w);
    else
        while (!kv_span_has_failed(failed)) continue; /* the tier's thread */
    assert_true(kv_span_has_failed(failed));
    const uint64_t n_misses = stats_of(&w).misses;
    assert_null(span_store_get(w.store, key_of(&w, 0), NULL));
    w.medium.lie = PLAIN_HONEST;
    put(&w, 0);
    expect_recomputed(&w, 0, failed);
    wait_idle(&w);
    expect_recomputed(&w, 0, failed);
    assert_int_equal(stats_of(&w).misses, n_misses + 1);
    assert_int_equal(stats_of(&w).disk_faults, 1);
    assert_true(kv_span_has_failed(failed) && base_key_equal(kv_span_key(failed), key_of(&w, 0)));
    kv_span_unref(failed);
    settle(&w);
    empty_ram(&w);
    assert_int_equal(kv_pool_get_stats(w.pool).used_bytes, 0);
    expect_hit(&w, 0);
    close_store(&w);
    close_world(&w);
}

static void a_failed_span_is_replaced_while_it_is_held(void **state) {
    (void)state;
    for (plain_lie lie = PLAIN_HONEST + 1; lie < PLAIN_LIES; lie++)
        if (lie != PLAIN_SWAPS) check_replaced_while_held(PLAIN, lie, true);
    for (int polls = 0; polls < 2; polls++) check_replaced_while_held(DISK, PLAIN_HONEST, polls);
}

/* The same of one that an operator has removed. */
static void a_removed_span_is_replaced_while_it_is_held(void **state) {
    (void)state;
    world w;
    open_world(&w, PLAIN);
    open_store(&w);
    put_all(&w);
    kv_span *held = span_store_get(w.store, key_of(&w, 0), NULL);
    assert_true(span_store_remove(w.store, key_of(&w, 0)) && !span_store_has(w.store, key_of(&w, 0)));
    assert_false(span_store_remove(w.store, key_of(&w, 0)));
    assert_null(get(&w, 0));
    put(&w, 0);
    expect_recomputed(&w, 0, held);
    for (int32_t l = 0; l < shape.n_layers; l++) expect_block(&w, 0, held, l);
    kv_span_unref(held);
    settle(&w);
    empty_ram(&w);
    expect_hit(&w, 0);
    close_store(&w);
    close_world(&w);
}

/* A store starts and works without a tier that cannot be used, and reads from one that cannot be written. */
static void an_absent_tier_stops_no_start(void **state) {
    (void)state;
    world w;
    open_world(&w, PLAIN);
    open_store(&w);
    put_all(&w);
    close_store(&w);
    w.medium.absent = ECONNREFUSED;
    open_store(&w);
    assert_int_equal(stats_of(&w).disk_state, RP_STORE_UNUSABLE);
    assert_string_equal(stats_of(&w).disk_trouble, "other");
    assert_null(get(&w, 0));
    put(&w, 0);
    assert_true(span_store_has(w.store, key_of(&w, 0)) && !span_store_is_busy(w.store));
    empty_ram(&w);
    assert_null(get(&w, 0));
    assert_int_equal(close_store(&w), 0);
    w.medium.absent = 0;
    w.medium.refuses_changes = true;
    open_store(&w);
    assert_int_equal(stats_of(&w).disk_state, RP_STORE_READ_ONLY);
    assert_string_equal(stats_of(&w).disk_trouble, "read_only_disk");
    const uint64_t n_writes = w.medium.n_writes;
    for (int i = 0; i < N_SPANS; i++) expect_hit(&w, i);
    assert_true(w.medium.n_writes == n_writes && span_store_is_read_only(w.store));
    close_store(&w);
    close_world(&w);
}

/* KV that a full medium refuses stays in RAM as long as it may; then it is a miss. */
static void a_refused_write_is_counted(void **state) {
    (void)state;
    world w;
    open_world(&w, PLAIN);
    open_store(&w);
    put(&w, 0);
    settle(&w);
    w.medium.full = ENOSPC;
    put(&w, 1);
    settle(&w);
    rp_store_stats stats = stats_of(&w);
    assert_int_equal(stats.disk_state, RP_STORE_UNWRITTEN);
    assert_string_equal(stats.disk_trouble, "no_space");
    assert_true(stats.disk_unwritten == 1 && stats.disk_spans == 1 && stats.spans == 2);
    empty_ram(&w);
    assert_null(get(&w, 1));
    expect_hit(&w, 0);
    close_store(&w);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_evicted_is_read_from_the_tier_any),
        cmocka_unit_test(a_restart_finds_what_the_tier_has_any),
        cmocka_unit_test(a_full_tier_evicts_any),
        cmocka_unit_test(what_is_removed_stays_away_any),
        cmocka_unit_test(layers_of_a_slow_tier_arrive_one_by_one),
        cmocka_unit_test(a_lie_is_a_miss),
        cmocka_unit_test(a_record_of_another_model_is_taken_over_any),
        cmocka_unit_test(a_record_with_an_unreadable_header_is_taken_over),
        cmocka_unit_test(a_failed_span_is_replaced_while_it_is_held),
        cmocka_unit_test(a_removed_span_is_replaced_while_it_is_held),
        cmocka_unit_test(an_absent_tier_stops_no_start),
        cmocka_unit_test(a_refused_write_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
