/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_requests.c: arbitrary bytes as the body of a request, in every API dialect: it is refused with one line, or all
 * its values are within their limits; tools and answer schemas become a grammar, or an error. The first byte selects
 * the dialect. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "server/dialects/dialects.h"
#include "server/dialects/embeddings.h"
#include "server/dialects/ollama.h"
#include "server/dialects/openai.h"
#include "server/dialects/pml_dialect.h"
#include "structured/tool_finder.h"
#include "server/prompt/tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const generation_parser parsers[] = {
    openai_parse_chat, openai_parse_text, pml_parse_prompt, llamacpp_parse_completion,
    llamacpp_parse_messages, anthropic_parse, anthropic_parse_count, gemini_parse,
    responses_parse, openai_parse_embeddings, llamacpp_parse_embedding, rerank_parse,
    gemini_parse_embed, gemini_parse_embed_batch, ollama_parse_generate, ollama_parse_chat,
    llamacpp_parse_infill, interactions_parse};

/* The corpus has first bytes below 240, from when there were 16 parsers. */
static generation_parser parser_of(uint8_t first) {
    return parsers[first < 240 ? first % 16 : 16 + first % (BASE_ARRAY_LEN(parsers) - 16)];
}

static void check(bool ok) {
    if (!ok) abort();
}

static void check_problem(const server_problem *p) {
    json_t *(*const say[])(const server_problem *) = {server_problem_openai, server_problem_anthropic,
                                                      server_problem_gemini, server_problem_llamacpp};
    check(p->message[0] && !strchr(p->message, '\n'));
    check(server_problem_status(p->kind) >= 400);
    for (size_t i = 0; i < BASE_ARRAY_LEN(say); i++) {
        json_t *said = say[i](p);
        check(said != NULL); /* valid UTF-8, whatever the request contained */
        json_decref(said);
    }
}

/* Of embeddings: texts or ids, and a query that is the first text of a rerank. */
static void check_embedding(const generation *a) {
    const generation_embedding *e = &a->embedding;
    check(a->n_prompts > 0 && a->n_prompts <= SERVER_MAX_EMBEDDINGS + 1 && a->n_messages == 0 && a->max_tokens == 0 &&
          a->n == 1);
    for (size_t i = 0; i < a->n_prompts; i++)
        check((a->prompts[i].text != NULL) + (a->prompts[i].ids != NULL) == 1 && !a->prompts[i].second);
    check((unsigned)e->pooling < RP_N_POOLINGS && e->pooling != RP_POOLING_OFF && e->dimensions >= 0);
    check(!e->query || (json_array_size(e->documents) + 1 == a->n_prompts && e->top_n >= 1 &&
                        strcmp(e->query, a->prompts[0].text) == 0));
}

static void check_ask(const generation *a) {
    const rp_sampling *s = &a->sampling;
    if (a->embedding.pooling != RP_POOLING_OFF) {
        check_embedding(a);
        return;
    }
    check((a->n_messages > 0) + (a->n_prompts > 0) + (a->pml != NULL) + (a->built != NULL) == 1);
    check(a->n >= 1 && a->n <= SERVER_MAX_CHOICES && a->n_prompts <= SERVER_MAX_CHOICES);
    for (size_t i = 0; i < a->n_prompts; i++) check((a->prompts[i].text != NULL) + (a->prompts[i].ids != NULL) == 1);
    check(a->max_tokens >= -1 && a->n_prompt_logprobs >= -1 && a->n_prompt_logprobs <= RP_MAX_LOGPROBS);
    check(!a->infill.wanted || a->infill.suffix);
    check(s->temperature >= 0 && s->temperature <= 100 && s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 &&
          s->min_p <= 1);
    check(a->n_stops >= 0 && a->n_stops <= RP_MAX_STOPS && a->n_logprobs >= -1 && a->n_logprobs <= RP_MAX_LOGPROBS);
    for (int32_t i = 0; i < a->n_stops; i++) check(a->stops[i][0] != '\0');
    for (int32_t i = 0; i < a->n_bias; i++)
        check(a->bias[i].token >= 0 && (fabsf(a->bias[i].bias) <= 1000 || a->bias[i].bias == -INFINITY));
    for (size_t i = 0; i < a->n_messages; i++)
        check((unsigned)a->messages[i].role < RP_N_ROLES && strlen(a->messages[i].text) == a->messages[i].n);
    for (int k = 0; k < SERVER_N_MARKS; k++) check(a->marked[k].n_messages <= a->n_messages);
    for (size_t i = 0; i < a->n_parts; i++) {
        const server_part *part = &a->parts[i];
        check(part->message < a->n_messages && part->begin <= part->end && part->end <= a->messages[part->message].n);
        check(i == 0 || a->parts[i - 1].message < part->message ||
              (a->parts[i - 1].message == part->message && a->parts[i - 1].end <= part->begin));
        check(a->has_markup || part->kind < SERVER_PART_PML);
    }
}

/* Every message keeps its length, and every part is inside its message. */
static void check_prepared(const generation *a) {
    check(a->n_calls == 0 || a->n_messages == 0);
    check(!(answer_form_may_call(&a->form) || a->form.wants_json) || a->grammar);
    for (size_t i = 0; i < a->n_messages; i++) check(strlen(a->messages[i].text) == a->messages[i].n);
    for (size_t i = 0; i < a->n_parts; i++) {
        const server_part *part = &a->parts[i];
        check(part->message < a->n_messages && part->begin <= part->end && part->end <= a->messages[part->message].n);
    }
    for (size_t i = 0; i < a->n_reasonings; i++) {
        check(a->reasonings[i].message < a->n_messages && a->reasonings[i].text[0] != '\0');
        check(a->messages[a->reasonings[i].message].role == RP_ROLE_ASSISTANT);
        check(i == 0 || a->reasonings[i - 1].message <= a->reasonings[i].message);
    }
    for (int k = 0; k < SERVER_N_MARKS; k++) check(a->marked[k].n_messages <= a->n_messages);
}

/* The request as an answer: the text found in it must add up to all of it. */
static void check_finder(const generation *a, const uint8_t *data, size_t n) {
    tool_finder f;
    size_t at = 0;
    tool_finder_init(&f, &a->form, TOOL_REASONING_ITEMS, NULL, NULL);
    for (size_t step = 1; at < n; at += step, step = step % 7 + 1)
        check(tool_finder_feed(&f, (const char *)data + at, BASE_MIN(step, n - at)) == 0);
    check(tool_finder_finish(&f) == 0);
    size_t reported = 0;
    for (size_t i = 0; i < f.n_items; i++) reported += f.items[i].text.len;
    check(reported <= n && (f.n_calls > 0 || reported == n));
    tool_finder_free(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    server_problem p = {0};
    generation ask = {0};
    if (n == 0) return 0;
    json_t *root = server_json_parse((const char *)data + 1, n - 1, &p);
    if (root) generation_parse(&ask, root, parser_of(data[0]), &p);
    json_decref(root);
    if (!p.kind) generation_settle_sampling(&ask, NULL);
    if (!p.kind) check_ask(&ask);
    if (!p.kind && !tools_check(&ask, &p) && !tools_write(&ask, n % 2 ? "chatml" : "plain", &p) &&
        !tools_constrain(&ask, &p))
        check_prepared(&ask);
    if (p.kind) check_problem(&p);
    else check_finder(&ask, data, n);
    generation_free(&ask);
    return 0;
}
