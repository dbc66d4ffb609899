/* SPDX-License-Identifier: Apache-2.0 */
/* request_content.c: see request_content.h. Owns nothing. */
#include "server/http/request_content.h"

#include <string.h>

#include "base/memory.h"
#include "server/server_internal.h"

bool request_count_body(server_request *x, size_t n) {
    rp_server *s = x->server;
    if (atomic_fetch_add(&s->body_bytes, n) + n <= s->options.max_bodies_bytes) return true;
    server_fail(&x->problem, SERVER_BUSY, NULL, "too many large request bodies at once: retry later");
    x->problem.retry_after_ms = SERVER_BUSY_RETRY_MS;
    return false;
}

void request_check_content(server_request *x) {
    const char *value = server_request_header(x, MHD_HTTP_HEADER_CONTENT_ENCODING), *method = x->route->method;
    if (content_codings_parse(&x->codings, value) || strcmp(method, "GET") == 0 || strcmp(method, "DELETE") == 0) return;
    server_fail(&x->problem, SERVER_MEDIA, MHD_HTTP_HEADER_CONTENT_ENCODING,
                "the body's Content-Encoding '%.100s' is not supported: send it as it is, or with at most %d of " REQUEST_CONTENT_CODINGS, value,
                CONTENT_MAX_CODINGS);
}

bool request_content_is_refused(const server_request *x) {
    return x->problem.kind == SERVER_MEDIA && strcmp(x->problem.field, MHD_HTTP_HEADER_CONTENT_ENCODING) == 0;
}

typedef struct decoded_body {
    server_request *x;
    base_buffer bytes;
} decoded_body;

/* Every byte of the buffer is counted in the server's body_bytes. */
static int body_take(void *user, const void *bytes, size_t n) {
    decoded_body *d = user;
    server_problem *p = &d->x->problem;
    const int rc = base_buffer_append(&d->bytes, bytes, n);
    if (rc == RP_ERR_LIMIT) server_fail(p, SERVER_TOO_LARGE, NULL, "the decoded body has more than %zu bytes", d->bytes.limit);
    if (rc) return rc;
    return request_count_body(d->x, n) ? RP_OK : RP_ERR_BUSY;
}

/* Replaces the body by what it is without its last coding. */
static bool undo_last(server_request *x) {
    decoded_body d = {x, BASE_BUFFER((size_t)x->server->options.max_body_bytes)};
    rp_error err;
    int rc = content_decode(x->codings.items[--x->codings.n], x->body.data, x->body.len, body_take, &d, &err);
    if (rc == RP_ERR_FORMAT) server_fail(&x->problem, SERVER_INVALID, MHD_HTTP_HEADER_CONTENT_ENCODING, "%s", err.message);
    else if (rc) server_fail_memory(&x->problem); /* unless the sink has failed, and said why */
    base_buffer *drop = rc ? &d.bytes : &x->body;
    if (rc || x->body_is_counted) atomic_fetch_sub(&x->server->body_bytes, drop->len);
    base_buffer_free(drop);
    if (rc) return false;
    x->body = d.bytes;
    x->body_is_counted = true;
    return true;
}

bool request_decode_content(server_request *x) {
    while (x->codings.n > 0 && x->body.len > 0)
        if (!undo_last(x)) return false;
    x->codings.n = 0;
    return true;
}
