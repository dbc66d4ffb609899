/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c: see forward.h. */
#include "model/forward.h"

#include <math.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

/* X: the residual stream. LATENT_KV: of latent attention, as projected. Q_HEADS: queries as their matrix yields them,
 * if Q is made of them: of latent attention, or with gates. Q_LATENT: before the second matrix of latent attention.
 * ATTENTION_GATE: gates alone. MIXED: output of the feed-forward. SHARED, ROUTES, GATES: of a mixture of experts.
 * INPUTS, SCANNED: of recurrent layers. HIDDEN, JOINED: of a draft head. EMBEDDINGS, EMBEDDING, EMBEDDED: of all
 * layers, of one, and what it makes of it. */
enum { X,
       NORMED,
       Q,
       K,
       V, /* of latent attention: the latent part of a latent vector, normed */
       LATENT_KV,
       Q_LATENT,
       INDEX_Q, /* of an indexer */
       INDEX_K,
       INDEX_WEIGHTS,
       Q_HEADS,
       ATTENTION_GATE,
       ATTENDED,
       VALUES, /* of latent attention: what heads make of ATTENDED */
       PROJECTED,
       GATE,
       UP,
       MIXED,
       ROUTES,
       SHARED,
       GATES,
       INPUTS,
       STEPS = INPUTS + MODEL_MAX_SCANNED, /* of Mamba1 and Kimi delta attention: what time steps are projected from */
       GATE_RANKS,                         /* of the latter: what gates are projected from */
       SCANNED,
       EMBEDDINGS,
       EMBEDDING,
       EMBEDDED,
       LAUREL,
       LAUREL_INNER,
       ROUTED,  /* of AltUp: tanh of the router's scores, */
       PREDICT, /* and coefficients */
       CORRECT,
       STREAMS,
       PREDICTED = STREAMS + MODEL_MAX_STREAMS,
       HIDDEN = PREDICTED + MODEL_MAX_STREAMS,
       JOINED,
       HEAD,
       LOGITS,
       N_BUFFERS };

struct model_forward {
    const rp_model *model;
    backend *backend;
    int32_t max_rows, max_logits;
    backend_buffer *buffers[N_BUFFERS];
    int32_t *wanted;  /* [max_rows] */
    int32_t n_logits; /* rows of LOGITS, of the step that was submitted last */
};

static int new_buffers(model_forward *f, rp_error *err) {
    const model_hparams *hp = &f->model->net.hp;
    const int32_t n_ff = BASE_MAX(model_has_dense(hp) ? hp->n_ff : 0, hp->n_ff_shared);
    /* of a head in Q_HEADS */
    const int32_t query_dim = hp->attention_gated     ? 2 * hp->key_dim
                              : hp->plain_key_dim > 0 ? hp->plain_key_dim + hp->rot_dim
                                                      : 0;
    const bool is_gated = hp->attention_gated || (f->model->arch->features & MODEL_GATE_MATRIX);
    int32_t widths[N_BUFFERS] = {
        /* 0: unused buffer */
        [X] = hp->n_embd,
        [NORMED] = hp->n_embd,
        [Q] = hp->n_heads * hp->key_dim,
        [K] = hp->n_kv_heads * hp->key_dim,
        [V] = hp->n_kv_heads * hp->value_dim,
        [LATENT_KV] = hp->plain_key_dim > 0 ? hp->key_dim : 0,
        [Q_LATENT] = hp->n_query_latent,
        [INDEX_Q] = hp->n_index_heads * hp->index_dim,
        [INDEX_K] = hp->index_dim,
        [INDEX_WEIGHTS] = hp->n_index_heads,
        [Q_HEADS] = hp->n_heads * query_dim,
        [ATTENTION_GATE] = is_gated ? hp->n_heads * hp->value_dim : 0,
        [ATTENDED] = hp->n_heads * hp->value_dim,
        [VALUES] = hp->n_heads * hp->head_value_dim,
        [PROJECTED] = hp->n_embd,
        [GATE] = n_ff,
        [UP] = n_ff,
        [MIXED] = hp->n_embd,
        [ROUTES] = hp->n_experts,
        [SHARED] = hp->n_ff_shared > 0 ? hp->n_embd : 0,
        [GATES] = hp->n_ff_shared > 0 ? 1 : 0,
        [EMBEDDINGS] = hp->n_layers * hp->n_layer_embd,
        [EMBEDDING] = hp->n_layer_embd,
        [EMBEDDED] = hp->n_layer_embd,
        [LAUREL] = hp->n_laurel > 0 ? hp->n_embd : 0,
        [LAUREL_INNER] = hp->n_laurel,
        [ROUTED] = hp->n_streams,
        [PREDICT] = hp->n_streams * hp->n_streams,
        [CORRECT] = hp->n_streams,
        [HIDDEN] = model_has_draft_head(f->model) ? hp->n_embd : 0,
        [JOINED] = model_has_draft_head(f->model) ? 2 * hp->n_embd : 0,
        [HEAD] = hp->n_embd,
        [LOGITS] = hp->n_outputs,
    };
    for (int32_t l = 0; l < hp->n_layers; l++) {
        const model_layer *layer = &f->model->net.layers[l];
        if (!model_mixer_recurs(layer->mixer)) continue;
        for (int i = 0; i < MODEL_MAX_INPUTS; i++) widths[INPUTS + i] = (int32_t)layer->recurrent.in[i].n_out;
        if (layer->mixer == MODEL_MAMBA1) {
            widths[INPUTS + 1] = widths[INPUTS + 2] = hp->recurrent.channels;
            widths[INPUTS + 3] = 2 * hp->recurrent.state_dim;
            widths[STEPS] = hp->recurrent.n_steps;
        }
        widths[SCANNED] = (int32_t)layer->recurrent.out.n_in;
        if (layer->mixer == MODEL_KIMI_DELTA) {
            widths[INPUTS + 4] = widths[INPUTS + 5] = widths[SCANNED];
            widths[STEPS] = widths[GATE_RANKS] = hp->recurrent.n_steps;
        }
    }
    for (int i = 0; i < hp->n_streams; i++) widths[STREAMS + i] = widths[PREDICTED + i] = hp->n_embd;
    for (int i = 0; i < N_BUFFERS; i++) {
        int32_t rows = i == HEAD || i == LOGITS ? f->max_logits : f->max_rows;
        if (widths[i] == 0) continue;
        int rc = f->backend->ops->buffer_new(f->backend, rows, widths[i], &f->buffers[i], err);
        if (rc) return rc;
    }
    return RP_OK;
}

