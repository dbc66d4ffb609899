/* SPDX-License-Identifier: Apache-2.0 */
/* test_span_tree.c: the prefix tree against a naive model: all present spans, each with all its preceding tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "store/index/span_tree_internal.h"
#include "support/kv_shapes.h"
#include "support/seed.h"
#include "support/tiny_random.h"
#include "reprise_store.h"

#define N_ROOTS 4 /* two of each salt */
#define N_REQUESTS 6
#define MAX_TOKENS 40
#define MAX_SPAN 12
#define BUDGET_BLOCKS 60

static const kv_shape shape = {KV_SAME(2, 1, 2, 2), .format = RP_KV_F16};
static const uint64_t block_bytes = 64 * (2 + 2) * 2;

static base_key key_of(const char *domain, int i) {
    base_key k;
    base_hash h;
    base_hash_init(&h, domain);
    base_hash_u64(&h, (uint64_t)i);
    base_hash_final(&h, &k);
    return k;
}

#define UNCLAIMED (-1) /* root 0 with unknown salt */

static span_root root_of(int i) {
    if (i == UNCLAIMED) return (span_root){.key = key_of("root", 0)};
    return (span_root){.salt = key_of("salt", i / 2), .key = key_of("root", i)};
}

/* A prompt, or a computed prefix of one. */
typedef struct text {
    int root, n;
    int32_t tokens[MAX_TOKENS], positions[MAX_TOKENS];
} text;

/* A span that the tree took: the tokens of `read` from `begin` on. */
typedef struct naive_span {
    base_key key;
    text read;
    int begin;
} naive_span;

typedef struct request {
    text text;
    span_path path;
    bool active;
} request;

typedef struct bench {
    tiny_random r;
    kv_pool *pool;
    span_store *store;
    span_tree *tree;
    request requests[N_REQUESTS];
    naive_span *spans;
    size_t n_spans, cap_spans;
    int ends[5];         /* matches by their reason to end */
    int found, met;      /* tokens: in matches, and computed meanwhile by others */
    int taken;           /* extensions of a path along unreferenced nodes */
    int reported, ended; /* paths with a known continuation, and those without one */
} bench;

static int below(bench *b, int n) { return (int)tiny_random_below(&b->r, (uint64_t)n); }

/* Few different tokens: prompts share prefixes of all lengths; positions jump occasionally. */
static text random_text(bench *b) {
    text t = {.root = below(b, N_ROOTS), .n = 1 + below(b, MAX_TOKENS)};
    int32_t pos = 0;
    for (int i = 0; i < t.n; i++) {
        if (below(b, 40) == 0) pos += 5;
        t.tokens[i] = below(b, 8) == 0;
        t.positions[i] = pos++;
    }
    return t;
}

static bool agrees(const text *a, const text *b, int begin, int end) {
    for (int i = begin; i < end; i++)
        if (a->tokens[i] != b->tokens[i] || a->positions[i] != b->positions[i]) return false;
    return true;
}

/* The number of tokens that present spans match: a span matches from its first token to the point where the prompt
 * differs. */
static int naive_match(const bench *b, const text *t, int n) {
    bool reached[MAX_TOKENS + 1] = {true};
    int most = 0;
    for (int from = 0; from < n; from++) {
        for (size_t s = 0; s < b->n_spans && reached[from]; s++) {
            const naive_span *span = &b->spans[s];
            if (span->begin != from || span->read.root != t->root || !agrees(&span->read, t, 0, from)) continue;
            if (!span_store_has(b->store, &span->key)) continue;
            for (int end = from; end < n && end < span->read.n && agrees(&span->read, t, end, end + 1); end++) {
                reached[end + 1] = true;
                most = BASE_MAX(most, end + 1);
            }
        }
    }
    return most;
}

