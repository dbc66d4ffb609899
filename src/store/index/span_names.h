/* SPDX-License-Identifier: Apache-2.0 */
/* span_names.h: names of KV in a cluster (reprise_cluster.h): keyed hashes of keys and of tokens, and the report of
 * changed tiers.
 *
 *   module's span        first 16 bytes of BLAKE2b-256(cluster key; "reprise name 1", its key)
 *   text                 a chain over the tokens after a root, SPAN_NAME_TOKENS at a time:
 *
 *     root key --> key of its names
 *     zeros -- 64 tokens --> name_1 -- 64 tokens --> name_2 ...
 *
 *     key      first 16 bytes of BLAKE2b-256(cluster key; "reprise text names 2", root key)
 *     name_i   SipHash-2-4-128(key; name_i-1, 64 tokens, the first one's position; of each that does not follow the one
 *           before it: its number
 *              among the 64, its position)
 *
 * Numbers are 32-bit integers, little-endian. Nobody without the cluster key can compute a name, and no name tells
 * another one. It is SipHash as a router names prompts of 100,000 tokens (bench_plan_names). A text's tokens are the
 * same wherever spans of the store begin and end in it: a router names a prompt without the tree (span_tree.h), whose
 * nodes have the names of the multiples of SPAN_NAME_TOKENS within them.
 *
 * A block is such a name with its tokens and the name before it, for others who hash tokens in another way
 * (rp_on_blocks). Blocks are of the texts of one root, whose positions are 0, 1, 2, ...: a text at other positions has
 * other KV, which tokens alone do not tell.
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
    uint8_t key[BASE_SHORT_KEY_BYTES]; /* of its root's names */
    rp_name name;                      /* the last one; zeros: none yet */
    bool is_plain;                     /* its tokens have the positions 0, 1, 2, ..., after the root of blocks */
} span_chain;

rp_name span_name_of(const base_key *cluster_key, const base_key *key);
/* Before the first name of a root; is_plain is false. */
span_chain span_chain_begin(const base_key *cluster_key, const base_key *root);
/* To the next name, of SPAN_NAME_TOKENS tokens at their positions; is_plain is left. */
void span_chain_next(span_chain *chain, const int32_t *tokens, const int32_t *positions);

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
void span_reporter_add_block(span_reporter *r, const rp_name *name, const rp_name *parent, const int32_t *tokens,
                             uint32_t tiers);
/* Delivers what was added. */
void span_reporter_flush(span_reporter *r);

#endif
