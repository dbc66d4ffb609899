/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_cluster.h: several machines: names of KV, which need no model's weights, changes of a store's content, and
 * the load of an engine (docs/cluster.md). Conventions are those of reprise.h.
 *
 * A name stands for KV without telling what it is of: a hash, keyed by the cluster's secret, of the KV's key, or of
 * the tokens from the beginning of a text. Who lacks the secret can neither compute names nor ask whether a text is
 * cached somewhere.
 *
 *   node     an engine with rp_cluster_options.on_spans: it reports the names of what its store holds
 *   router   an engine with rp_cluster_options.plans_only over a model with its vocabulary only: rp_plan_names_of gives
 *            the names of a request's KV, as
 *            a node with the same identity would plan it
 */
#ifndef REPRISE_CLUSTER_H
#define REPRISE_CLUSTER_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- An engine of a cluster ---- */

/* The name of KV. */
#define RP_NAME_BYTES 16
#define RP_CLUSTER_KEY_BYTES 32
typedef struct rp_name {
    uint8_t bytes[RP_NAME_BYTES];
} rp_name;

#define RP_TIER_RAM 1u
#define RP_TIER_DISK 2u

/* The store holds KV of this name in other tiers than before. */
typedef struct rp_span_change {
    rp_name name;
    uint32_t tiers; /* RP_TIER_*: where it is now; 0: nowhere */
} rp_span_change;

/* Called with changes in their order, some hundred at a time, at the end of a step, on the engine's thread or, for what
 * is on disk at the start, within rp_engine_new. It must not wait. changes is borrowed meanwhile. */
typedef void (*rp_on_spans)(void *user, const rp_span_change *changes, size_t n);

/* A block: RP_NAME_TOKENS (64) consecutive tokens of plain text, whose KV is in other tiers than before. */
typedef struct rp_block_change {
    rp_name name;          /* of the text up to its end, as in rp_span_change */
    rp_name parent;        /* of the text up to its beginning; zeros: it is the first block */
    uint32_t tiers;        /* RP_TIER_*: where it is now; 0: nowhere */
    const int32_t *tokens; /* [RP_NAME_TOKENS] */
} rp_block_change;

/* As rp_on_spans. A block comes after its parent, and is gone, tiers 0, with it. */
typedef void (*rp_on_blocks)(void *user, const rp_block_change *changes, size_t n);

/* What makes an engine part of a cluster: rp_engine_options.cluster. Borrowed until rp_engine_new returns. Initialise
 * it with {.struct_size = sizeof(rp_cluster_options)}. */
struct rp_cluster_options {
    uint32_t struct_size;
    const uint8_t *key;   /* [RP_CLUSTER_KEY_BYTES], the secret of names; NULL: the engine has no names */
    rp_on_spans on_spans; /* reports the names of what the store holds; needs `key`. NULL: none */
    void *spans_user;
    rp_on_blocks on_blocks; /* reports blocks of plain text, with their tokens: of texts from position 0 on,
                               without modules or an adapter, in the engine's KV format, of blocks_tenant. Needs
                               `key`. NULL: none */
    void *blocks_user;
    const char *blocks_tenant; /* NULL, "": of requests without a tenant */
    bool plans_only;           /* plan requests, without computing any: schemas, rp_plan_names_of and
                                  rp_engine_inspect work, rp_engine_submit gives RP_ERR_UNSUPPORTED. The model may
                                  be opened with vocabulary_only, from a file with the shape of a supported model
                                  (RP_ERR_UNSUPPORTED). No weights, KV memory or thread are used. RP_ERR_INVALID:
                                  with store_dir or on_spans. Default false */
    const char *pool;          /* address of a pool that other engines with the same key use, too (docs/cluster.md):
                                  "redis://HOST", ...; needs `key`. KV of queued requests is pulled from it where
                                  that is quicker than computing it, and KV is pushed to it, in the background. A
                                  pool that cannot be used is a miss. RP_ERR_INVALID: not an address, or with
                                  plans_only. NULL: none */
    uint64_t pool_write_bytes; /* pushed in a second at most; 0: no limit */
    const char *identity;      /* plans_only: plan for engines of this identity (rp_engine_identity), with the same
                                  options about KV and context; NULL: its own. RP_ERR_INVALID: not 64 lower-case
                                  digits, or without plans_only */
};

/* ---- Names ---- */

/* Text has a name for its beginning up to each multiple of so many tokens. A module has one for each span. */
#define RP_NAME_TOKENS 64

