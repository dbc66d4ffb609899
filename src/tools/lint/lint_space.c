/* SPDX-License-Identifier: Apache-2.0 */
/* lint_space.c: where texts meet: words without a space between them, tokens cut by a border, indentation that became
 * text.
 *
 * One walk in document order carries the texts that a prompt may have directly before the current place:
 *
 *   text        is compared with each of them; then it is the only one
 *   parameter   is compared with them, with an argument in its place; the text after it meets the argument
 *   module      may be absent, so the texts before it stay candidates after it, beside its own last text
 *   union       each member meets the texts before the union
 *   role        control tokens at its edges separate texts
 *
 * Two texts meet well if their tokens are those of both as one text.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "tools/lint/lint_internal.h"

#define MOST_BEFORE 16 /* texts before a border that are looked at */
#define REACH_BYTES \
    128 /* of a text, on either side of a border: what is farther off does not change the tokens there */
#define SHOWN_BYTES 16

/* The texts that may be directly before a place. */
typedef struct before {
    int32_t nodes[MOST_BEFORE]; /* texts, or a parameter */
    int32_t n;
} before;

static void join_before(before *b, const before *other) {
    for (int32_t i = 0; i < other->n; i++) {
        int32_t k = 0;
        while (k < b->n && b->nodes[k] != other->nodes[i]) k++;
        if (k == b->n && b->n < MOST_BEFORE) b->nodes[b->n++] = other->nodes[i];
    }
}

/* ---- Two pieces of text that meet ---- */

typedef struct piece {
    const char *text;
    size_t n;
    bool continues;
} piece;

/* The end of a text, from the start of a word. */
static piece lint_space_end_of(const char *text, size_t n, bool continues) {
    size_t from = n > REACH_BYTES ? n - REACH_BYTES : 0;
    while (from > 0 && from < n && text[from] != ' ') from++;
    if (from == n) from = n > REACH_BYTES ? n - REACH_BYTES : 0; /* one long word: cut where it is */
    return (piece){text + from, n - from, continues || from > 0};
}

static piece beginning_of(const char *text, size_t n) {
    size_t to = n > REACH_BYTES ? REACH_BYTES : n;
    while (to > 1 && to < n && text[to] != ' ') to--;
    if (to == 1 && n > REACH_BYTES) to = REACH_BYTES;
    return (piece){text, to, true};
}

static bool lint_space_is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (unsigned char)c >= 0x80;
}

static bool is_glued(const piece *a, const piece *b) {
    return a->n > 0 && b->n > 0 && lint_space_is_word(a->text[a->n - 1]) && lint_space_is_word(b->text[0]);
}

/* n_apart, n_joined: tokens of both pieces. *same: they are the same ones. */
static int compare_tokens(lint *x, const piece *a, const piece *b, int32_t *n_apart, int32_t *n_joined, bool *same) {
    token_list apart = {0}, joined = {0};
    const rp_model *m = x->l->model;
    char both[2 * REACH_BYTES];
    BASE_ASSERT(a->n <= REACH_BYTES && b->n <= REACH_BYTES);
    memcpy(both, a->text, a->n);
    memcpy(both + a->n, b->text, b->n);
    int rc = pml_append_text(m, a->text, a->n, a->continues, &apart, x->err);
    if (!rc) rc = pml_append_text(m, b->text, b->n, b->continues, &apart, x->err);
    if (!rc) rc = pml_append_text(m, both, a->n + b->n, a->continues, &joined, x->err);
    *n_apart = (int32_t)apart.n;
    *n_joined = (int32_t)joined.n;
    *same =
        !rc && apart.n == joined.n && (apart.n == 0 || memcmp(apart.ids, joined.ids, apart.n * sizeof(int32_t)) == 0);
    token_list_free(&apart);
    token_list_free(&joined);
    return rc;
}

/* The start or end of a piece as messages show it: in whole characters, white space except the space as \n and the
   like. */
static const char *piece_show(const piece *p, bool end, char out[4 * SHOWN_BYTES]) {
    size_t from = end && p->n > SHOWN_BYTES ? p->n - SHOWN_BYTES : 0,
           to = end || p->n < SHOWN_BYTES ? p->n : SHOWN_BYTES, used = 0;
    while (from < to && ((unsigned char)p->text[from] & 0xc0) == 0x80) from++;
    while (to < p->n && to > from && ((unsigned char)p->text[to] & 0xc0) == 0x80) to--;
    for (size_t i = from; i < to; i++) {
        char c = p->text[i];
        const char *name = c == '\n' ? "\\n" : c == '\t' ? "\\t"
                                           : c == '\r'   ? "\\r"
                                                         : NULL;
        if (name) used += (size_t)snprintf(out + used, 3, "%s", name);
        else out[used++] = c;
    }
    BASE_ASSERT(used < 4 * SHOWN_BYTES);
    out[used] = '\0';
    return out;
}

