/* SPDX-License-Identifier: Apache-2.0 */
/* model_network.c: see model_network.h. */
#include "backend/model_network.h"

#include <math.h>

#include "base/check.h"

bool model_is_recurrent(const model_network *net) {
    bool is = false;
    for (int32_t l = 0; l < net->hp.n_layers && !is; l++) is = model_mixer_recurs(net->layers[l].mixer);
    return is;
}

bool model_states_compose(const model_network *net) {
    net = model_network_whole(net); /* a part of it has the states of all of it */
    bool any = false, all = true;
    for (int32_t l = 0; l < net->hp.n_layers; l++) {
        const model_mixer mixer = net->layers[l].mixer;
        if (!model_mixer_recurs(mixer)) continue;
        any = true;
        all &= mixer == MODEL_MAMBA2 || mixer == MODEL_ATTENTION_MAMBA2;
    }
    return any && all;
}

uint64_t model_state_bytes(const model_network *net) {
    const uint64_t inputs = (uint64_t)(net->hp.recurrent.kernel - 1) * (uint64_t)net->hp.recurrent.channels;
    const uint64_t matrix = (uint64_t)net->hp.recurrent.head_dim * (uint64_t)net->hp.recurrent.state_dim;
    BASE_ASSERT(net->hp.recurrent.kernel > 1 && net->hp.recurrent.channels > 0);
    const uint64_t decay = model_states_compose(net) ? 1 : 0;
    return sizeof(float) * (inputs + (uint64_t)net->hp.recurrent.n_heads * (matrix + decay));
}

bool model_rope_is_long(const model_network *net, int32_t n_ctx) {
    return net->ropes[MODEL_ROPE_LONG].frequencies && n_ctx > net->hp.rope.n_ctx_original;
}

const model_rope *model_layer_rope(const model_network *net, int32_t rope, int32_t n_ctx) {
    BASE_ASSERT(rope == MODEL_ROPE_GLOBAL || rope == MODEL_ROPE_LOCAL_BASE); /* MODEL_ROPE_LONG is chosen here */
    return &net->ropes[rope == MODEL_ROPE_GLOBAL && model_rope_is_long(net, n_ctx) ? MODEL_ROPE_LONG : rope];
}

void model_rope_angles(const model_rope *rope, int32_t pos, float scale, float *cs) {
    BASE_DCHECK(rope->rot_dim % 2 == 0);
    for (int32_t i = 0; i < rope->rot_dim / 2; i++) {
        double angle = pos * rope->frequencies[i];
        cs[2 * i] = (float)(scale * cos(angle));
        cs[2 * i + 1] = (float)(scale * sin(angle));
    }
}