/* Does some span, present or evicted, continue a path of n tokens with `next`? */
static bool goes_on(const bench *b, const text *t, int n, const int32_t *next, int n_next) {
    for (size_t s = 0; s < b->n_spans; s++) {
        const text *read = &b->spans[s].read;
        if (read->root == t->root && read->n >= n + n_next && agrees(read, t, 0, n) &&
            memcmp(read->tokens + n, next, (size_t)n_next * sizeof(*next)) == 0)
            return true;
    }
    return false;
}

/* Does a present span contain the token after a path of n? */
static bool is_known(const bench *b, const text *t, int n) {
    for (size_t s = 0; s < b->n_spans; s++) {
        const naive_span *span = &b->spans[s];
        if (span->begin <= n && span->read.n > n && span->read.root == t->root && agrees(&span->read, t, 0, n) &&
            span_store_has(b->store, &span->key))
            return true;
    }
    return false;
}

static void check_known(bench *b, const request *q) {
    int32_t next[MAX_TOKENS];
    int n = (int)q->path.n_tokens, most = 1 + below(b, 8);
    int32_t known = span_path_known(&q->path, next, most);
    assert_true(known >= 0 && known <= most);
    if (known > 0) assert_true(goes_on(b, &q->text, n, next, known));
    else assert_false(is_known(b, &q->text, n));
    *(known > 0 ? &b->reported : &b->ended) += 1;
}

static void begin_request(bench *b, request *q) {
    *q = (request){.text = random_text(b), .active = true};
    span_root root = root_of(q->text.root);
    int n = q->text.n - 1, expected = naive_match(b, &q->text, n); /* the last token is computed for its logits */
    assert_int_equal(span_tree_match(b->tree, &root, q->text.tokens, q->text.positions, (size_t)n, &q->path, NULL),
                     RP_OK);
    assert_int_equal(q->path.n_tokens, expected);
    assert_int_equal(q->path.end == SPAN_END_ALL, expected == n);
    b->ends[q->path.end]++;
    b->found += expected;
    int at = 0;
    for (size_t i = 1; i < q->path.n_steps; i++) {
        const span_step *s = &q->path.steps[i];
        assert_int_equal(kv_span_position(s->span) + s->first_slot, q->text.positions[at]);
        assert_true(s->n_tokens >= 1 && s->first_slot + s->n_tokens <= kv_span_tokens(s->span));
        at += s->n_tokens;
    }
    assert_int_equal(at, expected);
    check_known(b, q);
}

static void remember(bench *b, const request *q, int begin, int end, const kv_span *span) {
    for (size_t i = 0; i < b->n_spans; i++)
        if (base_key_equal(&b->spans[i].key, kv_span_key(span))) return; /* computed again */
    if (b->n_spans == b->cap_spans) {
        b->cap_spans = b->cap_spans ? 2 * b->cap_spans : 64;
        b->spans = realloc(b->spans, b->cap_spans * sizeof(*b->spans));
        assert_non_null(b->spans);
    }
    naive_span *s = &b->spans[b->n_spans++];
    *s = (naive_span){.key = *kv_span_key(span), .read = q->text, .begin = begin};
    s->read.n = end;
}

/* Computes some more tokens of a request. */
static void extend(bench *b, request *q) {
    const text *t = &q->text;
    int begin = (int)q->path.n_tokens, n = 1, most = 1 + below(b, MAX_SPAN);
    if (begin == t->n) return;
    while (n < most && begin + n < t->n && t->positions[begin + n] == t->positions[begin] + n) n++;
    kv_span *span;
    assert_int_equal(kv_span_new(&span, b->pool, t->positions[begin], NULL), RP_OK);
    int32_t slot;
    for (int i = 0; i < n; i++) {
        if (kv_span_append(span, &slot, NULL) == RP_OK) continue;
        kv_span_unref(span); /* the budget is exhausted */
        return;
    }
    bool kept;
    int known = naive_match(b, t, begin + n);
    uint64_t idle = span_store_idle_bytes(b->store), taken = span_tree_extend_bytes(&q->path, span, t->tokens + begin);
    assert_int_equal(span_tree_extend(&q->path, span, t->tokens + begin, 0, &kept, NULL), RP_OK);
    assert_int_equal(q->path.n_tokens, begin + n);
    assert_int_equal(kept, known < begin + n);
    assert_int_equal(kept, kv_span_is_sealed(span));
    assert_int_equal(idle - span_store_idle_bytes(b->store), taken);
    b->taken += taken > 0;
    b->met += known - begin;
    if (kept) remember(b, q, known, begin + n, span);
    check_known(b, q);
    kv_span_unref(span);
}

