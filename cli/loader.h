/* loader.h: what `run`, `inspect` and `tokenize` begin with: a model, an engine, schemas. */
#ifndef CLI_LOADER_H
#define CLI_LOADER_H

#include "options.h"
#include "reprise.h"

typedef struct cli_loaded {
    rp_model *model;
    rp_engine *engine;
    rp_schema *schema; /* the last of the schemas */
    const int64_t *close_ms; /* what rp_engine_close gets; NULL: no limit */
} cli_loaded;

/* Options that `run` and `eval` share; all zero: the defaults. */
typedef struct cli_engine_args {
    int32_t ctx, threads, chunk, states, write;
    uint64_t ram, kv_ram, disk;
    const char *store, *store_key;
    bool read_only;
} cli_engine_args;

extern const char *const cli_kv_formats[]; /* the order of rp_kv_format; ends with NULL */
extern const char *const cli_write_names[]; /* the order of rp_store_write */

/* Their rows in a command's table. field: the cli_engine_args in the command's struct `type`. t: the short form of --threads, or 0. */
#define CLI_ENGINE_ROWS(type, field, t) \
    {.name = "ctx", .letter = 'c', .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.ctx), .min = 0, .max = INT32_MAX, \
     .help = "positions for prompt and answer; 0: what the model was trained for (0)"}, \
    {.name = "threads", .letter = t, .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.threads), .min = 0, .max = 1024, \
     .help = "threads; 0: one for each processor (0)"}, \
    {.name = "chunk", .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.chunk), .min = 0, .max = 4096, \
     .help = "tokens computed in one step of a prefill; 0: 256; results do not depend on it (0)"}, \
    {.name = "kv-format", .kind = CLI_CHOICE, .value = "f16|f32", .offset = offsetof(type, field.states), .choices = cli_kv_formats, \
     .help = "format of attention states (f16)"}, \
    {.name = "ram", .kind = CLI_BYTES, .value = "BYTES", .offset = offsetof(type, field.ram), \
     .help = "limit for all memory that the program takes: attention states get what weights leave; K, M, G, T may follow the number (none)"}, \
    {.name = "kv-ram", .kind = CLI_BYTES, .value = "BYTES", .offset = offsetof(type, field.kv_ram), \
     .help = "limit for attention states in memory (2G; with --ram: what is left)"}

/* Rows of commands that may keep states on disk. */
#define CLI_STORE_ROWS(type, field) \
    {.name = "store", .kind = CLI_TEXT, .value = "DIR", .offset = offsetof(type, field.store), \
     .help = "keep attention states in this folder, and find what is there: nothing is read twice, not even by the next run"}, \
    {.name = "disk", .kind = CLI_BYTES, .value = "BYTES", .offset = offsetof(type, field.disk), \
     .help = "limit for the whole folder on disk (16G)"}, \
    {.name = "store-key", .kind = CLI_TEXT, .value = "FILE", .offset = offsetof(type, field.store_key), \
     .help = "encrypt states on disk with the key in this file: 32 bytes, or 64 hexadecimal digits"}, \
    {.name = "write", .kind = CLI_CHOICE, .value = "back|through|off", .offset = offsetof(type, field.write), .choices = cli_write_names, \
     .help = "back: states are written soon, beside the computing; through: before an answer ends; off: what is there is used, nothing is added (back)"}, \
    {.name = "read-only", .kind = CLI_FLAG, .offset = offsetof(type, field.read_only), \
     .help = "write nothing to the folder at all, so that another process may use it, too"}

rp_engine_options cli_engine_options(const cli_engine_args *args);

/* Opens the model. chat_format: a name, or NULL. Returns an exit status; an unknown chat format is CLI_WRONG_USE. */
int cli_load_model(cli_loaded *l, const char *path, const char *chat_format);
/* Opens a model for its tokens alone: files that hold nothing but a vocabulary will do. Returns an exit status. */
int cli_load_vocabulary(cli_loaded *l, const char *path);
/* Makes the engine and loads the schemas in order. Returns an exit status. */
int cli_load_engine(cli_loaded *l, const rp_engine_options *options, const cli_list *schemas);
/* Prepares the weights, with a progress bar. Returns an exit status. */
int cli_prepare_engine(cli_loaded *l);
/* Frees whatever was loaded. */
void cli_loaded_free(cli_loaded *l);

#endif
