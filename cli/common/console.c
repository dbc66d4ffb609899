/* SPDX-License-Identifier: Apache-2.0 */
/* console.c: error lines, memory, files, the clock, Ctrl-C and progress.
 *
 * Owns the flag that the signal handler sets, and nothing else. One thread.
 */
#define _XOPEN_SOURCE 700

#include "common/console.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/command.h"
#include "reprise_store.h"

#define PROGRESS_CELLS 30
#define PROGRESS_EVERY_MS 50.0

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
    int rc = ferror(from) ? (errno != 0 ? errno : EIO) : used > CLI_INPUT_MAX_BYTES ? -1 : 0;
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
        return cli_fail(CLI_FAILED, "cannot read '%s': it has more than %zu MiB: give a smaller file", name, CLI_INPUT_MAX_BYTES >> 20);
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
    return cli_fail(CLI_FAILED, "cannot write to standard output: %s", errno != 0 ? strerror(errno) : "an earlier write failed");
}

int cli_close_output(FILE *file, const char *path) {
    errno = 0;
    bool failed = ferror(file) != 0;
    if (fclose(file) == 0 && !failed) return CLI_OK;
    return cli_fail(CLI_FAILED, "cannot write '%s': %s", path, errno != 0 ? strerror(errno) : "an earlier write failed");
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

void cli_interrupt_catch(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    action.sa_flags = (int)(SA_RESTART | SA_RESETHAND); /* restarts writes; a second Ctrl-C ends the program */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool cli_interrupted(void) { return interrupted != 0; }

/* ---- Terminals ---- */

bool cli_is_terminal(FILE *to) { return isatty(fileno(to)) == 1; }

int cli_terminal_cells(FILE *to, int otherwise) {
    struct winsize size;
    if (!cli_is_terminal(to) || ioctl(fileno(to), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return otherwise;
    return size.ws_col;
}

static bool can_draw(void) {
    const char *term = getenv("TERM");
    return cli_is_terminal(stderr) && (term == NULL || strcmp(term, "dumb") != 0);
}

void cli_progress_draw(cli_progress *p, const char *what, const char *unit, uint64_t done, uint64_t total) {
    double now = cli_now_ms();
    if (total == 0 || !can_draw() || (p->shown && done < total && now - p->drawn_ms < PROGRESS_EVERY_MS)) return;
    char bar[PROGRESS_CELLS + 1];
    int filled = (int)((double)done / (double)total * PROGRESS_CELLS);
    if (filled > PROGRESS_CELLS) filled = PROGRESS_CELLS;
    memset(bar, '.', PROGRESS_CELLS);
    memset(bar, '#', (size_t)filled);
    bar[PROGRESS_CELLS] = '\0';
    if (unit) fprintf(stderr, "\r%s [%s] %llu/%llu %s\x1b[K", what, bar, (unsigned long long)done, (unsigned long long)total, unit);
    else fprintf(stderr, "\r%s [%s] %3.0f%%\x1b[K", what, bar, 100.0 * (double)done / (double)total);
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
