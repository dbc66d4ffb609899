/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_blocks.h: blocks of quantized weights for the kernel tests: random ones, and their values by a second decoder.
 *
 * The decoder treats a block as a string of bits, one bit at a time; a formula for each format gives the position of
 * each bit of element i; halves are assembled with ldexp. It shares nothing with src/kernels.
 */
#ifndef SUPPORT_KERNEL_BLOCKS_H
#define SUPPORT_KERNEL_BLOCKS_H

#include "support/kernel_check.h"

/* The value of element i of a block, and the minimum subtracted from it (0 in formats without minima). */
double kernel_blocks_value(kernel_type t, const uint8_t *block, int i);
double kernel_blocks_min(kernel_type t, const uint8_t *block, int i);

/* Every pattern of bits is a valid block except for its scales, which are made finite and of the given kind: mostly
 * ordinary, zero, subnormal or large. extreme: all bytes of integers are equal: 0, 0x7f, 0x80 or 0xff. */
void kernel_blocks_random(kernel_type t, uint8_t *w, int64_t n_blocks, check_kind kind, bool extreme);

/* A half from two bytes. */
double kernel_blocks_half(const uint8_t *p);

#endif
