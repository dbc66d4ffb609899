/* SPDX-License-Identifier: Apache-2.0 */
/* span_tree.c: see span_tree.h. */
#include "store/index/span_tree_internal.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

#define MAX_CHILDREN ((size_t)1 << 24)
#define MAX_ROOTS ((size_t)1 << 24)

static bool is_root(const span_node *n) { return n->n_tokens == 0; }

/* ---- children, in order ---- */

static span_node *find_child(const span_node *parent, place p) {
    size_t i = child_index(parent, p);
    return i < parent->n_children && span_tree_compare_places(span_node_place_of(parent->children[i]), p) == 0
               ? parent->children[i]
               : NULL;
}

static int link_child(span_node *parent, span_node *child) {
    int rc = base_grow((void **)&parent->children, &parent->cap_children, parent->n_children + 1, MAX_CHILDREN,
                       sizeof(span_node *));
    if (rc) return rc;
    size_t i = child_index(parent, span_node_place_of(child));
    memmove(parent->children + i + 1, parent->children + i, (parent->n_children++ - i) * sizeof(span_node *));
    parent->children[i] = child;
    child->parent = parent;
    BASE_ASSERT(i == 0 ||
                span_tree_compare_places(span_node_place_of(parent->children[i - 1]), span_node_place_of(child)) < 0);
    return RP_OK;
}

static void unlink_child(span_node *child) {
    span_node *parent = child->parent;
    size_t i = child_index(parent, span_node_place_of(child));
    BASE_ASSERT(i < parent->n_children && parent->children[i] == child);
    memmove(parent->children + i, parent->children + i + 1, (--parent->n_children - i) * sizeof(span_node *));
    child->parent = NULL;
}

/* ---- roots ---- */

static int compare_roots(const span_node *n, const span_root *r) {
    int c = memcmp(&n->salt, &r->salt, sizeof(n->salt));
    return c ? c : memcmp(&n->key, &r->key, sizeof(n->key));
}

static size_t root_index(const span_tree *t, const span_root *r) {
    size_t low = 0, high = t->n_roots;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (compare_roots(t->roots[mid], r) < 0) low = mid + 1;
        else high = mid;
    }
    return low;
}

static span_node *find_root(const span_tree *t, const span_root *r) {
    size_t i = root_index(t, r);
    return i < t->n_roots && compare_roots(t->roots[i], r) == 0 ? t->roots[i] : NULL;
}

/* The capacity is reserved. */
static void link_root(span_tree *t, span_node *root) {
    size_t i = root_index(t, &(span_root){root->salt, root->key});
    memmove(t->roots + i + 1, t->roots + i, (t->n_roots++ - i) * sizeof(span_node *));
    t->roots[i] = root;
    BASE_ASSERT(t->n_roots <= t->cap_roots);
    BASE_DCHECK(i == 0 || compare_roots(t->roots[i - 1], &(span_root){root->salt, root->key}) < 0);
}

static void unlink_root(span_tree *t, const span_node *root) {
    size_t i = root_index(t, &(span_root){root->salt, root->key});
    BASE_ASSERT(i < t->n_roots && t->roots[i] == root);
    memmove(t->roots + i, t->roots + i + 1, (--t->n_roots - i) * sizeof(span_node *));
}

static int new_root(span_tree *t, const span_root *r, span_node **out, rp_error *err) {
    int rc = base_grow((void **)&t->roots, &t->cap_roots, t->n_roots + 1, MAX_ROOTS, sizeof(span_node *));
    if (rc) return base_fail(err, rc, "out of memory: a prefix tree node");
    span_node *root = *out = base_calloc(1, sizeof(*root));
    if (!root) return base_fail_memory(err, sizeof(*root), "a cached prefix");
    root->salt = r->salt;
    root->key = r->key;
    span_node_begin_names(t, root);
    link_root(t, root);
    return RP_OK;
}

