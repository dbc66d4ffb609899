/* SPDX-License-Identifier: Apache-2.0 */
/* histogram.h: how often something took how long, for /metrics. Any thread, without a lock. */
#ifndef SERVER_HISTOGRAM_H
#define SERVER_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buffer.h"

#define SERVER_HISTOGRAM_BOUNDS 19 /* 1, 2, 5 of each decade, from 0.1 ms to 100 s */

typedef struct server_histogram {
    _Atomic uint64_t
        buckets[SERVER_HISTOGRAM_BOUNDS + 1]; /* each up to its bound, beyond the one before; the last has none */
    _Atomic uint64_t sum_us;
} server_histogram;

void histogram_add_us(server_histogram *h, uint64_t us);
static inline void histogram_add_ms(server_histogram *h, double ms) {
    histogram_add_us(h, ms > 0 ? (uint64_t)(ms * 1e3) : 0);
}
/* Appends reprise_NAME_seconds in Prometheus' text format, in seconds. Nonzero: out of memory or over the buffer's
 * limit. */
int histogram_append(base_buffer *b, const char *name, const char *help, server_histogram *h);

#endif
