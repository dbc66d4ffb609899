/* SPDX-License-Identifier: Apache-2.0 */
/* route_exchange.c: exchange of schemas between a router and a node: each gets those that it lacks or has in an older
 * state, once for each process of the node, and whenever the node's digest differs from the router's. So a change at
 * one router or node reaches all of them, and a router that restarts gets the schemas of its nodes. The planner's
 * thread. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "server/models/schema_changes.h"
#include "server/route/route_internal.h"

#define SETTLE_US UINT64_C(2000000)         /* time within which a load has the new digest */
#define REFUSED_AGAIN_US UINT64_C(60000000) /* time after which refused changes are sent again */
#define LIST_MS (CLUSTER_DEAD_US / 1000)
#define MOST_KNOWN ((size_t)4 * SERVER_MAX_REGISTRY) /* schemas and removals of a node */

static schema_registry *registry_of(const route *t) { return model_pool_find(t->server->models, "default")->registry; }

uint64_t route_schemas_digest(route *t) { return schema_registry_digest(registry_of(t)); }

void route_schemas_see(route_node *n, uint64_t epoch) {
    if (n->epoch == epoch) return;
    n->epoch = epoch;
    n->is_exchanged = false;
    n->synced_until_us = 0;
}

void route_schemas_settle(route_node *n, uint64_t theirs, uint64_t ours, bool has_changed) {
    n->synced_theirs = theirs;
    n->synced_ours = ours;
    n->synced_until_us = base_clock_us() + (has_changed ? SETTLE_US : REFUSED_AGAIN_US);
}

/* ---- requests ---- */

/* "/v1/cluster/schemas/NAME?tenant=T"; of a change also "&at=TIME&prefill=false". */
static int write_target(base_buffer *b, const schema_entry *e, bool changes, bool prefills) {
    int rc = base_buffer_append_str(b, "/v1/cluster/schemas/");
    if (!rc) rc = route_append_encoded(b, e->name, "");
    if (!rc && e->tenant) rc = base_buffer_append_str(b, "?tenant=");
    if (!rc && e->tenant) rc = route_append_encoded(b, e->tenant, "");
    if (rc || !changes) return rc;
    return base_buffer_printf(b, "%sat=%" PRIu64 "&prefill=%s", e->tenant ? "&" : "?", e->changed,
                              prefills ? "true" : "false");
}

void route_schemas_send(route *t, const schema_entry *e, bool prefills, server_request *x, uint64_t timeout_ms,
                        route_reply *replies, int32_t n) {
    base_buffer target = BASE_BUFFER(ROUTE_TARGET_BYTES);
    const bool is_written = write_target(&target, e, true, prefills) == 0;
    const route_question q = {
        e->text ? "PUT" : "DELETE", target.data, NULL, e->text, e->n, x, timeout_ms, true, prefills};
    for (int32_t i = 0; i < n && !is_written; i++) replies[i].status = 0;
    if (is_written) route_ask(t, &q, replies, n);
    base_buffer_free(&target);
}

/* ---- lists of schemas ---- */

typedef struct known_schema {
    const char *tenant, *name; /* tenant "": shared */
    uint64_t changed;
    bool is_removed;
} known_schema;

typedef struct known_list {
    known_schema *items; /* [n] */
    size_t n, cap;
    bool owns_texts, failed;
} known_list;

static void known_free(known_list *l) {
    for (size_t i = 0; i < l->n && l->owns_texts; i++) {
        base_free((char *)l->items[i].tenant);
        base_free((char *)l->items[i].name);
    }
    base_free(l->items);
}

static void known_add(known_list *l, known_schema one) {
    l->failed |= !one.tenant || !one.name ||
                 base_grow((void **)&l->items, &l->cap, l->n + 1, MOST_KNOWN, sizeof(*l->items)) != 0;
    if (!l->failed) l->items[l->n++] = one;
}

static void add_ours(void *user, const schema_entry *e) {
    known_list *l = user;
    if (l->failed) return;
    const known_schema one = {base_strdup(e->tenant ? e->tenant : ""), base_strdup(e->name), e->changed,
                              e->text == NULL};
    known_add(l, one);
    if (!l->failed) return;
    base_free((char *)one.tenant);
    base_free((char *)one.name);
}

