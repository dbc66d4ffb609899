/* SPDX-License-Identifier: Apache-2.0 */
/* route_target.c: the parts of a client's request that are sent to nodes: path and query, headers. Workers. */
#include <string.h>

#include "base/memory.h"
#include "server/prompt/client_session.h"
#include "server/route/route_internal.h"

int route_append_encoded(base_buffer *b, const char *text, const char *kept) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    int rc = 0;
    for (const char *c = text; *c && !rc; c++) {
        const bool is_plain = strchr(plain, *c) || strchr(kept, *c);
        rc = is_plain ? base_buffer_append(b, c, 1) : base_buffer_printf(b, "%%%02X", (unsigned)(unsigned char)*c);
    }
    return rc;
}

typedef struct query_writer {
    base_buffer *b;
    int rc;
    bool has_one;
} query_writer;

/* Omits `node`, a parameter of the router itself. */
static enum MHD_Result add_argument(void *cls, enum MHD_ValueKind kind, const char *name, const char *value) {
    query_writer *w = cls;
    (void)kind;
    if (!name || strcmp(name, "node") == 0) return MHD_YES;
    if (!w->rc) w->rc = base_buffer_append_str(w->b, w->has_one ? "&" : "?");
    if (!w->rc) w->rc = route_append_encoded(w->b, name, "");
    if (!w->rc && value) w->rc = base_buffer_append_str(w->b, "=");
    if (!w->rc && value) w->rc = route_append_encoded(w->b, value, ":,/");
    w->has_one = true;
    return w->rc ? MHD_NO : MHD_YES;
}

char *route_target_of(server_request *x) {
    base_buffer b = BASE_BUFFER(ROUTE_TARGET_BYTES);
    query_writer w = {.b = &b, .rc = route_append_encoded(&b, x->path, "/:@!$,;=")};
    if (!w.rc) MHD_get_connection_values(x->connection, MHD_GET_ARGUMENT_KIND, add_argument, &w);
    char *target = w.rc ? NULL : base_buffer_take(&b);
    base_buffer_free(&b);
    return target;
}

typedef struct target_sessions {
    const server_request *x;
    struct curl_slist *list;
} target_sessions;

static bool add_session_header(void *user, const char *name) {
    target_sessions *s = user;
    const char *value = server_request_header(s->x, name);
    if (value && value[0]) s->list = route_add_header(s->list, name, value);
    return s->list != NULL;
}

/* Headers that a node uses, without a client's x-reprise-... ones. A key in the query (Gemini) becomes a header,
 * because requests of the router may have another query. */
struct curl_slist *route_headers_of(server_request *x, bool *failed) {
    static const char *const names[] = {"Authorization", "x-api-key", "x-goog-api-key", "Accept",
                                        "Content-Type", "anthropic-version", "anthropic-beta", "traceparent",
                                        "tracestate", "User-Agent"};
    struct curl_slist *list = route_add_line(NULL, "Expect:"); /* removes curl's own header */
    for (size_t i = 0; i < BASE_ARRAY_LEN(names) && list; i++) {
        const char *value =
            strcmp(names[i], "Content-Type") == 0 ? request_media(x) : server_request_header(x, names[i]);
        if (value && value[0]) list = route_add_header(list, names[i], value);
        else if (strcmp(names[i], "x-goog-api-key") == 0 && x->route->problem == server_problem_gemini &&
                 (value = server_request_query(x, "key")))
            list = route_add_header(list, names[i], value);
        else if (strcmp(names[i], "Accept") == 0) list = route_add_line(list, "Accept:"); /* likewise */
    }
    target_sessions sessions = {x, list};
    if (list) client_session_each_header(add_session_header, &sessions);
    list = sessions.list;
    *failed = list == NULL;
    return list;
}
