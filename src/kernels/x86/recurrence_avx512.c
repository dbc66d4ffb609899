/* SPDX-License-Identifier: Apache-2.0 */
/* recurrence_avx512.c: convolutions and states of recurrent layers (lanes_recurrence.inc). */
#include "kernels/x86/lanes_avx512.h"
#include "kernels/x86/x86.h"
#include "kernels/lanes/lanes_recurrence.inc"

void avx512_recurrence_entries(kernel_table *t) { lanes_recurrence_entries(t); }
