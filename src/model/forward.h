/* SPDX-License-Identifier: Apache-2.0 */
/* forward.h: the forward pass, written once for the table of operations (backend.h) and the features of all
 * architectures.
 *
 * A forward owns the activations of one step of at most max_rows rows. Used by one thread.
 */
#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H

#include "backend/backend.h"
#include "model/model.h"

typedef struct model_forward model_forward;

/* model and backend are borrowed. max_logits: maximum number of rows of a step that request logits. RP_ERR_MEMORY. */
int model_forward_new(model_forward **out, const rp_model *m, backend *b, int32_t max_rows, int32_t max_logits,
                      rp_error *err);
void model_forward_free(model_forward *f);

/* Computes a step in two parts, between which a device may compute and the caller may do something else: step, contexts
 * and spans stay as they are until the second. submit writes every row's KV to its slot, and moves the states of the
 * step to each context's last row. collect waits, and writes the outputs of the head of rows that request them to
 * `logits`, in row order ([max_logits][n_outputs] floats; may be NULL if no row requests any). RP_ERR_MEMORY, of a
 * device also RP_ERR_BUDGET and RP_ERR_IO: KV, states and logits of the step are undefined; after a submit that failed
 * there is nothing to collect. */
int model_forward_submit(model_forward *f, const model_step *step, rp_error *err);
int model_forward_collect(model_forward *f, float *logits, rp_error *err);
/* Both. */
int model_forward_step(model_forward *f, const model_step *step, float *logits, rp_error *err);

/* After that step: reads the final hidden states of rows that request them, in row order: [rows][n_embd]. Errors of
   collect. */
int model_forward_read_hidden(model_forward *f, const model_step *step, float *hidden, rp_error *err);

/* Computes rows of the model's draft head (model_draft_head). The step's contexts are of a pool of
 * model_draft_kv_shape. hidden: of the token before each row's, [rows][n_embd]. Of rows that request logits, in row
 * order: their logits, and their hidden states, [rows][n_embd]. RP_ERR_MEMORY. */
int model_forward_draft(model_forward *f, const model_step *step, const float *hidden, float *logits,
                        float *hidden_after, rp_error *err);

/* The layer that a probe compares: the first one after layer 0 that owns KV, or -1 if there is none. */
int32_t model_probe_layer(const rp_model *m);
/* Computes deviations[r], the distance between the cached KV of each row's token and the KV that the token would have
 * in this context. It compares the keys and values of model_probe_layer: they depend on the context, unlike those of
 * layer 0 (CacheBlend; Yao et al., 2025). Rows name the slots of their cached KV. Nothing is stored, and no row may
 * request logits. RP_ERR_MEMORY, RP_ERR_BUDGET, RP_ERR_IO. */
int model_forward_probe(model_forward *f, const model_step *step, float *deviations, rp_error *err);

#endif
