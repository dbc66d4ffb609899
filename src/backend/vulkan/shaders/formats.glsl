// SPDX-License-Identifier: Apache-2.0
// formats.glsl: 16 elements of a row of weights as f32, for the type TYPE (a GGUF number). Layouts are those of
// kernels/formats.h; the values are those of kernel_dequantize.
//
// unpack(row, i, n, w): w[k] = element 16 i + k of the row of n elements at the address `row`; from n on: 0.

#define NIBBLES(quants, half_of_piece, offset) \
    for (uint k = 0u; k < 16u; k++) { \
        const uint b = u8_at((quants) + k); \
        q[k] = int((half_of_piece) == 0u ? b & 15u : b >> 4) - (offset); \
    }

#define SCALED(scale, minimum) \
    for (uint k = 0u; k < 16u; k++) { \
        precise float x = (scale) * float(q[k]); \
        x = x - (minimum); \
        w[k] = x; \
    }

#define SCALED_ONLY(scale) \
    for (uint k = 0u; k < 16u; k++) { \
        precise const float x = (scale) * float(q[k]); \
        w[k] = x; \
    }

const int iq4_values[16] = int[](-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
const int fp4_values[16] = int[](0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);

// Scale and minimum number j of Q4_K and Q5_K.
uvec2 scales_k4(uint64_t s, uint j) {
    if (j < 4u) return uvec2(u8_at(s + j) & 63u, u8_at(s + j + 4u) & 63u);
    const uint both = u8_at(s + j + 4u);
    return uvec2((both & 15u) | (u8_at(s + j - 4u) >> 6) << 4, both >> 4 | (u8_at(s + j) >> 6) << 4);
}

void unpack(uint64_t row, uint i, uint n, out float w[16]) {
    int q[16];
    const uint piece = i >> 1, half_of_piece = i & 1u;
#if TYPE == 0
    for (uint k = 0u; k < 16u; k++) w[k] = 16u * i + k < n ? F32(row).v[16u * i + k] : 0.0;
#elif TYPE == 1
    for (uint k = 0u; k < 16u; k++) w[k] = 16u * i + k < n ? f16_to_f32(uint(U16(row).v[16u * i + k])) : 0.0;
#elif TYPE == 30
    for (uint k = 0u; k < 16u; k++)
        w[k] = 16u * i + k < n ? uintBitsToFloat(uint(U16(row).v[16u * i + k]) << 16) : 0.0;
#elif TYPE == 2 // Q4_0
    const uint64_t at = row + 18u * piece;
    NIBBLES(at + 2u, half_of_piece, 8)
    SCALED_ONLY(f16_to_f32(u16_at(at)))
#elif TYPE == 3 // Q4_1
    const uint64_t at = row + 20u * piece;
    NIBBLES(at + 4u, half_of_piece, 0)
    SCALED(f16_to_f32(u16_at(at)), -f16_to_f32(u16_at(at + 2u)))
#elif TYPE == 6 || TYPE == 7 // Q5_0, Q5_1
    const uint64_t at = row + (TYPE == 6 ? 22u : 24u) * piece;
    const uint first = TYPE == 6 ? 2u : 4u;
    const uint high = u16_at(at + first) | u16_at(at + first + 2u) << 16;
    NIBBLES(at + first + 4u, half_of_piece, 0)
    for (uint k = 0u; k < 16u; k++) q[k] |= int((high >> (16u * half_of_piece + k)) & 1u) << 4;
#if TYPE == 6
    for (uint k = 0u; k < 16u; k++) q[k] -= 16;
    SCALED_ONLY(f16_to_f32(u16_at(at)))
#else
    SCALED(f16_to_f32(u16_at(at)), -f16_to_f32(u16_at(at + 2u)))
#endif
#elif TYPE == 8 // Q8_0
    const uint64_t at = row + 34u * piece;
    for (uint k = 0u; k < 16u; k++) q[k] = i8_of(u8_at(at + 2u + 16u * half_of_piece + k));
    SCALED_ONLY(f16_to_f32(u16_at(at)))
#elif TYPE == 20 // IQ4_NL
    const uint64_t at = row + 18u * piece;
    NIBBLES(at + 2u, half_of_piece, 0)
    for (uint k = 0u; k < 16u; k++) q[k] = iq4_values[q[k]];
    SCALED_ONLY(f16_to_f32(u16_at(at)))
#elif TYPE == 39 // MXFP4
    const uint64_t at = row + 17u * piece;
    const uint e = u8_at(at); // 2^(e - 128)
    const float scale = uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
    NIBBLES(at + 1u, half_of_piece, 0)
    for (uint k = 0u; k < 16u; k++) q[k] = fp4_values[q[k]];
    SCALED_ONLY(scale)
#else // blocks of 256
    const uint block = piece >> 3, j = piece & 7u;
#if TYPE == 12 || TYPE == 13 // Q4_K, Q5_K
    const uint64_t at = row + (TYPE == 12 ? 144u : 176u) * block;
    const uint64_t quants = at + (TYPE == 12 ? 16u : 48u) + 32u * (j >> 1) + 16u * half_of_piece;
    const uvec2 s = scales_k4(at + 4u, j);
    precise const float d = f16_to_f32(u16_at(at)) * float(s.x);
    precise const float m = f16_to_f32(u16_at(at + 2u)) * float(s.y);
    NIBBLES(quants, j & 1u, 0)
#if TYPE == 13
    for (uint k = 0u; k < 16u; k++)
        q[k] |= int((u8_at(at + 16u + 16u * half_of_piece + k) >> j) & 1u) << 4;
#endif
    SCALED(d, m)
#elif TYPE == 14 // Q6_K
    const uint64_t at = row + 210u * block;
    const uint part = j >> 2, g = j & 3u, l = 16u * half_of_piece;
    precise const float d = f16_to_f32(u16_at(at + 208u)) * float(i8_of(u8_at(at + 192u + 2u * j + half_of_piece)));
    NIBBLES(at + 64u * part + 32u * (g & 1u) + l, g >> 1, 0)
    for (uint k = 0u; k < 16u; k++)
        q[k] = (q[k] | int((u8_at(at + 128u + 32u * part + l + k) >> (2u * g)) & 3u) << 4) - 32;
    SCALED_ONLY(d)
#elif TYPE == 10 // Q2_K
    const uint64_t at = row + 84u * block;
    const uint s = u8_at(at + 2u * j + half_of_piece);
    precise const float d = f16_to_f32(u16_at(at + 80u)) * float(s & 15u);
    precise const float m = f16_to_f32(u16_at(at + 82u)) * float(s >> 4);
    for (uint k = 0u; k < 16u; k++)
        q[k] = int((u8_at(at + 16u + 32u * (j >> 2) + 16u * half_of_piece + k) >> (2u * (j & 3u))) & 3u);
    SCALED(d, m)
#elif TYPE == 11 // Q3_K
    const uint64_t at = row + 110u * block;
    const uint s = 2u * j + half_of_piece;
    const uint low = u8_at(at + 96u + (s & 7u)), high = u8_at(at + 104u + (s & 3u));
    const int scale = int((s < 8u ? low & 15u : low >> 4) | ((high >> (2u * (s >> 2))) & 3u) << 4) - 32;
    precise const float d = f16_to_f32(u16_at(at + 108u)) * float(scale);
    for (uint k = 0u; k < 16u; k++) {
        const uint l = 16u * half_of_piece + k;
        q[k] = int(((u8_at(at + 32u + 32u * (j >> 2) + l) >> (2u * (j & 3u))) & 3u) | ((u8_at(at + l) >> j) & 1u) << 2) - 4;
    }
    SCALED_ONLY(d)
#elif TYPE == 23 // IQ4_XS
    const uint64_t at = row + 136u * block;
    const uint low = u8_at(at + 4u + (j >> 1)), high = u16_at(at + 2u);
    const int scale = int(((j & 1u) == 0u ? low & 15u : low >> 4) | ((high >> (2u * j)) & 3u) << 4) - 32;
    precise const float d = f16_to_f32(u16_at(at)) * float(scale);
    NIBBLES(at + 8u + 16u * j, half_of_piece, 0)
    for (uint k = 0u; k < 16u; k++) q[k] = iq4_values[q[k]];
    SCALED_ONLY(d)
#endif
#endif
}
