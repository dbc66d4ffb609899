/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c: a prompt laid out flat. Written only from docs/pml.md, its sections "Order of a prompt", "Layout" and
 * "What attends to what in a prompt". Threads: none.
 *
 *   order     items: the segments and texts of the prompt, in its order
 *   place     each item's position
 *   flatten   entries: one for each token of the prompt, by position, either fresh or a token of a segment's KV
 *   compute   segments' KV first (each attends to its scope), then the fresh tokens by position (each attends to every
 *             entry below)
 */
#include "reference.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "reference_model.h"
#include "reference_schema.h"

struct reference {
    gguf_file *file;
    tokenizer *tokenizer;
    reference_words words;
    reference_model *model;
};

typedef struct item {
    int32_t segment; /* -1: a text of the prompt */
    token_list text;
    int32_t node;  /* texts: the prompt's node, -1: control tokens */
    bool at_role;  /* a role of the prompt begins or ends before it */
    int32_t after; /* texts: the item that is its predecessor, -1 for none */
    int32_t position, n;
} item;

typedef struct entry {
    int32_t position, id;
    int32_t segment, offset; /* the segment's token, or segment -1 */
    bool fresh;
    int32_t token; /* its number in reference_kv */
    bool again;    /* recomputed, as quality requires */
    bool later;    /* will be, for an uncertain prediction */
} entry;

/* The attention list of a segment's token. */
typedef struct sights {
    reference_sight *list;
    size_t n, cap;
} sights;

/* A scaffold that the prompt imports. */
typedef struct joint_run {
    bool *named, *taken; /* [node]: the scaffold's modules; modules with their own text in its prompt */
    int32_t n_named;
    int32_t *first; /* [segment]: number of its first token in reference_kv; -1: not computed */
} joint_run;

struct reference_prompt {
    reference *r;
    reference_schema *s;
    const pml_document *d, *pd; /* schema, prompt */
    rp_error *err;
    int rc;
    /* order */
    int32_t *import_of; /* [schema node]: the prompt's node that imports this module, -1: none */
    bool *taken;        /* [schema node]: the prompt holds this module's own text (imported, default, or the
                           schema's) */
    bool *emitted;      /* [segment] */
    bool *given;        /* [schema node]: the default of this union was given */
    item *items;
    int32_t n_items, cap_items;
    int32_t predecessor; /* of the next text */
    bool at_role;        /* of the next item */
    int32_t tail;        /* fixed: where the next text after the schema comes */
    bool after_schema;   /* fixed: a text was placed there */
    int last_role;
    /* flat */
    entry *entries;
    int32_t n_entries;
    int32_t end;
    joint_run *joints;
    int32_t n_joints;
    int32_t *canonical; /* [segment]: number of its first token in reference_kv, -1: not computed */
    int32_t *joint_of;  /* [segment]: index in joints, -1 */
    reference_kv *states;
    sights *seen; /* [token of reference_kv]; those of segments */
    int32_t n_seen;
    rp_quality quality;      /* the request's */
    const rp_result *choice; /* of blend and focus, or NULL */
    int64_t n_predicted;     /* tokens of the answer */
    float *logits;
};

static const pml_node *schema_node(const reference_prompt *p, int32_t i) { return &p->d->nodes[i]; }

static int32_t *minus_ones(int32_t n) {
    int32_t *a = reference_alloc((size_t)n, sizeof *a);
    for (int32_t i = 0; i < n; i++) a[i] = -1;
    return a;
}

/* ---- imported modules ------------------------------------------------------------------------------------------ */

static void note_imports(reference_prompt *p, int32_t node, int32_t holder) {
    for (int32_t i = p->pd->nodes[node].first_child; i >= 0; i = p->pd->nodes[i].next) {
        const pml_node *n = &p->pd->nodes[i];
        if (n->kind == PML_ROLE) note_imports(p, i, holder);
        if (n->kind != PML_IMPORT) continue;
        int32_t module = pml_find_module(p->d, holder, n->name, strlen(n->name));
        if (module < 0) {
            p->rc = base_fail(p->err, RP_ERR_NAME, "reference: no module '%s'", n->name);
            continue;
        }
        p->import_of[module] = i;
        p->taken[module] = true;
        note_imports(p, i, module);
    }
}

static bool member_is_taken(const pml_document *d, int32_t union_node, const bool *taken) {
    for (int32_t i = d->nodes[union_node].first_child; i >= 0; i = d->nodes[i].next)
        if (taken[i]) return true;
    return false;
}

/* A union with an imported holder and no imported member has its default. Nodes are in document order: defaults of
 * defaults follow. */
static void take_defaults(const pml_document *d, bool *taken) {
    for (int32_t u = 0; u < d->n_nodes; u++) {
        if (d->nodes[u].kind != PML_UNION || !taken[pml_holder(d, u)] || member_is_taken(d, u, taken)) continue;
        int32_t member = reference_default_member(d, u);
        if (member >= 0) taken[member] = true;
    }
}

/* ---- order ----------------------------------------------------------------------------------------------------- */

static item *new_item(reference_prompt *p, int32_t segment) {
    if (p->n_items == p->cap_items) {
        item *more = reference_alloc((size_t)p->cap_items * 2 + 16, sizeof *more);
        if (p->n_items) memcpy(more, p->items, (size_t)p->n_items * sizeof *more);
        free(p->items);
        p->items = more;
        p->cap_items = p->cap_items * 2 + 16;
    }
    item *t = &p->items[p->n_items++];
    *t = (item){.segment = segment, .node = -1, .at_role = p->at_role, .after = p->predecessor};
    p->at_role = false;
    return t;
}

