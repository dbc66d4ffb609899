/* answer.h: the tokens of an answer: drawn (sampler.h), counted, told with their log-probabilities, turned into text (text_stream.h).
 *
 *   logits --draw--> token --on_token--> bytes --> text --on_text-->     and the token is computed for the next logits
 *
 * It ends with the model's end of text, a stop string, max_tokens, the context, or when a callback says so. One thread at a time.
 */
#ifndef ENGINE_ANSWER_H
#define ENGINE_ANSWER_H

#include "engine/engine_internal.h"
#include "engine/sampler.h"
#include "engine/text_stream.h"

typedef struct answer {
    rp_engine *e;
    const rp_request *options;
    rp_result *result; /* gets tokens, log-probabilities, text, finish_reason */
    int32_t pos;       /* of the next token */
    int32_t most;      /* tokens */
    sampler sampler;
    logprobs logprobs;
    text_stream stream;
    size_t cap_tokens, cap_logprobs, cap_top;
    uint64_t first_us; /* when the first token was there; 0 before */
} answer;

/* Zero-initialise. options are checked ones. All but the plan is borrowed until answer_close. RP_ERR_MEMORY; close it after that too. */
int answer_open(answer *a, rp_engine *e, const rp_request *options, const pml_plan *plan, rp_result *result, rp_error *err);
/* Generates all of it. The engine's logits are those after the prompt; c is the prompt's context and grows by the answer. */
int answer_generate(answer *a, kv_context *c, rp_error *err);
void answer_close(answer *a);

#endif
