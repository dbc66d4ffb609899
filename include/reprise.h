/* SPDX-License-Identifier: Apache-2.0 */
/* reprise.h: the public interface of Reprise, an LLM inference library that never prefills the same text twice.
 *
 *   rp_model    an immutable model: weights (mapped), vocabulary, chat format. Any number of engines may share it.
 *   rp_engine   runs prompts with one model. Owns threads, the store (KV cache, the attention states of the paper)
 *               and schemas.
 *   rp_schema   a PML document of reusable prompt modules, loaded into an engine and named by its `name`.
 *   rp_builder  builds a prompt part by part, for user input: its text is never parsed.
 *   rp_prompt   what a request runs: text, tokens, a conversation, a PML document, or a prompt built part by part.
 *   rp_result   a request's output: text, token counts, timings, and the plan, which lists the reused KV.
 *
 *   reprise.h           models, engines, requests, jobs, results; it includes reprise_error.h, reprise_quality.h,
 *                       reprise_sampling.h and reprise_report.h; the log is in reprise_error.h
 *   reprise_pml.h       schemas, and prompts built part by part
 *   reprise_chat.h      conversations with tools, reasoning and forms of answers; chat templates; infill
 *   reprise_adapter.h   LoRA adapters
 *   reprise_embedding.h embeddings of many texts
 *   reprise_store.h     the entries of a store, and its totals
 *   reprise_cluster.h   several machines
 *   reprise_server.h    the HTTP server
 *   reprise_tools.h     quantization, lint and other instruments
 *   reprise_test.h      mock models, and settings of tests and measurements
 *
 * A whole program, with reprise_pml.h for its schema:
 *
 *   rp_error err;
 *   rp_model *model = NULL;
 *   rp_engine *engine = NULL;
 *   rp_result *result = NULL;
 *   rp_request req = rp_request_defaults();
 *   req.prompt = rp_prompt_pml("<prompt schema='cities'><plan duration='3 days'><miami/></plan> Surf spots?</prompt>");
 *   if (rp_model_open(&model, "model.gguf", NULL, &err) || rp_engine_new(&engine, model, NULL, &err) ||
 *       rp_schema_load(engine, "cities.xml", NULL, NULL, &err) || rp_engine_run(engine, &req, &result, &err))
 *       fprintf(stderr, "%s\n", err.message);
 *   else
 *       puts(result->text);
 *   rp_result_free(result); rp_engine_free(engine); rp_model_close(model);
 *
 * Errors. Functions that can fail return 0 or a negative rp_code and fill in an rp_error. Strings are UTF-8 and
 * NUL-terminated. The library never exits, and prints only if the environment variables REPRISE_LOG and REPRISE_TRACE
 * or rp_log_set_level request it.
 *
 * NULL. `err` and every argument of a free or close function may be NULL. Any other pointer may be NULL only if its
 * comment allows it; a function that returns a code then returns RP_ERR_INVALID, and any other function must not be
 * called that way.
 *
 * Growth. Structs of options and of reports begin with struct_size, the size that the program was compiled with, so
 * that later versions can append fields. A program initialises options with their function ("rp_request_defaults()")
 * and reports, which a function fills in, with their size ("rp_model_info info = {.struct_size = sizeof info}"); the
 * library sets it in structs that it allocates. Fields that one side does not know have their default: a program that
 * sets a field that the library lacks gets RP_ERR_UNSUPPORTED. Structs without struct_size do not grow; `reserved`
 * fields are 0. Functions named _init are for other languages: they set the defaults in a struct of struct_size
 * bytes.
 *
 * Threads. Models and engines are thread-safe. An engine computes on a thread of its own and calls callbacks there.
 */
#ifndef REPRISE_H
#define REPRISE_H

#include <string.h>

#include "reprise_error.h"
#include "reprise_quality.h"
#include "reprise_report.h"
#include "reprise_sampling.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RP_VERSION_MAJOR 0
#define RP_VERSION_MINOR 3
#define RP_VERSION_PATCH 0
#define RP_VERSION_STRING "0.3.0"

RP_API const char *rp_version(void); /* RP_VERSION_STRING of the library; static */

/* ---- Models ---------------------------------------------------------------------------------------------------- */

typedef struct rp_model rp_model;

typedef struct rp_model_options {
    uint32_t struct_size;
    const char *chat_format; /* a name from rp_chat_format_name; NULL: from the model's metadata and template */
    bool vocabulary_only;    /* load the tokenizer only: the file needs no weights and may have any architecture.
                                rp_schema_lint, rp_split and engines without plans_only refuse this model with
                                RP_ERR_UNSUPPORTED. Where the file has weights, they are not read. Default false */
} rp_model_options;

