/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c: the properties of the element types, and the selection of implementations for a processor.
 *
 * Owns no state; any thread. The formats themselves are in formats.h, the arithmetic in generic/, x86/ and arm/.
 */
#include "kernels/kernels.h"

#include "base/check.h"
#include "kernels/generic/generic.h"
#include "kernels/half.h"
#if defined(__x86_64__)
#include "kernels/x86/x86.h"
#elif defined(__aarch64__)
#include "kernels/arm/neon.h"
#endif

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
int64_t kernel_row_bytes(kernel_type t, int64_t n) { return n / info(t)->block * info(t)->bytes; }

float kernel_f16_to_f32(uint16_t h) { return half_to_float(h); }
uint16_t kernel_f32_to_f16(float f) { return half_from_float(f); }
float kernel_fp8_to_f32(uint8_t code) { return half_fp8_to_float(code); }
uint8_t kernel_f32_to_fp8(float f) { return half_fp8_from_float(f); }
float kernel_bf16_to_f32(uint16_t h) { return half_bf16_to_float(h); }

kernel_arithmetic kernel_arithmetic_of(base_cpu_level level) {
#if defined(__x86_64__)
    return level == BASE_CPU_GENERIC ? KERNEL_ARITHMETIC_PLAIN_X86_64 : KERNEL_ARITHMETIC_FUSED_X86_64;
#elif defined(__aarch64__)
    return level == BASE_CPU_GENERIC ? KERNEL_ARITHMETIC_PLAIN_AARCH64 : KERNEL_ARITHMETIC_FUSED_AARCH64;
#else
    (void)level;
    return KERNEL_ARITHMETIC_PLAIN_OTHER;
#endif
}

const char *kernel_arithmetic_name(kernel_arithmetic a) {
    static const char *const names[KERNEL_ARITHMETIC_END] = {
#define X(NAME, number, name) [number] = name,
        KERNEL_ARITHMETICS(X)
#undef X
    };
    const char *name = (unsigned)a < KERNEL_ARITHMETIC_END ? names[a] : NULL;
    return name ? name : "unknown";
}

void kernel_table_init(kernel_table *t, base_cpu_level level) {
    kernel_table_generic(t);
#if defined(__x86_64__)
    if (level >= BASE_CPU_AVX2) kernel_table_avx2(t);
    if (level == BASE_CPU_AVXVNNI) kernel_table_avxvnni(t); /* avx512 does not include it */
    if (level >= BASE_CPU_AVX512) kernel_table_avx512(t);
    if (level >= BASE_CPU_AMX) kernel_table_amx(t);
#elif defined(__aarch64__)
    if (level >= BASE_CPU_NEON) kernel_table_neon(t);
    if (level >= BASE_CPU_DOTPROD) kernel_table_dotprod(t);
    if (level >= BASE_CPU_I8MM) kernel_table_i8mm(t);
#else
    (void)level;
#endif
}
