/* SPDX-License-Identifier: Apache-2.0 */
/* tiny_vocab.h: small vocabularies for random models, of common English pieces, for realistic token counts. */
#ifndef SUPPORT_TINY_VOCAB_H
#define SUPPORT_TINY_VOCAB_H

#include <stdint.h>

#include "model/gguf/gguf_writer.h"

typedef enum tiny_vocab_kind {
    TINY_VOCAB_SPM,     /* tokenizer.ggml.model "llama": <unk> <s> </s>, 256 bytes, characters, pieces with scores */
    TINY_VOCAB_BPE,     /* "gpt2": <|endoftext|>, 256 bytes, merged pieces with their merges */
    TINY_VOCAB_UNIGRAM, /* "t5": tokens as TINY_VOCAB_SPM's */
} tiny_vocab_kind;

typedef struct tiny_vocab_options {
    tiny_vocab_kind kind;
    int32_t n_vocab;            /* pieces are omitted, or unreachable tokens added, to reach it; 0: all pieces */
    const char *pre;            /* of TINY_VOCAB_BPE: tokenizer.ggml.pre; NULL: "gpt-2" */
    const char *chat_template;  /* tokenizer.chat_template, or NULL */
    const char *const *control; /* further control tokens ("<|im_end|>"), NULL at the end; or NULL */
    bool no_bos;                /* add_bos_token is false */
} tiny_vocab_options;

/* Adds the tokenizer's metadata to w. *n_vocab: the number of tokens.
 * RP_ERR_INVALID (n_vocab is too small for the bytes and control tokens; the message has the number needed),
 * RP_ERR_MEMORY. */
int tiny_vocab_add(gguf_writer *w, const tiny_vocab_options *options, int32_t *n_vocab, rp_error *err);

#endif
