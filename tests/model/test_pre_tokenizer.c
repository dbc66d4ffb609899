/* SPDX-License-Identifier: Apache-2.0 */
/* test_pre_tokenizer.c: the splits of every pre-tokenizer: against Hugging Face's tokenizers (tests/golden/vocab, made
 * in the lab), against splits made by hand, and by all of its names. */
#define _DEFAULT_SOURCE /* strsep */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "model/gguf/gguf_writer.h"
#include "model/tokenizer/tokenizer_internal.h"
#include "support/vector_file.h"

typedef struct vocabulary {
    char name[32];
    uint8_t *image;
    gguf_file *file;
    tokenizer *t;
} vocabulary;

static int open_pre(vocabulary *v, const char *name, rp_error *err) {
    static const char *const tokens[] = {"a"}, *const merges[] = {"a a"};
    gguf_writer *w = gguf_writer_new(3, 0);
    size_t bytes;
    snprintf(v->name, sizeof v->name, "%s", name);
    gguf_writer_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_string(w, "tokenizer.ggml.pre", name);
    gguf_writer_strings(w, "tokenizer.ggml.tokens", tokens, 1);
    gguf_writer_strings(w, "tokenizer.ggml.merges", merges, 1);
    assert_int_equal(gguf_writer_save_memory(w, &v->image, &bytes, NULL), RP_OK);
    gguf_writer_free(w);
    assert_int_equal(gguf_open_memory(&v->file, v->image, bytes, "made", NULL), RP_OK);
    return tokenizer_new(&v->t, v->file, err);
}

static void close_pre(vocabulary *v) {
    tokenizer_free(v->t);
    gguf_close(v->file);
    base_free(v->image);
    *v = (vocabulary){0};
}

/* ---- cutting ---- */

/* The words, each followed by a unit separator. */
static int add_word(void *user, const char *text, size_t n) {
    assert_true(n > 0);
    return base_buffer_append(user, text, n) || base_buffer_append(user, "\x1f", 1) ? RP_ERR_MEMORY : RP_OK;
}

static char *cuts_of(const tokenizer *t, const char *text, size_t n) {
    base_buffer composed = BASE_BUFFER(1 << 16), cuts = BASE_BUFFER(1 << 16);
    if (t->pre->nfc) assert_int_equal(nfc_append(&composed, text, n), RP_OK);
    assert_int_equal(pre_cut(t, t->pre->nfc ? composed.data : text, t->pre->nfc ? composed.len : n, add_word, &cuts),
                     RP_OK);
    base_buffer_free(&composed);
    return base_buffer_take(&cuts);
}

static char *expected_cuts(char *list) {
    base_buffer cuts = BASE_BUFFER(1 << 16);
    for (char *word; (word = strsep(&list, "|"));) {
        size_t n = vector_unescape(word);
        assert_int_equal(add_word(&cuts, word, n), RP_OK);
    }
    return base_buffer_take(&cuts);
}

static void compare(const char *where, int line, const tokenizer *t, const char *text, size_t n, char *list) {
    char *got = cuts_of(t, text, n), *expected = expected_cuts(list);
    if (strcmp(got, expected) != 0)
        fail_msg("%s:%d: '%s' is cut into '%s', expected '%s'", where, line, text, got, expected);
    base_free(got);
    base_free(expected);
}

static void compare_line(void *user, vector_case *c) {
    vocabulary *v = user;
    if (strcmp(v->name, c->fields[0]) != 0) {
        close_pre(v);
        assert_int_equal(open_pre(v, c->fields[0], NULL), RP_OK);
    }
    size_t n = vector_unescape(c->fields[1]);
    compare("pre_tokenizers.txt", c->line, v->t, c->fields[1], n, c->fields[2]);
}

static void cuts_are_those_of_the_published_tokenizers(void **state) {
    (void)state;
    vocabulary v = {0};
    int n = vector_file_each("vocab/pre_tokenizers.txt", 3, compare_line, &v);
    close_pre(&v);
    printf("%d vectors\n", n);
    assert_true(n > 500);
}

