/* SPDX-License-Identifier: Apache-2.0 */
/* calls.h: shared by tests of jobs under way: requests of plain text, texts without common content, results, the order
 * of completion.
 *
 * A failing job ends the program. The caller owns texts (free), jobs (rp_job_free) and results (rp_result_free).
 */
#ifndef SUPPORT_CALLS_H
#define SUPPORT_CALLS_H

#include <stdint.h>

#include "reprise.h"

/* For exactly max_tokens tokens. text: NULL to set another prompt. */
rp_request calls_request(const char *text, int32_t max_tokens);
/* n different words after a number that makes the text unique. */
char *calls_text(int number, int n);

rp_job *calls_submit(rp_engine *engine, const rp_request *request);
/* Waits for the result. */
rp_result *calls_result(rp_job *call);
/* Waits for the job, and frees job and result. */
void calls_end(rp_job *call);

/* The index of a job among those that share *next, which starts at 0: on_done = calls_note_order, user = the order. */
typedef struct calls_order {
    int *next;
    int place; /* from 1 */
} calls_order;

void calls_note_order(void *user);

#endif
