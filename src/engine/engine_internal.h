/* engine_internal.h: what the files of the engine share.
 *
 *   engine.c      making an engine, schemas, public odds and ends
 *   compose.c     segments -> spans: from the store, or computed and kept; the context of a plan
 *   request.c     one request: plan, compose, fresh tokens, answer
 *   inspect.c     what rp_engine_inspect tells
 *
 * Headers of their own: answer.h (the tokens of an answer), sampler.h (logits -> token), text_stream.h (tokens -> text).
 */
#ifndef ENGINE_ENGINE_INTERNAL_H
#define ENGINE_ENGINE_INTERNAL_H

#include "model/forward.h"
#include "pml/plan.h"
#include "store/span_store.h"

#define ENGINE_MAX_SCHEMAS ((size_t)1 << 16)

struct rp_schema {
    char *name;
    pml_document *document;
    pml_layout *layout;
};

struct rp_engine {
    rp_model *model;
    int32_t n_ctx, chunk_tokens;
    backend *backend;
    model_forward *forward;
    kv_pool *pool;
    span_store *store;
    span_store *private_store; /* of the request that runs with RP_REUSE_OFF; else NULL */
    base_key salt;             /* model, tenant, state format: part of every key */
    rp_schema **schemas;
    size_t n_schemas, cap_schemas;
    model_row *rows;           /* [chunk_tokens] */
    float *logits;             /* [n_vocab] */
};

/* Returns the schema of that name; RP_ERR_NAME lists what there is. */
int engine_find_schema(const rp_engine *e, const char *name, rp_schema **out, rp_error *err);

/* Computes n tokens at the given positions (rising) at the end of a context, in steps of chunk_tokens. If logits is not NULL it gets
 * those after the last token. */
int engine_compute(rp_engine *e, kv_context *c, const int32_t *tokens, const int32_t *positions, size_t n, float *logits,
                   rp_error *err);

/* Progress and cost of computing what the store does not hold. */
typedef struct engine_encoding {
    rp_on_progress on_progress;
    void *user;
    uint64_t done, total; /* tokens */
    uint64_t us;          /* spent */
    int depth;            /* of segments being computed for segments */
} engine_encoding;

/* How a context takes a segment. */
typedef struct segment_view {
    int32_t segment, shift;
    int32_t n_tokens; /* its first slots; all of them but where the prompt's last token is computed anew */
    bool mask_holes;  /* a prompt does not see placeholders; a segment in a scope is seen as it was computed, with them */
} segment_view;

/* Adds the spans of a segment to a context. What the store lacks is computed, with its scope, and kept.
 * *computed (may be NULL): whether any was. */
int engine_add_segment(rp_engine *e, kv_context *c, const pml_layout *l, const segment_view *view, engine_encoding *encoding,
                       bool *computed, rp_error *err);

/* The store that a request uses: the private one of RP_REUSE_OFF, or the engine's. */
static inline span_store *engine_store(const rp_engine *e) { return e->private_store ? e->private_store : e->store; }

#endif