static void open_bench(bench *b, uint64_t seed, const kv_shape *s) {
    *b = (bench){.r = {seed}};
    assert_int_equal(kv_pool_new(&b->pool, s, BUDGET_BLOCKS * block_bytes, NULL, NULL), RP_OK);
    assert_int_equal(span_store_new(&b->store, b->pool, NULL), RP_OK);
    assert_int_equal(span_tree_new(&b->tree, b->store, NULL), RP_OK);
}

static void close_bench(bench *b) {
    span_tree_free(b->tree);
    span_store_free(b->store);
    assert_int_equal(kv_pool_get_stats(b->pool).used_bytes, 0);
    kv_pool_free(b->pool);
    free(b->spans);
}

/* Without references, the used bytes are the store's, and when all spans are removed the tree is empty. */
static void drain(bench *b) {
    for (int i = 0; i < N_REQUESTS; i++) {
        span_path_release(&b->requests[i].path);
        b->requests[i].active = false;
    }
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    span_store_stats(b->store, &stats);
    assert_int_equal(stats.bytes, kv_pool_get_stats(b->pool).used_bytes);
    assert_int_equal(stats.spans, span_tree_nodes(b->tree));
}

static void random_operations_agree_with_a_naive_tree(void **state) {
    (void)state;
    bench b;
    open_bench(&b, test_seed("span_tree", 20260102), &shape);
    for (int step = 0; step < 60000; step++) {
        request *q = &b.requests[below(&b, N_REQUESTS)];
        switch (below(&b, 8)) {
        case 0:
            span_path_release(&q->path);
            q->active = false;
            break;
        case 1: span_store_reclaim(b.store); break;
        default:
            if (q->active) extend(&b, q);
            else begin_request(&b, q);
        }
        if (step % 5000 == 4999) drain(&b);
    }
    printf("matches: %d whole, %d new, %d dropped; tokens: %d found, %d met; ways: %d go on, %d end\n",
           b.ends[SPAN_END_ALL], b.ends[SPAN_END_NEW], b.ends[SPAN_END_DROPPED], b.found, b.met, b.reported, b.ended);
    assert_true(b.ends[SPAN_END_ALL] > 0 && b.ends[SPAN_END_NEW] > 0 && b.ends[SPAN_END_DROPPED] > 0);
    assert_true(b.found > 0 && b.met > 0 && b.reported > 0 && b.ended > 0 && b.taken > 0);
    drain(&b);
    close_bench(&b);
}

/* Computes n tokens after the match of a text and releases the path. Returns the number of matched tokens. */
static int read_text(bench *b, const text *t, int32_t trim_from) {
    span_path path;
    span_root root = root_of(t->root);
    assert_int_equal(span_tree_match(b->tree, &root, t->tokens, t->positions, (size_t)t->n, &path, NULL), RP_OK);
    int known = (int)path.n_tokens;
    if (known < t->n) {
        kv_span *span;
        int32_t slot;
        bool kept;
        assert_int_equal(kv_span_new(&span, b->pool, t->positions[known], NULL), RP_OK);
        for (int i = known; i < t->n; i++) assert_int_equal(kv_span_append(span, &slot, NULL), RP_OK);
        kv_span_trim(span, trim_from, NULL, 0);
        assert_int_equal(span_tree_extend(&path, span, t->tokens + known, 0, &kept, NULL), RP_OK);
        kv_span_unref(span);
    }
    b->ends[path.end]++;
    span_path_release(&path);
    return known;
}

