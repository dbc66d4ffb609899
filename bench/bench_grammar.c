/* SPDX-License-Identifier: Apache-2.0 */
/* bench_grammar.c: cost of a grammar per token.
 *
 *   bench_grammar [VOCABULARY.gguf...]
 *
 * Without files: synthetic vocabularies of 32,000 and 150,000 tokens. With files: the vocabulary of each, then all of
 * them merged into one. A JSON text is split into tokens, longest match first, and matched against a JSON grammar, by a
 * new matcher in each round:
 *
 *   tree     building the vocabulary's tree, once per engine
 *   try      check of one token: temperature 0 needs no more if the most likely token fits
 *   all      mask of all allowed tokens: needed at other temperatures, and if that token does not fit; computed only on
 *            the first visit of a grammar state
 *
 * Processor time: mean over the tokens of the text, median over rounds; and the longest single token.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "grammar/matcher.h"
#include "model/tokenizer/tokenizer.h"
#include "support/tiny_random.h"

#define ROUNDS 11
#define MOST_BYTES 24 /* of a synthetic token */

static const char json_grammar[] =
    "root   ::= value\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
    "array  ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt/] | \"u\" [0-9a-fA-F]{4}))* \"\\\"\" ws\n"
    "number ::= \"-\"? ([0-9] | [1-9] [0-9]{0,15}) (\".\" [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static const char json_text[] =
    "{\n  \"name\": \"A red ball\",\n  \"price\": 12.50,\n  \"tags\": [\"toy\", \"round\", \"for the garden and the "
    "house\"],\n"
    "  \"seller\": {\"name\": \"Tom \\u0026 Sons\", \"address\": {\"street\": \"14 Long Road\", \"city\": \"Lisbon\", "
    "\"zip\": null}},\n"
    "  \"reviews\": [{\"stars\": 5, \"text\": \"My children play with it every day, and it still looks like new.\"},\n"
    "    {\"stars\": 2, \"text\": \"It came late.\", \"helpful\": [1, 17, 204]}],\n  \"in stock\": true\n}";

/* ---- vocabularies ---- */

typedef struct vocabulary {
    const char **bytes;
    size_t *lengths;
    int32_t n, cap;
} vocabulary;

static void add_token(vocabulary *v, const char *bytes, size_t n) {
    if (v->n == v->cap) {
        v->cap = BASE_MAX(2 * v->cap, 1024);
        v->bytes = realloc(v->bytes, (size_t)v->cap * sizeof *v->bytes);
        v->lengths = realloc(v->lengths, (size_t)v->cap * sizeof *v->lengths);
        if (!v->bytes || !v->lengths) exit(1);
    }
    char *copy = malloc(n + 1);
    if (!copy) exit(1);
    memcpy(copy, bytes, n);
    v->bytes[v->n] = copy;
    v->lengths[v->n++] = n;
}

static void free_vocabulary(vocabulary *v) {
    for (int32_t i = 0; i < v->n; i++) free((void *)(uintptr_t)v->bytes[i]);
    free(v->bytes);
    free(v->lengths);
}

static const char *bytes_of(const void *user, int32_t token, size_t *n) {
    const vocabulary *v = user;
    *n = v->lengths[token];
    return v->bytes[token];
}

static bool is_end(const void *user, int32_t token) {
    (void)user;
    return token == 0;
}

/* Bytes, then words of syllables, every other one after a space, a few with punctuation around them. */
static vocabulary make_vocabulary(int32_t n) {
    static const char *const syllables[] = {"a", "e", "i", "o", "u", "ba", "co", "de", "fi", "gu",
                                            "la", "me", "ni", "po", "ra", "se", "ti", "ter", "ing", "ion",
                                            "ent", "th", "st", "An", "Re", "In", "0", "1", "20", "\xc3\xa9"};
    static const char *const signs[] = {"\":", "\",", "{\"", "\"}", "[", "],", "()", ");",
                                        "\n", "\n\n", "  ", "    ", ". ", "'s", "-", "_"};
    vocabulary v = {0};
    tiny_random r = {.state = 1};
    add_token(&v, "", 0);
    for (int b = 0; b < 256; b++) add_token(&v, &(char){(char)b}, 1);
    while (v.n < n) {
        char text[MOST_BYTES + 8] = "";
        if (tiny_random_below(&r, 2)) strcat(text, " ");
        if (tiny_random_below(&r, 12) == 0) strcat(text, signs[tiny_random_below(&r, BASE_ARRAY_LEN(signs))]);
        for (uint64_t k = 1 + tiny_random_below(&r, 5); k > 0; k--)
            strcat(text, syllables[tiny_random_below(&r, BASE_ARRAY_LEN(syllables))]);
        if (tiny_random_below(&r, 12) == 0) strcat(text, signs[tiny_random_below(&r, BASE_ARRAY_LEN(signs))]);
        add_token(&v, text, strlen(text));
    }
    return v;
}

