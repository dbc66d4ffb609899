/* vnni.h: the levels above AVX2. Internal to kernels/. */
#ifndef KERNELS_X86_VNNI_H
#define KERNELS_X86_VNNI_H

#include "kernels/kernels.h"

/* Override, in a table that kernel_table_avx2 has filled in, every entry that is faster at a level (base/cpu.h). */
void kernel_table_avxvnni(kernel_table *t);
void kernel_table_avx512(kernel_table *t);

/* Each of these overrides its part. */
void avx512_linear_float_entries(kernel_table *t);
void avx512_attention_entries(kernel_table *t);

#endif