/* The root; one without a salt gets it now. */
static int take_root(span_tree *t, const span_root *r, span_node **out, rp_error *err) {
    *out = find_root(t, r);
    BASE_ASSERT(!*out || base_key_equal(&(*out)->salt, &r->salt)); /* invariant 8 of src/store */
    if (*out) return RP_OK;
    span_node *unclaimed = find_root(t, &(span_root){.key = r->key});
    if (!unclaimed) return new_root(t, r, out, err);
    unlink_root(t, unclaimed);
    unclaimed->salt = r->salt;
    link_root(t, *out = unclaimed);
    return RP_OK;
}

/* ---- evicted nodes without references, in the order of eviction ---- */

static void link_dropped(span_tree *t, span_node *n) {
    BASE_ASSERT(!n->present && n->holds == 0 && !is_root(n));
    BASE_LIST_APPEND(&t->dropped, n, dropped);
    t->n_dropped++;
}

static void unlink_dropped(span_tree *t, span_node *n) {
    BASE_ASSERT(t->n_dropped > 0 && !n->present && (n->dropped.previous != NULL) == (t->dropped.first != n));
    BASE_LIST_REMOVE(&t->dropped, n, dropped);
    t->n_dropped--;
}

/* ---- life cycle of nodes ---- */

/* A node without children, in no list. */
static void free_node(span_node *n) {
    BASE_ASSERT(n->n_children == 0);
    base_free(n->children);
    base_free(n);
}

/* Frees a root without children. */
static void prune_root(span_tree *t, span_node *n) {
    if (!is_root(n) || n->holds > 0 || n->n_children > 0) return;
    unlink_root(t, n);
    free_node(n);
}

static span_node *span_node_deepest(span_node *n) {
    while (n->n_children > 0) n = n->children[n->n_children - 1];
    return n;
}

/* Frees an evicted node and all nodes below it. Leaves are evicted first where uses of paths are counted, but a
 * present one is handled too. */
static void span_tree_forget(span_tree *t, span_node *top) {
    span_node *parent = top->parent, *n;
    BASE_ASSERT(!top->present && top->holds == 0);
    do {
        n = span_node_deepest(top);
        if (n->present) span_store_drop(t->store, &n->key); /* on_drop; not referenced, since top is not */
        unlink_dropped(t, n);
        if (!n->is_replaced) unlink_child(n);
        free_node(n);
    } while (n != top);
    prune_root(t, parent);
}

/* The store has a node's span no more. */
static void on_drop(void *user, void *owner) {
    span_tree *t = user;
    span_node *n = owner;
    BASE_ASSERT(n->present && t->n_present > 0);
    n->present = false;
    t->n_present--;
    if (n->holds == 0) link_dropped(t, n);
}

/* Another text gets the place of a referenced node, which paths still use. They reference its parent, too. */
static void replace_node(span_node *n) {
    span_node *parent = n->parent;
    BASE_ASSERT(!n->present && n->holds > 0 && parent->holds > 0);
    unlink_child(n);
    n->parent = parent;
    n->is_replaced = true;
}

static void unref_node(span_tree *t, span_node *n) {
    BASE_ASSERT(n->holds > 0);
    if (--n->holds > 0 || n->present) return;
    if (is_root(n)) {
        prune_root(t, n);
        return;
    }
    link_dropped(t, n);
    if (n->is_replaced) span_tree_forget(t, n);
}

/* Not called from on_drop: it might free a node that the caller uses. */
static void forget_oldest(span_tree *t) {
    BASE_DCHECK((t->n_dropped == 0) == !t->dropped.first && (t->n_dropped == 0) == !t->dropped.last);
    while (t->n_dropped > SPAN_TREE_DROPPED_NODES) span_tree_forget(t, t->dropped.first);
}

int span_tree_new(span_tree **out, span_store *store, rp_error *err) {
    span_tree *t = base_calloc(1, sizeof(*t));
    *out = t;
    if (!t) return base_fail_memory(err, sizeof(*t), "the prefix tree");
    t->store = store;
    span_store_set_on_drop(store, on_drop, t);
    return RP_OK;
}

