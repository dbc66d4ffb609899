/* SPDX-License-Identifier: Apache-2.0 */
/* mkgguf.c: writes random models in real shapes, for speed measurements, which do not depend on values.
 *
 *   mkgguf SHAPE TYPE OUT [--seed N]
 *
 * Rows are generated while saving and repeat a set of random ones: a 1.1B model takes seconds and little memory.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf/gguf_writer.h"
#include "support/tiny_random.h"

typedef struct shape {
    const char *name, *arch;
    int layers, embd, ff, heads, kv_heads, head_dim, vocab, ctx;
    float rope_base;
    bool tied;
    int window;                     /* 0: none */
    int experts, used;              /* 0: none; otherwise ff is an expert's */
    int shared_ff, dense, dense_ff; /* width of the shared expert; first layers without experts, and their width */
    /* latent attention: dimensions of a latent vector, besides `rot` rotated ones; 0: none. head_dim is that of values,
       and of the others of keys */
    int latent;
    const char *norms[4]; /* of a layer, besides attn_norm and ffn_norm; those of q and k are one head wide */
    /* recurrent layers: a letter a layer, 'c' for these and 'a' for attention; NULL: there are none */
    const char *pattern;
    int kernel, states, state_dim, value_dim; /* taps; heads with states, dimensions of their keys and values */
    int groups;                               /* of these heads: delta nets, and attention has a gate; 0: Mamba2 */
    int rot;                                  /* rotated dimensions of a head; 0: all */
} shape;

/* clang-format off */
static const shape shapes[] = {
    {.name = "tinyllama-1.1b", .arch = "llama", .layers = 22, .embd = 2048, .ff = 5632,
     .heads = 32, .kv_heads = 4, .head_dim = 64,
     .vocab = 32000, .ctx = 16384, .rope_base = 10000.0f},
    {.name = "tinyllama-1.1b-mha", .arch = "llama", .layers = 22, .embd = 2048, .ff = 5632,
     .heads = 32, .kv_heads = 32, .head_dim = 64,
     .vocab = 32000, .ctx = 16384, .rope_base = 10000.0f}, /* a KV head per head */
    {.name = "smollm2-135m", .arch = "llama", .layers = 30, .embd = 576, .ff = 1536,
     .heads = 9, .kv_heads = 3, .head_dim = 64,
     .vocab = 49152, .ctx = 16384, .rope_base = 100000.0f, .tied = true},
    {.name = "smollm2-135m-mha", .arch = "llama", .layers = 30, .embd = 576, .ff = 1536,
     .heads = 9, .kv_heads = 9, .head_dim = 64,
     .vocab = 49152, .ctx = 16384, .rope_base = 100000.0f, .tied = true},
    {.name = "llama3.2-1b", .arch = "llama", .layers = 16, .embd = 2048, .ff = 8192,
     .heads = 32, .kv_heads = 8, .head_dim = 64,
     .vocab = 128256, .ctx = 131072, .rope_base = 500000.0f, .tied = true},
    {.name = "llama3-8b", .arch = "llama", .layers = 32, .embd = 4096, .ff = 14336,
     .heads = 32, .kv_heads = 8, .head_dim = 128,
     .vocab = 128256, .ctx = 131072, .rope_base = 500000.0f},
    {.name = "gemma3-1b", .arch = "gemma3", .layers = 26, .embd = 1152, .ff = 6912,
     .heads = 4, .kv_heads = 1, .head_dim = 256,
     .vocab = 262144, .ctx = 32768, .rope_base = 1000000.0f, .tied = true,
     .window = 512, .norms = {"attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm"}},
    {.name = "qwen3moe-4b", .arch = "qwen3moe", .layers = 12, .embd = 2048, .ff = 768,
     .heads = 32, .kv_heads = 4, .head_dim = 128,
     .vocab = 151936, .ctx = 40960, .rope_base = 1000000.0f, .tied = true,
     .experts = 64, .used = 8, .norms = {"attn_q_norm", "attn_k_norm"}},
    {.name = "deepseek2-lite", .arch = "deepseek2", .layers = 27, .embd = 2048, .ff = 1408,
     .heads = 16, .kv_heads = 1, .head_dim = 128,
     .vocab = 102400, .ctx = 163840, .rope_base = 10000.0f,
     .experts = 64, .used = 6, .shared_ff = 2816, .dense = 1, .dense_ff = 10944, .latent = 512, .rot = 64},
    {.name = "lfm2-1.2b", .arch = "lfm2", .layers = 16, .embd = 2048, .ff = 8192,
     .heads = 32, .kv_heads = 8, .head_dim = 64,
     .vocab = 65536, .ctx = 128000, .rope_base = 1000000.0f, .tied = true,
     .norms = {"attn_q_norm", "attn_k_norm"}, .pattern = "ccaccaccacacacac", .kernel = 3},
    {.name = "granite4-h-1b", .arch = "granitehybrid", .layers = 40, .embd = 1536, .ff = 4096,
     .heads = 12, .kv_heads = 4, .head_dim = 128,
     .vocab = 100352, .ctx = 131072, .rope_base = 10000.0f, .tied = true,
     .pattern = "cccccacccccccccacccccccccacccccccccacccc", .kernel = 4,
     .states = 48, .state_dim = 128, .value_dim = 64},
    {.name = "qwen35-0.8b", .arch = "qwen35", .layers = 24, .embd = 1024, .ff = 3584,
     .heads = 8, .kv_heads = 2, .head_dim = 256, .rot = 64,
     .vocab = 248320, .ctx = 262144, .rope_base = 10000000.0f, .tied = true,
     .norms = {"attn_q_norm", "attn_k_norm"}, .pattern = "cccacccacccacccacccaccca", .kernel = 4,
     .states = 16, .state_dim = 128, .value_dim = 128, .groups = 16},
};
/* clang-format on */
static const kernel_type types[] = {
#define X(name, number, block, bytes) KERNEL_##name,
    KERNEL_TYPES(X)
#undef X
};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Distinct rows of a tensor; the others repeat them. Enough that no two heads are alike. */
#define DISTINCT_ROWS 512

