/* SPDX-License-Identifier: Apache-2.0 */
/* model_settle.c: makes a layer's weights of the tensors that a file has for it: fused ones taken apart, others made of
 * several, and what must be there together. q, k and v are rows of one matrix, or gate and up of another.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/model_binding.h"

bool model_layer_has_experts(const rp_model *m, int32_t layer) {
    const model_hparams *hp = &m->net.hp;
    if (hp->experts_by_router) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%d.ffn_gate_inp.weight", layer);
        return hp->n_experts > 0 && gguf_find_tensor(m->file, name);
    }
    return hp->n_experts > 0 && layer >= hp->n_dense && (layer + 1) % hp->experts_every == 0 &&
           model_layer_has_ffn(m, layer);
}

/* Rows [first, first + n) of a matrix, or elements of a vector. */
static model_weight model_weight_part_of(const model_weight *w, int64_t first, int64_t n) {
    model_weight part = *w;
    if (!w->data) return part;
    bool vector = w->n_out == 1;
    BASE_ASSERT(first >= 0 && n > 0 && first + n <= (vector ? w->n_in : w->n_out));
    part.data =
        (const char *)w->data + (vector ? first * (int64_t)sizeof(float) : first * kernel_row_bytes(w->type, w->n_in));
    *(vector ? &part.n_in : &part.n_out) = n;
    return part;
}

static void split_qkv(const model_hparams *hp, const model_layer *l, const model_weight *fused, model_weight *q,
                      model_weight *k, model_weight *v) {
    const int64_t n_q = model_query_rows(hp, l), n_k = (int64_t)l->n_kv_heads * l->key_dim;
    if (!fused->data) return;
    *q = model_weight_part_of(fused, 0, n_q);
    *k = model_weight_part_of(fused, n_q, n_k);
    *v = model_weight_part_of(fused, n_q + n_k, (int64_t)l->n_kv_heads * l->value_dim);
}

int model_binding_missing(const model_binding *b, int32_t layer, const char *name) {
    return base_fail_at(b->err, RP_ERR_FORMAT, gguf_name(b->m->file), 0,
                        "tensor 'blk.%d.%s' is missing: the model file is incomplete", layer, name);
}

/* A bias has the length of all heads together, so it needs a norm over all of them. */
static bool is_biased_by_head(const model_norm *n) { return n->bias.data && n->bias.n_in != n->weight.n_in; }

/* Latent attention: older files have a matrix of the keys and the values of each head, [head][keys, then values]; the
 * keys' part is needed with rows and columns exchanged. */
static int settle_latent(model_binding *b, model_file_layer *f, int32_t layer) {
    const model_hparams *hp = &b->m->net.hp;
    model_layer *l = &f->l;
    if ((hp->n_query_latent > 0) != (l->q_latent.data != NULL && l->q_latent_norm.weight.data != NULL))
        return model_binding_missing(b, layer, l->q_latent.data ? "attn_q_a_norm.weight" : "attn_q_a.weight");
    if (l->head_keys.data && l->head_values.data) return RP_OK;
    if (!f->kv_b.data)
        return model_binding_missing(b, layer, l->head_keys.data ? "attn_v_b.weight" : "attn_k_b.weight");
    const int64_t row_bytes = kernel_row_bytes(f->kv_b.type, hp->value_dim), keys = hp->plain_key_dim;
    l->head_values = f->kv_b;
    l->head_values.data = (const char *)f->kv_b.data + keys * row_bytes;
    l->head_values.n_out = hp->head_value_dim;
    l->head_values.n_slices = hp->n_heads;
    l->head_values.slice_bytes = (keys + hp->head_value_dim) * row_bytes;
    if (b->m->vocabulary_only) return RP_OK; /* no weight is read */
    const uint64_t bytes = sizeof(float) * (uint64_t)hp->n_heads * (uint64_t)keys * (uint64_t)hp->value_dim;
    float *row = base_alloc(sizeof(float) * (size_t)hp->value_dim), *turned = base_alloc((size_t)bytes);
    for (int64_t i = 0; row && turned && i < hp->n_heads * keys; i++) {
        const int64_t head = i / keys, key = i % keys;
        kernel_dequantize(f->kv_b.type,
                          (const char *)f->kv_b.data + head * l->head_values.slice_bytes + key * row_bytes, row,
                          hp->value_dim);
        for (int64_t d = 0; d < hp->value_dim; d++) turned[(head * hp->value_dim + d) * keys + key] = row[d];
    }
    base_free(row);
    b->m->made[layer] = turned; /* model_close frees it */
    if (!row || !turned) return base_fail_memory(b->err, bytes, "latent attention");
    l->head_keys = (model_weight){
        .data = turned, .type = KERNEL_F32, .n_in = keys, .n_out = hp->value_dim, .n_slices = hp->n_heads};
    l->head_keys.slice_bytes = (int64_t)sizeof(float) * keys * hp->value_dim;
    return RP_OK;
}

