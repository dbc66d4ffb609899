/* SPDX-License-Identifier: Apache-2.0 */
/* test_sentencepiece.c: SentencePiece vocabularies: against the library itself (tests/golden/vocab, made in the lab),
 * spaces, special tokens written with spaces, and corrupt normalization tables. */
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

#define LOW "\xe2\x96\x81"

/* ---- against the library ---- */

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

static void compare_vocabulary(const char *vocabulary, const char *vectors) {
    gguf_file *f;
    tokenizer *t;
    rp_error err = {0};
    assert_int_equal(gguf_open(&f, vector_path(vocabulary), &err), RP_OK);
    assert_int_equal(tokenizer_new(&t, f, &err), RP_OK);
    printf("%s: %d vectors\n", vectors, vector_file_each(vectors, 2, compare_line, t));
    tokenizer_free(t);
    gguf_close(f);
}

static void unigram_is_what_the_library_gives(void **state) {
    (void)state;
    compare_vocabulary("vocab/unigram.gguf", "vocab/unigram.txt");
}
static void bpe_with_kept_spaces_is_what_the_library_gives(void **state) {
    (void)state;
    compare_vocabulary("vocab/bpe.gguf", "vocab/bpe.txt");
}

static void bpe_with_merged_spaces_is_what_the_library_gives(void **state) {
    (void)state;
    compare_vocabulary("vocab/merged.gguf", "vocab/merged.txt");
}

static void merges_by_rank_are_what_the_library_gives(void **state) {
    (void)state;
    compare_vocabulary("vocab/ranked.gguf", "vocab/ranked.txt");
}

/* ---- small vocabularies ---- */

typedef struct piece {
    const char *text;
    float score;
    int32_t type;
} piece;

typedef struct settings {
    const char *model;
    bool no_prefix, merges;
    const char *const *ranks; /* [n_ranks] merges; NULL: none */
    size_t n_ranks;
    const char *arch;
    const uint8_t *map;
    size_t map_bytes;
    gguf_value_type map_type; /* 0 (GGUF_U8) by default */
    uint32_t eos;             /* 0: the file names none */
} settings;

typedef struct vocabulary {
    uint8_t *image;
    gguf_file *file;
    tokenizer *t;
} vocabulary;

#define MAX_PIECES 32

static int open_pieces(vocabulary *v, const piece *pieces, const settings *s, rp_error *err) {
    const char *texts[MAX_PIECES];
    float scores[MAX_PIECES];
    int32_t types[MAX_PIECES];
    size_t n = 0, bytes;
    gguf_writer *w = gguf_writer_new(3, 0);
    for (; pieces[n].text; n++) texts[n] = pieces[n].text, scores[n] = pieces[n].score, types[n] = pieces[n].type;
    gguf_writer_string(w, "general.architecture", s->arch ? s->arch : "llama");
    gguf_writer_string(w, "tokenizer.ggml.model", s->model);
    gguf_writer_strings(w, "tokenizer.ggml.tokens", texts, n);
    gguf_writer_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, n);
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, n);
    gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    if (s->eos) gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", s->eos);
    gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", !s->no_prefix);
    gguf_writer_bool(w, "tokenizer.ggml.remove_extra_whitespaces", s->merges);
    if (s->ranks) gguf_writer_strings(w, "tokenizer.ggml.merges", s->ranks, s->n_ranks);
    if (s->map) gguf_writer_array(w, "tokenizer.ggml.precompiled_charsmap", s->map_type, s->map, s->map_bytes);
    assert_int_equal(gguf_writer_save_memory(w, &v->image, &bytes, NULL), RP_OK);
    gguf_writer_free(w);
    assert_int_equal(gguf_open_memory(&v->file, v->image, bytes, "made", NULL), RP_OK);
    return tokenizer_new(&v->t, v->file, err);
}

static void close_pieces(vocabulary *v) {
    tokenizer_free(v->t);
    gguf_close(v->file);
    base_free(v->image);
}

