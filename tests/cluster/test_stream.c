/* SPDX-License-Identifier: Apache-2.0 */
/* test_stream.c: journal, wire, view and index together: nodes that change and restart, routers that read in any
 * pieces, and a transport that cuts, loses and alters bytes. After quiet, every index is what the nodes hold. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "cluster/journal.h"
#include "cluster/view.h"
#include "support/must.h"
#include "support/seed.h"
#include "support/span_names.h"
#include "reprise_cluster.h"

#define N_NAMES 6000 /* several pieces of a snapshot */
#define N_NODES 2
#define N_ROUTERS 2

static const uint8_t secret[RP_CLUSTER_KEY_BYTES] = "32 bytes of a secret, as a file";

/* ---- A world ---- */

typedef struct node {
    cluster_journal *journal;
    uint64_t epoch;
    uint8_t tiers[N_NAMES]; /* the truth */
} node;

/* A router's stream of a node: bytes that were sent and have not come. */
typedef struct span_link {
    cluster_view *view;
    cluster_journal_reader *reader; /* NULL: no connection */
    base_buffer bytes;
} span_link;

typedef struct world {
    uint64_t seed, now_us;
    node nodes[N_NODES];
    cluster_index *index[N_ROUTERS];
    span_link links[N_ROUTERS][N_NODES];
} world;

static rp_name names[N_NAMES];
static uint64_t below(world *w, uint64_t n) { return span_below(&w->seed, n); }

static void node_start(world *w, int i) {
    const cluster_hello hello = {.epoch = ++w->nodes[i].epoch, .kv_budget_bytes = (uint64_t)1 << 40};
    rp_error err;
    must(cluster_journal_new(&w->nodes[i].journal, secret, &hello, &err), &err);
}

static void link_drop(span_link *l) {
    cluster_journal_close(l->reader);
    l->reader = NULL;
    base_buffer_clear(&l->bytes);
}

/* The node's process ends; another one holds what was on disk. */
static void node_restart(world *w, int i) {
    node *n = &w->nodes[i];
    for (int r = 0; r < N_ROUTERS; r++) {
        link_drop(&w->links[r][i]);
        cluster_view_cut(w->links[r][i].view, w->now_us);
    }
    cluster_journal_free(n->journal);
    node_start(w, i);
    for (int k = 0; k < N_NAMES; k++) {
        n->tiers[k] &= RP_TIER_DISK;
        if (n->tiers[k]) cluster_journal_change(n->journal, &(rp_span_change){names[k], n->tiers[k]}, 1);
    }
}

static void node_change(world *w, int i, size_t n) {
    for (size_t k = 0; k < n; k++) {
        const uint64_t name = below(w, N_NAMES), tiers = below(w, 4);
        cluster_journal_change(w->nodes[i].journal, &(rp_span_change){names[name], (uint32_t)tiers}, 1);
        w->nodes[i].tiers[name] = (uint8_t)tiers;
    }
}

static void world_open(world *w, uint64_t seed) {
    rp_error err;
    *w = (world){.seed = seed, .now_us = 1000000};
    for (uint64_t i = 0; i < N_NAMES; i++) names[i] = span_name_at(i);
    for (int i = 0; i < N_NODES; i++) {
        w->nodes[i].epoch = (uint64_t)i * 1000;
        node_start(w, i);
        node_change(w, i, N_NAMES);
    }
    for (int r = 0; r < N_ROUTERS; r++) {
        must(cluster_index_new(&w->index[r], &err), &err);
        for (int i = 0; i < N_NODES; i++) {
            must(cluster_view_new(&w->links[r][i].view, w->index[r], i, secret, &err), &err);
            w->links[r][i].bytes = BASE_BUFFER((size_t)64 << 20);
        }
    }
}

static void world_close(world *w) {
    for (int r = 0; r < N_ROUTERS; r++) {
        for (int i = 0; i < N_NODES; i++) {
            link_drop(&w->links[r][i]);
            base_buffer_free(&w->links[r][i].bytes);
            cluster_view_free(w->links[r][i].view);
        }
        assert_int_equal(cluster_index_count(w->index[r]), 0); /* they took their names along */
        cluster_index_free(w->index[r]);
    }
    for (int i = 0; i < N_NODES; i++) cluster_journal_free(w->nodes[i].journal);
}

static void link_cut(world *w, span_link *l) {
    link_drop(l);
    cluster_view_cut(l->view, w->now_us);
}

