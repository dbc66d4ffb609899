/* SPDX-License-Identifier: Apache-2.0 */
/* output_norms.h: norms of what values add to the residual stream (backend_study.output_norms), on the host.
 *
 * With W a head's columns of the output matrix and v a value, |W v|^2 = v' (W'W) v. W'W has the size of a head, and is
 * computed once for all slots. Its products are summed in floats over 16 rows of W, and these sums in double. A thread
 * computes whole heads: the order of every sum is fixed. */
#ifndef BACKEND_OUTPUT_NORMS_H
#define BACKEND_OUTPUT_NORMS_H

#include "base/threads.h"
#include "backend/model_network.h"

/* Reads a row of a weight as floats; scratch: of a row's bytes in the file. Any thread. */
typedef void (*weight_row_fn)(const void *user, const model_weight *w, int64_t row, void *scratch, float *to);

/* norms[query head][slot] of a layer; values: [KV head][n][value dimension]. RP_ERR_MEMORY. */
int backend_output_norms(base_threads *threads, const model_network *net, int32_t layer, weight_row_fn read,
                         const void *user, const float *values, int32_t n, double *norms, rp_error *err);

#endif
