/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_tools.h: instruments around models, schemas, prompts and stores: quantization, inspection, lint, split,
 * checks of chat templates, simulation of caches and of clusters, records computed again. They are libreprise-tools,
 * which has the engine, too: a program is linked with it instead of with libreprise. Conventions are those of
 * reprise.h.
 */
#ifndef REPRISE_TOOLS_H
#define REPRISE_TOOLS_H

#include "reprise_chat.h"
#include "reprise_cluster.h"
#include "reprise_pml.h"
#include "reprise_store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Quantization ------------------------------------------------------------------------------------------------ */

/* Progress of rp_model_quantize. The strings are borrowed during the call. */
typedef struct rp_quantize_step {
    uint32_t struct_size;
    const char *tensor;               /* the next tensor to convert; NULL: finished */
    const char *from, *to;            /* its types: "F16", "Q4_K"; NULL if tensor is NULL */
    bool is_first_row;                /* of the tensor */
    bool is_fallback;                 /* `to` is not the requested type: rows are not a multiple of that type's block */
    uint64_t done_bytes, total_bytes; /* of the source weights */
} rp_quantize_step;

/* Called on the calling thread, every few MiB. Return false to stop. */
typedef bool (*rp_on_quantize)(void *user, const rp_quantize_step *step);

typedef struct rp_quantize_options {
    uint32_t struct_size;
    int32_t n_threads;      /* 0: one per processor */
    rp_on_quantize on_step; /* may be NULL */
    void *user;
} rp_quantize_options;

