/* SPDX-License-Identifier: Apache-2.0 */
/* test_chat_format.c: a whole conversation in every chat format, and the detection of formats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "model/chat_format.h"
#include "support/tiny_model.h"

static void render(const char *name, char *out) {
    static const struct {
        chat_role role;
        const char *text;
    } messages[] = {{CHAT_SYSTEM, "S"}, {CHAT_USER, "U1"}, {CHAT_ASSISTANT, "A1"}, {CHAT_USER, "U2"}};
    const chat_format *f = chat_format_find(name);
    int previous = CHAT_ROLE_NONE;
    if (!f) fail_msg("no format %s", name);
    assert_string_equal(chat_format_name(f), name);
    out[0] = '\0';
    for (size_t i = 0; i < 4; i++) {
        chat_text around = chat_format_around(f, messages[i].role, previous);
        strcat(strcat(strcat(out, around.before), messages[i].text), around.after);
        previous = (int)messages[i].role;
    }
    strcat(out, chat_format_answer(f, previous));
}

static void conversations_are_written_as_the_models_know_them(void **state) {
    (void)state;
    static const char *const expected[][2] = {
        {"chatml",
         "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n"
         "<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n"},
        {"phi-4", "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>U1<|im_end|><|im_start|>assistant<|"
                  "im_sep|>A1<|im_end|>"
                  "<|im_start|>user<|im_sep|>U2<|im_end|><|im_start|>assistant<|im_sep|>"},
        {"llama-2", "[INST] <<SYS>>\nS\n<</SYS>>\n\nU1 [/INST] A1 </s><s>[INST] U2 [/INST]"},
        {"llama-3",
         "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU1<|eot_"
         "id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU2"
         "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"llama-4",
         "<|header_start|>system<|header_end|>\n\nS<|eot|><|header_start|>user<|header_end|>\n\nU1<|eot|>"
         "<|header_start|>assistant<|header_end|>\n\nA1<|eot|><|header_start|>user<|header_end|>\n\nU2<|eot|>"
         "<|header_start|>assistant<|header_end|>\n\n"},
        {"mistral", "[INST] S\n\nU1 [/INST]A1</s>[INST] U2 [/INST]"},
        {"mistral-v1", " [INST] S\n\nU1 [/INST] A1</s> [INST] U2 [/INST]"},
        {"mistral-v3", "[INST] S\n\nU1[/INST] A1</s>[INST] U2[/INST]"},
        {"mistral-v3-tekken", "[INST]S\n\nU1[/INST]A1</s>[INST]U2[/INST]"},
        {"mistral-v7", "[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] U1[/INST] A1</s>[INST] U2[/INST]"},
        {"mistral-v7-tekken", "[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]U1[/INST]A1</s>[INST]U2[/INST]"},
        {"zephyr", "<|system|>\nS</s>\n<|user|>\nU1</s>\n<|assistant|>\nA1</s>\n<|user|>\nU2</s>\n<|assistant|>\n"},
        {"stablelm", "<|system|>\nS<|endoftext|>\n<|user|>\nU1<|endoftext|>\n<|assistant|>\nA1<|endoftext|>\n<|user|>"
                     "\nU2<|endoftext|>\n"
                     "<|assistant|>\n"},
        {"olmo-2", "<|system|>\nS\n<|user|>\nU1\n<|assistant|>\nA1<|endoftext|>\n<|user|>\nU2\n<|assistant|>\n"},
        {"falcon-3", "<|system|>\nS\n<|user|>\nU1\n<|assistant|>\nA1<|endoftext|>\n<|user|>\nU2\n<|assistant|>\n"},
        {"tulu-2", "<|system|>\nS\n<|user|>\nU1\n<|assistant|>\nA1</s>\n<|user|>\nU2\n<|assistant|>\n"},
        {"tulu-3", "<|system|>\nS\n<|user|>\nU1\n<|assistant|>\nA1<|end_of_text|>\n<|user|>\nU2\n<|assistant|>\n"},
        {"gemma",
         "<start_of_turn>user\nS\n\nU1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n<start_of_turn>user\nU2"
         "<end_of_turn>\n<start_of_turn>model\n"},
        {"gpt-oss",
         "<|start|>developer<|message|># Instructions\n\nS\n\n<|end|><|start|>user<|message|>U1<|end|>"
         "<|start|>assistant<|channel|>final<|message|>A1<|end|><|start|>user<|message|>U2<|end|><|start|>assistant"},
        {"phi-3",
         "<|system|>\nS<|end|>\n<|user|>\nU1<|end|>\n<|assistant|>\nA1<|end|>\n<|user|>\nU2<|end|>\n<|assistant|>\n"},
        {"phi-4-mini", "<|system|>S<|end|><|user|>U1<|end|><|assistant|>A1<|end|><|user|>U2<|end|><|assistant|>"},
        {"granite", "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>U1<|"
                    "end_of_text|>\n"
                    "<|start_of_role|>assistant<|end_of_role|>A1<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>"
                    "U2<|end_of_text|>\n"
                    "<|start_of_role|>assistant<|end_of_role|>"},
        {"command-r",
         "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>U1<|END_OF_"
         "TURN_TOKEN|>"
         "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A1<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>U2"
         "<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"},
        {"deepseek-3",
         "S<\uFF5CUser\uFF5C>U1<\uFF5CAssistant\uFF5C>A1<\uFF5Cend\u2581of\u2581sentence\uFF5C><\uFF5CUser\uFF5C>U2"
         "<\uFF5CAssistant\uFF5C>"},
        {"deepseek-2", "S\n\nUser: U1\n\nAssistant: A1<\uFF5Cend\u2581of\u2581sentence\uFF5C>User: U2\n\nAssistant:"},
        {"deepseek-coder", "S### Instruction:\nU1\n### Response:\nA1\n<|EOT|>\n### Instruction:\nU2\n### Response:\n"},
        {"vicuna", "S USER: U1 ASSISTANT: A1</s>USER: U2 ASSISTANT:"},
        {"plain", "S\nU1\nA1\nU2\n"},
    };
    char out[1024];
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        render(expected[i][0], out);
        assert_string_equal(out, expected[i][1]);
    }
    int n = 0;
    while (chat_format_at(n)) n++;
    assert_int_equal(n, sizeof(expected) / sizeof(expected[0])); /* none is left out */
    assert_null(chat_format_find("telegram"));
}

