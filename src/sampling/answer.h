/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h: the tokens of an answer: sampled (sampler.h), counted, reported with their log-probabilities, decoded to
 * text (text_stream.h).
 *
 *   logits --draw--> token --on_token--> bytes --> text --on_text-->     and the caller computes the token for the next
 *         logits
 *
 * An answer ends with the model's end of text, a stop string, max_tokens, a full context, the end of its grammar, or
 * when a callback asks. One thread at a time.
 */
#ifndef SAMPLING_ANSWER_H
#define SAMPLING_ANSWER_H

#include "base/budget.h"
#include "sampling/grammar_constraint.h"
#include "sampling/sampler.h"
#include "sampling/text_stream.h"
#include "model/tokenizer/tokenizer.h"

/* State of an answer. */
typedef struct answer_place {
    const tokenizer *tokenizer;
    const token_trie *trie; /* if the request has a grammar */
    int32_t n_vocab;
    int32_t n_prompt; /* tokens before it */
    int64_t room;     /* tokens that the context has for it */
    bool begins_text; /* nothing precedes it, except possibly the beginning-of-text token */
} answer_place;

typedef struct answer {
    const rp_request *options;
    answer_place place;
    rp_result *result; /* gets tokens, log-probabilities, text, finish_reason */
    int32_t most;      /* tokens */
    bool over;
    sampler sampler;
    grammar_constraint grammar_constraint; /* has no grammar if the request has none, or forces the tokens */
    logprobs logprobs;
    text_stream stream;
    size_t cap_tokens, cap_logprobs, cap_top;
    /* of the thread that opened it: it counts what the answer allocates, whichever thread samples. NULL: none */
    base_budget *memory;
    uint64_t first_us; /* when the first token was there; 0 before. Resumed tokens do not count */
    int32_t n_resumed;
    size_t *resumed_ends; /* [n_resumed]: text that may be given out after each; NULL: none, or the callbacks have
                             them */
} answer;

/* Sets a->most by options and place. The caller may lower it before answer_open. */
void answer_limit(answer *a, const rp_request *options, const answer_place *place);
/* Zero-initialise. options are checked ones, borrowed with the result until answer_close. RP_ERR_MEMORY; close it after
   that too. */
int answer_open(answer *a, const rp_request *options, const answer_place *place, rp_result *result, rp_error *err);
/* Goes on after n tokens that were sampled before, with the same options: everything but first_us is as if they had
 * been sampled here. The sampler has the prompt's tokens. Callbacks get them with the next token, or at the end.
 * a->over: they end the answer. RP_ERR_INVALID (max_tokens, a stop, the grammar or the end of text exclude one of
 * them), RP_ERR_CONTEXT, RP_ERR_BUDGET (a->most does), RP_ERR_MEMORY. */
int answer_resume(answer *a, const int32_t *tokens, int32_t n, rp_error *err);
/* Samples the next token from logits, [n_vocab], and reports it. a->over: the answer ends with it or, at the end of
 * text, before it; otherwise *token is the input of the next step. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int answer_next(answer *a, const float *logits, int32_t *token, rp_error *err);
/* How many of n tokens, one after the other, may come next. */
int32_t answer_fitting(answer *a, const int32_t *tokens, int32_t n);
/* Ends the answer early. reason: for the result; static. shown: text that was held back is passed to on_text. */
void answer_stop(answer *a, const char *reason, bool shown);
/* Its text goes to the result. RP_ERR_MEMORY. */
int answer_finish(answer *a, rp_error *err);
void answer_close(answer *a);

#endif
