/* SPDX-License-Identifier: Apache-2.0 */
/* kv_events.h: what the engine holds, published for gateways that know vLLM's KV events (docs/cluster.md, "Kubernetes
 * gateways").
 *
 *   engine's thread --on_blocks--> blocks (kv_blocks.h)
 *         '--wakes (an eventfd)--> publisher's thread: batches (kv_event_batch.h) --> socket (kv_socket.h) -->
 *         subscribers
 *
 * A message is [topic "kv@NODE@MODEL", number from 0 (8 bytes, big-endian), batch]. Whoever subscribes gets everything
 * first: AllBlocksCleared, and each block as stored; all others get it too, at most every KV_EVENTS_RESTART_US. A
 * subscriber that misses a number connects again. The last message before the end of the server is AllBlocksCleared.
 * The engine's thread never waits for a subscriber, nor for the publisher's thread but for a copy of a piece.
 */
#ifndef SERVER_KV_EVENTS_H
#define SERVER_KV_EVENTS_H

#include "reprise_server.h"
#include "reprise_cluster.h"

#define KV_EVENTS_RESTART_US 1000000
#define KV_EVENTS_NAME_BYTES 256

typedef struct kv_events kv_events;

/* Opens the socket. name: the node's, in the topic. tenant: of blocks; NULL: text of requests without a tenant. Both
 * are copied. RP_ERR_INVALID, RP_ERR_IO, RP_ERR_MEMORY, RP_ERR_UNSUPPORTED (a build without libzmq). */
int kv_events_new(kv_events **out, const char *endpoint, const char *name, const char *tenant, rp_error *err);
/* Sets the callback of an engine's cluster options; the key as well, if there is none. */
void kv_events_join(kv_events *e, rp_cluster_options *options);
/* Starts the thread: the engine is loaded. model: its name in the API. RP_ERR_INVALID (the name has '@', or is too
   long), RP_ERR_IO. */
int kv_events_ready(kv_events *e, const char *model, rp_error *err);
/* Ends the thread: the engine is about to be closed. */
void kv_events_stop(kv_events *e);
/* After kv_events_stop, and after the engine has ended. */
void kv_events_free(kv_events *e);

/* For /metrics. Any thread. */
typedef struct kv_events_counts {
    uint64_t blocks, left_out, messages, restarts;
} kv_events_counts;
kv_events_counts kv_events_count(kv_events *e);

#endif