static void expect_format(const tiny_model_shape *shape, const char *name, bool guessed) {
    gguf_file *f;
    tokenizer *t;
    uint8_t *image;
    size_t bytes;
    bool got = !guessed;
    assert_int_equal(tiny_model_write_memory(&image, &bytes, shape, NULL), RP_OK);
    assert_int_equal(gguf_open_memory(&f, image, bytes, "tiny", NULL), RP_OK);
    assert_int_equal(tokenizer_new(&t, f, NULL), RP_OK);
    assert_string_equal(chat_format_name(chat_format_detect(f, t, &got)), name);
    assert_int_equal(got, guessed);
    tokenizer_free(t);
    gguf_close(f);
    base_free(image);
}

static void formats_are_recognised(void **state) {
    (void)state;
    static const struct {
        const char *template, *control, *name;
        bool guessed;
    } cases[] = {
        /* excerpts of published templates */
        {"{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}", NULL, "chatml",
         false},
        {"{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}", NULL, "phi-4", false},
        {"'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'", NULL, "llama-3", false},
        {"'<|header_start|>assistant<|header_end|>\n\n'", NULL, "llama-4", false},
        {"'[INST] <<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n'", NULL, "llama-2", false},
        {"{{ '[INST] ' + message['content'] + ' [/INST]' }}", NULL, "mistral", false},
        {"{{- ' [INST] ' + message['content'] + ' [/INST]' }}", NULL, "mistral-v1", false},
        {"\"[AVAILABLE_TOOLS] [\" {{- \"[INST] \" + message[\"content\"] + \"[/INST]\" }}", NULL, "mistral-v3", false},
        {"\"[AVAILABLE_TOOLS][\" {{- \"[INST]\" + message[\"content\"] + \"[/INST]\" }}", NULL, "mistral-v3-tekken",
         false},
        {"{{ '[SYSTEM_PROMPT] ' + message['content'] + '[/SYSTEM_PROMPT]' }}{{ '[INST] ' + m }}", NULL, "mistral-v7",
         false},
        {"{{- '[SYSTEM_PROMPT]' + message['content'] + '[/SYSTEM_PROMPT]' }}{{ '[INST]' + m }}", NULL,
         "mistral-v7-tekken", false},
        {"{{ '<start_of_turn>' + role + '\n' }}", NULL, "gemma", false},
        {"{{- \"<|start|>developer<|message|>\" }}{{ \"<|channel|>analysis\" }}<|end|>", NULL, "gpt-oss", false},
        {"{{'<|user|>' + m + '<|end|>'}}", NULL, "phi-3", false},
        {"'<|' + message['role'] + '|>' + '\n' + message['content'] + '<|end|>\n' '<|assistant|>\n'", NULL, "phi-3",
         false},
        {"'<|tool|>' + tools + '<|/tool|>' + '<|end|>' }}{{ '<|assistant|>' }}", NULL, "phi-4-mini", false},
        {"{{- '<|start_of_role|>user<|end_of_role|>' + message['content'] + '<|end_of_text|>\n' }}", NULL, "granite",
         false},
        {"'<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>'", NULL, "command-r",
         false},
        {"'<\uFF5CUser\uFF5C>' + message['content'] '<\uFF5CAssistant\uFF5C>'", NULL, "deepseek-3", false},
        {"{{ 'User: ' + message['content'] + '\n\n' }}{{ 'Assistant: ' + message['content'] + eos_token }}", NULL,
         "deepseek-2", false},
        {"{{'### Instruction:\n'}} '### Response:\n' '\n<|EOT|>\n'", NULL, "deepseek-coder", false},
        {"{{ '<|user|>\n' + message['content'] + eos_token }}", NULL, "zephyr", false},
        {"{{ '<|user|>\n' + m + '\n' }}{% if not loop.last %}", NULL, "tulu-2", false},
        {"You are a Falcon assistant '<|user|>\n' {%- if not loop.last %}", NULL, "falcon-3", false},
        {"{{-'USER: ' + message['content'] + '\n'-}}{{-'ASSISTANT: ' + message['content'] -}}", NULL, "vicuna", false},
        /* no known template: by the vocabulary, or none */
        {"{{ m.content }}", NULL, "plain", true},
        {"{{ m.content }}", "<|im_start|>", "chatml", true},
        {NULL, "<|im_start|>", "chatml", false},
        {NULL, "<start_of_turn>", "gemma", false},
        {NULL, "<|channel|>", "gpt-oss", false},
        {NULL, NULL, "plain", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tiny_model_shape shape = tiny_model_defaults();
        const char *control[] = {cases[i].control, NULL};
        shape.chat_template = cases[i].template;
        shape.control = control;
        expect_format(&shape, cases[i].name, cases[i].guessed);
    }
}

/* Templates that name the end-of-text token by its role only. */
static void formats_differ_by_the_end_of_text(void **state) {
    (void)state;
    static const char *const zephyr = "{{ '<|user|>\n' + message['content'] + eos_token }}";
    static const char *const tulu = "{{ '<|user|>\n' + message['content'] + '\n' }}{% if not loop.last %}";
    tiny_model_shape shape = tiny_model_defaults();
    shape.vocab = TINY_VOCAB_BPE; /* ends with <|endoftext|> */
    shape.chat_template = zephyr;
    expect_format(&shape, "stablelm", false);
    shape.chat_template = tulu;
    expect_format(&shape, "olmo-2", false);
}

/* A published file, not a template of ours. */
static void a_published_file_is_recognised(void **state) {
    (void)state;
    const char *data = getenv("REPRISE_TEST_DATA");
    char path[512];
    gguf_file *f;
    tokenizer *t;
    if (!data || !*data) {
        printf("skipped: REPRISE_TEST_DATA is not set\n");
        skip();
    }
    snprintf(path, sizeof(path), "%s/vocab/ggml-vocab-phi-3.gguf", data);
    assert_int_equal(gguf_open(&f, path, NULL), RP_OK);
    assert_int_equal(tokenizer_new(&t, f, NULL), RP_OK);
    assert_true(gguf_has(f, "tokenizer.chat_template"));
    assert_string_equal(chat_format_name(chat_format_detect(f, t, NULL)), "phi-3");
    tokenizer_free(t);
    gguf_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_are_written_as_the_models_know_them),
        cmocka_unit_test(formats_are_recognised),
        cmocka_unit_test(formats_differ_by_the_end_of_text),
        cmocka_unit_test(a_published_file_is_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