RP_API void rp_model_options_init(rp_model_options *options, uint32_t struct_size);
static inline rp_model_options rp_model_options_defaults(void) {
    rp_model_options o;
    rp_model_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

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
    uint32_t struct_size;
    const char *name;         /* general.name, or "" */
    const char *architecture; /* "llama" */
    const char *weights;      /* the type of most weights: "Q8_0" */
    const char *chat_format;  /* "chatml" */
    bool chat_format_guessed; /* the model has a chat template, but not a known one */
    uint64_t parameters;
    uint64_t weight_bytes;
    int32_t n_layers, n_heads, n_kv_heads, head_dim, n_embd, n_ff, n_vocab;
    int32_t n_ctx_train;   /* context length in training, in positions */
    const char *positions; /* "rotary", "ALiBi", "learned" or "none"; static */
    bool movable;          /* the KV can be shifted to other positions, so modules can be packed */
    int32_t window;        /* sliding window in tokens, the token itself included; 0: no layer has one */
    int32_t n_window_layers;
    int32_t n_experts, n_experts_used; /* 0: no mixture of experts */
    uint64_t kv_bytes_per_token;       /* KV bytes per token in f16 */
    const char *fingerprint;           /* 64 hexadecimal digits; "" until an engine with a store, or
                                          rp_model_fingerprint, has computed it */
    const char *chat_template;         /* tokenizer.chat_template: the Jinja text in the model's file; NULL: none */
    bool is_encoder;                   /* a token attends to the whole text: it computes embeddings, and no text */
    const char *pooling;               /* what RP_POOLING_MODEL means: "mean", "cls", "last" or "rank"; static */
    int32_t n_scores;                  /* outputs of its rank head; 0: it has none */
    bool infills;                      /* it has fill-in-the-middle tokens (rp_tokenize_infill) */
    int32_t n_recurrent_layers;        /* they have a state in place of KV (docs/models.md); */
    uint64_t state_bytes;              /* of all of them: of one checkpoint */
    bool states_compose;               /* RP_MODULE_STATES_COMPOSED is supported */
} rp_model_info;

/* RP_ERR_INVALID (struct_size is not set). */
RP_API int rp_model_describe(const rp_model *model, rp_model_info *out);

/* Computes the model's fingerprint: BLAKE2b of all bytes of its files and of its chat format. It is part of the keys
 * of a store. Reads all weights, unless the fingerprint is known already. Any thread.
 * n_threads    0: one per processor
 * on_progress  (bytes) may be NULL; called on the calling thread
 * *out         64 hexadecimal digits; belongs to the model
 * RP_ERR_IO (a file was changed in place since the model was opened), RP_ERR_MEMORY. */
RP_API int rp_model_fingerprint(rp_model *model, int32_t n_threads, rp_on_progress on_progress, void *user,
                                const char **out, rp_error *err);

/* A LoRA adapter (reprise_adapter.h). */
typedef struct rp_adapter rp_adapter;

/* The name of the i-th chat format, NULL past the end. Static. */
RP_API const char *rp_chat_format_name(int i);

/* ---- Messages --------------------------------------------------------------------------------------------------- */

/* Who says a message. */
typedef enum rp_role { RP_ROLE_SYSTEM,
                       RP_ROLE_USER,
                       RP_ROLE_ASSISTANT,
                       RP_ROLE_TOOL } rp_role;
#define RP_N_ROLES 4
#define RP_MAX_MESSAGES 65536
/* "system", "user", "assistant", "tool"; NULL for another value. Static. */
RP_API const char *rp_role_name(rp_role role);
/* false: no role has this name (NULL: none has); *out is as it was. */
RP_API bool rp_role_parse(const char *name, rp_role *out);

/* A message of a conversation. */
typedef struct rp_message {
    rp_role role;
    const char *text; /* n bytes of UTF-8, never parsed for control tokens */
    size_t n;
} rp_message;

/* A chat template (reprise_chat.h). */
typedef struct rp_template rp_template;
/* A conversation as a chat template rendered it: its text, and a message in that text (reprise_chat.h). */
typedef struct rp_template_text rp_template_text;
typedef struct rp_rendered_turn rp_rendered_turn;

/* ---- Tokens ---- */

/* Converts text to token ids. text: n bytes of UTF-8 (invalid bytes are encoded as bytes if the vocabulary can).
 * parse_special: control tokens written in the text ("<|im_end|>") become tokens; only for trusted text.
 * add_bos: put the beginning-of-text token first, if the model wants one.
 * *tokens: owned by the caller, rp_free. RP_ERR_MEMORY, RP_ERR_LIMIT. */
RP_API int rp_tokenize(const rp_model *model, const char *text, size_t n, bool parse_special, bool add_bos,
                       int32_t **tokens, size_t *n_tokens, rp_error *err);
/* Converts text to the token ids that its embedding is computed from: with the special tokens before and after it
 * that the model wants (BERT: [CLS] text [SEP]). Text is never parsed for control tokens.
 * second      n_second bytes, for rank: a document after the query `text`, with the model's separator; NULL: none.
 * max_tokens  > 0: the end of the second text, or of the only one, is cut so that there are at most so many tokens.
 * 0: no limit *tokens: owned by the caller, rp_free; NULL if there are none. RP_ERR_LENGTH (the query alone exceeds
 * max_tokens), RP_ERR_MEMORY, RP_ERR_LIMIT. */
RP_API int rp_tokenize_embedding(const rp_model *model, const char *text, size_t n, const char *second,
                                 size_t n_second, size_t max_tokens, int32_t **tokens, size_t *n_tokens, rp_error *err);
/* Converts messages as RP_PROMPT_MESSAGES does: the beginning-of-text token (if the model wants one), each message in
 * the model's chat format, and the generation prompt. continues: the last message is the beginning of the answer and
 * is not closed.
 * *tokens: owned by the caller, rp_free. RP_ERR_INVALID (no message, unknown role), RP_ERR_MEMORY, RP_ERR_LIMIT. */
RP_API int rp_tokenize_messages(const rp_model *model, const rp_message *messages, size_t n, bool continues,
                                int32_t **tokens, size_t *n_tokens, rp_error *err);

/* Returns the bytes of a token (not always whole UTF-8 characters). special: control tokens return their name, else
 * nothing. Belongs to the model. NULL for an id outside the vocabulary. */
RP_API const char *rp_token_bytes(const rp_model *model, int32_t token, bool special, size_t *n_bytes);
RP_API void rp_free(void *p); /* frees memory that the library allocated for the caller */

/* ---- Engines --------------------------------------------------------------------------------------------------- */

typedef struct rp_engine rp_engine;

