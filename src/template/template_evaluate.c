/* SPDX-License-Identifier: Apache-2.0 */
/* template_evaluate.c: runs a template's nodes. A body writes to a builder; an expression gives a value.
 *
 * Scopes: the template, each round of a loop, each call of a macro and each `with` have one; `set` writes to the
 * innermost, and names are looked up from the innermost outward, then in the variables, then among the functions. A
 * macro sees the scopes around its definition. One thread.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "template/template_internal.h"

#define MAX_NESTED 600                      /* calls of evaluate and run, each a frame of the stack */
#define MAX_STACK_BYTES ((size_t)384 << 10) /* of them; a build with sanitizers has larger frames */

typedef enum flow { FLOW_NEXT,
                    FLOW_BREAK,
                    FLOW_CONTINUE } flow;

typedef struct frame {
    state *s;
    scope *scope;
    builder *out;
    const string *result; /* RESULT: of the block that is filtered */
    int nested;
} frame;

static value evaluate(frame *f, const template_node *node);
static flow run(frame *f, const template_node *node);

/* ---- Names ---- */

#define NAMES_A_STEP 8

static binding *scope_find(state *s, const scope *in, const char *name) {
    BASE_ASSERT(in->n <= in->cap && name);
    for (size_t i = 0; i < in->n; i++)
        if (in->items[i].name == name && (i < NAMES_A_STEP || state_step(s, i / NAMES_A_STEP))) return &in->items[i];
    if (in->n >= NAMES_A_STEP) state_step(s, in->n / NAMES_A_STEP);
    return NULL;
}

static void scope_set(state *s, scope *in, const char *name, value v) {
    BASE_ASSERT(name);
    binding *bound = scope_find(s, in, name);
    if (bound) bound->value = v;
    else if (state_grow(s, (void **)&in->items, &in->cap, in->n + 1, sizeof(*in->items)))
        in->items[in->n++] = (binding){name, v};
}

static value name_value(frame *f, const char *name) {
    BASE_ASSERT(f->s->variables);
    state *s = f->s;
    for (const scope *in = f->scope; in; in = in->outer) {
        const binding *bound = scope_find(s, in, name);
        if (bound) return bound->value;
    }
    const value *v = dict_find_text(s, s->variables, name);
    if (v) return *v;
    const function *global = function_find(name);
    if (global) return (value){.type = VALUE_FUNCTION, .as.function = global};
    const string text = {.bytes = name, .n = strlen(name)};
    return value_undefined(s, NULL, &text, false);
}

static bool deeper(frame *f) {
    BASE_ASSERT(f->nested >= 0);
    state *s = f->s;
    const size_t used = s->stack - (uintptr_t)__builtin_frame_address(0); /* it grows downwards */
    if (s->failed || f->nested >= MAX_NESTED || used > MAX_STACK_BYTES) {
        if (!s->failed) {
            state_fail(s, RECURSION_ERROR, "calls and expressions are nested too deep: at most %d are supported",
                       MAX_NESTED);
            s->code = RP_ERR_LIMIT;
        }
        return false;
    }
    return state_step(s, 0);
}

/* Assigns to a name, to names of a sequence's items, or to an attribute of a namespace. */
static void assign(frame *f, const template_node *target, value v) {
    BASE_ASSERT(target->kind == NODE_NAME || target->kind == NODE_ATTRIBUTE || target->kind == NODE_TUPLE);
    state *s = f->s;
    if (s->failed) return;
    if (target->kind == NODE_NAME) scope_set(s, f->scope, target->name, v);
    else if (target->kind == NODE_ATTRIBUTE) {
        value object = evaluate(f, target->a);
        if (object.type != VALUE_NAMESPACE)
            state_fail(s, TEMPLATE_RUNTIME_ERROR, "cannot assign attribute on non-namespace object");
        else dict_set(s, object.as.d, value_text(s, target->name), v);
    } else {
        const list *items = NULL;
        if (v.type == VALUE_STRING || v.type == VALUE_LIST || v.type == VALUE_DICT || v.type == VALUE_UNDEFINED)
            items = value_iterate(s, v);
        else state_fail(s, TYPE_ERROR, "cannot unpack non-iterable %s object", value_type_name(v));
        if (items && items->n < target->items.n)
            state_fail(s, VALUE_ERROR, "not enough values to unpack (expected %u, got %zu)", target->items.n, items->n);
        else if (items && items->n > target->items.n)
            state_fail(s, VALUE_ERROR, "too many values to unpack (expected %u)", target->items.n);
        for (uint32_t i = 0; i < target->items.n && !s->failed; i++) assign(f, target->items.items[i], items->items[i]);
    }
}