typedef struct matrix {
    int64_t n_in;
    kernel_type type;
    char *rows; /* [DISTINCT_ROWS], quantised */
} matrix;

static int fill(void *arg, int64_t row, int64_t n_rows, void *dst) {
    const matrix *m = arg;
    size_t bytes = (size_t)kernel_row_bytes(m->type, m->n_in);
    for (int64_t r = 0; r < n_rows; r++)
        memcpy((char *)dst + (size_t)r * bytes, m->rows + (size_t)((row + r) % DISTINCT_ROWS) * bytes, bytes);
    return RP_OK;
}

/* Random rows of one width with a standard deviation that keeps activations in range. Freed with the process. */
static matrix *new_matrix(kernel_type type, int64_t n_in, float deviation, tiny_random *random) {
    matrix *m = malloc(sizeof(*m));
    float *row = malloc(sizeof(float) * (size_t)n_in);
    while (n_in % kernel_type_block(type))
        type = type == KERNEL_Q8_0 ? KERNEL_F16 : KERNEL_Q8_0; /* the fallback of quantizers */
    *m = (matrix){n_in, type, malloc((size_t)kernel_row_bytes(type, n_in) * DISTINCT_ROWS)};
    for (int64_t r = 0; r < DISTINCT_ROWS; r++) {
        for (int64_t i = 0; i < n_in; i++) row[i] = tiny_random_normal(random) * deviation;
        kernel_quantize(type, row, m->rows + r * kernel_row_bytes(type, n_in), n_in);
    }
    free(row);
    return m;
}

static void add_matrix(gguf_writer *w, const char *name, matrix *m, int64_t n_out, int slices) {
    gguf_writer_tensor_fill(w, name, m->type, slices > 0 ? 3 : 2, (int64_t[]){m->n_in, n_out, slices}, fill, m);
}

static const char *key_of(const shape *s, const char *key) {
    static char full[128];
    snprintf(full, sizeof(full), "%s.%s", s->arch, key);
    return full;
}

static void add_number(gguf_writer *w, const shape *s, const char *key, int value) {
    if (value > 0) gguf_writer_u32(w, key_of(s, key), (uint32_t)value);
}

