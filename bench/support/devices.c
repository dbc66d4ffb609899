/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c: see support.h. */
#include <string.h>

#include "reprise_device.h"
#include "reprise_store.h"
#include "support.h"

#define LARGE ((uint64_t)1 << 40) /* more than any device has */

static rp_engine *open_limited(rp_model *m, const rp_engine_options *options, uint64_t limit) {
    rp_engine_options o = *options;
    rp_device_options device = *o.device;
    rp_engine *e;
    rp_error err;
    device.ram_bytes = limit;
    device.layers = INT32_MAX; /* all */
    o.device = &device;
    if (rp_engine_new(&e, m, &o, &err)) bench_die("engine", &err);
    return e;
}

/* What a large limit leaves for KV shows what the rest takes. */
rp_engine *bench_open_small_device(rp_model *m, const rp_engine_options *o, uint64_t kv_bytes) {
    rp_store_stats t = {.struct_size = sizeof(t)};
    rp_engine *e = open_limited(m, o, LARGE);
    rp_engine_store_stats(e, &t);
    rp_engine_free(e);
    return open_limited(m, o, LARGE - t.budget_bytes + kv_bytes);
}

int32_t bench_tokens_of_tier(const rp_result *r, const char *tier) {
    int32_t n = 0;
    for (int i = 0; i < r->n_plan; i++) n += strcmp(r->plan[i].tier, tier) == 0 ? r->plan[i].n_tokens : 0;
    return n;
}
