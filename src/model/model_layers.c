/* SPDX-License-Identifier: Apache-2.0 */
/* model_layers.c: properties of each layer: rotation, the layer that owns its KV, matrices; and ALiBi's slopes. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/model_internal.h"

/* ---- matrices ---- */

#define L(member) offsetof(model_layer, member)
static const size_t layer_matrices[] = {
    L(q), L(k), L(v), L(o), L(attn_gate), L(q_latent), L(head_keys), L(head_values),
    L(index_q), L(index_k), L(index_weights),
    L(ffn.gate), L(ffn.up), L(ffn.down), L(router), L(experts.gate), L(experts.up), L(experts.down),
    L(shared.gate), L(shared.up), L(shared.down), L(shared_gate), L(embd_gate), L(embd_up),
    L(altup.router), L(altup.predict), L(altup.correct), L(laurel_a), L(laurel_b),
    L(recurrent.in[0]), L(recurrent.in[1]), L(recurrent.in[2]), L(recurrent.in[3]), L(recurrent.out),
    L(recurrent.step_ranks), L(recurrent.steps), L(recurrent.select), L(recurrent.gate_ranks), L(recurrent.gates)};
#undef L
#define N_LAYER_MATRICES ((int32_t)BASE_ARRAY_LEN(layer_matrices))

/* Layer by layer, then those of no layer, and of the draft head; numbers them. */
static int list_matrices(rp_model *m, rp_error *err) {
    model_network *net = &m->net;
    model_weight *const others[] = {
        &net->head, &net->layer_projection,
        &net->streams_in[0], &net->streams_in[1], &net->streams_in[2],
        &net->streams_out[0], &net->streams_out[1], &net->streams_out[2],
        &net->output, &net->draft_head.projection, &net->draft_head.output};
    const bool has_head = model_has_draft_head(m);
    const int32_t n_of_layers = (net->hp.n_layers + has_head) * N_LAYER_MATRICES,
                  n = n_of_layers + (int32_t)BASE_ARRAY_LEN(others) - (has_head ? 0 : 2);
    net->matrices = base_calloc((size_t)n, sizeof(*net->matrices));
    if (!net->matrices) return base_fail_memory(err, (uint64_t)n * sizeof(*net->matrices), "the layers");
    net->n_matrices = n;
    for (int32_t i = 0; i < n; i++) {
        model_weight *w = i >= n_of_layers ? others[i - n_of_layers] : NULL;
        if (!w) w = (model_weight *)((char *)&net->layers[i / N_LAYER_MATRICES] + layer_matrices[i % N_LAYER_MATRICES]);
        w->matrix = i;
        net->matrices[i] = w;
    }
    BASE_ASSERT(net->output.matrix == n - (has_head ? 3 : 1) && net->layers[0].q.matrix == 0);
    return RP_OK;
}

/* ---- layers ---- */

/* Returns true for every n-th layer: n - 1, 2n - 1, ... */
static bool is_nth(int32_t layer, int32_t n) { return n > 0 && (layer + 1) % n == 0; }

#define UNNORMED_EXPERTS 128 /* Llama 4 Maverick, which no key tells from Scout */

static void set_kind(rp_model *m, int32_t i) {
    model_layer *l = &m->net.layers[i];
    const bool is_rotated = m->net.hp.rot_dim > 0 && (m->arch->features & MODEL_ROPE) &&
                            !is_nth(i, m->arch->no_rope_every) &&
                            !(m->arch->rope_in_windows && m->net.hp.window > 0 && l->window == 0),
               is_local = l->window > 0 && (m->arch->features & MODEL_ROPE_LOCAL);
    l->rope = !is_rotated ? MODEL_NO_ROPE : is_local ? MODEL_ROPE_LOCAL_BASE
                                                     : MODEL_ROPE_GLOBAL;
    l->tempered = m->net.hp.temperature.scale > 0 && (m->arch->temperature.scale == 0 || !is_rotated);
    if (m->arch->unit_norms && is_rotated && m->net.hp.n_experts != UNNORMED_EXPERTS)
        l->q_norm.weight = l->k_norm.weight =
            (model_weight){.data = m->ones, .type = KERNEL_F32, .n_in = l->key_dim, .n_out = 1, .n_slices = 1};
}