int model_forward_new(model_forward **out, const rp_model *m, backend *b, int32_t max_rows, int32_t max_logits,
                      rp_error *err) {
    *out = NULL;
    BASE_ASSERT(max_rows > 0 && max_logits >= 0);
    model_forward *f = base_calloc(1, sizeof(*f));
    if (!f) return base_fail_memory(err, sizeof(*f), "the forward pass");
    *f = (model_forward){.model = m, .backend = b, .max_rows = max_rows, .max_logits = max_logits};
    f->wanted = base_calloc((size_t)max_rows, sizeof(int32_t));
    int rc = f->wanted ? new_buffers(f, err) : base_fail_memory(err, (uint64_t)max_rows * 4, "the forward pass");
    if (rc) {
        model_forward_free(f);
        return rc;
    }
    *out = f;
    return RP_OK;
}

void model_forward_free(model_forward *f) {
    if (!f) return;
    for (int i = 0; i < N_BUFFERS; i++)
        if (f->buffers[i]) f->backend->ops->buffer_free(f->backend, f->buffers[i]);
    base_free(f->wanted);
    base_free(f);
}

typedef const model_weight *const weights[];

/* dst[i] = weights[i] * in + biases[i], with the rows' adapters. indices: as in backend_ops.adapt */
static void model_forward_linear(model_forward *f, const backend_buffer *in, const int32_t *indices, int32_t rows,
                                 int32_t n, const model_weight *const *matrices, const model_weight *const *biases,
                                 backend_buffer *const *dst) {
    const backend_ops *op = f->backend->ops;
    BASE_ASSERT(n > 0 && n <= BACKEND_MAX_WEIGHTS);
    op->linear(f->backend, in, rows, n, matrices, biases, dst);
    if (op->has_adapters(f->backend)) op->adapt(f->backend, in, indices, rows, n, matrices, dst);
}

/* KV of earlier tokens may still be loading from disk; layers are loaded in the order of their use. */
static void wait_for_kv(const model_step *step, const model_layer *l) {
    const int32_t last = BASE_MAX(l->states, l->index);
    for (int32_t i = 0; i < step->n_contexts; i++) kv_context_wait(step->contexts[i], last + 1);
}

/* K = the latent vector of each row: the part that store will rotate, and the normed latent part, which is V, too. */
static void model_forward_project_latent_kv(model_forward *f, const model_layer *l, const backend_buffer *in,
                                            int32_t rows) {
    const model_hparams *hp = &f->model->net.hp;
    const backend_ops *op = f->backend->ops;
    backend_buffer **buf = f->buffers, *raw = buf[LATENT_KV];
    BASE_DCHECK(hp->key_dim == hp->rot_dim + hp->value_dim);
    model_forward_linear(f, in, NULL, rows, 1, (weights){&l->k}, NULL, &raw);
    op->copy_runs(f->backend, raw, (backend_columns){0, 0}, rows, hp->value_dim, 1, buf[V], (backend_columns){0, 0});
    op->norm(f->backend, buf[V], &l->latent_norm, rows, buf[V]);
    op->copy_runs(f->backend, raw, (backend_columns){hp->value_dim, 0}, rows, hp->rot_dim, 1, buf[K],
                  (backend_columns){0, 0});
    op->copy_runs(f->backend, buf[V], (backend_columns){0, 0}, rows, hp->value_dim, 1, buf[K],
                  (backend_columns){hp->rot_dim, 0});
}

/* Q = the queries, in a latent vector's dimensions: a head's matrix of keys is multiplied into its query, not into each
   vector. */
