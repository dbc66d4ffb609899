/* SPDX-License-Identifier: Apache-2.0 */
/* json_write.c: see json_write.h. Owns nothing. */
#include "base/check.h"
#include "base/json_write.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/json_number.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "base/text.h"

#define MAX_DEPTH 4096                                 /* of values that contain values: twice what is read */
#define PRECISION(flags) ((int)((flags) >> 11 & 0x1f)) /* of JSON_REAL_PRECISION(n); 0: the fewest digits */

typedef struct writer {
    base_buffer *out;
    size_t flags;
    int depth;
} writer;

static int write_value(writer *w, const json_t *value);

/* The character that no run has, one byte. */
static int write_escape(base_buffer *out, char c) {
    BASE_DCHECK((unsigned char)c < 0x20 || c == '"' || c == '\\');
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *at = c ? strchr(plain, c) : NULL;
    if (!at) return base_buffer_printf(out, "\\u%04X", (unsigned)(unsigned char)c);
    const char escape[2] = {'\\', letters[at - plain]};
    return base_buffer_append(out, escape, 2);
}

static int write_string(base_buffer *out, const char *bytes, size_t n) {
    const char *at = bytes, *end = bytes + n;
    int rc = base_buffer_append(out, "\"", 1);
    while (!rc) {
        const char *run = base_json_run_end(at, end);
        rc = base_buffer_append(out, at, (size_t)(run - at));
        if (run == end || rc) break;
        if ((unsigned char)*run >= 0x80) return RP_ERR_INVALID;
        rc = write_escape(out, *run);
        at = run + 1;
    }
    return rc ? rc : base_buffer_append(out, "\"", 1);
}

static int write_real(const writer *w, const json_t *value) {
    const char *kept = base_json_number_text(value);
    if (kept) return base_buffer_append_str(w->out, kept);
    char text[BASE_JSON_REAL_BYTES];
    if (PRECISION(w->flags) == 0) {
        base_json_real_text(json_real_value(value), text);
        return base_buffer_append_str(w->out, text);
    }
    const size_t n = json_dumpb(value, text, sizeof(text), w->flags | JSON_ENCODE_ANY);
    return n > 0 && n <= sizeof(text) ? base_buffer_append(w->out, text, n) : RP_ERR_INVALID;
}

static int write_member(writer *w, bool first, const char *name, size_t n, const json_t *value) {
    const bool compact = w->flags & JSON_COMPACT;
    int rc = first ? 0 : base_buffer_append(w->out, ", ", compact ? 1 : 2);
    if (!rc) rc = write_string(w->out, name, n);
    if (!rc) rc = base_buffer_append(w->out, ": ", compact ? 1 : 2);
    return rc ? rc : write_value(w, value);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int write_sorted(writer *w, const json_t *object) {
    const size_t n = json_object_size(object);
    const char **names = base_alloc((n + (n == 0)) * sizeof(*names)), *name;
    json_t *value;
    size_t i = 0;
    int rc = 0;
    if (!names) return RP_ERR_MEMORY;
    json_object_foreach((json_t *)object, name, value) names[i++] = name;
    BASE_ASSERT(i == n);
    qsort(names, n, sizeof(*names), compare_names);
    for (i = 0; i < n && !rc; i++)
        rc = write_member(w, i == 0, names[i], strlen(names[i]), json_object_get(object, names[i]));
    base_free(names);
    return rc;
}

static int write_object(writer *w, const json_t *object) {
    const char *name;
    size_t n;
    json_t *value;
    bool first = true;
    int rc = base_buffer_append(w->out, "{", 1);
    if (w->flags & JSON_SORT_KEYS) rc = rc ? rc : write_sorted(w, object);
    else {
        json_object_keylen_foreach((json_t *)object, name, n, value) {
            rc = rc ? rc : write_member(w, first, name, n, value);
            first = false;
        }
    }
    return rc ? rc : base_buffer_append(w->out, "}", 1);
}

static int write_array(writer *w, const json_t *array) {
    int rc = base_buffer_append(w->out, "[", 1);
    for (size_t i = 0; i < json_array_size(array) && !rc; i++) {
        if (i > 0) rc = base_buffer_append(w->out, ", ", w->flags & JSON_COMPACT ? 1 : 2);
        if (!rc) rc = write_value(w, json_array_get(array, i));
    }
    return rc ? rc : base_buffer_append(w->out, "]", 1);
}

static int write_integer(base_buffer *out, json_int_t value) {
    char digits[24];
    size_t at = sizeof(digits);
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do digits[--at] = (char)('0' + left % 10);
    while (left /= 10);
    BASE_DCHECK(at > 0);
    if (value < 0) digits[--at] = '-';
    return base_buffer_append(out, digits + at, sizeof(digits) - at);
}

static int write_value(writer *w, const json_t *value) {
    if (!value) return RP_ERR_INVALID;
    switch (json_typeof(value)) {
    case JSON_STRING: return write_string(w->out, json_string_value(value), json_string_length(value));
    case JSON_INTEGER: return write_integer(w->out, json_integer_value(value));
    case JSON_REAL: return write_real(w, value);
    case JSON_TRUE: return base_buffer_append(w->out, "true", 4);
    case JSON_FALSE: return base_buffer_append(w->out, "false", 5);
    case JSON_NULL: return base_buffer_append(w->out, "null", 4);
    default: break;
    }
    BASE_ASSERT(w->depth >= 0 && w->depth <= MAX_DEPTH);
    if (w->depth == MAX_DEPTH) return RP_ERR_LIMIT;
    w->depth++;
    const int rc = json_is_object(value) ? write_object(w, value) : write_array(w, value);
    w->depth--;
    return rc;
}

int base_json_write(base_buffer *out, const json_t *value, size_t flags) {
    return write_value(&(writer){out, flags, 0}, value);
}

char *base_json_text(const json_t *value, size_t flags) {
    base_buffer out = BASE_BUFFER(SIZE_MAX / 2);
    char *text = base_json_write(&out, value, flags) == 0 ? base_buffer_take(&out) : NULL;
    base_buffer_free(&out);
    return text;
}

json_t *base_json_string(const char *bytes, size_t n) {
    json_t *text = json_stringn(bytes ? bytes : "", n);
    if (text || n > SIZE_MAX / 3 - 1) return text;
    base_buffer clean = BASE_BUFFER(3 * n + 1);
    int rc = 0;
    for (size_t i = 0; i < n && !rc;) {
        const int length = base_utf8_length((const unsigned char *)bytes + i, n - i);
        rc = length > 0 ? base_buffer_append(&clean, bytes + i, (size_t)length)
                        : base_buffer_append(&clean, "\xef\xbf\xbd", 3);
        i += length > 0 ? (size_t)length : 1;
    }
    if (!rc) text = json_stringn(clean.data ? clean.data : "", clean.len);
    base_buffer_free(&clean);
    return text;
}
