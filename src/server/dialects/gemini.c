/* SPDX-License-Identifier: Apache-2.0 */
/* gemini.c: generateContent, streamGenerateContent, countTokens, embedContent and batchEmbedContents of a model: POST
   /v1beta/models/NAME:VERB. */
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "server/answers/report.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/dialects.h"
#include "server/dialects/embeddings.h"
#include "server/dialects/gemini.h"
#include "server/dialects/openai.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/prompt/conversation_prompt.h"
#include "server/prompt/tools.h"

/* ---- fields ---- */

/* {"thinkingConfig": {"includeThoughts": true, "thinkingBudget": 1024, "thinkingLevel": "low"}}; a budget of -1 is the
   model's own. */
static void parse_thinking(generation *gen, const server_fields *f) {
    const json_t *config = server_field_object(f, "thinkingConfig");
    server_fields g = {config, f->problem, "generationConfig.thinkingConfig."};
    bool included = true;
    const char *level = NULL;
    if (!config) return;
    server_field_bool(&g, "includeThoughts", &included);
    gen->hides_reasoning |= !included;
    server_field_int(&g, "thinkingBudget", -1, INT32_MAX, &gen->thinking_tokens);
    if (gen->thinking_tokens >= 0) generation_set_thinking(gen, gen->thinking_tokens > 0);
    server_field_text(&g, "thinkingLevel", &level);
    if (level && strcasecmp(level, "THINKING_LEVEL_UNSPECIFIED") != 0 && !f->problem->kind)
        generation_set_effort(gen, level, "thinkingLevel", f->problem);
    generation_known(gen, &g, "includeThoughts thinkingBudget thinkingLevel");
}

static void gemini_parse_config(generation *gen, const server_fields *f) {
    const json_t *config = server_field_object(f, "generationConfig");
    server_fields g = {config, f->problem, "generationConfig."};
    rp_sampling *s = &gen->sampling;
    bool wants_logprobs = false;
    int32_t n_logprobs = 0;
    if (!config) return;
    server_field_real(&g, "temperature", 0, 2, &s->temperature);
    server_field_real(&g, "topP", 0, 1, &s->top_p);
    generation_top_k(gen, &g, "topK");
    server_field_int(&g, "maxOutputTokens", 1, INT32_MAX, &gen->max_tokens);
    server_field_int(&g, "candidateCount", 1, SERVER_MAX_CHOICES, &gen->n);
    server_field_real(&g, "presencePenalty", -2, 2, &s->presence_penalty);
    server_field_real(&g, "frequencyPenalty", -2, 2, &s->frequency_penalty);
    gen->has_seed = server_field_seed(&g, "seed", &s->seed);
    generation_stops(gen, &g, "stopSequences");
    gemini_parse_format(gen, &g);
    parse_thinking(gen, &g);
    server_field_bool(&g, "responseLogprobs", &wants_logprobs); /* of chosen tokens, and of `logprobs` others each */
    server_field_int(&g, "logprobs", 0, OPENAI_MAX_TOP_LOGPROBS, &n_logprobs);
    if (wants_logprobs) gen->n_logprobs = n_logprobs;
    generation_known(gen, &g,
                     "temperature topP topK maxOutputTokens candidateCount presencePenalty frequencyPenalty seed "
                     "stopSequences responseMimeType "
                     "responseSchema responseJsonSchema _responseJsonSchema responseModalities thinkingConfig "
                     "responseLogprobs logprobs");
}

int gemini_parse(generation *gen, server_problem *p) {
    static const char *const unknown[] = {"cachedContent", NULL}; /* gemini_add_content has put it in its place */
    server_fields f = {gen->root, p, ""};
    gen->otherwise.temperature = 1;
    gemini_parse_conversation(gen, &f);
    if (json_array_size(json_object_get(gen->root, "contents")) == 0)
        server_fail(p, SERVER_INVALID, "contents", "'contents' is missing: give at least one");
    gemini_parse_config(gen, &f);
    generation_extras(gen, &f);
    openai_refuse(&f, unknown);
    generation_known(gen, &f,
                     SERVER_EXTRA_FIELDS
                     "contents systemInstruction system_instruction generationConfig tools toolConfig tool_config "
                     "cachedContent safetySettings labels model");
    return (int)p->kind;
}

/* ---- replies ---- */

