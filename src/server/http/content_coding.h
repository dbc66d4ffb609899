/* SPDX-License-Identifier: Apache-2.0 */
/* content_coding.h: content codings of bodies (RFC 9110, 8.4): gzip, deflate, zstd.
 *
 * deflate is a zlib stream (RFC 1950); a raw one (RFC 1951), which some clients send by that name, is detected. Several
 * members of gzip or frames of zstd are one body; other bytes after the end are an error. A zstd frame may need a
 * window of 8 MiB, as RFC 9659 has it.
 *
 * The decoders' memory is base/memory.h's: 48 KiB for gzip and deflate, a window and 200 KiB for zstd, 64 KiB of
 * decoded bytes. Pure; any thread.
 */
#ifndef SERVER_CONTENT_CODING_H
#define SERVER_CONTENT_CODING_H

#include <stdbool.h>
#include <stddef.h>

#include "reprise.h"

#define CONTENT_MAX_CODINGS 2

typedef enum content_coding { CONTENT_GZIP,
                              CONTENT_DEFLATE,
                              CONTENT_ZSTD } content_coding;

/* In the order in which they were applied. */
typedef struct content_codings {
    int n;
    content_coding items[CONTENT_MAX_CODINGS];
} content_codings;

/* Reads a value of Content-Encoding; NULL, or `identity`: none. false: an unknown coding, or more than two. */
bool content_codings_parse(content_codings *codings, const char *value);
const char *content_coding_name(content_coding coding);

/* Takes decoded bytes. Not 0: decoding ends with that code. */
typedef int (*content_sink)(void *user, const void *bytes, size_t n);

/* Decodes n bytes, piece by piece. RP_ERR_FORMAT: they are malformed, or cut; RP_ERR_MEMORY; a code of the sink, which
   has set no error. */
int content_decode(content_coding coding, const void *bytes, size_t n, content_sink sink, void *user, rp_error *err);

#endif
