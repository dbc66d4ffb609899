/* SPDX-License-Identifier: Apache-2.0 */
/* experiments.h: settings of requests that tests and benchmarks use often (reprise_test.h). */
#ifndef SUPPORT_EXPERIMENTS_H
#define SUPPORT_EXPERIMENTS_H

#include "reprise_test.h"

/* rp_request.experiment: without the prefix cache. */
static const rp_request_experiment experiment_no_prefix = {.struct_size = sizeof(rp_request_experiment),
                                                           .no_prefix = true};

/* The answer is n tokens, borrowed. */
static inline rp_request_experiment experiment_forced(const int32_t *tokens, int32_t n) {
    return (rp_request_experiment){.struct_size = sizeof(rp_request_experiment), .forced = tokens, .n_forced = n};
}

#endif
