/* SPDX-License-Identifier: Apache-2.0 */
/* types.c: the element types of weights and KV: names, sizes, and the conversion of small floats.
 *
 * The table that every implementation uses and that uses none. The layouts of the quantized formats are in formats.h.
 * Owns no state; any thread.
 */
#include "base/check.h"
#include "kernels/half.h"
#include "kernels/kernels.h"

typedef struct type_info {
    const char *name; /* NULL: no such type */
    int64_t block, bytes;
} type_info;

static const type_info types[KERNEL_TYPE_END] = {
#define X(name, number, block, bytes) [number] = {#name, block, bytes},
    KERNEL_TYPES(X)
#undef X
};

bool kernel_type_known(uint32_t gguf_number) {
    return gguf_number < KERNEL_TYPE_END && types[gguf_number].name != NULL;
}

static const type_info *info(kernel_type t) {
    BASE_DCHECK(kernel_type_known((uint32_t)t));
    return &types[t];
}

const char *kernel_type_name(kernel_type t) { return info(t)->name; }
int64_t kernel_type_block(kernel_type t) { return info(t)->block; }
int64_t kernel_type_bytes(kernel_type t) { return info(t)->bytes; }
int64_t kernel_row_bytes(kernel_type t, int64_t n) {
    BASE_DCHECK(n >= 0 && n % info(t)->block == 0);
    return n / info(t)->block * info(t)->bytes;
}

float kernel_f16_to_f32(uint16_t h) { return half_to_float(h); }
uint16_t kernel_f32_to_f16(float f) { return half_from_float(f); }
float kernel_bf16_to_f32(uint16_t h) { return half_bf16_to_float(h); }
