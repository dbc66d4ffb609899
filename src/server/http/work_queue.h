/* SPDX-License-Identifier: Apache-2.0 */
/* work_queue.h: threads that take work in the order in which it came. Work is linked into the list by a part of itself, so that putting it
 * there cannot fail; there is at most one piece for each connection, whose number is limited. */
#ifndef SERVER_WORK_QUEUE_H
#define SERVER_WORK_QUEUE_H

#include "reprise.h"

typedef struct server_work {
    struct server_work *next;
} server_work;

typedef struct work_queue work_queue;

/* RP_ERR_MEMORY, RP_ERR_IO (threads). */
int work_queue_new(work_queue **out, int n_threads, void (*run)(server_work *work), rp_error *err);
/* After all that is in it was run. */
void work_queue_free(work_queue *q);
void work_queue_put(work_queue *q, server_work *work); /* any thread */

#endif
