/* SPDX-License-Identifier: Apache-2.0 */
/* simulator.c: what a cache would save: the public interface of store/simulate.h. */
#include "base/error.h"
#include "store/simulate.h"

const char *rp_policy_name(rp_policy policy) { return simulate_policy_name(policy); }

rp_simulate_options rp_simulate_options_defaults(void) { return (rp_simulate_options){.block_tokens = 512, .attention_tokens = 16384}; }

int rp_simulator_new(rp_simulator **out, const rp_simulate_request *requests, size_t n, const rp_simulate_options *options, rp_error *err) {
    rp_simulate_options o = options ? *options : rp_simulate_options_defaults();
    if (!out || (!requests && n > 0)) return base_fail(err, RP_ERR_INVALID, "rp_simulator_new: out and requests are needed");
    return simulate_new(out, requests, n, &o, err);
}

void rp_simulator_free(rp_simulator *simulator) { simulate_free(simulator); }

size_t rp_simulator_blocks(const rp_simulator *simulator) { return simulate_n_blocks(simulator); }

int rp_simulator_run(const rp_simulator *simulator, rp_policy policy, size_t capacity, rp_simulation *out, rp_error *err) {
    if (!simulator || !out) return base_fail(err, RP_ERR_INVALID, "rp_simulator_run: simulator and out are needed");
    return simulate_run(simulator, policy, capacity, out, err);
}
