/* SPDX-License-Identifier: Apache-2.0 */
/* test_eviction.c: the eviction policy against a naive one that scans all items; scans, parents, references, groups,
 * failing allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/memory.h"
#include "reprise.h"
#include "store/index/ghost_list.h"
#include "store/index/eviction.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#define N_ITEMS 60
#define N_GROUPS 3
#define N_NAMES 6000 /* more than the ghost list holds */

/* ---- a naive policy: no heap, no table ---- */

typedef struct naive_item {
    eviction_item about;
    float uses; /* 0: absent */
    uint32_t n_born;
    double used_at, due;
    uint64_t order;
    bool pinned, expired;
} naive_item;

typedef struct naive {
    naive_item items[N_ITEMS];
    ghost_key dropped[GHOST_LIST_MIN + 1]; /* the oldest first; holes stay until they are the oldest */
    size_t n_dropped;
    double clock, used[8], all[8];
    uint64_t n_orders;
} naive;

static int class_of(float uses) {
    int i = (int)log2f(uses);
    return i < 7 ? i : 7;
}

static void learn(naive *n, float uses, bool used) {
    int i = class_of(uses);
    n->used[i] += used;
    n->all[i] += 1;
    if (n->all[i] < 20000) return;
    n->used[i] /= 2;
    n->all[i] /= 2;
}

static int children(const naive *n, uint32_t parent) {
    int found = 0;
    for (int i = 0; i < N_ITEMS; i++) found += n->items[i].uses > 0 && n->items[i].about.parent == parent;
    return found;
}

static bool can_be_offered(const naive *n, uint32_t i) {
    return n->items[i].uses > 0 && !n->items[i].pinned && children(n, i) == 0;
}

static double stay(const naive *n, const naive_item *it) {
    int k = class_of(it->uses);
    return (double)it->uses * sqrt((double)it->about.cost_us / (double)it->about.bytes * (n->used[k] / n->all[k]));
}

static void place(naive *n, uint32_t i) {
    naive_item *it = &n->items[i];
    if (!can_be_offered(n, i)) return;
    it->due = it->expired ? -1 : it->used_at + stay(n, it);
    it->order = n->n_orders++;
}

static int find_dropped(const naive *n, uint64_t name) {
    for (size_t i = 0; i < n->n_dropped; i++)
        if (n->dropped[i].n_born != UINT32_MAX && n->dropped[i].name == name) return (int)i;
    return -1;
}

static void naive_add(naive *n, uint32_t i, const eviction_item *about) {
    naive_item *it = &n->items[i], *parent = about->parent == EVICTION_NONE ? NULL : &n->items[about->parent];
    bool first_child = parent && children(n, about->parent) == 0;
    int was = find_dropped(n, about->name);
    *it = (naive_item){.about = *about, .uses = 1};
    if (was >= 0) {
        learn(n, n->dropped[was].uses, true);
        it->uses = n->dropped[was].uses + 1;
        it->n_born = n->dropped[was].n_born;
        n->dropped[was].n_born = UINT32_MAX;
    } else if (about->uses > 0) {
        it->uses = about->uses;
    } else if (parent) {
        parent->n_born++;
        it->uses = fmaxf(1, parent->uses / (float)parent->n_born);
    }
    it->used_at = n->clock - about->idle * stay(n, it);
    if (first_child) place(n, about->parent);
    place(n, i);
}

static void naive_use(naive *n, uint32_t i) {
    naive_item *it = &n->items[i];
    learn(n, it->uses, true);
    it->uses += 1;
    it->used_at = n->clock;
    it->expired = false;
    place(n, i);
}

static void naive_leave(naive *n, uint32_t i) {
    uint32_t parent = n->items[i].about.parent;
    n->items[i].uses = 0;
    for (int k = 0; k < N_ITEMS; k++) /* its children have no parent any more */
        if (n->items[k].about.parent == i) n->items[k].about.parent = EVICTION_NONE;
    if (parent != EVICTION_NONE && children(n, parent) == 0) place(n, parent);
}

