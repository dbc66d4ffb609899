// SPDX-License-Identifier: Apache-2.0
// kv_rounding.glsl: what the rounding of KV needs. The bytes are those of kernels/ for the same floats: divisions are
// computed in integers, because Vulkan leaves their last bits open.
#define F16_MAX_BITS 0x477fe000u // 65504
#define TINY_BITS 0x08800000u    // 2^-110 (KERNEL_Q8_TINY)
#define INFINITY_BITS 0x7f800000u

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > INFINITY_BITS; }

// a / b, rounded to nearest, ties to even; a finite, b positive and normal. Results below the normal floats become the
// least of these.
float quotient(float a, float b) {
    const uint x = floatBitsToUint(a), y = floatBitsToUint(b), sign = x & 0x80000000u, magnitude = x & 0x7fffffffu;
    if (magnitude < 0x00800000u) return 0.0;
    const uint64_t n = uint64_t((magnitude & 0x7fffffu) | 0x800000u) << 26, d = uint64_t((y & 0x7fffffu) | 0x800000u);
    uint q = uint(n / d); // from 2^25 to 2^27
    if (uint64_t(q) * d != n) q |= 1u;
    const bool is_below_1 = q < 0x4000000u;
    const int e = int(magnitude >> 23) - int(y >> 23) + (is_below_1 ? 126 : 127);
    const uint drop = is_below_1 ? 2u : 3u, half_unit = 1u << (drop - 1u);
    const uint m = (q + half_unit - 1u + ((q >> drop) & 1u)) >> drop; // from 2^23 to 2^24
    if (e >= 255) return uintBitsToFloat(sign | INFINITY_BITS);
    if (e <= 0) return uintBitsToFloat(sign | 0x00800000u);
    return uintBitsToFloat(sign | ((uint(e) << 23) + (m - 0x800000u)));
}

// NaN and infinities become the largest numbers of f16.
float finite(float x) {
    const uint magnitude = floatBitsToUint(x) & 0x7fffffffu;
    if (magnitude < F16_MAX_BITS) return x;
    return uintBitsToFloat(F16_MAX_BITS | (magnitude > INFINITY_BITS ? 0u : floatBitsToUint(x) & 0x80000000u));
}

uint f16_at_most(float x) {
    const uint h = f32_to_f16(x);
    if (f16_to_f32(h) <= x) return h;
    return (h & 0x8000u) != 0u ? h + 1u : h == 0u ? 0x8001u : h - 1u;
}
uint f16_at_least(float x) { return f16_at_most(-x) ^ 0x8000u; }

uint round_code(float x, uint most) {
    const float code = min(x, float(most));
    return code > 0.0 ? uint(roundEven(code)) : 0u;
}

// The bits of a positive float as bf16, rounded up.
uint bf16_at_least(float x) { return (floatBitsToUint(x) + 0xffffu) >> 16; }

// int8: of the largest magnitude, as bits; the bits of the scale in bf16.
uint scale_of_largest(uint largest) {
    if (largest < TINY_BITS) return 0u;
    return largest == INFINITY_BITS ? INFINITY_BITS >> 16 : bf16_at_least(quotient(uintBitsToFloat(largest), 127.0));
}
int int8_code(float x, float scale) {
    if ((floatBitsToUint(x) & 0x7fffffffu) >= INFINITY_BITS) return 127; // of NaN and infinities
    if (scale == 0.0 || floatBitsToUint(scale) == INFINITY_BITS) return 0;
    return clamp(int(roundEven(quotient(x, scale))), -127, 127);
}

// The Walsh-Hadamard transform of n elements of `array`, in runs of `size`, by a workgroup of 64; all before it in the
// array is written. kernels/hadamard.c
#define HADAMARD(array, n, size) \
    for (uint half_run = 1u; half_run < (size); half_run *= 2u) { \
        barrier(); \
        for (uint j = gl_LocalInvocationID.x; j < (n) / 2u; j += 64u) { \
            const uint at = j / half_run * 2u * half_run + j % half_run; \
            precise const float sum = array[at] + array[at + half_run]; \
            precise const float difference = array[at] - array[at + half_run]; \
            array[at] = sum; \
            array[at + half_run] = difference; \
        } \
    } \
    barrier();
uint hadamard_size(uint dim) { return dim & (~dim + 1u); }
float inverse_of_power(uint two_to_k) { return uintBitsToFloat((127u - uint(findMSB(two_to_k))) << 23); } // exact