/* Opens, sends up to about `most` bytes, delivers all or a part of those on the way. Memory may fail anywhere. */
static void link_pump(world *w, int r, int i, size_t most, bool all) {
    span_link *l = &w->links[r][i];
    if (cluster_view_is_silent(l->view, w->now_us)) link_cut(w, l); /* for example after a changed length */
    if (cluster_view_get_state(l->view) == CLUSTER_VIEW_CLOSED) {
        uint8_t nonce[CLUSTER_NONCE_BYTES];
        uint64_t epoch, after;
        assert_null(l->reader);
        if (w->now_us < cluster_view_opens_at(l->view)) return;
        cluster_view_open(l->view, w->now_us, nonce, span_random(&w->seed), &epoch, &after);
        if (cluster_journal_open(w->nodes[i].journal, nonce, epoch, after, &l->reader, NULL)) {
            cluster_view_cut(l->view, w->now_us);
            return;
        }
    }
    uint64_t next;
    (void)cluster_journal_read(l->reader, w->now_us, most, &l->bytes, &next);
    if (l->bytes.len == 0) return;
    const size_t n = all ? l->bytes.len : below(w, l->bytes.len + 1);
    rp_error err = {0};
    int rc = cluster_view_feed(l->view, w->now_us, l->bytes.data, n, &err);
    if (rc) {
        assert_true(err.code == rc && cluster_view_get_state(l->view) == CLUSTER_VIEW_CLOSED);
        link_drop(l);
        return;
    }
    memmove(l->bytes.data, l->bytes.data + n, l->bytes.len - n);
    base_buffer_truncate(&l->bytes, l->bytes.len - n);
}

/* Something bad happens to a link. */
static void link_fault(world *w, int r, int i) {
    span_link *l = &w->links[r][i];
    const size_t n = l->bytes.len, at = n ? below(w, n) : 0, few = 1 + below(w, 50);
    switch (below(w, 4)) {
    case 0:
        link_cut(w, l);
        break;
    case 1:
        if (n) l->bytes.data[at] ^= (char)(1 << below(w, 8));
        break;
    case 2: /* lost */
        if (n < at + few) break;
        memmove(l->bytes.data + at, l->bytes.data + at + few, n - at - few);
        base_buffer_truncate(&l->bytes, n - few);
        break;
    default: /* twice */
        if (n < at + few) break;
        char copy[64];
        memcpy(copy, l->bytes.data + at, few);
        if (base_buffer_append(&l->bytes, copy, few)) break; /* too many on the way: lost */
    }
}

static void link_check(world *w, int r, int i) {
    cluster_view *v = w->links[r][i].view;
    const cluster_digest d = cluster_journal_digest(w->nodes[i].journal);
    uint64_t count, sum;
    assert_int_equal(cluster_view_get_state(v), CLUSTER_VIEW_LIVE);
    assert_int_equal(cluster_view_health(v, w->now_us), CLUSTER_WELL);
    assert_int_equal(cluster_view_hello(v)->epoch, w->nodes[i].epoch);
    cluster_index_digest(w->index[r], i, &count, &sum);
    assert_int_equal(count, d.count);
    assert_int_equal(sum, d.sum);
    /* Frames have numbers and tags: whatever the transport does, no gap and no wrong digest is seen. */
    assert_int_equal(cluster_view_counted(v)->gaps, 0);
    assert_int_equal(cluster_view_counted(v)->wrong_digests, 0);
    for (int k = 0; k < N_NAMES; k++)
        assert_int_equal(cluster_index_get(w->index[r], &names[k], i) & ~CLUSTER_TIER_SPECULATIVE,
                         w->nodes[i].tiers[k]);
}

static void world_quiet(world *w) {
    for (int step = 0; step < 220; step++) { /* 11 s: silence, the longest delay, and a digest */
        w->now_us += 50000;
        for (int r = 0; r < N_ROUTERS; r++)
            for (int i = 0; i < N_NODES; i++) link_pump(w, r, i, (size_t)16 << 20, true);
    }
    for (int r = 0; r < N_ROUTERS; r++)
        for (int i = 0; i < N_NODES; i++) link_check(w, r, i);
}

static void world_step(world *w, uint64_t faults) {
    const int i = (int)below(w, N_NODES), r = (int)below(w, N_ROUTERS);
    w->now_us += below(w, 20000);
    if (below(w, 2)) node_change(w, i, 1 + below(w, 40));
    if (below(w, 3) == 0)
        cluster_journal_set_load(w->nodes[i].journal, &(cluster_load){.engine.running = (int32_t)below(w, 3)});
    if (below(w, 3) == 0) { /* what a router does after it has sent a request */
        const rp_name *name = &names[below(w, N_NAMES)];
        const uint32_t tiers = cluster_index_get(w->index[r], name, i);
        const uint32_t other = below(w, 2) ? tiers | CLUSTER_TIER_SPECULATIVE : tiers & ~CLUSTER_TIER_SPECULATIVE;
        assert_int_equal(cluster_index_set(w->index[r], name, i, other), RP_OK);
    }
    if (faults && below(w, faults) == 0) {
        if (below(w, 40) == 0) node_restart(w, i);
        else link_fault(w, r, i);
    }
    base_alloc_fail_at(faults && below(w, 2 * faults) == 0 ? 1 + below(w, 3) : 0, 0);
    link_pump(w, r, i, below(w, 2) ? 1 : below(w, 200000), below(w, 2));
    base_alloc_fail_at(0, 0);
}

