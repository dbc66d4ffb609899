/* SPDX-License-Identifier: Apache-2.0 */
/* recurrent_states.c: see recurrent_states.h. */
#include "backend/recurrent_states.h"

#include <string.h>

#include "base/compiler.h"

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
