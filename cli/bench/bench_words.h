/* SPDX-License-Identifier: Apache-2.0 */
/* bench_words.h: texts of exactly so many tokens, for any vocabulary.
 *
 * The words are tokens of the model, a space and letters each, of which rp_tokenize was seen to give back exactly those tokens, one by
 * one and in long random rows. Where a vocabulary has none (models of random weights) they are single letters. So a text of n words has
 * n tokens behind the n_first that every text begins with, and texts with the same first words have the same first tokens. Nothing in
 * them needs escaping in XML. Immutable once open.
 */
#ifndef CLI_BENCH_WORDS_H
#define CLI_BENCH_WORDS_H

#include "common/console.h"

#define BENCH_WORDS_MAX 4096

typedef struct bench_words {
    const char *bytes[BENCH_WORDS_MAX]; /* " river"; the model's */
    uint32_t sizes[BENCH_WORDS_MAX];
    int32_t ids[BENCH_WORDS_MAX];
    uint32_t n;
    int32_t n_first; /* tokens before the first word: the beginning-of-text token, and a space where the tokenizer puts one there */
    bool bare_start; /* the first word of a text stands without its space, which the tokenizer puts there */
} bench_words;

/* Returns an exit status: a vocabulary may have too few words. */
int bench_words_open(bench_words *w, const rp_model *model);
/* Where no model is at hand: short English words, each a token in most vocabularies, so that a text has about as many tokens as words. */
void bench_words_common(bench_words *w);

/* A text that grows by words. Zero-initialise; free `bytes`. */
typedef struct bench_text {
    char *bytes; /* NUL-terminated; NULL while it is empty */
    size_t n_bytes, cap_bytes;
    int32_t n_tokens;
} bench_text;

/* The text as it is to be tokenized. */
const char *bench_text_bytes(const bench_words *w, const bench_text *t);
void bench_text_add(bench_text *t, const bench_words *w, uint32_t word);
/* n random words; state is moved on. */
void bench_text_add_random(bench_text *t, const bench_words *w, int32_t n, uint64_t *state);
/* The first n words of the block that a number stands for. Blocks of different numbers differ, mostly in their first word. */
void bench_text_add_block(bench_text *t, const bench_words *w, uint64_t number, int32_t n);

#endif