static text counted_text(int n) {
    text t = {.n = n};
    for (int i = 0; i < n; i++) t.tokens[i] = t.positions[i] = i;
    return t;
}

/* Used spans are evicted last, leaves before their parents; the tree still knows evicted texts. */
static void leaves_are_dropped_first(void **state) {
    (void)state;
    bench b;
    open_bench(&b, 1, &shape);
    text long_one = counted_text(30), short_one = counted_text(10), other = counted_text(10);
    other.root = 1;
    assert_int_equal(read_text(&b, &short_one, 0), 0);
    assert_int_equal(read_text(&b, &long_one, 0), 10);
    assert_int_equal(read_text(&b, &other, 0), 0);
    assert_int_equal(read_text(&b, &long_one, 0), 30);
    assert_true(span_store_reclaim(b.store)); /* evicts other */
    assert_true(span_store_reclaim(b.store)); /* evicts the end of long_one */
    assert_int_equal(span_tree_nodes(b.tree), 1);
    assert_int_equal(b.ends[SPAN_END_DROPPED], 0);
    assert_int_equal(read_text(&b, &long_one, 0), 10);
    assert_int_equal(read_text(&b, &other, 0), 0);
    assert_int_equal(b.ends[SPAN_END_DROPPED], 2);
    close_bench(&b);
}

/* A text is known from other roots of its salt, and from none of another salt. */
static void a_salt_knows_its_own_texts(void **state) {
    (void)state;
    bench b;
    open_bench(&b, 1, &shape);
    text read = counted_text(SPAN_TREE_ALIKE), less = counted_text(SPAN_TREE_ALIKE - 1);
    less.root = 1;
    less.tokens[0] = 7; /* too short to rule out chance */
    assert_int_equal(read_text(&b, &read, 0), 0);
    assert_int_equal(read_text(&b, &less, 0), 0);
    for (int root = 0; root < N_ROOTS; root++) {
        span_root but = root_of(root);
        assert_int_equal(span_tree_knows(b.tree, &but, read.tokens, (size_t)read.n), root == 1);
        assert_false(span_tree_knows(b.tree, &but, less.tokens, (size_t)less.n));
    }
    close_bench(&b);
}

/* A root that was made by its key alone is found by every caller with the key, and takes its salt from the first
 * one. */
static void a_root_gets_its_salt_from_the_first_match(void **state) {
    (void)state;
    bench b;
    open_bench(&b, 1, &shape);
    text t = counted_text(SPAN_TREE_ALIKE);
    t.root = UNCLAIMED;
    assert_int_equal(read_text(&b, &t, 0), 0);
    for (int root = 0; root < N_ROOTS; root++) {
        span_root but = {.salt = root_of(root).salt};
        assert_false(span_tree_knows(b.tree, &but, t.tokens, (size_t)t.n));
    }
    t.root = 0;
    assert_int_equal(read_text(&b, &t, 0), t.n);
    for (int root = 0; root < N_ROOTS; root++) {
        span_root but = root_of(root);
        assert_int_equal(span_tree_knows(b.tree, &but, t.tokens, (size_t)t.n), root == 1);
    }
    close_bench(&b);
}

/* Layers with a window free blocks outside of it: a prompt that branches off before them cannot use the span. */
static void trimmed_spans_serve_later_readers_alone(void **state) {
    (void)state;
    const kv_shape windowed = {KV_ROWS(2, KV_ROW(1, 2, 2, 0, false), KV_ROW(1, 2, 2, 4, false)), .format = RP_KV_F16};
    bench b;
    open_bench(&b, 1, &windowed);
    text t = counted_text(30), far = counted_text(31), near = far;
    far.positions[30] = 100;
    assert_int_equal(read_text(&b, &t, 100), 0);
    assert_int_equal(read_text(&b, &far, 0), 30);
    assert_int_equal(read_text(&b, &near, 0), 0);
    assert_int_equal(b.ends[SPAN_END_WINDOW], 1);
    close_bench(&b);
}

