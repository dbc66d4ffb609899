/* SPDX-License-Identifier: Apache-2.0 */
/* model_network.h: what a backend computes: shape, numbers, layers and weights of a model, as plain structs.
 *
 * model/ fills it in from a file (model.h) and owns all memory that it refers to; a backend borrows it and knows
 * neither files nor tokenizers. Immutable; any number of threads may read it.
 */
#ifndef BACKEND_MODEL_NETWORK_H
#define BACKEND_MODEL_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "reprise.h"

typedef struct model_hparams {
    int32_t n_layers, n_embd, n_vocab, n_ctx_train;
    int32_t n_heads, n_kv_heads, key_dim, value_dim, n_ff; /* the largest of any layer: see model_layer */
    /* Latent attention: KV is one vector a token, of rot_dim rotated and value_dim latent dimensions (key_dim in all).
     * Each head makes keys of plain_key_dim dimensions and values of head_value_dim of the latent ones. 0: none.
     * n_query_latent: dimensions of latent queries; 0: none */
    int32_t plain_key_dim, head_value_dim, n_query_latent;
    /* An indexer chooses the index_top_k tokens that a row's latent attention sees, by n_index_heads queries and one
     * key a token of index_dim dimensions. 0: none */
    int32_t n_index_heads, index_dim, index_top_k;
    bool index_halves;      /* as rope_halves, of its queries and keys */
    int32_t n_draft_layers; /* more layers of the file, after n_layers, for drafts: see model_draft_head */
    int32_t n_outputs;      /* of the output head: logits, or the scores of an encoder's rank head; 0: none */
    int32_t n_types;        /* kinds of tokens with embeddings of their own, added to those of tokens; 0: none */
    int32_t n_pooled_dense; /* between the two matrices that follow pooling; 0: there are none */
    int32_t n_layer_embd;   /* dimensions of the embedding that a token has in each layer; 0: none */
    int32_t n_streams;      /* of the residual (AltUp), at most MODEL_MAX_STREAMS; 0: it is one, without the rest */
    int32_t n_laurel;       /* rank of the layers' Laurel matrices; 0: none */
    rp_pooling pooling;     /* of embeddings: mean, cls, last or rank */
    /* 0: none */
    int32_t n_experts, n_experts_used, n_ff_expert, n_ff_shared;
    /* recurrent layers, the same in all of them; 0: none */
    struct {
        int32_t kernel;    /* tokens that the convolution sums, a token's own included */
        int32_t channels;  /* of the convolution */
        int32_t n_heads;   /* matrices of a state, [state_dim][head_dim] each; none in a short convolution */
        int32_t n_groups;  /* heads h * n_groups / n_heads share keys and queries (B and C) */
        int32_t head_dim;  /* dimensions of a head's values */
        int32_t state_dim; /* of its keys and queries */
        int32_t n_steps;   /* dimensions that time steps are projected from (Mamba1, KIMI_DELTA); else 0 */
        bool neighbours;   /* of delta nets: as above; else head h shares those of h % n_groups */
        bool joint;        /* of delta nets: q, k, v and z of a group are neighbours, in one input */
    } recurrent;
    bool experts_by_router;    /* a layer has experts if it has a router */
    bool experts_sum_1;        /* weights of the selected experts sum to 1 */
    bool experts_sigmoid;      /* an expert's probability is the sigmoid of its score; else the softmax of all scores */
    bool experts_read_weighed; /* these weights multiply what an expert reads; else what it yields */
    float experts_scale;       /* of the weights of the selected experts */
    /* experts are selected from the best of equal groups of them, by the sum of a group's two best; 0: from all */
    int32_t n_expert_groups, n_expert_groups_used;
    int32_t n_dense, experts_every; /* the first layers, and of the others all but each n-th, have no experts */
    int32_t rot_dim;                /* dimensions of a head that are rotated, see model_rope; 0: none */
    /* in layers with a sliding window, a token sees tokens less than this before it; 0: no layer has a window */
    int32_t window;
    bool windows_are_centred; /* ... of half of it before and half of it after the token's own position (encoders) */
    bool windows_are_chunks;  /* ... it sees those of its own chunk of so many positions instead */
    int32_t global_every;     /* every n-th layer has no window (the first such is layer n - 1); 0: all have it */
    int32_t n_shared;         /* layers at the end that use the KV of an earlier layer */
    bool parallel;            /* attention and feed-forward read the same rows */
    bool layer_norm;          /* every norm is a LayerNorm; else RMSNorm */
    bool attention_gated;     /* the matrix of queries yields a gate of the head's result after each head's query */
    bool rope_halves;         /* rotated pairs are (i, i + n/2); else (2i, 2i + 1) */
    kernel_act act;           /* of the feed-forward */
    float norm_eps;
    float embed_scale, residual_scale, logit_scale;
    float score_scale, score_cap, logit_cap; /* caps: 0 for none */
    float qkv_limit;                         /* q, k and v are clamped to +- this; 0: not */
    /* queries of a layer that is tempered are multiplied by 1 + scale ln(1 + floor((position + offset) / length)) */
    struct {
        float scale; /* 0: none is */
        int32_t length, offset;
    } temperature;
    float alibi_max; /* the largest exponent of ALiBi's slopes; 0: no ALiBi */
    struct {
        double base, base_local; /* of layers without and with a window */
        int32_t rot_dim_local;   /* dimensions of a head that are rotated in layers with a window */
        double factor;           /* positions are divided by it; 1 for none */
        double magnitude;        /* cos and sin are multiplied by it, for q and k */
        bool yarn, yarn_truncate;
        double beta_fast, beta_slow;
        int32_t n_ctx_original; /* context length before it was extended */
    } rope;
} model_hparams;

