/* SPDX-License-Identifier: Apache-2.0 */
/* chat_input.c: see chat_input.h.
 *
 * Owns libedit's editor and its list of messages, and while a line is edited the terminal's mode and the handlers of
 * SIGWINCH and SIGTSTP. One thread. libedit would handle signals itself (EL_SIGNAL), but it sends them on to the whole
 * process group, and cannot end a line at Ctrl-C.
 */
#define _XOPEN_SOURCE 700

#include "chat/chat_input.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "chat/chat_history.h"
#include "common/console.h"
#include "common/text.h"

#define LOOK_MS 200 /* between two looks at signals: another thread of the process may have received one */
#define QUOTES "\"\"\""
#define PASTE_BEGIN "\033[200~" /* of a bracketed paste (xterm), as the terminal sends it */
#define PASTE_END L"\033[201~"
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
#define INVISIBLE '\1' /* around parts of a prompt without width */

struct chat_input {
    bool interactive;
    EditLine *editor; /* NULL: plain lines */
    History *list;
    chat_history *history;
    const char *prompt;
    bool cancelled;
    mbstate_t shift; /* of a character that is not whole yet */
    char *line;      /* of getline */
    size_t line_bytes;
};

/* A growing text. */
typedef struct message {
    char *text;
    size_t n, capacity;
} message;

static void message_append(message *m, const char *text, size_t n) {
    if (m->capacity - m->n < n + 1) {
        m->capacity = 2 * (m->n + n + 1);
        m->text = cli_realloc(m->text, m->capacity);
    }
    memcpy(m->text + m->n, text, n);
    m->n += n;
    m->text[m->n] = '\0';
}

/* ---- Signals while a line is edited ---- */

static volatile sig_atomic_t resized, stopped;

static void input_on_signal(int number) {
    if (number == SIGWINCH) resized = 1;
    else stopped = 1;
}

static void input_catch(int number, void (*handler)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void input_meet_signals(EditLine *el) {
    if (resized) {
        resized = 0;
        el_resize(el);
        el_set(el, EL_REFRESH);
    }
    if (stopped) { /* Ctrl-Z: the shell gets its terminal as it was */
        stopped = 0;
        el_set(el, EL_PREP_TERM, 0);
        input_catch(SIGTSTP, SIG_DFL);
        raise(SIGTSTP);
        input_catch(SIGTSTP, input_on_signal);
        el_set(el, EL_PREP_TERM, 1);
        el_set(el, EL_REFRESH);
    }
}

/* ---- Characters ---- */

/* One byte of standard input: 1, 0 at its end, -1 for an error or Ctrl-C. */
static int input_byte(EditLine *el, char *byte) {
    for (;;) {
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
        int ready = poll(&in, 1, LOOK_MS);
        if (cli_interrupted() || (ready < 0 && errno != EINTR)) return -1;
        input_meet_signals(el);
        if (ready <= 0) continue;
        ssize_t n = read(STDIN_FILENO, byte, 1);
        if (n >= 0 || errno != EINTR) return n > 0 ? 1 : n == 0 ? 0
                                                                : -1;
    }
}

/* libedit's source of characters. Ctrl-C ends the line, as Enter does. Bytes that are no character are dropped. */
static int input_character(EditLine *el, wchar_t *out) {
    chat_input *in = NULL;
    char byte;
    el_get(el, EL_CLIENTDATA, &in);
    for (;;) {
        int n = input_byte(el, &byte);
        if (n <= 0 && cli_interrupted()) {
            in->cancelled = true;
            *out = L'\n';
            return 1;
        }
        if (n <= 0) return n;
        size_t used = mbrtowc(out, &byte, 1, &in->shift);
        if (used == (size_t)-1) memset(&in->shift, 0, sizeof in->shift);
        else if (used != (size_t)-2) return 1;
    }
}

/* ---- Keys ---- */

static unsigned char input_insert_newline(EditLine *el, int key) {
    (void)key;
    return el_insertstr(el, "\n") == 0 ? CC_REFRESH : CC_ERROR;
}

/* True as long as the text so far may end a paste. *matched: its characters that do. */
static bool input_ends_paste(wchar_t c, size_t *matched) {
    if (c == PASTE_END[*matched]) ++*matched;
    else *matched = c == PASTE_END[0] ? 1 : 0;
    return PASTE_END[*matched] == L'\0';
}

/* Inserts a pasted text as it is: its line ends do not send it, its control characters do nothing. */
static unsigned char input_paste(EditLine *el, int key) {
    size_t n = 0, capacity = 1024, matched = 0;
    wchar_t *text = cli_alloc(capacity * sizeof *text), c;
    (void)key;
    for (bool ended = false; !ended && n < CLI_INPUT_MAX_BYTES / sizeof *text && el_wgetc(el, &c) == 1;) {
        if (cli_interrupted()) break;
        ended = input_ends_paste(c, &matched);
        if (c == L'\r') c = L'\n'; /* as terminals send a line end */
        if ((c < L' ' && c != L'\n' && c != L'\t' && c != PASTE_END[0]) || c == 0x7F) continue;
        if (n + 2 > capacity) text = cli_realloc(text, (capacity *= 2) * sizeof *text);
        text[n++] = c;
    }
    if (matched < n) n -= matched; /* the end's own characters */
    else n = 0;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] != PASTE_END[0]) text[kept++] = text[i];
    text[kept] = L'\0';
    int failed = kept > 0 ? el_winsertstr(el, text) : 0;
    free(text);
    return failed ? CC_ERROR : CC_REFRESH;
}

