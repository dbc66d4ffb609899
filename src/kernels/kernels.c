/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c: the selection of implementations for a processor, and the name of their arithmetic.
 *
 * Uses the tables of generic/, x86/ and arm/, and none of them uses it. Owns no state; any thread.
 */
#include "kernels/kernels.h"

#include "base/check.h"
#include "kernels/generic/generic.h"
#if defined(__x86_64__)
#include "kernels/x86/x86.h"
#elif defined(__aarch64__)
#include "kernels/arm/neon.h"
#endif

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
    BASE_ASSERT(t->side >= 1 && t->side <= 16 && (t->side & (t->side - 1)) == 0);
}
