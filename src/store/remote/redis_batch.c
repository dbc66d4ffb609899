/* SPDX-License-Identifier: Apache-2.0 */
/* redis_batch.c: see redis_batch.h.
 *
 *   attempt:  send what is not done to each node -> read each reply -> done | redirected | failed
 *
 * An attempt reads every reply that it asked for, or closes the connection: none has replies of the attempt before. */
#include "store/remote/redis_batch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/io.h"
#include "store/remote/pool_driver.h"

#define DEFAULT_PREFIX "reprise:"
#define KEY_BYTES (REDIS_MAX_PREFIX + POOL_NAME_CHARS + 32)
#define MAX_TEXT (REDIS_MAX_CALLS * (2 * KEY_BYTES + 128))

/* What ended an attempt: the first failure, but one that a new connection may mend gives way to any other. */
typedef struct failure {
    int rc, cause;
    rp_error err;
} failure;

static bool is_mended(const redis_batch *b, int rc, int cause) {
    if (rc != RP_ERR_IO) return false;
    if (cause == ECONNRESET || cause == EPIPE || cause == EROFS) return true;
    return b->nodes.is_cluster && (cause == ECONNREFUSED || cause == EHOSTUNREACH || cause == ENETUNREACH);
}

/* Keeps a failure of a node; its connection is closed unless its replies can still be read. */
static void note_failure(redis_batch *b, failure *f, redis_node *node, int rc, bool is_refusal, const rp_error *err) {
    const int cause = errno;
    BASE_ASSERT(rc != RP_OK);
    if (!is_refusal || cause == EROFS) redis_node_disconnect(node);
    b->nodes.is_stale |= b->nodes.is_cluster && rc == RP_ERR_IO && cause != ENOSPC && cause != EACCES;
    if (f->rc && (is_mended(b, rc, cause) || !is_mended(b, f->rc, f->cause))) return;
    *f = (failure){.rc = rc, .cause = cause, .err = *err};
}

int redis_batch_open(redis_batch *out, const redis_address *address, const redis_tls *tls, rp_error *err) {
    out->pieces = NULL;
    out->n = 0;
    out->text = BASE_BUFFER(MAX_TEXT);
    return redis_nodes_open(&out->nodes, address, tls, err);
}

void redis_batch_close(redis_batch *b) {
    redis_nodes_close(&b->nodes);
    base_buffer_free(&b->text);
}

/* ---- sending ---- */

static int add_command(redis_batch *b, const redis_call *call) {
    const char *prefix = b->nodes.address->prefix ? b->nodes.address->prefix : DEFAULT_PREFIX;
    const uint32_t ttl_s = b->nodes.address->ttl_s;
    char key[KEY_BYTES], from[24], to[24];
    BASE_ASSERT(call->kind != REDIS_GETRANGE || (call->n > 0 && call->from + call->n <= REDIS_CHUNK_BYTES));
    const int n_key = snprintf(key, sizeof(key), "%s{%s}:%" PRIu64, prefix, call->name, call->chunk);
    int n_from, n_to;
    switch (call->kind) {
    case REDIS_EXISTS: return base_buffer_printf(&b->text, "*2\r\n$6\r\nEXISTS\r\n$%d\r\n%s\r\n", n_key, key);
    case REDIS_UNLINK: return base_buffer_printf(&b->text, "*2\r\n$6\r\nUNLINK\r\n$%d\r\n%s\r\n", n_key, key);
    case REDIS_GETRANGE:
        n_from = snprintf(from, sizeof(from), "%zu", call->from);
        n_to = snprintf(to, sizeof(to), "%zu", call->from + call->n - 1);
        return base_buffer_printf(&b->text, "*4\r\n$8\r\nGETRANGE\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", n_key,
                                  key, n_from, from, n_to, to);
    case REDIS_SET: break;
    }
    return base_buffer_printf(&b->text, "*%d\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%zu\r\n", ttl_s > 0 ? 5 : 3, n_key, key,
                              call->n);
}

