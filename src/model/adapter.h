/* SPDX-License-Identifier: Apache-2.0 */
/* adapter.h: LoRA adapters (Hu et al., 2022): low-rank additions to a model's matrices, chosen row by row.
 *
 *   y = W x + scale * alpha / rank * B (A x)        A: [rank][n_in], B: [n_out][rank]
 *
 * A GGUF file as llama.cpp's convert_lora_to_gguf writes it:
 *
 *   general.type "adapter", adapter.type "lora", general.architecture: the base model's
 *   adapter.lora.alpha                       0 or absent: the factor alpha / rank is 1
 *   adapter.alora.invocation_tokens          of an activated adapter (aLoRA; Greenewald et al., 2025): it is switched
 *         on at
 *                                            the last place where a prompt has these tokens
 *   NAME.lora_a, NAME.lora_b                 for tensors NAME of the base; F32, F16, BF16 or Q8_0
 *
 * Files are untrusted: everything is checked when an adapter is opened. No tensor is skipped: one that cannot be
 * applied (embeddings, norms, experts) is an error. Where the model has one tensor for several matrices (q, k and v),
 * the rows of B are divided like the tensor's.
 *
 * Immutable after opening, except the number of references; any thread.
 */
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H

#include <stdatomic.h>

#include "model/model.h"

#define ADAPTER_MAX_RANK 4096
#define ADAPTER_MAX_INVOCATION 1024 /* tokens */

struct rp_adapter {
    atomic_int refs;
    const rp_model *model;   /* borrowed */
    adapter_weights weights; /* what rows are computed with; factors of its matrices: alpha / rank, or 1 */
    char **blocks;           /* [n_blocks]: their bytes */
    size_t n_blocks, cap_blocks;
    uint64_t bytes;    /* of the blocks */
    int32_t n_tensors; /* of the base, that it changes */
    float alpha;
    int32_t *invocation; /* [n_invocation]; NULL: the adapter is on in the whole prompt */
    int32_t n_invocation;
    base_key key; /* a hash of all headers and tensors of the file */
    char key_hex[2 * BASE_KEY_BYTES + 1];
    char *name; /* general.name, or "" */
};

/* Opens an adapter for a model, which is borrowed until the last reference is released; one reference is the caller's.
 * level: of the kernels that will use it. RP_ERR_IO, RP_ERR_FORMAT, RP_ERR_UNSUPPORTED, RP_ERR_CONFLICT (another
 * architecture, or other shapes than the model's), RP_ERR_MEMORY. */
int adapter_open(rp_adapter **out, const rp_model *m, const char *path, base_cpu_level level, rp_error *err);
/* The same of an opened file, which it closes, on failure too. */
int adapter_open_gguf(rp_adapter **out, const rp_model *m, gguf_file *file, base_cpu_level level, rp_error *err);
rp_adapter *adapter_ref(rp_adapter *a);
void adapter_unref(rp_adapter *a); /* NULL does nothing */

/* Where a text is computed with an adapter: tokens at positions from `from` on. Zeros: nowhere. */
typedef struct adapter_use {
    rp_adapter *adapter; /* a reference; NULL: none */
    float scale;
    int32_t from;
    base_key key; /* of the adapter and the scale: part of the keys of all KV that is computed with them */
} adapter_use;

/* Takes a reference, for the whole text. */
adapter_use adapter_use_of(rp_adapter *a, float scale);
/* Of a row at pos; NULL: it is computed without one. */
static inline const adapter_weights *adapter_use_at(const adapter_use *u, int32_t pos) {
    return u->adapter && pos >= u->from ? &u->adapter->weights : NULL;
}

#endif