static void model_forward_project_latent_queries(model_forward *f, const model_layer *l, const backend_buffer *in,
                                                 int32_t rows) {
    const model_hparams *hp = &f->model->net.hp;
    const backend_ops *op = f->backend->ops;
    const int32_t own = hp->plain_key_dim + hp->rot_dim;
    backend_buffer **buf = f->buffers;
    if (l->q_latent.data) {
        model_forward_linear(f, in, NULL, rows, 1, (weights){&l->q_latent}, NULL, &buf[Q_LATENT]);
        op->norm(f->backend, buf[Q_LATENT], &l->q_latent_norm, rows, buf[Q_LATENT]);
        in = buf[Q_LATENT];
    }
    model_forward_linear(f, in, NULL, rows, 1, (weights){&l->q}, NULL, &buf[Q_HEADS]);
    op->copy_runs(f->backend, buf[Q_HEADS], (backend_columns){hp->plain_key_dim, own}, rows, hp->rot_dim, hp->n_heads,
                  buf[Q], (backend_columns){0, hp->key_dim});
    op->linear_runs(f->backend, buf[Q_HEADS], (backend_columns){0, own}, rows, &l->head_keys, buf[Q],
                    (backend_columns){hp->rot_dim, hp->key_dim});
}

/* The indexer of a layer, of its input and the latent queries (Q_LATENT): stores keys, and chooses what its attention
 * and that of the layers after it see. */
static void model_forward_index(model_forward *f, const model_step *step, int32_t layer, const backend_buffer *in,
                                bool stores) {
    const model_layer *l = &f->model->net.layers[layer];
    const backend_ops *op = f->backend->ops;
    backend_buffer **buf = f->buffers;
    BASE_ASSERT(op->index_store && op->index_choose);
    model_forward_linear(f, in, NULL, step->n_rows, 2, (weights){&l->index_k, &l->index_weights}, NULL,
                         (backend_buffer *[]){buf[INDEX_K], buf[INDEX_WEIGHTS]});
    model_forward_linear(f, buf[Q_LATENT], NULL, step->n_rows, 1, (weights){&l->index_q}, NULL, &buf[INDEX_Q]);
    if (stores) op->index_store(f->backend, layer, buf[INDEX_K]);
    wait_for_kv(step, l);
    op->index_choose(f->backend, layer, buf[INDEX_Q], buf[INDEX_WEIGHTS]);
}

/* Buffers [first, end), of Q, K and V, = projections of `in` */
static void model_forward_project(model_forward *f, int32_t layer, const backend_buffer *in, int32_t rows, int first,
                                  int end) {
    const model_layer *l = &f->model->net.layers[layer];
    const model_weight *const matrices[] = {&l->q, &l->k, &l->v}, *const biases[] = {&l->q_bias, &l->k_bias,
                                                                                     &l->v_bias};
    const model_norm *const norms[] = {&l->q_norm, &l->k_norm, &l->v_norm};
    backend *b = f->backend;
    const backend_ops *op = b->ops;
    backend_buffer **buf = f->buffers;
    const model_hparams *hp = &f->model->net.hp;
    float limit = hp->qkv_limit;
    BASE_ASSERT(first >= Q && first < end && end <= V + 1);
    if (hp->plain_key_dim > 0) {
        if (first == Q) model_forward_project_latent_queries(f, l, in, rows);
        if (end > K) model_forward_project_latent_kv(f, l, in, rows);
        return;
    }
    const int32_t widths[] = {l->n_heads * l->key_dim, l->n_kv_heads * l->key_dim, l->n_kv_heads * l->value_dim};
    const bool copies = end > V && l->k.data && !l->v.data; /* values are keys before their norm */
    const bool is_gated = hp->attention_gated && first == Q;
    backend_buffer *const dst[] = {is_gated ? buf[Q_HEADS] : buf[Q], buf[K], buf[V]};
    for (int i = first; i < end; i++) op->buffer_set_width(b, buf[i], widths[i - Q]);
    if (is_gated) op->buffer_set_width(b, buf[Q_HEADS], 2 * widths[0]);
    if (is_gated) op->buffer_set_width(b, buf[ATTENTION_GATE], widths[0]);
    model_forward_linear(f, in, NULL, rows, end - first - copies, matrices + (first - Q), biases + (first - Q),
                         dst + (first - Q));
    if (copies)
        op->copy_runs(b, buf[K], (backend_columns){0, 0}, rows, widths[V - Q], 1, buf[V], (backend_columns){0, 0});
    for (int gate = 0; is_gated && gate < 2; gate++) /* query | gate of each head */
        op->copy_runs(b, buf[Q_HEADS], (backend_columns){gate * l->key_dim, 2 * l->key_dim}, rows, l->key_dim,
                      l->n_heads, buf[gate ? ATTENTION_GATE : Q], (backend_columns){0, l->key_dim});
    for (int i = first; i < end; i++) {
        const model_norm *norm = norms[i - Q];
        if (limit > 0) op->clamp(b, buf[i], limit, rows);
        if (norm->weight.data) op->norm(b, buf[i], norm, rows, buf[i]);
    }
}

