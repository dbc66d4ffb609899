/* log.c: messages and trace lines on standard error, for those who ask for them.
 *
 * Owns the settings, read from the environment once; does not own standard error, and writes nothing unless the program, REPRISE_LOG or
 * REPRISE_TRACE asks for it. A message is formatted on the stack and queued (log_queue.h); a trace line leaves in one write, so that it is
 * there when the process crashes after it. Thread-safe.
 */
#define _POSIX_C_SOURCE 200809L

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log_queue.h"
#include "reprise.h"

#define LINE_BYTES 1024 /* longer lines are cut: enough for any line of ours, and atomic on a pipe (PIPE_BUF) */

#define NOT_GIVEN (-2)

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *const component_names[] = {
#define X(id, name) name,
    BASE_COMPONENTS(X)
#undef X
};

/* Written under the once, read after it. */
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;
static int environment_level = NOT_GIVEN; /* messages up to this level; -1: none */
static uint32_t trace_mask = 0;           /* bit c: component c is traced */

static atomic_int program_level = RP_LOG_OFF; /* of rp_log_set_level; the environment's takes precedence */

/* "PREFIX: message" into line[LINE_BYTES], cut where it is longer; its length. */
static size_t format_line(char *line, const char *prefix, const char *fmt, va_list ap) {
    int n = snprintf(line, LINE_BYTES, "%s: ", prefix);
    if (n < 0 || n >= LINE_BYTES) return 0;
    int more = vsnprintf(line + n, LINE_BYTES - (size_t)n, fmt, ap);
    return more < 0 ? 0 : BASE_MIN((size_t)n + (size_t)more, LINE_BYTES - 1);
}

static void queue_text(const char *prefix, const char *fmt, ...) BASE_PRINTF(2, 3);
static void queue_text(const char *prefix, const char *fmt, ...) {
    char line[LINE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    log_queue_add(line, format_line(line, prefix, fmt, ap));
    va_end(ap);
}

static void read_level(const char *text) {
    if (strcmp(text, "off") == 0) environment_level = RP_LOG_OFF;
    for (size_t i = 0; i < BASE_ARRAY_LEN(level_names); i++)
        if (strcmp(text, level_names[i]) == 0) environment_level = (int)i;
    if (environment_level == NOT_GIVEN && *text) queue_text("reprise", "REPRISE_LOG: '%s' is not off, error, warn, info or debug", text);
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
        if (!mask && n > 0) queue_text("reprise", "REPRISE_TRACE: '%.*s' is not a component", (int)BASE_MIN(n, 64u), text);
        trace_mask |= mask;
        text += n + (text[n] == ',');
    }
}

static void read_settings(void) {
    const char *level = getenv("REPRISE_LOG");
    const char *components = getenv("REPRISE_TRACE");
    if (level) read_level(level);
    if (components) read_components(components);
}

bool base_log_enabled(base_log_level level) {
    pthread_once(&settings_once, read_settings);
    return (int)level <= (environment_level == NOT_GIVEN ? atomic_load(&program_level) : environment_level);
}

void base_log(base_log_level level, const char *fmt, ...) {
    if (!base_log_enabled(level)) return;
    char prefix[32], line[LINE_BYTES];
    snprintf(prefix, sizeof prefix, "reprise: %s", level_names[level]);
    va_list ap;
    va_start(ap, fmt);
    log_queue_add(line, format_line(line, prefix, fmt, ap));
    va_end(ap);
}

bool base_trace_enabled(base_component c) {
    pthread_once(&settings_once, read_settings);
    return (trace_mask >> c) & 1;
}

void base_trace_write(base_component c, const char *fmt, ...) {
    char line[LINE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    size_t n = format_line(line, component_names[c], fmt, ap);
    va_end(ap);
    line[n++] = '\n'; /* in the NUL's place */
    for (size_t done = 0; done < n;) {
        ssize_t written = write(STDERR_FILENO, line + done, n - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        done += (size_t)written;
    }
}

void rp_log_set_level(rp_log_level level) { atomic_store(&program_level, (int)level); }
void rp_log_line(const char *line) { log_queue_add(line, strlen(line)); }
uint64_t rp_log_dropped(void) { return log_queue_dropped(); }
bool rp_log_flush(int32_t timeout_ms) { return log_queue_flush(timeout_ms); }
