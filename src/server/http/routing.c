/* SPDX-License-Identifier: Apache-2.0 */
/* routing.c: see routing.h. Owns nothing. */
#include "server/http/routing.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Does the path match the pattern? Copies the segment at {} to name; an empty or overlong segment does not match. */
static bool routing_matches(const char *pattern, const char *path, char *name, size_t name_bytes) {
    const char *hole = strstr(pattern, "{}");
    if (!hole) return strcmp(pattern, path) == 0;
    size_t before = (size_t)(hole - pattern), after = strlen(hole + 2);
    if (strncmp(pattern, path, before) != 0 || strlen(path) < before + after) return false;
    size_t n = strlen(path) - before - after;
    if (strcmp(path + before + n, hole + 2) != 0 || n == 0 || n >= name_bytes || memchr(path + before, '/', n)) return false;
    memcpy(name, path + before, n);
    name[n] = '\0';
    return true;
}

static void routing_add_method(char allow[SERVER_ALLOW_BYTES], const char *method) {
    size_t used = strlen(allow);
    snprintf(allow + used, SERVER_ALLOW_BYTES - used, "%s%s", used ? ", " : "", method);
}

const server_route *server_routes_find(server_routes routes, const char *method, const char *path, char *name, size_t name_bytes,
                                       json_t *(**problem)(const server_problem *p), char allow[SERVER_ALLOW_BYTES]) {
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    allow[0] = '\0';
    *problem = server_problem_openai;
    for (size_t i = 0; i < routes.n; i++) {
        if (!routing_matches(routes.items[i].path, path, name, name_bytes)) continue;
        if (strcmp(routes.items[i].method, wanted) == 0) return &routes.items[i];
        *problem = routes.items[i].problem;
        routing_add_method(allow, routes.items[i].method);
    }
    return NULL;
}
