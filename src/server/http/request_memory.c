/* SPDX-License-Identifier: Apache-2.0 */
/* request_memory.c: see request_memory.h. Owns what is to be trimmed. Any thread. */
#include "server/http/request_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "server/http/server_internal.h"

#define TRIMMED_FROM ((uint64_t)4 << 20) /* bytes that requests had: fewer are not worth it */
#define QUIET_US 1000000
#define MOST_US 10000000 /* under load, which has no quiet second */
#define URGENT_SHARE \
    2 /* of all requests' memory: what is freed is in pieces, and new requests find some of them only */

static struct {
    _Atomic uint64_t bytes;             /* that requests had at most, since memory was trimmed */
    _Atomic uint64_t most;              /* from which on that does not wait for quiet; 0: no request has ended */
    _Atomic uint64_t first_us, last_us; /* the end of the first and of the last of them */
} freed;

static void set_allocator(void) {
    json_set_alloc_funcs(base_alloc, base_free); /* plain malloc's blocks: a host program may free() them */
}

void request_memory_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_allocator);
}

int request_memory_begin(server_request *x) {
    BASE_ASSERT(!x->memory);
    base_budget *parent = x->key && x->key->memory ? x->key->memory : x->server->memory;
    x->memory = base_budget_new(parent, request_memory_of_request(x->server->options.request_ram_bytes));
    return x->memory ? SERVER_FINE : server_fail_memory(&x->problem);
}

bool request_memory_add_body(server_request *x, size_t n) {
    const uint64_t all = x->server->options.request_ram_bytes;
    const bool has_tenant = x->key && x->key->bodies;
    const uint64_t together = atomic_fetch_add(&x->server->body_bytes, n) + n;
    const uint64_t of_tenant = has_tenant ? atomic_fetch_add(x->key->bodies, n) + n : 0;
    if (together <= request_memory_of_bodies(all) && of_tenant <= request_memory_of_tenants_bodies(all)) return true;
    request_memory_drop_body(x, n);
    server_fail(&x->problem, SERVER_BUSY, NULL, "too many large request bodies at once: retry later");
    x->problem.retry_after_ms = SERVER_BUSY_RETRY_MS;
    return false;
}

void request_memory_drop_body(server_request *x, size_t n) {
    const uint64_t before = atomic_fetch_sub(&x->server->body_bytes, n);
    BASE_ASSERT(before >= n); /* invariant 6 */
    const uint64_t of_tenant = x->key && x->key->bodies ? atomic_fetch_sub(x->key->bodies, n) : n;
    BASE_ASSERT(of_tenant >= n);
}

void request_memory_end(server_request *x) {
    if (!x->memory) return;
    const uint64_t now = base_clock_us();
    atomic_store(&freed.last_us, now);
    atomic_store(&freed.most, x->server->options.request_ram_bytes / URGENT_SHARE);
    if (atomic_fetch_add(&freed.bytes, base_budget_peak(x->memory)) == 0) atomic_store(&freed.first_us, now);
    base_budget_unref(x->memory);
    x->memory = NULL;
}

request_memory_visit request_memory_enter(const server_request *x) {
    base_budget *own = base_budget_ref(x->memory);
    return (request_memory_visit){own, base_budget_enter(own)};
}

void request_memory_leave(request_memory_visit v) {
    const base_budget *left = base_budget_enter(v.before);
    BASE_ASSERT(left == v.own); /* visits are nested */
    base_budget_unref(v.own);
}

void request_memory_trim(void) {
    const uint64_t now = base_clock_us(), bytes = atomic_load(&freed.bytes);
    const bool is_quiet = now >= atomic_load(&freed.last_us) + QUIET_US;
    if (bytes < TRIMMED_FROM ||
        !(is_quiet || bytes >= atomic_load(&freed.most) || now >= atomic_load(&freed.first_us) + MOST_US))
        return;
    atomic_store(&freed.first_us, now);
    atomic_store(
        &freed.bytes,
        is_quiet ? 0
                 : TRIMMED_FROM); /* more may be freed after a request's end: trimmed again in the next quiet second */
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