static span_path match_of(bench *b, const text *t, int n) {
    const span_root root = root_of(t->root);
    span_path path;
    assert_int_equal(span_tree_match(b->tree, &root, t->tokens, t->positions, (size_t)n, &path, NULL), RP_OK);
    return path;
}

/* ---- spans that leave the store while paths reference them: unreadable, or removed by an operator ---- */

static void remove_step(bench *b, const span_path *path, size_t i) {
    assert_true(span_store_remove(b->store, &path->steps[i].node->key));
}

/* Every token of a path is the text's, at its position, in the slot of a span for it. */
static void check_path(const text *t, const span_path *path) {
    int n = 0;
    for (size_t i = 1; i < path->n_steps; i++) {
        const span_step *s = &path->steps[i];
        int32_t pos;
        const int32_t *tokens = span_step_tokens(s, &pos);
        assert_int_equal(kv_span_position(s->span) + s->first_slot, pos);
        assert_true(s->first_slot + s->n_tokens <= kv_span_tokens(s->span));
        for (int32_t k = 0; k < s->n_tokens; k++, n++)
            assert_true(tokens[k] == t->tokens[n] && pos + k == t->positions[n]);
    }
    assert_int_equal(path->n_tokens, n);
}

/* The same text, computed again, is a hit at once, with what was computed after it. */
static void a_removed_text_is_found_when_it_was_computed_again(void **state) {
    (void)state;
    bench b;
    open_bench(&b, 1, &shape);
    text first = counted_text(10), whole = counted_text(20);
    read_text(&b, &first, 0);
    read_text(&b, &whole, 0);
    span_path held = match_of(&b, &whole, 20);
    assert_int_equal(held.n_steps, 3);
    remove_step(&b, &held, 1);
    assert_int_equal(read_text(&b, &first, 0), 0);
    assert_int_equal(read_text(&b, &whole, 0), 20);
    check_path(&whole, &held);
    span_path_release(&held);
    assert_int_equal(read_text(&b, &whole, 0), 20);
    drain(&b);
    close_bench(&b);
}

/* Another text that begins in the same way takes its place, and what was computed after it leaves the store with the
 * last path. The same text below it is then another node's. */
static void another_text_takes_the_place_of_a_removed_one(void **state) {
    (void)state;
    bench b;
    open_bench(&b, 1, &shape);
    text first = counted_text(10), whole = counted_text(20), other = counted_text(10), more = counted_text(30);
    other.tokens[5] = 99;
    read_text(&b, &first, 0);
    read_text(&b, &whole, 0);
    span_path held = match_of(&b, &whole, 20);
    remove_step(&b, &held, 1);
    assert_int_equal(read_text(&b, &other, 0), 0);
    assert_int_equal(read_text(&b, &other, 0), 10);
    check_path(&whole, &held);

    kv_span *span; /* the path goes on */
    int32_t slot;
    bool kept;
    assert_int_equal(kv_span_new(&span, b.pool, 20, NULL), RP_OK);
    for (int i = 20; i < 30; i++) assert_int_equal(kv_span_append(span, &slot, NULL), RP_OK);
    assert_int_equal(span_tree_extend(&held, span, more.tokens + 20, 0, &kept, NULL), RP_OK);
    assert_true(kept);
    kv_span_unref(span);
    check_path(&more, &held);

    const base_key below = held.steps[2].node->key;
    const span_path again = match_of(&b, &other, 10);
    assert_true(span_store_remove(b.store, &again.steps[1].node->key));
    assert_int_equal(read_text(&b, &first, 0), 0); /* in the place of `other`, which `again` holds */
    assert_int_equal(read_text(&b, &whole, 0), 10);
    assert_int_equal(read_text(&b, &whole, 0), 20);
    assert_true(span_store_has(b.store, &below));
    span_path_release(&held);
    assert_true(span_store_has(b.store, &below)); /* the new node's */
    assert_int_equal(read_text(&b, &more, 0), 20);
    b.requests[0].path = again;
    drain(&b);
    close_bench(&b);
}