static int flush(redis_batch *b, redis_connection *c, uint64_t deadline_us, rp_error *err) {
    const int rc = redis_send(c, &b->text, deadline_us, err);
    base_buffer_clear(&b->text);
    return rc;
}

/* The text so far and n bytes of the object, without copies of these. */
static int send_bytes(redis_batch *b, redis_connection *c, uint64_t offset, size_t n, uint64_t deadline_us,
                      rp_error *err) {
    struct iovec out[BASE_IO_MAX_PIECES] = {{b->text.data, b->text.len}};
    int n_out = 1, rc = RP_OK;
    BASE_ASSERT(offset <= b->n_bytes && n <= b->n_bytes - offset);
    for (const struct iovec *piece = b->pieces; n > 0 && !rc; offset -= BASE_MIN(offset, piece->iov_len), piece++) {
        if (offset >= piece->iov_len) continue;
        const size_t step = BASE_MIN(n, piece->iov_len - (size_t)offset);
        out[n_out++] = (struct iovec){(char *)piece->iov_base + offset, step};
        n -= step;
        if (n_out < BASE_IO_MAX_PIECES && n > 0) continue;
        rc = redis_socket_write(c->socket, out, n_out, deadline_us, err);
        n_out = 0;
    }
    if (!rc && n_out > 0) rc = redis_socket_write(c->socket, out, n_out, deadline_us, err); /* no bytes at all */
    base_buffer_clear(&b->text);
    return rc;
}

static int send_call(redis_batch *b, redis_connection *c, redis_call *call, uint64_t deadline_us, rp_error *err) {
    const uint64_t offset = call->chunk * REDIS_CHUNK_BYTES;
    int rc = RP_OK;
    BASE_ASSERT(call->kind != REDIS_SET || offset <= b->n_bytes);
    if (call->kind == REDIS_SET) call->n = (size_t)BASE_MIN(b->n_bytes - offset, REDIS_CHUNK_BYTES);
    if (call->ask) rc = base_buffer_append_str(&b->text, "*1\r\n$6\r\nASKING\r\n");
    if (!rc) rc = add_command(b, call);
    if (!rc && call->kind == REDIS_SET) {
        const uint32_t ttl_s = b->nodes.address->ttl_s;
        char ttl[24];
        rc = send_bytes(b, c, offset, call->n, deadline_us, err);
        if (rc) return rc;
        const int n = snprintf(ttl, sizeof(ttl), "%u", (unsigned)ttl_s);
        rc = ttl_s > 0 ? base_buffer_printf(&b->text, "\r\n$2\r\nEX\r\n$%d\r\n%s\r\n", n, ttl)
                       : base_buffer_append_str(&b->text, "\r\n");
    }
    return rc ? base_fail_memory(err, MAX_TEXT, "a pool") : RP_OK;
}

/* The calls of a node, with a transaction around them. */
static int send_to(redis_batch *b, redis_node *node, bool is_transaction, uint64_t deadline_us, rp_error *err) {
    int rc = redis_node_connect(&b->nodes, node, deadline_us, err);
    base_buffer_clear(&b->text);
    if (!rc && is_transaction && base_buffer_append_str(&b->text, "*1\r\n$5\r\nMULTI\r\n"))
        rc = base_fail_memory(err, MAX_TEXT, "a pool");
    for (size_t i = 0; i < b->n; i++) {
        redis_call *call = &b->calls[i];
        if (call->is_done || call->is_sent || call->node != node) continue;
        call->is_sent = true; /* whether or not it can be */
        if (!rc) rc = send_call(b, node->connection, call, deadline_us, err);
    }
    if (!rc && is_transaction && base_buffer_append_str(&b->text, "*1\r\n$4\r\nEXEC\r\n"))
        rc = base_fail_memory(err, MAX_TEXT, "a pool");
    return rc ? rc : flush(b, node->connection, deadline_us, err);
}

/* ---- replies ---- */

