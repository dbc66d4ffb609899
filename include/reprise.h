/* SPDX-License-Identifier: Apache-2.0 */
/* reprise.h: the public interface of Reprise, an LLM inference library that never prefills the same text twice.
 *
 *   rp_model    an immutable model: weights (mapped), vocabulary, chat format. Any number of engines may share it.
 *   rp_engine   runs prompts with one model. Owns threads, the store (KV cache, the attention states of the paper)
 *               and schemas.
 *   rp_schema   a PML document of reusable prompt modules, loaded into an engine and named by its `name`.
 *   rp_prompt   a prompt built part by part, for user input: its text is never parsed.
 *   rp_result   a request's output: text, token counts, timings, and the plan, which lists the reused KV.
 *   rp_cache    a store's folder on disk, for inspection and maintenance without a model.
 *
 * A whole program:
 *
 *   rp_error err;
 *   rp_model *model = NULL;
 *   rp_engine *engine = NULL;
 *   rp_result *result = NULL;
 *   rp_request req = rp_request_defaults();
 *   req.prompt = "<prompt schema='cities'><plan duration='3 days'><miami/></plan> Surf spots?</prompt>";
 *   if (rp_model_open(&model, "model.gguf", NULL, &err) || rp_engine_new(&engine, model, NULL, &err) ||
 *       rp_schema_load(engine, "cities.xml", NULL, NULL, &err) || rp_engine_run(engine, &req, &result, &err))
 *       fprintf(stderr, "%s\n", err.message);
 *   else
 *       puts(result->text);
 *   rp_result_free(result); rp_engine_free(engine); rp_model_close(model);
 *
 * Conventions. Functions that can fail return 0 or a negative rp_code and fill in an optional rp_error. Every free or
 * close function accepts NULL. Strings are UTF-8 and NUL-terminated. The library keeps no global state, never exits
 * and never prints, unless the environment variables REPRISE_LOG and REPRISE_TRACE request it.
 * Threads. Models and engines are thread-safe. An engine computes on a thread of its own and calls callbacks there.
 */
#ifndef REPRISE_H
#define REPRISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define RP_API
#else
#define RP_API __attribute__((visibility("default")))
#endif

#define RP_VERSION_MAJOR 0
#define RP_VERSION_MINOR 1
#define RP_VERSION_PATCH 0
#define RP_VERSION_STRING "0.1.0"

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

/* The one list of error codes: X(NAME, value, text). */
#define RP_ERRORS(X) \
    X(OK, 0, "no error") \
    X(ERR_INVALID, -1, "invalid argument") \
    X(ERR_MEMORY, -2, "out of memory") \
    X(ERR_IO, -3, "cannot read or write a file") \
    X(ERR_FORMAT, -4, "corrupt file or unexpected file format") \
    X(ERR_UNSUPPORTED, -5, "the model requires an unsupported feature") \
    X(ERR_SYNTAX, -6, "syntax error in a PML document or a grammar") \
    X(ERR_NAME, -7, "unknown name") \
    X(ERR_CONFLICT, -8, "conflict: mutually exclusive settings or concurrent use") \
    X(ERR_LENGTH, -9, "an argument or text exceeds its maximum length") \
    X(ERR_CONTEXT, -10, "the prompt exceeds the context length") \
    X(ERR_LIMIT, -11, "a built-in limit is exceeded") \
    X(ERR_CANCELLED, -12, "cancelled by the caller") \
    X(ERR_INTERNAL, -13, "internal error of the library") \
    X(ERR_BUSY, -14, "the request queue is full: try again later") \
    X(ERR_DEADLINE, -15, "the deadline passed before the first token") \
    X(ERR_BUDGET, -16, "the KV cache budget is too small")

typedef enum rp_code {
#define X(name, value, text) RP_##name = value,
    RP_ERRORS(X)
#undef X
} rp_code;

#define RP_ERROR_MESSAGE_BYTES 512
#define RP_ERROR_WHERE_BYTES 256

/* Filled in when a function fails. `message` is one line: what is wrong, where, and what to do. It includes `where`
 * ("cities.xml:4:7", "model.gguf: tensor blk.0.attn_q.weight", or ""). `offset` is the byte offset in the input, or 0.
 * `retry_after_ms` is the delay before a retry after RP_ERR_BUSY, else 0. */
typedef struct rp_error {
    rp_code code;
    char message[RP_ERROR_MESSAGE_BYTES];
    char where[RP_ERROR_WHERE_BYTES];
    uint64_t offset;
    uint32_t retry_after_ms;
} rp_error;

RP_API const char *rp_code_name(rp_code code); /* "RP_ERR_SYNTAX"; static */
RP_API const char *rp_code_text(rp_code code); /* static */
RP_API const char *rp_version(void);           /* RP_VERSION_STRING of the library; static */

/* Progress of a long operation: `done` units of `total`. The unit is tokens for module prefill, and bytes for
 * preparing or hashing weights. */
typedef void (*rp_on_progress)(void *user, uint64_t done, uint64_t total);

/* ---- Models ---------------------------------------------------------------------------------------------------- */

typedef struct rp_model rp_model;

typedef struct rp_model_options {
    const char *chat_format; /* a name from rp_chat_format_name; NULL: from the model's metadata and template */
    bool vocabulary_only;    /* load the tokenizer only: the file needs no weights and may have any architecture.
                                Engines, rp_schema_lint and rp_split refuse this model with RP_ERR_UNSUPPORTED.
                                Default false */
} rp_model_options;

RP_API rp_model_options rp_model_options_defaults(void);

/* Opens a GGUF file. For a split model, give its first file (NAME-00001-of-00003.gguf): all of its files are opened.
 * Files are mapped and must not change while the model is open.
 * options   NULL for the defaults; borrowed during the call.
 * RP_ERR_IO, RP_ERR_FORMAT (corrupt), RP_ERR_UNSUPPORTED (architecture, tensor type or vocabulary; the message lists
 * the supported ones), RP_ERR_INVALID (not the first file of a split model), RP_ERR_NAME (chat_format),
 * RP_ERR_MEMORY. */
RP_API int rp_model_open(rp_model **out, const char *path, const rp_model_options *options, rp_error *err);
RP_API void rp_model_close(rp_model *model); /* free all engines of the model first */

/* Properties of a model. The strings belong to the model. */
typedef struct rp_model_info {
    const char *name;         /* general.name, or "" */
    const char *architecture; /* "llama" */
    const char *weights;      /* the type of most weights: "Q8_0" */
    const char *chat_format;  /* "chatml" */
    bool chat_format_guessed; /* the model has a chat template, but not a known one */
    uint64_t parameters;
    uint64_t weight_bytes;
    int32_t n_layers, n_heads, n_kv_heads, head_dim, n_embd, n_ff, n_vocab;
    int32_t n_ctx_train;          /* context length in training, in positions */
    const char *positions;        /* "rotary", "ALiBi", "learned" or "none"; static */
    bool movable;                 /* the KV can be shifted to other positions, so modules can be packed */
    int32_t window;               /* sliding window in tokens, the token itself included; 0: no layer has one */
    int32_t n_window_layers;
    int32_t n_experts, n_experts_used; /* 0: no mixture of experts */
    uint64_t kv_bytes_per_token; /* KV bytes per token in f16 */
    const char *fingerprint;      /* 64 hexadecimal digits; "" until computed by an engine with a store or by
                                     rp_model_fingerprint */
} rp_model_info;

RP_API void rp_model_describe(const rp_model *model, rp_model_info *out);

/* Computes the model's fingerprint: BLAKE2b of all bytes of its files and of its chat format. It is part of the keys
 * of a store. Reads all weights, unless the fingerprint is known already. Any thread.
 * n_threads    0: one per processor
 * on_progress  (bytes) may be NULL; called on the calling thread
 * *out         64 hexadecimal digits; belongs to the model
 * RP_ERR_IO (a file was changed in place since the model was opened), RP_ERR_MEMORY. */
RP_API int rp_model_fingerprint(rp_model *model, int32_t n_threads, rp_on_progress on_progress, void *user, const char **out, rp_error *err);

/* The name of the i-th chat format, NULL past the end. Static. */
RP_API const char *rp_chat_format_name(int i);

/* Converts text to token ids. text: n bytes of UTF-8 (invalid bytes are encoded as bytes if the vocabulary can).
 * parse_special: control tokens written in the text ("<|im_end|>") become tokens; only for trusted text.
 * add_bos: put the beginning-of-text token first, if the model wants one.
 * *tokens: owned by the caller, rp_free. RP_ERR_MEMORY, RP_ERR_LIMIT. */
RP_API int rp_tokenize(const rp_model *model, const char *text, size_t n, bool parse_special, bool add_bos,
                       int32_t **tokens, size_t *n_tokens, rp_error *err);
/* A message of a conversation. */
typedef enum rp_role { RP_ROLE_SYSTEM, RP_ROLE_USER, RP_ROLE_ASSISTANT, RP_ROLE_TOOL } rp_role;
#define RP_N_ROLES 4
#define RP_MAX_MESSAGES 65536

typedef struct rp_message {
    rp_role role;
    const char *text; /* n bytes of UTF-8, never parsed for control tokens */
    size_t n;
} rp_message;

/* Converts messages as rp_request.messages does: the beginning-of-text token (if the model wants one), each message in
 * the model's chat format, and the generation prompt. continues: the last message is the beginning of the answer and
 * is not closed.
 * *tokens: owned by the caller, rp_free. RP_ERR_INVALID (no message, unknown role), RP_ERR_MEMORY, RP_ERR_LIMIT. */
RP_API int rp_tokenize_messages(const rp_model *model, const rp_message *messages, size_t n, bool continues, int32_t **tokens,
                                size_t *n_tokens, rp_error *err);
/* Returns the bytes of a token (not always whole UTF-8 characters). special: control tokens return their name, else
 * nothing. Belongs to the model. NULL for an id outside the vocabulary. */
RP_API const char *rp_token_bytes(const rp_model *model, int32_t token, bool special, size_t *n_bytes);
RP_API void rp_free(void *p); /* frees memory that the library allocated for the caller */

/* ---- Smaller models -------------------------------------------------------------------------------------------- */