static void emit_segment(reference_prompt *p, int32_t segment) {
    const reference_segment *g = &p->s->segments[segment];
    item *t = new_item(p, segment);
    t->n = (int32_t)g->tokens.n;
    p->emitted[segment] = true;
    p->predecessor = p->n_items - 1;
    if (g->last_role != CHAT_ROLE_NONE) p->last_role = g->last_role;
}

/* The text at the beginning or end of a role; may be empty. */
static void emit_special(reference_prompt *p, const char *text) {
    token_list l = {0};
    p->at_role = true;
    reference_encode(&p->r->words, text, strlen(text), true, false, &l);
    if (l.n == 0) return;
    item *t = new_item(p, -1);
    t->text = l;
    t->n = (int32_t)l.n;
    p->predecessor = p->n_items - 1;
}

/* The first segment of holder that was not emitted, begins before `order`; -1. */
static int32_t next_segment(const reference_prompt *p, int32_t holder, int32_t order) {
    for (int32_t i = 0; i < p->s->n_segments; i++)
        if (p->s->segments[i].holder == holder && !p->emitted[i] && p->s->segments[i].order < order) return i;
    return -1;
}

/* The first union of holder that gives its default and has not yet; -1. */
static int32_t next_default(const reference_prompt *p, int32_t holder, int32_t order) {
    for (int32_t u = 0; u < p->d->n_nodes; u++) {
        if (schema_node(p, u)->kind != PML_UNION || pml_holder(p->d, u) != holder || p->given[u]) continue;
        int32_t member = reference_default_member(p->d, u);
        if (member < 0 || !p->taken[member] || p->import_of[member] >= 0 || p->s->order[u] >= order) continue;
        return u;
    }
    return -1;
}

/* The text certain to be in holder before `order` of the schema: its segments and the defaults of its unions. */
static void emit_own(reference_prompt *p, int32_t holder, int32_t order) {
    for (;;) {
        int32_t g = next_segment(p, holder, order), u = next_default(p, holder, order);
        if (g < 0 && u < 0) return;
        if (u < 0 || (g >= 0 && p->s->segments[g].order < p->s->order[u])) {
            emit_segment(p, g);
            continue;
        }
        p->given[u] = true;
        emit_own(p, reference_default_member(p->d, u), INT_MAX);
    }
}

static void emit_module(reference_prompt *p, int32_t import, int32_t holder) {
    const char *name = p->pd->nodes[import].name;
    int32_t module = pml_find_module(p->d, holder, name, strlen(name));
    emit_own(p, holder, p->s->order[module]);
    for (int32_t i = p->pd->nodes[import].first_child; i >= 0; i = p->pd->nodes[i].next)
        if (p->pd->nodes[i].kind == PML_IMPORT) emit_module(p, i, module);
    emit_own(p, module, INT_MAX);
}

/* Fixed: a text after an import follows all of it, and imports keep their canonical order. */
static void emit_import(reference_prompt *p, int32_t import) {
    const char *name = p->pd->nodes[import].name;
    int32_t module = pml_find_module(p->d, 0, name, strlen(name)), last = -1;
    int32_t first = p->n_items;
    emit_module(p, import, 0);
    for (int32_t i = first; i < p->n_items; i++) {
        const reference_segment *segments = p->s->segments;
        if (!reference_is_inside(p->d, segments[p->items[i].segment].holder, module)) continue;
        if (last < 0 || segments[p->items[i].segment].fixed > segments[p->items[last].segment].fixed) last = i;
    }
    if (last >= 0) p->predecessor = last;
}

/* Its tokens are computed when all following items are known. */
static void emit_prompt_text(reference_prompt *p, int32_t node) {
    new_item(p, -1)->node = node;
    p->predecessor = p->n_items - 1;
}

static void emit_children(reference_prompt *p, int32_t node);

static void emit_role(reference_prompt *p, int32_t node) {
    int role = p->pd->nodes[node].role;
    emit_own(p, 0, INT_MAX);
    chat_text around = chat_format_around(p->r->words.chat, (chat_role)role, p->last_role);
    p->last_role = role;
    emit_special(p, around.before);
    emit_children(p, node);
    p->last_role = role; /* imports in it may have brought texts of other roles */
    emit_special(p, around.after);
}

static void emit_children(reference_prompt *p, int32_t node) {
    for (int32_t i = p->pd->nodes[node].first_child; i >= 0; i = p->pd->nodes[i].next) {
        switch (p->pd->nodes[i].kind) {
        case PML_TEXT: emit_prompt_text(p, i); break;
        case PML_IMPORT: emit_import(p, i); break;
        case PML_ROLE: emit_role(p, i); break;
        default: break;
        }
    }
}

/* The schema order of the text at the start of a prompt: before the first import, or the first module. */
static int32_t order_of_first_import(const reference_prompt *p) {
    int32_t first = -1, module = -1;
    for (int32_t i = 0; i < p->pd->n_nodes && first < 0; i++)
        if (p->pd->nodes[i].kind == PML_IMPORT) first = i;
    if (first >= 0) {
        const char *name = p->pd->nodes[first].name;
        return p->s->order[pml_find_module(p->d, 0, name, strlen(name))];
    }
    for (int32_t i = 0; i < p->d->n_nodes && module < 0; i++)
        if (p->d->nodes[i].kind == PML_MODULE || p->d->nodes[i].kind == PML_UNION) module = i;
    return module < 0 ? INT_MAX : p->s->order[module];
}