/* PROJECTED = attention over `in`. stores: the rows' KV is written to their slots. */
static void model_forward_attention(model_forward *f, const model_step *step, int32_t layer, const backend_buffer *in,
                                    bool stores) {
    const model_layer *l = &f->model->net.layers[layer];
    backend *b = f->backend;
    const backend_ops *op = b->ops;
    backend_buffer **buf = f->buffers;
    int32_t rows = step->n_rows;
    stores = stores && l->owns_kv;
    if (op->study) op->study->observe_input(b, in);
    model_forward_project(f, layer, in, rows, Q, stores ? V + 1 : K);
    if (l->index_k.data) model_forward_index(f, step, layer, in, stores);
    if (l->tempered) op->temper(b, buf[Q], rows);
    const model_hparams *hp = &f->model->net.hp;
    backend_buffer *out = buf[ATTENDED]; /* of attention */
    if (stores) op->store(b, layer, buf[K], hp->plain_key_dim > 0 ? NULL : buf[V]);
    wait_for_kv(step, l);
    op->buffer_set_width(b, buf[ATTENDED], l->n_heads * l->value_dim);
    op->attend(b, layer, buf[Q], buf[ATTENDED]);
    if (l->attn_gate.data)
        model_forward_linear(f, in, NULL, rows, 1, (weights){&l->attn_gate}, NULL, &buf[ATTENTION_GATE]);
    if (hp->attention_gated || l->attn_gate.data)
        op->act(b, KERNEL_SIGMOID, out = buf[ATTENTION_GATE], buf[ATTENDED], rows);
    if (hp->plain_key_dim > 0)
        op->linear_runs(b, buf[ATTENDED], (backend_columns){0, hp->value_dim}, rows, &l->head_values,
                        out = buf[VALUES], (backend_columns){0, hp->head_value_dim});
    model_forward_linear(f, out, NULL, rows, 1, (weights){&l->o}, (weights){&l->o_bias}, &buf[PROJECTED]);
}

/* The inputs of Mamba1's scan that follow from its convolved rows. */
static void model_forward_select(model_forward *f, int32_t layer, int32_t rows) {
    const model_recurrent *r = &f->model->net.layers[layer].recurrent;
    const backend_ops *op = f->backend->ops;
    backend_buffer **in = f->buffers + INPUTS, *steps = f->buffers[STEPS];
    op->recurrence->convolve(f->backend, layer, in[0], in[1]);
    model_forward_linear(f, in[1], NULL, rows, 2, (weights){&r->step_ranks, &r->select}, NULL,
                         (backend_buffer *[]){steps, in[3]});
    if (r->step_norm.weight.data) op->norm(f->backend, steps, &r->step_norm, rows, steps);
    model_forward_linear(f, steps, NULL, rows, 1, (weights){&r->steps}, (weights){&r->dt_bias}, &in[2]);
}

/* Decays and gates of Kimi delta attention, each of fewer dimensions of `in`. */
static void model_forward_kimi_rates(model_forward *f, int32_t layer, const backend_buffer *in, int32_t rows) {
    const model_recurrent *r = &f->model->net.layers[layer].recurrent;
    backend_buffer **buf = f->buffers;
    model_forward_linear(f, in, NULL, rows, 2, (weights){&r->step_ranks, &r->gate_ranks}, NULL,
                         (backend_buffer *[]){buf[STEPS], buf[GATE_RANKS]});
    model_forward_linear(f, buf[STEPS], NULL, rows, 1, (weights){&r->steps}, (weights){&r->dt_bias}, &buf[INPUTS + 4]);
    model_forward_linear(f, buf[GATE_RANKS], NULL, rows, 1, (weights){&r->gates}, NULL, &buf[INPUTS + 5]);
}

/* dst = recurrence over `in`, from the states of the step */
static void model_forward_recurrence(model_forward *f, int32_t layer, const backend_buffer *in, int32_t rows,
                                     backend_buffer *dst) {
    BASE_ASSERT(model_mixer_recurs(f->model->net.layers[layer].mixer));
    const model_layer *l = &f->model->net.layers[layer];
    const model_weight *matrices[MODEL_MAX_INPUTS];
    backend_buffer *inputs[MODEL_MAX_INPUTS];
    backend_buffer **buf = f->buffers;
    int n = 0;
    for (int i = 0; i < MODEL_MAX_INPUTS; i++) {
        if (!l->recurrent.in[i].data) continue;
        matrices[n] = &l->recurrent.in[i];
        inputs[n++] = buf[INPUTS + i];
    }
    model_forward_linear(f, in, NULL, rows, n, matrices, NULL, inputs);
    if (l->mixer == MODEL_MAMBA1) model_forward_select(f, layer, rows);
    if (l->mixer == MODEL_KIMI_DELTA) model_forward_kimi_rates(f, layer, in, rows);
    f->backend->ops->recurrence->scan(f->backend, layer, &buf[INPUTS], buf[SCANNED]);
    model_forward_linear(f, buf[SCANNED], NULL, rows, 1, (weights){&l->recurrent.out}, NULL, &dst);
}

/* dst = down(act(gate(in)) * up(in)), or down(act(up(in))) */
static void model_forward_dense(model_forward *f, const model_ffn *ffn, const backend_buffer *in, int32_t rows,
                                backend_buffer *dst) {
    backend *b = f->backend;
    const backend_ops *op = b->ops;
    backend_buffer *gate = f->buffers[GATE], *up = f->buffers[UP], *mixed = ffn->gate.data ? gate : up;
    op->buffer_set_width(b, gate, (int32_t)ffn->up.n_out);
    op->buffer_set_width(b, up, (int32_t)ffn->up.n_out);
    model_forward_linear(f, in, NULL, rows, ffn->gate.data ? 2 : 1, (weights){&ffn->up, &ffn->gate},
                         (weights){&ffn->up_bias, &ffn->gate_bias}, (backend_buffer *[]){up, gate});
    if (ffn->is_sparse) op->sparsify(b, gate, ffn->deviations, rows);
    if (ffn->xielu.alpha_p > 0) op->xielu(b, &ffn->xielu, mixed, rows);
    else op->act(b, f->model->net.hp.act, mixed, ffn->gate.data ? up : NULL, rows);
    model_forward_linear(f, mixed, NULL, rows, 1, (weights){&ffn->down}, (weights){&ffn->down_bias}, &dst);
}

