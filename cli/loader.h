/* loader.h: what `run`, `inspect` and `tokenize` begin with: a model, an engine, schemas. */
#ifndef CLI_LOADER_H
#define CLI_LOADER_H

#include "options.h"
#include "reprise.h"

typedef struct cli_loaded {
    rp_model *model;
    rp_engine *engine;
    rp_schema *schema; /* the last of the schemas */
} cli_loaded;

/* Opens the model. chat_format: a name, or NULL. Returns an exit status; an unknown chat format is CLI_WRONG_USE. */
int cli_load_model(cli_loaded *l, const char *path, const char *chat_format);
/* Makes the engine and loads the schemas in order. Returns an exit status. */
int cli_load_engine(cli_loaded *l, const rp_engine_options *options, const cli_list *schemas);
/* Frees whatever was loaded. */
void cli_loaded_free(cli_loaded *l);

#endif