static void order_items(reference_prompt *p) {
    int32_t first = p->pd->nodes[0].first_child;
    p->predecessor = -1;
    p->last_role = CHAT_ROLE_NONE;
    if (first >= 0 && p->pd->nodes[first].kind == PML_TEXT) emit_own(p, 0, order_of_first_import(p));
    emit_children(p, 0);
    emit_own(p, 0, INT_MAX);
}

/* ---- texts before imports -------------------------------------------------------------------------------------- */

static const char *argument(const reference_prompt *p, int32_t module, const char *name) {
    if (p->import_of[module] < 0) return "";
    const pml_node *import = &p->pd->nodes[p->import_of[module]];
    for (int32_t i = 0; i < import->n_arguments; i++)
        if (strcmp(import->arguments[i].name, name) == 0) return import->arguments[i].value;
    return "";
}

static bool begins_with_white(const char *text) { return text[0] && strchr(" \t\r\n", text[0]); }

/* Does an item begin neither with white space nor at an edge of a role? *empty: it begins with nothing, because
 * the arguments at its start are not given. */
static bool begins_with_word(const reference_prompt *p, const item *t, bool *empty) {
    *empty = false;
    if (t->at_role || (t->segment < 0 && t->node < 0)) return false;
    if (t->segment < 0) return !begins_with_white(p->pd->nodes[t->node].text);
    const reference_segment *g = &p->s->segments[t->segment];
    if (g->at_role || g->first < 0) return false;
    for (int32_t i = g->first; i >= 0; i = schema_node(p, i)->next) {
        const pml_node *n = schema_node(p, i);
        bool dummy = !n->text_continues && tokenizer_has_space_prefix(p->r->tokenizer);
        if (n->kind == PML_TEXT) return !dummy && !begins_with_white(n->text);
        if (n->kind == PML_ROLE) return false;
        if (n->kind != PML_PARAM) break;
        const char *value = argument(p, g->holder, n->name);
        if (value[0]) return !n->border_space && !begins_with_white(value);
        if (n->next < 0 && schema_node(p, n->parent)->kind == PML_ROLE) return false;
    }
    *empty = true;
    return false;
}

static void finish_texts(reference_prompt *p) {
    for (int32_t i = 0; i < p->n_items; i++) {
        item *t = &p->items[i];
        if (t->segment >= 0 || t->node < 0) continue;
        bool empty = true, word = false;
        for (int32_t k = i + 1; k < p->n_items && empty; k++) word = begins_with_word(p, &p->items[k], &empty);
        reference_encode_text(&p->r->words, &p->pd->nodes[t->node],
                              p->pd->nodes[t->node].border_space && word ? " " : "", &t->text);
        t->n = (int32_t)t->text.n;
    }
}

/* ---- place ----------------------------------------------------------------------------------------------------- */

static int32_t item_end(const item *t) { return t->position + t->n; }

static int32_t end_of_items(const reference_prompt *p) {
    int32_t end = 0;
    for (int32_t i = 0; i < p->n_items; i++) end = item_end(&p->items[i]) > end ? item_end(&p->items[i]) : end;
    return end;
}

static void place_packed(reference_prompt *p) {
    int32_t position = 0;
    for (int32_t i = 0; i < p->n_items; i++) {
        p->items[i].position = position;
        position += p->items[i].n;
    }
}

/* The first position from `start` on that a segment of the prompt takes; -1: none. */
static int32_t next_taken(const reference_prompt *p, int32_t start) {
    int32_t next = -1;
    for (int32_t i = 0; i < p->n_items; i++) {
        const item *t = &p->items[i];
        if (t->segment >= 0 && t->position >= start && (next < 0 || t->position < next)) next = t->position;
    }
    return next;
}

static void place_fixed_text(reference_prompt *p, item *t) {
    int32_t start = t->after < 0 ? 0 : item_end(&p->items[t->after]);
    int32_t next = next_taken(p, start);
    bool fits = start + t->n <= next;
    if (next < 0 || next == start || (t->node < 0 && !fits)) p->after_schema = true;
    if (!p->after_schema && !fits)
        p->rc = base_fail(p->err, RP_ERR_LENGTH, "reference: %d tokens in a gap of %d", t->n, next - start);
    t->position = p->after_schema ? p->tail : start;
    if (p->after_schema) p->tail += t->n;
}

static void place_fixed(reference_prompt *p) {
    p->tail = p->s->length;
    for (int32_t i = 0; i < p->n_items; i++)
        if (p->items[i].segment >= 0) p->items[i].position = p->s->segments[p->items[i].segment].fixed;
    for (int32_t i = 0; i < p->n_items; i++)
        if (p->items[i].segment < 0) place_fixed_text(p, &p->items[i]);
}

/* The generation prompt follows everything. */
static void open_answer(reference_prompt *p) {
    token_list l = {0};
    if (p->last_role != CHAT_ROLE_NONE) {
        const char *text = chat_format_answer(p->r->words.chat, p->last_role);
        reference_encode(&p->r->words, text, strlen(text), true, false, &l);
    }
    if (l.n > 0) {
        int32_t end = end_of_items(p);
        item *t = new_item(p, -1);
        t->text = l;
        t->n = (int32_t)l.n;
        t->position = p->s->fixed && end < p->s->length ? p->s->length : end;
    }
    p->end = end_of_items(p);
}