/* The tokens of a text, as their texts in the vocabulary. */
static void expect(const tokenizer *t, const char *text, tokenizer_options o, const char *expected) {
    token_list l = {0};
    char got[256] = "";
    assert_int_equal(tokenizer_encode(t, text, strlen(text), o, &l, NULL), RP_OK);
    for (size_t i = 0; i < l.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s", i ? "|" : "", (int)t->texts[l.ids[i]].n,
                 t->texts[l.ids[i]].bytes);
    if (strcmp(got, expected) != 0) fail_msg("'%s' gives '%s', expected '%s'", text, got, expected);
    token_list_free(&l);
}

static const tokenizer_options whole = {.space_prefix = true}, goes_on = {0},
                               trusted = {.space_prefix = true, .parse_special = true};

static const piece letters[] = {{"<unk>", 0, TOKEN_UNKNOWN},
                                {"<s>", 0, TOKEN_CONTROL},
                                {"</s>", 0, TOKEN_CONTROL},
                                {LOW, -3, 1},
                                {"a", -3, 1},
                                {"b", -3, 1},
                                {LOW "a", -2, 1},
                                {LOW "b", -2, 1},
                                {"ab", -2.5f, 1},
                                {NULL, 0, 0}};

static void spaces_are_kept_or_merged(void **state) {
    (void)state;
    static const char *const models[] = {"llama", "t5"};
    for (size_t m = 0; m < 2; m++) {
        vocabulary v;
        assert_int_equal(open_pieces(&v, letters, &(settings){.model = models[m]}, NULL), RP_OK);
        assert_true(tokenizer_has_space_prefix(v.t));
        expect(v.t, "a b", whole, LOW "a|" LOW "b");
        expect(v.t, " a  b ", whole, LOW "|" LOW "a|" LOW "|" LOW "b|" LOW);
        expect(v.t, "a b", goes_on, "a|" LOW "b");
        expect(v.t, "  ", whole, LOW "|" LOW "|" LOW);
        close_pieces(&v);
        assert_int_equal(open_pieces(&v, letters, &(settings){.model = models[m], .merges = true}, NULL), RP_OK);
        expect(v.t, "  a   b  ", whole, LOW "a|" LOW "b");
        expect(v.t, "  a   b  ", goes_on, LOW "a|" LOW "b");
        expect(v.t, "ab", goes_on, "ab");
        expect(v.t, "   ", whole, "");
        close_pieces(&v);
        assert_int_equal(
            open_pieces(&v, letters, &(settings){.model = models[m], .merges = true, .no_prefix = true}, NULL), RP_OK);
        assert_false(tokenizer_has_space_prefix(v.t));
        expect(v.t, "  a   b  ", whole, "a|" LOW "b");
        close_pieces(&v);
    }
}

/* The first listed pair first, whatever the scores are; line ends only with line ends, and whole where they are a
 * token. */
static void merges_have_ranks(void **state) {
    (void)state;
    static const piece pieces[] = {{"<unk>", 0, TOKEN_UNKNOWN},
                                   {"<bos>", 0, TOKEN_CONTROL},
                                   {"<eos>", 0, TOKEN_CONTROL},
                                   {"<turn|>", 0, TOKEN_CONTROL},
                                   {"a", 0, 1},
                                   {"b", 0, 1},
                                   {"ab", -9, 1},
                                   {"ba", -1, 1},
                                   {"\n", 0, 1},
                                   {"\n\n", 0, 1},
                                   {"\n\n\n", 0, 1},
                                   {"b\n", 0, 1},
                                   {LOW, 0, 1},
                                   {"<0x63>", 0, TOKEN_BYTE},
                                   {NULL, 0, 0}};
    static const char *const ranks[] = {"a b", "b a", "\n \n", "b \n"};
    vocabulary v;
    rp_error err = {0};
    const settings s = {.model = "gemma4", .no_prefix = true, .ranks = ranks, .n_ranks = BASE_ARRAY_LEN(ranks)};
    assert_int_equal(open_pieces(&v, pieces, &s, &err), RP_OK);
    expect(v.t, "bab", whole, "b|ab");
    expect(v.t, "ba c", whole, "ba|" LOW "|<0x63>");
    expect(v.t, "b\na", whole, "b|\n|a");
    expect(v.t, "\n\n\n", whole, "\n\n\n"); /* no merge yields it */
    expect(v.t, "b\n\n\n\n", whole, "b|\n\n|\n\n");
    assert_true(tokenizer_is_end(v.t, 3));
    assert_true(tokenizer_adds_bos(v.t));
    close_pieces(&v);
    assert_int_equal(open_pieces(&v, pieces, &(settings){.model = "gemma4"}, &err), RP_ERR_FORMAT);
    assert_non_null(strstr(err.message, "'tokenizer.ggml.merges' is missing"));
    close_pieces(&v);
    assert_int_equal(open_pieces(&v, pieces, &(settings){.model = "gemma5"}, &err), RP_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "(supported: llama, gpt2, t5, bert, gemma4)"));
    close_pieces(&v);
}

