/* SPDX-License-Identifier: Apache-2.0 */
/* listeners.c: see listeners.h. One thread opens and closes. */
#define _GNU_SOURCE /* getaddrinfo, SOCK_CLOEXEC */

#include "server/http/listeners.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "server/http/gate.h"
#include "server/http/server_internal.h"

#define BACKLOG 1024
#define FIRST_INHERITED 3 /* the first that LISTEN_FDS counts */
#define HEAD_BYTES \
    ((size_t)64 << 10) /* libmicrohttpd's memory per connection: a head, and its receive and send buffers */
#define CLUSTER_STALL_S \
    900u /* a router takes nothing of a stream while its client has 256 KiB to read: it watches its clients itself */
#define FULL_CONNECTIONS \
    64 /* beyond the limit: refused ones until they got 503, closed ones until libmicrohttpd sees that */

static server_listener *next_listener(server_listeners *l, rp_error *err) {
    BASE_ASSERT(l->n >= 0 && l->n <= SERVER_MAX_LISTENERS);
    if (l->n == SERVER_MAX_LISTENERS) {
        base_fail(err, RP_ERR_LIMIT, "a server listens on at most %d sockets", SERVER_MAX_LISTENERS);
        return NULL;
    }
    server_listener *x = &l->items[l->n];
    *x = (server_listener){.fd = -1};
    return x;
}

/* ---- TCP ---- */

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    if (a->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
    return a->sa_family == AF_UNIX;
}