/* Progress of rp_model_quantize. The strings are borrowed during the call. */
typedef struct rp_quantize_step {
    const char *tensor;    /* the tensor that is converted next; NULL: finished */
    const char *from, *to; /* its types: "F16", "Q4_K"; NULL if tensor is NULL */
    bool begins;           /* this is the tensor's first row */
    bool is_fallback;      /* `to` is not the requested type: rows are not a multiple of that type's block */
    uint64_t done_bytes, total_bytes; /* of the source weights */
} rp_quantize_step;

/* Called on the calling thread, every few MiB. Return false to stop. */
typedef bool (*rp_on_quantize)(void *user, const rp_quantize_step *step);

typedef struct rp_quantize_options {
    int32_t n_threads; /* 0: one per processor */
    rp_on_quantize on_step; /* may be NULL */
    void *user;
} rp_quantize_options;

RP_API rp_quantize_options rp_quantize_options_defaults(void);

/* Writes a copy of the GGUF file `in` with its matrices quantized to `type`: "Q8_0", "Q4_0", "Q4_K" or "Q6_K".
 * Vectors, norms, biases, positions and expert routers become F32. A matrix whose rows are not a multiple of the type's
 * block gets Q5_0 (for Q4_K), Q8_0 (for Q6_K) or F16. A split model becomes one file. `out` is replaced atomically.
 * options   NULL for the defaults; borrowed during the call.
 * RP_ERR_NAME (type), RP_ERR_UNSUPPORTED (weights of `in` are not F32, F16 or BF16), RP_ERR_INVALID (in and out are the
 * same file), RP_ERR_CANCELLED (on_step), RP_ERR_IO, RP_ERR_FORMAT, RP_ERR_MEMORY. */
RP_API int rp_model_quantize(const char *in, const char *out, const char *type, const rp_quantize_options *options,
                             rp_error *err);

/* ---- Engines --------------------------------------------------------------------------------------------------- */

typedef struct rp_engine rp_engine;

typedef enum rp_kv_format { RP_KV_F16 = 0, RP_KV_F32 = 1 } rp_kv_format;

/* What a step computed for one job. */
typedef enum rp_step_kind {
    RP_STEP_MODULE,  /* tokens of a module; this job was the first to miss it */
    RP_STEP_PREFILL, /* tokens of its prompt */
    RP_STEP_DECODE,  /* the last token of its answer, and drafts after it */
    RP_STEP_BACKGROUND, /* tokens of a background task (rp_engine_drain), in a short step of their own */
} rp_step_kind;
#define RP_N_STEP_KINDS 4

typedef struct rp_step_part {
    uint64_t call;          /* rp_job_number; 0: background, rp_schema_prefill, or a module whose job has ended */
    rp_step_kind kind;
    int32_t n_rows;         /* tokens computed */
    int32_t context_tokens; /* tokens attended to, themselves included */
} rp_step_part;

/* A step: rows of several jobs, computed as one batch. Results do not depend on the batching. */
typedef struct rp_step {
    uint64_t number;        /* from 1 */
    uint64_t start_us, end_us; /* monotonic clock since boot */
    uint64_t predicted_us;  /* prediction of the engine's cost model; 0: none yet */
    const rp_step_part *parts;
    int32_t n_parts;
    int32_t n_running, n_waiting; /* jobs */
    uint64_t kv_bytes;   /* KV in use, cached spans included */
} rp_step;

/* Called after each step, on the engine's thread; step is borrowed meanwhile. */
typedef void (*rp_on_step)(void *user, const rp_step *step);

/* When new spans are written to disk. */
typedef enum rp_store_write {
    RP_STORE_WRITE_BACK = 0, /* soon, in parallel with computation */
    RP_STORE_WRITE_THROUGH,  /* before the job that computed them ends */
    RP_STORE_WRITE_OFF,      /* never: records on disk are only read */
} rp_store_write;

typedef struct rp_engine_options {
    int32_t n_threads;           /* 0: one per processor */
    int32_t n_ctx;               /* context length: positions of a prompt and its answer; 0: as in training */
    rp_kv_format kv_format; /* f16; f32 is for tests */
    uint64_t ram_bytes;          /* hard limit on the memory of a program with this engine: weights, used pages of the
                                    file, activations, tables and KV. KV gets what the others leave. 0: none */
    uint64_t kv_budget_bytes; /* hard limit on KV in RAM; 0: derived from ram_bytes, or 2 GiB */
    int32_t chunk_tokens;        /* maximum prompt tokens per step, 1 to 4096; 0: 256. Does not affect results */
    int32_t max_sequences;       /* maximum running jobs, 1 to 256; 0: 16 */
    int32_t max_queue;           /* maximum queued jobs, 1 to 65536; 0: 256. Further ones get RP_ERR_BUSY */
    float token_goal_ms;         /* target inter-token latency: while answers are decoded, a step takes only as many
                                    prompt rows as keep it within this; INFINITY: chunk_tokens. 0: 1.75 times the
                                    step's time without prompt rows */
    const char *store_dir;       /* the store's folder: KV in it outlives the engine. Created if missing. A folder that
                                    is neither empty nor a store is refused (RP_ERR_FORMAT). NULL: RAM only */
    uint64_t store_budget_bytes; /* hard limit on the folder's total size on disk; 0: 16 GiB */
    const char *store_key_file;  /* encryption key of the records: 32 bytes, or 64 hexadecimal digits; records of
                                    another key are misses. NULL: the 64 digits in REPRISE_STORE_KEY, if set; else
                                    no encryption */
    rp_store_write store_write;
    bool store_read_only;        /* never write to the folder, so another process may use it too */
    bool store_whole_reads;      /* read KV span by span instead of layer by layer for all spans; for measurements */
    uint64_t scaffold_bytes;     /* limit on KV of learned scaffolds (RP_QUALITY_SCAFFOLD); 0: a quarter of the KV */
    int32_t audit_every;         /* when idle, recompute one in N modular requests in full and compare; 0: none */
    float max_divergence;        /* report a schema if its audits' mean divergence, in nats, exceeds this; 0: never */
    bool audit_raises;           /* also raise the default quality of that schema's requests by one level */
    rp_on_step on_step;          /* may be NULL */
    void *step_user;
} rp_engine_options;

RP_API rp_engine_options rp_engine_options_defaults(void);

/* Creates an engine and starts its thread. options NULL: the defaults. The model is borrowed until rp_engine_free.
 * RP_ERR_INVALID, RP_ERR_MEMORY, RP_ERR_BUDGET (ram_bytes; the message gives the need), RP_ERR_IO (threads),
 * RP_ERR_CONFLICT (another process uses the store), RP_ERR_FORMAT (store_dir is not a store). A store that is
 * unavailable is not an error: see rp_store_stats.disk_state. */
RP_API int rp_engine_new(rp_engine **out, rp_model *model, const rp_engine_options *options, rp_error *err);
/* Frees an engine. Free all of its jobs first. Pending writes to disk are completed. */
RP_API void rp_engine_free(rp_engine *engine);
/* Like rp_engine_free, with a time limit: after timeout_ms (-1: none) nothing more is written; closing then waits for
 * at most one system call on the disk. Every record is whole or absent. Returns the number of spans that were not
 * written or failed to be written: they are recomputed when needed. */
RP_API size_t rp_engine_close(rp_engine *engine, int64_t timeout_ms);

/* Configuration and load of an engine. */
typedef struct rp_engine_info {
    int32_t n_threads, n_ctx, chunk_tokens, max_sequences, max_queue; /* as rp_engine_options; none is 0 */
    rp_kv_format kv_format;
    bool prepared;            /* weights are prepared: by rp_engine_prepare or a first request */
    int32_t running, waiting; /* running jobs, as of the last step; other jobs that have not ended */
    int32_t background;       /* pending background tasks */
} rp_engine_info;
RP_API void rp_engine_describe(rp_engine *engine, rp_engine_info *out);

/* Repacks the weights for this machine's kernels, which takes about a second per GB. Otherwise the first request does
 * it. RP_ERR_MEMORY. */
RP_API int rp_engine_prepare(rp_engine *engine, rp_on_progress on_progress, void *user, rp_error *err);

/* Background tasks improve later requests; no job waits for them. The engine runs them after a short idle period, in
 * short steps: a request that arrives meanwhile waits for at most one step. Their memory is reclaimed for any request
 * that needs it, and they do not count as jobs. rp_engine_free drops pending tasks.
 *
 * Starts the tasks without the idle period and waits until none is pending, for up to timeout_ms (-1: no limit).
 * Returns whether none is pending. Any thread except the engine's. */
RP_API bool rp_engine_drain(rp_engine *engine, int64_t timeout_ms);

/* Memory of an engine, in bytes. A program also needs memory for its code and the model's vocabulary. */
typedef struct rp_memory {
    uint64_t weights;      /* the engine's repacked copy of the weights; 0: the mapped file is used directly */
    uint64_t file;         /* mapped file: what a prepared engine reads of it, as far as used */
    uint64_t activations;  /* of one step, attention scores included */
    uint64_t token_trie;   /* the vocabulary's trie for grammars, from the first request with a grammar on */
    uint64_t states;       /* KV: allocated so far */
    uint64_t kv_limit; /* rp_engine_options.kv_budget_bytes, in whole blocks */
} rp_memory;
RP_API void rp_engine_memory(rp_engine *engine, rp_memory *out);

/* ---- Tenants --------------------------------------------------------------------------------------------------- */

/* The tenant that owns a request or a schema: any string of up to RP_MAX_TENANT_BYTES. NULL and "" are the operator.
 * The string is part of the keys of the tenant's cached KV: no other tenant can hit it, wait for it, see it in a
 * report, or get a token sooner through it.
 *
 *   text of a request, and its answer            private to its tenant
 *   modules of a schema loaded for a tenant      private to that tenant
 *   modules of a schema loaded for the operator  shared by all requests; they contain the operator's text only
 *
 * The program authenticates tenants, and lets only the operator load shared schemas. See docs/tenants.md. */
#define RP_MAX_TENANT_BYTES 256

/* Limits on a tenant's cache: KV bytes in RAM, and bytes of records on disk; 0: no limit of its own. */
typedef struct rp_quota {
    uint64_t kv_bytes, store_bytes;
} rp_quota;

