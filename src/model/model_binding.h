/* SPDX-License-Identifier: Apache-2.0 */
/* model_binding.h: between the tensors of a file (model_tensors.c) and the weights of a layer (model_settle.c). */
#ifndef MODEL_MODEL_BINDING_H
#define MODEL_MODEL_BINDING_H

#include "model/model_internal.h"

/* A layer's tensors as stored in the file, before fused ones are split. */
typedef struct model_file_layer {
    model_layer l;
    model_weight qkv, qkv_bias, kv_b, ssm_x, gate_up_experts;
    model_norm attn_norm_2;
} model_file_layer;

typedef struct model_binding {
    rp_model *m;
    bool *bound; /* by tensor of the file: true if it is bound to a weight */
    rp_error *err;
} model_binding;

/* Rows of a layer's matrix of queries: those of latent attention are plain and rotated, gates are beside them. */
static inline int64_t model_query_rows(const model_hparams *hp, const model_layer *l) {
    const int32_t own = hp->plain_key_dim > 0 ? hp->plain_key_dim + hp->rot_dim : l->key_dim;
    return (int64_t)l->n_heads * own * (hp->attention_gated ? 2 : 1);
}

/* Needs hparams. */
bool model_layer_has_experts(const rp_model *m, int32_t layer);
/* RP_ERR_FORMAT, with the name of a layer's tensor. */
int model_binding_missing(const model_binding *b, int32_t layer, const char *name);
/* A norm of n_embd elements without weights, if the architecture has such (rp_model.ones). */
model_norm model_bare_norm(const rp_model *m);
/* Fills in a layer of the network. RP_ERR_FORMAT, RP_ERR_UNSUPPORTED, RP_ERR_MEMORY. */
int model_settle_layer(model_binding *b, model_file_layer *f, int32_t layer);
/* Numbers of the layers' feed-forwards that are lists in the metadata: xIELU's, of a layer; how far the gates of each
 * layer are cut. RP_ERR_FORMAT. */
int model_read_xielu(model_binding *b, int32_t layer);
int model_read_sparsity(model_binding *b);

#endif
