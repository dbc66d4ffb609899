/* SPDX-License-Identifier: Apache-2.0 */
/* routing.c: see routing.h. Owns nothing. */
#include "server/http/routing.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"

/* Does the path match the pattern? Copies the segment at {} to name; an empty or overlong segment does not match. */
static bool routing_matches(const char *pattern, const char *path, char *name, size_t name_bytes) {
    const char *hole = strstr(pattern, "{}");
    if (!hole) return strcmp(pattern, path) == 0;
    size_t before = (size_t)(hole - pattern), after = strlen(hole + 2);
    if (strncmp(pattern, path, before) != 0 || strlen(path) < before + after) return false;
    size_t n = strlen(path) - before - after;
    if (strcmp(path + before + n, hole + 2) != 0 || n == 0 || n >= name_bytes || memchr(path + before, '/', n))
        return false;
    memcpy(name, path + before, n);
    name[n] = '\0';
    return true;
}

/* The path from the slash after its version on; of one without a version, all of it. */
static const char *routing_after_version(const char *path) {
    static const char *const versions[] = {"/v1", "/v1beta", "/v1alpha"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(versions); i++) {
        const size_t n = strlen(versions[i]);
        if (strncmp(path, versions[i], n) == 0 && path[n] == '/') return path + n;
    }
    return path;
}

static bool routing_is_gemini(const server_route *r) { return r->problem == server_problem_gemini; }

static bool routing_takes(const server_route *r, const char *path, char *name, size_t name_bytes) {
    if (!routing_is_gemini(r)) return routing_matches(r->path, path, name, name_bytes);
    BASE_DCHECK(strncmp(r->path, SERVER_GEMINI_VERSION, sizeof(SERVER_GEMINI_VERSION) - 1) == 0);
    return routing_matches(r->path + sizeof(SERVER_GEMINI_VERSION) - 1, routing_after_version(path), name, name_bytes);
}

const server_route *server_routes_find(server_routes routes, const server_asked *asked, char *name, size_t name_bytes,
                                       json_t *(**problem)(const server_problem *p), char allow[SERVER_ALLOW_BYTES]) {
    const char *wanted = strcmp(asked->method, "HEAD") == 0 ? "GET" : asked->method;
    const server_route *found = NULL;
    allow[0] = '\0';
    *problem = asked->is_gemini ? server_problem_gemini : server_problem_openai;
    for (size_t i = 0; i < routes.n; i++) {
        const server_route *r = &routes.items[i];
        if ((found && !routing_is_gemini(r)) || !routing_takes(r, asked->path, name, name_bytes)) continue;
        const bool is_it = strcmp(r->method, wanted) == 0;
        if (is_it && (!asked->is_gemini || routing_is_gemini(r))) return r;
        if (is_it) found = r; /* routes of one path have the same name in it */
        if (!asked->is_gemini && !allow[0]) *problem = r->problem;
        const size_t used = strlen(allow);
        if (strstr(allow, r->method)) continue; /* no method is a part of another one */
        const int n = snprintf(allow + used, SERVER_ALLOW_BYTES - used, "%s%s", used ? ", " : "", r->method);
        BASE_ASSERT(n > 0 && (size_t)n < SERVER_ALLOW_BYTES - used); /* no method is cut */
    }
    return found;
}
