/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_writer.h: writer of GGUF files: quantized copies of models, and synthetic models for tests, benchmarks and
 * tools.
 *
 *   gguf_writer *w = gguf_writer_new(3, 0);
 *   gguf_writer_string(w, "general.architecture", "llama");
 *   gguf_writer_tensor(w, "a.weight", KERNEL_Q8_0, 2, (int64_t[]){64, 4}, floats);
 *   rc = gguf_writer_save(w, "a.gguf", &err);
 *   gguf_writer_free(w);
 *
 * Adding reports no errors: the first failure is kept, and every save returns it. The writer checks sizes only, not
 * contents: it writes duplicates, empty names and other invalid files for tests of the reader.
 * Not thread-safe.
 */
#ifndef MODEL_GGUF_WRITER_H
#define MODEL_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "model/gguf/gguf.h"
#include "reprise.h"

typedef struct gguf_writer gguf_writer;

/* version: 2 or 3. alignment: 0 leaves general.alignment out (then it is 32); else it is written and used.
 * NULL: out of memory. */
gguf_writer *gguf_writer_new(uint32_t version, uint32_t alignment);
void gguf_writer_free(gguf_writer *w);

/* Metadata, written in the order of the calls. */
void gguf_writer_scalar(gguf_writer *w, const char *key, gguf_value_type type, const void *value); /* not for strings */
void gguf_writer_u32(gguf_writer *w, const char *key, uint32_t v);
void gguf_writer_f32(gguf_writer *w, const char *key, float v);
void gguf_writer_bool(gguf_writer *w, const char *key, bool v);
void gguf_writer_string(gguf_writer *w, const char *key, const char *v);
/* n packed elements of a type of fixed size. */
void gguf_writer_array(gguf_writer *w, const char *key, gguf_value_type type, const void *data, size_t n);
void gguf_writer_strings(gguf_writer *w, const char *key, const char *const *strings, size_t n);
/* Writes any bytes as the value (copies from another file, nested arrays, invalid values). */
void gguf_writer_raw(gguf_writer *w, const char *key, uint32_t type, const void *bytes, size_t n);

/* Writes n_rows rows from `row` on (of dims[0] elements each, all later dimensions counted as rows) to dst, in the
 * tensor's type. Called in ascending order while saving, once per row and save. Returns 0, or a code that ends the
 * save. */
typedef int (*gguf_fill_fn)(void *arg, int64_t row, int64_t n_rows, void *dst);

/* Adds a tensor of floats and quantizes it to `type` at once. dims[0] must be a multiple of the type's block. */
void gguf_writer_tensor(gguf_writer *w, const char *name, kernel_type type, int n_dims, const int64_t *dims,
                        const float *data);
/* Adds a tensor with bytes that fill produces while saving, a few MiB at a time. */
void gguf_writer_tensor_fill(gguf_writer *w, const char *name, kernel_type type, int n_dims, const int64_t *dims,
                             gguf_fill_fn fill, void *arg);

/* Returns the first failure of any earlier call, RP_ERR_IO, RP_ERR_MEMORY, or the code of a fill function. The file is
 * replaced atomically: an older one at `path` stays until the new one is complete. */
int gguf_writer_save(const gguf_writer *w, const char *path, rp_error *err);
/* *data: owned by the caller, base_free. */
int gguf_writer_save_memory(const gguf_writer *w, uint8_t **data, size_t *bytes, rp_error *err);

#endif
