/* SPDX-License-Identifier: Apache-2.0 */
/* route_nodes.c: the nodes' thread: the list of nodes, from the options, a file and DNS (route_internal.h). If a source
 * cannot be read, its last nodes are kept. Owns the lists. */
#define _POSIX_C_SOURCE 200809L /* getaddrinfo */

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "server/route/route_internal.h"

#define LOOK_EVERY_MS 1000
#define DNS_EVERY_US UINT64_C(10000000)
#define DNS_NAME_BYTES 256
#define FILE_BYTES ((size_t)1 << 20)

typedef struct listed_node {
    char name[CLUSTER_NODE_NAME_BYTES], url[ROUTE_URL_BYTES];
} listed_node;

typedef struct node_list {
    listed_node *items; /* [n] */
    size_t n, cap;
} node_list;

typedef struct node_sources {
    node_list fixed, file, dns;
    base_file_id file_id;
    bool has_file;
    uint64_t looked_up_us;
} node_sources;

/* ---- one node ---- */

/* Parses "NAME=URL", or "URL", whose name is host and port. */
static int parse_node(listed_node *out, const char *text, size_t n, rp_error *err) {
    char line[ROUTE_URL_BYTES + CLUSTER_NODE_NAME_BYTES];
    if (n >= sizeof(line))
        return base_fail(err, RP_ERR_INVALID, "node '%.40s...' has more than %zu bytes", text, sizeof(line) - 1);
    memcpy(line, text, n);
    line[n] = '\0';
    char *scheme = strstr(line, "://"), *equals = strchr(line, '=');
    const char *url = equals && (!scheme || equals < scheme) ? equals + 1 : line;
    const char *host = scheme ? scheme + 3 : NULL;
    if (!host || !*host || (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0) ||
        strpbrk(url, " \t\"\\?#"))
        return base_fail(err, RP_ERR_INVALID, "node '%.80s': give http://HOST:PORT, or NAME=http://HOST:PORT", line);
    size_t length = strlen(url);
    while (length > 0 && url[length - 1] == '/') length--;
    const size_t named = url != line ? (size_t)(equals - line) : strcspn(host, "/");
    const char *name = url != line ? line : host;
    if (named == 0 || named >= sizeof(out->name) || length >= sizeof(out->url) || strpbrk(name, "\"\\\n"))
        return base_fail(err, RP_ERR_INVALID, "node '%.80s': give it a name of 1 to %d bytes", line,
                         CLUSTER_NODE_NAME_BYTES - 1);
    snprintf(out->name, sizeof(out->name), "%.*s", (int)named, name);
    snprintf(out->url, sizeof(out->url), "%.*s", (int)length, url);
    return RP_OK;
}

/* Names and URLs are unique: a node that is listed twice would be counted twice. */
static int check_twice(const node_list *list, const listed_node *one, rp_error *err) {
    for (size_t i = 0; i < list->n; i++) {
        const listed_node *other = &list->items[i];
        const bool same_name = strcmp(other->name, one->name) == 0, same_url = strcmp(other->url, one->url) == 0;
        if (same_name && same_url) return base_fail(err, RP_ERR_INVALID, "node '%s' is listed twice", one->name);
        if (same_name)
            return base_fail(err, RP_ERR_INVALID, "two nodes are named '%s': %.80s and %.80s", one->name, other->url,
                             one->url);
        if (same_url)
            return base_fail(err, RP_ERR_INVALID, "%.100s has two names: '%s' and '%s'", one->url, other->name,
                             one->name);
    }
    return RP_OK;
}

static int add_node(node_list *list, const char *text, size_t n, rp_error *err) {
    listed_node one;
    int rc = parse_node(&one, text, n, err);
    if (!rc) rc = check_twice(list, &one, err);
    if (!rc && base_grow((void **)&list->items, &list->cap, list->n + 1, CLUSTER_MAX_NODES, sizeof(*list->items)))
        rc = base_fail(err, RP_ERR_LIMIT, "more than %d nodes", CLUSTER_MAX_NODES);
    if (!rc) list->items[list->n++] = one;
    return rc;
}

static void list_replace(node_list *old, node_list *list) {
    base_free(old->items);
    *old = *list;
    *list = (node_list){0};
}

/* ---- sources ---- */

int route_nodes_check(const char *const *texts, int32_t n, rp_error *err) {
    node_list list = {0};
    int rc = RP_OK;
    for (int32_t i = 0; i < n && !rc; i++) rc = add_node(&list, texts[i], strlen(texts[i]), err);
    base_free(list.items);
    return rc;
}

