/* SPDX-License-Identifier: Apache-2.0 */
/* router_check.h: what tests of a router check of its requests. */
#ifndef SUPPORT_ROUTER_CHECK_H
#define SUPPORT_ROUTER_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/router_world.h"

/* They ended once; frees them. */
static inline void close_all(world_request *q, int n) {
    for (int i = 0; i < n; i++) {
        assert_int_equal(q[i].n_ends, 1);
        cluster_request_close(&q[i].r);
    }
}

static inline void assert_ended(const world_request *q, cluster_outcome outcome) {
    assert_int_equal(q->n_ends, 1);
    if (q->outcome != outcome)
        fail_msg("%s, expected %s", cluster_outcome_name(q->outcome), cluster_outcome_name(outcome));
}

/* A request of so many tokens without names. */
static inline world_request world_plain(int32_t tokens) { return world_request_of(NULL, 0, tokens); }

#endif
