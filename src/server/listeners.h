/* listeners.h: the sockets that a server listens on, each with its daemon of libmicrohttpd. */
#ifndef SERVER_LISTENERS_H
#define SERVER_LISTENERS_H

#include <microhttpd.h>
#include <stdbool.h>

#include "reprise_server.h"

#define SERVER_MAX_LISTENERS 8
#define SERVER_ADDRESS_BYTES 160

typedef struct server_listener {
    int fd; /* the daemon's once it has started */
    bool is_unix;
    char address[SERVER_ADDRESS_BYTES];
    char unlink_path[108]; /* at the end; "": nothing */
    struct MHD_Daemon *daemon;
} server_listener;

typedef struct server_listeners {
    server_listener items[SERVER_MAX_LISTENERS];
    int n;
    bool beyond_loopback; /* somebody on another machine can connect */
} server_listeners;

/* Opens the sockets, without listening yet where they are ours. RP_ERR_INVALID, RP_ERR_IO, RP_ERR_LIMIT. */
int listeners_open(server_listeners *l, const rp_server_options *options, rp_error *err);
/* Starts the daemons. RP_ERR_IO. */
int listeners_start(server_listeners *l, rp_server *server, const rp_server_options *options, rp_error *err);
/* Stops what was started: no connection is suspended. */
void listeners_close(server_listeners *l);

#endif