/* ---- flatten --------------------------------------------------------------------------------------------------- */

static void new_entry(reference_prompt *p, int32_t position, int32_t id, int32_t segment, int32_t offset, bool fresh) {
    p->entries[p->n_entries++] = (entry){position, id, segment, offset, fresh, -1, false, false};
}

static void flatten_argument(reference_prompt *p, const item *t, const reference_segment *g,
                             const reference_hole *hole) {
    const pml_node *param = schema_node(p, hole->param);
    token_list l = {0};
    reference_value(&p->r->words, param, argument(p, g->holder, param->name), &l);
    if (l.n > (size_t)hole->n)
        p->rc = base_fail(p->err, RP_ERR_LENGTH, "reference: %zu tokens for a parameter of %d", l.n, hole->n);
    for (int32_t i = 0; i < (int32_t)l.n && i < hole->n; i++)
        new_entry(p, t->position + hole->first + i, l.ids[i], -1, 0, true);
    token_list_free(&l);
}

/* Is it the anonymous text of one token at position 0, and the next position that of a text of the prompt? */
static bool opens_text(const reference_prompt *p, const item *t, const reference_segment *g) {
    bool text_follows = false;
    for (int32_t i = 0; i < p->n_items; i++)
        text_follows |= p->items[i].segment < 0 && p->items[i].n > 0 && p->items[i].position == 1;
    return text_follows && g->holder == 0 && t->position == 0 && t->n == 1 && g->n_holes == 0;
}

static void flatten_segment(reference_prompt *p, const item *t) {
    const reference_segment *g = &p->s->segments[t->segment];
    bool fresh = (g->holder != 0 && !schema_node(p, g->holder)->cache) || opens_text(p, t, g);
    int32_t hole = 0;
    for (int32_t i = 0; i < t->n; i++) {
        if (hole < g->n_holes && g->holes[hole].first == i) {
            flatten_argument(p, t, g, &g->holes[hole]);
            i += g->holes[hole++].n - 1;
            continue;
        }
        new_entry(p, t->position + i, g->tokens.ids[i], t->segment, i, fresh);
    }
}

static int by_position(const void *a, const void *b) {
    const entry *x = a, *y = b;
    return (x->position > y->position) - (x->position < y->position);
}

/* The last token is always fresh: its logits are needed. */
static void flatten(reference_prompt *p) {
    p->entries = reference_alloc((size_t)p->end + 1, sizeof *p->entries);
    for (int32_t i = 0; i < p->n_items; i++) {
        const item *t = &p->items[i];
        if (t->segment >= 0) flatten_segment(p, t);
        for (int32_t j = 0; t->segment < 0 && j < t->n; j++) new_entry(p, t->position + j, t->text.ids[j], -1, 0, true);
    }
    qsort(p->entries, (size_t)p->n_entries, sizeof *p->entries, by_position);
    if (p->n_entries > 0) p->entries[p->n_entries - 1].fresh = true;
    if (p->n_entries > 0) p->end = p->entries[p->n_entries - 1].position + 1; /* the answer follows the last token */
}

/* ---- scaffolds ------------------------------------------------------------------------------------------------- */

/* The module that a path of n bytes names. */
static int32_t module_at(const pml_document *d, const char *path, size_t n) {
    int32_t module = 0;
    while (n > 0 && module >= 0) {
        size_t part = strcspn(path, "/") < n ? strcspn(path, "/") : n;
        module = pml_find_module(d, module, path, part);
        size_t step = part < n ? part + 1 : part;
        path += step;
        n -= step;
    }
    return module;
}

/* The joint prefill of a scaffold: the named modules, the modules around them, and the defaults of their unions. */
static joint_run joint_of_scaffold(const reference_prompt *p, int32_t node) {
    int32_t n_nodes = p->d->n_nodes;
    joint_run j = {.named = reference_alloc((size_t)n_nodes, 1), .taken = reference_alloc((size_t)n_nodes, 1)};
    const char *c = schema_node(p, node)->scaffold;
    j.first = minus_ones(p->s->n_segments);
    j.taken[0] = true;
    for (c += strspn(c, " \t\r\n"); *c; c += strspn(c, " \t\r\n")) {
        size_t n = strcspn(c, " \t\r\n");
        int32_t module = module_at(p->d, c, n);
        if (module > 0 && !j.named[module]) {
            j.named[module] = true;
            j.n_named++;
        }
        for (int32_t m = module; m > 0; m = pml_holder(p->d, m)) j.taken[m] = true;
        c += n;
    }
    take_defaults(p->d, j.taken);
    return j;
}

static void joint_free(joint_run *j) {
    free(j->named);
    free(j->taken);
    free(j->first);
}

static bool joint_fits(const reference_prompt *p, const joint_run *j) {
    for (int32_t i = 0; i < p->d->n_nodes; i++)
        if (j->named[i] && !p->taken[i]) return false;
    return true;
}

static bool joint_overlaps(const reference_prompt *p, const joint_run *j) {
    for (int32_t k = 0; k < p->n_joints; k++)
        for (int32_t i = 0; i < p->d->n_nodes; i++)
            if (j->named[i] && p->joints[k].named[i]) return true;
    return false;
}

