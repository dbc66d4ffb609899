/* SPDX-License-Identifier: Apache-2.0 */
/* amx_emulated.h: the AMX instructions of the kernels in plain C, as Intel's manual (SDM, volume 2) defines them, to
 * run the kernels' own file on processors without them. Tiles belong to a thread. */
#ifndef SUPPORT_AMX_EMULATED_H
#define SUPPORT_AMX_EMULATED_H

#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "support/avx512_emulated.h"

typedef struct emulated_tile {
    int rows, row_bytes; /* 0: not configured */
    uint8_t data[16][64];
} emulated_tile;

static _Thread_local emulated_tile emulated_tiles[8];

static inline void emulated_loadconfig(const void *config) {
    const uint8_t *c = config;
    BASE_ASSERT(c[0] == 1); /* the palette */
    for (int i = 0; i < 8; i++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, c + 16 + 2 * i, sizeof row_bytes);
        BASE_ASSERT(row_bytes <= 64 && c[48 + i] <= 16);
        emulated_tiles[i] = (emulated_tile){.rows = c[48 + i], .row_bytes = row_bytes};
    }
}

static inline void emulated_release(void) { memset(emulated_tiles, 0, sizeof emulated_tiles); }

/* A tile that is not configured is an invalid instruction. */
static inline emulated_tile *emulated_tile_of(int i) {
    BASE_ASSERT(emulated_tiles[i].rows > 0 && emulated_tiles[i].row_bytes > 0);
    return &emulated_tiles[i];
}

static inline void emulated_zero(int i) { memset(emulated_tile_of(i)->data, 0, sizeof emulated_tiles[i].data); }

static inline void emulated_loadd(int i, const void *from, int64_t stride) {
    emulated_tile *t = emulated_tile_of(i);
    memset(t->data, 0, sizeof t->data);
    for (int r = 0; r < t->rows; r++) memcpy(t->data[r], (const uint8_t *)from + r * stride, (size_t)t->row_bytes);
}

static inline void emulated_stored(int i, void *to, int64_t stride) {
    const emulated_tile *t = emulated_tile_of(i);
    for (int r = 0; r < t->rows; r++) memcpy((uint8_t *)to + r * stride, t->data[r], (size_t)t->row_bytes);
}

/* c[m][n] += sum over k, i of a[m][k][i] * b[k][n][i], signed bytes, in 32 bits. */
static inline void emulated_dpbssd(int into, int first, int second) {
    emulated_tile *c = emulated_tile_of(into);
    const emulated_tile *a = emulated_tile_of(first), *b = emulated_tile_of(second);
    BASE_ASSERT(a->rows == c->rows && b->row_bytes == c->row_bytes && a->row_bytes == 4 * b->rows);
    for (int m = 0; m < c->rows; m++)
        for (int n = 0; n < c->row_bytes / 4; n++) {
            int32_t sum;
            memcpy(&sum, &c->data[m][4 * n], sizeof sum);
            for (int k = 0; k < b->rows; k++)
                for (int i = 0; i < 4; i++) sum += (int8_t)a->data[m][4 * k + i] * (int8_t)b->data[k][4 * n + i];
            memcpy(&c->data[m][4 * n], &sum, sizeof sum);
        }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#define _tile_loadconfig emulated_loadconfig
#define _tile_release emulated_release
#define _tile_zero emulated_zero
#define _tile_loadd emulated_loadd
#define _tile_stored emulated_stored
#define _tile_dpbssd emulated_dpbssd

/* The kernels' names, which the library uses as well. */
#define kernel_table_amx emulated_table_amx

#endif