void span_tree_free(span_tree *t) {
    if (!t) return;
    for (size_t i = 0; i < t->n_roots; i++) BASE_ASSERT(t->roots[i]->holds == 0); /* no path is open */
    span_store_set_on_drop(t->store, NULL, NULL);
    for (size_t i = 0; i < t->n_roots; i++) {
        for (span_node *n; (n = span_node_deepest(t->roots[i])) != t->roots[i]; free_node(n)) unlink_child(n);
        free_node(t->roots[i]);
    }
    for (size_t i = 0; i < t->n_lost; i++) /* opening failed in between */
        if (t->lost[i].node) free_node(t->lost[i].node);
    base_free(t->lost);
    base_free(t->roots);
    base_free(t);
}

size_t span_tree_nodes(const span_tree *t) { return t->n_present; }

/* ---- names of checkpoints ---- */

base_key span_states_name(const base_key *span, int32_t n) {
    base_key key;
    base_hash h;
    base_hash_init(&h, "reprise states 1");
    base_hash_key(&h, span);
    base_hash_u64(&h, (uint64_t)n);
    base_hash_final(&h, &key);
    return key;
}

static uint64_t states_bit(int32_t n) { return UINT64_C(1) << ((n - 1) % 64); }
static bool has_states(const span_node *node, int32_t n) { return node->states[(n - 1) / 64] & states_bit(n); }
static void mark_states(span_node *node, int32_t n) { node->states[(n - 1) / 64] |= states_bit(n); }

/* ---- paths ---- */

static int push_step(span_path *p, span_node *n, kv_span *span, span_found from, int32_t n_tokens, rp_error *err) {
    int rc = base_grow((void **)&p->steps, &p->cap_steps, p->n_steps + 1, SPAN_TREE_MAX_STEPS, sizeof(*p->steps));
    if (rc) return base_fail(err, rc, "out of memory: %zu spans of a prompt", p->n_steps);
    BASE_ASSERT(n->present || is_root(n));
    p->steps[p->n_steps++] = (span_step){n, span ? kv_span_ref(span) : NULL, from, 0, n->first_slot, n_tokens};
    p->n_tokens += (size_t)n_tokens;
    n->holds++;
    return RP_OK;
}

static void pop_step(span_path *p) {
    BASE_ASSERT(p->n_steps > 0);
    span_step *s = &p->steps[--p->n_steps];
    p->n_tokens -= (size_t)s->n_tokens;
    kv_span_unref(s->span);
    unref_node(p->tree, s->node);
}

void span_path_use(const span_path *p) {
    for (size_t i = 0; i < p->n_steps; i++)
        if (!is_root(p->steps[i].node)) span_store_use(p->tree->store, &p->steps[i].node->key, NULL);
}

void span_path_release(span_path *p) {
    while (p->n_steps > 0) pop_step(p);
    base_free(p->steps);
    *p = (span_path){0};
}

/* Tokens to match; pos_of(i) is the position of tokens[i]: positions[i], or, if NULL, consecutive from `pos`. */
typedef struct reading {
    const int32_t *tokens, *positions;
    int32_t pos;
    size_t n;
} reading;

static int32_t pos_of(const reading *r, size_t i) { return r->positions ? r->positions[i] : r->pos + (int32_t)i; }

/* Follows r from its token `*done` on along present nodes; *done: number of matched tokens; *end: why the match
 * ended. */
static int span_path_follow(span_path *p, const reading *r, size_t *done, span_end *end, rp_error *err) {
    BASE_ASSERT(p->n_steps > 0 && *done <= r->n);
    for (*end = SPAN_END_ALL; *done < r->n;) {
        span_step *last = &p->steps[p->n_steps - 1];
        const span_node *node = last->node;
        int32_t at = last->n_tokens, pos = pos_of(r, *done);
        if (at < node->n_tokens && node->tokens[at] == r->tokens[*done] && node->pos + at == pos) {
            last->n_tokens++;
            p->n_tokens++;
            ++*done;
            continue;
        }
        span_node *child = find_child(node, (place){at, pos, r->tokens[*done]});
        if (!child || !child->present) {
            *end = child ? SPAN_END_DROPPED : SPAN_END_NEW;
            return RP_OK;
        }
        span_found found;
        kv_span *span = span_store_get(p->tree->store, &child->key, &found);
        if (!span) {
            /* SPAN_END_DROPPED: its record has just turned out to be unreadable, or its time was over */
            *end = found == SPAN_FOUND_NO_MEMORY ? SPAN_END_MEMORY : SPAN_END_DROPPED;
            return RP_OK;
        }
        int rc = push_step(p, child, span, found, 0, err);
        kv_span_unref(span);
        if (rc) return rc;
    }
    return RP_OK;
}

