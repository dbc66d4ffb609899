/* SPDX-License-Identifier: Apache-2.0 */
/* calls.h: what tests of calls under way share: requests of plain text, texts that share nothing, results, the order in which calls end.
 *
 * A call that fails ends the program. Owned by the caller: texts (free), calls (rp_job_free), results (rp_result_free).
 */
#ifndef SUPPORT_CALLS_H
#define SUPPORT_CALLS_H

#include <stdint.h>

#include "reprise.h"

/* Of max_tokens tokens, whatever they are. text: NULL to set something else. */
rp_request calls_request(const char *text, int32_t max_tokens);
/* n different words after a number that makes the text unlike any other. */
char *calls_text(int number, int n);

rp_job *calls_submit(rp_engine *engine, const rp_request *request);
/* Waits for it. */
rp_result *calls_result(rp_job *call);
/* Waits for it, and frees call and result. */
void calls_end(rp_job *call);

/* The place of a call among those that share *next, which begins at 0: on_done = calls_note_order, user = the order. */
typedef struct calls_order {
    int *next;
    int place; /* from 1 */
} calls_order;

void calls_note_order(void *user);

#endif
