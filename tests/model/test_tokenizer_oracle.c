/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_oracle.c: merging against the naive quadratic algorithm, unigram segmentation against all
 * segmentations, the patterns' splits against splits made by hand, and corrupt vocabularies. REPRISE_TEST_SEED draws
 * other random texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "model/tokenizer/tokenizer.h"
#include "model/gguf/gguf_writer.h"
#include "support/seed.h"
#include "support/tiny_random.h"

/* ---- a vocabulary over the letters a to d ---- */

#define N_PIECES 10
static const char *const pieces[N_PIECES] = {"ab", "cd", "bc", "aa", "abcd", "aab", "da", "dab", "cdcd", "bcd"};
static const char *const merges[N_PIECES] = {"a b", "c d", "b c", "a a", "ab cd",
                                             "a ab", "d a", "d ab", "cd cd", "b cd"};
static const char *const letters[4] = {"a", "b", "c", "d"};

typedef enum family { BPE,
                      SPM,
                      UNIGRAM } family;

typedef enum damage {
    NO_DAMAGE,
    NO_MODEL,
    OTHER_MODEL,
    NO_TOKENS,
    TOKENS_ARE_NUMBERS,
    EMPTY_TOKENS,
    SHORT_TYPES,
    SHORT_SCORES,
    NO_SCORES,
    SCORES_ARE_IDS,
    SCORE_IS_NAN,
    NO_MERGES,
    MERGE_WITHOUT_SPACE,
    OTHER_PRE,
    IDS_OUT_OF_RANGE
} damage;

typedef struct vocabulary {
    uint8_t *image;
    gguf_file *file;
    tokenizer *t;
} vocabulary;

static void write_attributes(gguf_writer *w, family k, damage d, int n) {
    float scores[4 + N_PIECES] = {0};
    int32_t types[4 + N_PIECES];
    for (int i = 0; i < n; i++) types[i] = 1;
    for (int i = 0; i < n; i++) scores[i] = i >= 4 ? (float)(4 - i) : k == UNIGRAM ? -7.5f
                                                                                   : 0.0f;
    if (d == SCORE_IS_NAN) memset(&scores[5], 0xff, sizeof(scores[5]));
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, (size_t)(d == SHORT_TYPES ? n - 1 : n));
    if (k == BPE || d == NO_SCORES) return;
    gguf_writer_array(w, "tokenizer.ggml.scores", d == SCORES_ARE_IDS ? GGUF_I32 : GGUF_F32, scores,
                      (size_t)(d == SHORT_SCORES ? n - 1 : n));
}

static gguf_writer *write_vocabulary(family k, damage d) {
    static const char *const models[] = {[BPE] = "gpt2", [SPM] = "llama", [UNIGRAM] = "t5"};
    const char *tokens[4 + N_PIECES], *lines[N_PIECES];
    int n = 4 + N_PIECES;
    gguf_writer *w = gguf_writer_new(3, 0);
    memcpy(tokens, letters, sizeof(letters));
    memcpy(tokens + 4, pieces, sizeof(pieces));
    memcpy(lines, merges, sizeof(merges));
    if (d == MERGE_WITHOUT_SPACE) lines[3] = "aa";
    if (d != NO_MODEL) gguf_writer_string(w, "tokenizer.ggml.model", d == OTHER_MODEL ? "rwkv" : models[k]);
    if (d == TOKENS_ARE_NUMBERS) gguf_writer_array(w, "tokenizer.ggml.tokens", GGUF_I32, (int32_t[]){1, 2}, 2);
    else if (d != NO_TOKENS)
        gguf_writer_strings(w, "tokenizer.ggml.tokens", tokens, (size_t)(d == EMPTY_TOKENS ? 0 : n));
    write_attributes(w, k, d, n);
    if (d == IDS_OUT_OF_RANGE)
        gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1000),
            gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", UINT32_MAX);
    if (k != BPE) return w;
    gguf_writer_string(w, "tokenizer.ggml.pre", d == OTHER_PRE ? "klingon" : "gpt-2");
    if (d != NO_MERGES) gguf_writer_strings(w, "tokenizer.ggml.merges", lines, N_PIECES);
    return w;
}

