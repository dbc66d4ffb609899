/* SPDX-License-Identifier: Apache-2.0 */
/* The level of the same name, emulated (avx512_emulated.h). */
#include "support/avx512_emulated.h"

#include "kernels/x86/recurrence_avx512.c"
