/* SPDX-License-Identifier: Apache-2.0 */
/* formats.h: the layout of each quantized type, in pieces of 32 elements. Internal to kernels/.
 *
 * Blocks of 32 elements, bytes in order:
 *   type     w =                 bytes
 *   Q4_0     d * (q - 8)         f16 d | 16 bytes: low nibbles are q[0..15], high q[16..31]
 *   Q4_1     d * q + m           f16 d | f16 m | 16 bytes as in Q4_0
 *   Q5_0     d * (q - 16)        f16 d | u32: bit i is bit 4 of q[i] | 16 bytes as in Q4_0
 *   Q5_1     d * q + m           f16 d | f16 m | u32 and 16 bytes as in Q5_0
 *   Q8_0     d * q               f16 d | int8 q[32]
 *   IQ4_NL   d * iq4[q]          f16 d | 16 bytes as in Q4_0
 *   MXFP4    2^(e-128) * fp4[q]  u8 e | 16 bytes as in Q4_0
 *
 * Blocks of 256 elements; j = piece of 32, s = sixteenth (16 elements), l = element within its piece:
 *   Q2_K     d * sc[s] * q - dmin * m[s]  16 bytes: sc[s] low nibble, m[s] high | 64 bytes of q | f16 d | f16 dmin
 *   Q3_K     d * (sc[s] - 32) * (q - 4)   32 bytes: bit j of byte l is bit 2 of q | 64 bytes of q | 12 bytes of sc |
 *         f16 d
 *   Q4_K     d * sc[j] * q - dmin * m[j]  f16 d | f16 dmin | 12 bytes of sc and m | 128 bytes of q
 *   Q5_K     d * sc[j] * q - dmin * m[j]  as Q4_K, with 32 bytes before those of q: bit j of byte l is bit 4 of q
 *   Q6_K     d * sc[s] * (q - 32)         128 bytes: low nibbles | 64 bytes: upper 2 bits | int8 sc[16] | f16 d
 *   IQ4_XS   d * (sc[j] - 32) * iq4[q]    f16 d | u16: bits 2*j are bits 4-5 of sc[j] | 4 bytes: nibble j is bits 0-3
 *         of
 *                                         sc[j], low nibbles first | 8 x 16 bytes of q as in Q4_0
 *
 *   q of Q4_K, Q5_K: byte 32*(j/2) + l, the low nibble for even j.
 *   q of Q2_K, Q3_K: byte 32*(j/4) + l, bits 2*(j%4).
 *   q of Q6_K: halves of 128 elements, 64 low-nibble bytes and 32 upper-bit bytes each; in a half, piece g = j%4 has
 *   its low bits in byte l + 32*(g & 1), nibble g >> 1, and its upper bits in byte l, bits 2*g.
 *
 *   sc, m of Q4_K, Q5_K (6 bits each):             sc of Q3_K (6 bits each):
 *   bytes 0..3:  bits 0-5 sc[j], 6-7 of sc[j+4]    bytes 0..7:  low nibble of sc[s] | low nibble of sc[s+8]
 *   bytes 4..7:  bits 0-5 m[j],  6-7 of m[j+4]     bytes 8..11: bits 4-5 of sc[s], sc[s+4], sc[s+8], sc[s+12]
 *   bytes 8..11: bits 0-3 sc[j+4], 4-7 m[j+4]
 */
#ifndef KERNELS_FORMATS_H
#define KERNELS_FORMATS_H

#include "kernels/kernels.h"

/* The properties of a type that products need.
 * X(NAME, name, scales of a piece, minima of a piece, lowest q, highest q, bytes [begin, end) of a block hold q) */
