/* SPDX-License-Identifier: Apache-2.0 */
/* openai_common.c: see openai.h. Owns nothing. */
#include <stdio.h>
#include <string.h>

#include "server/answers/report.h"
#include "server/dialects/openai.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"

/* Of cache breakpoints. */
static const generation_ttl ttls[] = {{"30m", 1800}, {"12h", 43200}, {NULL, 0}};

static void check_mode(const server_fields *f, bool can_be_implicit) {
    const char *mode = "explicit";
    server_field_text(f, "mode", &mode);
    if (f->problem->kind || strcmp(mode, "explicit") == 0 || (can_be_implicit && strcmp(mode, "implicit") == 0)) return;
    server_fail(f->problem, SERVER_INVALID, "mode", "'%smode' is '%.40s': give %sexplicit", f->prefix, mode,
                can_be_implicit ? "implicit or " : "");
}

bool openai_parse_role(const char *name, rp_role *role) {
    if (name && strcmp(name, "developer") == 0) name = rp_role_name(RP_ROLE_SYSTEM);
    if (name && strcmp(name, "function") == 0) name = rp_role_name(RP_ROLE_TOOL);
    return rp_role_parse(name, role);
}

/* Cache hits need neither a name nor breakpoints: of these fields, times to live alone have an effect. */
void openai_parse_cache(generation *gen, const server_fields *f, const char *known) {
    static const generation_ttl retentions[] = {{"in_memory", 0}, {"24h", 86400}, {"in-memory", 0}, {NULL, 0}};
    const char *key = NULL;
    const json_t *options = server_field_object(f, "prompt_cache_options");
    const server_fields of_options = {options, f->problem, "prompt_cache_options."};
    server_field_text(f, "prompt_cache_key", &key);
    generation_retain(gen, f, "prompt_cache_retention", retentions);
    if (options && server_field(f, "prompt_cache_retention"))
        server_fail(f->problem, SERVER_INVALID, "prompt_cache_retention",
                    "'prompt_cache_retention' cannot be combined with 'prompt_cache_options': give "
                    "prompt_cache_options.ttl alone");
    if (!options) return;
    generation_known(gen, &of_options, known);
    check_mode(&of_options, true);
    generation_retain(gen, &of_options, "ttl", ttls);
}

void openai_parse_breakpoints(generation *gen, const json_t *content, const char *name, server_problem *p) {
    for (size_t i = 0; json_is_array(content) && i < json_array_size(content) && !p->kind; i++) {
        char prefix[128];
        snprintf(prefix, sizeof(prefix), "%.60s[%zu].prompt_cache_breakpoint.", name, i);
        const server_fields part = {json_array_get(content, i), p, ""};
        const server_fields f = {server_field_object(&part, "prompt_cache_breakpoint"), p, prefix};
        if (!f.object) continue;
        check_mode(&f, false);
        generation_retain(gen, &f, "ttl", ttls);
    }
}

void openai_parse_common(generation *gen, const server_fields *f) {
    rp_sampling *s = &gen->sampling;
    const json_t *stream_options = server_field_object(f, "stream_options");
    server_fields of_stream = {stream_options, f->problem, "stream_options."};
    gen->otherwise.temperature = 1; /* what the official API does with a request that does not say */
    server_field_text(f, "model", &gen->model);
    server_field_bool(f, "stream", &gen->stream);
    if (stream_options) server_field_bool(&of_stream, "include_usage", &gen->include_usage);
    generation_known(gen, &of_stream, "include_usage include_obfuscation");
    server_field_int(f, "n", 1, SERVER_MAX_CHOICES, &gen->n);
    server_field_int(f, "max_tokens", 0, INT32_MAX, &gen->max_tokens);
    server_field_real(f, "temperature", 0, 2, &s->temperature);
    server_field_real(f, "top_p", 0, 1, &s->top_p);
    server_field_real(f, "presence_penalty", -2, 2, &s->presence_penalty);
    server_field_real(f, "frequency_penalty", -2, 2, &s->frequency_penalty);
    if (s->presence_penalty != 0 || s->frequency_penalty != 0) s->repeat_last = -1;
    gen->has_seed = server_field_seed(f, "seed", &s->seed);
    generation_stops(gen, f, "stop");
    generation_bias(gen, f, "logit_bias");
    openai_parse_cache(gen, f, OPENAI_CACHE_FIELDS);
    server_field_int(f, "prompt_logprobs", 0, RP_MAX_LOGPROBS, &gen->n_prompt_logprobs);
    if (gen->n_prompt_logprobs >= 0 && gen->stream)
        server_fail(f->problem, SERVER_UNSUPPORTED, "prompt_logprobs",
                    "'prompt_logprobs' is not available in a stream: leave 'stream' out");
    generation_extras(gen, f);
}

static bool is_empty(const json_t *value) {
    return json_is_false(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

void openai_refuse(const server_fields *f, const char *const *names) {
    for (; *names; names++) {
        const json_t *value = server_field(f, *names);
        if (value && !is_empty(value))
            server_fail(f->problem, SERVER_UNSUPPORTED, *names, "'%s' is not supported yet: leave it out", *names);
    }
}

json_t *openai_usage(const server_request *x) {
    server_usage u = report_usage(x);
    return json_pack("{s:I, s:I, s:I, s:{s:I, s:I}, s:{s:I}, s:I, s:I}", "prompt_tokens", (json_int_t)u.prompt,
                     "completion_tokens", (json_int_t)u.answer, "total_tokens", (json_int_t)(u.prompt + u.answer),
                     "prompt_tokens_details", "cached_tokens", (json_int_t)u.cached, "cache_write_tokens",
                     (json_int_t)u.written, "completion_tokens_details", "reasoning_tokens", (json_int_t)u.reasoning,
                     "prompt_cache_hit_tokens", (json_int_t)u.cached, "prompt_cache_miss_tokens",
                     (json_int_t)(u.prompt - u.cached));
}

const char *openai_finish(const server_choice *c) {
    if (report_finish(c->result) != SERVER_FINISH_STOP) return "length";
    return c->finder.n_calls > 0 ? "tool_calls" : "stop";
}

int openai_done(server_request *x) { return server_request_done(x, NULL); }

int openai_fail(server_request *x, const server_problem *p) {
    return server_request_frame(x, NULL, server_problem_openai(p));
}

json_t *openai_token_text(const server_request *x, int32_t token) {
    size_t n = 0;
    const char *bytes = rp_token_bytes(x->model->model, token, true, &n);
    return base_json_string(bytes, bytes ? n : 0);
}

json_t *openai_token_bytes(const server_request *x, int32_t token) {
    size_t n = 0;
    const char *bytes = rp_token_bytes(x->model->model, token, true, &n);
    json_t *list = json_array();
    for (size_t i = 0; bytes && i < n && list; i++)
        if (json_array_append_new(list, json_integer((unsigned char)bytes[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}