/* A layer without KV of its own uses that of the last KV-owning layer with the same window, shape, and rotation of
 * keys. */
static int share_kv(rp_model *m, int32_t i, rp_error *err) {
    BASE_ASSERT(i >= m->net.hp.n_layers - m->net.hp.n_shared);
    model_layer *l = &m->net.layers[i];
    for (int32_t k = m->net.hp.n_layers - m->net.hp.n_shared - 1; k >= 0; k--) {
        const model_layer *own = &m->net.layers[k];
        if (!model_mixer_attends(own->mixer) || own->window != l->window || own->rope != l->rope ||
            own->n_kv_heads != l->n_kv_heads || own->key_dim != l->key_dim || own->value_dim != l->value_dim)
            continue;
        l->states = own->states;
        return RP_OK;
    }
    return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                        "layer %d shares the KV of an earlier layer, but none has the same window, heads and rotation",
                        i);
}

/* Slopes fall geometrically from 2^(-max/n) to 2^-max; n is the largest power of two up to the number of heads. Further
 * heads take every other slope of the sequence for 2n heads (Press et al., 2022). */
static int set_slopes(rp_model *m, rp_error *err) {
    const model_hparams *hp = &m->net.hp;
    m->net.alibi_slopes = base_calloc((size_t)hp->n_heads, sizeof(float));
    if (!m->net.alibi_slopes) return base_fail_memory(err, (uint64_t)hp->n_heads * sizeof(float), "ALiBi's slopes");
    int32_t n = 1;
    while (n * 2 <= hp->n_heads) n *= 2;
    for (int32_t h = 0; h < hp->n_heads; h++) {
        double exponent = h < n ? (double)(h + 1) / n : (2.0 * (h - n) + 1) / (2.0 * n);
        m->net.alibi_slopes[h] = (float)exp2(-(double)hp->alibi_max * exponent);
    }
    return RP_OK;
}

static kv_layer_shape kv_pairs_of(const rp_model *m, const model_layer *l) {
    return (kv_layer_shape){
        .kind = m->net.hp.plain_key_dim > 0 ? KV_LATENT : KV_PAIRS,
        .n_heads = l->n_kv_heads,
        .key_dim = l->key_dim,
        .value_dim = l->value_dim,
        .window = model_is_encoder(m) ? 0 : l->window, /* an encoder's text is one step */
    };
}

static void set_draft_layer(rp_model *m) {
    model_layer *l = &m->net.layers[m->net.hp.n_layers];
    set_kind(m, m->net.hp.n_layers);
    l->states = 0;
    l->recurrence = l->index = -1;
    m->draft_kv_layer = kv_pairs_of(m, l);
}