/* MIXED = weighted outputs of the selected experts, plus the shared expert's output if the model has one. Router and
 * experts may read other norms of X than the shared expert. */
static void model_forward_mixture(model_forward *f, int32_t layer, const backend_buffer *in, int32_t rows) {
    const model_layer *l = &f->model->net.layers[layer];
    backend *b = f->backend;
    const backend_ops *op = b->ops;
    backend_buffer **buf = f->buffers;
    BASE_ASSERT(l->experts.up.data && l->experts.down.data); /* model_tensors.c: with the router */
    const bool has_norms = l->experts_norm.weight.data != NULL;
    const backend_buffer *routed = has_norms ? buf[PROJECTED] : in, *own = routed;
    if (has_norms) {
        op->norm(b, buf[X], &l->router_norm, rows, buf[PROJECTED]);
        op->scale(b, buf[PROJECTED], 1.0f / sqrtf((float)f->model->net.hp.n_embd), rows);
    }
    model_forward_linear(f, routed, NULL, rows, 1, (weights){&l->router}, (weights){&l->router_bias}, &buf[ROUTES]);
    if (has_norms) op->norm(b, buf[X], &l->experts_norm, rows, buf[PROJECTED]);
    op->experts(b, layer, own, buf[ROUTES], rows, buf[MIXED]);
    if (has_norms) op->norm(b, buf[MIXED], &l->post_experts_norm, rows, buf[MIXED]);
    if (!l->shared.up.data) return;
    model_forward_dense(f, &l->shared, in, rows, buf[SHARED]);
    if (has_norms) op->norm(b, buf[SHARED], &l->post_shared_norm, rows, buf[SHARED]);
    if (l->shared_gate.data) {
        model_forward_linear(f, in, NULL, rows, 1, (weights){&l->shared_gate}, NULL, &buf[GATES]);
        op->gate_rows(b, buf[SHARED], buf[GATES], rows);
    }
    op->add(b, buf[MIXED], buf[SHARED], 1.0f, rows);
}

/* norm x, or x itself if the layer has no norm before attention */
static backend_buffer *attention_input(model_forward *f, int32_t layer, int32_t rows) {
    const model_norm *norm = &f->model->net.layers[layer].attn_norm;
    if (!norm->weight.data) return f->buffers[X];
    f->backend->ops->norm(f->backend, f->buffers[X], norm, rows, f->buffers[NORMED]);
    return f->buffers[NORMED];
}

static void copy_rows(model_forward *f, int from, int to, int32_t rows) {
    f->backend->ops->copy_runs(f->backend, f->buffers[from], (backend_columns){0, 0}, rows, f->model->net.hp.n_embd, 1,
                               f->buffers[to], (backend_columns){0, 0});
}

/* ROUTED = tanh of the router's scores of X; out: PREDICT or CORRECT, the products with `matrix` */
static void model_forward_route_streams(model_forward *f, int32_t layer, int32_t rows, const model_weight *matrix,
                                        int out) {
    const model_altup *a = &f->model->net.layers[layer].altup;
    const backend_ops *op = f->backend->ops;
    backend_buffer **buf = f->buffers;
    op->norm(f->backend, buf[X], &a->router_norm, rows, buf[NORMED]);
    op->scale(f->backend, buf[NORMED], 1.0f / (float)f->model->net.hp.n_embd, rows);
    model_forward_linear(f, buf[NORMED], NULL, rows, 1, (weights){&a->router}, NULL, &buf[ROUTED]);
    op->soft_cap(f->backend, buf[ROUTED], 1.0f, rows); /* tanh */
    model_forward_linear(f, buf[ROUTED], NULL, rows, 1, (weights){matrix}, NULL, &buf[out]);
}

/* PREDICTED = a mixture of all STREAMS; X = the first of it */
static void model_forward_predict(model_forward *f, int32_t layer, int32_t rows) {
    const int32_t n = f->model->net.hp.n_streams;
    copy_rows(f, STREAMS, X, rows);
    model_forward_route_streams(f, layer, rows, &f->model->net.layers[layer].altup.predict, PREDICT);
    for (int i = 0; i < n; i++) copy_rows(f, STREAMS + i, PREDICTED + i, rows);
    f->backend->ops->mix(f->backend, &f->buffers[STREAMS], n, f->buffers[PREDICT], rows, &f->buffers[PREDICTED], n);
    copy_rows(f, PREDICTED, X, rows);
}

/* STREAMS = PREDICTED, each corrected by what the layer made of X */
static void model_forward_correct(model_forward *f, int32_t layer, int32_t rows) {
    backend *b = f->backend;
    backend_buffer **buf = f->buffers;
    const int32_t n = f->model->net.hp.n_streams;
    model_forward_route_streams(f, layer, rows, &f->model->net.layers[layer].altup.correct, CORRECT);
    b->ops->add(b, buf[X], buf[PREDICTED], -1.0f, rows);
    for (int i = 0; i < n; i++) b->ops->add(b, buf[PREDICTED + i], buf[X], 1.0f, rows);
    b->ops->mix(b, &buf[X], 1, buf[CORRECT], rows, &buf[PREDICTED], n);
    for (int i = 0; i < n; i++) {
        backend_buffer *swap = buf[STREAMS + i];
        buf[STREAMS + i] = buf[PREDICTED + i];
        buf[PREDICTED + i] = swap;
    }
}

