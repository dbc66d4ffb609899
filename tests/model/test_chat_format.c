/* test_chat_format.c: a conversation in every format, whole, and how a format is recognised. */
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
    assert_non_null(f);
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
        {"chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n"
                   "<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n"},
        {"llama-2", "[INST] <<SYS>>\nS\n<</SYS>>\n\nU1 [/INST] A1 </s><s>[INST] U2 [/INST] "},
        {"llama-3", "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU1<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU2"
                    "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"mistral", "[INST] S\n\nU1 [/INST] A1</s>[INST] U2 [/INST] "},
        {"zephyr", "<|system|>\nS</s>\n<|user|>\nU1</s>\n<|assistant|>\nA1</s>\n<|user|>\nU2</s>\n<|assistant|>\n"},
        {"gemma", "<start_of_turn>user\nS\n\nU1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n<start_of_turn>user\nU2"
                  "<end_of_turn>\n<start_of_turn>model\n"},
        {"phi-3", "<|system|>\nS<|end|>\n<|user|>\nU1<|end|>\n<|assistant|>\nA1<|end|>\n<|user|>\nU2<|end|>\n<|assistant|>\n"},
        {"plain", "S\nU1\nA1\nU2\n"},
    };
    char out[1024];
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        render(expected[i][0], out);
        assert_string_equal(out, expected[i][1]);
    }
    assert_int_equal(sizeof(expected) / sizeof(expected[0]), 8);
    assert_non_null(chat_format_at(7));
    assert_null(chat_format_at(8));
    assert_null(chat_format_find("telegram"));
}

static void formats_are_recognised(void **state) {
    (void)state;
    static const struct {
        const char *template, *control, *name;
    } cases[] = {
        {"{{'<|im_start|>' + role}}", NULL, "chatml"},
        {"<|start_header_id|>{{role}}", NULL, "llama-3"},
        {"[INST] <<SYS>>", NULL, "llama-2"},
        {"{{ '[INST] ' + m }}", NULL, "mistral"},
        {"<start_of_turn>", NULL, "gemma"},
        {"{{'<|user|>' + m + '<|end|>'}}", NULL, "phi-3"},
        {"{{'<|user|>' + m + eos_token}}", NULL, "zephyr"},
        {"{{ m.content }}", NULL, "plain"},
        {NULL, "<|im_start|>", "chatml"},
        {NULL, "<start_of_turn>", "gemma"},
        {NULL, NULL, "plain"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tiny_model_shape shape = tiny_model_defaults();
        const char *control[] = {cases[i].control, NULL};
        gguf_file *f;
        tokenizer *t;
        uint8_t *image;
        size_t bytes;
        shape.chat_template = cases[i].template;
        shape.control = control;
        assert_int_equal(tiny_model_write_memory(&image, &bytes, &shape, NULL), RP_OK);
        assert_int_equal(gguf_open_memory(&f, image, bytes, "tiny", NULL), RP_OK);
        assert_int_equal(tokenizer_new(&t, f, NULL), RP_OK);
        assert_string_equal(chat_format_name(chat_format_detect(f, t)), cases[i].name);
        tokenizer_free(t);
        gguf_close(f);
        base_free(image);
    }
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
    assert_string_equal(chat_format_name(chat_format_detect(f, t)), "phi-3");
    tokenizer_free(t);
    gguf_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_are_written_as_the_models_know_them),
        cmocka_unit_test(formats_are_recognised),
        cmocka_unit_test(a_published_file_is_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
