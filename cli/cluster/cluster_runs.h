/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_runs.h: runs of `reprise cluster simulate`: policies and admission rules, each at every value of one quantity
   (the axis). */
#ifndef CLI_CLUSTER_RUNS_H
#define CLI_CLUSTER_RUNS_H

#include <stdbool.h>
#include <stdio.h>

#include "reprise_tools.h"

#define CLUSTER_MAX_RUNS 512
#define CLUSTER_MAX_VALUES 64

typedef struct cluster_run {
    const char *policy, *admission;
    double value; /* of the axis */
    rp_cluster_simulation result;
} cluster_run;

typedef struct cluster_runs {
    const char *source;               /* the trace's path, or the workload's name */
    const char *axis;                 /* option of the axis; NULL: one value */
    rp_cluster_simulate_options base; /* of all */
    bool several_admissions;
    cluster_run runs[CLUSTER_MAX_RUNS]; /* by policy and rule, then by rising value */
    size_t n, n_values;
} cluster_runs;

/* Share of the prompts' tokens that were cached, output tokens a second. */
static inline double cluster_hit_rate(const rp_cluster_simulation *r) {
    return r->prompt_tokens > 0 ? (double)r->hit_tokens / (double)r->prompt_tokens : 0;
}
static inline double cluster_token_rate(const rp_cluster_simulation *r) {
    return r->seconds > 0 ? (double)r->answer_tokens / r->seconds : 0;
}

/* The text of a policy with its rule, if there are several. */
const char *cluster_run_name(const cluster_runs *c, const cluster_run *r, char *out, size_t n);

void cluster_runs_print(const cluster_runs *c); /* cluster_table.c */
int cluster_runs_print_json(const cluster_runs *c);
/* cluster_plot.c. The caller opens and closes the file. */
void cluster_runs_draw(FILE *to, const cluster_runs *c);

#endif
