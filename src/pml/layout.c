/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c: a layout: the walk over a schema that makes its segments, then joint twins (layout_joint.c), keys
   (layout_keys.c) and reductions. */
#include "pml/layout.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "pml/layout_internal.h"

/* ---- the walk ---- */

/* `certain` lists the segments that certainly precede the next text: the own segments of the open holders, and of
 * default members of ended unions. Entering a module keeps the list; leaving the module truncates it. If the module is
 * its union's default, its segments are added again at the union's end. */
typedef struct walk {
    pml_layout *l;
    int32_t *certain;
    size_t n_certain, cap_certain;
    int32_t cursor; /* fixed position */
    int32_t sequence;
    int32_t node;          /* owner of the next tokens */
    int32_t previous_role; /* in document order */
    rp_error *err;
} walk;

/* One open holder: the schema or a module. */
typedef struct frame {
    int32_t node;
    int32_t open; /* its open segment, or -1 */
    int role;     /* role of its text, opened by itself or around it */
    bool at_edge; /* a role began or ended after its last token */
} frame;

static int certain_push(walk *w, int32_t segment) {
    BASE_ASSERT(segment >= w->l->first_plain && segment < w->l->n_segments);
    int rc = base_grow((void **)&w->certain, &w->cap_certain, w->n_certain + 1, PML_MAX_SEGMENTS, sizeof(int32_t));
    if (rc) return base_fail_memory(w->err, w->n_certain * sizeof(int32_t), "segments");
    w->certain[w->n_certain++] = segment;
    return RP_OK;
}

/* Returns true if a segment is in the scope of the holder's next text. */
static bool is_in_scope(const pml_layout *l, int32_t holder, int32_t segment) {
    return l->scope_of[holder] != PML_SCOPE_MODULE || l->segments[segment].holder == holder;
}

/* The canonical position of the holder's next text. */
static int32_t walk_next_position(const walk *w, int32_t holder) {
    const pml_layout *l = w->l;
    int32_t pos = pml_is_anchored(l, holder) ? 1 : 0;
    if (l->fixed) return w->cursor;
    for (size_t i = 0; i < w->n_certain; i++)
        if (is_in_scope(l, holder, w->certain[i])) pos += l->segments[w->certain[i]].n_tokens;
    return pos;
}

/* Opens the holder's next segment: sets its scope and its position. */
static int open_segment(walk *w, frame *f) {
    pml_layout *l = w->l;
    pml_segment s = {
        .holder = f->node,
        .sequence = w->sequence++,
        .joint_of = -1,
        .scaffold = -1,
        .first_node = w->node,
        .at_edge = f->at_edge,
        .last_role = CHAT_ROLE_NONE,
        .first_token = l->tokens.n,
        .first_scope = l->n_scopes,
        .first_hole = l->n_holes,
    };
    if (pml_is_anchored(l, f->node)) {
        int rc = pml_layout_add_scope(l, PML_ANCHOR_SEGMENT, w->err);
        if (rc) return rc;
        s.n_scope = 1;
    }
    for (size_t i = 0; i < w->n_certain; i++) {
        if (!is_in_scope(l, f->node, w->certain[i])) continue;
        BASE_ASSERT(w->certain[i] < l->n_segments); /* invariant 2: an earlier segment */
        int rc = pml_layout_add_scope(l, w->certain[i], w->err);
        if (rc) return rc;
        s.n_scope++;
    }
    s.pos = walk_next_position(w, f->node);
    f->open = l->n_segments;
    int rc = pml_layout_add_segment(l, &s, w->err);
    return rc ? rc : certain_push(w, f->open);
}

static void close_segment(frame *f) { f->open = -1; }

