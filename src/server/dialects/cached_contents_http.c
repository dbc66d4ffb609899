/* SPDX-License-Identifier: Apache-2.0 */
/* cached_contents_http.c: Gemini's cachedContents: contents that are sent once and named by later requests.
 *
 * Creation prefills the contents: a request of one token, and its KV stays in the store as that of any prompt does.
 * The contents are prepended to those of each request that names them. KV evicted meanwhile is prefilled again.
 */
#define _DEFAULT_SOURCE /* timegm */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/file.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/answers/report.h"
#include "server/dialects/content_registry.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/dialects.h"
#include "server/dialects/gemini.h"
#include "server/http/request_relay.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"

#define PREFIX "cachedContents/"
#define DEFAULT_TTL_S 3600
#define MAX_TTL_S (366LL * 24 * 3600)
#define DEFAULT_PAGE 50
#define MAX_PAGE 1000
#define MAX_DISPLAY_CHARACTERS 128
#define TIME_BYTES 40

static const char *const kept_fields[] = {"contents", "systemInstruction", "system_instruction", "tools", "toolConfig"};

static int64_t now_ms(void) { return base_clock_wall_ns() / 1000000; }

/* ---- times ---- */

static void cached_contents_http_write_time(int64_t ms, char out[TIME_BYTES]) {
    time_t s = (time_t)(ms / 1000);
    struct tm t;
    gmtime_r(&s, &t);
    size_t n = strftime(out, TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &t);
    snprintf(out + n, TIME_BYTES - n, ".%03dZ", (int)(ms % 1000));
}

/* "2026-11-22T10:00:00.5Z", "...+01:00" */
static bool read_time(const char *text, int64_t *ms) {
    struct tm t = {0};
    int used = 0, hours, minutes, end = 0;
    double fraction = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour, &t.tm_min, &t.tm_sec,
               &used) != 6)
        return false;
    t.tm_year -= 1900;
    t.tm_mon -= 1;
    text += used;
    if (*text == '.') {
        char *behind = NULL;
        fraction = strtod(text, &behind);
        text = behind;
    }
    *ms = (int64_t)timegm(&t) * 1000 + (int64_t)(fraction * 1000);
    if (strcmp(text, "Z") == 0 || strcmp(text, "z") == 0) return true;
    if ((*text != '+' && *text != '-') || sscanf(text + 1, "%2d:%2d%n", &hours, &minutes, &end) != 2 ||
        text[1 + end] != '\0')
        return false;
    *ms += (int64_t)(hours * 60 + minutes) * (*text == '+' ? -60000 : 60000);
    return true;
}

/* "300s", "3.5s" */
static bool cached_contents_http_read_ttl(const char *text, int64_t *ms) {
    char *end = NULL;
    double s = strtod(text, &end);
    if (end == text || strcmp(end, "s") != 0 || !(s >= 0.001 && s <= (double)MAX_TTL_S)) return false;
    *ms = (int64_t)(s * 1000);
    return true;
}

/* When it shall expire by `ttl` or `expireTime`; default_ms where neither is there, 0: then that is a problem. */
static int64_t read_expiry(const server_fields *f, int64_t now, int64_t default_ms) {
    const char *ttl = NULL, *time = NULL;
    int64_t ms = default_ms, at;
    server_field_text(f, "ttl", &ttl);
    server_field_text(f, "expireTime", &time);
    if (ttl && time)
        server_fail(f->problem, SERVER_INVALID, "ttl", "'ttl' and 'expireTime' exclude each other: give one");
    else if (!ttl && !time && default_ms == 0)
        server_fail(f->problem, SERVER_INVALID, "ttl", "give 'ttl' or 'expireTime': no other field can be changed");
    else if (ttl && !cached_contents_http_read_ttl(ttl, &ms))
        server_fail(f->problem, SERVER_INVALID, "ttl", "'ttl' is '%.40s': give seconds as in \"300s\", up to %lld", ttl,
                    MAX_TTL_S);
    else if (time && (!read_time(time, &at) || at <= now || at > now + MAX_TTL_S * 1000))
        server_fail(f->problem, SERVER_INVALID, "expireTime",
                    "'expireTime' is '%.40s': give a future time, as 2030-01-31T00:00:00Z", time);
    else if (time) ms = at - now;
    return now + ms;
}

/* ---- reports ---- */

static json_t *cached_contents_http_resource(const registry_content *c) {
    char created[TIME_BYTES], updated[TIME_BYTES], expires[TIME_BYTES], name[SERVER_CONTENT_ID_BYTES + sizeof(PREFIX)];
    char model[SERVER_MODEL_NAME_BYTES + 8];
    cached_contents_http_write_time(c->created, created);
    cached_contents_http_write_time(c->updated, updated);
    cached_contents_http_write_time(c->expires, expires);
    snprintf(name, sizeof(name), PREFIX "%s", c->id);
    snprintf(model, sizeof(model), "models/%s", c->model);
    return json_pack("{s:s, s:s, s:s*, s:s, s:s, s:s, s:{s:I}}", "name", name, "model", model, "displayName",
                     c->display_name[0] ? c->display_name : NULL, "createTime", created, "updateTime", updated,
                     "expireTime", expires, "usageMetadata", "totalTokenCount", (json_int_t)c->n_tokens);
}

