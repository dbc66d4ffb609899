/* SPDX-License-Identifier: Apache-2.0 */
/* redis_nodes.c: see redis_nodes.h. */
#include "store/remote/redis_nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#define MAX_COMMAND (REDIS_MAX_WORD + 256)
#define MOST_SHARES 4 /* of the time that is left: a host of several that may be tried has a quarter of it, or more */

/* ---- slots ---- */

/* CRC-16/XMODEM, bit by bit: the CRC of Redis' cluster specification. */
uint16_t redis_slot(const char *text, size_t n) {
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned)(unsigned char)text[i] << 8;
        for (int bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
    }
    return (uint16_t)(crc & (REDIS_SLOTS - 1));
}

redis_node *redis_nodes_of(redis_nodes *r, uint16_t slot) {
    BASE_ASSERT(slot < REDIS_SLOTS && r->slots[slot] <= r->n_nodes && r->n_nodes > 0);
    return r->nodes[r->is_cluster && r->slots[slot] > 0 ? r->slots[slot] - 1 : 0];
}

/* ---- nodes ---- */

void redis_node_disconnect(redis_node *node) {
    redis_disconnect(node->connection);
    node->connection = NULL;
}

static void drop_nodes(redis_nodes *r) {
    for (size_t i = 0; i < r->n_nodes; i++) {
        redis_node_disconnect(r->nodes[i]);
        base_free(r->nodes[i]);
    }
    r->n_nodes = 0;
    memset(r->slots, 0, sizeof(r->slots));
}

/* The index of a node of this address, which may be new. */
static int find_node(redis_nodes *r, const char *host, uint16_t port, size_t *out, rp_error *err) {
    BASE_ASSERT(strlen(host) < REDIS_HOST_BYTES && port > 0);
    for (size_t i = 0; i < r->n_nodes; i++)
        if (r->nodes[i]->host.port == port && strcmp(r->nodes[i]->host.name, host) == 0) return *out = i, RP_OK;
    if (r->n_nodes == REDIS_MAX_NODES) {
        const int rc = base_fail(err, RP_ERR_IO, "the cluster of a pool has more than %d nodes", REDIS_MAX_NODES);
        errno = EPROTO;
        return rc;
    }
    redis_node *node = base_calloc(1, sizeof(*node));
    if (!node || base_grow((void **)&r->nodes, &r->cap, r->n_nodes + 1, REDIS_MAX_NODES, sizeof(*r->nodes)))
        return base_free(node), base_fail_memory(err, sizeof(*node), "a node");
    snprintf(node->host.name, sizeof(node->host.name), "%s", host);
    node->host.port = port;
    r->nodes[r->n_nodes] = node;
    *out = r->n_nodes++;
    return RP_OK;
}

int redis_nodes_open(redis_nodes *out, const redis_address *address, const redis_tls *tls, rp_error *err) {
    size_t first;
    *out = (redis_nodes){.address = address, .tls = tls, .is_cluster = address->cluster == REDIS_CLUSTER_YES};
    out->is_stale = out->is_cluster;
    return find_node(out, address->hosts[0].name, address->hosts[0].port, &first, err);
}

void redis_nodes_close(redis_nodes *r) {
    drop_nodes(r);
    base_free(r->nodes);
    r->nodes = NULL;
}

/* ---- connecting ---- */

static redis_login login_of(const redis_address *a) { return (redis_login){a->user, a->password, a->db}; }

/* A deadline for one of n things that are tried in turn. */
static uint64_t share_of(uint64_t deadline_us, int n) {
    const uint64_t now = base_clock_us();
    BASE_ASSERT(n > 0);
    return deadline_us > now ? now + (deadline_us - now) / (uint64_t)BASE_MIN(n, MOST_SHARES) : deadline_us;
}