static void runs_of_spaces_are_tokens(void **state) {
    (void)state;
    /* as current converters write them, and as older ones did */
    static const piece plain[] = {{"<unk>", 0, TOKEN_UNKNOWN},
                                  {"  ", 0, 4},
                                  {"   ", 0, 4},
                                  {"a", -1, 1},
                                  {LOW "a", -1, 1},
                                  {LOW, -2, 1},
                                  {NULL, 0, 0}};
    static const piece escaped[] = {{"<unk>", 0, TOKEN_UNKNOWN},
                                    {LOW LOW, 0, 4},
                                    {LOW LOW LOW, 0, 4},
                                    {"a", -1, 1},
                                    {LOW "a", -1, 1},
                                    {LOW, -2, 1},
                                    {NULL, 0, 0}};
    for (int i = 0; i < 2; i++) {
        vocabulary v;
        size_t n;
        const char *two = i ? LOW LOW : "  ", *three = i ? LOW LOW LOW : "   ";
        char expected[64];
        assert_int_equal(open_pieces(&v, i ? escaped : plain, &(settings){.model = "llama", .no_prefix = true}, NULL),
                         RP_OK);
        snprintf(expected, sizeof expected, "a|%s|a", two);
        expect(v.t, "a  a", whole, expected);
        snprintf(expected, sizeof expected, "%s|%s|a|" LOW "a", three, two);
        expect(v.t, "     a a", whole, expected);
        assert_string_equal(tokenizer_bytes(v.t, 1, false, &n), "  ");
        close_pieces(&v);
    }
}

static void unknown_characters_become_one_token_or_bytes(void **state) {
    (void)state;
    static const piece bytes[] = {
        {"<unk>", 0, TOKEN_UNKNOWN}, {LOW, -3, 1}, {"a", -3, 1}, {"<0xC3>", 0, 6}, {"<0xA9>", 0, 6}, {NULL, 0, 0}};
    vocabulary v;
    assert_int_equal(open_pieces(&v, letters, &(settings){.model = "t5"}, NULL), RP_OK);
    expect(v.t, "axyzb", whole, LOW "a|<unk>|b");
    expect(v.t, "x", goes_on, "<unk>");
    close_pieces(&v);
    assert_int_equal(open_pieces(&v, bytes, &(settings){.model = "t5"}, NULL), RP_OK);
    expect(v.t, "a\xc3\xa9"
                "b",
           goes_on, "a|<0xC3>|<0xA9>|<unk>");
    close_pieces(&v);
}

/* A text with the name of a byte token, or of an untrusted control token, is plain text, even if its parts could be
 * merged. */
