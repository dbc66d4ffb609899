/* SPDX-License-Identifier: Apache-2.0 */
/* reference_schema.c: a schema's segments, scopes and canonical positions. Written only from docs/pml.md, its sections
 * "Segments", "Scope" and "Layout". Threads: none.
 */
#include "reference_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference_model.h"

/* ---- tokens ---------------------------------------------------------------------------------------------------- */

void reference_encode(const reference_words *w, const char *text, size_t n, bool parse_special, bool space_prefix,
                      token_list *l) {
    tokenizer_options options = {.parse_special = parse_special, .space_prefix = space_prefix};
    rp_error err;
    if (n == 0) return;
    if (tokenizer_encode(w->tokenizer, text, n, options, l, &err)) {
        fprintf(stderr, "reference: %s\n", err.message);
        abort();
    }
}

static void push(token_list *l, int32_t id) {
    if (token_list_push(l, id)) abort();
}

void reference_encode_text(const reference_words *w, const pml_node *node, const char *tail, token_list *l) {
    size_t n_tail = strlen(tail);
    char *text = reference_alloc(node->n_text + n_tail + 1, 1);
    memcpy(text, node->text, node->n_text);
    memcpy(text + node->n_text, tail, n_tail + 1);
    bool begins_with_space = strchr(" \t\r\n", text[0]) != NULL;
    reference_encode(w, text, node->n_text + n_tail, false, !node->text_continues && !begins_with_space, l);
    free(text);
}

static int32_t filler(const tokenizer *t) {
    if (tokenizer_unk(t) >= 0) return tokenizer_unk(t);
    if (tokenizer_pad(t) >= 0) return tokenizer_pad(t);
    if (tokenizer_eos(t) >= 0) return tokenizer_eos(t);
    if (tokenizer_bos(t) >= 0) return tokenizer_bos(t);
    return 0;
}

/* docs/pml.md, White space: a parameter's value includes the space before the parameter. */
void reference_value(const reference_words *w, const pml_node *param, const char *value, token_list *out) {
    char *copy = reference_alloc(strlen(value) + 2, 1);
    bool space = param->border_space && value[0] && !strchr(" \t\r\n", value[0]);
    strcat(strcpy(copy, space ? " " : ""), value);
    reference_encode(w, copy, strlen(copy), false, false, out);
    free(copy);
}

/* Does it fit? */
static bool push_placeholder(const reference_words *w, const pml_node *param, token_list *l) {
    token_list scaffold = {0};
    if (param->scaffold) reference_value(w, param, param->scaffold, &scaffold);
    bool fits = scaffold.n <= (size_t)param->param_len;
    for (int32_t i = 0; i < param->param_len; i++)
        push(l, (size_t)i < scaffold.n ? scaffold.ids[i] : filler(w->tokenizer));
    token_list_free(&scaffold);
    return fits;
}

/* ---- the walk: segments in document order, and fixed positions -------------------------------------------------- */

typedef struct walk {
    reference_schema *s;
    const reference_words *w;
    int32_t order, position;
    int previous_role;
    bool too_long; /* a placeholder */
} walk;

/* The own text of one module (or the schema) while it is walked. */
typedef struct own_text {
    int32_t holder;
    int32_t open; /* the segment that receives its text; -1: the next token begins one */
    int role;     /* the role around it, of its own or of an enclosing module */
    bool at_role; /* a role began or ended, and no token came since */
} own_text;

static void own_tokens(walk *k, own_text *own, int32_t node, const token_list *l) {
    reference_schema *s = k->s;
    if (l->n == 0) return;
    if (own->open < 0) {
        own->open = s->n_segments++;
        reference_segment *g = &s->segments[own->open];
        g->holder = own->holder;
        g->order = k->order++;
        g->fixed = k->position;
        g->last_role = CHAT_ROLE_NONE;
        g->first = node;
        g->at_role = own->at_role;
    }
    own->at_role = false;
    reference_segment *g = &s->segments[own->open];
    for (size_t i = 0; i < l->n; i++) push(&g->tokens, l->ids[i]);
    if (own->role != CHAT_ROLE_NONE) g->last_role = own->role;
    k->position += (int32_t)l->n;
}

