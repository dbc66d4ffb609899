/* SPDX-License-Identifier: Apache-2.0 */
/* loader.h: setup shared by commands such as `run`, `inspect` and `tokenize`: a model, an engine, schemas. */
#ifndef CLI_LOADER_H
#define CLI_LOADER_H

#include "common/options.h"
#include "reprise.h"
#include "reprise_test.h"
#include "reprise_pml.h"

typedef struct cli_loaded {
    const char *path; /* of the model: `found`, or borrowed */
    char *found;      /* owned: where the name of -m leads; NULL: the model was opened by its path */
    rp_model *model;
    const char *draft_path; /* of the engine's draft model, set before the engine is made: `draft_found`, or borrowed;
                               NULL: none */
    char *draft_found;      /* owned: cli_find_draft */
    rp_model *draft;
    rp_engine *engine;
    rp_schema *schema;           /* the last of the schemas */
    const int64_t *close_ms;     /* argument of rp_engine_close; NULL: no limit */
    const rp_mock_options *mock; /* set before the model is opened: it is a mock (reprise_test.h); NULL: it is not */
} cli_loaded;

/* Options shared by `run` and `eval`; all zero: the defaults. */
typedef struct cli_engine_args {
    int32_t ctx, threads, chunk, states, write, module_states, kv_in_place, device_layers, device_arithmetic;
    uint64_t ram, kv_ram, disk;
    uint64_t weights; /* 0: the default; CLI_OFF */
    const char *store, *store_key, *kv_f16_layers, *keep, *keep_method, *draft_model, *device;
    uint64_t device_ram;
    bool read_only;
} cli_engine_args;

/* Defaults of --weights-cache, as in rp_engine_options. */
#define CLI_WEIGHTS_BYTES ((uint64_t)8 << 30)
#define CLI_WEIGHTS_MIN_BYTES ((uint64_t)64 << 20)

#define CLI_KV_FORMAT(NAME, number, name, keys, values) "|" name
#define CLI_KV_FORMATS &(RP_KV_FORMATS(CLI_KV_FORMAT))[1] /* "f16|f32|..." */
#define CLI_KV_F16_HELP \
    "layers that keep their KV in f16 in a smaller --kv-format: 0,1,27, 0-2, or windows, all layers with a sliding " \
    "window (none)"
#define CLI_KEEP_HELP \
    "share of their KV that modules keep once it is reduced in the background: 25%, or auto; keep=\"...\" in a " \
    "schema overrides it (100%)"
#define CLI_KEEP_METHOD_HELP "KV that a reduced module keeps: kvzip, kvzip+, expected or compactor (kvzip)"
#define CLI_KV_METHODS "snapkv, sinks or quest"
#define CLI_MODULE_STATES_HELP \
    "modules of models with recurrent layers; exact: they are text of the prompt; last: reused, these layers " \
    "continue with the states after the last module; composed: with states composed of all modules, Mamba2 only (exact)"
extern const char *const cli_kv_formats[];          /* in the order of rp_kv_format; ends with NULL */
extern const char *const cli_write_names[];         /* in the order of rp_store_write */
extern const char *const cli_kv_in_place_names[];   /* in the order of rp_kv_in_place */
extern const char *const cli_arithmetic_names[];    /* in the order of rp_device_arithmetic */
extern const char *const cli_module_states_names[]; /* in the order of rp_module_states */

/* Their rows in a command's table. field: the cli_engine_args in the command's struct `type`. t: the short form of
 * --threads, or 0. */
