/* SPDX-License-Identifier: Apache-2.0 */
/* audit_http.h: what the engine's auditor found, for /metrics. */
#ifndef SERVER_AUDIT_HTTP_H
#define SERVER_AUDIT_HTTP_H

#include "base/buffer.h"
#include "reprise.h"

/* Appends the auditor's families. Errors of base_buffer_printf. */
int audit_append_metrics(base_buffer *b, rp_engine *engine) BASE_NODISCARD;

#endif
