/* SPDX-License-Identifier: Apache-2.0 */
/* router_names.c: names of policies, admission rules and outcomes (reprise_cluster.h). */
#include "cluster/router.h"

static const char *const policies[] = {
#define X(id, name) name,
    CLUSTER_POLICIES(X)
#undef X
};
static const char *const admissions[] = {
#define X(id, name) name,
    CLUSTER_ADMISSIONS(X)
#undef X
};

const char *rp_cluster_policy_name(int32_t i) { return i >= 0 && i < CLUSTER_N_POLICIES ? policies[i] : NULL; }
const char *rp_cluster_admission_name(int32_t i) { return i >= 0 && i < CLUSTER_N_ADMISSIONS ? admissions[i] : NULL; }
const char *rp_cluster_outcome_name(int32_t i) {
    return i >= 0 && i < CLUSTER_N_OUTCOMES ? cluster_outcome_name((cluster_outcome)i) : NULL;
}
