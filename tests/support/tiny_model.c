/* SPDX-License-Identifier: Apache-2.0 */
/* tiny_model.c: writes small random models.
 *
 * Every tensor draws from a generator seeded with (seed, its name), so that changing one feature of a shape leaves the
 * other tensors as they were. Threads: none of its own.
 *
 * Scales, for inputs x of a matrix with mean square 1 (they come out of a norm):
 *   q, k    deviation 1 an element, so scores q.k/sqrt(dim) deviate by about 1: attention is not uniform; with 1.5
 *           it is so peaked that the rounding of f16 KV alone changes logits by 2e-3
 *   v, o, gate, up, down   about 1, so each layer adds as much to the residual stream as the embedding put in
 *   output  deviation 3: logits differ by several units
 */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include "tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "tiny_random.h"

#define QK_GAIN 1.0f
#define LAYER_GAIN 1.0f
#define DOWN_GAIN 1.8f /* silu(gate) * up has a mean square of about 0.3 */
#define OUTPUT_GAIN 3.0f
#define BIAS_DEVIATION 0.2f
#define NORM_DEVIATION 0.2f

tiny_model_shape tiny_model_defaults(void) {
    return (tiny_model_shape){
        .n_layers = 2,
        .n_embd = 64,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = 16,
        .n_ff = 128,
        .n_vocab = 512,
        .n_ctx = 4096,
        .norm_eps = 1e-5f,
        .rope_base = 10000.0f,
        .weight_type = KERNEL_F32,
        .embd_type = KERNEL_F32,
        .round_trip = KERNEL_F32,
        .vocab = TINY_VOCAB_SPM,
        .name = "tiny",
        .seed = 1,
    };
}

typedef struct builder {
    gguf_writer *w;
    const tiny_model_shape *shape;
    int rc;
} builder;

/* ---- tensors --------------------------------------------------------------------------------------------------- */

/* FNV-1a, as a seed. */
static tiny_random seeded(uint64_t seed, const char *name) {
    uint64_t h = 14695981039346656037u ^ seed;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 1099511628211u;
    return (tiny_random){.state = h};
}

kernel_type tiny_model_row_type(kernel_type t, int64_t n) {
    if (n % kernel_type_block(t) == 0) return t;
    return n % kernel_type_block(KERNEL_Q8_0) == 0 ? KERNEL_Q8_0 : KERNEL_F32;
}

static int round_trip(kernel_type t, float *data, int64_t n) {
    void *stored = base_calloc(1, (size_t)kernel_row_bytes(t, n));
    if (!stored) return RP_ERR_MEMORY;
    kernel_quantize(t, data, stored, n);
    kernel_dequantize(t, stored, data, n);
    base_free(stored);
    return RP_OK;
}

static void add_random(builder *b, const char *name, kernel_type type, int64_t n_in, int64_t n_out, float mean,
                       float deviation) {
    tiny_random r = seeded(b->shape->seed, name);
    float *data = b->rc ? NULL : base_calloc((size_t)(n_in * n_out), sizeof *data);
    if (!data) {
        if (!b->rc) b->rc = RP_ERR_MEMORY;
        return;
    }
    for (int64_t i = 0; i < n_in * n_out; i++) data[i] = mean + deviation * tiny_random_normal(&r);
    kernel_type before = tiny_model_row_type(b->shape->round_trip, n_in);
    if (n_out > 1 && before != KERNEL_F32) b->rc = round_trip(before, data, n_in * n_out);
    gguf_writer_tensor(b->w, name, tiny_model_row_type(type, n_in), n_out > 1 ? 2 : 1, (int64_t[]){n_in, n_out}, data);
    base_free(data);
}

/* A matrix with outputs of standard deviation `gain` for inputs of deviation 1. */
static void add_matrix(builder *b, int layer, const char *part, int64_t n_in, int64_t n_out, float gain, bool bias) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    add_random(b, name, b->shape->weight_type, n_in, n_out, 0.0f, gain / sqrtf((float)n_in));
    if (!bias) return;
    snprintf(name, sizeof name, "blk.%d.%s.bias", layer, part);
    add_random(b, name, KERNEL_F32, n_out, 1, 0.0f, BIAS_DEVIATION);
}