static void own_special(walk *k, own_text *own, const char *text) {
    token_list l = {0};
    reference_encode(k->w, text, strlen(text), true, false, &l);
    own->at_role = true;
    own_tokens(k, own, -1, &l);
    token_list_free(&l);
}

static void own_param(walk *k, own_text *own, int32_t node) {
    const pml_node *param = &k->s->d->nodes[node];
    token_list l = {0};
    k->too_long |= !push_placeholder(k->w, param, &l);
    own_tokens(k, own, node, &l);
    reference_segment *g = &k->s->segments[own->open];
    reference_hole *holes = reference_alloc((size_t)g->n_holes + 1, sizeof *holes);
    if (g->n_holes) memcpy(holes, g->holes, (size_t)g->n_holes * sizeof *holes);
    holes[g->n_holes] = (reference_hole){node, (int32_t)g->tokens.n - param->param_len, param->param_len};
    free(g->holes);
    g->holes = holes;
    g->n_holes++;
    token_list_free(&l);
}

static void walk_content(walk *k, own_text *own, int32_t node);

static void walk_module(walk *k, int32_t node, int role) {
    own_text own = {.holder = node, .open = -1, .role = role};
    k->s->order[node] = k->order++;
    walk_content(k, &own, node);
}

/* Members start together; the union is as long as its longest member. */
static void walk_union(walk *k, int32_t node, int role) {
    const pml_node *nodes = k->s->d->nodes;
    int32_t start = k->position, end = start;
    k->s->order[node] = k->order++;
    for (int32_t i = nodes[node].first_child; i >= 0; i = nodes[i].next) {
        k->position = start;
        walk_module(k, i, role);
        end = k->position > end ? k->position : end;
    }
    k->position = end;
}

static void walk_role(walk *k, own_text *own, int32_t node) {
    int role = k->s->d->nodes[node].role;
    chat_text around = chat_format_around(k->w->chat, (chat_role)role, k->previous_role);
    k->previous_role = role;
    int outer = own->role;
    own->role = role;
    own_special(k, own, around.before);
    walk_content(k, own, node);
    own_special(k, own, around.after);
    own->role = outer;
}

static void walk_child(walk *k, own_text *own, int32_t node) {
    const pml_node *n = &k->s->d->nodes[node];
    token_list l = {0};
    switch (n->kind) {
    case PML_TEXT:
        reference_encode_text(k->w, n, "", &l);
        own_tokens(k, own, node, &l);
        break;
    case PML_PARAM: own_param(k, own, node); break;
    case PML_ROLE: walk_role(k, own, node); break;
    case PML_MODULE:
        own->open = -1; /* cut */
        walk_module(k, node, own->role);
        break;
    case PML_UNION:
        own->open = -1;
        walk_union(k, node, own->role);
        break;
    default: break; /* a scaffold element gives no text */
    }
    token_list_free(&l);
}

static void walk_content(walk *k, own_text *own, int32_t node) {
    const pml_node *nodes = k->s->d->nodes;
    for (int32_t i = nodes[node].first_child; i >= 0; i = nodes[i].next) walk_child(k, own, i);
}

static void walk_schema(walk *k) {
    own_text own = {.holder = 0, .open = -1, .role = CHAT_ROLE_NONE};
    const tokenizer *t = k->w->tokenizer;
    if (tokenizer_adds_bos(t)) {
        token_list l = {0};
        push(&l, tokenizer_bos(t));
        own_tokens(k, &own, -1, &l);
        token_list_free(&l);
    }
    walk_content(k, &own, 0);
    k->s->length = k->position;
}

/* ---- scopes ---------------------------------------------------------------------------------------------------- */

bool reference_is_inside(const pml_document *d, int32_t inner, int32_t outer) {
    while (inner >= 0 && inner != outer) inner = d->nodes[inner].parent;
    return inner == outer;
}

bool reference_scope_is_module(const pml_document *d, int32_t holder) {
    while (d->nodes[holder].scope == PML_SCOPE_INHERIT && holder > 0) holder = pml_holder(d, holder);
    return d->nodes[holder].scope == PML_SCOPE_MODULE;
}