/* The node's list; its texts belong to the object. */
static void add_theirs(known_list *l, json_t *object) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(object, "data"), i, item) {
        known_schema one = {.tenant = ""};
        json_int_t changed = 0;
        int removed = 0;
        const int bad = json_unpack(item, "{s?s, s:s, s:I, s:b}", "tenant", &one.tenant, "name", &one.name, "changed",
                                    &changed, "removed", &removed);
        l->failed |= bad || changed <= 0;
        if (l->failed) return;
        one.changed = (uint64_t)changed;
        one.is_removed = removed != 0;
        known_add(l, one);
    }
}

static int compare(const void *a, const void *b) {
    const known_schema *x = a, *y = b;
    const int order = strcmp(x->tenant, y->tenant);
    return order ? order : strcmp(x->name, y->name);
}

static void known_sort(known_list *l) {
    if (l->n > 1) qsort(l->items, l->n, sizeof(*l->items), compare);
}

/* Time of a schema's change in a sorted list; 0: it is not in the list. */
static uint64_t known_changed(const known_list *l, const known_schema *one) {
    const known_schema *found = l->n ? bsearch(one, l->items, l->n, sizeof(*l->items), compare) : NULL;
    return found ? found->changed : 0;
}

/* ---- one exchange ---- */

typedef struct exchange {
    route *t;
    route_reply *reply; /* of the node */
    known_list ours, theirs;
    json_t *list;                                  /* the node's */
    uint64_t begin_us, epoch, missed, ours_digest; /* at its beginning */
    bool failed;                                   /* a request to the node failed: the exchange is repeated */
    bool is_partial;                               /* the node has all, the router lacks some: it is repeated */
    int n_taken;                                   /* changes that the node accepted */
} exchange;

static void warn(const exchange *x, const char *name, const char *why) {
    base_log(BASE_LOG_WARN, "route: node '%s': schema%s%s: %s", x->reply->name, name[0] ? " " : "s", name, why);
}

/* GET of an object with a tag. NULL: there is none, or (x->failed) the request failed. */
static json_t *get_tagged(exchange *x, const char *target, uint64_t timeout_ms) {
    const route_question q = {"GET", target, NULL, NULL, 0, NULL, timeout_ms, true, false};
    const size_t tag_bytes = CLUSTER_REPLY_TAG_BYTES; /* and the line feed before it, less the NUL */
    route_reply *r = x->reply;
    char right[CLUSTER_REPLY_TAG_BYTES];
    route_ask(x->t, &q, r, 1);
    x->failed = r->status == 0 || r->status >= 500 || r->status == 401;
    if (x->failed) warn(x, "", r->error);
    if (r->status != 200 || r->body.len < tag_bytes) return NULL;
    const size_t n = r->body.len - tag_bytes;
    cluster_reply_tag(right, x->t->secret, r->nonce, r->body.data, n);
    if (memcmp(r->body.data + n + 1, right, sizeof(right) - 1) == 0) return json_loadb(r->body.data, n, 0, NULL);
    warn(x, "", "the reply's tag is not that of the cluster's secret");
    x->failed = true;
    return NULL;
}

typedef struct pulled {
    route *t;
    schema_entry e;
    server_problem problem;
    bool is_done;
} pulled;

static int take_pulled(server_model *m, void *user) {
    pulled *p = user;
    if (p->e.text) schema_change_put(p->t->server, m, &p->e, &p->problem);
    else schema_change_remove(p->t->server, m, &p->e, &p->problem);
    p->is_done = true;
    return 0;
}

/* Gets a schema that the node has in a later state. */
static void pull(exchange *x, const known_schema *one) {
    pulled p = {.t = x->t,
                .e = {.tenant = one->tenant[0] ? one->tenant : NULL, .name = one->name, .changed = one->changed}};
    base_buffer target = BASE_BUFFER(ROUTE_TARGET_BYTES);
    json_int_t changed = (json_int_t)one->changed;
    json_t *object = NULL;
    if (!one->is_removed) {
        if (!write_target(&target, &p.e, false, false)) object = get_tagged(x, target.data, ROUTE_SYNC_MS);
        if (object) json_unpack(object, "{s:I, s:s%}", "changed", &changed, "pml", &p.e.text, &p.e.n);
        p.e.changed = (uint64_t)changed;
    }
    if (one->is_removed || p.e.text) model_pool_visit(x->t->server->models, take_pulled, &p);
    if (p.is_done && p.e.text && p.problem.kind) warn(x, one->name, p.problem.message);
    x->is_partial |=
        p.is_done ? p.problem.kind == SERVER_INTERNAL : one->is_removed || p.e.text || x->reply->status == 200;
    json_decref(object);
    base_buffer_free(&target);
}

