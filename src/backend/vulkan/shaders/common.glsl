// SPDX-License-Identifier: Apache-2.0
// common.glsl: what all shaders share: memory by address, conversions, and arithmetic with the same bits on every
// device.
//
// Sums and products are `precise`: the compiler neither fuses nor reorders them (tests/vulkan checks it in the
// binaries). Functions of the device whose precision Vulkan leaves open (exp, tanh, erf, conversions of f16) are
// written out here.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer F32 { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer U32 { uint v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer U64 { uint64_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer U16 { uint16_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer U8 { uint8_t v[]; };

// Element i of an array of floats.
float get(uint64_t array, uint64_t i) { return F32(array + 4ul * i).v[0]; }
void put(uint64_t array, uint64_t i, float value) { F32(array + 4ul * i).v[0] = value; }
uint u8_at(uint64_t at) { return uint(U8(at).v[0]); }
uint u16_at(uint64_t at) { return uint(U16(at).v[0]); }
int i8_of(uint b) { return int(b << 24) >> 24; }

// Exact, subnormals included.
float f16_to_f32(uint h) {
    const uint e = (h >> 10) & 31u, m = h & 1023u, sign = (h & 32768u) << 16;
    if (e == 0u) {
        precise const float subnormal = float(m) * uintBitsToFloat(0x33800000u); // m * 2^-24
        return uintBitsToFloat(floatBitsToUint(subnormal) | sign);
    }
    return uintBitsToFloat(sign | (e == 31u ? 0x7f800000u : (e + 112u) << 23) | m << 13);
}

// Rounds to nearest, ties to even; overflow gives infinity.
uint f32_to_f16(float f) {
    const uint x = floatBitsToUint(f), sign = (x >> 16) & 32768u, a = x & 0x7fffffffu;
    if (a > 0x7f800000u) return sign | 0x7e00u;
    if (a >= 0x477ff000u) return sign | 0x7c00u; // 65520 and more
    if (a >= 0x38800000u) return sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13);
    if (a < 0x33000000u) return sign; // below half of the smallest
    const uint shift = 126u - (a >> 23), m = (a & 0x7fffffu) | 0x800000u;
    const uint half_unit = 1u << (shift - 1u), odd = (m >> shift) & 1u;
    return sign | ((m + half_unit - 1u + odd) >> shift);
}

// e^x, relative error below 2e-7. Below -87: 0. Above 88: e^88.
float exp_own(float x) {
    if (!(x > -87.0)) return 0.0;
    x = min(x, 88.0);
    precise const float n = floor(x * 1.44269504 + 0.5);
    precise float r = x - n * 0.693359375;
    r = r - n * -2.12194440e-4;
    precise float p = 1.9875691500e-4;
    p = p * r + 1.3981999507e-3;
    p = p * r + 8.3334519073e-3;
    p = p * r + 4.1665795894e-2;
    p = p * r + 1.6666665459e-1;
    p = p * r + 5.0000001201e-1;
    precise const float rr = r * r;
    p = p * rr + r;
    p = p + 1.0;
    return uintBitsToFloat(uint(int(floatBitsToUint(p)) + (int(n) << 23)));
}

// 1 / (1 + e^-x) times a, without overflow.
float times_sigmoid(float a, float x) {
    const float e = exp_own(-abs(x));
    precise const float ae = a * e;
    precise const float d = 1.0 + e;
    return (x >= 0.0 ? a : ae) / d;
}

float tanh_own(float x) {
    const float a = abs(x);
    precise float t;
    if (a < 0.3) { // the series to x^11
        precise const float s = x * x;
        t = -1382.0 / 155925.0;
        t = t * s + 62.0 / 2835.0;
        t = t * s - 17.0 / 315.0;
        t = t * s + 2.0 / 15.0;
        t = t * s - 1.0 / 3.0;
        t = t * s;
        t = t * x + x;
        return t;
    }
    precise const float e = exp_own(-2.0 * a);
    precise const float above = 1.0 - e;
    precise const float below = 1.0 + e;
    t = above / below;
    return x < 0.0 ? -t : t;
}

// The complementary error function, relative error below 2e-7 (a Chebyshev fit).
float erfc_own(float x) {
    const float z = abs(x);
    precise const float d = 1.0 + 0.5 * z;
    precise const float t = 1.0 / d;
    precise float p = 0.17087277;
    p = p * t - 0.82215223;
    p = p * t + 1.48851587;
    p = p * t - 1.13520398;
    p = p * t + 0.27886807;
    p = p * t - 0.18628806;
    p = p * t + 0.09678418;
    p = p * t + 0.37409196;
    p = p * t + 1.00002368;
    p = p * t - 1.26551223;
    precise const float zz = z * z;
    precise const float exponent = p - zz;
    precise const float y = t * exp_own(exponent);
    precise const float mirrored = 2.0 - y;
    return x >= 0.0 ? y : mirrored;
}

// ln x of a normal positive number, relative error below 2e-7 but near 1, where the absolute one is.
float log_own(float x) {
    const uint bits = floatBitsToUint(x);
    int e = int(bits >> 23) - 126;
    precise float m = uintBitsToFloat((bits & 0x7fffffu) | 0x3f000000u); // [0.5, 1)
    if (m < 0.70710678) {
        e -= 1;
        m = m + m;
    }
    m = m - 1.0;
    precise const float z = m * m;
    precise float y = 7.0376836292e-2;
    y = y * m - 1.1514610310e-1;
    y = y * m + 1.1676998740e-1;
    y = y * m - 1.2420140846e-1;
    y = y * m + 1.4249322787e-1;
    y = y * m - 1.6668057665e-1;
    y = y * m + 2.0000714765e-1;
    y = y * m - 2.4999993993e-1;
    y = y * m + 3.3333331174e-1;
    y = y * m * z;
    precise const float n = float(e);
    y = y - n * 2.12194440e-4;
    y = y - 0.5 * z;
    y = m + y;
    y = y + n * 0.693359375;
    return y;
}

// ln (1 + e^x). The logarithm of the rounded 1 + e^x is corrected by what the rounding lost.
float softplus(float x) {
    if (x > 20.0) return x;
    const float e = exp_own(x);
    precise const float u = 1.0 + e;
    precise const float rounded = u - 1.0;
    if (rounded == 0.0) return e;
    precise const float y = log_own(u) * (e / rounded);
    return y;
}