/* Computes the rest of a request's text. false: the budget is exhausted. */
static bool compute_rest(bench *b, request *q) {
    const text *t = &q->text;
    while (q->path.n_tokens < (size_t)t->n) {
        const int begin = (int)q->path.n_tokens, most = 1 + below(b, MAX_SPAN);
        kv_span *span;
        int32_t slot;
        bool kept, fits = true;
        int n = 0;
        assert_int_equal(kv_span_new(&span, b->pool, t->positions[begin], NULL), RP_OK);
        for (; fits && n < most && begin + n < t->n && t->positions[begin + n] == t->positions[begin] + n; n++)
            fits = kv_span_append(span, &slot, NULL) == RP_OK;
        if (fits) assert_int_equal(span_tree_extend(&q->path, span, t->tokens + begin, 0, &kept, NULL), RP_OK);
        kv_span_unref(span);
        if (!fits) return false;
        check_path(t, &q->path);
    }
    return true;
}

/* Whatever is removed while paths reference it: a path keeps its tokens, and a text that was computed is a hit. */
static void random_removals_cost_one_miss(void **state) {
    (void)state;
    bench b;
    int n_removed = 0, n_replaced = 0, n_whole = 0;
    open_bench(&b, test_seed("span_tree_removals", 20260103), &shape);
    for (int step = 0; step < 20000; step++) {
        request *q = &b.requests[below(&b, N_REQUESTS)];
        if (below(&b, 4) == 0) span_store_reclaim(b.store);
        if (q->active && q->path.n_steps > 1 && below(&b, 3) == 0) {
            const span_node *n = q->path.steps[1 + (size_t)below(&b, (int)q->path.n_steps - 1)].node;
            if (span_store_remove(b.store, &n->key)) n_removed++;
        } else if (q->active) {
            check_path(&q->text, &q->path);
            for (size_t i = 1; i < q->path.n_steps; i++) n_replaced += q->path.steps[i].node->is_replaced;
            span_path_release(&q->path);
            q->active = false;
        } else {
            *q = (request){.text = random_text(&b), .active = true};
            q->path = match_of(&b, &q->text, q->text.n);
            check_path(&q->text, &q->path);
            if (!compute_rest(&b, q)) continue;
            span_path again = match_of(&b, &q->text, q->text.n);
            assert_int_equal(again.n_tokens, q->text.n);
            span_path_release(&again);
            n_whole++;
        }
        if (step % 1000 == 999) drain(&b);
    }
    printf("%d removed, %d of them replaced by another text, %d texts computed\n", n_removed, n_replaced, n_whole);
    assert_true(n_removed > 0 && n_replaced > 0 && n_whole > 0);
    drain(&b);
    close_bench(&b);
}

/* ---- checkpoints ---- */

#define STATE_BYTES 24

/* Its bytes are all n. */
static void put_checkpoint(bench *b, const text *t, int n) {
    span_path path = match_of(b, t, t->n);
    uint8_t bytes[STATE_BYTES];
    kv_span *states;
    memset(bytes, n, sizeof(bytes));
    assert_int_equal(kv_span_new_states(&states, b->pool, t->positions[n - 1] + 1, NULL), RP_OK);
    kv_span_put_state(states, 1, bytes);
    assert_int_equal(span_path_put_states(&path, (size_t)n, states, 5, NULL), RP_OK);
    kv_span_unref(states);
    span_path_release(&path);
}