/* Sets a tenant's quota. Over quota, the tenant's own entries are evicted, lowest priority first. KV that its running
 * jobs hold is not evicted, and is cached at their end as far as the quota allows. Modules of shared schemas belong to
 * the operator (tenant NULL). Any thread.
 * RP_ERR_LIMIT (length of the name; 65,535 tenants with quotas), RP_ERR_MEMORY. */
RP_API int rp_engine_set_quota(rp_engine *engine, const char *tenant, const rp_quota *quota, rp_error *err);

/* ---- Quality --------------------------------------------------------------------------------------------------- */

/* Accuracy level: which module tokens are recomputed in the context of the prompt, from none to all. docs/quality.md
 * gives the cost and the accuracy of each.
 *
 *   reuse      KV as cached
 *   link:K     recompute the first K tokens of each module in the prompt (EPIC; Hu et al., 2025)
 *   blend:R    recompute R per cent of the modules' tokens: their beginnings, and the tokens with the largest KV
 *              deviation in the second layer (CacheBlend; Yao et al., 2025)
 *   scaffold   prefill the combined modules jointly when idle: the next prompt with the same beginning is exact; until
 *              then reuse
 *   exact      every token attends to all tokens before it
 *
 * Modules that already have the KV of a full prefill, because the tokens before them are those of their scope, are not
 * recomputed. */
typedef enum rp_quality_mode {
    RP_QUALITY_AS_WRITTEN = 0, /* as the prompt says, else each module, else the schema; else reuse */
    RP_QUALITY_REUSE,
    RP_QUALITY_LINK,
    RP_QUALITY_BLEND,
    RP_QUALITY_SCAFFOLD,
    RP_QUALITY_EXACT,
} rp_quality_mode;

#define RP_MAX_LINK_TOKENS 4096

typedef struct rp_quality {
    rp_quality_mode mode;
    int32_t amount; /* link: tokens, 1 to RP_MAX_LINK_TOKENS; blend: per cent, 1 to 100; else 0 */
} rp_quality;

/* Parses "reuse", "link:8", "blend:15", "scaffold" or "exact". RP_ERR_INVALID. */
RP_API int rp_quality_parse(const char *text, rp_quality *out, rp_error *err);
#define RP_QUALITY_BYTES 24
/* Formats a quality into out; "" for as written. Returns out. */
RP_API char *rp_quality_text(rp_quality quality, char out[RP_QUALITY_BYTES]);

/* ---- Schemas --------------------------------------------------------------------------------------------------- */

/* Owned by its engine; valid until replaced by one of the same name and tenant, or rp_engine_free. Jobs keep their own
 * references to its parts. */
typedef struct rp_schema rp_schema;

typedef enum rp_scope { RP_SCOPE_AS_WRITTEN, RP_SCOPE_PATH, RP_SCOPE_MODULE } rp_scope;
/* What a module of scope `module` attended to before itself: nothing, or the beginning-of-text token only. */
typedef enum rp_anchor { RP_ANCHOR_AS_WRITTEN, RP_ANCHOR_NONE, RP_ANCHOR_BOS } rp_anchor;
typedef enum rp_layout { RP_LAYOUT_AS_WRITTEN, RP_LAYOUT_PACKED, RP_LAYOUT_FIXED } rp_layout;

/* Tenant of a schema, and overrides of its attributes, to compare reuse settings without editing it. All zero: shared,
 * owned by the operator, as written. */
typedef struct rp_schema_options {
    const char *tenant;   /* owner: no other tenant can use the schema, and its name may equal that of a shared one or of
                             another tenant's. NULL: shared by all. Borrowed during the call. */
    const char *name;     /* required name of the schema, else RP_ERR_INVALID, and nothing is replaced; NULL: any.
                             Borrowed during the call */
    rp_scope scope;       /* of the schema and of all its modules */
    rp_anchor anchor;     /* likewise; no effect with scope path */
    rp_layout layout;
    rp_quality quality;   /* of the schema and of all its modules */
    const char *scaffold; /* paths of modules, separated by spaces: an extra scaffold; NULL: none. Borrowed during the
                             call. */
} rp_schema_options;

/* Loads a schema file. `src` attributes may name files in the file's own directory only.
 * Replaces a loaded schema of the same name and tenant. options may be NULL, *out too.
 * RP_ERR_IO, RP_ERR_SYNTAX, RP_ERR_NAME, RP_ERR_CONFLICT, RP_ERR_LENGTH, RP_ERR_LIMIT, RP_ERR_MEMORY; where and message
 * contain file:line:column. */
RP_API int rp_schema_load(rp_engine *engine, const char *path, const rp_schema_options *options, rp_schema **out,
                          rp_error *err);
/* Like rp_schema_load, from memory. name: document name in errors. dir: directory for `src`; NULL: `src` is refused. */
RP_API int rp_schema_parse(rp_engine *engine, const char *pml, size_t n, const char *name, const char *dir,
                           const rp_schema_options *options, rp_schema **out, rp_error *err);
RP_API const char *rp_schema_name(const rp_schema *schema);
/* Unloads the tenant's schema of that name (NULL: a shared one); jobs that use it continue. Its KV stays in the store
 * until evicted, and a schema with the same modules hits it again. RP_ERR_NAME, RP_ERR_LIMIT. */
RP_API int rp_schema_unload(rp_engine *engine, const char *tenant, const char *name, rp_error *err);

/* ---- Prompts of users' text ------------------------------------------------------------------------------------- */

/* A prompt over a schema, built part by part. Text is never parsed: no `<` in it is an import, and its bytes do not
 * change. Use this for user input instead of pasting it into a PML document.
 *
 *   rp_prompt *p;
 *   rp_prompt_new(&p, "cities", &err);
 *   rp_prompt_import(p, "plan/miami");
 *   rp_prompt_set_argument(p, "duration", days, strlen(days));
 *   rp_prompt_begin_role(p, RP_ROLE_USER);
 *   rp_prompt_append_text(p, question, strlen(question));
 *   rp_prompt_end_role(p);
 *   request.built = p;
 *
 * Errors. Each function that adds a part returns a code, and the prompt keeps the first error: a program may ignore the
 * codes, and rp_engine_submit and rp_engine_run fail with that error. After an error, a prompt accepts no more parts.
 * Errors name a part by its number, from 1, in the order of imports, texts and roles ("prompt, part 3: ...").
 * Threads. One thread at a time may add parts. Any number of requests may share a prompt that is no longer changed; it
 * is borrowed during submission, and may be changed or freed afterwards. It belongs to no engine. Names and texts are
 * copied. */
typedef struct rp_prompt rp_prompt;

/* schema: its name, resolved when a request is submitted. RP_ERR_INVALID, RP_ERR_MEMORY. *out: rp_prompt_free. */
RP_API int rp_prompt_new(rp_prompt **out, const char *schema, rp_error *err);
RP_API void rp_prompt_free(rp_prompt *prompt);
/* Imports a module by its path, "plan/miami", with its outer modules. Consecutive imports with common outer modules are
 * one import, as <plan><miami/><hotel/></plan>. RP_ERR_NAME (empty name), RP_ERR_LIMIT, RP_ERR_INVALID, RP_ERR_MEMORY;
 * at submission RP_ERR_NAME (unknown module), RP_ERR_CONFLICT (imported twice, or with another member of its union). */
RP_API int rp_prompt_import(rp_prompt *prompt, const char *path);
/* Sets an argument of the last imported module, or, if it has no such parameter, of the nearest outer one: n bytes of
 * UTF-8. RP_ERR_INVALID (no import directly before it, invalid UTF-8), RP_ERR_LIMIT, RP_ERR_MEMORY; at submission
 * RP_ERR_NAME (unknown parameter), RP_ERR_CONFLICT (given twice), RP_ERR_LENGTH. */
RP_API int rp_prompt_set_argument(rp_prompt *prompt, const char *param, const char *text, size_t n);
/* Appends n bytes of UTF-8, in whole characters; control characters and NUL are allowed. Consecutive texts are joined.
 * White space is kept as it is. RP_ERR_INVALID (invalid UTF-8), RP_ERR_LIMIT (64 MiB in all), RP_ERR_MEMORY. */
RP_API int rp_prompt_append_text(rp_prompt *prompt, const char *text, size_t n);
/* Begins a message of that role, up to rp_prompt_end_role or the end of the prompt. Roles do not nest. RP_ERR_INVALID,
 * RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_prompt_begin_role(rp_prompt *prompt, rp_role role);
RP_API int rp_prompt_end_role(rp_prompt *prompt);

/* ---- Sampling -------------------------------------------------------------------------------------------------- */

#define RP_MAX_STOPS 64
#define RP_MAX_STOP_BYTES 1024
#define RP_MAX_GRAMMAR_BYTES ((size_t)256 << 10)
#define RP_MAX_TRIGGER_BYTES 1024
#define RP_MAX_LOGPROBS 100
#define RP_MAX_DRAFT 15
#define RP_MISMATCH_TOKENS 8
#define RP_MAX_WARNINGS 16

typedef struct rp_logit_bias {
    int32_t token;
    float bias; /* -1000 to 1000, or -INFINITY: never this token */
} rp_logit_bias;

/* How the next token is sampled from its logits. The steps, in this order:
 *
 *   0. grammar      tokens that rp_request.grammar does not allow get a logit of -infinity
 *   1. bias         is added to a token's logit
 *   2. penalties    for a token that occurs c > 0 times in the last `repeat_last` tokens of prompt and answer: a logit
 *                   above 0 is divided by repeat_penalty, any other is multiplied by it (Keskar et al., 2019); then
 *                   presence_penalty and c * frequency_penalty are subtracted. Temperature 0 picks the most likely
 *                   token here.
 *   3. top_k        keeps the k most likely tokens (Fan et al., 2018)
 *   4. typical      keeps the tokens with the surprise nearest to the entropy, up to this cumulative probability
 *                   (Meister et al., 2022)
 *   5. top_p        keeps the most likely tokens up to this cumulative probability (Holtzman et al., 2020)
 *   6. min_p        keeps tokens with at least this fraction of the top token's probability (Nguyen et al., 2024)
 *   7. temperature  draws one of the remaining tokens from softmax(logits / temperature)
 *
 * Steps 4 to 6 use the probabilities, at temperature 1, of the tokens that the previous steps kept. Each step keeps at
 * least one token; ties are broken by the lowest id. The order is llama.cpp's default, so its values have the same
 * meaning here. Its other defaults (temperature 0.8, top_k 40, top_p 0.95, min_p 0.05) are not used: each filter is off
 * by default.
 *
 * The same seed, options and logits give the same tokens, on any number of threads.
 *
 * Log-probabilities (rp_request.n_logprobs) are those of the model, softmax(logits), before step 0. */
