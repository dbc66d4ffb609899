/* SPDX-License-Identifier: Apache-2.0 */
/* reprise.h: the public interface of Reprise, an LLM inference library that never prefills the same text twice.
 *
 *   rp_model    an immutable model: weights (mapped), vocabulary, chat format. Any number of engines may share it.
 *   rp_engine   runs prompts with one model. Owns threads, the store (KV cache, the attention states of the paper)
 *               and schemas.
 *   rp_schema   a PML document of reusable prompt modules, loaded into an engine and named by its `name`.
 *   rp_prompt   a prompt built part by part, for user input: its text is never parsed.
 *   rp_result   a request's output: text, token counts, timings, and the plan, which lists the reused KV.
 *
 * reprise_store.h has the entries of a store, reprise_tools.h quantization, lint and other tools, reprise_server.h the HTTP server.
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
 * Errors. Functions that can fail return 0 or a negative rp_code and fill in an rp_error. Strings are UTF-8 and NUL-terminated. The library never
 * exits, and prints only if the environment variables REPRISE_LOG and REPRISE_TRACE or rp_log_set_level request it.
 *
 * NULL. `err` and every argument of a free or close function may be NULL. Any other pointer may be NULL only if its comment allows it; a function that
 * returns a code then returns RP_ERR_INVALID, and any other function must not be called that way.
 *
 * Growth. Structs of options and of reports begin with struct_size, the size that the program was compiled with, so that later versions can append
 * fields. A program initialises options with their function ("rp_request_defaults()") and reports, which a function fills in, with their size
 * ("rp_model_info info = {.struct_size = sizeof info}"); the library sets it in structs that it allocates. Fields that one side does not know have
 * their default: a program that sets a field that the library lacks gets RP_ERR_UNSUPPORTED. Structs without struct_size do not grow; `reserved`
 * fields are 0. Functions named _init are for other languages: they set the defaults in a struct of struct_size bytes.
 *
 * Threads. Models and engines are thread-safe. An engine computes on a thread of its own and calls callbacks there.
 *
 * A program that defines RP_EXPERIMENTAL before it includes this header sees fields for tests and measurements, which may change in any version.
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
#define RP_VERSION_MINOR 2
#define RP_VERSION_PATCH 0
#define RP_VERSION_STRING "0.2.0"

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
    int32_t context_tokens; /* RP_ERR_CONTEXT of a prompt: positions of the context, */
    int64_t prompt_tokens;  /* and those that the prompt needs; else 0 */
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
    uint32_t struct_size;
    const char *chat_format; /* a name from rp_chat_format_name; NULL: from the model's metadata and template */
    bool vocabulary_only;    /* load the tokenizer only: the file needs no weights and may have any architecture.
                                rp_schema_lint, rp_split and engines without plans_only refuse this model with
                                RP_ERR_UNSUPPORTED. Where the file has weights, they are not read.
                                Default false */
    bool mock;               /* a mock for tests of many engines: vocabulary, chat format and context length are the file's, which needs no weights and
                                may have any architecture; there are no weights, a token has little KV, and logits are a hash of what a row attends
                                to (docs/verification.md). Everything but the arithmetic is real, and as exact. Its fingerprint is not the
                                model's, its architecture "mock", its answers words without a meaning. No adapters. RP_ERR_INVALID: with
                                vocabulary_only. Default false */
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
    int32_t n_ctx_train;          /* context length in training, in positions */
    const char *positions;        /* "rotary", "ALiBi", "learned" or "none"; static */
    bool movable;                 /* the KV can be shifted to other positions, so modules can be packed */
    int32_t window;               /* sliding window in tokens, the token itself included; 0: no layer has one */
    int32_t n_window_layers;
    int32_t n_experts, n_experts_used; /* 0: no mixture of experts */
    uint64_t kv_bytes_per_token; /* KV bytes per token in f16 */
    const char *fingerprint;      /* 64 hexadecimal digits; "" until computed by an engine with a store or by
                                     rp_model_fingerprint */
    const char *chat_template;    /* tokenizer.chat_template: the Jinja text in the model's file, whatever chat_format is; NULL: none */
    bool is_encoder;              /* each token attends to the whole text: the model computes embeddings and generates no text */
    const char *pooling;          /* what RP_POOLING_MODEL means: "mean", "cls", "last" or "rank"; static */
    int32_t n_scores;             /* outputs of its rank head; 0: it has none */
    bool infills;                 /* it has fill-in-the-middle tokens (rp_tokenize_infill) */
} rp_model_info;

/* RP_ERR_INVALID (struct_size is not set). */
RP_API int rp_model_describe(const rp_model *model, rp_model_info *out);

/* Computes the model's fingerprint: BLAKE2b of all bytes of its files and of its chat format. It is part of the keys
 * of a store. Reads all weights, unless the fingerprint is known already. Any thread.
 * n_threads    0: one per processor
 * on_progress  (bytes) may be NULL; called on the calling thread
 * *out         64 hexadecimal digits; belongs to the model
 * RP_ERR_IO (a file was changed in place since the model was opened), RP_ERR_MEMORY. */
RP_API int rp_model_fingerprint(rp_model *model, int32_t n_threads, rp_on_progress on_progress, void *user, const char **out, rp_error *err);

/* ---- LoRA adapters ---- */

/* A LoRA adapter (Hu et al., 2022) for a model: low-rank additions to its matrices, applied to the tokens of the requests that name it
 * (rp_request.adapter); requests with different adapters share steps. An activated adapter (aLoRA; Greenewald et al., 2025) has invocation
 * tokens: it is switched on at the last place where a prompt has them, and what is before them is the base model's, KV included. Immutable;
 * any thread. docs/lora.md */
typedef struct rp_adapter rp_adapter;

/* Opens a GGUF file as llama.cpp's convert_lora_to_gguf writes it. It may be removed or replaced afterwards. The model is borrowed.
 * RP_ERR_IO, RP_ERR_FORMAT (corrupt), RP_ERR_UNSUPPORTED (not a LoRA; adapters of embeddings, norms and experts; a tensor type; the model has
 * its vocabulary only), RP_ERR_CONFLICT (it was trained for another model), RP_ERR_MEMORY. */
RP_API int rp_adapter_open(rp_adapter **out, const rp_model *model, const char *path, rp_error *err);
/* Any time; jobs and schemas that use it keep it in memory. Before the model is closed, close the adapter and free all engines. */
RP_API void rp_adapter_close(rp_adapter *adapter);

/* Properties of an adapter. The strings and tokens belong to it. */
typedef struct rp_adapter_info {
    uint32_t struct_size;
    const char *name;        /* general.name, or "" */
    const char *fingerprint; /* 64 hexadecimal digits: BLAKE2b of all headers and tensors of the file */
    int32_t rank;            /* the largest of its matrices */
    float alpha;             /* adapter.lora.alpha; 0: none */
    int32_t n_tensors;       /* of the model, that it changes */
    uint64_t bytes;          /* of memory */
    const int32_t *invocation_tokens; /* [n_invocation_tokens]; NULL: not an activated adapter */
    int32_t n_invocation_tokens;
} rp_adapter_info;
/* RP_ERR_INVALID (struct_size is not set). */
RP_API int rp_adapter_describe(const rp_adapter *adapter, rp_adapter_info *out);

/* The name of the i-th chat format, NULL past the end. Static. */
RP_API const char *rp_chat_format_name(int i);

