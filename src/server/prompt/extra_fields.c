/* SPDX-License-Identifier: Apache-2.0 */
/* extra_fields.c: the fields that every dialect has besides its own: Reprise's, llama.cpp's, and vLLM's (guided.h).
 * Uses the record and its parsers (generation.h). Owns no state. Any thread. */
#include <string.h>

#include "server/prompt/generation.h"
#include "server/prompt/guided.h"

/* ---- reasoning ---- */

/* vLLM's and OpenAI's names. Templates have enable_thinking (Qwen, GLM) or thinking (DeepSeek, Granite). */
static void parse_thinking(generation *gen, const server_fields *f) {
    static const char *const names[] = {"enable_thinking", "thinking"};
    const char *effort = NULL;
    bool on = false, included = true;
    gen->template_kwargs = server_field_object(f, "chat_template_kwargs");
    server_field_bool(f, names[0], &on);
    if (server_field(f, names[0])) generation_set_thinking(gen, on);
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        const json_t *value = json_object_get(gen->template_kwargs, names[i]);
        if (json_is_boolean(value)) generation_set_thinking(gen, json_is_true(value));
    }
    server_field_text(f, "reasoning_effort", &effort);
    if (effort && !f->problem->kind) generation_set_effort(gen, effort, "reasoning_effort", f->problem);
    server_field_bool(f, "include_reasoning", &included);
    gen->hides_reasoning |= !included;
    server_field_bool(f, "stop_in_reasoning", &gen->stop_in_reasoning);
}

/* ---- form, quality, reuse ---- */

#define MODULAR (RP_REUSE_AUTO + 1)
#define READ (RP_REUSE_AUTO + 2)

void generation_extras(generation *gen, const server_fields *f) {
    static const char *const reuses[] = {"on", "off", "exact",
                                         "auto", "modular", "read"}; /* in the order of rp_reuse, and two more */
    const char *reuse = reuses[0], *truncation = "disabled", *grammar = NULL, *quality = NULL;
    rp_error err;
    rp_sampling *s = &gen->sampling;
    generation_top_k(gen, f, "top_k");
    server_field_real(f, "min_p", 0, 1, &s->min_p);
    server_field_real(f, "typical_p", 0, 1, &s->typical);
    server_field_real(f, "repeat_penalty", 0.01, 100, &s->repeat_penalty);
    server_field_int(f, "repeat_last_n", -1, INT32_MAX, &s->repeat_last);
    server_field_bool(f, "ignore_eos", &gen->ignore_eos);
    server_field_int(f, "priority", -1000, 1000, &gen->priority);
    server_field_int(f, "deadline_ms", 0, INT32_MAX, &gen->deadline_ms);
    server_field_int(f, "n_draft", RP_DRAFT_AUTO, RP_MAX_DRAFT, &gen->n_draft);
    server_field_int(f, "shifted_reuse", -1, INT32_MAX, &gen->shifted_reuse);
    gen->names_shifted = server_field(f, "shifted_reuse") != NULL;
    server_field_text(f, "kv_keep", &gen->kv_keep);
    server_field_text(f, "kv_method", &gen->kv_method);
    server_field_int(f, "kept_shares", 0, RP_MAX_KEPT_SHARES, &gen->n_kept_shares);
    server_field_text(f, "truncation", &truncation);
    gen->truncates = strcmp(truncation, "auto") == 0;
    if (!gen->truncates && strcmp(truncation, "disabled") != 0)
        server_fail(f->problem, SERVER_INVALID, "truncation", "'truncation' is '%.40s': give auto or disabled",
                    truncation);
    server_field_bool(f, "context_shift", &gen->context_shift);
    server_field_text(f, "cache_salt", &gen->cache_salt);
    gen->lora = server_field_array(f, "lora");
    server_field_text(f, "grammar", &grammar);
    server_field_text(f, "grammar_trigger", &gen->grammar_trigger);
    if (grammar && grammar[0]) gen->grammar = grammar; /* an empty one is none, as in llama.cpp's server */
    guided_parse(gen, f);
    server_field_text(f, "quality", &quality);
    if (quality && rp_quality_parse(quality, &gen->quality, &err))
        server_fail(f->problem, SERVER_INVALID, "quality", "%s", err.message);
    parse_thinking(gen, f);
    server_field_text(f, "reuse", &reuse);
    const int32_t n = (int32_t)BASE_ARRAY_LEN(reuses);
    for (gen->reuse = 0; gen->reuse < n && strcmp(reuse, reuses[gen->reuse]) != 0;) gen->reuse++;
    if (gen->reuse == n)
        server_fail(f->problem, SERVER_INVALID, "reuse",
                    "'reuse' is '%.40s': give on, off, exact, auto, modular or read", reuse);
    gen->names_reuse = server_field(f, "reuse") != NULL;
    gen->modular = gen->reuse == MODULAR;
    gen->adds_nothing = gen->reuse == READ;
    if (gen->modular || gen->adds_nothing)
        gen->reuse = RP_REUSE_ON; /* of the modules that conversation_prompt.h makes */
}
