/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_chat.h: conversations with tools, reasoning and forms of answers. Conventions are those of reprise.h.
 *
 *   rp_chat_options --rp_chat_new--> rp_chat --rp_chat_run--> rp_result --rp_chat_parse--> text, reasoning, calls
 *                                      |
 *                                      +--rp_chat_submit--> pieces of text --rp_chat_reader--> the same, as it arrives
 *
 * A chat is one turn: the messages as the model's chat template renders them, and the grammar of the answer. The next turn is a new chat, with the
 * answer and the results of its calls as messages; the prefix cache has the KV of the turns before it. How a model writes calls and reasoning is
 * detected from its file (docs/tools.md).
 */
#ifndef REPRISE_CHAT_H
#define REPRISE_CHAT_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RP_MAX_TOOLS 512
#define RP_MAX_TOOL_NAME_BYTES 128

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

/* A function that the model may call. Strings are UTF-8. */
typedef struct rp_tool {
    const char *name;        /* letters, digits and _-.: */
    const char *description; /* NULL: none */
    const char *parameters;  /* JSON Schema of the arguments, an object; NULL: it has no arguments */
    bool strict;             /* a keyword of `parameters` that cannot be enforced is an error; otherwise it is a warning */
} rp_tool;

typedef struct rp_tool_call {
    const char *id; /* "call_0"; unique in a conversation; NULL: none */
    const char *name;
    const char *arguments; /* a JSON object */
    bool is_whole;         /* of an answer: the arguments are complete, which max_tokens can prevent */
} rp_tool_call;

typedef struct rp_chat_message {
    rp_role role;
    const char *text;          /* NULL: "" */
    const char *reasoning;     /* RP_ROLE_ASSISTANT: of an earlier answer; NULL: none */
    const rp_tool_call *calls; /* RP_ROLE_ASSISTANT: n_calls of an earlier answer */
    size_t n_calls;
    const char *call_id; /* RP_ROLE_TOOL: the call whose result `text` is. NULL: results are those of the calls before them, in their order */
} rp_chat_message;

/* ---- Input of chat templates ------------------------------------------------------------------------------------- */

/* The variables of a template (rp_template, reprise.h) without JSON in between: a builder, to which values are added in their order:
 *
 *   rp_template_input_key(in, "messages");
 *   rp_template_input_begin_list(in);
 *     rp_template_input_begin_dict(in);
 *       rp_template_input_key(in, "role");     rp_template_input_text(in, "user", 4);
 *       rp_template_input_key(in, "content");  const uint32_t content = rp_template_input_text(in, text, n);
 *     rp_template_input_end(in);
 *   rp_template_input_end(in);
 *   rp_template_input_key(in, "add_generation_prompt");
 *   rp_template_input_json(in, "true", 4);
 *
 * Errors are kept, and reported by the rendering: RP_ERR_INVALID (a text is not UTF-8; values, keys and ends do not match), RP_ERR_LIMIT (more than
 * 128 MiB of texts, or 128 levels), RP_ERR_MEMORY. One thread adds; then any number of threads may render the input, any number of times. */
RP_API int rp_template_input_new(rp_template_input **out, rp_error *err);
RP_API void rp_template_input_free(rp_template_input *in);
/* The key of the next value, in a dict; the variables themselves are one. Copied. */
RP_API void rp_template_input_key(rp_template_input *in, const char *name);
/* Adds n bytes of UTF-8; copied. Returns the origin that they have in rendered text (rp_template_run); 0: an error. Untrusted, except the usual names
 * of roles at the key "role" of messages. */
RP_API uint32_t rp_template_input_text(rp_template_input *in, const char *text, size_t n);
/* Adds a value that is given as JSON, of any type: "null", "true", "12", a tool's JSON Schema. Copied. Its strings are numbered in their order. */
RP_API void rp_template_input_json(rp_template_input *in, const char *json, size_t n);
RP_API void rp_template_input_begin_dict(rp_template_input *in);
RP_API void rp_template_input_begin_list(rp_template_input *in);
RP_API void rp_template_input_end(rp_template_input *in); /* of the last list or dict that was begun */

