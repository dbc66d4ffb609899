/* SPDX-License-Identifier: Apache-2.0 */
/* model_internal.h: the steps of opening a model, in their order. */
#ifndef MODEL_MODEL_INTERNAL_H
#define MODEL_MODEL_INTERNAL_H

#include "model/model.h"

/* Limits that no real model comes near; with them no product of two sizes overflows 64 bits. */
#define MODEL_MAX_LAYERS 4096
#define MODEL_MAX_DIM (1 << 20)
#define MODEL_MAX_VOCAB (1 << 24)
#define MODEL_MAX_CONTEXT (1 << 26)
#define MODEL_MAX_EXPERTS 4096

/* Key of: every n-th layer has no window; or, for each layer, whether it has. */
#define MODEL_WINDOW_PATTERN "attention.sliding_window_pattern"

/* Needs file, chat: the header's digest. */
void model_identify(rp_model *m);
/* Needs file, arch, tokenizer. RP_ERR_FORMAT, RP_ERR_UNSUPPORTED. */
int model_read_hparams(rp_model *m, rp_error *err);
/* Needs hparams. Every tensor of the file must have a place: one that has none means something that this architecture is not known to
 * do. RP_ERR_FORMAT, RP_ERR_UNSUPPORTED, RP_ERR_MEMORY. */
int model_bind_tensors(rp_model *m, rp_error *err);
/* Need tensors. RP_ERR_UNSUPPORTED (shared states that cannot be), RP_ERR_MEMORY. */
int model_set_layers(rp_model *m, rp_error *err);
int model_set_ropes(rp_model *m, rp_error *err);

#endif
