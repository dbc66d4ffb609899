/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_lookup.h: drafts for speculative decoding from earlier occurrences of the last tokens (prompt lookup; Saxena, 2023).
 *
 * The last 3 tokens of prompt and answer, else the last 2, are searched for before them, the latest occurrence first; the tokens after it
 * are the draft. A rejected token costs a row of a step, so the length follows the acceptance. Belongs to one job.
 */
#ifndef SAMPLING_PROMPT_LOOKUP_H
#define SAMPLING_PROMPT_LOOKUP_H

#include <stdint.h>

#include "reprise.h"

typedef struct prompt_lookup {
    int32_t *history; /* [cap] tokens of prompt and answer, in the order of reading */
    int32_t n, cap;
    int32_t most;     /* tokens of a draft */
    int32_t length;   /* of the next one */
    int32_t tokens[RP_MAX_DRAFT];
    int32_t n_tokens; /* of this step */
} prompt_lookup;

/* Zero-initialise. prompt: n tokens; cap: with the answer. RP_ERR_MEMORY. */
int prompt_lookup_open(prompt_lookup *d, const int32_t *prompt, int32_t n, int32_t cap, int32_t most, rp_error *err);
void prompt_lookup_close(prompt_lookup *d);

/* A token of the answer. */
void prompt_lookup_accept(prompt_lookup *d, int32_t token);
/* Fills tokens with a draft of at most `room` tokens after the history; n_tokens is 0 if there is none. */
void prompt_lookup_guess(prompt_lookup *d, int32_t room);
/* `right` of n_tokens were. */
void prompt_lookup_learn(prompt_lookup *d, int32_t right);

#endif
