/* SPDX-License-Identifier: Apache-2.0 */
/* request_content.c: see request_content.h. Owns nothing. */
#include "server/http/request_content.h"

#include <string.h>

#include "base/check.h"
#include "server/http/request_memory.h"
#include "server/http/server_internal.h"

void request_check_content(server_request *x) {
    const char *value = server_request_header(x, MHD_HTTP_HEADER_CONTENT_ENCODING), *method = x->route->method;
    if (content_codings_parse(&x->codings, value)) return;
    x->codings.n = 0;
    if (strcmp(method, "GET") == 0 || strcmp(method, "DELETE") == 0) return;
    server_fail(&x->problem, SERVER_MEDIA, MHD_HTTP_HEADER_CONTENT_ENCODING,
                "the body's Content-Encoding '%.100s' is not supported: send it as it is, or with at most %d "
                "of " REQUEST_CONTENT_CODINGS,
                value, CONTENT_MAX_CODINGS);
}

bool request_content_is_refused(const server_request *x) {
    return x->problem.kind == SERVER_MEDIA && strcmp(x->problem.field, MHD_HTTP_HEADER_CONTENT_ENCODING) == 0;
}

typedef struct decoded_body {
    server_request *x;
    base_buffer bytes;
} decoded_body;

/* Every byte of the buffer is counted as one of the bodies in memory. */
static int body_take(void *user, const void *bytes, size_t n) {
    decoded_body *d = user;
    if (!request_memory_add_body(d->x, n)) return RP_ERR_BUSY;
    const int rc = base_buffer_append(&d->bytes, bytes, n);
    if (rc == RP_ERR_LIMIT)
        server_fail(&d->x->problem, SERVER_TOO_LARGE, NULL, "the decoded body has more than %zu bytes", d->bytes.limit);
    if (rc) request_memory_drop_body(d->x, n);
    return rc;
}

/* Replaces the body by what it is without its last coding. */
static bool undo_last(server_request *x) {
    decoded_body d = {x, BASE_BUFFER((size_t)x->server->options.max_body_bytes)};
    rp_error err;
    int rc = content_decode(x->codings.items[--x->codings.n], x->body.data, x->body.len, body_take, &d, &err);
    if (rc == RP_ERR_FORMAT)
        server_fail(&x->problem, SERVER_INVALID, MHD_HTTP_HEADER_CONTENT_ENCODING, "%s", err.message);
    else if (rc) server_fail_memory(&x->problem); /* unless the sink has failed, and said why */
    base_buffer *drop = rc ? &d.bytes : &x->body;
    request_memory_drop_body(x, drop->len);
    base_buffer_free(drop);
    if (rc) return false;
    x->body = d.bytes;
    return true;
}

bool request_decode_content(server_request *x) {
    BASE_ASSERT(work_queue_is_worker() &&
                x->codings.n <= CONTENT_MAX_CODINGS); /* an I/O thread would keep its other connections waiting */
    while (x->codings.n > 0 && x->body.len > 0)
        if (!undo_last(x)) return false;
    x->codings.n = 0;
    return true;
}
