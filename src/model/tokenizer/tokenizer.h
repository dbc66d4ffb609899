/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h: text to tokens and back, with the vocabulary of a GGUF file.
 *
 * Three kinds: "llama" (SentencePiece's BPE: merges by score, U+2581 for space, byte fallback <0xNN>), "t5" (SentencePiece's unigram:
 * the most probable pieces) and "gpt2" (byte-level BPE: a pre-tokenizer's patterns cut the text, merges by rank, bytes shown as printable
 * characters). Tokens stand for the text to the byte, except where the vocabulary asks for less: composed characters (NFC) by its
 * pre-tokenizer, a table of normalisation, merged spaces; and where it has neither a piece nor bytes for a character.
 * Immutable after opening; any number of threads may use it.
 */
#ifndef MODEL_TOKENIZER_H
#define MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/gguf/gguf.h"
#include "reprise.h"

#define TOKENIZER_MAX_TOKENS ((size_t)1 << 24) /* of one text */

typedef struct tokenizer tokenizer;

/* A growing list of token ids. Zero-initialise; release with token_list_free. */
typedef struct token_list {
    int32_t *ids;
    size_t n, cap;
} token_list;
int token_list_push(token_list *l, int32_t id); /* 0, RP_ERR_MEMORY, RP_ERR_LIMIT */
void token_list_free(token_list *l);

/* The file must stay open as long as the tokenizer. RP_ERR_UNSUPPORTED (model or pre-tokenizer; the message lists what
 * is supported), RP_ERR_FORMAT, RP_ERR_MEMORY. */
int tokenizer_new(tokenizer **out, const gguf_file *f, rp_error *err);
void tokenizer_free(tokenizer *t);

typedef struct tokenizer_options {
    bool parse_special; /* control and user-defined tokens written in the text are recognised (user-defined ones always are) */
    bool space_prefix;  /* the text stands at the beginning: SentencePiece's dummy space goes before it if the model wants one
                           (also, as in llama.cpp, after every special token inside the text) */
} tokenizer_options;

/* Appends the tokens of text (n bytes; any bytes) to *out. No beginning- or end-of-text token is added. Where the vocabulary merges
 * spaces, those at the text's end give nothing, and those at its beginning nothing (space_prefix) or one.
 * RP_ERR_MEMORY, RP_ERR_LIMIT; on error *out keeps what it held before the call. */
int tokenizer_encode(const tokenizer *t, const char *text, size_t n, tokenizer_options options, token_list *out,
                     rp_error *err);

int32_t tokenizer_n_vocab(const tokenizer *t);
/* Bytes that a token stands for: U+2581 as space, byte tokens as their byte, byte-level characters as bytes.
 * special: control tokens as their name, else as nothing. Owned by the tokenizer, NUL-terminated; NULL if id is out of range. */
const char *tokenizer_bytes(const tokenizer *t, int32_t id, bool special, size_t *n);
/* The id of a token by its text in the vocabulary ("<|im_end|>"), or -1. */
int32_t tokenizer_find(const tokenizer *t, const char *text, size_t n);

/* Ids, or -1 where the vocabulary has none. */
int32_t tokenizer_bos(const tokenizer *t);
int32_t tokenizer_eos(const tokenizer *t);
int32_t tokenizer_unk(const tokenizer *t);
int32_t tokenizer_pad(const tokenizer *t);
bool tokenizer_adds_bos(const tokenizer *t);
/* Does the vocabulary write the space before a word into the word, and one before the first (SentencePiece)? */
bool tokenizer_has_space_prefix(const tokenizer *t);
/* Does generation end with this token? (eos, eot, and the known end-of-turn tokens of chat formats) */
bool tokenizer_is_end(const tokenizer *t, int32_t id);

#endif