/* Norms of q and k that follow their rotation. A rotation does not change the root of the mean square, so that they
 * become norms without weights before it, and the product of their weights, which multiplies rotated queries. */
static int settle_rotated_norms(model_binding *b, model_layer *l, int32_t layer) {
    const int64_t n = l->key_dim;
    const float *q = l->q_norm.weight.data, *k = l->k_norm.weight.data;
    if (!(b->m->arch->features & MODEL_QK_NORM_ROTATED) || b->m->vocabulary_only) return RP_OK;
    float *product = b->m->made[layer] = base_alloc(sizeof(float) * (size_t)n);
    if (!product) return base_fail_memory(b->err, (uint64_t)n * sizeof(float), "norms");
    for (int64_t i = 0; i < n; i++) product[i] = q[i] * k[i];
    l->query_weights = l->q_norm.weight;
    l->query_weights.data = product;
    l->q_norm.weight.data = l->k_norm.weight.data = b->m->ones;
    return RP_OK;
}

/* Experts: gate and up are two tensors, or one with the gate of each expert first. */
static int settle_experts(model_binding *b, model_file_layer *f, int32_t layer) {
    const model_hparams *hp = &b->m->net.hp;
    model_ffn *x = &f->l.experts;
    if (!model_layer_has_experts(b->m, layer)) return RP_OK;
    if (f->gate_up_experts.data) {
        if (x->gate.data || x->up.data)
            return base_fail_at(b->err, RP_ERR_UNSUPPORTED, gguf_name(b->m->file), 0,
                                "tensor 'blk.%d.ffn_gate_up_exps.weight' includes gate and up, but they are separate, "
                                "too",
                                layer);
        x->gate = model_weight_part_of(&f->gate_up_experts, 0, hp->n_ff_expert);
        x->up = model_weight_part_of(&f->gate_up_experts, hp->n_ff_expert, hp->n_ff_expert);
    }
    if ((b->m->arch->features & MODEL_FFN_GATED) && x->gate.n_slices != hp->n_experts)
        return model_binding_missing(b, layer, "ffn_gate_exps.weight");
    return x->up.n_slices == hp->n_experts ? RP_OK : model_binding_missing(b, layer, "ffn_up_exps.weight");
}

/* A norm of n_embd elements without weights. */
model_norm model_bare_norm(const rp_model *m) {
    const int64_t n = m->net.hp.n_embd;
    return (model_norm){.weight = {.data = m->ones, .type = KERNEL_F32, .n_in = n, .n_out = 1, .n_slices = 1}};
}

