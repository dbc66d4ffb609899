/* forward.c: see forward.h. */
#include "model/forward.h"

#include <assert.h>

#include "base/error.h"
#include "base/memory.h"

enum { X, NORMED, Q, K, V, ATTENDED, PROJECTED, GATE, UP, HEAD, LOGITS, N_BUFFERS };

struct model_forward {
    const rp_model *model;
    backend *backend;
    int32_t max_rows, max_logits;
    backend_buffer *buffers[N_BUFFERS];
    int32_t *wanted; /* [max_logits] */
};

static int new_buffers(model_forward *f, rp_error *err) {
    const model_hparams *hp = &f->model->hp;
    const int32_t widths[N_BUFFERS] = {
        [X] = hp->n_embd,
        [NORMED] = hp->n_embd,
        [Q] = hp->n_heads * hp->key_dim,
        [K] = hp->n_kv_heads * hp->key_dim,
        [V] = hp->n_kv_heads * hp->value_dim,
        [ATTENDED] = hp->n_heads * hp->value_dim,
        [PROJECTED] = hp->n_embd,
        [GATE] = hp->n_ff,
        [UP] = hp->n_ff,
        [HEAD] = hp->n_embd,
        [LOGITS] = hp->n_vocab,
    };
    for (int i = 0; i < N_BUFFERS; i++) {
        int32_t rows = i == HEAD || i == LOGITS ? f->max_logits : f->max_rows;
        int rc = f->backend->ops->buffer_new(f->backend, rows, widths[i], &f->buffers[i], err);
        if (rc) return rc;
    }
    return RP_OK;
}

int model_forward_new(model_forward **out, const rp_model *m, backend *b, int32_t max_rows, int32_t max_logits, rp_error *err) {
    *out = NULL;
    model_forward *f = base_calloc(1, sizeof(*f));
    if (!f) return base_fail_memory(err, sizeof(*f), "the forward pass");
    *f = (model_forward){.model = m, .backend = b, .max_rows = max_rows, .max_logits = max_logits};
    f->wanted = base_calloc((size_t)max_logits, sizeof(int32_t));
    int rc = f->wanted ? new_buffers(f, err) : base_fail_memory(err, (uint64_t)max_logits * 4, "the forward pass");
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

/* x += attention(norm(x)) */
static void attention(model_forward *f, const model_layer *l, int32_t layer, int32_t rows) {
    backend *b = f->backend;
    const backend_ops *op = b->ops;
    backend_buffer **buf = f->buffers;
    op->norm(b, buf[X], &l->attn_norm, rows, buf[NORMED]);
    op->linear(b, buf[NORMED], rows, 3, (const model_weight *[]){&l->q, &l->k, &l->v},
               (const model_weight *[]){&l->q_bias, &l->k_bias, &l->v_bias}, (backend_buffer *[]){buf[Q], buf[K], buf[V]});
    op->store(b, layer, buf[K], buf[V]);
    op->attend(b, layer, buf[Q], buf[ATTENDED]);
    op->linear(b, buf[ATTENDED], rows, 1, (const model_weight *[]){&l->o}, (const model_weight *[]){&l->o_bias}, &buf[PROJECTED]);
    op->add(b, buf[X], buf[PROJECTED], rows);
}

/* x += down(silu(gate(norm(x))) * up(norm(x))) */
static void feed_forward(model_forward *f, const model_layer *l, int32_t rows) {
    backend *b = f->backend;
    const backend_ops *op = b->ops;
    backend_buffer **buf = f->buffers;
    op->norm(b, buf[X], &l->ffn_norm, rows, buf[NORMED]);
    op->linear(b, buf[NORMED], rows, 2, (const model_weight *[]){&l->gate, &l->up},
               (const model_weight *[]){&l->gate_bias, &l->up_bias}, (backend_buffer *[]){buf[GATE], buf[UP]});
    op->gate(b, buf[GATE], buf[UP], rows);
    op->linear(b, buf[GATE], rows, 1, (const model_weight *[]){&l->down}, (const model_weight *[]){&l->down_bias},
               &buf[PROJECTED]);
    op->add(b, buf[X], buf[PROJECTED], rows);
}

/* Only the rows that asked pass the output head. */
static void head(model_forward *f, const model_step *step, float *logits) {
    const rp_model *m = f->model;
    backend *b = f->backend;
    int32_t n = 0;
    for (int32_t r = 0; r < step->n_rows; r++) {
        if (!step->rows[r].wants_logits) continue;
        assert(n < f->max_logits);
        f->wanted[n++] = r;
    }
    if (n == 0) return;
    b->ops->gather(b, f->buffers[X], f->wanted, n, f->buffers[HEAD]);
    b->ops->norm(b, f->buffers[HEAD], &m->output_norm, n, f->buffers[HEAD]);
    b->ops->linear(b, f->buffers[HEAD], n, 1, (const model_weight *[]){&m->output}, NULL, &f->buffers[LOGITS]);
    b->ops->buffer_read(b, f->buffers[LOGITS], n, logits);
}

int model_forward_step(model_forward *f, const model_step *step, float *logits, rp_error *err) {
    assert(step->n_rows <= f->max_rows);
    backend *b = f->backend;
    int rc = b->ops->begin(b, step, err);
    if (rc) return rc;
    b->ops->embed(b, &f->model->embedding, f->buffers[X]);
    for (int32_t l = 0; l < f->model->hp.n_layers; l++) {
        attention(f, &f->model->layers[l], l, step->n_rows);
        feed_forward(f, &f->model->layers[l], step->n_rows);
    }
    head(f, step, logits);
    return RP_OK;
}
