/* SPDX-License-Identifier: Apache-2.0 */
/* sim_clock.c: see sim_clock.h. */
#include "tools/cluster_simulation/sim_clock.h"

#include "base/check.h"
#include "base/memory.h"

static bool is_before(const sim_event *a, const sim_event *b) {
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

void sim_clock_add(sim_clock *c, const sim_event *event) {
    sim_event e = *event;
    BASE_ASSERT((e.bytes != NULL) == (e.n > 0)); /* whoever schedules an event again does not own its bytes twice */
    if (base_grow((void **)&c->heap, &c->cap, c->n + 1, SIM_MAX_EVENTS, sizeof(*c->heap))) {
        c->failed = true;
        base_free(e.bytes);
        return;
    }
    if (e.at_us < c->now_us) e.at_us = c->now_us;
    e.order = c->n_orders++;
    size_t i = c->n++;
    for (; i > 0 && is_before(&e, &c->heap[(i - 1) / 2]); i = (i - 1) / 2) c->heap[i] = c->heap[(i - 1) / 2];
    c->heap[i] = e;
}

static sim_event clock_take(sim_clock *c) {
    BASE_ASSERT(c->n > 0);
    sim_event first = c->heap[0], e = c->heap[--c->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < c->n; i = child) {
        if (child + 1 < c->n && is_before(&c->heap[child + 1], &c->heap[child])) child++;
        if (!is_before(&c->heap[child], &e)) break;
        c->heap[i] = c->heap[child];
    }
    c->heap[i] = e;
    return first;
}

bool sim_clock_step(sim_clock *c, uint64_t until_us) {
    if (c->n == 0 || c->heap[0].at_us > until_us || c->failed) return false;
    sim_event e = clock_take(c);
    BASE_ASSERT(e.at_us >= c->now_us); /* virtual time never runs backwards */
    c->now_us = e.at_us;
    e.fn(e.owner, &e);
    base_free(e.bytes);
    return true;
}

void sim_clock_free(sim_clock *c) {
    for (size_t i = 0; i < c->n; i++) base_free(c->heap[i].bytes);
    base_free(c->heap);
    *c = (sim_clock){0};
}
