/* SPDX-License-Identifier: Apache-2.0 */
/* kv_events.c: see kv_events.h. */
#define _GNU_SOURCE /* eventfd */
#include "server/node/kv_events.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "server/node/kv_blocks.h"
#include "server/node/kv_event_batch.h"
#include "server/node/kv_socket.h"
#include "reprise_cluster.h"

#define MAX_BATCH_BYTES ((size_t)4 << 20) /* a piece has less than 200 KB a tier */

struct kv_events {
    kv_blocks *blocks;
    kv_socket *socket;
    char name[KV_EVENTS_NAME_BYTES], topic[2 * KV_EVENTS_NAME_BYTES + 8];
    char *tenant;
    int wake;
    pthread_t thread;
    bool has_thread;
    _Atomic bool stopping, woken; /* woken: `wake` has been written to since it was read */
    _Atomic uint64_t number, restarts;

    /* The thread's. */
    bool has_joined;     /* somebody has, since the last restart */
    uint64_t restart_us; /* no restart before this time */
    base_buffer batch;
    kv_block_change piece[KV_BLOCKS_PIECE];
};

/* ---- the thread ---- */

static void events_wake(kv_events *e) {
    uint64_t one = 1;
    if (atomic_exchange(&e->woken, true)) return;
    if (write(e->wake, &one, sizeof(one)) < 0) { /* it is full: it wakes all the same */
    }
}

/* false: there was no memory. Nobody has seen the piece: it is published by a restart. */
static bool publish(kv_events *e, bool cleared, size_t n) {
    BASE_ASSERT(n <= KV_BLOCKS_PIECE && (n > 0 || cleared));
    base_buffer_clear(&e->batch);
    const double seconds = (double)base_clock_wall_ns() * 1e-9;
    if (kv_event_batch_write(&e->batch, seconds, cleared, e->piece, n)) return false;
    if (!kv_socket_send(e->socket, e->topic, atomic_load(&e->number), e->batch.data, e->batch.len)) return false;
    atomic_fetch_add(&e->number, 1);
    return true;
}

/* Publishes what has changed; everything, if a restart is due. */
static void publish_changes(kv_events *e) {
    bool clears = e->has_joined && base_clock_us() >= e->restart_us;
    if (clears) {
        kv_blocks_restart(e->blocks);
        e->has_joined = false;
        e->restart_us = base_clock_us() + KV_EVENTS_RESTART_US;
        atomic_fetch_add(&e->restarts, 1);
    }
    while (!atomic_load(&e->stopping)) {
        const size_t n = kv_blocks_take(e->blocks, e->piece, KV_BLOCKS_PIECE);
        if (n == 0 && !clears) return;
        if (!publish(e, clears, n)) {
            e->has_joined = true;
            return;
        }
        clears = false;
    }
}

static int wait_ms(const kv_events *e) {
    const uint64_t now = base_clock_us();
    if (!e->has_joined) return -1;
    return now >= e->restart_us ? 0 : (int)((e->restart_us - now + 999) / 1000);
}

static void *events_main(void *arg) {
    kv_events *e = arg;
    uint64_t times;
    while (!atomic_load(&e->stopping)) {
        e->has_joined |= kv_socket_wait(e->socket, e->wake, wait_ms(e));
        if (read(e->wake, &times, sizeof(times)) < 0) { /* somebody has subscribed, or it timed out */
        }
        atomic_store(&e->woken, false);
        publish_changes(e);
    }
    (void)publish(e, true, 0);
    return NULL;
}

/* ---- life ---- */

static int set_name(char out[KV_EVENTS_NAME_BYTES], const char *what, const char *name, rp_error *err) {
    const size_t n = strlen(name);
    if (n == 0 || n >= KV_EVENTS_NAME_BYTES || strchr(name, '@'))
        return base_fail(err, RP_ERR_INVALID, "%s '%.64s': KV events need 1 to %d bytes without '@'", what, name,
                         KV_EVENTS_NAME_BYTES - 1);
    memcpy(out, name, n + 1);
    return RP_OK;
}

int kv_events_new(kv_events **out, const char *endpoint, const char *name, const char *tenant, rp_error *err) {
    kv_events *e = *out = base_calloc(1, sizeof(*e));
    if (!e) return base_fail_memory(err, sizeof(*e), "KV events");
    e->batch = BASE_BUFFER(MAX_BATCH_BYTES);
    e->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (e->wake < 0) return base_fail_errno(err, "cannot make", "eventfd");
    if (tenant && !(e->tenant = base_strdup(tenant))) return base_fail_memory(err, strlen(tenant), "KV events");
    int rc = set_name(e->name, "kv_events_name", name, err);
    if (!rc) rc = kv_blocks_new(&e->blocks, err);
    return rc ? rc : kv_socket_open(&e->socket, endpoint, err);
}

static void events_on_blocks(void *user, const rp_block_change *changes, size_t n) {
    kv_events *e = user;
    kv_blocks_change(e->blocks, changes, n);
    events_wake(e);
}

/* Without a cluster names are no secret: events have the tokens. */
static const uint8_t open_key[RP_CLUSTER_KEY_BYTES] = "reprise kv events";

void kv_events_join(kv_events *e, rp_cluster_options *o) {
    if (!o->key) o->key = open_key;
    o->on_blocks = events_on_blocks;
    o->blocks_user = e;
    o->blocks_tenant = e->tenant;
}

int kv_events_ready(kv_events *e, const char *model, rp_error *err) {
    char checked[KV_EVENTS_NAME_BYTES];
    BASE_ASSERT(e->blocks && e->socket);
    const int rc = set_name(checked, "model", model, err);
    if (rc) return rc;
    const int n = snprintf(e->topic, sizeof(e->topic), "kv@%s@%s", e->name, checked);
    BASE_ASSERT(n > 0 && (size_t)n < sizeof(e->topic)); /* a cut topic would be another model's */
    e->has_thread = pthread_create(&e->thread, NULL, events_main, e) == 0;
    return e->has_thread ? RP_OK : base_fail_errno(err, "cannot start the KV events'", "thread");
}

void kv_events_stop(kv_events *e) {
    if (!e || !e->has_thread) return;
    atomic_store(&e->stopping, true);
    events_wake(e);
    pthread_join(e->thread, NULL);
    e->has_thread = false;
}

void kv_events_free(kv_events *e) {
    if (!e) return;
    kv_events_stop(e);
    kv_socket_close(e->socket);
    kv_blocks_free(e->blocks);
    base_buffer_free(&e->batch);
    if (e->wake >= 0) close(e->wake);
    base_free(e->tenant);
    base_free(e);
}

kv_events_counts kv_events_count(kv_events *e) {
    return (kv_events_counts){kv_blocks_count(e->blocks), kv_blocks_left_out(e->blocks), atomic_load(&e->number),
                              atomic_load(&e->restarts)};
}
