/* SPDX-License-Identifier: Apache-2.0 */
/* flat_pml.c: see flat_pml.h. The schema becomes a list of events in document order; a prompt emits them as its imports
 * come.
 *
 *   <schema><system>A<module m>B</module></system></schema>     open(schema) text A(schema) module m text B(m)
 *         close(schema)
 */
#include "flat_pml.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "reprise_tools.h"

typedef enum event_kind { OPEN,
                          CLOSE,
                          TEXT,
                          PARAM } event_kind;

typedef struct event {
    event_kind kind;
    int32_t node, holder, sequence;
    bool emitted;
} event;

typedef struct flattening {
    flat_pml *out;
    const pml_document *schema, *prompt;
    event *events;
    size_t n_events, cap_events;
    int32_t *sequence;  /* by node of the schema: a module's */
    int32_t *import_of; /* by node of the schema: the prompt's node that imports it, -1 */
    int32_t now;
    bool open; /* texts belong to the last message; else one without a role begins */
} flattening;

static void need(bool good) {
    if (!good) abort();
}

/* ---- The schema's events ---- */

static void add_event(flattening *f, event_kind kind, int32_t node) {
    need(base_grow((void **)&f->events, &f->cap_events, f->n_events + 1, SIZE_MAX / 64, sizeof(*f->events)) == 0);
    int32_t holder = pml_holder(f->schema, node);
    f->events[f->n_events++] = (event){kind, node, holder, f->now++, false};
}

static void walk(flattening *f, int32_t node) {
    const pml_node *n = &f->schema->nodes[node];
    if (n->kind == PML_TEXT) add_event(f, TEXT, node);
    if (n->kind == PML_PARAM) add_event(f, PARAM, node);
    if (n->kind == PML_ROLE) add_event(f, OPEN, node);
    if (n->kind == PML_MODULE) f->sequence[node] = f->now++;
    for (int32_t c = n->first_child; c >= 0; c = f->schema->nodes[c].next) walk(f, c);
    if (n->kind == PML_ROLE) add_event(f, CLOSE, node);
}

/* ---- Messages ---- */

static void begin(flattening *f, int role) {
    flat_pml *out = f->out;
    need(base_grow((void **)&out->messages, &out->cap, out->n + 1, SIZE_MAX / 128, sizeof(*out->messages)) == 0);
    out->messages[out->n++] = (flat_message){role, BASE_BUFFER(SIZE_MAX / 4)};
    f->open = true;
}

static void append(flattening *f, const char *text, size_t n) {
    if (!f->open) begin(f, FLAT_NO_ROLE);
    need(base_buffer_append(&f->out->messages[f->out->n - 1].text, text, n) == 0);
}

static void emit_param(flattening *f, const event *e) {
    const pml_node *param = &f->schema->nodes[e->node];
    int32_t import = f->import_of[e->holder];
    for (int32_t i = 0; import >= 0 && i < f->prompt->nodes[import].n_arguments; i++) {
        const pml_argument *a = &f->prompt->nodes[import].arguments[i];
        if (strcmp(a->name, param->name) != 0 || !*a->value) continue;
        if (param->border_space && !pml_is_space(*a->value)) append(f, " ", 1);
        append(f, a->value, strlen(a->value));
    }
}

static void emit_own(flattening *f, int32_t holder, int32_t until) {
    for (size_t i = 0; i < f->n_events; i++) {
        event *e = &f->events[i];
        if (e->emitted || e->holder != holder || e->sequence >= until) continue;
        const pml_node *n = &f->schema->nodes[e->node];
        e->emitted = true;
        switch (e->kind) {
        case OPEN: begin(f, n->role); break;
        case CLOSE: f->open = false; break;
        case PARAM: emit_param(f, e); break;
        case TEXT:
            append(f, n->text, n->n_text);
            f->out->schema_bytes += n->n_text;
            break;
        }
    }
}

/* ---- The prompt ---- */

static int32_t module_of(const flattening *f, int32_t holder, int32_t import) {
    const char *name = f->prompt->nodes[import].name;
    int32_t module = pml_find_module(f->schema, holder, name, strlen(name));
    need(module >= 0);
    return module;
}

static void emit_import(flattening *f, int32_t holder, int32_t import) {
    int32_t module = module_of(f, holder, import);
    f->import_of[module] = import;
    emit_own(f, holder, f->sequence[module]);
    for (int32_t c = f->prompt->nodes[import].first_child; c >= 0; c = f->prompt->nodes[c].next)
        emit_import(f, module, c);
    emit_own(f, module, INT32_MAX);
}

static void emit_text(flattening *f, int32_t node) {
    const pml_node *n = &f->prompt->nodes[node];
    append(f, n->text, n->n_text);
    if (!n->border_space) return;
    int32_t first = f->schema->nodes[module_of(f, 0, n->next)].first_child;
    bool spaced =
        first >= 0 && f->schema->nodes[first].kind == PML_TEXT && pml_is_space(f->schema->nodes[first].text[0]);
    if (!spaced) append(f, " ", 1);
}

static void emit_children(flattening *f, int32_t parent) {
    for (int32_t c = f->prompt->nodes[parent].first_child; c >= 0; c = f->prompt->nodes[c].next) {
        const pml_node *n = &f->prompt->nodes[c];
        if (n->kind == PML_TEXT) emit_text(f, c);
        else if (n->kind == PML_IMPORT) emit_import(f, 0, c);
        else {
            emit_own(f, 0, INT32_MAX);
            begin(f, n->role);
            emit_children(f, c);
            f->open = false;
        }
    }
}

/* The end of the anonymous text before a text at the start of the prompt. */
static int32_t beginning(const flattening *f) {
    for (int32_t i = 0; i < f->prompt->n_nodes; i++)
        if (f->prompt->nodes[i].kind == PML_IMPORT) return f->sequence[module_of(f, 0, i)];
    for (int32_t i = 0; i < f->schema->n_nodes; i++)
        if (f->schema->nodes[i].kind == PML_MODULE) return f->sequence[i];
    return INT32_MAX;
}

void flat_pml_make(flat_pml *out, const pml_document *schema, const pml_document *prompt) {
    size_t n = (size_t)schema->n_nodes * sizeof(int32_t);
    flattening f = {
        .out = out, .schema = schema, .prompt = prompt, .sequence = base_alloc(n), .import_of = base_alloc(n)};
    *out = (flat_pml){0};
    need(f.sequence && f.import_of);
    memset(f.import_of, 0xff, n);
    walk(&f, 0);
    int32_t first = prompt->nodes[0].first_child;
    if (first >= 0 && prompt->nodes[first].kind == PML_TEXT) emit_own(&f, 0, beginning(&f));
    emit_children(&f, 0);
    emit_own(&f, 0, INT32_MAX);
    base_free(f.events);
    base_free(f.sequence);
    base_free(f.import_of);
}

void flat_pml_free(flat_pml *f) {
    for (size_t i = 0; i < f->n; i++) base_buffer_free(&f->messages[i].text);
    base_free(f->messages);
}

bool flat_pml_equals(const flat_pml *f, const rp_split_prompt *prompt) {
    if (prompt->plain && prompt->messages[0].n == 0) return f->n == 0;
    if (f->n != prompt->n_messages) return false;
    for (size_t i = 0; i < f->n; i++) {
        const flat_message *have = &f->messages[i];
        const rp_message *want = &prompt->messages[i];
        if (have->role != (prompt->plain ? FLAT_NO_ROLE : (int)want->role) || have->text.len != want->n) return false;
        if (want->n > 0 && memcmp(have->text.data, want->text, want->n) != 0) return false;
    }
    return true;
}
