/* reference_model.c: the slow, obvious transformer. Owns: weights as pointers into the GGUF file, and every token's keys and
 * values. Does not own: what a token sees (reference.c). Written to be read, one formula a function. Threads: none.
 */
#include "reference_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

typedef struct layer {
    const float *attn_norm, *ffn_norm;
    const float *q, *k, *v, *o, *gate, *up, *down;
    const float *q_bias, *k_bias, *v_bias, *o_bias, *gate_bias, *up_bias, *down_bias; /* NULL: none */
} layer;

struct reference_model {
    int32_t n_layers, n_embd, n_heads, n_kv_heads, key_dim, value_dim, n_ff, n_vocab, rot_dim;
    double eps, rope_base, rope_factor;
    const float *embedding, *output_norm, *output, *rope_freqs;
    layer *layers;
};

/* One token's keys and values in every layer, un-rotated. */
typedef struct token_states {
    double *keys, *values; /* [layer][kv head][dim] */
} token_states;

struct reference_states {
    const reference_model *m;
    token_states *tokens;
    int32_t n, cap;
    double **angles; /* [distance]: cos, sin of each pair; NULL until asked for */
    int32_t n_angles;
};

void *reference_alloc(size_t n, size_t bytes) {
    void *p = calloc(n ? n : 1, bytes);
    if (!p) {
        fprintf(stderr, "reference: out of memory\n");
        abort();
    }
    return p;
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

typedef struct opening {
    const gguf_file *f;
    rp_error *err;
    int rc;
} opening;

static const float *find(opening *o, const char *name, bool required) {
    const gguf_tensor *t = gguf_find_tensor(o->f, name);
    if (t && t->type == KERNEL_F32) return t->data;
    if (t) o->rc = base_fail(o->err, RP_ERR_UNSUPPORTED, "reference: %s is not F32", name);
    else if (required) o->rc = base_fail(o->err, RP_ERR_FORMAT, "reference: no tensor %s", name);
    return NULL;
}

static const float *find_in_layer(opening *o, int i, const char *name, bool required) {
    char full[128];
    snprintf(full, sizeof full, "blk.%d.%s", i, name);
    return find(o, full, required);
}

static int32_t number(opening *o, const char *key, int64_t otherwise) {
    uint64_t v = 0;
    if (gguf_get_u64(o->f, key, &v)) return (int32_t)v;
    if (otherwise < 0) o->rc = base_fail(o->err, RP_ERR_FORMAT, "reference: no %s", key);
    return (int32_t)otherwise;
}

static void read_shape(opening *o, reference_model *m) {
    gguf_string scaling = {0};
    m->n_layers = number(o, "llama.block_count", -1);
    m->n_embd = number(o, "llama.embedding_length", -1);
    m->n_ff = number(o, "llama.feed_forward_length", -1);
    m->n_heads = number(o, "llama.attention.head_count", -1);
    if (o->rc) return;
    m->n_kv_heads = number(o, "llama.attention.head_count_kv", m->n_heads);
    m->key_dim = number(o, "llama.attention.key_length", m->n_embd / m->n_heads);
    m->value_dim = number(o, "llama.attention.value_length", m->n_embd / m->n_heads);
    m->rot_dim = number(o, "llama.rope.dimension_count", m->key_dim);
    m->eps = 1e-5;
    m->rope_base = 10000.0;
    m->rope_factor = 1.0;
    gguf_get_f64(o->f, "llama.attention.layer_norm_rms_epsilon", &m->eps);
    gguf_get_f64(o->f, "llama.rope.freq_base", &m->rope_base);
    if (gguf_get_string(o->f, "llama.rope.scaling.type", &scaling) && scaling.n == 6 &&
        memcmp(scaling.bytes, "linear", 6) == 0)
        gguf_get_f64(o->f, "llama.rope.scaling.factor", &m->rope_factor);
}

static void read_layer(opening *o, layer *l, int i) {
    l->attn_norm = find_in_layer(o, i, "attn_norm.weight", true);
    l->ffn_norm = find_in_layer(o, i, "ffn_norm.weight", true);
    l->q = find_in_layer(o, i, "attn_q.weight", true);
    l->k = find_in_layer(o, i, "attn_k.weight", true);
    l->v = find_in_layer(o, i, "attn_v.weight", true);
    l->o = find_in_layer(o, i, "attn_output.weight", true);
    l->gate = find_in_layer(o, i, "ffn_gate.weight", true);
    l->up = find_in_layer(o, i, "ffn_up.weight", true);
    l->down = find_in_layer(o, i, "ffn_down.weight", true);
    l->q_bias = find_in_layer(o, i, "attn_q.bias", false);
    l->k_bias = find_in_layer(o, i, "attn_k.bias", false);
    l->v_bias = find_in_layer(o, i, "attn_v.bias", false);
    l->o_bias = find_in_layer(o, i, "attn_output.bias", false);
    l->gate_bias = find_in_layer(o, i, "ffn_gate.bias", false);
    l->up_bias = find_in_layer(o, i, "ffn_up.bias", false);
    l->down_bias = find_in_layer(o, i, "ffn_down.bias", false);
}

static void read_weights(opening *o, reference_model *m) {
    m->embedding = find(o, "token_embd.weight", true);
    m->output_norm = find(o, "output_norm.weight", true);
    m->output = find(o, "output.weight", false);
    m->rope_freqs = find(o, "rope_freqs.weight", false);
    if (!m->output) m->output = m->embedding;
    if (m->embedding) m->n_vocab = (int32_t)gguf_find_tensor(o->f, "token_embd.weight")->dims[1];
    m->layers = reference_alloc((size_t)m->n_layers, sizeof *m->layers);
    for (int i = 0; i < m->n_layers; i++) read_layer(o, &m->layers[i], i);
}

int reference_model_open(reference_model **out, const gguf_file *f, rp_error *err) {
    opening o = {.f = f, .err = err};
    reference_model *m = reference_alloc(1, sizeof *m);
    read_shape(&o, m);
    if (!o.rc) read_weights(&o, m);
    if (o.rc) {
        reference_model_close(m);
        m = NULL;
    }
    *out = m;
    return o.rc;
}

void reference_model_close(reference_model *m) {
    if (m) free(m->layers);
    free(m);
}

int32_t reference_model_n_vocab(const reference_model *m) { return m->n_vocab; }

/* ---- states ---------------------------------------------------------------------------------------------------- */

reference_states *reference_states_new(const reference_model *m) {
    reference_states *s = reference_alloc(1, sizeof *s);
    s->m = m;
    return s;
}

void reference_states_free(reference_states *s) {
    if (!s) return;
    for (int32_t i = 0; i < s->n; i++) {
        free(s->tokens[i].keys);
        free(s->tokens[i].values);
    }
    for (int32_t i = 0; i < s->n_angles; i++) free(s->angles[i]);
    free(s->angles);
    free(s->tokens);
    free(s);
}

int32_t reference_states_count(const reference_states *s) { return s->n; }

static void *grown(void *items, size_t old, size_t new, size_t bytes) {
    void *p = reference_alloc(new, bytes);
    if (old) memcpy(p, items, old * bytes);
    free(items);
    return p;
}

static token_states *new_token(reference_states *s) {
    if (s->n == s->cap) {
        s->cap = 2 * s->cap + 64;
        s->tokens = grown(s->tokens, (size_t)s->n, (size_t)s->cap, sizeof *s->tokens);
    }
    token_states *t = &s->tokens[s->n++];
    size_t heads = (size_t)s->m->n_layers * (size_t)s->m->n_kv_heads;
    t->keys = reference_alloc(heads * (size_t)s->m->key_dim, sizeof *t->keys);
    t->values = reference_alloc(heads * (size_t)s->m->value_dim, sizeof *t->values);
    return t;
}

/* The angles of R(distance): distance / factor * base^(-2i / rot_dim) / rope_freqs[i]. */
static const double *angles(reference_states *s, int32_t distance) {
    const reference_model *m = s->m;
    if (distance < 0) {
        fprintf(stderr, "reference: a token sees one that stands %d behind it\n", -distance);
        abort();
    }
    if (distance >= s->n_angles) {
        int32_t n = 2 * distance + 64;
        s->angles = grown(s->angles, (size_t)s->n_angles, (size_t)n, sizeof *s->angles);
        s->n_angles = n;
    }
    if (!s->angles[distance]) {
        double *cs = s->angles[distance] = reference_alloc((size_t)m->rot_dim, sizeof *cs);
        for (int i = 0; i < m->rot_dim / 2; i++) {
            double a = distance / m->rope_factor * pow(m->rope_base, -2.0 * i / m->rot_dim);
            if (m->rope_freqs) a /= m->rope_freqs[i];
            cs[2 * i] = cos(a);
            cs[2 * i + 1] = sin(a);
        }
    }
    return s->angles[distance];
}

/* ---- the transformer ------------------------------------------------------------------------------------------- */

/* Four sums, so that the processor need not wait for each addition. */
static double dot(const float *w, const double *x, int n) {
    double sum[4] = {0};
    for (int i = 0; i < n; i++) sum[i % 4] += w[i] * x[i];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static void linear(const float *w, const float *bias, int n_in, int n_out, const double *x, double *y) {
    for (int o = 0; o < n_out; o++) y[o] = dot(w + (size_t)o * (size_t)n_in, x, n_in) + (bias ? bias[o] : 0);
}

static void rms_norm(const reference_model *m, const float *w, const double *x, double *y) {
    double sum = 0;
    for (int i = 0; i < m->n_embd; i++) sum += x[i] * x[i];
    for (int i = 0; i < m->n_embd; i++) y[i] = x[i] / sqrt(sum / m->n_embd + m->eps) * w[i];
}

static void softmax(double *p, size_t n) {
    double max = p[0], sum = 0;
    for (size_t i = 1; i < n; i++) max = p[i] > max ? p[i] : max;
    for (size_t i = 0; i < n; i++) sum += p[i] = exp(p[i] - max);
    for (size_t i = 0; i < n; i++) p[i] /= sum;
}

/* (R(distance) q) . k / sqrt(dim) */
static double score(reference_states *s, const double *q, const double *k, int32_t distance) {
    const reference_model *m = s->m;
    const double *cs = angles(s, distance);
    double sum0 = 0, sum1 = 0;
    for (int i = 0; i < m->rot_dim; i += 2) {
        sum0 += (q[i] * cs[i] - q[i + 1] * cs[i + 1]) * k[i];
        sum1 += (q[i] * cs[i + 1] + q[i + 1] * cs[i]) * k[i + 1];
    }
    for (int i = m->rot_dim; i < m->key_dim; i++) sum0 += q[i] * k[i];
    return (sum0 + sum1) / sqrt(m->key_dim);
}

/* One head: what query q takes from the tokens it sees. */
static void attend(reference_states *s, int layer_index, int kv_head, const double *q, const reference_sight *sights,
                   size_t n, double *p, double *out) {
    const reference_model *m = s->m;
    size_t head = (size_t)layer_index * (size_t)m->n_kv_heads + (size_t)kv_head;
    for (size_t i = 0; i < n; i++) {
        const double *k = s->tokens[sights[i].token].keys + head * (size_t)m->key_dim;
        p[i] = score(s, q, k, sights[i].distance);
    }
    softmax(p, n);
    for (int d = 0; d < m->value_dim; d++) out[d] = 0;
    for (size_t i = 0; i < n; i++) {
        const double *v = s->tokens[sights[i].token].values + head * (size_t)m->value_dim;
        for (int d = 0; d < m->value_dim; d++) out[d] += p[i] * v[d];
    }
}

static void attention(reference_states *s, int i, const double *x, const reference_sight *sights, size_t n, double *y) {
    const reference_model *m = s->m;
    const layer *l = &m->layers[i];
    token_states *t = &s->tokens[s->n - 1];
    size_t first_head = (size_t)i * (size_t)m->n_kv_heads;
    double *q = reference_alloc((size_t)(m->n_heads * m->key_dim), sizeof *q);
    double *mix = reference_alloc((size_t)(m->n_heads * m->value_dim), sizeof *mix);
    double *p = reference_alloc(n, sizeof *p);
    linear(l->q, l->q_bias, m->n_embd, m->n_heads * m->key_dim, x, q);
    linear(l->k, l->k_bias, m->n_embd, m->n_kv_heads * m->key_dim, x, t->keys + first_head * (size_t)m->key_dim);
    linear(l->v, l->v_bias, m->n_embd, m->n_kv_heads * m->value_dim, x, t->values + first_head * (size_t)m->value_dim);
    for (int h = 0; h < m->n_heads; h++)
        attend(s, i, h / (m->n_heads / m->n_kv_heads), q + h * m->key_dim, sights, n, p, mix + h * m->value_dim);
    linear(l->o, l->o_bias, m->n_heads * m->value_dim, m->n_embd, mix, y);
    free(p);
    free(mix);
    free(q);
}

static void feed_forward(const reference_model *m, const layer *l, const double *x, double *y) {
    double *gate = reference_alloc((size_t)m->n_ff, sizeof *gate), *up = reference_alloc((size_t)m->n_ff, sizeof *up);
    linear(l->gate, l->gate_bias, m->n_embd, m->n_ff, x, gate);
    linear(l->up, l->up_bias, m->n_embd, m->n_ff, x, up);
    for (int i = 0; i < m->n_ff; i++) up[i] *= gate[i] / (1 + exp(-gate[i]));
    linear(l->down, l->down_bias, m->n_ff, m->n_embd, up, y);
    free(gate);
    free(up);
}

static void run_layers(reference_states *s, double *x, const reference_sight *sights, size_t n) {
    const reference_model *m = s->m;
    double *normed = reference_alloc((size_t)m->n_embd, sizeof *normed);
    double *y = reference_alloc((size_t)m->n_embd, sizeof *y);
    for (int i = 0; i < m->n_layers; i++) {
        rms_norm(m, m->layers[i].attn_norm, x, normed);
        attention(s, i, normed, sights, n, y);
        for (int d = 0; d < m->n_embd; d++) x[d] += y[d];
        rms_norm(m, m->layers[i].ffn_norm, x, normed);
        feed_forward(m, &m->layers[i], normed, y);
        for (int d = 0; d < m->n_embd; d++) x[d] += y[d];
    }
    free(y);
    free(normed);
}

static void head(const reference_model *m, double *x, float *logits) {
    double *y = reference_alloc((size_t)m->n_vocab, sizeof *y);
    rms_norm(m, m->output_norm, x, x);
    linear(m->output, NULL, m->n_embd, m->n_vocab, x, y);
    for (int i = 0; i < m->n_vocab; i++) logits[i] = (float)y[i];
    free(y);
}

void reference_states_add(reference_states *s, int32_t id, const reference_sight *sights, size_t n_sights, float *logits) {
    const reference_model *m = s->m;
    reference_sight *all = reference_alloc(n_sights + 1, sizeof *all);
    double *x = reference_alloc((size_t)m->n_embd, sizeof *x);
    if (n_sights) memcpy(all, sights, n_sights * sizeof *all);
    all[n_sights] = (reference_sight){.token = s->n, .distance = 0};
    new_token(s);
    for (int d = 0; d < m->n_embd; d++) x[d] = m->embedding[(size_t)id * (size_t)m->n_embd + (size_t)d];
    run_layers(s, x, all, n_sights + 1);
    if (logits) head(m, x, logits);
    free(x);
    free(all);
}
