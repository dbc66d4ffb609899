/* SPDX-License-Identifier: Apache-2.0 */
/* plan_order.c: the order of a prompt and the positions of its entries (docs/pml.md, 'Order of a prompt', 'Layout'). */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "pml/plan_internal.h"

/* ---- order ---- */

static int plan_build_add_entry(plan_build *b, const plan_entry *e) {
    int rc = base_grow((void **)&b->entries, &b->cap_entries, b->n_entries + 1, KV_MAX_VIEWS, sizeof(*e));
    if (rc) return base_fail(b->err, rc, "%s: the prompt has too many parts", b->prompt->name);
    b->entries[b->n_entries] = *e;
    b->entries[b->n_entries].order = b->n_entries;
    b->n_entries++;
    return RP_OK;
}

/* Adds the tokens that were appended to the plan's list since `first`. */
static int plan_build_add_tokens(plan_build *b, int32_t node, size_t first, bool opens_answer) {
    size_t n = b->plan->tokens.n - first;
    if (n == 0) return RP_OK;
    return plan_build_add_entry(b, &(plan_entry){
                                       .segment = -1,
                                       .node = node,
                                       .import = -1,
                                       .n_tokens = (int32_t)n,
                                       .first_token = first,
                                       .opens_answer = opens_answer,
                                   });
}

/* Emits the own segments of `holder` that precede `until` in the schema. */
static int emit_own(plan_build *b, int32_t holder, int32_t until) {
    int32_t i;
    for (i = b->first_own[holder]; i >= 0 && b->layout->segments[i].sequence < until; i = b->next_own[i]) {
        const pml_segment *s = &b->layout->segments[b->instead[i]];
        int32_t import = holder == 0 ? -1 : b->import;
        BASE_ASSERT(b->instead[i] >= b->layout->first_plain); /* choose_scaffolds */
        int rc =
            plan_build_add_entry(b, &(plan_entry){.segment = b->instead[i], .import = import, .n_tokens = s->n_tokens});
        if (rc) return rc;
        if (s->last_role != CHAT_ROLE_NONE) b->previous_role = s->last_role;
    }
    b->first_own[holder] = i;
    return RP_OK;
}

static int32_t imported_module(const plan_build *b, int32_t holder, int32_t node) {
    const char *name = b->prompt->nodes[node].name;
    const int32_t module = pml_find_module(b->schema, holder, name, strlen(name));
    BASE_ASSERT(module > 0); /* plan_resolve refuses others */
    return module;
}

static int emit_import(plan_build *b, int32_t holder, int32_t node) {
    int32_t module = imported_module(b, holder, node);
    int rc = emit_own(b, holder, b->layout->sequence[module]);
    for (int32_t c = b->prompt->nodes[node].first_child; c >= 0 && !rc; c = b->prompt->nodes[c].next)
        if (b->prompt->nodes[c].kind == PML_IMPORT) rc = emit_import(b, module, c);
    return rc ? rc : emit_own(b, module, INT32_MAX);
}

/* ---- content after a text ---- */

/* The start of the content after a text: none (no text in this prompt), a character other than white space, or a
 * separator: white space, SentencePiece's dummy space, or the start or end of a role. */
typedef enum beginning_kind { BEGINS_NOT,
                              BEGINS_WITH_WORD,
                              BEGINS_APART } beginning_kind;

