/* SPDX-License-Identifier: Apache-2.0 */
/* observer.h: a part of the engine that watches requests without being on their path: the auditor, learned scaffolds.
 *
 *   request.c    planned       submitting thread: the request has its plan
 *   steps.c      first_logits  engine's thread: the logits of the first token of its answer
 *   scheduler.c  ended         engine's thread: it holds no KV any more; its plan and its tokens are there still
 *
 * engine.c has the table of all observers. A function that is NULL is not called. Observers change nothing of a request
 * that its result depends on.
 */
#ifndef ENGINE_OBSERVER_H
#define ENGINE_OBSERVER_H

#include "reprise.h"

typedef struct job_observer {
    int (*planned)(rp_job *c, rp_error *err);             /* RP_ERR_MEMORY: the request fails */
    void (*first_logits)(rp_job *c, const float *logits); /* [n_vocab], valid during the call */
    void (*ended)(rp_job *c, int rc);                     /* rc: RP_OK or the request's error */
} job_observer;

#endif
