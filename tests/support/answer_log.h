/* SPDX-License-Identifier: Apache-2.0 */
/* answer_log.h: an answer with all that its callbacks were given. */
#ifndef TESTS_ANSWER_LOG_H
#define TESTS_ANSWER_LOG_H

#include <stdbool.h>

#include "base/buffer.h"
#include "reprise.h"

typedef struct answer_log {
    int rc;
    rp_error err;
    rp_result *result;  /* NULL: it failed */
    base_buffer events; /* of on_token and on_text, in their order, a line each */
    base_buffer logits; /* a hash of each row, 8 bytes */
    int32_t n_events;
    int32_t cancel_at; /* this event returns false; 0: none */
} answer_log;

/* Submits q with callbacks of the log, which is zero but for cancel_at. A failed submission is rc, and *job is NULL. */
void answer_log_submit(answer_log *l, rp_engine *e, const rp_request *q, rp_job **job);
/* Waits for the job and frees it. */
void answer_log_finish(answer_log *l, rp_job *job);
/* Both. */
void answer_log_run(answer_log *l, rp_engine *e, const rp_request *q);
/* Are tokens, text, finish reason, stop and events equal, and the logits of all tokens from k on? Or both failed alike.
   Prints the difference. */
bool answer_log_same(const answer_log *whole, const answer_log *other, int32_t k);
void answer_log_free(answer_log *l);

#endif