/* The reply of a call that is no error. */
static int read_result(redis_call *call, redis_connection *c, const redis_token *t, uint64_t deadline_us,
                       rp_error *err) {
    switch (call->kind) {
    case REDIS_EXISTS:
    case REDIS_UNLINK:
        call->result = t->n;
        if (t->type != ':' || t->n < 0 || t->n > 1) return redis_fail_protocol(c, "0 or 1 was expected", err);
        return RP_OK;
    case REDIS_GETRANGE:
        call->result = t->n;
        if (t->type != '$' || t->n < 0 || (uint64_t)t->n > call->n)
            return redis_fail_protocol(c, "the bytes that were asked for were expected", err);
        return redis_read_bytes(c, call->bytes, (size_t)t->n, deadline_us, err);
    case REDIS_SET: break;
    }
    return t->type == '+' && strcmp(t->text, "OK") == 0 ? RP_OK : redis_fail_protocol(c, "OK was expected", err);
}

/* An error of a call that is not in a transaction. *is_refusal: the connection can be used. */
static int read_refusal(redis_batch *b, redis_call *call, redis_connection *c, const char *text, bool *is_refusal,
                        rp_error *err) {
    redis_redirection what;
    redis_node *node;
    const int rc = redis_nodes_redirect(&b->nodes, c, text, &what, &node, err);
    *is_refusal = !rc;
    if (rc) return rc;
    if (what == REDIS_NO_REDIRECTION) return redis_fail_reply(c, text, err);
    call->ask = what == REDIS_ASK ? node : NULL;
    return RP_OK;
}

static int read_reply(redis_batch *b, redis_call *call, bool *is_refusal, uint64_t deadline_us, rp_error *err) {
    BASE_ASSERT(call->is_sent && call->node->connection);
    redis_connection *c = call->node->connection;
    redis_token t;
    int rc = RP_OK;
    *is_refusal = false;
    if (call->ask) { /* of ASKING, whatever it is */
        rc = redis_read_token(c, &t, deadline_us, err);
        if (!rc && t.type != '+' && t.type != '-') rc = redis_fail_protocol(c, "OK was expected", err);
        call->ask = NULL;
    }
    if (!rc) rc = redis_read_token(c, &t, deadline_us, err);
    if (rc) return rc;
    if (t.type == '-') return read_refusal(b, call, c, t.text, is_refusal, err);
    rc = read_result(call, c, &t, deadline_us, err);
    call->is_done = !rc;
    return rc;
}

/* ---- attempts ---- */

static void attempt(redis_batch *b, uint64_t deadline_us, failure *f) {
    rp_error err = {0};
    for (size_t i = 0; i < b->n; i++) {
        redis_call *call = &b->calls[i];
        call->is_sent = false;
        if (call->is_done) continue;
        const uint16_t slot = b->nodes.is_cluster ? redis_slot(call->name, POOL_NAME_CHARS) : 0;
        call->node = call->ask ? call->ask : redis_nodes_of(&b->nodes, slot);
    }
    for (size_t i = 0; i < b->n; i++) {
        const redis_call *call = &b->calls[i];
        if (call->is_done || call->is_sent) continue;
        const int rc = send_to(b, call->node, false, deadline_us, &err);
        if (rc) note_failure(b, f, call->node, rc, false, &err);
    }
    for (size_t i = 0; i < b->n; i++) {
        redis_call *call = &b->calls[i];
        bool is_refusal;
        if (call->is_done || !call->node->connection) continue;
        const int rc = read_reply(b, call, &is_refusal, deadline_us, &err);
        if (rc) note_failure(b, f, call->node, rc, is_refusal, &err);
    }
}

/* Replies: OK, QUEUED of each call, and an array of their results; or errors, the first of which is the reason, copied
 * to why. */
