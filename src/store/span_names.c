/* SPDX-License-Identifier: Apache-2.0 */
/* span_names.c: see span_names.h. */
#include "store/span_names.h"

#include <string.h>

_Static_assert(RP_CLUSTER_KEY_BYTES == BASE_KEY_BYTES, "a cluster key is a key of the hash");

rp_name span_name_of(const base_key *cluster_key, const base_key *key) {
    base_hash h;
    base_key full;
    rp_name name;
    base_hash_init_keyed(&h, "reprise name 1", cluster_key);
    base_hash_key(&h, key);
    base_hash_final(&h, &full);
    memcpy(name.bytes, full.bytes, sizeof(name.bytes));
    return name;
}

base_key span_chain_begin(const base_key *cluster_key, const base_key *root) {
    base_hash h;
    base_key chain;
    base_hash_init_keyed(&h, "reprise text name 1", cluster_key);
    base_hash_key(&h, root);
    base_hash_final(&h, &chain);
    return chain;
}

base_key span_chain_next(const base_key *chain, const int32_t *tokens, const int32_t *positions, rp_name *name) {
    base_hash h;
    base_key both[2];
    base_hash_init_pair(&h, "reprise text name 2");
    base_hash_key(&h, chain);
    for (size_t i = 0, end; i < SPAN_NAME_TOKENS; i = end) {
        for (end = i + 1; end < SPAN_NAME_TOKENS && positions[end] == positions[end - 1] + 1;) end++;
        base_hash_u64(&h, (uint64_t)(int64_t)positions[i]);
        base_hash_bytes(&h, tokens + i, (end - i) * sizeof(*tokens)); /* little-endian, as on all supported machines */
    }
    base_hash_final_pair(&h, both);
    memcpy(name->bytes, both[1].bytes, sizeof(name->bytes));
    return both[0];
}

void span_reporter_add(span_reporter *r, const rp_name *name, uint32_t tiers) {
    if (r->n == SPAN_REPORT_CHANGES) span_reporter_flush(r);
    r->changes[r->n++] = (rp_span_change){*name, tiers};
}

void span_reporter_add_block(span_reporter *r, const rp_name *name, const rp_name *parent, const int32_t *tokens, uint32_t tiers) {
    if (r->n_blocks == SPAN_REPORT_BLOCKS) span_reporter_flush(r);
    int32_t *own = r->tokens[r->n_blocks];
    memcpy(own, tokens, sizeof(r->tokens[0]));
    r->blocks[r->n_blocks++] = (rp_block_change){*name, *parent, tiers, own};
}

void span_reporter_flush(span_reporter *r) {
    if (r->n > 0 && r->fn) r->fn(r->user, r->changes, r->n);
    if (r->n_blocks > 0 && r->on_blocks) r->on_blocks(r->blocks_user, r->blocks, r->n_blocks);
    r->n = r->n_blocks = 0;
}