static int open_written(vocabulary *v, gguf_writer *w, rp_error *err) {
    size_t bytes;
    *v = (vocabulary){0};
    assert_int_equal(gguf_writer_save_memory(w, &v->image, &bytes, NULL), RP_OK);
    gguf_writer_free(w);
    assert_int_equal(gguf_open_memory(&v->file, v->image, bytes, "made", NULL), RP_OK);
    return tokenizer_new(&v->t, v->file, err);
}

static void close_vocabulary(vocabulary *v) {
    tokenizer_free(v->t);
    gguf_close(v->file);
    base_free(v->image);
}

/* ---- the oracle ---- */

/* Both families prefer the pieces in the order of the list. SPM merges any two neighbours that together are a piece;
 * BPE only the two that the merge names. */
static int priority_of(bool spm, const char *left, const char *right) {
    char both[1100]; /* two neighbours of the longest text */
    snprintf(both, sizeof(both), spm ? "%s%s" : "%s %s", left, right);
    for (int i = 0; i < N_PIECES; i++)
        if (strcmp(both, (spm ? pieces : merges)[i]) == 0) return i;
    return N_PIECES;
}

static size_t naive_merge(bool spm, char (*part)[8], size_t n) {
    for (;;) {
        size_t best = 0;
        int best_priority = N_PIECES;
        for (size_t i = 0; i + 1 < n; i++) {
            int p = priority_of(spm, part[i], part[i + 1]);
            if (p < best_priority) best = i, best_priority = p;
        }
        if (best_priority == N_PIECES) return n;
        size_t used = strlen(part[best]);
        memcpy(part[best] + used, part[best + 1], strlen(part[best + 1]) + 1);
        memmove(part + best + 1, part + best + 2, (n - best - 2) * sizeof(*part));
        n--;
    }
}

static void compare_one(bool spm, const tokenizer *t, const char *text, size_t n) {
    char part[64][8] = {{0}};
    token_list l = {0};
    for (size_t i = 0; i < n; i++) part[i][0] = text[i];
    size_t expected = naive_merge(spm, part, n);
    assert_int_equal(tokenizer_encode(t, text, n, (tokenizer_options){0}, &l, NULL), RP_OK);
    assert_int_equal(l.n, expected);
    for (size_t i = 0; i < expected; i++) assert_int_equal(l.ids[i], tokenizer_find(t, part[i], strlen(part[i])));
    token_list_free(&l);
}

static void merging_is_what_the_quadratic_way_gives(void **state) {
    (void)state;
    tiny_random r = {test_seed("tokenizer_oracle", 20260103)};
    for (int spm = 0; spm < 2; spm++) {
        vocabulary v;
        assert_int_equal(open_written(&v, write_vocabulary(spm ? SPM : BPE, NO_DAMAGE), NULL), RP_OK);
        for (int i = 0; i < 4000; i++) {
            char text[64];
            size_t n = 1 + (size_t)tiny_random_below(&r, 63);
            for (size_t k = 0; k < n; k++) text[k] = "abcd"[tiny_random_below(&r, 4)];
            compare_one(spm != 0, v.t, text, n);
        }
        close_vocabulary(&v);
    }
}

/* ---- words that come again ---- */

/* Tokens of words in a long text are those of each word alone. Most come again, some have no room in the memory, and
   several share a place of it. */
