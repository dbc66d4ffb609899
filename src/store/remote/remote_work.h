/* SPDX-License-Identifier: Apache-2.0 */
/* remote_work.h: what a thread of a pool does for one job: a look, a pull or a push (remote_pool.h). */
#ifndef STORE_REMOTE_WORK_H
#define STORE_REMOTE_WORK_H

#include "base/list.h"
#include "store/remote/pool_driver.h"
#include "store/remote/remote_pool.h"

typedef struct remote_context {
    base_key secret;
    const record_format *format;
} remote_context;

typedef struct remote_job {
    BASE_LINKS(struct remote_job)
    links;
    remote_event event; /* what it becomes; of a pull and a push with span and key from the beginning */
    base_key salt;      /* of a pull or a push */
    uint64_t deadline_us;
    record_row *row; /* of a push */
    rp_name names[REMOTE_POOL_NAMES];
    int n_names;
} remote_job;

/* Fills in the event. Uses no state but its arguments. */
void remote_job_run(const remote_context *context, pool_link *link, remote_job *j);
/* The event of a job that was not begun. */
void remote_job_refuse(remote_job *j);
void remote_job_free(remote_job *j);

#endif
