/* engine_internal.h: what the files of the engine share.
 *
 *   engine.c      making an engine, schemas, public odds and ends
 *   compose.c     segments -> spans: from the store, or computed and kept; the context of a plan
 *   request.c     one request: plan, compose, fresh tokens, answer
 *   sampler.c     logits -> token
 *   text_stream.c tokens -> whole UTF-8 characters
 *   inspect.c     what rp_engine_inspect tells
 */
#ifndef ENGINE_ENGINE_INTERNAL_H
#define ENGINE_ENGINE_INTERNAL_H

#include "base/buffer.h"
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

/* ---- sampling ---- */

typedef struct sampler {
    float temperature;
    uint64_t state; /* splitmix64 */
} sampler;

/* The most likely token (the first among equals) at temperature 0; else drawn from softmax(logits / temperature). */
int32_t sampler_draw(sampler *s, const float *logits, int32_t n);

/* ---- text ---- */

typedef struct text_stream {
    char pending[4]; /* bytes of a character that is not whole yet */
    size_t n_pending;
    base_buffer text; /* everything so far */
    rp_on_text on_text;
    void *user;
    bool stopped; /* on_text returned false */
} text_stream;

/* Adds bytes: whole characters go to the text and the callback, bytes that are no UTF-8 as U+FFFD. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int text_stream_add(text_stream *s, const char *bytes, size_t n, rp_error *err);

#endif