static void reply_unknown(server_request *x, const char *id) {
    server_fail(&x->problem, SERVER_NOT_FOUND, "name",
                "unknown cached content '" PREFIX "%.60s': expired, or never created", id);
    server_request_reply_problem(x);
}

static json_t *cached_contents_http_body_of(server_request *x) {
    json_t *root = server_request_json(x);
    if (!root) server_request_reply_problem(x);
    return root;
}

/* ---- POST ---- */

/* A conversation that may have a system message alone, or nothing that is asked. */
int gemini_parse_content(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    const char *model = NULL;
    server_field_text(&f, "model", &model);
    if (!model) server_fail(p, SERVER_INVALID, "model", "'model' is missing");
    gemini_parse_conversation(gen, &f);
    gen->model = model && strncmp(model, "models/", 7) == 0 ? model + 7 : model;
    gen->max_tokens = 1;
    generation_known(gen, &f,
                     "model contents systemInstruction system_instruction tools toolConfig tool_config ttl expireTime "
                     "displayName name "
                     "kmsKeyName");
    return (int)p->kind;
}

/* The fields of the body that are prepended to requests, as JSON text. */
static char *kept_text(const server_request *x) {
    json_t *kept = json_object();
    for (size_t i = 0; i < BASE_ARRAY_LEN(kept_fields); i++) {
        json_t *value = json_object_get(x->gen->root, kept_fields[i]);
        if (value) json_object_set(kept, kept_fields[i], value);
    }
    char *text = base_json_text(kept, JSON_COMPACT);
    json_decref(kept);
    return text;
}

static json_t *created(server_request *x) {
    BASE_ASSERT(x->answers->n_choices == 1);
    server_fields f = {x->gen->root, &x->problem, ""};
    int64_t now = now_ms();
    const char *display = "";
    registry_content c = {.created = now,
                          .updated = now,
                          .expires = read_expiry(&f, now, DEFAULT_TTL_S * 1000),
                          .n_tokens = report_usage(x).prompt};
    server_field_text(&f, "displayName", &display);
    relay_stored_id(x, c.id);
    snprintf(c.display_name, sizeof(c.display_name), "%s", display);
    snprintf(c.model, sizeof(c.model), "%s", x->model->name);
    char *text = kept_text(x);
    int rc =
        text ? content_registry_put(x->server->contents, x->key->tenant, &c, text, strlen(text), now) : RP_ERR_MEMORY;
    base_free(text);
    return rc ? NULL : report_unknown(x, cached_contents_http_resource(&c));
}

static const server_form form = {.parse = gemini_parse_content, .whole = created};

/* What can be wrong is found before anything is computed. */
static void check_creation(server_request *x) {
    server_fields f = {x->gen->root, &x->problem, ""};
    const char *display = "";
    size_t characters = 0;
    server_field_text(&f, "displayName", &display);
    for (const char *s = display; *s; s++) characters += ((unsigned char)*s & 0xc0) != 0x80;
    if (characters > MAX_DISPLAY_CHARACTERS)
        server_fail(&x->problem, SERVER_INVALID, "displayName", "'displayName' has %zu characters: give at most %d",
                    characters, MAX_DISPLAY_CHARACTERS);
    read_expiry(&f, now_ms(), DEFAULT_TTL_S * 1000);
    if (!x->problem.kind && !content_registry_has_capacity(x->server->contents, x->key->tenant, x->body.len, now_ms()))
        server_fail(&x->problem, SERVER_QUOTA, NULL,
                    "too many cached contents: delete some, or wait until they expire (limit: %d per tenant)",
                    SERVER_MAX_TENANT_CONTENTS);
}

void handle_contents_create(server_request *x) {
    json_t *root = cached_contents_http_body_of(x);
    if (!root) return;
    if (!generation_parse(x->gen, root, gemini_parse_content, &x->problem)) check_creation(x);
    json_decref(root);
    if (x->problem.kind) server_request_reply_problem(x);
    else generate_begin(x, &form);
}

/* ---- GET, PATCH, DELETE ---- */

void handle_contents_get(server_request *x) {
    registry_content c;
    if (content_registry_get(x->server->contents, x->key->tenant, x->name, now_ms(), &c, NULL))
        reply_unknown(x, x->name);
    else server_request_reply_json(x, 200, cached_contents_http_resource(&c));
}