static void add_file(vocabulary *v, const char *path) {
    gguf_file *file;
    tokenizer *t;
    rp_error err;
    if (gguf_open(&file, path, &err) || tokenizer_new(&t, file, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    for (int32_t i = 0; i < tokenizer_n_vocab(t); i++) {
        size_t n;
        const char *bytes = tokenizer_bytes(t, i, false, &n);
        add_token(v, bytes, n);
    }
    tokenizer_free(t);
    gguf_close(file);
}

/* ---- measurement ---- */

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The longest token that the text starts with. */
static int32_t longest_at(const vocabulary *v, const char *text) {
    int32_t best = -1;
    for (int32_t i = 0; i < v->n; i++)
        if (v->lengths[i] > 0 && (best < 0 || v->lengths[i] > v->lengths[best]) &&
            strncmp(text, v->bytes[i], v->lengths[i]) == 0)
            best = i;
    return best;
}

typedef struct times {
    double tried, all, longest; /* us */
} times;

static times follow(const grammar *g, const vocabulary *v, const token_trie *t, const int32_t *tokens, int32_t n) {
    matcher m = {0};
    times sum = {0};
    bool fits;
    if (matcher_open(&m, g, NULL, NULL)) exit(1);
    for (int32_t i = 0; i < n; i++) {
        const uint64_t *bits;
        int32_t place = m.place;
        double begin = now_us();
        if (matcher_allowed(&m, t, false, &bits) || !token_mask_has(bits, tokens[i])) exit(1);
        double all = now_us() - begin;
        begin = now_us();
        if (matcher_walk(&m, &place, v->bytes[tokens[i]], v->lengths[tokens[i]], &fits) || !fits) exit(1);
        sum.tried += now_us() - begin;
        m.place = place;
        sum.all += all;
        sum.longest = BASE_MAX(sum.longest, all);
    }
    matcher_close(&m);
    return (times){sum.tried / n, sum.all / n, sum.longest};
}

static void measure(const char *name, const vocabulary *v) {
    token_source source = {v->n, bytes_of, is_end, v};
    token_trie *t;
    grammar *g;
    static int32_t tokens[sizeof json_text];
    double tried[ROUNDS], all[ROUNDS], longest[ROUNDS], begin = now_us();
    int32_t n = 0;
    if (token_trie_new(&t, &source, NULL) || grammar_new(&g, json_grammar, NULL)) exit(1);
    double tree = now_us() - begin;
    for (size_t at = 0; at + 1 < sizeof json_text; at += v->lengths[tokens[n++]])
        if ((tokens[n] = longest_at(v, json_text + at)) < 0) exit(1);
    for (int i = 0; i < ROUNDS; i++) {
        times one = follow(g, v, t, tokens, n);
        tried[i] = one.tried, all[i] = one.all, longest[i] = one.longest;
    }
    qsort(tried, ROUNDS, sizeof *tried, by_value);
    qsort(all, ROUNDS, sizeof *all, by_value);
    qsort(longest, ROUNDS, sizeof *longest, by_value);
    printf("%-24s %7d tokens, %8u nodes, %5.1f MB   tree %6.1f ms   text of %3d tokens: try %6.2f us, all %7.1f us, at "
           "most %7.1f us\n",
           name, (int)v->n, t->n_nodes, (double)t->size_bytes / 1e6, tree / 1e3, (int)n, tried[ROUNDS / 2],
           all[ROUNDS / 2], longest[ROUNDS / 2]);
    token_trie_free(t);
    grammar_free(g);
}

static void measure_made_up(int32_t n) {
    vocabulary v = make_vocabulary(n);
    measure("made up", &v);
    free_vocabulary(&v);
}

int main(int argc, char **argv) {
    vocabulary all = {0};
    if (argc < 2) {
        measure_made_up(32000);
        measure_made_up(150000);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        vocabulary one = {0};
        const char *name = strrchr(argv[i], '/');
        add_file(&one, argv[i]);
        add_file(&all, argv[i]);
        measure(name ? name + 1 : argv[i], &one);
        free_vocabulary(&one);
    }
    if (argc > 2) measure("all together", &all);
    free_vocabulary(&all);
    return 0;
}
