/* SPDX-License-Identifier: Apache-2.0 */
/* openai.h: what the OpenAI routes share. */
#ifndef SERVER_OPENAI_H
#define SERVER_OPENAI_H

#include "server/answers/generate.h"

#define OPENAI_MAX_TOP_LOGPROBS 20 /* the official limit */

/* Parsers: pure, for the routes and for fuzz/fuzz_requests.c. */
int openai_parse_chat(generation *gen, server_problem *p);
int openai_parse_text(generation *gen, server_problem *p);

/* ---- openai_tools.c ---- */

/* The dialects nest differently: chat has {"type": "function", "function": {...}}, responses has {"type":
 * "function", ...}. */
typedef enum openai_nesting { OPENAI_NESTED,
                              OPENAI_FLAT } openai_nesting;

/* Tools of this namespace have no prefix. */
#define OPENAI_DEFAULT_NAMESPACE "functions"
/* The name of a tool as the model sees it: "clock.sleep" in the namespace "clock"; group: NULL if there is none. */
const char *openai_tool_name(generation *gen, const char *group, const char *name, server_problem *p);
/* Adds the tools of an array: functions, custom tools, and those of namespaces. list: its name in problems: "tools". */
void openai_parse_tool_list(generation *gen, const json_t *tools, const char *list, openai_nesting nesting,
                            server_problem *p);
/* The input of a custom tool as arguments of a function, and back: the latter NULL if out of memory. */
const char *openai_freeform_arguments(generation *gen, const char *input, server_problem *p);
json_t *openai_freeform_input(const tool_item *item);
/* tools, tool_choice, parallel_tool_calls. */
void openai_parse_tools(generation *gen, const server_fields *f, openai_nesting nesting);
/* The response format: {"type": "text" | "json_object" | "json_schema", ...}, in the field of that name. */
void openai_parse_format(generation *gen, const server_fields *f, const char *name, openai_nesting nesting);
/* json_schema: the schema itself, as llama.cpp's server accepts it. */
void openai_parse_json_schema(generation *gen, const server_fields *f);
/* The tool calls of the assistant message that was just added. */
void openai_parse_calls(generation *gen, const server_fields *message);
/* The message of an answer: content, tool_calls, reasoning_content. */
json_t *openai_message(const server_request *x, const server_choice *c);
/* The delta of a stream for an event of a tool call. */
json_t *openai_call_delta(const server_request *x, const server_choice *c, tool_event event, const tool_item *item,
                          const char *bytes, size_t n);

/* The common fields (openai_parse_common), and ignored ones: their effect is the default, or does not concern a
 * model. */
#define OPENAI_COMMON_FIELDS \
    "model stream stream_options n max_tokens prompt_logprobs temperature top_p presence_penalty frequency_penalty " \
    "seed stop logit_bias " \
    "prompt_cache_key prompt_cache_retention prompt_cache_options user metadata store service_tier " \
    "safety_identifier " SERVER_EXTRA_FIELDS
/* The fields that chat and text completions share. */
void openai_parse_common(generation *gen, const server_fields *f);
/* prompt_cache_key, prompt_cache_retention, prompt_cache_options. known: all fields inside the last. */
void openai_parse_cache(generation *gen, const server_fields *f, const char *known);
#define OPENAI_CACHE_FIELDS "mode ttl "
/* The prompt_cache_breakpoint of each part of a content. name: of the content, in problems. */
void openai_parse_breakpoints(generation *gen, const json_t *content, const char *name, server_problem *p);
#define OPENAI_BREAKPOINT_FIELDS "mode ttl"
/* A role of OpenAI's APIs: those of rp_role_parse, developer and function. false: unknown. */
bool openai_parse_role(const char *name, rp_role *role);
/* Fields that would change the answer and cannot be honoured. */
void openai_refuse(const server_fields *f, const char *const *names);

/* {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details": {"cached_tokens",
 * "cache_write_tokens"}, "completion_tokens_details": {"reasoning_tokens"}, "prompt_cache_hit_tokens",
 * "prompt_cache_miss_tokens"}; the last two are DeepSeek's. */
json_t *openai_usage(const server_request *x);
/* "stop", "length" or "tool_calls" */
const char *openai_finish(const server_choice *c);

/* "data: [DONE]", and an error in mid-stream. */
int openai_done(server_request *x);
int openai_fail(server_request *x, const server_problem *p);

/* ---- openai_logprobs.c ---- */

/* A number for JSON, which has no infinity. */
double openai_logprob(float logprob);
/* A list of {"token", "logprob", "bytes", "top_logprobs"}: the tokens of an answer, of a piece of a stream.
 * n_logprobs of the request must be 0 or more. NULL: out of memory. */
json_t *openai_result_logprobs(const server_request *x, const rp_result *r);
json_t *openai_piece_logprobs(const server_request *x, const server_piece *piece);

/* vLLM's prompt_logprobs: null for the first token, else {"ID": {"logprob", "rank", "decoded_token"}, ...} of the most
 * likely tokens and of the token itself. NULL: out of memory. */
json_t *openai_prompt_logprobs(const server_request *x, const rp_result *r);

/* The bytes of a token, as text; and as numbers. */
json_t *openai_token_text(const server_request *x, int32_t token);
json_t *openai_token_bytes(const server_request *x, int32_t token);

#endif
