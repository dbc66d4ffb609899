/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_embedding.h: embeddings of many texts. One is a request with rp_request.pooling. Conventions are those of
 * reprise.h.
 */
#ifndef REPRISE_EMBEDDING_H
#define REPRISE_EMBEDDING_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A text to embed, or the token ids of one. */
typedef struct rp_embedding_input {
    const char *text; /* n_bytes of UTF-8; NULL: tokens */
    size_t n_bytes;
    const char *second; /* rank: n_second bytes, the document; NULL: none */
    size_t n_second;
    const int32_t *tokens; /* n_tokens ids, with nothing added to them */
    size_t n_tokens;
    uint64_t reserved[2]; /* 0 */
} rp_embedding_input;

/* Embeds n texts: submits a job for each, several at a time, and waits for all. request: pooling (OFF counts as
 * MODEL), raw_embedding, tenant, flow, reuse, priority, deadline_ms; its prompt and callbacks are not used. NULL: the
 * defaults. results: [n], the caller's (rp_result_free). On error all of them are NULL. Errors as rp_engine_run;
 * those of one text begin with its number, from 1 ("text 3: ..."). */
RP_API int rp_engine_embed(rp_engine *engine, const rp_request *request, const rp_embedding_input *inputs, size_t n,
                           rp_result **results, rp_error *err);

#ifdef __cplusplus
}
#endif
#endif