/* rp_template_render and rp_model_render (reprise.h) of values. */
RP_API int rp_template_render_input(const rp_template *t, const rp_template_input *in, const rp_template_options *options, rp_template_text **out,
                                    rp_error *err);
RP_API int rp_model_render_input(const rp_model *model, const rp_template_input *in, const rp_template_options *options, rp_template_text **out,
                                 rp_error *err);

/* ---- Options ----------------------------------------------------------------------------------------------------- */

typedef enum rp_tool_choice {
    RP_TOOL_CHOICE_AUTO,     /* the model decides */
    RP_TOOL_CHOICE_NONE,     /* no calls */
    RP_TOOL_CHOICE_REQUIRED, /* at least one call */
} rp_tool_choice;

typedef enum rp_thinking {
    RP_THINKING_DEFAULT, /* as the chat template has it */
    RP_THINKING_OFF,     /* the template's variable enable_thinking is false, and a grammar has no place for reasoning */
    RP_THINKING_ON,
} rp_thinking;

/* All pointers are borrowed during rp_chat_new. */
typedef struct rp_chat_options {
    uint32_t struct_size;
    const rp_chat_message *messages; /* n_messages, 1 to RP_MAX_MESSAGES */
    size_t n_messages;
    const rp_tool *tools; /* n_tools, up to RP_MAX_TOOLS; default: none */
    size_t n_tools;
    rp_tool_choice tool_choice;
    const char *tool_name;   /* the only tool that may be called; NULL: all of them */
    bool one_call;           /* at most one call in the answer */
    const char *json_schema; /* the answer is JSON that matches this JSON Schema; NULL: any text. With tools: or a call */
    bool json_object;        /* the answer is any JSON object */
    const char *regex;       /* the answer matches this regular expression as a whole; at most one of json_schema, json_object, regex */
    rp_thinking thinking;
} rp_chat_options;

