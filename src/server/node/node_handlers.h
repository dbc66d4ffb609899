/* SPDX-License-Identifier: Apache-2.0 */
/* node_handlers.h: the handlers of the routes for routers. Quick ones run on I/O threads, all others on workers
   (server_request.h). */
#ifndef SERVER_NODE_HANDLERS_H
#define SERVER_NODE_HANDLERS_H

#include "server/http/server_request.h"

/* cluster_http.c */
void handle_cluster_stream(server_request *x);
void handle_cluster_requests(server_request *x);
void handle_cluster_drain(server_request *x);

/* cluster_schemas.c */
void handle_cluster_schema_list(server_request *x);
void handle_cluster_schema_get(server_request *x);
void handle_cluster_schema_put(server_request *x);
void handle_cluster_schema_delete(server_request *x);

#endif