/* Takes the parts over. */
static json_t *server_choice_candidate(const server_choice *c, json_t *parts, const char *finish) {
    json_t *all = json_pack("{s:{s:o, s:s}, s:i}", "content", "parts", parts, "role", "model", "index", (int)c->index);
    if (all && finish) json_object_set_new(all, "finishReason", json_string(finish));
    return all;
}

static json_t *logprob_of(const server_request *x, int32_t token, float logprob) {
    return json_pack("{s:o, s:i, s:f}", "token", openai_token_text(x, token), "tokenId", (int)token, "logProbability",
                     openai_logprob(logprob));
}

/* Lists of tokens in a candidate: of an answer, or of a piece of a stream. */
typedef struct gemini_logprobs {
    json_t *chosen, *top;
    double sum;
} gemini_logprobs;

static void add_logprob(gemini_logprobs *l, const server_request *x, int32_t token, float logprob,
                        const rp_token_logprob *top, int32_t n_top) {
    BASE_ASSERT(n_top >= 0 && (n_top == 0 || top));
    json_t *list = json_array();
    for (int32_t i = 0; i < n_top; i++) json_array_append_new(list, logprob_of(x, top[i].token, top[i].logprob));
    json_array_append_new(l->chosen, logprob_of(x, token, logprob));
    json_array_append_new(l->top, json_pack("{s:o}", "candidates", list));
    l->sum += openai_logprob(logprob);
}

/* Takes the candidate, and returns it. piece: NULL for the whole answer. */
static json_t *with_logprobs(const server_choice *c, json_t *candidate, const server_piece *piece) {
    const server_request *x = c->x;
    const rp_result *r = c->result;
    BASE_ASSERT(piece || r);
    if (x->gen->n_logprobs < 0 || !candidate) return candidate;
    gemini_logprobs l = {json_array(), json_array(), 0};
    for (int32_t i = 0; !piece && i < r->n_tokens; i++)
        add_logprob(&l, x, r->tokens[i], r->logprobs[i], r->top_logprobs + (size_t)i * (size_t)r->n_top,
                    BASE_MIN(r->n_top, x->gen->n_logprobs));
    for (const server_token *t = piece ? piece->tokens : NULL; piece && t != piece->tokens_end;
         t = server_token_next(t))
        add_logprob(&l, x, t->id, t->logprob, server_token_top(t), t->n_top);
    const size_t n = json_array_size(l.chosen);
    if (!piece && n > 0) json_object_set_new(candidate, "avgLogprobs", json_real(l.sum / (double)n));
    json_object_set_new(candidate, "logprobsResult",
                        json_pack("{s:o, s:o}", "topCandidates", l.top, "chosenCandidates", l.chosen));
    return candidate;
}

static const char *finish_of(const server_choice *c) {
    return report_finish(c->result) == SERVER_FINISH_STOP ? "STOP" : "MAX_TOKENS";
}

static json_t *gemini_usage(const server_request *x) {
    server_usage u = report_usage(x);
    json_t *all = json_pack("{s:I, s:I, s:I, s:I}", "promptTokenCount", (json_int_t)u.prompt, "cachedContentTokenCount",
                            (json_int_t)u.cached, "candidatesTokenCount", (json_int_t)(u.answer - u.reasoning),
                            "totalTokenCount", (json_int_t)(u.prompt + u.answer));
    if (all && u.cached > 0)
        json_object_set_new(all, "cacheTokensDetails",
                            json_pack("[{s:s, s:I}]", "modality", "TEXT", "tokenCount", (json_int_t)u.cached));
    if (all && u.reasoning > 0) json_object_set_new(all, "thoughtsTokenCount", json_integer((json_int_t)u.reasoning));
    return all;
}

static json_t *gemini_response(const server_request *x, json_t *candidates) {
    return json_pack("{s:o, s:s, s:s}", "candidates", candidates, "modelVersion", server_request_model(x), "responseId",
                     x->id);
}

static json_t *gemini_whole(server_request *x) {
    json_t *list = json_array();
    for (int32_t i = 0; i < x->answers->n_choices && list; i++) {
        const server_choice *c = &x->answers->choices[i];
        json_array_append_new(list, with_logprobs(c, server_choice_candidate(c, gemini_parts(c), finish_of(c)), NULL));
    }
    json_t *all = gemini_response(x, list);
    if (all) json_object_set_new(all, "usageMetadata", gemini_usage(x));
    if (all) json_object_set_new(all, "reprise", report_reprise(x));
    return all;
}