int model_settle_layer(model_binding *b, model_file_layer *f, int32_t layer) {
    const model_hparams *hp = &b->m->net.hp;
    model_layer *l = &f->l;
    int rc;
    split_qkv(hp, l, &f->qkv, &l->q, &l->k, &l->v);
    split_qkv(hp, l, &f->qkv_bias, &l->q_bias, &l->k_bias, &l->v_bias);
    if (f->ssm_x.data) {
        l->recurrent.step_ranks = model_weight_part_of(&f->ssm_x, 0, hp->recurrent.n_steps);
        l->recurrent.select =
            model_weight_part_of(&f->ssm_x, hp->recurrent.n_steps, 2 * (int64_t)hp->recurrent.state_dim);
    }
    l->mixer = model_layer_mixer(b->m, layer);
    l->owns_kv = l->mixer != MODEL_NO_MIXER && (layer < hp->n_layers - hp->n_shared || layer >= hp->n_layers);
    const bool is_attention = model_mixer_attends(l->mixer);
    if (model_mixer_recurs(l->mixer) && !l->owns_kv)
        return base_fail_at(b->err, RP_ERR_UNSUPPORTED, gguf_name(b->m->file), 0,
                            "recurrent layer %d cannot share the KV of another layer", layer);
    if (l->mixer == MODEL_MAMBA2 && !l->recurrent.norm.weight.data)
        return model_binding_missing(b, layer, "ssm_norm.weight");
    if (is_attention && !l->q.data) return model_binding_missing(b, layer, "attn_q.weight");
    if (l->mixer == MODEL_DELTA_NET) { /* all layers alike */
        const bool is_joint = l->recurrent.in[0].n_out > hp->recurrent.channels, has_gate = l->recurrent.in[1].data;
        if (hp->recurrent.joint && !is_joint) return model_binding_missing(b, layer, "ssm_in.weight");
        if (!l->recurrent.in[0].data || (is_joint && has_gate))
            return model_binding_missing(b, layer, "attn_qkv.weight");
        if (!is_joint && !has_gate) return model_binding_missing(b, layer, "attn_gate.weight");
    }
    if ((b->m->arch->features & MODEL_FIRST_UNNORMED) && layer > 0 && !l->attn_norm.weight.data)
        return model_binding_missing(b, layer, "attn_norm.weight");
    const bool is_latent = hp->plain_key_dim > 0;
    if (is_latent && is_attention && (rc = settle_latent(b, f, layer))) return rc;
    if (is_attention && l->owns_kv && !l->k.data) return model_binding_missing(b, layer, "attn_k.weight");
    /* where values are normed, a layer without their matrix takes the keys */
    const bool has_values = l->v.data || is_latent || (b->m->arch->values_normed && l->key_dim == l->value_dim);
    if (is_attention && l->owns_kv && !has_values) return model_binding_missing(b, layer, "attn_v.weight");
    if (b->m->arch->values_normed)
        l->v_norm.weight = (model_weight){
            .data = b->m->ones, .type = KERNEL_F32, .n_in = l->value_dim, .n_out = 1, .n_slices = 1};
    if (l->owns_kv && (l->q_norm.weight.data != NULL) != (l->k_norm.weight.data != NULL))
        return model_binding_missing(b, layer, l->q_norm.weight.data ? "attn_k_norm.weight" : "attn_q_norm.weight");
    if (is_biased_by_head(&l->q_norm) || is_biased_by_head(&l->k_norm))
        return base_fail_at(b->err, RP_ERR_UNSUPPORTED, gguf_name(b->m->file), 0,
                            "per-head norms in layer %d have biases", layer);
    if (l->n_ff > 0 && l->ffn.up.n_out == 2 * (int64_t)l->n_ff) {
        model_weight both = l->ffn.up;
        if (l->ffn.gate.data || l->ffn.up_bias.data)
            return base_fail_at(
                b->err, RP_ERR_UNSUPPORTED, gguf_name(b->m->file), 0,
                "tensor 'blk.%d.ffn_up.weight' includes the gate, but there is a separate gate or a bias", layer);
        l->ffn.gate = model_weight_part_of(&both, 0, l->n_ff);
        l->ffn.up = model_weight_part_of(&both, l->n_ff, l->n_ff);
    }
    if ((rc = settle_experts(b, f, layer)) || (rc = settle_rotated_norms(b, l, layer))) return rc;
    const bool is_beside = (b->m->arch->features & MODEL_EXPERTS_BESIDE) && model_layer_has_experts(b->m, layer);
    if ((b->m->arch->features & MODEL_FFN_GATED) && l->ffn.up.data && !l->ffn.gate.data)
        return model_binding_missing(b, layer, "ffn_gate.weight");
    if (is_beside) {
        l->shared = l->ffn;
        l->ffn = (model_ffn){0};
    }
    if (b->m->arch->features & MODEL_NORMS_BARE) l->attn_norm = l->ffn_norm = model_bare_norm(b->m);
    if (f->attn_norm_2.weight.data) { /* Falcon 40B: attention uses this norm, the feed-forward the other */
        l->ffn_norm = l->attn_norm;
        l->attn_norm = f->attn_norm_2;
    }
    b->m->net.layers[layer] = *l;
    return RP_OK;
}

