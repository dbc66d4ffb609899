/* SPDX-License-Identifier: Apache-2.0 */
/* sim_clock.h: virtual time: events in the order of their times, those of one time in the order in which they were
   scheduled. */
#ifndef TOOLS_SIM_CLOCK_H
#define TOOLS_SIM_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MAX_EVENTS ((size_t)1 << 24) /* at a time */

struct sim_event;
typedef void (*sim_event_fn)(void *owner, const struct sim_event *e);

typedef struct sim_event {
    uint64_t at_us, order; /* order: the clock's */
    sim_event_fn fn;
    void *owner;
    void *bytes; /* [n] owned by the event, freed after it; NULL: none */
    size_t n;
    int32_t router, node;
    uint32_t request, serial;
    int32_t kind, from, to;
    uint64_t check;
} sim_event;

typedef struct sim_clock {
    uint64_t now_us;
    sim_event *heap; /* [n] a binary heap, the next event first */
    size_t n, cap;
    uint64_t n_orders;
    bool failed; /* out of memory, or SIM_MAX_EVENTS: the simulation ends */
} sim_clock;

/* e->at_us in the past: now. Takes e->bytes over. */
void sim_clock_add(sim_clock *c, const sim_event *e);
/* Advances to the next event and calls it; false: there is none at `until_us` or before. */
bool sim_clock_step(sim_clock *c, uint64_t until_us);
void sim_clock_free(sim_clock *c);

#endif
