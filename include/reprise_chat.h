/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_chat.h: conversations with tools, reasoning and forms of answers. Conventions are those of reprise.h.
 *
 *   rp_chat_options --rp_chat_new--> rp_chat --rp_chat_run--> rp_result --rp_chat_parse--> text, reasoning, calls
 *                                      |
 *                                      +--rp_chat_submit--> pieces of text --rp_chat_reader--> the same, as it arrives
 *
 * A chat is one turn: the messages as the model's chat template renders them, and the grammar of the answer. The next
 * turn is a new chat, with the answer and the results of its calls as messages; the prefix cache has the KV of the
 * turns before it. How a model writes calls and reasoning is detected from its file (docs/tools.md).
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
    bool strict;             /* a keyword of `parameters` that cannot be enforced is an error; otherwise it is a
                                warning */
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
    const char *call_id; /* RP_ROLE_TOOL: the call whose result `text` is. NULL: results are those of the calls
                            before them, in their order */
} rp_chat_message;

/* ---- Chat templates ---- */

/* A model's own chat template: the Jinja that is in its file, or any other, parsed once (docs/templates.md). It
 * renders a conversation as Python's Jinja2 does in transformers, byte for byte, errors included. It sees its input
 * only, and its time and memory are limited: templates of foreign files are safe. Immutable: any number of threads
 * may render it. */
/* The variables of a rendering, as values ('Input of chat templates', below). */
typedef struct rp_template_input rp_template_input;

/* Where bytes of a rendered text are from. Control tokens are recognised in trusted text only. A larger value is the
 * number of a string of the input: values in the order of the JSON text, or in which they were added, from
 * RP_TEMPLATE_FIRST_STRING on; keys are not counted. */
#define RP_TEMPLATE_TRUSTED 0u   /* the template's own text */
#define RP_TEMPLATE_UNTRUSTED 1u /* made of the input: JSON, names */
#define RP_TEMPLATE_FIRST_STRING 2u

/* Consecutive bytes of one origin. */
typedef struct rp_template_run {
    size_t end;    /* the run ends before this byte of the text, and begins where the run before it ends */
    size_t offset; /* of a string of the input: the run's first byte in it; SIZE_MAX: the template changed the
                      bytes */
    uint32_t origin;
} rp_template_run;

/* A rendered conversation: n bytes of UTF-8, also NUL-terminated, in n_runs runs. */
struct rp_template_text {
    char *bytes;
    size_t n;
    rp_template_run *runs;
    size_t n_runs;
};

/* A message in a rendered text: where its content ends. */
struct rp_rendered_turn {
    size_t end;
    rp_role role;
};

/* Asked on the rendering thread, about every millisecond of a rendering: false cancels it (RP_ERR_CANCELLED). */
typedef bool (*rp_on_look)(void *user);

/* Steps of a rendering: the evaluation of a node, an item, some bytes of text; 10 ns each, 20 at most. A template
 * that takes more fails. */
#define RP_TEMPLATE_MAX_STEPS ((uint64_t)50000000)

/* Why a rendering failed, for a caller that gives the template another form of the conversation. */
typedef enum rp_template_failure {
    RP_TEMPLATE_RENDERED,   /* it did not */
    RP_TEMPLATE_REFUSED,    /* the template refuses the conversation (raise_exception) */
    RP_TEMPLATE_WRONG_TYPE, /* a value has a type that the template does not expect ("TypeError: ...") */
    RP_TEMPLATE_FAILED,     /* anything else */
} rp_template_failure;

typedef struct rp_template_options {
    uint32_t struct_size;
    bool has_time; /* false (default): strftime_now is the local time; true: `time` */
    int64_t time;  /* seconds since 1970-01-01 00:00, in the time zone to print */
    /* How many steps may be taken, RP_TEMPLATE_MAX_STEPS at most; lowered by those that were taken, so that several
     * renderings can share a limit. NULL (default): RP_TEMPLATE_MAX_STEPS. */
    uint64_t *steps_left;
    rp_on_look on_look; /* NULL (default): the rendering cannot be cancelled */
    void *user;         /* of on_look */
    /* n_trusted pairs of a name and a text, borrowed: more variables, unless the JSON has them. Their texts are
     * trusted. */
    const char *const *trusted;
    size_t n_trusted;
    rp_template_failure *failure; /* set by each rendering; NULL (default): not wanted */
} rp_template_options;

