/* SPDX-License-Identifier: Apache-2.0 */
/* The level of the same name, emulated (amx_emulated.h, avx512_emulated.h). */
#include "support/amx_emulated.h"

#include "kernels/x86/linear_quant_amx.c"