static void names_of_tokens_are_text(void **state) {
    (void)state;
    static const piece names[] = {{"<unk>", 0, TOKEN_UNKNOWN},
                                  {"<0x41>", 5, 6},
                                  {"<c>", 5, 3},
                                  {"<u>", -50, 4},
                                  {"<", -1, 1},
                                  {"c", -1, 1},
                                  {"u", -1, 1},
                                  {">", -1, 1},
                                  {"0", -1, 1},
                                  {"x", -1, 1},
                                  {"4", -1, 1},
                                  {"1", -1, 1},
                                  {NULL, 0, 0}};
    vocabulary v;
    assert_int_equal(open_pieces(&v, names, &(settings){.model = "t5", .no_prefix = true}, NULL), RP_OK);
    expect(v.t, "<0x41>", trusted, "<|0|x|4|1|>");
    expect(v.t, "<c>", whole, "<|c|>");
    expect(v.t, "<c>", trusted, "<c>");
    expect(v.t, "<u>c", whole, "<u>|c");
    close_pieces(&v);
    static const piece parts[] = {{"<unk>", 0, TOKEN_UNKNOWN},
                                  {"<c>", 5, 3},
                                  {"<c", -1, 1},
                                  {"c>", -2, 1},
                                  {"<", -3, 1},
                                  {"c", -3, 1},
                                  {">", -3, 1},
                                  {"<0x0A>", 5, 6},
                                  {"<0x0A", -1, 1},
                                  {"<0x", -1, 1},
                                  {"<0", -1, 1},
                                  {"0A", -1, 1},
                                  {"0", -1, 1},
                                  {"x", -1, 1},
                                  {"A", -1, 1},
                                  {NULL, 0, 0}};
    assert_int_equal(open_pieces(&v, parts, &(settings){.model = "llama", .no_prefix = true}, NULL), RP_OK);
    expect(v.t, "<c>", whole, "<c|>");
    expect(v.t, "<c>", trusted, "<c>");
    expect(v.t, "<0x0A>", trusted, "<0x0A|>");
    close_pieces(&v);
}

static void phi_3_takes_the_space_behind_special_tokens(void **state) {
    (void)state;
    static const piece pieces[] = {{"<unk>", 0, TOKEN_UNKNOWN},
                                   {"<s>", 0, 3},
                                   {"</s>", 0, 4},
                                   {"<|user|>", 0, 3},
                                   {"<|endoftext|>", 0, 3},
                                   {"\n", -1, 1},
                                   {"a", -1, 1},
                                   {LOW, -2, 1},
                                   {NULL, 0, 0}};
    for (int phi = 0; phi < 2; phi++) {
        vocabulary v;
        assert_int_equal(open_pieces(&v, pieces,
                                     &(settings){.model = "llama", .no_prefix = true, .arch = phi ? "phi3" : "llama"},
                                     NULL),
                         RP_OK);
        expect(v.t, "<|user|>\n a", trusted, phi ? "<|user|>|a" : "<|user|>|\n|" LOW "|a");
        expect(v.t, "</s> \t\r\n a", trusted, phi ? "</s>|a" : "</s>|" LOW "|<unk>|\n|" LOW "|a");
        expect(v.t, "<s> a", trusted, "<s>|" LOW "|a");
        expect(v.t, "<|endoftext|>\na", trusted, "<|endoftext|>|\n|a");
        expect(v.t, "<|user|>\n", trusted, phi ? "<|user|>" : "<|user|>|\n");
        close_pieces(&v);
    }
}

