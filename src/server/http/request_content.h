/* SPDX-License-Identifier: Apache-2.0 */
/* request_content.h: bodies with Content-Encoding. They are kept as they come, and a worker decodes them: at most
 * SERVER_WORKERS decoders have memory, and no I/O thread computes. Encoded and decoded bytes count as bodies
 * (request_memory.h), each of them against max_body_bytes. */
#ifndef SERVER_REQUEST_CONTENT_H
#define SERVER_REQUEST_CONTENT_H

#include "server/http/server_request.h"

#define REQUEST_CONTENT_CODINGS "gzip, deflate, zstd"

/* I/O thread: a request with a route. A coding that is not one of ours becomes the request's problem. */
void request_check_content(server_request *x);
/* Was it refused for that? Then the reply has Accept-Encoding. */
bool request_content_is_refused(const server_request *x);
/* Worker: the body as it was before it was encoded. false: a problem. */
bool request_decode_content(server_request *x);

#endif