/* STREAMS = X, and its projections in the magnitude of X */
static void model_forward_begin_streams(model_forward *f, int32_t rows) {
    const model_network *net = &f->model->net;
    copy_rows(f, X, STREAMS, rows);
    model_forward_linear(f, f->buffers[X], NULL, rows, net->hp.n_streams - 1,
                         (weights){&net->streams_in[0], &net->streams_in[1], &net->streams_in[2]}, NULL,
                         &f->buffers[STREAMS + 1]);
    for (int i = 1; i < net->hp.n_streams; i++)
        f->backend->ops->match(f->backend, f->buffers[STREAMS + i], f->buffers[X], rows);
}

/* X = the mean of the first stream and of projections of the others in its magnitude */
static void model_forward_join_streams(model_forward *f, int32_t rows) {
    const model_network *net = &f->model->net;
    const backend_ops *op = f->backend->ops;
    backend_buffer **buf = f->buffers;
    copy_rows(f, STREAMS, X, rows);
    for (int i = 1; i < net->hp.n_streams; i++) {
        model_forward_linear(f, buf[STREAMS + i], NULL, rows, 1, (weights){&net->streams_out[i - 1]}, NULL,
                             &buf[PROJECTED]);
        op->match(f->backend, buf[PROJECTED], buf[STREAMS], rows);
        op->add(f->backend, buf[X], buf[PROJECTED], 1.0f, rows);
    }
    op->scale(f->backend, buf[X], 1.0f / (float)net->hp.n_streams, rows);
}

/* LAUREL = in + norm(b a in) */
static void model_forward_laurel(model_forward *f, const model_layer *l, const backend_buffer *in, int32_t rows) {
    backend_buffer **buf = f->buffers;
    model_forward_linear(f, in, NULL, rows, 1, (weights){&l->laurel_a}, NULL, &buf[LAUREL_INNER]);
    model_forward_linear(f, buf[LAUREL_INNER], NULL, rows, 1, (weights){&l->laurel_b}, NULL, &buf[LAUREL]);
    f->backend->ops->norm(f->backend, buf[LAUREL], &l->laurel_norm, rows, buf[LAUREL]);
    f->backend->ops->add(f->backend, buf[LAUREL], in, 1.0f, rows);
}

/* X += the layer's embedding of each row's token, by a gate that X makes. Of several streams: to all but the first, by
   a gate of the first */
static void model_forward_embedding(model_forward *f, int32_t layer, int32_t rows) {
    const model_layer *l = &f->model->net.layers[layer];
    const model_hparams *hp = &f->model->net.hp;
    backend *b = f->backend;
    backend_buffer **buf = f->buffers;
    BASE_ASSERT(l->embd_up.n_in == hp->n_layer_embd);
    b->ops->copy_runs(b, buf[EMBEDDINGS], (backend_columns){layer * hp->n_layer_embd, 0}, rows, hp->n_layer_embd, 1,
                      buf[EMBEDDING], (backend_columns){0, 0});
    if (hp->n_streams > 0) {
        copy_rows(f, STREAMS, X, rows);
        b->ops->multiply(b, buf[X], &l->altup.scale, rows);
    }
    model_forward_linear(f, buf[X], NULL, rows, 1, (weights){&l->embd_gate}, NULL, &buf[EMBEDDED]);
    b->ops->act(b, hp->act, buf[EMBEDDED], buf[EMBEDDING], rows);
    model_forward_linear(f, buf[EMBEDDED], NULL, rows, 1, (weights){&l->embd_up}, NULL, &buf[PROJECTED]);
    b->ops->norm(b, buf[PROJECTED], &l->embd_norm, rows, buf[PROJECTED]);
    if (hp->n_streams == 0) b->ops->add(b, buf[X], buf[PROJECTED], 1.0f, rows);
    for (int i = 1; i < hp->n_streams; i++) b->ops->add(b, buf[STREAMS + i], buf[PROJECTED], 1.0f, rows);
}

/* One block: x += mixer(norm x), then x += feed-forward(norm x); or, in parallel, both from the same x; or one of the
 * two alone. */