RP_API void rp_chat_options_init(rp_chat_options *options, uint32_t struct_size);
static inline rp_chat_options rp_chat_options_defaults(void) {
    rp_chat_options o;
    rp_chat_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* ---- Chats ------------------------------------------------------------------------------------------------------- */

/* Immutable; any number of threads and engines may use one. Jobs and readers keep what they need of it: it may be freed before them. */
typedef struct rp_chat rp_chat;

/* Renders the messages by the model's chat template, or in its chat format if it has none, and makes the grammar of the answer.
 * *out: rp_chat_free; NULL on failure. The model must outlive it.
 * RP_ERR_INVALID (messages, tool names, malformed JSON, a schema or a regular expression that cannot be enforced, two forms, a chat template that
 * refuses the conversation; `where` is the option: "tools[0].parameters.properties.x"), RP_ERR_UNSUPPORTED (a keyword of a strict schema),
 * RP_ERR_NAME (tool_name), RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_chat_new(rp_chat **out, const rp_model *model, const rp_chat_options *options, rp_error *err);
RP_API void rp_chat_free(rp_chat *chat);

/* The grammar of the answer (rp_request.grammar), and the text after which it applies (rp_request.grammar_trigger). NULL: none. Owned by the chat. */
RP_API const char *rp_chat_grammar(const rp_chat *chat);
RP_API const char *rp_chat_trigger(const rp_chat *chat);
/* The i-th part of a schema that the grammar does not enforce, with its reason; NULL past the end. Owned by the chat. */
RP_API const char *rp_chat_warning(const rp_chat *chat, size_t i);

/* rp_engine_submit and rp_engine_run with the chat's prompt and grammar. Stop strings count in the answer's text (rp_on_stop), and answers of the
 * engine in the messages are known by what they mean (rp_on_meaning), unless the request has callbacks of its own for these.
 * engine    of the chat's model.
 * request   sampling, stops, max_tokens and so on; NULL: the defaults. It must have no prompt and no grammar (RP_ERR_INVALID).
 * Errors of rp_engine_submit and rp_engine_run. */
RP_API int rp_chat_submit(const rp_chat *chat, rp_engine *engine, const rp_request *request, rp_job **out, rp_error *err);
RP_API int rp_chat_run(const rp_chat *chat, rp_engine *engine, const rp_request *request, rp_result **out, rp_error *err);

/* Does the model write marks of calls or reasoning as control tokens? Then a request for raw text needs them (rp_chat_run requests them). */
RP_API bool rp_model_writes_control_marks(const rp_model *model);

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

/* The parts of an answer; white space and marks around calls and reasoning belong to none of them. */
typedef struct rp_chat_answer {
    uint32_t struct_size;
    char *text; /* UTF-8 as far as the answer is; never NULL */
    size_t n_text;
    char *reasoning; /* "": none */
    size_t n_reasoning;
    rp_tool_call *calls; /* n_calls; their ids count the calls of the conversation */
    size_t n_calls;
} rp_chat_answer;

/* Parses a complete answer of n bytes (rp_result.text). *out: rp_chat_answer_free; NULL on failure. RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_chat_parse(const rp_chat *chat, const char *text, size_t n, rp_chat_answer **out, rp_error *err);
RP_API void rp_chat_answer_free(rp_chat_answer *answer);

/* Events of an answer that is read piece by piece, in its order. They do not depend on how it was cut; their bytes may end within a character. */
typedef enum rp_chat_event {
    RP_CHAT_TEXT,      /* n more bytes of the text */
    RP_CHAT_REASONING, /* n more bytes of the reasoning */
    RP_CHAT_CALL,      /* a call begins: its id and its name are known */
    RP_CHAT_ARGUMENTS, /* n more bytes of its arguments */
    RP_CHAT_CALL_END,  /* the call has ended: is_whole, and all of its arguments */
} rp_chat_event;

/* call: NULL for text and reasoning; its arguments are those that have arrived. All pointers are borrowed during the call. Return false to stop
 * reading. */
typedef bool (*rp_on_chat_event)(void *user, rp_chat_event event, const rp_tool_call *call, const char *bytes, size_t n);

/* Reads one answer as it is generated: what may begin a call or reasoning is held back until that is decided. One thread at a time. */
typedef struct rp_chat_reader rp_chat_reader;

/* on_event may be NULL. *out: rp_chat_reader_free; NULL on failure. RP_ERR_INVALID, RP_ERR_MEMORY. */
RP_API int rp_chat_reader_new(rp_chat_reader **out, const rp_chat *chat, rp_on_chat_event on_event, void *user, rp_error *err);
/* The next n bytes of the answer, as rp_on_text and rp_stream_read give them. RP_ERR_CANCELLED (on_event), RP_ERR_LIMIT, RP_ERR_MEMORY; after an
 * error, or rp_chat_reader_end, RP_ERR_INVALID. */
RP_API int rp_chat_reader_feed(rp_chat_reader *reader, const char *text, size_t n, rp_error *err);
/* The answer is complete: reports what was held back. *out: all of its parts, rp_chat_answer_free; NULL on failure. out: NULL if they are not wanted.
 * Errors of rp_chat_reader_feed. */
RP_API int rp_chat_reader_end(rp_chat_reader *reader, rp_chat_answer **out, rp_error *err);
RP_API void rp_chat_reader_free(rp_chat_reader *reader);

/* ---- Grammars ---------------------------------------------------------------------------------------------------- */

/* A GBNF grammar of the JSON that a JSON Schema of n bytes allows, for rp_request.grammar; docs/server.md lists the keywords. *out: rp_free; NULL
 * on failure. RP_ERR_INVALID (malformed JSON or schema, too large), RP_ERR_UNSUPPORTED (a keyword that cannot be enforced), RP_ERR_MEMORY. */
RP_API int rp_json_schema_grammar(const char *schema, size_t n, char **out, rp_error *err);

#ifdef __cplusplus
}
#endif

#endif
