/* SPDX-License-Identifier: Apache-2.0 */
/* chat_session.c: see chat_session.h. Owns the messages and the last result. One thread: answer.c waits for the
   engine's. */
#define _XOPEN_SOURCE 700

#include "chat/chat_session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/command.h"
#include "common/console.h"
#include "common/json_out.h"
#include "common/text.h"

#define CONTEXT_MESSAGES RP_MAX_MESSAGES

/* ---- Messages ---- */

static char *session_copy(const char *text, size_t n) {
    char *copy = cli_alloc(n + 1);
    memcpy(copy, text, n);
    return copy;
}

static void session_push(chat_session *s, rp_role role, const char *text, size_t n) {
    if (s->n == s->capacity) {
        s->capacity = s->capacity == 0 ? 16 : 2 * s->capacity;
        s->messages = cli_realloc(s->messages, s->capacity * sizeof *s->messages);
    }
    s->messages[s->n++] = (rp_message){.role = role, .text = session_copy(text, n), .n = n};
}

static void session_pop(chat_session *s) { free((char *)(uintptr_t)s->messages[--s->n].text); }

static bool session_ends_with(const chat_session *s, rp_role role) {
    return s->n > 0 && s->messages[s->n - 1].role == role;
}

bool chat_session_undo(chat_session *s) {
    if (s->n == 0) return false;
    if (session_ends_with(s, RP_ROLE_ASSISTANT)) session_pop(s);
    if (session_ends_with(s, RP_ROLE_USER)) session_pop(s);
    return true;
}

void chat_session_reset(chat_session *s) {
    while (s->n > 0) session_pop(s);
}

void chat_session_set_system(chat_session *s, const char *text) {
    free(s->system);
    s->system = text != NULL && *text != '\0' ? session_copy(text, strlen(text)) : NULL;
}

void chat_session_free(chat_session *s) {
    chat_session_reset(s);
    chat_session_set_system(s, NULL);
    free(s->messages);
    rp_result_free(s->last);
}

/* ---- Answers ---- */

/* On a terminal an answer is shown without the white space that it may begin with. */
static bool session_on_text(void *user, const char *text, size_t n) {
    chat_session *s = user;
    if (s->interactive && !s->has_text)
        for (; n > 0 && strchr(" \n", *text) != NULL; n--) text++;
    if (n == 0) return true;
    if (s->interactive) cli_print_safe(stdout, text, n);
    else fwrite(text, 1, n, stdout);
    s->has_text = true;
    s->line_is_open = text[n - 1] != '\n';
    return fflush(stdout) == 0; /* a failure is reported by cli_finish_output */
}

static void session_print_status(const chat_session *s, const rp_result *r) {
    const bool dim = cli_has_colour(stderr);
    const int cached = r->prompt_tokens > 0 ? (int)(100LL * r->cached_tokens / r->prompt_tokens) : 0;
    if (!s->interactive) return;
    fprintf(stderr, "%s[prompt %d tokens, %d %% cached; first token %.0f ms; answer %d tokens, %.1f tokens/s",
            dim ? "\x1b[2m" : "", (int)r->prompt_tokens,
            cached, r->timings.ttft_ms, (int)r->n_tokens, r->timings.decode_tokens_per_second);
    if (strcmp(r->finish_reason, "length") == 0)
        fprintf(stderr, "; ended at --max-tokens %d or at the end of the context", (int)s->settings.max_tokens);
    if (strcmp(r->finish_reason, "cancelled") == 0) fprintf(stderr, "; stopped");
    if (r->dropped_messages > 0)
        fprintf(stderr, "; the %d oldest messages do not fit the context", (int)r->dropped_messages);
    fprintf(stderr, "]%s\n", dim ? "\x1b[0m" : "");
}

static void session_count(chat_session *s, rp_result *r) {
    rp_result_free(s->last);
    s->last = r;
    s->totals.answers++;
    s->totals.prompt_tokens += r->prompt_tokens;
    s->totals.cached_tokens += r->cached_tokens;
    s->totals.answer_tokens += r->n_tokens;
    s->totals.saved_ms += r->timings.saved_ms;
    s->totals.decode_ms += r->timings.decode_ms;
}

/* Runs the request of these messages; the result or NULL. Returns an exit status. */
static int session_run(chat_session *s, const rp_message *messages, size_t n, rp_result **result) {
    rp_request r = rp_request_defaults();
    rp_error err;
    r.prompt = rp_prompt_messages(messages, n);
    r.max_tokens = s->settings.max_tokens;
    r.n_draft = s->draft;
    r.n_kept_shares = 0;
    r.grammar = s->grammar;
    r.truncates = true;
    cli_sampling_apply(&s->settings.sampling, s->bias, s->n_bias, &r);
    s->answer = (cli_answer){.on_text = session_on_text, .user = s};
    s->has_text = s->line_is_open = false;
    int rc = cli_answer_run(&s->answer, s->engine, &r, result, &err);
    if (s->line_is_open || (rc == RP_OK && !s->has_text)) fputc('\n', stdout);
    int status = cli_finish_output();
    if (rc == RP_ERR_CANCELLED && cli_interrupted()) return CLI_INTERRUPTED;
    return rc != RP_OK ? cli_fail_library(&err) : status;
}