/* The first n tokens of a text can be used up to `expected`; *key: of the checkpoint there. */
static void check_checkpoint(bench *b, const text *t, int n, int expected, base_key *key) {
    const span_root root = root_of(t->root);
    span_path path = match_of(b, t, n);
    const size_t found = path.n_tokens;
    span_tree_states known;
    kv_span *states;
    span_tree_peek(b->tree, &root, t->tokens, t->positions, (size_t)n, NULL, NULL, &known);
    span_path_take_states(&path, &states);
    assert_int_equal(path.n_tokens, expected);
    assert_int_equal(states != NULL, expected > 0);
    if (path.n_tokens < found) assert_int_equal(path.end, SPAN_END_STATES);
    if (states) {
        uint8_t bytes[STATE_BYTES];
        kv_span_get_state(states, 1, bytes);
        for (int i = 0; i < STATE_BYTES; i++) assert_int_equal(bytes[i], expected);
        *key = *kv_span_key(states);
        assert_int_equal(kv_span_position(states), t->positions[expected - 1] + 1);
        assert_true(known.n_tokens >= (size_t)expected); /* a peek may know one that was evicted */
        kv_span_unref(states);
    }
    span_path_release(&path);
}

/* A path ends at its last checkpoint, in whichever span that is; one that is gone is passed over. */
static void paths_end_at_checkpoints(void **state) {
    (void)state;
    const kv_shape recurrent = {KV_ROWS(2, KV_ROW(1, 2, 2, 0, false), {.kind = KV_STATE, .state_bytes = STATE_BYTES}),
                                .format = RP_KV_F16};
    bench b;
    base_key key = {{0}}, gone;
    open_bench(&b, 1, &recurrent);
    text first = counted_text(20), t = counted_text(30), branch = counted_text(25);
    branch.tokens[12] = 99;
    read_text(&b, &first, 0);
    read_text(&b, &t, 0);
    read_text(&b, &branch, 0);
    check_checkpoint(&b, &t, 30, 0, &key);
    put_checkpoint(&b, &t, 8);
    put_checkpoint(&b, &t, 20);
    put_checkpoint(&b, &t, 27);
    put_checkpoint(&b, &branch, 14);
    check_checkpoint(&b, &t, 30, 27, &gone);
    check_checkpoint(&b, &t, 26, 20, &key);
    check_checkpoint(&b, &t, 19, 8, &key);
    check_checkpoint(&b, &t, 7, 0, &key);
    check_checkpoint(&b, &branch, 25, 14, &key);
    check_checkpoint(&b, &branch, 13, 8, &key);
    assert_true(span_store_remove(b.store, &gone));
    check_checkpoint(&b, &t, 30, 20, &key);
    put_checkpoint(&b, &t, 27);
    check_checkpoint(&b, &t, 30, 27, &key);
    assert_true(base_key_equal(&key, &gone)); /* a name is that of the text and the number of its tokens */
    close_bench(&b);
}

/* Records whose key is not that of their parent and number, or whose number no node can have, are removed. */
static void checkpoints_of_records_are_checked(void **state) {
    (void)state;
    bench b;
    open_bench(&b, 1, &shape);
    for (int at = 0; at <= KV_SPAN_TOKENS + 1; at += KV_SPAN_TOKENS + 1) {
        const record_row row = {
            .record = {
                .kind = RECORD_STATES, .key = key_of("any", 1), .parent = key_of("any", 2), .at = at, .label = ""}};
        span_claim claim = {0};
        assert_int_equal(span_tree_own(b.tree, &row, &claim, NULL), RP_OK);
        assert_false(claim.is_known);
        assert_null(claim.owner);
    }
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_agree_with_a_naive_tree),
        cmocka_unit_test(leaves_are_dropped_first),
        cmocka_unit_test(a_salt_knows_its_own_texts),
        cmocka_unit_test(a_root_gets_its_salt_from_the_first_match),
        cmocka_unit_test(trimmed_spans_serve_later_readers_alone),
        cmocka_unit_test(a_removed_text_is_found_when_it_was_computed_again),
        cmocka_unit_test(another_text_takes_the_place_of_a_removed_one),
        cmocka_unit_test(random_removals_cost_one_miss),
        cmocka_unit_test(paths_end_at_checkpoints),
        cmocka_unit_test(checkpoints_of_records_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