RP_API void rp_quantize_options_init(rp_quantize_options *options, uint32_t struct_size);
static inline rp_quantize_options rp_quantize_options_defaults(void) {
    rp_quantize_options o;
    rp_quantize_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* Writes a copy of the GGUF file `in` with its matrices quantized to `type`: "Q8_0", "Q4_0", "Q4_K" or "Q6_K".
 * Vectors, norms, biases, positions and expert routers become F32. A matrix whose rows are not a multiple of the type's
 * block gets Q5_0 (for Q4_K), Q8_0 (for Q6_K) or F16. A split model becomes one file. `out` is replaced atomically.
 * options   NULL for the defaults; borrowed during the call.
 * RP_ERR_NAME (type), RP_ERR_UNSUPPORTED (weights of `in` are not F32, F16 or BF16), RP_ERR_INVALID (in and out are the
 * same file), RP_ERR_CANCELLED (on_step), RP_ERR_IO, RP_ERR_FORMAT, RP_ERR_MEMORY. */
RP_API int rp_model_quantize(const char *in, const char *out, const char *type, const rp_quantize_options *options,
                             rp_error *err);

/* ---- Summary of a file --------------------------------------------------------------------------------------- */

typedef struct rp_model_summary {
    uint32_t struct_size;
    bool is_supported;     /* the architecture is one of this library's; the file may still lack something */
    char architecture[64]; /* general.architecture, or "" */
    char weights[24];      /* general.file_type as quantizers name it ("Q4_K_M"), or else the type of most bytes;
                              "": no tensors */
    uint64_t reserved[6];  /* 0 */
} rp_model_summary;

/* What a listing shows of a GGUF file: its metadata and its table of tensors are read, neither vocabulary nor
 * weights. Of a split model all files must be there. RP_ERR_INVALID (struct_size is not set), RP_ERR_IO,
 * RP_ERR_FORMAT, RP_ERR_UNSUPPORTED (version, tensor type), RP_ERR_MEMORY. */
RP_API int rp_model_summarize(const char *path, rp_model_summary *out, rp_error *err);

/* ---- Size of a file ---------------------------------------------------------------------------------------------- */

/* The size of a GGUF file as its header gives it, of a split model that of one of its files. The file may be
 * incomplete, as while it is being downloaded, and may be longer.
 * bytes         receives the end of the last tensor
 * padded_bytes  receives the end of the padding that writers may add after it
 * RP_ERR_IO, RP_ERR_FORMAT (also: the header is not complete yet), RP_ERR_UNSUPPORTED (version, tensor type),
 * RP_ERR_MEMORY. */
RP_API int rp_model_measure(const char *path, uint64_t *bytes, uint64_t *padded_bytes, rp_error *err);

/* ---- Inspection -------------------------------------------------------------------------------------------------- */

/* A node of a schema, in document order, and whether a prompt uses it. */
typedef struct rp_inspect_node {
    const char *kind;      /* "schema", "module", "union", "param", "scaffold", "text", "system", "user",
                              "assistant", "tool" */
    const char *name;      /* "": none */
    const char *path;      /* "plan/miami" */
    int32_t depth;         /* 0: the schema */
    int32_t n_tokens;      /* of its own text; of a union: its longest member; of a parameter: its length */
    int32_t position;      /* canonical; of a module without own text: its beginning */
    char key[17];          /* first digits of the key of its last span; "": no span */
    bool taken;            /* by the prompt */
    bool cached;           /* false: cache="false" */
    const char *preview;   /* first characters of its text, with each white space as one space */
    const char *kv_format; /* of the spans of a module or the schema: "f16", "int8", ...; "": no span. Static */
    uint64_t reserved[1];  /* 0 */
} rp_inspect_node;

/* Consecutive tokens of the prompt from one source: a view, or computed tokens. */
typedef struct rp_inspect_tile {
    const char *path;
    int32_t position, n_tokens;
    bool is_view;
    bool exact;
    int32_t shift;
    uint64_t reserved[2]; /* 0 */
} rp_inspect_tile;

typedef struct rp_inspection {
    uint32_t struct_size;
    const char *schema, *layout, *scope;
    rp_inspect_node *nodes;
    int32_t n_nodes;
    rp_inspect_tile *tiles; /* empty without a prompt */
    int32_t n_tiles;
    int32_t schema_positions; /* canonical positions of the schema */
    int32_t prompt_positions; /* positions of the prompt, gaps included */
    void *owner;              /* internal */
} rp_inspection;

/* Computes the layout of a schema and, with a prompt (a PML document; may be NULL), its plan. No token is computed.
 * tenant    NULL: the operator
 * schema    name of a schema that a request of that tenant would use; NULL: the schema of the prompt
 * *out      rp_inspection_free
 * Errors of rp_engine_run. */
RP_API int rp_engine_inspect(rp_engine *engine, const char *tenant, const char *schema, const char *prompt,
                             const char *prompt_name, rp_inspection **out, rp_error *err);
/* The same for a prompt made of parts, which has to name a schema or to have documents (rp_builder_append_document). */
RP_API int rp_engine_inspect_prompt(rp_engine *engine, const char *tenant, const rp_builder *prompt,
                                    const char *prompt_name, rp_inspection **out, rp_error *err);
RP_API void rp_inspection_free(rp_inspection *inspection);

/* ---- Lint -------------------------------------------------------------------------------------------------------- */

typedef enum rp_lint_severity {
    RP_LINT_ERROR,   /* does not work */
    RP_LINT_WARNING, /* probably unintended */
    RP_LINT_NOTE,    /* works, but may cost time, memory or answer quality */
} rp_lint_severity;
#define RP_N_LINT_SEVERITIES 3

/* Findings of rp_schema_lint: X(NAME, name, severity). docs/lint.md explains each, and its remedy. */
#define RP_LINTS(X) \
    X(INVALID_PROMPT, "invalid-prompt", ERROR)         /* a prompt that the schema refuses */ \
    X(LONG_ARGUMENT, "long-argument", ERROR)           /* arguments longer than their parameter's len */ \
    X(EXCEEDS_CONTEXT, "exceeds-context", ERROR)       /* positions beyond the context */ \
    X(JOINED_WORDS, "joined-words", WARNING)           /* words run together at the end of a text or module */ \
    X(CUT_TOKEN, "cut-token", WARNING)                 /* a border cuts what would be one token */ \
    X(INDENTATION, "indentation", WARNING)             /* the document's indentation is part of the texts */ \
    X(OUTSIDE_REFERENCE, "outside-reference", WARNING) /* "the above", which the module did not attend to */ \
    X(EMPTY_MODULE, "empty-module", WARNING)           /* a module without text */ \
    X(SMALL_MODULE, "small-module", NOTE)              /* a module too small to save time */ \
    X(IMPORTED_TOGETHER, "imported-together", NOTE)    /* modules that are always imported together */ \
    X(ALWAYS_IMPORTED, "always-imported", NOTE)        /* a module that every prompt imports */ \
    X(UNEVEN_UNION, "uneven-union", \
      NOTE)                                   /* members of different lengths (fixed layout) */ \
    X(OUTSIDE_NAME, "outside-name", NOTE)     /* a name that is introduced in another module */ \
    X(LONG_PARAMETER, "long-parameter", NOTE) /* a parameter longer than its arguments */ \
    X(TEXT_AFTER_PARAMETER, "text-after-parameter", \
      NOTE)                                                   /* text that attended to a placeholder */ \
    X(SHORT_BEGINNING, "short-beginning", NOTE)               /* modules with no text before them */ \
    X(MODULE_SCOPE, "module-scope", NOTE)                     /* scope="module" after text that it could attend to */ \
    X(SCHEMA_EXCEEDS_CONTEXT, "schema-exceeds-context", NOTE) /* no prompt can import all of it */ \
    X(UNSTABLE_TEMPLATE, "unstable-template", \
      NOTE)                                     /* the chat template changes earlier messages */ \
    X(RECURRENT_MODEL, "recurrent-model", NOTE) /* modules of a model with recurrent layers */

typedef enum rp_lint_code {
#define X(id, name, severity) RP_LINT_##id,
    RP_LINTS(X)
#undef X
        RP_N_LINTS
} rp_lint_code;

RP_API const char *rp_lint_name(rp_lint_code code);                  /* "small"; static; NULL past the end */
RP_API const char *rp_lint_severity_name(rp_lint_severity severity); /* "error"; static */

/* A prompt over the schema. Borrowed during the call. */
typedef struct rp_lint_prompt {
    const char *pml; /* n bytes of a PML prompt document */
    size_t n;
    const char *name; /* in findings */
} rp_lint_prompt;

typedef struct rp_lint_finding {
    rp_lint_code code;
    rp_lint_severity severity;
    const char *document; /* the schema's name or the prompt's */
    int32_t line, column; /* in the document, from 1 */
    const char *module;   /* path; "": not about a module */
    const char *message;  /* one line: the problem, with figures, and the remedy */
    uint64_t reserved[2]; /* 0 */
} rp_lint_finding;

#define RP_LINT_MAX_FINDINGS 10000

typedef struct rp_lint {
    uint32_t struct_size;
    rp_lint_finding *findings; /* of the schema, by line; then of the prompts */
    size_t n_findings;
    size_t n_left_out; /* beyond RP_LINT_MAX_FINDINGS */
    size_t n_severity[RP_N_LINT_SEVERITIES];
    size_t n_prompts, n_others; /* valid prompts over this schema; prompts over other schemas, which were skipped */
    void *owner;                /* internal */
} rp_lint;

/* Checks a schema in the layout of this model. No token is computed. pml, n, name, dir: as rp_schema_parse. prompts:
 * n_prompts prompts over the schema, or NULL: their imports and arguments allow more checks. n_ctx: context length of a
 * prompt and its answer; 0: as in training.
 * Findings are not errors. *out: owned by the caller, rp_lint_free. Errors of rp_schema_parse; RP_ERR_MEMORY. */
RP_API int rp_schema_lint(const rp_model *model, const char *pml, size_t n, const char *name, const char *dir,
                          const rp_lint_prompt *prompts, size_t n_prompts, int32_t n_ctx, rp_lint **out, rp_error *err);
/* The same of a schema file, with its own directory for `src`. RP_ERR_IO. */
RP_API int rp_schema_lint_file(const rp_model *model, const char *path, const rp_lint_prompt *prompts,
                               size_t n_prompts, int32_t n_ctx, rp_lint **out, rp_error *err);
RP_API void rp_lint_free(rp_lint *lint);

/* Checks a model's chat template alone, with a few conversations of its own: finding `unstable`, whose document is
 * "chat template". rp_schema_lint includes it. No finding without a template. *out: owned by the caller,
 * rp_lint_free. RP_ERR_MEMORY. */
RP_API int rp_model_lint(const rp_model *model, rp_lint **out, rp_error *err);

/* ---- Chat templates that change earlier text --------------------------------------------------------------------- */

#define RP_TEMPLATE_MAX_CHANGES 100

/* Two renderings, the second of which does not begin with the first: the prefix cache misses from the first different
 * byte on. */
typedef struct rp_template_change {
    bool by_time;                    /* the same conversation, at another time; false: the second one has more
                                        messages */
    bool opens_answer;               /* the first one ends with the generation prompt */
    int32_t n_before, n_after;       /* messages that were rendered */
    int32_t message;                 /* the message that has the byte, from 0; -1: not known (last_turn) */
    int32_t line_before, line_after; /* lines of the template whose statements wrote the byte; 0: one text ends there */
    size_t byte, end;                /* the first different byte; by_time: all of them are before `end` */
    size_t text_line;                /* of the text, from 1 */
    size_t from;                     /* byte of both texts where these excerpts begin, up to 32 bytes before `byte` */
    const char *before, *after;      /* excerpts of up to 96 bytes, whole characters */
    uint64_t reserved[2];            /* 0 */
} rp_template_change;

typedef struct rp_template_check_options {
    uint32_t struct_size;
    bool last_turn;     /* compare the whole conversation, as the input asks for it, with the prompt of its last
                           answer and with the conversation up to this answer. false: compare the beginnings of
                           the conversation, each with the next one that the template renders */
    bool has_time;      /* false (default): now */
    int64_t time;       /* as in rp_template_options */
    uint64_t max_steps; /* of all renderings together (RP_TEMPLATE_MAX_STEPS); 0 (default): those of 10 renderings */
} rp_template_check_options;

RP_API void rp_template_check_options_init(rp_template_check_options *options, uint32_t struct_size);
static inline rp_template_check_options rp_template_check_options_defaults(void) {
    rp_template_check_options o;
    rp_template_check_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

typedef struct rp_template_report {
    uint32_t struct_size;
    rp_template_change *changes; /* in the order of the conversation, those by time last */
    size_t n_changes;
    size_t n_left_out; /* beyond RP_TEMPLATE_MAX_CHANGES */
    size_t n_messages; /* of the conversation */
    size_t n_rendered; /* beginnings that the template renders */
    size_t n_bytes;    /* of the whole conversation's text; 0: the template refuses it */
} rp_template_report;

/* Finds where a template changes text that it wrote before: of earlier turns when messages follow, and by the date
 * (strftime_now). json: as rp_template_render; its messages are the conversation. model: gives its bos_token, ..., or
 * NULL. options: NULL for the defaults. RP_ERR_INVALID (the JSON is malformed, or has no messages), RP_ERR_MEMORY,
 * RP_ERR_LIMIT (also: the template takes too many steps). What the template refuses is not compared. *out:
 * rp_template_report_free; NULL on failure. */
RP_API int rp_template_check(const rp_template *t, const rp_model *model, const char *json, size_t n,
                             const rp_template_check_options *options, rp_template_report **out, rp_error *err);
/* The same for a conversation as values (reprise_chat.h). */
RP_API int rp_template_check_input(const rp_template *t, const rp_model *model, const rp_template_input *in,
                                   const rp_template_check_options *options, rp_template_report **out, rp_error *err);
RP_API void rp_template_report_free(rp_template_report *report);
/* What to do about a change of this template: a phrase for messages. Static. */
RP_API const char *rp_template_advice(const rp_template *t, const rp_template_change *change);

/* ---- Schemas from prompts ---------------------------------------------------------------------------------------- */

#define RP_MAX_SPLIT_PROMPTS 65536
#define RP_MAX_SPLIT_BYTES ((size_t)16 << 20) /* of all texts together */

/* A prompt of an application: a text without a role, or a conversation. */
typedef struct rp_split_prompt {
    const char *name;           /* in errors: "prompts.jsonl:3" */
    const rp_message *messages; /* n_messages of them; a text without a role is one message of any role */
    size_t n_messages;
    bool plain; /* a text without a role, in messages[0] */
} rp_split_prompt;

typedef struct rp_split_options {
    uint32_t struct_size;
    int32_t min_bytes;     /* minimum text of a module, 1 to 65536. Default 64 */
    const char *name;      /* of the schema, an XML name; default "proposed" */
    const rp_model *model; /* counts tokens; NULL: figures are bytes, and lengths of parameters are estimates.
                              Borrowed during the call */
} rp_split_options;

RP_API void rp_split_options_init(rp_split_options *options, uint32_t struct_size);
static inline rp_split_options rp_split_options_defaults(void) {
    rp_split_options o;
    rp_split_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* A part that several prompts share. */
typedef struct rp_split_module {
    const char *name;
    bool is_alternative; /* a member of a union */
    int32_t n_params;
    int32_t n_prompts;    /* prompts that import it */
    size_t n_bytes;       /* its own text, without arguments */
    uint64_t reserved[2]; /* 0 */
} rp_split_module;

/* A prompt over the proposed schema. Figures are tokens with a model, else bytes. */
typedef struct rp_split_import {
    const char *pml; /* the prompt as a PML document */
    size_t n_pml;
    uint64_t total;       /* the whole prompt */
    uint64_t cached;      /* of total: modules of the schema */
    uint64_t first;       /* of cached: modules that no earlier prompt used, and that are computed for this one */
    uint64_t prefix;      /* hit of a prefix cache: the longest beginning shared with an earlier prompt */
    uint64_t reserved[2]; /* 0 */
} rp_split_import;

typedef struct rp_split_result {
    uint32_t struct_size;
    bool counts_tokens; /* figures are tokens: there was a model */
    const char *schema; /* a PML document */
    size_t n_schema;
    size_t anonymous_bytes; /* common beginning of all prompts: text of the schema outside modules */
    rp_split_module *modules;
    size_t n_modules;
    rp_split_import *prompts; /* in the order given */
    size_t n_prompts;
    void *owner; /* internal */
} rp_split_result;

/* Proposes a schema for prompts, and each prompt as a document over it. The common beginning of all prompts becomes
 * text of the schema; passages that two or more prompts share, in any order, become modules; varying words in a
 * passage become parameters; alternatives at one place become unions; all other text stays in the prompts. Each
 * document yields the text of its prompt, byte for byte. docs/split.md has the algorithm. options NULL: the defaults.
 * *out: rp_split_free. RP_ERR_INVALID (no prompt, min_bytes, name), RP_ERR_SYNTAX (a text that is not UTF-8 or has
 * control characters, which XML cannot hold; the message says which), RP_ERR_UNSUPPORTED (the model's positions
 * cannot be shifted), RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_split(const rp_split_prompt *prompts, size_t n, const rp_split_options *options, rp_split_result **out,
                    rp_error *err);
RP_API void rp_split_free(rp_split_result *result);

/* ---- Cache simulation -------------------------------------------------------------------------------------------- */

/* Eviction policies. */
typedef enum rp_policy {
    RP_POLICY_LRU,     /* least recently used */
    RP_POLICY_LFU,     /* least frequently used since insertion */
    RP_POLICY_ARC,     /* Megiddo and Modha 2003 */
    RP_POLICY_S3_FIFO, /* Yang et al. 2023 */
    RP_POLICY_REPRISE, /* the store's policy (docs/eviction.md) */
    RP_POLICY_OPTIMUM, /* evict the block with the latest next use: the most hits, with known future (Belady 1966) */
} rp_policy;
#define RP_N_POLICIES 6

RP_API const char *rp_policy_name(rp_policy policy); /* "S3-FIFO"; static; NULL past the end */

/* A prompt as blocks of tokens: equal ids are equal tokens after equal prefixes. */
typedef struct rp_simulate_request {
    const uint64_t *blocks; /* n_blocks ids; the last block may be incomplete */
    size_t n_blocks;
    int32_t n_tokens;
    uint64_t session; /* equal numbers: requests of one conversation or agent; 0: none */
} rp_simulate_request;

/* What RP_POLICY_REPRISE knows of the requests' sessions; the other policies know nothing. */
typedef enum rp_simulate_sessions {
    RP_SESSIONS_KNOWN,   /* the session of each request */
    RP_SESSIONS_IGNORED, /* nothing */
    RP_SESSIONS_ENDED,   /* also which request is the last of its session */
} rp_simulate_sessions;

typedef struct rp_simulate_options {
    uint32_t struct_size;
    int32_t block_tokens;          /* default 512 */
    int32_t attention_tokens;      /* position at which attention takes half of a token's time: the i-th token,
                                      from 0, costs 1 + i / attention_tokens. Default 16384 */
    rp_simulate_sessions sessions; /* default RP_SESSIONS_KNOWN */
} rp_simulate_options;

RP_API void rp_simulate_options_init(rp_simulate_options *options, uint32_t struct_size);
static inline rp_simulate_options rp_simulate_options_defaults(void) {
    rp_simulate_options o;
    rp_simulate_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* Requests to replay against caches of different sizes and policies. Thread-safe. */
typedef struct rp_simulator rp_simulator;

/* Copies what it needs. options NULL: the defaults. Memory is about 60 bytes for each block of each request.
 * RP_ERR_INVALID (the message says which request), RP_ERR_LIMIT (2^24 requests, 2^26 blocks), RP_ERR_MEMORY. */
RP_API int rp_simulator_new(rp_simulator **out, const rp_simulate_request *requests, size_t n,
                            const rp_simulate_options *options, rp_error *err);
RP_API void rp_simulator_free(rp_simulator *simulator);
/* The working set: the number of distinct blocks. */
RP_API size_t rp_simulator_blocks(const rp_simulator *simulator);

/* Result of a replay. `saved` and `compute` are costs in tokens; the first token of a prompt costs 1. */
typedef struct rp_simulation {
    uint32_t struct_size;
    uint64_t requests, prompt_tokens;
    uint64_t hit_tokens; /* tokens of blocks that were cached, as were all blocks before them */
    double compute;      /* of all prompts, without a cache */
    double saved;        /* by cache hits */
} rp_simulation;

/* Replays all requests in order against a cache of capacity_blocks, empty at first. RP_ERR_INVALID, RP_ERR_MEMORY. */
RP_API int rp_simulator_run(const rp_simulator *simulator, rp_policy policy, size_t capacity_blocks,
                            rp_simulation *out, rp_error *err);

/* ---- Cluster simulation ------------------------------------------------------------------------------------------ */

/* A cluster under a virtual clock: routers and the nodes' journals are the real ones, nodes compute only times
 * (docs/cluster-simulation.md). The same options and seed give the same result on every machine. */

/* A request of a trace: as rp_simulate_request, with its time and the length of its answer. */
typedef struct rp_cluster_trace_request {
    double at_ms;
    const uint64_t *blocks; /* [n_blocks] of block_tokens; equal ids are equal tokens after equal prefixes */
    size_t n_blocks;
    int32_t prompt_tokens, answer_tokens;
} rp_cluster_trace_request;

typedef enum rp_cluster_workload {
    RP_CLUSTER_TRACE,
    RP_CLUSTER_SHARED_PREFIX, /* groups of questions with a system prompt each, in random order */
    RP_CLUSTER_RETRIEVAL,     /* some of many documents, as modules, in random order, and a question */
    RP_CLUSTER_CONVERSATIONS, /* turns, each some time after the answer before it */
} rp_cluster_workload;

/* When a name that a node has is written to the pool. */
typedef enum rp_cluster_pool_writes {
    RP_CLUSTER_POOL_SECOND_USE, /* at its second use on any node */
    RP_CLUSTER_POOL_EVICTED,    /* also when a node evicts it */
    RP_CLUSTER_POOL_ALWAYS,     /* when it was computed */
} rp_cluster_pool_writes;

/* Is a prompt computed on one node, and answered on another one, which fetches its KV? */
typedef enum rp_cluster_apart {
    RP_CLUSTER_TOGETHER,
    RP_CLUSTER_APART,         /* always: nodes have roles */
    RP_CLUSTER_APART_BY_COST, /* on any two nodes, if that is predicted to cost less than any one node */
} rp_cluster_apart;

typedef struct rp_cluster_simulate_options {
    uint32_t struct_size;
    uint64_t seed; /* default 1 */
    /* The cluster. */
    int32_t nodes, routers; /* default 8, 1 */
    const char *policy;     /* default "cost" */
    const char *admission;  /* default "off" */
    double ttft_goal_ms;    /* 0: none (default) */
    double itl_goal_ms;     /* likewise */
    double speculative_s;   /* life of speculative entries; default 2 */
    double near_ties;       /* default 0.05 */
    double index_age_s;     /* routers learn of changed names so much later; default 0 */
    double latency_ms;      /* of a message; default 0.5 */
    /* A node. */
    int64_t kv_tokens;           /* capacity in RAM; default 3,000,000 */
    int64_t disk_tokens;         /* on disk; default 0: none */
    double prefill_tokens_per_s; /* at the beginning of a prompt; default 14,000 */
    double attention_tokens;     /* position at which a token takes twice as long; default 8192 */
    double decode_ms;            /* a step of few rows without context; default 8 */
    double disk_bytes_per_s;     /* default 3e9 */
    uint64_t kv_bytes_per_token; /* default 131,072 */
    int32_t chunk_tokens;        /* default 512 */
    int32_t max_sequences;       /* default 64 */
    int32_t max_waiting;         /* a node refuses more; default 4096 */
    bool no_queues;              /* a node serves at once, whatever it reports as its load: for hit rates alone */
    /* Requests. */
    int32_t workload;          /* rp_cluster_workload */
    double speed;              /* arrivals are so many times faster; default 1 */
    double rate;               /* generated: mean arrivals a second (Poisson); default 10 */
    int32_t requests;          /* generated: number; default 1000. Trace: the first so many; 0: all */
    int32_t groups;            /* shared prefix, conversations: their number; default 150 */
    int32_t prefix_tokens;     /* shared prefix: system prompt; default 6000. Retrieval: a document; set it */
    int32_t question_tokens;   /* default 1200 */
    int32_t answer_tokens;     /* default 1000; trace: 0: its own */
    int32_t documents, chosen; /* retrieval: default 64, 4 */
    int32_t turns;             /* conversations: default 6 */
    double think_s;            /* conversations: mean; default 10 */
    double deadline_s;         /* until the first byte; 0: none (default) */
    /* Faults: a random small cluster and workload instead of the above, but the policy; invariants are checked. */
    bool faults;
    int32_t block_tokens;           /* of a trace's blocks; default 512 */
    const uint64_t *trace_sessions; /* [n], borrowed: hashes of the sessions of a trace's requests; 0 of one, and NULL:
                                       unknown, the request's second block is used instead (default) */
    /* A pool of KV that the nodes share. */
    int64_t pool_tokens;  /* its capacity; 0: none (default); -1: that of the nodes in RAM */
    double pool_fetch_us; /* time to fetch a token's KV; default 10 */
    double pool_rtt_us;   /* of a request's fetch; default 200 */
    int32_t pool_writes;  /* rp_cluster_pool_writes; default RP_CLUSTER_POOL_ALWAYS */
    /* Prefill and decode apart. KV is moved in pool_fetch_us a token and pool_rtt_us, pool or not. */
    int32_t apart;         /* rp_cluster_apart; default RP_CLUSTER_TOGETHER */
    int32_t prefill_nodes; /* RP_CLUSTER_APART: from 1 to nodes - 1; the others decode. Else 0 */
} rp_cluster_simulate_options;

RP_API void rp_cluster_simulate_options_init(rp_cluster_simulate_options *options, uint32_t struct_size);
static inline rp_cluster_simulate_options rp_cluster_simulate_options_defaults(void) {
    rp_cluster_simulate_options o;
    rp_cluster_simulate_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* What came out. Times of served requests, in ms. */
typedef struct rp_cluster_simulation {
    uint32_t struct_size;
    int32_t nodes, routers;
    uint64_t requests;                      /* that arrived */
    uint64_t outcomes[RP_CLUSTER_OUTCOMES]; /* of them, by number of the outcome */
    uint64_t router_lost;                   /* cut by the end of their router */
    uint64_t dropped_turns;                 /* turns that never arrived, since the one before them was not served */
    int64_t prompt_tokens, hit_tokens;      /* of prompts that nodes began; of them cached */
    int64_t answer_tokens;
    double busiest_work; /* of the busiest node, by the mean: computing time */
    double computed_s;   /* all nodes' computing time */
    double seconds;      /* from the first arrival to the last end */
    double ttft_mean_ms, ttft_p50_ms, ttft_p90_ms, ttft_p99_ms;
    double itl_mean_ms, itl_p50_ms, itl_p95_ms, itl_p99_ms;
    uint64_t within_goals; /* served, within the TTFT goal and a mean ITL within the ITL goal */
    uint64_t retries, continuations, snapshots, stream_bytes, index_bytes, names;
    uint64_t restarts, freezes, lost, cut, delayed, swallowed, router_restarts; /* faults that happened */

    uint64_t hash;    /* of all events: equal runs have equal hashes */
    char broken[512]; /* the first invariant that did not hold; "": none */

    uint64_t fetched_names; /* from the pool; a trace's are its blocks */
    int64_t fetched_tokens, pool_written_tokens;
    uint64_t apart;     /* requests with a prompt that another node computed */
    double e2e_mean_ms; /* end-to-end latency */
} rp_cluster_simulation;

/* trace: [n] requests of RP_CLUSTER_TRACE, else NULL. options NULL: the defaults. RP_ERR_INVALID (an option or a
 * request; the message says which), RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_cluster_simulate(const rp_cluster_simulate_options *options, const rp_cluster_trace_request *trace,
                               size_t n, rp_cluster_simulation *out, rp_error *err);

/* ---- Records computed again -------------------------------------------------------------------------------------- */

typedef struct rp_store_recompute_options {
    uint32_t struct_size;
    size_t sample;      /* records to recompute, drawn at random from all that can be; 0: all of them */
    uint64_t seed;      /* of the draw */
    const char *tenant; /* owner of texts; NULL: the operator. Borrowed during the call */
} rp_store_recompute_options;

RP_API void rp_store_recompute_options_init(rp_store_recompute_options *options, uint32_t struct_size);
static inline rp_store_recompute_options rp_store_recompute_options_defaults(void) {
    rp_store_recompute_options o;
    rp_store_recompute_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

typedef struct rp_store_recomputed {
    uint32_t struct_size;
    uint64_t candidates;     /* records of the engine's model, KV format and arithmetic */
    uint64_t checked;        /* recomputed and compared */
    uint64_t different;      /* of those; each was a finding (RP_STORE_OTHER_KV) */
    uint64_t unreadable;     /* drawn, but corrupt or encrypted with another key: rp_store_verify says which */
    uint64_t unknown_module; /* modules of schemas that the engine does not have */
    uint64_t unknown_scope;  /* texts after modules, which the store does not record; texts of other tenants */
    uint64_t no_memory;      /* longer than the engine's context or its KV budget */
} rp_store_recomputed;

/* Recomputes records and compares every byte of their KV. A checksum shows that a record is as it was written; this
 * shows that the model would write it. A text is recomputed from its first token; a module, or its reduced KV, only
 * if the engine has its schema, prefilled (rp_schema_prefill) before this call. Changes nothing.
 * engine        of the model, without a store, created after rp_model_fingerprint; nobody else uses it meanwhile
 * on_progress   (records) and on_finding may be NULL; called on the calling thread and on the engine's
 * RP_ERR_CONFLICT (the engine has a store, or its model's fingerprint was unknown when it was created), RP_ERR_IO,
 * RP_ERR_MEMORY. */
RP_API int rp_store_recompute(rp_store *store, rp_engine *engine, const rp_store_recompute_options *options,
                              rp_on_progress on_progress, rp_on_store_finding on_finding, void *user,
                              rp_store_recomputed *out, rp_error *err);

#ifdef __cplusplus
}
#endif
#endif
