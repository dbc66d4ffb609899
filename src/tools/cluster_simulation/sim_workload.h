/* SPDX-License-Identifier: Apache-2.0 */
/* sim_workload.h: the requests of a simulation: from a trace, or generated.
 *
 *   prompt  items: names in the order of rp_plan_names      kept: names that a node holds after the answer, those of
 *         the prompt first
 *           [0 .. n_items)        [n_items .. n_kept)       the answer's, which the conversation's next turn has in its
 *                 prompt
 *
 * Names are numbered from 0 (`ids`), so that nodes need no hash tables.
 */
#ifndef TOOLS_SIM_WORKLOAD_H
#define TOOLS_SIM_WORKLOAD_H

#include "tools/cluster_simulation/sim_random.h"
#include "reprise_tools.h"

#define SIM_MAX_PROMPTS ((size_t)1 << 22)
#define SIM_MAX_ITEMS ((size_t)1 << 26)
#define SIM_NONE UINT32_MAX

typedef struct sim_prompt {
    uint64_t at_us; /* arrival, from the beginning; of a later turn: time after the answer before it */
    uint32_t next;  /* the next turn, or SIM_NONE */
    bool follows;   /* it is one */
    size_t first_item;
    int32_t n_items, n_kept;
    int32_t prompt_tokens, answer_tokens;
    uint32_t tenant;
    uint64_t session;
    int32_t priority;
} sim_prompt;

typedef struct sim_workload {
    sim_prompt *prompts;
    size_t n, cap;
    rp_named_kv *items; /* of all prompts */
    uint32_t *ids;      /* [n_items] numbers of their names */
    size_t n_items, cap_items, cap_ids;
    uint32_t *owners; /* [n_names] the tenant of each name */
    uint64_t *keys;   /* [n_names] what it was made of */
    size_t n_names, cap_owners, cap_keys;
    uint32_t *buckets; /* by key */
    size_t n_buckets;
    uint64_t kv_bytes, salt;
    int rc; /* the first error */
} sim_workload;

void sim_workload_free(sim_workload *w);
/* Generates or copies what the options say. RP_ERR_INVALID, RP_ERR_LIMIT, RP_ERR_MEMORY. Free it in any case. */
int sim_workload_make(sim_workload *w, const rp_cluster_simulate_options *o, const rp_cluster_trace_request *trace,
                      size_t n, rp_error *err);

#endif