bool reference_is_anchored(const pml_document *d, const reference_words *w, int32_t holder) {
    int32_t said = holder;
    while (d->nodes[said].anchor == PML_ANCHOR_INHERIT && said > 0) said = pml_holder(d, said);
    return holder > 0 && d->nodes[said].anchor == PML_ANCHOR_BOS && reference_scope_is_module(d, holder) &&
           tokenizer_adds_bos(w->tokenizer);
}

int32_t reference_default_member(const pml_document *d, int32_t union_node) {
    const char *name = d->nodes[union_node].scaffold;
    if (!name) return -1;
    for (int32_t i = d->nodes[union_node].first_child; i >= 0; i = d->nodes[i].next)
        if (strcmp(d->nodes[i].name, name) == 0) return i;
    return -1;
}

/* Marks modules that are certain wherever `module` is: its unions' defaults, and theirs. */
static void mark_defaults(const reference_schema *s, int32_t module, int32_t before_order, int32_t not_around,
                          bool *certain) {
    const pml_document *d = s->d;
    for (int32_t u = 0; u < d->n_nodes; u++) {
        if (d->nodes[u].kind != PML_UNION || pml_holder(d, u) != module) continue;
        int32_t member = reference_default_member(d, u);
        if (member < 0 || s->order[u] >= before_order || reference_is_inside(d, not_around, u)) continue;
        certain[member] = true;
        mark_defaults(s, member, before_order, not_around, certain);
    }
}

/* Marks the modules with earlier segments that segment g attends to. */
static void mark_scope(const reference_schema *s, const reference_segment *g, bool *certain) {
    certain[g->holder] = true;
    if (reference_scope_is_module(s->d, g->holder)) return;
    for (int32_t h = g->holder; h >= 0; h = pml_holder(s->d, h)) {
        certain[h] = true;
        mark_defaults(s, h, g->order, g->holder, certain);
    }
}

/* Lists the scope in document order. Packed: consecutively from 0 (1 after an anchor), the segment after
 * them. Fixed: as in the walk. */
static void make_scope(reference_schema *s, reference_segment *g, const reference_words *w) {
    bool *certain = reference_alloc((size_t)s->d->n_nodes, sizeof *certain);
    g->anchored = reference_is_anchored(s->d, w, g->holder);
    int32_t running = g->anchored;
    mark_scope(s, g, certain);
    g->scope = reference_alloc((size_t)s->n_segments, sizeof *g->scope);
    for (int32_t i = 0; &s->segments[i] != g; i++) {
        const reference_segment *earlier = &s->segments[i];
        if (!certain[earlier->holder]) continue;
        g->scope[g->n_scope++] = (reference_place){i, s->fixed ? earlier->fixed : running};
        running += (int32_t)earlier->tokens.n;
    }
    g->position = s->fixed ? g->fixed : running;
    free(certain);
}

reference_schema *reference_schema_new(const pml_document *d, const reference_words *w) {
    reference_schema *s = reference_alloc(1, sizeof *s);
    walk k = {.s = s, .w = w, .previous_role = CHAT_ROLE_NONE};
    s->d = d;
    s->fixed = d->nodes[0].layout == PML_LAYOUT_FIXED;
    s->order = reference_alloc((size_t)d->n_nodes, sizeof *s->order);
    /* Each role and text begins one segment at most, each role's end another, and BOS one. */
    s->segments = reference_alloc(2 * (size_t)d->n_nodes + 1, sizeof *s->segments);
    walk_schema(&k);
    for (int32_t i = 0; i < s->n_segments; i++) make_scope(s, &s->segments[i], w);
    if (!k.too_long) return s;
    reference_schema_free(s);
    return NULL;
}

void reference_schema_free(reference_schema *s) {
    if (!s) return;
    for (int32_t i = 0; i < s->n_segments; i++) {
        token_list_free(&s->segments[i].tokens);
        free(s->segments[i].holes);
        free(s->segments[i].scope);
    }
    free(s->segments);
    free(s->order);
    free(s);
}
