/* SPDX-License-Identifier: Apache-2.0 */
/* grammar_network.c: converts the tree to a network: resolves names, builds each rule's nodes from its end to its
 * start, and refuses left recursion. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "grammar/grammar_internal.h"

#define NAME_SHOWN 60 /* characters of a name in a message; they are ASCII */

/* ---- names ---- */

static int grammar_network_compare_names(const char *text, const grammar_name *a, const grammar_name *b) {
    int order = memcmp(text + a->at, text + b->at, BASE_MIN(a->n, b->n));
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

/* Merge sort, because qsort passes no context (the text). Stable: equal names stay in text order. */
static void grammar_network_sort_names(const char *text, grammar_name *names, size_t n, grammar_name *room) {
    if (n < 2) return;
    size_t half = n / 2, a = 0, b = half;
    grammar_network_sort_names(text, names, half, room);
    grammar_network_sort_names(text, names + half, n - half, room);
    memcpy(room, names, n * sizeof(*names));
    for (size_t i = 0; i < n; i++) {
        bool first = b == n || (a < half && grammar_network_compare_names(text, &room[a], &room[b]) <= 0);
        names[i] = first ? room[a++] : room[b++];
    }
}

/* The rule of that name, or GRAMMAR_NONE. */
static uint32_t grammar_tree_find_rule(const grammar_tree *t, const grammar_name *name) {
    size_t first = 0, end = t->n_rules;
    while (first < end) {
        size_t mid = first + (end - first) / 2;
        int order = grammar_network_compare_names(t->text, &t->rules[mid], name);
        if (order == 0) return (uint32_t)mid;
        if (order < 0) first = mid + 1;
        else end = mid;
    }
    return GRAMMAR_NONE;
}

static int grammar_name_shown(const grammar_name *name) { return (int)BASE_MIN(name->n, NAME_SHOWN); }

static int grammar_tree_fail_unknown(const grammar_tree *t, const grammar_name *use) {
    char name[NAME_SHOWN + 1], candidate[NAME_SHOWN + 1], near[NAME_SHOWN + 1] = "";
    base_guess guess = {.name = name};
    memcpy(name, t->text + use->at, (size_t)grammar_name_shown(use));
    name[grammar_name_shown(use)] = '\0';
    for (size_t i = 0; i < t->n_rules; i++) {
        const grammar_name *rule = &t->rules[i];
        memcpy(candidate, t->text + rule->at, (size_t)grammar_name_shown(rule));
        candidate[grammar_name_shown(rule)] = '\0';
        guess.best = near[0] ? near : NULL;
        base_guess_offer(&guess, candidate);
        if (guess.best == candidate) memcpy(near, candidate, sizeof(near));
    }
    if (near[0]) return grammar_fail(t, RP_ERR_SYNTAX, use->at, "unknown rule '%s': did you mean '%s'?", name, near);
    return grammar_fail(t, RP_ERR_SYNTAX, use->at, "unknown rule '%s'", name);
}

static int resolve_names(grammar_tree *t) {
    grammar_name *room = base_calloc(t->n_rules + 1, sizeof(*room));
    if (!room) return base_fail_memory(t->err, t->n_rules * sizeof(*room), "a grammar");
    grammar_network_sort_names(t->text, t->rules, t->n_rules, room);
    base_free(room);
    for (size_t i = 1; i < t->n_rules; i++)
        if (grammar_network_compare_names(t->text, &t->rules[i - 1], &t->rules[i]) == 0)
            return grammar_fail(t, RP_ERR_SYNTAX, t->rules[i].at, "duplicate rule '%.*s': rename one of them",
                                grammar_name_shown(&t->rules[i]), t->text + t->rules[i].at);
    for (size_t i = 0; i < t->n_uses; i++)
        if ((t->uses[i].expr = grammar_tree_find_rule(t, &t->uses[i])) == GRAMMAR_NONE)
            return grammar_tree_fail_unknown(t, &t->uses[i]);
    for (size_t i = 0; i < t->n_rules; i++)
        if (t->rules[i].n == 4 && memcmp(t->text + t->rules[i].at, "root", 4) == 0) {
            t->g->root = (uint32_t)i;
            return RP_OK;
        }
    return grammar_fail(t, RP_ERR_SYNTAX, 0, "the rule 'root', the start of every answer, is missing");
}

/* ---- nodes ---- */

typedef struct builder {
    grammar_tree *t;
    grammar *g;
    uint32_t bytes[256]; /* units of single bytes; GRAMMAR_DONE: not added yet */
    int rc;
} builder;

static uint32_t add_node(builder *b, grammar_node node, uint32_t at) {
    grammar *g = b->g;
    if (b->rc) return 0;
    BASE_ASSERT(node.kind == GRAMMAR_END || node.next < g->n_nodes); /* a rule is built from its end */
    int rc = base_grow((void **)&g->nodes, &g->cap_nodes, g->n_nodes + 1, GRAMMAR_MAX_NODES, sizeof(*g->nodes));
    if (rc == RP_ERR_LIMIT)
        b->rc = grammar_fail(b->t, rc, at, "the grammar expands to more than %zu nodes here: use smaller repetition "
                                           "counts, or an open end as in {1,}",
                             GRAMMAR_MAX_NODES);
    else if (rc) b->rc = base_fail_memory(b->t->err, g->n_nodes * sizeof(*g->nodes), "a grammar");
    if (rc) return 0;
    g->nodes[g->n_nodes] = node;
    return (uint32_t)g->n_nodes++;
}

static uint32_t byte_unit(builder *b, uint8_t byte) {
    if (b->bytes[byte] == GRAMMAR_DONE && !b->rc && (b->rc = grammar_add_byte(b->g, byte, &b->bytes[byte])))
        base_fail(b->t->err, (rp_code)b->rc, "out of memory: a grammar's bytes");
    return b->bytes[byte];
}

static uint32_t builder_build(builder *b, uint32_t expr, uint32_t next);

static uint32_t build_bytes(builder *b, const grammar_expr *e, uint32_t next) {
    for (uint32_t i = e->n; i-- > 0;)
        next = add_node(b, (grammar_node){GRAMMAR_UNIT, byte_unit(b, b->t->bytes[e->first + i]), next}, e->at);
    return next;
}

/* Adds the alternative `one` to `all`. all: GRAMMAR_NONE: no alternative yet. */
static uint32_t builder_either(builder *b, uint32_t all, uint32_t one, uint32_t at) {
    return all == GRAMMAR_NONE ? one : add_node(b, (grammar_node){GRAMMAR_SPLIT, one, all}, at);
}

/* Literals of a choice, sorted: common prefixes share nodes. A long list of words is not matched word by word. */
typedef struct word {
    const uint8_t *bytes;
    uint32_t n;
} word;

static int grammar_network_by_bytes(const void *a, const void *b) {
    const word *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, BASE_MIN(x->n, y->n));
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* Builds n >= 1 words from byte `depth` on. Each recursion is at least one byte deeper, where words differ: some
 * hundred levels at most, because the total of their bytes is bounded. */
static uint32_t build_words(builder *b, const word *words, size_t n, uint32_t depth, uint32_t next, uint32_t at) {
    const word *first = &words[0], *last = &words[n - 1];
    uint32_t common = depth, all = GRAMMAR_NONE;
    BASE_ASSERT(n > 0 && depth <= first->n && depth <= last->n);
    while (common < first->n && common < last->n && first->bytes[common] == last->bytes[common]) common++;
    for (size_t i = 0, end; i < n && !b->rc; i = end) {
        bool goes_on = words[i].n > common; /* then the words after it do, too */
        for (end = i + 1; goes_on && end < n && words[end].bytes[common] == words[i].bytes[common];) end++;
        if (goes_on) all = builder_either(b, all, build_words(b, words + i, end - i, common, next, at), at);
        else if (all == GRAMMAR_NONE) all = next; /* a duplicate word adds no alternative */
    }
    BASE_ASSERT(all != GRAMMAR_NONE || b->rc);
    for (uint32_t i = common; i-- > depth;)
        all = add_node(b, (grammar_node){GRAMMAR_UNIT, byte_unit(b, first->bytes[i]), all}, at);
    return all;
}

static uint32_t build_choice(builder *b, const grammar_expr *e, uint32_t next) {
    static const uint8_t none = 0;
    const grammar_expr *exprs = b->t->exprs;
    uint32_t all = GRAMMAR_NONE;
    size_t n = 0;
    for (uint32_t i = e->first; i != GRAMMAR_NONE; i = exprs[i].next) {
        if (exprs[i].kind == EXPR_BYTES) n++;
        else all = builder_either(b, all, builder_build(b, i, next), e->at);
    }
    word *words = n > 0 ? base_alloc(n * sizeof(*words)) : NULL;
    if (n > 0 && !words && !b->rc) b->rc = base_fail_memory(b->t->err, n * sizeof(*words), "a grammar");
    if (b->rc || n == 0) {
        base_free(words);
        return n == 0 ? all : next;
    }
    n = 0;
    for (uint32_t i = e->first; i != GRAMMAR_NONE; i = exprs[i].next)
        if (exprs[i].kind == EXPR_BYTES)
            words[n++] = (word){exprs[i].n > 0 ? b->t->bytes + exprs[i].first : &none, exprs[i].n};
    qsort(words, n, sizeof(*words), grammar_network_by_bytes);
    all = builder_either(b, all, build_words(b, words, n, 0, next, e->at), e->at);
    base_free(words);
    return all;
}

/* An item without nodes matches the empty text only: repetition adds nothing. */
static uint32_t build_repeat(builder *b, const grammar_expr *e, uint32_t next) {
    uint32_t after = next;
    BASE_ASSERT(e->n <= e->most);
    if (e->most == GRAMMAR_NONE) { /* a split that its item returns to */
        const uint32_t split = add_node(b, (grammar_node){GRAMMAR_SPLIT, next, next}, e->at);
        const uint32_t item = builder_build(b, e->first, split);
        if (!b->rc && item != split) b->g->nodes[split].what = item;
        next = split;
    }
    for (uint32_t i = e->n; i < e->most && e->most != GRAMMAR_NONE && !b->rc; i++) {
        uint32_t item = builder_build(b, e->first, next);
        if (item == next) break;
        next = add_node(b, (grammar_node){GRAMMAR_SPLIT, item, after}, e->at);
    }
    for (uint32_t i = 0; i < e->n && !b->rc; i++) {
        uint32_t item = builder_build(b, e->first, next);
        if (item == next) break;
        next = item;
    }
    return next;
}

static uint32_t builder_build(builder *b, uint32_t expr, uint32_t next) {
    BASE_ASSERT(expr < b->t->n_exprs);
    const grammar_expr *e = &b->t->exprs[expr];
    if (b->rc) return next;
    switch ((grammar_expr_kind)e->kind) {
    case EXPR_BYTES: return build_bytes(b, e, next);
    case EXPR_CLASS: return add_node(b, (grammar_node){GRAMMAR_UNIT, e->first, next}, e->at);
    case EXPR_RULE: return add_node(b, (grammar_node){GRAMMAR_CALL, b->t->uses[e->first].expr, next}, e->at);
    case EXPR_CHOICE: return build_choice(b, e, next);
    case EXPR_REPEAT: return build_repeat(b, e, next);
    case EXPR_SEQUENCE: break;
    }
    for (uint32_t i = e->first; i != GRAMMAR_NONE; i = b->t->exprs[i].next) next = builder_build(b, i, next);
    return next;
}

/* ---- left recursion ---- */

/* Finds the rules that each rule can begin with: a walk over all nodes that are reachable before a character. The walk
 * passes a call if its rule can be empty; until that is known, the call waits. */
typedef struct left_walk {
    const grammar *g;
    uint32_t *stack, *waiting, *next_waiting; /* waiting: [rules] list of calls, linked by next_waiting: [nodes] */
    bool *seen, *can_be_empty;                /* [nodes], [rules] */
    size_t n_stack;
} left_walk;

static void left_walk_reach(left_walk *w, uint32_t node) {
    if (w->seen[node]) return;
    w->seen[node] = true;
    BASE_ASSERT(w->n_stack < w->g->n_nodes);
    w->stack[w->n_stack++] = node;
}

static void left_walk_end_rule(left_walk *w, uint32_t rule) {
    if (w->can_be_empty[rule]) return;
    w->can_be_empty[rule] = true;
    for (uint32_t i = w->waiting[rule]; i != GRAMMAR_NONE; i = w->next_waiting[i])
        left_walk_reach(w, w->g->nodes[i].next);
}

static void walk_left(left_walk *w) {
    const grammar *g = w->g;
    for (size_t i = 0; i < g->n_rules; i++) {
        w->waiting[i] = GRAMMAR_NONE;
        left_walk_reach(w, g->entries[i]);
    }
    while (w->n_stack > 0) {
        uint32_t i = w->stack[--w->n_stack];
        const grammar_node *node = &g->nodes[i];
        switch ((grammar_node_kind)node->kind) {
        case GRAMMAR_UNIT: break;
        case GRAMMAR_END: left_walk_end_rule(w, node->what); break;
        case GRAMMAR_SPLIT:
            left_walk_reach(w, node->what);
            left_walk_reach(w, node->next);
            break;
        case GRAMMAR_CALL:
            w->next_waiting[i] = w->waiting[node->what];
            w->waiting[node->what] = i;
            if (w->can_be_empty[node->what]) left_walk_reach(w, node->next);
            break;
        }
    }
}

/* Removes, repeatedly, rules that begin with no remaining rule. A rule that remains is in a cycle or leads to one. */
static uint32_t find_circle(const left_walk *w, const uint32_t *owners, uint32_t *n_left, uint32_t *queue) {
    const grammar *g = w->g;
    size_t n = 0, done = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (w->seen[i] && g->nodes[i].kind == GRAMMAR_CALL) n_left[owners[i]]++;
    for (size_t i = 0; i < g->n_rules; i++)
        if (n_left[i] == 0) queue[n++] = (uint32_t)i;
    for (; done < n; done++)
        for (uint32_t i = w->waiting[queue[done]]; i != GRAMMAR_NONE; i = w->next_waiting[i])
            if (--n_left[owners[i]] == 0) queue[n++] = owners[i];
    BASE_ASSERT(n <= g->n_rules); /* a rule is removed once */
    if (n == g->n_rules) return GRAMMAR_NONE;
    for (size_t i = 0; i < g->n_nodes; i++) /* each remaining rule begins with a remaining rule, */
        if (w->seen[i] && g->nodes[i].kind == GRAMMAR_CALL && n_left[g->nodes[i].what] > 0)
            queue[owners[i]] = g->nodes[i].what;
    uint32_t rule = 0;
    while (n_left[rule] == 0) rule++;
    for (size_t i = 0; i < g->n_rules; i++) rule = queue[rule]; /* and after n_rules steps it is in a cycle */
    return rule;
}

static int refuse_left_recursion(builder *b, const uint32_t *owners) {
    grammar *g = b->g;
    left_walk w = {.g = g,
                   .stack = base_calloc(g->n_nodes + 1, sizeof(uint32_t)),
                   .waiting = base_calloc(g->n_rules + 1, sizeof(uint32_t)),
                   .next_waiting = base_calloc(g->n_nodes + 1, sizeof(uint32_t)),
                   .seen = base_calloc(g->n_nodes + 1, sizeof(bool)),
                   .can_be_empty = base_calloc(g->n_rules + 1, sizeof(bool))};
    uint32_t *n_left = base_calloc(2 * g->n_rules + 1, sizeof(uint32_t)), rule = GRAMMAR_NONE;
    int rc = RP_OK;
    if (!w.stack || !w.waiting || !w.next_waiting || !w.seen || !w.can_be_empty || !n_left)
        rc = base_fail_memory(b->t->err, g->n_nodes * sizeof(uint32_t), "a grammar");
    if (!rc) {
        walk_left(&w);
        rule = find_circle(&w, owners, n_left, n_left + g->n_rules);
    }
    if (rule != GRAMMAR_NONE) {
        const grammar_name *name = &b->t->rules[rule];
        rc = grammar_fail(b->t, RP_ERR_SYNTAX, name->at, "left recursion: the rule '%.*s' begins with itself, "
                                                         "directly or through other rules: begin it with an item, as "
                                                         "in  list ::= item (\",\" item)*",
                          grammar_name_shown(name), b->t->text + name->at);
    }
    base_free(w.stack);
    base_free(w.waiting);
    base_free(w.next_waiting);
    base_free(w.seen);
    base_free(w.can_be_empty);
    base_free(n_left);
    return rc;
}

/* ---- the network ---- */

static int build_all(builder *b) {
    grammar *g = b->g;
    g->n_rules = b->t->n_rules;
    g->entries = base_calloc(g->n_rules + 1, sizeof(*g->entries));
    if (!g->entries) return base_fail_memory(b->t->err, g->n_rules * sizeof(*g->entries), "a grammar");
    for (uint32_t i = 0; i < g->n_rules && !b->rc; i++) {
        uint32_t end = add_node(b, (grammar_node){GRAMMAR_END, i, 0}, b->t->rules[i].at);
        g->entries[i] = builder_build(b, b->t->rules[i].expr, end);
        BASE_ASSERT(b->rc || g->entries[i] < g->n_nodes);
    }
    if (b->rc) return b->rc;
    uint32_t *owners = base_calloc(g->n_nodes, sizeof(*owners)), owner = 0;
    if (!owners) return base_fail_memory(b->t->err, g->n_nodes * sizeof(*owners), "a grammar");
    BASE_ASSERT(g->n_nodes > 0 && g->nodes[0].kind == GRAMMAR_END);
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].kind == GRAMMAR_END) owner = g->nodes[i].what; /* the END node is a rule's first node */
        owners[i] = owner;
    }
    int rc = refuse_left_recursion(b, owners);
    base_free(owners);
    return rc;
}

int grammar_link(grammar_tree *t) {
    builder b = {.t = t, .g = t->g};
    int rc = resolve_names(t);
    return rc ? rc : build_all(&b);
}