int route_nodes_check_dns(const char *text, rp_error *err) {
    const char *colon = strrchr(text, ':');
    if (colon && colon != text && colon - text < DNS_NAME_BYTES && colon[1] &&
        strspn(colon + 1, "0123456789") == strlen(colon + 1))
        return RP_OK;
    return base_fail(err, RP_ERR_INVALID, "DNS name of nodes '%.80s': give NAME:PORT", text);
}

static int parse_lines(node_list *list, const char *text, int *number, rp_error *err) {
    int rc = RP_OK;
    for (const char *line = text; *line && !rc; ++*number) {
        const size_t length = strcspn(line, "\n");
        size_t n = strcspn(line, "#\n"), begin = strspn(line, " \t\r");
        while (n > begin && strchr(" \t\r", line[n - 1])) n--;
        if (n > begin) rc = add_node(list, line + begin, n - begin, err);
        line += length + (line[length] == '\n');
    }
    return rc;
}

static void log_file(const route *t, int number, size_t n_kept, const rp_error *err) {
    if (number > 0)
        base_log(BASE_LOG_ERROR, "route: %s line %d: %s (%zu nodes of it are kept)", t->nodes_file, number,
                 err->message, n_kept);
    else base_log(BASE_LOG_ERROR, "route: %s (%zu nodes of it are kept)", err->message, n_kept);
}

static void read_nodes_file(route *t, node_sources *s, bool forced) {
    base_file_id id = {0};
    base_buffer text = {0};
    node_list list = {0};
    rp_error err;
    const bool is_there = base_file_identify(t->nodes_file, &id);
    if (!forced && s->has_file && is_there && id.is_settled && memcmp(&id, &s->file_id, sizeof(id)) == 0) return;
    int number = 0; /* of the last line read, from 1; 0: none */
    int rc = base_file_read_text(t->nodes_file, FILE_BYTES, &text, &err);
    if (!rc) rc = parse_lines(&list, text.data ? text.data : "", &number, &err);
    if (!rc) list_replace(&s->file, &list);
    else if (forced || !s->has_file || memcmp(&id, &s->file_id, sizeof(id)) != 0) log_file(t, number, s->file.n, &err);
    s->file_id = id;
    s->has_file = true;
    base_free(list.items);
    base_buffer_free(&text);
}