/* A message of a conversation. */
typedef enum rp_role { RP_ROLE_SYSTEM, RP_ROLE_USER, RP_ROLE_ASSISTANT, RP_ROLE_TOOL } rp_role;
#define RP_N_ROLES 4
#define RP_MAX_MESSAGES 65536
/* "system", "user", "assistant", "tool"; NULL for another value. Static. */
RP_API const char *rp_role_name(rp_role role);
/* false: no role has this name (NULL: none has); *out is as it was. */
RP_API bool rp_role_parse(const char *name, rp_role *out);

typedef struct rp_message {
    rp_role role;
    const char *text; /* n bytes of UTF-8, never parsed for control tokens */
    size_t n;
} rp_message;

/* ---- Chat templates ---- */

/* A model's own chat template: the Jinja that is in its file, or any other, parsed once (docs/templates.md). It renders a conversation as
 * Python's Jinja2 does in transformers, byte for byte, errors included. It sees its input only, and its time and memory are limited: templates
 * of foreign files are safe. Immutable: any number of threads may render it. */
typedef struct rp_template rp_template;
/* The variables of a rendering, as values (reprise_chat.h). */
typedef struct rp_template_input rp_template_input;

/* Where bytes of a rendered text are from. Control tokens are recognised in trusted text only. A larger value is the number of a string of the
 * input: values in the order of the JSON text, or in which they were added, from RP_TEMPLATE_FIRST_STRING on; keys are not counted. */
#define RP_TEMPLATE_TRUSTED 0u      /* the template's own text */
#define RP_TEMPLATE_UNTRUSTED 1u    /* made of the input: JSON, names */
#define RP_TEMPLATE_FIRST_STRING 2u

/* Consecutive bytes of one origin. */
typedef struct rp_template_run {
    size_t end;      /* the run ends before this byte of the text, and begins where the run before it ends */
    size_t offset;   /* of a string of the input: the run's first byte in it; SIZE_MAX: the template changed the bytes */
    uint32_t origin;
} rp_template_run;

/* A rendered conversation: n bytes of UTF-8, also NUL-terminated, in n_runs runs. */
typedef struct rp_template_text {
    char *bytes;
    size_t n;
    rp_template_run *runs;
    size_t n_runs;
} rp_template_text;

/* A message in a rendered text: where its content ends. */
typedef struct rp_rendered_turn {
    size_t end;
    rp_role role;
} rp_rendered_turn;

/* Asked on the rendering thread, about every millisecond of a rendering: false cancels it (RP_ERR_CANCELLED). */
typedef bool (*rp_on_look)(void *user);

/* Steps of a rendering: the evaluation of a node, an item, some bytes of text; 10 ns each, 20 at most. A template that takes more fails. */
#define RP_TEMPLATE_MAX_STEPS ((uint64_t)50000000)

/* Why a rendering failed, for a caller that gives the template another form of the conversation. */
typedef enum rp_template_failure {
    RP_TEMPLATE_RENDERED,   /* it did not */
    RP_TEMPLATE_REFUSED,    /* the template refuses the conversation (raise_exception) */
    RP_TEMPLATE_WRONG_TYPE, /* a value has a type that the template does not expect ("TypeError: ...") */
    RP_TEMPLATE_FAILED,     /* anything else */
} rp_template_failure;

typedef struct rp_template_options {
    uint32_t struct_size;
    bool has_time; /* false (default): strftime_now is the local time; true: `time` */
    int64_t time;  /* seconds since 1970-01-01 00:00, in the time zone to print */
    /* How many steps may be taken, RP_TEMPLATE_MAX_STEPS at most; lowered by those that were taken, so that several
     * renderings can share a limit. NULL (default): RP_TEMPLATE_MAX_STEPS. */
    uint64_t *steps_left;
    rp_on_look on_look; /* NULL (default): the rendering cannot be cancelled */
    void *user;         /* of on_look */
    /* n_trusted pairs of a name and a text, borrowed: more variables, unless the JSON has them. Their texts are trusted. */
    const char *const *trusted;
    size_t n_trusted;
    rp_template_failure *failure; /* set by each rendering; NULL (default): not wanted */
} rp_template_options;

