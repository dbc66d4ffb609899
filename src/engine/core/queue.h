/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h: queued jobs in scheduling order: by priority; within a priority by tenants' turns (turns.h); within a tenant
 * by deadline, then arrival. The engine's thread.
 */
#ifndef ENGINE_QUEUE_H
#define ENGINE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "reprise.h"

/* Predicted time of n tokens of a prompt, in steps of their own. */
double queue_prompt_us(const rp_engine *e, int32_t n);
/* Is a before b in queue order? */
bool queue_precedes(const rp_job *a, const rp_job *b);
/* Inserts the job into the queue. */
void queue_add(rp_engine *e, rp_job *c);
/* Removes it from the queue, if it is there. */
void queue_remove(rp_engine *e, rp_job *c);
/* The same on admission: charges its tenant the predicted time. */
void queue_admit(rp_engine *e, rp_job *c);
/* An admitted job has ended and still holds its KV: charges its tenant the time taken instead of the predicted one. */
void queue_settle(rp_engine *e, rp_job *c);
/* Would it take the last sequence, which is reserved for another tenant? */
bool queue_keeps_place(const rp_engine *e, const rp_job *c);
/* Order of prompt chunks in a step: by priority, then the tenant with fewer prompt rows so far. */
bool queue_piece_precedes(const rp_job *a, const rp_job *b);
void queue_begin_rows(const rp_engine *e, rp_job *c);                     /* a job was admitted */
void queue_count_rows(const rp_engine *e, const rp_job *c, int32_t rows); /* a step computes so many of its rows */

#endif
