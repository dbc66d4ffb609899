/* SPDX-License-Identifier: Apache-2.0 */
/* generic.h: the implementations in plain C. Internal to kernels/; callers go through kernel_table. */
#ifndef KERNELS_GENERIC_GENERIC_H
#define KERNELS_GENERIC_GENERIC_H

#include "kernels/kernels.h"

/* Sets every entry of the table. */
void kernel_table_generic(kernel_table *t);

/* Each sets the entries of its name. */
void generic_linear_entries(kernel_table *t);
void generic_attention_entries(kernel_table *t);
void generic_attention_int8_entries(kernel_table *t);
void generic_attention_bits_entries(kernel_table *t);
void generic_vector_entries(kernel_table *t);
void generic_recurrence_entries(kernel_table *t);

#endif
