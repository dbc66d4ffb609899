/* SPDX-License-Identifier: Apache-2.0 */
/* span_names.h: names of KV in a cluster (reprise_cluster.h): keyed hashes of keys and of tokens, and the report of changed tiers.
 *
 *   module's span        first 16 bytes of BLAKE2b-256(cluster key; "reprise name 1", its key)
 *   text                 a chain over the tokens after a root, SPAN_NAME_TOKENS at a time:
 *
 *     root key --> chain_0 -- 64 tokens --> chain_1 -- 64 tokens --> chain_2 ...
 *                                           name_1                   name_2
 *
 *     chain_0            BLAKE2b-256(cluster key; "reprise text name 1", root key)
 *     chain_i | name_i   BLAKE2b-512("reprise text name 2", chain_i-1, runs): its first 32 bytes, and the next 16
 *
 * A run of tokens at consecutive positions is hashed as its first position and its tokens. The first link is keyed and links are not published:
 * nobody without the cluster key can compute a name, and no name tells another one. One hash makes link and name, as a router names prompts of
 * 100,000 tokens (bench_plan_names). A text's tokens are the same wherever spans of the store begin and end in it: a router names a
 * prompt without the tree (span_tree.h), whose nodes have the names of the multiples of SPAN_NAME_TOKENS within them.
 *
 * A block is such a name with its tokens and the name before it, for others who hash tokens in another way (rp_on_blocks). Blocks are of the
 * texts of one root, whose positions are 0, 1, 2, ...: a text at other positions has other KV, which tokens alone do not tell.
 *
 * Functions without a state; a span_reporter belongs to one thread at a time.
 */
#ifndef STORE_SPAN_NAMES_H
#define STORE_SPAN_NAMES_H

#include "base/hash.h"
#include "reprise_cluster.h"

#define SPAN_NAME_TOKENS RP_NAME_TOKENS

/* Where the names of a text have arrived. */
typedef struct span_chain {
    base_key link;
    rp_name name;  /* of the link; zeros: none yet */
    bool is_plain; /* its tokens have the positions 0, 1, 2, ..., after the root of blocks */
} span_chain;

rp_name span_name_of(const base_key *cluster_key, const base_key *key);
/* The chain of a root. */
base_key span_chain_begin(const base_key *cluster_key, const base_key *root);
/* Its next link, of SPAN_NAME_TOKENS tokens at their positions, and their name. */
base_key span_chain_next(const base_key *chain, const int32_t *tokens, const int32_t *positions, rp_name *name);

/* ---- reports ---- */

#define SPAN_REPORT_CHANGES 512 /* delivered at once */
#define SPAN_REPORT_BLOCKS 64

/* Collects changes, and delivers them in batches. Zero-initialise, then set the first fields. */
typedef struct span_reporter {
    base_key cluster_key;
    rp_on_spans fn; /* NULL: nothing is reported */
    void *user;
    rp_on_blocks on_blocks; /* likewise */
    void *blocks_user;
    base_key blocks_root; /* before the first root of the tree */
    size_t n, n_blocks;
    rp_span_change changes[SPAN_REPORT_CHANGES];
    rp_block_change blocks[SPAN_REPORT_BLOCKS];
    int32_t tokens[SPAN_REPORT_BLOCKS][SPAN_NAME_TOKENS];
} span_reporter;

/* Adds a change; delivers first if there is no space for it. */
void span_reporter_add(span_reporter *r, const rp_name *name, uint32_t tiers);
void span_reporter_add_block(span_reporter *r, const rp_name *name, const rp_name *parent, const int32_t *tokens, uint32_t tiers);
/* Delivers what was added. */
void span_reporter_flush(span_reporter *r);

#endif