/* When new spans are written to disk. */
typedef enum rp_store_write {
    RP_STORE_WRITE_BACK = 0, /* soon, in parallel with computation */
    RP_STORE_WRITE_THROUGH,  /* before the job that computed them ends */
    RP_STORE_WRITE_OFF,      /* never: records on disk are only read */
} rp_store_write;

/* Modules of a model with recurrent layers (docs/models.md): from which states these layers continue after one. */
typedef enum rp_module_states {
    RP_MODULE_STATES_EXACT = 0, /* those of the whole prompt: modules are text, reused as a prefix only */
    RP_MODULE_STATES_LAST,      /* those that its own prefill ended with: what was before it is forgotten */
    RP_MODULE_STATES_COMPOSED,  /* those, and what its tokens leave of the states before it: Mamba2 alone */
} rp_module_states;

/* Of a cluster (reprise_cluster.h), and of tests (reprise_test.h). */
typedef struct rp_cluster_options rp_cluster_options;
typedef struct rp_engine_experiment rp_engine_experiment;
typedef struct rp_engine_options {
    uint32_t struct_size;

    /* Memory and threads. */
    int32_t n_threads;        /* 0: one per processor */
    int32_t n_ctx;            /* context length: positions of a prompt and its answer; 0: as in training */
    uint64_t ram_bytes;       /* hard limit on the memory of a program with this engine: weights, used pages of
                                 the file, activations, tables and KV. KV gets what the others leave. 0: none */
    uint64_t kv_budget_bytes; /* hard limit on KV in RAM; 0: derived from ram_bytes, or 2 GiB */
    uint64_t kv_min_bytes;    /* RP_ERR_BUDGET if ram_bytes leaves less for KV; 0: 1 MiB */

    /* Steps and the queue. */
    int32_t chunk_tokens;  /* maximum prompt tokens per step, 1 to 4096; 0: 256. Does not affect results */
    int32_t max_sequences; /* maximum running jobs, 1 to 256; 0: 16 */
    int32_t max_queue;     /* maximum queued jobs, 1 to 65536; 0: 256. Further ones get RP_ERR_BUSY */
    float token_goal_ms;   /* target inter-token latency: while answers are decoded, a step takes only as many prompt
                              rows as keep it within this; INFINITY: chunk_tokens. 0: 1.75 times its time without */
    rp_on_step on_step;    /* may be NULL */
    void *step_user;

    /* Form of KV. */
    rp_kv_format kv_format;    /* RP_KV_F16; f32 is for tests. A schema's kv="..." overrides it for modules */
    const char *kv_f16_layers; /* layers whose KV stays in f16 while kv_format, or a module's, has less than 16 bits:
                                  "0,1,27", "0-2", and "windows" for all with a sliding window. NULL: none.
                                  RP_ERR_INVALID: with RP_KV_F16 or RP_KV_F32. Borrowed until rp_engine_new returns */
    const char *keep_share;    /* "25%" or "auto": reduced KV of modules: each keeps this share of its slots, those that
                                  its tokens need most, chosen by layer and head; computed in the background after the
                                  full KV, and used from then on (docs/quality.md). A schema's or module's keep="..."
                                  overrides it; "100%": none. NULL: none. Borrowed until rp_engine_new returns */
    const char *keep_method;   /* that chooses the slots: kvzip, kvzip+, expected, compactor. NULL: kvzip. Borrowed */
    const char *kv_keep;       /* rp_request.kv_keep of requests that name none; it yields to quality focus, and where
                                  the KV budget cannot hold it (rp_kv_reduction.reason). NULL, "off": none. Borrowed */
    const char *kv_method;     /* rp_request.kv_method of requests that name none; needs kv_keep. NULL: snapkv */

    /* The disk tier. */
    const char *store_dir;       /* the store's folder: KV in it outlives the engine. Created if missing. A folder that
                                    is neither empty nor a store is refused (RP_ERR_FORMAT). NULL: RAM only */
    uint64_t store_budget_bytes; /* hard limit on the folder's total size on disk; 0: 16 GiB */
    const char *store_key_file;  /* encryption key of the records: 32 bytes, or 64 hexadecimal digits; records of
                                    another key are misses. NULL: the 64 digits in REPRISE_STORE_KEY, if set; else
                                    no encryption */
    rp_store_write store_write;
    bool store_read_only; /* never write to the folder, so another process may use it too; nor to weights_dir */

    /* Repacked weights. */
    const char *weights_dir;       /* folder for repacked weights, created if missing: from the second start on they are
                                      mapped instead of repacked (docs/decisions/0031). NULL: repack at each start */
    uint64_t weights_budget_bytes; /* limit on the files in weights_dir, by which the least recently used ones are
                                      removed; a model with more gets no file. 0: 8 GiB */
    uint64_t weights_min_bytes;    /* models with fewer bytes of repacked weights get no file; 0: 64 MiB */

    /* Background work. */
    uint64_t scaffold_bytes; /* limit on KV of learned scaffolds (RP_QUALITY_SCAFFOLD); 0: a quarter of the KV */
    int32_t audit_every;     /* when idle, recompute one in N requests with modules or small KV, and compare; 0: none */
    float max_divergence;    /* report a schema or format with a larger mean divergence of audits, in nats; 0: never */
    bool audit_raises;       /* also raise the default quality of its requests by one level (full KV of modules with
                                keep, link:8, blend:15, exact); replace that format by f16 */

    /* Others. */
    const rp_cluster_options *cluster;      /* an engine of a cluster, or one that only plans
                                               (reprise_cluster.h). NULL: neither */
    const rp_engine_experiment *experiment; /* for measurements (reprise_test.h). NULL: none */

    /* Speculative decoding by a draft model, besides prompt lookup (rp_request.n_draft): a smaller model with the same
     * vocabulary, borrowed until rp_engine_free. RP_ERR_INVALID: other tokens; RP_ERR_UNSUPPORTED: encoders, recurrent
     * layers. draft_kv_bytes: of kv_budget_bytes, for its KV; 0: what max_sequences need, at most an eighth. */
    rp_model *draft_model;
    uint64_t draft_kv_bytes;

    rp_module_states module_states;         /* no effect without recurrent layers. Approximate, but for the first
                                       (docs/quality.md). RP_ERR_UNSUPPORTED: composed, with others than Mamba2 */
    const struct rp_device_options *device; /* processor or GPU (reprise_device.h); NULL: auto */
} rp_engine_options;

