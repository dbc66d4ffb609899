/* SPDX-License-Identifier: Apache-2.0 */
/* document_space.c: white space, as docs/pml.md settles it.
 *
 * One walk in document order over the drafts. It carries the border to the left of where it stands:
 *
 *      what stands there:   nothing (the edge of a role or the document)  |  text or a parameter
 *      white space since:   no | yes
 *
 *   text       takes the border's white space, or its own, as one leading space; leaves its trailing white space to the
 *              next border. White space alone only marks the border.
 *   parameter  its value takes the border's white space as one leading space.
 *   module     begins and ends without a trace: its texts meet their neighbours through its tags. One that ends with a role is
 *              passed over: what follows meets what precedes the module, as in a prompt that does not import it.
 *   union      each member meets the border that the union meets; behind it stands what stands behind any member that does not
 *              end with a role, and if all do, the union is passed over.
 *   role       an edge on both sides.
 *
 * Texts change in place: each has a spare byte before it.
 * Those that end up empty have n_text 0 and are left out of the document. Recursion is bounded by PML_MAX_DEPTH.
 */
#include <string.h>

#include "pml/document_internal.h"

typedef struct border {
    bool content; /* text or a parameter stands on the left; else an edge */
    bool space;   /* behind it, white space that belongs to nobody yet; at an edge it counts for what passes over the edge alone */
} border;

/* The final text: n bytes at `start` of the draft's raw bytes, a space before them if `lead`. */
static void set_text(pml_draft *d, size_t start, size_t n, bool lead, bool continues) {
    char *text = d->raw + start;
    text[n] = '\0';
    if (lead) *--text = ' ';
    d->node.text = text;
    d->node.n_text = n + lead;
    d->node.text_continues = continues;
}

static void lay_preserved(pml_draft *d, border *left) {
    size_t n = d->node.n_text;
    if (n == 0) return;
    set_text(d, 0, n, left->content && left->space && !pml_is_space(d->raw[0]), left->content);
    *left = (border){.content = true};
}

static void pml_draft_lay_text(pml_draft *d, border *left) {
    size_t start = 0, n = d->node.n_text, end = n;
    if (d->preserve) {
        lay_preserved(d, left);
        return;
    }
    while (start < n && pml_is_space(d->raw[start])) start++;
    while (end > start && pml_is_space(d->raw[end - 1])) end--;
    if (start == n) {
        left->space = left->space || n > 0;
        d->node.n_text = 0;
        return;
    }
    set_text(d, start, end - start, left->content && (left->space || start > 0), left->content);
    *left = (border){.content = true, .space = end < n};
}

/* The space goes to the parameter's value: " 3 days" is how a model knows these words inside a sentence. */
static void pml_draft_lay_param(pml_draft *d, border *left) {
    d->node.border_space = left->content && left->space;
    *left = (border){.content = true};
}

/* In a prompt. What an import's modules say is not known here: the plan puts the space where it is wanted. */
static void lay_import(pml_draft *before, border *left) {
    if (before && before->node.kind == PML_TEXT && before->node.n_text > 0) before->node.border_space = left->space;
    *left = (border){.content = true};
}

static void pml_builder_lay_children(pml_builder *b, int32_t parent, border *left);

/* A module, or all members of a union: what follows meets the ends of those that do not end with a role; without any it meets what
 * precedes them, with the white space on both sides. Thus a text does not depend on which modules a prompt imports. */
static void lay_modules(pml_builder *b, int32_t first, bool is_union, border *left) {
    border behind = {0}, passed = *left;
    for (int32_t i = first; i >= 0; i = is_union ? b->drafts[i].node.next : -1) {
        border own = *left;
        pml_builder_lay_children(b, i, &own);
        border *end = own.content ? &behind : &passed;
        end->content |= own.content;
        end->space |= own.space;
    }
    *left = behind.content ? behind : passed;
}

static void pml_builder_lay_children(pml_builder *b, int32_t parent, border *left) {
    pml_draft *before = NULL;
    for (int32_t i = b->drafts[parent].node.first_child; i >= 0; i = b->drafts[i].node.next) {
        pml_draft *d = &b->drafts[i];
        switch (d->node.kind) {
        case PML_TEXT: pml_draft_lay_text(d, left); break;
        case PML_PARAM: pml_draft_lay_param(d, left); break;
        case PML_IMPORT: lay_import(before, left); break;
        case PML_MODULE: lay_modules(b, i, false, left); break;
        case PML_UNION: lay_modules(b, d->node.first_child, true, left); break;
        case PML_ROLE:
            *left = (border){0};
            pml_builder_lay_children(b, i, left);
            *left = (border){0};
            break;
        default: break; /* scaffolds hold nothing */
        }
        before = d;
    }
}

void pml_space_settle(pml_builder *b) {
    border left = {0};
    pml_builder_lay_children(b, 0, &left);
}
