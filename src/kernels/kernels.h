/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h: arithmetic on plain arrays, and the table of the selected implementations.
 *
 * generic/ is the specification: readable C for every entry. x86/ and arm/ override entries level by level
 * (base/cpu.h).
 *
 * All higher layers rely on one rule: EACH OUTPUT ELEMENT IS ACCUMULATED IN ONE FIXED ORDER. The order depends on
 * the element's own inputs only: not on the number of rows or outputs of the call, the start of its range, alignment,
 * or the thread. Within one instruction set the results are the same bits; between instruction sets they agree to
 * rounding (tests/kernel has the bounds).
 *
 * Functions are pure, need no state, and may run on any thread. Pointers need the alignment of their element type only.
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

/* Element types of weights and KV; the values are GGUF's type numbers. X(NAME, gguf number, block, bytes)
 * block: elements stored together; bytes: of such a block. */
#define KERNEL_TYPES(X) \
    X(F32, 0, 1, 4) \
    X(F16, 1, 1, 2) \
    X(Q4_0, 2, 32, 18) \
    X(Q4_1, 3, 32, 20) \
    X(Q5_0, 6, 32, 22) \
    X(Q5_1, 7, 32, 24) \
    X(Q8_0, 8, 32, 34) \
    X(Q2_K, 10, 256, 84) \
    X(Q3_K, 11, 256, 110) \
    X(Q4_K, 12, 256, 144) \
    X(Q5_K, 13, 256, 176) \
    X(Q6_K, 14, 256, 210) \
    X(IQ4_NL, 20, 32, 18) \
    X(IQ4_XS, 23, 256, 136) \
    X(BF16, 30, 1, 2) \
    X(MXFP4, 39, 32, 17)

typedef enum kernel_type {
#define X(name, number, block, bytes) KERNEL_##name = number,
    KERNEL_TYPES(X)
#undef X
        KERNEL_TYPE_END = 64 /* greater than all type numbers */
} kernel_type;

bool kernel_type_known(uint32_t gguf_number);
const char *kernel_type_name(kernel_type t); /* "Q8_0" */
int64_t kernel_type_block(kernel_type t);
int64_t kernel_type_bytes(kernel_type t);
/* Bytes of a row of n elements (n a multiple of the block). */
int64_t kernel_row_bytes(kernel_type t, int64_t n);

/* Dequantizes one row of weights to f32: the definition of every format. For embedding lookups and tests. */
void kernel_dequantize(kernel_type t, const void *src, float *dst, int64_t n);
/* Quantizes one row, for every type: round to nearest, with scales from the extremes of a block. */
void kernel_quantize(kernel_type t, const float *src, void *dst, int64_t n);

float kernel_f16_to_f32(uint16_t h);
uint16_t kernel_f32_to_f16(float f); /* round to nearest even; overflow to infinity */
float kernel_bf16_to_f32(uint16_t h);

/* ---- activations -----------------------------------------------------------------------------------------------
 * Float weights (F32, F16, BF16) multiply f32 activations. Quantized weights multiply quantized activations:
 * quantize_row quantizes each row once, in blocks of 32, to this layout (n elements, n a multiple of 32):
 *
 *   offset 0               int8  q[n]            x ~ d * q, |q| <= 127
 *   offset n               float d[n/32]         scale of a block: max |x| / 127
 *   offset n + 4*n/32      float s[n/32]         d * sum of the block's q (formats with a minimum need it)
 *   offset n + 8*n/32      float h[n/32][2]      d * sum of either half's q
 *   offset n + 16*n/32     int16 c[n/32][2]      sum of either half's q
 */
#define KERNEL_Q8_BLOCK 32
#define KERNEL_Q8_TINY \
    0x1p-110f              /* a block with a smaller max |x| is stored as zeros: 127 / max stays finite, d normal */
#define KERNEL_Q8_D(n) (n) /* offsets in a row of n */
#define KERNEL_Q8_S(n) ((n) + (n) / 8)
#define KERNEL_Q8_H(n) ((n) + (n) / 4)
#define KERNEL_Q8_C(n) ((n) + (n) / 2)
static inline int64_t kernel_q8_bytes(int64_t n) { return n + 20 * (n / KERNEL_Q8_BLOCK); }
/* Does a weight type multiply quantized activations? */
static inline bool kernel_type_quantized(kernel_type t) {
    return t != KERNEL_F32 && t != KERNEL_F16 && t != KERNEL_BF16;
}

