/* SPDX-License-Identifier: Apache-2.0 */
/* index.h: which nodes hold which KV: name -> nodes and tiers, for all nodes. About 40 bytes for a name with few
 * holders; 10 million names take at most 500 MB. One thread at a time.
 *
 *   hash of a name   [10 bits: segment | 22 | 32: order]
 *   segment          an ordered open-addressing table: slots in rising order of (order, name), each at or after its
 *                    home, order * cap / 2^32, with no free slot between home and slot. Each segment grows alone, by a
 *                    fifth when 85 % full: no copy of the whole table, no long pause
 *   slot, 32 bytes   u8[16] name | u16[7] holders: node, tiers, mark | u16 number of holders
 *                    8 holders or more: instead of holders the number of a wide entry in the shared pool, which has one
 *                    bit per node and plane (tier, mark)
 *
 * The order of names depends on the names alone: a walk in pieces (cluster_index_walk) meets each name once, whatever
 * changes between the pieces.
 *
 * A speculative entry marks a name that a node will hold soon, because a request that computes it was sent to the node.
 * It expires, and the node's report replaces it.
 */
#ifndef CLUSTER_INDEX_H
#define CLUSTER_INDEX_H

#include "reprise_cluster.h"

#define CLUSTER_MAX_NODES 1024
#define CLUSTER_INDEX_MAX_NAMES ((size_t)1 << 26)
#define CLUSTER_INDEX_MAX_WIDE ((size_t)1 << 22) /* names with more than 7 holders */
#define CLUSTER_TIER_SPECULATIVE 4u              /* besides RP_TIER_* */

typedef struct cluster_index cluster_index;

int cluster_index_new(cluster_index **out, rp_error *err); /* RP_ERR_MEMORY */
/* An index whose walks fill other indexes: with another order within segments. An index that is filled in its own order
 * would push each name far from its home. */
int cluster_index_new_source(cluster_index **out, rp_error *err);
void cluster_index_free(cluster_index *x);
/* Sets the size in bytes at which no further holder is added: RP_ERR_LIMIT. 0, the default: only
 * CLUSTER_INDEX_MAX_NAMES limits it. */
void cluster_index_set_limit(cluster_index *x, uint64_t bytes);
/* Sets the tiers in which a node holds a name, CLUSTER_TIER_SPECULATIVE included; 0 removes the holder, and cannot
 * fail. RP_ERR_MEMORY, RP_ERR_LIMIT: nothing was changed. */
int cluster_index_set(cluster_index *x, const rp_name *name, int32_t node, uint32_t tiers);
/* Tiers in which a node holds a name; 0: none. */
uint32_t cluster_index_get(const cluster_index *x, const rp_name *name, int32_t node);
/* Writes the holders of a name and their tiers, up to `most`, to nodes and tiers. Returns their number. */
int32_t cluster_index_find(const cluster_index *x, const rp_name *name, int32_t *nodes, uint32_t *tiers, int32_t most);
/* Removes all names of a node: it has left, or has another epoch. One pass over the table. */
void cluster_index_clear(cluster_index *x, int32_t node);
/* A report of the node itself: as cluster_index_set; within a snapshot it confirms the name. */
int cluster_index_report(cluster_index *x, const rp_name *name, int32_t node, uint32_t tiers);
/* A node's snapshot. Its end removes names that the node reported before its beginning and not since; speculative tiers
 * stay. A snapshot that does not end is dropped by the next beginning. An end, and a beginning after a snapshot that
 * did not end, take one pass over the table. */
void cluster_index_begin_snapshot(cluster_index *x, int32_t node);
void cluster_index_end_snapshot(cluster_index *x, int32_t node);
/* Number of names; number of names of a node; count and sum of a digest of a node's reported names, without speculative
 * ones. */
size_t cluster_index_count(const cluster_index *x);
size_t cluster_index_count_of(const cluster_index *x, int32_t node);
void cluster_index_digest(const cluster_index *x, int32_t node, uint64_t *count, uint64_t *sum);
uint64_t cluster_index_bytes(const cluster_index *x);

/* The position of a walk. Zero-initialise. */
typedef struct cluster_index_place {
    bool began;
    rp_name last;
} cluster_index_place;
/* Copies up to `most` further names of a node, with their tiers, to out. Returns their number; less than `most`: there
 * are no more. A name that is held during the whole walk is copied exactly once, one that is added or removed during it
 * at most once. */
size_t cluster_index_walk(const cluster_index *x, int32_t node, cluster_index_place *place, rp_span_change *out,
                          size_t most);

/* Matches the names of a request with the nodes below n_nodes, in one pass over the names. held: [n_nodes][n_items]
 * tiers, 0: not held. Names of text after the first one that a node lacks are not held; names of a group are held only
 * if the node holds all of them. */
void cluster_index_match(const cluster_index *x, const rp_named_kv *items, int32_t n_items, int32_t n_nodes,
                         uint8_t *held);

#endif
