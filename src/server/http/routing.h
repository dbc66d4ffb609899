/* SPDX-License-Identifier: Apache-2.0 */
/* routing.h: which handler a method and a path have, by a table of routes (routes.c has the server's). */
#ifndef SERVER_ROUTING_H
#define SERVER_ROUTING_H

#include <stddef.h>
#include <stdint.h>

#include "server/http/problem.h"

struct server_request;

/* What a key may do. */
typedef enum server_right {
    SERVER_OPEN = 0,         /* anybody, without a key */
    SERVER_REQUEST = 1 << 0,     /* prompts */
    SERVER_SCHEMAS = 1 << 1, /* schemas of its own tenant */
    SERVER_OPERATE = 1 << 2, /* counts and states of everybody */
    SERVER_SHARE = 1 << 3,   /* schemas that every tenant may use */
    SERVER_PRIORITY = 1 << 4, /* requests of a priority above 0 */
} server_right;

typedef struct server_route {
    const char *method; /* GET answers HEAD too */
    const char *path;   /* "/v1/schemas/{}/layout": {} is one segment, the exchange's name */
    unsigned right;     /* one of server_right */
    bool is_quick;      /* is handled by the I/O thread at once, also while the server loads or drains */
    json_t *(*problem)(const server_problem *p); /* the dialect of its errors */
    void (*handle)(struct server_request *x);
} server_route;

#define SERVER_ALLOW_BYTES 64

typedef struct server_routes {
    const server_route *items; /* [n] */
    size_t n;
} server_routes;

/* The route, or NULL; then *problem has the dialect of the path's neighbours, and allow the methods that the path has, if any. name: the
 * segment in place of {}; segments that do not fit match no route. */
const server_route *server_routes_find(server_routes routes, const char *method, const char *path, char *name, size_t name_bytes,
                                       json_t *(**problem)(const server_problem *p), char allow[SERVER_ALLOW_BYTES]);

#endif
