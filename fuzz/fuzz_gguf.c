/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_gguf.c: arbitrary bytes as a GGUF file: opening fails with an error, or every pointer returned by the reader is
 * inside the bytes.
 *
 * The same bytes are then used as the two parts of a split model: the last four are the length of the first part.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile uint8_t sink;

/* The input, which must contain every returned pointer. */
typedef struct input {
    const uint8_t *begin, *end;
} input;

static void touch(const input *in, const void *p, uint64_t n) {
    const uint8_t *bytes = p;
    if (bytes < in->begin || bytes > in->end || n > (uint64_t)(in->end - bytes)) abort();
    if (n == 0) return;
    sink ^= bytes[0];
    sink ^= bytes[n - 1];
}

static void walk_array(const input *in, const gguf_array *a) {
    static const uint8_t sizes[GGUF_VALUE_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (a->type != GGUF_STRING) {
        if (a->type == GGUF_ARRAY) abort();
        touch(in, a->data, a->n * sizes[a->type]);
        return;
    }
    if (a->n > (uint64_t)(in->end - in->begin)) abort(); /* the caller's list is bounded by the file */
    gguf_string *strings = calloc((size_t)a->n + 1, sizeof(*strings));
    if (!strings) abort();
    gguf_array_strings(a, strings);
    for (uint64_t i = 0; i < a->n; i++) touch(in, strings[i].bytes, strings[i].n);
    free(strings);
}

/* A scalar has one kind, and both integer accessors agree. */
static void check_scalar(const gguf_file *f, const char *key) {
    uint64_t u = 0;
    int64_t s = 0;
    double d;
    bool b;
    bool is_u = gguf_get_u64(f, key, &u), is_s = gguf_get_i64(f, key, &s);
    if (is_u && is_s && (s < 0 || u != (uint64_t)s)) abort();
    if ((is_u || is_s) + gguf_get_f64(f, key, &d) + gguf_get_bool(f, key, &b) > 1) abort();
}

static void walk_metadata(const gguf_file *f, const input *in) {
    for (size_t i = 0; i < gguf_n_metadata(f); i++) {
        gguf_value_type type;
        gguf_bytes raw = gguf_metadata_raw(f, i, &type);
        touch(in, raw.data, raw.n);
        gguf_string key = gguf_metadata_key(f, i), text;
        gguf_array array;
        char name[GGUF_MAX_NAME + 1];
        touch(in, key.bytes, key.n);
        if (key.n > GGUF_MAX_NAME) abort();
        memcpy(name, key.bytes, (size_t)key.n);
        name[key.n] = '\0';
        if (strlen(name) == key.n && !gguf_has(f, name)) abort();
        check_scalar(f, name);
        if (gguf_get_string(f, name, &text)) touch(in, text.bytes, text.n);
        if (gguf_get_array(f, name, &array)) walk_array(in, &array);
    }
}

static void walk_tensors(const gguf_file *f, const input *in) {
    for (size_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        char name[GGUF_MAX_NAME + 1];
        uint64_t rows = 1;
        touch(in, t->name.bytes, t->name.n);
        touch(in, t->data, t->bytes);
        for (int d = 1; d < GGUF_MAX_DIMS; d++) rows *= (uint64_t)t->dims[d];
        if (t->bytes == 0 || t->bytes != rows * (uint64_t)kernel_row_bytes(t->type, t->dims[0])) abort();
        if (t->name.n > GGUF_MAX_NAME) abort();
        memcpy(name, t->name.bytes, (size_t)t->name.n);
        name[t->name.n] = '\0';
        if (strlen(name) == t->name.n && gguf_find_tensor(f, name) != t) abort();
    }
}

static void walk(const gguf_file *f, const input *in) {
    for (size_t part = 0; part < gguf_n_parts(f); part++) {
        size_t header_bytes;
        const void *header = gguf_header(f, part, &header_bytes);
        touch(in, header, header_bytes);
    }
    walk_metadata(f, in);
    walk_tensors(f, in);
}

static void try_parts(const uint8_t *data, const gguf_bytes *parts, size_t n_parts, size_t n) {
    const input in = {data, data + n};
    gguf_file *f;
    rp_error err = {0};
    int rc = gguf_open_parts(&f, parts, n_parts, "fuzz", &err);
    if (rc) {
        if (f || (int)err.code != rc || !err.message[0]) abort();
        return;
    }
    walk(f, &in);
    gguf_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    uint32_t first;
    try_parts(data, &(gguf_bytes){data, n}, 1, n);
    if (n < sizeof first) return 0;
    memcpy(&first, data + n - sizeof first, sizeof first);
    if (first > n - sizeof first) return 0;
    const gguf_bytes parts[] = {{data, first}, {data + first, n - sizeof first - first}};
    try_parts(data, parts, 2, n);
    return 0;
}