static void long_texts_are_their_words(void **state) {
    enum { WORDS = 20000,
           WORD_BYTES = 24 };
    (void)state;
    tiny_random r = {test_seed("tokenizer_words", 20261126)};
    const tokenizer_options plain = {0};
    base_buffer text = BASE_BUFFER((size_t)WORDS * WORD_BYTES);
    token_list whole = {0}, parts = {0};
    vocabulary v;
    assert_int_equal(open_written(&v, write_vocabulary(BPE, NO_DAMAGE), NULL), RP_OK);
    for (int i = 0; i < WORDS; i++) {
        char word[WORD_BYTES] = " ";
        const uint64_t which = tiny_random_below(&r, 2) ? tiny_random_below(&r, 50) : tiny_random_below(&r, 20000);
        tiny_random letter = {which};
        const size_t n = 2 + (size_t)tiny_random_below(&letter, WORD_BYTES - 3);
        for (size_t k = 1; k < n; k++) word[k] = "abcd"[tiny_random_below(&letter, 4)];
        assert_int_equal(base_buffer_append(&text, word, n), RP_OK);
        assert_int_equal(tokenizer_encode(v.t, word, n, plain, &parts, NULL), RP_OK);
    }
    assert_int_equal(tokenizer_encode(v.t, text.data, text.len, plain, &whole, NULL), RP_OK);
    assert_true(whole.n > WORDS);
    assert_int_equal(whole.n, parts.n);
    assert_memory_equal(whole.ids, parts.ids, whole.n * sizeof(*whole.ids));
    token_list_free(&whole);
    token_list_free(&parts);
    base_buffer_free(&text);
    close_vocabulary(&v);
}

/* ---- the most probable pieces ---- */

static double score_of(const tokenizer *t, int32_t id) {
    size_t n;
    const char *text = tokenizer_bytes(t, id, true, &n);
    for (int i = 0; i < N_PIECES; i++)
        if (strlen(pieces[i]) == n && memcmp(pieces[i], text, n) == 0) return -i;
    return n == 1 ? -7.5 : -1e9;
}

/* The best sum over every way to cut text in pieces and letters, by trying them all. */
static double best_score(const char *text, size_t n) {
    double best = n == 0 ? 0 : -7.5 + best_score(text + 1, n - 1);
    for (int i = 0; i < N_PIECES; i++) {
        size_t k = strlen(pieces[i]);
        double score = k <= n && memcmp(text, pieces[i], k) == 0 ? -i + best_score(text + k, n - k) : -1e9;
        if (score > best) best = score;
    }
    return best;
}

static void no_other_pieces_are_more_probable(void **state) {
    (void)state;
    tiny_random r = {20260104};
    vocabulary v;
    assert_int_equal(open_written(&v, write_vocabulary(UNIGRAM, NO_DAMAGE), NULL), RP_OK);
    for (int i = 0; i < 2000; i++) {
        char text[16];
        size_t n = 1 + (size_t)tiny_random_below(&r, 15), at = 0;
        token_list l = {0};
        double score = 0;
        for (size_t k = 0; k < n; k++) text[k] = "abcd"[tiny_random_below(&r, 4)];
        assert_int_equal(tokenizer_encode(v.t, text, n, (tokenizer_options){0}, &l, NULL), RP_OK);
        for (size_t k = 0; k < l.n; k++) {
            size_t bytes;
            const char *piece = tokenizer_bytes(v.t, l.ids[k], true, &bytes);
            assert_true(at + bytes <= n && memcmp(piece, text + at, bytes) == 0);
            at += bytes;
            score += score_of(v.t, l.ids[k]);
        }
        assert_int_equal(at, n);
        assert_true(score == best_score(text, n)); /* halves: sums are exact */
        token_list_free(&l);
    }
    close_vocabulary(&v);
}

/* ---- patterns ---- */

/* Without a pattern every text would be one token: the tokens show the splits. U+010A represents the line feed. */
static vocabulary open_cuts(const char *pre) {
    static const char *const tokens[] = {
        "1", "2", "3", "4", "12", "123", "1234", "'", "L", "LL", "'LL", "\xc4\x8a", "\xc4\x8a\xc4\x8a",
        "a", ".", ".a", "$", "$$", "'$$"};
    static const char *const rules[] = {"1 2", "12 3", "123 4", "L L", "' LL", "\xc4\x8a \xc4\x8a",
                                        ". a", "$ $", "' $$"};
    gguf_writer *w = gguf_writer_new(3, 0);
    vocabulary v;
    gguf_writer_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_string(w, "tokenizer.ggml.pre", pre);
    gguf_writer_strings(w, "tokenizer.ggml.tokens", tokens, sizeof(tokens) / sizeof(tokens[0]));
    gguf_writer_strings(w, "tokenizer.ggml.merges", rules, sizeof(rules) / sizeof(rules[0]));
    assert_int_equal(open_written(&v, w, NULL), RP_OK);
    return v;
}

