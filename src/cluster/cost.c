/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c: see cost.h. */
#include "cluster/cost.h"

#include "base/check.h"
#include "base/compiler.h"

#define CHUNK_TOKENS 512.0 /* of a node that has not reported its own */

static double knot_rows(int k) { return (double)(1 << k); }

/* The part of a step's time that depends on its rows alone: linear between the knots, as in
   engine/core/cost_model.c. */
static double cost_table(const rp_engine_load *load, double rows) {
    double r = BASE_MIN(BASE_MAX(rows, 1.0), knot_rows(RP_COST_KNOTS - 1));
    int k = 0;
    while (k + 2 < RP_COST_KNOTS && knot_rows(k + 1) <= r) k++;
    double share = (r - knot_rows(k)) / knot_rows(k);
    BASE_ASSERT(k + 1 < RP_COST_KNOTS && share >= 0 && share <= 1); /* the knots k and k + 1 enclose r */
    return (1 - share) * load->knot_us[k] + share * load->knot_us[k + 1];
}

double cluster_cost_step(const rp_engine_load *load, double rows, double row_slots, double slots) {
    return cost_table(load, rows) + load->row_slot_us * row_slots + load->slot_us * slots;
}

double cluster_cost_chunk(const rp_engine_load *load) {
    double chunk = load->chunk_tokens > 0 ? load->chunk_tokens : CHUNK_TOKENS;
    return BASE_MIN(chunk, knot_rows(RP_COST_KNOTS - 1));
}

double cluster_cost_rows(const rp_engine_load *load, double n) {
    if (n <= 0) return 0;
    double chunk = cluster_cost_chunk(load), whole = (double)(int64_t)(n / chunk), rest = n - whole * chunk;
    BASE_ASSERT(rest >= 0 && rest < chunk);
    return (whole > 0 ? whole * cost_table(load, chunk) : 0) + (rest > 0 ? cost_table(load, rest) : 0);
}

/* Sums over the chunks k = 0, 1, ... of a run, in closed form: chunk k's rows attend to slots + k chunk others and on
 * average to half of their own; its context ends at slots + (k + 1) chunk. */
double cluster_cost_attention(const rp_engine_load *load, double n, double slots) {
    if (n <= 0) return 0;
    double chunk = cluster_cost_chunk(load), whole = (double)(int64_t)(n / chunk);
    double ends = whole * slots + chunk * whole * (whole + 1) / 2;
    BASE_ASSERT(slots >= 0 && whole * chunk <= n);
    if (n > whole * chunk) ends += slots + n;
    return load->row_slot_us * n * (slots + n / 2) + load->slot_us * ends;
}

double cluster_cost_tokens(const rp_engine_load *load, double n, double slots) {
    return cluster_cost_rows(load, n) + cluster_cost_attention(load, n, slots);
}

double cluster_cost_part(const rp_engine_load *load, double n, double position) {
    double chunk = cluster_cost_chunk(load);
    return n * (cluster_cost_rows(load, chunk) / chunk) + cluster_cost_attention(load, n, position);
}

double cluster_cost_read(const rp_engine_load *load, double bytes) { return load->read_byte_us * bytes; }

double cluster_cost_transfer(const cluster_fetch_cost *fetch, double bytes) { return fetch->byte_us * bytes; }

double cluster_cost_fetch_gain(const rp_engine_load *load, const cluster_fetch_cost *fetch, const rp_named_kv *item) {
    return cluster_cost_part(load, item->n_tokens, item->position) - cluster_cost_transfer(fetch, (double)item->bytes);
}

double cluster_cost_decode(const rp_engine_load *load, double slots) {
    double all = (double)load->context_tokens + slots;
    return cluster_cost_step(load, load->decoding + 1.0, all, all);
}

double cluster_cost_answer(const rp_engine_load *load, double n, double slots, double busy) {
    double all = (double)load->context_tokens + slots, chunk = cluster_cost_chunk(load), decode_us, mixed_us;
    BASE_ASSERT(busy >= 0 && busy <= 1);
    decode_us = cluster_cost_decode(load, slots);
    mixed_us = cluster_cost_step(load, load->decoding + 1.0 + chunk, all + chunk * slots / 2, all + slots);
    return decode_us > 0 ? n / (busy / mixed_us + (1 - busy) / decode_us) : 0;
}

bool cluster_cost_is_known(const rp_engine_load *load) {
    return load->knot_us[0] > 0 || load->knot_us[RP_COST_KNOTS - 1] > 0;
}
