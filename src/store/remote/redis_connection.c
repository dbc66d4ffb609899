/* SPDX-License-Identifier: Apache-2.0 */
/* redis_connection.c: see redis_connection.h. */
#include "store/remote/redis_connection.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

#define MAX_LOGIN (4 * REDIS_MAX_WORD)
#define MAX_DIGITS 19

/* ---- errors ---- */

int redis_fail_protocol(const redis_connection *c, const char *what, rp_error *err) {
    const int rc = base_fail(err, RP_ERR_IO, "%s port %d does not answer as Redis does: %s", c->host.name, c->host.port,
                             what);
    errno = EPROTO;
    return rc;
}

/* Causes of the errors that Redis names by their first word. */
static int cause_of(const char *text) {
    static const struct {
        const char *word;
        int cause;
    } causes[] = {
        {"OOM", ENOSPC},
        {"NOAUTH", EACCES},
        {"WRONGPASS", EACCES},
        {"NOPERM", EACCES},
        {"DENIED", EACCES},
        {"LOADING", EAGAIN},
        {"CLUSTERDOWN", EAGAIN},
        {"TRYAGAIN", EAGAIN},
        {"MASTERDOWN", EAGAIN},
        {"BUSY", EAGAIN},
        {"NOREPLICAS", EAGAIN},
        {"ERR max number of clients", EAGAIN},
        {"READONLY", EROFS},
        {"MISCONF", EIO},
    };
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
        if (strncmp(text, causes[i].word, strlen(causes[i].word)) == 0) return causes[i].cause;
    return EPROTO;
}

int redis_fail_reply(const redis_connection *c, const char *text, rp_error *err) {
    char shown[160];
    static const char aborted[] = "EXECABORT Transaction discarded because of: ";
    if (strncmp(text, aborted, strlen(aborted)) == 0) text += strlen(aborted);
    snprintf(shown, sizeof(shown), "%s", text);
    for (char *s = shown; *s; s++)
        if (*s < ' ' || *s > '~') *s = '?';
    const int rc = base_fail(err, RP_ERR_IO, "%s port %d refuses: %s", c->host.name, c->host.port, shown);
    errno = cause_of(text);
    return rc;
}

/* ---- reading ---- */

/* A line without its end, as a string in c->in. */
static int read_line(redis_connection *c, char **line, size_t *n, uint64_t deadline_us, rp_error *err) {
    for (size_t seen = 0;;) {
        char *const at = c->in + c->begin, *const end = memchr(at + seen, '\n', c->end - c->begin - seen);
        if (end) {
            if (end == at || end[-1] != '\r') return redis_fail_protocol(c, "a line does not end with CR and LF", err);
            end[-1] = '\0';
            *line = at;
            *n = (size_t)(end - 1 - at);
            c->begin += *n + 2;
            return RP_OK;
        }
        seen = c->end - c->begin;
        if (seen >= REDIS_MAX_LINE) return redis_fail_protocol(c, "a line is too long", err);
        if (REDIS_IN_BYTES - c->begin < REDIS_MAX_LINE) {
            memmove(c->in, at, seen);
            c->begin = 0;
            c->end = seen;
        }
        const struct iovec piece = {c->in + c->end, REDIS_IN_BYTES - c->end};
        size_t got;
        const int rc = redis_socket_read(c->socket, &piece, 1, &got, deadline_us, err);
        if (rc) return rc;
        BASE_ASSERT(got <= piece.iov_len);
        c->end += got;
    }
}

static bool parse_number(const char *s, size_t n, int64_t *out) {
    const bool is_negative = n > 0 && s[0] == '-';
    uint64_t value = 0;
    if (is_negative) s++, n--;
    if (n == 0 || n > MAX_DIGITS) return false;
    for (; n > 0; s++, n--) {
        if (*s < '0' || *s > '9') return false;
        value = value * 10 + (uint64_t)(*s - '0');
    }
    if (value > INT64_MAX) return false;
    *out = is_negative ? -(int64_t)value : (int64_t)value;
    return true;
}

