/* SPDX-License-Identifier: Apache-2.0 */
/* log.c: messages and trace lines on standard error, for those who ask for them.
 *
 * Owns the settings, read from the environment once, and the program's callback. It writes nothing unless REPRISE_LOG,
 * REPRISE_TRACE or the program requests it. Thread-safe: a line is formatted on the stack, and passed to the callback,
 * or to the program's queue (log_queue.h), or written to standard error with one write.
 */
#define _POSIX_C_SOURCE 200809L

#include "base/check.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log_queue.h"
#include "reprise.h"

#define LINE_BYTES 1024 /* longer lines are cut: enough for any line of ours, and atomic on a pipe (PIPE_BUF) */

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *const component_names[] = {
#define X(id, name) name,
    BASE_COMPONENTS(X)
#undef X
};

/* Written under the once, read after it. */
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;
static bool has_level;             /* REPRISE_LOG sets one */
static _Atomic int max_level = -1; /* messages up to this level; -1: none */
static uint32_t trace_mask = 0;    /* bit c: component c is traced */

/* The program's callback. The lock is held while it runs: it is never called after rp_log_set_callback has replaced
   it. */
static pthread_mutex_t callback_lock = PTHREAD_MUTEX_INITIALIZER;
static rp_on_log callback;
static void *callback_user;

static void log_write_line(rp_log_level level, const char *prefix, const char *fmt, va_list ap) {
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof line, "%s: ", prefix);
    if (n < 0 || n >= LINE_BYTES) return;
    size_t used = (size_t)n;
    n = vsnprintf(line + used, sizeof line - used, fmt, ap);
    if (n < 0) return;
    used = BASE_MIN(used + (size_t)n, sizeof line - 1);
    BASE_DCHECK(line[used] == '\0');
    pthread_mutex_lock(&callback_lock);
    const bool is_taken = callback != NULL;
    if (is_taken) callback(callback_user, level, line);
    pthread_mutex_unlock(&callback_lock);
    if (is_taken || log_queue_put(line, used)) return;
    line[used++] = '\n'; /* in the NUL's place */
    const char *at = line;
    while (used > 0) {
        ssize_t written = write(STDERR_FILENO, at, used);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        at += written;
        used -= (size_t)written;
    }
}

static void write_text(const char *prefix, const char *fmt, ...) BASE_PRINTF(2, 3);
static void write_text(const char *prefix, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    log_write_line(RP_LOG_WARN, prefix, fmt, ap);
    va_end(ap);
}

/* The mask of one name of n bytes; 0: unknown. */
static uint32_t component_mask(const char *name, size_t n) {
    if (n == 3 && memcmp(name, "all", 3) == 0) return (1u << BASE_COMPONENT_COUNT) - 1;
    for (size_t i = 0; i < BASE_ARRAY_LEN(component_names); i++)
        if (strlen(component_names[i]) == n && memcmp(component_names[i], name, n) == 0) return 1u << i;
    return 0;
}

static void read_components(const char *text) {
    while (*text) {
        size_t n = strcspn(text, ",");
        uint32_t mask = component_mask(text, n);
        if (!mask && n > 0)
            write_text("reprise", "REPRISE_TRACE: '%.*s' is not a component", (int)BASE_MIN(n, 64u), text);
        trace_mask |= mask;
        text += n + (text[n] == ',');
    }
}

static void log_read_settings(void) {
    const char *level = getenv("REPRISE_LOG");
    const char *components = getenv("REPRISE_TRACE");
    if (level) {
        for (size_t i = 0; i < BASE_ARRAY_LEN(level_names); i++)
            if (strcmp(level, level_names[i]) == 0) max_level = (int)i;
        has_level = max_level >= 0 || strcmp(level, "off") == 0;
        if (!has_level && *level)
            write_text("reprise", "REPRISE_LOG: '%s' is not off, error, warn, info or debug", level);
    }
    if (components) read_components(components);
}

bool base_log_enabled(base_log_level level) {
    pthread_once(&settings_once, log_read_settings);
    return (int)level <= max_level;
}

void base_log(base_log_level level, const char *fmt, ...) {
    BASE_ASSERT((size_t)level < BASE_ARRAY_LEN(level_names));
    if (!base_log_enabled(level)) return;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "reprise: %s", level_names[level]);
    va_list ap;
    va_start(ap, fmt);
    log_write_line((rp_log_level)level, prefix, fmt, ap);
    va_end(ap);
}

bool base_trace_enabled(base_component c) {
    BASE_DCHECK((unsigned)c < BASE_COMPONENT_COUNT);
    pthread_once(&settings_once, log_read_settings);
    return (trace_mask >> c) & 1;
}

void base_trace_write(base_component c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    log_write_line(RP_LOG_DEBUG, component_names[c], fmt, ap);
    va_end(ap);
}

/* ---- The public functions ---- */

void rp_log_set_callback(rp_on_log on_log, void *user) {
    pthread_mutex_lock(&callback_lock);
    callback = on_log;
    callback_user = user;
    pthread_mutex_unlock(&callback_lock);
}

void rp_log_set_level(rp_log_level level) {
    pthread_once(&settings_once, log_read_settings);
    if (!has_level) max_level = (int)level;
}

int rp_log_start(void) { return log_queue_open(STDERR_FILENO); }

void rp_log_line(const char *line) {
    size_t n = strlen(line);
    if (!log_queue_put(line, n)) fprintf(stderr, "%s\n", line);
}

uint64_t rp_log_dropped(void) { return log_queue_dropped(); }

void rp_log_stop(int32_t timeout_ms) { log_queue_close(timeout_ms); }
