/* SPDX-License-Identifier: Apache-2.0 */
/* document_space.c: white space processing, as specified in docs/pml.md.
 *
 * One walk in document order over the drafts. It maintains the border to the left of the current position:
 *
 *      content on the left:   none (the edge of a role or the document)  |  text or a parameter
 *      white space since:     no | yes
 *
 *   text       takes the border's white space, or its own, as one leading space; leaves its trailing white space to the
 *              next border. White space alone only marks the border.
 *   parameter  its value takes the border's white space as one leading space.
 *   module     its tags have no effect: its texts meet their neighbours through them. A module that ends with a role is
 *              skipped: the text after it meets the text before it, as in a prompt that does not import it.
 *   union      each member starts at the union's border. The border after the union combines those of all members that
 *              do not end with a role; if all do, the union is skipped.
 *   role       an edge on both sides.
 *
 * Texts are changed in place: each has a spare byte before it. Empty texts get n_text 0 and are omitted from the
 * document. Recursion is bounded by PML_MAX_DEPTH.
 */
#include <string.h>

#include "base/check.h"
#include "pml/document_internal.h"

typedef struct border {
    bool content; /* text or a parameter is on the left; else an edge */
    bool space;   /* unassigned white space after it; at an edge, it is used only by text that skips the edge */
} border;

/* Sets the final text: n bytes at `start` of the draft's raw bytes, with a space before them if `lead`. */
static void set_text(pml_draft *d, size_t start, size_t n, bool lead, bool continues) {
    BASE_ASSERT(start + n <= d->node.n_text); /* of the raw text */
    char *text = d->raw + start;
    text[n] = '\0';
    if (lead) *--text = ' ';
    d->node.text = text;
    d->node.n_text = n + lead;
    d->node.text_continues = continues;
}

static void pml_draft_lay_text(pml_draft *d, border *left) {
    size_t start = 0, n = d->node.n_text, end = n;
    if (d->preserve) {
        if (n == 0) return;
        set_text(d, 0, n, left->content && left->space && !pml_is_space(d->raw[0]), left->content);
        *left = (border){.content = true};
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

static void pml_builder_lay_children(pml_builder *b, int32_t parent, border *left);

/* A module, or all members of a union. The following text meets the ends of members that do not end with a role; if
 * there are none, it meets the preceding text, with the white space of both sides. A text is therefore independent of
 * the modules that a prompt imports. */
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
    pml_draft *before = NULL; /* the last one that is not an empty text */
    for (int32_t i = b->drafts[parent].node.first_child; i >= 0; i = b->drafts[i].node.next) {
        pml_draft *d = &b->drafts[i];
        switch (d->node.kind) {
        case PML_TEXT: pml_draft_lay_text(d, left); break;
        case PML_PARAM:
            /* The value takes the space: models know words inside a sentence with a leading space (" 3 days"). */
            d->node.border_space = left->content && left->space;
            *left = (border){.content = true};
            break;
        case PML_IMPORT: /* in a prompt; the texts of its modules are unknown here: the plan inserts the space */
            if (before && before->node.kind == PML_TEXT && before->node.n_text > 0)
                before->node.border_space = left->space;
            *left = (border){.content = true};
            break;
        case PML_MODULE: lay_modules(b, i, false, left); break;
        case PML_UNION: lay_modules(b, d->node.first_child, true, left); break;
        case PML_ROLE:
            *left = (border){0};
            pml_builder_lay_children(b, i, left);
            *left = (border){0};
            break;
        default: break; /* scaffolds have no contents */
        }
        if (d->node.kind != PML_TEXT || d->node.n_text > 0) before = d;
    }
}

void pml_space_settle(pml_builder *b) {
    border left = {0};
    pml_builder_lay_children(b, 0, &left);
}