/* Gemma keeps HTML tags whole, and "</s>" is one of them; its texts end with another token. */
static void tags_of_html_end_no_turn(void **state) {
    (void)state;
    static const piece pieces[] = {{"<unk>", 0, TOKEN_UNKNOWN},
                                   {"<bos>", 0, TOKEN_CONTROL},
                                   {"<eos>", 0, TOKEN_CONTROL},
                                   {"a", -1, 1},
                                   {LOW, -2, 1},
                                   {"</s>", 0, TOKEN_USER_DEFINED},
                                   {"<end_of_turn>", 0, TOKEN_USER_DEFINED},
                                   {NULL, 0, 0}};
    vocabulary v;
    assert_int_equal(open_pieces(&v, pieces, &(settings){.model = "llama", .no_prefix = true, .arch = "gemma"}, NULL),
                     RP_OK);
    int32_t tag = tokenizer_find(v.t, "</s>", 4), end = tokenizer_find(v.t, "<end_of_turn>", 13);
    size_t n = 0;
    assert_false(tokenizer_is_end(v.t, tag));
    assert_true(tokenizer_is_end(v.t, end));
    tokenizer_bytes(v.t, tag, false, &n);
    assert_int_equal(n, 4); /* an answer shows it */
    expect(v.t, "a</s>a", whole, "a|</s>|a");
    close_pieces(&v);
    /* Phi-3 calls it user-defined, too, but its texts begin with "<s>": it ends a turn, and no text of a user's
       contains it */
    static const piece phi[] = {{"<unk>", 0, TOKEN_CONTROL},
                                {"<s>", 0, TOKEN_CONTROL},
                                {"</s>", 0, TOKEN_USER_DEFINED},
                                {"a", -1, 1},
                                {LOW, -2, 1},
                                {"<", -3, 1},
                                {"/", -3, 1},
                                {"s", -3, 1},
                                {">", -3, 1},
                                {"<|endoftext|>", 0, TOKEN_CONTROL},
                                {NULL, 0, 0}};
    assert_int_equal(
        open_pieces(&v, phi, &(settings){.model = "llama", .no_prefix = true, .arch = "phi3", .eos = 9}, NULL), RP_OK);
    assert_true(tokenizer_is_end(v.t, 2));
    assert_true(tokenizer_is_end(v.t, 9));
    expect(v.t, "a</s>a", whole, "a|<|/|s|>|a");
    close_pieces(&v);
    /* where the file calls it a control token, it is one */
    assert_int_equal(open_pieces(&v, letters, &(settings){.model = "llama"}, NULL), RP_OK);
    assert_true(tokenizer_is_end(v.t, tokenizer_find(v.t, "</s>", 4)));
    close_pieces(&v);
}

/* ---- normalization tables ---- */

#define N_UNITS 1024
#define KEY(label, base, node) ((uint32_t)(label) | 1u << 8 | ((uint32_t)(base) ^ (uint32_t)(node)) << 10)
#define NODE(label, base, node) ((uint32_t)(label) | ((uint32_t)(base) ^ (uint32_t)(node)) << 10)
#define VALUE(at) ((uint32_t)(at) | 1u << 31)

/* x -> "yy", xz -> "" ; the root's base is 256, x's 512, xz's 768. */
typedef struct map_image {
    uint32_t bytes, units[N_UNITS];
    char texts[8];
} map_image;

static map_image make_map(void) {
    map_image m = {.bytes = sizeof m.units, .texts = "yy\0\0\0\0\0"};
    m.units[0] = NODE(0, 256, 0);
    m.units[256 ^ 'x'] = KEY('x', 512, 256 ^ 'x');
    m.units[512] = VALUE(0);
    m.units[512 ^ 'z'] = KEY('z', 768, 512 ^ 'z');
    m.units[768] = VALUE(2);
    return m;
}

static int open_map(vocabulary *v, const map_image *m, size_t n, gguf_value_type type, rp_error *err) {
    static const piece pieces[] = {
        {"<unk>", 0, TOKEN_UNKNOWN},
        {"x", -1, 1},
        {"y", -1, 1},
        {"z", -1, 1},
        {LOW, -1, 1},
        {"\xef\xbf\xbd", -1, 1},
        {NULL, 0, 0},
    };
    return open_pieces(
        v, pieces,
        &(settings){.model = "t5", .no_prefix = true, .map = (const uint8_t *)m, .map_bytes = n, .map_type = type},
        err);
}

static void tables_replace_the_longest(void **state) {
    (void)state;
    static const gguf_value_type types[] = {GGUF_U8, GGUF_I8};
    for (size_t i = 0; i < 2; i++) {
        vocabulary v;
        map_image m = make_map();
        assert_int_equal(open_map(&v, &m, sizeof m, types[i], NULL), RP_OK);
        expect(v.t, "x", whole, "y|y");
        expect(v.t, "xzx", whole, "y|y");
        expect(v.t, "zxy", whole, "z|y|y|y");
        expect(v.t, "\xff"
                    "z\xe2\x82",
               whole, "\xef\xbf\xbd|z|\xef\xbf\xbd|\xef\xbf\xbd");
        close_pieces(&v);
    }
}