/* Weights are packed before they are multiplied: `side` rows (kernel_table.side) are interleaved for the lanes of a
 * vector (formats.h). The size is that of the rows; their number is rounded up to a multiple of `side`. Side 1 is a
 * plain copy. */
int64_t kernel_packed_bytes(kernel_type t, int side, int64_t n_in, int64_t n_out);
void kernel_pack(kernel_type t, int side, const void *rows, int64_t n_in, int64_t n_out, void *packed);
/* Unpacks row o. */
void kernel_packed_row(kernel_type t, int side, const void *packed, int64_t n_in, int64_t o, void *row);

/* y[r * y_stride + o] = sum over i of w[o][i] * x[r][i]   for o in [out_begin, out_end), r in [0, n_rows)
 *   w         rows of n_in elements of the function's type, packed (kernel_pack); the first row is output 0
 *   x         n_rows rows of activations, x_stride bytes apart: f32 or the q8 layout above, by the weight's type
 *   y         floats; y_stride in floats
 * n_in: a multiple of the type's block and, for quantized types, of 32. Any n_rows >= 0; out_begin: a multiple
 * of the table's side. */
typedef void (*kernel_linear_fn)(const void *w, int64_t n_in, int64_t out_begin, int64_t out_end, const void *x,
                                 int64_t x_stride, int64_t n_rows, float *y, int64_t y_stride);

/* Up to this number of rows, products of quantized weights unpack them straight from memory; above, unpacked panels are
 * reused. */
#define KERNEL_FEW_ROWS 8

/* ---- attention over one block of 64 slots (src/kv/block_pool.h) ------------------------------------------------
 * Keys of one head: k[dim][64], slots fastest. Values of one head: v[64][dim]. Elements f32 or f16.
 *
 * Scores: for query q (n_q of them, q_stride floats apart), slot j:
 *     out[q * out_stride + j] = scale * sum over d of query[q][d] * k[d][j]       (d in ascending order from 0, f32)
 * Values: adds the slots that are set in `visible`, in ascending order: acc[d] += p * v[slot][d] (fused if the set
 * has FMA):
 *     p[q * p_stride + i]: the weight of the i-th set slot;  acc[q * acc_stride + d]
 * A head's result therefore depends on the sequence of slots only, not on block borders.
 *
 * next: the keys or values of the next call, of the same size, or any address: they may be prefetched. */
#define KERNEL_SLOTS 64
typedef void (*kernel_attn_scores_fn)(const void *k, int64_t dim, const float *query, int64_t q_stride, int64_t n_q,
                                      float scale, float *out, int64_t out_stride, const void *next);
typedef void (*kernel_attn_values_fn)(const void *v, int64_t dim, uint64_t visible, const float *p, int64_t p_stride,
                                      int64_t n_q, float *acc, int64_t acc_stride, const void *next);

/* ---- attention over a block of int8 KV ------------------------------------------------------------------------------
 * A token's keys (values) of one head are x ~ scale * code, |code| <= 127, with a scale of their own. No code depends
 * on another token, so KV does not depend on where a prompt is cut. One head of a block, `dim` even:
 *
 *     keys    int8 code[dim / 2][64 slots][2]        values  int8 code[32][dim][2]: two slots side by side
 *             bf16 scale[64]                                 bf16 scale[64]
 *
 * Keys are stored, and queries rounded, after kernel_hadamard: a channel that is larger than the others would take the
 * codes of all.
 *
 * Queries and weights are rounded to integers, and all sums are of integers: no sum depends on its order, hence not on
 * block borders, masks, the order of slots, or how slots are split over threads. Softmax takes four steps:
 *
 *     max = highest(scores)         total = exp_int8(scores, max)        over the n visible slots (total: and a sink)
 *     weight[j] = round(exp[j] * scale[j] * 2^bits / (total * largest scale)),  bits = kernel_int8_weight_bits(n)
 *     head[d] = (sum over j of weight[j] * code[j][d]) * largest scale / 2^bits
 *
 * Weights add up to at most 2^bits, plus rounding, which keeps sums in 32 bits. Few can be above 32767: those are
 * listed apart. */
