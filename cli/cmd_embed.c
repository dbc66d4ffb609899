/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_embed.c: `reprise embed`: embeddings of texts, or their scores for a query, as lines of JSON. Owns nothing. The
   library's threads compute. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "common/json_out.h"
#include "common/loader.h"
#include "common/text.h"
#include "reprise_embedding.h"

typedef struct embed_options {
    const char *model, *pooling, *query;
    int32_t dimensions;
    bool raw, truncate;
    cli_engine_args engine;
    cli_list texts;
    const char *file;
} embed_options;

#define AT(field) offsetof(embed_options, field)
static const cli_option options[] = {
    {
        .name = "model",
        .letter = 'm',
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(model),
        .required = true,
        .help = "model file (GGUF), hf:OWNER/REPO[:QUANT], or a name of 'reprise models'; required",
    },
    {
        .name = "pooling",
        .kind = CLI_TEXT,
        .value = "mean|cls|last|rank|model",
        .offset = AT(pooling),
        .help = "what the hidden states of a text become; model: as the model's file says (model)",
    },
    {
        .name = "query",
        .kind = CLI_TEXT,
        .value = "TEXT",
        .offset = AT(query),
        .help = "print the score of each text for this query: of the model's rank head, or cosine similarity",
    },
    {
        .name = "dimensions",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(dimensions),
        .min = 0,
        .max = INT32_MAX,
        .help = "print only the first N values, scaled to length 1 again; 0: all (0)",
    },
    {
        .name = "raw",
        .kind = CLI_FLAG,
        .offset = AT(raw),
        .help = "do not scale embeddings to length 1; with --query: print scores as the rank head gives them",
    },
    {
        .name = "truncate",
        .kind = CLI_FLAG,
        .offset = AT(truncate),
        .help = "cut texts that exceed the context, at their end",
    },
    {
        .name = "ctx",
        .letter = 'c',
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(engine.ctx),
        .min = 0,
        .max = INT32_MAX,
        .help = "context size in tokens; 0: the model's training context (0)",
    },
    {
        .name = "threads",
        .letter = 't',
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(engine.threads),
        .min = 0,
        .max = 1024,
        .help = "number of threads; 0: one per processor (0)",
    },
    {
        .name = "ram",
        .kind = CLI_BYTES,
        .value = "BYTES",
        .offset = AT(engine.ram),
        .help = "total memory limit of the process; suffixes: K, M, G, T (none)",
    },
    {
        .name = "text",
        .kind = CLI_LIST,
        .value = "TEXT",
        .offset = AT(texts),
        .positional = true,
        .help = "texts; without one, each line of standard input",
    },
    {
        .name = "prompt",
        .letter = 'p',
        .kind = CLI_LIST,
        .value = "TEXT",
        .offset = AT(texts),
        .help = "text, as with TEXT; may be repeated",
    },
    {
        .name = "file",
        .letter = 'f',
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(file),
        .help = "file of texts, one in each line; '-': standard input",
    },
    {.name = NULL},
};
#undef AT

static int embed_main(int argc, char **argv);

const cli_command cli_command_embed = {
    .name = "embed",
    .summary = "print embeddings of texts",
    .synopsis = "-m MODEL [OPTIONS] [TEXT...]",
    .notes =
        "Prints a JSON object for each text: its index, its number of tokens, and its embedding; with --query its\n"
        "score instead.\n",
    .options = options,
    .main = embed_main,
};

/* Texts of a run; of a query and no rank head, the query is the first. */
typedef struct embed_texts {
    const char **items;
    size_t n, first; /* first: of the texts that are printed */
    bool is_ranked;
} embed_texts;

/* ---- input ---- */

/* The lines of `text`, in place. */
static int split_lines(char *text, embed_texts *t) {
    size_t n = 1;
    for (const char *c = text; *c; c++) n += *c == '\n';
    t->items = calloc(n + 1, sizeof(*t->items)); /* and a query */
    if (t->items == NULL) return cli_fail(CLI_FAILED, "out of memory");
    for (char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        bool more = line[length] == '\n';
        line[length] = '\0';
        t->items[t->n++] = line;
        line += length + more;
    }
    return CLI_OK;
}

static int take_arguments(const cli_list *list, embed_texts *t) {
    t->items = calloc(list->n + 1, sizeof(*t->items));
    if (t->items == NULL) return cli_fail(CLI_FAILED, "out of memory");
    memcpy(t->items, list->items, list->n * sizeof(*t->items));
    t->n = list->n;
    return CLI_OK;
}

/* A query that is compared by cosine similarity is the first text. */
static void take_query(const embed_options *o, const rp_model *model, embed_texts *t) {
    rp_model_info info = {.struct_size = sizeof info};
    rp_model_describe(model, &info);
    t->is_ranked = o->query != NULL && info.n_scores > 0;
    if (o->query == NULL || t->is_ranked) return;
    memmove(t->items + 1, t->items, t->n * sizeof(*t->items));
    t->items[0] = o->query;
    t->first = 1;
    t->n++;
}

/* ---- output ---- */

