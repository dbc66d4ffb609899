/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_variant.h: copies of GGUF files with changes: features of users' files that the golden ones lack.
 * For tests: a failing read or write ends the program. Not thread-safe.
 */
#ifndef SUPPORT_GGUF_VARIANT_H
#define SUPPORT_GGUF_VARIANT_H

#include <stdbool.h>
#include <stdint.h>

#include "model/gguf/gguf_writer.h"

typedef struct gguf_variant {
    const char *without_key;  /* left out; NULL: none */
    bool split_experts;       /* ffn_gate.0.weight, ffn_gate.1.weight, ... for ffn_gate_exps.weight, as older files have
                                 it; so up, down */
    bool joint_keys_values;   /* attn_kv_b.weight for attn_k_b.weight and attn_v_b.weight, as older files have it */
    bool joint_delta_nets;    /* ssm_in.weight for attn_qkv.weight and attn_gate.weight of delta nets, likewise */
    int32_t shared_kv_layers; /* the last n layers have no key and value tensors, and the metadata declares that */
    /* changes a tensor's elements, [n_rows][width]; NULL: none */
    void (*change)(const char *name, float *x, int64_t n_rows, int64_t width);
    void (*add)(gguf_writer *w); /* writes further keys and tensors; NULL: none */
} gguf_variant;

/* Writes a copy of `from`, with every tensor as F32, to a new temporary file and stores its name in path. The caller
 * unlinks it. */
void gguf_variant_write(const char *from, const gguf_variant *v, char path[64]);

/* Writes part no (from 0) of n of a model to path, with the bytes of `whole`: metadata in the first part, every n-th
 * tensor. */
void gguf_variant_write_part(const gguf_file *whole, int no, int n, const char *path);

#endif