/* A parameter without an argument has no text in the prompt, so the text after it decides. */
static beginning_kind segment_beginning(const plan_build *b, int32_t segment) {
    const pml_segment *s = &b->layout->segments[segment];
    const pml_node *nodes = b->schema->nodes;
    if (s->at_edge) return BEGINS_APART;
    for (int32_t i = s->first_node; i >= 0; i = nodes[i].next) {
        const pml_argument *argument = nodes[i].kind == PML_PARAM ? plan_argument(b, s->holder, nodes[i].name) : NULL;
        const char *value = nodes[i].kind == PML_TEXT ? nodes[i].text : argument ? argument->value
                                                                                 : NULL;
        bool is_empty = argument ? argument->n_value == 0 : !value || !*value;
        bool spaced = nodes[i].border_space || (nodes[i].kind == PML_TEXT && !nodes[i].text_continues &&
                                                tokenizer_has_space_prefix(b->model->tokenizer));
        if (!is_empty) return spaced || pml_is_space(*value) ? BEGINS_APART : BEGINS_WITH_WORD;
        if (nodes[i].kind == PML_ROLE) return BEGINS_APART;
        if (nodes[i].kind != PML_PARAM) return BEGINS_NOT;
    }
    return nodes[nodes[s->first_node].parent].kind == PML_ROLE ? BEGINS_APART : BEGINS_NOT;
}

/* The same for the segments that emit_own would emit. */
static beginning_kind own_beginning(const plan_build *b, int32_t holder, int32_t until) {
    beginning_kind kind = BEGINS_NOT;
    for (int32_t i = b->first_own[holder]; i >= 0 && kind == BEGINS_NOT && b->layout->segments[i].sequence < until;
         i = b->next_own[i])
        kind = segment_beginning(b, i);
    return kind;
}

/* The same for the segments that emit_import would emit. */
static beginning_kind import_beginning(const plan_build *b, int32_t holder, int32_t node) {
    int32_t module = imported_module(b, holder, node);
    beginning_kind kind = own_beginning(b, holder, b->layout->sequence[module]);
    for (int32_t c = b->prompt->nodes[node].first_child; c >= 0 && kind == BEGINS_NOT; c = b->prompt->nodes[c].next)
        if (b->prompt->nodes[c].kind == PML_IMPORT) kind = import_beginning(b, module, c);
    return kind == BEGINS_NOT ? own_beginning(b, module, INT32_MAX) : kind;
}

/* The same for the content after a node of the prompt. */
static beginning_kind next_beginning(const plan_build *b, int32_t node) {
    const pml_node *nodes = b->prompt->nodes;
    for (int32_t c = nodes[node].next; c >= 0 && nodes[c].kind != PML_ROLE; c = nodes[c].next) {
        if (nodes[c].kind == PML_TEXT) return pml_is_space(nodes[c].text[0]) ? BEGINS_APART : BEGINS_WITH_WORD;
        beginning_kind kind = import_beginning(b, 0, c);
        if (kind != BEGINS_NOT) return kind;
    }
    return nodes[nodes[node].parent].kind == PML_ROLE ? BEGINS_APART : own_beginning(b, 0, INT32_MAX);
}

/* ---- texts and roles ---- */

static int emit_text(plan_build *b, int32_t node) {
    const pml_node *n = &b->prompt->nodes[node];
    BASE_ASSERT(n->kind == PML_TEXT && n->n_text > 0);
    token_list *tokens = &b->plan->tokens;
    size_t first = tokens->n;
    bool spaced = n->border_space && next_beginning(b, node) == BEGINS_WITH_WORD;
    char *text = base_alloc(n->n_text + 1);
    if (!text) return base_fail_memory(b->err, n->n_text + 1, "a text");
    memcpy(text, n->text, n->n_text);
    text[n->n_text] = ' ';
    const size_t n_text = n->n_text + (spaced ? 1 : 0);
    int rc;
    if (n->trusted) { /* a text of a rendered conversation */
        const tokenizer_options options = {
            .space_prefix = true,
            .continues = n->text_continues,
            .trusted = n->trusted,
            .n_trusted = n->n_trusted,
        };
        rc = tokenizer_encode(b->model->tokenizer, text, n_text, options, tokens, b->err);
    } else rc = pml_append_text(b->model, text, n_text, n->text_continues, tokens, b->err);
    base_free(text);
    return rc ? rc : plan_build_add_tokens(b, node, first, false);
}