static char *input_prompt(EditLine *el) {
    chat_input *in = NULL;
    el_get(el, EL_CLIENTDATA, &in);
    return (char *)(uintptr_t)in->prompt; /* libedit does not write to it */
}

/* ---- Editor ---- */

static void input_remember(void *user, const char *text) {
    chat_input *in = user;
    HistEvent event;
    history(in->list, &event, H_ENTER, text);
}

static bool input_open_editor(chat_input *in, const char *path) {
    HistEvent event;
    if (!cli_locale_is_utf8())
        setlocale(LC_CTYPE, "C.UTF-8"); /* messages are UTF-8 in any locale, as in a container without LANG */
    in->editor = el_init("reprise", stdin, stdout, stderr);
    in->list = history_init();
    if (in->editor == NULL || in->list == NULL) return false;
    history(in->list, &event, H_SETSIZE, CHAT_HISTORY_LINES);
    history(in->list, &event, H_SETUNIQUE, 1);
    el_set(in->editor, EL_CLIENTDATA, in);
    el_set(in->editor, EL_EDITOR, "emacs");
    el_set(in->editor, EL_HIST, history, in->list);
    el_set(in->editor, EL_PROMPT_ESC, input_prompt, INVISIBLE);
    el_wset(in->editor, EL_GETCFN, input_character);
    el_set(in->editor, EL_ADDFN, "chat-newline", "insert a line end", input_insert_newline);
    el_set(in->editor, EL_ADDFN, "chat-paste", "insert a pasted text", input_paste);
    el_source(in->editor, NULL); /* the user's ~/.editrc */
    el_set(in->editor, EL_BIND, "\033\r", "chat-newline", NULL);
    el_set(in->editor, EL_BIND, "\033\n", "chat-newline", NULL);
    el_set(in->editor, EL_BIND, PASTE_BEGIN, "chat-paste", NULL);
    el_set(in->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    if (path == NULL || strcmp(path, "off") != 0) in->history = chat_history_open(path);
    if (in->history != NULL) chat_history_each(in->history, input_remember, in);
    return true;
}

chat_input *chat_input_open(bool interactive, const char *history) {
    chat_input *in = cli_alloc(sizeof *in);
    in->interactive = interactive;
    if (interactive && !cli_terminal_is_dumb() && !input_open_editor(in, history))
        cli_warn("the editor of lines cannot be used: lines are read as the terminal gives them");
    return in;
}

void chat_input_close(chat_input *in) {
    if (in == NULL) return;
    if (in->editor != NULL) el_end(in->editor);
    if (in->list != NULL) history_end(in->list);
    chat_history_close(in->history);
    free(in->line);
    free(in);
}

/* ---- Lines ---- */

static const char *input_edit(chat_input *in, int *n) {
    fputs(PASTE_ON, stdout);
    input_catch(SIGWINCH, input_on_signal);
    input_catch(SIGTSTP, input_on_signal);
    el_set(in->editor, EL_PREP_TERM, 1); /* before the prompt is seen: a Ctrl-D that follows at once is a character */
    const char *line = el_gets(in->editor, n);
    input_catch(SIGTSTP, SIG_DFL);
    input_catch(SIGWINCH, SIG_DFL);
    fputs(PASTE_OFF, stdout);
    if (line == NULL) fputc('\n', stdout);
    fflush(stdout);
    return line;
}

static const char *input_plain(chat_input *in, int *n) {
    if (in->interactive) {
        fputs(in->prompt, stdout);
        fflush(stdout);
    }
    ssize_t bytes = getline(&in->line, &in->line_bytes, stdin);
    *n = (int)bytes;
    in->cancelled = cli_interrupted();
    return bytes > 0 ? in->line : NULL;
}

/* Sets the prompt of a message's first line, or of the others. */
static void input_set_prompt(chat_input *in, bool first) {
    static const char *const prompts[2][2] = {{". ", "> "}, {"\1\033[2m\1.\1\033[0m\1 ", "\1\033[1m\1>\1\033[0m\1 "}};
    in->prompt = prompts[in->editor != NULL && cli_has_colour(stdout)][first];
}

/* Removes closing quotes, with white space after them and a line end before them. */
static bool message_close_quotes(message *m) {
    size_t n = m->n;
    while (n > 0 && strchr(" \t\n", m->text[n - 1]) != NULL) n--;
    if (n < 3 || memcmp(m->text + n - 3, QUOTES, 3) != 0) return false;
    n -= 3;
    m->text[m->n = n - (n > 0 && m->text[n - 1] == '\n')] = '\0';
    return true;
}

/* Reads until a message is complete. */
static chat_read input_take_lines(chat_input *in, message *m) {
    bool quoted = false;
    for (bool first = true;; first = false) {
        int n = 0;
        input_set_prompt(in, first);
        const char *line = in->editor != NULL ? input_edit(in, &n) : input_plain(in, &n);
        if (in->cancelled) return CHAT_READ_CANCELLED;
        if (line == NULL && ferror(stdin))
            return cli_fail(0, "cannot read standard input: %s", strerror(errno)), CHAT_READ_FAILED;
        if (line == NULL && quoted && !in->interactive)
            return cli_fail(0, "the last message begins with " QUOTES " and has no end: add " QUOTES), CHAT_READ_FAILED;
        if (line == NULL) return m->n > 0 && !in->interactive ? CHAT_READ_TEXT : CHAT_READ_END;
        if (memchr(line, '\0', (size_t)n) != NULL)
            return cli_fail(0, "a line of the input has a zero byte: messages are text in UTF-8"), CHAT_READ_FAILED;
        if (m->n + (size_t)n > CLI_INPUT_MAX_BYTES)
            return cli_fail(0, "a message has more than %zu MiB", CLI_INPUT_MAX_BYTES >> 20), CHAT_READ_FAILED;
        size_t bytes = (size_t)n - (line[n - 1] == '\n');
        if (first && bytes >= 3 && memcmp(line, QUOTES, 3) == 0) quoted = true, line += 3, bytes -= 3;
        message_append(m, line, bytes);
        if (quoted && message_close_quotes(m)) return CHAT_READ_TEXT;
        if (!quoted && (m->n == 0 || m->text[m->n - 1] != '\\')) return CHAT_READ_TEXT;
        if (!quoted) m->n--; /* the backslash */
        if (!quoted || m->n > 0) message_append(m, "\n", 1);
    }
}

static bool message_is_blank(const message *m) { return m->n == 0 || m->text[strspn(m->text, " \t\r\n")] == '\0'; }

chat_read chat_input_read(chat_input *in, char **text) {
    message m = {0};
    chat_read done;
    do {
        m.n = 0;
        in->cancelled = false;
        done = input_take_lines(in, &m);
    } while (done == CHAT_READ_TEXT && message_is_blank(&m) && !(in->editor == NULL && feof(stdin)));
    if (done == CHAT_READ_TEXT && message_is_blank(&m)) done = CHAT_READ_END;
    if (done != CHAT_READ_TEXT) {
        free(m.text);
        return done;
    }
    if (in->editor != NULL) input_remember(in, m.text), chat_history_add(in->history, m.text);
    *text = m.text;
    return done;
}
