/* SPDX-License-Identifier: Apache-2.0 */
/* problem.c: the table of what can go wrong, and its words in each dialect. Owns nothing. Any thread. */
#include "server/core/problem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/budget.h"
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

#define MEMORY_RETRY_MS 1000 /* when the memory of others' requests was the limit */

typedef struct problem_words {
    int status;
    const char *type, *code, *anthropic, *gemini;
} problem_words;

static const problem_words words[] = {
    {200, "", "", "", ""},
#define X(kind, status, type, code, anthropic, gemini) {status, type, code, anthropic, gemini},
    SERVER_PROBLEMS(X)
#undef X
};

int server_problem_status(server_problem_kind kind) {
    BASE_ASSERT((unsigned)kind < SERVER_N_PROBLEMS);
    return words[kind].status;
}

server_problem_kind server_problem_of_status(int status) {
    for (int kind = SERVER_FINE + 1; kind < SERVER_N_PROBLEMS; kind++)
        if (words[kind].status == status) return (server_problem_kind)kind;
    return status >= 400 && status < 500 ? SERVER_INVALID : SERVER_INTERNAL;
}

const char *server_problem_name(server_problem_kind kind) {
    BASE_ASSERT(kind != SERVER_FINE && (unsigned)kind < SERVER_N_PROBLEMS);
    return words[kind].code;
}

/* Omits invalid UTF-8: names in messages are truncated by bytes. */
static void keep_characters(char *s) {
    size_t n = strlen(s), used = 0;
    for (size_t i = 0; i < n;) {
        const int length = base_utf8_length((const unsigned char *)s + i, n - i);
        const size_t kept = length > 0 ? (size_t)length : 0;
        memmove(s + used, s + i, kept);
        used += kept;
        i += kept > 0 ? kept : 1;
    }
    BASE_ASSERT(used <= n);
    s[used] = '\0';
}

/* If the thread's budget has refused an allocation, the problem of that: its kind, and its message in `text`, of
 * RP_ERROR_MESSAGE_BYTES. Else SERVER_FINE. */
static server_problem_kind memory_problem(char *text) {
    const base_budget *refused = base_budget_refusal();
    if (!refused) return SERVER_FINE;
    const uint64_t limit = base_budget_limit(refused) >> 20;
    const bool is_all = base_budget_is_root(refused), is_own = refused == base_budget_current();
    const char *format =
        is_all   ? "all requests together need more than %" PRIu64 " MiB of memory (--request-ram): retry later"
        : is_own ? "the request needs more than %" PRIu64
                   " MiB of memory: send less in one request, or raise --request-ram"
                 : "the requests of this tenant need more than %" PRIu64 " MiB of memory (--request-ram): retry later";
    snprintf(text, RP_ERROR_MESSAGE_BYTES, format, limit); /* one of three formats with one number each */
    return is_all ? SERVER_BUSY : is_own ? SERVER_TOO_LARGE
                                         : SERVER_QUOTA;
}

int server_fail(server_problem *p, server_problem_kind kind, const char *field, const char *fmt, ...) {
    rp_error line; /* makes one tidy line of it */
    char text[RP_ERROR_MESSAGE_BYTES];
    va_list ap;
    if (p->kind != SERVER_FINE) return (int)p->kind;
    const bool may_be_memory = kind == SERVER_INTERNAL || kind == SERVER_INVALID || kind == SERVER_UNSUPPORTED ||
                               kind == SERVER_TOO_LARGE || kind == SERVER_BUSY;
    const server_problem_kind memory =
        may_be_memory ? memory_problem(text) : SERVER_FINE; /* then it is the cause of what failed */
    if (memory) {
        kind = memory;
        field = NULL;
        if (kind != SERVER_TOO_LARGE) p->retry_after_ms = MEMORY_RETRY_MS;
    } else {
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
    }
    base_fail(&line, RP_ERR_INVALID, "%s", text);
    p->kind = kind;
    snprintf(p->message, sizeof(p->message), "%s", line.message);
    base_fail(&line, RP_ERR_INVALID, "%.*s", (int)sizeof(p->field) - 1, field ? field : "");
    snprintf(p->field, sizeof(p->field), "%.*s", (int)sizeof(p->field) - 1, line.message);
    keep_characters(p->message);
    keep_characters(p->field);
    BASE_ASSERT(p->kind != SERVER_FINE && p->message[0]); /* invariant 7: an error has a text */
    return (int)kind;
}

int server_fail_memory(server_problem *p) { return server_fail(p, SERVER_INTERNAL, NULL, "out of memory"); }

