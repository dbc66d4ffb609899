/* SPDX-License-Identifier: Apache-2.0 */
/* neon.h: the implementations for AArch64. Internal to kernels/. */
#ifndef KERNELS_ARM_NEON_H
#define KERNELS_ARM_NEON_H

#include "kernels/kernels.h"

/* Override every entry that is faster at the level than at the previous one (base/cpu.h). */
void kernel_table_neon(kernel_table *t);
void kernel_table_dotprod(kernel_table *t);
void kernel_table_i8mm(kernel_table *t);

/* Each overrides the entries of its name. */
void neon_linear_float_entries(kernel_table *t);
void neon_linear_quant_entries(kernel_table *t);
void neon_attention_entries(kernel_table *t);
void neon_attention_int8_entries(kernel_table *t);
void neon_vector_entries(kernel_table *t);
void neon_recurrence_entries(kernel_table *t);

#endif