/* ---- Calls ---- */

/* The arguments of a call, filter or test. */
static arguments evaluate_arguments(frame *f, const template_node *node) {
    BASE_ASSERT(node->second.n == 0 || node->names);
    state *s = f->s;
    value *items = node->items.n ? state_alloc(s, node->items.n * sizeof(*items)) : NULL;
    value *named = node->second.n ? state_alloc(s, node->second.n * sizeof(*named)) : NULL;
    size_t n = node->items.n, cap = n;
    for (uint32_t i = 0; i < node->items.n && !s->failed; i++) {
        const template_node *one = node->items.items[i];
        value v = evaluate(f, one->kind == NODE_SPREAD ? one->a : one);
        if (s->failed) break;
        if (one->kind != NODE_SPREAD) {
            items[i] = v;
            continue;
        }
        const list *spread = NULL;
        if (v.type == VALUE_STRING || v.type == VALUE_LIST || v.type == VALUE_DICT || v.type == VALUE_UNDEFINED)
            spread = value_iterate(s, v);
        else state_fail(s, TYPE_ERROR, "Value after * must be an iterable, not %s", value_type_name(v));
        n = i + (spread ? spread->n : 0);
        if (!spread || !state_grow(s, (void **)&items, &cap, n, sizeof(*items))) break;
        BASE_ASSERT(i + 1 == node->items.n);
        for (size_t k = 0; k < spread->n; k++) items[i + k] = spread->items[k];
    }
    for (uint32_t i = 0; i < node->second.n && !s->failed; i++) named[i] = evaluate(f, node->second.items[i]);
    if (s->failed) return (arguments){0};
    return (arguments){
        .items = items, .n = n, .names = node->names, .named = named, .n_named = node->second.n};
}

/* As it is interned; NULL: the template does not use it. */
static const char *name_of_template(const state *s, const char *name) { return name_find(&s->t->names, name); }

static const value *named_argument(state *s, const arguments *args, const char *name) {
    state_step(s, args->n_named / NAMES_A_STEP);
    for (size_t i = 0; i < args->n_named; i++)
        if (args->names[i] == name) return &args->named[i];
    return NULL;
}

static bool is_parameter(state *s, const template_node *node, const char *name, size_t first) {
    state_step(s, node->items.n / 2); /* each is a node elsewhere */
    for (size_t i = first; i < node->items.n; i++)
        if (node->items.items[i]->name == name) return true;
    return false;
}

/* The names caller, kwargs and varargs of a macro that uses them, and what is refused because it does not. */
static void bind_special(frame *f, const macro *m, const arguments *args, value caller) {
    BASE_ASSERT(m->node->kind == NODE_MACRO);
    state *s = f->s;
    const template_node *node = m->node;
    value named = node->op & MACRO_USES_KWARGS ? value_dict(s) : (value){0},
          rest = node->op & MACRO_USES_VARARGS ? value_list(s, LIST_TUPLE, 0) : (value){0};
    bool has_caller = caller.type == VALUE_MACRO;
    if (node->op & MACRO_USES_CALLER && !is_parameter(s, node, name_of_template(s, "caller"), 0)) {
        const value *given = has_caller ? &caller : named_argument(s, args, name_of_template(s, "caller"));
        scope_set(s, f->scope, name_of_template(s, "caller"),
                  given ? *given : value_hinted(s, "No caller defined", UNDEFINED_ERROR));
    } else if (has_caller && !(node->op & MACRO_USES_CALLER))
        state_fail(s, TYPE_ERROR,
                   "macro '%s' was invoked with two values for the special caller argument. This is most likely a bug.",
                   node->name);
    for (size_t i = 0; i < args->n_named && !s->failed; i++) {
        const char *name = args->names[i];
        if (is_parameter(s, node, name, args->n) || (node->op & MACRO_USES_CALLER && strcmp(name, "caller") == 0))
            continue;
        if (node->op & MACRO_USES_KWARGS) dict_set(s, named.as.d, value_text(s, name), args->named[i]);
        else state_fail(s, TYPE_ERROR, "macro '%s' takes no keyword argument '%s'", node->name, name);
    }
    for (size_t i = node->items.n; i < args->n && !s->failed; i++) {
        if (node->op & MACRO_USES_VARARGS) list_add(s, rest.as.l, args->items[i]);
        else state_fail(s, TYPE_ERROR, "macro '%s' takes not more than %u argument(s)", node->name, node->items.n);
    }
    if (node->op & MACRO_USES_KWARGS && !s->failed) scope_set(s, f->scope, name_of_template(s, "kwargs"), named);
    if (node->op & MACRO_USES_VARARGS && !s->failed) scope_set(s, f->scope, name_of_template(s, "varargs"), rest);
}

