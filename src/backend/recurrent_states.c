/* SPDX-License-Identifier: Apache-2.0 */
/* recurrent_states.c: see recurrent_states.h. */
#include "backend/recurrent_states.h"

#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

size_t recurrent_state_at(const kv_shape *shape, int32_t layer) {
    size_t at = 0;
    for (int32_t l = 0; l < layer; l++)
        at += BASE_DIV_UP((size_t)shape->layers[l].state_bytes, RECURRENT_STATE_ALIGNMENT) * RECURRENT_STATE_ALIGNMENT;
    return at;
}

size_t recurrent_matrices_at(const model_network *net) {
    return (size_t)(net->hp.recurrent.kernel - 1) * (size_t)net->hp.recurrent.channels;
}

size_t recurrent_matrix_floats(const model_network *net) {
    return (size_t)net->hp.recurrent.head_dim * (size_t)net->hp.recurrent.state_dim;
}

size_t recurrent_decays_at(const model_network *net) {
    return recurrent_matrices_at(net) + (size_t)net->hp.recurrent.n_heads * recurrent_matrix_floats(net);
}

void recurrent_state_begin(const model_network *net, float *state) {
    float *decays = state + recurrent_decays_at(net);
    for (int32_t h = 0; h < net->hp.recurrent.n_heads; h++) decays[h] = 1;
}

void recurrent_state_compose(const model_network *net, float *now, const float *end, const float *begin) {
    const size_t n = recurrent_matrix_floats(net), at = recurrent_matrices_at(net);
    const size_t n_heads = (size_t)net->hp.recurrent.n_heads;
    const float *decays = end + recurrent_decays_at(net);
    float *products = now + recurrent_decays_at(net);
    for (size_t h = 0; h < n_heads; h++)
        for (size_t i = at + h * n; i < at + (h + 1) * n; i++) {
            const float change = now[i] - (begin ? begin[i] : 0.0f), kept = decays[h] * change;
            now[i] = change == 0 ? end[i] : end[i] + kept; /* a negative zero stays one */
        }
    for (size_t h = 0; h < n_heads; h++) products[h] *= decays[h];
    memcpy(now, end, at * sizeof(float));
}

void recurrent_input_widths(const model_hparams *hp, const model_layer *l, int64_t widths[MODEL_MAX_SCANNED]) {
    for (int i = 0; i < MODEL_MAX_SCANNED; i++)
        widths[i] = i < MODEL_MAX_INPUTS && l->recurrent.in[i].data ? l->recurrent.in[i].n_out : 0;
    if (l->mixer == MODEL_KIMI_DELTA) widths[4] = widths[5] = l->recurrent.out.n_in;
    if (l->mixer != MODEL_MAMBA1) return;
    widths[1] = widths[2] = hp->recurrent.channels;
    widths[3] = 2 * (int64_t)hp->recurrent.state_dim;
}

int recurrent_kept_open(recurrent_kept *k, backend *b, const model_network *net, int32_t rows, rp_error *err) {
    const int32_t n_layers = net->hp.n_layers;
    int64_t most = 0;
    int rc = RP_OK;
    *k = (recurrent_kept){0};
    if (rows == 0) return RP_OK;
    if (!(k->inputs = base_calloc((size_t)n_layers, sizeof(*k->inputs))))
        return base_fail_memory(err, (uint64_t)n_layers * sizeof(*k->inputs), "recurrent layers");
    for (int32_t l = 0; l < n_layers && !rc; l++) {
        int64_t widths[MODEL_MAX_SCANNED];
        if (!model_mixer_recurs(net->layers[l].mixer)) continue;
        recurrent_input_widths(&net->hp, &net->layers[l], widths);
        for (int i = 0; i < MODEL_MAX_SCANNED && !rc; i++)
            if (widths[i] > 0) rc = b->ops->buffer_new(b, rows, (int32_t)widths[i], &k->inputs[l][i], err);
        most = BASE_MAX(most, net->layers[l].recurrent.out.n_in);
    }
    return rc ? rc : b->ops->buffer_new(b, rows, (int32_t)most, &k->accepted, err);
}

void recurrent_kept_free(recurrent_kept *k, backend *b, const model_network *net) {
    for (int32_t l = 0; k->inputs && l < net->hp.n_layers; l++)
        for (int i = 0; i < MODEL_MAX_SCANNED; i++) b->ops->buffer_free(b, k->inputs[l][i]);
    b->ops->buffer_free(b, k->accepted);
    base_free(k->inputs);
}