static void naive_drop(naive *n, uint32_t i) {
    naive_item it = n->items[i];
    if (!it.pinned) n->clock = fmax(n->clock, it.due);
    naive_leave(n, i);
    if (find_dropped(n, it.about.name) >= 0) return;
    if (n->n_dropped == GHOST_LIST_MIN) {
        if (n->dropped[0].n_born != UINT32_MAX) learn(n, n->dropped[0].uses, false);
        memmove(n->dropped, n->dropped + 1, --n->n_dropped * sizeof(n->dropped[0]));
    }
    n->dropped[n->n_dropped++] = (ghost_key){it.about.name, it.uses, it.n_born};
}

/* bit i of held: item i may not be evicted */
static uint32_t naive_victim(naive *n, uint32_t group, uint64_t held) {
    uint32_t victim = EVICTION_NONE, refused[N_ITEMS];
    bool seen[N_ITEMS] = {false};
    int n_refused = 0;
    while (victim == EVICTION_NONE) {
        uint32_t best = EVICTION_NONE;
        for (uint32_t i = 0; i < N_ITEMS; i++) {
            const naive_item *it = &n->items[i], *top = &n->items[best == EVICTION_NONE ? 0 : best];
            if (seen[i] || !can_be_offered(n, i) || (group != EVICTION_NONE && it->about.group != group)) continue;
            if (best == EVICTION_NONE || it->due < top->due || (it->due == top->due && it->order < top->order))
                best = i;
        }
        if (best == EVICTION_NONE) break;
        seen[best] = true;
        if (held >> best & 1) refused[n_refused++] = best;
        else victim = best;
    }
    for (int i = 0; i < n_refused; i++) {
        n->items[refused[i]].used_at = n->clock;
        place(n, refused[i]);
    }
    return victim;
}

static bool may_go(void *user, uint32_t i) { return !(*(const uint64_t *)user >> i & 1); }

static eviction_item random_item(tiny_random *r, const naive *n, uint32_t i) {
    eviction_item about = {.name = tiny_random_below(r, N_NAMES),
                           .bytes = 1 + tiny_random_below(r, 5),
                           .cost_us = tiny_random_below(r, 50),
                           .parent = (uint32_t)tiny_random_below(r, N_ITEMS),
                           .group = (uint32_t)tiny_random_below(r, N_GROUPS)};
    if (about.parent == i || n->items[about.parent].uses == 0 || tiny_random_below(r, 3) == 0)
        about.parent = EVICTION_NONE;
    if (tiny_random_below(r, 3) == 0) about.uses = 1 + (float)tiny_random_below(r, 20);
    if (tiny_random_below(r, 3) == 0) about.idle = (float)tiny_random_below(r, 5) / 4;
    for (int k = 0; k < N_ITEMS; k++) /* names of different keys differ */
        if (n->items[k].uses > 0 && n->items[k].about.name == about.name) about.name += N_NAMES;
    return about;
}

static bool stands_on(const naive *n, uint32_t i, uint32_t below) {
    for (; i != EVICTION_NONE && i != below; i = n->items[i].about.parent) continue;
    return i == below;
}

static void change_item(tiny_random *r, eviction *e, naive *n, uint32_t i) {
    uint64_t what = tiny_random_below(r, 12);
    if (what == 0) {
        n->items[i].pinned = !n->items[i].pinned;
        eviction_set_pinned(e, i, n->items[i].pinned);
        place(n, i);
    } else if (what == 1) {
        n->items[i].expired = true;
        eviction_expire(e, i);
        place(n, i);
    } else if (what == 2) {
        n->items[i].about.cost_us = tiny_random_below(r, 50);
        eviction_set_cost(e, i, n->items[i].about.cost_us);
        place(n, i);
    } else if (what == 3) {
        eviction_remove(e, i);
        naive_leave(n, i);
    } else if (what == 4) {
        n->items[i].about.group = (n->items[i].about.group + 1) % N_GROUPS;
        assert_int_equal(eviction_set_group(e, i, n->items[i].about.group), RP_OK);
        place(n, i);
    } else if (what == 5 && n->items[i].about.parent == EVICTION_NONE) {
        uint32_t parent = (uint32_t)tiny_random_below(r, N_ITEMS);
        if (n->items[parent].uses == 0 || stands_on(n, parent, i)) return;
        n->items[i].about.parent = parent;
        eviction_set_parent(e, i, parent);
    } else {
        eviction_use(e, i);
        naive_use(n, i);
    }
}

