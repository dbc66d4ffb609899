/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_report.h: what a result and a step report: where the KV of a prompt came from and why, times, quality,
 * log-probabilities. Conventions are those of reprise.h, which includes it.
 */
#ifndef REPRISE_REPORT_H
#define REPRISE_REPORT_H

#include "reprise_error.h"
#include "reprise_quality.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Plans and timings ---- */

#define RP_MISMATCH_TOKENS 8
#define RP_MAX_WARNINGS 16
#define RP_MAX_KEPT_SHARES 4096

/* A token and its log-probability. -INFINITY if the model rules it out. */
typedef struct rp_token_logprob {
    int32_t token;
    float logprob;
} rp_token_logprob;

/* One line of a plan, in position order: reused KV (view) or tokens computed for this request (run). The lines cover
 * every token of the prompt once. */
typedef struct rp_plan_item {
    bool is_view;
    bool exact;               /* its KV is that of a full prefill of the whole prompt */
    const char *module;       /* "plan/miami"; "" for anonymous text, "prompt" for the prompt's own text */
    int32_t n_tokens;         /* masked slots excluded */
    int32_t position;         /* of the first token in this prompt */
    int32_t shift;            /* of the view, in positions; 0 for a run */
    const char *tier;         /* "ram": hit in RAM; "device": in a GPU's own memory; "disk": loaded from disk;
                                 "pool": pulled from a pool; "computed": miss, computed now; "" for a run */
    const char *reason;       /* miss reason (a run, or tier "computed"); "" for a hit. Static:
                                 "new"      never cached, as far as is known and visible to the request's tenant
                                 "evicted"  was cached, and was evicted or has expired
                                 "scope"    is cached after other modules
                                 "adapter"  is cached with another adapter, or without one (rp_request.adapter)
                                 "memory"   is on disk, but RAM had no capacity to load it
                                 "window"   is cached, but without the KV that sliding-window layers need
                                 "checkpoint" is cached, but recurrent layers have no state there
                                 "uncached" the module has cache="false", or it is an argument
                                 "shifted"  first tokens after an edit (rp_request.shifted_reuse)
                                 "link", "blend", "focus", "exact": module tokens recomputed for quality
                                 "last"     the last token, for its logits
                                 "pooling"  an embedding that needs the states of all tokens (rp_request.pooling)
                                 "kv_keep"  the last tokens, for their attention (rp_request.kv_keep)
                                 "logprobs" the whole prompt, for its logits (rp_request.n_prompt_logprobs)
                                 "off"      the request disabled the lookup */
    char key[17];             /* first 16 digits of the key of its last span, of reduced KV of its first one; ""
                                 for a run */
    float kept;               /* share of the module's slots in its reduced KV (rp_engine_options.keep_share); 1: all */
    const char *kept_by;      /* the method that chose them; "" for all. Static */
    const char *full_reason;  /* why a module with keep has full KV; "" for reduced KV and without keep. Static:
                                 "new"      its reduced KV was not computed yet
                                 "short"    it has at most 64 tokens
                                 "quality"  link, blend, focus and exact use full KV
                                 "last"     the prompt ends with it
                                 "scaffold" its KV is that of a joint prefill
                                 "memory"   the KV budget cannot hold the computation of the plan's reduced KV
                                 "context"  the context has no positions left to repeat it
                                 "context_shift" its KV may have to be moved while the answer is decoded
                                 "audit"    the auditor raised the schema (rp_engine_options.audit_raises)
                                 "f16"      the auditor replaced the KV format of the schema's modules */
    int32_t first_kept_share; /* its numbers in rp_result.kept_shares: n_kept_shares from this one on */
    int32_t n_kept_shares;    /* 0: the module is not reduced, or the request did not ask (rp_request.n_kept_shares) */
    uint64_t reserved[1];     /* 0 */
} rp_plan_item;

/* First token at which the prompt differs from the cached prefix. */
typedef struct rp_mismatch {
    int32_t token; /* index into the prompt in position order; -1: no difference, or nothing was cached */
    int32_t position;
    const char *module;   /* as rp_plan_item.module */
    char message[24];     /* "user 2": the second of the prompt's <user> elements, or of the messages; "" outside */
    char *before;         /* the text before it, up to RP_MISMATCH_TOKENS tokens; "" with token -1 */
    char *prompt;         /* the text from it on, in the prompt */
    char *cached;         /* the text from it on, in the cached prefix */
    uint64_t reserved[4]; /* 0 */
} rp_mismatch;

