/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_lookup.h: drafts for speculative decoding from earlier occurrences of the last tokens (prompt lookup; Saxena,
 * 2023).
 *
 * The last 3 tokens of prompt and answer, else the last 2, are searched for before them, the latest occurrence first;
 * the tokens after it are a guess, and its beginning the draft of a step. A rejected token costs a row of a step, so
 * the length follows the acceptance. Guesses are compared with the answer even where nothing is drafted: the acceptance
 * is therefore known without trying. Belongs to one job.
 */
#ifndef SAMPLING_PROMPT_LOOKUP_H
#define SAMPLING_PROMPT_LOOKUP_H

#include <stdint.h>

#include "reprise.h"

typedef struct prompt_lookup {
    int32_t *history; /* [cap] tokens of prompt and answer, in the order of reading */
    int32_t n, cap;
    int32_t most;                 /* tokens of a draft */
    int32_t length;               /* of the next one */
    int32_t tokens[RP_MAX_DRAFT]; /* the guess */
    int32_t n_guessed, n_tokens;  /* n_tokens: drafted in this step */
    int32_t matched;              /* tokens that led to the guess: 2 or 3 */
    struct {
        double right, all; /* guessed tokens with right ones before them; earlier ones count less and less */
    } seen[2];             /* by `matched` */
} prompt_lookup;

/* Zero-initialise. prompt: n tokens; cap: with the answer. RP_ERR_MEMORY. */
int prompt_lookup_open(prompt_lookup *d, const int32_t *prompt, int32_t n, int32_t cap, int32_t most, rp_error *err);
void prompt_lookup_close(prompt_lookup *d);

/* A token of the answer. */
void prompt_lookup_accept(prompt_lookup *d, int32_t token);
/* Guesses at most `room` tokens after the history; n_guessed is 0 if there is none. Nothing is drafted yet. */
void prompt_lookup_guess(prompt_lookup *d, int32_t room);
/* Estimated probability that a token of the guess is right if those before it are. */
double prompt_lookup_rate(const prompt_lookup *d);
/* `right` of the n_tokens drafted ones were; `next` follows them in the answer. */
void prompt_lookup_learn(prompt_lookup *d, int32_t right, int32_t next);

#endif
