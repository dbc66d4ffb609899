/* SPDX-License-Identifier: Apache-2.0 */
/* forward.h: the forward pass, written once against the table of operations (backend.h) and the features of an architecture.
 *
 * A forward owns the activations of one step of at most max_rows rows. Used by one thread.
 */
#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H

#include "model/backend.h"

typedef struct model_forward model_forward;

/* model and backend are borrowed. max_logits: rows of a step that may ask for logits. RP_ERR_MEMORY. */
int model_forward_new(model_forward **out, const rp_model *m, backend *b, int32_t max_rows, int32_t max_logits, rp_error *err);
void model_forward_free(model_forward *f);

/* Computes a step: every row's states go to its slot; logits of the rows that want them go to `logits`, in row order
 * ([max_logits][n_vocab] floats, may be NULL if no row wants any). RP_ERR_MEMORY: states of the step are undefined. */
int model_forward_step(model_forward *f, const model_step *step, float *logits, rp_error *err);

/* The layer that a probe looks at: the first one behind layer 0 that owns states, or -1: there is none. */
int32_t model_probe_layer(const rp_model *m);
/* Computes how far the cached states of each row's token are from those it would have here: deviations[r], by the keys and values of
 * model_probe_layer, which depend on what the token sees, where those of layer 0 do not (CacheBlend; Yao et al., 2025). Rows say where
 * their cached states are; nothing is stored, no row asks for logits. RP_ERR_MEMORY. */
int model_forward_probe(model_forward *f, const model_step *step, float *deviations, rp_error *err);

#endif
