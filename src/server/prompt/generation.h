/* SPDX-License-Identifier: Apache-2.0 */
/* generation.h: the parameters of a request in any dialect: a prompt in one of its forms, sampling, and the requested
 * output.
 *
 * A parser (generation_parse) fills it in from a JSON object, and knows neither model nor engine. Strings are borrowed
 * from that object, to which the generation holds a reference, or from `owned`. One thread at a time.
 */
#ifndef SERVER_GENERATION_H
#define SERVER_GENERATION_H

#include <math.h>

#include "server/core/fields.h"
#include "structured/answer_form.h"
#include "structured/chat_input.h"
#include "reprise_chat.h"

/* An answer's tokens in APIs that have no limit by default (Responses, Ollama), without a limit in the request: an
 * agent writes whole files, and takes a truncated answer for a failure. Not the rest of the context, which would be
 * reserved. */
#define SERVER_UNLIMITED_TOKENS 16384

#define SERVER_MAX_CHOICES 128     /* answers to one request, of all prompts together */
#define SERVER_MAX_EMBEDDINGS 2048 /* texts to embed of one request */
#define SERVER_MAX_BIAS 1024
#define SERVER_MAX_PARTS 65536                     /* of a message's content */
#define SERVER_MAX_JOINED_BYTES ((size_t)64 << 20) /* of a content's parts together */
#define SERVER_MAX_PROMPT_TOKENS ((size_t)1 << 24) /* given as ids */

/* A prompt of a completion: a text, or token ids (prompt_tokens.h). */
typedef struct server_prompt {
    const char *text;   /* of ids: NULL, or the echoed text */
    const char *second; /* of a pair to rank: the document; NULL: none */
    const json_t *ids;  /* integers, and texts if the dialect allows them; NULL: a text */
    int32_t *tokens;    /* [n_tokens] of ids, or of a text to embed; owned */
    size_t n_tokens;
} server_prompt;

#define SERVER_MAX_INFILL_FILES 1024

#define SERVER_MAX_UNKNOWN 16 /* unknown fields that an answer names */

/* Fields that Reprise adds to every dialect (generation_extras), for generation_known. */
#define SERVER_EXTRA_FIELDS \
    "top_k min_p typical_p repeat_penalty repeat_last_n ignore_eos priority deadline_ms n_draft shifted_reuse reuse " \
    "quality " \
    "kv_keep kv_method kept_shares truncation context_shift cache_salt lora grammar grammar_trigger enable_thinking " \
    "reasoning_effort " \
    "chat_template_kwargs include_reasoning stop_in_reasoning " SERVER_GUIDED_FIELDS

/* vLLM's (guided.h). */
#define SERVER_GUIDED_FIELDS \
    "guided_json guided_regex guided_choice guided_grammar guided_whitespace_pattern guided_decoding_backend " \
    "structured_outputs "

#define SERVER_SESSION_NAME 33 /* 32 hexadecimal digits */

#define SERVER_MAX_TOOLS 512
#define SERVER_MAX_TOOL_NAME 128 /* bytes */
#define SERVER_MAX_CALLS 4096    /* in a conversation */
#define SERVER_FREEFORM_INPUT "input"

/* A form of the answer in vLLM's fields (guided.h): at most one of schema, grammar, form.regex and form.choices. */
typedef struct server_guided {
    const char *field;    /* that asks for it: "guided_regex", "structured_outputs.regex"; NULL: none */
    bool json_object;     /* any JSON object */
    const json_t *schema; /* of JSON */
    const char *grammar;
    json_t *owned; /* a schema that was given as text; a reference */
} server_guided;

/* What an infill is made of, beside the prompts, which are the texts before the gap. */
typedef struct server_infill {
    bool wanted;
    const char *suffix; /* after the gap; not NULL if it is wanted */
    size_t n_suffix;
    const char *begun;   /* the beginning of the answer */
    const json_t *files; /* an array of {"filename", "text"}; NULL: none */
} server_infill;

/* Content of a message that is not plain text, or that is a part of its own: input of prompt/conversation_prompt.h. */
typedef enum server_part_kind {
    SERVER_PART_TEXT,     /* [begin, end) of the message's text, given as a part */
    SERVER_PART_DOCUMENT, /* likewise, of type document */
    SERVER_PART_PML,      /* the content of a <prompt schema='s'> document, at `begin` */
    SERVER_PART_MODULE,   /* a module of a schema, at `begin` */
} server_part_kind;