static inline int64_t kernel_int8_bytes(int64_t dim) { return KERNEL_SLOTS * (dim + 2); }
#define KERNEL_INT8_SCALES(dim) (KERNEL_SLOTS * (dim)) /* offset of the scales */

/* The Walsh-Hadamard transform, in place, of groups of `size` (a power of two that divides n) of x[n]. Not normalized:
 * two transforms multiply by size, as do those of both factors of a product. The same bits at every level. */
void kernel_hadamard(float *x, int64_t n, int64_t size);
/* The size for heads of dim elements: the largest power of two that divides dim. */
static inline int64_t kernel_hadamard_size(int64_t dim) { return dim & -dim; }

/* The scale of dim elements: the least bf16 that is not below max |x| / 127; 0: all are 0. Its code of an element:
   round(x / scale). */
float kernel_int8_scale(const float *x, int64_t dim);
int8_t kernel_int8_code(float x, float scale);
/* The 64 scales of a head, at KERNEL_INT8_SCALES. */
void kernel_int8_scales(const void *scales, float out[KERNEL_SLOTS]);
/* Element d of a slot: scale * code; of keys, transformed. */
float kernel_int8_key(const void *k, int64_t dim, int slot, int64_t d);
float kernel_int8_value(const void *v, int64_t dim, int slot, int64_t d);

/* A query of dim floats -> int16; returns the scale: q ~ scale * out. The largest magnitude is min(32767, (2^31 - 1) /
 * (127 dim)), so that a score's sum fits 32 bits. */
typedef float (*kernel_query_int8_fn)(const float *q, int64_t dim, int16_t *out);
/* out[q * out_stride + j] = (float)(sum over d of query[q][d] * code[d][j]) * scales[q] * scale[j]. */
typedef void (*kernel_scores_int8_fn)(const void *k, int64_t dim, const int16_t *query, int64_t q_stride, int64_t n_q,
                                      const float *scales, float *out, int64_t out_stride, const void *next);
/* In place: x[i] = exp(x[i] - max), within 4e-6 of it. Returns the sum of round(x[i] * KERNEL_INT8_ONE). */
#define KERNEL_INT8_ONE 0x1p26f
typedef int64_t (*kernel_exp_int8_fn)(float *x, int64_t n, float max);

/* 15 for fewer than 64 slots, one more for each doubling, at most 22. */
int kernel_int8_weight_bits(int64_t n);
#define KERNEL_INT8_MAX_SLOTS (INT64_C(1) << 24) /* of a list: the bound of sums */
/* The most weights above 32767 in a list of n. */
static inline int64_t kernel_int8_max_heavy(int64_t n) { return 130 + n / 65536; }

/* A weight above 32767, of the slot with this index in the list. */
typedef struct kernel_heavy {
    int32_t index, weight;
} kernel_heavy;

/* out[i] = round(x[i] * scales[i] * factor); heavy ones are 0 there, and in heavy[] in ascending order. Returns their
   number. */
typedef int64_t (*kernel_weights_int8_fn)(const float *x, const float *scales, int64_t n, float factor, int16_t *out,
                                          kernel_heavy *heavy);

/* acc[q * acc_stride + d] += sum over 64 slots of p[q * p_stride + j] * code[j][d]; p is 0 for slots that are not
   visible. */
typedef void (*kernel_values_int8_fn)(const void *v, int64_t dim, const int16_t *p, int64_t p_stride, int64_t n_q,
                                      int32_t *acc, int64_t acc_stride, const void *next);
/* acc[d] += weight * code[slot][d]. */
typedef void (*kernel_value_int8_fn)(const void *v, int64_t dim, int slot, int32_t weight, int32_t *acc);

