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
/* Reading bytes from disk; 0: unknown. */
double cluster_cost_read(const rp_engine_load *load, double bytes);
/* A decode step with the node's current answers and one more of `slots` slots. */
double cluster_cost_decode(const rp_engine_load *load, double slots);
/* Has the node measured its costs? */
bool cluster_cost_is_known(const rp_engine_load *load);

#endif
