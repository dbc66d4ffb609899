/* SPDX-License-Identifier: Apache-2.0 */
/* reference_weights.c: the tensors of a file as arrays of F32, fused ones cut into their parts. Written from
 * tools/golden/README.md. Every array is the model's (reference_model.owned). Threads: none.
 */
#include "reference_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- one tensor ------------------------------------------------------------------------------------------------ */

static float *own(reference_model *m, size_t n) {
    if (m->n_owned == m->cap_owned) {
        float **more = reference_alloc(2 * m->cap_owned + 64, sizeof *more);
        if (m->n_owned) memcpy(more, m->owned, m->n_owned * sizeof *more);
        free(m->owned);
        m->owned = more;
        m->cap_owned = 2 * m->cap_owned + 64;
    }
    return m->owned[m->n_owned++] = reference_alloc(n, sizeof(float));
}

static int64_t rows_of(const gguf_tensor *t) { return t->dims[1] * t->dims[2] * t->dims[3]; }

static void dequantize(const gguf_tensor *t, float *to) {
    const int64_t row_bytes = kernel_row_bytes(t->type, t->dims[0]);
    for (int64_t r = 0; r < rows_of(t); r++)
        kernel_dequantize(t->type, (const char *)t->data + r * row_bytes, to + r * t->dims[0], t->dims[0]);
}

const float *reference_tensor(reference_opening *o, const char *name, bool required, const gguf_tensor **t) {
    const gguf_tensor *found = gguf_find_tensor(o->f, name);
    if (t) *t = found;
    if (!found) {
        if (required) o->rc = base_fail(o->err, RP_ERR_FORMAT, "reference: no tensor %s", name);
        return NULL;
    }
    float *w = own(o->m, (size_t)(found->dims[0] * rows_of(found)));
    dequantize(found, w);
    return w;
}

/* ---- matrices and norms, of a layer or (layer -1) of the model ------------------------------------------------- */

typedef struct tensor_name {
    char text[128];
} tensor_name;

static tensor_name name_of(int32_t layer, const char *name, const char *ending) {
    tensor_name full;
    if (layer < 0) snprintf(full.text, sizeof full.text, "%s.%s", name, ending);
    else snprintf(full.text, sizeof full.text, "blk.%d.%s.%s", layer, name, ending);
    return full;
}

static bool exists(reference_opening *o, int32_t layer, const char *name) {
    return gguf_find_tensor(o->f, name_of(layer, name, "weight").text) != NULL;
}

/* n_out 0: as the file has it. */
static reference_linear read_linear(reference_opening *o, int32_t layer, const char *name, int32_t n_in, int32_t n_out,
                                    bool required) {
    const gguf_tensor *t = NULL;
    const tensor_name full = name_of(layer, name, "weight");
    reference_linear l = {.w = reference_tensor(o, full.text, required, &t)};
    if (!l.w) return l;
    l.bias = reference_tensor(o, name_of(layer, name, "bias").text, false, NULL);
    l.n_in = (int32_t)t->dims[0];
    l.n_out = (int32_t)t->dims[1];
    if (l.n_in != n_in || (n_out && l.n_out != n_out))
        o->rc = base_fail(o->err, RP_ERR_FORMAT, "reference: %s is %d x %d, not %d x %d", full.text, l.n_in, l.n_out,
                          n_in, n_out);
    return l;
}

/* width: number of normalised values, a multiple of the norm's weights. */
static reference_norm read_norm(reference_opening *o, int32_t layer, const char *name, int32_t width, bool required) {
    const gguf_tensor *t = NULL;
    const tensor_name full = name_of(layer, name, "weight");
    reference_norm n = {.w = reference_tensor(o, full.text, required, &t)};
    if (!n.w) return n;
    n.bias = reference_tensor(o, name_of(layer, name, "bias").text, false, NULL);
    n.n = (int32_t)t->dims[0];
    n.rows = (int32_t)t->dims[1];
    if (width % (n.n * n.rows) != 0)
        o->rc = base_fail(o->err, RP_ERR_FORMAT, "reference: %s is %d x %d for %d", full.text, n.n, n.rows, width);
    return n;
}

/* Outputs [first, first + n) of a matrix. */
static reference_linear part(const reference_linear *l, int32_t first, int32_t n) {
    reference_linear p = {.w = l->w + (size_t)first * (size_t)l->n_in, .n_in = l->n_in, .n_out = n};
    p.bias = l->bias ? l->bias + first : NULL;
    return p;
}

/* ---- attention ------------------------------------------------------------------------------------------------- */

