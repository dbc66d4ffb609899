/* SPDX-License-Identifier: Apache-2.0 */
/* admission.h: which requests are refused because they would miss their goals, and when (early rejection: Mooncake, FAST'25; arXiv 2407.00079).
 *
 *   arrival ------- prefill ------- first token ---- answer
 *      |                                 |
 *      at-arrival: by the answers        after-prefill: by the answers that decode now;
 *      that decode now                   the prefill was in vain
 *      predicted: by those that will
 *      decode at the first token
 *
 * By the load at arrival, all requests are admitted while few answers decode, and all are refused when their prefills have ended: the load
 * oscillates. Predicted: an answer that decodes now has ended by then if it has decoded for the mean decode time, and one in prefill has begun.
 *
 * The TTFT goal is checked at arrival, and again when a node is chosen, by every rule but off. Requests that were sent once are not refused any
 * more, but for after-prefill.
 */
#ifndef CLUSTER_ADMISSION_H
#define CLUSTER_ADMISSION_H

#include "cluster/router.h"

/* Answers of this router on a node, at the time of a first token. */
typedef struct cluster_own_answers {
    int32_t answering, waiting; /* now: have begun; have not */
    int32_t then;               /* of both: will decode at that time */
} cluster_own_answers;

/* Will an answer that began, or will begin, at began_us decode at then_us, if it takes mean_us? */
bool cluster_admission_decodes(uint64_t began_us, uint64_t then_us, double mean_us);
/* Answers that decode in after_us: this router's, and others by the node's report (those that decode have lived for any part of mean_us, so that
 * a share after_us / mean_us of them has ended by then; those that wait have begun). mean_us 0: not known, nothing ends. */
double cluster_admission_rows(const rp_engine_load *load, const cluster_own_answers *own, double after_us, double mean_us);
/* A decode step of that many answers and one more of `slots` slots, in ms. */
double cluster_admission_step_ms(const rp_engine_load *load, double rows, double slots);

/* Whether goals are checked before a request is sent. */
static inline bool cluster_admission_checks_ttft(cluster_admission a) { return a != CLUSTER_ADMISSION_OFF; }
static inline bool cluster_admission_checks_itl(cluster_admission a) { return a == CLUSTER_ADMISSION_AT_ARRIVAL || a == CLUSTER_ADMISSION_PREDICTED; }

/* Retry-After: when the least predicted TTFT will meet its goal, as queues become shorter by 1 ms a ms; at least 1 ms. */
uint64_t cluster_admission_retry_ttft(double least_ms, double goal_ms);
/* When the first of `rows` answers ends, on average. */
uint64_t cluster_admission_retry_itl(double rows, double mean_us);

#endif
