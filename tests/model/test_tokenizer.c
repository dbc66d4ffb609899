/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer.c: the vectors of llama.cpp's own tests for real vocabularies, every line; special tokens; round
   trips; composing. */
#define _DEFAULT_SOURCE /* strsep */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/memory.h"
#include "model/tokenizer/tokenizer_internal.h"
#include "support/tiny_model.h"
#include "support/tiny_random.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

static int expect_ids(const char *line, const token_list *l) {
    char *end;
    size_t n = 0;
    for (;; n++) {
        long id = strtol(line, &end, 10);
        if (end == line) break;
        if (n >= l->n || l->ids[n] != id) return 0;
        line = end;
    }
    return n == l->n;
}

static int check_vectors(const tokenizer *t, char *inputs, char *outputs) {
    int n = 0;
    for (char *next; inputs; inputs = next, n++) {
        char *line = strsep(&outputs, "\n");
        token_list l = {0};
        next = strstr(inputs, SEPARATOR);
        if (next) {
            *next = '\0';
            next += strlen(SEPARATOR);
        }
        assert_non_null(line);
        assert_int_equal(
            tokenizer_encode(t, inputs, strlen(inputs), (tokenizer_options){.space_prefix = true}, &l, NULL), RP_OK);
        if (!expect_ids(line, &l)) fail_msg("vector %d: '%s' does not give %s", n, inputs, line);
        token_list_free(&l);
    }
    return n;
}

static void run_vectors(const char *name) {
    const char *data = getenv("REPRISE_TEST_DATA");
    char path[512], input_path[520], output_path[520];
    base_buffer inputs = {0}, outputs = {0};
    gguf_file *f;
    tokenizer *t;
    rp_error err = {0};
    if (!data || !*data) {
        printf("skipped: REPRISE_TEST_DATA is not set\n");
        skip();
    }
    snprintf(path, sizeof(path), "%s/vocab/ggml-vocab-%s.gguf", data, name);
    snprintf(input_path, sizeof(input_path), "%s.inp", path);
    snprintf(output_path, sizeof(output_path), "%s.out", path);
    assert_int_equal(gguf_open(&f, path, &err), RP_OK);
    assert_int_equal(tokenizer_new(&t, f, &err), RP_OK);
    assert_int_equal(base_file_read(input_path, 1 << 20, &inputs, &err), RP_OK);
    assert_int_equal(base_file_read(output_path, 1 << 20, &outputs, &err), RP_OK);
    printf("%s: %d vectors\n", name, check_vectors(t, inputs.data, outputs.data));
    base_buffer_free(&inputs);
    base_buffer_free(&outputs);
    tokenizer_free(t);
    gguf_close(f);
}

static void vectors_of_gpt_2(void **state) {
    (void)state;
    run_vectors("gpt-2");
}
static void vectors_of_llama_spm(void **state) {
    (void)state;
    run_vectors("llama-spm");
}
static void vectors_of_phi_3(void **state) {
    (void)state;
    run_vectors("phi-3");
}
static void vectors_of_falcon(void **state) {
    (void)state;
    run_vectors("falcon");
}

/* ---- small vocabularies ---- */

typedef struct vocabulary {
    uint8_t *image;
    gguf_file *file;
    tokenizer *t;
} vocabulary;

static vocabulary open_vocabulary(tiny_vocab_kind kind, const char *pre) {
    static const char *const control[] = {"<|im_start|>", "<|im_end|>", NULL};
    tiny_model_shape shape = tiny_model_defaults();
    vocabulary v = {0};
    size_t bytes;
    shape.vocab = kind;
    shape.pre = pre;
    shape.control = control;
    assert_int_equal(tiny_model_write_memory(&v.image, &bytes, &shape, NULL), RP_OK);
    assert_int_equal(gguf_open_memory(&v.file, v.image, bytes, "tiny", NULL), RP_OK);
    assert_int_equal(tokenizer_new(&v.t, v.file, NULL), RP_OK);
    return v;
}

static void close_vocabulary(vocabulary *v) {
    tokenizer_free(v->t);
    gguf_close(v->file);
    base_free(v->image);
}

static const tiny_vocab_kind kinds[] = {TINY_VOCAB_SPM, TINY_VOCAB_BPE, TINY_VOCAB_UNIGRAM};

