/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_http.c: the routes of a cluster's node: the span stream, and draining. Owns nothing. Workers. */
#include <errno.h>
#include <stdlib.h>

#include "server/cluster/cluster_node.h"
#include "server/handlers.h"
#include "server/server_internal.h"

uint64_t cluster_http_number(server_request *x, const char *name, int base) {
    const char *text = server_request_query(x, name);
    char *end = NULL;
    if (!text) return 0;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, base);
    if (!*text || *end || *text == '-' || *text == '+' || errno)
        server_fail(&x->problem, SERVER_INVALID, name, "'%s' is '%.40s': give a number%s", name, text, base == 16 ? " in hexadecimal digits" : "");
    return value;
}

void handle_cluster_stream(server_request *x) {
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    if (!x->relay) server_fail(&x->problem, SERVER_NOT_FOUND, NULL, "span streams are on the cluster's port (--cluster-listen)");
    const uint64_t epoch = cluster_http_number(x, "epoch", 16), after = cluster_http_number(x, "after", 10);
    if (!x->problem.kind) cluster_signature_parse(server_request_header(x, CLUSTER_SIGNATURE_HEADER), nonce); /* it was checked */
    if (x->problem.kind || cluster_node_open(x, nonce, epoch, after)) server_request_reply_problem(x);
}

/* {"draining": true}, the default, or false. */
void handle_cluster_drain(server_request *x) {
    json_t *root = x->body.len > 0 ? server_request_json(x) : json_object();
    bool drains = true;
    if (!root) server_fail_memory(&x->problem);
    else if (!json_is_object(root)) server_fail(&x->problem, SERVER_INVALID, NULL, "the body is not an object: give {\"draining\": true}");
    server_field_bool(&(server_fields){root, &x->problem, ""}, "draining", &drains);
    json_decref(root);
    if (x->problem.kind) {
        server_request_reply_problem(x);
        return;
    }
    atomic_store(&x->server->drains, drains);
    if (x->server->cluster) cluster_node_changed(x->server->cluster);
    const json_int_t n = (json_int_t)atomic_load(&x->server->counts.jobs_open);
    server_request_reply_json(x, 200, json_pack("{s:s, s:b, s:I}", "object", "drain", "draining", drains, "requests", n));
}
