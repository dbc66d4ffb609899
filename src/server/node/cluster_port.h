/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_port.h: requests of routers, on the cluster's port (docs/cluster-protocol.md): their signature, and what
 * their headers say.
 *
 *   head   signature well-formed? route: epoch, id       else 401, 400, 409
 *   body   its hash, piece by piece
 *   end    signature right, and its nonce new?           else 401, 409; resumed tokens are taken from the body's end
 *
 * I/O threads; after that the request's owner reads.
 */
#ifndef SERVER_CLUSTER_PORT_H
#define SERVER_CLUSTER_PORT_H

#include "server/http/request_relay.h"

/* The head is there. On another port: refuses a router's headers. false: no memory. */
bool cluster_port_begin(server_request *x);
/* The body is complete: checks the signature, before anything else of the request counts. */
void cluster_port_end(server_request *x);

#endif
