/* SPDX-License-Identifier: Apache-2.0 */
/* listeners.h: the sockets that a server listens on, each with its gate. */
#ifndef SERVER_LISTENERS_H
#define SERVER_LISTENERS_H

#include <microhttpd.h>
#include <stdbool.h>

#include "reprise_server.h"

#define SERVER_MAX_LISTENERS 8
#define SERVER_ADDRESS_BYTES 160

typedef struct server_listener {
    int fd;
    bool is_unix;
    bool is_cluster; /* its requests need the cluster's signature (cluster_port.h) */
    char address[SERVER_ADDRESS_BYTES];
    char unlink_path[108]; /* removed at the end; "": none */
    struct server_gate *gate;
} server_listener;

typedef struct server_listeners {
    server_listener items[SERVER_MAX_LISTENERS];
    int n;
    bool beyond_loopback; /* another machine can connect; the cluster's listener does not count */
} server_listeners;

/* Opens the sockets, that of the cluster last; those that are not inherited do not listen yet. RP_ERR_INVALID,
   RP_ERR_IO, RP_ERR_LIMIT. */
int listeners_open(server_listeners *l, const rp_server_options *options, rp_error *err);
/* Callbacks of each connection and request; their first argument is the server. */
typedef struct server_http_callbacks {
    MHD_AccessHandlerCallback access;
    MHD_RequestCompletedCallback completed;
    MHD_NotifyConnectionCallback connection;
    void *(*target)(void *cls, const char *target,
                    struct MHD_Connection *connection); /* of requests to the cluster's listener, before access */
} server_http_callbacks;

/* Starts the gates. RP_ERR_IO, RP_ERR_MEMORY. */
int listeners_start(server_listeners *l, rp_server *server, const server_http_callbacks *callbacks,
                    const rp_server_options *options, rp_error *err);
/* The listener of a connection that has not ended, or NULL. Any thread. */
const server_listener *listeners_of(const server_listeners *l, struct MHD_Connection *connection);
/* Its gate. */
struct server_gate *listeners_gate(const server_listeners *l, struct MHD_Connection *connection);
/* Stops the gates. No connection is suspended. */
void listeners_close(server_listeners *l);

#endif