RP_API void rp_engine_options_init(rp_engine_options *options, uint32_t struct_size);
static inline rp_engine_options rp_engine_options_defaults(void) {
    rp_engine_options o;
    rp_engine_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

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
    uint32_t struct_size;
    int32_t n_threads, n_ctx, chunk_tokens, max_sequences, max_queue; /* as rp_engine_options; none is 0 */
    rp_kv_format kv_format;
    bool prepared;               /* weights are repacked: by rp_engine_prepare or a first request */
    int32_t running, waiting;    /* running jobs, as of the last step; other jobs that have not ended */
    int32_t background;          /* pending background tasks */
    uint64_t kv_bytes_per_token; /* in kv_format, and in f16 for kv_f16_layers */
    const char *weights_cache;   /* what weights_dir gave at preparation: "mapped", "written", "off" (no weights_dir, or
                                    nothing to repack), or why weights were repacked and not kept: "small", "budget"
                                    (larger than weights_budget_bytes), "space" (less than twice that is free on the
                                    disk), "busy" (another process writes the file), "read_only", "changed" (the model's
                                    file), "io". "": not prepared. Static */
} rp_engine_info;
/* RP_ERR_INVALID (struct_size is not set). */
RP_API int rp_engine_describe(rp_engine *engine, rp_engine_info *out);

/* Repacks the weights for this machine's kernels, which takes about a second per GB, or maps them from weights_dir.
 * Otherwise the first request does it. on_progress is not called if nothing takes time; the total may change between
 * calls. RP_ERR_MEMORY. */
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
    uint32_t struct_size;
    uint64_t weights;      /* the engine's repacked copy of the weights; 0: mapped files are used directly */
    uint64_t file;         /* mapped files: what a prepared engine reads of them, as far as used */
    uint64_t activations;  /* of one step, attention scores included */
    uint64_t token_trie;   /* the vocabulary's trie for grammars, from the first request with a grammar on; special_text
                              has one of its own */
    uint64_t kv;           /* KV allocated so far */
    uint64_t kv_limit;     /* rp_engine_options.kv_budget_bytes, in whole blocks */
    uint64_t weights_file; /* of `file`: repacked weights that are mapped from weights_dir; then `weights` is 0 */
    uint64_t most;         /* what a program with this engine takes at most, as ram_bytes counts it: with kv_limit
                              for KV */
} rp_memory;
/* RP_ERR_INVALID (struct_size is not set). */
RP_API int rp_engine_memory(rp_engine *engine, rp_memory *out);

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

/* ---- Prompts --------------------------------------------------------------------------------------------------- */

/* A prompt built part by part (reprise_pml.h). */
typedef struct rp_builder rp_builder;

typedef enum rp_prompt_kind {
    RP_PROMPT_NONE = 0,
    RP_PROMPT_TEXT,     /* const char *, n bytes: plain text, after the beginning-of-text token; "" starts from
                           that token alone. With pooling: the text to embed (rp_tokenize_embedding) */
    RP_PROMPT_TOKENS,   /* const int32_t *, n ids, with no token added before them */
    RP_PROMPT_MESSAGES, /* const rp_message *, n of them, up to RP_MAX_MESSAGES: a conversation in the model's chat
                           format (rp_tokenize_messages) */
    RP_PROMPT_RENDERED, /* const rp_template_text *: a conversation that a chat template rendered (rp_model_render) */
    RP_PROMPT_PML,      /* const char *, n bytes: a PML prompt document, which the application wrote (docs/pml.md) */
    RP_PROMPT_BUILT,    /* const rp_builder *: modules, documents, texts and messages */
} rp_prompt_kind;

/* What a request runs: made by one of the functions below, and borrowed until the request is submitted.
 *
 * With reuse on, an assistant message of MESSAGES and RENDERED that is an answer of this engine (on_meaning), after the
 * same tokens and for the same tenant, becomes the tokens that were sampled, as long as they are remembered
 * (docs/scheduling.md). */
typedef struct rp_prompt {
    rp_prompt_kind kind;
    bool continues_last; /* MESSAGES, PML, BUILT: continue the last message as if the model had written it */
    const void *content; /* of the type that the kind names */
    size_t n;
    const rp_rendered_turn *turns; /* RENDERED: its n_turns messages, in order: for reports, and system messages that
                                      context_shift keeps. NULL: none */
    size_t n_turns;
    const char *name;     /* PML, BUILT: of the document, in errors; NULL: "prompt" */
    const char *schema;   /* PML, BUILT: PML of a schema for this request only, instead of a loaded one. Its
                             modules are the tenant's, and are shared by all requests of the tenant with schemas
                             that have the same modules; `src` is refused. NULL: none */
    uint64_t reserved[2]; /* 0 */
} rp_prompt;