/* ---- KV of 4 and 2 bits ---------------------------------------------------------------------------------------------
 * KIVI (Liu et al., ICML 2024): keys have a range for each dimension over the slots of a block, values one for each
 * slot. They are encoded from all slots of a block, once it is complete; `bits` is 4 or 2. One head of a block:
 *
 *     keys     x = scale[d] * code + least[d]              values   x = scale[slot] * (8 code - zero[slot])
 *     4 bits   uint8 code[dim / 2][64]                     4 bits   uint8 code[32][dim]
 *              bits 0-3: dimension 2 i, bits 4-7: 2 i + 1           bits 0-3: slot 2 i, bits 4-7: 2 i + 1
 *     2 bits   uint8 code[dim / 2][32]                     2 bits   uint8 code[16][dim]
 *              bits 0-3: dimensions 2 i and 2 i + 1 of              bits 0-3: slots 2 i and 2 i + 1,
 *              slot j, bits 4-7: of slot j + 32                     bits 4-7: slots 2 i + 32 and 2 i + 33
 *     f16 scale[dim], f16 least[dim]                       bf16 scale[64], uint8 zero[64]
 *
 * They are unpacked to a head of int8 KV, on which the functions above compute: keys with scales of 1 and a query in 16
 * bits that was multiplied by the scales, and then sum(q[d] * least[d]) is added to each score; values with the codes
 * 8 code - zero. */
int64_t kernel_bits_key_bytes(int bits, int64_t dim); /* dim: even */
int64_t kernel_bits_value_bytes(int bits, int64_t dim);
/* Encodes slots [0, n), x: [n][dim]; the others are not part of any range, and their bits are 0. 1 <= n <= 64. */
void kernel_encode_keys(int bits, const float *x, int n, int64_t dim, void *k);
void kernel_encode_values(int bits, const float *x, int n, int64_t dim, void *v);
/* The ranges of a head's keys: scales in units of 1/32767 of the largest one, least elements. */
typedef struct kernel_ranges {
    int16_t *scales; /* [dim], of the caller */
    float *least;    /* [dim], of the caller */
    float unit;      /* a scale is unit * scales[d] / 32768 */
} kernel_ranges;
typedef void (*kernel_ranges_fn)(const void *k, int bits, int64_t dim, kernel_ranges *out);
/* The 64 scales of values. */
static inline const void *kernel_bits_value_scales(const void *v, int bits, int64_t dim) {
    return (const uint8_t *)v + 8 * bits * dim;
}
/* An element; and x, encoded with the ranges that are there. */
float kernel_bits_key(const void *k, int bits, int64_t dim, int slot, int64_t d);
float kernel_bits_value(const void *v, int bits, int64_t dim, int slot, int64_t d);
float kernel_bits_round_key(const void *k, int bits, int64_t dim, int64_t d, float x);
float kernel_bits_round_value(const void *v, int bits, int64_t dim, int slot, float x);
/* out: a head of int8 KV, kernel_int8_bytes(dim) bytes. */
typedef void (*kernel_unpack_fn)(const void *head, int bits, int64_t dim, void *out);
/* out[d] = round(ints[d] * scales[d] / 32768), where q ~ scale * ints (query_int8): a score is
 * scale * unit * sum(out[d] * code[d]) plus what it returns, sum(q[d] * least[d]). */
typedef float (*kernel_fold_query_fn)(const float *q, const int16_t *ints, const kernel_ranges *ranges, int64_t dim,
                                      int16_t *out);

/* ---- recurrent layers --------------------------------------------------------------------------------------------
 * Elements (channels, dimensions of values) are lanes, and sums run over taps or state dimensions in ascending order:
 * no result depends on how rows, elements or heads are divided into calls. Fused where the set has FMA.
 *
 * Convolution: y[i] = bias[i] + sum over j of w[j * w_stride + i] * x[j][i]; bias NULL: 0. */
typedef void (*kernel_convolve_fn)(const float *const *x, int n_taps, const float *w, int64_t w_stride,
                                   const float *bias, float *y, int64_t n);

/* Rows of one head of Mamba2 (Dao and Gu, 2024). x [dim], b and c [n_state] begin `stride` floats apart in
 * consecutive rows, y [dim] y_stride. For each row in order, with state[n_state][dim]:
 *
 *     state[i][d] = decay * state[i][d] + (dt * x[d]) * b[i]        y[d] = sum over i of state[i][d] * c[i] */
typedef struct kernel_mamba2_rows {
    int64_t n;
    const float *x, *b, *c;
    int64_t stride;
    const float *dt, *decay; /* [n] */
    float *y;
    int64_t y_stride;
} kernel_mamba2_rows;
typedef void (*kernel_mamba2_fn)(float *state, int64_t n_state, int64_t dim, const kernel_mamba2_rows *rows);

