/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_tools.h: tools around models, schemas and prompts: quantization, inspection, lint, split, the reuse audit, cache simulation, and the log
 * queue of a program. Conventions are those of reprise.h.
 */
#ifndef REPRISE_TOOLS_H
#define REPRISE_TOOLS_H

#include "reprise.h"
#include "reprise_store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Quantization ------------------------------------------------------------------------------------------------ */

/* Progress of rp_model_quantize. The strings are borrowed during the call. */
typedef struct rp_quantize_step {
    uint32_t struct_size;
    const char *tensor;    /* the next tensor to convert; NULL: finished */
    const char *from, *to; /* its types: "F16", "Q4_K"; NULL if tensor is NULL */
    bool is_first_row;     /* of the tensor */
    bool is_fallback;      /* `to` is not the requested type: rows are not a multiple of that type's block */
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

/* ---- Summary of a file --------------------------------------------------------------------------------------------- */

typedef struct rp_model_summary {
    uint32_t struct_size;
    bool is_supported;     /* the architecture is one of this library's; the file may still lack something */
    char architecture[64]; /* general.architecture, or "" */
    char weights[24];      /* general.file_type as quantizers name it ("Q4_K_M"), or else the type of most bytes; "": no tensors */
    uint64_t reserved[6];  /* 0 */
} rp_model_summary;

/* What a listing shows of a GGUF file: its metadata and its table of tensors are read, neither vocabulary nor weights. Of a split model all files
 * must be there. RP_ERR_INVALID (struct_size is not set), RP_ERR_IO, RP_ERR_FORMAT, RP_ERR_UNSUPPORTED (version, tensor type), RP_ERR_MEMORY. */
RP_API int rp_model_summarize(const char *path, rp_model_summary *out, rp_error *err);

/* ---- Size of a file ---------------------------------------------------------------------------------------------- */

/* The size of a GGUF file as its header gives it, of a split model that of one of its files. The file may be incomplete,
 * as while it is being downloaded, and may be longer.
 * bytes         receives the end of the last tensor
 * padded_bytes  receives the end of the padding that writers may add after it
 * RP_ERR_IO, RP_ERR_FORMAT (also: the header is not complete yet), RP_ERR_UNSUPPORTED (version, tensor type),
 * RP_ERR_MEMORY. */
RP_API int rp_model_measure(const char *path, uint64_t *bytes, uint64_t *padded_bytes, rp_error *err);

/* ---- Inspection -------------------------------------------------------------------------------------------------- */

/* A node of a schema, in document order, and whether a prompt uses it. */
typedef struct rp_inspect_node {
    const char *kind;    /* "schema", "module", "union", "param", "scaffold", "text", "system", "user", "assistant", "tool" */
    const char *name;    /* "": none */
    const char *path;    /* "plan/miami" */
    int32_t depth;       /* 0: the schema */
    int32_t n_tokens;    /* of its own text; of a union: its longest member; of a parameter: its length */
    int32_t position;    /* canonical; of a module without own text: its beginning */
    char key[17];        /* first digits of the key of its last span; "": no span */
    bool taken;          /* by the prompt */
    bool cached;         /* false: cache="false" */
    const char *preview; /* first characters of its text, with each white space as one space */
    const char *kv_format; /* of the spans of a module or the schema: "f16", "int8", ...; "": no span. Static */
    uint64_t reserved[1]; /* 0 */
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
RP_API int rp_engine_inspect(rp_engine *engine, const char *tenant, const char *schema, const char *prompt, const char *prompt_name,
                             rp_inspection **out, rp_error *err);
/* The same for a prompt made of parts, which has to name a schema or to have documents (rp_prompt_append_document). */
RP_API int rp_engine_inspect_prompt(rp_engine *engine, const char *tenant, const rp_prompt *prompt, const char *prompt_name,
                                    rp_inspection **out, rp_error *err);
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
    X(PROMPT, "prompt", ERROR)             /* a prompt that the schema refuses */ \
    X(ARGUMENT, "argument", ERROR)         /* arguments longer than their parameter's len */ \
    X(CONTEXT, "context", ERROR)           /* positions beyond the context */ \
    X(GLUED, "glued", WARNING)             /* words run together where a text, a module or a parameter ends */ \
    X(BORDER, "border", WARNING)           /* a border cuts what would be one token */ \
    X(INDENT, "indent", WARNING)           /* the document's indentation is part of the texts */ \
    X(REFERENCE, "reference", WARNING)     /* "the above", which the module did not attend to */ \
    X(EMPTY, "empty", WARNING)             /* a module without text */ \
    X(SMALL, "small", NOTE)                /* a module too small to save time */ \
    X(TOGETHER, "together", NOTE)          /* modules that are always imported together */ \
    X(ALWAYS, "always", NOTE)              /* a module that every prompt imports */ \
    X(UNION, "union", NOTE)                /* members of different lengths, which leave positions empty (fixed layout) */ \
    X(NAME, "name", NOTE)                  /* a name that is introduced in another module */ \
    X(HOLE, "hole", NOTE)                  /* a parameter longer than its arguments */ \
    X(BEHIND, "behind", NOTE)              /* much text that attended to a placeholder instead of the argument */ \
    X(BEGINNING, "beginning", NOTE)        /* modules with no text before them */ \
    X(SCOPE, "scope", NOTE)                /* scope="module" after text that it could attend to */ \
    X(CROWDED, "crowded", NOTE)            /* no prompt can import all of it */ \
    X(UNSTABLE, "unstable", NOTE)          /* the model's chat template changes earlier parts of a conversation */

typedef enum rp_lint_code {
#define X(id, name, severity) RP_LINT_##id,
    RP_LINTS(X)
#undef X
    RP_N_LINTS
} rp_lint_code;

RP_API const char *rp_lint_name(rp_lint_code code); /* "small"; static; NULL past the end */
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
    const char *document;  /* the schema's name or the prompt's */
    int32_t line, column;  /* in the document, from 1 */
    const char *module;    /* path; "": not about a module */
    const char *message;   /* one line: the problem, with figures, and the remedy */
    uint64_t reserved[2];  /* 0 */
} rp_lint_finding;

#define RP_LINT_MAX_FINDINGS 10000

typedef struct rp_lint {
    uint32_t struct_size;
    rp_lint_finding *findings; /* of the schema, by line; then of the prompts */
    size_t n_findings;
    size_t n_left_out;         /* beyond RP_LINT_MAX_FINDINGS */
    size_t n_severity[RP_N_LINT_SEVERITIES];
    size_t n_prompts, n_others; /* valid prompts over this schema; prompts over other schemas, which were skipped */
    void *owner;               /* internal */
} rp_lint;

/* Checks a schema in the layout of this model. No token is computed. pml, n, name, dir: as rp_schema_parse. prompts:
 * n_prompts prompts over the schema, or NULL: their imports and arguments allow more checks. n_ctx: context length of a
 * prompt and its answer; 0: as in training.
 * Findings are not errors. *out: owned by the caller, rp_lint_free. Errors of rp_schema_parse; RP_ERR_MEMORY. */
RP_API int rp_schema_lint(const rp_model *model, const char *pml, size_t n, const char *name, const char *dir, const rp_lint_prompt *prompts,
                          size_t n_prompts, int32_t n_ctx, rp_lint **out, rp_error *err);
/* The same of a schema file, with its own directory for `src`. RP_ERR_IO. */
RP_API int rp_schema_lint_file(const rp_model *model, const char *path, const rp_lint_prompt *prompts, size_t n_prompts, int32_t n_ctx,
                               rp_lint **out, rp_error *err);
RP_API void rp_lint_free(rp_lint *lint);

/* Checks a model's chat template alone, with a few conversations of its own: finding `unstable`, whose document is "chat template". rp_schema_lint
 * includes it. No finding without a template. *out: owned by the caller, rp_lint_free. RP_ERR_MEMORY. */
RP_API int rp_model_lint(const rp_model *model, rp_lint **out, rp_error *err);

/* ---- Chat templates that change earlier text ---------------------------------------------------------------------- */

#define RP_TEMPLATE_MAX_CHANGES 100

/* Two renderings, the second of which does not begin with the first: the prefix cache misses from the first different byte on. */
typedef struct rp_template_change {
    bool by_time;                   /* the same conversation, at another time; false: the second one has more messages */
    bool opens_answer;              /* the first one ends with the generation prompt */
    int32_t n_before, n_after;      /* messages that were rendered */
    int32_t message;                /* the message that has the byte, from 0; -1: not known (last_turn) */
    int32_t line_before, line_after; /* lines of the template whose statements wrote the byte; 0: one text ends there */
    size_t byte, end;               /* the first different byte; by_time: all of them are before `end` */
    size_t text_line;               /* of the text, from 1 */
    size_t from;                    /* byte of both texts where these excerpts begin, up to 32 bytes before `byte` */
    const char *before, *after;     /* excerpts of up to 96 bytes, whole characters */
    uint64_t reserved[2];           /* 0 */
} rp_template_change;

typedef struct rp_template_check_options {
    uint32_t struct_size;
    bool last_turn; /* compare the whole conversation, as the input asks for it, with the prompt of its last answer and with the conversation up
                     * to this answer. false: compare the beginnings of the conversation, each with the next one that the template renders */
    bool has_time;  /* false (default): now */
    int64_t time;   /* as in rp_template_options */
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
    size_t n_left_out;           /* beyond RP_TEMPLATE_MAX_CHANGES */
    size_t n_messages;           /* of the conversation */
    size_t n_rendered;           /* beginnings that the template renders */
    size_t n_bytes;              /* of the whole conversation's text; 0: the template refuses it */
} rp_template_report;

/* Finds where a template changes text that it wrote before: of earlier turns when messages follow, and by the date (strftime_now). json: as
 * rp_template_render; its messages are the conversation. model: gives its bos_token, ..., or NULL. options: NULL for the defaults.
 * RP_ERR_INVALID (the JSON is malformed, or has no messages), RP_ERR_MEMORY, RP_ERR_LIMIT (also: the template takes too many steps). What the
 * template refuses is not compared.
 * *out: rp_template_report_free; NULL on failure. */
RP_API int rp_template_check(const rp_template *t, const rp_model *model, const char *json, size_t n, const rp_template_check_options *options,
                             rp_template_report **out, rp_error *err);
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
    bool plain;                 /* a text without a role, in messages[0] */
} rp_split_prompt;

