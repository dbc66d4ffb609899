/* SPDX-License-Identifier: Apache-2.0 */
/* redis_socket.c: see redis_socket.h. A step that would block waits with ppoll until the deadline. */
#define _GNU_SOURCE /* ppoll, SOCK_CLOEXEC */
#include "store/remote/redis_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "store/remote/redis_lookup.h"

/* A peer that is gone is noticed after 30 + 3 * 10 seconds at rest. */
#define KEEPALIVE_IDLE_S 30
#define KEEPALIVE_EVERY_S 10
#define KEEPALIVE_PROBES 3

struct redis_socket {
    int fd;
    redis_tls_session *tls; /* NULL: plain */
    redis_host host;        /* for messages */
};

static int fail_at(const redis_host *h, const char *what, const char *why, int cause, rp_error *err) {
    char text[128];
    const int rc = base_fail(err, RP_ERR_IO, "%s %s port %d: %s", what, h->name, h->port,
                             why ? why : base_errno_text(cause, text, sizeof(text)));
    errno = cause;
    return rc;
}

/* true: try again; false: errno. */
static bool wait_until(int fd, short events, uint64_t deadline_us) {
    const uint64_t now = base_clock_us();
    if (now >= deadline_us) return errno = ETIMEDOUT, false;
    const uint64_t left = deadline_us - now;
    const struct timespec t = {(time_t)(left / 1000000), (long)(left % 1000000 * 1000)};
    struct pollfd p = {.fd = fd, .events = events};
    const int n = ppoll(&p, 1, &t, NULL);
    if (n == 0) errno = ETIMEDOUT;
    return n > 0 || (n < 0 && errno == EINTR);
}

/* ---- opening ---- */

static void set_options(int fd) {
    const int on = 1, idle = KEEPALIVE_IDLE_S, every = KEEPALIVE_EVERY_S, probes = KEEPALIVE_PROBES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/* A descriptor, or -1 with errno. */
static int connect_to(const struct addrinfo *a, uint64_t deadline_us) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) return -1;
    set_options(fd);
    int cause = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (cause == EINPROGRESS || cause == EINTR) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        socklen_t n = sizeof(cause);
        cause = 0;
        while (!cause && poll(&p, 1, 0) <= 0)
            if (!wait_until(fd, POLLOUT, deadline_us)) cause = errno;
        if (!cause && getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &n) != 0) cause = errno;
    }
    if (!cause) return fd;
    close(fd);
    errno = cause;
    return -1;
}

static int start_tls(redis_socket *s, const redis_tls *tls, uint64_t deadline_us, rp_error *err) {
    BASE_ASSERT(s->fd >= 0 && !s->tls);
    const int rc = redis_tls_begin(&s->tls, tls, s->fd, s->host.name, err);
    if (rc) return rc;
    while (redis_tls_handshake(s->tls) != 0)
        if (errno != EAGAIN) return fail_at(&s->host, "no TLS with", redis_tls_why(s->tls), errno, err);
        else if (!wait_until(s->fd, redis_tls_events(s->tls), deadline_us))
            return fail_at(&s->host, "no TLS with", NULL, errno, err);
    return RP_OK;
}

int redis_socket_open(redis_socket **out, const redis_host *host, const redis_tls *tls, uint64_t deadline_us,
                      rp_error *err) {
    struct addrinfo *all;
    int rc = redis_lookup(&all, host->name, host->port, deadline_us, err), n_left = 0;
    if (rc) return rc;
    redis_socket *s = base_calloc(1, sizeof(*s));
    if (!s) return freeaddrinfo(all), base_fail_memory(err, sizeof(*s), "a connection");
    *s = (redis_socket){.fd = -1, .host = *host};
    for (const struct addrinfo *a = all; a; a = a->ai_next) n_left++;
    errno = EHOSTUNREACH;
    for (const struct addrinfo *a = all; a && s->fd < 0; a = a->ai_next) { /* each has its share of the time */
        const uint64_t now = base_clock_us(), left = deadline_us > now ? deadline_us - now : 0;
        s->fd = connect_to(a, now + left / (uint64_t)n_left--);
    }
    if (s->fd < 0) rc = fail_at(host, "cannot connect to", NULL, errno, err);
    else if (tls) rc = start_tls(s, tls, deadline_us, err);
    const int cause = errno;
    freeaddrinfo(all);
    errno = cause;
    if (rc) redis_socket_close(s);
    else *out = s;
    return rc;
}

void redis_socket_close(redis_socket *s) {
    const int cause = errno;
    if (!s) return;
    redis_tls_end(s->tls);
    if (s->fd >= 0) close(s->fd);
    base_free(s);
    errno = cause;
}

/* ---- bytes ---- */

/* After a step that gave -1: RP_OK: again. */
static int wait_or_fail(redis_socket *s, short events, const char *what, uint64_t deadline_us, rp_error *err) {
    if (errno == EINTR) return RP_OK;
    if (errno == ENOMEM) return base_fail_memory(err, 0, "a connection");
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        return fail_at(&s->host, what, s->tls ? redis_tls_why(s->tls) : NULL, errno, err);
    if (wait_until(s->fd, s->tls ? redis_tls_events(s->tls) : events, deadline_us)) return RP_OK;
    return fail_at(&s->host, what, NULL, errno, err);
}

int redis_socket_read(redis_socket *s, const struct iovec *pieces, int n, size_t *got, uint64_t deadline_us,
                      rp_error *err) {
    static const char *const what = "no answer from";
    BASE_ASSERT(n > 0 && pieces[0].iov_len > 0);
    if (base_clock_us() >= deadline_us) return fail_at(&s->host, what, NULL, ETIMEDOUT, err); /* of an endless answer */
    for (;;) {
        const ssize_t k =
            s->tls ? redis_tls_read(s->tls, pieces[0].iov_base, pieces[0].iov_len) : readv(s->fd, pieces, n);
        if (k == 0) return fail_at(&s->host, what, "the connection was closed", ECONNRESET, err);
        if (k > 0) return *got = (size_t)k, RP_OK;
        const int rc = wait_or_fail(s, POLLIN, what, deadline_us, err);
        if (rc) return rc;
    }
}

int redis_socket_write(redis_socket *s, struct iovec *pieces, int n, uint64_t deadline_us, rp_error *err) {
    static const char *const what = "cannot send to";
    BASE_ASSERT(n > 0 && n <= BASE_IO_MAX_PIECES);
    if (base_clock_us() >= deadline_us) return fail_at(&s->host, what, NULL, ETIMEDOUT, err);
    while (n > 0) {
        if (pieces[0].iov_len == 0) {
            pieces++, n--;
            continue;
        }
        const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)n};
        const ssize_t k = s->tls ? redis_tls_write(s->tls, pieces[0].iov_base, pieces[0].iov_len)
                                 : sendmsg(s->fd, &message, MSG_NOSIGNAL);
        if (k < 0) {
            const int rc = wait_or_fail(s, POLLOUT, what, deadline_us, err);
            if (rc) return rc;
        }
        for (size_t left = k > 0 ? (size_t)k : 0; left > 0;) {
            const size_t step = left < pieces[0].iov_len ? left : pieces[0].iov_len;
            pieces[0] = (struct iovec){(char *)pieces[0].iov_base + step, pieces[0].iov_len - step};
            left -= step;
            if (pieces[0].iov_len == 0) pieces++, n--;
        }
    }
    return RP_OK;
}