int redis_read_token(redis_connection *c, redis_token *out, uint64_t deadline_us, rp_error *err) {
    char *line = NULL;
    size_t n = 0;
    const int rc = read_line(c, &line, &n, deadline_us, err);
    if (rc) return rc;
    BASE_ASSERT(c->begin <= c->end && c->end <= REDIS_IN_BYTES);
    *out = (redis_token){.type = line[0], .text = n > 0 ? line + 1 : line};
    if (out->type == '+' || out->type == '-') return RP_OK;
    if (out->type != ':' && out->type != '$' && out->type != '*')
        return redis_fail_protocol(c, "a reply has an unknown type", err);
    if (!parse_number(line + 1, n - 1, &out->n)) return redis_fail_protocol(c, "a reply has no number", err);
    if (out->type != ':' && out->n < -1) return redis_fail_protocol(c, "a reply has a negative size", err);
    return RP_OK;
}

/* Bytes into *at, and what follows them into c->in, in one call of the system. */
int redis_read_bytes(redis_connection *c, void *bytes, size_t n, uint64_t deadline_us, rp_error *err) {
    BASE_ASSERT(c->begin <= c->end && c->end <= REDIS_IN_BYTES);
    char *to = bytes, end[2];
    size_t left = n, n_here = BASE_MIN(left, c->end - c->begin);
    if (n_here > 0) memcpy(to, c->in + c->begin, n_here);
    c->begin += n_here;
    to += n_here;
    left -= n_here;
    while (left > 0) {
        size_t got;
        const struct iovec pieces[] = {{to, left}, {c->in, REDIS_IN_BYTES}};
        const int rc = redis_socket_read(c->socket, pieces, 2, &got, deadline_us, err);
        if (rc) return rc;
        const size_t step = BASE_MIN(got, left);
        c->begin = 0;
        c->end = got - step;
        to += step;
        left -= step;
    }
    for (size_t k = 0; k < 2; k++) { /* CR and LF */
        if (c->begin == c->end) {
            const struct iovec piece = {c->in, REDIS_IN_BYTES};
            c->begin = c->end = 0;
            const int rc = redis_socket_read(c->socket, &piece, 1, &c->end, deadline_us, err);
            if (rc) return rc;
        }
        end[k] = c->in[c->begin++];
    }
    if (end[0] != '\r' || end[1] != '\n') return redis_fail_protocol(c, "bytes do not end with CR and LF", err);
    return RP_OK;
}

int redis_read_text(redis_connection *c, char out[REDIS_MAX_TEXT], uint64_t deadline_us, rp_error *err) {
    redis_token t;
    int rc = redis_read_token(c, &t, deadline_us, err);
    out[0] = '\0';
    if (rc || (t.type == '$' && t.n < 0)) return rc;
    if (t.type != '$' || t.n >= REDIS_MAX_TEXT) return redis_fail_protocol(c, "a short text was expected", err);
    BASE_ASSERT(t.n >= 0); /* redis_read_token has no others */
    rc = redis_read_bytes(c, out, (size_t)t.n, deadline_us, err);
    out[t.n] = '\0';
    return rc;
}