typedef struct rp_split_options {
    uint32_t struct_size;
    int32_t min_bytes;     /* minimum text of a module, 1 to 65536. Default 64 */
    const char *name;      /* of the schema, an XML name; default "proposed" */
    const rp_model *model; /* counts tokens; NULL: figures are bytes, and lengths of parameters are estimates. Borrowed during the call */
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
    bool is_alternative;  /* a member of a union */
    int32_t n_params;
    int32_t n_prompts;    /* prompts that import it */
    size_t n_bytes;       /* its own text, without arguments */
    uint64_t reserved[2]; /* 0 */
} rp_split_module;

/* A prompt over the proposed schema. Figures are tokens with a model, else bytes. */
typedef struct rp_split_import {
    const char *pml;      /* the prompt as a PML document */
    size_t n_pml;
    uint64_t total;       /* the whole prompt */
    uint64_t cached;      /* of total: modules of the schema */
    uint64_t first;       /* of cached: modules that no earlier prompt used, and that are computed for this one */
    uint64_t prefix;      /* hit of a prefix cache: the longest beginning shared with an earlier prompt */
    uint64_t reserved[2]; /* 0 */
} rp_split_import;

typedef struct rp_split_result {
    uint32_t struct_size;
    bool counts_tokens;   /* figures are tokens: there was a model */
    const char *schema;   /* a PML document */
    size_t n_schema;
    size_t anonymous_bytes; /* common beginning of all prompts: text of the schema outside modules */
    rp_split_module *modules;
    size_t n_modules;
    rp_split_import *prompts; /* in the order given */
    size_t n_prompts;
    void *owner;          /* internal */
} rp_split_result;