/* Rows of `dim` channels of Mamba1 (Gu and Dao, 2023). x, dt and y [dim] begin `stride` floats apart in consecutive
 * rows, b and c [n_state] bc_stride. state and a: [n_state] rows of dim floats, `stride` (of the call) apart; a <= 0,
 * dt >= 0. For each row in order:
 *
 *     state[i][d] = exp(dt[d] * a[i][d]) * state[i][d] + (dt[d] * x[d]) * b[i]
 *     y[d] = sum over i of state[i][d] * c[i]
 */
typedef struct kernel_mamba1_rows {
    int64_t n;
    const float *x, *dt, *b, *c;
    float *y;
    int64_t stride, bc_stride;
} kernel_mamba1_rows;
typedef void (*kernel_mamba1_fn)(float *state, const float *a, int64_t stride, int64_t n_state, int64_t dim,
                                 const kernel_mamba1_rows *rows);

/* Rows of one head of a gated delta net (Yang, Kautz and Hatamizadeh, 2025). q and k [n_state], v [dim] begin `stride`
 * floats apart in consecutive rows, y [dim] y_stride. For each row in order, with state[n_state][dim]:
 *
 *     u[d] = beta * (v[d] - decay * sum over i of state[i][d] * k[i])
 *     state[i][d] = decay * state[i][d] + u[d] * k[i]        y[d] = sum over i of state[i][d] * q[i]
 *
 * or, without decay, one for each dimension of a key (Kimi delta attention; Kimi Team, 2025), with decayed_k[i] =
 * decays[i] * k[i]:
 *
 *     u[d] = beta * (v[d] - sum over i of state[i][d] * decayed_k[i])      decays[i] instead of decay in state[i][d] */
typedef struct kernel_delta_rows {
    int64_t n;
    const float *q, *k, *v;
    int64_t stride;
    const float *beta, *decay; /* [n] */
    /* decay NULL: [n_state] of each row, decay_stride floats apart in consecutive ones */
    const float *decays, *decayed_k;
    int64_t decay_stride;
    float *y;
    int64_t y_stride;
} kernel_delta_rows;
typedef void (*kernel_delta_fn)(float *state, int64_t n_state, int64_t dim, const kernel_delta_rows *rows);

/* ---- activations of a feed-forward ------------------------------------------------------------------------------- */

typedef enum kernel_act {
    KERNEL_SILU,         /* a / (1 + exp(-a)) */
    KERNEL_GELU,         /* a / 2 * (1 + erf(a / sqrt 2)) */
    KERNEL_GELU_TANH,    /* its approximation a / (1 + exp(-2 sqrt(2 / pi) (a + 0.044715 a^3))) */
    KERNEL_SWIGLU_OAI,   /* gpt-oss: g = min(a, 7), u = up cut to [-7, 7]: g / (1 + exp(-1.702 g)) * (u + 1) */
    KERNEL_RELU_SQUARED, /* max(a, 0)^2 */
    KERNEL_SIGMOID,      /* 1 / (1 + exp(-a)): of a gate, whose `up` is what it scales */
    KERNEL_ACT_COUNT
} kernel_act;

/* y[i] = act(a[i]) * up[i]; up NULL: act(a[i]) (not for KERNEL_SWIGLU_OAI). y may be a or up. */
typedef void (*kernel_act_fn)(const float *a, const float *up, float *y, int64_t n);

