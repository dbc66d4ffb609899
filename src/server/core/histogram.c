/* SPDX-License-Identifier: Apache-2.0 */
/* histogram.c: see histogram.h. Owns nothing. */
#include "server/core/histogram.h"

#include <inttypes.h>

static const uint64_t bounds_us[SERVER_HISTOGRAM_BOUNDS] = {
    100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000,
    200000, 500000, 1000000, 2000000, 5000000, 10000000, 20000000, 50000000, 100000000};

void histogram_add_us(server_histogram *h, uint64_t us) {
    int i = 0;
    while (i < SERVER_HISTOGRAM_BOUNDS && us > bounds_us[i]) i++;
    atomic_fetch_add(&h->buckets[i], 1);
    atomic_fetch_add(&h->sum_us, us);
}

/* The count is that of the last bucket, whatever is added meanwhile. */
int histogram_append(base_buffer *b, const char *name, const char *help, server_histogram *h) {
    uint64_t count = 0;
    int rc =
        base_buffer_printf(b, "# HELP reprise_%s_seconds %s\n# TYPE reprise_%s_seconds histogram\n", name, help, name);
    for (int i = 0; i < SERVER_HISTOGRAM_BOUNDS && !rc; i++) {
        count += atomic_load(&h->buckets[i]);
        rc = base_buffer_printf(b, "reprise_%s_seconds_bucket{le=\"%g\"} %" PRIu64 "\n", name,
                                (double)bounds_us[i] / 1e6, count);
    }
    count += atomic_load(&h->buckets[SERVER_HISTOGRAM_BOUNDS]);
    if (rc) return rc;
    return base_buffer_printf(b, "reprise_%s_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\nreprise_%s_seconds_sum %.6f\n"
                                 "reprise_%s_seconds_count %" PRIu64 "\n",
                              name, count, name, (double)atomic_load(&h->sum_us) / 1e6, name, count);
}