/* Proposes a schema for prompts, and each prompt as a document over it. The common beginning of all prompts becomes text of the schema; passages
 * that two or more prompts share, in any order, become modules; varying words in a passage become parameters; alternatives at one place become
 * unions; all other text stays in the prompts. Each document yields the text of its prompt, byte for byte. docs/split.md has the algorithm.
 * options NULL: the defaults. *out: rp_split_free.
 * RP_ERR_INVALID (no prompt, min_bytes, name), RP_ERR_SYNTAX (a text that is not UTF-8 or has control characters, which XML cannot hold; the
 * message says which), RP_ERR_UNSUPPORTED (the model's positions cannot be shifted), RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_split(const rp_split_prompt *prompts, size_t n, const rp_split_options *options, rp_split_result **out, rp_error *err);
RP_API void rp_split_free(rp_split_result *result);

/* ---- Reuse audit ------------------------------------------------------------------------------------------------- */

/* The engine recomputes one in rp_engine_options.audit_every requests whose views are not exact, in full and when idle, and compares the logits of
 * the first token. docs/quality.md explains the figures. */

/* Statistics of audited requests. */
typedef struct rp_audit_figures {
    uint64_t samples;
    uint64_t agreed;         /* samples with the same most likely token */
    double mean_kl, max_kl;  /* KL(exact || reused) of the first token's probabilities, in nats */
    double mean_distance;    /* root mean square of the differences of logits, less their mean */
    uint64_t reserved[2];    /* 0 */
} rp_audit_figures;