/* Assigns the tokens added to the list since `before` to the holder's open segment; opens one if necessary. */
static int walk_count_tokens(walk *w, frame *f, size_t before) {
    size_t n = w->l->tokens.n - before;
    if (n == 0) return RP_OK;
    if (n > (size_t)(INT32_MAX / 2 - w->cursor))
        return base_fail(w->err, RP_ERR_LIMIT, "schema '%s' is too long", w->l->schema->nodes[0].name);
    if (f->open < 0) {
        int rc = open_segment(w, f);
        if (rc) return rc;
        w->l->segments[f->open].first_token = before;
    }
    BASE_ASSERT(w->l->segments[f->open].first_token + (size_t)w->l->segments[f->open].n_tokens ==
                before); /* a segment's tokens are adjacent */
    w->l->segments[f->open].n_tokens += (int32_t)n;
    if (f->role != CHAT_ROLE_NONE) w->l->segments[f->open].last_role = f->role;
    f->at_edge = false;
    w->cursor += (int32_t)n;
    return RP_OK;
}

static int walk_text(walk *w, frame *f, const pml_node *node) {
    size_t before = w->l->tokens.n;
    int rc = pml_append_text(w->l->model, node->text, node->n_text, node->text_continues, &w->l->tokens, w->err);
    return rc ? rc : walk_count_tokens(w, f, before);
}

/* The token that pads a placeholder: the unknown token, or the most neutral alternative. */
static int32_t filler_token(const tokenizer *t) {
    int32_t candidates[] = {tokenizer_unk(t), tokenizer_pad(t), tokenizer_eos(t), tokenizer_bos(t)};
    for (size_t i = 0; i < BASE_ARRAY_LEN(candidates); i++)
        if (candidates[i] >= 0) return candidates[i];
    return 0;
}

static int walk_param(walk *w, frame *f, int32_t node_index) {
    pml_layout *l = w->l;
    const pml_node *node = &l->schema->nodes[node_index];
    size_t before = l->tokens.n;
    int rc = node->scaffold ? pml_append_value(l->model, node, node->scaffold, &l->tokens, w->err) : RP_OK;
    if (rc) return rc;
    size_t n = l->tokens.n - before;
    if (n > (size_t)node->param_len)
        return pml_fail(
            w->err, RP_ERR_LENGTH, l->schema, node_index,
            "the placeholder of parameter '%s' has %zu tokens, but len=\"%d\": shorten the placeholder, or raise len",
            node->name, n, node->param_len);
    while (l->tokens.n < before + (size_t)node->param_len)
        if ((rc = token_list_push(&l->tokens, filler_token(l->model->tokenizer))))
            return base_fail_memory(w->err, (uint64_t)node->param_len * 4, "a parameter");
    if ((rc = walk_count_tokens(w, f, before))) return rc;
    BASE_ASSERT(f->open >= 0); /* a parameter has tokens */
    pml_segment *s = &l->segments[f->open];
    rc = base_grow((void **)&l->holes, &l->cap_holes, l->n_holes + 1, PML_MAX_NODES, sizeof(pml_hole));
    if (rc) return base_fail_memory(w->err, l->n_holes * sizeof(pml_hole), "parameters");
    if (s->n_holes++ == 0) s->first_hole = l->n_holes;
    l->holes[l->n_holes++] = (pml_hole){node_index, s->n_tokens - node->param_len, node->param_len};
    return RP_OK;
}

static int walk_children(walk *w, frame *f, int32_t node);

static int walk_role_text(walk *w, frame *f, const char *text) {
    size_t before = w->l->tokens.n;
    int rc = pml_append_role_text(w->l->model, text, &w->l->tokens, w->err);
    return rc ? rc : walk_count_tokens(w, f, before);
}

static int walk_role(walk *w, frame *f, int32_t node) {
    int role = w->l->schema->nodes[node].role, outer = f->role, rc;
    chat_text around = chat_format_around(w->l->model->chat, (chat_role)role, w->previous_role);
    BASE_ASSERT(role >= 0 && outer == CHAT_ROLE_NONE); /* roles do not nest */
    w->previous_role = f->role = role;
    f->at_edge = true;
    if ((rc = walk_role_text(w, f, around.before)) || (rc = walk_children(w, f, node))) return rc;
    w->node = node;
    f->at_edge = true;
    rc = walk_role_text(w, f, around.after);
    f->role = outer;
    return rc;
}

