/* SPDX-License-Identifier: Apache-2.0 */
/* model_dense.c: the matrices that follow the pooling of embeddings (EmbeddingGemma): y = dense[1] dense[0] x, once a
 * text, in double, row by row as the file has them. Not a backend's: their input is a sum over all rows of a text.
 */
#include "base/check.h"
#include "model/model.h"

size_t model_dense_scratch(const rp_model *m) {
    return m->net.hp.n_pooled_dense > 0 ? 2 * (size_t)BASE_MAX(m->net.hp.n_pooled_dense, m->net.hp.n_embd) : 0;
}

/* y = w x; row: [n_in] */
static void multiply(const model_weight *w, const double *x, float *row, double *y) {
    const int64_t row_bytes = kernel_row_bytes(w->type, w->n_in);
    for (int64_t o = 0; o < w->n_out; o++) {
        double sum = 0;
        kernel_dequantize(w->type, (const char *)w->data + o * row_bytes, row, w->n_in);
        for (int64_t i = 0; i < w->n_in; i++) sum += (double)row[i] * x[i];
        y[o] = sum;
    }
}

void model_apply_dense(const rp_model *m, double *x, double *scratch) {
    if (m->net.hp.n_pooled_dense == 0) return;
    BASE_ASSERT(m->dense[0].n_out == m->dense[1].n_in && m->dense[1].n_out == m->dense[0].n_in); /* model_tensors.c */
    float *row = (float *)(scratch + model_dense_scratch(m) / 2);
    multiply(&m->dense[0], x, row, scratch);
    multiply(&m->dense[1], scratch, row, x);
}
