/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: a prompt as views to reuse and runs to compute, by ascending position.
 *
 *   prompt --resolve--> imports, arguments --order--> entries --place--> positions --items--> [view | run] ...
 *
 * docs/pml.md ('Order of a prompt', 'Layout', 'What attends to what') defines the result. A plan names segments of its
 * layout and does not access the store: the engine checks whether a segment's spans are cached.
 */
#ifndef PML_PLAN_H
#define PML_PLAN_H

#include "pml/layout.h"
#include "reprise_chat.h"

typedef struct pml_item {
    bool is_view;
    bool exact;      /* it is computed as in a full prefill of the whole prompt; its KV is the same bytes if ... */
    bool has_format; /* ... it and all views before it have the KV format of text */
    /* view: of the layout, possibly a joint twin; runs of a module's text or arguments: its segment; else -1 */
    int32_t segment;
    int32_t holder;     /* schema node that owns the text or argument; -1: the prompt's own */
    int32_t node;       /* the prompt's own: its node in the prompt's document, a text or the role around it; else 0 */
    int32_t pos;        /* of its first token in this prompt */
    int32_t shift;      /* view: pos - canonical position */
    int32_t n_tokens;   /* run: tokens; view: slots from the segment's first on, holes included */
    int32_t n_counted;  /* without holes and recomputed tokens */
    size_t first_token; /* run: in the plan's tokens */
    rp_quality quality; /* view: its effective quality */
    const char *why;    /* run of a module that is recomputed for quality: "link", "blend", "focus", "exact"; or "last":
                           all of it, for recurrent layers, as its last token is the prompt's; else NULL. Static */
    size_t first_again; /* view: recomputed slots, held by runs of the segment: in the plan's list, ascending */
    int32_t n_again;
    bool reduced;            /* view: the segment's reduced KV, as a whole: set by the engine, */
    const char *full_reason; /* as rp_plan_item.full_reason; NULL: "". Static */
} pml_item;

/* A message of a conversation that was planned as one run. */
typedef struct pml_turn {
    size_t end; /* in the plan's tokens */
    int role;   /* value of chat_role */
} pml_turn;

/* Where the answer to a conversation begins: after an opening (model_find_answer). Where the generation prompt goes on
 * after it ("<think>\n"), the answer begins within the prompt. */
typedef struct pml_opened {
    const char *opening; /* static, or of the model; NULL: the prompt has none */
    size_t n_tokens;     /* of the prompt up to there */
    char *begun;         /* what the prompt has of the answer, n_begun bytes; NULL: nothing. Owned */
    size_t n_begun;
} pml_opened;

/* A parameter of an imported module without an argument: nodes of the schema. */
typedef struct pml_missing {
    int32_t holder, param;
} pml_missing;

typedef struct pml_plan {
    const pml_layout *layout; /* borrowed; NULL for a plan of plain text */
    pml_item *items;
    size_t n_items, cap_items;
    token_list tokens; /* of all runs */
    int32_t *again;    /* of all views: see pml_item */
    size_t n_again, cap_again;
    rp_quality asked;  /* the highest quality of its modules; reuse without any */
    rp_quality raised; /* the same with the requested minimum applied; as written, where that changed nothing */
    bool is_flat;      /* all modules have quality exact: run the plan as pml_plan_flatten writes it */
    pml_turn *turns;   /* of a conversation; else none */
    size_t n_turns;
    pml_opened opened;    /* of a conversation that ends with a generation prompt */
    pml_missing *missing; /* in the order of the prompt */
    size_t n_missing, cap_missing;
    int32_t n_cached, n_fresh; /* tokens in views, tokens in runs */
    int32_t end;               /* the highest position + 1: where the answer continues */
    bool *included;            /* by node of the schema: included in the prompt */
} pml_plan;

/* Plans a prompt over the layout of its schema; both are borrowed (the layout until the plan is freed). continues: the
 * role at the end of the prompt stays open, and no answer is opened (RP_ERR_INVALID: the prompt ends with no role).
 * quality: overrides prompt and schema; least: minimum for modules for which neither quality nor the prompt gives one.
 * RP_ERR_NAME (module, argument; with the nearest name), RP_ERR_CONFLICT (two members of a union), RP_ERR_LENGTH
 * (argument or text, with both lengths), RP_ERR_INVALID (no argument for a required parameter; empty prompt),
 * RP_ERR_LIMIT, RP_ERR_MEMORY. */
