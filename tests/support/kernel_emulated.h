/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_emulated.h: levels missing on this machine, with emulated instructions. */
#ifndef SUPPORT_KERNEL_EMULATED_H
#define SUPPORT_KERNEL_EMULATED_H

#include "kernels/kernels.h"

/* The table of a level, named LEVEL-emulated. false: it cannot be emulated here. */
bool kernel_emulated(base_cpu_level level, kernel_table *t);

#endif