void handle_contents_patch(server_request *x) {
    json_t *root = cached_contents_http_body_of(x);
    registry_content c;
    if (!root) return;
    int64_t now = now_ms(), expires = read_expiry(&(server_fields){root, &x->problem, ""}, now, 0);
    json_decref(root);
    if (x->problem.kind) server_request_reply_problem(x);
    else if (content_registry_extend(x->server->contents, x->key->tenant, x->name, now, expires, &c))
        reply_unknown(x, x->name);
    else server_request_reply_json(x, 200, cached_contents_http_resource(&c));
}

void handle_contents_delete(server_request *x) {
    if (content_registry_remove(x->server->contents, x->key->tenant, x->name, now_ms()))
        server_request_reply_json(x, 200, json_object());
    else reply_unknown(x, x->name);
}

/* A number of the query string; `otherwise` where it is not there. */
static uint64_t query_number(server_request *x, const char *name, uint64_t most, uint64_t otherwise) {
    const char *text = server_request_query(x, name);
    char *end = NULL;
    if (!text || !*text) return otherwise;
    unsigned long long n = strtoull(text, &end, 10);
    if (*end || *text == '-' || n > most)
        server_fail(&x->problem, SERVER_INVALID, name, "'%s' is '%.40s': give a number up to %" PRIu64, name, text,
                    most);
    return n;
}

static json_t *page_of(const registry_content *list, size_t n, bool more) {
    BASE_ASSERT(!more || n > 0); /* the next page begins after the last one of this */
    json_t *found = json_array(), *all;
    char token[24];
    for (size_t i = 0; i < n && found; i++)
        if (json_array_append_new(found, cached_contents_http_resource(&list[i]))) break;
    all = json_pack("{s:o}", "cachedContents", found);
    snprintf(token, sizeof(token), "%" PRIu64, n > 0 ? list[n - 1].number : 0);
    if (all && more) json_object_set_new(all, "nextPageToken", json_string(token));
    return all;
}

void handle_contents_list(server_request *x) {
    uint64_t size = query_number(x, "pageSize", INT32_MAX, DEFAULT_PAGE),
             after = query_number(x, "pageToken", UINT64_MAX, 0);
    size_t n = size == 0 ? DEFAULT_PAGE : BASE_MIN((size_t)size, (size_t)MAX_PAGE);
    bool more = false;
    registry_content *list = x->problem.kind ? NULL : base_calloc(n, sizeof(*list));
    if (!list) server_fail_memory(&x->problem);
    if (x->problem.kind) server_request_reply_problem(x);
    else {
        n = content_registry_list(x->server->contents, x->key->tenant, after, now_ms(), list, n, &more);
        server_request_reply_json(x, 200, page_of(list, n, more));
    }
    base_free(list);
}

/* ---- in front of a request ---- */

/* Prepends the stored fields to those of a request. Takes ownership of `kept`. */
static void put_in_front(json_t *root, json_t *kept) {
    json_t *contents = json_object_get(kept, "contents"), *own = json_object_get(root, "contents");
    if (json_is_array(contents) && json_is_array(own)) json_array_extend(contents, own);
    else if (own) json_object_set(kept, "contents", own);
    json_object_update(root, kept);
    json_object_del(root, "cachedContent");
    json_decref(kept);
}

int gemini_add_content(server_request *x, json_t *root) {
    static const char *const excluded[] = {"systemInstruction", "system_instruction", "tools", "toolConfig"};
    server_fields f = {root, &x->problem, ""};
    base_buffer json = BASE_BUFFER(SERVER_MAX_CONTENTS_BYTES);
    const char *name = NULL;
    registry_content c;
    server_field_text(&f, "cachedContent", &name);
    if (x->problem.kind || !name) return (int)x->problem.kind;
    if (x->server->answers->pin) { /* the node that has it prepends it, from the body */
        x->server->answers->pin(x, name, "cachedContent");
        json_object_del(root, "cachedContent");
        return (int)x->problem.kind;
    }
    for (size_t i = 0; i < BASE_ARRAY_LEN(excluded); i++)
        if (server_field(&f, excluded[i]))
            server_fail(&x->problem, SERVER_INVALID, excluded[i],
                        "'%s' belongs in the cached content: leave it out of the request", excluded[i]);
    const char *id = strncmp(name, PREFIX, sizeof(PREFIX) - 1) == 0 ? name + sizeof(PREFIX) - 1 : name;
    int rc = x->problem.kind ? 0 : content_registry_get(x->server->contents, x->key->tenant, id, now_ms(), &c, &json);
    json_t *kept = !rc && !x->problem.kind ? base_json_read(json.data, json.len, 0) : NULL;
    if (rc == RP_ERR_NAME)
        server_fail(&x->problem, SERVER_NOT_FOUND, "cachedContent",
                    "unknown cached content '%.60s': expired, or never created", name);
    else if (!kept) server_fail_memory(&x->problem);
    else put_in_front(root, kept);
    base_buffer_free(&json);
    return (int)x->problem.kind;
}
