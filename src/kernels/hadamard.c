/* SPDX-License-Identifier: Apache-2.0 */
/* hadamard.c: the Walsh-Hadamard transform. Additions and subtractions alone, in one order for each element: all levels
   give the same bits. */
#include "base/check.h"
#include "kernels/kernels.h"

/* Elements four at a time: the first two steps, which stay within them. */
static void transform_fours(float *x, int64_t n) {
    BASE_DCHECK(n % 4 == 0);
    for (int64_t i = 0; i < n; i += 4) {
        const float a = x[i] + x[i + 1], b = x[i] - x[i + 1], c = x[i + 2] + x[i + 3], d = x[i + 2] - x[i + 3];
        x[i] = a + c;
        x[i + 1] = b + d;
        x[i + 2] = a - c;
        x[i + 3] = b - d;
    }
}

/* Adds and subtracts elements that are `half` apart, in groups of 2 * half. */
static void transform_halves(float *x, int64_t n, int64_t half) {
    BASE_DCHECK(half > 0 && n % (2 * half) == 0);
    for (int64_t i = 0; i < n; i += 2 * half) {
        float *restrict low = x + i, *restrict high = x + i + half;
        for (int64_t k = 0; k < half; k++) {
            const float a = low[k], b = high[k];
            low[k] = a + b;
            high[k] = a - b;
        }
    }
}

void kernel_hadamard(float *x, int64_t n, int64_t size) {
    BASE_DCHECK(size > 0 && (size & (size - 1)) == 0 && n % size == 0);
    if (size >= 4) transform_fours(x, n);
    for (int64_t half = size >= 4 ? 4 : 1; half < size; half *= 2) transform_halves(x, n, half);
}
