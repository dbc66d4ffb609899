/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.h: numbers as bytes, little-endian on every machine, and hexadecimal digits. Bytes need no alignment. Text of
 * bytes in hexadecimal and base64: libsodium's sodium_bin2hex, sodium_bin2base64. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdint.h>

#include "base/check.h"

/* The n lowest bytes of v, 0 <= n <= 8; the others are not written. */
static inline void base_put_le(uint8_t *out, uint64_t v, int n) {
    BASE_DCHECK(n >= 0 && n <= 8);
    for (int i = 0; i < n; i++) out[i] = (uint8_t)(v >> 8 * i);
}

/* A number of n bytes. */
static inline uint64_t base_get_le(const uint8_t *in, int n) {
    BASE_DCHECK(n >= 0 && n <= 8);
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v |= (uint64_t)in[i] << 8 * i;
    return v;
}

static inline void base_put_u32(uint8_t *out, uint32_t v) { base_put_le(out, v, 4); }
static inline void base_put_u64(uint8_t *out, uint64_t v) { base_put_le(out, v, 8); }
static inline uint32_t base_get_u32(const uint8_t *in) { return (uint32_t)base_get_le(in, 4); }
static inline uint64_t base_get_u64(const uint8_t *in) { return base_get_le(in, 8); }

/* The value of a hexadecimal digit of either case; -1: it is none. */
static inline int base_hex_digit(int c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

#endif
