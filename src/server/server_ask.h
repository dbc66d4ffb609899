/* server_ask.h: what a request asks for, whatever dialect it came in: a prompt in one of its forms, how to draw, what to tell.
 *
 * A parser (server_ask_parse) fills it in from a JSON object and knows neither model nor engine. Strings are borrowed from the object,
 * which the ask keeps, or from `owned`. One thread at a time.
 */
#ifndef SERVER_SERVER_ASK_H
#define SERVER_SERVER_ASK_H

#include "server/fields.h"

#define SERVER_MAX_CHOICES 128  /* answers to one request, all prompts together */
#define SERVER_MAX_BIAS 1024
#define SERVER_MAX_PARTS 65536  /* of a message's content */
#define SERVER_MAX_JOINED_BYTES ((size_t)64 << 20) /* of a content's parts together */

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
    const char *pml;           /* PML: the document */
    const char *schema, *name; /* MODULE: and the module's path, "plan/miami" */
    const json_t *args;        /* MODULE: an object, or NULL */
} server_part;

typedef struct server_ask {
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
    const char **texts; /* of /v1/completions: each gets n answers */
    size_t n_texts, cap_texts;
    const char *pml;
    const char *schema;     /* the text of one, for this request alone; or NULL */

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
    const char *grammar, *grammar_trigger; /* NULL: none */
    int32_t n_logprobs;     /* -1: none; 0: of the drawn token alone */
    int32_t priority, n_draft, relink, reuse, deadline_ms;
    bool ignore_eos, modular; /* modular: parts that came by themselves are modules */
    bool stream, include_usage, echo;
} server_ask;

/* Fills in an ask whose defaults are set, from its root. Returns a server_problem_kind. */
typedef int (*server_ask_parser)(server_ask *ask, server_problem *p);

/* Sets the defaults, takes a reference to the object and parses it. Free the ask in any case. */
int server_ask_parse(server_ask *ask, json_t *root, server_ask_parser parse, server_problem *p);
void server_ask_free(server_ask *ask);

/* ---- for parsers ---- */

/* Adds a message whose content is a string or an array of {"type": "text" | ..., "text": ...}; `types` lists the types of parts that are
 * text, ends with NULL. Parts may also be {"type": "pml", "text": "<prompt ..."}, {"type": "module", "schema", "name", "args"} and
 * {"type": "document", "source": {"type": "text", "data"}}. name: how problems call the content. NULL content: "". */
void server_ask_message(server_ask *ask, rp_role role, const json_t *content, const char *const *types, const char *name,
                        server_problem *p);
/* Takes the string over, until the ask is freed; NULL if there is no memory. */
const char *server_ask_own(server_ask *ask, char *text, server_problem *p);
void server_ask_add_text(server_ask *ask, const char *text, server_problem *p);
/* A string or an array of strings. */
void server_ask_stops(server_ask *ask, const server_fields *f, const char *name);
/* {"15043": -100, ...} or [[15043, -100], ...]; false for the weight means never. */
void server_ask_bias(server_ask *ask, const server_fields *f, const char *name);
/* Fields that Reprise adds to every dialect: top_k, min_p, typical_p, repeat_penalty, repeat_last_n, ignore_eos, priority, deadline_ms,
 * n_draft, relink, reuse, cache_salt, grammar, grammar_trigger. */
void server_ask_extras(server_ask *ask, const server_fields *f);

#endif