static void add_norm(builder *b, const char *name) {
    add_random(b, name, KERNEL_F32, b->shape->n_embd, 1, 1.0f, NORM_DEVIATION);
}

static void add_layer(builder *b, int layer) {
    const tiny_model_shape *s = b->shape;
    int64_t q = (int64_t)s->n_heads * s->head_dim, kv = (int64_t)s->n_kv_heads * s->head_dim;
    char name[64];
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", layer);
    add_norm(b, name);
    add_matrix(b, layer, "attn_q", s->n_embd, q, QK_GAIN, s->attention_bias);
    add_matrix(b, layer, "attn_k", s->n_embd, kv, QK_GAIN, s->attention_bias);
    add_matrix(b, layer, "attn_v", s->n_embd, kv, LAYER_GAIN, s->attention_bias);
    add_matrix(b, layer, "attn_output", q, s->n_embd, LAYER_GAIN, s->attention_bias);
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", layer);
    add_norm(b, name);
    add_matrix(b, layer, "ffn_gate", s->n_embd, s->n_ff, LAYER_GAIN, s->ffn_bias);
    add_matrix(b, layer, "ffn_up", s->n_embd, s->n_ff, LAYER_GAIN, s->ffn_bias);
    add_matrix(b, layer, "ffn_down", s->n_ff, s->n_embd, DOWN_GAIN, s->ffn_bias);
}

/* Factors that angles are divided by: 1 for the fast half of the pairs, rising to 8 for the slowest. */
static void add_rope_freqs(builder *b) {
    int32_t n = (b->shape->rope_dim ? b->shape->rope_dim : b->shape->head_dim) / 2;
    float *factors = base_calloc((size_t)n, sizeof *factors);
    if (!factors) {
        b->rc = RP_ERR_MEMORY;
        return;
    }
    for (int32_t i = 0; i < n; i++)
        factors[i] = i < n / 2 ? 1.0f : 1.0f + 7.0f * (float)(i - n / 2 + 1) / (float)(n - n / 2);
    gguf_writer_tensor(b->w, "rope_freqs.weight", KERNEL_F32, 1, (int64_t[]){n}, factors);
    base_free(factors);
}

static void add_tensors(builder *b, int32_t n_vocab) {
    const tiny_model_shape *s = b->shape;
    float output = OUTPUT_GAIN / sqrtf((float)s->n_embd);
    add_random(b, "token_embd.weight", s->embd_type, s->n_embd, n_vocab, 0.0f, s->tied_output ? output : 1.0f);
    if (s->rope_freqs && !b->rc) add_rope_freqs(b);
    for (int layer = 0; layer < s->n_layers; layer++) add_layer(b, layer);
    add_norm(b, "output_norm.weight");
    if (!s->tied_output) add_random(b, "output.weight", s->embd_type, s->n_embd, n_vocab, 0.0f, output);
}

/* ---- metadata -------------------------------------------------------------------------------------------------- */

static void add_metadata(builder *b, int32_t n_vocab) {
    const tiny_model_shape *s = b->shape;
    gguf_writer *w = b->w;
    gguf_writer_string(w, "general.architecture", "llama");
    gguf_writer_string(w, "general.name", s->name ? s->name : "tiny");
    gguf_writer_u32(w, "llama.block_count", (uint32_t)s->n_layers);
    gguf_writer_u32(w, "llama.context_length", (uint32_t)s->n_ctx);
    gguf_writer_u32(w, "llama.embedding_length", (uint32_t)s->n_embd);
    gguf_writer_u32(w, "llama.feed_forward_length", (uint32_t)s->n_ff);
    gguf_writer_u32(w, "llama.attention.head_count", (uint32_t)s->n_heads);
    gguf_writer_u32(w, "llama.attention.head_count_kv", (uint32_t)s->n_kv_heads);
    gguf_writer_f32(w, "llama.attention.layer_norm_rms_epsilon", s->norm_eps);
    gguf_writer_f32(w, "llama.rope.freq_base", s->rope_base);
    gguf_writer_u32(w, "llama.rope.dimension_count", (uint32_t)(s->rope_dim ? s->rope_dim : s->head_dim));
    gguf_writer_u32(w, "llama.vocab_size", (uint32_t)n_vocab);
    if (s->head_dim * s->n_heads != s->n_embd) {
        gguf_writer_u32(w, "llama.attention.key_length", (uint32_t)s->head_dim);
        gguf_writer_u32(w, "llama.attention.value_length", (uint32_t)s->head_dim);
    }
    if (s->rope_scale_factor > 0.0f) {
        gguf_writer_string(w, "llama.rope.scaling.type", "linear");
        gguf_writer_f32(w, "llama.rope.scaling.factor", s->rope_scale_factor);
    }
}

