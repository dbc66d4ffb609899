/* SPDX-License-Identifier: Apache-2.0 */
/* kv_socket.c: see kv_socket.h. */
#include "server/node/kv_socket.h"

#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

static int check_endpoint(const char *endpoint, rp_error *err) {
    if (strncmp(endpoint, "tcp://", 6) == 0 || strncmp(endpoint, "ipc://", 6) == 0) return RP_OK;
    return base_fail(err, RP_ERR_INVALID, "kv_events '%s': give tcp://ADDRESS:PORT or ipc://PATH", endpoint);
}

#ifdef REPRISE_HAS_ZMQ
#include <poll.h>
#include <zmq.h>

#define LINGER_MS 500               /* at the end */
#define MAX_SUBSCRIPTION_BYTES 4096 /* all that subscribers send */

struct kv_socket {
    void *context, *socket;
};

static void set_option(kv_socket *s, int option, int value) {
    (void)zmq_setsockopt(s->socket, option, &value, sizeof(value));
}

int kv_socket_open(kv_socket **out, const char *endpoint, rp_error *err) {
    *out = NULL;
    int rc = check_endpoint(endpoint, err);
    if (rc) return rc;
    kv_socket *s = base_calloc(1, sizeof(*s));
    if (!s) return base_fail_memory(err, sizeof(*s), "a socket");
    s->context = zmq_ctx_new();
    s->socket = s->context ? zmq_socket(s->context, ZMQ_XPUB) : NULL;
    if (s->socket) {
        const int64_t largest = MAX_SUBSCRIPTION_BYTES;
        set_option(s, ZMQ_XPUB_VERBOSE, 1); /* every subscriber is seen, not only the first of a topic */
        set_option(s, ZMQ_SNDHWM, KV_SOCKET_LATE);
        set_option(s, ZMQ_LINGER, LINGER_MS);
        set_option(s, ZMQ_TCP_KEEPALIVE, 1);
        (void)zmq_setsockopt(s->socket, ZMQ_MAXMSGSIZE, &largest, sizeof(largest));
    }
    if (!s->socket || zmq_bind(s->socket, endpoint) != 0) {
        rc = base_fail(err, RP_ERR_IO, "cannot publish KV events on %s: %s", endpoint, zmq_strerror(zmq_errno()));
        kv_socket_close(s);
        return rc;
    }
    *out = s;
    return RP_OK;
}

void kv_socket_close(kv_socket *s) {
    if (!s) return;
    if (s->socket) zmq_close(s->socket);
    if (s->context) zmq_ctx_term(s->context);
    base_free(s);
}

bool kv_socket_wait(kv_socket *s, int fd, int timeout_ms) {
    zmq_pollitem_t items[] = {{.socket = s->socket, .events = ZMQ_POLLIN}, {.fd = fd, .events = ZMQ_POLLIN}};
    uint8_t message[MAX_SUBSCRIPTION_BYTES];
    bool joined = false;
    if (zmq_poll(items, (int)BASE_ARRAY_LEN(items), timeout_ms) <= 0) return false;
    while (zmq_recv(s->socket, message, sizeof(message), ZMQ_DONTWAIT) > 0) joined |= message[0] == 1;
    return joined;
}

bool kv_socket_send(kv_socket *s, const char *topic, uint64_t number, const void *payload, size_t n) {
    uint8_t sequence[8];
    for (int i = 0; i < 8; i++) sequence[i] = (uint8_t)(number >> 8 * (7 - i));
    return zmq_send(s->socket, topic, strlen(topic), ZMQ_SNDMORE) >= 0 &&
           zmq_send(s->socket, sequence, sizeof(sequence), ZMQ_SNDMORE) >= 0 && zmq_send(s->socket, payload, n, 0) >= 0;
}

#else

int kv_socket_open(kv_socket **out, const char *endpoint, rp_error *err) {
    *out = NULL;
    const int rc = check_endpoint(endpoint, err);
    return rc ? rc
              : base_fail(err, RP_ERR_UNSUPPORTED,
                          "kv_events: this build was made without libzmq: install libzmq3-dev and build again");
}

void kv_socket_close(kv_socket *s) { (void)s; }

bool kv_socket_wait(kv_socket *s, int fd, int timeout_ms) {
    (void)s, (void)fd, (void)timeout_ms;
    return false;
}

bool kv_socket_send(kv_socket *s, const char *topic, uint64_t number, const void *payload, size_t n) {
    (void)s, (void)topic, (void)number, (void)payload, (void)n;
    return false;
}

#endif