static void special_tokens_need_trust(void **state) {
    (void)state;
    for (size_t kind = 0; kind < BASE_ARRAY_LEN(kinds); kind++) {
        vocabulary v = open_vocabulary(kinds[kind], NULL);
        int32_t start = tokenizer_find(v.t, "<|im_start|>", 12);
        const char text[] = "<|im_start|>user";
        assert_true(start >= 0);
        for (int trusted = 0; trusted < 2; trusted++) {
            token_list l = {0};
            tokenizer_options o = {.parse_special = trusted != 0};
            assert_int_equal(tokenizer_encode(v.t, text, sizeof(text) - 1, o, &l, NULL), RP_OK);
            assert_int_equal(l.ids[0] == start, trusted);
            token_list_free(&l);
        }
        size_t n;
        assert_string_equal(tokenizer_bytes(v.t, start, false, &n), "");
        assert_string_equal(tokenizer_bytes(v.t, start, true, &n), "<|im_start|>");
        assert_true(tokenizer_is_end(v.t, tokenizer_find(v.t, "<|im_end|>", 10)));
        assert_false(tokenizer_is_end(v.t, start));
        assert_null(tokenizer_bytes(v.t, -1, false, &n));
        assert_null(tokenizer_bytes(v.t, tokenizer_n_vocab(v.t), false, &n));
        close_vocabulary(&v);
    }
}

/* A file may mark its end-of-text token as user-defined (Phi-3's does): if any text could contain it, a user could end
 * a turn. */
static void users_cannot_write_ends(void **state) {
    (void)state;
    const char *data = getenv("REPRISE_TEST_DATA");
    char path[512];
    gguf_file *f;
    tokenizer *t;
    token_list l = {0};
    if (!data || !*data) {
        printf("skipped: REPRISE_TEST_DATA is not set\n");
        skip();
    }
    snprintf(path, sizeof(path), "%s/vocab/ggml-vocab-phi-3.gguf", data);
    assert_int_equal(gguf_open(&f, path, NULL), RP_OK);
    assert_int_equal(tokenizer_new(&t, f, NULL), RP_OK);
    int32_t end = tokenizer_find(t, "</s>", 4);
    assert_int_equal(tokenizer_encode(t, "a</s>b", 6, (tokenizer_options){0}, &l, NULL), RP_OK);
    for (size_t i = 0; i < l.n; i++) assert_int_not_equal(l.ids[i], end);
    l.n = 0;
    assert_int_equal(tokenizer_encode(t, "a</s>b", 6, (tokenizer_options){.parse_special = true}, &l, NULL), RP_OK);
    assert_int_equal(l.ids[1], end);
    assert_true(tokenizer_is_end(t, end));
    token_list_free(&l);
    tokenizer_free(t);
    gguf_close(f);
}

static void ends_of_turns_are_known(void **state) {
    (void)state;
    static const struct {
        const char *control[5];
        const char *ends[4];
        const char *goes_on;
    } cases[] = {
        {{"<|eot_id|>", "<|start_header_id|>", NULL}, {"<|eot_id|>", NULL}, "<|start_header_id|>"},
        {{"<end_of_turn>", "<start_of_turn>", NULL}, {"<end_of_turn>", NULL}, "<start_of_turn>"},
        {{"<|end|>", "<|user|>", NULL}, {"<|end|>", NULL}, "<|user|>"},
        {{"<|end|>", "<|return|>", "<|call|>", "<|start|>", NULL},
         {"<|return|>", "<|call|>", NULL},
         "<|end|>"}, /* harmony */
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        tiny_model_shape shape = tiny_model_defaults();
        vocabulary v = {0};
        size_t bytes;
        shape.control = cases[i].control;
        assert_int_equal(tiny_model_write_memory(&v.image, &bytes, &shape, NULL), RP_OK);
        assert_int_equal(gguf_open_memory(&v.file, v.image, bytes, "tiny", NULL), RP_OK);
        assert_int_equal(tokenizer_new(&v.t, v.file, NULL), RP_OK);
        for (size_t k = 0; cases[i].ends[k]; k++)
            assert_true(tokenizer_is_end(v.t, tokenizer_find(v.t, cases[i].ends[k], strlen(cases[i].ends[k]))));
        assert_false(tokenizer_is_end(v.t, tokenizer_find(v.t, cases[i].goes_on, strlen(cases[i].goes_on))));
        assert_true(tokenizer_is_end(v.t, tokenizer_eos(v.t)));
        close_vocabulary(&v);
    }
}

/* The tokens of a text decode to the text; normalized, if the vocabulary normalizes. */
static void round_trip(const tokenizer *t, const char *text, size_t n) {
    token_list l = {0};
    base_buffer composed = BASE_BUFFER(1 << 24);
    size_t at = 0;
    assert_int_equal(tokenizer_encode(t, text, n, (tokenizer_options){0}, &l, NULL), RP_OK);
    if (t->pre && t->pre->nfc) {
        assert_int_equal(nfc_append(&composed, text, n), RP_OK);
        text = composed.data;
        n = composed.len;
    }
    for (size_t i = 0; i < l.n; i++) {
        size_t k;
        const char *bytes = tokenizer_bytes(t, l.ids[i], true, &k);
        assert_true(at + k <= n && memcmp(bytes, text + at, k) == 0);
        at += k;
    }
    assert_int_equal(at, n);
    token_list_free(&l);
    base_buffer_free(&composed);
}

