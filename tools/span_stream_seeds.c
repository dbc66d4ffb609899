/* SPDX-License-Identifier: Apache-2.0 */
/* span_stream_seeds.c: writes small span streams as seeds for a fuzzer: span_stream_seeds DIR
 * (fuzz/corpus/span_stream).
 *
 * The first byte of each is a mode of fuzz/fuzz_span_stream.c: a signed stream with all kinds of frames, and the same
 * frames without tags, for it to sign: of one node and of two, with a hello and without.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/view.h"
#include "support/must.h"
#include "support/span_names.h"
#include "reprise_cluster.h"

typedef struct seed {
    const char *name;
    uint8_t mode;
    bool has_hello, wrong_digest, has_gap, two_nodes;
} seed;

static const seed seeds[] = {
    {"signed", 0 | 12 << 2, true, false, false, false},
    {"signed-after-hello", 2 | 3 << 2, false, false, false, false},
    {"frames", 1 | 63 << 2, true, false, false, false},
    {"frames-after-hello", 3 | 30 << 2, false, false, false, false},
    {"wrong-digest", 3 | 50 << 2, false, true, false, false},
    {"gap", 3 | 7 << 2, false, false, true, false},
    {"two-nodes", 3 | 20 << 2, false, false, false, true},
    {"two-nodes-wrong", 3 | 5 << 2, false, true, true, true},
};

/* The frames of a stream, signed with the key of the fuzzer's first one. */
static void write_stream(base_buffer *out, const seed *s) {
    static const uint8_t secret[RP_CLUSTER_KEY_BYTES];
    const cluster_hello hello = {
        .epoch = 9, .identity = "abc", .node = "n", .model = "m", .kv_format = "f16", .weights = "Q8_0", .n_ctx = 512};
    uint8_t nonce[CLUSTER_NONCE_BYTES] = {1};
    cluster_stream_key key;
    rp_span_change c[6];
    uint64_t number = s->has_hello ? 0 : 1, sum = 0;
    rp_error err = {0};
    nonce[8] = 1;
    cluster_stream_key_make(&key, secret, nonce);
    for (uint64_t i = 0; i < 6; i++) c[i] = (rp_span_change){span_name_at(i), 1 + (uint32_t)(i % 3)};
    if (s->has_hello) must(cluster_write_hello(out, &key, number++, &hello), &err);
    must(cluster_write_load(out, &key, number++, &(cluster_load){.engine.knot_us = {1, 2, 4}, .engine.running = 3}),
         &err);
    must(cluster_write_snapshot(out, &key, number++, 5, 4), &err);
    must(cluster_write_names(out, &key, number++, c, 3), &err);
    must(cluster_write_changes(out, &key, number++, 6, c + 4, 1), &err);
    must(cluster_write_names(out, &key, number++, c + 3, 1), &err);
    must(cluster_write_names(out, &key, number++, NULL, 0), &err);
    for (int i = 0; i < 5; i++) sum += cluster_name_hash(&c[i].name, c[i].tiers);
    must(cluster_write_digest(out, &key, number++, &(cluster_digest){6, 5, sum + s->wrong_digest}), &err);
    sum -= cluster_name_hash(&c[0].name, c[0].tiers);
    c[0].tiers = 0;
    must(cluster_write_changes(out, &key, number++, s->has_gap ? 9 : 7, c, 1), &err);
    must(cluster_write_digest(out, &key, number++, &(cluster_digest){7, 4, sum}), &err);
}

/* Frames without tags: kind, u16 length, body; of two nodes each twice. */
static void strip(base_buffer *out, const base_buffer *in, bool two_nodes) {
    const uint8_t *p = (const uint8_t *)in->data, *end = p + in->len;
    rp_error err = {0};
    while (p < end) {
        const size_t length = p[0] | (size_t)p[1] << 8, body = length - 1 - CLUSTER_TAG_BYTES;
        for (int k = 0; k <= two_nodes; k++) {
            const uint8_t head[] = {(uint8_t)(p[4] | k << 7), (uint8_t)body, (uint8_t)(body >> 8)};
            must(base_buffer_append(out, head, sizeof head), &err);
            must(base_buffer_append(out, p + 5, body), &err);
        }
        p += 4 + length;
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: span_stream_seeds DIR\n"), 2;
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        base_buffer stream = BASE_BUFFER((size_t)1 << 20), stripped = BASE_BUFFER((size_t)1 << 20);
        char path[1024];
        write_stream(&stream, &seeds[i]);
        strip(&stripped, &stream, seeds[i].two_nodes);
        const base_buffer *bytes = seeds[i].mode & 1 ? &stripped : &stream;
        snprintf(path, sizeof path, "%s/%s", argv[1], seeds[i].name);
        FILE *f = fopen(path, "wb");
        if (!f || fputc(seeds[i].mode, f) == EOF || fwrite(bytes->data, 1, bytes->len, f) != bytes->len || fclose(f))
            return perror(path), 1;
        base_buffer_free(&stream);
        base_buffer_free(&stripped);
    }
    return 0;
}
