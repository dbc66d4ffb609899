/* SPDX-License-Identifier: Apache-2.0 */
/* lora_file.h: writes LoRA adapters for a model, and adds the same product to its weights.
 * For tests: a failing write ends the program. Not thread-safe.
 */
#ifndef SUPPORT_LORA_FILE_H
#define SUPPORT_LORA_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "model/gguf/gguf_writer.h"

typedef struct lora_shape {
    int32_t rank; /* a multiple of 32 for Q8_0 */
    float alpha;  /* 0: none in the file */
    kernel_type type;
    uint64_t seed;
    const int32_t *invocation; /* [n_invocation]; NULL: none */
    int32_t n_invocation;
} lora_shape;

/* Rank 4, alpha 8, F32. */
lora_shape lora_defaults(uint64_t seed);
/* Does the adapter change this tensor? All matrices but embeddings, norms and experts. */
bool lora_file_changes(const char *name, int64_t n_rows);
/* Writes an adapter of all of these tensors of a model's file to a new temporary file and stores its name in path. The
   caller unlinks it. */
void lora_file_write(const char *model, const lora_shape *s, char path[64]);
/* The metadata of one, with n_pairs pairs of tensors for the first such tensors; not saved. */
gguf_writer *lora_file_begin(const char *model, const lora_shape *s, int n_pairs);
/* x[n_rows][width] += alpha / rank * B A, for the tensor of that name. The elements of A and B are exact in every
   type. */
void lora_file_add(const lora_shape *s, const char *name, float *x, int64_t n_rows, int64_t width);

#endif