static void drop_victim(tiny_random *r, eviction *e, naive *n) {
    uint64_t held = tiny_random_u64(r) & tiny_random_u64(r);
    uint32_t group = tiny_random_below(r, 2) ? EVICTION_NONE : (uint32_t)tiny_random_below(r, N_GROUPS + 1);
    if (tiny_random_below(r, 50) == 0) held = UINT64_MAX;
    uint32_t victim = eviction_victim(e, group, may_go, &held);
    assert_int_equal(victim, naive_victim(n, group, held));
    if (victim == EVICTION_NONE) return;
    eviction_drop(e, victim);
    naive_drop(n, victim);
}

static void random_operations_agree_with_a_naive_policy(void **state) {
    (void)state;
    tiny_random r = {test_seed("eviction", 20260301)};
    static naive n;
    eviction *e;
    assert_int_equal(eviction_new(&e), RP_OK);
    for (int i = 0; i < 8; i++) n.used[i] = 2, n.all[i] = 4;
    int drops = 0, returns = 0;
    for (int step = 0; step < 60000; step++) {
        uint32_t i = (uint32_t)tiny_random_below(&r, N_ITEMS);
        if (tiny_random_below(&r, 3) == 0) {
            drop_victim(&r, e, &n);
            drops++;
        } else if (n.items[i].uses > 0) {
            change_item(&r, e, &n, i);
        } else {
            eviction_item about = random_item(&r, &n, i);
            returns += eviction_was_dropped(e, about.name);
            assert_int_equal(eviction_add(e, i, &about), RP_OK);
            naive_add(&n, i, &about);
        }
        uint64_t name = tiny_random_below(&r, N_NAMES), bytes[N_GROUPS] = {0};
        assert_int_equal(eviction_was_dropped(e, name), find_dropped(&n, name) >= 0);
        for (int k = 0; k < N_ITEMS; k++)
            bytes[n.items[k].about.group] += n.items[k].uses > 0 ? n.items[k].about.bytes : 0;
        for (uint32_t g = 0; g < N_GROUPS; g++) assert_int_equal(eviction_group_bytes(e, g), bytes[g]);
    }
    assert_true(drops > 1000 && returns > 1000);
    eviction_free(e);
}

/* ---- properties of the policy ---- */

static eviction *new_policy(void) {
    eviction *e;
    assert_int_equal(eviction_new(&e), RP_OK);
    return e;
}

static void add(eviction *e, uint32_t i, uint64_t name, uint64_t cost_us, uint32_t parent) {
    eviction_item about = {.name = name, .bytes = 100, .cost_us = cost_us, .parent = parent};
    assert_int_equal(eviction_add(e, i, &about), RP_OK);
}

static uint32_t drop_one(eviction *e) {
    uint32_t victim = eviction_victim(e, EVICTION_NONE, NULL, NULL);
    if (victim != EVICTION_NONE) eviction_drop(e, victim);
    return victim;
}

/* 50 items are used repeatedly, and there is capacity for 50 more; then 1,000 are used once. LRU would keep none of
 * the 50. */
static void a_scan_does_not_push_out_what_comes_again(void **state) {
    (void)state;
    eviction *e = new_policy();
    uint32_t index = 50;
    for (uint32_t i = 0; i < 50; i++) add(e, i, i, 1000, EVICTION_NONE);
    for (int round = 0; round < 20; round++)
        for (uint32_t i = 0; i < 50; i++) eviction_use(e, i);
    for (uint64_t scan = 0; scan < 1000; scan++) {
        if (scan >= 50) index = drop_one(e);
        add(e, index, 1000 + scan, 1000, EVICTION_NONE);
        if (scan < 49) index++;
    }
    int kept = 0;
    for (uint64_t i = 0; i < 50; i++) kept += !eviction_was_dropped(e, i);
    assert_int_equal(kept, 50);
    eviction_free(e);
}

