/* SPDX-License-Identifier: Apache-2.0 */
/* output_norms.c: see output_norms.h. */
#include "backend/output_norms.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define OUTPUT_ROWS 16 /* of W at a time */

typedef struct norms_job {
    weight_row_fn read;
    const void *user;
    const model_weight *w; /* [n_embd][heads * dim] */
    int64_t dim;
    int32_t group, n;
    int64_t first, end;  /* rows of W */
    float *rows;         /* [OUTPUT_ROWS][heads * dim] */
    char *unpacked;      /* [OUTPUT_ROWS] rows in the file's type */
    float *sums;         /* [heads][dim] */
    double *products;    /* [heads][dim][dim], lower triangles: W'W */
    const float *values; /* [KV heads][n][dim] */
    double *norms;       /* [heads][n] */
} norms_job;

static void read_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const norms_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        j->read(j->user, j->w, j->first + i, j->unpacked + i * kernel_row_bytes(j->w->type, j->w->n_in),
                j->rows + i * j->w->n_in);
}

static void add_products(void *arg, int64_t begin, int64_t end, int thread) {
    const norms_job *j = arg;
    (void)thread;
    for (int64_t head = begin; head < end; head++)
        for (int64_t a = 0; a < j->dim; a++) {
            double *products = j->products + (head * j->dim + a) * j->dim;
            float *sums = j->sums + head * j->dim;
            memset(sums, 0, sizeof(*sums) * (size_t)(a + 1));
            for (int64_t row = 0; row < j->end - j->first; row++) {
                const float *x = j->rows + row * j->w->n_in + head * j->dim;
                for (int64_t k = 0; k <= a; k++) sums[k] += x[a] * x[k];
            }
            for (int64_t k = 0; k <= a; k++) products[k] += (double)sums[k];
        }
}

static void find_norms(void *arg, int64_t begin, int64_t end, int thread) {
    const norms_job *j = arg;
    (void)thread;
    for (int64_t head = begin; head < end; head++)
        for (int32_t slot = 0; slot < j->n; slot++) {
            const float *v = j->values + (head / j->group * j->n + slot) * j->dim;
            double squared = 0;
            for (int64_t a = 0; a < j->dim; a++) {
                const double *products = j->products + (head * j->dim + a) * j->dim;
                double sum = products[a] * (double)v[a] / 2;
                for (int64_t k = 0; k < a; k++) sum += products[k] * (double)v[k];
                squared += 2 * sum * (double)v[a];
            }
            j->norms[head * j->n + slot] = sqrt(fmax(squared, 0));
        }
}

int backend_output_norms(base_threads *threads, const model_network *net, int32_t layer, weight_row_fn read,
                         const void *user, const float *values, int32_t n, double *norms, rp_error *err) {
    const model_hparams *hp = &net->hp;
    const model_weight *w = &net->layers[layer].o;
    norms_job j = {.read = read,
                   .user = user,
                   .w = w,
                   .dim = hp->value_dim,
                   .group = hp->n_heads / hp->n_kv_heads,
                   .n = n};
    const size_t width = (size_t)w->n_in, n_products = width * (size_t)hp->value_dim,
                 row_bytes = (size_t)kernel_row_bytes(w->type, w->n_in);
    const size_t bytes =
        n_products * sizeof(double) + (OUTPUT_ROWS + 1) * width * sizeof(float) + OUTPUT_ROWS * row_bytes;
    BASE_ASSERT(w->n_in == (int64_t)hp->n_heads * hp->value_dim);
    if (!(j.products = base_calloc(1, bytes))) return base_fail_memory(err, bytes, "scores of slots");
    j.rows = (float *)(j.products + n_products);
    j.sums = j.rows + OUTPUT_ROWS * width;
    j.unpacked = (char *)(j.sums + width);
    j.values = values;
    j.norms = norms;
    for (j.first = 0; j.first < w->n_out; j.first = j.end) {
        j.end = BASE_MIN(j.first + OUTPUT_ROWS, w->n_out);
        base_threads_for(threads, read_rows, &j, j.end - j.first, 1);
        base_threads_for(threads, add_products, &j, hp->n_heads, 1);
    }
    base_threads_for(threads, find_norms, &j, hp->n_heads, 1);
    base_free(j.products);
    return RP_OK;
}