/* KV that a request can reuse. */
typedef struct rp_named_kv {
    rp_name name;
    bool is_module;       /* a span of a module. false: the part of a text up to a multiple of RP_NAME_TOKENS,
                             useful if a node holds all text names before it, too */
    int32_t n_tokens;     /* tokens of the prompt whose KV it is; of text: those after the name before it */
    int32_t position;     /* of the first of them in the prompt */
    uint64_t bytes;       /* of KV */
    int32_t group;        /* of a module's spans: the same number, from 1 on, if they are useful only together;
                             they are adjacent. Text: 0 */
    uint32_t reserved_32; /* 0 */
    uint64_t reserved[1]; /* 0 */
} rp_named_kv;

typedef struct rp_plan_names {
    uint32_t struct_size;
    rp_named_kv *items; /* [n_items]: modules in the order of the prompt, then text in rising position */
    int32_t n_items;
    int32_t prompt_tokens; /* those with names included */
    int32_t max_tokens;    /* of the answer */
    void *owner;           /* internal */
} rp_plan_names;

/* Plans a request as rp_engine_submit does, and names the KV that it can reuse. Nothing is queued. Any thread.
 * Answers of earlier turns are text here: where a node remembers their sampled tokens, names after them may differ.
 * With RP_REUSE_OFF there are none; with rp_request_experiment.no_prefix, those of modules; text names end
 * before the last token, which is always computed.
 * RP_ERR_UNSUPPORTED (the engine has no cluster key), errors of rp_engine_submit about the request,
 * except those about its answer's grammar.
 * *out: rp_plan_names_free. */
RP_API int rp_plan_names_of(rp_engine *engine, const rp_request *request, rp_plan_names **out, rp_error *err);
RP_API void rp_plan_names_free(rp_plan_names *names);

/* The identity of an engine's KV: 64 hexadecimal digits of a hash of model, KV format and arithmetic
 * (docs/format.md). Engines with the same identity and cluster key give equal names to equal bytes. Immutable;
 * belongs to the engine. Any thread. */
RP_API const char *rp_engine_identity(const rp_engine *engine);

/* ---- Load ---- */

#define RP_COST_KNOTS 13

/* An engine's load, and the coefficients of its cost model, by which others predict its times. As of the last step. */
typedef struct rp_engine_load {
    uint32_t struct_size;
    int32_t running, waiting; /* requests */
    int32_t decoding;         /* of the running ones */
    int32_t background;       /* background tasks */
    int64_t queued_tokens;    /* prompt tokens of all of them that have to be computed */
    int64_t context_tokens;   /* slots that the decoding requests attend to */
    uint64_t drain_us;        /* predicted time until those tokens are computed */
    uint64_t gap_p95_us;      /* 95th percentile of the last inter-token latencies; 0: none yet */
    uint64_t kv_bytes_per_token;
    uint64_t free_bytes;  /* KV in RAM that is free or evictable */
    int32_t max_running;  /* rp_engine_options.max_sequences */
    int32_t chunk_tokens; /* rp_engine_options.chunk_tokens */
    /* Predicted time of a step with r rows, which attend to s slots in all (row_slots), in contexts of c slots
     * (slots), in us: knots at r (linear between 1, 2, 4, ... 4096 rows) + row_slot_us * s + slot_us * c. All 0:
     * fewer than 16 steps were measured. */
    double knot_us[RP_COST_KNOTS];
    double row_slot_us, slot_us;
    double read_byte_us; /* measured time to read a byte of a record from disk; 0: not known, as fewer than 4 were
                            read */
    uint64_t quiet_us;   /* since the engine's thread last began a turn: while it has jobs, more than a step takes
                            means that it hangs */
} rp_engine_load;

/* RP_ERR_INVALID (struct_size is not set). Any thread. */
RP_API int rp_engine_get_load(rp_engine *engine, rp_engine_load *out);

/* ---- Names of rules ---- */

/* Names of policies, admission rules and ends of requests, for numbers from 0; NULL past the end. Static. */
RP_API const char *rp_cluster_policy_name(int32_t i);
RP_API const char *rp_cluster_admission_name(int32_t i);
RP_API const char *rp_cluster_outcome_name(int32_t i);
#define RP_CLUSTER_OUTCOMES 16 /* at most */
#define RP_CLUSTER_SERVED 0    /* number of the outcome "served" */

#ifdef __cplusplus
}
#endif
#endif
