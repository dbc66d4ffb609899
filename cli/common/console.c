/* SPDX-License-Identifier: Apache-2.0 */
/* console.c: error lines, memory, files, the clock, Ctrl-C and progress.
 *
 * Owns the flag that the signal handler sets, and nothing else. One thread.
 */
#define _XOPEN_SOURCE 700

#include "common/console.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/command.h"
#include "reprise_store.h"

#define PROGRESS_CELLS 30
#define PROGRESS_EVERY_MS 50.0
#define PROGRESS_LINE_BYTES 256
#define RATE_AFTER_MS 500.0 /* a shorter time measures noise */

/* ---- Errors ---- */

static void console_print_line(const char *head, const char *fmt, va_list args) {
    char line[1536];
    vsnprintf(line, sizeof line, fmt, args);
    for (char *p = line; *p != '\0'; p++) /* a newline in a name must not split the line */
        if ((unsigned char)*p < 0x20 || *p == 0x7F) *p = '?';
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", head, line);
}

int cli_fail(int status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    console_print_line("reprise", fmt, args);
    va_end(args);
    return status;
}

void cli_warn(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    console_print_line("warning", fmt, args);
    va_end(args);
}

/* ---- Errors of the library: fields and functions are renamed to options and commands ---- */

static const struct {
    const char *library, *program;
} names[] = {
    {"n_ctx", "--ctx"},
    {"ram_bytes", "--ram"},
    {"kv_budget_bytes", "--kv-ram"},
    {"kv_f16_layers", "--kv-f16-layers"},
    {"keep_share", "--keep"},
    {"module_states", "--module-states"},
    {"draft_model", "--draft-model"},
    {"keep_method", "--keep-method"},
    {"store_dir", "--store"},
    {"store_budget_bytes", "--disk"},
    {"weights_dir", "--weights-cache"},
    {"weights_budget_bytes", "--weights-cache"},
    {"max_queue", "--queue"},
    {"shifted_reuse", "--shifted-reuse"},
    {"kv_keep", "--kv-keep"},
    {"kv_method", "--kv-method"},
    {"context_shift", "--context-shift"},
    {"max_divergence", "--max-divergence"},
    {"audit_every", "--audit"},
    {"api_keys", "--api-keys"},
    {"rp_model_open", "-m"},
    {"rp_adapter_open", "--lora"},
    {"rp_server_hash_key", "reprise serve --hash-key"},
    {"rp_store_list", "'reprise cache ls'"},
    {"rp_store_get_usage", "'reprise cache stat'"},
    {"rp_store_remove", "'reprise cache rm'"},
    {"rp_store_gc", "'reprise cache gc'"},
};

/* The option or command for the library's name in the n bytes of a word, or NULL. */
static const char *program_name(const char *word, size_t n) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].library) == n && memcmp(names[i].library, word, n) == 0) return names[i].program;
    return NULL;
}

const char *cli_message(const rp_error *err, char out[CLI_MESSAGE_BYTES]) {
    static const char word_bytes[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t used = 0;
    for (const char *p = err->message; *p != '\0';) {
        size_t n = strspn(p, word_bytes);
        const char *name = program_name(p, n);
        if (n == 0) n = 1;
        size_t bytes = name != NULL ? strlen(name) : n;
        if (used + bytes >= CLI_MESSAGE_BYTES) break;
        memcpy(out + used, name != NULL ? name : p, bytes);
        used += bytes;
        p += n;
    }
    out[used] = '\0';
    return out;
}

int cli_fail_library_as(int status, const rp_error *err) {
    char line[CLI_MESSAGE_BYTES];
    return cli_fail(status, "%s", cli_message(err, line));
}

int cli_fail_library(const rp_error *err) { return cli_fail_library_as(CLI_FAILED, err); }

/* ---- Memory ---- */

void *cli_alloc(size_t n) {
    void *p = calloc(1, n > 0 ? n : 1);
    if (p == NULL) exit(cli_fail(CLI_FAILED, "out of memory: %zu bytes", n));
    return p;
}

void *cli_realloc(void *p, size_t n) {
    void *q = realloc(p, n > 0 ? n : 1);
    if (q == NULL) exit(cli_fail(CLI_FAILED, "out of memory: %zu bytes", n));
    return q;
}

/* ---- Files ---- */

/* Editors of other systems begin UTF-8 with a byte order mark, which is not part of the text. */
static void console_skip_mark(char *text, size_t *n) {
    if (*n < 3 || memcmp(text, "\xEF\xBB\xBF", 3) != 0) return;
    *n -= 3;
    memmove(text, text + 3, *n + 1);
}

static bool console_is_utf16(const char *text, size_t n) {
    return n >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0);
}