/* Binds the parameters in the macro's scope. */
static void bind_parameters(frame *f, const macro *m, const arguments *args) {
    BASE_ASSERT(m->node->second.n <= m->node->items.n);
    state *s = f->s;
    const node_list *parameters = &m->node->items, *defaults = &m->node->second;
    uint32_t first_default = parameters->n - defaults->n;
    for (uint32_t i = 0; i < parameters->n && !s->failed; i++) {
        const char *name = parameters->items[i]->name;
        const value *named = i < args->n ? NULL : named_argument(s, args, name);
        value v = {0};
        if (i < args->n) v = args->items[i];
        else if (named) v = *named;
        else if (i >= first_default) v = evaluate(f, defaults->items[i - first_default]);
        else {
            char *hint = state_alloc(s, strlen(name) + 40);
            if (!hint || !state_step(s, STEP_PRINTED)) return;
            snprintf(hint, strlen(name) + 40, "parameter '%s' was not provided", name);
            v = value_hinted(s, hint, UNDEFINED_ERROR);
        }
        scope_set(s, f->scope, name, v);
    }
}

static value call_macro(frame *f, const macro *m, const arguments *args, value caller) {
    state *s = f->s;
    scope own = {.outer = m->defined_in};
    builder out = {0};
    frame inner = {.s = s, .scope = &own, .out = &out, .nested = f->nested + 1};
    if (!deeper(&inner)) return (value){0};
    if (s->depth >= TEMPLATE_MAX_DEPTH) {
        state_fail(s, RECURSION_ERROR, "macros are nested deeper than %d calls", TEMPLATE_MAX_DEPTH);
        s->code = RP_ERR_LIMIT;
        return (value){0};
    }
    s->depth++;
    bind_special(&inner, m, args, caller);
    bind_parameters(&inner, m, args);
    run(&inner, m->node->b);
    s->depth--;
    return value_string(builder_string(s, &out));
}

static void run_loop(frame *f, const template_node *node, value iterable, int depth);

static value call_loop_method(state *s, const method *m, const arguments *args) {
    BASE_ASSERT(m->self->type == VALUE_LOOP);
    loop *l = m->self->as.loop;
    if (strcmp(m->name, "cycle") == 0) {
        if (args->n > 0) return args->items[l->at % args->n];
        state_fail(s, TYPE_ERROR, "no items for cycling given");
        return (value){0};
    }
    value now = value_list(s, LIST_TUPLE, args->n);
    for (size_t i = 0; i < args->n && !s->failed; i++) list_add(s, now.as.l, args->items[i]);
    bool changed = !l->has_changed || !value_equal(s, now, l->last_changed);
    l->has_changed = true;
    l->last_changed = now;
    return value_bool(changed);
}

static value call_cycler_method(const method *m) {
    BASE_ASSERT(m->self->type == VALUE_CYCLER && m->self->as.cycler->at < m->self->as.cycler->n);
    cycler *c = m->self->as.cycler;
    value v = c->items[c->at];
    bool resets = strcmp(m->name, "reset") == 0;
    c->at = resets ? 0 : (c->at + 1) % c->n;
    return resets ? value_none : v;
}

