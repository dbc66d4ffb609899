/* SPDX-License-Identifier: Apache-2.0 */
/* recurrence_neon.c: convolutions and states of recurrent layers (lanes_recurrence.inc). */
#include "kernels/arm/lanes_neon.h"
#include "kernels/arm/neon.h"
#include "kernels/lanes/lanes_recurrence.inc"

void neon_recurrence_entries(kernel_table *t) { lanes_recurrence_entries(t); }