/* Layers with windows have freed blocks that only earlier tokens need. If one of them is needed, the path ends before
 * its span. */
static void respect_windows(span_path *p, const reading *r) {
    for (size_t i = 1; i < p->n_steps; i++) {
        int32_t next = p->n_tokens < r->n ? pos_of(r, p->n_tokens) : pos_of(r, r->n - 1) + 1;
        if (!p->steps[i].span || kv_span_readable_from(p->steps[i].span) <= next) continue;
        while (p->n_steps > i) pop_step(p);
        p->end = SPAN_END_WINDOW;
        i = 0; /* the previous steps are now followed by an earlier position */
    }
}

int span_tree_match(span_tree *t, const span_root *root, const int32_t *tokens, const int32_t *positions, size_t n,
                    span_path *path, rp_error *err) {
    *path = (span_path){.tree = t};
    reading r = {.tokens = tokens, .positions = positions, .n = n};
    size_t done = 0;
    span_node *node = NULL;
    int rc = take_root(t, root, &node, err);
    if (rc) return rc;
    rc = push_step(path, node, NULL, SPAN_FOUND_MEMORY, 0, err);
    if (rc) prune_root(t, node);
    else rc = span_path_follow(path, &r, &done, &path->end, err);
    if (!rc) respect_windows(path, &r);
    return rc;
}

int span_path_turn(span_path *path, const span_root *root, const int32_t *tokens, const int32_t *positions, size_t n,
                   rp_error *err) {
    reading r = {.tokens = tokens, .positions = positions, .n = n};
    size_t done = path->n_tokens;
    span_node *node = NULL;
    BASE_ASSERT(path->n_steps > 0 && done <= n);
    int rc = take_root(path->tree, root, &node, err);
    if (rc) return rc;
    rc = push_step(path, node, NULL, SPAN_FOUND_MEMORY, 0, err);
    if (rc) prune_root(path->tree, node);
    else rc = span_path_follow(path, &r, &done, &path->end, err);
    if (!rc) respect_windows(path, &r);
    return rc;
}

size_t span_path_turns(const span_path *path) {
    size_t n = 0;
    for (size_t i = 1; i < path->n_steps; i++) n += is_root(path->steps[i].node);
    return n;
}

size_t span_tree_peek(const span_tree *t, const span_root *root, const int32_t *tokens, const int32_t *positions,
                      size_t n, span_tree_fn fn, void *user, span_tree_states *states) {
    reading r = {.tokens = tokens, .positions = positions, .n = n};
    const span_node *node = find_root(t, root);
    size_t done = 0;
    int32_t at = 0;
    if (states) *states = (span_tree_states){0};
    if (!node) node = find_root(t, &(span_root){.key = root->key});
    while (node && done < n) {
        int32_t pos = pos_of(&r, done);
        if (at < node->n_tokens && node->tokens[at] == tokens[done] && node->pos + at == pos) {
            at++;
            done++;
            if (states && has_states(node, at)) *states = (span_tree_states){done, span_states_name(&node->key, at)};
            continue;
        }
        node = find_child(node, (place){at, pos, tokens[done]});
        if (!node || !node->present || (fn && !fn(user, &node->key))) break;
        at = 0;
    }
    return done;
}

int32_t span_path_known(const span_path *p, int32_t *tokens, int32_t most) {
    BASE_ASSERT(p->n_steps > 0 && most >= 0);
    const span_step *last = &p->steps[p->n_steps - 1];
    const span_node *n = last->node;
    int32_t at = last->n_tokens;
    if (at == n->n_tokens) {
        size_t i = child_index(n, (place){.at = at, .pos = INT32_MIN, .token = INT32_MIN});
        if (i == n->n_children || n->children[i]->at != at) return 0;
        n = n->children[i];
        at = 0;
    }
    most = BASE_MIN(most, n->n_tokens - at);
    memcpy(tokens, n->tokens + at, (size_t)most * sizeof(*tokens));
    return most;
}