static void choose_joint(reference_prompt *p, joint_run j) {
    for (int32_t i = 0; i < p->s->n_segments; i++)
        if (j.taken[p->s->segments[i].holder] && p->joint_of[i] < 0) p->joint_of[i] = p->n_joints;
    p->joints[p->n_joints++] = j;
}

/* Of the scaffolds that fit, the one with most modules first, then the first in the schema; a module belongs to one. */
static void choose_joints(reference_prompt *p) {
    int32_t most = 0;
    p->joints = reference_alloc((size_t)p->d->n_nodes, sizeof *p->joints);
    for (int32_t i = 0; i < p->d->n_nodes; i++) most += schema_node(p, i)->kind == PML_MODULE;
    for (int32_t n = most; n > 0; n--) {
        for (int32_t i = 0; i < p->d->n_nodes; i++) {
            if (schema_node(p, i)->kind != PML_SCAFFOLD) continue;
            joint_run j = joint_of_scaffold(p, i);
            if (j.n_named == n && joint_fits(p, &j) && !joint_overlaps(p, &j)) choose_joint(p, j);
            else joint_free(&j);
        }
    }
}

/* ---- compute --------------------------------------------------------------------------------------------------- */

static void see(sights *l, int32_t token, int32_t distance) {
    if (l->n == l->cap) {
        reference_sight *more = reference_alloc(l->cap * 2 + 64, sizeof *more);
        if (l->n) memcpy(more, l->list, l->n * sizeof *more);
        free(l->list);
        l->list = more;
        l->cap = l->cap * 2 + 64;
    }
    l->list[l->n++] = (reference_sight){token, distance};
}

/* Of the token that was added last. */
static void keep_sights(reference_prompt *p, sights l) {
    int32_t n = reference_kv_count(p->states);
    sights *more = reference_alloc((size_t)n, sizeof *more);
    if (p->n_seen) memcpy(more, p->seen, (size_t)p->n_seen * sizeof *more);
    free(p->seen);
    p->seen = more;
    p->seen[n - 1] = l;
    p->n_seen = n;
}

/* Computes a segment at `position`, attending to the anchor (-1: none) and to n_scope segments: `scope` has their
 * positions, `firsts` their first tokens. */
static int32_t compute_segment(reference_prompt *p, const reference_segment *g, int32_t position, int32_t anchor,
                               const reference_place *scope, const int32_t *firsts, int32_t n_scope) {
    int32_t first = reference_kv_count(p->states);
    for (int32_t i = 0; i < (int32_t)g->tokens.n; i++) {
        sights l = {0};
        if (anchor >= 0) see(&l, anchor, position + i);
        for (int32_t k = 0; k < n_scope; k++)
            for (int32_t j = 0; j < (int32_t)p->s->segments[scope[k].segment].tokens.n; j++)
                see(&l, firsts[k] + j, position + i - (scope[k].position + j));
        for (int32_t j = 0; j < i; j++) see(&l, first + j, i - j);
        reference_kv_add(p->states, g->tokens.ids[i], position + i, l.list, l.n, NULL);
        keep_sights(p, l);
    }
    return first;
}

/* A segment's own KV: it attends to its scope. Segments of the scope were computed in the same way. */
static void compute_canonical(reference_prompt *p, int32_t segment) {
    const reference_segment *g = &p->s->segments[segment];
    if (p->canonical[segment] >= 0) return;
    int32_t *firsts = reference_alloc((size_t)g->n_scope, sizeof *firsts);
    for (int32_t k = 0; k < g->n_scope; k++) {
        compute_canonical(p, g->scope[k].segment);
        firsts[k] = p->canonical[g->scope[k].segment];
    }
    if (g->anchored) compute_canonical(p, 0); /* it begins with the beginning-of-text token */
    p->canonical[segment] =
        compute_segment(p, g, g->position, g->anchored ? p->canonical[0] : -1, g->scope, firsts, g->n_scope);
    free(firsts);
}

/* The segments that segment i attends to in a scaffold's joint prefill: all earlier ones; a member of scope module
 * attends to named modules only. Packed: consecutive positions from 0, as in every scope, or from 1 after the anchor of
 * such a member. Returns the number of segments; *length: the position after them; *anchored: it has an anchor. */
static int32_t joint_scope(const reference_prompt *p, const joint_run *j, int32_t i, reference_place *scope,
                           int32_t *length, bool *anchored) {
    int32_t holder = p->s->segments[i].holder, n = 0;
    bool members_only = j->named[holder] && reference_scope_is_module(p->d, holder);
    *anchored = members_only && p->s->segments[i].anchored;
    *length = *anchored;
    for (int32_t k = 0; k < i; k++) {
        const reference_segment *g = &p->s->segments[k];
        if (!j->taken[g->holder] || (members_only && !j->named[g->holder])) continue;
        scope[n++] = (reference_place){k, p->s->fixed ? g->fixed : *length};
        *length += (int32_t)g->tokens.n;
    }
    return n;
}