/* Reports a fault between two pieces, at a node. *found: there is one. what: the element at the border. */
static int lint_space_meet(lint *x, int32_t node, const piece *a, const piece *b, const char *what, bool *found) {
    char left[4 * SHOWN_BYTES], right[4 * SHOWN_BYTES];
    int32_t apart, joined;
    bool same;
    if (a->n == 0 || b->n == 0) return RP_OK;
    *found = true;
    if (is_glued(a, b))
        return lint_add(x, RP_LINT_JOINED_WORDS, node,
                        "'%s' and '%s' are joined into one word %s: put white space between them",
                        piece_show(a, true, left), piece_show(b, false, right), what);
    int rc = compare_tokens(x, a, b, &apart, &joined, &same);
    *found = !rc && !same;
    if (rc || same) return rc;
    return lint_add(x, RP_LINT_CUT_TOKEN, node,
                    "'%s' and '%s' are tokenized separately %s, which changes their tokens (%d, not %d): put white "
                    "space after the border, not before it, or put the border between words",
                    piece_show(a, true, left), piece_show(b, false, right), what, apart, joined);
}

/* ---- Texts and parameters ---- */

/* A parameter's value as in a prompt: an argument of a known prompt, the placeholder text, or any word. */
static piece lint_space_value_of(const lint *x, int32_t param, char out[REACH_BYTES]) {
    const pml_node *n = &x->d->nodes[param];
    const char *value = x->use.params[param].sample     ? x->use.params[param].sample
                        : n->scaffold && n->scaffold[0] ? n->scaffold
                                                        : "one";
    bool space = n->border_space && !pml_is_space(value[0]);
    int len = snprintf(out, REACH_BYTES, "%s%s", space ? " " : "", value);
    return (piece){out, (size_t)BASE_MIN(len, REACH_BYTES - 1), true};
}

static piece text_before(const lint *x, int32_t node, char out[REACH_BYTES]) {
    const pml_node *n = &x->d->nodes[node];
    if (n->kind == PML_PARAM) return lint_space_value_of(x, node, out);
    return lint_space_end_of(n->text, n->n_text, n->text_continues);
}

static int lint_space_lay_text(lint *x, int32_t i, before *left) {
    const pml_node *n = &x->d->nodes[i];
    char value[REACH_BYTES];
    piece b = beginning_of(n->text, n->n_text);
    bool found = false;
    int rc = RP_OK;
    for (int32_t k = 0; k < left->n && !rc && !found; k++) {
        piece a = text_before(x, left->nodes[k], value);
        bool param = x->d->nodes[left->nodes[k]].kind == PML_PARAM;
        if (param && !is_glued(&a, &b)) continue; /* its tokens are its own, whatever follows */
        rc = lint_space_meet(x, i, &a, &b, param ? "after a parameter" : "at the end of a text", &found);
    }
    *left = (before){.nodes = {i}, .n = 1};
    return rc;
}

static int lint_space_lay_param(lint *x, int32_t i, before *left) {
    char value[REACH_BYTES], other[REACH_BYTES];
    piece b = lint_space_value_of(x, i, value);
    bool found = false;
    int rc = RP_OK;
    for (int32_t k = 0; k < left->n && !rc && !found; k++) {
        piece a = text_before(x, left->nodes[k], other);
        rc = lint_space_meet(x, i, &a, &b, "at a parameter", &found);
    }
    *left = (before){.nodes = {i}, .n = 1};
    return rc;
}

static int lint_space_lay_children(lint *x, int32_t parent, before *left);

static int lay_union(lint *x, int32_t u, before *left) {
    before behind = *left;
    int rc = RP_OK;
    for (int32_t m = x->d->nodes[u].first_child; m >= 0 && !rc; m = x->d->nodes[m].next) {
        before own = *left;
        rc = lint_space_lay_children(x, m, &own);
        join_before(&behind, &own);
    }
    *left = behind;
    return rc;
}

static int lay_module(lint *x, int32_t m, before *left) {
    before own = *left;
    int rc = lint_space_lay_children(x, m, &own);
    join_before(left, &own);
    return rc;
}

