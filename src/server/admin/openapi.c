/* SPDX-License-Identifier: Apache-2.0 */
/* openapi.c: the description of all routes, openapi.json, which is part of the program. Owns nothing. I/O threads. */
#include "base/embedded.h"
#include "server/admin/admin_handlers.h"

#define DOCUMENT_BYTES ((size_t)1 << 20)

extern const base_embedded server_documents[]; /* CMakeLists.txt */

void handle_openapi(server_request *x) {
    const base_embedded *document = base_embedded_find(server_documents, "openapi.json");
    base_buffer text = BASE_BUFFER(DOCUMENT_BYTES);
    int failed = !document || base_buffer_append(&text, document->bytes, document->n);
    server_request_reply_text(x, failed ? 500 : 200, "application/json", &text);
}