/* All of a scaffold's segments, in document order. */
static void compute_joint(reference_prompt *p, joint_run *j) {
    reference_place *scope = reference_alloc((size_t)p->s->n_segments, sizeof *scope);
    int32_t *firsts = reference_alloc((size_t)p->s->n_segments, sizeof *firsts), length;
    for (int32_t i = 0; i < p->s->n_segments; i++) {
        const reference_segment *g = &p->s->segments[i];
        if (!j->taken[g->holder]) continue;
        bool anchored;
        int32_t n = joint_scope(p, j, i, scope, &length, &anchored);
        for (int32_t k = 0; k < n; k++) firsts[k] = j->first[scope[k].segment];
        j->first[i] =
            compute_segment(p, g, p->s->fixed ? g->fixed : length, anchored ? j->first[0] : -1, scope, firsts, n);
    }
    free(firsts);
    free(scope);
}

static int32_t state_of(reference_prompt *p, const entry *e) {
    int32_t joint = p->joint_of[e->segment];
    if (joint < 0) {
        compute_canonical(p, e->segment);
        return p->canonical[e->segment] + e->offset;
    }
    if (p->joints[joint].first[e->segment] < 0) compute_joint(p, &p->joints[joint]);
    return p->joints[joint].first[e->segment] + e->offset;
}

static void compute_fresh(reference_prompt *p, entry *e, bool last) {
    sights l = {0};
    for (const entry *b = p->entries; b < e; b++) see(&l, b->token, e->position - b->position);
    e->token = reference_kv_count(p->states);
    reference_kv_add(p->states, e->id, e->position, l.list, l.n, last ? p->logits : NULL);
    free(l.list);
}

/* ---- quality --------------------------------------------------------------------------------------------------- */

/* The first one set: by the request, the prompt, the module, enclosing modules, the schema. */
static rp_quality quality_of(const reference_prompt *p, int32_t holder) {
    const rp_quality reuse = {RP_QUALITY_REUSE, 0};
    if (p->quality.mode) return p->quality;
    if (p->pd->nodes[0].quality.mode) return p->pd->nodes[0].quality;
    for (; holder >= 0; holder = pml_holder(p->d, holder))
        if (schema_node(p, holder)->quality.mode) return schema_node(p, holder)->quality;
    return reuse;
}

/* Did the entry, when its segment was computed, attend to exactly the tokens before it here, at the same positions? */
static bool is_plain(const reference_prompt *p, const entry *e) {
    const sights *l = e->fresh ? NULL : &p->seen[e->token];
    if (!l || l->n != (size_t)(e - p->entries)) return false;
    for (const entry *b = p->entries; b < e; b++) {
        bool found = false;
        for (size_t i = 0; i < l->n && !found; i++)
            found = l->list[i].token == b->token && l->list[i].distance == e->position - b->position;
        if (!found) return false;
    }
    return true;
}

static bool belongs(const entry *e, const item *t) {
    return t->segment >= 0 && e->segment == t->segment && e->position >= t->position && e->position < item_end(t);
}

/* Segments with parameters are never plain: not even the text before them counts. One without any token, a
 * parameter without an argument, changes nothing. */
static bool item_is_plain(const reference_prompt *p, const item *t) {
    bool is_empty = true;
    for (int32_t i = 0; i < p->n_entries; i++) {
        if (!belongs(&p->entries[i], t) || p->entries[i].fresh) continue;
        if (!is_plain(p, &p->entries[i])) return false;
        is_empty = false;
    }
    return is_empty || p->s->segments[t->segment].n_holes == 0;
}

static void compute_again(reference_prompt *p, const item *t, int32_t most) {
    for (int32_t i = 0; i < p->n_entries && most > 0; i++) {
        if (!belongs(&p->entries[i], t) || p->entries[i].fresh) continue;
        p->entries[i].fresh = p->entries[i].again = true;
        most--;
    }
}

static bool is_chosen(const reference_prompt *p, const char *reason, int32_t position) {
    for (int32_t i = 0; p->choice && i < p->choice->n_plan; i++) {
        const rp_plan_item *t = &p->choice->plan[i];
        if (strcmp(t->reason, reason) == 0 && position >= t->position && position < t->position + t->n_tokens)
            return true;
    }
    return false;
}

static int32_t count_chosen(const reference_prompt *p, const char *reason) {
    int32_t n = 0;
    for (int32_t i = 0; p->choice && i < p->choice->n_plan; i++)
        n += strcmp(p->choice->plan[i].reason, reason) ? 0 : p->choice->plan[i].n_tokens;
    return n;
}

/* Returns their number; adds the maximum number to *all. Those of focus are computed later. */
static int32_t compute_chosen(reference_prompt *p, const item *t, rp_quality_mode mode, int32_t *all) {
    const char *reason = mode == RP_QUALITY_FOCUS ? "focus" : "blend";
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_entries; i++) {
        entry *e = &p->entries[i];
        if (!belongs(e, t) || e->fresh) continue;
        const bool is = is_chosen(p, reason, e->position);
        if (mode == RP_QUALITY_FOCUS) e->later = is;
        else e->fresh = e->again = is;
        n += is;
        ++*all;
    }
    return n;
}

/* The choice of blend or focus: in modules that request it and are not plain, and at most its percentage of the tokens
 * of all modules with the same percentage. */