typedef struct server_part {
    server_part_kind kind;
    size_t message;            /* its index */
    size_t begin, end;         /* in its text */
    size_t order;              /* among parts at one place (tools.c) */
    const char *pml;           /* PML: the document */
    const char *schema, *name; /* MODULE: and the module's path, "plan/miami" */
    const json_t *args;        /* MODULE: an object, or NULL */
} server_part;

/* What a request for embeddings, or for the order of documents, asks for (embedding_request.h). */
typedef struct generation_embedding {
    rp_pooling pooling; /* OFF: the request is for answers */
    int32_t dimensions; /* 0: all */
    bool raw;           /* not scaled to length 1 */
    bool cuts;          /* texts that are too long lose their end */
    bool base64;
    const char *query; /* of a rerank; NULL: none */
    const json_t *documents;
    int32_t top_n;
    bool returns_documents, raw_scores; /* raw_scores: as the rank head gives them, not from 0 to 1 */
} generation_embedding;

#define SERVER_MAX_NOISE 32

/* A piece of text that a rule moved or left out (agent_noise.h). */
typedef struct generation_noise {
    const char *rule, *text; /* [n] as it was sent; of a message that moved as a whole: n is 0 */
    size_t n;
    rp_role role; /* of its message, with its number among those of the role, from 1 */
    int number;
    bool dropped;
} generation_noise;

/* What of a conversation is marked for the cache: everything up to the last mark. */
typedef enum server_mark { SERVER_MARK_ANY,
                           SERVER_MARK_LONG /* kept for an hour */,
                           SERVER_N_MARKS } server_mark;
typedef struct generation_marked {
    size_t n_messages; /* up to the last one with a mark; 0: none */
    bool has_tools;    /* the tool definitions have one */
} generation_marked;