static void indexes_agree_with_nodes_after_any_faults(void **state) {
    (void)state;
    uint64_t seed = test_seed("test_stream", 2027), forged = 0, cuts = 0, epochs = 0, snapshots = 0;
    static world w;
    const int rounds = test_rounds(12);
    for (int round = 0; round < rounds; round++) {
        static const uint64_t faults[] = {0, 300, 60, 15};
        world_open(&w, span_random(&seed));
        for (int part = 0; part < 4; part++) {
            for (int i = 0; i < 700; i++) world_step(&w, faults[round % 4]);
            world_quiet(&w);
        }
        for (int r = 0; r < N_ROUTERS; r++)
            for (int i = 0; i < N_NODES; i++) {
                const cluster_view_counts *c = cluster_view_counted(w.links[r][i].view);
                forged += c->forged, cuts += c->cuts, epochs += c->other_epochs, snapshots += c->snapshots;
                if (round % 4 == 0) assert_true(c->snapshots == 1 && c->forged == 0 && c->cuts == 0);
            }
        world_close(&w);
    }
    if (rounds >= 4) assert_true(forged > 10 && cuts > 10 && epochs > 0 && snapshots > 50);
}

/* Changes while a snapshot is read in the smallest pieces: each frame a piece, changes between any two. */
static void a_snapshot_is_consistent_while_names_change(void **state) {
    (void)state;
    static world w;
    uint64_t seed = test_seed("test_stream", 8);
    for (int round = 0; round < test_rounds(20); round++) {
        world_open(&w, span_random(&seed));
        for (int i = 0; i < 40; i++) {
            node_change(&w, 0, 1 + below(&w, 300));
            link_pump(&w, 0, 0, 1, true);
        }
        world_quiet(&w);
        assert_int_equal(cluster_view_counted(w.links[0][0].view)->snapshots, 1);
        world_close(&w);
    }
}

/* A reader that was away goes on with changes as long as the ring has them, else with a snapshot. */
static void the_ring_limits_how_far_behind_a_reader_may_be(void **state) {
    (void)state;
    static world w;
    span_link *l = &w.links[0][0];
    for (size_t more = 0; more < 2; more++) {
        world_open(&w, 3);
        world_quiet(&w);
        for (int away = 0; away < 2; away++) { /* without a connection, and with one that does not read */
            const cluster_view_counts before = *cluster_view_counted(l->view);
            const uint64_t seq = cluster_journal_digest(w.nodes[0].journal).seq;
            if (away == 0) link_cut(&w, l);
            while (cluster_journal_digest(w.nodes[0].journal).seq < seq + CLUSTER_RING_CHANGES + more)
                node_change(&w, 0, 1);
            world_quiet(&w);
            const cluster_view_counts *after = cluster_view_counted(l->view);
            assert_int_equal(after->snapshots - before.snapshots, more);
            assert_true(more || after->changes - before.changes == CLUSTER_RING_CHANGES);
        }
        world_close(&w);
    }
}

/* ---- A node that lies, frame by frame ---- */

typedef struct liar {
    cluster_index *index;
    cluster_view *view;
    cluster_stream_key key;
    base_buffer out;
    uint64_t number, now_us, epoch, after;
} liar;

static void liar_open(liar *l, uint64_t epoch) {
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    const cluster_hello hello = {.epoch = epoch, .kv_budget_bytes = (uint64_t)1 << 40};
    rp_error err = {0};
    if (l->now_us < cluster_view_opens_at(l->view)) l->now_us = cluster_view_opens_at(l->view);
    cluster_view_open(l->view, l->now_us, nonce, 1, &l->epoch, &l->after);
    cluster_stream_key_make(&l->key, secret, nonce);
    l->number = 0;
    must(cluster_write_hello(&l->out, &l->key, l->number++, &hello), &err);
}

static int liar_send(liar *l, rp_error *err) {
    int rc = cluster_view_feed(l->view, l->now_us, l->out.data, l->out.len, err);
    base_buffer_clear(&l->out);
    return rc;
}

/* One name, in a whole snapshot. */
static void liar_snapshot(liar *l, uint64_t seq, const rp_name *name) {
    const rp_span_change change = {*name, RP_TIER_RAM};
    rp_error err = {0};
    must(cluster_write_snapshot(&l->out, &l->key, l->number++, seq, 1), &err);
    must(cluster_write_names(&l->out, &l->key, l->number++, &change, 1), &err);
    must(cluster_write_names(&l->out, &l->key, l->number++, NULL, 0), &err);
}

static void liar_begin(liar *l) {
    rp_error err;
    *l = (liar){.out = BASE_BUFFER((size_t)1 << 20), .now_us = 5};
    must(cluster_index_new(&l->index, &err), &err);
    must(cluster_view_new(&l->view, l->index, 0, secret, &err), &err);
    assert_int_equal(cluster_view_opens_at(l->view), 0);
    assert_int_equal(cluster_view_health(l->view, 5), CLUSTER_DEAD);
    assert_int_equal(cluster_view_hello(l->view)->epoch, 0);
    liar_open(l, 77);
    assert_true(l->epoch == 0 && l->after == 0);
    const rp_name a = span_name_at(1);
    liar_snapshot(l, 10, &a);
    assert_int_equal(liar_send(l, NULL), RP_OK);
    assert_int_equal(cluster_view_get_state(l->view), CLUSTER_VIEW_LIVE);
    assert_int_equal(cluster_index_get(l->index, &a, 0), RP_TIER_RAM);
}

