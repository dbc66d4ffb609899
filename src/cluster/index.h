/* SPDX-License-Identifier: Apache-2.0 */
/* index.h: who holds what: name -> nodes and tiers, of all nodes together. About 40 bytes a name that few nodes hold; 10 million names take at most
 * 500 MB. One thread at a time.
 *
 *   hash of a name   [10 bits: segment | 22 | 32: order]
 *   segment          slots in rising order of (order, name), each at or after its home, order * cap / 2^32, without a gap between: an ordered
 *                    open-addressing table. It grows by a fifth when 85 % full, alone: no copy of the whole table, no long pause
 *   slot, 32 bytes   u8[16] name | u16[7] holders: node, tiers, mark | u16 number of holders
 *                    8 holders or more: the number of an entry of the shared pool instead: a bit for each node, and plane (tier, mark)
 *
 * The order of names depends on nothing but the names: a walk (cluster_index_walk) in pieces meets each once, whatever changes meanwhile.
 *
 * Speculative entries say that a node will hold a name soon, since a request that computes it was sent there; they expire, and the node's own report
 * replaces them.
 */
#ifndef CLUSTER_INDEX_H
#define CLUSTER_INDEX_H

#include "reprise_cluster.h"

#define CLUSTER_MAX_NODES 1024
#define CLUSTER_INDEX_MAX_NAMES ((size_t)1 << 26)
#define CLUSTER_INDEX_MAX_WIDE ((size_t)1 << 22) /* names that more than 7 nodes hold */
#define CLUSTER_TIER_SPECULATIVE 4u              /* besides RP_TIER_* */

typedef struct cluster_index cluster_index;

int cluster_index_new(cluster_index **out, rp_error *err); /* RP_ERR_MEMORY */
/* The same with another order within segments. A table that takes names in its own order has to push each far from its home; so walks of a
 * source fill other indexes. */
int cluster_index_new_source(cluster_index **out, rp_error *err);
void cluster_index_free(cluster_index *x);
/* At this many bytes no further holder is added: RP_ERR_LIMIT. 0: no limit but CLUSTER_INDEX_MAX_NAMES (the default). */
void cluster_index_set_limit(cluster_index *x, uint64_t bytes);
/* Sets the tiers in which a node holds a name, speculative ones included; 0 removes it, and cannot fail. RP_ERR_MEMORY, RP_ERR_LIMIT: nothing was
 * changed. */
int cluster_index_set(cluster_index *x, const rp_name *name, int32_t node, uint32_t tiers);
/* Tiers in which a node holds it; 0: none. */
uint32_t cluster_index_get(const cluster_index *x, const rp_name *name, int32_t node);
/* Writes the nodes that hold it, and their tiers, to nodes and tiers, up to `most`. Returns their number. */
int32_t cluster_index_find(const cluster_index *x, const rp_name *name, int32_t *nodes, uint32_t *tiers, int32_t most);
/* Removes all names of a node: it left, or has another epoch. One pass over the table. */
void cluster_index_clear(cluster_index *x, int32_t node);
/* The node's own report: as cluster_index_set, and within a snapshot it confirms the name. */
int cluster_index_report(cluster_index *x, const rp_name *name, int32_t node, uint32_t tiers);
/* A node's snapshot: its end removes what the node reported before the beginning and did not report since; speculative tiers stay. One that
 * does not end is forgotten at the next beginning. One pass over the table for an end, and for a beginning after one that did not end. */
void cluster_index_begin_snapshot(cluster_index *x, int32_t node);
void cluster_index_end_snapshot(cluster_index *x, int32_t node);
/* Names that at least one node holds; names of a node; the digest's count and sum of a node's reported names, speculative ones excluded. */
size_t cluster_index_count(const cluster_index *x);
size_t cluster_index_count_of(const cluster_index *x, int32_t node);
void cluster_index_digest(const cluster_index *x, int32_t node, uint64_t *count, uint64_t *sum);
uint64_t cluster_index_bytes(const cluster_index *x);

/* Where a walk is. Zero-initialise. */
typedef struct cluster_index_place {
    bool began;
    rp_name last;
} cluster_index_place;
/* Copies up to `most` further names that a node holds, with their tiers, to out. Returns their number; less than most: there are no more. A name
 * that is there all the time is copied exactly once, one that comes or leaves meanwhile at most once. */
size_t cluster_index_walk(const cluster_index *x, int32_t node, cluster_index_place *place, rp_span_change *out, size_t most);

/* What each node holds of a request: for all n_nodes nodes at once, in one pass over its names. held: [n_nodes][n_items] tiers, 0: not held. Of text,
 * names after the first one that a node lacks count as not held; of a group, none if it lacks one. Nodes from n_nodes on are left out. */
void cluster_index_match(const cluster_index *x, const rp_named_kv *items, int32_t n_items, int32_t n_nodes, uint8_t *held);

#endif
