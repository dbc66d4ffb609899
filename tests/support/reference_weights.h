/* SPDX-License-Identifier: Apache-2.0 */
/* reference_weights.h: a model as the slow reference computes with it: plain F32 arrays, one struct a layer, and the
 * facts that GGUF's keys and tensors leave to convention. Internal to reference_*.c.
 *
 *   reference_family.c   which architectures there are, and the keys of a file
 *   reference_weights.c  the tensors of a file
 *   reference_rope.c     frequencies of the rotation
 */
#ifndef SUPPORT_REFERENCE_WEIGHTS_H
#define SUPPORT_REFERENCE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/gguf/gguf.h"
#include "reference_model.h"
#include "reference_rope.h"

typedef enum reference_activation { REFERENCE_SILU,
                                    REFERENCE_GELU_ERF,
                                    REFERENCE_GELU_TANH,
                                    REFERENCE_RELU_SQUARED,
                                    REFERENCE_CLAMPED } reference_activation;
typedef enum reference_rotation { REFERENCE_HALVES,
                                  REFERENCE_ADJACENT,
                                  REFERENCE_UNROTATED } reference_rotation;
/* Which layers the window holds for, counted from 0: all; 0, 2, 4, ...; all but 5, 11, 17, ... */
typedef enum reference_locality { REFERENCE_LOCAL_ALL,
                                  REFERENCE_LOCAL_EVEN,
                                  REFERENCE_LOCAL_FIVE_OF_SIX,
                                  REFERENCE_LOCAL_THREE_OF_FOUR } reference_locality;

/* Properties without a key in the file. */
typedef struct reference_family {
    const char *name; /* general.architecture */
    reference_activation activation;
    reference_rotation rotation;
    reference_locality locality;
    bool layer_norm;            /* though the file has an epsilon for RMS norms */
    bool parallel;              /* x + attention(x) + mlp(x); else one after the other */
    bool parallel_without_norm; /* parallel are the layers that have no norm before their mlp */
    bool rotates_locally;       /* with a window, layers without it have no positions */
    bool renormalised;          /* the chosen experts' weights sum to 1, unless a key tells */
    bool norms_rotated;         /* q and k are normed after their rotation */
    bool sigmoid;               /* of experts, unless a key tells */
    bool weighs_inputs;         /* an expert's weight multiplies what it reads */
    bool root_embedding;        /* embeddings times sqrt(n_embd) */
    bool divided_logits;        /* logit_scale divides */
    bool unscaled;              /* scores have no scale */
    bool normed_values;         /* values of each head are normed, without weights */
    bool yarn_unrounded;        /* default if rope.scaling.yarn_truncate is absent */
    int32_t unrotated_every;    /* n: layers n - 1, 2n - 1, ... have no positions; 0: all have */
    int32_t wide_layers;        /* a model of so many layers scales scores by 1 / sqrt(n_embd / heads) */
    /* n > 0: a window is a chunk of positions; a chunk's size where no key gives it, and then layers without positions
     * are tempered by it; rotated q and k are normed, without weights, after their rotation, unless there are so many
     * experts */
    int32_t chunk, normless_experts;
    /* factors of embeddings, of residuals (by the root of the layers) and of logits (by the width); 0: none */
    double embedding_scale, depth_scale, base_width;
    bool bare_norms;      /* norms have no weights */
    bool index_halves;    /* an indexer rotates in halves */
    double alibi;         /* the largest bias, where no key gives it; 0: no bias */
    const char *mlp_norm; /* the tensor; NULL: "ffn_norm" */
} reference_family;

typedef struct reference_linear {
    const float *w, *bias; /* [n_out][n_in], [n_out]; w NULL: there is none; bias NULL: none */
    int32_t n_in, n_out;   /* of one expert, where several are stacked */
} reference_linear;

/* Cuts its input into pieces of n, each normed alone: piece i by row i % rows of w. So one struct serves norms of a
 * whole row (rows 1, n the width), of every head by the same weights (rows 1, n a head's size), and of every head by
 * its own. */
typedef struct reference_norm {
    const float *w, *bias; /* [rows][n]; w NULL: there is none, and the input is the output */
    int32_t n, rows;
} reference_norm;

typedef struct reference_mlp {
    reference_linear gate, up, down; /* gate.w NULL: a plain one */
    const float *xielu[4];           /* alpha_n, alpha_p, beta, eps; NULL: the family's activation */
    const float *deviations;         /* gates are less by their mean plus so many deviations, at least 0; NULL: no */
} reference_mlp;

