/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h: a checked schema and a model -> segments: tokens, canonical positions, scopes and keys. Built once per
 * schema.
 *
 *   <schema> A <module m> B <union/> C </module> D </schema>
 *
 *   segments   0: A (bos first)   1: B of m   2: C of m   3: D         in document order
 *              then, for each <scaffold>, joint twins of the segments that it holds
 *              if modules have an anchor, it precedes them all: bos alone, in scopes but in no prompt
 *
 * A segment is prefilled as one run and becomes spans. Its KV is a function of its tokens, its position and its scope:
 * the list of segments that it attends to besides itself, each at a position in the segment's own frame (docs/pml.md,
 * Scope and Layout). Keys follow from that: the key of a segment's first span covers the scope, the key of each next
 * span the span before it. A scope that is one contiguous chain has the key of the chain's last span, as a plain prefix
 * has.
 *
 * Immutable after building; any thread may read. Knows no prompt.
 */
#ifndef PML_LAYOUT_H
#define PML_LAYOUT_H

#include "base/check.h"
#include "base/hash.h"
#include "kv/context.h"
#include "model/model.h"
#include "model/reduction.h"
#include "pml/document.h"

#define PML_MAX_SEGMENTS ((size_t)1 << 19)
#define PML_MAX_SCOPE ((size_t)1 << 25) /* entries of all scopes together */
#define PML_ANCHOR_SEGMENT 0            /* if there is an anchor */

/* A parameter's place in a segment. */
typedef struct pml_hole {
    int32_t param;       /* node of the schema */
    int32_t offset, len; /* in the segment's tokens */
} pml_hole;

/* KV formats: of the tokens that prompts compute; of modules whose schema names none; and the reduction of modules. */
typedef struct pml_formats {
    rp_kv_format text, modules;
    int32_t keep;            /* share of the slots of modules whose schema names none, in 1/1000; 0: all; */
    reduction_method method; /* that selects them */
    bool falls_back;         /* kv attributes are ignored, except f16 and f32: all other modules are in `modules`; no
                                module is reduced; */
    rp_kv_format named;      /* the salt covers this format; without falls_back that of text */
} pml_formats;

static inline rp_kv_format pml_formats_named(const pml_formats *f) { return f->falls_back ? f->named : f->text; }

typedef struct pml_segment {
    int32_t holder;      /* node: the schema or module that owns the text */
    int32_t sequence;    /* order in the document, comparable with pml_layout.sequence */
    int32_t joint_of;    /* joint twins: the segment they replace; else -1 */
    int32_t scaffold;    /* joint twins: index into scaffolds; else -1 */
    int32_t first_node;  /* the text, parameter or role of its first token; 0: the schema's first token */
    bool at_edge;        /* a role begins or ends directly before its first text */
    int32_t last_role;   /* role of the last of its tokens that is in a role, or CHAT_ROLE_NONE */
    int32_t pos;         /* canonical position */
    rp_kv_format format; /* of its spans */
    int32_t n_tokens;
    int32_t n_scope, n_holes, n_spans;
    size_t first_token, first_scope, first_hole, first_key; /* into the layout's arrays */
    int32_t keep;                                           /* share of the slots that its reduced KV keeps, in 1/1000,
                                                               or REDUCTION_AUTO; 0: it is not reduced */
    base_key reduced;                                       /* names its reduced KV */
} pml_segment;

/* A <scaffold>: the modules that it names, and its joint segments (in document order). */
typedef struct pml_scaffold {
    int32_t node;
    int32_t *modules; /* nodes */
    int32_t n_modules;
    int32_t first_segment, n_segments;
} pml_scaffold;

typedef struct pml_layout {
    const pml_document *schema; /* borrowed */
    const rp_model *model;      /* borrowed */
    bool fixed;
    pml_formats formats;
    pml_segment *segments;
    int32_t n_segments;  /* joint twins included */
    int32_t first_plain; /* first segment of a prompt: 1 after an anchor, else 0 */
    int32_t n_plain;     /* end of the plain segments */
    token_list tokens;   /* of all segments */
    int32_t *scopes;     /* segment indices */
    size_t n_scopes, cap_scopes;
    pml_hole *holes;
    size_t n_holes, cap_holes;
    base_key *keys; /* of all spans of all segments */
    size_t n_keys, cap_keys;
    pml_scaffold *scaffolds;
    int32_t n_scaffolds;
    int32_t *sequence;     /* by node: a module's order in the document */
    int32_t *position;     /* by node: the canonical position at which a module begins, with or without own text */
    pml_scope *scope_of;   /* by node: a module's scope, inherited ones resolved */
    pml_anchor *anchor_of; /* by node: the same */
    int32_t length;        /* positions of the whole document: the cursor of one walk */
    size_t cap_segments;
} pml_layout;