typedef struct rp_sampling {
    float temperature;         /* 0 to 100; 0: greedy (default) */
    int32_t top_k;             /* 0: off (default) */
    float typical;             /* 0 to 1; 1: off (default) */
    float top_p;               /* 0 to 1; 1: off (default) */
    float min_p;               /* 0 to 1; 0: off (default) */
    float repeat_penalty;      /* 0.01 to 100; 1: off (default) */
    float presence_penalty;    /* -100 to 100; 0: off (default) */
    float frequency_penalty;   /* -100 to 100; 0: off (default) */
    int32_t repeat_last;       /* window of the penalties in tokens; 0: none, -1: all; default 64 */
    const rp_logit_bias *bias; /* n_bias entries; those of one token add up. NULL: none (default) */
    int32_t n_bias;
    uint64_t seed;             /* for temperature > 0; default 0 */
} rp_sampling;

RP_API rp_sampling rp_sampling_defaults(void);

/* ---- Requests -------------------------------------------------------------------------------------------------- */

/* Cache lookup has two ways: modules by name (modular reuse), and all other text by its longest cached prefix: the
 * longest beginning of the prompt (after the same modules) that an earlier prompt or answer had, token-exact. Both give
 * the bytes that computing would have given. */
typedef enum rp_reuse {
    RP_REUSE_ON = 0,    /* compose the prompt from cached KV; compute and cache what is missing */
    RP_REUSE_OFF = 1,   /* the same plan (same masks, same positions), but every lookup misses; nothing is cached */
    RP_REUSE_EXACT = 2, /* RP_REUSE_ON with RP_QUALITY_EXACT: ignore scopes: the same tokens at the same positions, each
                           attending to everything before it; lookup by longest cached prefix only */
} rp_reuse;

/* Callbacks are called on the engine's thread and block all its jobs: copy the data and return. They may submit and
 * cancel, and must not wait, run, free or load.
 *
 * Called for each piece of the answer, in whole UTF-8 characters (n bytes, also NUL-terminated). Text that may begin a
 * stop string is held back until that is decided or the answer ends. Return false to stop. */
typedef bool (*rp_on_text)(void *user, const char *text, size_t n);
/* Called before each generated token with the logits it is sampled from (n_vocab floats, borrowed). */
typedef void (*rp_on_logits)(void *user, const float *logits, int32_t n_vocab);
/* A token and its log-probability. -INFINITY if the model rules it out. */
typedef struct rp_token_logprob {
    int32_t token;
    float logprob;
} rp_token_logprob;

/* A generated token. `top` is borrowed during the callback; without n_logprobs, logprob is 0 and top NULL. */
typedef struct rp_token {
    int32_t id;
    float logprob;
    const rp_token_logprob *top; /* the n_top most likely tokens at this position, most likely first */
    int32_t n_top;
} rp_token;

/* Called for each generated token, before the text that it adds, if any. Return false to stop and omit that text. */
typedef bool (*rp_on_token)(void *user, const rp_token *token);
/* The last callback of a job, on success and on failure: rp_job_result in another thread returns shortly after it. */
typedef void (*rp_on_done)(void *user);

typedef struct rp_request {
    const char *tenant;      /* owner; NULL: the operator. Its own schemas take precedence over shared ones */
    const char *flow;        /* fair-queuing group: requests of one flow share the turns of one tenant, whatever their
                                tenants. NULL: the tenant's */
    const char *prompt;      /* a PML prompt document; NULL: the prompt is `messages`, `tokens` or `text` */
    const rp_prompt *built;  /* replaces all of those: a prompt built part by part; borrowed during submission. NULL:
                                none (default) */
    const char *prompt_name; /* name of the document in errors; NULL: "prompt" */
    const char *schema;      /* PML: a schema for this request only, used by `prompt` or `built` instead of a loaded one.
                                Its modules are the tenant's, and are shared by all requests of the tenant with schemas
                                that have the same modules; `src` is refused. NULL: none */
    const rp_message *messages; /* a conversation of n_messages, formatted by the model's chat format
                                   (rp_tokenize_messages); borrowed during submission. With reuse on (and not
                                   no_prefix), an assistant message that is an answer of this engine, after the same
                                   tokens and for the same tenant, becomes the sampled tokens, as long as they are
                                   remembered (docs/scheduling.md). NULL: none */
    int32_t n_messages;      /* up to RP_MAX_MESSAGES */
    bool continues_last;     /* continue the last message, or the last role of the PML document, as if the model had
                                written it */
    const int32_t *tokens;   /* n_tokens ids, with no token added before them; borrowed during submission. NULL: none */
    int32_t n_tokens;
    const char *text;        /* plain text, after the beginning-of-text token; "" starts from that token alone */
    rp_reuse reuse;
    rp_quality quality;      /* of all modules; overrides prompt and schema. default: as written */
    bool no_prefix;          /* disable the prefix cache: no lookups, nothing is cached for them; for measurements */
    int32_t max_tokens;      /* default 128; the answer also ends at the end of the context */
    int32_t priority;        /* queued requests of higher priority run first; default 0 */
    int64_t deadline_ms;     /* from rp_engine_submit on. Orders a tenant's requests of equal priority, earliest first.
                                Without a first token by then, the job ends with RP_ERR_DEADLINE; a started answer ends
                                with the text so far. 0: none (default) */
    int32_t n_draft;         /* speculative decoding by prompt lookup: draft up to N tokens, verified in one step; the
                                answer does not change. 0: off (default); up to RP_MAX_DRAFT */
    int32_t shifted_reuse;          /* >= 0: after an edit inside a cached prompt, reuse the suffix at its new positions
                                and recompute its first N tokens. Approximate: the suffix never attended to the edit.
                                -1: off (default) */
    rp_sampling sampling;    /* default: rp_sampling_defaults */
    const char *const *stops; /* n_stops strings; the answer ends where the first of them is complete. Whole UTF-8
                                 characters, up to RP_MAX_STOP_BYTES. A stop string may span tokens or lie inside one; of
                                 several that end together the longest counts. NULL: none */
    int32_t n_stops;         /* up to RP_MAX_STOPS */
    const char *grammar;     /* GBNF grammar that the answer must match, from rule `root` (docs/scheduling.md). The answer
                                may end only where the grammar does, and ends ("stop") where nothing else is possible;
                                max_tokens truncates it. NULL: any text (default). Up to RP_MAX_GRAMMAR_BYTES */
    const char *grammar_trigger; /* apply the grammar only after this text first appears in the answer, even inside a
                                token; up to RP_MAX_TRIGGER_BYTES. NULL: from the answer's first byte (default) */
    int32_t n_logprobs;      /* > 0: report log-probabilities of each token and of the n most likely ones; up to
                                RP_MAX_LOGPROBS. 0: none */
    int32_t first_position;  /* moves the whole plan; default 0. For tests: logits do not depend on it but for rounding */
    bool ignore_eos;         /* generate max_tokens tokens, ignoring the end-of-text token */
    const int32_t *forced;   /* n_forced tokens used as the answer, whatever the model, `sampling`, `stops` and `grammar`
                                say; then it ends. NULL: none */
    int32_t n_forced;
    rp_on_text on_text;      /* each callback may be NULL */
    rp_on_token on_token;
    rp_on_logits on_logits;
    rp_on_progress on_progress;
    rp_on_done on_done;
    void *user;
} rp_request;

RP_API rp_request rp_request_defaults(void);

/* One line of a plan, in position order: reused KV (view) or tokens computed for this request (run). The lines cover
 * every token of the prompt once. */
typedef struct rp_plan_item {
    bool is_view;
    bool exact;           /* its KV is that of a full prefill of the whole prompt */
    const char *module;   /* "plan/miami"; "" for anonymous text, "prompt" for the prompt's own text */
    int32_t n_tokens;     /* masked slots excluded */
    int32_t position;     /* of the first token in this prompt */
    int32_t shift;        /* of the view, in positions; 0 for a run */
    const char *tier;     /* "ram": hit in RAM; "disk": loaded from disk; "computed": miss, computed now; "" for a run */
    const char *reason;   /* miss reason (a run, or tier "computed"); "" for a hit. Static:
                             "new"      never cached, as far as is known and visible to the request's tenant
                             "evicted"  was cached, and was evicted or has expired
                             "scope"    is cached after other modules
                             "memory"   is on disk, but RAM had no capacity to load it
                             "window"   is cached, but without the KV that sliding-window layers need
                             "uncached" the module has cache="false", or it is an argument
                             "shifted"  first tokens after an edit (rp_request.shifted_reuse)
                             "link", "blend", "exact": module tokens recomputed for quality
                             "last"     the last token, for its logits
                             "off"      the request disabled the lookup
                             */
    char key[17];         /* first 16 digits of the key of its last span; "" for a run */
} rp_plan_item;

/* First token at which the prompt differs from the cached prefix. */
typedef struct rp_mismatch {
    int32_t token;        /* index into the prompt in position order; -1: no difference, or nothing was cached */
    int32_t position;
    const char *module;   /* as rp_plan_item.module */
    char message[24];     /* "user 2": the second of the prompt's <user> elements, or of the messages; "" outside */
    char *before;         /* the text before it, up to RP_MISMATCH_TOKENS tokens; "" with token -1 */
    char *prompt;         /* the text from it on, in the prompt */
    char *cached;         /* the text from it on, in the cached prefix */
} rp_mismatch;

/* Requested and used quality. */
typedef struct rp_quality_report {
    rp_quality asked;          /* by the request, its prompt or its schema; the highest level if modules differ */
    rp_quality used;
    const char *reason;        /* why `used` differs from `asked`; "" if it does not. Static:
                                  "new"   scaffold: this combination is not prefilled jointly yet
                                  "plain" all modules have the KV of a full prefill
                                  "audit" the schema's level was raised (rp_engine_options.audit_raises)
                                  "model" not supported by the model (blend: only one layer has KV)
                                  "window" blend: sliding-window layers lack KV that tokens inside the modules need */
    int32_t recomputed_tokens; /* recomputed module tokens */
    int32_t probed_tokens;     /* blend: tokens compared to choose them */
    double ms;                 /* estimated cost: the comparison, and those tokens' share of prompt_prefill_ms */
} rp_quality_report;

