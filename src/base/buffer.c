/* SPDX-License-Identifier: Apache-2.0 */
/* buffer.c: the growing byte buffer. Owns nothing beyond the buffers it is given; not thread-safe. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "reprise.h"

/* One byte more, for the NUL. */
int base_buffer_reserve(base_buffer *b, size_t n) {
    size_t limit = BASE_MIN(b->limit, SIZE_MAX - 1); /* so that the NUL can be counted */
    BASE_ASSERT(b->len <= limit);                    /* invariant 4 */
    if (n > limit - b->len) return RP_ERR_LIMIT;
    void *data = b->data;
    int rc = base_grow(&data, &b->cap, b->len + n + 1, limit + 1, 1);
    b->data = data;
    BASE_DCHECK(rc || b->cap > b->len + n);
    if (rc == 0) b->data[b->len] = '\0';
    return rc;
}

int base_buffer_append(base_buffer *b, const void *bytes, size_t n) {
    int rc = base_buffer_reserve(b, n);
    if (rc != 0) return rc;
    if (n > 0) memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
    return 0;
}

int base_buffer_append_str(base_buffer *b, const char *s) { return base_buffer_append(b, s, strlen(s)); }

int base_buffer_printf(base_buffer *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) return RP_ERR_LIMIT;
    int rc = base_buffer_reserve(b, (size_t)n);
    if (rc != 0) return rc;
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return 0;
}

void base_buffer_truncate(base_buffer *b, size_t len) {
    BASE_ASSERT(len <= b->len);
    b->len = len;
    if (b->data) b->data[len] = '\0';
}

void base_buffer_clear(base_buffer *b) { base_buffer_truncate(b, 0); }

char *base_buffer_take(base_buffer *b) {
    char *data = b->data;
    *b = BASE_BUFFER(b->limit);
    return data;
}

void base_buffer_free(base_buffer *b) { base_free(base_buffer_take(b)); }
