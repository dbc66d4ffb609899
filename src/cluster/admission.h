/* SPDX-License-Identifier: Apache-2.0 */
/* admission.h: admission control: requests that would miss their goals are refused early (Mooncake, FAST'25; arXiv
 * 2407.00079).
 *
 *   arrival ------- prefill ------- first token ---- answer
 *      |                                 |
 *      at-arrival: by the answers        after-prefill: by the answers that decode now;
 *      that decode now                   the prefill is lost
 *      predicted: by the answers that
 *      will decode at the first token
 *
 * With at-arrival, all requests are admitted while few answers decode, and all are refused as soon as the prefills of
 * these have ended: the load oscillates. With predicted, an answer that decodes now is assumed to end after the mean
 * decode time, and one in prefill to have begun by then.
 *
 * Every rule but off checks the TTFT goal at arrival, and again when a node is chosen. Requests that were sent once are
 * no longer refused, except by after-prefill.
 */
#ifndef CLUSTER_ADMISSION_H
#define CLUSTER_ADMISSION_H

#include "cluster/router.h"

/* Answers of this router on a node. */
typedef struct cluster_own_answers {
    int32_t answering, waiting; /* now: with a first byte; without */
    int32_t then;               /* those of both that will decode at the time of the first token */
} cluster_own_answers;

/* Does an answer that begins at began_us and takes mean_us decode at then_us? */
bool cluster_admission_decodes(uint64_t began_us, uint64_t then_us, double mean_us);
/* Predicted number of answers that decode after_us from now: those of this router, and others by the node's report. Of
 * others, those that decode now have any age up to mean_us, so that a share after_us / mean_us of them has ended by
 * then; those that wait now have begun. mean_us 0: unknown, no answer ends. */
double cluster_admission_rows(const rp_engine_load *load, const cluster_own_answers *own, double after_us,
                              double mean_us);
/* Time of a decode step of `rows` answers and one more of `slots` slots, in ms. */
double cluster_admission_step_ms(const rp_engine_load *load, double rows, double slots);

/* Does the rule check the goal before a request is sent? */
static inline bool cluster_admission_checks_ttft(cluster_admission a) { return a != CLUSTER_ADMISSION_OFF; }
static inline bool cluster_admission_checks_itl(cluster_admission a) {
    return a == CLUSTER_ADMISSION_AT_ARRIVAL || a == CLUSTER_ADMISSION_PREDICTED;
}

/* Retry-After: the time until the least predicted TTFT meets its goal, if queues become shorter by 1 ms a ms; at least
 * 1 ms. */
uint64_t cluster_admission_retry_ttft(double least_ms, double goal_ms);
/* The mean time until the first of `rows` answers ends. */
uint64_t cluster_admission_retry_itl(double rows, double mean_us);

#endif