/* ttft_ms has one meaning everywhere: from arrival of the request (here: the call of rp_engine_submit or rp_engine_run;
 * in the server: the last byte of its body) to its first token, queueing and prefill of missing modules included. For
 * an answer without a token: to the moment at which that is known. It is the sum of the four times before it. */
typedef struct rp_timings {
    double load_ms;   /* filled in by the program, not by the library; not part of ttft_ms */
    double queue_ms;  /* waiting for admission, or for a job that computes the same tokens */
    double module_prefill_ms; /* prefill of modules that missed. 0 with RP_REUSE_OFF, which caches none */
    double plan_ms;   /* from the document to the composed context, loads from disk included */
    double prompt_prefill_ms; /* prefill of the prompt's own text, and sampling of the first token */
    double ttft_ms;   /* time to first token: queue_ms + module_prefill_ms + plan_ms + prompt_prefill_ms */
    double decode_ms; /* the tokens after the first */
    double saved_ms;  /* estimated time to compute the reused KV: each span's cost as predicted when it was cached, in
                         proportion to the tokens used; eviction uses the same cost */
    double decode_tokens_per_second;
} rp_timings;

typedef struct rp_result {
    char *text;                /* UTF-8: all pieces of on_text. Without a character cut by the end, and without a stop
                                  string and the text after it */
    int32_t *tokens;           /* generated token ids, those of a stop string included */
    int32_t n_tokens;
    float *logprobs;           /* [n_tokens]; NULL if the request's n_logprobs is 0 */
    rp_token_logprob *top_logprobs; /* [n_tokens][n_top]: most likely tokens per position, in order; NULL as above */
    int32_t n_top;             /* n_logprobs, or the size of the vocabulary if that is less */
    const char *finish_reason; /* "stop" (end of text, stop string, end of the grammar), "length" (max_tokens, n_forced,
                                  the context or the KV budget), "grammar" (no token continues the grammar, or it is too
                                  ambiguous to follow: the text is incomplete), "cancelled", "deadline"; static */
    const char *stop;          /* the stop string that ended it, or NULL */
    int32_t prompt_tokens;     /* cached_tokens + fresh_tokens */
    int32_t cached_tokens;     /* tokens with reused KV */
    int32_t fresh_tokens;      /* tokens computed for this request */
    int32_t drafted_tokens;    /* by prompt lookup (n_draft) */
    int32_t accepted_tokens;   /* accepted drafts: answer tokens that needed no step of their own */
    uint64_t bytes_copied;     /* KV bytes copied while composing: 0 */
    uint64_t kv_bytes;      /* KV that the request held at its end, its modules included */
    rp_timings timings;
    rp_quality_report quality;
    rp_plan_item *plan;
    int32_t n_plan;
    rp_mismatch mismatch;
    const char **warnings;     /* n_warnings lines about the request: parameters without an argument, positions beyond
                                  the training context. At most RP_MAX_WARNINGS; the last one counts the omitted ones */
    int32_t n_warnings;
    void *owner;               /* internal */
} rp_result;

/* A submitted request. Its functions are thread-safe; call rp_job_free once, as the last of them. */
typedef struct rp_job rp_job;

/* Parses, plans and queues a request; copies what it borrows. Does not wait for the engine. Jobs run together, as many
 * as max_sequences and the KV budget allow; each answer is the one that the job would give alone. Higher priority runs
 * first; within a priority, tenants take turns by deficit round robin in predicted time; a tenant's requests are
 * ordered by deadline, then by arrival.
 * RP_ERR_BUSY (the queue is full; retry_after_ms), RP_ERR_BUDGET (the whole budget cannot hold prompt and answer),
 * RP_ERR_MEMORY, RP_ERR_CONTEXT, and the errors of rp_engine_run about the request itself. */
RP_API int rp_engine_submit(rp_engine *engine, const rp_request *request, rp_job **out, rp_error *err);
/* Waits until the job has ended, for up to timeout_ms (-1: no limit). Returns whether it has. */
RP_API bool rp_job_wait(rp_job *call, int64_t timeout_ms);
/* Waits, then moves the result out (once; RP_ERR_INVALID afterwards). RP_ERR_CANCELLED (cancelled before an answer
 * began; later, the result says "cancelled"), RP_ERR_DEADLINE, RP_ERR_BUDGET, RP_ERR_MEMORY. */
RP_API int rp_job_result(rp_job *call, rp_result **out, rp_error *err);
/* Ends the job before the next step; returns at once. */
RP_API void rp_job_cancel(rp_job *call);
/* Pauses generation for a slow client, from the next step until rp_job_resume. The job keeps its KV and its
 * reservation, but does not count against max_sequences; deadlines and rp_job_cancel still apply. A job pauses only
 * after its first token, so callbacks of one more step may come. Callbacks may call both. */
RP_API void rp_job_pause(rp_job *call);
RP_API void rp_job_resume(rp_job *call);
/* Cancels the job if it has not ended, waits for its end, and frees it with its result. */
RP_API void rp_job_free(rp_job *call);

typedef enum rp_job_state {
    RP_JOB_WAITING, /* for admission, or for another job that computes the same tokens */
    RP_JOB_PREFILL, /* of its modules or its prompt */
    RP_JOB_DECODE,
    RP_JOB_DONE,
} rp_job_state;

typedef struct rp_job_status {
    rp_job_state state;
    int32_t queue_position;  /* 1: the next; 0: not queued */
    int32_t prompt_tokens;   /* as in the result */
    int32_t cached_tokens;   /* likewise, once the prompt is composed, before its first token; until then 0 */
    int32_t computed_tokens; /* of prompt_tokens: cached or computed so far */
    int32_t answer_tokens;
} rp_job_status;

RP_API void rp_job_get_status(rp_job *call, rp_job_status *out);
RP_API uint64_t rp_job_number(const rp_job *call); /* from 1, in order of submission */

/* Submits, waits and takes the result. *out is owned by the caller (rp_result_free). On error *out is NULL.
 * RP_ERR_INVALID (a value that is out of its range), RP_ERR_LIMIT (stop strings: too many, too long; log-probabilities; the tenant; a
 * grammar that is too large), RP_ERR_SYNTAX (the prompt; the grammar, with "grammar:line:column"), RP_ERR_NAME (schema, module, argument;
 * with the nearest name), RP_ERR_CONFLICT (two members of a union), RP_ERR_LENGTH (argument, or text in a fixed layout; with both
 * lengths), RP_ERR_CONTEXT, RP_ERR_BUDGET, RP_ERR_MEMORY. */
RP_API int rp_engine_run(rp_engine *engine, const rp_request *request, rp_result **out, rp_error *err);
RP_API void rp_result_free(rp_result *result);

/* Prefills every module of a schema that the store does not hold, as far as the budget allows. The schema is the one
 * that a request of that tenant would get. RP_ERR_NAME, RP_ERR_LIMIT, RP_ERR_BUDGET, RP_ERR_MEMORY, RP_ERR_CONTEXT,
 * RP_ERR_BUSY. */
RP_API int rp_schema_prefill(rp_engine *engine, const char *tenant, const char *schema, rp_on_progress on_progress, void *user,
                            rp_error *err);
/* Like rp_schema_prefill, as a job to wait for or cancel. It has no result: rp_job_result gives NULL, and its error.
 * Modules prefilled before cancellation stay cached. The schema may be replaced meanwhile. */
RP_API int rp_schema_submit(rp_engine *engine, const char *tenant, const char *schema, rp_on_progress on_progress, void *user,
                            rp_job **out, rp_error *err);

/* State of the disk tier. An unavailable store does not stop an engine: lookups miss, and KV is computed. */
typedef enum rp_store_state {
    RP_STORE_OFF,       /* no store_dir */
    RP_STORE_WORKS,     /* includes a store opened read-only on request */
    RP_STORE_UNWRITTEN, /* the last write failed: records are read, and writes are retried every ten seconds */
    RP_STORE_READ_ONLY, /* could not be opened for writing: records are read, none is added until reopened */
    RP_STORE_UNUSABLE,  /* could not be opened: nothing is read or written until reopened */
} rp_store_state;
#define RP_N_STORE_STATES 5
RP_API const char *rp_store_state_name(rp_store_state state); /* "off", "works", "unwritten", ...; static; NULL past the end */

/* Totals over all tenants; operator use only. */
typedef struct rp_store_stats {
    uint64_t spans, bytes, budget_bytes;
    uint64_t used_bytes;  /* KV of jobs that is not cached yet included; as of the last step */
    uint64_t hits, misses, inserts, evictions; /* evictions: from RAM and disk */
    uint64_t expired;     /* spans past their TTL */
    uint64_t disk_spans, disk_bytes, disk_budget_bytes; /* records, those of other models too */
    uint64_t disk_reads, disk_read_bytes, disk_writes, disk_write_bytes, disk_evictions;
    uint64_t disk_unwritten; /* spans not written: disk full, an error, or evicted from RAM before the disk was ready */
    uint64_t disk_skipped;   /* text used once, not written: the records on disk have higher priority (docs/store.md) */
    uint64_t disk_late;      /* spans of text that waited too long on a slow disk: written when the queue is empty, or
                                after their next use (docs/store.md) */
    uint64_t disk_waiting, disk_waiting_bytes; /* spans queued for writing, and their KV */
    uint64_t disk_once_bytes; /* of them: text used once, written when nothing else is queued */
    uint64_t disk_lag_us;     /* age of the oldest of the others; 0: none */
    uint64_t disk_faults;    /* unreadable records */
    rp_store_state disk_state;
    const char *disk_trouble; /* why it is neither off nor works: "no_space", "io_error", "permission", "read_only_disk", "open_files", "locked",
                                 "version", "memory", "other"; else "". Static */
} rp_store_stats;
RP_API void rp_engine_store_stats(rp_engine *engine, rp_store_stats *out);

