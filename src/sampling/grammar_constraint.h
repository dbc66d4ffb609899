/* SPDX-License-Identifier: Apache-2.0 */
/* grammar_constraint.h: an answer constrained by a grammar: which tokens may be sampled, and where it ends.
 *
 * The matcher decides what is allowed before the trigger, and where tokens without text and end tokens may be
 * (grammar/matcher.h); this file maps tokens to bytes and back. Belongs to one answer; opened on the submitting thread,
 * then used by the engine's.
 */
#ifndef SAMPLING_GRAMMAR_CONSTRAINT_H
#define SAMPLING_GRAMMAR_CONSTRAINT_H

#include "sampling/sampler.h"
#include "grammar/matcher.h"
#include "model/tokenizer/tokenizer.h"

typedef struct grammar_constraint {
    grammar *grammar; /* NULL: none, and no function below may be called */
    matcher matcher;
    const token_trie *trie;
    const tokenizer *tokenizer;
    bool special_text; /* control tokens have text, in the trie too */
} grammar_constraint;

/* Zero-initialise. The request has a grammar; its strings are not needed afterwards. trie: borrowed until
 * grammar_constraint_close. Errors as of rp_engine_run for grammars. Close it after an error too. */
int grammar_constraint_open(grammar_constraint *g, const rp_request *options, const tokenizer *tokenizer,
                            const token_trie *trie, rp_error *err);
void grammar_constraint_close(grammar_constraint *g);

/* Samples a token that the grammar allows; -1: there is none, or (too_hard) the work limit was reached. drops_space: a
 * space at the token's beginning is not part of the text. RP_ERR_MEMORY. */
int grammar_constraint_draw(grammar_constraint *g, sampler *s, const float *logits, bool drops_space, int32_t *token,
                            bool *too_hard, rp_error *err);
/* Instead of grammar_constraint_draw, for a token that was sampled before: may it come next? Takes the work of a draw.
   too_hard, errors: likewise. */
int grammar_constraint_check(grammar_constraint *g, const sampler *s, bool drops_space, int32_t token, bool *fits,
                             bool *too_hard, rp_error *err);
/* Appends the bytes of a token to the answer. too_hard: the work limit was reached. RP_ERR_MEMORY. */
int grammar_constraint_accept(grammar_constraint *g, const char *bytes, size_t n, bool *too_hard, rp_error *err);
/* How many of n tokens, one after the other, the grammar allows. */
int32_t grammar_constraint_fitting(grammar_constraint *g, const int32_t *tokens, int32_t n);

/* May the answer end here? Must it? */
static inline bool grammar_constraint_may_end(const grammar_constraint *g) { return matcher_may_end(&g->matcher); }
static inline bool grammar_constraint_must_end(const grammar_constraint *g) { return matcher_must_end(&g->matcher); }

#endif
