/* SPDX-License-Identifier: Apache-2.0 */
/* route.h: a router: a server that relays requests to nodes and their answers to clients (docs/cluster.md,
 * docs/decisions/0049-a-router-is-a-server-without-an-engine.md).
 *
 *   client --> dialect code --> route_answers: names of the prompt's KV --submit--> cluster_router (src/cluster)
 *                                                                                       | send
 *   client <-- route_take <-- buffer of the request <-- frames up to a mark <-- route_transfer <-- node
 *
 * Everything before the submission is that of a server with an engine: API keys, fields, templates, modules, errors.
 * This header is the interface to the rest of the server; route_internal.h is for the files of this folder.
 */
#ifndef SERVER_ROUTE_H
#define SERVER_ROUTE_H

#include "base/buffer.h"
#include "reprise_server.h"
#include "server/http/server_request.h"

typedef struct route route;

/* Copies the options and reads the secret; starts nothing. RP_ERR_INVALID, RP_ERR_IO, RP_ERR_MEMORY. */
int route_new(route **out, rp_server *server, const rp_router_options *options, rp_error *err);
/* Creates the server's model pool and starts the threads. Errors of rp_engine_new; RP_ERR_IO (threads),
 * RP_ERR_MEMORY. */
int route_start(route *t, rp_model *model, const rp_engine_options *options, rp_error *err);
/* Ends the threads. All requests must be freed, and the model pool must still exist. */
void route_stop(route *t);
void route_free(route *t); /* after the model pool */

/* The HTTP routes of a router: those of a server, some with other handlers, and those of the cluster. Static. */
server_routes route_all_routes(void);
/* Operations of requests that nodes answer. */
extern const server_answer_ops route_operations;

/* Number of healthy nodes that get requests. Any thread, without a lock. */
int route_n_well(const route *t);
/* Reads the list of nodes again, file and DNS included. Any thread. */
void route_reload_nodes(route *t);
/* Appends the router's lines of /metrics. Nonzero: no memory. */
int route_metrics_append(base_buffer *b, route *t);
/* Pins a request to the node that stores the object with this id ("resp_TAG_...", "TAG_..."), by the node's tag.
 * Workers. Returns a server_problem_kind: no node has the tag. field: the field of the id in the request, or NULL. */
int route_pin(server_request *x, const char *id, const char *field);

#endif
