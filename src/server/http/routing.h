/* SPDX-License-Identifier: Apache-2.0 */
/* routing.h: finds the handler of a method and a path in a table of routes (routes.c). */
#ifndef SERVER_ROUTING_H
#define SERVER_ROUTING_H

#include <stddef.h>
#include <stdint.h>

#include "server/core/problem.h"

struct server_request;

/* Rights of a key. */
typedef enum server_right {
    SERVER_OPEN = 0,          /* no key needed */
    SERVER_REQUEST = 1 << 0,  /* prompts */
    SERVER_SCHEMAS = 1 << 1,  /* schemas of its own tenant */
    SERVER_OPERATE = 1 << 2,  /* metrics, and the store of all tenants */
    SERVER_SHARE = 1 << 3,    /* schemas shared with all tenants */
    SERVER_PRIORITY = 1 << 4, /* requests with a priority above 0 */
} server_right;

#define SERVER_MODEL_NAME_BYTES 128 /* of a model's name in the API, with its NUL */

/* Where a request names the model that its handler needs, if there are several (model_pool.h). */
typedef enum server_model_place {
    SERVER_NO_MODEL,       /* the handler needs none */
    SERVER_MODEL_IN_BODY,  /* the field `model` of a JSON body */
    SERVER_MODEL_IN_PATH,  /* the segment at {}, up to its last colon */
    SERVER_MODEL_IN_QUERY, /* ?model=NAME */
} server_model_place;

typedef struct server_route {
    const char *method; /* GET answers HEAD too */
    const char *path;   /* "/v1/schemas/{}/layout": {} is one segment, server_request.name */
    unsigned right;     /* one of server_right */
    server_model_place model;
    bool is_quick;                               /* handled by the I/O thread at once, also while the server loads or
                                                    drains */
    json_t *(*problem)(const server_problem *p); /* the dialect of its errors */
    void (*handle)(struct server_request *x);
} server_route;

#define SERVER_SPAN_STREAM "/v1/cluster/stream"       /* also opened while the server drains */
#define SERVER_ROUTED_REQUESTS "/v1/cluster/requests" /* likewise */
/* The version in the paths of Gemini's routes. Its clients say another one, or none, by their age and settings: each
 * path is served under all of them. */
#define SERVER_GEMINI_VERSION "/v1beta"
#define SERVER_ALLOW_BYTES 64

typedef struct server_routes {
    const server_route *items; /* [n] */
    size_t n;
} server_routes;

/* What a request asks for. */
typedef struct server_asked {
    const char *method, *path;
    bool is_gemini; /* by a client of Gemini's API: of two routes, of OpenAI and of Gemini, it means the latter */
} server_asked;

/* The route, or NULL; then *problem is the dialect of similar paths, and allow the methods of the path, if any.
 * name: receives the segment at {}; a longer segment matches no route. */
const server_route *server_routes_find(server_routes routes, const server_asked *asked, char *name, size_t name_bytes,
                                       json_t *(**problem)(const server_problem *p), char allow[SERVER_ALLOW_BYTES]);

#endif
