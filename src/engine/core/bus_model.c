/* SPDX-License-Identifier: Apache-2.0 */
/* bus_model.c: see bus_model.h. */
#include "engine/core/bus_model.h"

#include "base/check.h"

/* The speed is that of about the last gigabyte; less than the least says little, as copies differ in size. */
#define MOST_BYTES 1e9
#define LEAST_BYTES 67108864.0
/* KV is computed again if that is so much quicker than its copy: times are disturbed, and a copy hides behind steps. */
#define RECOMPUTE_GAIN 2.0

void bus_model_learn(bus_speed *s, uint64_t bytes, uint64_t us) {
    if (bytes == 0) return;
    s->bytes += (double)bytes;
    s->us += (double)us;
    BASE_ASSERT(s->bytes > 0 && s->us >= 0);
    if (s->bytes < MOST_BYTES) return;
    s->bytes /= 2;
    s->us /= 2;
}

double bus_model_byte_us(const bus_speed *s) { return s->bytes >= LEAST_BYTES ? s->us / s->bytes : 0; }

bool bus_model_reads_in_place(const bus_model *m, double n_reads, bool is_full) {
    const double up = bus_model_byte_us(&m->to_device), down = bus_model_byte_us(&m->to_ram);
    const double ratio = up > 0 && down > 0 ? down / up : 1; /* as fast both ways */
    return n_reads < 1 + (is_full ? ratio : 0);
}

bool bus_model_recomputes(const bus_model *m, uint64_t bytes, uint64_t cost_us) {
    return cost_us > 0 && (double)bytes * bus_model_byte_us(&m->to_device) > RECOMPUTE_GAIN * (double)cost_us;
}
