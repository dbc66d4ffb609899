/* SPDX-License-Identifier: Apache-2.0 */
/* model.h: an opened model: shape, features and weights of a GGUF file.
 *
 * Architectures are rows of a table (model_arch.c): a name and features. Tensors are rows of another (model_tensors.c).
 * The forward pass (forward.h) and the backends read the resulting model_network only and have no branch on an
 * architecture's name.
 *
 *   model_network.h   what a backend computes: hyper-parameters, layers, weights
 *   model_arch.c      the table of architectures
 *   model_hparams.c   shape and numbers, of layers, too, from the metadata
 *   model_tensors.c   weights: names, shapes; those of a layer, fused ones taken apart: model_settle.c
 *   model_layers.c    properties of each layer: matrices, rotations, shared KV
 *   model_rope.c      rotary frequencies
 *   model_dense.c     matrices after the pooling of embeddings
 *   model.c           opening
 *   model_mock.c      instead of the last four: a model without weights, for tests
 *   model_fingerprint.c   a hash of every byte, computed on demand
 *
 * Immutable after opening, except the fingerprint, which has a lock; any number of threads may use it.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "kernels/kernels.h"
#include "kv/block_pool.h"
#include "model/chat_format.h"
#include "model/gguf/gguf.h"
#include "backend/backend_registry.h"
#include "backend/model_network.h"
#include "model/tokenizer/tokenizer.h"
#include "reprise.h"
#include "reprise_test.h"

/* Features of an architecture; a row of the table is a set of these. Features that follow from the presence of a tensor
 * (biases, fused or tied weights) need no bit. */
#define MODEL_LAYER_NORM (1ull << 0)       /* every norm is a LayerNorm; else RMSNorm */
#define MODEL_PRE_NORM (1ull << 1)         /* attention reads normed rows (attn_norm) */
#define MODEL_FFN_NORM (1ull << 2)         /* the feed-forward reads normed rows (ffn_norm) */
#define MODEL_FFN_NORM_RENAMED (1ull << 3) /* ... which the files name post_attention_norm */
#define MODEL_POST_NORM (1ull << 4)        /* outputs of attention and feed-forward are normed before they are added */
#define MODEL_QK_NORM (1ull << 5)          /* norms of q and k */
#define MODEL_EMBED_NORM (1ull << 6)
#define MODEL_PARALLEL (1ull << 7)    /* attention and feed-forward read the same rows */
#define MODEL_ROPE (1ull << 8)        /* rotary positions */
#define MODEL_ROPE_HALVES (1ull << 9) /* pairs (i, i + n/2) instead of (2i, 2i + 1) */
#define MODEL_ROPE_LOCAL (1ull << 10) /* layers with a window may have a separate base, and have no scaling */
#define MODEL_ALIBI (1ull << 11)
#define MODEL_POSITIONS (1ull << 12) /* always learned positions, added to the embedding: KV cannot be shifted */
#define MODEL_FFN_GATED (1ull << 13)
#define MODEL_EMBED_SQRT (1ull << 14)     /* embeddings times sqrt(n_embd) */
#define MODEL_LOGIT_DIVISOR (1ull << 15)  /* logit_scale divides */
#define MODEL_EXPERTS (1ull << 16)        /* always a mixture of experts */
#define MODEL_EXPERTS_SHARED (1ull << 17) /* and a shared expert that every row passes */
#define MODEL_EXPERTS_SUM_1 (1ull << 18)  /* weights of the selected experts sum to 1, unless the metadata differ */
#define MODEL_SINKS (1ull << 19)          /* one more logit in each head's softmax, without a token */
#define MODEL_PARALLEL_TOLD (1ull << 20)  /* the metadata decide whether they are parallel; by default they are */
#define MODEL_PARALLEL_BARE (1ull << 21)  /* they are parallel if the feed-forward has no separate norm */
/* YaRN's range is not rounded to whole dimensions, unless the metadata override it */
#define MODEL_YARN_EXACT (1ull << 22)
/* each token attends to the whole text, or to a window around it: embeddings, no logits */
#define MODEL_ENCODER (1ull << 23)
#define MODEL_SHARED_GATE (1ull << 24) /* the shared expert has a gate */
#define MODEL_QK_NORM_IF (1ull << 25)  /* norms of q and k if the file has them */
#define MODEL_LATENT (1ull << 30)      /* latent attention (hp.plain_key_dim); without MODEL_ROPE, nothing rotates */
/* which layers are recurrent follows from the metadata (model_layer_mixer) */
#define MODEL_HAS_SHORT_CONV (1ull << 26)
#define MODEL_HAS_MAMBA2 (1ull << 27)
#define MODEL_OUTPUT_NORM_RENAMED (1ull << 28) /* the files name it token_embd_norm */
#define MODEL_ROPE_TOLD (1ull << 29)           /* positions are rotary only if the metadata say so */
#define MODEL_HAS_DELTA_NET (1ull << 31)       /* which layers: model_layer_mixer */
/* ... whose heads of one group are neighbours, and whose rates are one matrix; else heads h, h + n_groups, ... are a
 * group, and there are two matrices */
