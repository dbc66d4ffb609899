/* SPDX-License-Identifier: Apache-2.0 */
/* reference_layers.h: the arithmetic of one token in one layer, in double, one formula per function. Internal to
 * reference_*.c. */
#ifndef SUPPORT_REFERENCE_LAYERS_H
#define SUPPORT_REFERENCE_LAYERS_H

#include <stddef.h>

#include "reference_weights.h"

/* y = W x + b; y must not be x. */
void reference_apply(const reference_linear *l, const double *x, double *y);
/* Matrix e of a stack. */
reference_linear reference_matrix_of(const reference_linear *stack, int32_t e);
/* In place, over n values; without a norm the values are unchanged. */
void reference_normalise(const reference_model *m, const reference_norm *norm, double *x, int32_t n);
/* p[i] = exp(p[i]) / sum of all exp(p) (and of exp(*sink), if there is one). n >= 1. */
void reference_softmax(double *p, size_t n, const float *sink);
/* cap tanh(x / cap); x where cap is 0. */
double reference_soft_cap(double x, double cap);

double reference_sigmoid(double x);

/* -slope is the bias of a score for each position of distance; 0 in models without ALiBi. */
double reference_alibi_slope(const reference_model *m, int32_t head);

/* The family's activation, of an mlp. */
double reference_activate(const reference_model *m, double x);

/* y[n_embd]: output of the mlp, or the mixture of experts, for normed[n_embd], the norm of x. Returns the margin of the
 * choice of experts: the smallest probability of a chosen one minus the largest of the others; infinite without a
 * choice. */
double reference_mlp_apply(const reference_model *m, const reference_layer *l, const double *x, const double *normed,
                           double *y);

#endif
