/* SPDX-License-Identifier: Apache-2.0 */
/* recurrence_avx2.c: convolutions and states of recurrent layers (lanes_recurrence.inc). */
#include "kernels/x86/lanes_avx2.h"
#include "kernels/x86/x86.h"
#include "kernels/lanes/lanes_recurrence.inc"

void avx2_recurrence_entries(kernel_table *t) { lanes_recurrence_entries(t); }