static void choose(reference_prompt *p, rp_quality_mode mode, const bool *plain) {
    const char *reason = mode == RP_QUALITY_FOCUS ? "focus" : "blend";
    int32_t all[101] = {0}, chosen[101] = {0}, n = 0;
    for (int32_t i = 0; i < p->n_items; i++) {
        const item *t = &p->items[i];
        rp_quality q = t->segment < 0 ? p->quality : quality_of(p, p->s->segments[t->segment].holder);
        if (t->segment >= 0 && q.mode == mode && !plain[i])
            chosen[q.amount] += compute_chosen(p, t, mode, &all[q.amount]);
    }
    for (int32_t r = 1; r <= 100; r++) {
        n += chosen[r];
        if (chosen[r] > (all[r] * r + 99) / 100)
            p->rc = base_fail(p->err, RP_ERR_CONFLICT, "reference: %s:%d chose %d of %d tokens", reason, r, chosen[r],
                              all[r]);
    }
    if (n != count_chosen(p, reason))
        p->rc = base_fail(p->err, RP_ERR_CONFLICT, "reference: %s chose %d tokens, and may have %d", reason,
                          count_chosen(p, reason), n);
}

/* Are all modules exact or, without modules, the schema's text? */
static bool all_exact(const reference_prompt *p) {
    int32_t n[2] = {0}, exact[2] = {0};
    for (int32_t i = 0; i < p->n_items; i++) {
        if (p->items[i].segment < 0) continue;
        int32_t holder = p->s->segments[p->items[i].segment].holder;
        n[holder != 0]++;
        exact[holder != 0] += quality_of(p, holder).mode == RP_QUALITY_EXACT;
    }
    int which = n[1] > 0;
    return n[which] > 0 ? exact[which] == n[which] : quality_of(p, 0).mode == RP_QUALITY_EXACT;
}

static void turn_the_dial(reference_prompt *p) {
    bool *plain = reference_alloc((size_t)p->n_items + 1, sizeof *plain);
    bool flat = all_exact(p);
    for (int32_t i = 0; i < p->n_items; i++) plain[i] = p->items[i].segment >= 0 && item_is_plain(p, &p->items[i]);
    for (int32_t i = 0; i < p->n_items; i++) /* and all that it saw was plain */
        for (int32_t k = 0; k < p->n_items && !plain[i]; k++)
            if (p->items[k].n > 0 && p->items[k].position > p->items[i].position) plain[k] = false;
    for (int32_t i = 0; i < p->n_items; i++) {
        const item *t = &p->items[i];
        if (t->segment < 0) continue;
        rp_quality q = quality_of(p, p->s->segments[t->segment].holder);
        if (flat || (q.mode == RP_QUALITY_EXACT && !plain[i])) compute_again(p, t, t->n);
        else if (q.mode == RP_QUALITY_LINK && !plain[i]) compute_again(p, t, q.amount);
    }
    if (!flat) choose(p, RP_QUALITY_BLEND, plain);
    if (!flat && !p->rc) choose(p, RP_QUALITY_FOCUS, plain);
    free(plain);
}

/* The logits predict the next token of the answer. If they are the uncertain ones, the chosen tokens of modules are
 * computed in the prompt's context, and then the last token again. All others stay as they are, although they attended
 * to the modules. */
static void focus(reference_prompt *p) {
    if (!p->choice || ++p->n_predicted != p->choice->quality.focus_token) return;
    for (int32_t i = 0; i < p->n_entries; i++) {
        entry *e = &p->entries[i];
        if (!e->later) continue;
        e->fresh = e->again = true;
        e->later = false;
        compute_fresh(p, e, false);
    }
    compute_fresh(p, &p->entries[p->n_entries - 1], true);
}

static void compute(reference_prompt *p) {
    p->states = reference_kv_new(p->r->model);
    p->logits = reference_alloc((size_t)reference_model_n_vocab(p->r->model), sizeof *p->logits);
    for (int32_t i = 0; i < p->n_entries; i++)
        if (!p->entries[i].fresh) p->entries[i].token = state_of(p, &p->entries[i]);
    if (p->d) turn_the_dial(p);
    for (int32_t i = 0; i < p->n_entries; i++)
        if (p->entries[i].fresh) compute_fresh(p, &p->entries[i], i == p->n_entries - 1);
    focus(p);
}

/* ---- the interface --------------------------------------------------------------------------------------------- */

int reference_open(reference **out, const char *path, const char *chat, int32_t n_ctx, rp_error *err) {
    reference *r = reference_alloc(1, sizeof *r);
    int rc = gguf_open(&r->file, path, err);
    if (!rc) rc = tokenizer_new(&r->tokenizer, r->file, err);
    if (!rc) rc = reference_model_open(&r->model, r->file, n_ctx, err);
    if (rc) {
        reference_close(r);
        *out = NULL;
        return rc;
    }
    r->words.tokenizer = r->tokenizer;
    r->words.chat = chat ? chat_format_find(chat) : chat_format_detect(r->file, r->tokenizer, NULL);
    *out = r;
    return 0;
}

void reference_close(reference *r) {
    if (!r) return;
    reference_model_close(r->model);
    tokenizer_free(r->tokenizer);
    gguf_close(r->file);
    free(r);
}

int32_t reference_n_vocab(const reference *r) { return reference_model_n_vocab(r->model); }

bool reference_schema_is_too_long(const reference *r, const pml_document *schema) {
    reference_schema *s = reference_schema_new(schema, &r->words);
    reference_schema_free(s);
    return !s;
}

