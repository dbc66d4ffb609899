/* SPDX-License-Identifier: Apache-2.0 */
/* x86.h: the implementations for x86-64. Internal to kernels/. */
#ifndef KERNELS_X86_X86_H
#define KERNELS_X86_X86_H

#include "kernels/kernels.h"

/* Overrides every entry of the plain C table that is faster with AVX2 + FMA + F16C. */
void kernel_table_avx2(kernel_table *t);
/* Override every entry that is faster at the level (base/cpu.h), in a table that kernel_table_avx2 filled in. */
void kernel_table_avxvnni(kernel_table *t);
void kernel_table_avx512(kernel_table *t);
/* In a table that kernel_table_avx512 filled in. */
void kernel_table_amx(kernel_table *t);

/* Each overrides the entries of its name. */
void avx2_linear_float_entries(kernel_table *t);
void avx2_linear_quant_entries(kernel_table *t);
void avx2_attention_entries(kernel_table *t);
void avx2_attention_int8_entries(kernel_table *t);
void avx2_attention_bits_entries(kernel_table *t);
void avx2_vector_entries(kernel_table *t);
void avx2_recurrence_entries(kernel_table *t);
/* avx512's product of a quantized type. */
kernel_linear_fn avx512_linear_quant(kernel_type t);
void avx512_linear_float_entries(kernel_table *t);
void avx512_attention_entries(kernel_table *t);
void avx512_recurrence_entries(kernel_table *t);
void avx512_attention_int8_entries(kernel_table *t);
void avxvnni_attention_int8_entries(kernel_table *t);

#endif
