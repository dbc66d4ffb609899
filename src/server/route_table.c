/* SPDX-License-Identifier: Apache-2.0 */
/* route_table.c: the routes of a router: those of a server (routes.c), some with handlers of its own. Owns nothing. */
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "server/admin/admin_handlers.h"
#include "server/dialects/dialect_handlers.h"
#include "server/prompt/schemas_http.h"
#include "server/route/route_internal.h"
#include "server/routes.h"

#define MAX_ROUTES 256

typedef struct other_handler {
    void (*of_server)(server_request *x);
    void (*of_router)(server_request *x);
} other_handler;

static const other_handler others[] = {
    {handle_readyz, handle_route_readyz},
    {handle_health, handle_route_health},
    {handle_explain, handle_route_explain},
    {handle_cache, handle_route_node},
    {handle_audit, handle_route_node},
    {handle_cache_entries, handle_route_node},
    {handle_cache_entry, handle_route_node},
    {handle_cache_change, handle_route_node},
    {handle_cache_remove, handle_route_node},
    {handle_llamacpp_slots, handle_route_node},
    {handle_llamacpp_adapters, handle_route_node},
    {handle_response_get, handle_route_stored},
    {handle_response_delete, handle_route_stored},
    {handle_interaction_get, handle_route_stored},
    {handle_interaction_delete, handle_route_stored},
    {handle_interaction_cancel, handle_route_stored},
    {handle_contents_list, handle_route_contents},
    {handle_contents_get, handle_route_stored},
    {handle_contents_patch, handle_route_stored},
    {handle_contents_delete, handle_route_stored},
    {handle_schema_put, handle_route_schema_put},
    {handle_schema_delete, handle_route_schema_delete},
};

static const server_route own[] = {
    {"GET", "/v1/cluster", SERVER_OPERATE, SERVER_NO_MODEL, false, server_problem_openai, handle_route_cluster},
    {"POST", "/v1/cluster/drain", SERVER_OPERATE, SERVER_NO_MODEL, false, server_problem_openai, handle_route_drain},
    {"POST", "/v1/cluster/undrain", SERVER_OPERATE, SERVER_NO_MODEL, false, server_problem_openai,
     handle_route_undrain},
};

static server_route all[MAX_ROUTES];
static size_t n_all;

static void make_routes(void) {
    const server_routes server = server_all_routes();
    for (size_t i = 0; i < server.n; i++) {
        server_route r = server.items[i];
        if (strncmp(r.path, "/v1/cluster", 11) == 0) continue; /* a node's */
        for (size_t k = 0; k < BASE_ARRAY_LEN(others); k++)
            if (r.handle == others[k].of_server) {
                r.handle = others[k].of_router;
                if (r.handle == handle_route_node) r.model = SERVER_NO_MODEL;
                break;
            }
        BASE_ASSERT(n_all < MAX_ROUTES);
        all[n_all++] = r;
    }
    for (size_t i = 0; i < BASE_ARRAY_LEN(own); i++) {
        BASE_ASSERT(n_all < MAX_ROUTES);
        all[n_all++] = own[i];
    }
}

server_routes route_all_routes(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_routes);
    return (server_routes){all, n_all};
}