static inline rp_prompt rp_prompt_of(rp_prompt_kind kind, const void *content, size_t n) {
    rp_prompt p = {kind, false, content, n, NULL, 0, NULL, NULL, {0, 0}};
    return p;
}
static inline rp_prompt rp_prompt_text(const char *text) {
    return rp_prompt_of(RP_PROMPT_TEXT, text, text ? strlen(text) : 0);
}
static inline rp_prompt rp_prompt_pml(const char *pml) {
    return rp_prompt_of(RP_PROMPT_PML, pml, pml ? strlen(pml) : 0);
}
static inline rp_prompt rp_prompt_built(const rp_builder *builder) { return rp_prompt_of(RP_PROMPT_BUILT, builder, 1); }
static inline rp_prompt rp_prompt_tokens(const int32_t *tokens, size_t n) {
    return rp_prompt_of(RP_PROMPT_TOKENS, tokens, n);
}
static inline rp_prompt rp_prompt_messages(const rp_message *messages, size_t n) {
    return rp_prompt_of(RP_PROMPT_MESSAGES, messages, n);
}
/* of: its n messages; NULL: not known. */
static inline rp_prompt rp_prompt_rendered(const rp_template_text *text, const rp_rendered_turn *of, size_t n) {
    rp_prompt p = rp_prompt_of(RP_PROMPT_RENDERED, text, 1);
    p.turns = of;
    p.n_turns = n;
    return p;
}

/* ---- Requests -------------------------------------------------------------------------------------------------- */

#define RP_MAX_STOPS 64
#define RP_MAX_STOP_BYTES 1024
#define RP_MAX_GRAMMAR_BYTES ((size_t)256 << 10)
#define RP_MAX_TRIGGER_BYTES 1024
#define RP_MAX_LOGPROBS 100
#define RP_MAX_DRAFT 15
#define RP_DRAFT_AUTO (-1)
#define RP_MAX_SESSION_BYTES 1024

/* Cache lookup has two ways: modules by name (modular reuse), and all other text by its longest cached prefix: the
 * longest beginning of the prompt (after the same modules) that an earlier prompt or answer had, token-exact. Both give
 * the bytes that computing would have given. */
typedef enum rp_reuse {
    RP_REUSE_ON = 0,    /* compose the prompt from cached KV; compute and cache what is missing */
    RP_REUSE_OFF = 1,   /* the same plan (same masks, same positions), but every lookup misses; nothing is cached */
    RP_REUSE_EXACT = 2, /* RP_REUSE_ON with RP_QUALITY_EXACT: ignore scopes: the same tokens at the same positions, each
                           attending to everything before it; lookup by longest cached prefix only */
    RP_REUSE_AUTO = 3,  /* RP_REUSE_ON, and chunks of the prompt that were computed before at other places are
                           reused there, too ("automatic modules", docs/scheduling.md). Approximate:
                           rp_plan_item.exact says where, rp_result.inexact_tokens how many. Prompts with modules,
                           and requests that automatic modules do not support, run as with RP_REUSE_ON */
} rp_reuse;

/* ---- Callbacks --------------------------------------------------------------------------------------------------
 *
 * They are called on the engine's thread and block all its jobs: copy the data and return. They may submit and cancel,
 * and must not wait, run, free or load. */

/* Called for each piece of the answer, in whole UTF-8 characters (n bytes, also NUL-terminated). Text that may begin a
 * stop string is held back until that is decided or the answer ends. Return false to stop. */
typedef bool (*rp_on_text)(void *user, const char *text, size_t n);
/* Called before each generated token with the logits it is sampled from (n_vocab floats, borrowed). */
typedef void (*rp_on_logits)(void *user, const float *logits, int32_t n_vocab);
#define RP_CHOOSE_SAMPLED (-1)
/* Chooses each token instead of the sampler, from the same logits. Returns its id, or RP_CHOOSE_SAMPLED: the sampler's.
 * Another value, or a token that the grammar excludes, ends the job with RP_ERR_INVALID. The engine's steps wait. */
typedef int32_t (*rp_on_choose)(void *user, const float *logits, int32_t n_vocab);
/* A generated token. `top` is borrowed during the callback; without n_logprobs, logprob is 0 and top NULL. */
typedef struct rp_token {
    uint32_t struct_size;
    int32_t id;
    float logprob;
    const rp_token_logprob *top; /* the n_top most likely tokens at this position, most likely first */
    int32_t n_top;
} rp_token;

/* Called for each generated token, before the text that it adds, if any. Return false to stop and omit that text. */
typedef bool (*rp_on_token)(void *user, const rp_token *token);
/* Whether a stop string that is complete ends the answer. */
typedef enum rp_stop_verdict {
    RP_STOP_COUNTS = 0, /* the answer ends before it */
    RP_STOP_IS_TEXT,    /* it is text like any other: the answer continues */
    RP_STOP_UNDECIDED,  /* ask again after the next character; meanwhile on_text gets nothing of it, and no other
                           stop string counts */
} rp_stop_verdict;
/* Called where a stop string is complete. text: the n bytes of the answer so far, borrowed; the stop string ends at
 * byte `end` of it, which is less than n only where an earlier call was undecided. Several that end together are
 * asked about from the longest to the shortest. */
typedef rp_stop_verdict (*rp_on_stop)(void *user, const char *stop, const char *text, size_t n, size_t end);
#define RP_MEANING_BYTES 32
/* What an answer says, however it is written: writes a digest that two texts share only if they say the same, as when
 * the arguments of a tool call have their keys in another order. text: n bytes, borrowed, the answer after `opening`,
 * the generation prompt. Called while the request is planned, for answers in its prompt (submitting thread), and once
 * for its own, when that is complete (engine's thread). false: a text says what its bytes are. */
