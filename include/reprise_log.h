/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_log.h: log output of the library and of a program. It follows the conventions of reprise.h; not installed yet. */
#ifndef REPRISE_LOG_H
#define REPRISE_LOG_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Messages on standard error, of the whole process. Any thread. REPRISE_LOG (off, error, warn, info, debug) sets the level whatever the
 * program says. */
typedef enum rp_log_level { RP_LOG_OFF = -1, RP_LOG_ERROR, RP_LOG_WARN, RP_LOG_INFO, RP_LOG_DEBUG } rp_log_level;
RP_API void rp_log_set_level(rp_log_level level); /* messages up to it; the default is none */
/* From now on lines go through a queue of 256 KiB with a thread of its own, so that no caller waits for whoever reads standard error. Lines
 * that find the queue full are left out, and a line says how many. RP_ERR_INTERNAL: no thread; lines are written at once, as before. */
RP_API int rp_log_start(void);
RP_API void rp_log_line(const char *line); /* a line of the program's own, without a line feed; it goes the same way */
RP_API uint64_t rp_log_dropped(void);      /* lines that were left out, ever */
RP_API void rp_log_stop(int32_t ms);       /* ends the queue: what waits is written, for up to ms */

#ifdef __cplusplus
}
#endif
#endif