int model_set_layers(rp_model *m, rp_error *err) {
    int rc = list_matrices(m, err);
    if (rc) return rc;
    /* one for a layer's KV, and one for its state or its index */
    const size_t most = 2 * (size_t)m->net.hp.n_layers;
    m->kv_layers = base_calloc(most, sizeof(*m->kv_layers));
    if (!m->kv_layers) return base_fail_memory(err, most * sizeof(*m->kv_layers), "the layers");
    for (int32_t i = 0; i < m->net.hp.n_layers; i++) {
        model_layer *l = &m->net.layers[i];
        const bool attends = model_mixer_attends(l->mixer);
        set_kind(m, i);
        if (!attends) l->rope = MODEL_NO_ROPE, l->window = 0;
        if (l->mixer == MODEL_NO_MIXER) l->states = -1;
        l->index = -1;
        l->is_chosen = m->net.hp.n_index_heads > 0;
        if (!l->owns_kv) continue;
        l->states = l->recurrence = m->n_kv_layers;
        if (model_mixer_recurs(l->mixer)) {
            l->recurrence += attends;
            m->kv_layers[l->recurrence] =
                (kv_layer_shape){.kind = KV_STATE, .state_bytes = (uint32_t)model_state_bytes(&m->net)};
            m->n_kv_layers++;
        }
        if (!attends) continue;
        m->n_kv_layers++;
        m->kv_layers[l->states] = kv_pairs_of(m, l);
        if (!l->index_k.data) continue;
        const int32_t dim = m->net.hp.index_dim; /* keys alone: values would be all of them */
        l->index = m->n_kv_layers++;
        m->kv_layers[l->index] = (kv_layer_shape){.kind = KV_LATENT, .n_heads = 1, .key_dim = dim, .value_dim = dim};
    }
    if (model_has_draft_head(m)) set_draft_layer(m);
    for (int32_t i = 0; i < m->net.hp.n_layers; i++) {
        const bool shares = !m->net.layers[i].owns_kv && m->net.layers[i].mixer != MODEL_NO_MIXER;
        if (shares && (rc = share_kv(m, i, err))) return rc;
    }
    if (m->n_kv_layers == 0)
        return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                            "no layer has attention or a recurrence: the metadata list feed-forwards alone");
    return m->arch->features & MODEL_ALIBI && m->net.hp.alibi_max > 0 ? set_slopes(m, err) : RP_OK;
}

static int32_t mark_windows(const rp_model *m, kv_layer_shape *kv_layers) {
    int32_t n = 0;
    for (int32_t i = 0; i < m->net.hp.n_layers; i++) {
        if (m->net.layers[i].window == 0) continue;
        BASE_ASSERT(m->net.layers[i].states < m->n_kv_layers);
        kv_layers[m->net.layers[i].states].in_f16 = true;
        n++;
    }
    return n;
}

/* A number at *at, which is moved past it; -1: none, or it is too large for any model. */
static int32_t read_number(const char **at) {
    int32_t n = **at >= '0' && **at <= '9' ? 0 : -1;
    for (; **at >= '0' && **at <= '9' && n >= 0; ++*at) n = n < 100000 ? n * 10 + (**at - '0') : -1;
    return n;
}

int model_read_f16_layers(const rp_model *m, const char *name, const char *list, kv_layer_shape *kv_layers,
                          rp_error *err) {
    static const char windows[] = "windows";
    for (int32_t i = 0; i < m->n_kv_layers; i++) kv_layers[i].in_f16 = false;
    for (const char *at = list;; at++) {
        int32_t first = 0, last = -1; /* none */
        const bool is_windows = strncmp(at, windows, strlen(windows)) == 0;
        if (is_windows) at += strlen(windows);
        else first = last = read_number(&at);
        if (!is_windows && first >= 0 && *at == '-') at++, last = read_number(&at);
        if (first < 0 || (!is_windows && last < first) || (*at != ',' && *at != '\0'))
            return base_fail(err, RP_ERR_INVALID, "%s '%.60s': give layers and ranges, as in 0,1,27 or 0-2, or windows",
                             name, list);
        if (is_windows && mark_windows(m, kv_layers) == 0)
            return base_fail(err, RP_ERR_INVALID,
                             "%s '%.60s': no layer of this model has a sliding window: give numbers of layers", name,
                             list);
        if (last >= m->net.hp.n_layers)
            return base_fail(err, RP_ERR_INVALID, "%s '%.60s': there is no layer %d: this model has layers 0 to %d",
                             name, list, last, m->net.hp.n_layers - 1);
        for (int32_t i = first; i <= last; i++)
            if (model_mixer_attends(m->net.layers[i].mixer)) kv_layers[m->net.layers[i].states].in_f16 = true;
        if (*at == '\0') return RP_OK;
    }
}

kv_shape model_draft_kv_shape(const rp_model *m) {
    BASE_ASSERT(model_has_draft_head(m));
    return (kv_shape){.n_layers = 1, .layers = &m->draft_kv_layer, .format = RP_KV_F16};
}

kv_shape model_kv_shape(const rp_model *m, rp_kv_format format) {
    return (kv_shape){.n_layers = m->n_kv_layers, .layers = m->kv_layers, .format = format};
}