/* clang-format off */
#define CLI_ENGINE_ROWS(type, field, t) \
    {.name = "ctx", .letter = 'c', .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.ctx), .min = 0, \
     .max = INT32_MAX, \
     .help = "context size in tokens, prompt and answer together; 0: the model's training context (0)"}, \
    {.name = "threads", .letter = t, .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.threads), .min = 0, \
     .max = 1024, \
     .help = "number of threads; 0: one per processor (0)"}, \
    {.name = "chunk", .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.chunk), .min = 0, .max = 4096, \
     .help = "prefill chunk size in tokens; 0: 256; does not change results (0)"}, \
    {.name = "kv-format", .kind = CLI_CHOICE, .value = CLI_KV_FORMATS, .offset = offsetof(type, field.states), \
     .choices = cli_kv_formats, \
     .help = "KV cache format; int8 takes half the memory of f16, for nearly the same answers; the smaller ones are " \
             "for modules (f16)"}, \
    {.name = "kv-f16-layers", .kind = CLI_TEXT, .value = "LIST", .offset = offsetof(type, field.kv_f16_layers), \
     .help = CLI_KV_F16_HELP}, \
    {.name = "module-states", .kind = CLI_CHOICE, .value = "exact|last|composed", \
     .offset = offsetof(type, field.module_states), .choices = cli_module_states_names, \
     .help = CLI_MODULE_STATES_HELP}, \
    {.name = "keep", .kind = CLI_TEXT, .value = "SHARE|auto", .offset = offsetof(type, field.keep), \
     .help = CLI_KEEP_HELP}, \
    {.name = "keep-method", .kind = CLI_TEXT, .value = "METHOD", .offset = offsetof(type, field.keep_method), \
     .help = CLI_KEEP_METHOD_HELP}, \
    {.name = "ram", .kind = CLI_BYTES, .value = "BYTES", .offset = offsetof(type, field.ram), \
     .help = "total memory limit of the process; the KV cache gets the memory that weights leave; suffixes: K, M, " \
             "G, T (none)"}, \
    {.name = "kv-ram", .kind = CLI_BYTES, .value = "BYTES", .offset = offsetof(type, field.kv_ram), \
     .help = "memory limit of the KV cache in RAM (2G; with --ram: the remainder)"}, \
    {.name = "device", .kind = CLI_TEXT, .value = "NAME", .offset = offsetof(type, field.device), \
     .help = "where to compute: cpu, vulkan, vulkan:N (reprise devices), or auto: the " \
             "processor (auto)"}, \
    {.name = "device-ram", .kind = CLI_BYTES, .value = "BYTES", .offset = offsetof(type, field.device_ram), \
     .help = "limit on memory of the GPU: weights, activations and KV cache (none: 2G of KV cache)"}, \
    {.name = "device-layers", .kind = CLI_COUNT, .value = "N|auto", .offset = offsetof(type, field.device_layers), \
     .min = 0, .max = INT32_MAX, \
     .help = "number of layers that the GPU computes, the last ones; the processor computes the others; auto: all, " \
             "or the most that --device-ram holds (auto)"}, \
    {.name = "device-arithmetic", .kind = CLI_CHOICE, .value = "int8|f32", \
     .offset = offsetof(type, field.device_arithmetic), .choices = cli_arithmetic_names, \
     .help = "products with quantized weights on a GPU: of activations rounded to 8 bits, as on the processor, or " \
             "of 32 bits, which are slower (int8)"}, \
    {.name = "kv-in-place", .kind = CLI_CHOICE, .value = "auto|always|never", \
     .offset = offsetof(type, field.kv_in_place), .choices = cli_kv_in_place_names, \
     .help = "where a GPU reads KV that it evicted to RAM: there, over the bus, or in its own memory after a copy; " \
             "auto: by cost (auto)"}, \
    {.name = "weights-cache", .kind = CLI_LIMIT, .value = "BYTES|off", .offset = offsetof(type, field.weights), \
     .help = "disk limit of files with repacked weights, which later starts map: in the store's folder, or in " \
             "~/.cache/reprise " \
             "(8G, for models from 64M)"}
/* clang-format on */

/* The row of commands with a draft model. */
/* clang-format off */
#define CLI_DRAFT_ROW(type, field) \
    {.name = "draft-model", .kind = CLI_TEXT, .value = "FILE", .offset = offsetof(type, field.draft_model), \
     .help = "speculative decoding: a smaller model with the same vocabulary, which drafts tokens where prompt " \
             "lookup finds none; its KV is part of --kv-ram; no answer changes (none)"}
/* clang-format on */

/* Rows of commands that may use a store on disk. */
/* clang-format off */
#define CLI_STORE_ROWS(type, field) \
    {.name = "store", .kind = CLI_TEXT, .value = "DIR", .offset = offsetof(type, field.store), \
     .help = "folder of the store: keep KV on disk and reuse it in later runs"}, \
    {.name = "disk", .kind = CLI_BYTES, .value = "BYTES", .offset = offsetof(type, field.disk), \
     .help = "disk limit of the store's folder (16G)"}, \
    {.name = "store-key", .kind = CLI_TEXT, .value = "FILE", .offset = offsetof(type, field.store_key), \
     .help = "encrypt the store's records with the key in this file: 32 bytes, or 64 hexadecimal digits"}, \
    {.name = "write", .kind = CLI_CHOICE, .value = "back|through|off", .offset = offsetof(type, field.write), \
     .choices = cli_write_names, \
     .help = "back: write KV to the store in the background; through: before an answer ends; off: read from the " \
             "store, add nothing (back)"}, \
    {.name = "read-only", .kind = CLI_FLAG, .offset = offsetof(type, field.read_only), \
     .help = "open the store read-only, so that another process can use it at the same time"}
/* clang-format on */

/* The result borrows from args, and from a path and options of a device of the process that the next call changes. */
rp_engine_options cli_engine_options(const cli_engine_args *args);
/* The folder of repacked weights of a store, or without one (NULL) the user's: static, changed by the next call. NULL:
 * there is none, or its path is too long. */
const char *cli_weights_dir(const char *store);

/* CLI_OK for NULL and a known name; else an exit status, after its error line. */
int cli_check_chat_format(const char *name);
/* Opens model, engine and schemas and prepares the weights, without error lines. chat_format: checked; NULL: the
 * model's. shows_progress: with a progress bar and warnings. Returns an rp_code; on an error nothing is open. */
int cli_open(cli_loaded *l, const char *path, const char *chat_format, const rp_engine_options *options,
             const cli_list *schemas, bool shows_progress, rp_error *err);

/* Opens the model. chat_format: a name, or NULL. Returns an exit status; an unknown chat format is CLI_WRONG_USE. */
int cli_load_model(cli_loaded *l, const char *path, const char *chat_format);
/* Opens a model for its vocabulary only; files without weights are accepted. Returns an exit status. */
int cli_load_vocabulary(cli_loaded *l, const char *path);
/* The file of the draft model, by its path or name; NULL: none. Before the engine is made. Returns an exit status. */
int cli_find_draft(cli_loaded *l, const char *name);
/* Creates the engine and loads the schemas in order. Returns an exit status. */
int cli_load_engine(cli_loaded *l, const rp_engine_options *options, const cli_list *schemas);
/* Prepares the weights, with a progress bar. Returns an exit status. */
int cli_prepare_engine(cli_loaded *l, const rp_engine_options *options);
/* Frees everything that was loaded. */
void cli_loaded_free(cli_loaded *l);

#endif
