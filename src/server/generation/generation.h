/* SPDX-License-Identifier: Apache-2.0 */
/* generation.h: what a request asks for, whatever dialect it came in: a prompt in one of its forms, how to draw, what to tell.
 *
 * A parser (generation_parse) fills it in from a JSON object and knows neither model nor engine. Strings are borrowed from the object,
 * which the ask keeps, or from `owned`. One thread at a time.
 */
#ifndef SERVER_GENERATION_H
#define SERVER_GENERATION_H

#include "server/generation/fields.h"

#define SERVER_MAX_CHOICES 128  /* answers to one request, all prompts together */
#define SERVER_MAX_BIAS 1024
#define SERVER_MAX_PARTS 65536  /* of a message's content */
#define SERVER_MAX_JOINED_BYTES ((size_t)64 << 20) /* of a content's parts together */
#define SERVER_MAX_PROMPT_TOKENS ((size_t)1 << 24) /* that come as ids */

/* A prompt of a completion: a text, or token ids (prompt_tokens.h). */
typedef struct server_prompt {
    const char *text;   /* of ids: NULL, or what is echoed */
    const json_t *ids;  /* whole numbers, and texts where the dialect allows them; NULL: a text */
    int32_t *tokens;    /* [n_tokens] of ids; the ask's */
    size_t n_tokens;
} server_prompt;

#define SERVER_MAX_UNKNOWN 16 /* fields that are named in an answer */

/* Fields that Reprise adds to every dialect (generation_extras), for generation_known. */
#define SERVER_EXTRA_FIELDS \
    "top_k min_p typical_p repeat_penalty repeat_last_n ignore_eos priority deadline_ms n_draft shifted_reuse reuse quality cache_salt grammar " \
    "grammar_trigger "

#define SERVER_MAX_TOOLS 512
#define SERVER_MAX_TOOL_NAME 128 /* bytes */
#define SERVER_MAX_CALLS 4096    /* in a conversation */

/* May the answer call tools, and does it have to? */
typedef enum server_tool_choice { SERVER_TOOLS_AUTO, SERVER_TOOLS_NONE, SERVER_TOOLS_REQUIRED } server_tool_choice;

/* A function that the model may call. */
typedef struct server_tool {
    const char *name, *description; /* description: NULL where there is none */
    const json_t *schema;           /* of its arguments; NULL: it has none */
    const char *place;              /* of the schema, for problems */
    bool strict;                    /* what of its schema cannot be honoured is a problem */
    bool barred;                    /* the choice leaves it out */
} server_tool;

/* A call that stands in the conversation. */
typedef struct generation_call {
    size_t message; /* index of the assistant's message that it belongs to */
    const char *id, *name, *arguments; /* id: NULL where it has none; arguments: JSON, an object */
} generation_call;

/* What came of one: says of a message of role tool whose result it is. */
typedef struct generation_result {
    size_t message;
    const char *id; /* NULL: it does not say */
    bool is_error;
} generation_result;

/* What a message's content holds beside plain text, or as a part of its own: compose.h makes a PML prompt of it. */
typedef enum server_part_kind {
    SERVER_PART_TEXT,     /* [begin, end) of the message's text came as a part of its own */
    SERVER_PART_DOCUMENT, /* the same, and it says that it is a document */
    SERVER_PART_PML,      /* at `begin` stands what <prompt schema='s'>...</prompt> holds */
    SERVER_PART_MODULE,   /* at `begin` stands a module of a schema */
} server_part_kind;

typedef struct server_part {
    server_part_kind kind;
    size_t message;    /* its index */
    size_t begin, end; /* in its text */
    size_t order;      /* among those of one place (tools.c) */
    const char *pml;           /* PML: the document */
    const char *schema, *name; /* MODULE: and the module's path, "plan/miami" */
    const json_t *args;        /* MODULE: an object, or NULL */
} server_part;