static void read_fused(reference_opening *o, reference_layer *l, int32_t i) {
    const reference_model *m = o->m;
    const int32_t n_q = m->n_heads * l->key_dim, n_k = l->n_kv_heads * l->key_dim, n_v = l->n_kv_heads * l->value_dim;
    reference_linear all = read_linear(o, i, "attn_qkv", m->n_embd, n_q + n_k + n_v, true);
    if (o->rc) return;
    l->q = part(&all, 0, n_q);
    l->k = part(&all, n_q, n_k);
    l->v = part(&all, n_q + n_k, n_v);
}

static void read_separate(reference_opening *o, reference_layer *l, int32_t i) {
    const reference_model *m = o->m;
    l->q = read_linear(o, i, "attn_q", m->n_embd, m->n_heads * l->key_dim, true);
    if (l->states_of != i) return;
    l->k = read_linear(o, i, "attn_k", m->n_embd, l->n_kv_heads * l->key_dim, true);
    l->v = read_linear(o, i, "attn_v", m->n_embd, l->n_kv_heads * l->value_dim, !m->family->normed_values);
    if (!l->v.w) l->v = l->k;
}

/* Keys and values of each head in one matrix: [head][keys, then values][n_latent]. */
static void split_latent(reference_opening *o, reference_layer *l, int32_t i) {
    const int32_t n = o->m->n_latent, plain = o->m->key_dim - o->m->n_rotated, value = o->m->value_dim;
    const reference_linear both = read_linear(o, i, "attn_kv_b", n, o->m->n_heads * (plain + value), true);
    if (o->rc) return;
    float *keys = own(o->m, (size_t)(o->m->n_heads * plain * n)),
          *values = own(o->m, (size_t)(o->m->n_heads * value * n));
    for (int32_t h = 0; h < o->m->n_heads; h++)
        for (int32_t c = 0; c < n; c++) {
            const float *column = both.w + h * (plain + value) * n + c;
            for (int32_t d = 0; d < plain; d++) keys[(h * n + c) * plain + d] = column[d * n];
            for (int32_t d = 0; d < value; d++) values[(h * value + d) * n + c] = column[(plain + d) * n];
        }
    l->latent_keys = keys;
    l->latent_values = values;
}

static void read_latent(reference_opening *o, reference_layer *l, int32_t i) {
    const reference_model *m = o->m;
    const bool has_latent = exists(o, i, "attn_q_a");
    if (has_latent) {
        l->q_latent = read_linear(o, i, "attn_q_a", m->n_embd, 0, true);
        l->q_latent_norm = read_norm(o, i, "attn_q_a_norm", l->q_latent.n_out, true);
    }
    if (exists(o, i, "indexer.attn_k")) {
        l->index_q = read_linear(o, i, "indexer.attn_q_b", l->q_latent.n_out, m->n_index_heads * m->index_dim, true);
        l->index_k = read_linear(o, i, "indexer.attn_k", m->n_embd, m->index_dim, true);
        l->index_weights = read_linear(o, i, "indexer.proj", m->n_embd, m->n_index_heads, true);
        l->index_norm = reference_tensor(o, name_of(i, "indexer.k_norm", "weight").text, true, NULL);
        l->index_bias = reference_tensor(o, name_of(i, "indexer.k_norm", "bias").text, true, NULL);
    }
    l->q = read_linear(o, i, has_latent ? "attn_q_b" : "attn_q", has_latent ? l->q_latent.n_out : m->n_embd,
                       m->n_heads * l->key_dim, true);
    l->latent_kv = read_linear(o, i, "attn_kv_a_mqa", m->n_embd, m->n_latent + m->n_rotated, true);
    l->latent_norm = read_norm(o, i, "attn_kv_a_norm", m->n_latent, true);
    if (exists(o, i, "attn_kv_b")) {
        split_latent(o, l, i);
        return;
    }
    l->latent_keys = reference_tensor(o, name_of(i, "attn_k_b", "weight").text, true, NULL);
    l->latent_values = reference_tensor(o, name_of(i, "attn_v_b", "weight").text, true, NULL);
}