bool span_tree_knows(const span_tree *t, const span_root *but, const int32_t *tokens, size_t n) {
    size_t first = root_index(t, &(span_root){.salt = but->salt}); /* zeros are the lowest key */
    for (size_t i = first; i < t->n_roots && base_key_equal(&t->roots[i]->salt, &but->salt); i++) {
        const span_node *root = t->roots[i];
        for (size_t k = 0; k < root->n_children && !base_key_equal(&root->key, &but->key); k++) {
            const span_node *child = root->children[k];
            size_t same = BASE_MIN(n, (size_t)child->n_tokens);
            if (same >= SPAN_TREE_ALIKE && memcmp(child->tokens, tokens, same * sizeof(*tokens)) == 0) return true;
        }
    }
    return false;
}

/* The newest child after the first `at` tokens of a present node, other than `but` and with a number below that; or
   NULL. */
static span_node *newest_child(const span_node *n, int32_t at, const span_node *but, uint64_t below) {
    span_node *best = NULL;
    for (size_t i = child_index(n, (place){.at = at, .pos = INT32_MIN, .token = INT32_MIN});
         i < n->n_children && n->children[i]->at == at; i++) {
        span_node *child = n->children[i];
        if (child->present && child != but && child->number < below && (!best || child->number > best->number))
            best = child;
    }
    return best;
}

/* One more step of a path: the tokens of a node from its token `from` on. */
static int push_part(span_path *p, span_node *n, int32_t from, rp_error *err) {
    kv_span *span = span_store_get(p->tree->store, &n->key, NULL);
    if (!span) return RP_OK; /* the path ends here */
    int rc = push_step(p, n, span, SPAN_FOUND_MEMORY, n->n_tokens - from, err);
    kv_span_unref(span);
    if (rc) return rc;
    p->steps[p->n_steps - 1].first_token = from;
    p->steps[p->n_steps - 1].first_slot += from;
    return RP_OK;
}

int span_path_other(const span_path *path, size_t i, uint64_t *below, span_path *other, rp_error *err) {
    BASE_ASSERT(i < path->n_steps);
    const span_step *s = &path->steps[i];
    const span_node *next = i + 1 < path->n_steps ? path->steps[i + 1].node : NULL;
    span_node *child = newest_child(s->node, s->n_tokens, next, *below), *n = child;
    int rc = RP_OK;
    *other = (span_path){.tree = path->tree};
    if (child) rc = push_part(other, child, 0, err);
    else if (s->n_tokens < s->node->n_tokens && s->node->number < *below)
        rc = push_part(other, n = s->node, s->n_tokens, err);
    *below = n ? n->number : 0;
    while (!rc && n && (n = newest_child(n, n->n_tokens, NULL, UINT64_MAX))) rc = push_part(other, n, 0, err);
    return rc;
}

const int32_t *span_step_tokens(const span_step *s, int32_t *pos) {
    BASE_ASSERT(s->first_token >= 0 && s->first_token + s->n_tokens <= s->node->n_tokens);
    *pos = s->node->pos + s->first_token;
    return s->node->tokens + s->first_token;
}

/* ---- checkpoints of recurrent layers ---- */

/* The checkpoint after the most tokens of a step, which then has these alone; NULL: none. */
static kv_span *step_take_states(const span_tree *t, span_step *s) {
    for (int32_t n = s->n_tokens; n > 0; n--) {
        if (!has_states(s->node, n)) continue;
        const base_key key = span_states_name(&s->node->key, n);
        kv_span *states = span_store_get(t->store, &key, NULL);
        if (states) s->n_tokens = n;
        if (states) return states;
        if (!span_store_has(t->store, &key)) s->node->states[(n - 1) / 64] &= ~states_bit(n);
    }
    return NULL;
}

void span_path_take_states(span_path *p, kv_span **states) {
    const size_t n_tokens = p->n_tokens;
    for (*states = NULL; p->n_steps > 1 && !*states;) {
        span_step *last = &p->steps[p->n_steps - 1];
        const int32_t n = last->n_tokens;
        if ((*states = step_take_states(p->tree, last))) p->n_tokens -= (size_t)(n - last->n_tokens);
        else pop_step(p);
    }
    BASE_ASSERT((p->n_tokens > 0) == (*states != NULL));
    if (p->n_tokens < n_tokens) p->end = SPAN_END_STATES;
}

