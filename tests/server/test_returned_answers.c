/* SPDX-License-Identifier: Apache-2.0 */
/* test_returned_answers.c: conversations with tool calls and reasoning in templates that are hard to continue: no
 * answer_form prompt after the result of a tool, messages that end without an end-of-turn token, a answer_form prompt
 * that earlier turns do not have. Each turn hits all that the turn before has computed, but for reasoning that the
 * template drops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "structured/answer_meaning.h"
#include "support/tiny_model.h"
#include "reprise_chat.h"
#include "support/experiments.h"
#include "reprise_test.h"

static tool_spec tools[] = {{.name = "f", .place = "f"}};

/* ---- templates, as published, without definitions of tools ---- */

static const char mistral[] =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}"
    "{% elif m.role == 'tool' %}{{ '[TOOL_RESULTS] {\"content\": ' + m.content|tojson + ', \"call_id\": \"' + "
    "m.tool_call_id }}"
    "{{ '\"}[/TOOL_RESULTS]' }}"
    "{% elif m.tool_calls %}{{ '[TOOL_CALLS] [' }}{% for c in m.tool_calls %}{{ '{\"name\": \"' + c.function.name + "
    "'\", \"arguments\": ' + "
    "c.function.arguments|tojson + ', \"id\": \"' + c.id + '\"}' }}{% if not loop.last %}{{ ', ' }}{% endif %}{% "
    "endfor %}{{ ']' + eos_token }}"
    "{% else %}{{ ' ' + m.content|trim + eos_token }}{% endif %}{% endfor %}";

static const char harmony[] =
    "{% for m in messages %}{% if m.role == 'assistant' and m.tool_calls %}"
    "{% if m.reasoning_content %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.reasoning_content + "
    "'<|end|>' }}{% endif %}"
    "{{ '<|start|>assistant to=functions.' + m.tool_calls[0].function.name + '<|channel|>commentary json<|message|>' }}"
    "{{ m.tool_calls[0].function.arguments|tojson + '<|call|>' }}"
    "{% elif m.role == 'assistant' %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}"
    "{% elif m.role == 'tool' %}{{ '<|start|>functions.f to=assistant<|channel|>commentary<|message|>' + m.content + "
    "'<|end|>' }}"
    "{% else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}";

static const char qwen[] =
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% "
    "endif %}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}"
    "{% if loop.index0 > ns.last %}{{ '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{% endif %}{{ "
    "m.content }}"
    "{% for c in m.tool_calls or [] %}{{ '\\n<tool_call>\\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' + "
    "c.function.arguments|tojson + "
    "'}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}"
    "{% else %}{{ '<|im_start|>' + ('user' if m.role == 'tool' else m.role) + '\\n' + m.content + '<|im_end|>\\n' }}{% "
    "endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '\\n</think>\\n\\n' }}{% endif %}{% endif %}";

static const char *const mistral_tokens[] = {"[INST]", "[/INST]", "[TOOL_CALLS]",
                                             "[TOOL_RESULTS]", "[/TOOL_RESULTS]", NULL};
static const char *const harmony_tokens[] = {"<|start|>", "<|end|>", "<|message|>", "<|channel|>",
                                             "<|constrain|>", "<|return|>", "<|call|>", NULL};
static const char *const qwen_tokens[] = {"<|im_start|>", "<|im_end|>", "<think>", "</think>",
                                          "<tool_call>", "</tool_call>", NULL};

/* ---- conversations ---- */

/* What the model writes, what the client makes of it, and what follows; the prompt after it hits all of it if
   `hits`. */
typedef struct turn {
    const char *sampled, *message, *next, *next_content;
    bool hits;
} turn;

typedef struct talk {
    const char *family, *chat_template, *const *control, *variables;
    const turn *turns;
    size_t n_turns;
} talk;

#define RETURNED(arguments) "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"Well.\", " \
                            "\"tool_calls\": [{\"id\": \"changed00\", \"type\": \"function\", " \
                            "\"function\": {\"name\": \"f\", \"arguments\": " arguments "}}]}"
#define SAID "{\"role\": \"assistant\", \"content\": \"Yes.\"}"
#define RESULT "{\"role\": \"tool\", \"name\": \"f\", \"tool_call_id\": \"changed00\", \"content\": \"sun\"}", "sun"
#define ASKED(content) "{\"role\": \"user\", \"content\": \"" content "\"}", content

static const turn mistral_turns[] = {
    {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\":1, \"b\":2}}]", RETURNED("{\"b\": 2, \"a\": 1}"), RESULT,
     true},
    {"[TOOL_CALLS] [{\"name\":\"f\",\"arguments\":{}}]", RETURNED("{}"), RESULT, true},
    {"Yes.", SAID, ASKED("And now?"), true},
};

static const turn harmony_turns[] = {
    {"<|channel|>analysis<|message|>Well.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>{\"a\":1}",
     RETURNED("{\"a\": 1.0}"), RESULT, true},
    {"<|channel|>final<|message|>Yes.", SAID, ASKED("And now?"), true},
    {"<|channel|>final<|message|>Yes.", SAID, ASKED("And then?"), true},
};

