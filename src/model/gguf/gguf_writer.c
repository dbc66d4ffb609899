/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_writer.c: writes GGUF files. model/gguf/gguf.h shows the format.
 *
 * Owns: the bytes of the metadata, the list of tensors, and the data of tensors given as floats. A tensor with a fill
 * function is never whole in memory. Threads: none of its own.
 */
#include "model/gguf/gguf_writer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#define METADATA_LIMIT ((size_t)1 << 30)
#define MEMORY_LIMIT ((size_t)1 << 31)
#define TENSORS_MAX ((size_t)GGUF_MAX_TENSORS * 2) /* so that a test can exceed the reader's limit */
#define PIECE_BYTES ((size_t)4 << 20)              /* of a tensor in memory while it is saved */
#define DEFAULT_ALIGNMENT 32

typedef struct writer_tensor {
    char *name;
    kernel_type type;
    int n_dims;
    int64_t dims[GGUF_MAX_DIMS];
    int64_t n_rows;
    size_t row_bytes;
    gguf_fill_fn fill; /* NULL: the bytes are in data */
    void *arg;
    uint8_t *data; /* owned */
} writer_tensor;

struct gguf_writer {
    uint32_t version, alignment;
    base_buffer metadata;
    uint64_t n_metadata;
    writer_tensor *tensors;
    size_t n_tensors, cap_tensors;
    int rc; /* the first failure */
};

/* The output: a file or a buffer. */
typedef struct sink {
    FILE *file;
    base_buffer *buffer;
    uint64_t written;
    int rc;
    int cause; /* errno of RP_ERR_IO */
} sink;

static void gguf_writer_keep(gguf_writer *w, int rc) {
    if (!w->rc) w->rc = rc;
}

gguf_writer *gguf_writer_new(uint32_t version, uint32_t alignment) {
    gguf_writer *w = base_calloc(1, sizeof *w);
    if (!w) return NULL;
    w->version = version;
    w->alignment = alignment ? alignment : DEFAULT_ALIGNMENT;
    w->metadata = BASE_BUFFER(METADATA_LIMIT);
    if (alignment) gguf_writer_u32(w, "general.alignment", alignment);
    return w;
}

void gguf_writer_free(gguf_writer *w) {
    if (!w) return;
    for (size_t i = 0; i < w->n_tensors; i++) {
        base_free(w->tensors[i].name);
        base_free(w->tensors[i].data);
    }
    base_free(w->tensors);
    base_buffer_free(&w->metadata);
    base_free(w);
}

/* ---- metadata -------------------------------------------------------------------------------------------------- */

/* The host is little-endian, as the file is (base/cpu.h supports no other). */
static void gguf_writer_put(gguf_writer *w, const void *bytes, size_t n) {
    gguf_writer_keep(w, base_buffer_append(&w->metadata, bytes, n));
}
static void put_u32(gguf_writer *w, uint32_t v) { gguf_writer_put(w, &v, sizeof v); }
static void put_u64(gguf_writer *w, uint64_t v) { gguf_writer_put(w, &v, sizeof v); }

static void gguf_writer_put_string(gguf_writer *w, const char *s) {
    size_t n = strlen(s);
    put_u64(w, n);
    gguf_writer_put(w, s, n);
}

static void put_key(gguf_writer *w, const char *key, uint32_t type) {
    gguf_writer_put_string(w, key);
    put_u32(w, type);
    w->n_metadata++;
}

static size_t value_size(gguf_value_type type) {
    switch (type) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL: return 1;
    case GGUF_U16:
    case GGUF_I16: return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32: return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64: return 8;
    default: return 0;
    }
}

void gguf_writer_scalar(gguf_writer *w, const char *key, gguf_value_type type, const void *value) {
    BASE_ASSERT(value_size(type) > 0); /* neither a string nor an array */
    gguf_writer_raw(w, key, (uint32_t)type, value, value_size(type));
}

void gguf_writer_u32(gguf_writer *w, const char *key, uint32_t v) { gguf_writer_scalar(w, key, GGUF_U32, &v); }
void gguf_writer_f32(gguf_writer *w, const char *key, float v) { gguf_writer_scalar(w, key, GGUF_F32, &v); }