static void model_forward_block(model_forward *f, const model_step *step, int32_t layer, bool stores) {
    int32_t rows = step->n_rows;
    const model_layer *l = &f->model->net.layers[layer];
    const model_hparams *hp = &f->model->net.hp;
    backend *b = f->backend;
    const backend_ops *op = b->ops;
    if (hp->n_streams > 0) model_forward_predict(f, layer, rows);
    backend_buffer **buf = f->buffers, *in = attention_input(f, layer, rows);
    const bool attends = model_mixer_attends(l->mixer), recurs = model_mixer_recurs(l->mixer);
    const bool has_ffn = l->router.data || l->ffn.up.data;
    if (l->laurel_a.data) model_forward_laurel(f, l, in, rows);
    if (attends) model_forward_attention(f, step, layer, in, stores);
    if (recurs) model_forward_recurrence(f, layer, in, rows, attends ? buf[MIXED] : buf[PROJECTED]);
    if (attends && recurs) op->add(b, buf[PROJECTED], buf[MIXED], 1.0f, rows);
    if (l->post_attn_norm.weight.data) op->norm(b, buf[PROJECTED], &l->post_attn_norm, rows, buf[PROJECTED]);
    if (!hp->parallel && (attends || recurs)) op->add(b, buf[X], buf[PROJECTED], hp->residual_scale, rows);
    if (l->laurel_a.data) {
        op->add(b, buf[X], buf[LAUREL], 1.0f, rows);
        op->scale(b, buf[X], sqrtf(0.5f), rows);
    }
    if (l->attn_out_norm.weight.data) op->norm(b, buf[X], &l->attn_out_norm, rows, buf[X]);
    if (!has_ffn) return;
    if (l->ffn_norm.weight.data) op->norm(b, buf[X], &l->ffn_norm, rows, in = buf[NORMED]);
    if (l->router.data) model_forward_mixture(f, layer, in, rows);
    else model_forward_dense(f, &l->ffn, in, rows, buf[MIXED]);
    if (l->post_ffn_norm.weight.data) op->norm(b, buf[MIXED], &l->post_ffn_norm, rows, buf[MIXED]);
    if (hp->parallel) op->add(b, buf[X], buf[PROJECTED], hp->residual_scale, rows);
    op->add(b, buf[X], buf[MIXED], hp->residual_scale, rows);
    if (l->layer_out_norm.weight.data) op->norm(b, buf[X], &l->layer_out_norm, rows, buf[X]);
    if (hp->n_streams > 0) model_forward_correct(f, layer, rows);
    if (l->embd_gate.data) model_forward_embedding(f, layer, rows);
    if (l->out_scale.data) op->scale(b, buf[X], *(const float *)l->out_scale.data, rows);
}

/* dst = the final hidden states of n rows: f->wanted. norm: output_norm, of the model or of its draft head */
static void model_forward_hidden(model_forward *f, const model_norm *norm, int32_t n, backend_buffer *dst) {
    f->backend->ops->gather(f->backend, f->buffers[X], f->wanted, n, dst);
    if (norm->weight.data) f->backend->ops->norm(f->backend, dst, norm, n, dst);
}

/* LOGITS: only rows that request logits pass the output head, the model's or its draft head's. */
static void model_forward_head(model_forward *f, const model_step *step, const model_norm *norm,
                               const model_weight *output) {
    const rp_model *m = f->model;
    backend *b = f->backend;
    int32_t n = 0;
    for (int32_t r = 0; r < step->n_rows; r++) {
        if (!step->rows[r].wants_logits) continue;
        BASE_ASSERT(n < f->max_logits);
        f->wanted[n++] = r;
    }
    if ((f->n_logits = n) == 0) return;
    backend_buffer *head = f->buffers[HEAD], *out = f->buffers[LOGITS];
    model_forward_hidden(f, norm, n, head);
    if (m->net.head.data) {
        model_forward_linear(f, head, f->wanted, n, 1, (weights){&m->net.head}, (weights){&m->net.head_bias},
                             &f->buffers[PROJECTED]);
        b->ops->soft_cap(b, head = f->buffers[PROJECTED], 1.0f, n); /* tanh */
    }
    model_forward_linear(f, head, f->wanted, n, 1, (weights){output}, (weights){&m->net.output_bias}, &out);
    if (m->net.hp.logit_scale != 1.0f) b->ops->scale(b, out, m->net.hp.logit_scale, n);
    if (m->net.hp.logit_cap > 0) b->ops->soft_cap(b, out, m->net.hp.logit_cap, n);
}

/* Before the operations of a layer, or of what follows the last one. */
static void model_forward_enter(model_forward *f, int32_t layer, int32_t rows) {
    const model_network *net = &f->model->net;
    backend_buffer *carried[MODEL_MAX_STREAMS + 1];
    int32_t n = 0;
    if (!f->backend->ops->enter) return;
    if (net->hp.n_streams == 0) carried[n++] = f->buffers[X];
    for (int i = 0; i < net->hp.n_streams; i++) carried[n++] = f->buffers[STREAMS + i];
    if (net->layer_projection.data) carried[n++] = f->buffers[EMBEDDINGS];
    f->backend->ops->enter(f->backend, layer, carried, n, rows);
}

/* X = embeddings; EMBEDDINGS = those of all layers */
static int model_forward_begin(model_forward *f, const model_step *step, rp_error *err) {
    BASE_ASSERT(step->n_rows <= f->max_rows);
    const model_norm *norm = &f->model->net.embed_norm;
    backend *b = f->backend;
    int rc = b->ops->begin(b, step, err);
    if (rc) return rc;
    b->ops->embed(b, NULL, f->buffers[X]);
    if (norm->weight.data) b->ops->norm(b, f->buffers[X], norm, step->n_rows, f->buffers[X]);
    if (!f->model->net.layer_projection.data) return RP_OK;
    backend_buffer *layers = f->buffers[EMBEDDINGS]; /* the mean of two parts, times the root of 2 */
    model_forward_linear(f, f->buffers[X], NULL, step->n_rows, 1, (weights){&f->model->net.layer_projection}, NULL,
                         &layers);
    b->ops->scale(b, layers, 1.0f / sqrtf((float)f->model->net.hp.n_embd), step->n_rows);
    b->ops->norm(b, layers, &f->model->net.layer_embd_norm, step->n_rows, layers);
    b->ops->embed_layers(b, layers);
    b->ops->scale(b, layers, sqrtf(0.5f), step->n_rows);
    if (f->model->net.hp.n_streams > 0) model_forward_begin_streams(f, step->n_rows);
    return RP_OK;
}