/* ---- insertion ---- */

/* The tenant of a node's text. */
static uint32_t span_node_tenant_of(const span_node *n) {
    while (n->parent) n = n->parent;
    return span_tenant(&n->salt);
}

static base_key name_node(const base_key *parent, int32_t at, const reading *r) {
    base_key key;
    base_hash h;
    base_hash_init(&h, "reprise text 1");
    base_hash_key(&h, parent);
    base_hash_u64(&h, (uint64_t)at);
    base_hash_u64(&h, (uint64_t)r->pos);
    for (size_t i = 0; i < r->n; i++) base_hash_u64(&h, (uint64_t)r->tokens[i]);
    base_hash_final(&h, &key);
    return key;
}

/* A node without a parent. */
static span_node *new_node(const base_key *parent, int32_t at, const reading *r) {
    span_node *n = base_calloc(1, sizeof(*n) + r->n * sizeof(*r->tokens));
    if (!n) return NULL;
    n->at = at;
    n->pos = r->pos;
    n->n_tokens = (int32_t)r->n;
    n->key = name_node(parent, at, r);
    memcpy(n->tokens, r->tokens, r->n * sizeof(*r->tokens));
    return n;
}

/* The node for r after the path, which is not present: of the same text, or a new one. */
static int take_node(span_path *p, const reading *r, span_node **out) {
    BASE_ASSERT(p->n_steps > 0 && r->n > 0 && r->n <= KV_SPAN_TOKENS);
    const span_step *last = &p->steps[p->n_steps - 1];
    span_node *n = find_child(last->node, (place){last->n_tokens, r->pos, r->tokens[0]});
    BASE_ASSERT(!n || !n->present);
    if (n && ((size_t)n->n_tokens != r->n || memcmp(n->tokens, r->tokens, r->n * sizeof(*r->tokens)) != 0)) {
        if (n->holds > 0) replace_node(n); /* its first token is the same, and later ones differ */
        else span_tree_forget(p->tree, n);
        n = NULL;
    }
    *out = n;
    if (n) return RP_OK;
    if (!(n = new_node(&last->node->key, last->n_tokens, r))) return RP_ERR_MEMORY;
    int rc = link_child(last->node, n);
    if (rc) {
        free_node(n);
        return rc;
    }
    span_node_begin_names(p->tree, n);
    link_dropped(p->tree, *out = n);
    return RP_OK;
}

uint64_t span_tree_extend_bytes(const span_path *path, const kv_span *span, const int32_t *tokens) {
    BASE_ASSERT(path->n_steps > 0);
    const span_step *last = &path->steps[path->n_steps - 1];
    const span_node *node = last->node;
    int32_t at = last->n_tokens, pos = kv_span_position(span);
    uint64_t bytes = 0;
    for (int32_t i = 0; i < kv_span_tokens(span); i++, at++) { /* as in span_path_follow */
        if (at < node->n_tokens && node->tokens[at] == tokens[i] && node->pos + at == pos + i) continue;
        node = find_child(node, (place){at, pos + i, tokens[i]});
        if (!node || !node->present) break;
        bytes += span_store_idle_bytes_of(path->tree->store, &node->key);
        at = 0;
    }
    return bytes;
}

