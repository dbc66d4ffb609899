/* SPDX-License-Identifier: Apache-2.0 */
/* http_client.c: see http_client.h. Owns the sockets of http_ask; the caller owns those of http_connect. */
#define _POSIX_C_SOURCE 200809L /* getaddrinfo, fcntl */

#include "common/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/command.h"
#include "common/console.h"

#define DEFAULT_PORT "80"

/* ---- targets ---- */

static int wrong_url(const char *url, const char *what) {
    return cli_fail(CLI_WRONG_USE, "--url '%s': %s: give http://HOST:PORT, such as %s", url, what, HTTP_DEFAULT_URL);
}

/* "HOST:PORT", "[::1]:PORT" -> both parts. Returns false if the text has another form. */
static bool split_host(const char *text, char host[256], char port[16]) {
    bool bracketed = text[0] == '[';
    const char *end = bracketed ? strchr(text, ']') : text + strcspn(text, ":");
    if (end == NULL || end == text || (size_t)(end - text) >= 256) return false;
    const char *rest = bracketed ? end + 1 : end;
    snprintf(host, 256, "%.*s", (int)(end - text) - (bracketed ? 1 : 0), text + (bracketed ? 1 : 0));
    if (*rest != '\0' && (*rest != ':' || rest[1] == '\0' || strlen(rest) > 6 || strspn(rest + 1, "0123456789") != strlen(rest + 1)))
        return false;
    snprintf(port, 16, "%s", *rest == ':' ? rest + 1 : DEFAULT_PORT);
    return host[0] != '\0';
}

static int parse_url(http_target *t, const char *url, char host[256], char port[16]) {
    if (strncmp(url, "https://", 8) == 0) return wrong_url(url, "HTTPS is not supported");
    if (strncmp(url, "http://", 7) != 0) return wrong_url(url, "unsupported URL scheme (only http)");
    const char *at = url + 7, *path = at + strcspn(at, "/");
    size_t n_path = strlen(path);
    while (n_path > 0 && path[n_path - 1] == '/') n_path--;
    for (const char *p = at; *p != '\0'; p++)
        if ((unsigned char)*p <= ' ' || strchr("?#@\x7f", *p) != NULL) return wrong_url(url, "an invalid character");
    if ((size_t)(path - at) >= sizeof t->host || n_path >= sizeof t->base) return wrong_url(url, "the URL is too long");
    snprintf(t->host, sizeof t->host, "%.*s", (int)(path - at), at);
    snprintf(t->base, sizeof t->base, "%.*s", (int)n_path, path);
    snprintf(t->name, sizeof t->name, "http://%s", t->host);
    return split_host(t->host, host, port) ? CLI_OK : wrong_url(url, "host and port are missing");
}

static int http_client_unreachable(const http_target *t, const char *why) {
    return cli_fail(CLI_FAILED, "cannot reach %s: %s: is a server running there?", t->name, why);
}

static bool http_client_answers(const http_target *t) {
    int fd = http_connect(t, false);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static int find_tcp(http_target *t, const char *host, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *all = NULL;
    int rc = getaddrinfo(host, port, &hints, &all), why = 0;
    if (rc != 0) return http_client_unreachable(t, gai_strerror(rc));
    bool found = false;
    for (struct addrinfo *a = all; a != NULL && !found; a = a->ai_next) {
        memcpy(&t->address, a->ai_addr, a->ai_addrlen);
        t->n_address = a->ai_addrlen;
        found = http_client_answers(t);
        if (!found) why = errno;
    }
    freeaddrinfo(all);
    return found ? CLI_OK : http_client_unreachable(t, strerror(why));
}

static int find_unix(http_target *t, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return cli_fail(CLI_WRONG_USE, "--unix '%s': a socket path has at most %zu bytes", path, sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path) + 1);
    memcpy(&t->address, &address, sizeof address);
    t->n_address = sizeof address;
    snprintf(t->name, sizeof t->name, "unix:%s", path);
    return http_client_answers(t) ? CLI_OK : http_client_unreachable(t, strerror(errno));
}

int http_target_open(http_target *t, const char *url, const char *unix_path) {
    char host[256], port[16];
    *t = (http_target){0};
    int status = parse_url(t, url, host, port);
    if (status != CLI_OK) return status;
    return unix_path != NULL ? find_unix(t, unix_path) : find_tcp(t, host, port);
}