typedef struct reference_layer {
    int32_t n_kv_heads, key_dim, value_dim, n_ff;
    reference_norm attn_norm, mlp_norm;           /* pre-norms; without mlp_norm, a parallel mlp uses attn_norm's */
    reference_norm post_attn_norm, post_mlp_norm; /* after, before the result is added */
    reference_norm q_norm, k_norm, v_norm;
    reference_linear q, k, v, o;  /* k, v: none where the layer shares another's states; v may be k */
    const float *sinks;           /* [n_heads], or NULL */
    reference_linear gate;        /* of attention's output, by a sigmoid; w NULL: none */
    bool norms_rotated, tempered; /* q_norm and k_norm follow the rotation; w NULL: they have no weights */
    /* Latent attention, as it is defined: k and v of each head are made of one latent vector. q: of q_latent, if there
       is one */
    reference_linear q_latent, latent_kv; /* latent_kv: [n_latent + n_rotated][n_embd] */
    reference_norm q_latent_norm, latent_norm;
    const float *latent_keys, *latent_values; /* [head][n_latent][key_dim - n_rotated], [head][value_dim][n_latent] */
    /* An indexer: queries from the latent ones, a key a token with a LayerNorm, weights of heads. w NULL: the layer has
       none, and attends to what the last one chose */
    reference_linear index_q, index_k, index_weights;
    const float *index_norm, *index_bias;
    reference_mlp mlp,
        shared; /* mlp: experts stacked, if there is a router; shared: an expert that every token takes */
    reference_linear router, shared_gate;
    /* Experts beside an mlp, which is `shared`: factors of the router's input, and of experts' weights; norms of the
       experts' input and output, and of the mlp's output. Without routed: none */
    const float *routed, *expert_factors;
    reference_norm experts_norm, post_experts_norm, post_shared_norm;
    /* the token's embedding in this layer: x += norm(up(act(gate x) embedding)); gate.w NULL: none */
    reference_linear embedding_gate, embedding_up;
    reference_norm embedding_norm;
    const float *factor;    /* of x after the layer; NULL: none */
    float xielu_numbers[4]; /* of mlp.xielu */
    float deviations;       /* of mlp.deviations */
    /* AltUp: the router of the streams, and matrices of coefficients; factors of the first stream for the embedding */
    reference_norm altup_norm;
    reference_linear altup_router, altup_predict, altup_correct;
    const float *altup_scale;
    reference_linear laurel_a, laurel_b; /* in + norm(b a in) is added to attention; a.w NULL: none */
    reference_norm laurel_norm;
    const float *correction;    /* [n_experts] of the router, or NULL */
    int32_t window;             /* it sees distances below; 0: all */
    int32_t states_of;          /* the layer with the keys and values that it attends to */
    const reference_rope *rope; /* NULL: not rotated */
    bool parallel;
} reference_layer;

struct reference_model {
    const reference_family *family;
    int32_t n_layers, n_embd, n_heads, n_vocab;
    int32_t n_kv_heads, key_dim, value_dim; /* the largest of any layer */
    int32_t n_layer_embd;                   /* of a token's embedding in each layer; 0: none */
    int32_t n_streams;                      /* of the residual; 0: one, by the ordinary sums */
    int32_t n_ctx, n_trained;               /* positions that may occur, and that occurred in training */
    int32_t n_experts, n_used, n_groups, n_used_groups, n_shared_layers, window;
    bool sigmoid, renormalised;                                  /* of experts' probabilities and weights */
    double expert_scale, temperature, temperature_length;        /* temperature 0: none */
    int32_t n_latent, n_rotated;                                 /* parts of a latent vector; 0: none */
    bool layer_norm, parallel;                                   /* layer_norm: subtracts the mean, else RMS */
    double eps, clamp, alibi, score_scale, score_cap, logit_cap; /* clamp, alibi, caps: 0 none */
    double embedding_scale, residual_scale, logit_scale;
    reference_rope ropes[2];                          /* of global layers; of local ones, if these have another base */
    int32_t n_index_heads, index_dim, n_index_chosen; /* chosen 0: no layer has an indexer */
    reference_rope index_rope;                        /* of indexers: ropes[0], its frequencies borrowed */
    reference_norm embedding_norm, output_norm;
    const float *layer_embeddings; /* [n_vocab][n_layers][n_layer_embd], or NULL */
    reference_linear layer_projection;
    reference_linear streams_in, streams_out; /* stacked, for each stream but the first */
    reference_norm layer_norm_of_projection;
    reference_linear output;
    const float *embedding; /* [n_vocab][n_embd] */
    const float *positions; /* [n_positions][n_embd], or NULL */
    int32_t n_positions;
    reference_layer *layers;
    float **owned; /* [n_owned]: every tensor that was read */
    size_t n_owned, cap_owned;
};

/* A model being opened: rc keeps the first error. */
typedef struct reference_opening {
    const gguf_file *f;
    reference_model *m;
    rp_error *err;
    int rc;
} reference_opening;

/* Keys, with the architecture's name put before them. An integer that is required is asked for with `otherwise` -1. */
int32_t reference_number(reference_opening *o, const char *key, int64_t otherwise);
/* The layer's, of a list; else as reference_number. */
int32_t reference_layer_number(reference_opening *o, const char *key, int32_t layer, int64_t otherwise);
double reference_real(reference_opening *o, const char *key, double otherwise);
bool reference_has(reference_opening *o, const char *key);
/* Finds the family and reads every key but those of the rotation. */
void reference_read_keys(reference_opening *o);
bool reference_layer_is_local(reference_opening *o, int32_t layer); /* does the window hold there? */
/* Fills in the shape of a layer: heads, dimensions, width of the mlp. */
void reference_read_layer_shape(reference_opening *o, int32_t layer);

/* A tensor dequantised to F32, owned by the model; *t (may be NULL): its shape. NULL: there is none, an error if
   required. */
const float *reference_tensor(reference_opening *o, const char *name, bool required, const gguf_tensor **t);
/* Reads all tensors; keys and rotation come first. */
void reference_read_weights(reference_opening *o);

/* Fills in m->ropes. n_ctx: positions that may occur, by which long-rope picks its factors. */
void reference_read_ropes(reference_opening *o);

#endif