typedef struct generation {
    json_t *root; /* a reference */
    json_t *made; /* an array of values made for it; NULL: none */
    char **owned; /* assembled strings */
    size_t n_owned, cap_owned;

    /* The prompt: one of these. */
    rp_message *messages;
    size_t n_messages, cap_messages;
    bool continues_last;
    size_t stable_bytes; /* of the first message: text moved to its end starts here (agent_noise.h); 0: none */
    bool noise_settled;
    generation_noise noise[SERVER_MAX_NOISE]; /* what agent_noise.h moved or left out */
    size_t n_noise;
    generation_marked marked[SERVER_N_MARKS]; /* what cache_control marks (Anthropic) */
    server_part *parts;                       /* by message, then by place */
    size_t n_parts, cap_parts;
    int32_t n_split;            /* of them: between separators (document_split.h) */
    bool has_markup;            /* some parts are PML or modules */
    uint64_t steps_left;        /* of the model's template, for all renderings of the request */
    rp_template_text *rendered; /* the messages, written by the model's template (chat_rendering.h); NULL: they have the
                                   built-in format. Owned */
    chat_style rendered_style;  /* of `rendered` */
    size_t rendered_first;      /* the first message in it, besides leading system messages */
    /* why the prefix cache missed, if the template is the reason (template_hint.h); NULL: another. A reference */
    json_t *template_hint;
    /* [n_messages] the numbers that its origins have for their contents; 0: left out (truncation). Owned */
    uint32_t *rendered_sources;
    rp_rendered_turn *rendered_turns; /* [n_rendered_turns] its messages; owned */
    size_t n_rendered_turns;
    server_prompt *prompts; /* of completions: each gets n answers */
    size_t n_prompts, cap_prompts;
    const char *pml;
    rp_builder *built;        /* built from parts; owned */
    const char *built_schema; /* the name of its schema; NULL: its modules are its documents */

    answer_form form; /* tools and the format of the answer; its convention and reasoning_open are set by the server
                         before the prompt is made */
    size_t cap_tools;
    chat_call *calls; /* by rising message */
    size_t n_calls, cap_calls;
    chat_result *results; /* likewise */
    size_t n_results, cap_results;
    const char *grammar, *grammar_trigger; /* from the client, or from tools_constrain; NULL: none */
    server_guided guided;
    server_infill infill;

    bool special_text; /* the model's marks are control tokens: rp_request.special_text; set with the form's convention
                          */

    /* Reasoning, for the template. */
    const char *reasoning_effort;  /* NULL: not given */
    int32_t thinking_tokens;       /* budget; -1: not given */
    const json_t *template_kwargs; /* chat_template_kwargs, an object; NULL: none */
    bool hides_reasoning;          /* the client wants no reasoning in the answer; it is counted in any case */
    chat_reasoning *reasonings;    /* by rising message */
    size_t n_reasonings, cap_reasonings;

    generation_embedding embedding;

    const char *unknown[SERVER_MAX_UNKNOWN]; /* names of unknown fields: "stream_options.x" */
    size_t n_unknown;                        /* may exceed the array */
    const char *ignored[SERVER_MAX_UNKNOWN]; /* known things that are left out: "tools[3] of type 'web_search'" */
    size_t n_ignored;                        /* likewise */

    const char *model; /* NULL: any */

    size_t n_earlier; /* items of the input that come from the answer before it (kept_answers.h) */

    const char *cache_salt;                  /* NULL: none */
    bool is_diagnosed;                       /* its fingerprint is kept for later requests (request_fingerprint.h) */
    const char *compared_id;                 /* the answer whose request it is compared with; NULL: none */
    struct request_fingerprint *fingerprint; /* NULL: not made; owned */
    char session[SERVER_SESSION_NAME],
        parent_session[SERVER_SESSION_NAME]; /* hashes of their names (client_session.h); "": none */
    bool ends_session;
    bool adds_nothing;      /* reuse: read */
    int32_t retention_s;    /* the longest time for which the request asks to keep its prompt in the cache; 0: none
                               (generation_retain) */
    const json_t *lora;     /* an array of {"id", "scale"} (llama.cpp); NULL: none */
    int32_t max_tokens;     /* -1: the server's default, but at least default_tokens */
    int32_t default_tokens; /* of APIs that have no limit by default; else 0 */
    int32_t n;              /* answers to each prompt */
    rp_sampling sampling;   /* without bias; what the request leaves open is GENERATION_OPEN_* until
                               generation_settle_sampling */
    rp_sampling otherwise;  /* the dialect's defaults for that, where the model's file has no advice */
    rp_logit_bias *bias;
    int32_t n_bias;
    bool has_seed;
    const char *stops[RP_MAX_STOPS];
    int32_t n_stops;
    bool stop_in_reasoning;    /* they count in all that the model writes, reasoning and tool calls included */
    int32_t n_logprobs;        /* -1: none; 0: of the sampled token only */
    int32_t n_prompt_logprobs; /* -1: none; 0: of the prompt's tokens only */
    int32_t priority, n_draft, shifted_reuse, reuse, deadline_ms;
    rp_quality quality;
    const char *kv_keep, *kv_method;
    int32_t n_kept_shares;
    bool ignore_eos, truncates, context_shift;
    bool names_reuse, names_shifted,
        modular; /* the request has the field `reuse`, `shifted_reuse`; documents are modules */
    bool stream, include_usage, echo;
    bool returns_tokens;     /* the answer's token ids, beside its text (llama.cpp) */
    bool returns_progress;   /* a stream also reports how much of the prompt is computed (llama.cpp) */
    bool overflow_in_stream; /* a stream whose prompt is too long begins, and fails in its last event (Responses) */
} generation;

/* Fills in a generation with defaults from its root. Returns a server_problem_kind. */
typedef int (*generation_parser)(generation *gen, server_problem *p);

/* Sets the defaults, takes a reference to the object and parses it. Call generation_free in any case. */
int generation_parse(generation *gen, json_t *root, generation_parser parse, server_problem *p);
void generation_free(generation *gen);

/* ---- For parsers ---- */

/* Adds a message with a content that is a string or an array of {"type": "text" | ..., "text": ...}; `types` lists the
 * part types that are text, terminated by NULL. Parts may also be {"type": "pml", "text": "<prompt ..."}, {"type":
 * "module", "schema", "name", "args"} and
 * {"type": "document", "source": {"type": "text", "data"} or {"type": "content", "content"}} and {"type":
 * "search_result", "source", "title", "content"}; of type refusal the text is in "refusal". name: of the field in error
 * messages. NULL content: "". */
void generation_message(generation *gen, rp_role role, const json_t *content, const char *const *types,
                        const char *name, server_problem *p);