/* An item that would be the next victim is not worth a write; one with more uses, or in the ghost list, is. */
static void only_what_is_kept_longer_outranks_a_victim(void **state) {
    (void)state;
    eviction *e = new_policy();
    for (uint32_t i = 0; i < 10; i++) add(e, i, i, 1000, EVICTION_NONE);
    for (int round = 0; round < 8; round++)
        for (uint32_t i = 1; i < 10; i++) eviction_use(e, i);
    assert_int_equal(drop_one(e), 0);
    uint32_t victim = eviction_victim(e, EVICTION_NONE, NULL, NULL);
    eviction_item once = {.name = 100, .bytes = 100, .cost_us = 1000, .parent = EVICTION_NONE, .uses = 1}, often = once,
                  known = once;
    often.uses = 20;
    known.name = 0;
    assert_false(eviction_outranks(e, &once, victim));
    assert_true(eviction_outranks(e, &often, victim));
    assert_true(eviction_outranks(e, &known, victim));
    eviction_expire(e, victim);
    assert_true(eviction_outranks(e, &once, victim));
    eviction_free(e);
}

/* An item that is never used again is evicted in the end. */
static void what_was_used_often_ages(void **state) {
    (void)state;
    eviction *e = new_policy();
    add(e, 0, 0, 1000, EVICTION_NONE);
    for (int i = 0; i < 30; i++) eviction_use(e, 0);
    for (uint32_t i = 1; i < 10; i++) add(e, i, i, 1000, EVICTION_NONE);
    int drops = 0;
    for (uint32_t victim; (victim = drop_one(e)) != 0; drops++)
        add(e, victim, 100 + (uint64_t)drops, 1000, EVICTION_NONE);
    assert_true(drops > 30 && drops < 3000);
    eviction_free(e);
}

static void parents_go_after_their_children(void **state) {
    (void)state;
    tiny_random r = {7};
    eviction *e = new_policy();
    uint32_t parents[500];
    bool there[500];
    for (uint32_t i = 0; i < 500; i++) {
        parents[i] = i == 0 || tiny_random_below(&r, 10) == 0 ? EVICTION_NONE : (uint32_t)tiny_random_below(&r, i);
        there[i] = true;
        add(e, i, i, tiny_random_below(&r, 5000), parents[i]);
        if (tiny_random_below(&r, 2)) eviction_use(e, (uint32_t)tiny_random_below(&r, i + 1));
    }
    for (int n = 0; n < 500; n++) {
        uint32_t victim = drop_one(e);
        assert_true(victim < 500 && there[victim]);
        there[victim] = false;
        for (uint32_t i = 0; i < 500; i++) assert_false(there[i] && parents[i] == victim);
    }
    assert_int_equal(drop_one(e), EVICTION_NONE);
    eviction_free(e);
}

static void what_costs_more_or_returned_is_kept_longer(void **state) {
    (void)state;
    eviction *e = new_policy();
    add(e, 0, 0, 100, EVICTION_NONE);
    add(e, 1, 1, 400, EVICTION_NONE);
    assert_int_equal(drop_one(e), 0);
    add(e, 0, 0, 400, EVICTION_NONE); /* evicted, and inserted again */
    add(e, 2, 2, 400, EVICTION_NONE);
    assert_false(eviction_was_dropped(e, 0));
    assert_int_equal(drop_one(e), 1);
    assert_int_equal(drop_one(e), 2);
    eviction_set_cost(e, 0, 1); /* the next tier has it now */
    add(e, 1, 3, 400, EVICTION_NONE);
    assert_int_equal(drop_one(e), 0);
    eviction_free(e);
}