static void damaged_tables_are_refused(void **state) {
    (void)state;
    enum { CUT_HEADER,
           CUT_UNITS,
           CUT_TEXTS,
           NO_UNITS,
           ODD_UNITS,
           HUGE_UNITS,
           NO_END,
           CYCLE,
           CYCLE_TO_ROOT,
           VALUE_OUTSIDE,
           VALUE_FAR,
           NUMBERS,
           N_DAMAGES };
    for (int d = 0; d < N_DAMAGES; d++) {
        map_image m = make_map();
        size_t n = sizeof m;
        vocabulary v;
        rp_error err = {0};
        if (d == CUT_HEADER) n = 7;
        if (d == CUT_UNITS) n = 64;
        if (d == CUT_TEXTS) n -= 8; /* values point past the end */
        if (d == NO_UNITS) m.bytes = 0;
        if (d == ODD_UNITS) m.bytes -= 2;
        if (d == HUGE_UNITS) m.bytes = UINT32_MAX;
        if (d == NO_END) m.texts[7] = 'y';
        if (d == CYCLE) m.units[256 ^ 'x'] = KEY('x', 256, 256 ^ 'x'); /* x leads to x */
        if (d == CYCLE_TO_ROOT) m.units[512 ^ 'z'] = NODE('z', 256, 512 ^ 'z');
        if (d == VALUE_OUTSIDE) m.units[512] = VALUE(8);
        if (d == VALUE_FAR) m.units[512 ^ 'z'] = KEY('z', 0x1ff000, 512 ^ 'z');
        if (d == NUMBERS) n = N_UNITS;
        int rc = open_map(&v, &m, n, d == NUMBERS ? GGUF_I32 : GGUF_U8, &err);
        if (rc != RP_ERR_FORMAT) fail_msg("damage %d gives %d", d, rc);
        assert_non_null(strstr(err.message, "precompiled_charsmap"));
        assert_null(v.t);
        close_pieces(&v);
    }
}

static void failed_allocations_are_clean(void **state) {
    (void)state;
    vocabulary v;
    map_image m = make_map();
    assert_int_equal(open_map(&v, &m, sizeof m, GGUF_U8, NULL), RP_OK);
    for (uint64_t i = 1, failed = 1; failed; i++) {
        tokenizer *t = NULL;
        token_list l = {0};
        rp_error err = {0};
        base_alloc_fail_at(i, 0);
        int rc = tokenizer_new(&t, v.file, &err);
        if (!rc) rc = tokenizer_encode(t, "xzx y", 5, whole, &l, &err);
        base_alloc_fail_at(0, 0);
        failed = rc != 0;
        if (rc) assert_int_equal(err.code, RP_ERR_MEMORY);
        token_list_free(&l);
        tokenizer_free(t);
    }
    close_pieces(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unigram_is_what_the_library_gives),
        cmocka_unit_test(bpe_with_kept_spaces_is_what_the_library_gives),
        cmocka_unit_test(bpe_with_merged_spaces_is_what_the_library_gives),
        cmocka_unit_test(merges_by_rank_are_what_the_library_gives),
        cmocka_unit_test(merges_have_ranks),
        cmocka_unit_test(spaces_are_kept_or_merged),
        cmocka_unit_test(runs_of_spaces_are_tokens),
        cmocka_unit_test(unknown_characters_become_one_token_or_bytes),
        cmocka_unit_test(names_of_tokens_are_text),
        cmocka_unit_test(phi_3_takes_the_space_behind_special_tokens),
        cmocka_unit_test(tags_of_html_end_no_turn),
        cmocka_unit_test(tables_replace_the_longest),
        cmocka_unit_test(damaged_tables_are_refused),
        cmocka_unit_test(failed_allocations_are_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
