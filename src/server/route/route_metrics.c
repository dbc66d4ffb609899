/* SPDX-License-Identifier: Apache-2.0 */
/* route_metrics.c: a router's part of /metrics (route.h). Any thread. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "base/memory.h"
#include "server/route/route_internal.h"

typedef struct node_figures {
    char name[CLUSTER_NODE_NAME_BYTES];
    double health, draining, running, waiting, queued_tokens, drain_seconds, sent, names, placed, failed, silent;
    double frames, bytes, changes, snapshots, gaps, wrong_digests, other_epochs, cuts, forged, ignored;
} node_figures;

#define AT(field) offsetof(node_figures, field)
static const struct {
    const char *name, *type, *help;
    size_t at;
} families[] = {
    {"node_health", "gauge", "Health of a node: 0 dead, 1 suspect, 2 well.", AT(health)},
    {"node_draining", "gauge", "1 if a node gets no new requests, by the operator or by itself.", AT(draining)},
    {"node_running", "gauge", "Requests that a node runs, as it reported last.", AT(running)},
    {"node_waiting", "gauge", "Requests that wait in a node, as it reported last.", AT(waiting)},
    {"node_queued_tokens", "gauge", "Prompt tokens queued on a node, as it reported last.", AT(queued_tokens)},
    {"node_drain_seconds", "gauge", "Predicted time until a node has computed its queued prompt tokens.",
     AT(drain_seconds)},
    {"node_sent", "gauge", "Requests of this router on a node.", AT(sent)},
    {"node_names", "gauge", "Names of KV of a node in the index of this router.", AT(names)},
    {"node_placed_total", "counter", "Requests that this router sent to a node.", AT(placed)},
    {"node_failed_total", "counter", "Requests that a node failed to answer.", AT(failed)},
    {"node_silent_total", "counter",
     "Requests that moved or ended because a node gave no sign of life of them for --node-timeout.", AT(silent)},
    {"node_stream_frames_total", "counter", "Frames of a node's span stream.", AT(frames)},
    {"node_stream_bytes_total", "counter", "Bytes of a node's span stream.", AT(bytes)},
    {"node_stream_changes_total", "counter", "Changes of names in a node's span stream.", AT(changes)},
    {"node_stream_snapshots_total", "counter", "Snapshots in a node's span stream.", AT(snapshots)},
    {"node_stream_gaps_total", "counter", "Gaps in a node's span stream: missing changes.", AT(gaps)},
    {"node_stream_wrong_digests_total", "counter", "Digests of a node that differed from this router's.",
     AT(wrong_digests)},
    {"node_stream_other_epochs_total", "counter", "Restarts of a node, detected by its span stream.", AT(other_epochs)},
    {"node_stream_cuts_total", "counter", "Ends of a node's span stream.", AT(cuts)},
    {"node_names_ignored_total", "counter",
     "Ignored names: beyond a node's KV budgets or its share of the index (--index-ram).", AT(ignored)},
    {"node_stream_forged_total", "counter",
     "Frames of a node's span stream that were not signed with the cluster's secret.", AT(forged)},
};
#undef AT

static node_figures figures_of(const cluster_node_status *s, const char *name) {
    const rp_engine_load *l = &s->load->engine;
    const cluster_view_counts *c = s->counts;
    node_figures f = {
        .health = (double)s->health,
        .draining = s->draining,
        .running = l->running,
        .waiting = l->waiting,
        .queued_tokens = (double)l->queued_tokens,
        .drain_seconds = (double)l->drain_us / 1e6,
        .sent = s->sent,
        .names = (double)s->names,
        .placed = (double)s->placed,
        .failed = (double)s->failed,
        .silent = (double)s->silent,
        .frames = (double)c->frames,
        .bytes = (double)c->bytes,
        .changes = (double)c->changes,
        .snapshots = (double)c->snapshots,
        .gaps = (double)c->gaps,
        .wrong_digests = (double)c->wrong_digests,
        .other_epochs = (double)c->other_epochs,
        .cuts = (double)c->cuts,
        .forged = (double)c->forged,
        .ignored = (double)c->ignored};
    snprintf(f.name, sizeof(f.name), "%s", name);
    return f;
}

static int append_head(base_buffer *b, const char *name, const char *type, const char *help) {
    return base_buffer_printf(b, "# HELP reprise_%s %s\n# TYPE reprise_%s %s\n", name, help, name, type);
}

static int append_nodes(base_buffer *b, const node_figures *nodes, int32_t n) {
    int rc = 0;
    for (size_t f = 0; f < BASE_ARRAY_LEN(families) && !rc; f++) {
        rc = append_head(b, families[f].name, families[f].type, families[f].help);
        for (int32_t i = 0; i < n && !rc; i++)
            rc = base_buffer_printf(b, "reprise_%s{node=\"%s\"} %.15g\n", families[f].name, nodes[i].name,
                                    *(const double *)(const void *)((const char *)&nodes[i] + families[f].at));
    }
    return rc;
}

static int append_counts(base_buffer *b, route *t, const cluster_router_counts *c) {
    const struct {
        const char *name, *type, *help;
        double value;
    } list[] = {
        {"route_submitted_total", "counter", "Requests submitted to the router.", (double)c->submitted},
        {"route_retries_total", "counter",
         "Requests that were sent to another node after a failure, before their first byte.", (double)c->retries},
        {"route_continuations_total", "counter", "Streams that another node continued.", (double)c->continuations},
        {"route_unplanned_total", "counter", "Requests without a plan, placed by load alone.",
         (double)atomic_load(&t->unplanned)},
        {"route_queued", "gauge", "Requests that wait for a node.", c->queued},
        {"route_sent", "gauge", "Requests on nodes.", c->sent},
        {"route_names", "gauge", "Names of KV in the index.", (double)c->names},
        {"route_index_bytes", "gauge", "Memory of the index, in bytes.", (double)c->index_bytes},
        {"route_nodes_well", "gauge", "Healthy nodes that get requests.", route_n_well(t)},
        {"route_prompt_tokens_total", "counter", "Prompt tokens of requests that were sent to a node.",
         (double)c->prompt_tokens},
        {"route_held_tokens_total", "counter",
         "Prompt tokens whose KV the chosen node held, by the index of this router.", (double)c->held_tokens},
    };
    int rc = 0;
    for (size_t i = 0; i < BASE_ARRAY_LEN(list) && !rc; i++) {
        rc = append_head(b, list[i].name, list[i].type, list[i].help);
        if (!rc) rc = base_buffer_printf(b, "reprise_%s %.15g\n", list[i].name, list[i].value);
    }
    if (!rc) rc = append_head(b, "route_requests_total", "counter", "Requests that have ended, by outcome.");
    for (int i = 0; i < CLUSTER_N_OUTCOMES && !rc; i++)
        rc = base_buffer_printf(b, "reprise_route_requests_total{outcome=\"%s\"} %" PRIu64 "\n",
                                cluster_outcome_name((cluster_outcome)i), c->outcomes[i]);
    return rc;
}

int route_metrics_append(base_buffer *b, route *t) {
    cluster_node_status s;
    int32_t n = 0;
    pthread_mutex_lock(&t->lock);
    const cluster_router_counts c = cluster_router_counted(t->router);
    const int32_t most = cluster_router_nodes(t->router);
    node_figures *nodes = base_calloc((size_t)BASE_MAX(most, 1), sizeof(*nodes));
    for (int32_t i = 0; i < most && nodes; i++)
        if (t->nodes[i] && cluster_router_node(t->router, i, &s)) nodes[n++] = figures_of(&s, t->nodes[i]->name);
    pthread_mutex_unlock(&t->lock);
    int rc = nodes ? append_nodes(b, nodes, n) : RP_ERR_MEMORY;
    base_free(nodes);
    if (!rc) rc = append_counts(b, t, &c);
    return rc ? rc
              : histogram_append(b, "route_wait", "Time from the arrival of a request until it is sent to a node.",
                                 &t->wait);
}