typedef bool (*rp_on_meaning)(void *user, const char *opening, const char *text, size_t n,
                              uint8_t meaning[RP_MEANING_BYTES]);
/* The last callback of a job, on success and on failure: rp_job_result in another thread returns shortly after it. */
typedef void (*rp_on_done)(void *user);

/* A queue of events of jobs ('Streams', below). */
typedef struct rp_stream rp_stream;

/* What a prompt's hidden states become: those of the last layer, after the model's final norm. Encoders
 * (rp_model_info.is_encoder) have states in which each token attends to the whole prompt. */
typedef enum rp_pooling {
    RP_POOLING_OFF = 0, /* nothing: the request is for an answer. Encoders refuse it with RP_ERR_UNSUPPORTED */
    RP_POOLING_MODEL,   /* as the model's file says (`pooling_type`), else mean for an encoder, and last for others */
    RP_POOLING_MEAN,    /* the mean over all tokens */
    RP_POOLING_CLS,     /* the state of the first token */
    RP_POOLING_LAST,    /* the state of the last token */
    RP_POOLING_RANK,    /* the scores of the model's rank head, for a pair of texts */
} rp_pooling;
#define RP_N_POOLINGS 6
/* "off", "model", "mean", "cls", "last", "rank"; NULL for another value. Static. */
RP_API const char *rp_pooling_name(rp_pooling pooling);
/* RP_ERR_INVALID; the message lists the names. */
RP_API int rp_pooling_parse(const char *name, rp_pooling *out, rp_error *err);

/* For tests and measurements (reprise_test.h). */
typedef struct rp_request_experiment rp_request_experiment;

