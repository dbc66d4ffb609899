/* SPDX-License-Identifier: Apache-2.0 */
/* cache_http.c: /v1/cache/entries: the entries of the store, for operators: list, pin, set a time to live, remove.
 * The path names an entry by its key, ?name= names modules by their label. */
#include <stdlib.h>
#include <string.h>

#include "server/admin/admin_handlers.h"
#include "base/json_write.h"
#include "server/core/fields.h"
#include "server/http/server_internal.h"
#include "reprise_store.h"
#include "server/models/model_pool.h"

#define DEFAULT_LISTED 100
#define MOST_LISTED 1000
#define MOST_TTL_S INT32_MAX

/* ---- an entry as JSON ---- */

static json_t *cache_entry(const rp_store_entry *e) {
    json_t *tiers = json_array();
    if (e->in_ram) json_array_append_new(tiers, json_string("ram"));
    if (e->on_disk) json_array_append_new(tiers, json_string("disk"));
    return json_pack("{s:s, s:s, s:s, s:o, s:s, s:o, s:i, s:I, s:I, s:I, s:I, s:b, s:b, s:o, s:f}", "object",
                     "cache.entry", "key", e->key, "kind", rp_store_kind_name(e->kind), "label",
                     base_json_string(e->label, strlen(e->label)), "kv_format", e->kv_format, "tiers", tiers, "tokens",
                     (int)e->n_tokens, "bytes", (json_int_t)e->bytes, "ram_bytes", (json_int_t)e->ram_bytes, "uses",
                     (json_int_t)e->uses, "last_use", (json_int_t)e->last_use, "pinned", e->pinned, "in_use", e->in_use,
                     "expires", e->expires > 0 ? json_integer(e->expires) : json_null(), "cost_ms",
                     (double)e->cost_us / 1e3);
}

static json_t *cache_listing_entries(const rp_store_listing *l) {
    json_t *list = json_array();
    for (size_t i = 0; l && i < l->n_entries && list; i++)
        if (json_array_append_new(list, cache_entry(&l->entries[i]))) return json_decref(list), NULL;
    return list;
}

/* ---- selection of entries ---- */

static rp_store_selection selection_of(server_request *x) {
    rp_store_selection s = {.key = x->name[0] ? x->name : NULL,
                            .name = x->name[0] ? NULL : server_request_query(x, "name")};
    if (s.key && strlen(s.key) != sizeof(((rp_store_entry *)NULL)->key) - 1)
        server_fail(&x->problem, SERVER_NOT_FOUND, "key", "'%.70s' is not a key: give 64 hexadecimal digits", s.key);
    return s;
}

static void cache_http_fail(server_request *x, const rp_error *err) { server_fail_library(&x->problem, err); }

static void cache_http_reply(server_request *x, json_t *object) {
    if (!x->problem.kind) server_request_reply_json(x, 200, object);
    else {
        json_decref(object);
        server_request_reply_problem(x);
    }
}

/* ---- GET ---- */

static void take_kind(server_request *x, rp_store_selection *s) {
    const char *kind = server_request_query(x, "kind");
    if (!kind) return;
    s->modules = strcmp(kind, "module") == 0;
    s->texts = strcmp(kind, "text") == 0;
    if (!s->modules && !s->texts)
        server_fail(&x->problem, SERVER_INVALID, "kind", "'kind' is '%.40s': give module or text", kind);
}

static void take_page(server_request *x, rp_store_page *page) {
    const char *limit = server_request_query(x, "limit"), *sort = server_request_query(x, "sort");
    char *end = NULL;
    long n = limit ? strtol(limit, &end, 10) : DEFAULT_LISTED;
    if (limit && (end == limit || *end || n < 1 || n > MOST_LISTED))
        server_fail(&x->problem, SERVER_INVALID, "limit", "'limit' is '%.40s': give 1 to %d", limit, MOST_LISTED);
    if (sort && strcmp(sort, "key") != 0 && strcmp(sort, "bytes") != 0)
        server_fail(&x->problem, SERVER_INVALID, "sort", "'sort' is '%.40s': give key or bytes", sort);
    page->limit = (size_t)n;
    page->order = sort && strcmp(sort, "bytes") == 0 ? RP_STORE_BY_BYTES : RP_STORE_BY_KEY;
    page->after = server_request_query(x, "after");
}