void gguf_writer_bool(gguf_writer *w, const char *key, bool v) {
    uint8_t byte = v ? 1 : 0;
    gguf_writer_scalar(w, key, GGUF_BOOL, &byte);
}

void gguf_writer_string(gguf_writer *w, const char *key, const char *v) {
    put_key(w, key, GGUF_STRING);
    gguf_writer_put_string(w, v);
}

void gguf_writer_array(gguf_writer *w, const char *key, gguf_value_type type, const void *data, size_t n) {
    put_key(w, key, GGUF_ARRAY);
    put_u32(w, (uint32_t)type);
    put_u64(w, n);
    gguf_writer_put(w, data, n * value_size(type));
}

void gguf_writer_strings(gguf_writer *w, const char *key, const char *const *strings, size_t n) {
    put_key(w, key, GGUF_ARRAY);
    put_u32(w, GGUF_STRING);
    put_u64(w, n);
    for (size_t i = 0; i < n; i++) gguf_writer_put_string(w, strings[i]);
}

void gguf_writer_raw(gguf_writer *w, const char *key, uint32_t type, const void *bytes, size_t n) {
    put_key(w, key, type);
    gguf_writer_put(w, bytes, n);
}

/* ---- tensors --------------------------------------------------------------------------------------------------- */

static writer_tensor *add_tensor(gguf_writer *w, const char *name, kernel_type type, int n_dims, const int64_t *dims) {
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS || dims[0] % kernel_type_block(type)) {
        gguf_writer_keep(w, RP_ERR_INVALID);
        return NULL;
    }
    int rc = base_grow((void **)&w->tensors, &w->cap_tensors, w->n_tensors + 1, TENSORS_MAX, sizeof *w->tensors);
    char *copy = rc ? NULL : base_strdup(name);
    if (!copy) {
        gguf_writer_keep(w, rc ? rc : RP_ERR_MEMORY);
        return NULL;
    }
    writer_tensor *t = &w->tensors[w->n_tensors++];
    *t = (writer_tensor){.name = copy, .type = type, .n_dims = n_dims, .n_rows = 1};
    t->row_bytes = (size_t)kernel_row_bytes(type, dims[0]);
    for (int i = 0; i < n_dims; i++) {
        t->dims[i] = dims[i];
        if (i) t->n_rows *= dims[i];
    }
    return t;
}

void gguf_writer_tensor(gguf_writer *w, const char *name, kernel_type type, int n_dims, const int64_t *dims,
                        const float *data) {
    writer_tensor *t = add_tensor(w, name, type, n_dims, dims);
    if (!t) return;
    t->data = base_alloc((size_t)t->n_rows * t->row_bytes);
    if (!t->data) {
        gguf_writer_keep(w, RP_ERR_MEMORY);
        return;
    }
    for (int64_t r = 0; r < t->n_rows; r++)
        kernel_quantize(type, data + r * dims[0], t->data + (size_t)r * t->row_bytes, dims[0]);
}

void gguf_writer_tensor_fill(gguf_writer *w, const char *name, kernel_type type, int n_dims, const int64_t *dims,
                             gguf_fill_fn fill, void *arg) {
    writer_tensor *t = add_tensor(w, name, type, n_dims, dims);
    if (!t) return;
    t->fill = fill;
    t->arg = arg;
}

/* ---- saving ---------------------------------------------------------------------------------------------------- */

static void sink_emit(sink *s, const void *bytes, size_t n) {
    BASE_ASSERT((s->file != NULL) != (s->buffer != NULL));
    if (s->rc || !n) return;
    if (s->buffer) {
        s->rc = base_buffer_append(s->buffer, bytes, n);
    } else if (fwrite(bytes, 1, n, s->file) != n) {
        s->rc = RP_ERR_IO;
        s->cause = errno;
    }
    s->written += n;
}

static void emit_u32(sink *s, uint32_t v) { sink_emit(s, &v, sizeof v); }
static void emit_u64(sink *s, uint64_t v) { sink_emit(s, &v, sizeof v); }