typedef struct rp_request {
    uint32_t struct_size;
    rp_prompt prompt;

    /* Whose it is, and when it runs. */
    const char *tenant;  /* owner; NULL: the operator. Its own schemas take precedence over shared ones */
    const char *flow;    /* fair-queuing group: requests of one flow share the turns of one tenant, whatever
                            their tenants. NULL: the tenant's */
    int32_t priority;    /* queued requests of higher priority run first; default 0 */
    int64_t deadline_ms; /* from rp_engine_submit on. Orders a tenant's requests of equal priority, earliest
                            first. Without a first token by then, the job ends with RP_ERR_DEADLINE; a started
                            answer ends with the text so far. 0: none (default) */
    int32_t turn_tokens; /* while requests of this priority, or a higher one, wait for a place in the batch, the
                            answer gives its place up after so many tokens, keeps its KV, and goes on when its
                            turn comes: for answers that may be longer than anyone reads. 0: it keeps its place */

    /* The answer. */
    int32_t max_tokens;          /* default 128; the answer also ends at the end of the context, unless
                                    context_shift is set. 0: prefill only: the prompt is computed and cached, and
                                    nothing is sampled */
    bool ignore_eos;             /* generate max_tokens tokens, ignoring the end-of-text token */
    rp_sampling sampling;        /* default: rp_sampling_defaults */
    const char *const *stops;    /* n_stops strings; the answer ends where the first of them is complete. Whole
                                    UTF-8 characters, up to RP_MAX_STOP_BYTES. A stop string may span tokens or
                                    lie inside one; of several that end together the longest counts. NULL: none */
    int32_t n_stops;             /* up to RP_MAX_STOPS */
    rp_on_stop on_stop;          /* decides which stop strings count, for answers with reasoning or tool calls,
                                    where they are text; also called for `resumed`. NULL: all count (default) */
    const char *grammar;         /* GBNF grammar that the answer must match, from rule `root`
                                    (docs/scheduling.md). The answer may end only where the grammar does, and
                                    ends ("stop") where nothing else is possible; max_tokens truncates it. NULL:
                                    any text (default). Up to RP_MAX_GRAMMAR_BYTES */
    const char *grammar_trigger; /* apply the grammar only after this text first appears in the answer, even
                                    inside a token; up to RP_MAX_TRIGGER_BYTES. NULL: from the answer's first byte */
    bool special_text;           /* control tokens of the answer, except those that end it, are their name in its
                                    text ("[TOOL_CALLS]"), for stops and grammar, too: a grammar that has the
                                    name accepts the token. default: they have no text */
    int32_t n_draft;             /* speculative decoding by prompt lookup and rp_engine_options.draft_model: draft up
                                    to N tokens, verified in one step; the answer does not change. 0: off (default);
                                    up to RP_MAX_DRAFT; RP_DRAFT_AUTO: as many as are expected to save time, by the
                                    request's own acceptance. Models with recurrent layers: no effect */
    const int32_t *resumed;      /* n_resumed tokens of the answer that were sampled before, by this or another
                                    engine, with the same request: the answer continues after them, with the
                                    bytes that it would have had. They are computed like a prompt, and count as
                                    answer tokens; callbacks report them (rp_on_text, rp_on_token without
                                    log-probabilities) before the first new one. Of rp_result they are in tokens
                                    and text, not in prompt_tokens and cached_tokens; their time is
                                    prompt_prefill_ms, ttft_ms ends with the first new token, and their
                                    log-probabilities are NaN (top: {-1, NaN}). Nothing of shifted_reuse is used.
                                    Borrowed during submission. RP_ERR_INVALID (an id outside the vocabulary;
                                    tokens after the answer's end, or that the grammar, the end of text or
                                    max_tokens exclude), RP_ERR_CONFLICT (pooling, kv_keep, focus, context_shift
                                    if the answer may exceed the context), RP_ERR_CONTEXT, RP_ERR_BUDGET. NULL: none */
    int32_t n_resumed;

    /* Reuse of KV, and its form. */
    rp_reuse reuse;
    rp_quality quality;       /* of all modules; overrides prompt and schema. default: as written */
    int32_t shifted_reuse;    /* >= 0: after an edit inside a cached prompt, reuse the suffix at its new
                                 positions and recompute its first N tokens. Approximate: the suffix never
                                 attended to the edit. No effect with RP_REUSE_EXACT. -1: off (default) */
    const char *kv_format;    /* "int8", ...: KV of the modules of its own schema or of its documents, if they
                                 name none (kv); a tenant's default. NULL: the engine's (default) */
    const char *kv_keep;      /* KV reduction: when the prompt is complete, keep so much of its KV for the
                                 answer: "1024" slots in the mean of all heads, or a share, "12.5%", and the last
                                 32 tokens of the prompt's own text. The first token of the answer is that of the
                                 complete KV; the prompt's KV is cached as ever, the answer's is not. Modules in
                                 kivi4, k4v2 and kivi2 stay whole. docs/quality.md. "off": all of it. NULL: the
                                 engine's (default), all of it unless rp_engine_options.kv_keep is set.
                                 RP_ERR_UNSUPPORTED with recurrent layers */
    const char *kv_method;    /* which slots: "snapkv": those that the last 32 tokens of the prompt's own text
                                 attend to, which are computed again even if they are cached; "sinks": the first
                                 and the last ones; "quest" drops nothing: each token of the answer chooses as
                                 many slots of each head anew. NULL: the engine's (default), snapkv unless
                                 rp_engine_options.kv_method is set */
    rp_adapter *adapter;      /* compute prompt and answer with this adapter; borrowed during submission. Their
                                 KV has keys of its own, modules included. Of an activated adapter: from its
                                 invocation tokens on (rp_result.adapter_from); RP_ERR_UNSUPPORTED (a module
                                 after them, unless at quality exact), RP_ERR_CONFLICT (context_shift). NULL: none */
    float adapter_scale;      /* factor of what the adapter adds, besides the adapter's own; 0: as without an
                                 adapter; default 1 */
    rp_on_meaning on_meaning; /* which answers of this engine in its conversation become the sampled tokens: those
                                 that mean the same, besides those of the same text. NULL: those of the same text */

    /* What the cache keeps of it. */
    const char *session;        /* a name of the conversation or the agent's run that the request belongs to, the
                                   client's own: its cached text outlives that of requests without one, and a
                                   hundred uses by one session do not make it popular (docs/eviction.md). Names
                                   of two tenants never meet; up to RP_MAX_SESSION_BYTES. NULL or "": none (default) */
    const char *parent_session; /* the session for which this one works, as a subagent: its text is evicted before
                                   that of main agents. NULL or "": none (default) */
    bool ends_session;          /* no request of the session follows: after this one, text that no other session
                                   has used is evicted first */
    bool adds_nothing;          /* read the cache, add neither the prompt nor the answer to it: for prompts that
                                   do not come again. Modules that are missing are cached as ever. default: false */
    int32_t retain_s;           /* keep the prompt, the answer and the modules of the request in the cache for at
                                   least so many seconds after their last use, up to a week, within a share of
                                   the tenant's budget (docs/eviction.md). 0: no such wish (default) */

    /* Beyond the context. */
    bool truncates;     /* messages: a conversation that is too long for the context goes on without its oldest
                           turns (rp_result.dropped_messages); leading system messages stay. A quarter of the
                           context is dropped at a time, so that the next turns hit the prefix cache. default:
                           RP_ERR_CONTEXT */
    bool context_shift; /* an answer that reaches the end of the context continues, up to max_tokens (at most
                           2^20): a quarter of the context is dropped at a time, the oldest tokens after the
                           leading system messages (4 tokens, if there are none, or they take more than a quarter),
                           and the others move back (rp_result.context_shifts). Such an answer uses full KV of
                           modules, and is not cached. RP_ERR_UNSUPPORTED (learned positions, recurrent layers),
                           RP_ERR_CONFLICT (kv_keep, quality focus). default: the answer ends at the end of the
                           context */

    /* Embeddings and scores of the prompt, and reports. */
    rp_pooling pooling;        /* not RP_POOLING_OFF: compute an embedding of the prompt, or its rank score,
                                  instead of an answer (rp_result.embedding). A text gets the special tokens of
                                  an embedding (rp_tokenize_embedding); max_tokens and sampling have no effect.
                                  `last` uses the prefix cache like an answer; the others compute every token,
                                  and cache none. RP_ERR_UNSUPPORTED (rank without a rank head, modules with mean
                                  or cls), RP_ERR_CONFLICT (kv_keep, context_shift, quality focus) */
    bool raw_embedding;        /* do not scale the embedding to a length of 1. default: false */
    int32_t n_logprobs;        /* > 0: report log-probabilities of each token and of the n most likely ones; up
                                  to RP_MAX_LOGPROBS. 0: none */
    int32_t n_prompt_logprobs; /* > 0: report log-probabilities of the prompt's tokens, and of the n most likely
                                  ones at each position (rp_result.prompt_logprobs); up to RP_MAX_LOGPROBS. Cached
                                  KV has no logits: the whole prompt is computed again. With modules only at
                                  quality exact (RP_ERR_CONFLICT). 0: none (default) */
    int32_t n_kept_shares;     /* > 0: report which slots reduced modules keep (rp_result.kept_shares), in about
                                  this many numbers for the whole prompt; up to RP_MAX_KEPT_SHARES. 0: none (default) */

    /* Callbacks, each of which may be NULL, and the stream. */
    rp_on_text on_text;
    rp_on_token on_token;
    rp_on_logits on_logits;
    rp_on_choose on_choose;
    rp_on_progress on_progress;
    rp_on_done on_done;
    void *user;
    rp_stream *stream;   /* gets the answer's text as events, besides on_text; borrowed until the job is freed.
                            NULL: none (default) */
    uint64_t stream_tag; /* of the job's events; default 0 */

    const rp_request_experiment *experiment; /* for tests and measurements (reprise_test.h). NULL: none */
} rp_request;

