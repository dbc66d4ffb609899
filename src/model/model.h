/* model.h: an opened model: what the GGUF file says about shape, features and weights.
 *
 * Architectures are rows of a table (model_archs in model.c): a name and features. Tensors are rows of another
 * (model_tensors). The forward pass (forward.h) reads both and has no branch for a name.
 *
 * Immutable after opening; any number of threads may use it.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "kernels/kernels.h"
#include "kv/block_pool.h"
#include "model/chat_format.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "reprise.h"

/* What an architecture does; a row of the table is a set of these. */
enum {
    MODEL_NORM_RMS = 1 << 0,
    MODEL_ROPE = 1 << 1,       /* rotary positions: spans can move */
    MODEL_ROPE_NEOX = 1 << 2,  /* pairs (i, i + n/2) instead of (2i, 2i + 1) */
    MODEL_FFN_SWIGLU = 1 << 3,
};

typedef struct model_arch {
    const char *name; /* general.architecture, and the prefix of its keys */
    uint32_t features;
} model_arch;

typedef struct model_hparams {
    int32_t n_layers, n_embd, n_heads, n_kv_heads, key_dim, value_dim, n_ff, n_vocab, n_ctx_train;
    int32_t rot_dim;   /* dimensions of a head that are rotated */
    double rope_base;
    double rope_factor; /* linear scaling: positions are divided by it; 1 for none */
    float norm_eps;
} model_hparams;

/* One tensor of weights, rows of n_in elements. data NULL: the model has none. */
typedef struct model_weight {
    const void *data;
    kernel_type type;
    int64_t n_in, n_out;
} model_weight;

typedef struct model_layer {
    model_weight attn_norm, ffn_norm; /* F32 [n_embd] */
    model_weight q, k, v, o;          /* [n_heads * key_dim][n_embd] ... [n_embd][n_heads * value_dim] */
    model_weight gate, up, down;      /* [n_ff][n_embd] x 2, [n_embd][n_ff] */
    model_weight q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias; /* F32, optional */
} model_layer;

struct rp_model {
    gguf_file *file;
    const model_arch *arch;
    model_hparams hp;
    model_weight embedding, output_norm, output; /* output: the embedding where the file ties them */
    model_weight rope_factors;                   /* F32 [rot_dim / 2], optional: frequencies are divided by them (Llama 3) */
    model_layer *layers;
    tokenizer *tokenizer;
    const chat_format *chat;
    bool chat_guessed; /* the file's own template is none of those that are known */
    char *name;
    base_key fingerprint;
    char fingerprint_hex[2 * BASE_KEY_BYTES + 1];
};

int model_open(rp_model **out, const char *path, const rp_model_options *options, rp_error *err); /* see rp_model_open */
void model_close(rp_model *m);

/* Can spans be moved to other positions than they were computed at? */
static inline bool model_is_movable(const rp_model *m) { return (m->arch->features & MODEL_ROPE) != 0; }
kv_shape model_state_shape(const rp_model *m, kv_format format);

/* Rotation angles of one position: cs[2i] = cos, cs[2i+1] = sin of position * frequency(i), i < rot_dim / 2.
 * Computed in double, so that a position of 100,000 is as exact as one of 1. pos may be negative. */
void model_rope_angles(const rp_model *m, int32_t pos, float *cs);

#endif
