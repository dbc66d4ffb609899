/* SPDX-License-Identifier: Apache-2.0 */
/* route.h: a router: a server whose answers come from nodes (docs/cluster.md, docs/decisions/0049-a-router-is-a-server-without-an-engine.md).
 *
 *   client --> dialect code --> route_answers: names of the prompt's KV --submit--> cluster_router (src/cluster): which node, when
 *                                                                                       | send
 *   client <-- route_take <-- buffer of the request <-- frames up to a mark <-- route_transfer <-- node
 *
 * Everything before the submission is that of a server with an engine: keys, fields, templates, modules, errors. What the rest of the server sees
 * of a router is here; route_internal.h is for the files of this folder.
 */
#ifndef SERVER_ROUTE_H
#define SERVER_ROUTE_H

#include "base/buffer.h"
#include "reprise_server.h"
#include "server/http/server_request.h"

typedef struct route route;

/* Copies options and reads the secret. Nothing runs yet. RP_ERR_INVALID, RP_ERR_IO, RP_ERR_MEMORY. */
int route_new(route **out, rp_server *server, const rp_router_options *options, rp_error *err);
/* Makes the server's model pool for the model, and starts the threads. Errors of rp_engine_new; RP_ERR_IO (threads), RP_ERR_MEMORY. */
int route_start(route *t, rp_model *model, const rp_engine_options *options, rp_error *err);
/* After all requests are freed. Ends the threads; the model pool must still be there. */
void route_stop(route *t);
void route_free(route *t); /* after the model pool */

/* The routes of a router: those of a server, some with other handlers, and those of the cluster. Static. */
server_routes route_all_routes(void);
/* Of requests that nodes answer. */
extern const server_answer_ops route_operations;

/* Nodes that are well. Any thread, without a lock. */
int route_n_well(const route *t);
/* The nodes are read and looked up anew. Any thread. */
void route_reload_nodes(route *t);
/* Lines of /metrics. Nonzero: no memory. */
int route_metrics_append(base_buffer *b, route *t);
/* Worker: what the request names with this id ("resp_TAG_...", "TAG_...") is on the node with that tag: it alone gets the request. Returns a
 * server_problem_kind: none of the nodes has the tag. field: of the id in the request, or NULL. */
int route_pin(server_request *x, const char *id, const char *field);

#endif