#define MODEL_DELTA_NEIGHBOURS (1ull << 32)
#define MODEL_ATTENTION_GATED (1ull << 33) /* hp.attention_gated */
#define MODEL_QK_NORM_ROTATED (1ull << 40) /* norms of q and k follow their rotation */
#define MODEL_GATE_MATRIX (1ull << 41)     /* a matrix of its own yields the gates of attention's output */
#define MODEL_SUM_NORMS (1ull << 42)       /* norms follow the sums of the residual stream */
#define MODEL_FIRST_UNNORMED (1ull << 43)  /* attention of the first layer reads rows that are not normed */
#define MODEL_ACT_TOLD (1ull << 44)        /* the metadata have the activation, unless it is the usual one */
#define MODEL_EMBEDDING_DENSE (1ull << 45) /* matrices after the pooling of embeddings, if the file has them */
#define MODEL_NORMS_BARE (1ull << 46)      /* norms before attention, feed-forward and output have no weights */
#define MODEL_HAS_MAMBA1 (1ull << 48)
#define MODEL_MAMBA1_NORMS (1ull << 49)     /* norms of time steps, B and C */
#define MODEL_HAS_INDEXER (1ull << 35)      /* layers of latent attention have indexers, which the metadata may list */
#define MODEL_LAYER_EMBEDDINGS (1ull << 36) /* layers may have embeddings of tokens, and a factor of their output */
/* experts are beside the dense feed-forward, which is the shared expert, and have norms of their own */
#define MODEL_EXPERTS_BESIDE (1ull << 37)
#define MODEL_STREAMS (1ull << 38) /* AltUp's streams of the residual, Laurel, and sparse activations */
#define MODEL_HAS_KIMI_DELTA (1ull << 39)
#define MODEL_RECURRENT \
    (MODEL_HAS_SHORT_CONV | MODEL_HAS_MAMBA2 | MODEL_HAS_DELTA_NET | MODEL_HAS_MAMBA1 | MODEL_HAS_KIMI_DELTA)