/* Returns 0, an errno, or -1 for more than CLI_INPUT_MAX_BYTES. */
static int console_read_all(FILE *from, char **data, size_t *n) {
    size_t capacity = 0, used = 0, got;
    char *buffer = NULL;
    do {
        if (capacity - used < 2) {
            capacity = capacity == 0 ? 16384 : 2 * capacity;
            buffer = cli_realloc(buffer, capacity);
        }
        errno = 0;
        got = fread(buffer + used, 1, capacity - used - 1, from);
        used += got;
    } while (got > 0 && used <= CLI_INPUT_MAX_BYTES);
    int rc = ferror(from) ? (errno != 0 ? errno : EIO) : used > CLI_INPUT_MAX_BYTES ? -1
                                                                                    : 0;
    if (rc != 0) {
        free(buffer);
        return rc;
    }
    buffer[used] = '\0';
    *data = buffer;
    *n = used;
    return 0;
}

int cli_read(const char *path, char **data, size_t *n) {
    bool standard = strcmp(path, "-") == 0;
    FILE *from = standard ? stdin : fopen(path, "rb");
    if (from == NULL) return cli_fail(CLI_FAILED, "cannot open '%s': %s", path, strerror(errno));
    int rc = console_read_all(from, data, n);
    if (!standard) fclose(from);
    const char *name = standard ? "standard input" : path;
    if (rc > 0) return cli_fail(CLI_FAILED, "cannot read '%s': %s", name, strerror(rc));
    if (rc < 0)
        return cli_fail(CLI_FAILED, "cannot read '%s': it has more than %zu MiB: give a smaller file", name,
                        CLI_INPUT_MAX_BYTES >> 20);
    if (console_is_utf16(*data, *n)) {
        free(*data);
        *data = NULL;
        return cli_fail(CLI_FAILED, "cannot read '%s': it is UTF-16: save it as UTF-8", name);
    }
    console_skip_mark(*data, n);
    return CLI_OK;
}

int cli_read_key(const char *file, char **key) {
    size_t n = 0;
    *key = NULL;
    if (file == NULL) return CLI_OK;
    int status = cli_read(file, key, &n);
    if (status == CLI_OK) (*key)[strcspn(*key, "\r\n")] = '\0';
    return status;
}

int cli_finish_output(void) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return CLI_OK;
    return cli_fail(CLI_FAILED, "cannot write to standard output: %s",
                    errno != 0 ? strerror(errno) : "an earlier write failed");
}

int cli_open_private(const char *path, int flags) {
    struct stat st;
    int file =
        open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (flags & O_APPEND), S_IRUSR | S_IWUSR);
    if (file < 0) return -1;
    bool is_ours = fstat(file, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid();
    if (is_ours && fchmod(file, S_IRUSR | S_IWUSR) == 0 && ((flags & O_TRUNC) == 0 || ftruncate(file, 0) == 0))
        return file;
    int why = is_ours ? errno : EPERM;
    close(file);
    errno = why;
    return -1;
}

int cli_close_output(FILE *file, const char *path) {
    errno = 0;
    bool failed = ferror(file) != 0;
    if (fclose(file) == 0 && !failed) return CLI_OK;
    return cli_fail(CLI_FAILED, "cannot write '%s': %s", path,
                    errno != 0 ? strerror(errno) : "an earlier write failed");
}

double cli_now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