/* Requested and used quality. */
typedef struct rp_quality_report {
    rp_quality asked; /* by the request, its prompt or its schema; the highest level if modules differ */
    rp_quality used;
    const char *reason;        /* why `used` differs from `asked`; "" if it does not. Static:
                                  "new"     scaffold: this combination is not prefilled jointly yet
                                  "plain"   all modules have the KV of a full prefill
                                  "audit"   the schema's level was raised (rp_engine_options.audit_raises)
                                  "model"   not supported by the model (blend: only one layer has KV; blend, focus:
                                            recurrent layers)
                                  "window"  blend, focus: sliding-window layers lack KV that tokens inside the
                                            modules need
                                  "certain" focus: no prediction was uncertain */
    int32_t recomputed_tokens; /* recomputed module tokens */
    int32_t probed_tokens;     /* blend: tokens compared to choose them */
    double ms;                 /* estimated cost: the comparison, and those tokens' share of prompt_prefill_ms;
                                  focus: from the uncertain prediction to the new one */
    int64_t focus_token;       /* focus: number of the answer's token, from 1, whose prediction was uncertain; 0:
                                  none was */
    uint64_t reserved[3];      /* 0 */
} rp_quality_report;

/* What was kept of a prompt's KV for its answer (rp_request.kv_keep). */
typedef struct rp_kv_reduction {
    const char *method;    /* static; "": not reduced */
    double share;          /* kept slots, of all heads, of those that could be dropped; 1: all; quest: those that a
                              token attends to */
    uint64_t bytes_before; /* KV of the complete prompt, its modules included, */
    uint64_t bytes;        /* and what was left of it for the answer; without a reduction, both are kv_bytes;
                              quest: more, its bounds included */
    double ms;             /* time to choose and copy the slots, part of decode_ms; quest: to compute the bounds */
    const char *reason;    /* why the engine's default (rp_engine_options.kv_keep) did not apply: "focus" (a
                              module's quality), "context_shift", "memory" (the KV budget cannot hold complete and
                              reduced KV together); "" otherwise. Static */
    uint64_t reserved[3];  /* 0 */
} rp_kv_reduction;

/* ttft_ms has one meaning everywhere: from arrival of the request (here: the call of rp_engine_submit or rp_engine_run;
 * in the server: the last byte of its body) to its first token, queueing and prefill of missing modules included. For
 * an answer without a token: to the moment at which that is known. It is the sum of the four times before it. */
typedef struct rp_timings {
    double queue_ms;          /* waiting for admission, or for a job that computes the same tokens */
    double module_prefill_ms; /* prefill of modules that missed. 0 with RP_REUSE_OFF, which caches none */
    double plan_ms;           /* from the document to the composed context, loads from disk included */
    double prompt_prefill_ms; /* prefill of the prompt's own text, and sampling of the first token */
    double ttft_ms;           /* time to first token: queue_ms + module_prefill_ms + plan_ms + prompt_prefill_ms */
    double decode_ms;         /* the tokens after the first */
    double saved_ms;          /* estimated time to compute the reused KV: each span's cost as predicted when it
                                 was cached, in proportion to the tokens used; eviction uses the same cost */
    double decode_tokens_per_second;
    double reserved[4]; /* 0 */
} rp_timings;