static void read_attention(reference_opening *o, reference_layer *l, int32_t i) {
    const reference_model *m = o->m;
    if (m->n_latent > 0) read_latent(o, l, i);
    else if (exists(o, i, "attn_qkv")) read_fused(o, l, i);
    else read_separate(o, l, i);
    l->o = read_linear(o, i, "attn_output", m->n_heads * l->value_dim, m->n_embd, true);
    l->q_norm = read_norm(o, i, "attn_q_norm", m->n_heads * l->key_dim, false);
    l->k_norm = read_norm(o, i, "attn_k_norm", l->n_kv_heads * l->key_dim, false);
    if (m->family->normed_values) {
        float *ones = own(o->m, (size_t)l->value_dim);
        for (int32_t d = 0; d < l->value_dim; d++) ones[d] = 1;
        l->v_norm = (reference_norm){.w = ones, .n = l->value_dim, .rows = 1};
    }
    l->sinks = reference_tensor(o, name_of(i, "attn_sinks", "weight").text, false, NULL);
    l->gate = read_linear(o, i, "attn_gate", m->n_embd, m->n_heads * m->value_dim, false);
    l->norms_rotated = m->family->norms_rotated ||
                       (m->family->chunk > 0 && l->rope && m->n_experts != m->family->normless_experts);
    l->tempered = m->temperature > 0 && (m->family->chunk == 0 || !l->rope);
}

/* The last n_shared_layers have no keys and values: they attend to those of the last layer before all of them that has
 * the same window. (Files where none has it, or where it rotates otherwise, are refused by the library.) */
static int32_t states_of(const reference_model *m, int32_t i) {
    const int32_t n_own = m->n_layers - m->n_shared_layers;
    if (i < n_own) return i;
    for (int32_t k = n_own - 1; k >= 0; k--)
        if (m->layers[k].window == m->layers[i].window) return k;
    return n_own - 1;
}

/* ---- mlp ------------------------------------------------------------------------------------------------------- */

static reference_mlp read_mlp(reference_opening *o, int32_t i, const char *gate, const char *up, const char *down) {
    const int32_t n_embd = o->m->n_embd;
    reference_mlp p = {.up = read_linear(o, i, up, n_embd, 0, true), .gate = read_linear(o, i, gate, n_embd, 0, false)};
    p.down = read_linear(o, i, down, p.gate.w ? p.gate.n_out : p.up.n_out, n_embd, true);
    return p;
}

/* Gate and up in one matrix, the gate first. */
static reference_mlp read_fused_mlp(reference_opening *o, int32_t i) {
    const int32_t n_embd = o->m->n_embd, n_ff = o->m->layers[i].n_ff;
    reference_linear both = read_linear(o, i, "ffn_up", n_embd, 2 * n_ff, true);
    reference_mlp p = {.down = read_linear(o, i, "ffn_down", n_ff, n_embd, true)};
    if (o->rc) return p;
    p.gate = part(&both, 0, n_ff);
    p.up = part(&both, n_ff, n_ff);
    return p;
}

static bool gate_is_in_up(reference_opening *o, int32_t i) {
    const gguf_tensor *up = gguf_find_tensor(o->f, name_of(i, "ffn_up", "weight").text);
    return up && up->dims[1] == 2 * (int64_t)o->m->layers[i].n_ff && !exists(o, i, "ffn_gate");
}

/* Older files have experts as separate tensors: stacks ffn_KIND.0, ffn_KIND.1, ... */
static reference_linear stack_experts(reference_opening *o, int32_t i, const char *kind, int32_t n_in) {
    reference_linear all = {0};
    float *w = NULL;
    for (int32_t e = 0; e < o->m->n_experts && !o->rc; e++) {
        char name[64];
        snprintf(name, sizeof name, "ffn_%s.%d", kind, e);
        reference_linear one = read_linear(o, i, name, n_in, all.n_out, true);
        if (!one.w) break;
        size_t n = (size_t)n_in * (size_t)one.n_out;
        if (e == 0)
            all = (reference_linear){.w = w = own(o->m, n * (size_t)o->m->n_experts), .n_in = n_in, .n_out = one.n_out};
        memcpy(w + (size_t)e * n, one.w, n * sizeof *w);
    }
    return all;
}

/* Rows [first, first + n) of each of the stacked matrices. */
static reference_linear part_of_each(reference_opening *o, const reference_linear *all, int32_t first, int32_t n) {
    const size_t row = (size_t)all->n_in, from = row * (size_t)all->n_out, to = row * (size_t)n;
    float *w = own(o->m, to * (size_t)o->m->n_experts);
    for (int32_t e = 0; e < o->m->n_experts; e++)
        memcpy(w + (size_t)e * to, all->w + (size_t)e * from + row * (size_t)first, to * sizeof *w);
    return (reference_linear){.w = w, .n_in = all->n_in, .n_out = n};
}