static const turn reasoning_turns[] = {
    {"Well.\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>",
     RETURNED("{\"a\": 1}"), RESULT, true},
    {"</think>Yes.", SAID, ASKED("And now?"), false}, /* the template drops what was reasoned */
};

static const turn plain_turns[] = {
    {"Yes.", SAID, ASKED("And now?"), true},
    {" Yes.", SAID, ASKED("And then?"), true},
    {"Yes. ", SAID, ASKED("And when?"), true},
};

#define TURNS(list) list, BASE_ARRAY_LEN(list)
static const talk talks[] = {
    {"mistral", mistral, mistral_tokens, "", TURNS(mistral_turns)},
    {"harmony", harmony, harmony_tokens, "", TURNS(harmony_turns)},
    {"hermes", qwen, qwen_tokens, "", TURNS(reasoning_turns)},
    {"hermes", qwen, qwen_tokens, "\"enable_thinking\": false, ", TURNS(plain_turns)},
};

static bool on_meaning(void *user, const char *opening, const char *text, size_t n, uint8_t meaning[RP_MEANING_BYTES]) {
    return answer_meaning(user, opening, text, n, meaning);
}

/* Renders and answers. contents: of all messages that have one; they end turns. */
static rp_result *answer(rp_engine *engine, const rp_model *model, const talk *t, answer_form *gen,
                         const char *messages, const char *const *contents, int32_t n_contents, const char *sampled) {
    rp_template_text *text = NULL;
    rp_rendered_turn turns[16];
    int32_t *forced;
    size_t n_forced;
    rp_error err;
    base_buffer json = BASE_BUFFER(1 << 16);
    assert_int_equal(
        base_buffer_printf(&json, "{%s\"messages\": [%s], \"add_generation_prompt\": true}", t->variables, messages),
        0);
    if (rp_model_render(model, json.data, json.len, NULL, &text, &err)) fail_msg("%s: %s", t->family, err.message);
    const char *at = text->bytes;
    for (int32_t i = 0; i < n_contents; i++) {
        at = strstr(at, contents[i]);
        assert_non_null(at);
        at += strlen(contents[i]);
        turns[i] = (rp_rendered_turn){(size_t)(at - text->bytes), RP_ROLE_USER};
    }
    assert_int_equal(rp_tokenize(model, sampled, strlen(sampled), true, false, &forced, &n_forced, NULL), 0);
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_rendered(text, turns, n_contents);
    const rp_request_experiment experiment = experiment_forced(forced, (int32_t)n_forced);
    q.experiment = &experiment;
    q.max_tokens = (int32_t)n_forced;
    q.special_text = true;
    q.on_meaning = on_meaning;
    q.user = gen;
    rp_result *r = tiny_model_answer(engine, &q);
    assert_string_equal(r->text, sampled);
    rp_free(forced);
    rp_template_text_free(text);
    base_buffer_free(&json);
    return r;
}

static void hold(const talk *t) {
    tiny_model_shape shape = tiny_model_defaults();
    answer_form gen = {.tools = tools,
                       .n_tools = 1,
                       .convention = tool_convention_detect(t->chat_template, strlen(t->chat_template), NULL)};
    const char *contents[16] = {"Why?"};
    int32_t n_contents = 1, computed = 0;
    base_buffer messages = BASE_BUFFER(1 << 16);
    rp_engine *engine;
    bool hits = true;
    assert_string_equal(gen.convention.family->name, t->family);
    shape.n_ctx = 1024;
    shape.vocab = TINY_VOCAB_BPE;
    shape.chat_template = t->chat_template;
    shape.control = t->control;
    rp_model *model = tiny_model_open(&shape, NULL);
    assert_int_equal(rp_engine_new(&engine, model, NULL, NULL), RP_OK);
    assert_int_equal(base_buffer_append_str(&messages, "{\"role\": \"user\", \"content\": \"Why?\"}"), 0);
    for (size_t i = 0; i <= t->n_turns; i++) {
        const turn *now = i < t->n_turns ? &t->turns[i] : NULL;
        rp_result *r = answer(engine, model, t, &gen, messages.data, contents, n_contents, now ? now->sampled : "x");
        if ((r->cached_tokens >= computed) != hits)
            fail_msg("%s%s, turn %zu: %d of %d tokens were cached; '%s' was '%s'", t->family, t->variables, i,
                     (int)r->cached_tokens, (int)computed, r->mismatch.prompt, r->mismatch.cached);
        computed = r->prompt_tokens + r->n_tokens - 1;
        rp_result_free(r);
        if (!now) break;
        assert_int_equal(base_buffer_printf(&messages, ", %s, %s", now->message, now->next), 0);
        if (strcmp(now->message, SAID) == 0) contents[n_contents++] = "Yes.";
        contents[n_contents++] = now->next_content;
        hits = now->hits;
    }
    rp_engine_free(engine);
    rp_model_close(model);
    base_buffer_free(&messages);
}

static void each_turn_hits_the_one_before(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(talks); i++) hold(&talks[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_turn_hits_the_one_before)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