static int walk_module(walk *w, int32_t node, int role) {
    frame f = {.node = node, .open = -1, .role = role};
    w->l->sequence[node] = w->sequence++;
    w->l->position[node] = walk_next_position(w, node);
    return walk_children(w, &f, node);
}

/* Members start at the same position and do not attend to each other, as a prompt takes at most one of them. */
static int walk_union(walk *w, int32_t node, int role) {
    const pml_document *d = w->l->schema;
    const char *chosen = d->nodes[node].scaffold;
    int32_t start = w->cursor, end = start, *kept = NULL;
    size_t mark = w->n_certain, n_kept = 0;
    int rc = RP_OK;
    for (int32_t m = d->nodes[node].first_child; m >= 0 && !rc; m = d->nodes[m].next) {
        w->cursor = start;
        BASE_ASSERT(d->nodes[m].kind == PML_MODULE); /* unions hold modules only */
        if ((rc = walk_module(w, m, role))) break;
        end = BASE_MAX(end, w->cursor);
        if (chosen && strcmp(chosen, d->nodes[m].name) == 0 && w->n_certain > mark) {
            n_kept = w->n_certain - mark;
            kept = base_alloc(n_kept * sizeof(int32_t));
            if (!kept) rc = base_fail_memory(w->err, n_kept * sizeof(int32_t), "segments");
            else memcpy(kept, w->certain + mark, n_kept * sizeof(int32_t));
        }
        w->n_certain = mark;
    }
    for (size_t i = 0; i < n_kept && !rc; i++) rc = certain_push(w, kept[i]);
    base_free(kept);
    w->cursor = end;
    return rc;
}

static int walk_node(walk *w, frame *f, int32_t i) {
    const pml_node *n = &w->l->schema->nodes[i];
    size_t mark;
    int rc;
    w->node = i;
    switch (n->kind) {
    case PML_TEXT: return walk_text(w, f, n);
    case PML_PARAM: return walk_param(w, f, i);
    case PML_ROLE: return walk_role(w, f, i);
    case PML_MODULE:
        close_segment(f);
        mark = w->n_certain;
        rc = walk_module(w, i, f->role);
        w->n_certain = mark;
        return rc;
    case PML_UNION: close_segment(f); return walk_union(w, i, f->role);
    default: return RP_OK; /* scaffolds have no text */
    }
}

static int walk_children(walk *w, frame *f, int32_t node) {
    const pml_document *d = w->l->schema;
    for (int32_t i = d->nodes[node].first_child; i >= 0; i = d->nodes[i].next) {
        int rc = walk_node(w, f, i);
        if (rc) return rc;
    }
    return RP_OK;
}

/* The first token of every text (beginning-of-text), or -1. */
static int32_t first_token(const rp_model *m) {
    return tokenizer_adds_bos(m->tokenizer) ? tokenizer_bos(m->tokenizer) : -1;
}

/* Resolves scopes and anchors, inherited ones as well: a module inherits from an earlier node. Returns true if a module
 * needs an anchor. */
static bool resolve_scopes(pml_layout *l) {
    const pml_document *d = l->schema;
    bool wanted = false;
    l->scope_of[0] = d->nodes[0].scope;
    l->anchor_of[0] = d->nodes[0].anchor;
    for (int32_t i = 1; i < d->n_nodes; i++) {
        const pml_node *n = &d->nodes[i];
        if (n->kind != PML_MODULE) continue;
        int32_t holder = pml_holder(d, i);
        l->scope_of[i] = n->scope == PML_SCOPE_INHERIT ? l->scope_of[holder] : n->scope;
        l->anchor_of[i] = n->anchor == PML_ANCHOR_INHERIT ? l->anchor_of[holder] : n->anchor;
        BASE_ASSERT(l->scope_of[i] != PML_SCOPE_INHERIT && l->anchor_of[i] != PML_ANCHOR_INHERIT);
        wanted |= l->scope_of[i] == PML_SCOPE_MODULE && l->anchor_of[i] == PML_ANCHOR_BOS;
    }
    return wanted;
}

