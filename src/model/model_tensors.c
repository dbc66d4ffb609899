/* SPDX-License-Identifier: Apache-2.0 */
/* model_tensors.c: binds the tensors of a file to the model's weights and checks their shapes once, for the forward
 * pass.
 *
 * Two tables list the tensors of a file: name, shape and architectures of each. model_settle.c takes fused ones apart.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/model_binding.h"

enum dim { D_NONE,
           D_EMBD,
           D_FF,
           D_Q,
           D_Q_ROWS,
           D_K,
           D_V,
           D_QKV,
           D_KEY,
           D_VALUE,
           D_HEADS,
           D_VOCAB,
           D_ROT_PAIRS,
           D_EXPERTS,
           D_FF_EXPERT,
           D_TWO_FF_EXPERT,
           D_FF_SHARED,
           D_POSITIONS,
           D_TYPES,
           D_RANK_HEAD,
           D_SCORES,
           D_DENSE,
           D_QUERY_LATENT,
           D_LATENT,
           D_PLAIN_KEY,
           D_HEAD_VALUE,
           D_KEYS_VALUES,
           D_INDEX,
           D_INDEX_HEADS,
           D_INDEX_QUERIES,
           D_THREE_EMBD,
           D_TWO_EMBD,
           D_KERNEL,
           D_CHANNELS,
           D_MAMBA2_IN,
           D_INNER,
           D_STATES,
           D_GROUPS,
           D_GROUP_INNER,
           D_TWO_INNER,
           D_STEPS,
           D_SELECTED,
           D_STATE,
           D_HEAD_DIM,
           D_BETA_DT,
           D_DELTA_IN,
           D_ONE,
           D_LAYER_EMBD,
           D_LAYERS_EMBD,
           D_STREAMS,
           D_STREAM_PAIRS,
           D_LAUREL };
enum {
    REQUIRED = 1,
    VECTOR = 2,      /* F32, used elementwise */
    RUNS = 4,        /* a norm of heads: [key_dim], [heads][key_dim] or [heads * key_dim] */
    WITH_GATE = 8,   /* twice as many outputs: the gate's come first */
    DENSE = 16,      /* only in layers without experts */
    EXPERTS = 32,    /* only in layers with experts, a slice for each */
    SHARED = 64,     /* only in layers with experts, and with a shared one */
    ROUTER = 128,    /* only in layers with experts */
    ATTENTION = 256, /* only in layers with attention */
    RECURRENT = 512, /* only in recurrent layers */
    HEADS = 1024,    /* a slice for each head */
    EMBEDDED = 2048, /* only where layers have embeddings of tokens */
    STREAMS = 4096,  /* a slice for each stream but the first */
    INDEXED = 16384, /* only in layers with an indexer */
    CHANNELS = 8192, /* a slice for each dimension of a recurrent layer's heads */
};

typedef struct tensor_row {
    const char *name; /* of a layer's tensor: without "blk.N." */
    size_t offset;    /* offset of the model_weight in rp_model or model_file_layer */
    enum dim in, out;
    unsigned flags;
    uint64_t only, unless; /* an architecture must have any feature of `only`, and none of `unless` */
} tensor_row;