/* The reply of SENTINEL GET-MASTER-ADDR-BY-NAME. *t: its first token, an error if it is one that needs a login. */
static int read_master(redis_connection *c, const char *name, redis_host *out, redis_token *t, uint64_t deadline_us,
                       rp_error *err) {
    char host[REDIS_MAX_TEXT], port[REDIS_MAX_TEXT];
    int rc = redis_read_token(c, t, deadline_us, err);
    if (rc || (t->type == '-' && strncmp(t->text, "NOAUTH", 6) == 0)) return rc;
    if (t->type == '-') return redis_fail_reply(c, t->text, err);
    if (t->type == '*' && t->n == -1) {
        rc = base_fail(err, RP_ERR_IO, "the Sentinel %s port %d does not know a master '%s'", c->host.name,
                       c->host.port, name);
        errno = ENOENT;
        return rc;
    }
    if (t->type != '*' || t->n != 2) return redis_fail_protocol(c, "the address of a master was expected", err);
    rc = redis_read_text(c, host, deadline_us, err);
    if (!rc) rc = redis_read_text(c, port, deadline_us, err);
    if (rc) return rc;
    char *end;
    const long number = strtol(port, &end, 10);
    if (host[0] == '\0' || *end != '\0' || number <= 0 || number > UINT16_MAX)
        return redis_fail_protocol(c, "the address of a master was expected", err);
    snprintf(out->name, sizeof(out->name), "%s", host);
    out->port = (uint16_t)number;
    return RP_OK;
}