typedef struct kernel_table {
    const char *name;                                          /* "generic", "avx2" */
    int side;                                                  /* interleaved rows of weights; 1: plain rows */
    kernel_linear_fn linear[KERNEL_TYPE_END];                  /* by kernel_type; NULL for unused numbers */
    void (*quantize_row)(const float *x, void *q8, int64_t n); /* see above; a block of zeros has d = 0 */
    kernel_attn_scores_fn attn_scores_f32, attn_scores_f16;
    kernel_attn_values_fn attn_values_f32, attn_values_f16;
    kernel_query_int8_fn query_int8;
    kernel_scores_int8_fn scores_int8;
    float (*highest)(const float *x, int64_t n); /* the largest element; NaNs are ignored; minus infinity for none */
    kernel_exp_int8_fn exp_int8;
    kernel_weights_int8_fn weights_int8;
    kernel_values_int8_fn values_int8;
    kernel_value_int8_fn value_int8;
    kernel_unpack_fn unpack_keys, unpack_values;
    kernel_ranges_fn key_ranges;
    kernel_fold_query_fn fold_query;
    /* In place: x[i] = exp(x[i] - max), n >= 1; returns 1 / sum, which the caller applies to the result. The order of
     * the sum depends on n only. */
    float (*softmax)(float *x, int64_t n);
    /* y[i] = x[i] / sqrt(mean(x^2) + eps) * w[i]; y may be x */
    void (*rms_norm)(const float *x, const float *w, float eps, float *y, int64_t n);
    /* y[i] = (x[i] - mean) / sqrt(variance + eps) * w[i] + b[i]; b may be NULL, y may be x */
    void (*layer_norm)(const float *x, const float *w, const float *b, float eps, float *y, int64_t n);
    kernel_act_fn act[KERNEL_ACT_COUNT];
    /* y[i] = a[i] + scale * b[i], rounded twice (a scale of 1 is a plain sum); y may be a or b */
    void (*add)(const float *a, const float *b, float scale, float *y, int64_t n);
    kernel_convolve_fn convolve;
    kernel_mamba2_fn mamba2;
    kernel_mamba1_fn mamba1;
    kernel_delta_fn delta;
    void (*soft_cap)(float *x, float cap, int64_t n); /* in place: x[i] = cap * tanh(x[i] / cap), cap > 0 */
    void (*scale)(float *x, float factor, int64_t n); /* in place */
    void (*clamp)(float *x, float limit, int64_t n);  /* in place: to [-limit, limit] */
    /* Rotates n_heads heads of `dim` (the first rot_dim of each; rot_dim even) by angles given as
     * cs[2*i] = cos, cs[2*i+1] = sin for pair i in [0, rot_dim/2).
     * neox false: pairs (2i, 2i+1); true: pairs (i, i + rot_dim/2). y may be x. */
    void (*rope)(const float *x, const float *cs, int64_t n_heads, int64_t dim, int64_t rot_dim, bool neox, float *y);
    /* Stores one token's keys or values into a block: keys of one head: k[d][slot] = x[d]; values: v[slot][d] =
       x[d]. */
    void (*store_key_f32)(const float *x, int64_t dim, void *k, int slot);
    void (*store_key_f16)(const float *x, int64_t dim, void *k, int slot);
    void (*store_value_f32)(const float *x, int64_t dim, void *v, int slot);
    void (*store_value_f16)(const float *x, int64_t dim, void *v, int slot);
    void (*store_key_int8)(const float *x, int64_t dim, void *k, int slot);
    void (*store_value_int8)(const float *x, int64_t dim, void *v, int slot);
} kernel_table;

/* The results of a level: two levels of one arithmetic give the same bits (README.md, "Levels"; tests/kernel compares
 * them), two arithmetics do not. KV of different arithmetics is never mixed: the numbers are part of file formats.
 * X(NAME, number, name). A change of the kernels that changes results needs a new number. */
#define KERNEL_ARITHMETICS(X) \
    X(PLAIN_X86_64, 1, "x86-64/generic") \
    X(FUSED_X86_64, 2, "x86-64/avx2") \
    X(PLAIN_AARCH64, 3, "aarch64/generic") \
    X(FUSED_AARCH64, 4, "aarch64/neon") \
    X(PLAIN_OTHER, 5, "other/generic") \
    X(DEVICE, 6, "device") /* not of these kernels: keys name the device (engine/core/identity.h) */

typedef enum kernel_arithmetic {
    KERNEL_ARITHMETIC_UNKNOWN, /* KV without a recorded arithmetic */
#define X(NAME, number, name) KERNEL_ARITHMETIC_##NAME = number,
    KERNEL_ARITHMETICS(X)
#undef X
        KERNEL_ARITHMETIC_END
} kernel_arithmetic;

kernel_arithmetic kernel_arithmetic_of(base_cpu_level level);
/* "x86-64/avx2"; static; "unknown" for other numbers. */
const char *kernel_arithmetic_name(kernel_arithmetic a);

/* Fills in the table for a level: plain C first, then each level that `level` includes overrides its faster entries.
 * Never fails. */
void kernel_table_init(kernel_table *t, base_cpu_level level);

#endif
