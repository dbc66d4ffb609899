/* SPDX-License-Identifier: Apache-2.0 */
/* continuation.c: see continuation.h. */
#include "engine/features/continuation.h"

#include "base/check.h"
#include "base/error.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_tokens.h"
#include "model/model.h"
#include "sampling/answer.h"
#include "sampling/prompt_lookup.h"
#include "reprise_test.h"

typedef struct job_continuation {
    const int32_t *tokens; /* [n], the caller's: until the request is planned */
    int32_t n;
} job_continuation;

static int continuation_ask(rp_job *c, const rp_request *o, rp_error *err) {
    const int32_t n_vocab = c->engine->model->net.hp.n_vocab;
    if (o->n_resumed < 0 || (!o->resumed && o->n_resumed > 0))
        return base_fail(err, RP_ERR_INVALID, "n_resumed is %d, and resumed is %s", o->n_resumed,
                         o->resumed ? "set" : "NULL");
    for (int32_t i = 0; i < o->n_resumed; i++)
        if (o->resumed[i] < 0 || o->resumed[i] >= n_vocab)
            return base_fail(err, RP_ERR_INVALID, "resumed token %d is %d, the vocabulary has %d", i, o->resumed[i],
                             n_vocab);
    if (o->n_resumed == 0) return RP_OK;
    if (o->experiment->forced)
        return base_fail(err, RP_ERR_CONFLICT, "resumed tokens contradict forced ones: give one of them");
    job_continuation *own = job_feature_add(c, &continuation_feature);
    if (!own) return base_fail_memory(err, sizeof(*own), "a resumed answer");
    *own = (job_continuation){o->resumed, o->n_resumed};
    return RP_OK;
}

/* An answer that goes on needs its whole KV as its first engine had it. */
static int continuation_begin(rp_job *c, rp_error *err) {
    job_continuation *own = job_feature_state(c, &continuation_feature);
    const job_wants *wants = &c->wants;
    const char *other = wants->exclusive ? "kv_keep" : wants->most_answer > 0 ? "context_shift"
                                                   : wants->n_late > 0        ? "quality 'focus'"
                                                                              : NULL;
    if (other)
        return base_fail(err, RP_ERR_CONFLICT, "resumed tokens contradict %s: such an answer cannot go on elsewhere",
                         other);
    const int rc = answer_resume(&c->answer, own->tokens, own->n, err);
    if (rc) return rc;
    for (int32_t i = 0; i < own->n; i++) prompt_lookup_accept(&c->prompt_lookup, own->tokens[i]);
    c->n_resumed = own->n - c->answer.over; /* the last token of an answer is not computed */
    BASE_ASSERT(c->n_resumed >= 0);
    own->tokens = NULL;
    job_list_resumed(c);
    return RP_OK;
}

const job_feature continuation_feature = {
    .name = "resumed",
    .state_bytes = sizeof(job_continuation),
    .ask = continuation_ask,
    .begin = continuation_begin,
};
