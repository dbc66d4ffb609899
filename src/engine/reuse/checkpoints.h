/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints.h: states of recurrent layers in jobs: where a job continues, and what it leaves to others.
 *
 *   tokens       | found in the prefix cache | computed ...              | last of the prompt | answer ... |
 *   checkpoints                              ^ continues here   ^ points of the prompt, branch ^            ^ its end
 *
 * A state cannot be cut: a job can use cached KV up to a token after which there is a checkpoint (span_tree.h), and
 * computes the others. It leaves checkpoints where later prompts are likely to part from its text: before the last
 * token of its prompt, at the end of its answer, where cached KV ended that it had to compute again (a branch), where a
 * job that waits for it parts from it, and at the points of its prompt:
 *
 *   parts            | system | user | assistant | user ... | assistant | user | generation prompt
 *   points                    ^ first              ^ in each interval   ^ last
 *
 *   first, last      the end of its first part, which other conversations have, and of the last two, between which and
 *                    the last token of the prompt an edit of the last message begins. A part is a message, whose last
 *                    token ends answers, or a module.
 *   in each interval of N tokens: the last end of a part in its second half, or its end. N such that checkpoints take
 *                    about as much memory as the KV between them. Intervals begin at the first token of the text:
 *                    texts with the same beginning have the same points there.
 *
 * A step ends at each of these tokens. A checkpoint is made only if there is memory for it besides what is reserved; it
 * gets its name when the KV before it enters the prefix tree.
 *
 * The running states themselves are in the backend's memory: so many blocks of the pool as a checkpoint takes stay
 * reserved for each job, and unused (job_tokens.c).
 *
 * Modules that are reused (rp_engine_options.module_states) have a checkpoint each, after their last token, which their
 * prefill left beside their KV (segment_prefills.h). Views change the states of a job where its tokens begin to attend
 * to them, at the beginning of a scope (job_tokens.c):
 *
 *   by position   | text | view A | view B | link tokens of C | view C | text, answer |
 *   last          0      S(A)     S(B) ------------------------> S(C) -------------->
 *   composed      0 ---->         ... each view: S = S(view) + decays (S - states that the view began with)
 *
 *   last          the states after the last of the views; those before are forgotten.
 *   composed      those, and what remains of the states before the view after all decays of its tokens. Link tokens
 *                 and arguments are tokens of the job like any other: they move the states in their order.
 *
 * A step ends before such a place, and there is a checkpoint at it.
 *
 * Models without recurrent layers: nothing happens. The engine's thread.
 */
#ifndef ENGINE_CHECKPOINTS_H
#define ENGINE_CHECKPOINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reprise.h"

struct backend_states;
struct kv_span;

#define CHECKPOINTS_UNNAMED 8 /* of a job: older ones are dropped */

typedef struct job_states {
    struct backend_states *now; /* after the job's last computed token; NULL: it has computed none since it was
                                   composed */
    struct kv_span *from;       /* continues from these, maybe still loading; NULL: from the start, or `now` is set */
    int32_t branch;             /* tokens whose KV was cached, if more than were found; else 0 */
    int32_t last;               /* of its checkpoints, found or saved: after so many tokens */
    int32_t n_entered;          /* of its scopes: the states are those after the views that these begin with */
    int32_t *points;            /* [n_points] of its prompt, ascending: numbers of tokens */
    int32_t n_points;
    struct {
        struct kv_span *span;
        int32_t n_tokens, n_before; /* of the job before it; before the previous one */
    } unnamed[CHECKPOINTS_UNNAMED];
    int32_t n_unnamed;
} job_states;

/* Shortens the path of a job to its last checkpoint, from which it will continue. */
void checkpoints_find(rp_job *c);
/* Of n tokens to compute next: those before a checkpoint has to be made. */
int32_t checkpoints_next(const rp_job *c, int32_t n);
/* Before rows of the job are computed: waits until the states that it continues from, or that its views change them
 * to, are loaded. RP_ERR_MEMORY. */
int checkpoints_begin(rp_job *c, rp_error *err);
/* Are these loaded? Could they not be read? */
bool checkpoints_are_ready(const rp_job *c);
bool checkpoints_have_failed(const rp_job *c);
/* After a step with drafts: moves the states to the n-th of the job's rows in it. */
void checkpoints_accept(rp_job *c, int32_t n);
/* Rows were computed: makes a checkpoint, if one is due. */
void checkpoints_settle(rp_job *c);
/* No more rows follow: makes one. */
void checkpoints_end(rp_job *c);
/* Inserts those whose tokens are in the job's path. */
void checkpoints_give(rp_job *c);
/* Counts a use of what the job continues from. */
void checkpoints_use(const rp_job *c);
void checkpoints_release(rp_job *c);

#endif