/* Learned scaffolds (RP_QUALITY_SCAFFOLD; docs/quality.md): totals over all tenants; operator use only. A combination
 * is a prompt up to the end of its last module. As of the last job. */
typedef struct rp_scaffold_stats {
    uint64_t known;   /* combinations remembered */
    uint64_t encoded; /* of them: prefilled jointly */
    uint64_t pending; /* of them: to be prefilled jointly when the engine is idle */
    uint64_t hits;    /* requests made exact by a scaffold */
    uint64_t misses;  /* requests without one: RP_QUALITY_REUSE was used */
    uint64_t dropped; /* scaffolds evicted, for lack of use or for others */
    uint64_t bytes, budget_bytes; /* KV they added; rp_engine_options.scaffold_bytes */
} rp_scaffold_stats;
RP_API void rp_engine_scaffold_stats(rp_engine *engine, rp_scaffold_stats *out);

/* ---- What a cache would save ----------------------------------------------------------------------------------- */

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

/* A prompt as blocks: equal ids are equal tokens behind equal beginnings. */
typedef struct rp_simulate_request {
    const uint64_t *blocks; /* n_blocks ids; the last block may be begun only */
    size_t n_blocks;
    int32_t n_tokens;
} rp_simulate_request;

typedef struct rp_simulate_options {
    int32_t block_tokens;     /* default 512 */
    int32_t attention_tokens; /* the position at which attending takes a token as long as all the rest: the i-th token, from 0, costs
                                 1 + i / attention_tokens. Default 16384 */
} rp_simulate_options;

RP_API rp_simulate_options rp_simulate_options_defaults(void);

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
    uint64_t requests, prompt_tokens;
    uint64_t hit_tokens; /* tokens of blocks that were cached, with all blocks before them */
    double compute;      /* of all prompts, without a cache */
    double saved;        /* by cache hits */
} rp_simulation;

/* Replays all requests, one after the other, against an empty cache of so many blocks. RP_ERR_INVALID, RP_ERR_MEMORY. */
RP_API int rp_simulator_run(const rp_simulator *simulator, rp_policy policy, size_t capacity_blocks, rp_simulation *out, rp_error *err);

/* ---- Stores on disk -------------------------------------------------------------------------------------------- */

/* The folder of an engine's store (rp_engine_options.store_dir), for inspection and maintenance without a model.
 *
 *   record   a file: the KV of up to 256 tokens; its name is its key
 *   label    name of a module's records: "cities/plan/miami"; records of prompts and answers have none
 *   model    hash of model file and KV format; engines ignore records of other models
 *   index    metadata of records; the only place of uses, last use, expiry and pin
 *
 * Only one process can change a store: while an engine has it open, others can open it read-only, and changes fail with
 * RP_ERR_CONFLICT. Every listing compares files and index; every change repairs the leftovers of a crash, as an engine
 * does when it opens a store.
 *
 * A cache has one user at a time. Sizes are bytes on disk, times seconds since 1970. See docs/store.md. */
typedef struct rp_cache rp_cache;

typedef struct rp_cache_options {
    const char *key_file; /* as rp_engine_options.store_key_file. Without the key, records that are encrypted have no label */
    bool read_only;       /* nothing is changed, and an engine may have it open */
    bool create;          /* a folder that is no store becomes one; else that is an error */
} rp_cache_options;

RP_API rp_cache_options rp_cache_options_defaults(void);

/* options NULL: the defaults; borrowed during the call. RP_ERR_IO (no such folder), RP_ERR_FORMAT (it is no store), RP_ERR_CONFLICT
 * (another process has it open; not with read_only), RP_ERR_INVALID (the key), RP_ERR_MEMORY. A folder that is neither empty nor a store is
 * RP_ERR_FORMAT with `create`, too, and nothing in it is touched. */
RP_API int rp_cache_open(rp_cache **out, const char *dir, const rp_cache_options *options, rp_error *err);
RP_API void rp_cache_close(rp_cache *cache);

typedef enum rp_cache_kind {
    RP_CACHE_MODULE,
    RP_CACHE_TEXT,    /* of a prompt or an answer */
    RP_CACHE_UNKNOWN, /* nothing but the file is known */
} rp_cache_kind;

/* What is kept under a key: of a folder, or of an engine (rp_engine_cache_list), which leaves out what its comment says. */
typedef struct rp_cache_entry {
    char key[65];         /* 64 hexadecimal digits */
    char model[65];       /* "" unknown */
    rp_cache_kind kind;
    const char *label;    /* "" for text, and where it is encrypted and there is no key */
    const char *fault;    /* why its header cannot be read here: "cipher", "version", ...; "" it can be. Static */
    bool encrypted, pinned;
    bool expired;         /* `expires` is over */
    bool in_ram, on_disk;
    bool in_use;          /* by calls that run or wait, or by the disk's writer */
    int32_t n_tokens;     /* that it holds states of */
    uint64_t bytes;       /* that it takes, in RAM and on disk together; */
    uint64_t ram_bytes;   /* in RAM */
    uint64_t cost_us;     /* what computing it took */
    uint64_t uses;
    int64_t last_use;     /* 0: unknown */
    int64_t expires;      /* 0: never */
} rp_cache_entry;

/* Records by rising key. Strings belong to it. */
typedef struct rp_cache_listing {
    rp_cache_entry *entries;
    size_t n_entries;
    bool has_more; /* of an engine: there is more than was asked for */
    bool index_unwritten; /* of rp_cache_remove: as in rp_cache_cleaning */
    void *owner;   /* internal */
} rp_cache_listing;

/* Selects the records that match all fields that are set. Strings are borrowed during the call. */
typedef struct rp_cache_selection {
    const char *name;  /* a label: its records and those below it: "cities" means "cities/plan", too, and not "citiesandtowns" */
    const char *key;   /* the first 4 to 64 digits of a key */
    const char *model; /* likewise of a model */
    bool modules, texts; /* of these kinds; both or none: of any */
    bool expired;
    bool all;          /* select every record (required if no other field is set) */
} rp_cache_selection;

/* Of every record that is meant; selection NULL: all. *out: owned by the caller, rp_cache_listing_free, after which or before which the
 * cache may be closed. RP_ERR_INVALID (nothing is set; digits), RP_ERR_NAME (a name, key or model that no record has), RP_ERR_IO,
 * RP_ERR_MEMORY. */
RP_API int rp_cache_list(rp_cache *cache, const rp_cache_selection *selection, rp_cache_listing **out, rp_error *err);
RP_API void rp_cache_listing_free(rp_cache_listing *listing);

/* Removes the selected records, pinned or not. *removed (may be NULL): the removed ones, as rp_cache_list gives them.
 * Errors as there, and RP_ERR_CONFLICT (opened read-only). After RP_ERR_IO some are removed. */
RP_API int rp_cache_remove(rp_cache *cache, const rp_cache_selection *selection, rp_cache_listing **removed, rp_error *err);
/* Pins or unpins the selected modules. A pinned record is not evicted (as long as half of the budget can hold all
 * pinned ones), nor removed by rp_cache_gc. All or nothing. *changed: the selected records, as they are now. Errors as
 * above; RP_ERR_INVALID (texts only, which cannot be pinned). */
RP_API int rp_cache_pin(rp_cache *cache, const rp_cache_selection *selection, bool pinned, rp_cache_listing **changed, rp_error *err);

/* The folder as a whole. */
typedef struct rp_cache_stats {
    uint64_t records, record_bytes;
    uint64_t modules, module_bytes, texts, text_bytes; /* of them; of the others the kind is not known */
    uint64_t tokens;
    uint64_t encrypted, unreadable; /* records; unreadable: their headers, here */
    uint64_t pinned, pinned_bytes, expired, expired_bytes;
    uint64_t bad, bad_bytes;           /* files that were set aside because they could not be read */
    uint64_t leftovers, leftover_bytes; /* temporary files: a crash left them, or they are being written */
    uint64_t foreign, foreign_bytes;    /* files that are not the store's: they are left alone, and total_bytes has them not */
    uint64_t broken;        /* records whose headers are damaged: to be set aside */
    uint64_t without_row, without_file; /* records the index does not know; rows whose record is gone */
    uint64_t index_bytes;
    uint64_t total_bytes;   /* all in all, folders too: what rp_engine_options.store_budget_bytes limits */
    int64_t owner;          /* opened read-only: the process that has it open for writing, -1 if that is not known; 0: none */
} rp_cache_stats;
/* RP_ERR_IO, RP_ERR_MEMORY. */
RP_API int rp_cache_get_stats(rp_cache *cache, rp_cache_stats *out, rp_error *err);

/* What rp_cache_verify finds. */
typedef enum rp_cache_flaw {
    RP_CACHE_BAD_RECORD,   /* it cannot be read, or not all of it */
    RP_CACHE_BAD_ROW,      /* the index says something else than the record does */
    RP_CACHE_BAD_INDEX,    /* it is damaged, or there is none */
    RP_CACHE_WITHOUT_FILE, /* a row */
    RP_CACHE_WITHOUT_ROW,  /* a record */
    RP_CACHE_LEFTOVER,     /* a temporary file */
    RP_CACHE_OTHER_KV,     /* rp_cache_recompute: the model computes other bytes */
    RP_CACHE_OLD_ROW,      /* the index describes an earlier record of the same key: cost, label or place differ */
} rp_cache_flaw;
#define RP_N_CACHE_FLAWS 8

RP_API const char *rp_cache_flaw_name(rp_cache_flaw flaw); /* "record", "row", "index", "without_file", ...; static; NULL past the end */

/* Is it damage? Everything else is what a process that was killed leaves: the next one puts it right, or rp_cache_gc. */
RP_API bool rp_cache_flaw_is_damage(rp_cache_flaw flaw);

typedef struct rp_cache_finding {
    rp_cache_flaw flaw;
    const char *path;    /* borrowed during the call, as message is */
    const char *reason;  /* of a record: "truncated", "damaged", "cipher", "version", ... (docs/format.md); else "". Static */
    const char *message; /* one line */
} rp_cache_finding;

typedef void (*rp_on_cache_finding)(void *user, const rp_cache_finding *finding);

typedef struct rp_cache_verification {
    uint64_t records, bytes; /* read, the bad ones included */
    uint64_t flaws[RP_N_CACHE_FLAWS];
    bool is_whole;           /* false: an engine has the store open, so files and index were not compared */
} rp_cache_verification;