/* From the patterns' definitions: the shortest texts that distinguish them. */
static void cuts_by_hand(void **state) {
    (void)state;
    static const struct {
        const char *pre, *text, *cuts;
    } cases[] = {
        /* numbers: as one, three at a time, one by one; from the left */
        {"gpt-2", " 12345", " 12345"},
        {"llama-bpe", " 12345", " |123|45"},
        {"qwen2", " 12", " |1|2"},
        {"starcoder", " 12", " |1|2"},
        {"falcon", " 12345", " |123|45"},
        {"gpt-4o", "12345", "123|45"},
        {"tekken", "123", "1|2|3"},
        {"bloom", "12345", "12345"},
        {"viking", "a12", "a|1|2"},
        {"deepseek-v3", "1234", "123|4"},
        {"deepseek-llm", "12", "1|2"},
        {"default", " 1234", " |123|4"},
        /* contractions: small only, any case, at the word's end */
        {"gpt-2", "I'm I'M", "I|'m| I|'|M"},
        {"llama-bpe", "I'm I'M", "I|'m| I|'M"},
        {"gpt-4o", "I'm I'M", "I'm| I'M"},
        {"tekken", "I'm", "I|'m"},
        {"deepseek-v3", "I'm", "I|'m"},
        {"bloom", "I'm,", "I'm|,"},
        /* capitals begin a word */
        {"gpt-4o", "camelCase HTTPServer", "camel|Case| HTTPServer"},
        {"llama-bpe", "camelCase", "camelCase"},
        {"tekken", "aB", "a|B"},
        {"kimi-k2", "camelCase I'm 1234", "camel|Case| I'm| |123|4"},
        {"kimi-k2", "a/\n/", "a|/\\n|/"},
        /* marks belong to letters, or not */
        {"qwen2", "x\xcc\xb8y", "x|\xcc\xb8y"},
        {"qwen35", "x\xcc\xb8y", "x\xcc\xb8y"},
        {"gpt-2", "x\xcc\xb8y", "x|\xcc\xb8|y"},
        /* composed first, or not */
        {"qwen2", "e\xcc\x81", "\xc3\xa9"},
        {"mpt", "e\xcc\x81", "\xc3\xa9"},
        {"gpt-2", "e\xcc\x81", "e|\xcc\x81"},
        /* spaces and lines */
        {"gpt-2", "a  b\n\nc", "a| | b|\\n|\\n|c"},
        {"llama-bpe", "a  b\n\nc", "a| | b|\\n\\n|c"},
        {"deepseek-coder", "a\r\nb", "a|\\r|\\n|b"},
        {"bloom", "a  b, c", "a| | b|,| c"},
        {"llama-bpe", "!\n\n x", "!\\n\\n| x"},
        {"gpt-4o", "a/\n/", "a|/\\n/"},
        /* Chinese and Japanese apart from the rest */
        {"deepseek-v3", "a\xe6\x97\xa5"
                        "b",
         "a|\xe6\x97\xa5|b"},
        {"kimi-k2", "a\xe6\x97\xa5"
                    "b",
         "a|\xe6\x97\xa5|b"},
        {"deepseek-llm", "a\xe6\x97\xa5"
                         "b",
         "a|\xe6\x97\xa5|b"},
        {"llama-bpe", "a\xe6\x97\xa5"
                      "b",
         "a\xe6\x97\xa5"
         "b"},
        /* punctuation */
        {"falcon", "a`b", "a|`|b"},
        {"default", "a`b", "a|`|b"},
        {"falcon", "x =+= y", "x| |=+=| y"},
        {"deepseek-llm", " \n  1  ", " |\\n|  |1|  "},
        {"deepseek-v3", "-foo", "-foo"},
        /* U+180E is no white space */
        {"gpt-2", "a\xe1\xa0\x8e", "a|\xe1\xa0\x8e"},
        {"llama-bpe", " \xe1\xa0\x8e", " \xe1\xa0\x8e"},
        /* bytes that are no UTF-8 are words of their own */
        {"gpt-2", "a\xff\xfe b", "a|\xff\xfe| b"},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        vocabulary v = {0};
        char list[128];
        assert_int_equal(open_pre(&v, cases[i].pre, NULL), RP_OK);
        snprintf(list, sizeof list, "%s", cases[i].cuts);
        compare(cases[i].pre, (int)i, v.t, cases[i].text, strlen(cases[i].text), list);
        close_pre(&v);
    }
}

/* ---- names ---- */