/* Items of equal cost: one that a session reads again and again ages like the others, one that two sessions read does
   not. */
static void uses_of_one_session_count_once(void **state) {
    (void)state;
    eviction *e = new_policy();
    const eviction_reader one = {1, EVICTION_RUNNING}, two = {2, EVICTION_RUNNING};
    eviction_set_reader(e, one);
    for (uint32_t i = 0; i < 2; i++) add(e, i, i, 100, EVICTION_NONE);
    for (int n = 0; n < 100; n++) eviction_use(e, 0);
    eviction_set_reader(e, two);
    eviction_use(e, 1);
    eviction_set_reader(e, one);
    eviction_use(e, 0);
    assert_int_equal(drop_one(e), 0);
    assert_int_equal(drop_one(e), 1);
    eviction_free(e);
}

/* A conversation, then 7 prompts at a time in a cache for 8, until it is evicted: how many prompts it outlives. */
static int outlives(eviction_reader reader) {
    eviction *e = new_policy();
    int n = 0;
    eviction_set_reader(e, reader);
    add(e, 0, 0, 100, EVICTION_NONE);
    eviction_set_reader(e, (eviction_reader){0});
    for (uint32_t i = 1; i < 8; i++) add(e, i, i, 100, EVICTION_NONE);
    for (uint32_t victim; (victim = drop_one(e)) != 0; n++) add(e, victim, 1000 + (uint64_t)n, 100, EVICTION_NONE);
    eviction_free(e);
    return n;
}

static void sessions_outlive_one_off_prompts(void **state) {
    (void)state;
    assert_int_equal(outlives((eviction_reader){0, EVICTION_ONE_OFF}), 0);
    const int subagent = outlives((eviction_reader){1, EVICTION_SUBAGENT}),
              main_agent = outlives((eviction_reader){1, EVICTION_RUNNING});
    assert_true(subagent >= 20 && main_agent >= 48 && main_agent >= 2 * subagent);
}

static void what_a_session_alone_has_used_goes_when_it_ends(void **state) {
    (void)state;
    eviction *e = new_policy();
    eviction_set_reader(e, (eviction_reader){1, EVICTION_RUNNING});
    for (uint32_t i = 0; i < 3; i++) add(e, i, i, 1000, EVICTION_NONE);
    eviction_set_kept(e, 2, true);
    eviction_set_reader(e, (eviction_reader){2, EVICTION_RUNNING});
    eviction_use(e, 0);
    eviction_set_reader(e, (eviction_reader){0});
    add(e, 3, 3, 1, EVICTION_NONE);
    eviction_end_session(e, 1);
    assert_int_equal(eviction_kept_bytes(e, EVICTION_NONE), 0);
    assert_int_equal(drop_one(e), 1);
    assert_int_equal(drop_one(e), 2);
    assert_int_equal(drop_one(e), 3);
    assert_int_equal(drop_one(e), 0);
    eviction_free(e);
}

static void kept_items_are_evicted_after_all_others(void **state) {
    (void)state;
    eviction *e = new_policy();
    for (uint32_t i = 0; i < 4; i++) add(e, i, i, 100 * (i + 1), EVICTION_NONE);
    for (uint32_t i = 0; i < 2; i++) eviction_set_kept(e, i, true);
    const uint64_t kept = eviction_kept_bytes(e, EVICTION_NONE);
    assert_true(kept > 0 && kept == eviction_kept_bytes(e, 0));
    assert_int_equal(eviction_least_kept(e, EVICTION_NONE), 0);
    const eviction_item about = {.name = 9, .bytes = 1, .cost_us = 1000000, .parent = EVICTION_NONE};
    assert_int_equal(drop_one(e), 2);
    assert_int_equal(drop_one(e), 3);
    assert_false(eviction_outranks(e, &about, 0)); /* nothing replaces a kept one on its merits */
    eviction_set_kept(e, 1, false);
    assert_int_equal(eviction_kept_bytes(e, 0), kept / 2);
    assert_int_equal(drop_one(e), 1);
    assert_int_equal(drop_one(e), 0);
    assert_int_equal(eviction_kept_bytes(e, 0), 0);
    eviction_free(e);
}

