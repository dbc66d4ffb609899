/* SPDX-License-Identifier: Apache-2.0 */
/* model_advice.c: the sampling that a model's file advises. Its converter copies the keys from the publisher's
 * generation_config.json. Other keys of general.sampling (sequence, xtc, mirostat) are for samplers that are not here.
 * Owns nothing. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/log.h"
#include "model/model_internal.h"

#define PREFIX "general.sampling."

/* Numbers of either kind, since writers differ. Returns false if the key is absent or no number. */
static bool advice_number(const gguf_file *f, const char *key, double *out) {
    int64_t whole;
    if (gguf_get_f64(f, key, out)) return true;
    if (!gguf_get_i64(f, key, &whole)) return false;
    *out = (double)whole;
    return true;
}

void model_read_advice(rp_model *m) {
    rp_sampling *a = &m->advice;
    const struct {
        const char *key;
        uint32_t is;
        float *real;
        int32_t *whole;
        double min, max;
    } rows[] = {
        {PREFIX "temp", RP_ADVISES_TEMPERATURE, &a->temperature, NULL, 0, 100},
        {PREFIX "top_k", RP_ADVISES_TOP_K, NULL, &a->top_k, -1, INT32_MAX},
        {PREFIX "top_p", RP_ADVISES_TOP_P, &a->top_p, NULL, 0, 1},
        {PREFIX "min_p", RP_ADVISES_MIN_P, &a->min_p, NULL, 0, 1},
        {PREFIX "penalty_repeat", RP_ADVISES_REPEAT_PENALTY, &a->repeat_penalty, NULL, 0.01, 100},
        {PREFIX "penalty_last_n", RP_ADVISES_REPEAT_LAST, NULL, &a->repeat_last, -1, INT32_MAX},
    };
    char wrong[256] = "";
    for (size_t i = 0; i < BASE_ARRAY_LEN(rows); i++) {
        double value = NAN;
        if (!gguf_has(m->file, rows[i].key)) continue;
        const bool is_number = advice_number(m->file, rows[i].key, &value);
        const bool fits =
            is_number && value >= rows[i].min && value <= rows[i].max && (rows[i].real || value == floor(value));
        const size_t used = strlen(wrong);
        if (!fits) snprintf(wrong + used, sizeof(wrong) - used, "%s%s", used > 0 ? ", " : "", rows[i].key);
        else if (rows[i].real) *rows[i].real = (float)value;
        else *rows[i].whole = (int32_t)value;
        if (fits) m->advised |= rows[i].is;
    }
    if (m->advised & RP_ADVISES_TOP_K) a->top_k = BASE_MAX(a->top_k, 0); /* -1: off, elsewhere */
    if (wrong[0])
        base_log(BASE_LOG_WARN, "%s: sampling advice that is no number, or out of range, is not used: %s",
                 gguf_name(m->file), wrong);
}
