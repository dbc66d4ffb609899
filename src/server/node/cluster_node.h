/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_node.h: this server as a node of a cluster (docs/cluster.md): its secret, epoch and name, the journal of what
 * its engine holds, and the span streams that read it.
 *
 *   engine's thread --on_spans--> journal --------------+
 *                        '--wakes (an eventfd)--> node's thread --resumes--> a stream's connection --I/O thread:
 *                        cluster_journal_read--> router
 *                             every 100 ms: load -------^
 *
 * The engine's thread never waits for a reader: the eventfd is written at most once until the node's thread has seen
 * it. The node's thread sleeps while no stream is open. A stream renders no more than CLUSTER_STREAM_BYTES that its
 * reader has not taken, and one that takes nothing for CLUSTER_STREAM_STALL_US is cut: its router comes back, and gets
 * a snapshot.
 */
#ifndef SERVER_CLUSTER_NODE_H
#define SERVER_CLUSTER_NODE_H

#include "cluster/journal.h"
#include "cluster/signature.h"
#include "server/http/server_request.h"
#include "server/models/model_pool.h"
#include "reprise_cluster.h"

#define CLUSTER_STREAM_BYTES ((size_t)128 << 10)
#define CLUSTER_STREAM_STALL_US 5000000

typedef struct cluster_node cluster_node;

/* Reads the secret. name NULL: the address of the cluster's listener. RP_ERR_INVALID (no secret; a name that is too
 * long), RP_ERR_IO, RP_ERR_MEMORY. */
int cluster_node_new(cluster_node **out, rp_server *server, const char *secret_file, const char *name, rp_error *err);
/* The model is loaded: streams say so. Starts the thread. RP_ERR_IO (no thread). */
int cluster_node_ready(cluster_node *n, const struct server_model *m, rp_error *err);
/* Ends the thread: the engine is about to be closed. Streams have ended. */
void cluster_node_stop(cluster_node *n);
/* After cluster_node_stop, and after the engine has ended. */
void cluster_node_free(cluster_node *n);

uint64_t cluster_node_epoch(const cluster_node *n);
const uint8_t *cluster_node_secret(const cluster_node *n); /* [RP_CLUSTER_KEY_BYTES] */
const char *cluster_node_name(const cluster_node *n);
/* A request with a right signature has this nonce. false: another one had it. Any thread. */
bool cluster_node_take_nonce(cluster_node *n, const uint8_t nonce[CLUSTER_NONCE_BYTES]);
const char *cluster_node_tag_of(const cluster_node *n);
/* An rp_on_spans; user: the node. */
void cluster_node_on_spans(void *node, const rp_span_change *changes, size_t n);
/* The server begins to drain, or ends that, or its uploaded schemas have changed: streams get a load at once. Any
   thread. */
void cluster_node_changed(cluster_node *n);
/* Streams that are open. */
int32_t cluster_node_streams(cluster_node *n);
/* Names that the engine holds. */
uint64_t cluster_node_names(cluster_node *n);

/* cluster_http.c: a number of the query, in that base; 0: it is missing, or a problem is set. */
uint64_t cluster_http_number(server_request *x, const char *name, int base);

/* Worker: makes the request a stream, from the change after `after` of that epoch on. A server_problem_kind. */
int cluster_node_open(server_request *x, const uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t epoch, uint64_t after);
/* The request is about to be freed: ends its stream, if it is one. */
void cluster_node_forget(server_request *x);

#endif