static void pins_and_times_to_live(void **state) {
    (void)state;
    eviction *e = new_policy();
    for (uint32_t i = 0; i < 4; i++) add(e, i, i, 100 * (i + 1), i == 3 ? 2 : EVICTION_NONE);
    eviction_set_pinned(e, 0, true);
    eviction_expire(e, 2); /* its child is present */
    assert_int_equal(eviction_victim(e, EVICTION_NONE, NULL, NULL), 1);
    eviction_expire(e, 3);
    assert_int_equal(drop_one(e), 3);
    assert_int_equal(drop_one(e), 2);
    eviction_expire(e, 1);
    eviction_use(e, 1); /* cancels the expiry */
    add(e, 2, 7, 0, EVICTION_NONE);
    assert_int_equal(drop_one(e), 2);
    assert_int_equal(drop_one(e), 1);
    assert_int_equal(drop_one(e), EVICTION_NONE);
    eviction_set_pinned(e, 0, false);
    assert_int_equal(drop_one(e), 0);
    eviction_free(e);
}

typedef struct holder {
    uint32_t below; /* items below it are referenced */
    int asked;
} holder;

static bool is_free(void *user, uint32_t i) {
    holder *h = user;
    h->asked++;
    return i >= h->below;
}

/* A long-referenced item is offered occasionally, not at every eviction. */
static void what_is_refused_is_not_offered_each_time(void **state) {
    (void)state;
    eviction *e = new_policy();
    holder h = {.below = 100};
    for (uint32_t i = 0; i < 200; i++) add(e, i, i, 1000, EVICTION_NONE);
    for (uint64_t n = 0; n < 1000; n++) {
        uint32_t victim = eviction_victim(e, EVICTION_NONE, is_free, &h);
        assert_true(victim >= 100 && victim < 200);
        eviction_drop(e, victim);
        add(e, victim, 1000 + n, 1000, EVICTION_NONE);
    }
    assert_true(h.asked < 4000);
    h.below = UINT32_MAX;
    assert_int_equal(eviction_victim(e, EVICTION_NONE, is_free, &h), EVICTION_NONE);
    eviction_free(e);
}

/* Over quota, a tenant's own items are evicted. */
static void groups_have_bytes_and_victims_of_their_own(void **state) {
    (void)state;
    eviction *e = new_policy();
    for (uint32_t i = 0; i < 20; i++) {
        eviction_item about = {
            .name = i, .bytes = 10, .cost_us = i < 10 ? 1 : 1000, .parent = EVICTION_NONE, .group = i < 10 ? 0 : 40};
        assert_int_equal(eviction_add(e, i, &about), RP_OK);
    }
    assert_int_equal(eviction_group_bytes(e, 40), 100);
    assert_int_equal(eviction_group_bytes(e, 41), 0);
    assert_int_equal(eviction_victim(e, EVICTION_NONE, NULL, NULL), 0);
    for (int n = 0; n < 10; n++) {
        uint32_t victim = eviction_victim(e, 40, NULL, NULL);
        assert_true(victim >= 10 && victim < 20);
        eviction_drop(e, victim);
    }
    assert_int_equal(eviction_victim(e, 40, NULL, NULL), EVICTION_NONE);
    assert_int_equal(eviction_victim(e, 1000, NULL, NULL), EVICTION_NONE);
    assert_int_equal(eviction_group_bytes(e, 40), 0);
    assert_int_equal(eviction_group_bytes(e, 0), 100);
    eviction_free(e);
}

/* ---- failures ---- */