static uint64_t gguf_writer_aligned(uint64_t n, uint32_t alignment) {
    return (n + alignment - 1) / alignment * alignment;
}

static void emit_padding(sink *s, uint32_t alignment) {
    BASE_ASSERT(alignment > 0);
    static const uint8_t zeros[256];
    for (uint64_t n = gguf_writer_aligned(s->written, alignment) - s->written; n;) {
        size_t piece = n < sizeof zeros ? (size_t)n : sizeof zeros;
        sink_emit(s, zeros, piece);
        n -= piece;
    }
}

static void emit_header(const gguf_writer *w, sink *s) {
    uint64_t offset = 0;
    sink_emit(s, "GGUF", 4);
    emit_u32(s, w->version);
    emit_u64(s, w->n_tensors);
    emit_u64(s, w->n_metadata);
    sink_emit(s, w->metadata.data, w->metadata.len);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const writer_tensor *t = &w->tensors[i];
        emit_u64(s, strlen(t->name));
        sink_emit(s, t->name, strlen(t->name));
        emit_u32(s, (uint32_t)t->n_dims);
        for (int d = 0; d < t->n_dims; d++) emit_u64(s, (uint64_t)t->dims[d]);
        emit_u32(s, (uint32_t)t->type);
        emit_u64(s, offset);
        offset = gguf_writer_aligned(offset + (uint64_t)t->n_rows * t->row_bytes, w->alignment);
    }
}

static void emit_tensor(const writer_tensor *t, sink *s, uint8_t *piece, size_t piece_bytes) {
    if (!t->fill) {
        sink_emit(s, t->data, (size_t)t->n_rows * t->row_bytes);
        return;
    }
    int64_t step = (int64_t)(piece_bytes / t->row_bytes);
    BASE_ASSERT(step > 0); /* emit_file: a row, at least */
    for (int64_t row = 0; row < t->n_rows && !s->rc; row += step) {
        int64_t n = t->n_rows - row < step ? t->n_rows - row : step;
        s->rc = t->fill(t->arg, row, n, piece);
        sink_emit(s, piece, (size_t)n * t->row_bytes);
    }
}

static int emit_file(const gguf_writer *w, sink *s) {
    if (w->rc) return w->rc;
    size_t piece_bytes = PIECE_BYTES;
    for (size_t i = 0; i < w->n_tensors; i++)
        if (w->tensors[i].row_bytes > piece_bytes) piece_bytes = w->tensors[i].row_bytes;
    uint8_t *piece = base_alloc(piece_bytes);
    if (!piece) return RP_ERR_MEMORY;
    emit_header(w, s);
    for (size_t i = 0; i < w->n_tensors; i++) {
        emit_padding(s, w->alignment);
        emit_tensor(&w->tensors[i], s, piece, piece_bytes);
    }
    emit_padding(s, w->alignment);
    base_free(piece);
    return s->rc;
}

int gguf_writer_save(const gguf_writer *w, const char *path, rp_error *err) {
    base_new_file file;
    int rc = base_new_file_open(&file, path, err);
    if (rc) return rc;
    sink s = {.file = file.file};
    rc = emit_file(w, &s);
    if (!rc) return base_new_file_commit(&file, err);
    base_new_file_abandon(&file);
    errno = s.cause;
    if (rc == RP_ERR_IO) return base_fail_errno(err, "cannot write", path);
    return base_fail(err, (rp_code)rc, "cannot build '%s': %s", path, rp_code_text((rp_code)rc));
}

int gguf_writer_save_memory(const gguf_writer *w, uint8_t **data, size_t *bytes, rp_error *err) {
    base_buffer buffer = BASE_BUFFER(MEMORY_LIMIT);
    sink s = {.buffer = &buffer};
    int rc = emit_file(w, &s);
    *data = NULL;
    *bytes = 0;
    if (rc) {
        base_buffer_free(&buffer);
        return base_fail(err, (rp_code)rc, "cannot build a GGUF file in memory: %s", rp_code_text((rp_code)rc));
    }
    *bytes = buffer.len;
    *data = (uint8_t *)base_buffer_take(&buffer);
    return RP_OK;
}
