/* SPDX-License-Identifier: Apache-2.0 */
/* test_wordpiece.c: WordPiece vocabularies against Hugging Face's tokenizers (tests/golden/vocab, made in the lab), and
 * the special tokens around texts for embeddings. */
#define _DEFAULT_SOURCE /* strsep */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "model/gguf/gguf_writer.h"
#include "model/tokenizer/tokenizer_internal.h"
#include "support/vector_file.h"

#define UNK 2 /* as tools/golden/embeddings.py numbers them */
#define CLS 3
#define SEP 4

typedef struct vocabulary {
    gguf_file *file;
    tokenizer *t;
} vocabulary;

static void open_vocabulary(vocabulary *v, const char *name) {
    rp_error err = {0};
    assert_int_equal(gguf_open(&v->file, vector_path(name), &err), RP_OK);
    assert_int_equal(tokenizer_new(&v->t, v->file, &err), RP_OK);
}

static void close_vocabulary(vocabulary *v) {
    tokenizer_free(v->t);
    gguf_close(v->file);
}

static void compare_line(void *user, vector_case *c) {
    const tokenizer *t = user;
    token_list l = {0};
    size_t n = vector_unescape(c->fields[0]), i = 0;
    assert_int_equal(tokenizer_encode(t, c->fields[0], n, (tokenizer_options){.space_prefix = true}, &l, NULL), RP_OK);
    for (char *id; (id = strsep(&c->fields[1], "|")) && *id; i++)
        if (i >= l.n || l.ids[i] != atoi(id))
            fail_msg("line %d: '%s': token %zu is %d, expected %s", c->line, c->fields[0], i,
                     i < l.n ? (int)l.ids[i] : -1, id);
    if (i != l.n) fail_msg("line %d: '%s' gives %zu tokens, expected %zu", c->line, c->fields[0], l.n, i);
    token_list_free(&l);
}

static void compare_vocabulary(const char *name, const char *vectors, bool has_case) {
    vocabulary v;
    open_vocabulary(&v, name);
    assert_int_equal(v.t->has_case, has_case);
    int n = vector_file_each(vectors, 2, compare_line, v.t);
    printf("%s: %d vectors\n", vectors, n);
    assert_true(n > 50);
    close_vocabulary(&v);
}

static void texts_become_the_published_tokens(void **state) {
    (void)state;
    compare_vocabulary("vocab/wordpiece.gguf", "vocab/wordpiece.txt", false);
}

static void texts_with_case_become_the_published_tokens(void **state) {
    (void)state;
    compare_vocabulary("vocab/wordpiece-cased.gguf", "vocab/wordpiece-cased.txt", true);
}

/* ---- texts for embeddings ---- */

static void expect_embedding(const tokenizer *t, const char *text, const char *second, size_t most, const int32_t *ids,
                             size_t n) {
    token_list l = {0};
    size_t n_second = second ? strlen(second) : 0;
    assert_int_equal(tokenizer_encode_embedding(t, text, strlen(text), second, n_second, most, &l, NULL), RP_OK);
    assert_int_equal(l.n, n);
    assert_memory_equal(l.ids, ids, n * sizeof(*ids));
    token_list_free(&l);
}