static int extend(span_path *path, kv_span *span, const int32_t *tokens, uint64_t cost_us, bool is_pulled, bool *kept,
                  rp_error *err) {
    span_tree *t = path->tree;
    reading r = {.tokens = tokens, .pos = kv_span_position(span), .n = (size_t)kv_span_tokens(span)};
    size_t known = 0;
    span_end end;
    span_node *node;
    *kept = false;
    int rc = span_path_follow(path, &r, &known, &end, err);
    if (rc || known == r.n) return rc;
    if (end == SPAN_END_MEMORY)
        return base_fail(err, RP_ERR_MEMORY, "out of memory: the cached prefix of a prompt is on disk");
    r = (reading){.tokens = tokens + known, .pos = r.pos + (int32_t)known, .n = r.n - known};
    if ((rc = take_node(path, &r, &node))) return base_fail(err, rc, "out of memory: a span of a prompt");
    kv_span_seal(span, &node->key);
    if (span_store_owner(t->store, &node->key)) /* the same text below a node that was replaced */
        span_store_drop(t->store, &node->key);
    const record about = {
        .kind = RECORD_TEXT,
        .parent = node->parent->key,
        .at = node->at,
        .first_slot = (int32_t)known,
        .n_tokens = node->n_tokens,
        .tokens = node->tokens,
        .cost_us = cost_us,
        .tenant = span_node_tenant_of(node),
        .label = "",
    };
    rc = is_pulled ? span_store_put_pulled(t->store, span, node, &about, err)
                   : span_store_put(t->store, span, node, &about, NULL, err);
    if (rc) return rc;
    if (node->holds == 0) unlink_dropped(t, node);
    BASE_ASSERT(!node->present && base_key_equal(kv_span_key(span), &node->key));
    node->present = *kept = true;
    node->number = ++t->n_made;
    node->first_slot = (int32_t)known;
    t->n_present++;
    rc = push_step(path, node, span, SPAN_FOUND_MEMORY, node->n_tokens, err);
    forget_oldest(t);
    return rc;
}

int span_tree_extend(span_path *path, kv_span *span, const int32_t *tokens, uint64_t cost_us, bool *kept,
                     rp_error *err) {
    return extend(path, span, tokens, cost_us, false, kept, err);
}

int span_tree_graft(span_tree *t, const span_root *root, const int32_t *tokens, const int32_t *positions, size_t n,
                    kv_span *span, const int32_t *span_tokens, uint64_t cost_us, bool *kept, rp_error *err) {
    span_path path;
    *kept = false;
    int rc = span_tree_match(t, root, tokens, positions, n, &path, err);
    if (!rc && path.n_tokens == n) rc = extend(&path, span, span_tokens, cost_us, true, kept, err);
    span_path_release(&path);
    return rc;
}

int span_path_put_states(const span_path *path, size_t n, kv_span *states, uint64_t cost_us, rp_error *err) {
    size_t i = 1, before = 0;
    BASE_ASSERT(n >= 1 && n <= path->n_tokens && kv_span_is_states(states));
    for (; before + (size_t)path->steps[i].n_tokens < n; i++) before += (size_t)path->steps[i].n_tokens;
    span_node *node = path->steps[i].node;
    const int32_t at = (int32_t)(n - before);
    const base_key key = span_states_name(&node->key, at);
    const record about = {
        .kind = RECORD_STATES,
        .parent = node->key,
        .at = at,
        .cost_us = cost_us,
        .tenant = span_node_tenant_of(node),
        .label = "",
    };
    kv_span_seal(states, &key);
    const int rc = span_store_put(path->tree->store, states, NULL, &about, NULL, err);
    if (!rc) mark_states(node, at);
    return rc;
}

void span_tree_release(span_tree *t, const base_key *key) {
    span_node *n = span_store_owner(t->store, key);
    if (!n || !n->present || n->holds > 0) return;
    for (size_t i = 0; i < n->n_children; i++)
        if (n->children[i]->present) return;
    span_store_remove(t->store, key);
    forget_oldest(t);
}

/* ---- restoring from disk ---- */

/* A checkpoint: without an owner. */
static int own_states(span_tree *t, const record *rec, span_claim *claim, rp_error *err) {
    const base_key name = span_states_name(&rec->parent, rec->at);
    if (rec->at < 1 || rec->at > KV_SPAN_TOKENS || !base_key_equal(&name, &rec->key)) return RP_OK;
    if (base_grow((void **)&t->lost, &t->cap_lost, t->n_lost + 1, SPAN_STORE_MAX, sizeof(*t->lost)))
        return base_fail_memory(err, sizeof(*t->lost), "the prefix tree");
    t->lost[t->n_lost++] = (lost_node){.parent = rec->parent, .at = rec->at, .key = rec->key};
    claim->is_known = true;
    return RP_OK;
}

