/* SPDX-License-Identifier: Apache-2.0 */
/* page_http.c: the page at /; its files are built in (web/). On I/O threads, also while the server loads. Owns
 * nothing. */
#include <stdio.h>
#include <string.h>

#include <sodium.h>

#include "base/embedded.h"
#include "server/admin/admin_handlers.h"
#include "server/http/server_internal.h"

#define MAX_PAGE_BYTES ((size_t)1 << 20) /* of one file */
#define TAG_HASH_BYTES 8

extern const base_embedded server_page[];

/* By the end of the name; each kind of file that CMakeLists.txt takes is here. */
static const char *page_http_type_of(const char *name) {
    static const struct {
        const char *end, *type;
    } types[] = {{".html", "text/html; charset=utf-8"},
                 {".css", "text/css; charset=utf-8"},
                 {".js", "text/javascript; charset=utf-8"},
                 {".svg", "image/svg+xml"}};
    const char *end = strrchr(name, '.');
    for (size_t i = 0; i < BASE_ARRAY_LEN(types) && end; i++)
        if (strcmp(types[i].end, end) == 0) return types[i].type;
    return "application/octet-stream";
}

/* Another one where the bytes are others. */
static void make_tag(char tag[SERVER_PAGE_TAG_BYTES], const base_embedded *file) {
    unsigned char hash[crypto_generichash_BYTES_MIN];
    char digits[2 * TAG_HASH_BYTES + 1];
    crypto_generichash(hash, sizeof(hash), file->bytes, file->n, NULL, 0);
    sodium_bin2hex(digits, sizeof(digits), hash, TAG_HASH_BYTES);
    snprintf(tag, SERVER_PAGE_TAG_BYTES, "\"%s\"", digits);
}

void handle_page(server_request *x) {
    const base_embedded *file =
        x->server->options.no_page ? NULL : base_embedded_find(server_page, x->name[0] ? x->name : "index.html");
    base_buffer bytes = BASE_BUFFER(MAX_PAGE_BYTES);
    bool known = false;
    if (!file) server_fail(&x->problem, SERVER_NOT_FOUND, NULL, "no file '%.100s'", x->path);
    else {
        make_tag(x->page_tag, file);
        const char *tags = server_request_header(x, MHD_HTTP_HEADER_IF_NONE_MATCH);
        known = tags && (strstr(tags, x->page_tag) || strcmp(tags, "*") == 0); /* the client has these very bytes */
        if (!known && base_buffer_append(&bytes, file->bytes, file->n)) server_fail_memory(&x->problem);
    }
    if (x->problem.kind) server_request_reply_problem(x);
    else server_request_reply_text(x, known ? 304 : 200, page_http_type_of(file->name), &bytes);
}
