/* SPDX-License-Identifier: Apache-2.0 */
/* report.h: the report of an answer, common to all dialects: counts, times, reuse; and the last reports, for
 * explain. */
#ifndef SERVER_REPORT_H
#define SERVER_REPORT_H

#include "server/answers/generate.h"

#define SERVER_MAX_REPORT_PARTS 128 /* of a plan; the rest is counted */

/* The tokens of a request: each prompt once, each answer. cached + fresh = prompt. */
typedef struct server_usage {
    int64_t prompt, cached, answer;
    int64_t written;   /* computed tokens of the prompts whose KV was not cached, and is now: at most prompt - cached */
    int64_t reasoning; /* of the answers' tokens */
} server_usage;

/* Of the choices that have results. */
server_usage report_usage(const server_request *x);
/* {"cached_tokens": ..., "parts": [...], ...} of the first choice. NULL: no memory. */
json_t *report_reprise(const server_request *x);
/* Adds {"warnings": [...]} as "reprise" to the reply of a request without an answer, if the request has unknown
 * fields. Takes ownership of the reply; NULL: out of memory. */
json_t *report_unknown(const server_request *x, json_t *reply);
/* Why an answer ended. */
typedef enum server_finish { SERVER_FINISH_STOP,
                             SERVER_FINISH_LENGTH } server_finish;
server_finish report_finish(const rp_result *r);

/* "openai", "anthropic", ...: the request's dialect. Static. */
const char *report_dialect(const server_request *x);
/* Adds a choice's result to the server's counts. */
void report_count(server_request *x, const server_choice *c);
/* Stores the report of a finished request under its id, for its tenant. */
void report_keep(server_request *x);

#endif
