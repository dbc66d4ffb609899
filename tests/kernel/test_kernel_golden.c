/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_golden.c: values of gguf-py for blocks of random bits (tests/golden/formats) against every decoder: the
 * row decoder, bit for bit, and the decoders in the products. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "model/gguf/gguf.h"
#include "support/kernel_check.h"
#include "support/vector_file.h"

static gguf_file *file;

static const gguf_tensor *tensor(kernel_type t, const char *ending) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", kernel_type_name(t), ending);
    return gguf_find_tensor(file, name);
}

/* The blocks of a type, their values, and their number; 0: the file has none. */
static int64_t find(kernel_type t, const uint8_t **blocks, const float **values) {
    const gguf_tensor *b = tensor(t, ""), *v = tensor(t, ".values");
    if (!check_that(b && v && b->type == t && v->type == KERNEL_F32 && b->dims[0] == v->dims[0],
                    "blocks and values are missing"))
        return 0;
    *blocks = b->data;
    *values = v->data;
    return b->dims[0];
}

static void check_rows(kernel_type t, const uint8_t *blocks, const float *values, int64_t n) {
    float *ours = check_alloc((size_t)n * sizeof *ours, 4);
    kernel_dequantize(t, blocks, ours, n);
    for (int64_t i = 0; i < n; i++) {
        const bool same = isnan(values[i]) ? isnan(ours[i]) : memcmp(&ours[i], &values[i], sizeof *ours) == 0;
        check_that(same, "element %lld is %.9g, expected %.9g", (long long)i, (double)ours[i], (double)values[i]);
    }
    check_release(ours);
}

/* A row of activations that is 1 at i and 0 elsewhere, in floats or in the q8 layout of kernels.h, with scales of 1. */
static void one_hot(bool quantized, uint8_t *x, int64_t n, int64_t i) {
    const float one = 1;
    const int16_t one_short = 1;
    memset(x, 0, (size_t)BASE_MAX(kernel_q8_bytes(n), n * 4));
    if (!quantized) {
        memcpy(x + 4 * i, &one, sizeof one);
        return;
    }
    x[i] = 1;
    for (int64_t p = 0; p < n / 32; p++) memcpy(x + KERNEL_Q8_D(n) + 4 * p, &one, sizeof one);
    memcpy(x + KERNEL_Q8_S(n) + i / 32 * 4, &one, sizeof one);
    memcpy(x + KERNEL_Q8_H(n) + i / 16 * 4, &one, sizeof one);
    memcpy(x + KERNEL_Q8_C(n) + i / 16 * 2, &one_short, sizeof one_short);
}

/* Products of a block with every unit vector are its values, if all of it is finite (else false); a zero may have
 * lost its sign, and products of many numbers are checked by test_kernel_linear. */
static bool check_products(const kernel_table *table, kernel_type t, const uint8_t *block, const float *values) {
    const int64_t n = kernel_type_block(t);
    const int64_t x_bytes = BASE_MAX(kernel_q8_bytes(n), n * 4);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i])) return false;
    uint8_t *x = check_alloc((size_t)x_bytes, 0);
    uint8_t *packed = check_alloc((size_t)kernel_packed_bytes(t, table->side, n, 1), 0);
    kernel_pack(t, table->side, block, n, 1, packed);
    for (int64_t i = 0; i < n; i++) {
        float y;
        one_hot(kernel_type_quantized(t), x, n, i);
        table->linear[t](packed, n, 0, 1, x, x_bytes, 1, &y, 1);
        check_that(y == values[i], "product %lld is %.9g, expected %.9g", (long long)i, (double)y, (double)values[i]);
    }
    check_release(x);
    check_release(packed);
    return true;
}

static void check_format(const kernel_table *table, int arg) {
    const kernel_type t = (kernel_type)arg;
    const uint8_t *blocks = NULL;
    const float *values = NULL;
    const int64_t n = find(t, &blocks, &values), block = kernel_type_block(t);
    int64_t finite = 0;
    check_rows(t, blocks, values, n);
    for (int64_t b = 0; b < n / block; b++)
        finite += check_products(table, t, blocks + b * kernel_type_bytes(t), values + b * block);
    check_that(finite > 0, "no block is finite");
}

int main(int argc, char **argv) {
    static const check_subject subjects[] = {
#define X(name, number, block, bytes) {"golden_" #name, number, check_format, NULL},
        KERNEL_TYPES(X)
#undef X
    };
    rp_error err = {0};
    if (gguf_open(&file, vector_path("formats/blocks.gguf"), &err) != RP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    const int status = check_main(argc, argv, subjects, BASE_ARRAY_LEN(subjects));
    gguf_close(file);
    return status;
}
