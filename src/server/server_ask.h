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

typedef struct server_ask {
    json_t *root; /* a reference */
    char **owned; /* strings made of several */
    size_t n_owned, cap_owned;

    /* the prompt: one of these */
    rp_message *messages;
    size_t n_messages, cap_messages;
    bool continues_last;
    size_t n_marked;        /* messages up to the last that asks to be cached (Anthropic); 0: none does */
    const char **texts; /* of /v1/completions: each gets n answers */
    size_t n_texts, cap_texts;
    const char *pml;

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
    bool ignore_eos;
    bool stream, include_usage, echo;
} server_ask;

/* Fills in an ask whose defaults are set, from its root. Returns a server_problem_kind. */
typedef int (*server_ask_parser)(server_ask *ask, server_problem *p);

/* Sets the defaults, takes a reference to the object and parses it. Free the ask in any case. */
int server_ask_parse(server_ask *ask, json_t *root, server_ask_parser parse, server_problem *p);
void server_ask_free(server_ask *ask);

/* ---- for parsers ---- */

/* Adds a message whose content is a string or an array of {"type": "text" | ..., "text": ...}; `types` lists the types of parts that are
 * text, ends with NULL. name: how problems call the content. NULL content: "". */
void server_ask_message(server_ask *ask, rp_role role, const json_t *content, const char *const *types, const char *name,
                        server_problem *p);
void server_ask_add_text(server_ask *ask, const char *text, server_problem *p);
/* A string or an array of strings. */
void server_ask_stops(server_ask *ask, const server_fields *f, const char *name);
/* {"15043": -100, ...} or [[15043, -100], ...]; false for the weight means never. */
void server_ask_bias(server_ask *ask, const server_fields *f, const char *name);
/* Fields that Reprise adds to every dialect: top_k, min_p, typical_p, repeat_penalty, repeat_last_n, ignore_eos, priority, deadline_ms,
 * n_draft, relink, reuse, cache_salt, grammar, grammar_trigger. */
void server_ask_extras(server_ask *ask, const server_fields *f);

#endif