int model_forward_submit(model_forward *f, const model_step *step, rp_error *err) {
    int rc = model_forward_begin(f, step, err);
    if (rc) return rc;
    const int32_t n_layers = f->model->net.hp.n_layers;
    for (int32_t l = 0; l < n_layers; l++) {
        model_forward_enter(f, l, step->n_rows);
        model_forward_block(f, step, l, true);
    }
    model_forward_enter(f, n_layers, step->n_rows);
    if (f->model->net.hp.n_streams > 0) model_forward_join_streams(f, step->n_rows);
    model_forward_head(f, step, &f->model->net.output_norm, &f->model->net.output);
    if (f->backend->ops->submit)
        f->backend->ops->submit(f->backend, f->n_logits > 0 ? f->buffers[LOGITS] : NULL, f->n_logits);
    return RP_OK;
}

static int model_forward_finish(model_forward *f, rp_error *err) {
    return f->backend->ops->finish ? f->backend->ops->finish(f->backend, err) : RP_OK;
}

int model_forward_collect(model_forward *f, float *logits, rp_error *err) {
    const int rc = model_forward_finish(f, err);
    if (!rc && f->n_logits > 0) f->backend->ops->buffer_read(f->backend, f->buffers[LOGITS], f->n_logits, logits);
    return rc;
}

int model_forward_step(model_forward *f, const model_step *step, float *logits, rp_error *err) {
    const int rc = model_forward_submit(f, step, err);
    return rc ? rc : model_forward_collect(f, logits, err);
}

int model_forward_read_hidden(model_forward *f, const model_step *step, float *hidden, rp_error *err) {
    int32_t n = 0;
    for (int32_t r = 0; r < step->n_rows; r++)
        if (step->rows[r].wants_hidden) f->wanted[n++] = r;
    BASE_ASSERT(n <= f->max_rows);
    if (n == 0) return RP_OK;
    model_forward_hidden(f, &f->model->net.output_norm, n, f->buffers[NORMED]);
    f->backend->ops->buffer_read(f->backend, f->buffers[NORMED], n, hidden);
    return model_forward_finish(f, err);
}

/* ---- the draft head ---- */

int model_forward_draft(model_forward *f, const model_step *step, const float *hidden, float *logits,
                        float *hidden_after, rp_error *err) {
    const model_network *net = &f->model->net;
    const model_draft_head *head = &net->draft_head;
    const int32_t rows = step->n_rows, width = net->hp.n_embd;
    backend *b = f->backend;
    const backend_ops *op = b->ops;
    backend_buffer **buf = f->buffers;
    BASE_ASSERT(model_has_draft_head(f->model) && rows <= f->max_rows);
    const int rc = op->begin(b, step, err);
    if (rc) return rc;
    if (op->enter) op->enter(b, net->hp.n_layers, NULL, 0, 0);
    op->embed(b, head->embedding.data ? &head->embedding : NULL, buf[X]);
    op->buffer_write(b, hidden, rows, buf[HIDDEN]);
    op->norm(b, buf[X], &head->embd_norm, rows, buf[X]);
    op->norm(b, buf[HIDDEN], &head->hidden_norm, rows, buf[HIDDEN]);
    op->copy_runs(b, buf[X], (backend_columns){0, 0}, rows, width, 1, buf[JOINED], (backend_columns){0, 0});
    op->copy_runs(b, buf[HIDDEN], (backend_columns){0, 0}, rows, width, 1, buf[JOINED], (backend_columns){width, 0});
    model_forward_linear(f, buf[JOINED], NULL, rows, 1, (weights){&head->projection}, NULL, &buf[X]);
    model_forward_block(f, step, net->hp.n_layers, true);
    model_forward_head(f, step, &head->output_norm, head->output.data ? &head->output : &net->output);
    if (op->submit) op->submit(b, f->n_logits > 0 ? buf[LOGITS] : NULL, f->n_logits);
    const int failed = model_forward_collect(f, logits, err);
    if (!failed && f->n_logits > 0) op->buffer_read(b, buf[HEAD], f->n_logits, hidden_after);
    return failed ? failed : model_forward_finish(f, err);
}

/* ---- a probe ---- */

int32_t model_probe_layer(const rp_model *m) {
    for (int32_t l = 1; l < m->net.hp.n_layers; l++)
        if (m->net.layers[l].owns_kv) return l;
    return -1;
}

int model_forward_probe(model_forward *f, const model_step *step, float *deviations, rp_error *err) {
    int32_t last = model_probe_layer(f->model);
    BASE_ASSERT(last > 0 && f->backend->ops->study);
    int rc = model_forward_begin(f, step, err);
    if (rc) return rc;
    for (int32_t l = 0; l < last; l++) model_forward_block(f, step, l, false);
    if (f->model->net.hp.n_streams > 0) model_forward_predict(f, last, step->n_rows);
    model_forward_project(f, last, attention_input(f, last, step->n_rows), step->n_rows, K, V + 1);
    wait_for_kv(step, &f->model->net.layers[last]);
    const bool is_latent = f->model->net.hp.plain_key_dim > 0;
    f->backend->ops->study->deviate(f->backend, last, f->buffers[K], is_latent ? NULL : f->buffers[V], deviations);
    return model_forward_finish(f, err);
}