/* Every kind, and every row of the table of pre-tokenizers. */
static const struct {
    tiny_vocab_kind kind;
    const char *pre;
} every[] = {
    {TINY_VOCAB_SPM, NULL},
    {TINY_VOCAB_UNIGRAM, NULL},
    {TINY_VOCAB_BPE, "gpt-2"},
    {TINY_VOCAB_BPE, "mpt"},
    {TINY_VOCAB_BPE, "llama-bpe"},
    {TINY_VOCAB_BPE, "dbrx"},
    {TINY_VOCAB_BPE, "qwen2"},
    {TINY_VOCAB_BPE, "grok-2"},
    {TINY_VOCAB_BPE, "qwen35"},
    {TINY_VOCAB_BPE, "gpt-4o"},
    {TINY_VOCAB_BPE, "tekken"},
    {TINY_VOCAB_BPE, "smollm"},
    {TINY_VOCAB_BPE, "command-r"},
    {TINY_VOCAB_BPE, "falcon"},
    {TINY_VOCAB_BPE, "bloom"},
    {TINY_VOCAB_BPE, "viking"},
    {TINY_VOCAB_BPE, "deepseek-llm"},
    {TINY_VOCAB_BPE, "deepseek-coder"},
    {TINY_VOCAB_BPE, "deepseek-v3"},
    {TINY_VOCAB_BPE, "default"},
};

static void any_bytes_come_back(void **state) {
    (void)state;
    static const char *const hard[] = {"",
                                       " ",
                                       "\n\n \t",
                                       "a\xff\xfe\x80z",
                                       "\xf0\x9f\xa6\x99\xcc\x81 e\xcc\x81",
                                       "\xe2\x96",
                                       "\r\n\r\n  x",
                                       "1234567 3.14",
                                       "'LL 'll I'VE",
                                       "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e  \xd9\x85\xd8\xb1"};
    tiny_random r = {20260102};
    for (size_t p = 0; p < BASE_ARRAY_LEN(every); p++) {
        vocabulary v = open_vocabulary(every[p].kind, every[p].pre);
        for (size_t i = 0; i < sizeof(hard) / sizeof(hard[0]); i++) round_trip(v.t, hard[i], strlen(hard[i]));
        for (int i = 0; i < 300; i++) {
            char text[64];
            size_t n = (size_t)tiny_random_below(&r, sizeof(text));
            for (size_t k = 0; k < n; k++)
                do text[k] = (char)tiny_random_u64(&r);
                while (text[k] == '\x81'); /* no stand-in for a space by chance */
            round_trip(v.t, text, n);
        }
        close_vocabulary(&v);
    }
}

/* Random characters of every plane, with many marks and Hangul: whole, and cut anywhere. */
static void difficult_unicode_comes_back(void **state) {
    (void)state;
    static const struct {
        unsigned low, high;
    } ranges[] = {
        {0x20, 0x7e},
        {0x300, 0x36f},
        {0xa0, 0x24f},
        {0x1100, 0x11ff},
        {0xac00, 0xd7a3},
        {0x900, 0x97f},
        {0x2000, 0x206f},
        {0x1f300, 0x1f9ff},
        {0xe000, 0x10ffff},
        {0x4e00, 0x9fff},
        {0x1f00, 0x1fff},
        {0x9, 0xd},
    };
    tiny_random r = {20260105};
    for (size_t p = 0; p < BASE_ARRAY_LEN(every); p++) {
        vocabulary v = open_vocabulary(every[p].kind, every[p].pre);
        for (int i = 0; i < 300; i++) {
            char text[256];
            size_t n = 0, cut = (size_t)tiny_random_below(&r, 4);
            while (n < 200) {
                size_t which = (size_t)tiny_random_below(&r, BASE_ARRAY_LEN(ranges));
                unsigned c =
                    ranges[which].low + (unsigned)tiny_random_below(&r, ranges[which].high - ranges[which].low + 1);
                if ((c >= 0xd800 && c <= 0xdfff) || c == 0x2581) continue;
                size_t k = c < 0x80 ? 1 : c < 0x800 ? 2
                                      : c < 0x10000 ? 3
                                                    : 4;
                for (size_t b = k; b-- > 1; c >>= 6) text[n + b] = (char)(0x80 | (c & 0x3f));
                text[n] = (char)(k == 1 ? c : (k == 2 ? 0xc0u : k == 3 ? 0xe0u
                                                                       : 0xf0u) |
                                                  c);
                n += k;
            }
            round_trip(v.t, text, n - cut);
        }
        close_vocabulary(&v);
    }
}