static value call_value(frame *f, value callee, const arguments *args, value caller) {
    state *s = f->s;
    builder out = {0};
    if (s->failed) return (value){0};
    switch (callee.type) {
    case VALUE_FUNCTION:
        return arguments_fit(s, args, callee.as.function->name, callee.as.function->parameters)
                   ? callee.as.function->call(s, args)
                   : (value){0};
    case VALUE_MACRO: return call_macro(f, callee.as.m, args, caller);
    case VALUE_METHOD:
        if (callee.as.method->self->type == VALUE_LOOP) return call_loop_method(s, callee.as.method, args);
        if (callee.as.method->self->type == VALUE_CYCLER) return call_cycler_method(callee.as.method);
        return method_call(s, callee.as.method, args);
    case VALUE_LOOP: {
        frame inner = {.s = s, .scope = callee.as.loop->outer, .out = &out, .nested = f->nested + 1};
        if (!callee.as.loop->node->op)
            state_fail(s, TYPE_ERROR, "The loop must have the 'recursive' marker to be called recursively.");
        else if (args->n != 1) state_fail(s, TYPE_ERROR, "loop() takes one argument");
        else if (deeper(&inner)) run_loop(&inner, callee.as.loop->node, args->items[0], callee.as.loop->depth + 1);
        return value_string(builder_string(s, &out));
    }
    case VALUE_JOINER:
        if (callee.as.cycler->used) return callee.as.cycler->items[0];
        callee.as.cycler->used = true;
        return value_text(s, "");
    case VALUE_UNDEFINED: state_fail_undefined(s, callee); return (value){0};
    default: state_fail(s, TYPE_ERROR, "'%s' object is not callable", value_type_name(callee)); return (value){0};
    }
}

/* ---- Expressions ---- */

static value evaluate_list(frame *f, const template_node *node, list_kind kind) {
    BASE_ASSERT(kind == LIST_LIST || kind == LIST_TUPLE);
    value all = value_list(f->s, kind, node->items.n);
    for (uint32_t i = 0; i < node->items.n && !f->s->failed; i++)
        list_add(f->s, all.as.l, evaluate(f, node->items.items[i]));
    return all;
}

static value evaluate_dict(frame *f, const template_node *node) {
    BASE_ASSERT(node->items.n == node->second.n);
    value all = value_dict(f->s);
    for (uint32_t i = 0; i < node->items.n && !f->s->failed; i++) {
        value key = evaluate(f, node->items.items[i]), item = evaluate(f, node->second.items[i]);
        if (!f->s->failed) dict_set(f->s, all.as.d, key, item);
    }
    return all;
}

static bool compare(state *s, compare_operator op, value a, value b) {
    switch (op) {
    case CMP_EQ: return value_equal(s, a, b);
    case CMP_NE: return !value_equal(s, a, b);
    case CMP_LT: return value_compare(s, a, b, "<") < 0;
    case CMP_LE: return value_compare(s, a, b, "<=") <= 0;
    case CMP_GT: return value_compare(s, a, b, ">") > 0;
    case CMP_GE: return value_compare(s, a, b, ">=") >= 0;
    case CMP_IN: return value_contains(s, b, a);
    case CMP_NOT_IN: return !value_contains(s, b, a);
    }
    return false;
}