/* Has any layer a feed-forward without experts? */
static inline bool model_has_dense(const model_hparams *hp) {
    return hp->n_experts == 0 || hp->n_dense > 0 || hp->experts_every > 1 || hp->experts_by_router;
}

/* One tensor of weights: rows of n_in elements; n_slices of n_out rows each for experts, else one. data NULL:
 * absent. */
typedef struct model_weight {
    const void *data;
    kernel_type type;
    int64_t n_in, n_out, n_slices;
    int64_t slice_bytes; /* from one slice to the next; may be negative */
    int32_t matrix;      /* number of the matrix (model_network.matrices), for weights that rows are multiplied with */
} model_weight;

/* The weights of expert i. */
static inline model_weight model_weight_slice(const model_weight *w, int64_t i) {
    model_weight s = *w;
    s.n_slices = 1;
    if (w->data) s.data = (const char *)w->data + i * w->slice_bytes;
    return s;
}

/* xIELU: alpha_p a^2 + beta a for a > 0, else alpha_n (exp(min(a, eps)) - 1 - a) + beta a (Huang and Schlag, 2024). */
typedef struct model_xielu {
    float alpha_n, alpha_p, beta, eps;
} model_xielu;

/* A feed-forward: down(act(gate x) * (up x)), or down(act(up x)) without a gate. Biases are F32 and optional. */
typedef struct model_ffn {
    model_xielu xielu; /* instead of the model's act; alpha_p 0: no */
    /* gates are cut: those below their mean plus `deviations` standard deviations become 0, others less by it */
    bool is_sparse;
    float deviations;
    model_weight gate, up, down; /* [n_ff][n_embd] x 2, [n_embd][n_ff] */
    model_weight gate_bias, up_bias, down_bias;
} model_ffn;

/* A norm works on runs of weight.n_in elements; weight.n_out > 1: each run of a row has its own weights. */
typedef struct model_norm {
    model_weight weight, bias; /* F32; without data: no norm, or no bias */
} model_norm;

#define MODEL_MAX_STREAMS 4

/* AltUp (Baykal et al., 2023): a layer reads the first of n streams as it is predicted from all of them, and its output
 * corrects each prediction. Coefficients are products of the tanh of the router's scores of a norm of the first stream,
 * before and after the layer. */
typedef struct model_altup {
    model_norm router_norm;
    model_weight router, predict, correct; /* [n][n_embd], [n * n][n], [n][n]; without data: one stream */
    model_weight scale;                    /* F32 [n_embd]: of the corrected first stream, for the layer's embedding */
} model_altup;

/* Frequencies of rotation. */
typedef struct model_rope {
    int32_t rot_dim;     /* dimensions of a head that are rotated */
    double *frequencies; /* [rot_dim / 2] */
    float magnitude;     /* of the rotated q and k */
} model_rope;

enum { MODEL_ROPE_GLOBAL,
       MODEL_ROPE_LOCAL_BASE,
       MODEL_ROPE_LONG,
       MODEL_N_ROPES,
       MODEL_NO_ROPE = -1 };