static int gemini_report_piece(server_request *x, server_choice *c, const server_piece *piece) {
    json_t *parts = json_pack("[{s:o}]", "text", base_json_string(piece->text, piece->n));
    return server_request_frame(
        x, NULL,
        gemini_response(x, json_pack("[o]", with_logprobs(c, server_choice_candidate(c, parts, NULL), piece))));
}

static int gemini_report_reasoning(server_request *x, server_choice *c, const server_piece *piece) {
    json_t *parts = json_pack("[{s:o, s:b}]", "text", base_json_string(piece->text, piece->n), "thought", 1);
    return server_request_frame(
        x, NULL,
        gemini_response(x, json_pack("[o]", with_logprobs(c, server_choice_candidate(c, parts, NULL), piece))));
}

/* A tool call is sent when it is complete: its arguments are one JSON object. */
static int gemini_report_call(server_request *x, server_choice *c, tool_event event, const tool_item *item,
                              const char *bytes, size_t n) {
    (void)bytes;
    (void)n;
    if (event != TOOL_END) return 0;
    BASE_ASSERT(item->tool);
    json_t *parts = json_pack("[o]", gemini_part_of(c, item));
    return server_request_frame(x, NULL, gemini_response(x, json_pack("[o]", server_choice_candidate(c, parts, NULL))));
}

static int gemini_close_choice(server_request *x, server_choice *c) {
    json_t *all = gemini_response(
        x, json_pack("[o]", server_choice_candidate(c, json_pack("[{s:s}]", "text", ""), finish_of(c))));
    if (all) json_object_set_new(all, "usageMetadata", gemini_usage(x));
    return server_request_frame(x, NULL, all);
}

static int gemini_fail_stream(server_request *x, const server_problem *p) {
    return server_request_frame(x, NULL, server_problem_gemini(p));
}

static const server_form form = {
    .parse = gemini_parse,
    .whole = gemini_whole,
    .piece = gemini_report_piece,
    .close = gemini_close_choice,
    .fail = gemini_fail_stream,
    .call = gemini_report_call,
    .reasoning = gemini_report_reasoning,
};

/* ---- verbs ---- */

static void gemini_count_tokens(server_request *x) {
    size_t n = 0;
    if (generate_check_fields(x) || conversation_prompt_count(x, &n)) server_request_reply_problem(x);
    else server_request_reply_json(x, 200, report_unknown(x, json_pack("{s:I}", "totalTokens", (json_int_t)n)));
}

static void gemini_embed(server_request *x, const server_form *embed) {
    json_t *root = server_request_json(x);
    if (root) generation_parse(x->gen, root, embed->parse, &x->problem);
    json_decref(root);
    x->gen->model = x->name;
    if (x->problem.kind) server_request_reply_problem(x);
    else generate_begin(x, embed);
}

void handle_gemini(server_request *x) {
    char *verb = strrchr(x->name, ':');
    if (verb) *verb++ = '\0';
    if (verb && strcmp(verb, "embedContent") == 0) {
        gemini_embed(x, &gemini_embed_form);
        return;
    }
    if (verb && strcmp(verb, "batchEmbedContents") == 0) {
        gemini_embed(x, &gemini_embed_batch_form);
        return;
    }
    bool streams = verb && strcmp(verb, "streamGenerateContent") == 0,
         counts = verb && strcmp(verb, "countTokens") == 0;
    if (!streams && !counts && !(verb && strcmp(verb, "generateContent") == 0))
        server_fail(&x->problem, SERVER_NOT_FOUND, NULL,
                    "give generateContent, streamGenerateContent, countTokens, embedContent or batchEmbedContents "
                    "after the model name");
    const char *alt = streams ? server_request_query(x, "alt") : NULL;
    if (streams && (!alt || strcmp(alt, "sse") != 0))
        server_fail(&x->problem, SERVER_UNSUPPORTED, "alt",
                    "streams are server-sent events: request them with alt=sse");
    json_t *root = x->problem.kind ? NULL : server_request_json(x);
    if (root && !gemini_add_content(x, root)) generation_parse(x->gen, root, gemini_parse, &x->problem);
    json_decref(root);
    x->gen->model = x->name;
    x->gen->stream = streams;
    if (counts) tools_check(x->gen, &x->problem);
    if (x->problem.kind) server_request_reply_problem(x);
    else if (counts) gemini_count_tokens(x);
    else generate_begin(x, &form);
}
