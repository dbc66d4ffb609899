/* SPDX-License-Identifier: Apache-2.0 */
/* log_queue.h: log lines for a descriptor whose reader may be stuck. A bounded queue, and a thread that alone waits for
 * the reader: logging never blocks. Lines beyond the capacity are omitted and counted; the next line that is written is
 * preceded by one with their number. One queue per process, closed until a program opens it. Thread-safe; its lock is
 * below all others.
 */
#ifndef BASE_LOG_QUEUE_H
#define BASE_LOG_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_QUEUE_BYTES ((size_t)256 << 10) /* of lines that wait: some 1,500 requests */

/* 0, or RP_ERR_INTERNAL: there is no thread for it, and it stays closed. A queue that is open stays as it is. */
int log_queue_open(int fd);
/* Takes a copy of the line, to which "\n" is added. false: the queue is closed. A line that was left out counts as
   taken. */
bool log_queue_put(const char *line, size_t n);
/* Lines that were left out, ever. */
uint64_t log_queue_dropped(void);
/* Writes what waits, for up to `ms`, and closes the queue. What nobody reads until then is lost. */
void log_queue_close(int64_t ms);

#endif