static void add_pattern(gguf_writer *w, const shape *s) {
    uint32_t heads[64];
    uint8_t recurrent[64];
    for (int i = 0; i < s->layers; i++) {
        recurrent[i] = s->pattern[i] == 'c';
        heads[i] = recurrent[i] ? 0 : (uint32_t)s->kv_heads;
    }
    if (s->groups > 0)
        gguf_writer_array(w, key_of(s, "attention.recurrent_layers"), GGUF_BOOL, recurrent, (size_t)s->layers);
    else gguf_writer_array(w, key_of(s, "attention.head_count_kv"), GGUF_U32, heads, (size_t)s->layers);
    add_number(w, s, s->states > 0 ? "ssm.conv_kernel" : "shortconv.l_cache", s->kernel);
    add_number(w, s, "ssm.inner_size", s->states * s->value_dim);
    add_number(w, s, "ssm.state_size", s->state_dim);
    add_number(w, s, "ssm.time_step_rank", s->states);
    add_number(w, s, "ssm.group_count", s->groups > 0 ? s->groups : s->states > 0);
}

static void add_metadata(gguf_writer *w, const shape *s) {
    char name[64];
    snprintf(name, sizeof(name), "%s random", s->name);
    gguf_writer_string(w, "general.architecture", s->arch);
    gguf_writer_string(w, "general.name", name);
    add_number(w, s, "block_count", s->layers);
    add_number(w, s, "context_length", s->ctx);
    add_number(w, s, "embedding_length", s->embd);
    add_number(w, s, "feed_forward_length", s->dense > 0 ? s->dense_ff : s->ff);
    add_number(w, s, "attention.head_count", s->heads);
    if (s->pattern) add_pattern(w, s);
    if (!s->pattern || s->groups > 0) add_number(w, s, "attention.head_count_kv", s->kv_heads);
    add_number(w, s, "attention.key_length", s->latent > 0 ? s->latent + s->rot : s->head_dim);
    add_number(w, s, "attention.value_length", s->latent > 0 ? s->latent : s->head_dim);
    add_number(w, s, "attention.kv_lora_rank", s->latent);
    add_number(w, s, "attention.key_length_mla", s->latent > 0 ? s->head_dim + s->rot : 0);
    add_number(w, s, "attention.value_length_mla", s->latent > 0 ? s->head_dim : 0);
    add_number(w, s, "leading_dense_block_count", s->dense);
    add_number(w, s, "attention.sliding_window", s->window);
    add_number(w, s, "expert_count", s->experts);
    add_number(w, s, "expert_used_count", s->used);
    add_number(w, s, "expert_shared_count", s->shared_ff > 0 ? s->shared_ff / s->ff : 0);
    add_number(w, s, "expert_feed_forward_length", s->experts > 0 ? s->ff : 0);
    add_number(w, s, "rope.dimension_count", s->rot > 0 ? s->rot : s->head_dim);
    if (s->groups > 0) { /* rotated pairs of positions in time, height and width: llama.cpp requires them */
        const int32_t third = s->rot / 2 / 3, sections[] = {s->rot / 2 - 2 * third, third, third, 0};
        gguf_writer_array(w, key_of(s, "rope.dimension_sections"), GGUF_I32, sections, 4);
    }
    add_number(w, s, "vocab_size", s->vocab);
    gguf_writer_f32(w, key_of(s, "attention.layer_norm_rms_epsilon"), 1e-5f);
    gguf_writer_f32(w, key_of(s, "rope.freq_base"), s->rope_base);
}