static void liar_end(liar *l) {
    cluster_view_free(l->view);
    cluster_index_free(l->index);
    base_buffer_free(&l->out);
}

/* The stream ended with an error; the next one has to begin with a snapshot unless all was right so far (is_whole), and
 * until its end the old name stays. */
static void liar_is_found_out(liar *l, bool is_whole) {
    const rp_name a = span_name_at(1), b = span_name_at(2);
    rp_error err = {0};
    assert_int_equal(liar_send(l, &err), RP_ERR_FORMAT);
    assert_true(err.code == RP_ERR_FORMAT && cluster_view_get_state(l->view) == CLUSTER_VIEW_CLOSED);
    assert_int_equal(liar_send(l, &err), RP_ERR_INVALID);
    liar_open(l, 77);
    assert_true(l->epoch == (is_whole ? 77 : 0) && l->after == (is_whole ? 10 : 0));
    must(cluster_write_snapshot(&l->out, &l->key, l->number++, 20, 1), &err);
    assert_int_equal(liar_send(l, NULL), RP_OK);
    assert_int_equal(cluster_view_get_state(l->view), CLUSTER_VIEW_OPENING);
    assert_int_equal(cluster_index_get(l->index, &a, 0), RP_TIER_RAM);
    liar_snapshot(l, 20, &b);
    assert_int_equal(liar_send(l, NULL), RP_OK);
    assert_int_equal(cluster_index_get(l->index, &a, 0), 0);
    assert_int_equal(cluster_index_get(l->index, &b, 0), RP_TIER_RAM);
    assert_int_equal(cluster_view_get_state(l->view), CLUSTER_VIEW_LIVE);
}

static void gaps_and_wrong_digests_ask_for_a_snapshot(void **state) {
    (void)state;
    const rp_span_change change = {span_name_at(1), RP_TIER_RAM};
    const uint64_t sum = cluster_name_hash(&change.name, RP_TIER_RAM);
    liar l;
    for (int lie = 0; lie < 8; lie++) {
        rp_error err = {0};
        liar_begin(&l);
        int rc = RP_OK;
        switch (lie) {
        case 0: rc = cluster_write_changes(&l.out, &l.key, l.number++, 12, &change, 1); break; /* 11 is missing */
        case 1: rc = cluster_write_changes(&l.out, &l.key, l.number++, 10, &change, 1); break; /* again */
        case 2: rc = cluster_write_digest(&l.out, &l.key, l.number++, &(cluster_digest){10, 2, sum}); break;
        case 3: rc = cluster_write_digest(&l.out, &l.key, l.number++, &(cluster_digest){10, 1, sum + 1}); break;
        case 4: rc = cluster_write_digest(&l.out, &l.key, l.number++, &(cluster_digest){11, 1, sum}); break;
        case 5: rc = cluster_write_names(&l.out, &l.key, l.number++, &change, 1); break; /* without a snapshot */
        case 6: rc = cluster_write_names(&l.out, &l.key, l.number++, NULL, 0); break;
        case 7:
            rc = cluster_write_load(&l.out, &l.key, l.number++ + 1, &(cluster_load){0});
            break; /* another number: forged */
        }
        must(rc, &err);
        liar_is_found_out(&l, lie == 7);
        const cluster_view_counts *c = cluster_view_counted(l.view);
        assert_int_equal(c->wrong_digests, lie == 2 || lie == 3);
        assert_int_equal(c->gaps, lie != 2 && lie != 3 && lie != 7);
        assert_int_equal(c->forged, lie == 7);
        liar_end(&l);
    }
}