/* How a layer mixes tokens. */
typedef enum model_mixer {
    MODEL_ATTENTION,
    MODEL_NO_MIXER,         /* not at all: the layer is a feed-forward alone */
    MODEL_SHORT_CONV,       /* gated convolution of the last tokens (LFM2) */
    MODEL_MAMBA2,           /* convolution, then a matrix a head: S = decay S + dt x B; its output is S C */
    MODEL_DELTA_NET,        /* likewise: S = decay S + beta (v - decay S k) k; its output is S q (gated delta nets) */
    MODEL_KIMI_DELTA,       /* as DELTA_NET, a decay for each dimension of a key (Kimi delta attention) */
    MODEL_MAMBA1,           /* as MAMBA2, a decay for each channel and dimension, of dt that the convolved rows yield */
    MODEL_ATTENTION_MAMBA2, /* both, of the same rows: their outputs are added (Falcon H1) */
    /* Recurrent, without heads: state = decay * state + q(x), and its output is o(state). No file has it: the simplest
       of its kind, for tests */
    MODEL_DECAYED_SUM,
} model_mixer;

static inline bool model_mixer_attends(model_mixer m) { return m == MODEL_ATTENTION || m == MODEL_ATTENTION_MAMBA2; }
static inline bool model_mixer_recurs(model_mixer m) { return m != MODEL_ATTENTION && m != MODEL_NO_MIXER; }

#define MODEL_MAX_KERNEL 8  /* tokens of a convolution */
#define MODEL_MAX_INPUTS 4  /* projections of what a recurrent layer reads */
#define MODEL_MAX_SCANNED 6 /* inputs of its scan: those, and what the forward pass makes of others */
#define MODEL_MAX_CONVS 3   /* parts of the channels of a convolution */

/* The recurrence of a layer. Vectors are F32. Inputs, side by side:
 *
 *   SHORT_CONV    [0] B | C | x: the output is C * conv(B * x)
 *   MAMBA2        [0] z | x | B | C | dt: conv over x | B | C, dt and z by head and dimension
 *   MAMBA1        [0] x | z; the scan reads [1] conv(x), [2] dt, [3] B | C, too, which follow from [1]: B | C = select
 *                 conv(x), dt = steps (step_ranks conv(x)) before the softplus
 *   DELTA_NET     [0] q | k | v: conv over all; [1] z, by head and dimension; rates of the heads: [2] beta, [3] dt;
 *                 with neighbours [2] beta | dt of each group's heads; joint [0] q | k | v | z of each group, no [1]
 *   KIMI_DELTA    [0] q, [1] k, [2] v: conv over each; [3] beta; the scan reads [4] dt with its bias, by head and
 *                 dimension of a key, and [5] z, too: steps (step_ranks x), gates (gate_ranks x)
 */
typedef struct model_recurrent {
    model_weight in[MODEL_MAX_INPUTS]; /* without data: none */
    /* Equal parts of [channels][kernel], in order, those after the first may have no data; [channels], optional */
    model_weight convs[MODEL_MAX_CONVS], conv_bias;
    /* [n_heads]: dt = softplus(dt + bias), decay = exp(dt a), output += d x. Mamba1: [channels], and for each of these
     * [state_dim] of a. KIMI_DELTA: dt_bias [n_heads * state_dim] */
    model_weight dt_bias, a, d;
    model_weight step_ranks, steps, select; /* Mamba1: [n_steps][channels], [channels][n_steps], [2 state][channels] */
    model_weight gate_ranks, gates;         /* KIMI_DELTA, as step_ranks and steps: [n_steps][x], [inner][n_steps] */
    model_norm step_norm, b_norm, c_norm;   /* Mamba1, optional: of step_ranks x, B, C */
    model_norm norm;                        /* of gated values; optional */
    model_weight out;                       /* projection of its output */
    model_weight decay;                     /* [width], of a decayed sum: as many state elements, f32 */
} model_recurrent;

