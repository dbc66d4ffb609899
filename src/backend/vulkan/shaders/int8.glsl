// SPDX-License-Identifier: Apache-2.0
// int8.glsl: activations as codes of 8 bits, and products of pieces of 32 of them.
//
//   x ~ d * code,  d = max |x| / 127 of the piece,  |code| <= 127
//
//   product = scale * (d * float(sum of code * q))  - minimum * (d * float(sum of codes))     (formats.glsl)
//
// The sum of code * q, times its factors, is below 2^24: it is the same integer in any order, and exact as a float.
// Types with two minima subtract one for each half. The floats are multiplied and added in the order above.
//
// Codes of many rows in memory (codes.comp): a piece has 10 words: 32 codes | float d | i16 sums of either half. Pieces
// of one number lie side by side for all rows: [runs][pieces][rows]. A tile reads what it needs in one run of bytes.
#define PIECE_WORDS 10u

// 127 / the float with bits `peak`, by Newton's method in steps whose bits are the same in every shader: a division is
// not. 0 for activations so small that they are 0 (as on the CPU), and for those that are no numbers.
float inverse_scale(uint peak) {
    if (peak < 0x08800000u || peak >= 0x7f800000u) return 0.0; // 2^-110
    const float m = uintBitsToFloat((peak & 0x7fffffu) | 0x3f000000u); // [0.5, 1)
    precise float x = 2.8235295 - 1.8823529 * m;                       // within 1 / 17
    for (uint i = 0u; i < 3u; i++) {
        precise const float error = 1.0 - m * x;
        x = x + x * error;
    }
    // 2^(126 - e), e the exponent's field: normal up to the largest peaks
    precise const float inverse = 127.0 * x * uintBitsToFloat(max(253u - (peak >> 23), 1u) << 23);
    return inverse;
}

// NaN if one of them is no number, or infinite: so is every product.
float scale_of(uint peak) {
    if (peak >= 0x7f800000u) return uintBitsToFloat(0x7fc00000u);
    precise const float d = uintBitsToFloat(peak) * 0.007874016; // 1 / 127
    return peak < 0x08800000u ? 0.0 : d;
}

// x * inverse, rounded to nearest, ties to even: adding 1.5 * 2^23 does that.
uint code_of(float x, float inverse) {
    precise const float scaled = inverse == 0.0 ? 0.0 : x * inverse;
    precise const float shifted = min(max(scaled, -127.0), 127.0) + 12582912.0;
    return (floatBitsToUint(shifted) - 0x4b400000u) & 255u;
}

#ifdef DOT
// OpSDot of four bytes each: compilers of GLSL have a name for it only since 2024.
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int dot_of_bytes(uint x, uint y, spirv_literal int packed_4x8);
int dot4(uint x, uint y) { return dot_of_bytes(x, y, 0); }
#else
int byte_of(uint x, int first) { return bitfieldExtract(int(x), first, 8); }
int dot4(uint x, uint y) {
    return byte_of(x, 0) * byte_of(y, 0) + byte_of(x, 8) * byte_of(y, 8) + byte_of(x, 16) * byte_of(y, 16) +
           byte_of(x, 24) * byte_of(y, 24);
}
#endif
int sum4(uint x) { return dot4(x, 0x01010101u); }

// 16 codes in 4 words.
void pack(const int q[16], out uint words[4]) {
    for (uint k = 0u; k < 4u; k++)
        words[k] = (uint(q[4u * k]) & 255u) | (uint(q[4u * k + 1u]) & 255u) << 8 |
                   (uint(q[4u * k + 2u]) & 255u) << 16 | uint(q[4u * k + 3u]) << 24;
}

#ifdef MINIMA // with formats.glsl
// Of a piece: scale and minima of the weights, d and the sums of codes of the activations (of either half), and the sum
// of their products, with its factors.
float piece_product(float scale, vec2 minima, float d, int sum, ivec2 code_sums) {
    precise float y = d * float(sum);
    y = scale * y;
#if MINIMA == 1
    precise float s = d * float(code_sums.x + code_sums.y);
    s = minima.x * s;
    y = y - s;
#elif MINIMA == 2
    precise float s = d * float(code_sums.x);
    s = minima.x * s;
    y = y - s;
    s = d * float(code_sums.y);
    s = minima.y * s;
    y = y - s;
#endif
    return y;
}
#endif