static void names_that_share_a_row_agree(void **state) {
    (void)state;
    static const char *const names[] = {
        "llama3 llama-bpe", "llama-v3 llama-bpe", "falcon3 llama-bpe", "llama4 gpt-4o",
        "phi-2 gpt-2", "olmo mpt", "stablelm2 qwen2", "deepseek-r1-qwen qwen2",
        "refact starcoder", "smollm starcoder", "poro-chat bloom"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        char both[64], *second;
        vocabulary a = {0}, b = {0};
        snprintf(both, sizeof both, "%s", names[i]);
        second = strchr(both, ' ');
        *second++ = '\0';
        assert_int_equal(open_pre(&a, both, NULL), RP_OK);
        assert_int_equal(open_pre(&b, second, NULL), RP_OK);
        assert_ptr_equal(a.t->pre, b.t->pre);
        close_pre(&a);
        close_pre(&b);
    }
}

static void words_that_are_tokens_are_taken_whole(void **state) {
    (void)state;
    static const char *const whole[] = {"llama-bpe", "tekken"}, *const merged[] = {"gpt-2", "gpt-4o", "qwen2", "dbrx"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(whole) + BASE_ARRAY_LEN(merged); i++) {
        vocabulary v = {0};
        bool expected = i < BASE_ARRAY_LEN(whole);
        assert_int_equal(open_pre(&v, expected ? whole[i] : merged[i - BASE_ARRAY_LEN(whole)], NULL), RP_OK);
        assert_int_equal(v.t->pre->ignore_merges, expected);
        assert_int_equal(tokenizer_adds_bos(v.t), expected);
        close_pre(&v);
    }
}

/* ---- long texts ---- */

static int count_bytes(void *user, const char *text, size_t n) {
    (void)text;
    *(size_t *)user += n;
    return RP_OK;
}

/* A run of n bytes, then text that ends it. */
static size_t fill_run(char *out, size_t n, const char *unit, const char *end) {
    size_t k = strlen(unit);
    for (size_t i = 0; i < n; i++) out[i] = unit[i % k];
    memcpy(out + n / k * k, end, strlen(end));
    return n / k * k + strlen(end);
}

/* No pattern retries a run from each of its characters: that would reach the limit of the matcher. */
static void long_runs_take_linear_time(void **state) {
    (void)state;
    static const char *const pres[] = {"gpt-2", "llama-bpe", "qwen35", "gpt-4o", "kimi-k2", "tekken",
                                       "starcoder", "falcon", "bloom", "viking", "deepseek-llm",
                                       "deepseek-coder", "deepseek-v3", "default"};
    static const char *const units[] = {" ", "\n", " \n", "A", "aB", "\xcc\x81",
                                        "'", "1", "\xe6\x97\xa5", "\xff", "!", "\xc2\xa0"};
    static const char *const ends[] = {"", "1", "\xe6\x97\xa5", "a", "\n"};
    enum { RUN = 1 << 16 };
    char *text = base_alloc(RUN + 8);
    for (size_t p = 0; p < BASE_ARRAY_LEN(pres); p++) {
        vocabulary v = {0};
        assert_int_equal(open_pre(&v, pres[p], NULL), RP_OK);
        for (size_t u = 0; u < BASE_ARRAY_LEN(units) * BASE_ARRAY_LEN(ends); u++) {
            size_t n = fill_run(text, RUN, units[u / BASE_ARRAY_LEN(ends)], ends[u % BASE_ARRAY_LEN(ends)]), seen = 0;
            assert_int_equal(pre_cut(v.t, text, n, count_bytes, &seen), RP_OK);
            assert_int_equal(seen, n);
        }
        close_pre(&v);
    }
    base_free(text);
}

static void unknown_names_are_reported(void **state) {
    (void)state;
    static const char *const unknown[] = {"klingon", "", "gpt-2 phi-2", "gpt", "gpt-22", " "};
    for (size_t i = 0; i < BASE_ARRAY_LEN(unknown); i++) {
        vocabulary v = {0};
        rp_error err = {0};
        assert_int_equal(open_pre(&v, unknown[i], &err), RP_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, "supported: gpt-2, mpt, llama-bpe"));
        /* the list is not cut off */
        assert_non_null(strstr(err.message, "deepseek-v3, seed-coder, bailingmoe, exaone-moe, afmoe, default)"));
        close_pre(&v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_are_those_of_the_published_tokenizers),
        cmocka_unit_test(cuts_by_hand),
        cmocka_unit_test(names_that_share_a_row_agree),
        cmocka_unit_test(words_that_are_tokens_are_taken_whole),
        cmocka_unit_test(unknown_names_are_reported),
        cmocka_unit_test(long_runs_take_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