static reference_mlp read_experts(reference_opening *o, int32_t i) {
    if (exists(o, i, "ffn_gate_up_exps")) {
        const reference_linear both = read_linear(o, i, "ffn_gate_up_exps", o->m->n_embd, 0, true);
        if (o->rc) return (reference_mlp){0};
        reference_mlp fused = {.gate = part_of_each(o, &both, 0, both.n_out / 2),
                               .up = part_of_each(o, &both, both.n_out / 2, both.n_out / 2)};
        fused.down = read_linear(o, i, "ffn_down_exps", both.n_out / 2, o->m->n_embd, true);
        return fused;
    }
    if (exists(o, i, "ffn_up_exps")) return read_mlp(o, i, "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps");
    reference_mlp p = {.gate = stack_experts(o, i, "gate", o->m->n_embd),
                       .up = stack_experts(o, i, "up", o->m->n_embd)};
    p.down = stack_experts(o, i, "down", p.up.n_out);
    return p;
}

static void read_mlps(reference_opening *o, reference_layer *l, int32_t i) {
    const reference_model *m = o->m;
    l->router = read_linear(o, i, "ffn_gate_inp", m->n_embd, m->n_experts, false);
    char other[64]; /* of hy_v3 */
    snprintf(other, sizeof other, "blk.%d.exp_probs_b", i);
    l->correction = reference_tensor(o, name_of(i, "exp_probs_b", "bias").text, false, NULL);
    if (!l->correction) l->correction = reference_tensor(o, other, false, NULL);
    if (l->router.w) l->mlp = read_experts(o, i);
    else if (gate_is_in_up(o, i)) l->mlp = read_fused_mlp(o, i);
    else l->mlp = read_mlp(o, i, "ffn_gate", "ffn_up", "ffn_down");
    static const char *const xielu[] = {"alpha_n", "alpha_p", "beta", "eps"};
    for (int k = 0; k < 4; k++) {
        char key[64];
        gguf_array list;
        snprintf(key, sizeof key, "xielu.%s", xielu[k]);
        if (!gguf_get_array(o->f, key, &list)) continue;
        memcpy(&l->xielu_numbers[k], (const char *)list.data + (size_t)i * sizeof(float), sizeof(float));
        l->mlp.xielu[k] = &l->xielu_numbers[k];
    }
    if (exists(o, i, "ffn_up_shexp")) l->shared = read_mlp(o, i, "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp");
    l->routed = reference_tensor(o, name_of(i, "ffn_gate_inp", "scale").text, false, NULL);
    if (l->routed) {
        l->shared = read_mlp(o, i, "ffn_gate", "ffn_up", "ffn_down");
        l->expert_factors = reference_tensor(o, name_of(i, "ffn_down_exps", "scale").text, true, NULL);
        l->experts_norm = read_norm(o, i, "pre_ffw_norm_2", m->n_embd, true);
        l->post_shared_norm = read_norm(o, i, "post_ffw_norm_1", m->n_embd, true);
        l->post_experts_norm = read_norm(o, i, "post_ffw_norm_2", m->n_embd, true);
    }
    if (exists(o, i, "ffn_gate_inp_shexp"))
        l->shared_gate = read_linear(o, i, "ffn_gate_inp_shexp", m->n_embd, 1, true);
}

/* ---- layers ---------------------------------------------------------------------------------------------------- */

/* A norm of a row without weights. */
static reference_norm bare_norm(reference_opening *o) {
    float *ones = own(o->m, (size_t)o->m->n_embd);
    for (int32_t d = 0; d < o->m->n_embd; d++) ones[d] = 1;
    return (reference_norm){.w = ones, .n = o->m->n_embd, .rows = 1};
}

static void read_norms(reference_opening *o, reference_layer *l, int32_t i) {
    const reference_model *m = o->m;
    if (m->family->bare_norms) {
        l->attn_norm = l->mlp_norm = bare_norm(o);
        return;
    }
    const char *mlp_norm = m->family->mlp_norm;
    const bool two = exists(o, i, "attn_norm_2"); /* falcon 40B: then the first is the mlp's */
    l->attn_norm = read_norm(o, i, two ? "attn_norm_2" : "attn_norm", m->n_embd, false);
    l->mlp_norm = read_norm(o, i, two ? "attn_norm" : mlp_norm ? mlp_norm
                                                               : "ffn_norm",
                            m->n_embd, false);
    if (!mlp_norm) l->post_attn_norm = read_norm(o, i, "post_attention_norm", m->n_embd, false);
    l->post_mlp_norm = read_norm(o, i, "post_ffw_norm", m->n_embd, false);
    l->parallel = m->parallel || (m->family->parallel_without_norm && !l->mlp_norm.w);
}