/* What a socket is bound to. */
static void server_listeners_describe(server_listeners *l, server_listener *x) {
    BASE_ASSERT(x == &l->items[l->n] && x->fd >= 0); /* the next one, not counted yet */
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof(a);
    char host[80], port[16];
    getsockname(x->fd, (struct sockaddr *)&a, &n);
    if (!is_loopback((struct sockaddr *)&a)) l->beyond_loopback = true;
    if (a.ss_family == AF_UNIX) {
        x->is_unix = true;
        snprintf(x->address, sizeof(x->address), "unix:%.108s", ((struct sockaddr_un *)&a)->sun_path);
    } else if (getnameinfo((struct sockaddr *)&a, n, host, sizeof(host), port, sizeof(port),
                           NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(x->address, sizeof(x->address), a.ss_family == AF_INET6 ? "http://[%s]:%s" : "http://%s:%s", host,
                 port);
}

static int bind_tcp(const struct addrinfo *a) {
    int on = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int open_tcp(server_listeners *l, const char *host, int port, rp_error *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *all = NULL;
    server_listener *x = next_listener(l, err);
    char number[16];
    if (!x) return RP_ERR_LIMIT;
    snprintf(number, sizeof(number), "%d", port);
    int failed = getaddrinfo(host, number, &hints, &all);
    if (failed) return base_fail(err, RP_ERR_IO, "cannot listen on '%s': %s", host, gai_strerror(failed));
    for (struct addrinfo *a = all; a && x->fd < 0; a = a->ai_next) x->fd = bind_tcp(a);
    int why = errno;
    freeaddrinfo(all);
    if (x->fd < 0) return base_fail(err, RP_ERR_IO, "cannot listen on '%s' port %d: %s", host, port, strerror(why));
    server_listeners_describe(l, x);
    l->n++;
    return RP_OK;
}

/* ---- Unix ---- */

/* Removes a socket that nobody listens on. false: somebody does, or it is no socket. */
static bool remove_stale(const struct sockaddr_un *a) {
    struct stat s;
    if (lstat(a->sun_path, &s) != 0) return errno == ENOENT;
    if (!S_ISSOCK(s.st_mode)) return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answered = fd < 0 || connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0;
    if (fd >= 0) close(fd);
    return !answered && unlink(a->sun_path) == 0;
}

static int open_unix(server_listeners *l, const char *path, rp_error *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    server_listener *x = next_listener(l, err);
    if (!x) return RP_ERR_LIMIT;
    if (!path[0] || strlen(path) >= sizeof(a.sun_path))
        return base_fail(err, RP_ERR_INVALID, "the path of a Unix socket has 1 to %zu bytes", sizeof(a.sun_path) - 1);
    memcpy(a.sun_path, path, strlen(path));
    if (!remove_stale(&a))
        return base_fail(err, RP_ERR_IO, "cannot listen on '%s': it is in use, or not a socket", path);
    x->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (x->fd < 0 || bind(x->fd, (struct sockaddr *)&a, sizeof(a)) || listen(x->fd, BACKLOG)) {
        base_fail_errno(err, "cannot listen on", path);
        if (x->fd >= 0) close(x->fd);
        return RP_ERR_IO;
    }
    memcpy(x->unlink_path, a.sun_path, sizeof(x->unlink_path));
    server_listeners_describe(l, x);
    l->n++;
    return RP_OK;
}

/* ---- handed over ---- */

/* How many sockets were handed over to this process. */
static int count_inherited(void) {
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    if (!pid || !n || strtol(pid, NULL, 10) != (long)getpid()) return 0;
    long count = strtol(n, NULL, 10);
    return count > 0 && count <= SERVER_MAX_LISTENERS ? (int)count : count > 0 ? SERVER_MAX_LISTENERS + 1
                                                                               : 0;
}

static int open_inherited(server_listeners *l, int n, rp_error *err) {
    for (int i = 0; i < n; i++) {
        server_listener *x = next_listener(l, err);
        int fd = FIRST_INHERITED + i, listens = 0, flags = fcntl(fd, F_GETFL);
        socklen_t bytes = sizeof(listens);
        if (!x) return RP_ERR_LIMIT;
        if (flags < 0 || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || !listens)
            return base_fail(err, RP_ERR_INVALID, "LISTEN_FDS: descriptor %d is not a listening socket", fd);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
        x->fd = fd;
        server_listeners_describe(l, x);
        l->n++;
    }
    return RP_OK;
}

/* ---- public ---- */

/* "HOST:PORT", "[ADDRESS]:PORT" */
static int open_address(server_listeners *l, const char *address, rp_error *err) {
    char host[SERVER_ADDRESS_BYTES];
    const char *colon = strrchr(address, ':');
    char *end = NULL;
    const long port = colon && isdigit((unsigned char)colon[1]) ? strtol(colon + 1, &end, 10) : -1;
    size_t n = colon ? (size_t)(colon - address) : 0;
    if (port < 0 || port > 65535 || *end || n == 0 || n >= sizeof(host))
        return base_fail(err, RP_ERR_INVALID, "cluster_listen is '%.100s': give ADDRESS:PORT or unix:PATH", address);
    const bool bracketed = address[0] == '[' && address[n - 1] == ']';
    snprintf(host, sizeof(host), "%.*s", (int)(n - (bracketed ? 2 : 0)), address + bracketed);
    return open_tcp(l, host, (int)port, err);
}

int listeners_open(server_listeners *l, const rp_server_options *o, rp_error *err) {
    const char *cluster = o->cluster_listen;
    int inherited = o->inherit_sockets ? count_inherited() : 0, rc = RP_OK;
    if (inherited > 0) rc = open_inherited(l, inherited, err);
    else {
        if (o->port != RP_SERVER_NO_PORT) rc = open_tcp(l, o->host ? o->host : "127.0.0.1", o->port, err);
        if (!rc && o->unix_path) rc = open_unix(l, o->unix_path, err);
        if (!rc && l->n == 0) rc = base_fail(err, RP_ERR_INVALID, "a server needs a port or a Unix socket");
    }
    if (rc || !cluster) return rc;
    const bool beyond = l->beyond_loopback;
    rc = strncmp(cluster, "unix:", 5) == 0 ? open_unix(l, cluster + 5, err) : open_address(l, cluster, err);
    l->beyond_loopback = beyond; /* a signature is as good as a key */
    BASE_ASSERT(rc || l->n > 0);
    if (!rc) l->items[l->n - 1].is_cluster = true;
    return rc;
}

static void ignore_log(void *cls, const char *fmt, va_list ap) {
    (void)cls;
    (void)fmt;
    (void)ap;
}

/* "%00" stays as it is: the name of a file or a schema that has it is no name at all, not the one that ends there. */
static size_t listeners_unescape(void *cls, struct MHD_Connection *connection, char *text) {
    size_t n = 0;
    (void)cls;
    (void)connection;
    for (const char *at = text; *at; n++) {
        char digits[3] = {at[0] == '%' ? at[1] : '\0', at[0] == '%' && at[1] ? at[2] : '\0', '\0'}, *end = digits;
        long byte = strtol(digits, &end, 16);
        bool escaped = end == digits + 2 && byte > 0 && isxdigit((unsigned char)digits[0]);
        BASE_DCHECK(text + n <= at); /* what is written is never beyond what was read */
        text[n] = escaped ? (char)byte : *at;
        at += escaped ? 3 : 1;
    }
    text[n] = '\0';
    return n;
}

int listeners_start(server_listeners *l, rp_server *server, const server_http_callbacks *callbacks,
                    const rp_server_options *o, rp_error *err) {
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    int connections = o->max_connections + FULL_CONNECTIONS;
    const unsigned idle_s = (unsigned)((o->idle_timeout_ms + 999) / 1000);
    for (int i = 0; i < l->n; i++) {
        server_listener *x = &l->items[i];
        BASE_ASSERT(x->fd >= 0 && !x->gate);
        struct MHD_Daemon *daemon = MHD_start_daemon(
            flags, 0, NULL, NULL, callbacks->access, server, MHD_OPTION_EXTERNAL_LOGGER, (MHD_LogCallback)ignore_log,
            NULL, MHD_OPTION_UNESCAPE_CALLBACK, listeners_unescape, NULL, MHD_OPTION_NOTIFY_COMPLETED,
            callbacks->completed, server, MHD_OPTION_NOTIFY_CONNECTION, callbacks->connection, server,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEAD_BYTES, MHD_OPTION_CONNECTION_LIMIT, (unsigned)connections,
            MHD_OPTION_CONNECTION_TIMEOUT, x->is_cluster ? BASE_MAX(CLUSTER_STALL_S, idle_s) : idle_s,
            MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
            x->is_cluster ? MHD_OPTION_URI_LOG_CALLBACK : MHD_OPTION_END, callbacks->target, server, MHD_OPTION_END);
        if (!daemon) return base_fail(err, RP_ERR_IO, "cannot serve on %s", x->address);
        int rc = gate_new(&x->gate, x->fd, daemon, connections, err);
        if (rc) return rc;
    }
    return RP_OK;
}

const server_listener *listeners_of(const server_listeners *l, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_DAEMON);
    for (int i = 0; i < l->n && info; i++)
        if (l->items[i].gate && gate_daemon(l->items[i].gate) == info->daemon) return &l->items[i];
    return NULL;
}

struct server_gate *listeners_gate(const server_listeners *l, struct MHD_Connection *connection) {
    const server_listener *x = listeners_of(l, connection);
    return x ? x->gate : NULL;
}

void listeners_close(server_listeners *l) {
    for (int i = 0; i < l->n; i++) {
        server_listener *x = &l->items[i];
        BASE_ASSERT(x->fd >= 0);
        gate_free(x->gate);
        close(x->fd);
        if (x->unlink_path[0]) unlink(x->unlink_path);
    }
    l->n = 0;
}
