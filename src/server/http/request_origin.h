/* SPDX-License-Identifier: Apache-2.0 */
/* request_origin.h: refuses requests that a foreign web page makes a user's browser send, before they have any effect:
 *
 *   Host          must be a name of this server (server_names_accept): otherwise a page has bound its own name to our
 *         address (DNS rebinding)
 *   Origin        must be this server's own page or --cors; without Origin, browsers send Sec-Fetch-Site
 *   Content-Type  must be application/json for JSON bodies: a form or a text/plain fetch is sent without a preflight
 *   request. None, or the
 *                 default of `curl -d`, is JSON unless a header shows that a browser sent the request
 *
 * docs/decisions/0020-host-and-origin.md has the reasons. Names are immutable after the first request; any thread may
 * read them.
 */
#ifndef SERVER_REQUEST_ORIGIN_H
#define SERVER_REQUEST_ORIGIN_H

#include <stdbool.h>

#include "reprise_server.h"
#include "server/http/listeners.h"

struct server_request;

#define SERVER_MAX_HOST_NAMES 64
#define SERVER_HOST_BYTES 256 /* of the name in Host, without its port */

typedef struct server_names {
    char *names[SERVER_MAX_HOST_NAMES + 2 * SERVER_MAX_LISTENERS + 8]; /* lower case; addresses of IPv6 in brackets */
    int n;
    bool any_address; /* a socket is bound to all addresses of the machine: any address is accepted as Host */
} server_names;

/* Collects the loopback names, the bound addresses, and the options' host and host_names. RP_ERR_INVALID,
 * RP_ERR_MEMORY. */
int server_names_init(server_names *names, const rp_server_options *options, const server_listeners *listeners,
                      rp_error *err);
void server_names_free(server_names *names);
/* host: "localhost:8080". Any port is accepted; case is ignored. */
bool server_names_accept(const server_names *names, const char *host);
/* Whether an origin ("http://localhost:8080") has the Host ("localhost:8080"). http and https are equal: a proxy may
 * terminate TLS. */
bool server_origin_is_own(const char *origin, const char *host);

/* I/O thread; a refusal becomes the request's problem. Checks Host, before the route is known. */
void request_check_host(struct server_request *x);
/* Check Origin, and the type of the body, of a request with a route. */
void request_check_origin(struct server_request *x);
void request_check_media(struct server_request *x);

/* After these checks, of a request with a route: the type of its body, application/json where it may have none; NULL:
   none. */
const char *request_media(const struct server_request *x);
/* Is its body a PML document? Else it is JSON. */
bool request_is_document(const struct server_request *x);

#endif
