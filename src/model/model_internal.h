/* SPDX-License-Identifier: Apache-2.0 */
/* model_internal.h: the steps of opening a model, in their order. */
#ifndef MODEL_MODEL_INTERNAL_H
#define MODEL_MODEL_INTERNAL_H

#include "model/model.h"

/* Limits far above every real model; they keep products of two sizes within 64 bits. */
#define MODEL_MAX_LAYERS 4096
#define MODEL_MAX_DIM (1 << 20)
#define MODEL_MAX_VOCAB (1 << 24)
#define MODEL_MAX_CONTEXT (1 << 26)
#define MODEL_MAX_EXPERTS 4096
#define MODEL_MAX_TYPES 1024
#define MODEL_MAX_SCORES 65536

/* Metadata key: a number n (every n-th layer has no window), or an array of booleans (the layer has a window). */
#define MODEL_WINDOW_PATTERN "attention.sliding_window_pattern"

/* Instead of all later steps, for a mock. Needs file, tokenizer, chat. RP_ERR_FORMAT, RP_ERR_MEMORY. */
int model_make_mock(rp_model *m, rp_error *err);
/* The same as model_identify, and the fingerprint: no weight is read. They differ from those of the model. */
void model_identify_mock(rp_model *m);
/* Reads general.sampling.* into advice and advised. Needs file. */
void model_read_advice(rp_model *m);
/* Computes header_digest. Needs file, chat. */
void model_identify(rp_model *m);
/* Needs file, arch, tokenizer. Makes the layers, with shape and window. RP_ERR_FORMAT, RP_ERR_UNSUPPORTED,
 * RP_ERR_MEMORY. */
int model_read_hparams(rp_model *m, rp_error *err);
/* How a layer mixes tokens. Needs hparams. */
model_mixer model_layer_mixer(const rp_model *m, int32_t layer);
bool model_layer_has_ffn(const rp_model *m, int32_t layer);
bool model_layer_has_indexer(const rp_model *m, int32_t layer);
/* Needs hparams. Every tensor of the file must be known: an unknown one is part of a feature that this architecture
 * does not have here. RP_ERR_FORMAT, RP_ERR_UNSUPPORTED, RP_ERR_MEMORY. */
int model_bind_tensors(rp_model *m, rp_error *err);
/* Need tensors; model_set_layers lists the matrices, too. RP_ERR_UNSUPPORTED (impossible sharing of KV),
   RP_ERR_MEMORY. */
int model_set_layers(rp_model *m, rp_error *err);
int model_set_ropes(rp_model *m, rp_error *err);

#endif
