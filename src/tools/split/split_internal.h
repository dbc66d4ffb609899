/* SPDX-License-Identifier: Apache-2.0 */
/* split_internal.h: internals shared by split*.c only.
 *
 *   split_text.c    texts -> atoms: numbered words, the units between cuts; refuses text that XML cannot hold
 *   split_share.c   atoms -> parts: runs of atoms that occur in several places
 *   split_parts.c   parts -> the lead of all prompts, modules with parameters, unions
 *   split_write.c   modules -> names and PML
 *   split.c         the order of the work
 *
 * The place of a part or module is the number of its first atom; atoms of all messages of all prompts form one row:
 *
 *   prompt 0                       prompt 1
 *   [message 0     ][message 1   ] [message 2          ]
 *    0 1 2 3 4 5 6   7 8 9 ...      ...
 */
#ifndef TOOLS_SPLIT_INTERNAL_H
#define TOOLS_SPLIT_INTERNAL_H

#include "base/buffer.h"
#include "base/check.h"
#include "tools/split/split.h"

#define SPLIT_WINDOW 6 /* equal atoms required for two places to be the same passage */
#define SPLIT_NONE UINT32_MAX
#define SPLIT_MAX_PARTS ((size_t)1 << 22)
#define SPLIT_PLAIN (-1) /* role of a text without a role */

/* Quality of a cut at a place, ascending. */
typedef enum split_border { SPLIT_WORD,
                            SPLIT_CLAUSE,
                            SPLIT_SENTENCE,
                            SPLIT_LINE,
                            SPLIT_PARAGRAPH } split_border;

typedef struct split_message {
    uint32_t first, end; /* atoms */
    uint32_t prompt;
    int role; /* rp_role, or SPLIT_PLAIN */
} split_message;

typedef struct split_range {
    uint32_t first, end; /* messages of a prompt; atoms */
} split_range;

typedef struct split_corpus {
    char *text; /* all messages, concatenated */
    size_t n_text;
    uint32_t *start;   /* of each atom in text; one more at the end */
    uint32_t *id;      /* of each atom: equal bytes, equal id */
    uint32_t *message; /* of each atom */
    uint32_t n_atoms, n_ids;
    split_message *messages;
    uint32_t n_messages;
    split_range *prompts;
    uint32_t n_prompts;
} split_corpus;

/* A passage of n_atoms that occurs in n places; at most once per prompt. */
typedef struct split_part {
    uint32_t n_atoms;
    uint32_t n;
    uint32_t *at; /* first atoms, rising; borrowed from split_shares.places */
} split_part;

typedef struct split_shares {
    split_part *parts;
    uint32_t n_parts;
    size_t cap_parts;
    uint32_t *places; /* of all parts */
    uint32_t *spare;  /* after them: capacity for one more part that occurs in every prompt */
    uint32_t *owner;  /* by atom: the part that holds it, SPLIT_NONE */
} split_shares;

/* A module: pieces of fixed text with a parameter between two of them. places: n * n_pieces first atoms, place by
 * place. */
typedef struct split_module {
    uint32_t n_pieces, n;
    uint32_t *lengths; /* of the pieces, in atoms */
    uint32_t *places;
    size_t n_bytes;   /* of the pieces */
    int32_t union_id; /* -1: none */
    char *name;
    char **params; /* n_pieces - 1 names */
} split_module;

/* The common prefix of all prompts: whole messages, and atoms of the next one. */
typedef struct split_lead {
    uint32_t n_messages; /* whole ones */
    uint32_t n_atoms;    /* of the message after them */
} split_lead;

typedef struct split_plan {
    const split_corpus *corpus; /* borrowed */
    split_lead lead;
    split_module *modules; /* ordered by first place */
    uint32_t n_modules;
    size_t cap_modules;
    int32_t n_unions;
} split_plan;

static inline size_t split_bytes(const split_corpus *c, uint32_t first, uint32_t end) {
    BASE_DCHECK(first <= end && end <= c->n_atoms);
    return c->start[end] - c->start[first];
}

/* Quality of a cut before an atom; the edges of a message rank as a paragraph. */
split_border split_border_at(const split_corpus *c, uint32_t atom);

int split_corpus_build(split_corpus *c, const rp_split_prompt *prompts, size_t n, rp_error *err);
void split_corpus_free(split_corpus *c);

/* min_bytes: minimum size of a module; smaller parts are kept too, because joined they may reach it. If nothing is left
 * of a part that prompts repeat, n is 0. */
int split_shares_find(split_shares *s, const split_corpus *c, size_t min_bytes, rp_error *err);
void split_shares_free(split_shares *s);

int split_plan_make(split_plan *p, const split_corpus *c, split_shares *s, size_t min_bytes, rp_error *err);
void split_plan_free(split_plan *p);

/* Writes names, documents and figures to out, and allocates its arrays. */
int split_write(split_proposed *out, split_plan *p, const char *name, const rp_model *model, rp_error *err);

#endif
