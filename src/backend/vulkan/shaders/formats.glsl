// SPDX-License-Identifier: Apache-2.0
// formats.glsl: 16 elements of a row of weights, for the type TYPE (a GGUF number), as codes or as f32. Layouts are
// those of kernels/formats.h; the values are those of kernel_dequantize.
//
// unpack(row, i, n, w): w[k] = element 16 i + k of the row of n elements at `row`; from n on: 0.
// decode(row, i, q, x), of quantized types (QUANTIZED): codes, of at most 8 bits with their sign, of which
//
//   w[k] = x.scale * x.factor * q[k] - x.minimum
//
// A type with a scale for each 16 elements (HALVES) has one float for its block in `scale`, and an integer `factor`;
// the factor of all others is 1. MINIMA: minima of a piece of 32: 0, 1, or 2 (then they differ by halves).
//
// Where weights are is the includer's: PLACE is the type of a place, weight_u8, weight_u16 and weight_u32 read what is
// at one, of any alignment that blocks of the type have.

// Bits [first, first + n) of 16 bytes.
#define FIELDS(bytes, first, n) \
    for (uint k = 0u; k < 16u; k += 4u) { \
        const uint four = weight_u32((bytes) + k) >> (first); \
        for (uint m = 0u; m < 4u; m++) q[k + m] = int((four >> (8u * m)) & ((1u << (n)) - 1u)); \
    }

#define FIELDS_ABOVE(bytes, first, n, above) \
    for (uint k = 0u; k < 16u; k += 4u) { \
        const uint four = weight_u32((bytes) + k) >> (first); \
        for (uint m = 0u; m < 4u; m++) q[k + m] |= int((four >> (8u * m)) & ((1u << (n)) - 1u)) << (above); \
    }

#define LESS(offset) \
    for (uint k = 0u; k < 16u; k++) q[k] -= (offset);

#define QUANTIZED (TYPE != 0 && TYPE != 1 && TYPE != 30)
#define HALVES (TYPE == 10 || TYPE == 11 || TYPE == 14)
#if TYPE == 10
#define MINIMA 2
#elif TYPE == 3 || TYPE == 7 || TYPE == 12 || TYPE == 13
#define MINIMA 1
#else
#define MINIMA 0
#endif

struct scales {
    float scale, minimum;
    int factor;
};