/* salt: further input to keys besides the model (KV format of text, owner of the schema). formats NULL: all f16. The
 * layout borrows schema and model. RP_ERR_UNSUPPORTED (packed for a model with positions that cannot be shifted),
 * RP_ERR_CONFLICT (a scaffold with two members of a union), RP_ERR_LIMIT, RP_ERR_MEMORY. */
int pml_layout_new(pml_layout **out, const pml_document *schema, const rp_model *model, const pml_formats *formats,
                   const base_key *salt, rp_error *err);
void pml_layout_free(pml_layout *l);

static inline const int32_t *pml_segment_tokens(const pml_layout *l, const pml_segment *s) {
    return l->tokens.ids + s->first_token;
}
static inline const int32_t *pml_segment_scope(const pml_layout *l, const pml_segment *s) {
    return s->n_scope > 0 ? l->scopes + s->first_scope : NULL;
}
static inline const pml_hole *pml_segment_holes(const pml_layout *l, const pml_segment *s) {
    return s->n_holes > 0 ? l->holes + s->first_hole : NULL;
}
/* Its tokens outside of holes. */
static inline int32_t pml_segment_own_tokens(const pml_layout *l, const pml_segment *s) {
    int32_t n = s->n_tokens;
    for (int32_t i = 0; i < s->n_holes; i++) n -= pml_segment_holes(l, s)[i].len;
    BASE_DCHECK(n >= 0);
    return n;
}
static inline const base_key *pml_segment_keys(const pml_layout *l, const pml_segment *s) {
    return l->keys + s->first_key;
}

/* Positions from which prompts attend to a segment, besides after it: its parameters, each with the token before it,
 * which may be a prompt's last. *out: [n_holes], owned by the caller; NULL without holes. RP_ERR_MEMORY. */
int pml_segment_readers(const pml_layout *l, const pml_segment *s, kv_positions **out, rp_error *err);
/* Whether the segment's i-th span has all blocks that the segment keeps. Computed spans do; a record may lack some. */
bool pml_segment_has_kept(const pml_layout *l, const pml_segment *s, int32_t i, const kv_span *span);

/* ---- reduced KV (layout_reduced.c) ---- */

/* Is the segment's text that of a module with keep, of less than all slots? It may have no reduced KV all the same:
   pml_segment.keep is 0 then. */
bool pml_segment_names_keep(const pml_layout *l, const pml_segment *s);
/* The key of the i-th reduced span of a segment that has keep. */
base_key pml_reduced_key(const pml_segment *s, int32_t i);
/* Appends what asks the model, after a segment, to repeat it from its token `begin` on, in the model's chat format: the
 * beginning of its answer is last. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int pml_append_asking(const pml_layout *l, const pml_segment *s, int32_t begin, token_list *out, rp_error *err);

/* Position of the i-th segment of a scope in the frame of the segment: the canonical position in a fixed layout, else
 * the length of the scope before it. Call with i = 0, 1, ... and *cursor = 0 at first. */
int32_t pml_scope_position(const pml_layout *l, const pml_segment *s, int32_t i, int32_t *cursor);

/* ---- text to tokens (layout_tokens.c) ---- */

/* Appends the tokens of a role's text (trusted: control tokens are parsed) or of other text. */
int pml_append_role_text(const rp_model *m, const char *text, token_list *out, rp_error *err);
int pml_append_text(const rp_model *m, const char *text, size_t n, bool continues, token_list *out, rp_error *err);
/* Appends a parameter's value, its argument or its placeholder text; after white space it begins with a space. */
int pml_append_value(const rp_model *m, const pml_node *param, const char *value, token_list *out, rp_error *err);
int pml_append_argument(const rp_model *m, const pml_node *param, const pml_argument *argument, token_list *out,
                        rp_error *err);

#endif