/* Answers the conversation, which ends with the user's message. */
static int session_answer(chat_session *s) {
    rp_message *all = cli_alloc((s->n + 1) * sizeof *all);
    rp_result *result = NULL;
    size_t n = 0;
    if (s->system != NULL) all[n++] = (rp_message){.role = RP_ROLE_SYSTEM, .text = s->system, .n = strlen(s->system)};
    memcpy(all + n, s->messages, s->n * sizeof *all);
    int status = session_run(s, all, n + s->n, &result);
    free(all);
    if (result != NULL) {
        session_push(s, RP_ROLE_ASSISTANT, result->text, strlen(result->text));
        for (int32_t i = 0; i < result->n_warnings; i++) cli_warn("%s", result->warnings[i]);
        session_print_status(s, result);
        session_count(s, result);
    }
    return status == CLI_OK && cli_interrupted() ? CLI_INTERRUPTED : status;
}

int chat_session_send(chat_session *s, const char *text) {
    if (s->n + 3 > CONTEXT_MESSAGES)
        return cli_fail(CLI_FAILED, "the conversation has %zu messages, the maximum: begin a new one with /reset",
                        s->n);
    session_push(s, RP_ROLE_USER, text, strlen(text));
    int status = session_answer(s);
    if (session_ends_with(s, RP_ROLE_USER)) session_pop(s);
    return status;
}

int chat_session_retry(chat_session *s) {
    if (!session_ends_with(s, RP_ROLE_ASSISTANT))
        return cli_fail(CLI_FAILED, "there is no answer to retry: send a message first");
    rp_message old = s->messages[--s->n];
    s->settings.sampling.values.seed++;
    int status = session_answer(s);
    if (session_ends_with(s, RP_ROLE_USER)) s->messages[s->n++] = old; /* no answer: the old one stays */
    else free((char *)(uintptr_t)old.text);
    return status;
}

/* ---- Files ---- */

static json_t *session_message(rp_role role, const char *text) {
    json_t *message = json_object();
    cli_json_set(message, "role", json_string(rp_role_name(role)));
    cli_json_set(message, "content", cli_json_text(text));
    return message;
}

int chat_session_save(const chat_session *s, const char *path) {
    json_t *body = json_object(), *messages = json_array();
    if (s->system != NULL) cli_json_append(messages, session_message(RP_ROLE_SYSTEM, s->system));
    for (size_t i = 0; i < s->n; i++)
        cli_json_append(messages, session_message(s->messages[i].role, s->messages[i].text));
    cli_json_set(body, "messages", messages);
    int file = cli_open_private(path, O_TRUNC);
    FILE *to = file >= 0 ? fdopen(file, "wb") : NULL;
    int status = to == NULL ? cli_fail(CLI_FAILED, "cannot write '%s': %s", path, strerror(errno)) : CLI_OK;
    if (to != NULL) {
        json_dumpf(body, to, JSON_INDENT(1)); /* a failure is reported when the file is closed */
        fputc('\n', to);
        status = cli_close_output(to, path);
    }
    json_decref(body);
    return status;
}

/* Checks message number i of a file: the conversation's first may be the system prompt, users and assistants take
   turns. */
static int session_check(const json_t *message, size_t i, rp_role *expected, const char *path) {
    rp_role role;
    if (!rp_role_parse(json_string_value(json_object_get(message, "role")), &role) || role == RP_ROLE_TOOL ||
        !json_is_string(json_object_get(message, "content")))
        return cli_fail(CLI_FAILED,
                        "%s: message %zu: give a \"role\" of system, user or assistant and a \"content\" of text", path,
                        i);
    if (role == RP_ROLE_SYSTEM && i == 0) return CLI_OK;
    if (role != *expected)
        return cli_fail(CLI_FAILED, "%s: message %zu is the %s's: messages of user and assistant take turns", path, i,
                        rp_role_name(role));
    *expected = role == RP_ROLE_USER ? RP_ROLE_ASSISTANT : RP_ROLE_USER;
    return CLI_OK;
}

static int session_check_file(const json_t *messages, const char *path) {
    rp_role expected = RP_ROLE_USER;
    if (!json_is_array(messages))
        return cli_fail(CLI_FAILED, "%s: it is no conversation: give {\"messages\": [...]}, as /save writes it", path);
    if (json_array_size(messages) > CONTEXT_MESSAGES)
        return cli_fail(CLI_FAILED, "%s: it has %zu messages: give at most %d", path, json_array_size(messages),
                        CONTEXT_MESSAGES);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        int status = session_check(json_array_get(messages, i), i, &expected, path);
        if (status != CLI_OK) return status;
    }
    return expected == RP_ROLE_USER
               ? CLI_OK
               : cli_fail(CLI_FAILED, "%s: its last message has no answer: remove it, and send it after /load", path);
}

int chat_session_load(chat_session *s, const char *path) {
    char *text = NULL;
    size_t n = 0;
    json_error_t error;
    int status = cli_read(path, &text, &n);
    if (status != CLI_OK) return status;
    json_t *body = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error), *messages = json_object_get(body, "messages");
    free(text);
    status = body == NULL ? cli_fail(CLI_FAILED, "%s:%d: not JSON: %s", path, error.line, error.text)
                          : session_check_file(messages, path);
    if (status == CLI_OK) {
        chat_session_reset(s);
        chat_session_set_system(s, NULL);
    }
    for (size_t i = 0; status == CLI_OK && i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i), *content = json_object_get(message, "content");
        rp_role role = RP_ROLE_USER;
        rp_role_parse(json_string_value(json_object_get(message, "role")), &role);
        if (role == RP_ROLE_SYSTEM) chat_session_set_system(s, json_string_value(content));
        else session_push(s, role, json_string_value(content), json_string_length(content));
    }
    json_decref(body);
    return status;
}