int span_tree_own(void *tree, const record_row *row, span_claim *claim, rp_error *err) {
    span_tree *t = tree;
    const record *rec = &row->record;
    if (rec->kind == RECORD_STATES) return own_states(t, rec, claim, err);
    reading r = {.tokens = rec->tokens, .pos = rec->form.first_pos + rec->first_slot, .n = (size_t)rec->n_tokens};
    base_key name = name_node(&rec->parent, rec->at, &r);
    if (rec->n_tokens == 0 || !base_key_equal(&name, &rec->key)) return RP_OK; /* its content does not match its key */
    int rc = base_grow((void **)&t->lost, &t->cap_lost, t->n_lost + 1, SPAN_STORE_MAX, sizeof(*t->lost));
    span_node *n = rc ? NULL : new_node(&rec->parent, rec->at, &r);
    if (!n) return base_fail_memory(err, sizeof(*n), "the prefix tree");
    n->first_slot = rec->first_slot;
    n->present = true;
    t->n_present++;
    t->lost[t->n_lost++] = (lost_node){.node = n, .parent = rec->parent};
    *claim = (span_claim){.owner = n, .is_known = true};
    return RP_OK;
}

/* The parent of a node as its record names it: only roots have children after no token. NULL: it is absent. */
static int find_parent(span_tree *t, const lost_node *l, span_node **out, rp_error *err) {
    *out = NULL;
    if (l->node->at == 0) return take_root(t, &(span_root){.key = l->parent}, out, err); /* its salt: later */
    *out = span_store_owner(t->store, &l->parent);
    return RP_OK;
}

/* May a node be linked there? Its key covers its tokens and its parent, but not that no other node has the same
 * tokens. */
static bool may_hang(const span_node *parent, const span_node *n) {
    if (!parent || n->at > parent->n_tokens || find_child(parent, span_node_place_of(n))) return false;
    return n->at == parent->n_tokens || parent->tokens[n->at] != n->tokens[0] || parent->pos + n->at != n->pos;
}

/* Links the nodes with present parents. A key depends on its parent's, so no node is its own ancestor. */
static int span_tree_hang(span_tree *t, lost_node *l, rp_error *err) {
    span_node *parent;
    int rc = find_parent(t, l, &parent, err);
    if (rc) return rc;
    if (!may_hang(parent, l->node)) {
        if (parent) prune_root(t, parent);
        return RP_OK;
    }
    BASE_ASSERT(!l->node->parent);
    l->node->number = ++t->n_made;
    if (link_child(parent, l->node)) return base_fail_memory(err, sizeof(*l), "the prefix tree");
    return RP_OK;
}

/* Removes a node without a path to a root, with all nodes below it. */
static void drop_lost(span_tree *t, span_node *top) {
    span_node *n;
    do {
        n = span_node_deepest(top);
        span_store_drop(t->store, &n->key); /* on_drop lists it */
        BASE_ASSERT(!n->present);
        unlink_dropped(t, n);
        if (n != top) unlink_child(n);
        free_node(n);
    } while (n != top);
}

int span_tree_settle(span_tree *t, rp_error *err) {
    int rc = RP_OK;
    size_t n_states = 0; /* moved to the front */
    for (size_t i = 0; i < t->n_lost && !rc; i++)
        if (t->lost[i].node) rc = span_tree_hang(t, &t->lost[i], err);
    for (size_t i = 0; i < t->n_lost; i++)
        if (t->lost[i].node && t->lost[i].node->parent)
            t->lost[i].node = NULL, t->lost[i].at = 0; /* linked, or below another lost node */
    for (size_t i = 0; i < t->n_lost; i++) {
        if (t->lost[i].node) drop_lost(t, t->lost[i].node);
        else if (t->lost[i].at > 0) t->lost[n_states++] = t->lost[i];
    }
    for (size_t i = 0; i < n_states; i++) { /* all nodes are linked, or removed */
        const lost_node *l = &t->lost[i];
        span_node *node = span_store_owner(t->store, &l->parent);
        if (node && l->at <= node->n_tokens) mark_states(node, l->at);
        else span_store_drop(t->store, &l->key);
    }
    base_free(t->lost);
    t->lost = NULL;
    t->n_lost = t->cap_lost = 0;
    span_tree_begin_names(t);
    return rc;
}