typedef struct rp_audit_schema {
    const char *name;
    char owner[9];          /* 8 hexadecimal digits derived from its tenant; "": shared */
    rp_audit_figures all;   /* since the schema has this text */
    rp_audit_figures now;   /* since its quality was last raised; equals `all` if it was not */
    const char *raised_to;  /* "full KV" (keep is ignored), "link:8", "blend:15", "exact"; "": not raised. Static */
    bool exceeds;           /* its mean divergence exceeds max_divergence, and audit_raises is false */
} rp_audit_schema;

/* Modules that were imported together. */
typedef struct rp_audit_pair {
    size_t schema;             /* index into schemas */
    const char *first, *second; /* paths; twice the same: the module with any other */
    rp_audit_figures figures;
    double excess_kl;          /* mean_kl less that of the schema's samples without the pair; 0: all samples had it */
} rp_audit_pair;

#define RP_AUDIT_TEXT ((size_t)-1)

/* A KV format below 16 bits, compared with f16: the exact run in f16 against the exact run in the format. */
typedef struct rp_audit_format {
    size_t schema;          /* index into schemas: its modules; RP_AUDIT_TEXT: the text of all requests, and modules in the same format */
    const char *format;     /* "int8", ...; of modules in several formats: the smallest. Static */
    rp_audit_figures figures; /* of the requests with the format: mean_kl is KL(f16 || format) */
    bool exceeds;           /* its mean divergence exceeds max_divergence, and audit_raises is false */
    bool falls_back;        /* requests use f16 instead */
    uint64_t reserved[2];   /* 0 */
} rp_audit_format;

/* Audit results. The strings belong to the rp_audit. */
typedef struct rp_audit {
    uint32_t struct_size;
    uint64_t sampled; /* requests chosen */
    uint64_t audited; /* of those: compared */
    uint64_t dropped; /* of those: abandoned, because too many were pending or memory was needed */
    uint64_t waiting; /* of those: pending */
    rp_audit_schema *schemas;
    size_t n_schemas;
    rp_audit_pair *pairs;
    size_t n_pairs;
    rp_audit_format *formats;
    size_t n_formats;
} rp_audit;

/* Returns the audit results so far, totals over all tenants; operator use only. Any thread; does not wait.
 * *out: owned by the caller, rp_audit_free. RP_ERR_MEMORY. */
RP_API int rp_engine_audit(rp_engine *engine, rp_audit **out, rp_error *err);
/* Reads the audit results that the last engine with this folder wrote. *out is NULL, without an error, if there are none or they are unreadable.
 * model: 65 bytes for rp_store_entry.model of that engine, or NULL. RP_ERR_CONFLICT (an attached store: use rp_engine_audit), RP_ERR_MEMORY. */
RP_API int rp_store_read_audit(rp_store *store, rp_audit **out, char *model, rp_error *err);
RP_API void rp_audit_free(rp_audit *audit);

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
    int32_t block_tokens;     /* default 512 */
    int32_t attention_tokens; /* position at which attention takes half of a token's time: the i-th token, from 0, costs 1 + i / attention_tokens.
                                 Default 16384 */
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
RP_API int rp_simulator_new(rp_simulator **out, const rp_simulate_request *requests, size_t n, const rp_simulate_options *options,
                            rp_error *err);
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
RP_API int rp_simulator_run(const rp_simulator *simulator, rp_policy policy, size_t capacity_blocks, rp_simulation *out, rp_error *err);

/* ---- Log queue of a program ------------------------------------------------------------------------------------ */

/* Sends log lines to standard error through a queue of 256 KiB with a thread of its own, so that no caller waits for a slow reader. Lines that
 * find the queue full are dropped, and a later line counts them. It has no effect on lines that a callback takes (rp_log_set_callback).
 * RP_ERR_INTERNAL: no thread; lines are written at once, as without a queue. */
RP_API int rp_log_start(void);
RP_API void rp_log_line(const char *line); /* writes a line of the program, without a line feed, the same way */
RP_API uint64_t rp_log_dropped(void);      /* dropped lines since the program began */
RP_API void rp_log_stop(int32_t timeout_ms); /* ends the queue after its lines are written, or after the timeout */

#ifdef __cplusplus
}
#endif
#endif
