/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_emulated.h: levels that this machine lacks, with their instructions emulated. */
#ifndef SUPPORT_KERNEL_EMULATED_H
#define SUPPORT_KERNEL_EMULATED_H

#include "kernels/kernels.h"

/* The table of a level, named LEVEL-emulated. false: that cannot be emulated here. */
bool kernel_emulated(base_cpu_level level, kernel_table *t);

#endif