/* Where a stream was right until it was forged or cut, the next one may go on after its last change. */
static void a_stream_goes_on_where_it_was(void **state) {
    (void)state;
    const rp_span_change change = {span_name_at(3), RP_TIER_DISK};
    rp_error err = {0};
    liar l;
    liar_begin(&l);
    must(cluster_write_changes(&l.out, &l.key, l.number++, 11, &change, 1), &err);
    assert_int_equal(liar_send(&l, NULL), RP_OK);
    cluster_view_cut(l.view, l.now_us);
    assert_int_equal(cluster_view_health(l.view, l.now_us), CLUSTER_DEAD);
    assert_int_equal(cluster_view_opens_at(l.view), l.now_us + 100000);
    liar_open(&l, 77);
    assert_true(l.epoch == 77 && l.after == 11);
    assert_int_equal(cluster_view_health(l.view, l.now_us), CLUSTER_DEAD);
    const rp_name first = span_name_at(1);
    const uint64_t sum = cluster_name_hash(&change.name, RP_TIER_DISK) + cluster_name_hash(&first, RP_TIER_RAM);
    must(cluster_write_digest(&l.out, &l.key, l.number++, &(cluster_digest){11, 2, sum}), &err);
    assert_int_equal(liar_send(&l, NULL), RP_OK);
    assert_int_equal(cluster_view_get_state(l.view), CLUSTER_VIEW_LIVE);
    assert_int_equal(cluster_view_counted(l.view)->snapshots, 1);
    /* Another epoch: every name leaves at its hello, before any of it comes; then changes alone are a gap. */
    cluster_view_cut(l.view, l.now_us);
    liar_open(&l, 78);
    assert_true(l.epoch == 77 && l.after == 11);
    assert_int_equal(liar_send(&l, NULL), RP_OK);
    assert_int_equal(cluster_index_count(l.index), 0);
    assert_int_equal(cluster_view_counted(l.view)->other_epochs, 1);
    must(cluster_write_changes(&l.out, &l.key, l.number++, 12, &change, 1), &err);
    assert_int_equal(liar_send(&l, NULL), RP_ERR_FORMAT);
    assert_int_equal(cluster_view_counted(l.view)->gaps, 1);
    assert_int_equal(cluster_index_count(l.index), 0);
    liar_end(&l);
}

static void delays_double_until_a_digest_is_right(void **state) {
    (void)state;
    static const uint64_t delays[] = {100000, 200000, 400000, 800000, 1600000, 3200000, 5000000, 5000000};
    const rp_name a = span_name_at(1);
    rp_error err = {0};
    liar l;
    liar_begin(&l);
    for (int times = 0; times < 2; times++) {
        for (size_t i = 0; i < sizeof delays / sizeof *delays; i++) {
            assert_int_equal(cluster_view_opens_at(l.view), UINT64_MAX);
            if (i % 2) { /* it works, as far as it goes */
                liar_snapshot(&l, 10, &a);
                assert_int_equal(liar_send(&l, NULL), RP_OK);
            }
            base_buffer_clear(&l.out);
            cluster_view_cut(l.view, l.now_us);
            cluster_view_cut(l.view, l.now_us); /* nothing more */
            assert_int_equal(cluster_view_opens_at(l.view), l.now_us + delays[i]);
            liar_open(&l, 77);
        }
        liar_snapshot(&l, 10, &a);
        must(cluster_write_digest(&l.out, &l.key, l.number++,
                                  &(cluster_digest){10, 1, cluster_name_hash(&a, RP_TIER_RAM)}),
             &err);
        assert_int_equal(liar_send(&l, NULL), RP_OK);
    }
    liar_end(&l);
}

static void health_is_by_what_was_heard(void **state) {
    (void)state;
    liar l;
    liar_begin(&l);
    const uint64_t heard = cluster_view_heard_us(l.view);
    assert_int_equal(heard, l.now_us);
    assert_int_equal(cluster_view_health(l.view, heard + CLUSTER_SUSPECT_US - 1), CLUSTER_WELL);
    assert_int_equal(cluster_view_health(l.view, heard + CLUSTER_SUSPECT_US), CLUSTER_SUSPECT);
    assert_int_equal(cluster_view_health(l.view, heard + CLUSTER_DEAD_US - 1), CLUSTER_SUSPECT);
    assert_int_equal(cluster_view_health(l.view, heard + CLUSTER_DEAD_US), CLUSTER_DEAD);
    assert_false(cluster_view_is_silent(l.view, heard + CLUSTER_DEAD_US - 1));
    assert_true(cluster_view_is_silent(l.view, heard + CLUSTER_DEAD_US));
    l.now_us += CLUSTER_DEAD_US;
    rp_error err = {0};
    must(cluster_write_load(&l.out, &l.key, l.number++, &(cluster_load){.draining = true, .engine.waiting = 4}), &err);
    const uint64_t whole = l.out.len--; /* not yet: a frame counts when it is whole and signed */
    char last = l.out.data[whole - 1];
    assert_int_equal(liar_send(&l, NULL), RP_OK);
    assert_int_equal(cluster_view_health(l.view, l.now_us), CLUSTER_DEAD);
    assert_int_equal(cluster_view_feed(l.view, l.now_us, &last, 1, NULL), RP_OK);
    assert_int_equal(cluster_view_health(l.view, l.now_us), CLUSTER_WELL);
    assert_false(cluster_view_is_silent(l.view, l.now_us));
    assert_true(cluster_view_load(l.view)->draining && cluster_view_load(l.view)->engine.waiting == 4);
    liar_end(&l);
}

/* ---- A journal and time ---- */

typedef struct kinds {
    int n[8];
} kinds;

static int count_kind(void *user, const cluster_frame *f) {
    ((kinds *)user)->n[f->kind]++;
    return RP_OK;
}