/* Reads every byte of every record and compares files and index; changes nothing. A record of another key or version counts as bad: it
 * could not be verified. on_progress (bytes) and on_finding may be NULL; both are called on the calling thread. Findings are no
 * error. RP_ERR_IO (the folder cannot be read), RP_ERR_MEMORY. */
RP_API int rp_cache_verify(rp_cache *cache, rp_on_progress on_progress, rp_on_cache_finding on_finding, void *user,
                           rp_cache_verification *out, rp_error *err);

typedef struct rp_cache_recompute_options {
    size_t sample;      /* records that are computed again, drawn from all that can be; 0: all of them */
    uint64_t seed;      /* of the draw */
    const char *tenant; /* whose texts; NULL: what is shared. Borrowed during the call */
} rp_cache_recompute_options;

typedef struct rp_cache_recomputed {
    uint64_t candidates;     /* records of the engine's model, KV format and arithmetic */
    uint64_t checked;        /* computed again and compared */
    uint64_t different;      /* of them; each was a finding (RP_CACHE_OTHER_KV) */
    uint64_t unreadable;     /* chosen, and damaged or in need of another key: rp_cache_verify says which */
    uint64_t unknown_module; /* modules of schemas that the engine does not have */
    uint64_t unknown_scope;  /* texts after modules: the store does not hold which modules their tokens attended to; other tenants' texts */
    uint64_t no_memory;      /* longer than the engine's context, or than its budget of KV */
} rp_cache_recomputed;

/* Computes records of a store again, and compares every byte of their KV: checksums say that a record is as it was written, this says that
 * the model would write it. A text is recomputed from its first token on; a module where the engine has its schema, prefilled
 * (rp_schema_prefill) before this call. Changes nothing.
 * engine        of the model, without a store, made after rp_model_fingerprint; nobody else uses it meanwhile
 * on_progress   (records), on_finding: may be NULL; called on the calling thread and on the engine's
 * RP_ERR_CONFLICT (the engine has a store, or its model's fingerprint was not known when it was made), RP_ERR_IO, RP_ERR_MEMORY. */
RP_API int rp_cache_recompute(rp_cache *cache, rp_engine *engine, const rp_cache_recompute_options *options, rp_on_progress on_progress,
                              rp_on_cache_finding on_finding, void *user, rp_cache_recomputed *out, rp_error *err);

/* What rp_cache_gc and rp_cache_rebuild did. */
typedef struct rp_cache_cleaning {
    uint64_t records, bytes;            /* that are there now */
    uint64_t leftovers, leftover_bytes; /* removed */
    uint64_t bad, bad_bytes;            /* removed; rebuild removes none */
    uint64_t expired, expired_bytes;    /* likewise */
    uint64_t set_aside;                 /* records whose headers are damaged; gc removes them with the other bad ones */
    uint64_t rows_entered, rows_removed;
    uint64_t rows_corrected;                  /* that said something else than their records; by rp_cache_gc */
    bool index_unwritten;                     /* the disk is full: the index has rows of what is gone until the store is next opened */
    uint64_t index_bytes_before, index_bytes; /* of the index */
} rp_cache_cleaning;

/* Removes leftovers, what was set aside, and expired records that are not pinned; enters records that the index does not know, removes rows
 * without a record, corrects rows that differ from their records, and makes the index small. On a full disk what can be removed is, without
 * the index if that cannot be changed. on_progress (records) may be NULL. RP_ERR_CONFLICT (opened read-only), RP_ERR_IO,
 * RP_ERR_MEMORY;
 * after an error some of it is done. */
RP_API int rp_cache_gc(rp_cache *cache, rp_on_progress on_progress, void *user, rp_cache_cleaning *out, rp_error *err);
/* Makes the index again from the records' headers. Of the old one are kept: uses, last use, expiry and pin of each record, and all of a
 * record's row whose header cannot be read here. The new index takes the old one's place as a whole or not at all. Errors as above. */
RP_API int rp_cache_rebuild(rp_cache *cache, rp_on_progress on_progress, void *user, rp_cache_cleaning *out, rp_error *err);

/* What rp_cache_export and rp_cache_import did. */
typedef struct rp_cache_shipment {
    char name[256];             /* the module's */
    uint64_t records, bytes;    /* in the bundle; of its file */
    uint64_t tokens;
    uint64_t present;           /* records that the store had already */
} rp_cache_shipment;

/* Writes the records whose label is `name` or below it to one file, a bundle, which appears whole or not at all; an older one is replaced.
 * A bundle is not encrypted, whatever the store is: it is there for others to read. Every byte is checked on the way.
 * on_progress (bytes) may be NULL. RP_ERR_NAME (there is no such module; of encrypted records it takes the key to know), RP_ERR_FORMAT (a
 * record is damaged), RP_ERR_LIMIT (65,536 records), RP_ERR_IO, RP_ERR_MEMORY. */
RP_API int rp_cache_export(rp_cache *cache, const char *name, const char *path, rp_on_progress on_progress, void *user,
                           rp_cache_shipment *out, rp_error *err);
/* Takes over the records of a bundle, encrypted if the cache has a key. The whole bundle is checked before anything is written; then each
 * record is there whole or not at all, and one that is there already stays. States are what the bundle's maker says they are: import
 * from whom you would take a model.
 * RP_ERR_FORMAT (no bundle, damaged, of another version), RP_ERR_LIMIT, RP_ERR_CONFLICT (opened read-only), RP_ERR_IO, RP_ERR_MEMORY. */
RP_API int rp_cache_import(rp_cache *cache, const char *path, rp_on_progress on_progress, void *user, rp_cache_shipment *out,
                           rp_error *err);

/* ---- What an engine keeps ----------------------------------------------------------------------------------------- */

/* The cached KV of all tenants in RAM and on disk, while the engine runs; operator use only. Neither texts nor tenants
 * are shown: entries have no `model`, `fault` and `encrypted`, and a module's label is "" if it came from disk
 * encrypted. Any thread except the engine's; each function waits for the end of a step, and blocks the next one while it
 * scans the cache. In selections `model` is NULL.
 *
 * Errors of all: RP_ERR_INVALID (nothing is set; digits; values), RP_ERR_NAME (a name or a key that nothing has), RP_ERR_MEMORY. */

#define RP_CACHE_MOST_LISTED 10000
#define RP_CACHE_MOST_TTL_S 3153600000 /* a hundred years */

typedef enum rp_cache_order {
    RP_CACHE_BY_KEY,   /* rising */
    RP_CACHE_BY_BYTES, /* falling */
} rp_cache_order;

/* Order and size of a listing. All zero: by key, up to the maximum. */
typedef struct rp_cache_page {
    rp_cache_order order;
    size_t limit;      /* up to RP_CACHE_MOST_LISTED; 0: that */
    const char *after; /* a whole key: what comes behind it, by key; NULL: from the first on. Borrowed during the call */
} rp_cache_page;

/* selection NULL: all; page NULL: all zero. *out: owned by the caller, rp_cache_listing_free. */
RP_API int rp_engine_cache_list(rp_engine *engine, const rp_cache_selection *selection, const rp_cache_page *page, rp_cache_listing **out,
                                rp_error *err);
/* Pins the modules that are meant, or takes pins away, as rp_cache_pin. A module that its schema pins is pinned again when it is used.
 * *changed (may be NULL), here and below: how many. RP_ERR_INVALID (texts alone, which cannot be pinned), RP_ERR_CONFLICT (the store on
 * disk was opened read-only). */
RP_API int rp_engine_cache_pin(rp_engine *engine, const rp_cache_selection *selection, bool pinned, size_t *changed, rp_error *err);
/* Sets the idle timeout of the selected entries, starting now; 0 clears it. A schema's `ttl` applies again when its
 * module is used. RP_ERR_CONFLICT as above. */
RP_API int rp_engine_cache_set_ttl(rp_engine *engine, const rp_cache_selection *selection, int64_t ttl_s, size_t *changed, rp_error *err);
/* Removes the selected entries from RAM and disk, pinned or not. Entries that jobs hold stay valid for them, no other
 * job can hit them, and they are freed when those jobs end. RP_ERR_CONFLICT as above. */
RP_API int rp_engine_cache_remove(rp_engine *engine, const rp_cache_selection *selection, size_t *removed, rp_error *err);

/* ---- The auditor ------------------------------------------------------------------------------------------------- */

/* How far reuse moved answers, as the auditor found it: one in rp_engine_options.audit_every requests with views that are not exact is computed
 * once more, in full, when the engine has nothing else to do, and the logits of its first token are compared. docs/quality.md says more. */

/* Statistics of audited requests. */
typedef struct rp_audit_figures {
    uint64_t samples;
    uint64_t agreed;         /* samples with the same most likely token */
    double mean_kl, max_kl;  /* KL(exact || reused) of the first token's probabilities, in nats */
    double mean_distance;    /* root mean square of the logits' differences, less their mean */
} rp_audit_figures;

typedef struct rp_audit_schema {
    const char *name;
    char owner[9];          /* 8 hexadecimal digits that stand for its tenant; "": it is shared */
    rp_audit_figures all;   /* since it has this text */
    rp_audit_figures now;   /* since it was moved up the dial last; `all`, if it was not */
    const char *raised_to;  /* "link:8", "blend:15", "exact"; "": it was not moved. Static */
    bool exceeds;           /* max_divergence, and was only reported */
} rp_audit_schema;

/* Modules that were imported together. */
typedef struct rp_audit_pair {
    size_t schema;             /* index into schemas */
    const char *first, *second; /* paths; the same twice: the module, whatever it stood beside */
    rp_audit_figures figures;
    double excess_kl;          /* mean_kl less that of the schema's samples without the pair: what it adds. 0: all had it */
} rp_audit_pair;

/* Audit results. The strings belong to the rp_audit. */
typedef struct rp_audit {
    uint64_t sampled; /* requests that were chosen */
    uint64_t audited; /* of them: compared; */
    uint64_t dropped; /* abandoned: too many were pending, or memory was needed */
    uint64_t waiting; /* pending */
    rp_audit_schema *schemas;
    size_t n_schemas;
    rp_audit_pair *pairs;
    size_t n_pairs;
} rp_audit;

