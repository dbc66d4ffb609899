/* openai.h: what the OpenAI routes share. */
#ifndef SERVER_OPENAI_H
#define SERVER_OPENAI_H

#include "server/generate.h"

/* Parsers: pure, for the routes and for fuzz/fuzz_requests.c. */
int openai_parse_chat(server_ask *ask, server_problem *p);
int openai_parse_text(server_ask *ask, server_problem *p);

/* The fields that both have. */
void openai_parse_common(server_ask *ask, const server_fields *f);
/* Fields that would change the answer and cannot be honoured. */
void openai_refuse(const server_fields *f, const char *const *names);

/* {"prompt_tokens": ..., "prompt_tokens_details": {"cached_tokens": ...}} */
json_t *openai_usage(const server_exchange *x);
/* "stop" or "length" */
const char *openai_finish(const server_choice *c);
int64_t openai_created(const server_exchange *x);

/* "data: [DONE]", and an error in mid-stream. */
int openai_done(server_exchange *x);
int openai_fail(server_exchange *x, const server_problem *p);

/* The bytes of a token, as text; and as numbers. */
json_t *openai_token_text(const server_exchange *x, int32_t token);
json_t *openai_token_bytes(const server_exchange *x, int32_t token);

#endif
