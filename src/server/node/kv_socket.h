/* SPDX-License-Identifier: Apache-2.0 */
/* kv_socket.h: a publishing socket of ZeroMQ (libzmq), which also tells when somebody has subscribed (XPUB). In a build
 * without libzmq kv_socket_open says so. Used by one thread at a time. */
#ifndef SERVER_KV_SOCKET_H
#define SERVER_KV_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reprise.h"

/* Messages that a subscriber may be late by; further ones are lost to it, which it sees by their numbers: as many as
 * everything has, in two tiers (kv_blocks.h). */
#define KV_SOCKET_LATE 8192

typedef struct kv_socket kv_socket;

/* Listens on "tcp://ADDRESS:PORT" or "ipc://PATH". RP_ERR_INVALID (another form), RP_ERR_IO, RP_ERR_UNSUPPORTED (a
   build without libzmq). */
int kv_socket_open(kv_socket **out, const char *endpoint, rp_error *err);
/* Waits up to linger_ms for messages to be sent. */
void kv_socket_close(kv_socket *s);
/* Waits for a subscription, for fd to be readable, or for timeout_ms (-1: for ever). true: somebody has subscribed
   since the last call. */
bool kv_socket_wait(kv_socket *s, int fd, int timeout_ms);
/* [topic, number (8 bytes, big-endian), payload] to all subscribers of the topic. false: it was not sent. Never
   waits. */
bool kv_socket_send(kv_socket *s, const char *topic, uint64_t number, const void *payload, size_t n);

#endif