void handle_cache_entries(server_request *x) {
    rp_store_selection s = selection_of(x);
    rp_store_page page = {0};
    rp_store_listing *l = NULL;
    rp_error err;
    take_kind(x, &s);
    take_page(x, &page);
    s.all = true;
    int rc = x->problem.kind ? 0 : rp_store_list(x->model->store, &s, &page, &l, &err);
    if (rc && rc != RP_ERR_NAME) cache_http_fail(x, &err); /* nothing of that name: an empty list */
    json_t *list =
        json_pack("{s:s, s:o, s:b}", "object", "list", "data", cache_listing_entries(l), "has_more", l && l->has_more);
    rp_store_listing_free(l);
    cache_http_reply(x, list);
}

void handle_cache_entry(server_request *x) {
    rp_store_selection s = selection_of(x);
    rp_store_listing *l = NULL;
    rp_error err;
    if (!x->problem.kind && rp_store_list(x->model->store, &s, NULL, &l, &err)) cache_http_fail(x, &err);
    json_t *one = l && l->n_entries > 0 ? cache_entry(&l->entries[0]) : NULL;
    rp_store_listing_free(l);
    cache_http_reply(x, one);
}

/* ---- PATCH and DELETE ---- */

static bool is_meant(server_request *x, const rp_store_selection *s) {
    if (!x->problem.kind && !s->key && !s->name)
        server_fail(&x->problem, SERVER_INVALID, "name", "the selection is empty: give a key in the path, or ?name=");
    return !x->problem.kind;
}

static json_t *cache_count(const char *object, const char *field, const rp_store_listing *l) {
    return json_pack("{s:s, s:I}", "object", object, field, (json_int_t)(l ? l->n_entries : 0));
}

void handle_cache_change(server_request *x) {
    rp_store_selection s = selection_of(x);
    json_t *root = is_meant(x, &s) ? server_request_json(x) : NULL;
    server_fields f = {root, &x->problem, ""};
    rp_store_listing *changed = NULL;
    rp_error err;
    if (root && !server_field(&f, "pinned") && !json_object_get(root, "ttl"))
        server_fail(&x->problem, SERVER_INVALID, NULL,
                    "no change requested: give 'pinned', or 'ttl' in seconds or null");
    if (root && server_field(&f, "pinned")) {
        bool pinned = false;
        server_field_bool(&f, "pinned", &pinned);
        if (!x->problem.kind && rp_store_pin(x->model->store, &s, pinned, &changed, &err)) cache_http_fail(x, &err);
    }
    if (root && !x->problem.kind && json_object_get(root, "ttl")) {
        rp_store_listing_free(changed);
        changed = NULL;
        int32_t ttl = 0; /* null: none */
        server_field_int(&f, "ttl", 1, MOST_TTL_S, &ttl);
        if (!x->problem.kind && rp_store_set_ttl(x->model->store, &s, ttl, &changed, &err)) cache_http_fail(x, &err);
    }
    json_decref(root);
    if (x->problem.kind || s.name) cache_http_reply(x, cache_count("cache.changed", "changed", changed));
    else handle_cache_entry(x);
    rp_store_listing_free(changed);
}

void handle_cache_remove(server_request *x) {
    rp_store_selection s = selection_of(x);
    rp_store_listing *removed = NULL;
    rp_error err;
    if (is_meant(x, &s) && rp_store_remove(x->model->store, &s, &removed, &err)) cache_http_fail(x, &err);
    cache_http_reply(x, cache_count("cache.removed", "removed", removed));
    rp_store_listing_free(removed);
}
