// SPDX-License-Identifier: Apache-2.0
// shared_weights.glsl: reads weights in shared memory by the number of a byte; the includer has word_at (of a word).
uint weight_u8(uint at) { return (word_at(at >> 2) >> (8u * (at & 3u))) & 255u; }
uint weight_u16(uint at) {
    const uint shift = 8u * (at & 3u), low = word_at(at >> 2) >> shift;
    return (shift == 24u ? low | word_at((at >> 2) + 1u) << 8 : low) & 0xffffu;
}
uint weight_u32(uint at) {
    const uint shift = 8u * (at & 3u), low = word_at(at >> 2);
    return shift == 0u ? low : low >> shift | word_at((at >> 2) + 1u) << (32u - shift);
}