typedef struct rp_result {
    uint32_t struct_size;
    char *text;      /* UTF-8: all pieces of on_text. Without a character cut by the end, and without a stop
                        string and the text after it */
    int32_t *tokens; /* generated token ids, those of a stop string included */
    int32_t n_tokens;
    float *logprobs;                /* [n_tokens]; NULL if the request's n_logprobs is 0 */
    rp_token_logprob *top_logprobs; /* [n_tokens][n_top]: most likely tokens per position, in order; NULL as above */
    int32_t n_top;                  /* n_logprobs, or the size of the vocabulary if that is less */
    const char *finish_reason;      /* "stop" (end of text, stop string, end of the grammar), "length"
                                       (max_tokens, n_forced, the context or the KV budget), "grammar" (no token
                                       continues the grammar, or it is too ambiguous to follow: the text is
                                       incomplete), "cancelled", "deadline"; static */
    const char *stop;               /* the stop string that ended it, or NULL */
    int32_t prompt_tokens;          /* cached_tokens + fresh_tokens */
    int32_t cached_tokens;          /* tokens with reused KV */
    int32_t fresh_tokens;           /* tokens computed for this request */
    int32_t drafted_tokens;         /* by prompt lookup and by the draft model (n_draft) */
    int32_t accepted_tokens;        /* accepted drafts: answer tokens that needed no step of their own */
    uint64_t bytes_copied;          /* KV bytes copied while composing: 0 */
    uint64_t kv_bytes;              /* KV that the request held at its end, its modules included */
    rp_timings timings;
    rp_quality_report quality;
    rp_plan_item *plan;
    int32_t n_plan;
    rp_mismatch mismatch;
    const char **warnings; /* n_warnings lines about the request: parameters without an argument, positions
                              beyond the training context. At most RP_MAX_WARNINGS; the last one counts the
                              omitted ones */
    int32_t n_warnings;
    void *owner; /* internal */
    rp_kv_reduction kv_reduction;
    int32_t dropped_messages;              /* oldest messages, after leading system messages, that
                                              rp_request.truncates left out */
    int32_t context_shifts;                /* how often the answer reached the end of the context and continued
                                              (rp_request.context_shift) */
    int32_t kept_step;                     /* positions per number of kept_shares; 0 without any */
    float *kept_shares;                    /* which slots reduced modules keep: numbers of all items
                                              (rp_plan_item.first_kept_share). Number i of an item: of the item's
                                              tokens at positions [position + i * kept_step, position + (i + 1) *
                                              kept_step), the share of their slots, of all KV heads of all
                                              layers, that the reduced KV has, 0 to 1. With a kept_step of 1 the
                                              share of (layer, KV head) pairs that keep the token's slot. 0 where
                                              a parameter is: its tokens are no tokens of the item. NULL: none.
                                              Freed with the result */
    int32_t n_kept_shares;                 /* at most rp_request.n_kept_shares, and one more for each reduced module */
    float *embedding;                      /* [n_embedding]; NULL: the request has no pooling. Length 1 unless
                                              raw_embedding is set; rank: the scores, as the head computes them.
                                              Freed with the result; text is then "" and n_tokens 0 */
    int32_t n_embedding;                   /* rp_model_info.n_embd; rank: n_scores */
    int32_t n_prompt_top;                  /* n_prompt_logprobs, or the size of the vocabulary if that is less;
                                              0: none of the next four, which are NULL */
    int32_t *prompt_ids;                   /* [prompt_tokens]: the prompt's tokens, the beginning-of-text token
                                              included. Freed with the result, like the next */
    float *prompt_logprobs;                /* [prompt_tokens]: each token's log-probability after those before
                                              it; a NaN for the first one, which has none */
    int32_t *prompt_ranks;                 /* [prompt_tokens]: 1 for a token with the largest logit; 0 for the
                                              first token */
    rp_token_logprob *prompt_top_logprobs; /* [prompt_tokens][n_prompt_top]: most likely tokens per position, in
                                              order; {-1, NaN} for the first one */
    int32_t adapter_from;                  /* first position that was computed with rp_request.adapter; -1: none:
                                              there is no adapter, its scale is 0, or the prompt does not have
                                              its invocation tokens */
    int32_t inexact_tokens;                /* prompt tokens, cached and fresh ones, whose KV is not that of a
                                              full prefill: plan items that are not exact */
    int32_t model_drafted_tokens;          /* of drafted_tokens and of accepted_tokens: those of the draft model */
    int32_t model_accepted_tokens;         /* (rp_engine_options.draft_model), or of the model's own draft head */
    const char *draft_reason;              /* why these drafted nothing, static; "": they did, or the engine has
                                              neither:
                                              "off"     n_draft is 0, or the answer is given (n_forced)
                                              "memory"  there was no memory for their KV
                                              "cost"    no draft of them was expected to save time, or the
                                                        answer was too short */
} rp_result;

/* ---- Steps ---- */

/* What a step computed for one job. */
typedef enum rp_step_kind {
    RP_STEP_MODULE,     /* tokens of a module; this job was the first to miss it */
    RP_STEP_PREFILL,    /* tokens of its prompt */
    RP_STEP_DECODE,     /* the last token of its answer, and drafts after it */
    RP_STEP_BACKGROUND, /* tokens of a background task (rp_engine_drain), in a short step of their own */
} rp_step_kind;
#define RP_N_STEP_KINDS 4

typedef struct rp_step_part {
    uint64_t job; /* rp_job_number; 0: background, rp_schema_prefill, or a module whose job has ended */
    rp_step_kind kind;
    int32_t n_rows;         /* tokens computed */
    int32_t context_tokens; /* tokens attended to, themselves included */
} rp_step_part;

/* A step: rows of several jobs, computed as one batch. Results do not depend on the batching. */
typedef struct rp_step {
    uint32_t struct_size;
    int32_t n_parts;
    uint64_t number;              /* from 1 */
    uint64_t start_us, end_us;    /* monotonic clock since boot */
    uint64_t predicted_us;        /* prediction of the engine's cost model; 0: none yet */
    const rp_step_part *parts;    /* n_parts */
    int32_t n_running, n_waiting; /* jobs */
    uint64_t kv_bytes;            /* KV in use, cached spans included */
} rp_step;

/* Called after each step, on the engine's thread; step is borrowed meanwhile. */
typedef void (*rp_on_step)(void *user, const rp_step *step);

#ifdef __cplusplus
}
#endif
#endif