/* Sentinels may have the servers' password or none: it is sent to one that asks. */
static int ask_sentinel(const redis_nodes *r, const redis_host *sentinel, redis_host *master, uint64_t deadline_us,
                        rp_error *err) {
    const char *const words[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", r->address->sentinel};
    const redis_login none = {0}, login = {r->address->user, r->address->password, 0};
    base_buffer command = BASE_BUFFER(MAX_COMMAND);
    redis_connection *c = NULL;
    redis_token t;
    int rc = redis_command(&command, 3, words) ? base_fail_memory(err, MAX_COMMAND, "a connection") : RP_OK;
    if (!rc) rc = redis_connect(&c, sentinel, r->tls, &none, deadline_us, err);
    if (!rc) rc = redis_send(c, &command, deadline_us, err);
    if (!rc) rc = read_master(c, words[2], master, &t, deadline_us, err);
    if (!rc && t.type == '-' && !login.password) rc = redis_fail_reply(c, t.text, err);
    else if (!rc && t.type == '-') {
        rc = redis_log_in(c, &login, deadline_us, err);
        if (!rc) rc = redis_send(c, &command, deadline_us, err);
        if (!rc) rc = read_master(c, words[2], master, &t, deadline_us, err);
        if (!rc && t.type == '-') rc = redis_fail_reply(c, t.text, err);
    }
    const int cause = errno;
    redis_disconnect(c);
    base_buffer_free(&command);
    errno = cause;
    return rc;
}

/* The server, or the Sentinels' master: each host in turn. */
static int connect_server(redis_nodes *r, redis_node *node, uint64_t deadline_us, rp_error *err) {
    const redis_address *a = r->address;
    const redis_login login = login_of(a);
    int rc = RP_OK;
    BASE_ASSERT(a->n_hosts > 0 && r->first < a->n_hosts && !node->connection);
    for (int i = 0; i < a->n_hosts; i++) {
        const int k = (r->first + i) % a->n_hosts;
        const uint64_t share_us = share_of(deadline_us, a->n_hosts - i);
        redis_host host = a->hosts[k];
        rc = a->sentinel ? ask_sentinel(r, &a->hosts[k], &host, share_us, err) : RP_OK;
        if (!rc)
            rc = redis_connect(&node->connection, &host, r->tls, &login, a->sentinel ? deadline_us : share_us, err);
        if (!rc) r->first = k;
        if (rc != RP_ERR_IO) return rc;
    }
    return rc;
}

int redis_node_connect(redis_nodes *r, redis_node *node, uint64_t deadline_us, rp_error *err) {
    BASE_ASSERT(r->is_cluster || node == r->nodes[0]);
    if (node->connection && node->connection->begin == node->connection->end) return RP_OK;
    redis_node_disconnect(node); /* it has bytes that are no reply of anything */
    if (!r->is_cluster) return connect_server(r, node, deadline_us, err);
    const redis_login login = login_of(r->address);
    return redis_connect(&node->connection, &node->host, r->tls, &login, deadline_us, err);
}

/* ---- the map ---- */

/* A number ':', or the size of an array '*', within limits. `what` is in the message. */
static int read_number(redis_connection *c, char type, int64_t least, int64_t most, const char *what, int64_t *out,
                       uint64_t deadline_us, rp_error *err) {
    redis_token t = {0};
    const int rc = redis_read_token(c, &t, deadline_us, err);
    BASE_ASSERT(type == ':' || type == '*');
    if (rc) return rc;
    if (t.type != type || t.n < least || t.n > most) return redis_fail_protocol(c, what, err);
    *out = t.n;
    return RP_OK;
}

/* A range of slots: [begin, end, [host, port, ...] of the master, of replicas, ...]. A host that is not given is the
 * one that answers. */
static int read_range(redis_nodes *r, redis_connection *c, int *left, uint64_t deadline_us, rp_error *err) {
    static const char *const what = "a range of slots was expected";
    int64_t n = 0, begin = 0, end = 0, n_node = 0, port = 0;
    char host[REDIS_MAX_TEXT];
    size_t k;
    int rc = read_number(c, '*', 3, REDIS_MAX_SKIPPED, what, &n, deadline_us, err);
    if (!rc) rc = read_number(c, ':', 0, REDIS_SLOTS - 1, what, &begin, deadline_us, err);
    if (!rc) rc = read_number(c, ':', 0, REDIS_SLOTS - 1, what, &end, deadline_us, err);
    if (!rc) rc = read_number(c, '*', 2, REDIS_MAX_SKIPPED, what, &n_node, deadline_us, err);
    if (!rc) rc = redis_read_text(c, host, deadline_us, err);
    if (!rc) rc = read_number(c, ':', 1, UINT16_MAX, what, &port, deadline_us, err);
    if (rc) return rc;
    for (int64_t i = n_node - 2 + n - 3; i > 0 && !rc; i--) rc = redis_skip(c, left, deadline_us, err);
    if (rc) return rc;
    const bool is_own = host[0] == '\0' || strcmp(host, "?") == 0;
    rc = find_node(r, is_own ? c->host.name : host, (uint16_t)port, &k, err);
    if (rc) return rc;
    BASE_ASSERT(k < r->n_nodes);
    r->nodes[k]->is_mapped = true;
    for (int64_t slot = begin; slot <= end; slot++) r->slots[slot] = (uint16_t)(k + 1);
    return RP_OK;
}

static int read_map(redis_nodes *r, redis_connection *c, uint64_t deadline_us, rp_error *err) {
    static const char *const words[] = {"CLUSTER", "SLOTS"};
    base_buffer command = BASE_BUFFER(MAX_COMMAND);
    redis_token array = {0};
    int left = REDIS_MAX_SKIPPED;
    int rc = redis_command(&command, 2, words) ? base_fail_memory(err, MAX_COMMAND, "a connection") : RP_OK;
    if (!rc) rc = redis_send(c, &command, deadline_us, err);
    const int cause = errno;
    base_buffer_free(&command);
    errno = cause;
    if (!rc) rc = redis_read_token(c, &array, deadline_us, err);
    if (!rc && array.type == '-') return redis_fail_reply(c, array.text, err);
    if (!rc && (array.type != '*' || array.n < 0 || array.n > REDIS_SLOTS))
        rc = redis_fail_protocol(c, "a list of slots was expected", err);
    for (size_t i = 0; i < r->n_nodes; i++) r->nodes[i]->is_mapped = false;
    for (int64_t i = 0; !rc && i < array.n; i++) rc = read_range(r, c, &left, deadline_us, err);
    return rc;
}

/* One of the candidates. */
static int refresh_from(redis_nodes *r, size_t k, uint64_t deadline_us, rp_error *err) {
    redis_node *node = r->nodes[k];
    int rc = redis_node_connect(r, node, deadline_us, err);
    if (rc) return rc;
    rc = read_map(r, node->connection, deadline_us, err);
    if (rc) redis_node_disconnect(node);
    return rc;
}

/* Seeds are nodes of their own until the map is known; nodes without slots keep no connection after it. */
int redis_nodes_refresh(redis_nodes *r, uint64_t deadline_us, rp_error *err) {
    if (!r->is_cluster || !r->is_stale) return RP_OK;
    const redis_address *a = r->address;
    if (r->n_nodes + REDIS_MAX_HOSTS > REDIS_MAX_NODES) drop_nodes(r);
    for (int i = 0; i < a->n_hosts; i++) {
        size_t k;
        const int rc = find_node(r, a->hosts[i].name, a->hosts[i].port, &k, err);
        if (rc) return rc;
    }
    int rc = RP_ERR_IO;
    const size_t n = r->n_nodes;
    for (size_t pass = 0; pass < 2 && rc == RP_ERR_IO; pass++) /* connected ones first */
        for (size_t i = 0; i < n && rc == RP_ERR_IO; i++) {
            if ((r->nodes[i]->connection != NULL) != (pass == 0)) continue;
            rc = refresh_from(r, i, share_of(deadline_us, (int)(n - i)), err);
        }
    if (rc) return rc;
    for (size_t i = 0; i < r->n_nodes; i++)
        if (!r->nodes[i]->is_mapped) redis_node_disconnect(r->nodes[i]);
    BASE_ASSERT(r->n_nodes > 0); /* redis_nodes_of has one for each slot */
    r->is_stale = false;
    return RP_OK;
}

/* "MOVED 3999 127.0.0.1:6381", "ASK 3999 ::1:6381", "MOVED 3999 :6381" (the same host) */
int redis_nodes_redirect(redis_nodes *r, const redis_connection *from, const char *text, redis_redirection *what,
                         redis_node **out, rp_error *err) {
    BASE_ASSERT(r->n_nodes > 0 && r->n_nodes <= REDIS_MAX_NODES);
    char word[8], host[REDIS_HOST_BYTES];
    unsigned slot;
    int n = 0;
    *what = REDIS_NO_REDIRECTION;
    if (sscanf(text, "%7s %5u %n", word, &slot, &n) != 2 || n == 0) return RP_OK;
    const bool is_moved = strcmp(word, "MOVED") == 0;
    if (!is_moved && strcmp(word, "ASK") != 0) return RP_OK;
    if (r->address->cluster == REDIS_CLUSTER_NO) return RP_OK;
    const char *colon = strrchr(text + n, ':');
    char *end;
    const long port = colon ? strtol(colon + 1, &end, 10) : 0;
    const size_t n_host = colon ? (size_t)(colon - text) - (size_t)n : 0;
    if (slot >= REDIS_SLOTS || port <= 0 || port > UINT16_MAX || *end != '\0' || n_host >= sizeof(host))
        return redis_fail_protocol(from, "a redirection has no address", err);
    snprintf(host, sizeof(host), "%.*s", (int)n_host, text + n);
    if (!r->is_cluster) { /* what was the server is a node now, with an address of its own */
        r->is_cluster = r->is_stale = true;
        r->nodes[0]->host = from->host;
    }
    size_t k;
    const int rc = find_node(r, n_host > 0 ? host : from->host.name, (uint16_t)port, &k, err);
    if (rc) return r->is_stale = true, rc;
    if (is_moved) {
        r->slots[slot] = (uint16_t)(k + 1);
        r->is_stale = true;
    }
    *what = is_moved ? REDIS_MOVED : REDIS_ASK;
    *out = r->nodes[k];
    return RP_OK;
}
