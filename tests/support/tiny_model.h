/* SPDX-License-Identifier: Apache-2.0 */
/* tiny_model.h: writes small random models of architecture `llama`, for tests.
 *
 * The same shape and seed give the same file on every machine. Weights are scaled so that attention is peaked, the
 * residual stream is carried by the layers, and logits differ by several units: a mistake in a mask or a position
 * shows.
 */
#ifndef SUPPORT_TINY_MODEL_H
#define SUPPORT_TINY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "reprise.h"
#include "tiny_vocab.h"

typedef struct tiny_model_shape {
    int32_t n_layers, n_embd, n_heads, n_kv_heads, n_ff;
    int32_t head_dim;    /* may differ from n_embd / n_heads: then the file has key_length and value_length */
    int32_t n_vocab;     /* 0: as many as the vocabulary has */
    int32_t n_ctx;       /* llama.context_length */
    bool tied_output;    /* no output.weight */
    bool attention_bias; /* attn_{q,k,v,output}.bias */
    bool ffn_bias;       /* ffn_{gate,up,down}.bias */
    float norm_eps;
    float rope_base;
    int32_t rope_dim;        /* llama.rope.dimension_count; 0: head_dim */
    float rope_scale_factor; /* > 0: llama.rope.scaling.type "linear" with this factor */
    bool rope_freqs;         /* a rope_freqs.weight tensor with factors from 1 to 8, as Llama 3 has */
    kernel_type weight_type; /* of matrices; where a row is not whole blocks: Q8_0, or else F32 */
    kernel_type embd_type;   /* of token_embd and output, by the same rule */
    kernel_type round_trip;  /* not F32: all matrices were of this type before they got theirs, by the same rule */
    tiny_vocab_kind vocab;
    const char *pre;            /* see tiny_vocab_options */
    const char *chat_template;  /* or NULL */
    const char *const *control; /* further control tokens, NULL at the end; or NULL */
    bool no_bos;
    const char *name; /* general.name */
    uint64_t seed;
} tiny_model_shape;

/* 2 layers, 64 wide, 4 heads of 16 over 2 key-value heads, 128 in the feed-forward, 512 tokens (SentencePiece), F32. */
tiny_model_shape tiny_model_defaults(void);

/* RP_ERR_INVALID (a shape that no model can have; the message has the reason), RP_ERR_IO, RP_ERR_MEMORY. */
int tiny_model_write(const char *path, const tiny_model_shape *shape, rp_error *err);
/* The same to memory. *data: owned by the caller, base_free. */
int tiny_model_write_memory(uint8_t **data, size_t *bytes, const tiny_model_shape *shape, rp_error *err);

/* Writes one and opens it. chat_format: NULL for the file's own. On failure it ends the program. */
rp_model *tiny_model_open(const tiny_model_shape *shape, const char *chat_format);

/* A request's result, the caller's (rp_result_free). One that fails ends the program. */
rp_result *tiny_model_answer(rp_engine *engine, const rp_request *request);

/* Where rows of n elements cannot have type t: the type that they get instead. */
kernel_type tiny_model_row_type(kernel_type t, int64_t n);

#endif
