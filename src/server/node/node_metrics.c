/* SPDX-License-Identifier: Apache-2.0 */
/* node_metrics.c: see node_metrics.h. */
#include "server/node/node_metrics.h"

#include "base/compiler.h"
#include "server/core/metrics.h"
#include "server/http/server_internal.h"
#include "server/node/cluster_node.h"
#include "server/node/kv_events.h"

static int append_cluster(base_buffer *b, rp_server *s) {
    if (!s->cluster) return 0;
    const server_metric list[] = {
        {"cluster_streams", "gauge", "Span streams that routers read.", (uint64_t)cluster_node_streams(s->cluster)},
        {"cluster_names", "gauge", "Names of KV that the node reports as held.", cluster_node_names(s->cluster)},
        {"cluster_draining", "gauge", "1 if the node accepts no new requests, else 0.", server_is_draining(s)},
    };
    return metrics_append(b, list, BASE_ARRAY_LEN(list));
}

static int append_kv_events(base_buffer *b, rp_server *s) {
    if (!s->kv_events) return 0;
    const kv_events_counts c = kv_events_count(s->kv_events);
    const server_metric list[] = {
        {"kv_events_blocks", "gauge", "Blocks of text that KV events say are held.", c.blocks},
        {"kv_events_left_out_total", "counter", "Blocks that KV events leave out: too many, or no memory.", c.left_out},
        {"kv_events_messages_total", "counter", "Messages with KV events.", c.messages},
        {"kv_events_restarts_total", "counter", "Times that everything was published, for new subscribers.",
         c.restarts},
    };
    return metrics_append(b, list, BASE_ARRAY_LEN(list));
}

int node_metrics_append(base_buffer *b, rp_server *s) {
    const int rc = append_cluster(b, s);
    return rc ? rc : append_kv_events(b, s);
}
