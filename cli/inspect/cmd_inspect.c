/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_inspect.c: `reprise inspect`: describes a model, draws a schema and the mosaic of a prompt.
 *
 * Owns the command's options and the sequence of steps; inspect_text.c, inspect_json.c and inspect_svg_*.c produce the
 * output. Only the layout and the plan are computed, no KV. One thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "common/input.h"
#include "inspect/inspect_json.h"
#include "inspect/inspect_svg.h"
#include "inspect/inspect_text.h"
#include "common/loader.h"
#include "reprise_tools.h"
#include "reprise_pml.h"

typedef struct inspect_options {
    const char *model, *chat_format, *pml, *svg;
    cli_list schemas;
    int32_t ctx;
    bool json;
} inspect_options;

#define AT(field) offsetof(inspect_options, field)
static const cli_option options[] = {
    {
        .name = "model",
        .letter = 'm',
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(model),
        .required = true,
        .help = "model file (GGUF), hf:OWNER/REPO[:QUANT], or a name of 'reprise models'; required; alone: describe "
                "the model",
    },
    {
        .name = "schema",
        .kind = CLI_LIST,
        .value = "FILE",
        .offset = AT(schemas),
        .help = "show this schema; of several, the one that the prompt names, or else the last",
    },
    {
        .name = "pml",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(pml),
        .help = "prompt file (PML), '-' for standard input: mark the modules it uses and list its plan",
    },
    {
        .name = "svg",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(svg),
        .help = "draw the plan of the prompt, or without one the canonical layout of the schema, into this file",
    },
    {
        .name = "ctx",
        .letter = 'c',
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(ctx),
        .min = 0,
        .max = INT32_MAX,
        .help = "context size in tokens, prompt and answer together; 0: the model's training context (0)",
    },
    {.name = "chat-format",
     .kind = CLI_TEXT,
     .value = "NAME",
     .offset = AT(chat_format),
     .help = "chat template name (from the model's metadata)"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print JSON"},
    {.name = NULL},
};
#undef AT

static int inspect_main(int argc, char **argv);

const cli_command cli_command_inspect = {
    .name = "inspect",
    .summary = "describe a model, a schema's layout, or a prompt's plan",
    .synopsis = "-m MODEL [--schema FILE [--pml FILE] [--svg FILE]] [--json]",
    .notes = "",
    .options = options,
    .main = inspect_main,
};

static int inspect_check_options(const inspect_options *o) {
    if (o->schemas.n > 0) return CLI_OK;
    if (o->pml != NULL) return cli_fail(CLI_WRONG_USE, "--pml '%s' needs its schema: give --schema FILE", o->pml);
    if (o->svg != NULL) return cli_fail(CLI_WRONG_USE, "--svg '%s' needs a schema to draw: give --schema FILE", o->svg);
    return CLI_OK;
}

static int inspect_write_svg(const char *path, const rp_inspection *in, bool with_prompt) {
    FILE *to = fopen(path, "wb");
    if (to == NULL) return cli_fail(CLI_FAILED, "cannot write '%s': %s", path, strerror(errno));
    if (with_prompt)
        inspect_svg_mosaic(to, in);
    else
        inspect_svg_schema(to, in);
    return cli_close_output(to, path);
}

static int inspect_show(const inspect_options *o, const rp_inspection *in) {
    bool with_prompt = o->pml != NULL;
    if (o->svg != NULL) {
        int status = inspect_write_svg(o->svg, in, with_prompt);
        if (status != CLI_OK) return status;
    }
    if (o->json) return inspect_json_print(in, with_prompt);
    inspect_text_tree(in, with_prompt);
    if (with_prompt) inspect_text_tiles(in);
    return cli_finish_output();
}

/* prompt: its document, or NULL. */
static int inspect_schema(const inspect_options *o, cli_loaded *l, const char *prompt) {
    rp_engine_options engine = rp_engine_options_defaults();
    engine.n_ctx = o->ctx;
    int status = cli_load_engine(l, &engine, &o->schemas);
    if (status != CLI_OK) return status;
    rp_inspection *in = NULL;
    rp_error err;
    const char *schema = prompt != NULL ? NULL : rp_schema_name(l->schema);
    const char *name = prompt != NULL ? cli_input_name(o->pml) : NULL;
    if (rp_engine_inspect(l->engine, NULL, schema, prompt, name, &in, &err) != RP_OK) return cli_fail_library(&err);
    status = inspect_show(o, in);
    rp_inspection_free(in);
    return status;
}

static int inspect_model(const inspect_options *o, cli_loaded *l) {
    rp_memory memory = {.struct_size = sizeof(memory)};
    rp_engine_options engine = rp_engine_options_defaults();
    engine.n_ctx = o->ctx;
    int status = cli_load_engine(l, &engine, &(cli_list){.n = 0});
    if (status != CLI_OK) return status;
    rp_engine_memory(l->engine, &memory);
    if (o->json) return inspect_json_model(l->model, &memory);
    inspect_text_model(l->model, &memory);
    return cli_finish_output();
}

static void inspect_on_progress(void *user, uint64_t done, uint64_t total) {
    cli_progress_draw(user, "hashing weights", NULL, done, total);
}

static int inspect_hash_model(cli_loaded *l) {
    cli_progress progress = {0};
    const char *fingerprint;
    rp_error err;
    int rc = rp_model_fingerprint(l->model, 0, inspect_on_progress, &progress, &fingerprint, &err);
    cli_progress_clear(&progress);
    return rc == RP_OK ? CLI_OK : cli_fail_library(&err);
}

static int inspect_main(int argc, char **argv) {
    inspect_options o = {0};
    cli_parsed parsed = cli_options_parse(&cli_command_inspect, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG || inspect_check_options(&o) != CLI_OK) return CLI_WRONG_USE;
    cli_loaded loaded = {0};
    char *prompt = NULL;
    int status = o.pml != NULL ? cli_read_utf8(o.pml, "a prompt is an XML document", &prompt) : CLI_OK;
    if (status == CLI_OK) status = cli_load_model(&loaded, o.model, o.chat_format);
    if (status == CLI_OK) status = inspect_hash_model(&loaded); /* so that keys equal those of stores */
    if (status == CLI_OK)
        status = o.schemas.n > 0 ? inspect_schema(&o, &loaded, prompt) : inspect_model(&o, &loaded);
    free(prompt);
    cli_loaded_free(&loaded);
    return status;
}
