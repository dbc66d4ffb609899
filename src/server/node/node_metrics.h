/* SPDX-License-Identifier: Apache-2.0 */
/* node_metrics.h: metrics of a node of a cluster, and of a publisher of KV events. */
#ifndef SERVER_NODE_METRICS_H
#define SERVER_NODE_METRICS_H

#include "base/buffer.h"
#include "server/http/server_request.h"

/* Nothing, if the server is neither. Errors of base_buffer_printf. */
int node_metrics_append(base_buffer *b, rp_server *s) BASE_NODISCARD;

#endif