static int emit_role_text(plan_build *b, int32_t node, const char *text, bool opens_answer) {
    size_t first = b->plan->tokens.n;
    int rc = pml_append_role_text(b->model, text, &b->plan->tokens, b->err);
    return rc ? rc : plan_build_add_tokens(b, node, first, opens_answer);
}

static int emit_children(plan_build *b, int32_t parent);

static int emit_role(plan_build *b, int32_t node) {
    int role = b->prompt->nodes[node].role;
    BASE_ASSERT(b->prompt->nodes[node].kind == PML_ROLE && role >= 0);
    int rc = emit_own(b, 0, INT32_MAX);
    if (rc) return rc;
    chat_text around = chat_format_around(b->model->chat, (chat_role)role, b->previous_role);
    b->previous_role = role;
    if ((rc = emit_role_text(b, node, around.before, false)) || (rc = emit_children(b, node))) return rc;
    b->previous_role = role;
    return node == b->open_role ? RP_OK : emit_role_text(b, node, around.after, false);
}

static int emit_children(plan_build *b, int32_t parent) {
    int rc = RP_OK;
    for (int32_t c = b->prompt->nodes[parent].first_child; c >= 0 && !rc; c = b->prompt->nodes[c].next) {
        switch (b->prompt->nodes[c].kind) {
        case PML_TEXT: rc = emit_text(b, c); break;
        case PML_IMPORT:
            b->import = c;
            rc = emit_import(b, 0, c);
            break;
        default: rc = emit_role(b, c); break;
        }
    }
    return rc;
}

/* The place in the schema up to which anonymous text precedes a text at the start of the prompt. */
static int32_t plan_build_beginning(const plan_build *b) {
    for (int32_t i = 0; i < b->prompt->n_nodes; i++)
        if (b->prompt->nodes[i].kind == PML_IMPORT) return b->layout->sequence[imported_module(b, 0, i)];
    for (int32_t i = 0; i < b->schema->n_nodes; i++)
        if (b->schema->nodes[i].kind == PML_MODULE) return b->layout->sequence[i];
    return INT32_MAX;
}

int plan_leave_open(plan_build *b) {
    int32_t last = -1;
    for (int32_t c = b->prompt->nodes[0].first_child; c >= 0; c = b->prompt->nodes[c].next) last = c;
    if (last < 0 || b->prompt->nodes[last].kind != PML_ROLE)
        return pml_fail(b->err, RP_ERR_INVALID, b->prompt, BASE_MAX(last, 0),
                        "cannot continue the last role: the prompt does not end with one: end it with <assistant>");
    b->open_role = last;
    return RP_OK;
}

int plan_order(plan_build *b) {
    int32_t first = b->prompt->nodes[0].first_child;
    int rc = RP_OK;
    if (first >= 0 && b->prompt->nodes[first].kind == PML_TEXT) rc = emit_own(b, 0, plan_build_beginning(b));
    if (rc || (rc = emit_children(b, 0)) || (rc = emit_own(b, 0, INT32_MAX))) return rc;
    if (b->previous_role == CHAT_ROLE_NONE || b->open_role >= 0) return RP_OK;
    return emit_role_text(b, 0, chat_format_answer(b->model->chat, b->previous_role), true);
}

/* ---- positions ---- */

static int too_long(plan_build *b) {
    return base_fail(b->err, RP_ERR_LIMIT, "%s: the prompt is too long", b->prompt->name);
}

static int place_packed(plan_build *b) {
    int64_t cursor = 0;
    for (size_t i = 0; i < b->n_entries; i++) {
        b->entries[i].pos = (int32_t)cursor;
        cursor += b->entries[i].n_tokens;
        if (cursor > INT32_MAX / 2) return too_long(b);
    }
    return RP_OK;
}

static int compare_int(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The smallest of the sorted positions that is at least pos, or -1. */
static int32_t plan_order_next_position(const int32_t *sorted, size_t n, int32_t pos) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (sorted[mid] < pos) low = mid + 1;
        else high = mid;
    }
    return low < n ? sorted[low] : -1;
}