static int add_address(node_list *list, const struct addrinfo *a, rp_error *err) {
    char host[64], port[16], url[ROUTE_URL_BYTES];
    if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
        return RP_OK;
    const bool is_v6 = a->ai_family == AF_INET6;
    const int n = snprintf(url, sizeof(url), "http://%s%s%s:%s", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
    return add_node(list, url, (size_t)n, err);
}

static void look_up(route *t, node_sources *s) {
    char host[DNS_NAME_BYTES];
    const char *colon = strrchr(t->nodes_dns, ':');
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    node_list list = {0};
    rp_error err;
    snprintf(host, sizeof(host), "%.*s", (int)(colon - t->nodes_dns), t->nodes_dns);
    const int failed = getaddrinfo(host, colon + 1, &wanted, &found);
    int rc = RP_OK;
    for (const struct addrinfo *a = found; a && !rc; a = a->ai_next) rc = add_address(&list, a, &err);
    if (failed) base_log(BASE_LOG_WARN, "route: cannot look up '%s': %s", host, gai_strerror(failed));
    else if (rc) base_log(BASE_LOG_ERROR, "route: %s: %s", t->nodes_dns, err.message);
    else list_replace(&s->dns, &list);
    if (!failed) freeaddrinfo(found);
    base_free(list.items);
    s->looked_up_us = base_clock_us();
}

/* ---- the router's nodes ---- */

/* The node with this name and URL. is_taken: another node, of an earlier list, has the name or the URL. Under lock. */
static route_node *find_node(const route *t, const listed_node *one, bool *is_taken) {
    route_node *found = NULL;
    *is_taken = false;
    for (int32_t k = 0; k < CLUSTER_MAX_NODES; k++) {
        route_node *n = t->nodes[k];
        const bool same_name = n && strcmp(n->name, one->name) == 0, same_url = n && strcmp(n->url, one->url) == 0;
        if (same_name && same_url) found = n;
        else if ((same_name || same_url) && n->is_listed) *is_taken = true;
    }
    return found;
}

/* Marks the nodes of a list, and adds new ones. A node of several lists is that of the first one. Under lock. */
static void mark_listed(route *t, const node_list *list) {
    rp_error err;
    for (size_t i = 0; i < list->n; i++) {
        const listed_node *one = &list->items[i];
        bool is_taken;
        int32_t number;
        route_node *n = find_node(t, one, &is_taken);
        if (is_taken) continue;
        if (n) {
            n->is_listed = true;
            continue;
        }
        if (!(n = base_calloc(1, sizeof(*n)))) continue;
        *n = (route_node){.is_listed = true, .number = -1};
        snprintf(n->name, sizeof(n->name), "%s", one->name);
        snprintf(n->url, sizeof(n->url), "%s", one->url);
        if (cluster_router_add_node(t->router, one->name, &number, &err)) {
            base_log(BASE_LOG_ERROR, "route: node '%s': %s", one->name, err.message);
            base_free(n);
            continue;
        }
        BASE_ASSERT(number >= 0 && number < CLUSTER_MAX_NODES && !t->nodes[number]); /* both have the same nodes */
        n->number = number;
        t->nodes[number] = n;
        base_log(BASE_LOG_INFO, "route: node '%s' at %s", n->name, n->url);
    }
}

static void apply_lists(route *t, const node_sources *s) {
    pthread_mutex_lock(&t->lock);
    for (int32_t i = 0; i < CLUSTER_MAX_NODES; i++)
        if (t->nodes[i]) t->nodes[i]->is_listed = false;
    mark_listed(t, &s->fixed);
    mark_listed(t, &s->file);
    mark_listed(t, &s->dns);
    for (int32_t i = 0; i < CLUSTER_MAX_NODES; i++) {
        route_node *n = t->nodes[i];
        if (!n || n->is_listed) continue;
        base_log(BASE_LOG_INFO, "route: node '%s' is no longer listed", n->name);
        cluster_router_remove_node(t->router, i); /* closes its stream */
        route_life_close(n, t);
        t->nodes[i] = NULL;
        base_free(n);
    }
    pthread_mutex_unlock(&t->lock);
    route_wake(t);
}

/* ---- the thread ---- */

static void *nodes_run(void *user) {
    route *t = user;
    node_sources s = {0};
    rp_error err;
    bool forced = true;
    for (int32_t i = 0; i < t->n_listed; i++)
        if (add_node(&s.fixed, t->listed[i], strlen(t->listed[i]), &err))
            base_log(BASE_LOG_ERROR, "route: %s", err.message);
    while (!atomic_load(&t->stops)) {
        if (t->nodes_file) read_nodes_file(t, &s, forced);
        apply_lists(t, &s);
        if (t->nodes_dns && (forced || s.looked_up_us == 0 || base_clock_us() - s.looked_up_us >= DNS_EVERY_US)) {
            look_up(t, &s); /* may take many seconds */
            apply_lists(t, &s);
        }
        const struct timespec until = base_clock_after(LOOK_EVERY_MS);
        int rc = 0;
        pthread_mutex_lock(&t->wake_lock);
        while (!atomic_load(&t->stops) && !t->must_reload && rc == 0)
            rc = pthread_cond_timedwait(&t->nodes_wake, &t->wake_lock, &until);
        forced = t->must_reload;
        t->must_reload = false;
        pthread_mutex_unlock(&t->wake_lock);
    }
    base_free(s.fixed.items);
    base_free(s.file.items);
    base_free(s.dns.items);
    return NULL;
}

void route_reload_nodes(route *t) {
    pthread_mutex_lock(&t->wake_lock);
    t->must_reload = t->must_replace = true; /* the engine, for its files of schemas */
    pthread_cond_signal(&t->nodes_wake);
    pthread_cond_signal(&t->planner_wake);
    pthread_mutex_unlock(&t->wake_lock);
}

int route_nodes_start(route *t, rp_error *err) {
    const int failed = base_thread_start(&t->nodes_thread, nodes_run, t);
    t->has_nodes_thread = failed == 0;
    return failed ? base_fail(err, RP_ERR_IO, "cannot start a thread: %s", strerror(failed)) : RP_OK;
}

void route_nodes_stop(route *t) {
    if (!t->has_nodes_thread) return;
    pthread_mutex_lock(&t->wake_lock);
    atomic_store(&t->stops, true);
    pthread_cond_signal(&t->nodes_wake);
    pthread_mutex_unlock(&t->wake_lock);
    pthread_join(t->nodes_thread, NULL);
    t->has_nodes_thread = false;
}
