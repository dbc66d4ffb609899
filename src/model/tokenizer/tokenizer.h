/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h: text to tokens and back, with the vocabulary of a GGUF file.
 *
 * Four kinds: "llama" (SentencePiece BPE: merges by score, U+2581 for space, byte fallback <0xNN>), "t5"
 * (SentencePiece unigram: the most probable pieces), "gpt2" (byte-level BPE: a pre-tokenizer's patterns split the
 * text, merges by rank, bytes shown as printable characters) and "bert" (WordPiece: the longest pieces of each word).
 * Tokens reproduce the text byte for byte, with these exceptions: WordPiece normalises it and drops its spaces, the
 * vocabulary normalises text (NFC by its pre-tokenizer, a normalisation table, merged spaces), or has neither a piece
 * nor byte tokens for a character. Immutable after opening; any number of threads may use it.
 */
#ifndef MODEL_TOKENIZER_H
#define MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/gguf/gguf.h"
#include "model/tokenizer/token_list.h"
#include "reprise.h"
#include "reprise_chat.h"

typedef struct tokenizer tokenizer;

/* The file must stay open as long as the tokenizer. RP_ERR_UNSUPPORTED (model or pre-tokenizer; the message lists what
 * is supported), RP_ERR_FORMAT, RP_ERR_MEMORY. */
int tokenizer_new(tokenizer **out, const gguf_file *f, rp_error *err);
void tokenizer_free(tokenizer *t);

/* Bytes [begin, end) of a text. */
typedef struct tokenizer_range {
    size_t begin, end;
} tokenizer_range;

typedef struct tokenizer_options {
    /* recognise control tokens that are written in the text (user-defined tokens are always recognised) */
    bool parse_special;
    /* the text is the start of the input: insert SentencePiece's dummy space before it if the model requires one (also,
     * as in llama.cpp, after every special token inside the text) */
    bool space_prefix;
    bool continues; /* ordinary text comes before it: no dummy space at its start */
    /* recognise control tokens that lie within one of these ranges, which rise; NULL: none */
    const tokenizer_range *trusted;
    size_t n_trusted;
} tokenizer_options;

/* Appends the tokens of text (n bytes; any bytes) to *out. No beginning- or end-of-text token is added. If the
 * vocabulary merges spaces, spaces at the text's end are removed, and those at its start are removed (space_prefix) or
 * become one. RP_ERR_MEMORY, RP_ERR_LIMIT; on error *out is unchanged. */
int tokenizer_encode(const tokenizer *t, const char *text, size_t n, tokenizer_options options, token_list *out,
                     rp_error *err);

/* Appends the tokens of a text for its embedding, with special tokens around it; second: NULL, or the document of a
 * pair (rp_tokenize_embedding). RP_ERR_LENGTH, RP_ERR_MEMORY, RP_ERR_LIMIT. */
int tokenizer_encode_embedding(const tokenizer *t, const char *text, size_t n, const char *second, size_t n_second,
                               size_t max_tokens, token_list *out, rp_error *err);

int32_t tokenizer_n_vocab(const tokenizer *t);
/* The bytes of a token: U+2581 as space, byte tokens as their byte, byte-level characters as bytes.
 * special: control tokens as their name, else as "". Owned by the tokenizer, NUL-terminated; NULL if id is out of
 * range. */
const char *tokenizer_bytes(const tokenizer *t, int32_t id, bool special, size_t *n);
/* The bytes that a sampled token adds to an answer's text. special (rp_request.special_text): those of a control token
 * that does not end the answer are its name; otherwise as tokenizer_bytes without special. */
const char *tokenizer_answer_bytes(const tokenizer *t, int32_t id, bool special, size_t *n);
/* The id of a token by its text in the vocabulary ("<|im_end|>"); -1 if there is none. */
int32_t tokenizer_find(const tokenizer *t, const char *text, size_t n);

/* Has the vocabulary fill-in-the-middle tokens? */
bool tokenizer_infills(const tokenizer *t);
/* Appends the prompt of an infill, for a vocabulary with such tokens, in its order; no beginning-of-text token. The
 * texts are untrusted: no control token is recognised in them. RP_ERR_MEMORY, RP_ERR_LIMIT; on error *out is
 * unchanged. */
int tokenizer_encode_infill(const tokenizer *t, const rp_infill *infill, token_list *out, rp_error *err);
/* The longest control or user-defined token that the text begins with; -1: none. */
int32_t tokenizer_control_at(const tokenizer *t, const char *text, size_t n);

/* Token ids; -1 if the vocabulary has none. */
int32_t tokenizer_bos(const tokenizer *t);
int32_t tokenizer_eos(const tokenizer *t);
int32_t tokenizer_unk(const tokenizer *t);
int32_t tokenizer_pad(const tokenizer *t);
int32_t tokenizer_sep(const tokenizer *t); /* separator of a pair of texts */
bool tokenizer_adds_bos(const tokenizer *t);
/* Returns true if pieces include the space before a word, with a dummy space before the first word (SentencePiece). */
bool tokenizer_has_space_prefix(const tokenizer *t);
/* Returns true if generation ends with this token: eos, eot, and the known end-of-turn tokens of chat formats. */
bool tokenizer_is_end(const tokenizer *t, int32_t id);

#endif
