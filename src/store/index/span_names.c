/* SPDX-License-Identifier: Apache-2.0 */
/* span_names.c: see span_names.h. */
#include "store/index/span_names.h"

#include <stddef.h>
#include <string.h>

#include "base/check.h"

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

span_chain span_chain_begin(const base_key *cluster_key, const base_key *root) {
    base_hash h;
    base_key full;
    span_chain chain = {.is_plain = false};
    base_hash_init_keyed(&h, "reprise text names 2", cluster_key);
    base_hash_key(&h, root);
    base_hash_final(&h, &full);
    memcpy(chain.key, full.bytes, sizeof(chain.key));
    return chain;
}

/* What is hashed, all of one length but the runs: little-endian, as on all supported machines. */
typedef struct named_tokens {
    rp_name before;
    int32_t tokens[SPAN_NAME_TOKENS], position;
    struct {
        int32_t begin, position;
    } runs[SPAN_NAME_TOKENS - 1]; /* after the first */
} named_tokens;

_Static_assert(sizeof(rp_name) == BASE_SHORT_HASH_BYTES, "a name is a short hash");
_Static_assert(offsetof(named_tokens, runs) == sizeof(rp_name) + (SPAN_NAME_TOKENS + 1) * sizeof(int32_t),
               "no padding is hashed");

void span_chain_next(span_chain *chain, const int32_t *tokens, const int32_t *positions) {
    named_tokens in;
    size_t n_runs = 0;
    in.before = chain->name;
    in.position = positions[0];
    memcpy(in.tokens, tokens, sizeof(in.tokens));
    for (int32_t i = 1; i < SPAN_NAME_TOKENS; i++) {
        if (positions[i] == positions[i - 1] + 1) continue;
        in.runs[n_runs].begin = i;
        in.runs[n_runs++].position = positions[i];
    }
    BASE_ASSERT(n_runs < SPAN_NAME_TOKENS);
    base_short_hash(chain->name.bytes, chain->key, &in, offsetof(named_tokens, runs) + n_runs * sizeof(in.runs[0]));
}

void span_reporter_add(span_reporter *r, const rp_name *name, uint32_t tiers) {
    if (r->n == SPAN_REPORT_CHANGES) span_reporter_flush(r);
    BASE_ASSERT(r->n < SPAN_REPORT_CHANGES && (tiers & ~(uint32_t)(RP_TIER_RAM | RP_TIER_DISK)) == 0);
    r->changes[r->n++] = (rp_span_change){*name, tiers};
}

void span_reporter_add_block(span_reporter *r, const rp_name *name, const rp_name *parent, const int32_t *tokens,
                             uint32_t tiers) {
    if (r->n_blocks == SPAN_REPORT_BLOCKS) span_reporter_flush(r);
    BASE_ASSERT(r->n_blocks < SPAN_REPORT_BLOCKS);
    int32_t *own = r->tokens[r->n_blocks];
    memcpy(own, tokens, sizeof(r->tokens[0]));
    r->blocks[r->n_blocks++] = (rp_block_change){*name, *parent, tiers, own};
}

void span_reporter_flush(span_reporter *r) {
    if (r->n > 0 && r->fn) r->fn(r->user, r->changes, r->n);
    if (r->n_blocks > 0 && r->on_blocks) r->on_blocks(r->blocks_user, r->blocks, r->n_blocks);
    r->n = r->n_blocks = 0;
}
