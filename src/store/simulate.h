/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.h: replays requests against a cache of a given size under a given policy: the implementation of
 * rp_simulator_* (reprise.h).
 *
 *   request    [b0][b1][b2][b3]..     each block follows the previous one
 *   cache       +   +   -   +         hits: 2 blocks; b3 is useless without b2
 *
 * Every block counts as a whole one. Requests run one after the other. Cost is counted in tokens of linear work: the
 * i-th token of a request, from 0, takes 1 + i / attention_tokens. One thread.
 */
#ifndef STORE_SIMULATE_H
#define STORE_SIMULATE_H

#include "reprise_tools.h"

#define SIMULATE_MAX_REQUESTS ((size_t)1 << 24)
#define SIMULATE_MAX_BLOCKS ((size_t)1 << 26)

const char *simulate_policy_name(rp_policy policy); /* NULL: there is none */
/* As rp_simulator_new. */
int simulate_new(rp_simulator **out, const rp_simulate_request *requests, size_t n, const rp_simulate_options *options, rp_error *err);
void simulate_free(rp_simulator *s);
size_t simulate_n_blocks(const rp_simulator *s);
/* As rp_simulator_run. */
int simulate_run(const rp_simulator *s, rp_policy policy, size_t capacity, rp_simulation *out, rp_error *err);

#endif
