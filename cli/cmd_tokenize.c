/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_tokenize.c: `reprise tokenize`: token ids of a text. Owns nothing. One thread. */
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "common/input.h"
#include "common/loader.h"
#include "common/text.h"

typedef struct tokenize_options {
    const char *model, *text, *prompt, *file;
    bool special, ids, bos;
} tokenize_options;

#define AT(field) offsetof(tokenize_options, field)
static const cli_option options[] = {
    {
        .name = "model",
        .letter = 'm',
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(model),
        .required = true,
        .help = "model file (GGUF), or one with the vocabulary only; required",
    },
    {
        .name = "text",
        .kind = CLI_TEXT,
        .value = "TEXT",
        .offset = AT(text),
        .positional = true,
        .help = "text; '-', or no text at all: standard input to its end",
    },
    {.name = "prompt",
     .letter = 'p',
     .kind = CLI_TEXT,
     .value = "TEXT",
     .offset = AT(prompt),
     .help = "text, as with TEXT"},
    {.name = "file",
     .letter = 'f',
     .kind = CLI_TEXT,
     .value = "FILE",
     .offset = AT(file),
     .help = "file of the text, all of its bytes"},
    {.name = "special",
     .kind = CLI_FLAG,
     .offset = AT(special),
     .help = "parse special tokens in the text; only for trusted text"},
    {.name = "bos",
     .kind = CLI_FLAG,
     .offset = AT(bos),
     .help = "add the beginning-of-text token if the model uses one"},
    {.name = "ids", .kind = CLI_FLAG, .offset = AT(ids), .help = "print the ids only, on one line"},
    {.name = NULL},
};
#undef AT

static int tokenize_main(int argc, char **argv);

const cli_command cli_command_tokenize = {
    .name = "tokenize",
    .summary = "show the tokens of a text",
    .synopsis = "-m MODEL (TEXT | -p TEXT | -f FILE | < FILE) [--special] [--bos] [--ids]",
    .notes = "Prints a line 'id<TAB>text' for each token. Non-printable bytes are written as \\n, \\t, \\r, \\\\ or "
             "\\xNN.\n",
    .options = options,
    .main = tokenize_main,
};

static void print_escaped(const char *s, size_t n) {
    static const char named[] = "\nn\tt\rr\\\\";
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t len = cli_utf8_next(s + i, n - i, &c);
        const char *name = c != 0 && c < 0x80 ? strchr(named, (int)c) : NULL;
        if (name != NULL && (name - named) % 2 == 0)
            printf("\\%c", name[1]);
        else if (cli_is_control(c))
            for (size_t k = 0; k < len; k++) printf("\\x%02X", (unsigned)(unsigned char)s[i + k]);
        else
            fwrite(s + i, 1, len, stdout);
        i += len;
    }
}

static void print_tokens(const rp_model *model, const int32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes = 0;
        const char *bytes = rp_token_bytes(model, tokens[i], true, &n_bytes);
        printf("%d\t", (int)tokens[i]);
        if (bytes != NULL) print_escaped(bytes, n_bytes);
        fputc('\n', stdout);
    }
}

static void print_ids(const int32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++) printf("%s%d", i > 0 ? " " : "", (int)tokens[i]);
    fputc('\n', stdout);
}

static int tokenize_tokenize(const tokenize_options *o, const rp_model *model, const char *text, size_t n) {
    int32_t *tokens = NULL;
    size_t n_tokens = 0;
    rp_error err;
    if (rp_tokenize(model, text, n, o->special, o->bos, &tokens, &n_tokens, &err) != RP_OK)
        return cli_fail_library(&err);
    if (o->ids)
        print_ids(tokens, n_tokens);
    else
        print_tokens(model, tokens, n_tokens);
    rp_free(tokens);
    return cli_finish_output();
}

/* The text of an argument, a file or standard input; *owned: freed by the caller, or NULL. */
static int tokenize_read(const tokenize_options *o, const char **text, char **owned, size_t *n) {
    *text = o->text != NULL ? o->text : o->prompt;
    if (o->prompt == NULL && (*text == NULL || strcmp(*text, "-") == 0)) {
        int status = cli_read(o->file != NULL ? o->file : "-", owned, n);
        *text = *owned;
        return status;
    }
    cli_warn_of_file(o->prompt != NULL ? "-p " : "", *text);
    *n = strlen(*text);
    return CLI_OK;
}

static int tokenize_main(int argc, char **argv) {
    tokenize_options o = {0};
    cli_parsed parsed = cli_options_parse(&cli_command_tokenize, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    if ((o.text != NULL) + (o.prompt != NULL) + (o.file != NULL) > 1)
        return cli_fail(
            CLI_WRONG_USE,
            "more than one text: give one of TEXT, --prompt and --file, and put a text of several words in quotes");
    cli_loaded loaded = {0};
    const char *text = NULL;
    char *owned = NULL;
    size_t n = 0;
    int status = cli_load_vocabulary(&loaded, o.model);
    if (status == CLI_OK) status = tokenize_read(&o, &text, &owned, &n);
    if (status == CLI_OK) status = tokenize_tokenize(&o, loaded.model, text, n);
    free(owned);
    cli_loaded_free(&loaded);
    return status;
}
