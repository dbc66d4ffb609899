/* formats.h: how each quantised type stores its numbers, in pieces of 32 elements. Internal to kernels/.
 *
 *   type   block                                          bytes of a block, in order
 *   Q8_0   32 elements,  w = d * q                        f16 d | int8 q[32]
 *   Q4_0   32 elements,  w = d * (q - 8)                  f16 d | 16 bytes: low nibbles are q[0..15], high q[16..31]
 *   Q4_K   256 elements, w = (d * sc) * q - dmin * m      f16 d | f16 dmin | 12 bytes: sc, m (6 bits) of 8 pieces of 32 |
 *                                                         128 bytes: byte 32*c+l holds elements 64*c+l and 64*c+32+l
 *   Q6_K   256 elements, w = (d * sc) * (q - 32)          128 bytes: low nibbles | 64 bytes: upper 2 bits | int8 sc[16]
 *                                                         (one for 16 elements) | f16 d
 *
 * Every piece of 32 elements therefore has the shape below. Q4_K packs sc[j], m[j] (j = piece) as
 *   bytes 0..3:  bits 0-5 sc[j],    bits 6-7 upper bits of sc[j+4]
 *   bytes 4..7:  bits 0-5 m[j],     bits 6-7 upper bits of m[j+4]
 *   bytes 8..11: bits 0-3 sc[j+4],  bits 4-7 m[j+4]
 * Q6_K works in halves of 128 elements, 64 low-nibble bytes and 32 upper-bit bytes each; of such a half, element
 * 32*g+l (g = 0..3) has its low bits in byte l + 32*(g & 1), nibble g >> 1, and its upper bits in byte l, bits 2*g.
 */
#ifndef KERNELS_FORMATS_H
#define KERNELS_FORMATS_H

#include "kernels/kernels.h"

#define FORMAT_Q8_0_BYTES 34
#define FORMAT_Q4_0_BYTES 18
#define FORMAT_Q4_K_BYTES 144
#define FORMAT_Q6_K_BYTES 210
#define FORMAT_K_PIECES 8 /* pieces of 32 in a block of Q4_K or Q6_K */
#define FORMAT_Q4_K_SCALES 4 /* offsets in a block */
#define FORMAT_Q4_K_QUANTS 16
#define FORMAT_Q6_K_HIGH 128
#define FORMAT_Q6_K_SCALES 192
#define FORMAT_Q6_K_D 208

/* w[i] = scale[i / 16] * q[i] - min */
typedef struct format_piece {
    int8_t q[32];
    float scale[2];
    float min; /* 0 except in Q4_K */
} format_piece;

/* Unpacks elements 32*piece .. 32*piece + 31 of a row. */
typedef void (*format_unpack_fn)(const uint8_t *row, int64_t piece, format_piece *out);

/* NULL for types that are not quantised. */
format_unpack_fn format_unpack(kernel_type t);

/* The 6-bit scale and minimum of piece j in the 12 bytes of a Q4_K block. */
void format_q4_k_scale_min(const uint8_t *scales, int j, int *scale, int *min);

#endif