static const reference_rope *rope_of(reference_opening *o, int32_t i) {
    const reference_model *m = o->m;
    const int32_t every = m->family->unrotated_every;
    if (m->family->rotates_locally && m->window > 0 && !reference_layer_is_local(o, i)) return NULL;
    if (m->family->rotation == REFERENCE_UNROTATED || (every && (i + 1) % every == 0)) return NULL;
    return &m->ropes[reference_layer_is_local(o, i)];
}

static void read_streams(reference_opening *o, reference_layer *l, int32_t i) {
    const reference_model *m = o->m;
    const int32_t n = m->n_streams;
    char key[64];
    gguf_array list;
    l->altup_norm = read_norm(o, i, "altup_router_norm", m->n_embd, true);
    l->altup_router = read_linear(o, i, "altup_router", m->n_embd, n, true);
    l->altup_predict = read_linear(o, i, "altup_predict_coef", n, n * n, true);
    l->altup_correct = read_linear(o, i, "altup_correct_coef", n, n, true);
    l->altup_scale = reference_tensor(o, name_of(i, "altup_correct_scale", "weight").text, true, NULL);
    l->laurel_a = read_linear(o, i, "laurel_l", m->n_embd, 0, true);
    l->laurel_b = read_linear(o, i, "laurel_r", l->laurel_a.n_out, m->n_embd, true);
    l->laurel_norm = read_norm(o, i, "laurel_post_norm", m->n_embd, true);
    snprintf(key, sizeof key, "%s.activation_sparsity_scale", m->family->name);
    if (!gguf_get_array(o->f, key, &list)) return;
    memcpy(&l->deviations, (const char *)list.data + (size_t)i * sizeof(float), sizeof(float));
    if (l->deviations > -100) l->mlp.deviations = &l->deviations;
}

static void read_layer(reference_opening *o, int32_t i) {
    reference_model *m = o->m;
    reference_layer *l = &m->layers[i];
    l->window = reference_layer_is_local(o, i) ? m->window : 0;
    l->rope = rope_of(o, i);
    l->states_of = states_of(m, i);
    read_norms(o, l, i);
    read_attention(o, l, i);
    read_mlps(o, l, i);
    if (m->n_streams > 0) read_streams(o, l, i);
    l->factor = reference_tensor(o, name_of(i, "layer_output_scale", "weight").text, false, NULL);
    if (m->n_layer_embd == 0) return;
    l->embedding_gate = read_linear(o, i, "inp_gate", m->n_embd, m->n_layer_embd, true);
    l->embedding_up = read_linear(o, i, "proj", m->n_layer_embd, m->n_embd, true);
    l->embedding_norm = read_norm(o, i, "post_norm", m->n_embd, true);
}

void reference_read_weights(reference_opening *o) {
    reference_model *m = o->m;
    const gguf_tensor *t = NULL;
    m->embedding = reference_tensor(o, "token_embd.weight", true, &t);
    if (o->rc) return;
    m->n_vocab = (int32_t)t->dims[1];
    m->positions = reference_tensor(o, "position_embd.weight", false, &t);
    m->n_positions = t ? (int32_t)t->dims[1] : 0;
    m->embedding_norm = read_norm(o, -1, "token_embd_norm", m->n_embd, false);
    m->output_norm = m->family->bare_norms ? bare_norm(o) : read_norm(o, -1, "output_norm", m->n_embd, true);
    m->index_rope = m->ropes[0];
    m->index_rope.adjacent = !m->family->index_halves;
    m->output = read_linear(o, -1, "output", m->n_embd, m->n_vocab, false);
    if (!m->output.w) m->output = (reference_linear){.w = m->embedding, .n_in = m->n_embd, .n_out = m->n_vocab};
    if (m->n_streams > 0) {
        m->streams_in = read_linear(o, -1, "altup_proj", m->n_embd, m->n_embd, true);
        m->streams_out = read_linear(o, -1, "altup_unembd_proj", m->n_embd, m->n_embd, true);
    }
    if (m->n_layer_embd > 0) {
        const int32_t n = m->n_layers * m->n_layer_embd;
        m->layer_embeddings = reference_tensor(o, "per_layer_token_embd.weight", true, NULL);
        m->layer_projection = read_linear(o, -1, "per_layer_model_proj", m->n_embd, n, true);
        m->layer_norm_of_projection = read_norm(o, -1, "per_layer_proj_norm", n, true);
    }
    for (int32_t i = 0; i < m->n_layers && !o->rc; i++) read_layer(o, i);
}