static void patterns_cut_where_they_should(void **state) {
    (void)state;
    static const struct {
        const char *pre, *text, *cuts; /* "|" between the words */
    } cases[] = {
        {"gpt-2", "1234", "1234"},
        {"llama-bpe", "1234", "123|4"},
        {"qwen2", "1234", "1|2|3|4"},
        {"smollm", "1234", "1|2|3|4"},
        {"gpt-2", "'LL", "'|LL"},
        {"llama-bpe", "'LL", "'LL"},
        {"qwen2", "'LL", "'LL"},
        {"smollm", "'LL", "'|LL"},
        {"gpt-2", "\n\na", "\n|\n|a"},
        {"llama-bpe", "\n\na", "\n\n|a"},
        {"qwen2", "\n\na", "\n\n|a"},
        {"smollm", "\n\na", "\n|\n|a"},
        {"gpt-2", ".a", ".|a"},
        {"llama-bpe", ".a", ".a"},
        {"qwen2", ".a", ".a"},
        {"smollm", ".a", ".|a"},
        {"falcon", "1234", "123|4"},
        {"falcon", ".a", ".|a"},
        {"gpt-2", "'$$1", "'$$|1"},
        {"qwen2", "'$$12", "'$$|1|2"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        vocabulary v = open_cuts(cases[i].pre);
        token_list l = {0};
        char got[64] = "";
        assert_int_equal(tokenizer_encode(v.t, cases[i].text, strlen(cases[i].text), (tokenizer_options){0}, &l, NULL),
                         RP_OK);
        for (size_t k = 0, n; k < l.n; k++)
            strcat(strcat(got, k ? "|" : ""), tokenizer_bytes(v.t, l.ids[k], false, &n));
        if (strcmp(got, cases[i].cuts) != 0)
            fail_msg("%s: '%s' gives '%s', expected '%s'", cases[i].pre, cases[i].text, got, cases[i].cuts);
        token_list_free(&l);
        close_vocabulary(&v);
    }
}

/* ---- long words ---- */

enum { LONG_STEPS = 12 }; /* the longest token: 4096 line feeds, each written as U+010A in two bytes */

/* Repeated doubling of the line feed. GPT-2 merges them; Llama 3 takes the longest token, which no merge produces. */
static vocabulary open_long(const char *pre, int n_merges) {
    static char runs[LONG_STEPS + 1][(2 << LONG_STEPS) + 1], lines[LONG_STEPS][(2 << LONG_STEPS) + 2];
    const char *tokens[LONG_STEPS + 1], *rules[LONG_STEPS];
    vocabulary v;
    gguf_writer *w = gguf_writer_new(3, 0);
    for (int i = 0; i <= LONG_STEPS; i++) {
        for (int k = 0; k < 1 << i; k++) memcpy(runs[i] + 2 * k, "\xc4\x8a", 2);
        if (i > 0) snprintf(lines[i - 1], sizeof(lines[0]), "%s %s", runs[i - 1], runs[i - 1]);
        tokens[i] = runs[i];
        if (i > 0) rules[i - 1] = lines[i - 1];
    }
    gguf_writer_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_string(w, "tokenizer.ggml.pre", pre);
    gguf_writer_strings(w, "tokenizer.ggml.tokens", tokens, LONG_STEPS + 1);
    gguf_writer_strings(w, "tokenizer.ggml.merges", rules, (size_t)n_merges);
    assert_int_equal(open_written(&v, w, NULL), RP_OK);
    return v;
}

static void long_tokens_are_merged_and_taken_whole(void **state) {
    (void)state;
    static const struct {
        const char *pre;
        int n_merges;
        size_t n_tokens;
    } cases[] = {{"gpt-2", LONG_STEPS, 1},
                 {"llama-bpe", LONG_STEPS, 1},
                 {"llama-bpe", 3, 1},
                 {"gpt-2", 3, (1 << LONG_STEPS) / 8}};
    static char text[1 << LONG_STEPS];
    memset(text, '\n', sizeof(text));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        vocabulary v = open_long(cases[i].pre, cases[i].n_merges);
        token_list l = {0};
        assert_int_equal(tokenizer_encode(v.t, text, sizeof(text), (tokenizer_options){0}, &l, NULL), RP_OK);
        assert_int_equal(l.n, cases[i].n_tokens);
        token_list_free(&l);
        assert_int_equal(tokenizer_encode(v.t, text, sizeof(text) - 1, (tokenizer_options){0}, &l, NULL), RP_OK);
        assert_int_equal(l.n, cases[i].n_merges == 3 ? (1 << LONG_STEPS) / 8 + 2 : LONG_STEPS);
        token_list_free(&l);
        close_vocabulary(&v);
    }
}

