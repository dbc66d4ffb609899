/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_span_stream.c: hostile span streams, applied to an index. What an index counts is what a walk over it finds,
 * whatever came; bytes give the same in one piece and in several.
 *
 * The first byte: bit 0: 0: the rest are bytes of one stream, whose key is known (seeds are signed with it);
 *                        1: the rest are frames without tags, (u8 kind, bit 7: of the other node | u16 length | body):
 *                        they are signed here, so that
 *                           any body reaches the decoder and the view; a stream that ends with an error is opened again
 *                 bit 1: each stream begins with a hello
 *                 bits 2 to 7: most bytes of a piece, less one */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "cluster/view.h"
#include "reprise_cluster.h"

#define RANDOM 1 /* of nonces: tools/span_stream_seeds.c has it, too */
#define N_NODES 2

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok) {
    if (!ok) abort();
}

static const uint8_t secret[RP_CLUSTER_KEY_BYTES];
static const int32_t numbers[N_NODES] = {3, 1023};

typedef struct router {
    cluster_index *index;
    cluster_view *views[N_NODES];
    cluster_stream_key keys[N_NODES];
    uint64_t frames[N_NODES]; /* of the stream */
    uint64_t now_us;
    base_buffer out;
    size_t most; /* of a piece */
} router;

static void router_feed(router *r, int k, const char *bytes, size_t n) {
    for (size_t at = 0, step; at < n && cluster_view_get_state(r->views[k]) != CLUSTER_VIEW_CLOSED; at += step) {
        rp_error err = {0};
        step = BASE_MIN(r->most, n - at);
        int rc = cluster_view_feed(r->views[k], r->now_us, bytes + at, step, &err);
        check(rc == err.code && (rc == RP_OK) == (cluster_view_get_state(r->views[k]) != CLUSTER_VIEW_CLOSED));
        check(rc == RP_OK || rc == RP_ERR_FORMAT || rc == RP_ERR_LIMIT || rc == RP_ERR_MEMORY);
    }
}

static void router_reopen(router *r, int k, bool greets) {
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    uint64_t epoch, after;
    const cluster_hello hello = {.epoch = 7};
    if (cluster_view_get_state(r->views[k]) != CLUSTER_VIEW_CLOSED) return;
    cluster_view_open(r->views[k], r->now_us, nonce, RANDOM, &epoch, &after);
    cluster_stream_key_make(&r->keys[k], secret, nonce);
    r->frames[k] = 0;
    if (!greets) return;
    base_buffer_clear(&r->out);
    check(cluster_write_hello(&r->out, &r->keys[k], r->frames[k]++, &hello) == RP_OK);
    router_feed(r, k, r->out.data, r->out.len);
}

/* Totals and digest of a node are those of its names. */
static void router_check(const router *r, int32_t node) {
    cluster_index_place place = {0};
    rp_span_change piece[8];
    uint64_t names = 0, reported = 0, sum = 0, count, own_sum;
    for (size_t n; (n = cluster_index_walk(r->index, node, &place, piece, 8)) > 0;)
        for (size_t i = 0; i < n; i++) {
            check(piece[i].tiers != 0 && piece[i].tiers <= (RP_TIER_RAM | RP_TIER_DISK));
            check(cluster_index_get(r->index, &piece[i].name, node) == piece[i].tiers);
            names++;
            reported++;
            sum += cluster_name_hash(&piece[i].name, piece[i].tiers);
        }
    cluster_index_digest(r->index, node, &count, &own_sum);
    check(names == cluster_index_count_of(r->index, node) && reported == count && sum == own_sum);
}

static void feed_frames(router *r, const uint8_t *data, size_t n, bool greets) {
    while (n >= 3) {
        const int k = data[0] >> 7;
        const size_t length = BASE_MIN((size_t)data[1] | (size_t)data[2] << 8, n - 3);
        router_reopen(r, k, greets);
        base_buffer_clear(&r->out);
        check(cluster_write_frame(&r->out, &r->keys[k], r->frames[k]++, data[0] & 127, data + 3, length) == RP_OK);
        router_feed(r, k, r->out.data, r->out.len);
        r->now_us += 50000;
        data += 3 + length;
        n -= 3 + length;
    }
}

static void router_run(router *r, const uint8_t *data, size_t n, size_t most) {
    *r = (router){.out = BASE_BUFFER(CLUSTER_MAX_FRAME + 4), .most = most};
    check(cluster_index_new(&r->index, NULL) == RP_OK);
    for (int k = 0; k < N_NODES; k++)
        check(cluster_view_new(&r->views[k], r->index, numbers[k], secret, NULL) == RP_OK);
    if (data[0] & 1) feed_frames(r, data + 1, n - 1, data[0] & 2);
    else {
        router_reopen(r, 0, data[0] & 2);
        router_feed(r, 0, (const char *)data + 1, n - 1);
    }
    for (int k = 0; k < N_NODES; k++) router_check(r, numbers[k]);
}

static void router_end(router *r) {
    for (int k = 0; k < N_NODES; k++) cluster_view_free(r->views[k]);
    check(cluster_index_count(r->index) == 0);
    cluster_index_free(r->index);
    base_buffer_free(&r->out);
}

static void check_same(const router *a, const router *b) {
    for (int k = 0; k < N_NODES; k++) {
        uint64_t count[2], sum[2];
        cluster_index_digest(a->index, numbers[k], &count[0], &sum[0]);
        cluster_index_digest(b->index, numbers[k], &count[1], &sum[1]);
        check(count[0] == count[1] && sum[0] == sum[1]);
        check(cluster_view_get_state(a->views[k]) == cluster_view_get_state(b->views[k]));
        check(cluster_view_counted(a->views[k])->frames == cluster_view_counted(b->views[k])->frames);
        check(cluster_view_counted(a->views[k])->forged == cluster_view_counted(b->views[k])->forged);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    router whole, cut;
    if (n < 1) return 0;
    router_run(&whole, data, n, SIZE_MAX);
    router_run(&cut, data, n, 1 + (size_t)(data[0] >> 2));
    check_same(&whole, &cut);
    router_end(&whole);
    router_end(&cut);
    return 0;
}
