/* SPDX-License-Identifier: Apache-2.0 */
/* vector_file.c: see vector_file.h. Threads: none of its own. */
#define _DEFAULT_SOURCE /* strsep */
#include "vector_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

#define MAX_BYTES (8u << 20)

static size_t put_utf8(char *out, unsigned long c) {
    if (c < 0x80) return out[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3
                                           : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0
                                            : 0xf0) |
                    c);
    return n;
}

size_t vector_unescape(char *s) {
    char *out = s;
    for (const char *p = s; *p;) {
        if (*p != '\\') {
            *out++ = *p++;
            continue;
        }
        char c = p[1], *end = NULL;
        if (c == 'u') {
            out += put_utf8(out, strtoul(p + 3, &end, 16)); /* an escape is longer than its UTF-8 */
            p = end + 1;
            continue;
        }
        *out++ = c == 'n' ? '\n' : c == 'r' ? '\r'
                               : c == 't'   ? '\t'
                               : c == 'p'   ? '|'
                                            : c;
        p += 2;
    }
    *out = '\0';
    return (size_t)(out - s);
}

int vector_file_each(const char *name, int n_fields, void (*f)(void *user, vector_case *c), void *user) {
    base_buffer file = {0};
    rp_error err = {0};
    vector_case c = {0};
    if (base_file_read(vector_path(name), MAX_BYTES, &file, &err)) fail_msg("%s", err.message);
    char *rest = file.data;
    for (char *line; rest && *rest && (line = strsep(&rest, "\n"));) {
        c.line++;
        for (int i = 0; i < n_fields; i++)
            if (!(c.fields[i] = strsep(&line, "\t"))) fail_msg("%s:%d: not %d fields", name, c.line, n_fields);
        f(user, &c);
    }
    base_buffer_free(&file);
    return c.line;
}
