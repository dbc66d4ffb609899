/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_emulated.c: see kernel_emulated.h. x86-64's levels are emulated on AVX2; AArch64 has qemu (tools/test_arm). */
#include "support/kernel_emulated.h"

#if defined(__x86_64__)
/* The kernels' own files once more: *_on_avx2.c. */
void emulated_table_avxvnni(kernel_table *t);
void emulated_table_avx512(kernel_table *t);
void emulated_table_amx(kernel_table *t);

bool kernel_emulated(base_cpu_level level, kernel_table *t) {
    if (!base_cpu_has(BASE_CPU_AVX2) || level <= BASE_CPU_AVX2) return false;
    kernel_table_init(t, BASE_CPU_AVX2);
    if (level == BASE_CPU_AVXVNNI) {
        emulated_table_avxvnni(t);
        t->name = "avxvnni-emulated";
    } else {
        emulated_table_avx512(t);
        t->name = "avx512-emulated";
    }
    if (level == BASE_CPU_AMX) {
        emulated_table_amx(t);
        t->name = "amx-emulated";
    }
    return true;
}
#else
bool kernel_emulated(base_cpu_level level, kernel_table *t) {
    (void)level;
    (void)t;
    return false;
}
#endif