RP_API void rp_template_options_init(rp_template_options *options, uint32_t struct_size);
static inline rp_template_options rp_template_options_defaults(void) {
    rp_template_options o;
    rp_template_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* Parses a template of n bytes of UTF-8. name: in errors. RP_ERR_SYNTAX (at "name:line"), RP_ERR_UNSUPPORTED (a
 * statement, filter or test that chat templates do not use), RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_template_new(rp_template **out, const char *source, size_t n, const char *name, rp_error *err);
RP_API void rp_template_free(rp_template *t);
/* The model's template; NULL: it has none, or none that can be parsed, or rp_model_options.chat_format replaces it.
 * Belongs to the model. */
RP_API const rp_template *rp_model_template(const rp_model *model);
/* Does the template use this variable? */
RP_API bool rp_template_uses(const rp_template *t, const char *variable);
/* Renders the template with the members of a JSON object as its variables: messages, tools, add_generation_prompt,
 * ... Strings of the object are untrusted, except usual roles of messages. options: NULL for the defaults.
 * RP_ERR_INVALID (the JSON is malformed, or the template fails: "TypeError: ...", at "name:line"), RP_ERR_LIMIT (at
 * "name:line": the template takes too many steps or too much memory), RP_ERR_CANCELLED, RP_ERR_MEMORY. *out:
 * rp_template_text_free; NULL on failure. */
RP_API int rp_template_render(const rp_template *t, const char *json, size_t n, const rp_template_options *options,
                              rp_template_text **out, rp_error *err);
RP_API void rp_template_text_free(rp_template_text *text);
/* rp_template_render with the model's template and, unless the JSON has them, its bos_token, eos_token, unk_token and
 * pad_token. If the model wants a beginning-of-text token and the template writes none, the text is preceded by it.
 * Also RP_ERR_UNSUPPORTED (rp_model_template is NULL). */
RP_API int rp_model_render(const rp_model *model, const char *json, size_t n, const rp_template_options *options,
                           rp_template_text **out, rp_error *err);
/* Converts a rendered conversation to tokens, as RP_PROMPT_RENDERED does: after the beginning-of-text token, if the
 * model wants one and the text does not begin with it. *tokens: owned by the caller, rp_free. RP_ERR_INVALID
 * (malformed runs), RP_ERR_MEMORY, RP_ERR_LIMIT. */
RP_API int rp_tokenize_rendered(const rp_model *model, const rp_template_text *text, int32_t **tokens,
                                size_t *n_tokens, rp_error *err);
/* Counts those tokens. ends[n_turns]: how many there are up to the end of each turn, what the template writes after
 * its content included; turns in the order of the text. Errors as above, and RP_ERR_LIMIT for more than
 * RP_MAX_MESSAGES turns. */
RP_API int rp_count_rendered(const rp_model *model, const rp_template_text *text, const rp_rendered_turn *turns,
                             size_t n_turns, size_t *ends, size_t *n_tokens, rp_error *err);

/* ---- Input of chat templates ------------------------------------------------------------------------------------- */

/* The variables of a template without JSON in between: a builder, to which values are added in their order:
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
 * Errors are kept, and reported by the rendering: RP_ERR_INVALID (a text is not UTF-8; values, keys and ends do not
 * match), RP_ERR_LIMIT (more than 128 MiB of texts, or 128 levels), RP_ERR_MEMORY. One thread adds; then any number
 * of threads may render the input, any number of times. */
RP_API int rp_template_input_new(rp_template_input **out, rp_error *err);
RP_API void rp_template_input_free(rp_template_input *in);
/* The key of the next value, in a dict; the variables themselves are one. Copied. */
RP_API void rp_template_input_key(rp_template_input *in, const char *name);
/* Adds n bytes of UTF-8; copied. Returns the origin that they have in rendered text (rp_template_run); 0: an error.
 * Untrusted, except the usual names of roles at the key "role" of messages. */
RP_API uint32_t rp_template_input_text(rp_template_input *in, const char *text, size_t n);
/* Adds a value that is given as JSON, of any type: "null", "true", "12", a tool's JSON Schema. Copied. Its strings
 * are numbered in their order. */
RP_API void rp_template_input_json(rp_template_input *in, const char *json, size_t n);
RP_API void rp_template_input_begin_dict(rp_template_input *in);
RP_API void rp_template_input_begin_list(rp_template_input *in);
RP_API void rp_template_input_end(rp_template_input *in); /* of the last list or dict that was begun */

/* rp_template_render and rp_model_render of values. */
RP_API int rp_template_render_input(const rp_template *t, const rp_template_input *in,
                                    const rp_template_options *options, rp_template_text **out, rp_error *err);
RP_API int rp_model_render_input(const rp_model *model, const rp_template_input *in,
                                 const rp_template_options *options, rp_template_text **out, rp_error *err);

/* ---- Options ----------------------------------------------------------------------------------------------------- */

typedef enum rp_tool_choice {
    RP_TOOL_CHOICE_AUTO,     /* the model decides */
    RP_TOOL_CHOICE_NONE,     /* no calls */
    RP_TOOL_CHOICE_REQUIRED, /* at least one call */
} rp_tool_choice;

typedef enum rp_thinking {
    RP_THINKING_DEFAULT, /* as the chat template has it */
    RP_THINKING_OFF,     /* the template's variable enable_thinking is false, and a grammar has no place for
                            reasoning */
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
    const char *json_schema; /* the answer is JSON that matches this JSON Schema; NULL: any text. With tools: or a
                                call */
    bool json_object;        /* the answer is any JSON object */
    const char *regex;       /* the answer matches this regular expression as a whole; at most one of json_schema,
                                json_object, regex */
    rp_thinking thinking;
} rp_chat_options;

RP_API void rp_chat_options_init(rp_chat_options *options, uint32_t struct_size);
static inline rp_chat_options rp_chat_options_defaults(void) {
    rp_chat_options o;
    rp_chat_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* ---- Chats ------------------------------------------------------------------------------------------------------- */

/* Immutable; any number of threads and engines may use one. Jobs and readers keep what they need of it: it may be
 * freed before them. */
typedef struct rp_chat rp_chat;

/* Renders the messages by the model's chat template, or in its chat format if it has none, and makes the grammar of
 * the answer. *out: rp_chat_free; NULL on failure. The model must outlive it. RP_ERR_INVALID (messages, tool names,
 * texts of tools and calls that are not UTF-8, malformed JSON, a schema or a regular expression that cannot be
 * enforced, two forms, a chat template that refuses the conversation; `where` is the option:
 * "tools[0].parameters.properties.x"), RP_ERR_UNSUPPORTED (a keyword of a strict schema), RP_ERR_NAME (tool_name),
 * RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_chat_new(rp_chat **out, const rp_model *model, const rp_chat_options *options, rp_error *err);
RP_API void rp_chat_free(rp_chat *chat);

/* The grammar of the answer (rp_request.grammar), and the text after which it applies (rp_request.grammar_trigger).
 * NULL: none. Owned by the chat. */
RP_API const char *rp_chat_grammar(const rp_chat *chat);
RP_API const char *rp_chat_trigger(const rp_chat *chat);
/* The i-th part of a schema that the grammar does not enforce, with its reason; NULL past the end. The chat's. */
RP_API const char *rp_chat_warning(const rp_chat *chat, size_t i);

/* rp_engine_submit and rp_engine_run with the chat's prompt and grammar. Stop strings count in the answer's text
 * (rp_on_stop), and answers of the engine in the messages are known by what they mean (rp_on_meaning), unless the
 * request has callbacks of its own for these.
 * engine    of the chat's model.
 * request   sampling, stops, max_tokens and so on; NULL: the defaults. It must have no prompt and no grammar
 *           (RP_ERR_INVALID).
 * Errors of rp_engine_submit and rp_engine_run. */
RP_API int rp_chat_submit(const rp_chat *chat, rp_engine *engine, const rp_request *request, rp_job **out,
                          rp_error *err);
RP_API int rp_chat_run(const rp_chat *chat, rp_engine *engine, const rp_request *request, rp_result **out,
                       rp_error *err);

/* Does the model write marks of calls or reasoning as control tokens? Then a request for raw text needs them
 * (rp_chat_run requests them). */
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

/* Parses a complete answer of n bytes (rp_result.text). *out: rp_chat_answer_free; NULL on failure. RP_ERR_LIMIT,
 * RP_ERR_MEMORY. */
RP_API int rp_chat_parse(const rp_chat *chat, const char *text, size_t n, rp_chat_answer **out, rp_error *err);
RP_API void rp_chat_answer_free(rp_chat_answer *answer);

/* Events of an answer that is read piece by piece, in its order. They do not depend on how it was cut; their bytes
 * may end within a character. */
typedef enum rp_chat_event {
    RP_CHAT_TEXT,      /* n more bytes of the text */
    RP_CHAT_REASONING, /* n more bytes of the reasoning */
    RP_CHAT_CALL,      /* a call begins: its id and its name are known */
    RP_CHAT_ARGUMENTS, /* n more bytes of its arguments */
    RP_CHAT_CALL_END,  /* the call has ended: is_whole, and all of its arguments */
} rp_chat_event;

/* call: NULL for text and reasoning; its arguments are those that have arrived. All pointers are borrowed during the
 * call. Return false to stop reading. Functions of the reader that calls it must not be called from within: feed and
 * end return RP_ERR_INVALID then, and rp_chat_reader_free does nothing. */
typedef bool (*rp_on_chat_event)(void *user, rp_chat_event event, const rp_tool_call *call, const char *bytes,
                                 size_t n);

/* Reads one answer as it is generated: what may begin a call or reasoning is held back until that is decided. One
 * thread at a time. */
typedef struct rp_chat_reader rp_chat_reader;

/* on_event may be NULL. *out: rp_chat_reader_free; NULL on failure. RP_ERR_INVALID, RP_ERR_MEMORY. */
RP_API int rp_chat_reader_new(rp_chat_reader **out, const rp_chat *chat, rp_on_chat_event on_event, void *user,
                              rp_error *err);
/* The next n bytes of the answer, as rp_on_text and rp_stream_read give them. RP_ERR_CANCELLED (on_event),
 * RP_ERR_LIMIT, RP_ERR_MEMORY; after an error, or rp_chat_reader_end, RP_ERR_INVALID. */
RP_API int rp_chat_reader_feed(rp_chat_reader *reader, const char *text, size_t n, rp_error *err);
/* The answer is complete: reports what was held back. *out: all of its parts, rp_chat_answer_free; NULL on failure.
 * out: NULL if they are not wanted. Errors of rp_chat_reader_feed. */
RP_API int rp_chat_reader_end(rp_chat_reader *reader, rp_chat_answer **out, rp_error *err);
RP_API void rp_chat_reader_free(rp_chat_reader *reader);

/* ---- Grammars ---------------------------------------------------------------------------------------------------- */

/* A GBNF grammar of the JSON that a JSON Schema of n bytes allows, for rp_request.grammar; docs/server.md lists the
 * keywords. *out: rp_free; NULL on failure. RP_ERR_INVALID (malformed JSON or schema, too large), RP_ERR_UNSUPPORTED
 * (a keyword that cannot be enforced), RP_ERR_MEMORY. */
RP_API int rp_json_schema_grammar(const char *schema, size_t n, char **out, rp_error *err);

/* ---- Infill ---- */

/* A file of context before an infill. */
typedef struct rp_infill_file {
    const char *name; /* NULL: none */
    const char *text; /* n_bytes of UTF-8 */
    size_t n_bytes;
} rp_infill_file;

/* The prompt of an infill: what is written between `prefix` and `suffix`. No text is parsed for control tokens.
 * Initialise it with {.struct_size = sizeof(rp_infill)}; a text of 0 bytes may be NULL. */
typedef struct rp_infill {
    uint32_t struct_size;
    const char *prefix, *suffix;
    size_t n_prefix, n_suffix;
    const char *begun; /* the beginning of the infill */
    size_t n_begun;
    const rp_infill_file *files; /* n_files, before the text; NULL: none */
    int32_t n_files;
} rp_infill;

/* Converts an infill: the beginning-of-text token (if the model wants one), and the texts between the model's
 * fill-in-the-middle tokens, in the order of its family. *tokens: owned by the caller, rp_free; input of
 * rp_prompt_tokens. RP_ERR_UNSUPPORTED (the model has no such tokens: rp_model_info.infills), RP_ERR_INVALID,
 * RP_ERR_MEMORY, RP_ERR_LIMIT. */
RP_API int rp_tokenize_infill(const rp_model *model, const rp_infill *infill, int32_t **tokens, size_t *n_tokens,
                              rp_error *err);

#ifdef __cplusplus
}
#endif

#endif
