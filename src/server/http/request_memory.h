/* SPDX-License-Identifier: Apache-2.0 */
/* request_memory.h: limits on the memory of requests: body, JSON, tokens, template values, reply. KV and weights are
 * the engine's.
 *
 * Each request has a budget (base/budget.h), which lies within its tenant's, which lies within that of all requests
 * (rp_server_options.request_ram_bytes).
 * Whoever works for a request enters its budget: workers, the I/O threads in libmicrohttpd's callbacks, the engine's
 * and a router's network thread when they append to its answer. An allocation beyond a limit fails, and server_fail
 * says so instead of whatever the failure led to:
 *
 *   limit of    share of request_ram_bytes   its bodies   reply
 *   a request   1/2                                       413
 *   a tenant    3/4, with API keys           3/8          429; 503 for a body; Retry-After
 *   all         all of it                    1/2          503, Retry-After
 *
 * Bodies have a smaller share: a request whose body is complete finds memory for its answer while others arrive slowly.
 */
#ifndef SERVER_REQUEST_MEMORY_H
#define SERVER_REQUEST_MEMORY_H

#include "base/budget.h"
#include "server/core/problem.h"

#define REQUEST_MEMORY_LEAST ((uint64_t)1 << 20)
#define REQUEST_MEMORY_DEFAULT ((uint64_t)1 << 30)
#define REQUEST_MEMORY_ROUTED ((uint64_t)192 << 20) /* of a router */

static inline uint64_t request_memory_of_request(uint64_t all) { return all / 2; }
static inline uint64_t request_memory_of_tenant(uint64_t all) { return all / 4 * 3; }
static inline uint64_t request_memory_of_bodies(uint64_t all) { return all / 2; }
static inline uint64_t request_memory_of_tenants_bodies(uint64_t all) { return all / 8 * 3; }

struct server_request;

/* jansson's values are taken from budgets from here on. Once in a process. */
void request_memory_init(void);

/* Gives a request with a key its budget. A server_problem_kind. */
int request_memory_begin(struct server_request *x);
/* Counts n bytes more of its body, before they are appended; false: there are too many, which is a problem, and they
   are not counted. The owner. */
bool request_memory_add_body(struct server_request *x, size_t n);
/* n bytes of its body are freed. */
void request_memory_drop_body(struct server_request *x, size_t n);
/* The request is freed: releases its budget, which lives until no thread works within it. */
void request_memory_end(struct server_request *x);

/* What the calling thread allocates from here on, up to leave, is the request's; x may be freed meanwhile. Visits may
   be nested. */
typedef struct request_memory_visit {
    base_budget *own, *before;
} request_memory_visit;
request_memory_visit request_memory_enter(const struct server_request *x);
void request_memory_leave(request_memory_visit v);

/* Returns memory that requests have freed to the system, once no request has ended for a while: others would take it
 * again, page by page; or once it may be half of what all requests together may take. Called several times a second;
 * takes milliseconds: not for a thread that clients wait for. */
void request_memory_trim(void);

#endif
