/* SPDX-License-Identifier: Apache-2.0 */
/* request_origin.h: may this request be here? What a browser of the user's machine can be made to send by a page of somebody else is
 * refused before anything is done with it:
 *
 *   Host          a name of this server (server_names_accept), or the page has bound its own name to our address (DNS rebinding)
 *   Origin        this server's own page, or --cors; else Sec-Fetch-Site, which browsers send where they send no Origin
 *   Content-Type  application/json of JSON bodies: what a form or a text/plain fetch sends needs no permission of ours
 *
 * docs/decisions/0020-host-and-origin.md has the reasons. Names are written before the first request and read by any thread.
 */
#ifndef SERVER_REQUEST_ORIGIN_H
#define SERVER_REQUEST_ORIGIN_H

#include <stdbool.h>

#include "reprise_server.h"
#include "server/http/listeners.h"

struct server_request;

#define SERVER_MAX_HOST_NAMES 64
#define SERVER_HOST_BYTES 256 /* of a Host's name, without its port */

typedef struct server_names {
    char *names[SERVER_MAX_HOST_NAMES + 2 * SERVER_MAX_LISTENERS + 8]; /* lower case; addresses of IPv6 in brackets */
    int n;
    bool any_address; /* a socket is bound to all addresses of the machine: a Host that is an address is one of them, or leads to them */
} server_names;

/* The loopback names, what the listeners are bound to, and the options' host and host_names. RP_ERR_INVALID, RP_ERR_MEMORY. */
int server_names_init(server_names *names, const rp_server_options *options, const server_listeners *listeners, rp_error *err);
void server_names_free(server_names *names);
/* host: "localhost:8080". Any port is right, letters may be upper case. */
bool server_names_accept(const server_names *names, const char *host);
/* Is this origin ("http://localhost:8080") the one that a Host ("localhost:8080") is of? http and https alike: a proxy may speak TLS. */
bool server_origin_is_own(const char *origin, const char *host);

/* I/O thread; the exchange's problem says what is wrong. Before its route is known: the Host. */
void request_check_host(struct server_request *x);
/* With its route: Origin, and the type of the body. */
void request_check_origin(struct server_request *x);
void request_check_media(struct server_request *x);

#endif