static int check_shape(const tiny_model_shape *s, rp_error *err) {
    int32_t rope_dim = s->rope_dim ? s->rope_dim : s->head_dim;
    if (s->n_layers < 1 || s->n_embd < 1 || s->n_heads < 1 || s->n_kv_heads < 1 || s->head_dim < 1 || s->n_ff < 1)
        return base_fail(err, RP_ERR_INVALID, "every size of a model is at least 1");
    if (s->n_heads % s->n_kv_heads)
        return base_fail(err, RP_ERR_INVALID, "%d heads cannot share %d key-value heads evenly", s->n_heads,
                         s->n_kv_heads);
    if (rope_dim % 2 || rope_dim < 2 || rope_dim > s->head_dim)
        return base_fail(err, RP_ERR_INVALID, "%d rotated dimensions in a head of %d", rope_dim, s->head_dim);
    return RP_OK;
}

static int build(builder *b, rp_error *err) {
    const tiny_model_shape *s = b->shape;
    tiny_vocab_options vocab = {
        .kind = s->vocab,
        .n_vocab = s->n_vocab,
        .pre = s->pre,
        .control = s->control,
        .chat_template = s->chat_template,
        .no_bos = s->no_bos,
    };
    int32_t n_vocab;
    int rc = check_shape(s, err);
    if (rc) return rc;
    b->w = gguf_writer_new(3, 0);
    if (!b->w) return base_fail_memory(err, 0, "a tiny model");
    rc = tiny_vocab_add(b->w, &vocab, &n_vocab, err);
    if (rc) return rc;
    add_metadata(b, n_vocab);
    add_tensors(b, n_vocab);
    return b->rc ? base_fail(err, (rp_code)b->rc, "cannot build a tiny model: %s", rp_code_text((rp_code)b->rc))
                 : RP_OK;
}

int tiny_model_write(const char *path, const tiny_model_shape *shape, rp_error *err) {
    builder b = {.shape = shape};
    int rc = build(&b, err);
    if (!rc) rc = gguf_writer_save(b.w, path, err);
    gguf_writer_free(b.w);
    return rc;
}

int tiny_model_write_memory(uint8_t **data, size_t *bytes, const tiny_model_shape *shape, rp_error *err) {
    builder b = {.shape = shape};
    int rc = build(&b, err);
    *data = NULL;
    *bytes = 0;
    if (!rc) rc = gguf_writer_save_memory(b.w, data, bytes, err);
    gguf_writer_free(b.w);
    return rc;
}

rp_model *tiny_model_open(const tiny_model_shape *shape, const char *chat_format) {
    char path[] = "/tmp/reprise-tiny-XXXXXX";
    rp_model_options options = {.struct_size = sizeof(options), .chat_format = chat_format};
    rp_model *model = NULL;
    rp_error err = {0};
    int fd = mkstemp(path);
    if (fd < 0 || close(fd) || tiny_model_write(path, shape, &err) || rp_model_open(&model, path, &options, &err)) {
        fprintf(stderr, "cannot set up the test: %s\n", err.message);
        abort();
    }
    unlink(path); /* it stays mapped */
    return model;
}

rp_result *tiny_model_answer(rp_engine *engine, const rp_request *request) {
    rp_result *result = NULL;
    rp_error err = {0};
    if (rp_engine_run(engine, request, &result, &err)) {
        fprintf(stderr, "a request failed: %s\n", err.message);
        abort();
    }
    return result;
}
