/* log_queue.h: lines on their way to standard error, which nobody may read.
 *
 *   log_queue_add -> ring of LOG_QUEUE_BYTES -> a thread of its own -> write(2)
 *
 * A terminal that is stopped, or a pipe whose reader sleeps, blocks that thread and nobody else: lines that the ring has no space for are
 * dropped and counted, and a line says how many as soon as standard error takes lines again. The thread starts with the first line, has all
 * signals blocked and is never joined. Thread-safe.
 */
#ifndef BASE_LOG_QUEUE_H
#define BASE_LOG_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_QUEUE_BYTES ((size_t)256 << 10)

/* Queues a line of n bytes, without its newline. Never blocks on standard error. */
void log_queue_add(const char *line, size_t n);
/* Lines dropped since the process began: the ring was full, or standard error is closed. */
uint64_t log_queue_dropped(void);
/* Waits until every queued line is written, for timeout_ms at most. false: some are not. */
bool log_queue_flush(int timeout_ms);

#endif
