/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h: metrics of one value each, in Prometheus' text form. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include <stdint.h>

#include "base/buffer.h"

typedef struct server_metric {
    const char *name, *type, *help; /* without "reprise_"; "counter" or "gauge" */
    uint64_t value;
} server_metric;

/* Appends HELP, TYPE and the value of each. Errors of base_buffer_printf. */
int metrics_append(base_buffer *b, const server_metric *list, size_t n) BASE_NODISCARD;

#endif