static double dot(const float *a, const float *b, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static json_t *embed_values(const embed_options *o, const rp_result *r) {
    const int32_t n = o->dimensions > 0 && o->dimensions < r->n_embedding ? o->dimensions : r->n_embedding;
    const double length = n < r->n_embedding && !o->raw ? sqrt(dot(r->embedding, r->embedding, n)) : 1;
    json_t *list = json_array();
    for (int32_t i = 0; i < n; i++)
        cli_json_append(list, json_real((double)r->embedding[i] / (length > 0 ? length : 1)));
    return list;
}

static double embed_score(const embed_options *o, const embed_texts *t, rp_result **results, size_t i) {
    const rp_result *r = results[i];
    if (!t->is_ranked) return dot(results[0]->embedding, r->embedding, r->n_embedding);
    return o->raw ? (double)r->embedding[0] : 1 / (1 + exp(-(double)r->embedding[0]));
}

static int embed_print(const embed_options *o, const embed_texts *t, rp_result **results) {
    int status = CLI_OK;
    for (size_t i = t->first; i < t->n && status == CLI_OK; i++) {
        json_t *line = json_object();
        cli_json_set(line, "index", json_integer((json_int_t)(i - t->first)));
        cli_json_set(line, "tokens", json_integer(results[i]->prompt_tokens));
        if (o->query != NULL) cli_json_set(line, "score", json_real(embed_score(o, t, results, i)));
        else cli_json_set(line, "embedding", embed_values(o, results[i]));
        status = cli_json_print(line);
    }
    return status == CLI_OK ? cli_finish_output() : status;
}

/* ---- all of it ---- */

/* The tokens of a text, if it is cut; *tokens: rp_free. */
static int embed_cut(const cli_loaded *l, const embed_options *o, rp_embedding_input *in, int32_t **tokens) {
    rp_engine_info info = {.struct_size = sizeof info};
    rp_error err;
    size_t n = 0;
    if (!o->truncate) return CLI_OK;
    rp_engine_describe(l->engine, &info);
    if (rp_tokenize_embedding(l->model, in->text, in->n_bytes, in->second, in->n_second, (size_t)info.n_ctx, tokens, &n,
                              &err) != RP_OK)
        return cli_fail_library(&err);
    *in = (rp_embedding_input){.tokens = *tokens, .n_tokens = n};
    return CLI_OK;
}

static int embed_run(const cli_loaded *l, const embed_options *o, const embed_texts *t, rp_embedding_input *inputs,
                     int32_t **tokens, rp_result **results) {
    rp_request request = rp_request_defaults();
    rp_error err;
    request.raw_embedding = o->raw && o->query == NULL;
    request.pooling = t->is_ranked ? RP_POOLING_RANK : RP_POOLING_MODEL;
    if (o->pooling != NULL && rp_pooling_parse(o->pooling, &request.pooling, &err) != RP_OK)
        return cli_fail(CLI_WRONG_USE, "--pooling: %s", err.message);
    for (size_t i = 0; i < t->n; i++) {
        const char *text = t->is_ranked ? o->query : t->items[i], *second = t->is_ranked ? t->items[i] : NULL;
        inputs[i] = (rp_embedding_input){.text = text, .n_bytes = strlen(text)};
        if (second != NULL) inputs[i].second = second, inputs[i].n_second = strlen(second);
        int status = embed_cut(l, o, &inputs[i], &tokens[i]);
        if (status != CLI_OK) return status;
    }
    if (rp_engine_embed(l->engine, &request, inputs, t->n, results, &err) != RP_OK) return cli_fail_library(&err);
    return embed_print(o, t, results);
}

static int embed_texts_run(const cli_loaded *l, const embed_options *o, const embed_texts *t) {
    rp_embedding_input *inputs = calloc(t->n + 1, sizeof(*inputs));
    int32_t **tokens = calloc(t->n + 1, sizeof(*tokens));
    rp_result **results = calloc(t->n + 1, sizeof(*results));
    int status = inputs && tokens && results ? embed_run(l, o, t, inputs, tokens, results)
                                             : cli_fail(CLI_FAILED, "out of memory");
    for (size_t i = 0; i < t->n && results; i++) rp_result_free(results[i]);
    for (size_t i = 0; i < t->n && tokens; i++) rp_free(tokens[i]);
    free(inputs);
    free(tokens);
    free(results);
    return status;
}

static int embed_main(int argc, char **argv) {
    embed_options o = {0};
    cli_parsed parsed = cli_options_parse(&cli_command_embed, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    if (o.texts.n > 0 && o.file != NULL)
        return cli_fail(CLI_WRONG_USE, "--file and texts (TEXT, --prompt) exclude each other: give one of them");
    cli_loaded loaded = {0};
    embed_texts texts = {0};
    const cli_list no_schemas = {.n = 0};
    char *text = NULL;
    size_t n = 0;
    rp_engine_options engine = cli_engine_options(&o.engine);
    int status = cli_load_model(&loaded, o.model, NULL);
    if (status == CLI_OK && o.texts.n == 0) status = cli_read(o.file != NULL ? o.file : "-", &text, &n);
    if (status == CLI_OK) status = o.texts.n == 0 ? split_lines(text, &texts) : take_arguments(&o.texts, &texts);
    if (status == CLI_OK) take_query(&o, loaded.model, &texts);
    if (status == CLI_OK) status = cli_load_engine(&loaded, &engine, &no_schemas);
    if (status == CLI_OK) status = cli_prepare_engine(&loaded, &engine);
    if (status == CLI_OK) status = embed_texts_run(&loaded, &o, &texts);
    free(texts.items);
    free(text);
    cli_loaded_free(&loaded);
    return status;
}
