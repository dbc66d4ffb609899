/* SPDX-License-Identifier: Apache-2.0 */
/* index.h: who holds what: name -> nodes and tiers, of all nodes together. About 40 bytes a name that few nodes hold; 10 million names take at most
 * 500 MB. One thread at a time.
 *
 * Speculative entries say that a node will hold a name soon, since a request that computes it was sent there; they expire, and the node's own report
 * replaces them.
 */
#ifndef CLUSTER_INDEX_H
#define CLUSTER_INDEX_H

#include "reprise_cluster.h"

#define CLUSTER_MAX_NODES 1024
#define CLUSTER_INDEX_MAX_NAMES ((size_t)1 << 26)
#define CLUSTER_TIER_SPECULATIVE 4u /* besides RP_TIER_* */

typedef struct cluster_index cluster_index;

int cluster_index_new(cluster_index **out, rp_error *err); /* RP_ERR_MEMORY */
void cluster_index_free(cluster_index *x);
/* Sets the tiers in which a node holds a name, speculative ones included; 0 removes it. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int cluster_index_set(cluster_index *x, const rp_name *name, int32_t node, uint32_t tiers);
/* Tiers in which a node holds it; 0: none. */
uint32_t cluster_index_get(const cluster_index *x, const rp_name *name, int32_t node);
/* Writes the nodes that hold it, and their tiers, to nodes and tiers, up to `most`. Returns their number. */
int32_t cluster_index_find(const cluster_index *x, const rp_name *name, int32_t *nodes, uint32_t *tiers, int32_t most);
/* Removes all names of a node: it left, or has another epoch. */
void cluster_index_clear(cluster_index *x, int32_t node);
/* Names that at least one node holds; names of a node; the digest's count and sum of a node's reported names, speculative ones excluded. */
size_t cluster_index_count(const cluster_index *x);
size_t cluster_index_count_of(const cluster_index *x, int32_t node);
void cluster_index_digest(const cluster_index *x, int32_t node, uint64_t *count, uint64_t *sum);
uint64_t cluster_index_bytes(const cluster_index *x);

/* What each node holds of a request: for all n_nodes nodes at once, in one pass over its names. held: [n_nodes][n_items] tiers, 0: not held. Of text,
 * names after the first one that a node lacks count as not held. */
void cluster_index_match(const cluster_index *x, const rp_named_kv *items, int32_t n_items, int32_t n_nodes, uint8_t *held);

#endif