typedef struct model_arch {
    const char *name; /* general.architecture, and the prefix of its keys */
    uint64_t features;
    kernel_act act;
    /* with a window: every n-th layer has none (the first such is layer n - 1); 0: all have it */
    int32_t global_every;
    bool global_first;         /* ... the first such is layer 0 */
    int32_t no_rope_every;     /* every n-th layer has no positions */
    bool rope_in_windows;      /* if some layers have a window, the others have no positions */
    bool is_xielu;             /* the activation is xIELU, with numbers of each layer in the metadata; not act */
    bool windows_are_chunks;   /* a token sees the tokens of its chunk of `window` positions */
    bool unit_norms;           /* rotated q and k have norms without weights, unless of 128 experts (Maverick) */
    bool experts_read_weighed; /* the weights of selected experts multiply what they read, not what they yield */
    /* queries of layers without positions, if others have windows, are scaled by this temperature
       (model_hparams.temperature), unless the metadata have another; scale 0: by that of the metadata, in all layers */
    struct {
        float scale;
        int32_t length, offset;
    } temperature;
    bool has_draft_head; /* files may have one, which reads final hidden states after their norm */
    bool index_halves;   /* an indexer rotates pairs (i, i + n/2), whatever attention does; else (2i, 2i + 1) */
    bool mixes_both;     /* each layer has attention and a recurrence */
    bool is_split;       /* a layer is attention, a recurrence or a feed-forward alone, as the metadata list */
    bool experts_by_router;
    bool experts_sigmoid; /* probabilities of experts are sigmoids, unless the metadata override it */
    /* a model with this number of layers scales scores by n_embd / n_heads instead of the head's width */
    int32_t wide_layers;
    double local_base; /* of rotation in layers with a window; 0: that of the others */
    /* factors of embeddings, of residuals (times 1 / sqrt(n_layers)) and of logits (divided by n_embd), unless the
       metadata have them; 0: none */
    double embed_scale, depth_scale, base_width;
    double score_scale; /* of scores, unless the metadata override it; 0: 1 / the root of a head's width */
    bool values_normed; /* each head's values have a norm without weights */
    int32_t window;     /* this and the caps: defaults for old files without these metadata */
    float score_cap, logit_cap;
} model_arch;

/* NULL: not supported. */
const model_arch *model_arch_find(const char *name, size_t n);
const model_arch *model_arch_at(size_t i); /* in the order of the table; NULL at its end */

#define MODEL_N_OPENINGS 2 /* of answers: after a message of the user, after the result of a tool call */

struct rp_model {
    gguf_file *file;
    const model_arch *arch;
    model_network net; /* what a backend computes */
    /* F32 [rot_dim / 2], optional: frequencies are divided by them */
    model_weight rope_factors, rope_factors_long, rope_factors_short;
    model_weight streams_in, streams_out; /* of several streams: [n_embd][n_embd] for each after the first */
    /* [n_pooled_dense][n_embd], [n_embd][n_pooled_dense]: of pooled embeddings; without data: none */
    model_weight dense[2];
    float **made; /* [n_layers + n_draft_layers], owned: weights that are made of those of the file; or NULL */
    float *ones;  /* [the largest of key_dim, value_dim, n_embd], owned: weights of norms without any; or NULL */
    /* every n-th layer is attention, the others are delta nets; 0: the file lists them */
    int32_t attention_every;
    kv_layer_shape *kv_layers; /* [n_kv_layers]: the layers of a span */
    int32_t n_kv_layers;
    kv_layer_shape draft_kv_layer; /* of its draft head */
    tokenizer *tokenizer;
    const chat_format *chat;
    bool chat_guessed;     /* the file's own template matches no known format */
    rp_template *template; /* the file's own, for conversations; NULL: none */
    char *template_answers
        [MODEL_N_OPENINGS]; /* what an answer follows in what it writes (model_template.h); NULL: unknown */
    char *name;
    char *chat_template;  /* the file's own; NULL: none */
    rp_sampling advice;   /* the file's own, of the fields in `advised` */
    uint32_t advised;     /* RP_ADVISES_* */
    backend_times times;  /* of a mock's steps */
    bool vocabulary_only; /* then arch may be NULL, and weights must not be read; */
    bool has_shape;       /* of net.hp only n_vocab is set without this: the file has no shape (model.c, read_shape) */
    /* of headers, metadata and chat format, without the weights: part of KV keys within one process */
    base_key header_digest;

    bool has_lock;
    pthread_mutex_t lock;
    atomic_bool has_fingerprint; /* the members below are set and final */
    base_key digest;             /* of the contents of all files, the same for every chat format */
    base_key fingerprint;
    char fingerprint_hex[2 * BASE_KEY_BYTES + 1];
    uint64_t hashed_bytes; /* bytes of weights that were hashed for it; 0: the digest was cached */
};

