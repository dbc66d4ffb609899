/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_relative.c: what relative weights of attention are made of, on the CPU: norms of rows' inputs, and norms of what
 * values add to the residual stream (backend/output_norms.h). */
#include <math.h>

#include "base/check.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/output_norms.h"

#define LEAST_NORM 1e-30 /* of an input: its inverse stays finite */

void cpu_observe_input(backend *self, const backend_buffer *input) {
    cpu_backend *b = (cpu_backend *)self;
    if (!b->is_relative) return;
    BASE_ASSERT(input->width == b->net->hp.n_embd);
    for (int32_t r = 0; r < b->step->n_rows; r++) {
        const float *x = cpu_row_of(input, r);
        double sum = 0;
        for (int32_t i = 0; i < input->width; i++) sum += (double)x[i] * (double)x[i];
        b->inverse_norms[r] = (float)(1 / fmax(sqrt(sum), LEAST_NORM));
    }
}

/* A weight_row_fn. */
static void read_row(const void *user, const model_weight *w, int64_t row, void *scratch, float *to) {
    const cpu_backend *b = user;
    const model_weight *packed = cpu_packed(b, w);
    const void *from = (const char *)w->data + row * kernel_row_bytes(w->type, w->n_in);
    if (packed != w) {
        kernel_packed_row(w->type, b->kernels.side, packed->data, w->n_in, row, scratch);
        from = scratch;
    }
    kernel_dequantize(w->type, from, to, w->n_in);
}

int cpu_output_norms(backend *self, int32_t layer, const float *values, int32_t n, double *norms, rp_error *err) {
    const cpu_backend *b = (const cpu_backend *)self;
    return backend_output_norms(b->threads, b->net, layer, read_row, b, values, n, norms, err);
}