typedef struct generation {
    json_t *root; /* a reference */
    char **owned; /* strings made of several */
    size_t n_owned, cap_owned;

    /* the prompt: one of these */
    rp_message *messages;
    size_t n_messages, cap_messages;
    bool continues_last;
    size_t stable_bytes;    /* of the first message: what was moved behind the rest of it begins here (hints.h); 0: nothing was */
    size_t n_marked;        /* messages up to the last that asks to be cached (Anthropic); 0: none does */
    server_part *parts;     /* by message, then by place */
    size_t n_parts, cap_parts;
    bool has_markup;        /* some are PML or modules */
    server_prompt *prompts; /* of completions: each gets n answers */
    size_t n_prompts, cap_prompts;
    const char *pml;
    rp_prompt *built;       /* made of parts; the ask's */
    const char *built_schema; /* the name of its schema; NULL: its modules are its documents */

    /* tools, and the form of the answer (tools.h makes the prompt and the grammar of them) */
    server_tool *tools;
    size_t n_tools, cap_tools;
    server_tool_choice tool_choice;
    bool one_call;    /* at most */
    bool marks_tools; /* they ask to be cached (Anthropic) */
    generation_call *calls; /* by rising message */
    size_t n_calls, cap_calls;
    generation_result *results; /* likewise */
    size_t n_results, cap_results;
    bool wants_json;           /* the answer is an object, or what answer_schema says */
    const json_t *answer_schema; /* NULL: none */
    const char *answer_place;  /* of the schema, for problems */
    const char *grammar, *grammar_trigger; /* the client's, or made by tools_prepare; NULL: none */

    const char *unknown[SERVER_MAX_UNKNOWN]; /* names of fields that no parser knows, as "stream_options.x" */
    size_t n_unknown;       /* all of them, more than the array has perhaps */

    const char *model;      /* NULL: any */
    const char *cache_salt; /* NULL: none */
    int32_t max_tokens;     /* -1: the server's default */
    int32_t n;              /* answers to each prompt */
    rp_sampling sampling;   /* without bias */
    rp_logit_bias *bias;
    int32_t n_bias;
    bool has_seed;
    const char *stops[RP_MAX_STOPS];
    int32_t n_stops;
    int32_t n_logprobs;     /* -1: none; 0: of the drawn token alone */
    int32_t priority, n_draft, shifted_reuse, reuse, deadline_ms;
    rp_quality quality;
    bool ignore_eos, modular; /* modular: parts that came by themselves are modules */
    bool stream, include_usage, echo;
} generation;

/* Fills in an ask whose defaults are set, from its root. Returns a server_problem_kind. */
typedef int (*generation_parser)(generation *gen, server_problem *p);

/* Sets the defaults, takes a reference to the object and parses it. Free the ask in any case. */
int generation_parse(generation *gen, json_t *root, generation_parser parse, server_problem *p);
void generation_free(generation *gen);

/* ---- for parsers ---- */

/* Adds a message whose content is a string or an array of {"type": "text" | ..., "text": ...}; `types` lists the types of parts that are
 * text, ends with NULL. Parts may also be {"type": "pml", "text": "<prompt ..."}, {"type": "module", "schema", "name", "args"} and
 * {"type": "document", "source": {"type": "text", "data"}}. name: how problems call the content. NULL content: "". */
void generation_message(generation *gen, rp_role role, const json_t *content, const char *const *types, const char *name,
                        server_problem *p);
/* Adds a part; its message need not be there yet. */
void generation_add_part(generation *gen, const server_part *part, server_problem *p);
/* Adds a message of that text, which is borrowed. */
void generation_text_message(generation *gen, rp_role role, const char *text, server_problem *p);
/* A text, an array of ids, or an array of those. mixed: texts may stand among ids. */
void generation_prompts(generation *gen, const server_fields *f, const char *name, bool mixed);
/* Takes the string over, until the ask is freed; NULL if there is no memory. */
const char *generation_own(generation *gen, char *text, server_problem *p);
/* A copy of the text that the ask keeps; NULL: a problem. */
const char *generation_keep(generation *gen, const char *text, server_problem *p);
/* Adds a tool whose schema and place are set. Refuses names that are no names, or that are there already. */
void generation_add_tool(generation *gen, const server_tool *tool, server_problem *p);
/* Adds a call to the last message, which is the assistant's. */
void generation_add_call(generation *gen, const char *id, const char *name, const char *arguments, server_problem *p);
/* Says whose result the last message is. field: what names it in problems. */
void generation_add_result(generation *gen, const char *id, bool is_error, const char *field, server_problem *p);
/* The only tools that may be called: bars all others. */
void generation_allow_tools(generation *gen, const char *const *names, size_t n, const char *field, server_problem *p);
/* "schema" and "parts": the prompt as parts, if they are there (prompt_parts.c). */
void generation_parts(generation *gen, const server_fields *f);
/* Names the fields of an object that are not among `known`, separated by spaces: those that the parser reads, and those that the dialect has
 * and Reprise ignores on purpose. */
void generation_known(generation *gen, const server_fields *f, const char *known);
/* A string or an array of strings. */
void generation_stops(generation *gen, const server_fields *f, const char *name);
/* {"15043": -100, ...} or [[15043, -100], ...]; false for the weight means never. */
void generation_bias(generation *gen, const server_fields *f, const char *name);
/* Fields that Reprise adds to every dialect: top_k, min_p, typical_p, repeat_penalty, repeat_last_n, ignore_eos, priority, deadline_ms,
 * n_draft, shifted_reuse, reuse, quality, cache_salt, grammar, grammar_trigger. */
void generation_extras(generation *gen, const server_fields *f);

#endif