static void loads_and_digests_are_sent_in_their_time(void **state) {
    (void)state;
    const cluster_hello hello = {.epoch = 5, .kv_budget_bytes = (uint64_t)1 << 40};
    const uint8_t nonce[CLUSTER_NONCE_BYTES] = {1};
    cluster_stream_key key;
    cluster_journal *j;
    cluster_journal_reader *r;
    cluster_reader *in;
    base_buffer out = BASE_BUFFER((size_t)1 << 20);
    kinds seen = {0};
    rp_error err;
    uint64_t next = 0;
    must(cluster_journal_new(&j, secret, &hello, &err), &err);
    must(cluster_journal_open(j, nonce, 0, 0, &r, &err), &err);
    cluster_stream_key_make(&key, secret, nonce);
    must(cluster_reader_new(&in, &key, &err), &err);
    for (uint64_t ms = 0; ms < 5000; ms++) {
        const uint64_t now = 7000000 + ms * 1000;
        if (ms < 2000)
            cluster_journal_set_load(
                j, &(cluster_load){.engine.running = (int32_t)ms, .sent_us = now}); /* changes all the time */
        else cluster_journal_set_load(j, &(cluster_load){.sent_us = now});          /* another time is no change */
        const bool ready = cluster_journal_is_ready(r, now);
        if (ms == 0) assert_true(ready);
        if (now >= next) assert_true(ready);
        assert_int_equal(cluster_journal_read(r, now, 1 << 20, &out, &next), RP_OK);
        assert_int_equal(out.len > 0, ready);
        assert_true(next > now && next <= now + CLUSTER_DIGEST_EVERY_US && !cluster_journal_is_ready(r, now));
        must(cluster_reader_feed(in, out.data, out.len, count_kind, &seen, &err), &err);
        base_buffer_clear(&out);
    }
    assert_true(seen.n[CLUSTER_HELLO] == 1 && seen.n[CLUSTER_SNAPSHOT] == 1 && seen.n[CLUSTER_NAMES] == 1 &&
                seen.n[CLUSTER_CHANGES] == 0);
    assert_int_equal(seen.n[CLUSTER_DIGEST], 5);
    assert_int_equal(seen.n[CLUSTER_LOAD], 20 + 1 + 2); /* at 0, 100, ..., 1900; the change at 2000; at 3000, 4000 */
    cluster_reader_free(in);
    cluster_journal_close(r);
    cluster_journal_free(j);
    base_buffer_free(&out);
}

static void readers_are_limited(void **state) {
    (void)state;
    const cluster_hello hello = {.epoch = 5, .kv_budget_bytes = (uint64_t)1 << 40};
    const uint8_t nonce[CLUSTER_NONCE_BYTES] = {1};
    cluster_journal_reader *readers[CLUSTER_MAX_READERS], *more;
    cluster_journal *j;
    rp_error err = {0};
    must(cluster_journal_new(&j, secret, &hello, &err), &err);
    for (int i = 0; i < CLUSTER_MAX_READERS; i++) must(cluster_journal_open(j, nonce, 5, 0, &readers[i], &err), &err);
    assert_int_equal(cluster_journal_open(j, nonce, 5, 0, &more, &err), RP_ERR_LIMIT);
    assert_null(more);
    cluster_journal_close(readers[3]);
    must(cluster_journal_open(j, nonce, 5, 0, &readers[3], &err), &err);
    for (int i = 0; i < CLUSTER_MAX_READERS; i++) cluster_journal_close(readers[i]);
    cluster_journal_free(j);
}

/* ---- A node that lies ---- */

/* Attack 13: it reports more names than its KV budget can hold. Those are ignored and counted; its stream lives, and
   its digests tell nothing. */
static void names_beyond_a_budget_are_ignored(void **state) {
    const cluster_hello hello = {.epoch = 5, .kv_budget_bytes = 256 * 100};
    cluster_journal *j = NULL;
    cluster_journal_reader *r = NULL;
    cluster_index *x = NULL;
    cluster_view *v = NULL;
    base_buffer out = BASE_BUFFER((size_t)1 << 22);
    rp_error err = {0};
    uint64_t next, epoch, after;
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    (void)state;
    must(cluster_journal_new(&j, secret, &hello, &err), &err);
    must(cluster_index_new(&x, &err), &err);
    must(cluster_view_new(&v, x, 0, secret, &err), &err);
    for (uint64_t i = 0; i < 3000; i++) cluster_journal_change(j, &(rp_span_change){span_name_at(i), RP_TIER_RAM}, 1);
    cluster_view_open(v, 1, nonce, 1, &epoch, &after);
    must(cluster_journal_open(j, nonce, epoch, after, &r, &err), &err);
    must(cluster_journal_read(r, 1, (size_t)1 << 21, &out, &next), &err);
    must(cluster_view_feed(v, 1, out.data, out.len, &err), &err);
    assert_int_equal(cluster_index_count_of(x, 0), 100);
    assert_int_equal(cluster_view_counted(v)->ignored, 2900);
    assert_true(cluster_view_get_state(v) == CLUSTER_VIEW_LIVE && cluster_view_counted(v)->wrong_digests == 0);
    for (uint64_t i = 0; i < 3000; i++)
        cluster_journal_change(j, &(rp_span_change){span_name_at(i), 0}, 1); /* one that leaves makes room */
    for (uint64_t i = 0; i < 60; i++)
        cluster_journal_change(j, &(rp_span_change){span_name_at(5000 + i), RP_TIER_DISK}, 1);
    base_buffer_clear(&out);
    must(cluster_journal_read(r, 2000000, (size_t)1 << 21, &out, &next), &err);
    must(cluster_view_feed(v, 2000000, out.data, out.len, &err), &err);
    assert_int_equal(cluster_index_count_of(x, 0), 60);
    assert_int_equal(cluster_view_counted(v)->ignored, 2900);
    /* Its share shrinks: it is forgotten, and a snapshot has no more than that. */
    cluster_view_set_most(v, 50);
    assert_int_equal(cluster_view_feed(v, 2000001, "", 0, &err), RP_ERR_LIMIT);
    assert_int_equal(cluster_index_count_of(x, 0), 0);
    cluster_journal_close(r);
    cluster_view_open(v, 3000000, nonce, 2, &epoch, &after);
    assert_int_equal(epoch, 0);
    must(cluster_journal_open(j, nonce, epoch, after, &r, &err), &err);
    base_buffer_clear(&out);
    must(cluster_journal_read(r, 3000000, (size_t)1 << 21, &out, &next), &err);
    must(cluster_view_feed(v, 3000000, out.data, out.len, &err), &err);
    assert_int_equal(cluster_index_count_of(x, 0), 50);
    cluster_journal_close(r);
    base_buffer_free(&out);
    cluster_view_free(v);
    cluster_index_free(x);
    cluster_journal_free(j);
}

