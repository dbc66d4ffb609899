/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_adapter.h: LoRA adapters of requests and schemas. Conventions are those of reprise.h.
 *
 * A LoRA adapter (Hu et al., 2022) for a model: low-rank additions to its matrices, applied to the tokens of the
 * requests that name it (rp_request.adapter); requests with different adapters share steps. An activated adapter
 * (aLoRA; Greenewald et al., 2025) has invocation tokens: it is switched on at the last place where a prompt has
 * them, and what is before them is the base model's, KV included. Immutable; any thread. docs/lora.md
 */
#ifndef REPRISE_ADAPTER_H
#define REPRISE_ADAPTER_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a GGUF file as llama.cpp's convert_lora_to_gguf writes it. It may be removed or replaced afterwards. The
 * model is borrowed. RP_ERR_IO, RP_ERR_FORMAT (corrupt), RP_ERR_UNSUPPORTED (not a LoRA; adapters of embeddings,
 * norms and experts; a tensor type; the model has its vocabulary only), RP_ERR_CONFLICT (it was trained for another
 * model), RP_ERR_MEMORY. */
RP_API int rp_adapter_open(rp_adapter **out, const rp_model *model, const char *path, rp_error *err);
/* Any time; jobs and schemas that use it keep it in memory. Before the model is closed, close the adapter and free
 * all engines. */
RP_API void rp_adapter_close(rp_adapter *adapter);

/* Properties of an adapter. The strings and tokens belong to it. */
typedef struct rp_adapter_info {
    uint32_t struct_size;
    const char *name;                 /* general.name, or "" */
    const char *fingerprint;          /* 64 hexadecimal digits: BLAKE2b of all headers and tensors of the file */
    int32_t rank;                     /* the largest of its matrices */
    float alpha;                      /* adapter.lora.alpha; 0: none */
    int32_t n_tensors;                /* of the model, that it changes */
    uint64_t bytes;                   /* of memory */
    const int32_t *invocation_tokens; /* [n_invocation_tokens]; NULL: not an activated adapter */
    int32_t n_invocation_tokens;
} rp_adapter_info;
/* RP_ERR_INVALID (struct_size is not set). */
RP_API int rp_adapter_describe(const rp_adapter *adapter, rp_adapter_info *out);

#ifdef __cplusplus
}
#endif
#endif
