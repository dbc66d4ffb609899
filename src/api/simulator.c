/* SPDX-License-Identifier: Apache-2.0 */
/* simulator.c: what a cache would save: the public interface of store/simulate.h. */
#include "base/error.h"
#include "base/sized.h"
#include "store/simulate.h"

const char *rp_policy_name(rp_policy policy) { return simulate_policy_name(policy); }

void rp_simulate_options_init(rp_simulate_options *options, uint32_t struct_size) {
    base_sized_init(options, struct_size, &(rp_simulate_options){.block_tokens = 512, .attention_tokens = 16384}, sizeof(rp_simulate_options));
}

int rp_simulator_new(rp_simulator **out, const rp_simulate_request *requests, size_t n, const rp_simulate_options *options, rp_error *err) {
    rp_simulate_options o = rp_simulate_options_defaults();
    if (!out || (!requests && n > 0)) return base_fail(err, RP_ERR_INVALID, "rp_simulator_new: out and requests are needed");
    *out = NULL;
    int rc = options ? base_sized_read(&o, sizeof(o), options, "rp_simulate_options", err) : RP_OK;
    return rc ? rc : simulate_new(out, requests, n, &o, err);
}

void rp_simulator_free(rp_simulator *simulator) { simulate_free(simulator); }

size_t rp_simulator_blocks(const rp_simulator *simulator) { return simulate_n_blocks(simulator); }

int rp_simulator_run(const rp_simulator *simulator, rp_policy policy, size_t capacity, rp_simulation *out, rp_error *err) {
    rp_simulation own = {0};
    if (!simulator) return base_fail(err, RP_ERR_INVALID, "rp_simulator_run: simulator is needed");
    int rc = base_sized_check(out, "rp_simulation", err);
    if (!rc) rc = simulate_run(simulator, policy, capacity, &own, err);
    if (!rc) base_sized_write(out, &own, sizeof(own));
    return rc;
}