static void a_full_index_takes_no_name(void **state) {
    cluster_index *x = NULL;
    rp_error err = {0};
    int rc = RP_OK;
    uint64_t n = 0;
    (void)state;
    must(cluster_index_new(&x, &err), &err);
    cluster_index_set_limit(x, (uint64_t)1 << 20);
    for (; !(rc = cluster_index_set(x, &(rp_name[]){span_name_at(n)}[0], 3, RP_TIER_RAM)); n++) assert_true(n < 100000);
    assert_int_equal(rc, RP_ERR_LIMIT);
    assert_true(n > 10000 && cluster_index_bytes(x) < (uint64_t)9 << 17);
    assert_int_equal(cluster_index_set(x, &(rp_name[]){span_name_at(0)}[0], 4, RP_TIER_RAM),
                     /* another holder */
                     RP_ERR_LIMIT);
    assert_int_equal(cluster_index_set(x, &(rp_name[]){span_name_at(0)}[0], 3, RP_TIER_DISK), RP_OK); /* a change */
    assert_int_equal(cluster_index_set(x, &(rp_name[]){span_name_at(0)}[0], 3, 0), RP_OK);
    cluster_index_free(x);
}

/* ---- Memory ---- */

/* A node and a router, from nothing to agreement, whatever allocation fails first. Returns whether none was left to
   fail. */
static bool agree(uint64_t fail_at, bool sticky) {
    const cluster_hello hello = {.epoch = 5, .kv_budget_bytes = (uint64_t)1 << 40};
    cluster_journal *j = NULL;
    cluster_journal_reader *r = NULL;
    cluster_index *x = NULL;
    cluster_view *v = NULL;
    base_buffer out = BASE_BUFFER((size_t)1 << 20);
    rp_error err = {0};
    uint64_t next, epoch, after, count, sum, now = 0;
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    base_alloc_fail_at(fail_at, sticky);
    base_alloc_count();
    int rc = cluster_journal_new(&j, secret, &hello, &err);
    if (rc == RP_OK) rc = cluster_index_new(&x, &err);
    if (rc == RP_OK) rc = cluster_view_new(&v, x, 0, secret, &err);
    if (rc == RP_OK) {
        for (uint64_t i = 0; i < 3000; i++)
            cluster_journal_change(j, &(rp_span_change){span_name_at(i), RP_TIER_RAM}, 1);
        for (int i = 0; i < 100; i++, now += 100000) {
            if (i == 20) base_alloc_fail_at(0, 0); /* memory again */
            if (cluster_view_get_state(v) == CLUSTER_VIEW_CLOSED) {
                cluster_journal_close(r);
                r = NULL;
                base_buffer_clear(&out);
                if (now < cluster_view_opens_at(v)) continue;
                cluster_view_open(v, now, nonce, (uint64_t)i, &epoch, &after);
            }
            if (!r && cluster_journal_open(j, nonce, epoch, after, &r, NULL)) {
                cluster_view_cut(v, now);
                continue;
            }
            (void)cluster_journal_read(r, now, 1 << 19, &out, &next);
            if (cluster_view_feed(v, now, out.data, out.len, NULL) == RP_OK) base_buffer_clear(&out);
        }
        const cluster_digest d = cluster_journal_digest(j);
        cluster_index_digest(x, 0, &count, &sum);
        assert_true(count == d.count && sum == d.sum && cluster_view_get_state(v) == CLUSTER_VIEW_LIVE);
        assert_int_equal(cluster_journal_count(j) + cluster_journal_left_out(j), 3000);
        assert_true(cluster_view_counted(v)->wrong_digests == 0 && cluster_view_counted(v)->gaps == 0);
    } else assert_true(rc == RP_ERR_MEMORY && err.code == rc);
    base_alloc_fail_at(0, 0);
    const bool done = base_alloc_count() < fail_at;
    cluster_journal_close(r);
    base_buffer_free(&out);
    cluster_view_free(v);
    cluster_index_free(x);
    cluster_journal_free(j);
    return done;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    const uint64_t step =
        getenv("REPRISE_TEST_ROUNDS") ? 97 : 11; /* a table has thousands of small parts: the first ones one by one */
    for (uint64_t i = 1; !agree(i, i % 3 == 0); i += i < 40 ? 1 : step) assert_true(i < 100000);
}

