/* SPDX-License-Identifier: Apache-2.0 */
/* draft_model.h: a second, smaller model that drafts tokens of answers (speculative decoding; Leviathan et al., 2023).
 *
 *   history of a request   | prompt ................................ answer |
 *   its draft context      |            [first span][span] ... [open span |] drafts
 *                                       first                         next    ahead
 *
 * The draft model reads the end of a request's text only: DRAFT_FIRST tokens when the request begins to be drafted for,
 * then each further token once. When its context has more than DRAFT_WINDOW tokens, the oldest span after the first one
 * is dropped: the first tokens of a context carry attention that has no other place (attention sinks; Xiao et al.,
 * 2024). No prompt is prefilled by it, so what the target reuses costs the draft model nothing
 * (docs/decisions/0080-draft-models.md).
 *
 * A draft head of the target (model_draft_head) drafts likewise, with the target's backend. It reads a token with the
 * final hidden state of the token before it, which exists where the target has just computed it: so its context begins
 * in the answer, and reads no prompt either (docs/decisions/0089-draft-heads.md).
 *
 *   history of a request   | prompt | answer ......................... |
 *   its draft context               |    [span] ... [open span | read  |] drafts
 *                                                               next     ahead
 *
 * Its KV is in a pool of its own. A context that finds no block there is released, and the request has no drafts of the
 * model for some time: no failure here is one of a request. The engine's thread.
 */
#ifndef ENGINE_DRAFT_MODEL_H
#define ENGINE_DRAFT_MODEL_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/core/cost_model.h"
#include "kv/context.h"
#include "reprise.h"

#define DRAFT_FIRST 128   /* tokens of the text that a context begins with, */
#define DRAFT_WINDOW 1024 /* and that it has at most, about */
#define DRAFT_LAG 16      /* tokens that are read in the step that drafts; more are read in steps before */
static_assert(DRAFT_LAG > RP_MAX_DRAFT, "a step's tokens with hidden states");

struct sampler;

/* Tokens that were right if those before them were; earlier ones count less and less. */
typedef struct draft_rate {
    double right, all;
} draft_rate;

/* What the draft model holds of a request. All zeros: nothing yet. */
typedef struct draft_context {
    kv_context kv;                        /* pool NULL: not begun */
    int32_t first;                        /* index in the history of its first token, */
    int32_t next;                         /* and of the next one that it has to read */
    int32_t pos;                          /* of that one in the draft model */
    int32_t slots;                        /* tokens that it holds */
    int32_t ahead[RP_MAX_DRAFT], n_ahead; /* drafts that it holds after the history */
    int32_t tokens[RP_MAX_DRAFT], n;      /* the last draft */
    int32_t waits;                        /* steps until it is tried again: there was no memory */
    draft_rate rate;
    bool lacked_memory;
    /* of a draft head: final hidden states of the tokens before the n_hidden that it has to read, [DRAFT_LAG][n_embd],
     * and its own of its last row; owned */
    float *hidden;
    int32_t n_hidden;
} draft_context;

/* A request's part in a run of the draft model. */
typedef struct draft_part {
    draft_context *context;
    const int32_t *history;        /* n tokens of prompt and answer */
    int32_t n, n_read;             /* n_read: tokens to read, from context->next on */
    int32_t n_draft;               /* tokens to draft after them; 0 unless it reads all */
    const struct sampler *sampler; /* the answer's: the draft is drawn from the draft model's logits as the answer is
                                      from the target's, with the same random numbers. Not changed */
    int32_t n_answer;              /* tokens of the answer so far, for */
    const rp_request_experiment *experiment;
} draft_part;

typedef struct draft_model {
    const rp_model *model;
    bool is_head; /* of the target: its backend and forward pass, too, are borrowed */
    struct backend *backend;
    struct model_forward *forward;
    struct kv_pool *pool;
    cost_model cost;                       /* of its steps */
    draft_rate rate;                       /* of all requests, for new ones */
    int32_t bos;                           /* precedes a text whose beginning a context does not have; -1: none */
    int32_t n_vocab, n_outputs;            /* of the target; of this model */
    int32_t max_parts, max_rows, most_pos; /* most_pos: positions of a context */
    struct model_row *rows;                /* [max_rows] */
    const kv_context **contexts;           /* [max_parts], and these: */
    draft_part **drawn, *parts;            /* parts of a step that want logits; of an engine's step (drafts.c) */
    int32_t n_parts;
    float *logits, *widened;       /* [max_parts][n_outputs]; [n_vocab] */
    float *hidden_in, *hidden_out; /* of a head: [max_rows][n_embd]; [max_parts][n_embd] */
} draft_model;

/* Opens it without KV: draft_model_open_kv follows. RP_ERR_INVALID: other tokens than the target's; RP_ERR_UNSUPPORTED;
 * RP_ERR_MEMORY, RP_ERR_IO. Close it after that too. */
int draft_model_open(draft_model **out, const rp_model *model, const rp_model *target, int32_t n_threads,
                     int32_t max_sequences, rp_error *err);
/* The head of a target that has one. max_rows, n_ctx: rows of a step and positions of the target's backend.
 * RP_ERR_MEMORY. Close it after that too. */
int draft_head_open(draft_model **out, const rp_model *target, struct backend *b, struct model_forward *f,
                    int32_t max_sequences, int32_t max_rows, int32_t n_ctx, rp_error *err);
/* budget: what the target's KV has, which is reduced by the draft's. most: rp_engine_options.draft_kv_bytes. */
int draft_model_open_kv(draft_model *d, uint64_t most, uint64_t *budget, rp_error *err);
void draft_model_close(draft_model *d);
/* As rp_engine_prepare. RP_ERR_MEMORY. */
int draft_model_prepare(draft_model *d, rp_on_progress on_progress, void *user, rp_error *err);
/* Adds its bytes besides KV to those of out: weights, file, activations. */
void draft_model_usage(const draft_model *d, rp_memory *out);

/* Makes the context that of this history: removes rejected drafts, and begins anew where it has fallen behind. Returns
 * the tokens that it has to read, 1 or more; 0: it waits for memory. */
int32_t draft_context_follow(draft_model *d, draft_context *c, const int32_t *history, int32_t n);
/* Of a head: the target's final hidden states of n tokens of the history, from `first` on, after a step that computed
 * them: [n][n_embd], n <= DRAFT_LAG. If they do not continue those that it has, the context is cleared and begins with
 * them. */
void draft_context_see(draft_model *d, draft_context *c, const float *hidden, int32_t n, int32_t first);
/* What it holds is freed. */
void draft_context_close(draft_context *c);
/* Estimated probability that a token of the draft model is right if those before it are. */
double draft_context_rate(const draft_model *d, draft_context *c);
/* `right` of n drafted tokens were. */
void draft_context_learn(draft_model *d, draft_context *c, int32_t right, int32_t n);
/* Nothing was drafted: what is known of the rate becomes older. */
void draft_context_forget(draft_context *c);

/* Predicted time of a step of so many rows; 0: not known. */
double draft_model_step_us(const draft_model *d, int32_t rows);
/* Reads and drafts, for all parts together; their tokens are in context->tokens. Whatever fails, drafts less. */
void draft_model_run(draft_model *d, draft_part *parts, int32_t n);

#endif