static const tensor_row model_rows[] = {
    {"token_embd.weight", offsetof(rp_model, net.embedding), D_EMBD, D_VOCAB, REQUIRED, 0, 0},
    {"token_embd_norm.weight", offsetof(rp_model, net.embed_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR,
     MODEL_EMBED_NORM, 0},
    {"token_embd_norm.bias", offsetof(rp_model, net.embed_norm.bias), D_EMBD, D_NONE, VECTOR, MODEL_EMBED_NORM, 0},
    {"position_embd.weight", offsetof(rp_model, net.positions), D_EMBD, D_POSITIONS, REQUIRED, MODEL_POSITIONS, 0},
    /* some models of ALiBi architectures have learned positions instead */
    {"position_embd.weight", offsetof(rp_model, net.positions), D_EMBD, D_POSITIONS, 0, MODEL_ALIBI, 0},
    {"token_types.weight", offsetof(rp_model, net.token_types), D_EMBD, D_TYPES, 0, MODEL_ENCODER, 0},
    {"output_norm.weight", offsetof(rp_model, net.output_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR, 0,
     MODEL_SUM_NORMS | MODEL_OUTPUT_NORM_RENAMED | MODEL_NORMS_BARE},
    {"token_embd_norm.weight", offsetof(rp_model, net.output_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR,
     MODEL_OUTPUT_NORM_RENAMED, 0},
    {"output_norm.bias", offsetof(rp_model, net.output_norm.bias), D_EMBD, D_NONE, VECTOR, MODEL_LAYER_NORM,
     MODEL_SUM_NORMS},
    {"output.weight", offsetof(rp_model, net.output), D_EMBD, D_VOCAB, 0, 0, MODEL_ENCODER},
    {"output.bias", offsetof(rp_model, net.output_bias), D_VOCAB, D_NONE, VECTOR, 0, MODEL_ENCODER},
    /* a rank head of two matrices, cls and cls.output, or of one: cls, see bind_all */
    {"cls.weight", offsetof(rp_model, net.head), D_EMBD, D_RANK_HEAD, 0, MODEL_ENCODER, 0},
    {"cls.bias", offsetof(rp_model, net.head_bias), D_RANK_HEAD, D_NONE, VECTOR, MODEL_ENCODER, 0},
    {"cls.output.weight", offsetof(rp_model, net.output), D_EMBD, D_SCORES, 0, MODEL_ENCODER, 0},
    {"cls.output.bias", offsetof(rp_model, net.output_bias), D_SCORES, D_NONE, VECTOR, MODEL_ENCODER, 0},
    {"dense_2.weight", offsetof(rp_model, dense[0]), D_EMBD, D_DENSE, 0, MODEL_EMBEDDING_DENSE, 0},
    {"dense_3.weight", offsetof(rp_model, dense[1]), D_DENSE, D_EMBD, 0, MODEL_EMBEDDING_DENSE, 0},
    {"per_layer_token_embd.weight", offsetof(rp_model, net.layer_embeddings), D_LAYERS_EMBD, D_VOCAB,
     REQUIRED | EMBEDDED, MODEL_LAYER_EMBEDDINGS, 0},
    {"per_layer_model_proj.weight", offsetof(rp_model, net.layer_projection), D_EMBD, D_LAYERS_EMBD,
     REQUIRED | EMBEDDED, MODEL_LAYER_EMBEDDINGS, 0},
    {"per_layer_proj_norm.weight", offsetof(rp_model, net.layer_embd_norm.weight), D_LAYER_EMBD, D_NONE,
     REQUIRED | EMBEDDED | VECTOR, MODEL_LAYER_EMBEDDINGS, 0},
    {"altup_proj.weight", offsetof(rp_model, streams_in), D_EMBD, D_EMBD, REQUIRED | STREAMS, MODEL_STREAMS, 0},
    {"altup_unembd_proj.weight", offsetof(rp_model, streams_out), D_EMBD, D_EMBD, REQUIRED | STREAMS, MODEL_STREAMS, 0},
    {"rope_freqs.weight", offsetof(rp_model, rope_factors), D_ROT_PAIRS, D_NONE, VECTOR, MODEL_ROPE, 0},
    {"rope_factors_long.weight", offsetof(rp_model, rope_factors_long), D_ROT_PAIRS, D_NONE, VECTOR, MODEL_ROPE, 0},
    {"rope_factors_short.weight", offsetof(rp_model, rope_factors_short), D_ROT_PAIRS, D_NONE, VECTOR, MODEL_ROPE, 0},
};

#define L(member) offsetof(model_file_layer, member)
static const tensor_row layer_rows[] = {
    {"attn_norm.weight", L(l.attn_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR, MODEL_PRE_NORM,
     MODEL_FIRST_UNNORMED},
    {"attn_norm.weight", L(l.attn_norm.weight), D_EMBD, D_NONE, VECTOR, MODEL_FIRST_UNNORMED, 0},
    {"attn_norm.bias", L(l.attn_norm.bias), D_EMBD, D_NONE, VECTOR, MODEL_LAYER_NORM, 0},
    {"attn_norm_2.weight", L(attn_norm_2.weight), D_EMBD, D_NONE, VECTOR, MODEL_PARALLEL, 0},
    {"attn_norm_2.bias", L(attn_norm_2.bias), D_EMBD, D_NONE, VECTOR, MODEL_PARALLEL, 0},
    {"attn_qkv.weight", L(qkv), D_EMBD, D_QKV, ATTENTION, 0, 0},
    {"attn_qkv.bias", L(qkv_bias), D_QKV, D_NONE, VECTOR | ATTENTION, 0, 0},
    {"attn_q.weight", L(l.q), D_EMBD, D_Q_ROWS, ATTENTION, 0, 0},
    {"attn_k.weight", L(l.k), D_EMBD, D_K, ATTENTION, 0, 0},
    {"attn_v.weight", L(l.v), D_EMBD, D_V, ATTENTION, 0, 0},
    {"attn_q_a.weight", L(l.q_latent), D_EMBD, D_QUERY_LATENT, ATTENTION, MODEL_LATENT, 0},
    {"attn_q_a_norm.weight", L(l.q_latent_norm.weight), D_QUERY_LATENT, D_NONE, VECTOR | ATTENTION, MODEL_LATENT, 0},
    {"attn_q_b.weight", L(l.q), D_QUERY_LATENT, D_Q, ATTENTION, MODEL_LATENT, 0},
    {"attn_kv_a_mqa.weight", L(l.k), D_EMBD, D_K, REQUIRED | ATTENTION, MODEL_LATENT, 0},
    {"attn_kv_a_norm.weight", L(l.latent_norm.weight), D_LATENT, D_NONE, REQUIRED | VECTOR | ATTENTION, MODEL_LATENT,
     0},
    {"attn_k_b.weight", L(l.head_keys), D_PLAIN_KEY, D_LATENT, HEADS | ATTENTION, MODEL_LATENT, 0},
    {"attn_v_b.weight", L(l.head_values), D_LATENT, D_HEAD_VALUE, HEADS | ATTENTION, MODEL_LATENT, 0},
    {"attn_kv_b.weight", L(kv_b), D_LATENT, D_KEYS_VALUES, ATTENTION, MODEL_LATENT, 0}, /* both, in older files */
    {"indexer.attn_q_b.weight", L(l.index_q), D_QUERY_LATENT, D_INDEX_QUERIES, REQUIRED | INDEXED, MODEL_HAS_INDEXER,
     0},
    {"indexer.attn_k.weight", L(l.index_k), D_EMBD, D_INDEX, REQUIRED | INDEXED, MODEL_HAS_INDEXER, 0},
    {"indexer.proj.weight", L(l.index_weights), D_EMBD, D_INDEX_HEADS, REQUIRED | INDEXED, MODEL_HAS_INDEXER, 0},
    {"indexer.k_norm.weight", L(l.index_norm.weight), D_INDEX, D_NONE, REQUIRED | VECTOR | INDEXED, MODEL_HAS_INDEXER,
     0},
    {"indexer.k_norm.bias", L(l.index_norm.bias), D_INDEX, D_NONE, REQUIRED | VECTOR | INDEXED, MODEL_HAS_INDEXER, 0},
    {"attn_q.bias", L(l.q_bias), D_Q_ROWS, D_NONE, VECTOR | ATTENTION, 0, 0},
    {"attn_k.bias", L(l.k_bias), D_K, D_NONE, VECTOR | ATTENTION, 0, 0},
    {"attn_v.bias", L(l.v_bias), D_V, D_NONE, VECTOR | ATTENTION, 0, 0},
    {"attn_q_norm.weight", L(l.q_norm.weight), D_Q, D_NONE, VECTOR | RUNS | REQUIRED | ATTENTION, MODEL_QK_NORM, 0},
    {"attn_k_norm.weight", L(l.k_norm.weight), D_K, D_NONE, VECTOR | RUNS | ATTENTION, MODEL_QK_NORM, 0},
    {"attn_q_norm.weight", L(l.q_norm.weight), D_Q, D_NONE, VECTOR | RUNS | ATTENTION,
     MODEL_LAYER_NORM | MODEL_QK_NORM_IF, 0},
    {"attn_k_norm.weight", L(l.k_norm.weight), D_K, D_NONE, VECTOR | RUNS | ATTENTION,
     MODEL_LAYER_NORM | MODEL_QK_NORM_IF, 0},
    {"attn_q_norm.bias", L(l.q_norm.bias), D_Q, D_NONE, VECTOR | ATTENTION, MODEL_LAYER_NORM, 0},
    {"attn_k_norm.bias", L(l.k_norm.bias), D_K, D_NONE, VECTOR | ATTENTION, MODEL_LAYER_NORM, 0},
    {"attn_q_norm.weight", L(l.q_norm.weight), D_KEY, D_NONE, VECTOR | REQUIRED | ATTENTION, MODEL_QK_NORM_ROTATED, 0},
    {"attn_k_norm.weight", L(l.k_norm.weight), D_KEY, D_NONE, VECTOR | REQUIRED | ATTENTION, MODEL_QK_NORM_ROTATED, 0},
    {"attn_gate.weight", L(l.attn_gate), D_EMBD, D_VALUE, REQUIRED | ATTENTION, MODEL_GATE_MATRIX, 0},
    {"attn_sinks.weight", L(l.sinks), D_HEADS, D_NONE, VECTOR | REQUIRED | ATTENTION, MODEL_SINKS, 0},
    {"attn_output_norm.weight", L(l.attn_out_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR, MODEL_SUM_NORMS, 0},
    {"attn_output_norm.bias", L(l.attn_out_norm.bias), D_EMBD, D_NONE, VECTOR, MODEL_SUM_NORMS, 0},
    {"layer_output_norm.weight", L(l.layer_out_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR, MODEL_SUM_NORMS, 0},
    {"layer_output_norm.bias", L(l.layer_out_norm.bias), D_EMBD, D_NONE, VECTOR, MODEL_SUM_NORMS, 0},
    {"attn_output.weight", L(l.o), D_VALUE, D_EMBD, REQUIRED | ATTENTION, 0, 0},
    {"attn_output.bias", L(l.o_bias), D_EMBD, D_NONE, VECTOR | ATTENTION, 0, 0},
    {"post_attention_norm.weight", L(l.post_attn_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR, MODEL_POST_NORM, 0},
    {"post_attention_norm.weight", L(l.ffn_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR, MODEL_FFN_NORM_RENAMED, 0},
    {"ffn_norm.weight", L(l.ffn_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR, MODEL_FFN_NORM,
     MODEL_FFN_NORM_RENAMED},
    {"ffn_norm.weight", L(l.ffn_norm.weight), D_EMBD, D_NONE, VECTOR, MODEL_PRE_NORM, MODEL_FFN_NORM},
    {"ffn_norm", L(l.ffn_norm.weight), D_EMBD, D_NONE, VECTOR, MODEL_PRE_NORM, MODEL_FFN_NORM}, /* falcon-h1 */
    {"ffn_norm.bias", L(l.ffn_norm.bias), D_EMBD, D_NONE, VECTOR, MODEL_LAYER_NORM, 0},
    {"post_ffw_norm.weight", L(l.post_ffn_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR, MODEL_POST_NORM, 0},
    {"ffn_gate.weight", L(l.ffn.gate), D_EMBD, D_FF, DENSE, MODEL_FFN_GATED, 0},
    {"ffn_up.weight", L(l.ffn.up), D_EMBD, D_FF, DENSE | REQUIRED | WITH_GATE, 0, 0},
    {"ffn_down.weight", L(l.ffn.down), D_FF, D_EMBD, DENSE | REQUIRED, 0, 0},
    {"ffn_gate.bias", L(l.ffn.gate_bias), D_FF, D_NONE, DENSE | VECTOR, MODEL_FFN_GATED, 0},
    {"ffn_up.bias", L(l.ffn.up_bias), D_FF, D_NONE, DENSE | VECTOR, 0, 0},
    {"ffn_down.bias", L(l.ffn.down_bias), D_EMBD, D_NONE, DENSE | VECTOR, 0, 0},
    {"ffn_gate_inp.weight", L(l.router), D_EMBD, D_EXPERTS, ROUTER | REQUIRED, 0, 0},
    {"ffn_gate_inp.bias", L(l.router_bias), D_EXPERTS, D_NONE, ROUTER | VECTOR, 0, 0},
    {"exp_probs_b.bias", L(l.router_correction), D_EXPERTS, D_NONE, ROUTER | VECTOR, 0, 0},
    {"exp_probs_b", L(l.router_correction), D_EXPERTS, D_NONE, ROUTER | VECTOR, 0, 0}, /* hy_v3 */
    {"ffn_gate_exps.weight", L(l.experts.gate), D_EMBD, D_FF_EXPERT, EXPERTS, MODEL_FFN_GATED, 0},
    {"ffn_up_exps.weight", L(l.experts.up), D_EMBD, D_FF_EXPERT, EXPERTS, 0, 0},
    {"ffn_gate_up_exps.weight", L(gate_up_experts), D_EMBD, D_TWO_FF_EXPERT, EXPERTS, MODEL_FFN_GATED, 0},
    {"ffn_down_exps.weight", L(l.experts.down), D_FF_EXPERT, D_EMBD, EXPERTS | REQUIRED, 0, 0},
    {"ffn_gate_exps.bias", L(l.experts.gate_bias), D_FF_EXPERT, D_NONE, EXPERTS | VECTOR, MODEL_FFN_GATED, 0},
    {"ffn_up_exps.bias", L(l.experts.up_bias), D_FF_EXPERT, D_NONE, EXPERTS | VECTOR, 0, 0},
    {"ffn_down_exps.bias", L(l.experts.down_bias), D_EMBD, D_NONE, EXPERTS | VECTOR, 0, 0},
    {"ffn_gate_inp_shexp.weight", L(l.shared_gate), D_EMBD, D_NONE, SHARED | REQUIRED, MODEL_SHARED_GATE, 0},
    {"ffn_gate_shexp.weight", L(l.shared.gate), D_EMBD, D_FF_SHARED, SHARED | REQUIRED, MODEL_FFN_GATED,
     MODEL_EXPERTS_BESIDE},
    {"ffn_up_shexp.weight", L(l.shared.up), D_EMBD, D_FF_SHARED, SHARED | REQUIRED, 0, MODEL_EXPERTS_BESIDE},
    {"ffn_down_shexp.weight", L(l.shared.down), D_FF_SHARED, D_EMBD, SHARED | REQUIRED, 0, MODEL_EXPERTS_BESIDE},
    {"ffn_gate_inp.scale", L(l.router_norm.weight), D_EMBD, D_NONE, ROUTER | REQUIRED | VECTOR, MODEL_EXPERTS_BESIDE,
     0},
    {"ffn_down_exps.scale", L(l.expert_scales), D_EXPERTS, D_NONE, ROUTER | VECTOR, MODEL_EXPERTS_BESIDE, 0},
    {"pre_ffw_norm_2.weight", L(l.experts_norm.weight), D_EMBD, D_NONE, ROUTER | REQUIRED | VECTOR,
     MODEL_EXPERTS_BESIDE, 0},
    {"post_ffw_norm_1.weight", L(l.post_shared_norm.weight), D_EMBD, D_NONE, ROUTER | REQUIRED | VECTOR,
     MODEL_EXPERTS_BESIDE, 0},
    {"post_ffw_norm_2.weight", L(l.post_experts_norm.weight), D_EMBD, D_NONE, ROUTER | REQUIRED | VECTOR,
     MODEL_EXPERTS_BESIDE, 0},
    {"inp_gate.weight", L(l.embd_gate), D_EMBD, D_LAYER_EMBD, REQUIRED | EMBEDDED, MODEL_LAYER_EMBEDDINGS, 0},
    {"proj.weight", L(l.embd_up), D_LAYER_EMBD, D_EMBD, REQUIRED | EMBEDDED, MODEL_LAYER_EMBEDDINGS, 0},
    {"post_norm.weight", L(l.embd_norm.weight), D_EMBD, D_NONE, REQUIRED | EMBEDDED | VECTOR, MODEL_LAYER_EMBEDDINGS,
     0},
    {"altup_router_norm.weight", L(l.altup.router_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR, MODEL_STREAMS, 0},
    {"altup_router.weight", L(l.altup.router), D_EMBD, D_STREAMS, REQUIRED, MODEL_STREAMS, 0},
    {"altup_predict_coef.weight", L(l.altup.predict), D_STREAMS, D_STREAM_PAIRS, REQUIRED, MODEL_STREAMS, 0},
    {"altup_correct_coef.weight", L(l.altup.correct), D_STREAMS, D_STREAMS, REQUIRED, MODEL_STREAMS, 0},
    {"altup_correct_scale.weight", L(l.altup.scale), D_EMBD, D_NONE, REQUIRED | VECTOR, MODEL_STREAMS, 0},
    {"laurel_l.weight", L(l.laurel_a), D_EMBD, D_LAUREL, REQUIRED, MODEL_STREAMS, 0},
    {"laurel_r.weight", L(l.laurel_b), D_LAUREL, D_EMBD, REQUIRED, MODEL_STREAMS, 0},
    {"laurel_post_norm.weight", L(l.laurel_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR, MODEL_STREAMS, 0},
    {"layer_output_scale.weight", L(l.out_scale), D_ONE, D_NONE, VECTOR, MODEL_LAYER_EMBEDDINGS, 0},
    {"shortconv.in_proj.weight", L(l.recurrent.in[0]), D_EMBD, D_THREE_EMBD, RECURRENT | REQUIRED, MODEL_HAS_SHORT_CONV,
     0},
    {"shortconv.conv.weight", L(l.recurrent.convs[0]), D_KERNEL, D_CHANNELS, RECURRENT | REQUIRED | VECTOR,
     MODEL_HAS_SHORT_CONV, 0},
    {"shortconv.out_proj.weight", L(l.recurrent.out), D_EMBD, D_EMBD, RECURRENT | REQUIRED, MODEL_HAS_SHORT_CONV, 0},
    {"ssm_in.weight", L(l.recurrent.in[0]), D_EMBD, D_MAMBA2_IN, RECURRENT | REQUIRED, MODEL_HAS_MAMBA2, 0},
    {"ssm_in.weight", L(l.recurrent.in[0]), D_EMBD, D_TWO_INNER, RECURRENT | REQUIRED, MODEL_HAS_MAMBA1, 0},
    {"ssm_conv1d.weight", L(l.recurrent.convs[0]), D_KERNEL, D_CHANNELS, RECURRENT | REQUIRED | VECTOR,
     MODEL_HAS_MAMBA2 | MODEL_HAS_MAMBA1 | MODEL_HAS_DELTA_NET, 0},
    {"ssm_conv1d.bias", L(l.recurrent.conv_bias), D_CHANNELS, D_NONE, RECURRENT | VECTOR,
     MODEL_HAS_MAMBA2 | MODEL_HAS_MAMBA1, 0},
    {"ssm_x.weight", L(ssm_x), D_INNER, D_SELECTED, RECURRENT | REQUIRED, MODEL_HAS_MAMBA1, 0},
    {"ssm_dt.weight", L(l.recurrent.steps), D_STEPS, D_INNER, RECURRENT | REQUIRED, MODEL_HAS_MAMBA1, 0},
    {"ssm_dt.bias", L(l.recurrent.dt_bias), D_INNER, D_NONE, RECURRENT | REQUIRED | VECTOR, MODEL_HAS_MAMBA1, 0},
    {"ssm_a", L(l.recurrent.a), D_STATE, D_INNER, RECURRENT | REQUIRED | VECTOR, MODEL_HAS_MAMBA1, 0},
    {"ssm_d", L(l.recurrent.d), D_INNER, D_NONE, RECURRENT | REQUIRED | VECTOR, MODEL_HAS_MAMBA1, 0},
    {"attn_q.weight", L(l.recurrent.in[0]), D_EMBD, D_INNER, RECURRENT | REQUIRED, MODEL_HAS_KIMI_DELTA, 0},
    {"attn_k.weight", L(l.recurrent.in[1]), D_EMBD, D_INNER, RECURRENT | REQUIRED, MODEL_HAS_KIMI_DELTA, 0},
    {"attn_v.weight", L(l.recurrent.in[2]), D_EMBD, D_INNER, RECURRENT | REQUIRED, MODEL_HAS_KIMI_DELTA, 0},
    {"ssm_conv1d_q.weight", L(l.recurrent.convs[0]), D_KERNEL, D_ONE, RECURRENT | REQUIRED | VECTOR | CHANNELS,
     MODEL_HAS_KIMI_DELTA, 0},
    {"ssm_conv1d_k.weight", L(l.recurrent.convs[1]), D_KERNEL, D_ONE, RECURRENT | REQUIRED | VECTOR | CHANNELS,
     MODEL_HAS_KIMI_DELTA, 0},
    {"ssm_conv1d_v.weight", L(l.recurrent.convs[2]), D_KERNEL, D_ONE, RECURRENT | REQUIRED | VECTOR | CHANNELS,
     MODEL_HAS_KIMI_DELTA, 0},
    {"ssm_f_a.weight", L(l.recurrent.step_ranks), D_EMBD, D_STEPS, RECURRENT | REQUIRED, MODEL_HAS_KIMI_DELTA, 0},
    {"ssm_f_b.weight", L(l.recurrent.steps), D_STEPS, D_INNER, RECURRENT | REQUIRED, MODEL_HAS_KIMI_DELTA, 0},
    {"ssm_dt.bias", L(l.recurrent.dt_bias), D_INNER, D_NONE, RECURRENT | REQUIRED | VECTOR, MODEL_HAS_KIMI_DELTA, 0},
    {"ssm_g_a.weight", L(l.recurrent.gate_ranks), D_EMBD, D_STEPS, RECURRENT | REQUIRED, MODEL_HAS_KIMI_DELTA, 0},
    {"ssm_g_b.weight", L(l.recurrent.gates), D_STEPS, D_INNER, RECURRENT | REQUIRED, MODEL_HAS_KIMI_DELTA, 0},
    {"ssm_a", L(l.recurrent.a), D_NONE, D_STATES, RECURRENT | REQUIRED | VECTOR, MODEL_HAS_KIMI_DELTA, 0},
    {"attn_output.weight", L(l.recurrent.out), D_INNER, D_EMBD, RECURRENT | REQUIRED, MODEL_HAS_KIMI_DELTA, 0},
    {"ssm_dt_norm.weight", L(l.recurrent.step_norm.weight), D_STEPS, D_NONE, RECURRENT | REQUIRED | VECTOR,
     MODEL_MAMBA1_NORMS, 0},
    {"ssm_b_norm.weight", L(l.recurrent.b_norm.weight), D_STATE, D_NONE, RECURRENT | REQUIRED | VECTOR,
     MODEL_MAMBA1_NORMS, 0},
    {"ssm_c_norm.weight", L(l.recurrent.c_norm.weight), D_STATE, D_NONE, RECURRENT | REQUIRED | VECTOR,
     MODEL_MAMBA1_NORMS, 0},
    {"ssm_dt.bias", L(l.recurrent.dt_bias), D_STATES, D_NONE, RECURRENT | REQUIRED | VECTOR,
     MODEL_HAS_MAMBA2 | MODEL_HAS_DELTA_NET, 0},
    {"ssm_a", L(l.recurrent.a), D_NONE, D_STATES, RECURRENT | REQUIRED | VECTOR, MODEL_HAS_MAMBA2, 0},
    {"ssm_d", L(l.recurrent.d), D_NONE, D_STATES, RECURRENT | REQUIRED | VECTOR, MODEL_HAS_MAMBA2, 0},
    {"ssm_norm.weight", L(l.recurrent.norm.weight), D_GROUP_INNER, D_GROUPS, RECURRENT | VECTOR, MODEL_HAS_MAMBA2, 0},
    {"ssm_out.weight", L(l.recurrent.out), D_INNER, D_EMBD, RECURRENT | REQUIRED,
     MODEL_HAS_MAMBA2 | MODEL_HAS_MAMBA1 | MODEL_HAS_DELTA_NET, 0},
    {"ssm_in.weight", L(l.recurrent.in[0]), D_EMBD, D_DELTA_IN, RECURRENT, MODEL_DELTA_NEIGHBOURS, 0}, /* older files */
    {"attn_qkv.weight", L(l.recurrent.in[0]), D_EMBD, D_CHANNELS, RECURRENT, MODEL_HAS_DELTA_NET, 0},
    {"attn_gate.weight", L(l.recurrent.in[1]), D_EMBD, D_INNER, RECURRENT, MODEL_HAS_DELTA_NET, 0},
    {"ssm_ba.weight", L(l.recurrent.in[2]), D_EMBD, D_BETA_DT, RECURRENT | REQUIRED, MODEL_DELTA_NEIGHBOURS, 0},
    {"ssm_beta.weight", L(l.recurrent.in[3]), D_EMBD, D_STATES, RECURRENT | REQUIRED, MODEL_HAS_KIMI_DELTA, 0},
    {"ssm_beta.weight", L(l.recurrent.in[2]), D_EMBD, D_STATES, RECURRENT | REQUIRED, MODEL_HAS_DELTA_NET,
     MODEL_DELTA_NEIGHBOURS},
    {"ssm_alpha.weight", L(l.recurrent.in[3]), D_EMBD, D_STATES, RECURRENT | REQUIRED, MODEL_HAS_DELTA_NET,
     MODEL_DELTA_NEIGHBOURS},
    {"ssm_a", L(l.recurrent.a), D_STATES, D_NONE, RECURRENT | REQUIRED | VECTOR, MODEL_HAS_DELTA_NET, 0},
    {"ssm_norm.weight", L(l.recurrent.norm.weight), D_HEAD_DIM, D_NONE, RECURRENT | REQUIRED | VECTOR,
     MODEL_HAS_DELTA_NET | MODEL_HAS_KIMI_DELTA, 0},
};
#undef L

/* Of the layer of a draft head, in rp_model. */
#define H(member) offsetof(rp_model, net.draft_head.member)
static const tensor_row head_rows[] = {
    {"nextn.eh_proj.weight", H(projection), D_TWO_EMBD, D_EMBD, REQUIRED, 0, 0},
    {"nextn.enorm.weight", H(embd_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR, 0, 0},
    {"nextn.hnorm.weight", H(hidden_norm.weight), D_EMBD, D_NONE, REQUIRED | VECTOR, 0, 0},
    {"nextn.shared_head_norm.weight", H(output_norm.weight), D_EMBD, D_NONE, VECTOR, 0, 0},
    {"nextn.embed_tokens.weight", H(embedding), D_EMBD, D_VOCAB, 0, 0, 0},
    {"nextn.shared_head_head.weight", H(output), D_EMBD, D_VOCAB, 0, 0, 0},
};
#undef H

/* Copies of metadata, written by old converters. */
static const char *const ignored_tensors[] = {"attn_rot_embd.weight", "attn_rot_embd"};

/* layer: of a layer's tensor; else NULL. */
static int64_t dim_of(const model_hparams *hp, const model_layer *layer, enum dim d) {
    switch (d) {
    case D_NONE: return 1;
    case D_EMBD: return hp->n_embd;
    case D_FF: return layer->n_ff;
    case D_Q:
        return (int64_t)layer->n_heads * (hp->plain_key_dim > 0 ? hp->plain_key_dim + hp->rot_dim : layer->key_dim);
    case D_Q_ROWS: return model_query_rows(hp, layer);
    case D_K: return (int64_t)layer->n_kv_heads * layer->key_dim;
    case D_V: return (int64_t)layer->n_kv_heads * layer->value_dim;
    case D_QKV: return dim_of(hp, layer, D_Q_ROWS) + dim_of(hp, layer, D_K) + dim_of(hp, layer, D_V);
    case D_VALUE: return (int64_t)layer->n_heads * (hp->head_value_dim > 0 ? hp->head_value_dim : layer->value_dim);
    case D_HEADS: return layer->n_heads;
    case D_KEY: return layer->key_dim;
    case D_VOCAB: return hp->n_vocab;
    case D_ROT_PAIRS: return hp->rot_dim / 2;
    case D_EXPERTS: return hp->n_experts;
    case D_FF_EXPERT: return hp->n_ff_expert;
    case D_TWO_FF_EXPERT: return 2 * (int64_t)hp->n_ff_expert;
    case D_FF_SHARED: return hp->n_ff_shared;
    case D_POSITIONS: return hp->n_ctx_train;
    case D_TYPES: return hp->n_types;
    case D_RANK_HEAD: break; /* rank_head_rows */
    case D_SCORES: return hp->n_outputs;
    case D_DENSE: return hp->n_pooled_dense;
    case D_QUERY_LATENT: return hp->n_query_latent;
    case D_LATENT: return hp->value_dim;
    case D_PLAIN_KEY: return hp->plain_key_dim;
    case D_HEAD_VALUE: return hp->head_value_dim;
    case D_KEYS_VALUES: return (int64_t)hp->n_heads * (hp->plain_key_dim + hp->head_value_dim);
    case D_INDEX: return hp->index_dim;
    case D_INDEX_HEADS: return hp->n_index_heads;
    case D_INDEX_QUERIES: return (int64_t)hp->n_index_heads * hp->index_dim;
    case D_THREE_EMBD: return 3 * (int64_t)hp->n_embd;
    case D_TWO_EMBD: return 2 * (int64_t)hp->n_embd;
    case D_KERNEL: return hp->recurrent.kernel;
    case D_CHANNELS: return hp->recurrent.channels;
    case D_MAMBA2_IN:
        return (int64_t)hp->recurrent.channels + (int64_t)hp->recurrent.n_heads * (hp->recurrent.head_dim + 1);
    case D_INNER: return (int64_t)hp->recurrent.n_heads * hp->recurrent.head_dim;
    case D_STATES: return hp->recurrent.n_heads;
    case D_GROUPS: return hp->recurrent.n_groups;
    case D_TWO_INNER: return 2 * (int64_t)hp->recurrent.channels;
    case D_STEPS: return hp->recurrent.n_steps;
    case D_SELECTED: return hp->recurrent.n_steps + 2 * (int64_t)hp->recurrent.state_dim;
    case D_STATE: return hp->recurrent.state_dim;
    case D_ONE: return 1;
    case D_LAYER_EMBD: return hp->n_layer_embd;
    case D_LAYERS_EMBD: return (int64_t)hp->n_layers * hp->n_layer_embd;
    case D_STREAMS: return hp->n_streams;
    case D_STREAM_PAIRS: return (int64_t)hp->n_streams * hp->n_streams;
    case D_LAUREL: return hp->n_laurel;
    case D_GROUP_INNER:
        return (int64_t)hp->recurrent.n_heads * hp->recurrent.head_dim / BASE_MAX(hp->recurrent.n_groups, 1);
    case D_HEAD_DIM: return hp->recurrent.head_dim;
    case D_BETA_DT: return 2 * (int64_t)hp->recurrent.n_heads;
    case D_DELTA_IN: return dim_of(hp, layer, D_CHANNELS) + dim_of(hp, layer, D_INNER);
    }
    return 0;
}

/* Rows of cls.weight: the width, or the scores if there is no second matrix. */
static int64_t rank_head_rows(const rp_model *m) {
    return gguf_find_tensor(m->file, "cls.output.weight") ? m->net.hp.n_embd : m->net.hp.n_outputs;
}

static bool row_applies(const rp_model *m, const tensor_row *row, int32_t layer) {
    const uint64_t features = m->arch->features;
    const model_hparams *hp = &m->net.hp;
    if ((row->only && !(features & row->only)) || (features & row->unless)) return false;
    const model_mixer mixer = layer < 0 ? MODEL_NO_MIXER : model_layer_mixer(m, layer);
    if ((row->flags & ATTENTION) && !model_mixer_attends(mixer)) return false;
    if ((row->flags & RECURRENT) && !model_mixer_recurs(mixer)) return false;
    if ((row->flags & EMBEDDED) && hp->n_layer_embd == 0) return false;
    if ((row->flags & INDEXED) && !model_layer_has_indexer(m, layer)) return false;
    const bool has_experts = model_layer_has_experts(m, layer);
    if (row->flags & DENSE)
        return model_layer_has_ffn(m, layer) && (!has_experts || (features & MODEL_EXPERTS_BESIDE));
    if (row->flags & (EXPERTS | ROUTER)) return has_experts;
    return !(row->flags & SHARED) || (hp->n_ff_shared > 0 && has_experts);
}

/* The shape that follows from the metadata; adjusted to the file's where several are allowed. */
static void expected_shape(const rp_model *m, const tensor_row *row, int32_t layer, const gguf_tensor *t,
                           int64_t dims[GGUF_MAX_DIMS]) {
    const model_layer *l = layer >= 0 ? &m->net.layers[layer] : NULL;
    int n = 0;
    for (int i = 0; i < GGUF_MAX_DIMS; i++) dims[i] = 1;
    dims[n++] = row->in == D_RANK_HEAD ? rank_head_rows(m) : dim_of(&m->net.hp, l, row->in);
    if (row->out != D_NONE) dims[n++] = row->out == D_RANK_HEAD ? rank_head_rows(m) : dim_of(&m->net.hp, l, row->out);
    if (row->flags & EXPERTS) dims[n++] = m->net.hp.n_experts;
    if (row->flags & HEADS) dims[n++] = l->n_heads;
    if (row->flags & STREAMS) dims[n++] = m->net.hp.n_streams - 1;
    if (row->flags & CHANNELS) dims[n++] = dim_of(&m->net.hp, l, D_INNER);
    BASE_ASSERT(n <= GGUF_MAX_DIMS);
    if ((row->flags & RUNS) && t->dims[0] == l->key_dim && (t->dims[1] == 1 || t->dims[1] == dims[0] / l->key_dim)) {
        dims[0] = l->key_dim;
        dims[1] = t->dims[1];
    }
    if ((row->flags & WITH_GATE) && (m->arch->features & MODEL_FFN_GATED) && t->dims[1] == 2 * dims[1]) dims[1] *= 2;
}

/* "2048 x 32000" */
static void describe_shape(const int64_t dims[GGUF_MAX_DIMS], char *out, size_t bytes) {
    int n = GGUF_MAX_DIMS;
    while (n > 1 && dims[n - 1] == 1) n--;
    size_t used = 0;
    for (int i = 0; i < n && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%lld", i ? " x " : "", (long long)dims[i]);
}

/* Checks a tensor's type and shape and makes it a weight. */
static int use_tensor(model_binding *b, const tensor_row *row, const gguf_tensor *t, const int64_t dims[GGUF_MAX_DIMS],
                      model_weight *w) {
    char where[RP_ERROR_WHERE_BYTES], is[96], wanted[96];
    snprintf(where, sizeof(where), "%s: tensor '%.*s'", gguf_name(b->m->file), (int)BASE_MIN(t->name.n, 64),
             t->name.bytes);
    if (memcmp(dims, t->dims, sizeof(t->dims)) != 0) {
        describe_shape(t->dims, is, sizeof(is));
        describe_shape(dims, wanted, sizeof(wanted));
        return base_fail_at(b->err, RP_ERR_FORMAT, where, 0, "has shape %s, but the metadata requires %s", is, wanted);
    }
    if ((row->flags & VECTOR) && t->type != KERNEL_F32)
        return base_fail_at(b->err, RP_ERR_UNSUPPORTED, where, 0, "is %s, expected F32", kernel_type_name(t->type));
    bool flat = row->out == D_NONE && (row->flags & EXPERTS);
    *w = (model_weight){.data = t->data,
                        .type = t->type,
                        .n_in = dims[0],
                        .n_out = flat ? 1 : dims[1],
                        .n_slices = flat ? dims[1] : dims[2]};
    if (row->flags & CHANNELS) w->n_out = dims[2], w->n_slices = 1;
    w->slice_bytes = w->n_out * kernel_row_bytes(w->type, w->n_in);
    BASE_ASSERT((size_t)(t - gguf_tensor_at(b->m->file, 0)) < gguf_n_tensors(b->m->file));
    b->bound[t - gguf_tensor_at(b->m->file, 0)] = true;
    return RP_OK;
}

/* Files of early 2024 hold one tensor per expert: ffn_up.0.weight, ffn_up.1.weight ... They are supported at equal
 * distances. */
static int bind_single_experts(model_binding *b, const tensor_row *row, int32_t layer, model_weight *out) {
    BASE_ASSERT((row->flags & EXPERTS) && row->out != D_NONE); /* the name has "_exps" */
    const model_layer *l = &b->m->net.layers[layer];
    int64_t dims[GGUF_MAX_DIMS] = {dim_of(&b->m->net.hp, l, row->in), dim_of(&b->m->net.hp, l, row->out), 1, 1};
    for (int32_t e = 0; e < b->m->net.hp.n_experts; e++) {
        char name[64];
        model_weight w;
        snprintf(name, sizeof(name), "blk.%d.%.*s.%d.weight", layer, (int)(strstr(row->name, "_exps") - row->name),
                 row->name, e);
        const gguf_tensor *t = gguf_find_tensor(b->m->file, name);
        if (!t) return RP_OK; /* the caller reports the missing tensor */
        int rc = use_tensor(b, row, t, dims, &w);
        if (rc) return rc;
        if (e == 0) *out = w;
        if (e == 1) out->slice_bytes = (const char *)w.data - (const char *)out->data;
        if (w.type != out->type || w.data != (const char *)out->data + e * out->slice_bytes)
            return base_fail_at(
                b->err, RP_ERR_UNSUPPORTED, gguf_name(b->m->file), 0,
                "tensor '%s' does not match the type or the offset of the previous experts: convert the model again",
                name);
        out->n_slices = e + 1;
    }
    return RP_OK;
}

/* Finds one tensor and fills in the weight at base + row->offset. */
static int bind_tensor(model_binding *b, void *base, const tensor_row *row, int32_t layer) {
    char name[64];
    int64_t dims[GGUF_MAX_DIMS];
    model_weight *w = (model_weight *)((char *)base + row->offset);
    int rc = RP_OK;
    if (!row_applies(b->m, row, layer)) return RP_OK;
    if (layer >= 0) snprintf(name, sizeof(name), "blk.%d.%s", layer, row->name);
    else snprintf(name, sizeof(name), "%s", row->name);
    const gguf_tensor *t = gguf_find_tensor(b->m->file, name);
    if (t) {
        expected_shape(b->m, row, layer, t, dims);
        return use_tensor(b, row, t, dims, w);
    }
    if ((row->flags & EXPERTS) && row->out != D_NONE) rc = bind_single_experts(b, row, layer, w);
    if (rc || !(row->flags & REQUIRED) || ((row->flags & EXPERTS) && w->n_slices == b->m->net.hp.n_experts)) return rc;
    return base_fail_at(b->err, RP_ERR_FORMAT, gguf_name(b->m->file), 0,
                        "tensor '%s' is missing: the model file is incomplete", name);
}

/* ---- all ---- */

static bool is_ignored(gguf_string name) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(ignored_tensors); i++) {
        size_t n = strlen(ignored_tensors[i]);
        if (name.n > n && memcmp(name.bytes + name.n - n, ignored_tensors[i], n) == 0) return true;
    }
    return false;
}

/* Is it of a layer that predicts further tokens? */
static bool is_of_draft(const model_hparams *hp, gguf_string name) {
    char text[64];
    int32_t layer = -1;
    snprintf(text, sizeof(text), "%.*s", (int)BASE_MIN(name.n, 32), name.bytes);
    return sscanf(text, "blk.%d.", &layer) == 1 && layer >= hp->n_layers && layer < hp->n_layers + hp->n_draft_layers;
}

static int check_all_bound(const model_binding *b) {
    for (size_t i = 0; i < gguf_n_tensors(b->m->file); i++) {
        gguf_string name = gguf_tensor_at(b->m->file, i)->name;
        if (b->bound[i] || is_ignored(name) || is_of_draft(&b->m->net.hp, name)) continue;
        return base_fail_at(b->err, RP_ERR_UNSUPPORTED, gguf_name(b->m->file), 0,
                            "tensor '%.*s' is unknown in architecture '%s': the model is an unsupported variant",
                            (int)BASE_MIN(name.n, 64), name.bytes, b->m->arch->name);
    }
    return RP_OK;
}

/* The tensors of a draft head, and whether there is one. Files may have its layer without them. */
static int bind_draft_head(model_binding *b, bool *has_head) {
    rp_model *m = b->m;
    const int32_t layer = m->net.hp.n_layers;
    char name[64];
    snprintf(name, sizeof(name), "blk.%d.nextn.eh_proj.weight", layer);
    *has_head = m->arch->has_draft_head && m->net.hp.n_draft_layers > 0 && gguf_find_tensor(m->file, name);
    for (size_t i = 0; i < BASE_ARRAY_LEN(head_rows) && *has_head; i++) {
        const int rc = bind_tensor(b, m, &head_rows[i], layer);
        if (rc) return rc;
    }
    if (!m->net.draft_head.output_norm.weight.data) m->net.draft_head.output_norm = m->net.output_norm;
    return RP_OK;
}

static int bind_all(model_binding *b) {
    rp_model *m = b->m;
    bool has_head;
    int rc;
    for (size_t i = 0; i < BASE_ARRAY_LEN(model_rows); i++)
        if ((rc = bind_tensor(b, m, &model_rows[i], -1))) return rc;
    if ((rc = bind_draft_head(b, &has_head))) return rc;
    for (int32_t l = 0; l < m->net.hp.n_layers + has_head; l++) {
        model_file_layer f = {.l = m->net.layers[l]};
        for (size_t i = 0; i < BASE_ARRAY_LEN(layer_rows); i++)
            if ((rc = bind_tensor(b, &f, &layer_rows[i], l))) return rc;
        if ((rc = model_settle_layer(b, &f, l))) return rc;
        if (m->arch->is_xielu && (rc = model_read_xielu(b, l))) return rc;
        const bool has_ffn_norm = m->net.layers[l].ffn_norm.weight.data;
        if (l == 0 && (m->arch->features & MODEL_PARALLEL_BARE)) m->net.hp.parallel = !has_ffn_norm;
        /* A sequential feed-forward without a norm would read raw rows: valid only for architectures without any norm
         * before it. Alone, it has attn_norm. */
        const bool is_after = model_layer_has_ffn(m, l) && m->net.layers[l].mixer != MODEL_NO_MIXER;
        if (!m->net.hp.parallel && (m->arch->features & MODEL_PRE_NORM) && is_after && !has_ffn_norm)
            return model_binding_missing(b, l, "ffn_norm.weight");
    }
    if ((m->dense[0].data != NULL) != (m->dense[1].data != NULL))
        return base_fail_at(b->err, RP_ERR_FORMAT, gguf_name(m->file), 0,
                            "tensor '%s' is missing: the model file is incomplete",
                            m->dense[0].data ? "dense_3.weight" : "dense_2.weight");
    if ((m->arch->features & MODEL_STREAMS) && (rc = model_read_sparsity(b))) return rc;
    for (int32_t i = 0; i + 1 < m->net.hp.n_streams; i++) {
        m->net.streams_in[i] = model_weight_slice(&m->streams_in, i);
        m->net.streams_out[i] = model_weight_slice(&m->streams_out, i);
    }
    if (m->arch->features & MODEL_NORMS_BARE) m->net.output_norm = model_bare_norm(m);
    if (!m->net.output.data && !model_is_encoder(m)) m->net.output = m->net.embedding;
    if (m->net.head.data && !m->net.output.data) { /* a head of one matrix is its output */
        m->net.output = m->net.head;
        m->net.output_bias = m->net.head_bias;
        m->net.head = m->net.head_bias = (model_weight){0};
    }
    return check_all_bound(b);
}

static void forget_pages(const void *source, const void *data, size_t bytes) { gguf_forget(source, data, bytes); }

int model_bind_tensors(rp_model *m, rp_error *err) {
    BASE_ASSERT(m->net.layers); /* with their shapes */
    model_binding b = {.m = m, .err = err};
    size_t n_tensors = gguf_n_tensors(m->file);
    const size_t n_layers = (size_t)(m->net.hp.n_layers + m->net.hp.n_draft_layers);
    m->made = base_calloc(n_layers, sizeof(*m->made));
    if (!m->made) return base_fail_memory(err, (uint64_t)n_layers * sizeof(*m->made), "the layers");
    const bool has_ones = m->arch->unit_norms || m->arch->values_normed ||
                          (m->arch->features & (MODEL_QK_NORM_ROTATED | MODEL_NORMS_BARE)) != 0;
    const int32_t widest = BASE_MAX(BASE_MAX(m->net.hp.key_dim, m->net.hp.value_dim), m->net.hp.n_embd);
    const size_t n_ones = has_ones ? (size_t)widest : 0;
    if (has_ones && !(m->ones = base_alloc(sizeof(float) * n_ones)))
        return base_fail_memory(err, n_ones * sizeof(float), "norms");
    for (size_t i = 0; i < n_ones; i++) m->ones[i] = 1.0f;
    b.bound = base_calloc(n_tensors + 1, sizeof(bool));
    if (!b.bound) return base_fail_memory(err, n_tensors, "the tensors");
    int rc = bind_all(&b);
    base_free(b.bound);
    for (size_t i = 0; i < n_tensors; i++) m->net.weight_bytes += gguf_tensor_at(m->file, i)->bytes;
    m->net.source = m->file;
    m->net.forget = forget_pages;
    return rc;
}
