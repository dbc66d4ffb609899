/* SPDX-License-Identifier: Apache-2.0 */
/* problem.h: the error of a request: one record, which each dialect formats in its own way. */
#ifndef SERVER_PROBLEM_H
#define SERVER_PROBLEM_H

#include <jansson.h>

#include "base/compiler.h"
#include "reprise.h"

/* X(KIND, HTTP status, OpenAI type, OpenAI code, Anthropic type, Gemini status). */
#define SERVER_PROBLEMS(X) \
    X(INVALID, 400, "invalid_request_error", "invalid_value", "invalid_request_error", "INVALID_ARGUMENT") \
    X(CONTEXT, 400, "invalid_request_error", "context_length_exceeded", "invalid_request_error", "INVALID_ARGUMENT") \
    X(UNSUPPORTED, 400, "invalid_request_error", "unsupported_value", "invalid_request_error", "UNIMPLEMENTED") \
    X(HTTP, 400, "invalid_request_error", "malformed_request", "invalid_request_error", "INVALID_ARGUMENT") \
    X(KEY, 401, "authentication_error", "invalid_api_key", "authentication_error", "UNAUTHENTICATED") \
    X(RIGHTS, 403, "permission_error", "insufficient_permissions", "permission_error", "PERMISSION_DENIED") \
    X(ORIGIN, 403, "permission_error", "origin_not_allowed", "permission_error", "PERMISSION_DENIED") \
    X(NOT_FOUND, 404, "invalid_request_error", "not_found", "not_found_error", "NOT_FOUND") \
    X(MODEL, 404, "invalid_request_error", "model_not_found", "not_found_error", "NOT_FOUND") \
    X(METHOD, 405, "invalid_request_error", "method_not_allowed", "invalid_request_error", "INVALID_ARGUMENT") \
    X(CONFLICT, 409, "invalid_request_error", "conflict", "invalid_request_error", "ABORTED") \
    X(TOO_LARGE, 413, "invalid_request_error", "request_too_large", "request_too_large", "INVALID_ARGUMENT") \
    X(MEDIA, 415, "invalid_request_error", "unsupported_media_type", "invalid_request_error", "INVALID_ARGUMENT") \
    X(HOST, 421, "invalid_request_error", "misdirected_request", "invalid_request_error", "INVALID_ARGUMENT") \
    X(QUOTA, 429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED") \
    X(OVERLOADED, 429, "rate_limit_error", "no_capacity", "rate_limit_error", "RESOURCE_EXHAUSTED") \
    X(HEAD, 431, "invalid_request_error", "head_too_large", "invalid_request_error", "INVALID_ARGUMENT") \
    X(CANCELLED, 499, "invalid_request_error", "cancelled", "invalid_request_error", "CANCELLED") \
    X(INTERNAL, 500, "server_error", "internal_error", "api_error", "INTERNAL") \
    X(NOT_IMPLEMENTED, 501, "invalid_request_error", "not_implemented", "invalid_request_error", "UNIMPLEMENTED") \
    X(NODE, 502, "server_error", "node_failed", "api_error", "UNAVAILABLE") \
    X(BUSY, 503, "server_error", "overloaded", "overloaded_error", "UNAVAILABLE") \
    X(LOADING, 503, "server_error", "loading", "overloaded_error", "UNAVAILABLE") \
    X(DEADLINE, 504, "server_error", "deadline_exceeded", "timeout_error", "DEADLINE_EXCEEDED")

typedef enum server_problem_kind {
    SERVER_FINE,
#define X(kind, status, type, code, anthropic, gemini) SERVER_##kind,
    SERVER_PROBLEMS(X)
#undef X
        SERVER_N_PROBLEMS
} server_problem_kind;

typedef struct server_problem {
    server_problem_kind kind; /* SERVER_FINE: none */
    char field[96];           /* name of the field in the request; "": none */
    char message[RP_ERROR_MESSAGE_BYTES];
    uint32_t retry_after_ms;               /* 0: no Retry-After */
    int64_t prompt_tokens, context_tokens; /* CONTEXT, if the prompt was counted; else 0 */
} server_problem;

/* Records the first problem and ignores later ones. field may be NULL. Returns the recorded kind. */
int server_fail(server_problem *p, server_problem_kind kind, const char *field, const char *fmt, ...) BASE_PRINTF(4, 5);
/* The same for an error of the library. One about a file of the server names its path to the log alone. */
int server_fail_library(server_problem *p, const rp_error *err);
int server_fail_memory(server_problem *p);
/* The same for an error of src/structured, whose place is the field of the request. No error (code RP_OK): nothing. */
int server_fail_structured(server_problem *p, const rp_error *err);

int server_problem_status(server_problem_kind kind);
/* The kind for an error of another server: the first one with its status, else that of its class. */
server_problem_kind server_problem_of_status(int status);
/* "context_length_exceeded"; static. */
const char *server_problem_name(server_problem_kind kind);

/* An error in each dialect's form; NULL: no memory. A prompt that is too long is refused in the words of each vendor:
 * agents search for them to start their compaction (docs/decisions/0041-compatibility-with-agents.md). */
json_t *server_problem_openai(const server_problem *p);
json_t *server_problem_anthropic(const server_problem *p);
json_t *server_problem_gemini(const server_problem *p);
json_t *server_problem_llamacpp(const server_problem *p);
json_t *server_problem_ollama(const server_problem *p);

#endif
