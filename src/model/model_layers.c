/* model_layers.c: what differs from layer to layer: windows, rotations, whose states it attends to; and ALiBi's slopes. */
#include <math.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/model_internal.h"

/* Is this the last of every n layers? */
static bool is_nth(int32_t layer, int32_t n) { return n > 0 && (layer + 1) % n == 0; }

static void set_kind(rp_model *m, int32_t i) {
    model_layer *l = &m->layers[i];
    l->window = is_nth(i, m->arch->global_every) ? 0 : m->hp.window;
    l->rope = MODEL_NO_ROPE;
    if (m->hp.rot_dim == 0 || is_nth(i, m->arch->no_rope_every)) return;
    l->rope = l->window > 0 && (m->arch->features & MODEL_ROPE_LOCAL) ? MODEL_ROPE_LOCAL_BASE : MODEL_ROPE_GLOBAL;
}

/* A layer without states takes those of the last layer before it that has some and the same window, or else of the last that has some. */
static int32_t shared_states(const rp_model *m, int32_t i) {
    for (int32_t k = m->n_state_layers - 1; k >= 0; k--)
        if (m->state_windows[k] == m->layers[i].window) return k;
    return m->n_state_layers - 1;
}

/* A layer that shares states reads as far back as its own window, so they are kept as far as any of their readers. */
static void share_states(rp_model *m, int32_t i) {
    model_layer *l = &m->layers[i];
    l->states = shared_states(m, i);
    int32_t *window = &m->state_windows[l->states];
    if (l->window == 0) *window = 0;
    else if (*window > 0) *window = BASE_MAX(*window, l->window);
}

/* Slopes fall geometrically from 2^(-max/n) to 2^-max, n the largest power of two that is not above the number of heads; heads beyond
 * that take every other slope of twice as many (Press et al., 2022). */
static int set_slopes(rp_model *m, rp_error *err) {
    const model_hparams *hp = &m->hp;
    m->alibi_slopes = base_calloc((size_t)hp->n_heads, sizeof(float));
    if (!m->alibi_slopes) return base_fail_memory(err, (uint64_t)hp->n_heads * sizeof(float), "ALiBi's slopes");
    int32_t n = 1;
    while (n * 2 <= hp->n_heads) n *= 2;
    for (int32_t h = 0; h < hp->n_heads; h++) {
        double exponent = h < n ? (double)(h + 1) / n : (2.0 * (h - n) + 1) / (2.0 * n);
        m->alibi_slopes[h] = (float)exp2(-(double)hp->alibi_max * exponent);
    }
    return RP_OK;
}

int model_set_layers(rp_model *m, rp_error *err) {
    m->state_windows = base_calloc((size_t)m->hp.n_layers, sizeof(int32_t));
    if (!m->state_windows) return base_fail_memory(err, (uint64_t)m->hp.n_layers * sizeof(int32_t), "the layers");
    for (int32_t i = 0; i < m->hp.n_layers; i++) {
        set_kind(m, i);
        if (!m->layers[i].owns_states) continue;
        m->layers[i].states = m->n_state_layers;
        m->state_windows[m->n_state_layers++] = m->layers[i].window;
    }
    for (int32_t i = 0; i < m->hp.n_layers; i++)
        if (!m->layers[i].owns_states) share_states(m, i);
    return m->arch->features & MODEL_ALIBI ? set_slopes(m, err) : RP_OK;
}

kv_shape model_state_shape(const rp_model *m, kv_format format) {
    return (kv_shape){.n_layers = m->n_state_layers,
                      .n_kv_heads = m->hp.n_kv_heads,
                      .key_dim = m->hp.key_dim,
                      .value_dim = m->hp.value_dim,
                      .windows = m->hp.window > 0 ? m->state_windows : NULL,
                      .format = format};
}