static int lay_role(lint *x, int32_t node, before *left) {
    *left = (before){.n = 0};
    int rc = lint_space_lay_children(x, node, left);
    *left = (before){.n = 0};
    return rc;
}

static int lint_space_lay_children(lint *x, int32_t parent, before *left) {
    int rc = RP_OK;
    for (int32_t i = x->d->nodes[parent].first_child; i >= 0 && !rc; i = x->d->nodes[i].next)
        switch (x->d->nodes[i].kind) {
        case PML_TEXT: rc = lint_space_lay_text(x, i, left); break;
        case PML_PARAM: rc = lint_space_lay_param(x, i, left); break;
        case PML_UNION: rc = lay_union(x, i, left); break;
        case PML_MODULE: rc = lay_module(x, i, left); break;
        case PML_ROLE: rc = lay_role(x, i, left); break;
        default: break; /* scaffolds hold nothing */
        }
    return rc;
}

/* ---- Indentation ---- */

/* A text of a src file has the place of its module. */
static bool is_of_file(const lint *x, int32_t i) {
    const pml_node *n = &x->d->nodes[i], *p = &x->d->nodes[n->parent];
    return n->line == p->line && n->column == p->column;
}

/* Spaces and tabs that all lines but the first begin with; 0: there is but one line. */
static size_t common_indent(const char *text, size_t n) {
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\n') continue;
        size_t w = 0;
        while (i + 1 + w < n && (text[i + 1 + w] == ' ' || text[i + 1 + w] == '\t')) w++;
        if (i + 1 + w < n && text[i + 1 + w] != '\n' && w < least) least = w;
    }
    return least == SIZE_MAX ? 0 : least;
}

/* Indentation that comes from the document: for a text that begins on a line of its own, that line's; for one that
 * begins after its tag, the common indentation of its lines, unless its first line opens the block that the others are
 * indented for, as in code. */
static size_t document_indent(const pml_node *n) {
    size_t common = common_indent(n->text, n->n_text), own = (size_t)n->column - 1;
    const char *newline = memchr(n->text, '\n', n->n_text);
    if (common == 0 || own <= common) return BASE_MIN(common, own);
    return newline > n->text && strchr(":{([,\\", newline[-1]) ? 0 : common;
}

/* Tokens that a text has more than without its document's indentation. */
static int count_indent(lint *x, int32_t i, int32_t *out) {
    const pml_node *n = &x->d->nodes[i];
    size_t cut = document_indent(n), used = 0;
    *out = 0;
    if (cut == 0) return RP_OK;
    char *bare = base_alloc(n->n_text + 1);
    if (!bare) return base_fail_memory(x->err, n->n_text, "a text");
    for (size_t k = 0; k < n->n_text; k++) {
        bare[used++] = n->text[k];
        if (n->text[k] != '\n') continue;
        for (size_t w = 0; w < cut && k + 1 < n->n_text && (n->text[k + 1] == ' ' || n->text[k + 1] == '\t'); w++) k++;
    }
    BASE_ASSERT(used <= n->n_text);
    token_list with = {0}, without = {0};
    int rc = pml_append_text(x->l->model, n->text, n->n_text, n->text_continues, &with, x->err);
    if (!rc) rc = pml_append_text(x->l->model, bare, used, n->text_continues, &without, x->err);
    if (!rc) *out = (int32_t)with.n - (int32_t)without.n;
    token_list_free(&with);
    token_list_free(&without);
    base_free(bare);
    return rc;
}

static int check_indent(lint *x) {
    int32_t first = -1, texts = 0, tokens = 0;
    for (int32_t i = 1; i < x->d->n_nodes; i++) {
        int32_t n;
        if (x->d->nodes[i].kind != PML_TEXT || is_of_file(x, i)) continue;
        int rc = count_indent(x, i, &n);
        if (rc) return rc;
        if (n <= 0) continue;
        if (first < 0) first = i;
        tokens += n;
        texts++;
    }
    if (tokens < LINT_INDENT_TOKENS || tokens < (int32_t)x->l->tokens.n / 50) return RP_OK;
    return lint_add(x, RP_LINT_INDENTATION, first,
                    "indentation of the document is part of %d text%s, from here on: %d of %zu tokens: begin their "
                    "lines at the margin, or move them into files (src)",
                    texts, texts == 1 ? "" : "s", tokens, x->l->tokens.n);
}

int lint_check_space(lint *x) {
    before left = {.n = 0};
    int rc = lint_space_lay_children(x, 0, &left);
    return rc ? rc : check_indent(x);
}
