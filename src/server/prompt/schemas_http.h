/* SPDX-License-Identifier: Apache-2.0 */
/* schemas_http.h: what routes of schemas have in common: those of a server, and of a router (route/route_schemas.c). */
#ifndef SERVER_SCHEMAS_HTTP_H
#define SERVER_SCHEMAS_HTTP_H

#include "server/http/server_request.h"

/* The tenant of the requested schemas: the caller's, or with ?shared=true none: shared schemas are usable by every tenant. Sets a problem if
 * the caller may not change shared schemas or see their texts. */
const char *schemas_http_tenant(server_request *x);
/* With the model's schema_lock held: the body's schema is loaded and kept, in engine, registry and folder, or in none of them: a
 * server_problem_kind. */
int schemas_http_load(server_request *x, const char *tenant);
/* Likewise removed. */
int schemas_http_remove(server_request *x, const char *tenant);

#endif