/* Sends a schema that the node lacks, or has in an earlier state. If the node refuses it, the exchange continues with
 * the others. */
static void push(exchange *x, const known_schema *one) {
    base_buffer text = BASE_BUFFER(SERVER_MAX_REGISTRY_BYTES);
    schema_entry e = {.tenant = one->tenant[0] ? one->tenant : NULL, .name = one->name, .changed = one->changed};
    const int rc = one->is_removed ? RP_OK : schema_registry_get(registry_of(x->t), e.tenant, e.name, &text);
    x->failed |= rc && rc != RP_ERR_NAME; /* NAME: it was removed meanwhile */
    if (rc) return;
    if (!one->is_removed) e.text = text.data, e.n = text.len;
    route_schemas_send(x->t, &e, false, NULL, ROUTE_SYNC_MS, x->reply, 1);
    base_buffer_free(&text);
    const int status = x->reply->status;
    x->failed |= status == 0 || status >= 500 || status == 401;
    x->n_taken += status == 200;
    if (status != 200 && status != 404 && status != 409) warn(x, one->name, x->reply->error);
}

static bool can_continue(exchange *x) {
    x->failed |= atomic_load(&x->t->stops);
    return !x->failed;
}

/* The node's part first: it gets no requests until then. */
static void exchange_all(exchange *x) {
    schema_registry_visit(registry_of(x->t), add_ours, &x->ours);
    add_theirs(&x->theirs, x->list);
    x->failed |= x->ours.failed || x->theirs.failed;
    known_sort(&x->ours);
    known_sort(&x->theirs);
    for (size_t i = 0; i < x->ours.n && can_continue(x); i++) {
        const uint64_t known = known_changed(&x->theirs, &x->ours.items[i]);
        if (x->ours.items[i].changed > known && (known > 0 || !x->ours.items[i].is_removed)) push(x, &x->ours.items[i]);
    }
    for (size_t i = 0; i < x->theirs.n && can_continue(x); i++)
        if (x->theirs.items[i].changed > known_changed(&x->ours, &x->theirs.items[i])) pull(x, &x->theirs.items[i]);
}

/* Under lock. false: the node is no longer listed. */
static bool note_begin(route *t, int32_t node, exchange *x) {
    const route_node *n = t->nodes[node];
    cluster_node_status s;
    if (!n || !cluster_router_node(t->router, node, &s)) return false;
    x->begin_us = base_clock_us();
    x->epoch = s.hello->epoch;
    x->missed = n->n_missed;
    x->ours_digest = route_schemas_digest(t);
    return true;
}

/* Under lock. Changes made meanwhile are part of the next exchange. */
static void note_end(route *t, int32_t node, const exchange *x) {
    route_node *n = t->nodes[node];
    if (!n || strcmp(n->name, x->reply->name) != 0 || n->epoch != x->epoch) return;
    const uint64_t now = base_clock_us();
    n->must_sync = false;
    n->sync_after_us = x->failed || x->is_partial ? now + BASE_MAX(ROUTE_SYNC_AGAIN_US, now - x->begin_us) : 0;
    if (x->failed) return;
    n->is_exchanged = true;
    n->n_caught = x->missed;
    if (!x->is_partial)
        route_schemas_settle(n, (uint64_t)json_integer_value(json_object_get(x->list, "digest")), x->ours_digest,
                             x->n_taken > 0);
}

void route_schemas_exchange(route *t, int32_t node) {
    exchange x = {.t = t, .ours.owns_texts = true};
    int32_t n = 0;
    pthread_mutex_lock(&t->lock);
    const bool is_there = note_begin(t, node, &x);
    pthread_mutex_unlock(&t->lock);
    x.reply = is_there ? route_replies_new(t, node, &n) : NULL;
    if (n == 0) return;
    BASE_ASSERT(n == 1 && x.reply->node == node);
    x.list = get_tagged(&x, "/v1/cluster/schemas", LIST_MS);
    if (x.list) exchange_all(&x);
    else if (!x.failed) warn(&x, "", x.reply->error);
    x.failed |= x.list == NULL;
    pthread_mutex_lock(&t->lock);
    note_end(t, node, &x);
    pthread_mutex_unlock(&t->lock);
    json_decref(x.list);
    known_free(&x.ours);
    known_free(&x.theirs);
    route_replies_free(x.reply, n);
}