/* Adds a part; its message may be added later. */
void generation_add_part(generation *gen, const server_part *part, server_problem *p);
/* Adds a message with a borrowed text. */
void generation_text_message(generation *gen, rp_role role, const char *text, server_problem *p);
/* Adds a prompt: a borrowed text, or an array of ids. */
void generation_add_prompt(generation *gen, const char *text, const json_t *ids, server_problem *p);
/* A text, an array of ids, or an array of those. mixed: an array may have ids and texts. */
void generation_prompts(generation *gen, const server_fields *f, const char *name, bool mixed);
/* Takes the string over, until generation_free; NULL: out of memory. */
const char *generation_own(generation *gen, char *text, server_problem *p);
/* A copy of the text, until generation_free; NULL: a problem. */
const char *generation_keep(generation *gen, const char *text, server_problem *p);
/* Takes a value over, until generation_free. */
void generation_hold(generation *gen, json_t *value, server_problem *p);
/* Adds a tool with schema and place. Refuses invalid and duplicate names. */
void generation_add_tool(generation *gen, const tool_spec *tool, server_problem *p);
/* Adds a tool with a text as input, whose description may be followed by its grammar. The name and the description are
   borrowed. */
void generation_add_freeform(generation *gen, const tool_spec *tool, const json_t *format, server_problem *p);
/* Names a thing of the request that is left out without harm: a warning, or with --strict a problem, as long as the
   request is parsed. */
void generation_ignore(generation *gen, server_problem *p, const char *fmt, ...) BASE_PRINTF(3, 4);
/* Adds a call to the last message, of the assistant. */
void generation_add_call(generation *gen, const char *id, const char *name, const char *arguments, server_problem *p);
/* Marks the last message as the result of a call. field: its name in problems. */
void generation_add_result(generation *gen, const char *id, bool is_error, const char *field, server_problem *p);
/* Adds reasoning (borrowed) to the last message, of the assistant. Empty: nothing. */
void generation_add_reasoning(generation *gen, const char *text, server_problem *p);
/* Sets thinking, unless another field has set it. */
void generation_set_thinking(generation *gen, bool on);
/* Reasoning effort: "none" is no thinking. */
void generation_set_effort(generation *gen, const char *effort, const char *field, server_problem *p);
/* Excludes all other tools. */
void generation_allow_tools(generation *gen, const char *const *names, size_t n, const char *field, server_problem *p);
/* "schema" and "parts", if present: a prompt built from parts (prompt_parts.c). */
void generation_parts(generation *gen, const server_fields *f);
/* Collects the fields of an object that are not in `known`, a list separated by spaces: fields that the parser reads,
 * and fields of the dialect that are ignored on purpose. */
void generation_known(generation *gen, const server_fields *f, const char *known);
/* A string or an array of strings. */
void generation_stops(generation *gen, const server_fields *f, const char *name);
/* Values of fields that a request leaves open: temperature, top_p, min_p and repeat_penalty; top_k and repeat_last. */
#define GENERATION_OPEN_REAL NAN
#define GENERATION_OPEN_INT INT32_MIN
/* Sets them: from the advice of the model's file, or else the dialect's defaults. model: NULL for the latter alone. */
void generation_settle_sampling(generation *gen, const rp_model *model);
/* 0 or less is off, as in vLLM, SGLang and llama.cpp. */
void generation_top_k(generation *gen, const server_fields *f, const char *name);
/* {"15043": -100, ...} or [[15043, -100], ...]; false for the weight means never. */
void generation_bias(generation *gen, const server_fields *f, const char *name);
typedef struct generation_ttl {
    const char *name; /* "5m" */
    int32_t seconds;  /* 0: as long as without it */
} generation_ttl;
/* A field that asks to keep the prompt in the cache: one of the names in a list that ends with NULL. Of several, the
   longest time counts. */
void generation_retain(generation *gen, const server_fields *f, const char *name, const generation_ttl *ttls);
/* Fields that Reprise adds to every dialect (extra_fields.c): top_k, min_p, typical_p, repeat_penalty, repeat_last_n,
 * ignore_eos, priority, deadline_ms, n_draft, shifted_reuse, reuse, quality, kv_keep, kv_method, kept_shares,
 * truncation, context_shift, cache_salt, lora, grammar, grammar_trigger, enable_thinking, reasoning_effort,
 * chat_template_kwargs, include_reasoning, stop_in_reasoning, and SERVER_GUIDED_FIELDS. */
void generation_extras(generation *gen, const server_fields *f);

#endif