/* Adds with the n-th allocation failing until it works; a failed addition leaves no item. */
static void add_failing(eviction *e, uint32_t i, uint32_t parent, int *failures) {
    eviction_item about = {.name = i, .bytes = 1, .cost_us = 1, .parent = parent, .group = i % 70};
    for (uint64_t n = 1;; n++) {
        uint64_t before = eviction_group_bytes(e, i % 70);
        base_alloc_fail_at(n, n % 2 == 0);
        int rc = eviction_add(e, i, &about);
        base_alloc_fail_at(0, 0);
        if (rc == RP_OK) return;
        assert_int_equal(rc, RP_ERR_MEMORY);
        assert_int_equal(eviction_group_bytes(e, i % 70), before);
        ++*failures;
    }
}

static void failing_allocations_leave_it_as_it_was(void **state) {
    (void)state;
    eviction *e;
    int failures = 0;
    base_alloc_fail_at(1, 0);
    assert_int_equal(eviction_new(&e), RP_ERR_MEMORY);
    base_alloc_fail_at(0, 0);
    assert_null(e);
    e = new_policy();
    for (uint32_t i = 0; i < 3000; i++) add_failing(e, i, i % 3 ? i - 1 : EVICTION_NONE, &failures);
    assert_true(failures > 50);
    base_alloc_fail_at(1, 1); /* nothing else allocates */
    for (uint32_t i = 0; i < 3000; i += 7) eviction_use(e, i);
    for (int i = 0; i < 3000; i++) assert_int_not_equal(drop_one(e), EVICTION_NONE);
    base_alloc_fail_at(0, 0);
    assert_int_equal(drop_one(e), EVICTION_NONE);
    eviction_item about = {.name = 1, .bytes = 1, .parent = EVICTION_NONE};
    assert_int_equal(eviction_add(e, (uint32_t)EVICTION_MAX_ITEMS, &about), RP_ERR_LIMIT);
    eviction_free(e);
}

/* The ring grows with its entries, holes included. */
static void ghost_list_are_kept_when_there_is_more_room(void **state) {
    (void)state;
    ghost_list d = {0};
    ghost_key key, forgotten;
    assert_false(ghost_list_has(&d, 3));
    assert_int_equal(ghost_list_reserve(&d, 1), RP_OK);
    for (uint64_t i = 0; i < 1500; i++) {
        key = (ghost_key){i, (float)i, 0};
        assert_int_equal(ghost_list_add(&d, &key, &forgotten), i >= 1024);
        if (i >= 1024) assert_int_equal(forgotten.name, i - 1024);
    }
    for (uint64_t i = 600; i < 1500; i += 2) assert_true(ghost_list_take(&d, i, &key) && key.uses == (float)i);
    base_alloc_fail_at(2, 0);
    assert_int_equal(ghost_list_reserve(&d, 5000), RP_ERR_MEMORY);
    base_alloc_fail_at(0, 0);
    assert_int_equal(ghost_list_reserve(&d, 5000), RP_OK);
    for (uint64_t i = 0; i < 1500; i++) assert_int_equal(ghost_list_has(&d, i), i >= 476 && (i < 600 || i % 2 == 1));
    assert_false(ghost_list_take(&d, 600, &key));
    ghost_list_free(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_agree_with_a_naive_policy),
        cmocka_unit_test(only_what_is_kept_longer_outranks_a_victim),
        cmocka_unit_test(a_scan_does_not_push_out_what_comes_again),
        cmocka_unit_test(uses_of_one_session_count_once),
        cmocka_unit_test(sessions_outlive_one_off_prompts),
        cmocka_unit_test(what_a_session_alone_has_used_goes_when_it_ends),
        cmocka_unit_test(kept_items_are_evicted_after_all_others),
        cmocka_unit_test(what_was_used_often_ages),
        cmocka_unit_test(parents_go_after_their_children),
        cmocka_unit_test(what_costs_more_or_returned_is_kept_longer),
        cmocka_unit_test(pins_and_times_to_live),
        cmocka_unit_test(what_is_refused_is_not_offered_each_time),
        cmocka_unit_test(groups_have_bytes_and_victims_of_their_own),
        cmocka_unit_test(failing_allocations_leave_it_as_it_was),
        cmocka_unit_test(ghost_list_are_kept_when_there_is_more_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