/* A SentencePiece vocabulary: control tokens, bytes, and numbered words up to its size. */
static void add_vocabulary(gguf_writer *w, const shape *s) {
    size_t n = (size_t)(uint32_t)s->vocab;
    const char **texts = calloc(n, sizeof(*texts));
    float *scores = calloc(n, sizeof(*scores));
    int32_t *kinds = calloc(n, sizeof(*kinds));
    char *store = malloc(n * 16);
    for (size_t i = 0; i < n; i++) {
        char *text = store + i * 16;
        if (i < 3) snprintf(text, 16, "%s", i == 0 ? "<unk>" : i == 1 ? "<s>"
                                                                      : "</s>");
        else if (i < 259) snprintf(text, 16, "<0x%02X>", (unsigned)(i - 3));
        else if (i == 259) snprintf(text, 16, "\xe2\x96\x81");
        else snprintf(text, 16, "\xe2\x96\x81t%u", (unsigned)(i - 260) % 100000000u);
        texts[i] = text;
        kinds[i] = i == 0 ? 2 : i < 3 ? 3
                            : i < 259 ? 6
                                      : 1;
        scores[i] = i < 259 ? 0.0f : -(float)(i - 259);
    }
    gguf_writer_string(w, "tokenizer.ggml.model", "llama");
    gguf_writer_string(w, "tokenizer.ggml.pre", "default");
    gguf_writer_strings(w, "tokenizer.ggml.tokens", texts, n);
    gguf_writer_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, n);
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, kinds, n);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", true);
    free(texts);
    free(scores);
    free(kinds);
    free(store);
}

static void add_norm(gguf_writer *w, const shape *s, int layer, const char *norm, const float *ones) {
    char name[64];
    const bool of_head = strcmp(norm, "attn_q_norm") == 0 || strcmp(norm, "attn_k_norm") == 0,
               of_latent = strcmp(norm, "attn_kv_a_norm") == 0;
    snprintf(name, sizeof(name), "blk.%d.%s.weight", layer, norm);
    gguf_writer_tensor(w, name, KERNEL_F32, 1,
                       (int64_t[]){of_head     ? s->head_dim
                                   : of_latent ? s->latent
                                               : s->embd},
                       ones);
}

static void add_vector(gguf_writer *w, int layer, const char *name, const int64_t *dims, float from, float to) {
    const int64_t n = dims[0] * dims[1];
    char full[64];
    float *x = malloc(sizeof(*x) * (size_t)n);
    snprintf(full, sizeof(full), "blk.%d.%s", layer, name);
    for (int64_t i = 0; i < n; i++) x[i] = from + (to - from) * (float)(i * 37 % 101) / 100.0f;
    gguf_writer_tensor(w, full, KERNEL_F32, dims[1] > 1 ? 2 : 1, dims, x);
    free(x);
}

/* What a delta net has in place of attention. */
static void add_delta_net(gguf_writer *w, const shape *s, int layer, matrix *from_embd, matrix *from_inner) {
    const int64_t inner = s->states * s->value_dim, channels = inner + 2 * s->groups * s->state_dim;
    const struct {
        const char *name;
        matrix *m;
        int64_t n_out;
    } rows[] = {{"attn_qkv", from_embd, channels},
                {"attn_gate", from_embd, inner},
                {"ssm_beta", from_embd, s->states},
                {"ssm_alpha", from_embd, s->states},
                {"ssm_out", from_inner, s->embd}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%d.%s.weight", layer, rows[i].name);
        add_matrix(w, name, rows[i].m, rows[i].n_out, 0);
    }
    add_vector(w, layer, "ssm_conv1d.weight", (int64_t[]){s->kernel, channels}, -0.5f, 0.5f);
    add_vector(w, layer, "ssm_dt.bias", (int64_t[]){s->states, 1}, -2.0f, 1.0f);
    add_vector(w, layer, "ssm_a", (int64_t[]){s->states, 1}, -1.0f, -0.01f);
    add_vector(w, layer, "ssm_norm.weight", (int64_t[]){s->value_dim, 1}, 1.0f, 1.0f);
}

