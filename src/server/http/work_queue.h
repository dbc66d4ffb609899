/* SPDX-License-Identifier: Apache-2.0 */
/* work_queue.h: threads that run work in FIFO order. The list is intrusive, so that queueing cannot fail; it has at
 * most one item per connection, and their number is limited. */
#ifndef SERVER_WORK_QUEUE_H
#define SERVER_WORK_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "reprise.h"

typedef struct server_work {
    struct server_work *next;
} server_work;

typedef struct work_queue work_queue;

/* RP_ERR_MEMORY, RP_ERR_IO (threads). */
int work_queue_new(work_queue **out, int n_threads, void (*run)(server_work *work), rp_error *err);
/* After all queued work has run. */
void work_queue_free(work_queue *q);
void work_queue_put(work_queue *q, server_work *work); /* any thread */
/* Is the calling thread a queue's? For assertions of what must not run on an I/O thread. */
bool work_queue_is_worker(void);
/* Since when no thread has taken work, while there is some: all of them are busy, or hang. base_clock_us now: none
   waits. Any thread. */
uint64_t work_queue_taken_us(work_queue *q);

#endif
