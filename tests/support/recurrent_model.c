/* SPDX-License-Identifier: Apache-2.0 */
/* recurrent_model.c: see recurrent_model.h. */
#include "recurrent_model.h"

#include <assert.h>

#include "golden.h"
#include "model/model.h"
#include "must.h"
#include "tiny_model.h"

#define MAX_STATE 1024 /* elements of a layer */

/* From 0.5 to 0.97: some channels forget within ten tokens, some remember hundreds. */
static float decays[MAX_STATE];

void recurrent_model_make(rp_model *m) {
    const int32_t n = m->net.hp.n_heads * m->net.hp.key_dim;
    assert(n <= MAX_STATE && m->net.hp.key_dim == m->net.hp.value_dim && m->net.hp.n_layers > 1);
    for (int32_t i = 0; i < MAX_STATE; i++) decays[i] = 0.5f + (float)(i * 37 % 48) * 0.01f;
    for (int32_t l = 1; l < m->net.hp.n_layers; l += 2) {
        model_layer *layer = &m->net.layers[l];
        assert(layer->owns_kv);
        layer->mixer = MODEL_DECAYED_SUM;
        layer->recurrence = layer->states;
        layer->recurrent.in[0] = layer->q;
        layer->recurrent.out = layer->o;
        layer->recurrent.decay = (model_weight){.type = KERNEL_F32, .data = decays, .n_in = n, .n_out = 1};
        m->kv_layers[layer->states] =
            (kv_layer_shape){.kind = KV_STATE, .state_bytes = (uint32_t)(sizeof(float) * (size_t)n)};
    }
}

rp_model *recurrent_model_open(const char *golden_name) {
    rp_model *m;
    if (golden_name) {
        rp_error err = {0};
        golden *g = golden_open();
        must(rp_model_open(&m, golden_find(g, golden_name)->path, NULL, &err), &err);
        golden_close(g);
        return m;
    }
    tiny_model_shape shape = tiny_model_defaults();
    shape.n_layers = 4;
    m = tiny_model_open(&shape, NULL);
    recurrent_model_make(m);
    return m;
}