/* Without recursion: open[] are the tokens that each array lacks. */
int redis_skip(redis_connection *c, int *left, uint64_t deadline_us, rp_error *err) {
    int64_t open[REDIS_MAX_DEPTH + 1] = {1};
    char text[REDIS_MAX_TEXT];
    for (int depth = 0; depth >= 0;) {
        redis_token t;
        BASE_ASSERT(depth <= REDIS_MAX_DEPTH && open[depth] >= 0);
        if (open[depth] == 0) {
            depth--;
            continue;
        }
        open[depth]--;
        if (--*left < 0) return redis_fail_protocol(c, "a reply has too many parts", err);
        int rc = redis_read_token(c, &t, deadline_us, err);
        if (!rc && t.type == '$' && t.n >= REDIS_MAX_TEXT) rc = redis_fail_protocol(c, "a text is too long", err);
        if (!rc && t.type == '$' && t.n >= 0) rc = redis_read_bytes(c, text, (size_t)t.n, deadline_us, err);
        if (!rc && t.type == '*' && t.n > 0) {
            if (depth == REDIS_MAX_DEPTH) return redis_fail_protocol(c, "a reply is nested too deeply", err);
            open[++depth] = t.n;
        }
        if (rc) return rc;
    }
    return RP_OK;
}

/* ---- sending ---- */

int redis_command(base_buffer *out, int n, const char *const *words) {
    BASE_ASSERT(n > 0);
    int rc = base_buffer_printf(out, "*%d\r\n", n);
    for (int i = 0; i < n && !rc; i++) rc = base_buffer_printf(out, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
    return rc;
}

int redis_send(redis_connection *c, const base_buffer *commands, uint64_t deadline_us, rp_error *err) {
    struct iovec piece = {commands->data, commands->len};
    return redis_socket_write(c->socket, &piece, 1, deadline_us, err);
}

/* ---- opening ---- */

static int expect_ok(redis_connection *c, bool is_auth, uint64_t deadline_us, rp_error *err) {
    redis_token t;
    int rc = redis_read_token(c, &t, deadline_us, err);
    if (rc) return rc;
    if (t.type == '-') {
        rc = redis_fail_reply(c, t.text, err);
        if (is_auth && errno == EPROTO) errno = EACCES; /* "ERR invalid password" of Redis 5 */
        return rc;
    }
    return t.type == '+' && strcmp(t.text, "OK") == 0 ? RP_OK : redis_fail_protocol(c, "OK was expected", err);
}

int redis_log_in(redis_connection *c, const redis_login *login, uint64_t deadline_us, rp_error *err) {
    base_buffer b = BASE_BUFFER(MAX_LOGIN);
    char db[16];
    int rc = RP_OK;
    BASE_ASSERT(login->password || !login->user);
    snprintf(db, sizeof(db), "%u", (unsigned)login->db);
    if (login->password) {
        const char *const auth[] = {"AUTH", login->user ? login->user : login->password, login->password};
        rc = redis_command(&b, login->user ? 3 : 2, auth);
    }
    if (!rc && login->db > 0) rc = redis_command(&b, 2, (const char *const[]){"SELECT", db});
    if (rc) rc = base_fail_memory(err, MAX_LOGIN, "a connection");
    else if (b.len > 0) rc = redis_send(c, &b, deadline_us, err);
    if (!rc && login->password) rc = expect_ok(c, true, deadline_us, err);
    if (!rc && login->db > 0) rc = expect_ok(c, false, deadline_us, err);
    const int cause = errno;
    if (b.data) sodium_memzero(b.data, b.len);
    base_buffer_free(&b);
    errno = cause;
    return rc;
}

int redis_connect(redis_connection **out, const redis_host *host, const redis_tls *tls, const redis_login *login,
                  uint64_t deadline_us, rp_error *err) {
    BASE_ASSERT(host->name[0] && host->port > 0);
    redis_connection *c = base_alloc(sizeof(*c));
    if (!c) return base_fail_memory(err, sizeof(*c), "a connection");
    c->socket = NULL;
    c->host = *host;
    c->begin = c->end = 0;
    int rc = redis_socket_open(&c->socket, host, tls, deadline_us, err);
    if (!rc) rc = redis_log_in(c, login, deadline_us, err);
    if (rc) redis_disconnect(c);
    else *out = c;
    return rc;
}

void redis_disconnect(redis_connection *c) {
    const int cause = errno;
    if (!c) return;
    redis_socket_close(c->socket);
    base_free(c);
    errno = cause;
}
