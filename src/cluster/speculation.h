/* SPDX-License-Identifier: Apache-2.0 */
/* speculation.h: speculative entries of the index: names that a node will hold soon, because a request that computes
 * them was sent to it.
 *
 *   ring   [ (name, node, time of expiry) ... ]   the oldest first; all have the same lifetime
 *
 * An entry ends when it expires, when the node's report replaces it, when the request fails, or when the node leaves.
 * An existing entry is not renewed: when it expires, the node has reported the name, or does not hold it. Beyond the
 * capacity, or without memory, the oldest entries end early: they are hints. One thread.
 */
#ifndef CLUSTER_SPECULATION_H
#define CLUSTER_SPECULATION_H

#include "cluster/index.h"
#include "reprise_cluster.h"

#define CLUSTER_MAX_SPECULATIVE ((size_t)1 << 18) /* entries; 32 bytes each */

typedef struct cluster_speculative {
    rp_name name;
    int32_t node; /* -1: it has ended early */
    uint64_t expires_us;
} cluster_speculative;

/* Zero-initialise. */
typedef struct cluster_speculation {
    cluster_speculative *ring; /* [cap], n from first */
    size_t cap, first, n;
} cluster_speculation;

void cluster_speculation_free(cluster_speculation *s);
/* Adds entries for those names of a request that the node does not hold. */
void cluster_speculation_add(cluster_speculation *s, cluster_index *x, int32_t node, const rp_named_kv *items,
                             int32_t n_items, uint64_t expires_us);
/* Removes the entries of a request that failed; all entries of a node. */
void cluster_speculation_fail(cluster_index *x, int32_t node, const rp_named_kv *items, int32_t n_items);
void cluster_speculation_leave(cluster_speculation *s, cluster_index *x, int32_t node);
/* Removes expired entries; returns when the next one expires, UINT64_MAX: there is none. */
uint64_t cluster_speculation_expire(cluster_speculation *s, cluster_index *x, uint64_t now_us);

#endif
