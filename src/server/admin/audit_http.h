/* SPDX-License-Identifier: Apache-2.0 */
/* audit_http.h: what the engine's auditor found, for /metrics. */
#ifndef SERVER_AUDIT_HTTP_H
#define SERVER_AUDIT_HTTP_H

#include "base/buffer.h"
#include "reprise_store.h"

/* Of one engine. label: `model="NAME",`, or "". */
typedef struct audit_metrics {
    const char *label;
    const rp_audit *audit; /* NULL: none */
} audit_metrics;

/* Appends the auditor's families of n engines. Errors of base_buffer_printf. */
int audit_append_metrics(base_buffer *b, const audit_metrics *engines, size_t n) BASE_NODISCARD;

#endif
