/* SPDX-License-Identifier: Apache-2.0 */
/* bench_words.h: texts with an exact number of tokens, for any vocabulary.
 *
 * The words are tokens of the model, each a space and letters, and verified: rp_tokenize returns exactly these tokens,
 * one by one and in long random texts. For a vocabulary without any (models with random weights) they are single
 * letters. A text of n words therefore has n tokens after the n_first that start every text, and texts with the same
 * first words have the same first tokens. The words need no escaping in XML. Immutable once open.
 */
#ifndef CLI_BENCH_WORDS_H
#define CLI_BENCH_WORDS_H

#include "common/console.h"

#define BENCH_WORDS_MAX 4096

typedef struct bench_words {
    const char *bytes[BENCH_WORDS_MAX]; /* " river"; borrowed from the model */
    uint32_t sizes[BENCH_WORDS_MAX];
    int32_t ids[BENCH_WORDS_MAX];
    uint32_t n;
    int32_t n_first; /* tokens before the first word: beginning-of-text, and a space if the tokenizer adds one */
    bool bare_start; /* the first word of a text has no space: the tokenizer adds it */
} bench_words;

/* Returns an exit status: fails if a vocabulary has too few words. */
int bench_words_open(bench_words *w, const rp_model *model);
/* Without a model: short English words, each one token in most vocabularies, so that a text has about as many tokens as
 * words. */
void bench_words_common(bench_words *w);

/* A text that grows by words. Zero-initialise; free `bytes`. */
typedef struct bench_text {
    char *bytes; /* NUL-terminated; NULL if empty */
    size_t n_bytes, cap_bytes;
    int32_t n_tokens;
} bench_text;

/* The text in the form for tokenization. */
const char *bench_text_bytes(const bench_words *w, const bench_text *t);
void bench_text_add(bench_text *t, const bench_words *w, uint32_t word);
/* Appends n random words; *state advances. */
void bench_text_add_random(bench_text *t, const bench_words *w, int32_t n, uint64_t *state);
/* Appends the first n words of the block with a number. Blocks with different numbers differ, mostly in their first
 * word. */
void bench_text_add_block(bench_text *t, const bench_words *w, uint64_t number, int32_t n);

#endif
