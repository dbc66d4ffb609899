/* SPDX-License-Identifier: Apache-2.0 */
/* model_rope.c: frequencies of rotary positions.
 *
 * Frequency i of a head's rot_dim / 2 is base^(-2i / rot_dim), divided by a factor: one for all (linear), one for each
 * from the file (Llama 3, long-rope), or YaRN's ramp (Peng et al., 2023), which keeps frequencies that turn often
 * within the original context and divides those that do not complete one turn.
 */
#include <math.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/model_internal.h"

/* The dimension with a frequency that turns `turns` times within the original context. */
static double yarn_dimension(const model_hparams *hp, double turns) {
    return hp->rot_dim * log(hp->rope.n_ctx_original / (turns * 2.0 * 3.14159265358979323846)) /
           (2.0 * log(hp->rope.base));
}

/* Share of frequency i that is divided by the factor: 0 up to the fast end of the ramp, 1 from its slow end on. */
static double yarn_share(const model_hparams *hp, int32_t i) {
    double low = yarn_dimension(hp, hp->rope.beta_fast), high = yarn_dimension(hp, hp->rope.beta_slow);
    if (hp->rope.yarn_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = BASE_MAX(low, 0.0);
    high = BASE_MIN(high, hp->rot_dim - 1.0);
    double share = (i - low) / BASE_MAX(high - low, 0.001);
    return BASE_MIN(BASE_MAX(share, 0.0), 1.0);
}

static double scaled_frequency(const model_hparams *hp, double frequency, int32_t i) {
    double slow = frequency / hp->rope.factor;
    if (!hp->rope.yarn) return slow;
    double share = yarn_share(hp, i);
    return slow * share + frequency * (1.0 - share);
}

static int set_rope(rp_model *m, int32_t kind, const model_weight *factors, rp_error *err) {
    const model_hparams *hp = &m->net.hp;
    bool local = kind == MODEL_ROPE_LOCAL_BASE;
    const int32_t rot_dim = local ? hp->rope.rot_dim_local : hp->rot_dim;
    model_rope *r = &m->net.ropes[kind];
    BASE_ASSERT(!r->frequencies && rot_dim > 0 && rot_dim % 2 == 0);
    BASE_ASSERT(!factors->data || factors->n_in == rot_dim / 2);
    r->rot_dim = rot_dim;
    r->magnitude = local ? 1.0f : (float)hp->rope.magnitude;
    r->frequencies = base_calloc((size_t)(rot_dim / 2), sizeof(double));
    if (!r->frequencies) return base_fail_memory(err, (uint64_t)rot_dim * 4, "rotations");
    for (int32_t i = 0; i < rot_dim / 2; i++) {
        double frequency = pow(local ? hp->rope.base_local : hp->rope.base, -2.0 * i / rot_dim);
        if (!local) frequency = scaled_frequency(hp, frequency, i);
        if (factors->data) frequency /= ((const float *)factors->data)[i];
        r->frequencies[i] = frequency;
    }
    return RP_OK;
}

int model_set_ropes(rp_model *m, rp_error *err) {
    static const model_weight none = {0};
    const model_weight *shortest = m->rope_factors_short.data ? &m->rope_factors_short : &m->rope_factors;
    int rc;
    if (m->net.hp.rot_dim == 0 || !(m->arch->features & MODEL_ROPE)) return RP_OK;
    if ((rc = set_rope(m, MODEL_ROPE_GLOBAL, shortest, err))) return rc;
    if (m->rope_factors_long.data && (rc = set_rope(m, MODEL_ROPE_LONG, &m->rope_factors_long, err))) return rc;
    return m->arch->features & MODEL_ROPE_LOCAL ? set_rope(m, MODEL_ROPE_LOCAL_BASE, &none, err) : RP_OK;
}