RP_API void rp_request_init(rp_request *request, uint32_t struct_size);
static inline rp_request rp_request_defaults(void) {
    rp_request o;
    rp_request_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* ---- Jobs ------------------------------------------------------------------------------------------------------- */

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
RP_API bool rp_job_wait(rp_job *job, int64_t timeout_ms);
/* Waits, then moves the result out (once; RP_ERR_INVALID afterwards). RP_ERR_CANCELLED (cancelled before an answer
 * began; later, the finish reason is "cancelled"), RP_ERR_DEADLINE, RP_ERR_BUDGET, RP_ERR_MEMORY. */
RP_API int rp_job_result(rp_job *job, rp_result **out, rp_error *err);
/* Ends the job before the next step; returns at once. */
RP_API void rp_job_cancel(rp_job *job);
/* Pauses generation for a slow client, from the next step until rp_job_resume. The job keeps its KV and its
 * reservation, but does not count against max_sequences; deadlines and rp_job_cancel still apply. A job pauses only
 * after its first token, so callbacks of one more step may come. Callbacks may call both. */
RP_API void rp_job_pause(rp_job *job);
RP_API void rp_job_resume(rp_job *job);
/* Cancels the job if it has not ended, waits for its end, and frees it with its result. */
RP_API void rp_job_free(rp_job *job);

typedef enum rp_job_state {
    RP_JOB_WAITING, /* for admission, or for another job that computes the same tokens */
    RP_JOB_PREFILL, /* of its modules or its prompt */
    RP_JOB_DECODE,
    RP_JOB_DONE,
} rp_job_state;

typedef struct rp_job_status {
    uint32_t struct_size;
    rp_job_state state;
    int32_t queue_position;  /* 1: the next; 0: not queued */
    int32_t prompt_tokens;   /* as in the result */
    int32_t cached_tokens;   /* likewise, once the prompt is composed, before its first token; until then 0 */
    int32_t computed_tokens; /* of prompt_tokens: cached or computed so far */
    int32_t answer_tokens;
} rp_job_status;

/* RP_ERR_INVALID (struct_size is not set). */
RP_API int rp_job_get_status(rp_job *job, rp_job_status *out);
RP_API uint64_t rp_job_number(const rp_job *job); /* from 1, in order of submission */

/* Submits, waits and takes the result. *out is owned by the caller (rp_result_free). On error *out is NULL.
 * RP_ERR_INVALID (a value that is out of its range), RP_ERR_LIMIT (stop strings: too many, too long;
 * log-probabilities; the tenant; a grammar that is too large), RP_ERR_SYNTAX (the prompt; the grammar, with
 * "grammar:line:column"), RP_ERR_NAME (schema, module, argument; with the nearest name), RP_ERR_CONFLICT (two members
 * of a union), RP_ERR_LENGTH (argument, or text in a fixed layout; with both lengths), RP_ERR_CONTEXT, RP_ERR_BUDGET,
 * RP_ERR_MEMORY. */
RP_API int rp_engine_run(rp_engine *engine, const rp_request *request, rp_result **out, rp_error *err);
RP_API void rp_result_free(rp_result *result);

/* ---- Streams ---- */

/* A queue of events of any number of jobs (rp_request.stream), for programs that must not be called on the engine's
 * thread: bindings of other languages, event loops. The engine appends and never waits for the reader. Thread-safe,
 * but one thread at a time may read.
 *
 *   rp_stream_new(&stream, &err);
 *   request.stream = stream;
 *   rp_engine_submit(engine, &request, &job, &err);
 *   for (bool ended = false; !ended;)
 *       for (int32_t i = 0, n = rp_stream_read(stream, -1, &events); i < n; i++) {
 *           fwrite(events[i].text, 1, events[i].n_bytes, stdout);
 *           ended = events[i].ended;
 *       }
 *   rp_job_result(job, &result, &err);
 */
typedef struct rp_stream_event {
    uint64_t tag;         /* rp_request.stream_tag */
    const char *text;     /* the next n_bytes of the answer, in whole UTF-8 characters, as on_text gets them;
                             pieces that wait are joined. Not NUL-terminated */
    size_t n_bytes;       /* 0: the job ends without more text */
    bool ended;           /* the job's last event; each job that was submitted has one, whether it succeeds or
                             fails. rp_job_result returns at once */
    bool incomplete;      /* with ended: there was no memory for the rest of the text, which the result has */
    uint64_t reserved[2]; /* 0 */
} rp_stream_event;

/* RP_ERR_MEMORY. */
RP_API int rp_stream_new(rp_stream **out, rp_error *err);
/* Free its jobs first: their events come to it until then. */
RP_API void rp_stream_free(rp_stream *stream);
/* A file descriptor that is readable (poll, epoll, an event loop) while events wait. Owned by the stream; -1: the
 * system has none. Only rp_stream_read may read from it. */
RP_API int rp_stream_fd(rp_stream *stream);
/* Waits up to timeout_ms (-1: no limit; 0: not at all) for events, and takes all of them, in order. A reader that
 * waits gets text at most once a millisecond, and the end of a job at once. Returns the number of events; 0: none
 * came, or there is no memory to take them now. *events and their texts are borrowed until the next call. */
RP_API int32_t rp_stream_read(rp_stream *stream, int64_t timeout_ms, const rp_stream_event **events);

#ifdef __cplusplus
}
#endif
#endif