static void embeddings_get_special_tokens(void **state) {
    (void)state;
    vocabulary v;
    open_vocabulary(&v, "vocab/wordpiece.gguf");
    const int32_t the = tokenizer_find(v.t, "\xe2\x96\x81the", 6), sea = tokenizer_find(v.t, "\xe2\x96\x81"
                                                                                             "sea",
                                                                                        6);
    assert_true(the > SEP && sea > SEP && the != sea);
    expect_embedding(v.t, "The sea", NULL, 0, (int32_t[]){CLS, the, sea, SEP}, 4);
    expect_embedding(v.t, "the", "SEA", 0, (int32_t[]){CLS, the, SEP, sea, SEP}, 5);
    expect_embedding(v.t, "", NULL, 0, (int32_t[]){CLS, SEP}, 2);
    expect_embedding(v.t, "the", "", 0, (int32_t[]){CLS, the, SEP, SEP}, 4);
    expect_embedding(v.t, "the sea the sea", NULL, 4, (int32_t[]){CLS, the, sea, SEP},
                     4); /* cut before its last token */
    expect_embedding(v.t, "the", "sea sea sea", 5, (int32_t[]){CLS, the, SEP, sea, SEP}, 5);
    token_list l = {0};
    rp_error err = {0};
    assert_int_equal(tokenizer_encode_embedding(v.t, "the the the", 11, "sea", 3, 5, &l, &err), RP_ERR_LENGTH);
    assert_non_null(strstr(err.message, "query"));
    token_list_free(&l);
    close_vocabulary(&v);
}

/* XLM-RoBERTa's, whose file says that both ends get a token. */
static void sentencepiece_pairs_have_two_separators(void **state) {
    (void)state;
    static const char *const texts[] = {"<s>", "<pad>", "</s>", "<unk>", "\xe2\x96\x81"
                                                                         "a",
                                        "\xe2\x96\x81"
                                        "b"};
    static const float scores[] = {0, 0, 0, 0, -1, -1};
    static const int32_t types[] = {TOKEN_CONTROL, TOKEN_CONTROL, TOKEN_CONTROL,
                                    TOKEN_UNKNOWN, TOKEN_NORMAL, TOKEN_NORMAL};
    gguf_writer *w = gguf_writer_new(3, 0);
    uint8_t *image;
    size_t bytes;
    vocabulary v;
    gguf_writer_string(w, "general.architecture", "bert");
    gguf_writer_string(w, "tokenizer.ggml.model", "t5");
    gguf_writer_strings(w, "tokenizer.ggml.tokens", texts, 6);
    gguf_writer_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, 6);
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, 6);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 0);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_writer_u32(w, "tokenizer.ggml.seperator_token_id", 2);
    gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 3);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", true);
    gguf_writer_bool(w, "tokenizer.ggml.add_eos_token", true);
    assert_int_equal(gguf_writer_save_memory(w, &image, &bytes, NULL), RP_OK);
    gguf_writer_free(w);
    assert_int_equal(gguf_open_memory(&v.file, image, bytes, "made", NULL), RP_OK);
    assert_int_equal(tokenizer_new(&v.t, v.file, NULL), RP_OK);
    expect_embedding(v.t, "a b", NULL, 0, (int32_t[]){0, 4, 5, 2}, 4);
    expect_embedding(v.t, "a", "b a", 0, (int32_t[]){0, 4, 2, 2, 5, 4, 2}, 7);
    expect_embedding(v.t, "a", "b a", 6, (int32_t[]){0, 4, 2, 2, 5, 2}, 6);
    close_vocabulary(&v);
    base_free(image);
}

/* Names of control tokens in a text are its punctuation and words. */
static void no_text_becomes_a_control_token(void **state) {
    (void)state;
    static const char text[] = "[CLS] the [SEP] [UNK] [PAD] [MASK]";
    vocabulary v;
    token_list l = {0};
    open_vocabulary(&v, "vocab/wordpiece.gguf");
    assert_int_equal(tokenizer_encode_embedding(v.t, text, strlen(text), NULL, 0, 0, &l, NULL), RP_OK);
    for (size_t i = 1; i + 1 < l.n; i++) assert_true(l.ids[i] > SEP + 1 || l.ids[i] == UNK);
    token_list_free(&l);
    close_vocabulary(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_become_the_published_tokens),
        cmocka_unit_test(texts_with_case_become_the_published_tokens),
        cmocka_unit_test(embeddings_get_special_tokens),
        cmocka_unit_test(sentencepiece_pairs_have_two_separators),
        cmocka_unit_test(no_text_becomes_a_control_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
