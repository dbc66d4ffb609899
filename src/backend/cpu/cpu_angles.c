/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_angles.c: the angles of rotations: of every row's position and every view's shift in a step, and of their
   differences. */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"

static int row_angles(cpu_backend *b, cpu_angles *a, rp_error *err) {
    const model_step *step = b->step;
    size_t rot = (size_t)a->rope->rot_dim;
    int rc = base_grow((void **)&a->rows, &a->cap_rows, (size_t)step->n_rows * rot, SIZE_MAX / 8, sizeof(float));
    if (rc) return base_fail_memory(err, (uint64_t)step->n_rows * rot * sizeof(float), "rotations");
    for (int32_t r = 0; r < step->n_rows; r++)
        model_rope_angles(a->rope, step->rows[r].pos, a->rope->magnitude, a->rows + (size_t)r * rot);
    return RP_OK;
}

static int view_angles(cpu_backend *b, cpu_angles *a, rp_error *err) {
    size_t rot = (size_t)a->rope->rot_dim, n = 0;
    for (int32_t i = 0; i < b->step->n_contexts; i++) n += b->step->contexts[i]->n_views;
    int rc = base_grow((void **)&a->views, &a->cap_views, n * rot, SIZE_MAX / 8, sizeof(float));
    if (rc) return base_fail_memory(err, n * rot * sizeof(float), "rotations");
    float *cs = a->views;
    for (int32_t i = 0; i < b->step->n_contexts; i++) {
        const kv_context *c = b->step->contexts[i];
        for (size_t v = 0; v < c->n_views; v++, cs += rot) {
            if (v > 0 && c->views[v].shift == c->views[v - 1].shift) memcpy(cs, cs - rot, rot * sizeof(float));
            else model_rope_angles(a->rope, c->views[v].shift, 1.0f, cs);
        }
    }
    BASE_ASSERT(cs == a->views + n * rot);
    return RP_OK;
}

const float *cpu_shifted_angles(const cpu_backend *b, const cpu_angles *angles, int32_t row, int32_t shift,
                                const float *shift_cs, float *out) {
    int32_t rot = angles->rope->rot_dim;
    BASE_DCHECK(row >= 0 && row < b->step->n_rows);
    const float *a = angles->rows + (int64_t)row * rot;
    if (shift == 0) return a;
    for (int32_t i = 0; i < rot; i += 2) {
        out[i] = a[i] * shift_cs[i] + a[i + 1] * shift_cs[i + 1];
        out[i + 1] = a[i + 1] * shift_cs[i] - a[i] * shift_cs[i + 1];
    }
    return out;
}

void cpu_weigh_queries(const cpu_backend *b, const model_layer *l, int32_t n, const float *shift_cs, float *scratch,
                       float *queries) {
    const float *weights = l->query_weights.data;
    const int32_t dim = l->key_dim;
    BASE_DCHECK(l->rope != MODEL_NO_ROPE && l->query_weights.n_in == dim);
    for (int32_t h = 0; h < n; h++)
        for (int32_t d = 0; d < dim; d++) queries[(int64_t)h * dim + d] *= weights[d];
    if (!shift_cs) return;
    const int32_t rot_dim = b->angles[l->rope].rope->rot_dim;
    for (int32_t i = 0; i < rot_dim; i++) scratch[i] = i % 2 ? -shift_cs[i] : shift_cs[i];
    b->kernels.rope(queries, scratch, n, dim, rot_dim, b->net->hp.rope_halves, queries);
}

int cpu_angles_begin(cpu_backend *b, rp_error *err) {
    int rc = RP_OK;
    for (int i = 0; i < CPU_N_ANGLES && !rc; i++) {
        cpu_angles *a = &b->angles[i];
        if (a->rope && !(rc = row_angles(b, a, err))) rc = view_angles(b, a, err);
    }
    return rc;
}

void cpu_angles_free(cpu_backend *b) {
    for (int i = 0; i < CPU_N_ANGLES; i++) {
        base_free(b->angles[i].rows);
        base_free(b->angles[i].views);
    }
}
