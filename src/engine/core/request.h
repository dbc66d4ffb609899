/* SPDX-License-Identifier: Apache-2.0 */
/* request.h: a request becomes a planned job, on the submitting thread.
 */
#ifndef ENGINE_REQUEST_H
#define ENGINE_REQUEST_H

#include "reprise.h"

/* Copies, parses and plans a request into a new job, up to what decides which KV it can reuse: for names (names.c).
   Errors as rp_engine_submit. */
int job_plan_prompt(rp_job *c, const rp_request *request, rp_error *err);
/* The same, with all that its answer needs. */
int job_plan(rp_job *c, const rp_request *request, rp_error *err);

#endif