RP_API void rp_template_options_init(rp_template_options *options, uint32_t struct_size);
static inline rp_template_options rp_template_options_defaults(void) {
    rp_template_options o;
    rp_template_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* Parses a template of n bytes of UTF-8. name: in errors. RP_ERR_SYNTAX (at "name:line"), RP_ERR_UNSUPPORTED (a statement, filter or test that
 * chat templates do not use), RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_template_new(rp_template **out, const char *source, size_t n, const char *name, rp_error *err);
RP_API void rp_template_free(rp_template *t);
/* The model's template; NULL: it has none, or none that can be parsed, or rp_model_options.chat_format replaces it. Belongs to the model. */
RP_API const rp_template *rp_model_template(const rp_model *model);
/* Does the template use this variable? */
RP_API bool rp_template_uses(const rp_template *t, const char *variable);
/* Renders the template with the members of a JSON object as its variables: messages, tools, add_generation_prompt, ... Strings of the object are
 * untrusted, except usual roles of messages. options: NULL for the defaults.
 * RP_ERR_INVALID (the JSON is malformed, or the template fails: "TypeError: ...", at "name:line"), RP_ERR_LIMIT (at "name:line": the template takes
 * too many steps or too much memory), RP_ERR_CANCELLED, RP_ERR_MEMORY.
 * *out: rp_template_text_free; NULL on failure. */
RP_API int rp_template_render(const rp_template *t, const char *json, size_t n, const rp_template_options *options, rp_template_text **out,
                              rp_error *err);
RP_API void rp_template_text_free(rp_template_text *text);
/* rp_template_render with the model's template and, unless the JSON has them, its bos_token, eos_token, unk_token and pad_token. If the model wants a
 * beginning-of-text token and the template writes none, the text is preceded by it. Also RP_ERR_UNSUPPORTED (rp_model_template is NULL). */
RP_API int rp_model_render(const rp_model *model, const char *json, size_t n, const rp_template_options *options, rp_template_text **out, rp_error *err);
/* Converts a rendered conversation to tokens, as rp_request.rendered does: after the beginning-of-text token, if the model wants one and the text
 * does not begin with it. *tokens: owned by the caller, rp_free. RP_ERR_INVALID (malformed runs), RP_ERR_MEMORY, RP_ERR_LIMIT. */
RP_API int rp_tokenize_rendered(const rp_model *model, const rp_template_text *text, int32_t **tokens, size_t *n_tokens, rp_error *err);
/* Counts those tokens. ends[n_turns]: how many there are up to the end of each turn, what the template writes after its content included; turns in the
 * order of the text. Errors as above, and RP_ERR_LIMIT for more than RP_MAX_MESSAGES turns. */
RP_API int rp_count_rendered(const rp_model *model, const rp_template_text *text, const rp_rendered_turn *turns, size_t n_turns, size_t *ends,
                             size_t *n_tokens, rp_error *err);

/* Converts text to token ids. text: n bytes of UTF-8 (invalid bytes are encoded as bytes if the vocabulary can).
 * parse_special: control tokens written in the text ("<|im_end|>") become tokens; only for trusted text.
 * add_bos: put the beginning-of-text token first, if the model wants one.
 * *tokens: owned by the caller, rp_free. RP_ERR_MEMORY, RP_ERR_LIMIT. */
RP_API int rp_tokenize(const rp_model *model, const char *text, size_t n, bool parse_special, bool add_bos,
                       int32_t **tokens, size_t *n_tokens, rp_error *err);
/* Converts text to the token ids that its embedding is computed from: with the special tokens before and after it that the model wants
 * (BERT: [CLS] text [SEP]). Text is never parsed for control tokens.
 * second      n_second bytes, for rank: a document after the query `text`, with the model's separator; NULL: none.
 * max_tokens  > 0: the end of the second text, or of the only one, is cut so that there are at most so many tokens. 0: no limit
 * *tokens: owned by the caller, rp_free; NULL if there are none. RP_ERR_LENGTH (the query alone exceeds max_tokens), RP_ERR_MEMORY, RP_ERR_LIMIT. */
RP_API int rp_tokenize_embedding(const rp_model *model, const char *text, size_t n, const char *second, size_t n_second, size_t max_tokens,
                                 int32_t **tokens, size_t *n_tokens, rp_error *err);
/* Converts messages as rp_request.messages does: the beginning-of-text token (if the model wants one), each message in
 * the model's chat format, and the generation prompt. continues: the last message is the beginning of the answer and
 * is not closed.
 * *tokens: owned by the caller, rp_free. RP_ERR_INVALID (no message, unknown role), RP_ERR_MEMORY, RP_ERR_LIMIT. */
RP_API int rp_tokenize_messages(const rp_model *model, const rp_message *messages, size_t n, bool continues, int32_t **tokens,
                                size_t *n_tokens, rp_error *err);

/* A file of context before an infill. */
typedef struct rp_infill_file {
    const char *name; /* NULL: none */
    const char *text; /* n_bytes of UTF-8 */
    size_t n_bytes;
} rp_infill_file;

/* The prompt of an infill: what is written between `prefix` and `suffix`. No text is parsed for control tokens. Initialise it with
 * {.struct_size = sizeof(rp_infill)}; a text of 0 bytes may be NULL. */
typedef struct rp_infill {
    uint32_t struct_size;
    const char *prefix, *suffix;
    size_t n_prefix, n_suffix;
    const char *begun; /* the beginning of the infill */
    size_t n_begun;
    const rp_infill_file *files; /* n_files, before the text; NULL: none */
    int32_t n_files;
} rp_infill;

/* Converts an infill: the beginning-of-text token (if the model wants one), and the texts between the model's fill-in-the-middle tokens, in the
 * order of its family. *tokens: owned by the caller, rp_free; input of rp_request.tokens.
 * RP_ERR_UNSUPPORTED (the model has no such tokens: rp_model_info.infills), RP_ERR_INVALID, RP_ERR_MEMORY, RP_ERR_LIMIT. */
RP_API int rp_tokenize_infill(const rp_model *model, const rp_infill *infill, int32_t **tokens, size_t *n_tokens, rp_error *err);

/* Returns the bytes of a token (not always whole UTF-8 characters). special: control tokens return their name, else
 * nothing. Belongs to the model. NULL for an id outside the vocabulary. */
RP_API const char *rp_token_bytes(const rp_model *model, int32_t token, bool special, size_t *n_bytes);
RP_API void rp_free(void *p); /* frees memory that the library allocated for the caller */

/* ---- Engines --------------------------------------------------------------------------------------------------- */

typedef struct rp_engine rp_engine;

/* Formats of KV: X(NAME, number, name, elements of keys, elements of values). The number is that of records and of
 * keys, for ever, and the name that of options, PML and reports; values of the enumeration are the positions in this list.
 *
 * The formats with elements of 8 bits or more are for every token. The others are for modules: they are encoded once all of a
 * module's tokens are computed, and the other tokens have RP_KV_INT8. */
#define RP_KV_FORMATS(X) \
    X(F16, 0, "f16", F16, F16) \
    X(F32, 1, "f32", F32, F32) \
    X(INT8, 2, "int8", INT8, INT8)    /* 8 bits, a scale for each token and head */ \
    X(KIVI4, 4, "kivi4", 4BIT, 4BIT)  /* KIVI: keys in 4 bits with ranges by dimension, values in 4 bits with ranges by token */ \
    X(K4V2, 5, "k4v2", 4BIT, 2BIT)    /* the same, keys in 4 bits, values in 2 */ \
    X(KIVI2, 6, "kivi2", 2BIT, 2BIT)  /* the same, both in 2 bits */

#define RP_KV_FORMAT_VALUE(NAME, number, name, keys, values) RP_KV_##NAME,
typedef enum rp_kv_format { RP_KV_FORMATS(RP_KV_FORMAT_VALUE) RP_N_KV_FORMATS } rp_kv_format;

#define RP_KV_FORMAT_WORD(NAME, number, name, keys, values) " " name
#define RP_KV_FORMAT_NAMES RP_KV_FORMATS(RP_KV_FORMAT_WORD) /* all names, for messages: " f16 f32 ..." */

/* The name of format i, "f16", ...; NULL if there is none. Static. */
RP_API const char *rp_kv_format_name(int32_t i);

/* Names of the methods that choose the slots of reduced modules (keep_method) and of requests (rp_request.kv_method), from i = 0, the
 * default; NULL after the last one. Static. */
RP_API const char *rp_keep_method_name(int32_t i);
RP_API const char *rp_kv_method_name(int32_t i);

/* What a step computed for one job. */
typedef enum rp_step_kind {
    RP_STEP_MODULE,  /* tokens of a module; this job was the first to miss it */
    RP_STEP_PREFILL, /* tokens of its prompt */
    RP_STEP_DECODE,  /* the last token of its answer, and drafts after it */
    RP_STEP_BACKGROUND, /* tokens of a background task (rp_engine_drain), in a short step of their own */
} rp_step_kind;
#define RP_N_STEP_KINDS 4

typedef struct rp_step_part {
    uint64_t job;           /* rp_job_number; 0: background, rp_schema_prefill, or a module whose job has ended */
    rp_step_kind kind;
    int32_t n_rows;         /* tokens computed */
    int32_t context_tokens; /* tokens attended to, themselves included */
} rp_step_part;

/* A step: rows of several jobs, computed as one batch. Results do not depend on the batching. */
typedef struct rp_step {
    uint32_t struct_size;
    int32_t n_parts;
    uint64_t number;        /* from 1 */
    uint64_t start_us, end_us; /* monotonic clock since boot */
    uint64_t predicted_us;  /* prediction of the engine's cost model; 0: none yet */
    const rp_step_part *parts; /* n_parts */
    int32_t n_running, n_waiting; /* jobs */
    uint64_t kv_bytes;      /* KV in use, cached spans included */
} rp_step;

/* Called after each step, on the engine's thread; step is borrowed meanwhile. */
typedef void (*rp_on_step)(void *user, const rp_step *step);

/* The name of KV in a cluster (reprise_cluster.h). */
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

/* Called with changes in their order, some hundred at a time, at the end of a step, on the engine's thread or, for what is on disk at the start, within rp_engine_new. It must not wait. changes
 * is borrowed meanwhile. */
typedef void (*rp_on_spans)(void *user, const rp_span_change *changes, size_t n);

/* A block: RP_NAME_TOKENS (64) consecutive tokens of plain text, whose KV the store holds in other tiers than before. */
typedef struct rp_block_change {
    rp_name name;          /* of the text up to its end, as in rp_span_change */
    rp_name parent;        /* of the text up to its beginning; zeros: it is the first block */
    uint32_t tiers;        /* RP_TIER_*: where it is now; 0: nowhere */
    const int32_t *tokens; /* [RP_NAME_TOKENS] */
} rp_block_change;

/* As rp_on_spans. A block comes after its parent, and is gone, tiers 0, with it. */
typedef void (*rp_on_blocks)(void *user, const rp_block_change *changes, size_t n);

/* When new spans are written to disk. */
typedef enum rp_store_write {
    RP_STORE_WRITE_BACK = 0, /* soon, in parallel with computation */
    RP_STORE_WRITE_THROUGH,  /* before the job that computed them ends */
    RP_STORE_WRITE_OFF,      /* never: records on disk are only read */
} rp_store_write;

typedef struct rp_engine_options {
    uint32_t struct_size;
    int32_t n_threads;           /* 0: one per processor */
    int32_t n_ctx;               /* context length: positions of a prompt and its answer; 0: as in training */
    rp_kv_format kv_format; /* RP_KV_F16; f32 is for tests. A schema's kv="..." overrides it for modules */
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
    bool store_read_only;        /* never write to the folder, so another process may use it too; nor to weights_dir */
    uint64_t scaffold_bytes;     /* limit on KV of learned scaffolds (RP_QUALITY_SCAFFOLD); 0: a quarter of the KV */
    int32_t audit_every;         /* when idle, recompute one in N requests, modular or with KV below 16 bits, and compare; 0: none */
    float max_divergence;        /* report a schema or KV format if its audits' mean divergence, in nats, exceeds this; 0: never */
    bool audit_raises;           /* also raise the default quality of that schema's requests by one level (full KV of modules with keep, link:8,
                                    blend:15, exact); replace that format by f16 */
    rp_on_step on_step;          /* may be NULL */
    void *step_user;
#ifdef RP_EXPERIMENTAL
    bool store_whole_reads;      /* read KV from disk span by span, instead of layer by layer for all spans */
    bool experimental[7];        /* 0 */
#else
    bool experimental[8];        /* 0 */
#endif
    const char *weights_dir;     /* folder for repacked weights, created if missing: from the second start on they are
                                    mapped instead of repacked (docs/decisions/0031). NULL: repack at each start */
    uint64_t weights_budget_bytes; /* limit on the files in weights_dir, by which the least recently used ones are
                                    removed; a model with more gets no file. 0: 8 GiB */
    uint64_t weights_min_bytes;  /* models with fewer bytes of repacked weights get no file; 0: 64 MiB */
    const char *kv_f16_layers;   /* layers whose KV stays in f16 while kv_format, or a module's, has less than 16 bits:
                                    "0,1,27", "0-2", and "windows" for all layers with a sliding window; the model's layers,
                                    from 0. NULL: none. RP_ERR_INVALID: with RP_KV_F16 or RP_KV_F32. Borrowed until
                                    rp_engine_new returns */
    const char *keep_share;      /* "25%" or "auto": reduced KV of modules: each keeps this share of its slots, those that its tokens
                                    need most, chosen by layer and head; computed in the background after the full KV, and
                                    used from then on (docs/quality.md). A schema's or module's keep="..." overrides it;
                                    "100%": none. NULL: none. Borrowed until rp_engine_new returns */
    const char *keep_method;     /* that chooses the slots: kvzip, kvzip+, expected, compactor. NULL: kvzip.
                                    Borrowed likewise */
    const char *kv_keep;         /* rp_request.kv_keep of requests that name none; it yields to quality focus, and where the KV budget cannot hold
                                    it (rp_kv_reduction.reason). NULL, "off": none. Borrowed likewise */
    const char *kv_method;       /* rp_request.kv_method of requests that name none; needs kv_keep. NULL: snapkv. Borrowed likewise */
    uint64_t kv_min_bytes;       /* RP_ERR_BUDGET if ram_bytes leaves less for KV; 0: 1 MiB */
    const uint8_t *cluster_key;  /* [RP_CLUSTER_KEY_BYTES], the secret of names (reprise_cluster.h); borrowed until rp_engine_new returns. NULL: none */
    rp_on_spans on_spans;        /* reports the names of what the store holds; needs cluster_key. NULL: none */
    void *spans_user;
    bool plans_only;             /* plan requests, without computing any: schemas, rp_plan_names_of and rp_engine_inspect work, rp_engine_submit gives
                                    RP_ERR_UNSUPPORTED. The model may be opened with vocabulary_only, from a file with the shape of a supported model
                                    (RP_ERR_UNSUPPORTED). No weights, KV memory or thread are used. RP_ERR_INVALID: with store_dir or on_spans. Default
                                    false */
    const char *identity;        /* plans_only: plan for engines of this identity (rp_engine_identity), with the same options about KV and context; NULL:
                                    its own. RP_ERR_INVALID: not 64 lower-case digits, or without plans_only. Borrowed likewise */
    double mock_step_us;         /* of a model opened with mock: microseconds that a step takes, as far as its work does not take longer: for itself, */
    double mock_row_us;          /* for each row, */
    double mock_row_slot_us;     /* and for each slot of each row's context. RP_ERR_INVALID: for other models. 0 (default): none */
    rp_on_blocks on_blocks;      /* reports blocks of plain text, with their tokens: of texts from position 0 on, without modules or an adapter, in the
                                    engine's KV format, of blocks_tenant. Needs cluster_key, as on_spans does. NULL: none */
    void *blocks_user;
    const char *blocks_tenant;   /* NULL, "": of requests without a tenant. Borrowed until rp_engine_new returns */
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
    bool prepared;            /* weights are repacked: by rp_engine_prepare or a first request */
    int32_t running, waiting; /* running jobs, as of the last step; other jobs that have not ended */
    int32_t background;       /* pending background tasks */
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
    uint64_t most;         /* what a program with this engine takes at most, as ram_bytes counts it: with kv_limit for KV */
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

/* ---- Quality --------------------------------------------------------------------------------------------------- */

/* Accuracy level: which module tokens are recomputed in the context of the prompt, from none to all. docs/quality.md
 * gives the cost and the accuracy of each.
 *
 *   reuse      KV as cached
 *   link:K     recompute the first K tokens of each module in the prompt (EPIC; Hu et al., 2025)
 *   blend:R    recompute R per cent of the modules' tokens: their beginnings, and the tokens with the largest KV
 *              deviation in the second layer (CacheBlend; Yao et al., 2025)
 *   focus:R    decode over the cached modules; where the answer is uncertain for the first time, recompute the R per cent
 *              of the modules' tokens that this prediction attends to most, and predict again. Certain answers cost one
 *              pass over their logits
 *   scaffold   prefill the combined modules jointly when idle: the next prompt with the same beginning is exact; until
 *              then reuse
 *   exact      every token attends to all tokens before it
 *
 * Modules that already have the KV of a full prefill, because the tokens before them are those of their scope, are not
 * recomputed. */
typedef enum rp_quality_mode {
    RP_QUALITY_AS_WRITTEN = 0, /* of the prompt, else of each module, else of the schema; else reuse */
    RP_QUALITY_REUSE,
    RP_QUALITY_LINK,
    RP_QUALITY_BLEND,
    RP_QUALITY_SCAFFOLD,
    RP_QUALITY_EXACT,
    RP_QUALITY_FOCUS, /* between blend and scaffold */
} rp_quality_mode;

#define RP_MAX_LINK_TOKENS 4096

typedef struct rp_quality {
    rp_quality_mode mode;
    int32_t amount; /* link: tokens, 1 to RP_MAX_LINK_TOKENS; blend, focus: per cent, 1 to 100; else 0 */
} rp_quality;

/* Parses "reuse", "link:8", "blend:15", "focus:15", "scaffold" or "exact". RP_ERR_INVALID. */
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

/* Tenant of a schema, and overrides of its attributes, to compare reuse settings without editing it. Default: shared,
 * owned by the operator, as written. */
typedef struct rp_schema_options {
    uint32_t struct_size;
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
    const char *kv_format; /* "int8", ...: of modules whose schema names none (kv); a tenant's default. NULL: the engine's. Borrowed during the
                             call. */
    const char *keep_share;  /* "25%": of modules whose schema names none (keep). NULL: rp_engine_options.keep_share. Borrowed during the call. */
    const char *keep_method; /* of its modules. NULL: rp_engine_options.keep_method. Borrowed during the call. */
} rp_schema_options;

RP_API void rp_schema_options_init(rp_schema_options *options, uint32_t struct_size);
static inline rp_schema_options rp_schema_options_defaults(void) {
    rp_schema_options o;
    rp_schema_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

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

/* schema: its name, resolved when a request is submitted; NULL: that of the first rp_prompt_append_pml, or else the prompt's modules are its
 * documents (rp_prompt_append_document). RP_ERR_INVALID, RP_ERR_MEMORY. *out: rp_prompt_free. */
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
/* Appends bytes [from, to) of a rendered conversation: control tokens are recognised in trusted bytes. The text is copied. For conversations with
 * documents or modules: the text between them. RP_ERR_INVALID (invalid UTF-8, malformed runs, a role is open), RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_prompt_append_rendered(rp_prompt *prompt, const rp_template_text *text, size_t from, size_t to);
#define RP_MAX_DOCUMENTS 1024
/* Appends n bytes of UTF-8 as a module of its own: its KV is prefilled once, without the text before it, and reused in every prompt of the tenant
 * that has the document, wherever it is. A second equal document is text. Only in a prompt without a schema. RP_ERR_CONFLICT (the prompt has a
 * schema), RP_ERR_INVALID (invalid UTF-8), RP_ERR_LIMIT (64 MiB in all, RP_MAX_DOCUMENTS), RP_ERR_MEMORY; at submission RP_ERR_UNSUPPORTED (the
 * model's positions cannot be shifted). */
RP_API int rp_prompt_append_document(rp_prompt *prompt, const char *text, size_t n);
/* Appends what a PML prompt of n bytes contains (docs/pml.md): markup that the application wrote, not a user's text. Its <prompt> has no attribute
 * but schema and xml:space; PML's rules for white space hold for its texts. RP_ERR_SYNTAX, RP_ERR_CONFLICT (another schema, documents),
 * RP_ERR_INVALID (it has roles, and a role is open), RP_ERR_LIMIT, RP_ERR_MEMORY; at submission the errors of rp_prompt_import. */
RP_API int rp_prompt_append_pml(rp_prompt *prompt, const char *pml, size_t n);
/* Begins a message of that role, up to rp_prompt_end_role or the end of the prompt. Roles do not nest. RP_ERR_INVALID,
 * RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_prompt_begin_role(rp_prompt *prompt, rp_role role);
/* Like rp_prompt_begin_role, and places the modules of the message where the schema allows them: the role is closed around a module that
 * contains roles, or PML that does; a message with a module that is in a role of the schema is that role, and no second one. At submission
 * RP_ERR_CONFLICT: such a module is in a message of another role, or not in the first one. */
RP_API int rp_prompt_begin_message(rp_prompt *prompt, rp_role role);
RP_API int rp_prompt_end_role(rp_prompt *prompt);

/* ---- Sampling -------------------------------------------------------------------------------------------------- */

#define RP_MAX_STOPS 64
#define RP_MAX_STOP_BYTES 1024
#define RP_MAX_GRAMMAR_BYTES ((size_t)256 << 10)
#define RP_MAX_TRIGGER_BYTES 1024
#define RP_MAX_LOGPROBS 100
#define RP_MAX_DRAFT 15
#define RP_DRAFT_AUTO (-1)
#define RP_MISMATCH_TOKENS 8
#define RP_MAX_WARNINGS 16
#define RP_MAX_KEPT_SHARES 4096

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
 * Log-probabilities (rp_request.n_logprobs, n_prompt_logprobs) are those of the model, softmax(logits), before step 0. */
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
    uint64_t reserved[6];      /* 0 */
} rp_sampling;

RP_API rp_sampling rp_sampling_defaults(void);

/* The options of sampling that a model file can advise, for rp_model_sampling. */
typedef enum rp_sampling_advice {
    RP_ADVISES_TEMPERATURE = 1,     /* general.sampling.temp */
    RP_ADVISES_TOP_K = 2,           /* general.sampling.top_k */
    RP_ADVISES_TOP_P = 4,           /* general.sampling.top_p */
    RP_ADVISES_MIN_P = 8,           /* general.sampling.min_p */
    RP_ADVISES_REPEAT_PENALTY = 16, /* general.sampling.penalty_repeat */
    RP_ADVISES_REPEAT_LAST = 32,    /* general.sampling.penalty_last_n */
} rp_sampling_advice;

/* Sets the options of sampling that the model's file advises (its general.sampling.* keys), and leaves the others. Returns the set of them, a sum of
 * RP_ADVISES_*; 0: none. The library itself does not apply the advice: rp_request_defaults is greedy for every model; `reprise run`, `chat` and
 * `serve` do. Values out of the ranges of rp_sampling are not used, and were logged when the model was opened. Any thread. */
RP_API uint32_t rp_model_sampling(const rp_model *model, rp_sampling *sampling);

/* ---- Requests -------------------------------------------------------------------------------------------------- */

/* Cache lookup has two ways: modules by name (modular reuse), and all other text by its longest cached prefix: the
 * longest beginning of the prompt (after the same modules) that an earlier prompt or answer had, token-exact. Both give
 * the bytes that computing would have given. */
typedef enum rp_reuse {
    RP_REUSE_ON = 0,    /* compose the prompt from cached KV; compute and cache what is missing */
    RP_REUSE_OFF = 1,   /* the same plan (same masks, same positions), but every lookup misses; nothing is cached */
    RP_REUSE_EXACT = 2, /* RP_REUSE_ON with RP_QUALITY_EXACT: ignore scopes: the same tokens at the same positions, each
                           attending to everything before it; lookup by longest cached prefix only */
    RP_REUSE_AUTO = 3,  /* RP_REUSE_ON, and chunks of the prompt that were computed before at other places are reused there, too ("automatic
                           modules", docs/scheduling.md). Approximate: rp_plan_item.exact says where, rp_result.inexact_tokens how many.
                           Prompts with modules, and requests that automatic modules do not support, run as with RP_REUSE_ON */
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
    RP_STOP_UNDECIDED,  /* ask again after the next character; meanwhile on_text gets nothing of it, and no other stop string counts */
} rp_stop_verdict;
/* Called where a stop string is complete. text: the n bytes of the answer so far, borrowed; the stop string ends at byte `end` of it, which is
 * less than n only where an earlier call was undecided. Several that end together are asked about from the longest to the shortest. */
typedef rp_stop_verdict (*rp_on_stop)(void *user, const char *stop, const char *text, size_t n, size_t end);
#define RP_MEANING_BYTES 32
/* What an answer says, however it is written: writes a digest that two texts share only if they say the same, as when the arguments of a tool
 * call have their keys in another order. text: n bytes, borrowed, the answer after `opening`, the generation prompt. Called while the request is
 * planned, for answers in its prompt (submitting thread), and once for its own, when that is complete (engine's thread). false: a text says
 * what its bytes are. */
typedef bool (*rp_on_meaning)(void *user, const char *opening, const char *text, size_t n, uint8_t meaning[RP_MEANING_BYTES]);
/* The last callback of a job, on success and on failure: rp_job_result in another thread returns shortly after it. */
typedef void (*rp_on_done)(void *user);

/* A queue of events of jobs ('Streams', below). */
typedef struct rp_stream rp_stream;

/* What a prompt's hidden states become: those of the last layer, after the model's final norm. Encoders (rp_model_info.is_encoder) have
 * states in which each token attends to the whole prompt. */
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

typedef struct rp_request {
    uint32_t struct_size;
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
                                   (rp_tokenize_messages); borrowed during submission. With reuse on, an assistant message that is an answer of this engine (on_meaning), after the
                                   same tokens and for the same tenant, becomes the sampled tokens, as long as they are
                                   remembered (docs/scheduling.md). NULL: none */
    int32_t n_messages;      /* up to RP_MAX_MESSAGES */
    bool continues_last;     /* continue the last message, or the last role of the PML document, as if the model had
                                written it */
    const int32_t *tokens;   /* n_tokens ids, with no token added before them; borrowed during submission. NULL: none */
    int32_t n_tokens;
    const char *text;        /* plain text, after the beginning-of-text token; "" starts from that token alone */
    rp_reuse reuse;
    rp_quality quality;      /* of all modules; overrides prompt and schema. default: as written */
    int32_t max_tokens;      /* default 128; the answer also ends at the end of the context, unless context_shift is set */
    int32_t priority;        /* queued requests of higher priority run first; default 0 */
    int64_t deadline_ms;     /* from rp_engine_submit on. Orders a tenant's requests of equal priority, earliest first.
                                Without a first token by then, the job ends with RP_ERR_DEADLINE; a started answer ends
                                with the text so far. 0: none (default) */
    int32_t n_draft;         /* speculative decoding by prompt lookup: draft up to N tokens, verified in one step; the
                                answer does not change. 0: off (default); up to RP_MAX_DRAFT; RP_DRAFT_AUTO: as
                                many as are expected to save time, by the request's own acceptance */
    int32_t shifted_reuse;   /* >= 0: after an edit inside a cached prompt, reuse the suffix at its new positions
                                and recompute its first N tokens. Approximate: the suffix never attended to the edit.
                                No effect with RP_REUSE_EXACT. -1: off (default) */
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
    bool ignore_eos;         /* generate max_tokens tokens, ignoring the end-of-text token */
    rp_on_text on_text;      /* each callback may be NULL */
    rp_on_token on_token;
    rp_on_logits on_logits;
    rp_on_progress on_progress;
    rp_on_done on_done;
    void *user;
#ifdef RP_EXPERIMENTAL
    const int32_t *forced;   /* n_forced tokens used as the answer, whatever the model, `sampling`, `stops` and `grammar`
                                say; then it ends. NULL: none */
    int32_t n_forced;
    int32_t first_position;  /* moves the whole plan; default 0. Logits do not depend on it except for rounding */
    bool no_prefix;          /* disable the prefix cache: no lookups, nothing is cached for them */
    bool experimental[15];   /* 0 */
#else
    const void *experimental_pointer; /* NULL */
    char experimental[24];   /* 0 */
#endif
    const char *kv_format;   /* "int8", ...: KV of the modules of its own schema or of its documents, if they name none (kv); a tenant's default.
                                NULL: the engine's (default) */
    const char *kv_keep;     /* KV reduction: when the prompt is complete, keep so much of its KV for the answer: "1024" slots in the mean of
                                all heads, or a share, "12.5%", and the last 32 tokens of the prompt's own text. The first token of the answer is that of the complete KV; the prompt's KV is
                                cached as ever, the answer's is not. Modules in kivi4, k4v2 and kivi2 stay whole. docs/quality.md.
                                "off": all of it. NULL: the engine's (default), all of it unless rp_engine_options.kv_keep is set */
    const char *kv_method;   /* which slots: "snapkv": those that the last 32 tokens of the prompt's own text attend to, which are computed
                                again even if they are cached; "sinks": the first and the last ones; "quest" drops nothing: each token
                                of the answer chooses as many slots of each head anew. NULL: the engine's (default), snapkv unless
                                rp_engine_options.kv_method is set */
    bool truncates;          /* messages: a conversation that is too long for the context goes on without its oldest turns
                                (rp_result.dropped_messages); leading system messages stay. A quarter of the context is
                                dropped at a time, so that the next turns hit the prefix cache. default: RP_ERR_CONTEXT */
    bool context_shift;     /* an answer that reaches the end of the context continues, up to max_tokens (at most 2^20): a quarter of the context
                                is dropped at a time, the oldest tokens after the leading system messages (4 tokens, if there are none, or they
                                take more than a quarter), and the others move back (rp_result.context_shifts). Such an answer uses full KV of
                                modules, and is not cached. RP_ERR_UNSUPPORTED (learned positions), RP_ERR_CONFLICT (kv_keep, quality
                                focus). default: the answer ends at the end of the context */
    int32_t n_kept_shares;   /* > 0: report which slots reduced modules keep (rp_result.kept_shares), in about this many numbers for the whole
                                prompt; up to RP_MAX_KEPT_SHARES. 0: none (default) */
    rp_stream *stream;       /* gets the answer's text as events, besides on_text; borrowed until the job is freed. NULL: none (default) */
    uint64_t stream_tag;     /* of the job's events; default 0 */
    const rp_rendered_turn *rendered_turns; /* n_rendered_turns messages of `rendered`, in order: for reports, and system messages that context_shift
                                               keeps. NULL: none (default) */
    int32_t n_rendered_turns;
    const rp_template_text *rendered; /* a conversation that a chat template rendered (rp_model_render), in place of `messages`; borrowed during
                                         submission. Answers of this engine in it become the sampled tokens, as in messages. NULL: none (default) */
    bool special_text;       /* control tokens of the answer, except those that end it, are their name in its text ("[TOOL_CALLS]"), for stops and
                                grammar, too: a grammar that has the name accepts the token. default: they have no text */
    rp_pooling pooling;      /* not RP_POOLING_OFF: compute an embedding of the prompt, or its rank score, instead of an answer
                                (rp_result.embedding). `text` gets the special tokens of an embedding (rp_tokenize_embedding); max_tokens and
                                sampling have no effect. `last` uses the prefix cache like an answer; the others compute every token, and
                                cache none. RP_ERR_UNSUPPORTED (rank without a rank head, modules with mean or cls), RP_ERR_CONFLICT (kv_keep,
                                context_shift, quality focus) */
    bool raw_embedding;      /* do not scale the embedding to a length of 1. default: false */
    int32_t n_prompt_logprobs; /* > 0: report log-probabilities of the prompt's tokens, and of the n most likely ones at each position
                                (rp_result.prompt_logprobs); up to RP_MAX_LOGPROBS. Cached KV has no logits: the whole prompt is computed
                                again. With modules only at quality exact (RP_ERR_CONFLICT). 0: none (default) */
    rp_adapter *adapter;     /* compute prompt and answer with this adapter; borrowed during submission. Their KV has keys of its own, modules
                                included. Of an activated adapter: from its invocation tokens on (rp_result.adapter_from); RP_ERR_UNSUPPORTED
                                (a module after them, unless at quality exact), RP_ERR_CONFLICT (context_shift). NULL: none (default) */
    float adapter_scale;     /* factor of what the adapter adds, besides the adapter's own; 0: as without an adapter; default 1 */
    const int32_t *resumed;  /* n_resumed tokens of the answer that were sampled before, by this or another engine, with the same request: the
                                answer continues after them, with the bytes that it would have had. They are computed like a prompt, and count as
                                answer tokens; callbacks report them (rp_on_text, rp_on_token without log-probabilities) before the first new one.
                                Of rp_result they are in tokens and text, not in prompt_tokens and cached_tokens; their time is prompt_prefill_ms,
                                ttft_ms ends with the first new token, and their log-probabilities are NaN (top: {-1, NaN}). Nothing of
                                shifted_reuse is used. Borrowed during submission. RP_ERR_INVALID (an id outside the vocabulary; tokens after the
                                answer's end, or that the grammar, the end of text or max_tokens exclude), RP_ERR_CONFLICT (pooling, kv_keep,
                                focus, context_shift if the answer may exceed the context), RP_ERR_CONTEXT, RP_ERR_BUDGET. NULL: none (default) */
    int32_t n_resumed;
    rp_on_stop on_stop;      /* decides which stop strings count, for answers with reasoning or tool calls, where they are text; also called for
                                `resumed`. NULL: all count (default) */
    int32_t turn_tokens;     /* while requests of this priority, or a higher one, wait for a place in the batch, the answer gives its place up after
                                so many tokens, keeps its KV, and goes on when its turn comes: for answers that may be longer than anyone reads.
                                0: it keeps its place (default) */
    rp_on_meaning on_meaning; /* which answers of this engine in `messages` or `rendered` become the sampled tokens: those that mean the same, besides
                                 those of the same text. NULL: those of the same text (default) */
    const char *session;     /* a name of the conversation or the agent's run that the request belongs to, the client's own: its cached text
                                outlives that of requests without one, and a hundred uses by one session do not make it popular (docs/eviction.md).
                                Names of two tenants never meet; up to RP_MAX_SESSION_BYTES. NULL or "": none (default) */
    const char *parent_session; /* the session for which this one works, as a subagent: its text is evicted before that of main agents. NULL or
                                "": none (default) */
    bool ends_session;       /* no request of the session follows: after this one, text that no other session has used is evicted first */
    bool adds_nothing;       /* read the cache, add neither the prompt nor the answer to it: for prompts that do not come again. Modules that are
                                missing are cached as ever. default: false */
    int32_t retain_s;        /* keep the prompt, the answer and the modules of the request in the cache for at least so many seconds after their last
                                use, up to a week, within a share of the tenant's budget (docs/eviction.md). 0: no such wish (default) */
} rp_request;

#define RP_MAX_SESSION_BYTES 1024

RP_API void rp_request_init(rp_request *request, uint32_t struct_size);
static inline rp_request rp_request_defaults(void) {
    rp_request o;
    rp_request_init(&o, (uint32_t)sizeof(o));
    return o;
}

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
                             "off"      the request disabled the lookup
                             */
    char key[17];         /* first 16 digits of the key of its last span, of reduced KV of its first one; "" for a run */
    float kept;           /* share of the module's slots in its reduced KV (rp_engine_options.keep_share); 1: all */
    const char *kept_by;  /* the method that chose them; "" for all. Static */
    const char *full_reason; /* why a module with keep has full KV; "" for reduced KV and without keep. Static:
                             "new"      its reduced KV was not computed yet
                             "short"    it has at most 64 tokens
                             "quality"  link, blend, focus and exact use full KV
                             "last"     the prompt ends with it
                             "scaffold" its KV is that of a joint prefill
                             "memory"   the KV budget cannot hold the computation of the plan's reduced KV
                             "context"  the context has no positions left to repeat it
                             "context_shift" its KV may have to be moved while the answer is decoded
                             "audit"    the auditor raised the schema (rp_engine_options.audit_raises)
                             "f16"      the auditor replaced the KV format of the schema's modules
                             */
    int32_t first_kept_share; /* its numbers in rp_result.kept_shares: n_kept_shares from this one on. 0 of them if the module is not reduced, or */
    int32_t n_kept_shares;    /* the request did not ask for any (rp_request.n_kept_shares) */
    uint64_t reserved[1]; /* 0 */
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
    uint64_t reserved[4]; /* 0 */
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
                                  "window" blend, focus: sliding-window layers lack KV that tokens inside the modules need
                                  "certain" focus: no prediction was uncertain */
    int32_t recomputed_tokens; /* recomputed module tokens */
    int32_t probed_tokens;     /* blend: tokens compared to choose them */
    double ms;                 /* estimated cost: the comparison, and those tokens' share of prompt_prefill_ms; focus: from
                                  the uncertain prediction to the new one */
    int64_t focus_token;       /* focus: number of the answer's token, from 1, whose prediction was uncertain; 0: none was */
    uint64_t reserved[3];      /* 0 */
} rp_quality_report;

/* What was kept of a prompt's KV for its answer (rp_request.kv_keep). */
typedef struct rp_kv_reduction {
    const char *method;    /* static; "": not reduced */
    double share;          /* kept slots, of all heads, of those that could be dropped; 1: all; quest: those that a token attends to */
    uint64_t bytes_before; /* KV of the complete prompt, its modules included, */
    uint64_t bytes;        /* and what was left of it for the answer; without a reduction, both are kv_bytes; quest: more, its bounds included */
    double ms;             /* time to choose and copy the slots, part of decode_ms; quest: to compute the bounds */
    const char *reason;    /* why the engine's default (rp_engine_options.kv_keep) did not apply: "focus" (a module's quality), "context_shift", "memory" (the KV
                              budget cannot hold complete and reduced KV together); "" otherwise. Static */
    uint64_t reserved[3];  /* 0 */
} rp_kv_reduction;

/* ttft_ms has one meaning everywhere: from arrival of the request (here: the call of rp_engine_submit or rp_engine_run;
 * in the server: the last byte of its body) to its first token, queueing and prefill of missing modules included. For
 * an answer without a token: to the moment at which that is known. It is the sum of the four times before it. */
typedef struct rp_timings {
    double queue_ms;  /* waiting for admission, or for a job that computes the same tokens */
    double module_prefill_ms; /* prefill of modules that missed. 0 with RP_REUSE_OFF, which caches none */
    double plan_ms;   /* from the document to the composed context, loads from disk included */
    double prompt_prefill_ms; /* prefill of the prompt's own text, and sampling of the first token */
    double ttft_ms;   /* time to first token: queue_ms + module_prefill_ms + plan_ms + prompt_prefill_ms */
    double decode_ms; /* the tokens after the first */
    double saved_ms;  /* estimated time to compute the reused KV: each span's cost as predicted when it was cached, in
                         proportion to the tokens used; eviction uses the same cost */
    double decode_tokens_per_second;
    double reserved[4]; /* 0 */
} rp_timings;

typedef struct rp_result {
    uint32_t struct_size;
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
    uint64_t kv_bytes;         /* KV that the request held at its end, its modules included */
    rp_timings timings;
    rp_quality_report quality;
    rp_plan_item *plan;
    int32_t n_plan;
    rp_mismatch mismatch;
    const char **warnings;     /* n_warnings lines about the request: parameters without an argument, positions beyond
                                  the training context. At most RP_MAX_WARNINGS; the last one counts the omitted ones */
    int32_t n_warnings;
    void *owner;               /* internal */
    rp_kv_reduction kv_reduction;
    int32_t dropped_messages;  /* oldest messages, after leading system messages, that rp_request.truncates left out */
    int32_t context_shifts;    /* how often the answer reached the end of the context and continued (rp_request.context_shift) */
    int32_t kept_step;         /* positions per number of kept_shares; 0 without any */
    float *kept_shares;        /* which slots reduced modules keep: numbers of all items (rp_plan_item.first_kept_share). Number i of an item: of
                                  the item's tokens at positions [position + i * kept_step, position + (i + 1) * kept_step), the share of
                                  their slots, of all KV heads of all layers, that the reduced KV has, 0 to 1. With a kept_step of 1 the share of
                                  (layer, KV head) pairs that keep the token's slot. 0 where a parameter is: its tokens are no tokens of the
                                  item. NULL: none. Freed with the result */
    int32_t n_kept_shares;     /* at most rp_request.n_kept_shares, and one more for each reduced module */
    float *embedding;          /* [n_embedding]; NULL: the request has no pooling. Length 1 unless raw_embedding is set; rank: the scores, as the
                                  head computes them. Freed with the result; text is then "" and n_tokens 0 */
    int32_t n_embedding;       /* rp_model_info.n_embd; rank: n_scores */
    int32_t n_prompt_top;      /* n_prompt_logprobs, or the size of the vocabulary if that is less; 0: none of the next four, which are NULL */
    int32_t *prompt_ids;       /* [prompt_tokens]: the prompt's tokens, the beginning-of-text token included. Freed with the result, like the next */
    float *prompt_logprobs;    /* [prompt_tokens]: each token's log-probability after those before it; a NaN for the first one, which has none */
    int32_t *prompt_ranks;     /* [prompt_tokens]: 1 for a token with the largest logit; 0 for the first token */
    rp_token_logprob *prompt_top_logprobs; /* [prompt_tokens][n_prompt_top]: most likely tokens per position, in order; {-1, NaN} for the first one */
    int32_t adapter_from;    /* first position that was computed with rp_request.adapter; -1: none: there is no adapter, its scale is 0, or the
                                prompt does not have its invocation tokens */
    int32_t inexact_tokens;  /* prompt tokens, cached and fresh ones, whose KV is not that of a full prefill: plan items that are not exact */
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

/* ---- Streams ---- */

/* A queue of events of any number of jobs (rp_request.stream), for programs that must not be called on the engine's thread: bindings of other
 * languages, event loops. The engine appends and never waits for the reader. Thread-safe, but one thread at a time may read.
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
    uint64_t tag;     /* rp_request.stream_tag */
    const char *text; /* the next n_bytes of the answer, in whole UTF-8 characters, as on_text gets them; pieces that wait are joined. Not
                         NUL-terminated */
    size_t n_bytes;   /* 0: the job ends without more text */
    bool ended;       /* the job's last event; each job that was submitted has one, whether it succeeds or fails. rp_job_result returns at once */
    bool incomplete;  /* with ended: there was no memory for the rest of the text, which the result has */
    uint64_t reserved[2]; /* 0 */
} rp_stream_event;

/* RP_ERR_MEMORY. */
RP_API int rp_stream_new(rp_stream **out, rp_error *err);
/* Free its jobs first: their events come to it until then. */
RP_API void rp_stream_free(rp_stream *stream);
/* A file descriptor that is readable (poll, epoll, an event loop) while events wait. Owned by the stream; -1: the system has none. Only
 * rp_stream_read may read from it. */
RP_API int rp_stream_fd(rp_stream *stream);
/* Waits up to timeout_ms (-1: no limit; 0: not at all) for events, and takes all of them, in order. A reader that waits gets text at most once a
 * millisecond, and the end of a job at once. Returns the number of events; 0: none came, or there is no memory to take them now. *events and their
 * texts are borrowed until the next call. */
RP_API int32_t rp_stream_read(rp_stream *stream, int64_t timeout_ms, const rp_stream_event **events);

/* Submits, waits and takes the result. *out is owned by the caller (rp_result_free). On error *out is NULL.
 * RP_ERR_INVALID (a value that is out of its range), RP_ERR_LIMIT (stop strings: too many, too long; log-probabilities; the tenant; a
 * grammar that is too large), RP_ERR_SYNTAX (the prompt; the grammar, with "grammar:line:column"), RP_ERR_NAME (schema, module, argument;
 * with the nearest name), RP_ERR_CONFLICT (two members of a union), RP_ERR_LENGTH (argument, or text in a fixed layout; with both
 * lengths), RP_ERR_CONTEXT, RP_ERR_BUDGET, RP_ERR_MEMORY. */
RP_API int rp_engine_run(rp_engine *engine, const rp_request *request, rp_result **out, rp_error *err);
RP_API void rp_result_free(rp_result *result);

/* A text to embed, or the token ids of one. */
typedef struct rp_embedding_input {
    const char *text;      /* n_bytes of UTF-8; NULL: tokens */
    size_t n_bytes;
    const char *second;    /* rank: n_second bytes, the document; NULL: none */
    size_t n_second;
    const int32_t *tokens; /* n_tokens ids, with nothing added to them */
    size_t n_tokens;
    uint64_t reserved[2];  /* 0 */
} rp_embedding_input;

/* Embeds n texts: submits a job for each, several at a time, and waits for all. request: pooling (OFF counts as MODEL), raw_embedding, tenant,
 * flow, reuse, priority, deadline_ms; its prompt and callbacks are not used. NULL: the defaults. results: [n], the caller's (rp_result_free). On
 * error all of them are NULL. Errors as rp_engine_run; those of one text begin with its number, from 1 ("text 3: ..."). */
RP_API int rp_engine_embed(rp_engine *engine, const rp_request *request, const rp_embedding_input *inputs, size_t n, rp_result **results,
                           rp_error *err);

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
    uint32_t struct_size;
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
/* RP_ERR_INVALID (struct_size is not set). */
RP_API int rp_engine_store_stats(rp_engine *engine, rp_store_stats *out);

/* Learned scaffolds (RP_QUALITY_SCAFFOLD; docs/quality.md): totals over all tenants; operator use only. A combination
 * is a prompt up to the end of its last module. As of the last job. */
typedef struct rp_scaffold_stats {
    uint32_t struct_size;
    uint64_t known;   /* combinations remembered */
    uint64_t prefilled; /* of them: prefilled jointly */
    uint64_t pending; /* of them: to be prefilled jointly when the engine is idle */
    uint64_t hits;    /* requests made exact by a scaffold */
    uint64_t misses;  /* requests without one: RP_QUALITY_REUSE was used */
    uint64_t dropped; /* scaffolds evicted, for lack of use or for others */
    uint64_t bytes, budget_bytes; /* KV they added; rp_engine_options.scaffold_bytes */
} rp_scaffold_stats;
/* RP_ERR_INVALID (struct_size is not set). */
RP_API int rp_engine_scaffold_stats(rp_engine *engine, rp_scaffold_stats *out);

/* ---- Log ------------------------------------------------------------------------------------------------------- */

/* Log messages of the library, for the whole process. Any thread. The environment variable REPRISE_LOG (off, error, warn, info, debug) overrides the
 * level that a program sets. */
typedef enum rp_log_level { RP_LOG_OFF = -1, RP_LOG_ERROR, RP_LOG_WARN, RP_LOG_INFO, RP_LOG_DEBUG } rp_log_level;
RP_API void rp_log_set_level(rp_log_level level); /* messages up to it; default RP_LOG_OFF */
/* Called for each message, on any thread, one at a time. It must not call the library. line: without a line feed; borrowed. Lines of
 * REPRISE_TRACE have RP_LOG_DEBUG. */
typedef void (*rp_on_log)(void *user, rp_log_level level, const char *line);
/* Sends messages to on_log instead of standard error; NULL: to standard error again, the default. After it returns, the former callback is not
 * called any more. */
RP_API void rp_log_set_callback(rp_on_log on_log, void *user);

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