/* see rp_model_open */
int model_open(rp_model **out, const char *path, const rp_model_options *options, rp_error *err);
/* see rp_model_open_mock */
int model_open_mock(rp_model **out, const char *path, const rp_mock_options *options, rp_error *err);
/* As model_open, for an opened file. The model takes ownership of it; on failure it is closed. */
int model_open_gguf(rp_model **out, gguf_file *file, const rp_model_options *options, rp_error *err);
void model_close(rp_model *m);
/* RP_ERR_UNSUPPORTED: the model was opened for its vocabulary alone. A mock is whole. */
int model_check_whole(const rp_model *m, rp_error *err);
/* RP_ERR_UNSUPPORTED: the same, of a file without the model's shape. */
int model_check_shape(const rp_model *m, rp_error *err);

/* Cache of digests of model files, keyed by the identity of the files. NULL functions are not called. */
typedef struct model_digests {
    bool (*find)(void *user, const base_key *files, base_key *digest); /* false: cache miss */
    void (*keep)(void *user, const base_key *files, const base_key *digest);
    void *user;
} model_digests;

/* Fills in the fingerprint: BLAKE2b of every byte of all headers, metadata and weights, and of the chat format. Later
 * calls return at once. A tensor is hashed in pieces by n_threads threads; their number does not change the result.
 * known    may be NULL; looked up before any weight is read. A computed digest is added, unless a file was modified so
 *          recently that a second modification could have the same time.
 * on_progress (bytes) may be NULL; called on the calling thread.
 * Any thread. RP_ERR_IO (a file was modified in place since it was opened: old and new weights may be mixed),
 * RP_ERR_MEMORY. */
int model_fingerprint(rp_model *m, const model_digests *known, int n_threads, rp_on_progress on_progress, void *user,
                      rp_error *err);

/* The same, from `known` alone: no weight is read. false: the digest is not cached, or a file was modified. */
bool model_fingerprint_cached(rp_model *m, const model_digests *known);
/* Fails if a file was modified in place since the model was opened. RP_ERR_IO. */
int model_check_files(const rp_model *m, rp_error *err);

static inline bool model_is_encoder(const rp_model *m) { return m->arch && (m->arch->features & MODEL_ENCODER) != 0; }
/* Are its positions none of the KV's values, so that layers whose KV shifts (model_capabilities) can be moved to other
   positions? */
static inline bool model_is_movable(const rp_model *m) {
    return !m->net.positions.data && !(m->vocabulary_only && m->arch && (m->arch->features & MODEL_POSITIONS));
}
/* A pooled embedding, [n_embd], through the matrices that follow pooling, in double; nothing without them. scratch:
 * model_dense_scratch numbers. */
size_t model_dense_scratch(const rp_model *m);
void model_apply_dense(const rp_model *m, double *x, double *scratch);
/* Reads a list of layers: "0,1,27", "0-2", and "windows" for all layers with a sliding window. Sets in_f16 of
 * kv_layers, [n_kv_layers]: true for the KV of the layers in the list, be it their own or that of another layer, and
 * false for others. RP_ERR_INVALID: malformed, or the model has no such layer; name: of the list, for the message. */
int model_read_f16_layers(const rp_model *m, const char *name, const char *list, kv_layer_shape *kv_layers,
                          rp_error *err);
/* The result borrows from the model. */
kv_shape model_kv_shape(const rp_model *m, rp_kv_format format);
/* Has it a head that drafts? The KV of that, in f16; the result borrows from the model. */
static inline bool model_has_draft_head(const rp_model *m) { return m->net.draft_head.projection.data != NULL; }
kv_shape model_draft_kv_shape(const rp_model *m);
/* What its KV allows, in any format. */
static inline kv_capabilities model_capabilities(const rp_model *m) {
    const kv_shape shape = model_kv_shape(m, RP_KV_F16);
    return kv_shape_capabilities(&shape);
}

#endif
