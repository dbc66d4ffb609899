/* SPDX-License-Identifier: Apache-2.0 */
/* result.h: a job's result: the source of every token of its prompt, counts, timings. The engine's thread.
 */
#ifndef ENGINE_RESULT_H
#define ENGINE_RESULT_H

#include <stdint.h>

#include "reprise.h"

/* The job is composed: returns its cached tokens, and sets saved_us. */
int32_t job_count_found(rp_job *c);
/* Fills in the plan of a result, and the divergence, once; the job still holds its path. RP_ERR_MEMORY. */
int job_describe_plan(rp_job *c, rp_error *err);
/* Fills in the result of a complete answer: plan, counts, timings. RP_ERR_MEMORY. */
int job_describe(rp_job *c, rp_error *err);

#endif