/* What a layer of convolutions or Mamba2 has in place of attention. */
static void add_recurrence(gguf_writer *w, const shape *s, int layer, matrix *from_embd, matrix *from_inner) {
    const int64_t inner = s->states * s->value_dim, channels = inner + 2 * s->state_dim;
    const bool is_conv = s->states == 0;
    char name[64];
    snprintf(name, sizeof(name), "blk.%d.%s.weight", layer, is_conv ? "shortconv.in_proj" : "ssm_in");
    add_matrix(w, name, from_embd, is_conv ? 3 * (int64_t)s->embd : inner + channels + s->states, 0);
    snprintf(name, sizeof(name), "blk.%d.%s.weight", layer, is_conv ? "shortconv.out_proj" : "ssm_out");
    add_matrix(w, name, from_inner, s->embd, 0);
    add_vector(w, layer, is_conv ? "shortconv.conv.weight" : "ssm_conv1d.weight",
               (int64_t[]){s->kernel, is_conv ? s->embd : channels}, -0.5f, 0.5f);
    if (is_conv) return;
    add_vector(w, layer, "ssm_conv1d.bias", (int64_t[]){channels, 1}, 0.0f, 0.0f);
    add_vector(w, layer, "ssm_dt.bias", (int64_t[]){s->states, 1}, -2.0f, 1.0f);
    add_vector(w, layer, "ssm_a", (int64_t[]){1, s->states}, -1.0f, -0.01f);
    add_vector(w, layer, "ssm_d", (int64_t[]){1, s->states}, 1.0f, 1.0f);
    add_vector(w, layer, "ssm_norm.weight", (int64_t[]){inner, 1}, 1.0f, 1.0f);
}

/* The matrices of a model, one for each number of inputs. */
typedef struct matrices {
    matrix *embd, *value, *ff, *inner, *dense, *shared, *plain, *latent;
} matrices;

static void add_layer(gguf_writer *w, const shape *s, int layer, const matrices *from, const float *ones) {
    const bool is_recurrent = s->pattern && s->pattern[layer] == 'c', is_latent = s->latent > 0,
               has_experts = s->experts > 0 && layer >= s->dense;
    const int64_t own = (int64_t)s->heads * (s->head_dim + (is_latent ? s->rot : 0)), q = own * (s->groups > 0 ? 2 : 1),
                  kv = (int64_t)s->kv_heads * s->head_dim;
    const int ff = has_experts || s->experts == 0 ? s->ff : s->dense_ff, experts = has_experts ? s->experts : 0;
    const char *kind = has_experts ? "_exps" : "";
    const struct {
        const char *name, *suffix;
        matrix *m;
        int64_t n_out;
        int slices;
    } rows[] = {{"attn_q", "", from->embd, q, 0},
                {"attn_k", "", from->embd, is_latent ? 0 : kv, 0},
                {"attn_v", "", from->embd, is_latent ? 0 : kv, 0},
                {"attn_kv_a_mqa", "", from->embd, is_latent ? s->latent + s->rot : 0, 0},
                {"attn_k_b", "", from->plain, s->latent, s->heads},
                {"attn_v_b", "", from->latent, is_latent ? s->head_dim : 0, s->heads},
                {"attn_output", "", from->value, s->embd, 0},
                {"ffn_gate", kind, from->embd, ff, experts},
                {"ffn_up", kind, from->embd, ff, experts},
                {"ffn_down", kind, has_experts || s->experts == 0 ? from->ff : from->dense, s->embd, experts},
                {"ffn_gate_inp", "", from->embd, experts, 0},
                {"ffn_gate_shexp", "", from->embd, has_experts ? s->shared_ff : 0, 0},
                {"ffn_up_shexp", "", from->embd, has_experts ? s->shared_ff : 0, 0},
                {"ffn_down_shexp", "", from->shared, has_experts && s->shared_ff > 0 ? s->embd : 0, 0}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%d.%s%s.weight", layer, rows[i].name, rows[i].suffix);
        if (is_recurrent && strncmp(rows[i].name, "attn", 4) == 0) continue;
        if (rows[i].n_out > 0) add_matrix(w, name, rows[i].m, rows[i].n_out, rows[i].slices);
    }
    add_norm(w, s, layer, "attn_norm", ones);
    add_norm(w, s, layer, s->groups > 0 ? "post_attention_norm" : "ffn_norm", ones);
    if (is_latent) add_norm(w, s, layer, "attn_kv_a_norm", ones);
    if (is_recurrent && s->groups > 0) add_delta_net(w, s, layer, from->embd, from->inner);
    else if (is_recurrent) add_recurrence(w, s, layer, from->embd, from->inner);
    for (size_t i = 0; i < COUNT(s->norms) && s->norms[i] && !is_recurrent; i++)
        add_norm(w, s, layer, s->norms[i], ones);
}

