/* SPDX-License-Identifier: Apache-2.0 */
/* request_fingerprint.h: hashes of a request's prompt, kept by the id of its answer, so that a later request can be
 * compared with it: where does the prompt that the cache could have reused begin to differ? No text is kept.
 *
 *   [model] [system messages] [tools] [reasoning effort] [message 0] [message 1] ... [last message, and the rest]
 *   [others]
 *
 * What no prompt here depends on is left out: the form of the answer, which is a grammar; verbosity, service tier,
 * names of caches. Kept in a registry of their own (response_registry.h) in memory, within its limits by tenant and in
 * total: the oldest are removed first. Worker threads; keep and compare: also I/O threads.
 */
#ifndef SERVER_REQUEST_FINGERPRINT_H
#define SERVER_REQUEST_FINGERPRINT_H

#include "server/http/server_request.h"

#define FINGERPRINT_MAX_MESSAGES 1024 /* hashed one by one: 16 KiB; those after them together */

/* The first difference. */
typedef enum fingerprint_difference {
    FINGERPRINT_SAME, /* the prompt is the earlier one, with or without more messages */
    FINGERPRINT_MODEL,
    FINGERPRINT_SYSTEM,
    FINGERPRINT_TOOLS,
    FINGERPRINT_EFFORT,
    FINGERPRINT_MESSAGES,
    FINGERPRINT_OTHERS,  /* thinking, the choice of tools, cache_salt */
    FINGERPRINT_UNKNOWN, /* there is no such answer */
} fingerprint_difference;

typedef struct fingerprint_comparison {
    fingerprint_difference difference;
    int64_t n_compared;      /* tokens of the earlier prompt */
    int64_t n_missed;        /* of these, those from the difference on; an estimate by bytes, like the next */
    int64_t n_missed_of_own; /* of n_own */
} fingerprint_comparison;

/* Makes the fingerprint of a parsed request, before its messages are rewritten. Returns a server_problem_kind. */
int request_fingerprint_make(server_request *x);
/* Keeps it for the tenant, with the tokens of the prompt. id: of the answer. Out of memory: it is not kept. */
void request_fingerprint_keep(const server_request *x, const char *id, int64_t n_own);
/* Compares it with that of an earlier answer of the tenant. n_own: tokens of the request's prompt. */
fingerprint_comparison request_fingerprint_compare(const server_request *x, const char *id, int64_t n_own);

#endif
