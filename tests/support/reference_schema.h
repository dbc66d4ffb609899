/* SPDX-License-Identifier: Apache-2.0 */
/* reference_schema.h: a schema as the reference sees it: segments, scopes and canonical positions, straight from
 * docs/pml.md.
 *
 * For tests: running out of memory ends the program. Immutable after it was made.
 */
#ifndef SUPPORT_REFERENCE_SCHEMA_H
#define SUPPORT_REFERENCE_SCHEMA_H

#include <stdbool.h>
#include <stdint.h>

#include "model/chat_format.h"
#include "model/tokenizer/tokenizer.h"
#include "pml/document.h"

/* The tokenizer and its settings. */
typedef struct reference_words {
    const tokenizer *tokenizer;
    const chat_format *chat;
} reference_words;

/* `parse_special` false: a text. Appends to l; ends the program if the tokenizer fails. */
void reference_encode(const reference_words *w, const char *text, size_t n, bool parse_special, bool space_prefix,
                      token_list *l);
/* The value of a parameter. */
void reference_value(const reference_words *w, const pml_node *param, const char *value, token_list *out);
/* A TEXT node, followed by `tail`. */
void reference_encode_text(const reference_words *w, const pml_node *node, const char *tail, token_list *l);

/* The slots of a parameter's placeholder tokens in its segment. */
typedef struct reference_hole {
    int32_t param; /* node */
    int32_t first, n;
} reference_hole;

/* A segment that another attended to, and its position at that time. */
typedef struct reference_place {
    int32_t segment, position;
} reference_place;

typedef struct reference_segment {
    int32_t holder; /* the module's node, or 0: the schema's */
    int32_t order;  /* its place in the document, comparable with reference_schema.order */
    int32_t first;  /* node: the text or parameter that it begins with, -1: the schema's first token */
    bool at_role;   /* it begins at an edge of a role */
    token_list tokens;
    reference_hole *holes;
    int32_t n_holes;
    int last_role;          /* of the last message that opens in it, CHAT_ROLE_NONE */
    int32_t fixed;          /* position in the walk of layout="fixed" */
    int32_t position;       /* canonical */
    bool anchored;          /* it sees the beginning-of-text token before its scope, at position 0 */
    reference_place *scope; /* in document order */
    int32_t n_scope;
} reference_segment;

typedef struct reference_schema {
    const pml_document *d;
    reference_segment *segments; /* in document order */
    int32_t n_segments;
    int32_t *order; /* [node]: where modules and unions begin in the document, comparable with segments' */
    int32_t length; /* positions, in layout="fixed" */
    bool fixed;
} reference_schema;

/* NULL: a placeholder is longer than its parameter. */
reference_schema *reference_schema_new(const pml_document *d, const reference_words *w);
void reference_schema_free(reference_schema *s);

/* Do the contents of `holder` have scope "module"? */
bool reference_scope_is_module(const pml_document *d, int32_t holder);
/* Do segments of `holder` attend to the beginning-of-text token first (anchor="bos" of scope "module")? */
bool reference_is_anchored(const pml_document *d, const reference_words *w, int32_t holder);
/* Is node `inner` inside node `outer`, or the same node? */
bool reference_is_inside(const pml_document *d, int32_t inner, int32_t outer);
/* The default member of a union; -1: none. */
int32_t reference_default_member(const pml_document *d, int32_t union_node);

#endif