/* ---- Threads ---- */

typedef struct shared {
    cluster_journal *journal;
    atomic_bool done;
} shared;

#define APPENDED 120000

static void *append(void *arg) {
    shared *s = arg;
    uint64_t seed = 4;
    for (int i = 0; i < APPENDED; i++) {
        const rp_span_change changes[2] = {{span_name_at(span_below(&seed, N_NAMES)), (uint32_t)span_below(&seed, 4)},
                                           {span_name_at(span_below(&seed, N_NAMES)), (uint32_t)span_below(&seed, 4)}};
        cluster_journal_change(s->journal, changes, 2);
        if (i % 64 == 0) cluster_journal_set_load(s->journal, &(cluster_load){.engine.running = i});
    }
    atomic_store(&s->done, true);
    return NULL;
}

/* A router: reads until the appending thread is done and nothing is left; connects anew now and then. Returns its
   index. */
static void *read_stream(void *arg) {
    shared *s = arg;
    cluster_index *x;
    cluster_view *v;
    cluster_journal_reader *r = NULL;
    base_buffer out = BASE_BUFFER((size_t)1 << 22);
    rp_error err;
    uint64_t now = 0, next, epoch, after;
    must(cluster_index_new(&x, &err), &err);
    must(cluster_view_new(&v, x, 1, secret, &err), &err);
    for (int i = 1;; i++, now += 5000) {
        const bool was_done = atomic_load(&s->done);
        if (cluster_view_get_state(v) == CLUSTER_VIEW_CLOSED && now >= cluster_view_opens_at(v)) {
            uint8_t nonce[CLUSTER_NONCE_BYTES];
            cluster_view_open(v, now, nonce, (uint64_t)i, &epoch, &after);
            must(cluster_journal_open(s->journal, nonce, epoch, after, &r, &err), &err);
        }
        if (!r) continue;
        must(cluster_journal_read(r, now, 50000, &out, &next), &err);
        must(cluster_view_feed(v, now, out.data, out.len, &err), &err);
        base_buffer_clear(&out);
        if (was_done && cluster_view_get_state(v) == CLUSTER_VIEW_LIVE && !cluster_journal_is_ready(r, now)) break;
        if (i % 50 == 0 && !was_done) {
            cluster_journal_close(r);
            r = NULL;
            cluster_view_cut(v, now);
        }
    }
    assert_true(cluster_view_counted(v)->gaps == 0 && cluster_view_counted(v)->wrong_digests == 0);
    cluster_journal_close(r);
    uint64_t count, sum;
    cluster_index_digest(x, 1, &count, &sum);
    const cluster_digest d = cluster_journal_digest(s->journal);
    assert_true(count == d.count && sum == d.sum && count > 0);
    base_buffer_free(&out);
    cluster_view_free(v);
    cluster_index_free(x);
    return NULL;
}

static void readers_follow_a_thread_that_appends(void **state) {
    (void)state;
    const cluster_hello hello = {.epoch = 5, .kv_budget_bytes = (uint64_t)1 << 40};
    pthread_t appender, readers[2];
    shared s = {0};
    rp_error err;
    must(cluster_journal_new(&s.journal, secret, &hello, &err), &err);
    assert_int_equal(pthread_create(&appender, NULL, append, &s), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&readers[i], NULL, read_stream, &s), 0);
    assert_int_equal(pthread_join(appender, NULL), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(readers[i], NULL), 0);
    cluster_journal_free(s.journal);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indexes_agree_with_nodes_after_any_faults),
        cmocka_unit_test(a_snapshot_is_consistent_while_names_change),
        cmocka_unit_test(the_ring_limits_how_far_behind_a_reader_may_be),
        cmocka_unit_test(gaps_and_wrong_digests_ask_for_a_snapshot),
        cmocka_unit_test(a_stream_goes_on_where_it_was),
        cmocka_unit_test(delays_double_until_a_digest_is_right),
        cmocka_unit_test(health_is_by_what_was_heard),
        cmocka_unit_test(loads_and_digests_are_sent_in_their_time),
        cmocka_unit_test(readers_are_limited),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(readers_follow_a_thread_that_appends),
        cmocka_unit_test(names_beyond_a_budget_are_ignored),
        cmocka_unit_test(a_full_index_takes_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