/* Returns the audit results so far, totals over all tenants; operator use only. Any thread; does not wait.
 * *out: owned by the caller, rp_audit_free. RP_ERR_MEMORY. */
RP_API int rp_engine_audit(rp_engine *engine, rp_audit **out, rp_error *err);
/* What the last engine that audited with this store had found, as of the last time it wrote that down. NULL in *out, and no error: there is
 * nothing that can be read. *model (may be NULL): 65 bytes for its 64 digits, as in rp_cache_entry. RP_ERR_MEMORY. */
RP_API int rp_cache_audit(rp_cache *cache, rp_audit **out, char *model, rp_error *err);
RP_API void rp_audit_free(rp_audit *audit);

/* ---- Looking inside -------------------------------------------------------------------------------------------- */

/* A schema as a tree in document order, and what a prompt takes of it. */
typedef struct rp_inspect_node {
    const char *kind;    /* "schema", "module", "union", "param", "scaffold", "text", "system", "user", "assistant", "tool" */
    const char *name;    /* "" where it has none */
    const char *path;    /* "plan/miami" */
    int32_t depth;       /* 0: the schema */
    int32_t n_tokens;    /* of its own text; a union's: its longest member; a param's: its length */
    int32_t position;    /* canonical; of modules without own text: where they begin */
    char key[17];        /* of its last span; "" where it has none */
    bool taken;          /* by the prompt */
    bool cached;         /* cache="false" is not */
    const char *preview; /* the first characters of its text, white space shown as one space */
} rp_inspect_node;

/* A tile of the mosaic: tokens of the prompt that stand together. */
typedef struct rp_inspect_tile {
    const char *path;
    int32_t position, n_tokens;
    bool is_view;
    bool exact;
    int32_t shift;
} rp_inspect_tile;

typedef struct rp_inspection {
    const char *schema, *layout, *scope;
    rp_inspect_node *nodes;
    int32_t n_nodes;
    rp_inspect_tile *tiles; /* empty without a prompt */
    int32_t n_tiles;
    int32_t schema_positions; /* canonical positions that the schema takes */
    int32_t prompt_positions; /* positions that the prompt takes, gaps included */
    void *owner;              /* internal */
} rp_inspection;

/* Computes nothing but the layout and, with a prompt (PML document, may be NULL), its plan.
 * schema: a name; NULL: the prompt's. It is the one that a request of that tenant would get. Errors as rp_engine_run.
 * *out: rp_inspection_free. */
RP_API int rp_engine_inspect(rp_engine *engine, const char *tenant, const char *schema, const char *prompt, const char *prompt_name,
                             rp_inspection **out, rp_error *err);
RP_API void rp_inspection_free(rp_inspection *inspection);

/* ---- What could be better in a schema -------------------------------------------------------------------------- */

typedef enum rp_lint_severity {
    RP_LINT_ERROR,   /* does not work */
    RP_LINT_WARNING, /* probably unintended */
    RP_LINT_NOTE,    /* works, but may cost time, memory or answer quality */
} rp_lint_severity;
#define RP_N_LINT_SEVERITIES 3

/* What rp_schema_lint finds: X(NAME, name, severity). docs/lint.md says of each why, and what to do. */
#define RP_LINTS(X) \
    X(PROMPT, "prompt", ERROR)             /* a prompt that the schema cannot take */ \
    X(ARGUMENT, "argument", ERROR)         /* arguments longer than their parameter's len */ \
    X(CONTEXT, "context", ERROR)           /* positions beyond the context */ \
    X(GLUED, "glued", WARNING)             /* words run together where a text, a module or a parameter ends */ \
    X(BORDER, "border", WARNING)           /* a border cuts what would be one token */ \
    X(INDENT, "indent", WARNING)           /* the document's indentation is part of the texts */ \
    X(REFERENCE, "reference", WARNING)     /* "the above", which the module has not seen */ \
    X(EMPTY, "empty", WARNING)             /* a module without text */ \
    X(SMALL, "small", NOTE)                /* a module too small to pay */ \
    X(TOGETHER, "together", NOTE)          /* modules that are one text */ \
    X(ALWAYS, "always", NOTE)              /* a module that is never left out */ \
    X(UNION, "union", NOTE)                /* members so different in length that positions stay empty (fixed layout) */ \
    X(NAME, "name", NOTE)                  /* a name that another module introduces */ \
    X(HOLE, "hole", NOTE)                  /* a parameter longer than its arguments */ \
    X(BEHIND, "behind", NOTE)              /* much text that has seen a placeholder in the argument's place */ \
    X(BEGINNING, "beginning", NOTE)        /* modules with no text before them */ \
    X(SCOPE, "scope", NOTE)                /* scope="module" where there is more to see */ \
    X(CROWDED, "crowded", NOTE)            /* no prompt can take all of it */

typedef enum rp_lint_code {
#define X(id, name, severity) RP_LINT_##id,
    RP_LINTS(X)
#undef X
    RP_N_LINTS
} rp_lint_code;

RP_API const char *rp_lint_name(rp_lint_code code); /* "small"; static; NULL past the end */
RP_API const char *rp_lint_severity_name(rp_lint_severity severity); /* "error"; static */

/* A prompt that the schema is used with. Borrowed during the call. */
typedef struct rp_lint_prompt {
    const char *pml; /* n bytes of a PML prompt document */
    size_t n;
    const char *name; /* how findings call it */
} rp_lint_prompt;

typedef struct rp_lint_finding {
    rp_lint_code code;
    rp_lint_severity severity;
    const char *document;  /* the schema's name or the prompt's */
    int32_t line, column;  /* in it, from 1 */
    const char *module;    /* path; "" for what is no module's */
    const char *message;   /* one line: what, with numbers, and what to do */
} rp_lint_finding;

#define RP_LINT_MAX_FINDINGS 10000

typedef struct rp_lint {
    rp_lint_finding *findings; /* the schema's by line, then the prompts' */
    size_t n_findings;
    size_t n_left_out;         /* beyond RP_LINT_MAX_FINDINGS */
    size_t n_severity[RP_N_LINT_SEVERITIES];
    size_t n_prompts, n_others; /* prompts over this schema that it can take; prompts over other schemas, which were not looked at */
    void *owner;               /* internal */
} rp_lint;

/* Checks a schema in the layout of this model; computes nothing. pml, n, name, dir: as rp_schema_parse. prompts:
 * n_prompts prompts over the schema, or NULL: their imports and arguments allow more checks. n_ctx: context length of a
 * prompt and its answer; 0: as in training.
 * Findings are not errors. *out: owned by the caller, rp_lint_free. Errors of rp_schema_parse; RP_ERR_MEMORY. */
RP_API int rp_schema_lint(const rp_model *model, const char *pml, size_t n, const char *name, const char *dir, const rp_lint_prompt *prompts,
                          size_t n_prompts, int32_t n_ctx, rp_lint **out, rp_error *err);
/* The same of a schema file, with its own directory for `src`. RP_ERR_IO. */
RP_API int rp_schema_lint_file(const rp_model *model, const char *path, const rp_lint_prompt *prompts, size_t n_prompts, int32_t n_ctx,
                               rp_lint **out, rp_error *err);
RP_API void rp_lint_free(rp_lint *lint);

/* ---- Schemas out of prompts ------------------------------------------------------------------------------------ */

#define RP_MAX_SPLIT_PROMPTS 65536
#define RP_MAX_SPLIT_BYTES ((size_t)16 << 20) /* of all texts together */

/* A prompt as an application sends it: a text without a role, or a conversation. */
typedef struct rp_split_prompt {
    const char *name;           /* how errors call it: "prompts.jsonl:3" */
    const rp_message *messages; /* n_messages of them; of a text without a role there is one, whose role does not matter */
    size_t n_messages;
    bool plain;                 /* a text without a role */
} rp_split_prompt;

typedef struct rp_split_options {
    const char *name;      /* the schema's, an XML name; NULL: "proposed" */
    const rp_model *model; /* counts tokens; NULL: figures are bytes, and lengths of parameters are estimates. Borrowed during the call */
    int32_t min_bytes;     /* of a module's own text, 1 to 65536: shorter ones do not pay. Default 64 */
} rp_split_options;

RP_API rp_split_options rp_split_options_defaults(void);

/* A part that several prompts share. */
typedef struct rp_split_module {
    const char *name;
    bool is_alternative;  /* a member of a union */
    int32_t n_params;
    int32_t n_prompts;    /* that import it */
    size_t n_bytes;       /* of its own text, without arguments */
} rp_split_module;

/* What became of one prompt. Figures are tokens where there is a model, else bytes. */
typedef struct rp_split_import {
    const char *pml;      /* the prompt as a PML document */
    size_t n_pml;
    uint64_t total;       /* the whole prompt */
    uint64_t cached;      /* of it, what the schema's states give */
    uint64_t first;       /* of these, what no earlier prompt had used: in this order it is computed here */
    uint64_t prefix;      /* what a cache of prefixes finds, in this order: the longest beginning that an earlier prompt shares */
} rp_split_import;

typedef struct rp_split_result {
    const char *schema;   /* a PML document */
    size_t n_schema;
    size_t anonymous_bytes; /* of the text that all prompts begin with, which the schema holds outside of modules */
    rp_split_module *modules;
    size_t n_modules;
    rp_split_import *prompts; /* in the order given */
    size_t n_prompts;
    bool counts_tokens;   /* there was a model */
    void *owner;          /* internal */
} rp_split_result;

/* Proposes a schema for prompts, and what each of them becomes: text that all begin with is the schema's own; passages that two or more
 * share, in any order, are modules; what varies within a passage becomes parameters, and alternatives in one place unions; the rest stays
 * in the prompts. Each prompt over the schema gives the text that it was made from, byte for byte. docs/split.md says how.
 * options NULL: the defaults. *out: rp_split_free.
 * RP_ERR_INVALID (no prompt, min_bytes, name), RP_ERR_SYNTAX (a text that XML cannot hold: no UTF-8, control characters; the message says
 * which), RP_ERR_UNSUPPORTED (the model's positions cannot move), RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_split(const rp_split_prompt *prompts, size_t n, const rp_split_options *options, rp_split_result **out, rp_error *err);
RP_API void rp_split_free(rp_split_result *result);

#ifdef __cplusplus
}
#endif
#endif
