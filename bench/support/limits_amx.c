/* SPDX-License-Identifier: Apache-2.0 */
/* limits_amx.c: the loop of limits.h with AMX: 16 x 16 sums of 64 products each. */
#include <immintrin.h>

#include "limits.h"

/* The operand of LDTILECFG (Intel SDM, volume 2A). */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static uint64_t products_int8(long rounds) {
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) c.row_bytes[i] = 64, c.rows[i] = 16;
    __asm__ volatile(""
                     :
                     : "r"(&c)
                     : "memory"); /* gcc 12 does not know that the next function reads all of it */
    _tile_loadconfig(&c);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    rounds /= 256; /* one takes as long as some hundred products of a vector */
    for (long r = 0; r < rounds; r++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
    return (uint64_t)rounds * 4 * (16 * 16 * 64) * 2;
}

void bench_loops_amx(bench_loops *l) { l->products[BENCH_INT8] = products_int8; }