static server_problem_kind problem_kind_of(rp_code code) {
    switch (code) {
    case RP_ERR_NAME: return SERVER_NOT_FOUND;
    case RP_ERR_BUDGET: /* it never will have any here: as a prompt that is too long */
    case RP_ERR_CONTEXT: return SERVER_CONTEXT;
    case RP_ERR_UNSUPPORTED: return SERVER_UNSUPPORTED;
    case RP_ERR_BUSY: return SERVER_BUSY;
    case RP_ERR_DEADLINE: return SERVER_DEADLINE;
    case RP_ERR_CANCELLED: return SERVER_CANCELLED;
    case RP_ERR_MEMORY:
    case RP_ERR_IO:
    case RP_ERR_FORMAT:
    case RP_ERR_INTERNAL: return SERVER_INTERNAL;
    default: return SERVER_INVALID;
    }
}

/* Does it name a path from the root? Those are of the server: clients learn nothing of its folders. */
static bool has_path(const char *text) {
    for (const char *slash = strchr(text, '/'); slash; slash = strchr(slash + 1, '/'))
        if (slash[1] > ' ' && (slash == text || strchr(" '\"(:=", slash[-1]))) return true;
    return false;
}

int server_fail_library(server_problem *p, const rp_error *err) {
    const server_problem_kind kind = problem_kind_of(err->code);
    if (kind == SERVER_INTERNAL && has_path(err->message)) {
        base_log(BASE_LOG_WARN, "server: %s", err->message);
        server_fail(p, kind, NULL, "a file of the server cannot be read or written: its log has the reason");
    } else server_fail(p, kind, NULL, "%s", err->message);
    if (err->retry_after_ms > 0) p->retry_after_ms = err->retry_after_ms;
    p->prompt_tokens = err->prompt_tokens;
    p->context_tokens = err->context_tokens;
    return (int)p->kind;
}

int server_fail_structured(server_problem *p, const rp_error *err) {
    if (err->code == RP_OK) return (int)p->kind;
    return server_fail(p, problem_kind_of(err->code), err->where[0] ? err->where : NULL, "%s", err->message);
}

/* ---- dialects ---- */

static bool is_overflow(const server_problem *p) { return p->kind == SERVER_CONTEXT && p->context_tokens > 0; }

/* The message, or a vendor's own for a prompt that is too long, which has two numbers: first and second. */
static json_t *message_of(const server_problem *p, const char *overflow, int64_t first, int64_t second) {
    return is_overflow(p) ? json_sprintf(overflow, (json_int_t)first, (json_int_t)second) : json_string(p->message);
}

#define NUMBER "%" JSON_INTEGER_FORMAT

json_t *server_problem_openai(const server_problem *p) {
    BASE_ASSERT(p->kind != SERVER_FINE);
    const problem_words *w = &words[p->kind];
    json_t *field = p->field[0] ? json_string(p->field) : json_null();
    static const char overflow[] = "This model's maximum context length is " NUMBER
                                   " tokens. However, your messages resulted in " NUMBER " tokens. "
                                   "Please reduce the length of the messages.";
    json_t *message = message_of(p, overflow, p->context_tokens, p->prompt_tokens);
    return json_pack("{s:{s:o, s:s, s:o, s:s}}", "error", "message", message, "type", w->type, "param", field, "code",
                     w->code);
}

json_t *server_problem_anthropic(const server_problem *p) {
    BASE_ASSERT(p->kind != SERVER_FINE);
    json_t *message = message_of(p, "prompt is too long: " NUMBER " tokens > " NUMBER " maximum", p->prompt_tokens,
                                 p->context_tokens);
    return json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", words[p->kind].anthropic, "message",
                     message);
}

json_t *server_problem_gemini(const server_problem *p) {
    BASE_ASSERT(p->kind != SERVER_FINE);
    const problem_words *w = &words[p->kind];
    json_t *message =
        message_of(p, "The input token count (" NUMBER ") exceeds the maximum number of tokens allowed (" NUMBER ").",
                   p->prompt_tokens, p->context_tokens);
    return json_pack("{s:{s:i, s:o, s:s}}", "error", "code", w->status, "message", message, "status", w->gemini);
}

json_t *server_problem_llamacpp(const server_problem *p) {
    BASE_ASSERT(p->kind != SERVER_FINE);
    const problem_words *w = &words[p->kind];
    if (!is_overflow(p))
        return json_pack("{s:{s:i, s:s, s:s}}", "error", "code", w->status, "message", p->message, "type", w->type);
    json_t *message = message_of(
        p, "request (" NUMBER " tokens) exceeds the available context size (" NUMBER " tokens), try increasing it",
        p->prompt_tokens, p->context_tokens);
    return json_pack("{s:{s:i, s:o, s:s, s:I, s:I}}", "error", "code", w->status, "message", message, "type",
                     "exceed_context_size_error", "n_prompt_tokens", (json_int_t)p->prompt_tokens, "n_ctx",
                     (json_int_t)p->context_tokens);
}

json_t *server_problem_ollama(const server_problem *p) { return json_pack("{s:s}", "error", p->message); }