typedef struct model_layer {
    int32_t n_heads, n_kv_heads, key_dim, value_dim, n_ff; /* of its attention, and of its dense feed-forward */
    model_norm attn_norm, ffn_norm, post_attn_norm, post_ffn_norm, q_norm, k_norm;
    model_norm v_norm;                        /* of values, or none */
    model_norm attn_out_norm, layer_out_norm; /* of the residual stream itself, after each sum: encoders */
    /* [n_heads * key_dim][n_embd], with attention_gated twice as many rows ... [n_embd][n_heads * value_dim]; v without
     * data: values are what k projects, before its norm */
    model_weight q, k, v, o;
    model_weight q_bias, k_bias, v_bias, o_bias; /* F32, optional */
    /* Latent attention: k makes the vector, its latent part first. q_latent: optional. Slices: of heads,
     * [value_dim][plain_key_dim] and [head_value_dim][value_dim] */
    model_weight q_latent, head_keys, head_values;
    model_norm q_latent_norm, latent_norm;
    /* The indexer (DeepSeek Sparse Attention): queries, from latent ones; the token's key, with a LayerNorm; a weight
     * of each head. [n_index_heads * index_dim][n_query_latent], [index_dim][n_embd], [n_index_heads][n_embd]. Without
     * data: none */
    model_weight index_q, index_k, index_weights;
    model_norm index_norm;
    model_weight sinks;     /* F32 [n_heads], optional */
    model_weight attn_gate; /* [n_heads * value_dim][n_embd], optional: attention's output times its sigmoid */
    /* F32 [key_dim], optional: norms of q and k that follow their rotation have weights, whose product multiplies the
       rotated queries. Keys are stored without */
    model_weight query_weights;
    model_ffn ffn;
    model_weight router, router_bias; /* [n_experts][n_embd]; without data: the feed-forward is ffn */
    model_weight router_correction;   /* F32 [n_experts], optional: added to probabilities to select experts, not to
                                         weigh them */
    model_ffn experts;                /* n_experts slices */
    model_ffn shared;
    model_weight shared_gate; /* [1][n_embd], optional */
    /* Norms of the residual stream that the router and the experts read instead of ffn_norm's; the router's is divided
     * by the root of n_embd. Norms of the shared expert's and of the experts' output. All or none */
    model_norm router_norm, experts_norm, post_shared_norm, post_experts_norm;
    model_weight expert_scales; /* F32 [n_experts], optional: factors of the weights of selected experts */
    /* The token's embedding of this layer, by a gate: x += norm(up(act(gate x) * embedding)). Without data: none */
    model_weight embd_gate, embd_up; /* [n_layer_embd][n_embd], [n_embd][n_layer_embd] */
    model_norm embd_norm;
    model_weight out_scale; /* F32 [1], optional: of the residual stream after the layer */
    model_altup altup;
    /* Laurel: (x + in + norm(b a in)) / the root of 2 after attention, in its input. Without data: none */
    model_weight laurel_a, laurel_b; /* [n_laurel][n_embd], [n_embd][n_laurel] */
    model_norm laurel_norm;

    model_mixer mixer;
    model_recurrent recurrent; /* if the mixer recurs */
    int32_t window;            /* 0: sees everything */
    int32_t rope;              /* MODEL_ROPE_GLOBAL, MODEL_ROPE_LOCAL_BASE or MODEL_NO_ROPE */
    /* layer of a span that holds its KV: its own, or that of an earlier layer; and of spans of states, its own. A layer
     * with one of the two has the same number as both; one without either has -1 */
    int32_t states, recurrence;
    int32_t index;  /* layer of a span that holds the keys of its indexer; -1: it has none */
    bool is_chosen; /* its attention sees what its indexer, or that of the last layer with one, chose */
    bool owns_kv;
    bool tempered; /* its queries: see model_hparams.temperature */
} model_layer;

/* A token at pos of a layer sees tokens up to *last, and of these less than this before *last; 0: all. after: as in
 * model_row */
static inline int32_t model_layer_reach(const model_hparams *hp, const model_layer *l, int32_t pos, int32_t after,
                                        int32_t *last) {
    *last = pos + (l->window > 0 && hp->windows_are_centred ? l->window / 2 : after);
    return l->window > 0 && hp->windows_are_chunks ? pos % l->window + 1 : l->window;
}

/* Classes of tokens, for backends that write a text without computing one (mock/). */
typedef enum model_token_class { MODEL_TOKEN_CONTROL, /* no text: control tokens, unused ones */
                                 MODEL_TOKEN_TEXT,
                                 MODEL_TOKEN_WORD, /* letters, after a space or not */
                                 MODEL_TOKEN_END   /* ends an answer */
} model_token_class;

/* A head that drafts further tokens (multi-token prediction; DeepSeek-V3, 2024). A row is a token and the final hidden
 * state of the token before it, which may be the head's own: layer n_layers of model_network.layers, with KV of its own
 * (layer 0 of its spans), computes
 *
 *   projection (norm of the token's embedding | norm of the hidden state)
 *
 * and output_norm makes the row's hidden state of the result, output its logits. */