#define FORMAT_TYPES(X) \
    X(Q4_0, q4_0, 1, 0, -8, 7, 2, 18) \
    X(Q4_1, q4_1, 1, 1, 0, 15, 4, 20) \
    X(Q5_0, q5_0, 1, 0, -16, 15, 2, 22) \
    X(Q5_1, q5_1, 1, 1, 0, 31, 4, 24) \
    X(Q8_0, q8_0, 1, 0, -128, 127, 2, 34) \
    X(Q2_K, q2_k, 2, 2, 0, 3, 16, 80) \
    X(Q3_K, q3_k, 2, 0, -4, 3, 0, 96) \
    X(Q4_K, q4_k, 1, 1, 0, 15, 16, 144) \
    X(Q5_K, q5_k, 1, 1, 0, 31, 16, 176) \
    X(Q6_K, q6_k, 2, 0, -32, 31, 0, 192) \
    X(IQ4_NL, iq4_nl, 1, 0, -127, 113, 2, 18) \
    X(IQ4_XS, iq4_xs, 1, 0, -127, 113, 8, 136) \
    X(MXFP4, mxfp4, 1, 0, -12, 12, 1, 17)

enum {
#define X(name, number, block, bytes) FORMAT_##name##_BYTES = (bytes), FORMAT_##name##_PIECES = (block) / 32,
    KERNEL_TYPES(X)
#undef X
};

typedef struct format_traits {
    int64_t block_bytes;
    int pieces; /* in a block */
    int n_scales, n_mins, lowest, highest;
    int quants_begin, quants_end;
} format_traits;

#define X(NAME, name, n_scales, n_mins, lowest, highest, begin, end) \
    static const format_traits format_##name = { \
        FORMAT_##NAME##_BYTES, FORMAT_##NAME##_PIECES, n_scales, n_mins, lowest, highest, begin, end};
FORMAT_TYPES(X)
#undef X

/* ---- packed (kernel_pack) -----------------------------------------------------------------------------------------
 * `side` rows are interleaved; the size is unchanged. Types that are not quantized: element 0 of every row | element 1
 * | ... Quantized types: block by block; in each block first the bytes that are not q, in their order, then q. Both are
 * divided into units of 4 bytes (the last may be 2, then 1), and the units of the rows alternate:
 *
 *     bytes 0..3 of row 0 | of row 1 | ... | bytes 4..7 of row 0 | of row 1 | ...
 *
 * With 8 rows, a vector therefore holds the same field of each. A field at byte b of the bytes that are not q is at
 * offset side * b, if b is a multiple of its unit. */
static inline int64_t format_rest_bytes(const format_traits *f) {
    return f->block_bytes - (f->quants_end - f->quants_begin);
}
/* Offset of a byte that is not q among the bytes that are not q. */
static inline int format_rest_offset(const format_traits *f, int offset) {
    return offset < f->quants_begin ? offset : offset - (f->quants_end - f->quants_begin);
}

/* Offsets in a block. */
#define FORMAT_Q2_K_QUANTS 16
#define FORMAT_Q2_K_D 80
#define FORMAT_Q2_K_DMIN 82
#define FORMAT_Q3_K_QUANTS 32
#define FORMAT_Q3_K_SCALES 96
#define FORMAT_Q3_K_D 108
#define FORMAT_Q4_K_SCALES 4 /* in Q5_K too */
#define FORMAT_Q4_K_QUANTS 16
#define FORMAT_Q5_K_HIGH 16
#define FORMAT_Q5_K_QUANTS 48
#define FORMAT_Q6_K_HIGH 128
#define FORMAT_Q6_K_SCALES 192
#define FORMAT_Q6_K_D 208
#define FORMAT_IQ4_XS_HIGH 2
#define FORMAT_IQ4_XS_LOW 4
#define FORMAT_IQ4_XS_QUANTS 8

/* The values of 4-bit codes: iq4 above, in ascending order; fp4: twice those of E2M1 (sign, 2 bits exponent, 1 bit
 * fraction). */
extern const int8_t format_iq4_values[16], format_fp4_values[16];

/* w[i] = scale[i / 16] * q[i] - min[i / 16]. Both scales (minima) are set, and equal if a piece has only one. */
typedef struct format_piece {
    int8_t q[32];
    float scale[2], min[2];
} format_piece;

/* Unpacks elements 32*piece .. 32*piece + 31 of a row. */
typedef void (*format_unpack_fn)(const uint8_t *row, int64_t piece, format_piece *out);

/* NULL for types that are not quantized. */
format_unpack_fn format_unpack(kernel_type t);
const format_traits *format_find(kernel_type t);

#endif