static reference_prompt *new_prompt(reference *r, const pml_document *schema, const pml_document *prompt,
                                    rp_error *err) {
    reference_prompt *p = reference_alloc(1, sizeof *p);
    size_t n_nodes = (size_t)schema->n_nodes;
    p->r = r;
    p->d = schema;
    p->pd = prompt;
    p->err = err;
    p->s = reference_schema_new(schema, &r->words);
    p->import_of = minus_ones(schema->n_nodes);
    p->taken = reference_alloc(n_nodes, sizeof *p->taken);
    p->given = reference_alloc(n_nodes, sizeof *p->given);
    p->emitted = reference_alloc((size_t)p->s->n_segments, sizeof *p->emitted);
    p->canonical = minus_ones(p->s->n_segments);
    p->joint_of = minus_ones(p->s->n_segments);
    return p;
}

static void check_end(reference_prompt *p) {
    const int32_t most = reference_model_n_positions(p->r->model);
    if (most > 0 && p->end > most)
        p->rc = base_fail(p->err, RP_ERR_CONTEXT, "reference: the prompt ends at %d, the model has %d positions",
                          p->end, most);
}

static void lay_out(reference_prompt *p) {
    p->taken[0] = true;
    note_imports(p, 0, 0);
    if (p->rc) return;
    take_defaults(p->d, p->taken);
    order_items(p);
    finish_texts(p);
    if (p->s->fixed) place_fixed(p);
    else place_packed(p);
    if (p->rc) return;
    open_answer(p);
    check_end(p);
    if (p->rc) return;
    flatten(p);
    if (p->n_entries == 0) p->rc = base_fail(p->err, RP_ERR_INVALID, "reference: no tokens");
    choose_joints(p);
}

int reference_prompt_new(reference_prompt **out, reference *r, const pml_document *schema, const pml_document *prompt,
                         rp_quality quality, const rp_result *choice, rp_error *err) {
    reference_prompt *p = new_prompt(r, schema, prompt, err);
    p->quality = quality;
    p->choice = choice;
    lay_out(p);
    if (!p->rc) compute(p);
    int rc = p->rc;
    if (rc) {
        reference_prompt_free(p);
        p = NULL;
    }
    *out = p;
    return rc;
}

reference_prompt *reference_plain_new(reference *r, const int32_t *ids, int32_t n) {
    reference_prompt *p = reference_alloc(1, sizeof *p);
    p->r = r;
    p->entries = reference_alloc((size_t)n + 1, sizeof *p->entries);
    if (tokenizer_adds_bos(r->tokenizer)) new_entry(p, 0, tokenizer_bos(r->tokenizer), -1, 0, true);
    for (int32_t i = 0; i < n; i++) new_entry(p, p->n_entries, ids[i], -1, 0, true);
    p->end = p->n_entries;
    compute(p);
    return p;
}

void reference_prompt_free(reference_prompt *p) {
    if (!p) return;
    for (int32_t i = 0; i < p->n_items; i++) token_list_free(&p->items[i].text);
    for (int32_t i = 0; i < p->n_joints; i++) joint_free(&p->joints[i]);
    for (int32_t i = 0; i < p->n_seen; i++) free(p->seen[i].list);
    free(p->seen);
    reference_kv_free(p->states);
    reference_schema_free(p->s);
    free(p->joints);
    free(p->import_of);
    free(p->taken);
    free(p->given);
    free(p->emitted);
    free(p->canonical);
    free(p->joint_of);
    free(p->items);
    free(p->entries);
    free(p->logits);
    free(p);
}

const float *reference_prompt_logits(const reference_prompt *p) { return p->logits; }

const float *reference_prompt_append(reference_prompt *p, int32_t token) {
    entry *more = reference_alloc((size_t)p->n_entries + 1, sizeof *more);
    if (p->n_entries) memcpy(more, p->entries, (size_t)p->n_entries * sizeof *more);
    free(p->entries);
    p->entries = more;
    new_entry(p, p->end++, token, -1, 0, true);
    compute_fresh(p, &p->entries[p->n_entries - 1], true);
    focus(p);
    return p->logits;
}

int32_t reference_prompt_tokens(const reference_prompt *p) { return p->n_entries; }

int32_t reference_prompt_reused(const reference_prompt *p) {
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_entries; i++) n += !p->entries[i].fresh && !p->entries[i].later;
    return n;
}

int32_t reference_prompt_again(const reference_prompt *p) {
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_entries; i++) n += p->entries[i].again;
    return n;
}

int32_t reference_prompt_end(const reference_prompt *p) { return p->end; }

double reference_prompt_margin(const reference_prompt *p) { return reference_kv_margin(p->states); }

int32_t reference_prompt_joint(const reference_prompt *p) {
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_items; i++)
        n += p->joint_of && p->items[i].segment >= 0 && p->joint_of[p->items[i].segment] >= 0;
    return n;
}

void reference_prompt_print(const reference_prompt *p, FILE *to) {
    char path[256];
    for (int32_t i = 0; i < p->n_items; i++) {
        const item *t = &p->items[i];
        fprintf(to, "  %5d +%-4d ", t->position, t->n);
        if (t->segment < 0) {
            fprintf(to, "text of the prompt\n");
            continue;
        }
        const reference_segment *g = &p->s->segments[t->segment];
        fprintf(to, "segment %d of '%s'", t->segment, pml_path(p->d, g->holder, path, sizeof path));
        fprintf(to, ", canonical %d, sees", g->position);
        for (int32_t k = 0; k < g->n_scope; k++) fprintf(to, " %d@%d", g->scope[k].segment, g->scope[k].position);
        if (p->joint_of[t->segment] >= 0) fprintf(to, ", joint %d", p->joint_of[t->segment]);
        fprintf(to, "\n");
    }
}