const int iq4_values[16] = int[](-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
const int fp4_values[16] = int[](0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);

// Scale and minimum number j of Q4_K and Q5_K.
uvec2 scales_k4(PLACE s, uint j) {
    if (j < 4u) return uvec2(weight_u8(s + j) & 63u, weight_u8(s + j + 4u) & 63u);
    const uint both = weight_u8(s + j + 4u);
    return uvec2((both & 15u) | (weight_u8(s + j - 4u) >> 6) << 4, both >> 4 | (weight_u8(s + j) >> 6) << 4);
}

#if QUANTIZED
void decode(PLACE row, uint i, out int q[16], out scales x) {
    const uint piece = i >> 1, half_of_piece = i & 1u;
    x.minimum = 0.0;
    x.factor = 1;
#if TYPE == 2 // Q4_0
    const PLACE at = row + 18u * piece;
    FIELDS(at + 2u, 4u * half_of_piece, 4)
    LESS(8)
    x.scale = f16_to_f32(weight_u16(at));
#elif TYPE == 3 // Q4_1
    const PLACE at = row + 20u * piece;
    FIELDS(at + 4u, 4u * half_of_piece, 4)
    x.scale = f16_to_f32(weight_u16(at));
    x.minimum = -f16_to_f32(weight_u16(at + 2u));
#elif TYPE == 6 || TYPE == 7 // Q5_0, Q5_1
    const PLACE at = row + (TYPE == 6 ? 22u : 24u) * piece;
    const uint first = TYPE == 6 ? 2u : 4u;
    const uint high = weight_u16(at + first) | weight_u16(at + first + 2u) << 16;
    FIELDS(at + first + 4u, 4u * half_of_piece, 4)
    for (uint k = 0u; k < 16u; k++) q[k] |= int((high >> (16u * half_of_piece + k)) & 1u) << 4;
#if TYPE == 6
    LESS(16)
    x.scale = f16_to_f32(weight_u16(at));
#else
    x.scale = f16_to_f32(weight_u16(at));
    x.minimum = -f16_to_f32(weight_u16(at + 2u));
#endif
#elif TYPE == 8 // Q8_0
    const PLACE at = row + 34u * piece;
    FIELDS(at + 2u + 16u * half_of_piece, 0, 8)
    for (uint k = 0u; k < 16u; k++) q[k] = i8_of(uint(q[k]));
    x.scale = f16_to_f32(weight_u16(at));
#elif TYPE == 20 // IQ4_NL
    const PLACE at = row + 18u * piece;
    FIELDS(at + 2u, 4u * half_of_piece, 4)
    for (uint k = 0u; k < 16u; k++) q[k] = iq4_values[q[k]];
    x.scale = f16_to_f32(weight_u16(at));
#elif TYPE == 39 // MXFP4
    const PLACE at = row + 17u * piece;
    const uint e = weight_u8(at); // 2^(e - 128)
    x.scale = uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
    FIELDS(at + 1u, 4u * half_of_piece, 4)
    for (uint k = 0u; k < 16u; k++) q[k] = fp4_values[q[k]];
#else // blocks of 256
    const uint block = piece >> 3, j = piece & 7u;
#if TYPE == 12 || TYPE == 13 // Q4_K, Q5_K
    const PLACE at = row + (TYPE == 12 ? 144u : 176u) * block;
    const PLACE quants = at + (TYPE == 12 ? 16u : 48u) + 32u * (j >> 1) + 16u * half_of_piece;
    const uvec2 s = scales_k4(at + 4u, j);
    precise const float d = f16_to_f32(weight_u16(at)) * float(s.x);
    precise const float m = f16_to_f32(weight_u16(at + 2u)) * float(s.y);
    x.scale = d;
    x.minimum = m;
    FIELDS(quants, 4u * (j & 1u), 4)
#if TYPE == 13
    FIELDS_ABOVE(at + 16u + 16u * half_of_piece, j, 1, 4)
#endif
#elif TYPE == 14 // Q6_K
    const PLACE at = row + 210u * block;
    const uint part = j >> 2, g = j & 3u, l = 16u * half_of_piece;
    x.factor = i8_of(weight_u8(at + 192u + 2u * j + half_of_piece));
    x.scale = f16_to_f32(weight_u16(at + 208u));
    FIELDS(at + 64u * part + 32u * (g & 1u) + l, 4u * (g >> 1), 4)
    FIELDS_ABOVE(at + 128u + 32u * part + l, 2u * g, 2, 4)
    LESS(32)
#elif TYPE == 10 // Q2_K
    const PLACE at = row + 84u * block;
    const uint s = weight_u8(at + 2u * j + half_of_piece);
    precise const float m = f16_to_f32(weight_u16(at + 82u)) * float(s >> 4);
    x.scale = f16_to_f32(weight_u16(at + 80u));
    x.factor = int(s & 15u);
    x.minimum = m;
    FIELDS(at + 16u + 32u * (j >> 2) + 16u * half_of_piece, 2u * (j & 3u), 2)
#elif TYPE == 11 // Q3_K
    const PLACE at = row + 110u * block;
    const uint s = 2u * j + half_of_piece;
    const uint low = weight_u8(at + 96u + (s & 7u)), high = weight_u8(at + 104u + (s & 3u));
    x.factor = int((s < 8u ? low & 15u : low >> 4) | ((high >> (2u * (s >> 2))) & 3u) << 4) - 32;
    x.scale = f16_to_f32(weight_u16(at + 108u));
    FIELDS(at + 32u + 32u * (j >> 2) + 16u * half_of_piece, 2u * (j & 3u), 2)
    FIELDS_ABOVE(at + 16u * half_of_piece, j, 1, 2)
    LESS(4)
#elif TYPE == 23 // IQ4_XS
    const PLACE at = row + 136u * block;
    const uint low = weight_u8(at + 4u + (j >> 1)), high = weight_u16(at + 2u);
    const int scale = int(((j & 1u) == 0u ? low & 15u : low >> 4) | ((high >> (2u * j)) & 3u) << 4) - 32;
    precise const float d = f16_to_f32(weight_u16(at)) * float(scale);
    x.scale = d;
    FIELDS(at + 8u + 16u * j, 4u * half_of_piece, 4)
    for (uint k = 0u; k < 16u; k++) q[k] = iq4_values[q[k]];
#endif
#endif
}
#endif

void unpack(PLACE row, uint i, uint n, out float w[16]) {
#if TYPE == 0
    for (uint k = 0u; k < 16u; k++)
        w[k] = 16u * i + k < n ? uintBitsToFloat(weight_u32(row + 4u * (16u * i + k))) : 0.0;
#elif TYPE == 1
    for (uint k = 0u; k < 16u; k++) w[k] = 16u * i + k < n ? f16_to_f32(weight_u16(row + 2u * (16u * i + k))) : 0.0;
#elif TYPE == 30
    for (uint k = 0u; k < 16u; k++)
        w[k] = 16u * i + k < n ? uintBitsToFloat(weight_u16(row + 2u * (16u * i + k)) << 16) : 0.0;
#else
    int q[16];
    scales x;
    decode(row, i, q, x);
    precise const float scale = x.scale * float(x.factor);
    for (uint k = 0u; k < 16u; k++) {
        precise float v = scale * float(q[k]);
        v = v - x.minimum;
        w[k] = v;
    }
#endif
}