static int read_transaction(redis_batch *b, redis_connection *c, char why[REDIS_MAX_LINE], uint64_t deadline_us,
                            rp_error *err) {
    redis_token t;
    int rc = RP_OK;
    for (size_t i = 0; i < b->n + 2 && !rc; i++) {
        rc = redis_read_token(c, &t, deadline_us, err);
        if (!rc && t.type == '-' && !why[0]) snprintf(why, REDIS_MAX_LINE, "%s", t.text[0] ? t.text : "an error");
        if (!rc && i < b->n + 1 && (t.type == '$' || t.type == '*'))
            rc = redis_fail_protocol(c, "QUEUED was expected", err);
    }
    if (rc || t.type == '-') return rc;
    if (t.type != '*' || t.n != (int64_t)b->n)
        return redis_fail_protocol(c, "results of a transaction were expected", err);
    for (size_t i = 0; i < b->n && !rc; i++) {
        rc = redis_read_token(c, &t, deadline_us, err);
        if (!rc && t.type == '-' && !why[0]) snprintf(why, REDIS_MAX_LINE, "%s", t.text[0] ? t.text : "an error");
        if (!rc && t.type != '-') rc = read_result(&b->calls[i], c, &t, deadline_us, err);
        b->calls[i].is_done = !rc && t.type != '-';
    }
    return rc;
}

/* *is_transaction: false: the next attempt is none. */
static void attempt_transaction(redis_batch *b, bool *is_transaction, uint64_t deadline_us, failure *f) {
    rp_error err = {0};
    char why[REDIS_MAX_LINE] = "";
    BASE_ASSERT(!b->calls[0].ask); /* a transaction goes to the node of its slot */
    const uint16_t slot = b->nodes.is_cluster ? redis_slot(b->calls[0].name, POOL_NAME_CHARS) : 0;
    redis_node *node = redis_nodes_of(&b->nodes, slot), *other;
    for (size_t i = 0; i < b->n; i++) {
        BASE_DCHECK(b->calls[i].name == b->calls[0].name);
        b->calls[i].node = node;
        b->calls[i].is_sent = b->calls[i].is_done = false;
    }
    int rc = send_to(b, node, true, deadline_us, &err);
    if (!rc) rc = read_transaction(b, node->connection, why, deadline_us, &err);
    if (rc || !why[0]) {
        if (rc) note_failure(b, f, node, rc, false, &err);
        return;
    }
    redis_redirection what;
    rc = redis_nodes_redirect(&b->nodes, node->connection, why, &what, &other, &err);
    if (what == REDIS_ASK || strncmp(why, "TRYAGAIN", 8) == 0) *is_transaction = false;
    else if (!rc && what == REDIS_NO_REDIRECTION) rc = redis_fail_reply(node->connection, why, &err);
    if (rc) note_failure(b, f, node, rc, true, &err);
}

static bool is_all_done(const redis_batch *b) {
    for (size_t i = 0; i < b->n; i++)
        if (!b->calls[i].is_done) return false;
    return true;
}

int redis_batch_run(redis_batch *b, bool is_transaction, uint64_t deadline_us, rp_error *err) {
    bool is_refreshed = false, is_repeated = false;
    BASE_ASSERT(b->n > 0 && b->n <= REDIS_MAX_CALLS);
    for (size_t i = 0; i < b->n; i++) b->calls[i].is_done = false, b->calls[i].ask = NULL;
    for (int n_attempts = 0; n_attempts <= REDIS_MAX_REDIRECTIONS; n_attempts++) {
        failure f = {0};
        if (b->nodes.is_stale && !is_refreshed) {
            const int rc = redis_nodes_refresh(&b->nodes, deadline_us, err);
            if (rc) return rc;
            is_refreshed = true;
            for (size_t i = 0; i < b->n; i++) b->calls[i].ask = NULL; /* of nodes that may be gone */
        }
        if (is_transaction) attempt_transaction(b, &is_transaction, deadline_us, &f);
        else attempt(b, deadline_us, &f);
        if (f.rc && (is_repeated || !is_mended(b, f.rc, f.cause))) {
            if (err) *err = f.err;
            errno = f.cause;
            return f.rc;
        }
        is_repeated |= f.rc != 0;
        if (!f.rc && is_all_done(b)) return RP_OK;
    }
    const int rc = base_fail(err, RP_ERR_IO, "the nodes of the pool's cluster redirect a command more than %d times",
                             REDIS_MAX_REDIRECTIONS);
    errno = EPROTO;
    return rc;
}
