/* SPDX-License-Identifier: Apache-2.0 */
/* buffer.h: a growing byte buffer with a named cap.
 *
 * `data` is NUL-terminated whenever it is not NULL (the NUL is not counted in `len`). Zero-initialise with
 * BASE_BUFFER(cap); release with base_buffer_free. Not thread-safe.
 */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <stddef.h>

#include "base/compiler.h"

typedef struct base_buffer {
    char *data;   /* owned, or NULL while empty */
    size_t len;   /* bytes in use */
    size_t cap;   /* bytes allocated */
    size_t limit; /* len never exceeds it */
} base_buffer;

#define BASE_BUFFER(limit_bytes) ((base_buffer){.data = NULL, .len = 0, .cap = 0, .limit = (limit_bytes)})

/* Each returns 0, RP_ERR_MEMORY, or RP_ERR_LIMIT if the cap would be exceeded; on error the buffer is unchanged. */
int base_buffer_reserve(base_buffer *b, size_t n) BASE_NODISCARD; /* capacity for n more bytes */
int base_buffer_append(base_buffer *b, const void *bytes, size_t n) BASE_NODISCARD;
int base_buffer_append_str(base_buffer *b, const char *s) BASE_NODISCARD;
int base_buffer_printf(base_buffer *b, const char *fmt, ...) BASE_PRINTF(2, 3) BASE_NODISCARD;
void base_buffer_clear(base_buffer *b);                /* len = 0, keeps the memory */
void base_buffer_truncate(base_buffer *b, size_t len); /* to the first len <= b->len bytes, keeps the memory */
char *base_buffer_take(base_buffer *b);                /* moves data out (caller frees with base_free); the buffer is
                                                          empty after */
void base_buffer_free(base_buffer *b);

#endif
