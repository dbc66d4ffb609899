/* SPDX-License-Identifier: Apache-2.0 */
/* admission.c: see admission.h. */
#include "cluster/admission.h"

#include <math.h>

#include "base/check.h"
#include "base/compiler.h"
#include "cluster/cost.h"

#define MOST_RETRY_MS 60000.0
#define UNKNOWN_RETRY_MS 1000 /* no answer has ended yet */

bool cluster_admission_decodes(uint64_t began_us, uint64_t then_us, double mean_us) {
    return began_us <= then_us && (mean_us <= 0 || (double)(then_us - began_us) < mean_us);
}

double cluster_admission_rows(const rp_engine_load *load, const cluster_own_answers *own, double after_us,
                              double mean_us) {
    BASE_ASSERT(own->then >= 0 && own->then <= own->answering + own->waiting); /* some of both */
    double decoding = BASE_MAX(load->decoding - own->answering, 0);
    double waiting = BASE_MAX((double)load->running + load->waiting - load->decoding - own->waiting, 0);
    double lives = mean_us > 0 ? BASE_MAX(1 - after_us / mean_us, 0) : 1;
    return own->then + decoding * lives + waiting;
}

double cluster_admission_step_ms(const rp_engine_load *load, double rows, double slots) {
    BASE_ASSERT(rows >= 0 && slots >= 0);
    /* Each answer has the mean context of those that decode now. */
    double each = load->decoding > 0 ? (double)load->context_tokens / load->decoding : slots;
    double all = rows * each + slots;
    return cluster_cost_step(load, rows + 1, all, all) / 1e3;
}

static uint64_t retry_ms(double ms) { return (uint64_t)ceil(BASE_MIN(BASE_MAX(ms, 1), MOST_RETRY_MS)); }

uint64_t cluster_admission_retry_ttft(double least_ms, double goal_ms) { return retry_ms(least_ms - goal_ms); }

uint64_t cluster_admission_retry_itl(double rows, double mean_us) {
    return mean_us > 0 ? retry_ms(mean_us / 1e3 / BASE_MAX(rows, 1)) : UNKNOWN_RETRY_MS;
}