/* Segments of a fixed layout by position, and the position of the next text after the schema; -1: none yet. */
typedef struct fixed_places {
    int32_t *sorted;
    size_t n;
    int32_t tail;
} fixed_places;

/* Returns true if a text that precedes the prompt's last import would fit after it. */
static bool fits_after_imports(const plan_build *b, const plan_entry *e, const fixed_places *places) {
    size_t last = b->n_entries - 1;
    int32_t start = 0;
    while (last > e->order && b->entries[last].import < 0) last--;
    if (last == e->order) return false;
    for (size_t i = 0; i < b->n_entries; i++)
        if (b->entries[i].import == b->entries[last].import) {
            BASE_ASSERT(b->entries[i].segment >= 0); /* texts have no import */
            const pml_segment *s = &b->layout->segments[b->entries[i].segment];
            start = BASE_MAX(start, s->pos + s->n_tokens);
        }
    int32_t next = plan_order_next_position(places->sorted, places->n, start);
    return next <= start || next - start >= e->n_tokens;
}

/* Places a text of a fixed layout in the gap after its predecessor, or after the schema if there is no gap, with all
 * later texts. Control tokens that do not fit are placed after the schema as well, because users cannot shorten
 * them. */
static int place_text(plan_build *b, plan_entry *e, int32_t start, fixed_places *places) {
    int32_t next =
        e->opens_answer || places->tail >= 0 ? -1 : plan_order_next_position(places->sorted, places->n, start);
    bool is_text = b->prompt->nodes[e->node].kind == PML_TEXT, fits = e->n_tokens <= next - start;
    if (next <= start || (!fits && !is_text)) {
        e->pos = BASE_MAX(places->tail, b->layout->length);
        if (e->n_tokens > INT32_MAX / 2 - e->pos) return too_long(b);
        places->tail = e->pos + e->n_tokens;
        return RP_OK;
    }
    e->pos = start;
    if (fits) return RP_OK;
    return pml_fail(b->err, RP_ERR_LENGTH, b->prompt, e->node,
                    "text of %d tokens exceeds the gap of %d positions that the fixed layout leaves here: shorten "
                    "it%s, or write layout=\"packed\" in the schema",
                    e->n_tokens, next - start,
                    fits_after_imports(b, e, places) ? ", move it after the last import" : "");
}

static int plan_order_compare_entries(const void *a, const void *b) {
    const plan_entry *x = a, *y = b;
    return x->pos != y->pos ? (x->pos > y->pos) - (x->pos < y->pos) : (x->order > y->order) - (x->order < y->order);
}

static int place_fixed(plan_build *b) {
    fixed_places places = {.sorted = base_alloc((b->n_entries + 1) * sizeof(int32_t)), .tail = -1};
    int32_t start = 0;
    int rc = RP_OK;
    if (!places.sorted) return base_fail_memory(b->err, b->n_entries * sizeof(int32_t), "a plan");
    for (size_t i = 0; i < b->n_entries; i++)
        if (b->entries[i].segment >= 0) places.sorted[places.n++] = b->layout->segments[b->entries[i].segment].pos;
    qsort(places.sorted, places.n, sizeof(int32_t), compare_int);
    for (size_t i = 0; i < b->n_entries && !rc; i++) {
        plan_entry *e = &b->entries[i];
        if (e->segment >= 0) e->pos = b->layout->segments[e->segment].pos;
        else rc = place_text(b, e, start, &places);
        /* a text after an import follows all of its modules, and the modules keep their canonical order */
        bool same_import = i > 0 && e->import >= 0 && e->import == b->entries[i - 1].import;
        start = same_import ? BASE_MAX(start, e->pos + e->n_tokens) : e->pos + e->n_tokens;
    }
    base_free(places.sorted);
    if (!rc) qsort(b->entries, b->n_entries, sizeof(*b->entries), plan_order_compare_entries);
    return rc;
}

int plan_place(plan_build *b) { return b->layout->fixed ? place_fixed(b) : place_packed(b); }