typedef struct model_draft_head {
    model_norm embd_norm, hidden_norm, output_norm;
    model_weight projection;        /* [n_embd][2 n_embd]; without data: there is no head */
    model_weight embedding, output; /* as in model_network; without data: those */
} model_draft_head;

typedef struct model_network {
    model_hparams hp;
    bool is_mock;                                /* no weight has data, and token_classes is set */
    model_weight embedding, output, output_bias; /* output: the embedding if the file ties them */
    model_weight head, head_bias;                /* of an encoder's rank head: output(tanh(head x)); without data:
                                                    output x */
    model_weight positions;                      /* [positions][n_embd]; without data: they are not learned */
    model_weight token_types;                    /* [n_types][n_embd]; without data: none */
    /* Embeddings of all layers: [n_vocab][n_layers * n_layer_embd], added to the normed projection of the token's
     * embedding: [n_layers * n_layer_embd][n_embd]. Without data: none */
    model_weight layer_embeddings, layer_projection;
    model_norm embed_norm, output_norm, layer_embd_norm;
    /* [n_embd][n_embd]: streams after the first, from the embedding, and what each adds to the output */
    model_weight streams_in[MODEL_MAX_STREAMS - 1], streams_out[MODEL_MAX_STREAMS - 1];
    model_layer *layers; /* [n_layers + n_draft_layers], of the latter the first at most */
    model_draft_head draft_head;
    const model_weight **matrices; /* [n_matrices]: those that rows are multiplied with; some have no data */
    int32_t n_matrices;
    model_rope ropes[MODEL_N_ROPES]; /* unused ones are empty */
    float *alibi_slopes;             /* [n_heads]; NULL: none */
    uint8_t *token_classes;          /* [n_vocab]: model_token_class; NULL: not needed */
    uint64_t weight_bytes;           /* of all tensors, as the file has them */
    /* Releases pages of the mapped file; bytes outside of it are left alone. NULL: there is no file. */
    void (*forget)(const void *source, const void *data, size_t bytes);
    const void *source;
    /* A network of which this is the part that one of two backends computes (backend/split); NULL: it is whole. Layers
     * that the other computes have no mixer, its matrices no data */
    const struct model_network *whole;
} model_network;

static inline const model_network *model_network_whole(const model_network *net) {
    return net->whole ? net->whole : net;
}

/* Has it any recurrent layer? */
bool model_is_recurrent(const model_network *net);
/* May the states of texts be composed (backend_recurrence.states_compose)? Yes, if all recurrent layers are Mamba2: a
   token multiplies a head's matrix by one number. */
bool model_states_compose(const model_network *net);
/* Bytes of a recurrent layer's state: its last kernel - 1 inputs, then its heads' matrices, then, if states compose, of
 * each head the product of what tokens have multiplied its matrix by; f32. */
uint64_t model_state_bytes(const model_network *net);

/* The frequencies of a kind of layer (MODEL_ROPE_GLOBAL or MODEL_ROPE_LOCAL_BASE) in a context of n_ctx positions.
 * Models with long-context factors (long-rope) use them if n_ctx exceeds the original context length. */
const model_rope *model_layer_rope(const model_network *net, int32_t rope, int32_t n_ctx);
/* Returns true if n_ctx selects the long-context frequencies. KV of the two kinds must not be mixed. */
bool model_rope_is_long(const model_network *net, int32_t n_ctx);

/* Rotation angles of one position: cs[2i] = scale * cos, cs[2i+1] = scale * sin of position * frequency(i), i < rot_dim
 * / 2. Computed in double, so that a position of 100,000 is as exact as one of 1. pos may be negative. */
void model_rope_angles(const model_rope *rope, int32_t pos, float scale, float *cs);

/* The addition of an adapter to one matrix, packed for the kernels (kernel_pack). a.data NULL: none. */
typedef struct adapter_matrix {
    model_weight a, b; /* [rank][n_in], [n_out][rank] */
    float factor;      /* of their product */
} adapter_matrix;

/* What a LoRA adapter adds to a network, row by row (model/adapter.h). */
typedef struct adapter_weights {
    const model_network *net; /* borrowed */
    uint64_t id;              /* of this adapter alone in this process; not 0 */
    adapter_matrix *matrices; /* [n_matrices of the network] */
    int side;                 /* of the packed rows: kernel_table.side */
    int32_t max_rank;
} adapter_weights;

#endif