/* a < b < c is a < b and b < c. */
static value evaluate_comparison(frame *f, const template_node *node) {
    BASE_ASSERT(node->ops);
    value left = evaluate(f, node->a);
    for (uint32_t i = 0; i < node->items.n && !f->s->failed; i++) {
        value right = evaluate(f, node->items.items[i]);
        if (f->s->failed || !compare(f->s, (compare_operator)node->ops[i], left, right)) return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static value evaluate_concat(frame *f, const template_node *node) {
    BASE_ASSERT(node->items.n >= 2);
    builder b = {0};
    for (uint32_t i = 0; i < node->items.n && !f->s->failed; i++)
        value_write(f->s, &b, evaluate(f, node->items.items[i]), false);
    return value_string(builder_string(f->s, &b));
}

static value evaluate_slice(frame *f, const template_node *node) {
    BASE_ASSERT(node->kind == NODE_SLICE && node->items.n == 3);
    value parts[3], object = evaluate(f, node->a);
    const value *given[3] = {NULL, NULL, NULL};
    for (uint32_t i = 0; i < 3 && !f->s->failed; i++) {
        if (!node->items.items[i]) continue;
        parts[i] = evaluate(f, node->items.items[i]);
        given[i] = &parts[i];
    }
    return f->s->failed ? (value){0} : value_slice(f->s, object, given[0], given[1], given[2]);
}

static value evaluate_sign(frame *f, const template_node *node) {
    BASE_ASSERT(node->kind == NODE_NEGATE || node->kind == NODE_POSITIVE);
    value v = evaluate(f, node->a);
    if (v.type == VALUE_UNDEFINED) state_fail_undefined(f->s, v);
    else if (!value_is_number(v) && v.type != VALUE_BIG)
        state_fail(f->s, TYPE_ERROR, "bad operand type for unary %c: '%s'", node->kind == NODE_NEGATE ? '-' : '+',
                   value_type_name(v));
    if (f->s->failed) return v;
    if (v.type == VALUE_FLOAT) v.as.f = node->kind == NODE_NEGATE ? -v.as.f : v.as.f;
    if (v.type == VALUE_FLOAT) return v;
    return binary_operate(f->s, node->kind == NODE_NEGATE ? OP_SUB : OP_ADD, value_int(0), v);
}

static value evaluate_condition(frame *f, const template_node *node) {
    if (value_truth(f->s, evaluate(f, node->a))) return evaluate(f, node->b);
    if (node->c) return evaluate(f, node->c);
    char *hint = state_alloc(f->s, 128);
    if (!hint || !state_step(f->s, STEP_PRINTED)) return (value){0};
    snprintf(hint, 128, "the inline if-expression on line %u evaluated to false and no else section was defined.",
             node->line);
    return value_hinted(f->s, hint, UNDEFINED_ERROR);
}

static value evaluate_filter(frame *f, const template_node *node) {
    BASE_ASSERT(node->kind == NODE_FILTER);
    const filter *by = node->handler;
    value v = evaluate(f, node->a);
    arguments args = evaluate_arguments(f, node);
    if (!by) state_fail(f->s, TEMPLATE_RUNTIME_ERROR, "No filter named '%s' found.", node->name);
    return f->s->failed ? v : filter_apply(f->s, by, v, &args);
}

static value evaluate_test(frame *f, const template_node *node) {
    BASE_ASSERT(node->kind == NODE_TEST);
    const test *by = node->handler;
    value v = evaluate(f, node->a);
    arguments args = evaluate_arguments(f, node);
    if (!by) state_fail(f->s, TEMPLATE_RUNTIME_ERROR, "No test named '%s' found.", node->name);
    return f->s->failed || !arguments_fit(f->s, &args, by->name, by->parameters)
               ? v
               : value_bool(by->holds(f->s, v, &args));
}

static value evaluate_call(frame *f, const template_node *node, value caller) {
    BASE_ASSERT(node->kind == NODE_CALL);
    value callee = evaluate(f, node->a);
    arguments args = evaluate_arguments(f, node);
    return call_value(f, callee, &args, caller);
}

static value evaluate_kind(frame *f, const template_node *node) {
    state *s = f->s;
    value v;
    switch ((node_kind)node->kind) {
    case NODE_CONSTANT: return node->constant;
    case NODE_NAME: return name_value(f, node->name);
    case NODE_LIST: return evaluate_list(f, node, LIST_LIST);
    case NODE_TUPLE: return evaluate_list(f, node, LIST_TUPLE);
    case NODE_DICT: return evaluate_dict(f, node);
    case NODE_ATTRIBUTE:
        v = evaluate(f, node->a);
        return s->failed ? v : value_attribute(s, v, node->name);
    case NODE_ITEM: {
        v = evaluate(f, node->a);
        value key = evaluate(f, node->b);
        return s->failed ? v : value_item(s, v, key);
    }
    case NODE_SLICE: return evaluate_slice(f, node);
    case NODE_CALL: return evaluate_call(f, node, (value){0});
    case NODE_FILTER: return evaluate_filter(f, node);
    case NODE_TEST: return evaluate_test(f, node);
    case NODE_NOT: return value_bool(!value_truth(s, evaluate(f, node->a)));
    case NODE_AND:
        v = evaluate(f, node->a);
        return value_truth(s, v) ? evaluate(f, node->b) : v;
    case NODE_OR:
        v = evaluate(f, node->a);
        return value_truth(s, v) ? v : evaluate(f, node->b);
    case NODE_NEGATE:
    case NODE_POSITIVE: return evaluate_sign(f, node);
    case NODE_BINARY: {
        v = evaluate(f, node->a);
        value b = evaluate(f, node->b);
        return binary_operate(s, (binary_operator)node->op, v, b);
    }
    case NODE_COMPARE: return evaluate_comparison(f, node);
    case NODE_CONCAT: return evaluate_concat(f, node);
    case NODE_CONDITION: return evaluate_condition(f, node);
    case NODE_RESULT: BASE_ASSERT(f->result); return value_string(f->result);
    default: return (value){0}; /* statements */
    }
}

static value evaluate(frame *f, const template_node *node) {
    BASE_ASSERT(node->kind >= NODE_CONSTANT);
    if (!deeper(f)) return (value){0};
    f->nested++;
    value v = evaluate_kind(f, node);
    f->nested--;
    return v;
}

/* ---- Statements ---- */

/* The items that pass the loop's condition. */
static const list *filtered_items(frame *f, const template_node *node, const list *items) {
    BASE_ASSERT(node->kind == NODE_FOR && node->c);
    value all = value_list(f->s, LIST_LIST, 0);
    for (size_t i = 0; i < items->n && !f->s->failed; i++) {
        scope own = {.outer = f->scope};
        frame inner = *f;
        inner.scope = &own;
        assign(&inner, node->a, items->items[i]);
        if (value_truth(f->s, evaluate(&inner, node->c))) list_add(f->s, all.as.l, items->items[i]);
    }
    return all.as.l;
}

static void run_loop(frame *f, const template_node *node, value iterable, int depth) {
    BASE_ASSERT(node->kind == NODE_FOR && node->items.n >= 1);
    state *s = f->s;
    const list *items = value_items(s, iterable);
    if (items && node->c) items = filtered_items(f, node, items);
    if (!items || s->failed) return;
    loop *l = state_alloc(s, sizeof(*l));
    scope *own = l ? state_alloc(s, sizeof(*own)) : NULL;
    const char *name = name_of_template(s, "loop");
    if (!own) return;
    *l = (loop){.node = node, .outer = f->scope, .items = items, .depth = depth};
    frame inner = *f;
    inner.scope = own;
    bool completed = false; /* a round, without break and continue: as in Jinja, else runs if none was */
    for (size_t i = 0; i < items->n && state_step(s, 0); i++) {
        /* Macros that are defined in the body keep its scope: a new one each round. */
        *own = (scope){.outer = f->scope, .items = own->items, .cap = own->cap};
        l->at = i;
        assign(&inner, node->a, items->items[i]);
        if (name) scope_set(s, own, name, (value){.type = VALUE_LOOP, .as.loop = l});
        flow next = s->failed ? FLOW_BREAK : run(&inner, node->items.items[0]);
        completed |= next == FLOW_NEXT;
        if (next == FLOW_BREAK) break;
    }
    if (!completed && node->items.n > 1) {
        *own = (scope){.outer = f->scope};
        run(&inner, node->items.items[1]);
    }
}

/* A body's text, in a scope of its own. */
static const string *run_to_text(frame *f, const template_node *body, flow *next) {
    builder out = {0};
    scope *own = state_alloc(f->s, sizeof(*own));
    if (!own) return builder_string(f->s, &out);
    own->outer = f->scope;
    frame inner = {.s = f->s, .scope = own, .out = &out, .nested = f->nested};
    *next = run(&inner, body);
    return builder_string(f->s, &out);
}

static value filtered_text(frame *f, const template_node *filters, const string *text) {
    frame inner = *f;
    inner.result = text;
    return filters ? evaluate(&inner, filters) : value_string(text);
}

static value macro_new(frame *f, const template_node *node) {
    BASE_ASSERT(node->kind == NODE_MACRO);
    macro *m = state_alloc(f->s, sizeof(*m));
    if (!m) return (value){0};
    *m = (macro){.node = node, .defined_in = f->scope};
    return (value){.type = VALUE_MACRO, .as.m = m};
}

static flow run_with(frame *f, const template_node *node) {
    BASE_ASSERT(node->items.n == node->second.n);
    scope *own = state_alloc(f->s, sizeof(*own));
    if (!own) return FLOW_NEXT;
    own->outer = f->scope;
    frame inner = *f;
    inner.scope = own;
    for (uint32_t i = 0; i < node->items.n && !f->s->failed; i++)
        assign(&inner, node->items.items[i], evaluate(f, node->second.items[i]));
    return run(&inner, node->b);
}

static flow run_kind(frame *f, const template_node *node) {
    state *s = f->s;
    const string *text;
    flow next = FLOW_NEXT;
    switch ((node_kind)node->kind) {
    case NODE_BODY:
        for (uint32_t i = 0; i < node->items.n && !s->failed; i++) {
            next = run(f, node->items.items[i]);
            if (next != FLOW_NEXT) return next;
        }
        break;
    case NODE_TEXT: builder_add_string(s, f->out, node->constant.as.s); break;
    case NODE_PRINT: value_write(s, f->out, evaluate(f, node->a), false); break;
    case NODE_IF:
        if (value_truth(s, evaluate(f, node->a))) return run(f, node->b);
        return node->c ? run(f, node->c) : FLOW_NEXT;
    case NODE_FOR: run_loop(f, node, evaluate(f, node->b), 0); break;
    case NODE_SET: assign(f, node->a, evaluate(f, node->b)); break;
    case NODE_SET_BLOCK:
        text = run_to_text(f, node->b, &next);
        if (next == FLOW_NEXT) assign(f, node->a, filtered_text(f, node->c, text));
        return next;
    case NODE_FILTER_BLOCK:
        text = run_to_text(f, node->b, &next);
        if (next == FLOW_NEXT) value_write(s, f->out, filtered_text(f, node->a, text), false);
        return next;
    case NODE_MACRO: scope_set(s, f->scope, node->name, macro_new(f, node)); break;
    case NODE_CALL_BLOCK: value_write(s, f->out, evaluate_call(f, node->a, macro_new(f, node->b)), false); break;
    case NODE_WITH: return run_with(f, node);
    case NODE_BREAK: return FLOW_BREAK;
    case NODE_CONTINUE: return FLOW_CONTINUE;
    default: break;
    }
    return FLOW_NEXT;
}

/* What a statement wrote is noted when it ends: the innermost ends first, and leaves nothing to those around it. */
static void note_line(state *s, size_t end, uint32_t line) {
    BASE_ASSERT(s->n_lines <= s->cap_lines);
    written_line *last = s->n_lines > 0 ? &s->lines[s->n_lines - 1] : NULL;
    if (end == (last ? last->end : 0)) return;
    if (last && last->line == line) last->end = end;
    else if (state_grow(s, (void **)&s->lines, &s->cap_lines, s->n_lines + 1, sizeof(*s->lines)))
        s->lines[s->n_lines++] = (written_line){end, line};
}

static flow run(frame *f, const template_node *node) {
    BASE_ASSERT(node->kind < NODE_CONSTANT);
    if (!deeper(f)) return FLOW_BREAK;
    if (node->kind != NODE_BODY) f->s->line = node->line;
    f->nested++;
    flow next = run_kind(f, node);
    f->nested--;
    if (f->out == f->s->watched) note_line(f->s, f->out->n, node->line);
    return next;
}

void template_evaluate(state *s, const template_node *body, builder *out) {
    BASE_ASSERT(s->depth == 0 && out->n == 0);
    scope outermost = {0};
    frame f = {.s = s, .scope = &outermost, .out = out};
    s->stack = (uintptr_t)__builtin_frame_address(0);
    run(&f, body);
    BASE_ASSERT(f.nested == 0 && s->depth == 0); /* after an error, too */
}
