/* SPDX-License-Identifier: Apache-2.0 */
/* pool_hints.h: names that nodes have written to the pool: a table of fixed size, in which hints that are used stay.
 *
 *   bucket, 64 bytes   u64[8] hashes of names, the last used first; 0: free. A new one replaces the last
 *
 * The pool evicts without notice, and a bucket forgets: a hint may be wrong both ways. A node asks the pool itself. One
 * thread at a time.
 */
#ifndef CLUSTER_POOL_HINTS_H
#define CLUSTER_POOL_HINTS_H

#include "reprise_cluster.h"

typedef struct cluster_pool_hints cluster_pool_hints;

/* bytes: of memory, at least a bucket's; rounded down to a power of two. RP_ERR_MEMORY. */
int cluster_pool_hints_new(cluster_pool_hints **out, uint64_t bytes, rp_error *err);
void cluster_pool_hints_free(cluster_pool_hints *h);
/* A node has written a name to the pool. */
void cluster_pool_hints_add(cluster_pool_hints *h, const rp_name *name);
bool cluster_pool_hints_get(cluster_pool_hints *h, const rp_name *name); /* counts as a use */

#endif
