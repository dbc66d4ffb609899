/* SPDX-License-Identifier: Apache-2.0 */
/* request_tenant.h: the tenant of a request's KV. */
#ifndef SERVER_REQUEST_TENANT_H
#define SERVER_REQUEST_TENANT_H

#include "server/http/server_request.h"

#define SERVER_SALTED_BYTES (2 * 32 + 1)

/* That of its key; with a `cache_salt`, one per value, written to `salted`. NULL: the operator's. */
const char *request_tenant(const server_request *x, char salted[SERVER_SALTED_BYTES]);

#endif