/* The numbers of xIELU: those of all layers are an array. The file has the alphas before the softplus that makes them
 * positive. */
int model_read_xielu(model_binding *b, int32_t layer) {
    model_xielu *x = &b->m->net.layers[layer].ffn.xielu;
    const struct {
        const char *key;
        float *to;
    } parts[] = {{"alpha_n", &x->alpha_n}, {"alpha_p", &x->alpha_p}, {"beta", &x->beta}, {"eps", &x->eps}};
    for (size_t i = 0; i < BASE_ARRAY_LEN(parts); i++) {
        char key[64];
        gguf_array list;
        snprintf(key, sizeof(key), "xielu.%s", parts[i].key); /* without the architecture's name */
        const bool is_listed = gguf_get_array(b->m->file, key, &list) && list.type == GGUF_F32 &&
                               list.n >= (uint64_t)b->m->net.hp.n_layers;
        if (is_listed) memcpy(parts[i].to, (const char *)list.data + (size_t)layer * sizeof(float), sizeof(float));
        if (!is_listed || !(fabsf(*parts[i].to) < 100.0f))
            return base_fail_at(b->err, RP_ERR_FORMAT, gguf_name(b->m->file), 0,
                                "metadata '%s' is not a list of numbers below 100 for %d layers", key,
                                b->m->net.hp.n_layers);
    }
    x->alpha_p = (float)log1p(exp(x->alpha_p));
    x->alpha_n = (float)(x->beta + log1p(exp(x->alpha_n)));
    return RP_OK;
}

/* How far each layer's gates are cut: minus infinity where they are not. */
int model_read_sparsity(model_binding *b) {
    rp_model *m = b->m;
    char key[64];
    gguf_array list;
    snprintf(key, sizeof(key), "%s.activation_sparsity_scale", m->arch->name);
    if (!gguf_get_array(m->file, key, &list) || list.type != GGUF_F32 || list.n < (uint64_t)m->net.hp.n_layers)
        return base_fail_at(b->err, RP_ERR_FORMAT, gguf_name(m->file), 0,
                            "metadata '%s' is not a list of numbers for %d layers", key, m->net.hp.n_layers);
    for (int32_t i = 0; i < m->net.hp.n_layers; i++) {
        model_ffn *ffn = &m->net.layers[i].ffn;
        memcpy(&ffn->deviations, (const char *)list.data + (size_t)i * sizeof(float), sizeof(float));
        ffn->is_sparse = ffn->deviations > -100.0f;
        if (!(ffn->deviations < 100.0f))
            return base_fail_at(b->err, RP_ERR_FORMAT, gguf_name(m->file), 0, "metadata '%s' has %g, at most 100",
                                key, (double)ffn->deviations);
    }
    return RP_OK;
}
