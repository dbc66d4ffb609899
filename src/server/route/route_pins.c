/* SPDX-License-Identifier: Apache-2.0 */
/* route_pins.c: pins requests for stored objects to the node that stores them, by the node's tag in their ids. */
#include <string.h>

#include "server/route/route.h"
#include "server/route/route_internal.h"

/* "resp_TAG_ID", "v1_TAG_ID" (of an interaction), "cachedContents/TAG_ID", "TAG_ID". */
static bool tag_of(const char *id, char tag[CLUSTER_NODE_TAG_BYTES]) {
    const size_t digits = CLUSTER_NODE_TAG_BYTES - 1;
    if (strncmp(id, "resp_", 5) == 0) id += 5;
    if (strncmp(id, "v1_", 3) == 0) id += 3;
    if (strncmp(id, "cachedContents/", 15) == 0) id += 15;
    if (strspn(id, "0123456789abcdef") != digits || id[digits] != '_') return false;
    memcpy(tag, id, digits);
    tag[digits] = '\0';
    return true;
}

static int32_t node_of_tag(route *t, const char *tag) {
    char own[CLUSTER_NODE_TAG_BYTES];
    cluster_node_status s;
    int32_t found = -1;
    pthread_mutex_lock(&t->lock);
    for (int32_t i = 0; i < cluster_router_nodes(t->router) && found < 0; i++) {
        if (!t->nodes[i] || !cluster_router_node(t->router, i, &s) || s.hello->epoch == 0) continue;
        cluster_node_tag(own, s.hello->node);
        if (strcmp(own, tag) == 0) found = i;
    }
    pthread_mutex_unlock(&t->lock);
    return found;
}

int route_pin(server_request *x, const char *id, const char *field) {
    char tag[CLUSTER_NODE_TAG_BYTES];
    if (!tag_of(id, tag))
        return server_fail(&x->problem, SERVER_NOT_FOUND, field, "unknown id '%.80s': it has no tag of a node", id);
    x->only_node = node_of_tag(x->server->route, tag);
    if (x->only_node >= 0) return SERVER_FINE;
    return server_fail(&x->problem, SERVER_NOT_FOUND, field, "'%.80s': the node that stores it is not listed", id);
}