/* The anchor is the beginning-of-text token as a separate segment. */
static int add_anchor(pml_layout *l, rp_error *err) {
    BASE_ASSERT(l->n_segments == PML_ANCHOR_SEGMENT);
    pml_segment s = {.sequence = -1, .joint_of = -1, .scaffold = -1, .last_role = CHAT_ROLE_NONE, .n_tokens = 1};
    if (token_list_push(&l->tokens, first_token(l->model))) return base_fail_memory(err, sizeof(int32_t), "tokens");
    l->first_plain = 1;
    return pml_layout_add_segment(l, &s, err);
}

static int walk_schema(pml_layout *l, rp_error *err) {
    walk w = {.l = l, .previous_role = CHAT_ROLE_NONE, .err = err};
    frame root = {.node = 0, .open = -1, .role = CHAT_ROLE_NONE};
    int32_t bos = first_token(l->model);
    int rc = resolve_scopes(l) && bos >= 0 ? add_anchor(l, err) : RP_OK;
    if (!rc && bos >= 0) {
        size_t before = l->tokens.n;
        if (token_list_push(&l->tokens, bos)) rc = base_fail_memory(err, sizeof(bos), "tokens");
        else rc = walk_count_tokens(&w, &root, before);
    }
    if (!rc) rc = walk_children(&w, &root, 0);
    base_free(w.certain);
    l->length = w.cursor;
    l->n_plain = l->n_segments;
    return rc;
}

/* ---- building ---- */

static int pml_layout_build(pml_layout *l, const base_key *salt, rp_error *err) {
    size_t n = (size_t)l->schema->n_nodes;
    l->sequence = base_calloc(n, sizeof(int32_t));
    l->position = base_calloc(n, sizeof(int32_t));
    l->scope_of = base_calloc(n, sizeof(pml_scope));
    l->anchor_of = base_calloc(n, sizeof(pml_anchor));
    if (!l->sequence || !l->position || !l->scope_of || !l->anchor_of) return base_fail_memory(err, n * 8, "a layout");
    if (!l->fixed && !model_is_movable(l->model) && model_capabilities(l->model).modules)
        return pml_fail(err, RP_ERR_UNSUPPORTED, l->schema, 0,
                        "layout=\"packed\" shifts modules, but architecture '%s' has learned positions, which are "
                        "part of the KV: write layout=\"fixed\"",
                        l->model->arch->name);
    int rc;
    if ((rc = walk_schema(l, err)) || (rc = pml_layout_join(l, err)) || (rc = pml_layout_name(l, salt, err))) return rc;
    pml_layout_reduce(l);
    return RP_OK;
}

int pml_layout_new(pml_layout **out, const pml_document *schema, const rp_model *model, const pml_formats *formats,
                   const base_key *salt, rp_error *err) {
    *out = NULL;
    pml_layout *l = base_calloc(1, sizeof(*l));
    if (!l) return base_fail_memory(err, sizeof(*l), "a layout");
    l->schema = schema;
    l->model = model;
    if (formats) l->formats = *formats;
    pml_layout_kind kind = schema->nodes[0].layout;
    l->fixed = kind == PML_LAYOUT_FIXED || (kind == PML_LAYOUT_DEFAULT && !model_is_movable(model));
    int rc = pml_layout_build(l, salt, err);
    if (rc) {
        pml_layout_free(l);
        return rc;
    }
    BASE_TRACE(PML, "schema %s: %d segments, %d of them joint, %zu tokens, %d positions", schema->nodes[0].name,
               l->n_segments, l->n_segments - l->n_plain, l->tokens.n, l->length);
    *out = l;
    return RP_OK;
}

void pml_layout_free(pml_layout *l) {
    if (!l) return;
    for (int32_t i = 0; i < l->n_scaffolds; i++) base_free(l->scaffolds[i].modules);
    base_free(l->scaffolds);
    base_free(l->segments);
    token_list_free(&l->tokens);
    base_free(l->scopes);
    base_free(l->holes);
    base_free(l->keys);
    base_free(l->sequence);
    base_free(l->position);
    base_free(l->scope_of);
    base_free(l->anchor_of);
    base_free(l);
}