/* Rows of n elements; NULL for 0. */
static matrix *rows_of(kernel_type type, int n, tiny_random *random) {
    return n > 0 ? new_matrix(type, n, 0.7f / sqrtf((float)n), random) : NULL;
}

static void add_tensors(gguf_writer *w, const shape *s, kernel_type type, uint64_t seed) {
    tiny_random random = {seed};
    float *ones = malloc(sizeof(float) * (size_t)s->embd);
    for (int i = 0; i < s->embd; i++) ones[i] = 1.0f;
    matrix *embedding = new_matrix(type, s->embd, 0.02f, &random);
    const int value = s->heads * s->head_dim;
    matrices from = {.embd = rows_of(type, s->embd, &random)};
    from.ff = rows_of(type, s->ff, &random);
    from.value = value == s->embd ? from.embd : rows_of(type, value, &random);
    from.inner = rows_of(type, s->states * s->value_dim, &random);
    if (!from.inner) from.inner = from.embd;
    from.dense = rows_of(type, s->dense_ff, &random);
    from.shared = rows_of(type, s->shared_ff, &random);
    from.latent = rows_of(type, s->latent, &random);
    from.plain = rows_of(type, s->latent > 0 ? s->head_dim : 0, &random);
    add_matrix(w, "token_embd.weight", embedding, s->vocab, 0);
    for (int l = 0; l < s->layers; l++) add_layer(w, s, l, &from, ones);
    const char *output_norm = strcmp(s->arch, "lfm2") == 0 ? "token_embd_norm.weight" : "output_norm.weight";
    gguf_writer_tensor(w, output_norm, KERNEL_F32, 1, (int64_t[]){s->embd}, ones);
    if (!s->tied) add_matrix(w, "output.weight", embedding, s->vocab, 0);
    free(ones);
}

static int usage(FILE *to, int status) {
    fprintf(to, "usage: mkgguf SHAPE TYPE OUT [--seed N] [--vocab N] [--layers N]\n"
                "writes a model of random weights\nSHAPE:");
    for (size_t i = 0; i < COUNT(shapes); i++) fprintf(to, " %s", shapes[i].name);
    fprintf(to, "\nTYPE: ");
    for (size_t i = 0; i < COUNT(types); i++) fprintf(to, " %s", kernel_type_name(types[i]));
    fprintf(to, "\n");
    return status;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--help") == 0) return usage(stdout, 0);
    shape s = {0};
    int type = -1;
    uint64_t seed = 1234;
    for (size_t i = 0; argc >= 4 && i < COUNT(shapes); i++)
        if (strcmp(shapes[i].name, argv[1]) == 0) s = shapes[i];
    for (size_t i = 0; argc >= 4 && i < COUNT(types); i++)
        if (strcmp(kernel_type_name(types[i]), argv[2]) == 0) type = (int)types[i];
    if (!s.name || type < 0) return usage(stderr, 2);
    for (int i = 4; i < argc; i += 2) {
        const unsigned long long n = i + 1 < argc ? strtoull(argv[i + 1], NULL, 10) : 0;
        if (n > 0 && strcmp(argv[i], "--seed") == 0) seed = n;
        else if (n > 0 && n < 1 << 20 && strcmp(argv[i], "--vocab") == 0) s.vocab = (int)n;
        else if (n > 0 && n <= (unsigned)s.layers && strcmp(argv[i], "--layers") == 0) s.layers = (int)n;
        else return usage(stderr, 2);
    }
    rp_error err = {0};
    gguf_writer *w = gguf_writer_new(3, 0);
    if (!w) return fprintf(stderr, "mkgguf: out of memory\n"), 1;
    add_metadata(w, &s);
    add_vocabulary(w, &s);
    add_tensors(w, &s, (kernel_type)type, seed);
    int rc = gguf_writer_save(w, argv[3], &err);
    if (rc) fprintf(stderr, "mkgguf: %s\n", err.message);
    gguf_writer_free(w);
    return rc ? 1 : 0;
}
