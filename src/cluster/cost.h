/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h: predicted times of a node, from the coefficients of its cost model (rp_engine_load; engine/core/cost_model.h
   has the formula). Times in us.
 */
#ifndef CLUSTER_COST_H
#define CLUSTER_COST_H

#include "reprise_cluster.h"

/* A step of `rows` rows, which attend to row_slots slots in total, in contexts of `slots` slots in total. 0: the
 * coefficients are unknown. */
double cluster_cost_step(const rp_engine_load *load, double rows, double row_slots, double slots);
/* Prefill of n tokens after `slots` others, in steps of the node's chunk, without other work. */
double cluster_cost_tokens(const rp_engine_load *load, double n, double slots);
/* Its two parts: the time by number of tokens, which share steps wherever they are in the prompt, and the attention of
 * one run of adjacent tokens. For several runs, add the rows of all tokens together and the attention of each run. */
double cluster_cost_rows(const rp_engine_load *load, double n);
double cluster_cost_attention(const rp_engine_load *load, double n, double slots);
double cluster_cost_chunk(const rp_engine_load *load); /* tokens of a prefill step */
/* n tokens at a position, as part of a longer prefill: what is saved if their KV is read or fetched instead. */
double cluster_cost_part(const rp_engine_load *load, double n, double position);
/* Reading bytes from disk; 0: unknown. */
double cluster_cost_read(const rp_engine_load *load, double bytes);

/* Fetching KV from the pool: a round trip for all that a request fetches, and the transfer of its bytes. byte_us 0:
 * there is no pool. */
typedef struct cluster_fetch_cost {
    double rtt_us, byte_us;
} cluster_fetch_cost;
double cluster_cost_transfer(const cluster_fetch_cost *fetch, double bytes); /* without the round trip */
/* A name's KV that a node lacks and the pool has: the time of computing it less that of its transfer. A request fetches
 * the names of positive gain, if the sum of their gains exceeds the round trip. */
double cluster_cost_fetch_gain(const rp_engine_load *load, const cluster_fetch_cost *fetch, const rp_named_kv *item);

/* A decode step with the node's current answers and one more of `slots` slots. */
double cluster_cost_decode(const rp_engine_load *load, double slots);
/* An answer of n tokens after `slots` slots, on a node that computes prompts for a share `busy` of its time: its steps
 * then have a chunk of a prompt, too. */
double cluster_cost_answer(const rp_engine_load *load, double n, double slots, double busy);
/* Has the node measured its costs? */
bool cluster_cost_is_known(const rp_engine_load *load);

#endif