static void console_catch(int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    interrupted = 0;
    action.sa_handler = on_interrupt;
    action.sa_flags = flags | (int)SA_RESTART; /* restarts writes */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

void cli_interrupt_catch(void) { console_catch((int)SA_RESETHAND); }

void cli_interrupt_catch_each(void) { console_catch(0); }

void cli_interrupt_release(void) { signal(SIGINT, SIG_DFL); }

bool cli_interrupted(void) { return interrupted != 0; }

/* ---- Terminals ---- */

bool cli_is_terminal(FILE *to) { return isatty(fileno(to)) == 1; }

int cli_terminal_cells(FILE *to, int otherwise) {
    struct winsize size;
    if (!cli_is_terminal(to) || ioctl(fileno(to), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return otherwise;
    return size.ws_col;
}

bool cli_terminal_is_dumb(void) {
    const char *term = getenv("TERM");
    return term != NULL && strcmp(term, "dumb") == 0;
}

bool cli_has_colour(FILE *to) {
    const char *off = getenv("NO_COLOR");
    return cli_is_terminal(to) && !cli_terminal_is_dumb() && (off == NULL || *off == '\0');
}

static bool can_draw(void) { return cli_is_terminal(stderr) && !cli_terminal_is_dumb(); }

/* Puts "123", "45.6K", "7.8M" into out. */
static const char *console_rate_text(double rate, char out[16]) {
    if (rate < 1e3) snprintf(out, 16, "%.0f", rate);
    else if (rate < 1e6) snprintf(out, 16, "%.1fK", rate / 1e3);
    else snprintf(out, 16, "%.1fM", rate / 1e6);
    return out;
}

/* Puts the rate (of a unit) and the time left after `used` bytes of a line, once there is enough to measure them. */
static void console_put_rate(const cli_progress *p, const char *unit, uint64_t done, uint64_t total, double now,
                             char *line, size_t size) {
    char rate[16];
    double passed_s = (now - p->began_ms) / 1e3;
    if (!p->shown || passed_s * 1e3 < RATE_AFTER_MS || done <= p->began_at || done >= total) return;
    double per_s = (double)(done - p->began_at) / passed_s, left_s = (double)(total - done) / per_s;
    size_t used = strlen(line);
    if (unit) used += (size_t)snprintf(line + used, size - used, ", %s/s", console_rate_text(per_s, rate));
    if (left_s < 99.5) snprintf(line + used, size - used, ", %.0f s left", left_s);
    else if (left_s < 5970) snprintf(line + used, size - used, ", %.0f min left", left_s / 60);
    else snprintf(line + used, size - used, ", %.0f h left", left_s / 3600);
}

void cli_progress_draw(cli_progress *p, const char *what, const char *unit, uint64_t done, uint64_t total) {
    double now = cli_now_ms();
    if (total == 0 || !can_draw() || (p->shown && done < total && now - p->drawn_ms < PROGRESS_EVERY_MS)) return;
    if (!p->shown) p->began_ms = now, p->began_at = done;
    char bar[PROGRESS_CELLS + 1], line[PROGRESS_LINE_BYTES];
    int filled = (int)((double)done / (double)total * PROGRESS_CELLS);
    if (filled > PROGRESS_CELLS) filled = PROGRESS_CELLS;
    memset(bar, '.', PROGRESS_CELLS);
    memset(bar, '#', (size_t)filled);
    bar[PROGRESS_CELLS] = '\0';
    if (unit)
        snprintf(line, sizeof line, "%s [%s] %llu/%llu %s", what, bar, (unsigned long long)done,
                 (unsigned long long)total, unit);
    else snprintf(line, sizeof line, "%s [%s] %3.0f%%", what, bar, 100.0 * (double)done / (double)total);
    console_put_rate(p, unit, done, total, now, line, sizeof line);
    fprintf(stderr, "\r%.*s\x1b[K", cli_terminal_cells(stderr, PROGRESS_LINE_BYTES) - 1,
            line); /* a line that wraps cannot be drawn over */
    fflush(stderr);
    p->shown = true;
    p->drawn_ms = now;
}

void cli_progress_clear(cli_progress *p) {
    if (!p->shown) return;
    fputs("\r\x1b[K", stderr);
    fflush(stderr);
    p->shown = false;
}