/* Unicode's own examples (UAX #15) and typical errors of composition: order of marks, Hangul, exclusions, singletons,
 * blocked marks. */
static void text_is_composed(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"e\xcc\x81", "\xc3\xa9"},
        {"a\xcc\x83\xcc\xa3", "\xe1\xba\xa1\xcc\x83"},            /* the mark below comes first */
        {"\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81"}, /* L V T */
        {"\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x81"},             /* LV T */
        {"\xe2\x84\xab", "\xc3\x85"},                             /* U+212B */
        {"\xe2\x84\xa6", "\xce\xa9"},                             /* U+2126 */
        {"\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"},             /* U+0958 is excluded from composition */
        {"\xef\xac\x81 \xc2\xbd", "\xef\xac\x81 \xc2\xbd"},       /* compatibility is not touched */
        {"a\xcc\x95\xcc\x80\xd6\xae\xcc\x80"
         "b",
         "\xc3\xa0\xd6\xae\xcc\x80\xcc\x95"
         "b"}, /* NormalizationTest.txt */
        {"\xff"
         "e\xcc\x81\xcc",
         "\xff\xc3\xa9\xcc"}, /* bytes that are no UTF-8 stay */
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        base_buffer out = BASE_BUFFER(1 << 10);
        assert_int_equal(nfc_append(&out, cases[i][0], strlen(cases[i][0])), RP_OK);
        assert_string_equal(out.data, cases[i][1]);
        if (nfc_is_plain(cases[i][0], strlen(cases[i][0]))) assert_string_equal(cases[i][0], cases[i][1]);
        base_buffer_free(&out);
    }
}

/* Letters without a space are one word: merging must not be quadratic. The time limit of the test is the check. */
static void a_megabyte_without_spaces_is_tokenized(void **state) {
    (void)state;
    size_t n = 1 << 20;
    char *text = malloc(n);
    for (size_t i = 0; i < n; i++) text[i] = (char)('a' + i * i % 7);
    for (size_t kind = 0; kind < BASE_ARRAY_LEN(kinds); kind++) {
        vocabulary v = open_vocabulary(kinds[kind], NULL);
        round_trip(v.t, text, n);
        close_vocabulary(&v);
    }
    free(text);
}

/* A megabyte of marks in the wrong order would take hours to sort as one. The time limit is the check. */
static void a_megabyte_of_marks_is_composed(void **state) {
    (void)state;
    size_t n = 1 << 20;
    char *text = malloc(n);
    for (size_t i = 0; i < n; i += 2) memcpy(text + i, i % 4 ? "\xcc\xa3" : "\xcc\x83", 2);
    vocabulary v = open_vocabulary(TINY_VOCAB_BPE, "qwen2");
    round_trip(v.t, text, n);
    close_vocabulary(&v);
    free(text);
}

static void failed_allocations_are_clean(void **state) {
    (void)state;
    for (size_t kind = 0; kind < BASE_ARRAY_LEN(kinds); kind++) {
        vocabulary v = open_vocabulary(kinds[kind], kinds[kind] == TINY_VOCAB_BPE ? "qwen2" : NULL);
        for (uint64_t i = 1, failed = 1; failed; i++) {
            tokenizer *t = NULL;
            token_list l = {0};
            rp_error err = {0};
            base_alloc_fail_at(i, 0);
            int rc = tokenizer_new(&t, v.file, &err);
            if (!rc)
                rc = tokenizer_encode(t, "He\xcc\x81llo 123 world", 17, (tokenizer_options){.space_prefix = true}, &l,
                                      &err);
            base_alloc_fail_at(0, 0);
            failed = rc != 0;
            if (rc) assert_int_equal(err.code, RP_ERR_MEMORY);
            if (rc) assert_int_equal(l.n, 0);
            token_list_free(&l);
            tokenizer_free(t);
        }
        close_vocabulary(&v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_gpt_2),
        cmocka_unit_test(vectors_of_llama_spm),
        cmocka_unit_test(vectors_of_phi_3),
        cmocka_unit_test(vectors_of_falcon),
        cmocka_unit_test(special_tokens_need_trust),
        cmocka_unit_test(ends_of_turns_are_known),
        cmocka_unit_test(users_cannot_write_ends),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(difficult_unicode_comes_back),
        cmocka_unit_test(text_is_composed),
        cmocka_unit_test(a_megabyte_without_spaces_is_tokenized),
        cmocka_unit_test(a_megabyte_of_marks_is_composed),
        cmocka_unit_test(failed_allocations_are_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
