/* SPDX-License-Identifier: Apache-2.0 */
/* schemas_http.h: what routes of schemas have in common: those of a server, of a cluster's node
 * (cluster/cluster_schemas.c), and of a router (route/route_schemas.c). */
#ifndef SERVER_SCHEMAS_HTTP_H
#define SERVER_SCHEMAS_HTTP_H

#include "server/http/server_request.h"

/* The tenant of the requested schemas: the caller's, or with ?shared=true none: shared schemas are usable by every
 * tenant. Sets a problem if the caller may not change shared schemas or see their texts. */
const char *schemas_http_tenant(server_request *x);
/* Handle a PUT and a DELETE for the tenant, whose change was made at that time (schema_entry); 0: it is made now. */
void schemas_http_put(server_request *x, const char *tenant, uint64_t changed);
void schemas_http_delete(server_request *x, const char *tenant, uint64_t changed);
/* Whether the PUT shall prefill. */
bool schemas_http_prefills(server_request *x);
/* May one more wait for a prefill? It holds a worker until the end. false: a problem is set. */
bool schemas_http_begin_prefill(server_request *x);
void schemas_http_end_prefill(rp_server *s);

/* Handlers of the routes. */
void handle_schema_list(server_request *x);
void handle_schema_put(server_request *x);
void handle_schema_get(server_request *x);
void handle_schema_delete(server_request *x);
void handle_schema_layout(server_request *x);

#endif