int pml_plan_new(pml_plan **out, const pml_layout *layout, const pml_document *prompt, bool continues,
                 rp_quality quality, rp_quality least, rp_error *err);
/* Plans plain text: the beginning-of-text token, if the model requires one, and the text, as one run. */
int pml_plan_text(pml_plan **out, const rp_model *m, const char *text, size_t n, rp_error *err);
/* Plans tokens as given, as one run. RP_ERR_INVALID (an id that is not in the vocabulary). */
int pml_plan_tokens(pml_plan **out, const rp_model *m, const int32_t *tokens, size_t n, rp_error *err);
/* Memory of sampled answers: appends the tokens of an assistant's text, which follows `opening`, to the preceding
 * tokens in out; false: unknown text. */
typedef struct pml_recall {
    bool (*find)(void *user, const char *opening, const char *text, size_t n, token_list *out);
    void *user;
} pml_recall;

/* Plans a conversation (rp_tokenize_messages), as one run. recall NULL: every text is tokenized. */
int pml_plan_messages(pml_plan **out, const rp_model *m, const rp_message *messages, size_t n, bool continues,
                      const pml_recall *recall, rp_error *err);
/* Plans a rendered conversation, as one run. An answer in it is what lies between an opening and the end of its turn:
 * text is cut into tokens at its beginning, as when it was sampled, and recall knows its tokens. RP_ERR_INVALID
 * (malformed runs, no text), RP_ERR_MEMORY. */
int pml_plan_rendered(pml_plan **out, const rp_model *m, const rp_template_text *text, const rp_rendered_turn *turns,
                      size_t n_turns, const pml_recall *recall, rp_error *err);
/* Its tokens. ends[n_turns]: as rp_count_rendered has them. */
int pml_append_rendered(const rp_model *m, const rp_template_text *text, const rp_rendered_turn *turns, size_t n_turns,
                        pml_turn *ends, token_list *out, rp_error *err);
void pml_plan_free(pml_plan *p);

/* Appends the tokens of a conversation in the model's chat format. RP_ERR_INVALID, RP_ERR_MEMORY, RP_ERR_LIMIT. */
int pml_append_messages(const rp_model *m, const rp_message *messages, size_t n, bool continues, token_list *out,
                        rp_error *err);

/* Marks tokens of a view to be recomputed in the prompt: n slots of its segment, ascending, counted and not yet marked.
 * The view excludes them, and is removed if it becomes empty; runs take their places; other items may move. why: as
 * pml_item.why. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int pml_plan_again(pml_plan *p, size_t item, const int32_t *slots, int32_t n, const char *why, rp_error *err);
/* Iterates over the slots of a view except holes; recomputed slots are included. */
typedef struct pml_slots {
    const pml_hole *holes;
    int32_t n_holes, hole, n, next;
} pml_slots;

pml_slots pml_item_slots(const pml_plan *p, const pml_item *view);
/* Returns false at the end. */
bool pml_slots_next(pml_slots *s, int32_t *slot);

/* The position of the first slot of a view that is neither a hole nor recomputed. */
int32_t pml_item_first_position(const pml_plan *p, const pml_item *view);

/* The recomputed slots of a view. */
static inline const int32_t *pml_item_again(const pml_plan *p, const pml_item *view) {
    return view->n_again > 0 ? p->again + view->first_again : NULL;
}

/* Moves the whole plan by n >= 0 positions (packed layouts). */
void pml_plan_move(pml_plan *p, int32_t n);

/* Writes tokens and positions of the whole prompt by ascending position, as one plain run: n = n_cached + n_fresh of
 * each, into the caller's arrays. RP_ERR_MEMORY. */
int pml_plan_flatten(const pml_plan *p, int32_t *tokens, int32_t *positions, rp_error *err);
/* The same, and for each token the index of its item. */
int pml_plan_flatten_items(const pml_plan *p, int32_t *tokens, int32_t *positions, int32_t *items, rp_error *err);

#endif
