/* SPDX-License-Identifier: Apache-2.0 */
/* chat_history.c: see chat_history.h. Owns the file's descriptor and the messages that it had when it was opened. One
   thread. */
#define _XOPEN_SOURCE 700

#include "chat/chat_history.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/console.h"

#define PATH_BYTES 4096
#define FILE_MAX_BYTES ((size_t)64 << 20) /* a file that is larger is not ours */

struct chat_history {
    char path[PATH_BYTES];
    int file; /* opened for appending */
    char *lines[CHAT_HISTORY_LINES];
    size_t n, n_read; /* kept lines; all lines of the file */
};

/* ---- The path ---- */

static bool history_default_path(char out[PATH_BYTES]) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (state != NULL && state[0] == '/') n = snprintf(out, PATH_BYTES, "%s/reprise/chat_history", state);
    else if (home != NULL && home[0] == '/')
        n = snprintf(out, PATH_BYTES, "%s/.local/state/reprise/chat_history", home);
    return n > 0 && n < PATH_BYTES;
}

/* Creates the folders of a path, for their owner only. */
static bool history_make_folders(const char *path) {
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *p = folder + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        if (mkdir(folder, 0700) != 0 && errno != EEXIST) return false;
        *p = '/';
    }
    return true;
}

/* ---- Reading ---- */

static void history_push(chat_history *h, const char *line, size_t n) {
    json_error_t error;
    json_t *text = json_loadb(line, n, JSON_DECODE_ANY, &error);
    h->n_read++;
    if (json_is_string(text)) {
        if (h->n == CHAT_HISTORY_LINES) {
            free(h->lines[0]);
            memmove(h->lines, h->lines + 1, --h->n * sizeof *h->lines);
        }
        size_t bytes = json_string_length(text) + 1;
        h->lines[h->n] = cli_alloc(bytes);
        memcpy(h->lines[h->n++], json_string_value(text), bytes);
    }
    json_decref(text);
}

static void history_read(chat_history *h) {
    int file = open(h->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe must not stop us */
    FILE *from = file >= 0 ? fdopen(file, "rb") : NULL;
    char *line = NULL;
    size_t capacity = 0, all = 0;
    ssize_t n;
    while (from != NULL && all < FILE_MAX_BYTES && (n = getline(&line, &capacity, from)) > 0) {
        history_push(h, line, (size_t)n);
        all += (size_t)n;
    }
    free(line);
    if (from != NULL) fclose(from);
}

/* ---- Writing ---- */

static bool history_write(int file, const char *text) {
    json_t *string = json_string(text); /* NULL: not UTF-8 */
    char *line = string != NULL ? json_dumps(string, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    size_t n = line != NULL ? strlen(line) : 0;
    bool written = true;
    if (n > 0) {
        line[n] = '\n'; /* instead of its NUL: one write for the whole line */
        written = write(file, line, n + 1) == (ssize_t)(n + 1);
    }
    free(line);
    json_decref(string);
    return written;
}

/* Replaces a file with twice as many lines as are kept. A message that another session appends meanwhile may be
   lost. */
static void history_compact(chat_history *h) {
    char path[PATH_BYTES + 8];
    snprintf(path, sizeof path, "%s.XXXXXX", h->path);
    int file = mkstemp(path); /* mode 0600 */
    bool whole = file >= 0;
    for (size_t i = 0; i < h->n && whole; i++) whole = history_write(file, h->lines[i]);
    if (file >= 0 && close(file) != 0) whole = false;
    if (file >= 0 && (!whole || rename(path, h->path) != 0)) unlink(path);
}

chat_history *chat_history_open(const char *path) {
    chat_history *h = cli_alloc(sizeof *h);
    bool named = path != NULL ? snprintf(h->path, PATH_BYTES, "%s", path) < PATH_BYTES : history_default_path(h->path);
    h->file = -1;
    if (named && (path != NULL || history_make_folders(h->path))) {
        history_read(h);
        if (h->n_read > 2 * CHAT_HISTORY_LINES) history_compact(h);
        h->file = cli_open_private(h->path, O_APPEND);
    }
    if (h->file >= 0) return h;
    cli_warn("messages are not remembered: cannot write the history '%s': %s", h->path,
             named ? strerror(errno) : "HOME is not set");
    chat_history_close(h);
    return NULL;
}

void chat_history_close(chat_history *h) {
    if (h == NULL) return;
    if (h->file >= 0) close(h->file);
    for (size_t i = 0; i < h->n; i++) free(h->lines[i]);
    free(h);
}

void chat_history_each(chat_history *h, void (*take)(void *user, const char *text), void *user) {
    for (size_t i = 0; i < h->n; i++) take(user, h->lines[i]);
}

void chat_history_add(chat_history *h, const char *text) {
    if (h == NULL || strlen(text) > CHAT_HISTORY_MAX_BYTES || history_write(h->file, text)) return;
    cli_warn("cannot write the history '%s': %s", h->path, strerror(errno));
}
