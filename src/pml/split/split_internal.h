/* split_internal.h: what the files of split*.c share. Nobody else includes it.
 *
 *   split_text.c    texts -> atoms: words with numbers, which cuts may stand between; what XML cannot hold is refused
 *   split_share.c   atoms -> parts: runs of atoms that stand in several places
 *   split_parts.c   parts -> the lead that all prompts have, modules with parameters, unions
 *   split_write.c   modules -> names and PML
 *   split.c         the order of the work
 *
 * A part and a module know where they stand by the number of their first atom; atoms of all messages of all prompts stand in one row:
 *
 *   prompt 0                       prompt 1
 *   [message 0     ][message 1   ] [message 2          ]
 *    0 1 2 3 4 5 6   7 8 9 ...      ...
 */
#ifndef PML_SPLIT_INTERNAL_H
#define PML_SPLIT_INTERNAL_H

#include "base/buffer.h"
#include "pml/split/split.h"

#define SPLIT_WINDOW 6            /* atoms that have to be equal for two places to be the same passage */
#define SPLIT_NONE UINT32_MAX
#define SPLIT_MAX_PARTS ((size_t)1 << 22)
#define SPLIT_PLAIN (-1)          /* the role of a text without one */

/* How good a place for a cut is. */
typedef enum split_border { SPLIT_WORD, SPLIT_CLAUSE, SPLIT_SENTENCE, SPLIT_LINE, SPLIT_PARAGRAPH } split_border;

typedef struct split_message {
    uint32_t first, end; /* atoms */
    uint32_t prompt;
    int role; /* rp_role, or SPLIT_PLAIN */
} split_message;

typedef struct split_range {
    uint32_t first, end; /* messages of a prompt; atoms */
} split_range;

typedef struct split_corpus {
    char *text;           /* all messages, one behind the other */
    size_t n_text;
    uint32_t *start;      /* of each atom in text; one more at the end */
    uint32_t *id;         /* of each atom: equal bytes, equal id */
    uint32_t *message;    /* of each atom */
    uint32_t n_atoms, n_ids;
    split_message *messages;
    uint32_t n_messages;
    split_range *prompts;
    uint32_t n_prompts;
} split_corpus;

/* A passage of n_atoms that stands in n places; at most once in a prompt. */
typedef struct split_part {
    uint32_t n_atoms;
    uint32_t n;
    uint32_t *at; /* first atoms, rising; borrowed from split_shares.places */
} split_part;

typedef struct split_shares {
    split_part *parts;
    uint32_t n_parts;
    size_t cap_parts;
    uint32_t *places;    /* of all parts */
    uint32_t *spare;     /* behind them: room for one more part that stands in every prompt */
    uint32_t *owner;     /* by atom: the part that holds it, SPLIT_NONE */
} split_shares;

/* A module: pieces of fixed text, a parameter between two of them. places: n * n_pieces first atoms, place by place. */
typedef struct split_module {
    uint32_t n_pieces, n;
    uint32_t *lengths; /* of the pieces, in atoms */
    uint32_t *places;
    size_t n_bytes;    /* of the pieces */
    int32_t union_id;  /* -1: none */
    char *name;
    char **params;     /* n_pieces - 1 names */
} split_module;

/* What every prompt begins with: whole messages, and atoms of the next one. */
typedef struct split_lead {
    uint32_t n_messages; /* whole ones */
    uint32_t n_atoms;    /* of the message behind them */
} split_lead;

typedef struct split_plan {
    const split_corpus *corpus; /* borrowed */
    split_lead lead;
    split_module *modules; /* in the order of their first places */
    uint32_t n_modules;
    size_t cap_modules;
    int32_t n_unions;
} split_plan;

static inline size_t split_bytes(const split_corpus *c, uint32_t first, uint32_t end) { return c->start[end] - c->start[first]; }

/* How good a cut before an atom is; the edges of a message are as good as a paragraph's. */
split_border split_border_at(const split_corpus *c, uint32_t atom);

int split_corpus_build(split_corpus *c, const rp_split_prompt *prompts, size_t n, rp_error *err);
void split_corpus_free(split_corpus *c);

/* min_bytes: of a module; smaller parts are found, too, for they may become one together. What is left of a part that prompts repeat may be
 * nothing: n is 0 then. */
int split_shares_find(split_shares *s, const split_corpus *c, size_t min_bytes, rp_error *err);
void split_shares_free(split_shares *s);

int split_plan_make(split_plan *p, const split_corpus *c, split_shares *s, size_t min_bytes, rp_error *err);
void split_plan_free(split_plan *p);

/* Names, documents and figures into out, whose arrays it makes. */
int split_write(pml_split *out, split_plan *p, const char *name, const rp_model *model, rp_error *err);

#endif
