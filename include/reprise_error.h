/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_error.h: what all public headers of Reprise share: error codes, rp_error, callbacks of progress, the log.
 * Conventions are those of reprise.h, which includes it.
 */
#ifndef REPRISE_ERROR_H
#define REPRISE_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define RP_API
#else
#define RP_API __attribute__((visibility("default")))
#endif

/* The one list of error codes: X(NAME, value, text). */
#define RP_ERRORS(X) \
    X(OK, 0, "no error") \
    X(ERR_INVALID, -1, "invalid argument") \
    X(ERR_MEMORY, -2, "out of memory") \
    X(ERR_IO, -3, "cannot read or write a file") \
    X(ERR_FORMAT, -4, "corrupt file or unexpected file format") \
    X(ERR_UNSUPPORTED, -5, "the model requires an unsupported feature") \
    X(ERR_SYNTAX, -6, "syntax error in a PML document or a grammar") \
    X(ERR_NAME, -7, "unknown name") \
    X(ERR_CONFLICT, -8, "conflict: mutually exclusive settings or concurrent use") \
    X(ERR_LENGTH, -9, "an argument or text exceeds its maximum length") \
    X(ERR_CONTEXT, -10, "the prompt exceeds the context length") \
    X(ERR_LIMIT, -11, "a built-in limit is exceeded") \
    X(ERR_CANCELLED, -12, "cancelled by the caller") \
    X(ERR_INTERNAL, -13, "internal error of the library") \
    X(ERR_BUSY, -14, "the request queue is full: try again later") \
    X(ERR_DEADLINE, -15, "the deadline passed before the first token") \
    X(ERR_BUDGET, -16, "the KV cache budget is too small")

typedef enum rp_code {
#define X(name, value, text) RP_##name = value,
    RP_ERRORS(X)
#undef X
} rp_code;

#define RP_ERROR_MESSAGE_BYTES 512
#define RP_ERROR_WHERE_BYTES 256

/* Filled in when a function fails. `message` is one line: what is wrong, where, and what to do. It includes `where`
 * ("cities.xml:4:7", "model.gguf: tensor blk.0.attn_q.weight", or ""). `offset` is the byte offset in the input, or 0.
 * `retry_after_ms` is the delay before a retry after RP_ERR_BUSY, else 0. */
typedef struct rp_error {
    rp_code code;
    char message[RP_ERROR_MESSAGE_BYTES];
    char where[RP_ERROR_WHERE_BYTES];
    uint64_t offset;
    uint32_t retry_after_ms;
    int32_t context_tokens; /* RP_ERR_CONTEXT of a prompt: positions of the context, */
    int64_t prompt_tokens;  /* and those that the prompt needs; else 0 */
} rp_error;

RP_API const char *rp_code_name(rp_code code); /* "RP_ERR_SYNTAX"; static */
RP_API const char *rp_code_text(rp_code code); /* static */

/* Progress of a long operation: `done` units of `total`. The unit is tokens for module prefill, and bytes for
 * preparing or hashing weights. */
typedef void (*rp_on_progress)(void *user, uint64_t done, uint64_t total);

/* ---- Log ------------------------------------------------------------------------------------------------------- */

/* Log messages of the library, for the whole process. Any thread. The environment variable REPRISE_LOG (off, error,
 * warn, info, debug) overrides the level that a program sets. */
typedef enum rp_log_level { RP_LOG_OFF = -1,
                            RP_LOG_ERROR,
                            RP_LOG_WARN,
                            RP_LOG_INFO,
                            RP_LOG_DEBUG } rp_log_level;
RP_API void rp_log_set_level(rp_log_level level); /* messages up to it; default RP_LOG_OFF */
/* Called for each message, on any thread, one at a time. It must not call the library. line: without a line feed;
 * borrowed. Lines of REPRISE_TRACE have RP_LOG_DEBUG. */
typedef void (*rp_on_log)(void *user, rp_log_level level, const char *line);
/* Sends messages to on_log instead of standard error; NULL: to standard error again, the default. After it returns,
 * the former callback is not called any more. */
RP_API void rp_log_set_callback(rp_on_log on_log, void *user);

/* Sends log lines to standard error through a queue of 256 KiB with a thread of its own, so that no caller waits for
 * a slow reader. Lines that find the queue full are dropped, and a later line counts them. It has no effect on lines
 * that a callback takes (rp_log_set_callback). RP_ERR_INTERNAL: no thread; lines are written at once, as without a
 * queue. */
RP_API int rp_log_start(void);
RP_API void rp_log_line(const char *line);   /* writes a line of the program, without a line feed, the same way */
RP_API uint64_t rp_log_dropped(void);        /* dropped lines since the program began */
RP_API void rp_log_stop(int32_t timeout_ms); /* ends the queue after its lines are written, or after the timeout */

#ifdef __cplusplus
}
#endif
#endif