/* ---- connections ---- */

int http_connect(const http_target *t, bool at_once) {
    int fd = socket(t->address.ss_family, SOCK_STREAM, 0), on = 1;
    if (fd < 0) return -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (at_once) fcntl(fd, F_SETFL, O_NONBLOCK);
    if (t->address.ss_family != AF_UNIX) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (const struct sockaddr *)&t->address, t->n_address) == 0 || (at_once && errno == EINPROGRESS)) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

char *http_request_bytes(const http_target *t, const http_request *q, size_t *n) {
    const char *type = q->content_type != NULL ? q->content_type : "application/json";
    size_t cap = 512 + strlen(q->method) + strlen(q->path) + strlen(t->base) + strlen(t->host) + strlen(type) + q->n_body +
                 (q->key != NULL ? strlen(q->key) : 0);
    char *bytes = cli_alloc(cap);
    int at = snprintf(bytes, cap, "%s %s%s HTTP/1.1\r\nHost: %s\r\n", q->method, t->base, q->path, t->host);
    if (q->key != NULL) at += snprintf(bytes + at, cap - (size_t)at, "Authorization: Bearer %s\r\n", q->key);
    if (q->body != NULL) at += snprintf(bytes + at, cap - (size_t)at, "Content-Type: %s\r\nContent-Length: %zu\r\n", type, q->n_body);
    at += snprintf(bytes + at, cap - (size_t)at, "\r\n");
    if (q->n_body > 0) memcpy(bytes + at, q->body, q->n_body);
    *n = (size_t)at + q->n_body;
    return bytes;
}

/* ---- requests ---- */

static int send_all(int fd, const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno;
        bytes += sent;
        n -= (size_t)sent;
    }
    return 0;
}

static void keep_body(void *user, const char *bytes, size_t n) {
    http_reply *reply = user;
    if (n > HTTP_MAX_REPLY_BYTES - reply->n_body) n = HTTP_MAX_REPLY_BYTES - reply->n_body;
    reply->body = cli_realloc(reply->body, reply->n_body + n + 1);
    memcpy(reply->body + reply->n_body, bytes, n);
    reply->n_body += n;
    reply->body[reply->n_body] = '\0';
}

/* Returns the reason of a failure, or NULL. */
static const char *http_client_receive(int fd, http_reader *reader) {
    char bytes[16384];
    size_t used;
    http_state state = HTTP_READING;
    while (state == HTTP_READING) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? "no answer within the time limit" : strerror(errno);
        state = n > 0 ? http_reader_feed(reader, bytes, (size_t)n, &used) : http_reader_end(reader);
    }
    return state == HTTP_DONE ? NULL : reader->fault;
}

static const char *http_client_exchange(int fd, const http_target *t, const http_request *q, http_reader *reader) {
    struct timeval patience = {.tv_sec = HTTP_PATIENCE_S};
    size_t n = 0;
    char *bytes = http_request_bytes(t, q, &n);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int why = send_all(fd, bytes, n);
    free(bytes);
    const char *fault = http_client_receive(fd, reader); /* a server may reply before it has the whole body */
    return fault != NULL && why != 0 ? strerror(why) : fault;
}

int http_ask(const http_target *t, const http_request *q, http_reply *reply) {
    *reply = (http_reply){0};
    keep_body(reply, "", 0);
    int fd = http_connect(t, false);
    if (fd < 0) return http_client_unreachable(t, strerror(errno));
    http_reader *reader = cli_alloc(sizeof *reader);
    http_reader_begin(reader, strcmp(q->method, "HEAD") == 0, keep_body, reply);
    const char *fault = http_client_exchange(fd, t, q, reader);
    reply->status = reader->status;
    close(fd);
    free(reader);
    if (fault != NULL) return cli_fail(CLI_FAILED, "%s %s%s: %s", q->method, t->name, q->path, fault);
    if (reply->n_body == HTTP_MAX_REPLY_BYTES)
        return cli_fail(CLI_FAILED, "%s %s%s: the reply has more than %zu MiB", q->method, t->name, q->path, HTTP_MAX_REPLY_BYTES >> 20);
    return CLI_OK;
}

void http_reply_free(http_reply *reply) {
    free(reply->body);
    *reply = (http_reply){0};
}
