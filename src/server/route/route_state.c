/* SPDX-License-Identifier: Apache-2.0 */
/* route_state.c: small changes of a router's state from any thread: mark a transfer, wake the network thread, name a
 * node, drain a node (route_internal.h). Uses only route_poll.c of this folder. */
#include "server/route/route_internal.h"

#include "base/check.h"

void route_mark(route *t, route_handle *h) {
    if (h->is_dirty) return;
    h->is_dirty = true;
    BASE_LIST_APPEND(&t->dirty, h, dirty);
}

void route_wake(route *t) { route_poll_wake(&t->poll); }

const char *route_node_name(const route *t, int32_t number) {
    return number >= 0 && number < CLUSTER_MAX_NODES && t->nodes[number] ? t->nodes[number]->name : "";
}

void route_apply_drain(route *t, route_node *n) {
    BASE_ASSERT(n->number >= 0 && n->number < CLUSTER_MAX_NODES && t->nodes[n->number] == n);
    cluster_router_drain_node(t->router, n->number, n->is_drained || n->is_held);
}