/* ---- damage ---- */

static void damaged_vocabularies_are_refused(void **state) {
    (void)state;
    static const struct {
        family k;
        damage d;
        int code;
    } cases[] = {
        {SPM, NO_MODEL, RP_ERR_FORMAT},
        {SPM, OTHER_MODEL, RP_ERR_UNSUPPORTED},
        {SPM, NO_TOKENS, RP_ERR_FORMAT},
        {SPM, TOKENS_ARE_NUMBERS, RP_ERR_FORMAT},
        {SPM, EMPTY_TOKENS, RP_ERR_FORMAT},
        {SPM, SHORT_TYPES, RP_ERR_FORMAT},
        {SPM, SHORT_SCORES, RP_ERR_FORMAT},
        {SPM, NO_SCORES, RP_ERR_FORMAT},
        {SPM, SCORES_ARE_IDS, RP_ERR_FORMAT},
        {SPM, SCORE_IS_NAN, RP_ERR_FORMAT},
        {BPE, NO_MERGES, RP_ERR_FORMAT},
        {BPE, MERGE_WITHOUT_SPACE, RP_ERR_FORMAT},
        {BPE, OTHER_PRE, RP_ERR_UNSUPPORTED},
        {UNIGRAM, NO_SCORES, RP_ERR_FORMAT},
        {UNIGRAM, SHORT_SCORES, RP_ERR_FORMAT},
        {UNIGRAM, SCORE_IS_NAN, RP_ERR_FORMAT},
        {UNIGRAM, SHORT_TYPES, RP_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        vocabulary v;
        rp_error err = {0};
        assert_int_equal(open_written(&v, write_vocabulary(cases[i].k, cases[i].d), &err), cases[i].code);
        assert_int_equal(err.code, cases[i].code);
        assert_true(err.message[0] != '\0');
        assert_null(v.t);
        close_vocabulary(&v);
    }
}

/* Published files name a padding token just past their vocabulary: such an id means none; the file is not corrupt. */
static void ids_out_of_range_are_none(void **state) {
    (void)state;
    vocabulary v;
    assert_int_equal(open_written(&v, write_vocabulary(SPM, IDS_OUT_OF_RANGE), NULL), RP_OK);
    assert_int_equal(tokenizer_bos(v.t), -1);
    assert_int_equal(tokenizer_eos(v.t), -1);
    close_vocabulary(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merging_is_what_the_quadratic_way_gives),
        cmocka_unit_test(long_texts_are_their_words),
        cmocka_unit_test(no_other_pieces_are_more_probable),
        cmocka_unit_test(long_tokens_are_merged_and_taken_whole),
        cmocka_unit_test(patterns_cut_where_they_should),
        cmocka_unit_test(damaged_vocabularies_are_refused),
        cmocka_unit_test(ids_out_of_range_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
