/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_chat.c: `reprise chat`: a conversation in the terminal.
 *
 * Owns the command's options and its loop. Without a terminal on standard input and output it reads messages line by
 * line and prints answers only.
 */
#include <stdlib.h>
#include <string.h>

#include "chat/chat_commands.h"
#include "chat/chat_input.h"
#include "chat/chat_session.h"
#include "common/command.h"
#include "common/console.h"
#include "common/text.h"
#include "run_form.h"

#define CHAT_MAX_TOKENS 1024 /* longer than of `run`: an answer in a chat should not be cut */

typedef struct chat_options {
    const char *model, *chat_format, *system, *history, *json_schema;
    chat_settings settings;
    cli_engine_args engine;
    int32_t draft;
} chat_options;

#define AT(field) offsetof(chat_options, field)
/* clang-format off */
static const cli_option options[] = {
    {.name = "model", .letter = 'm', .kind = CLI_TEXT, .value = "FILE", .offset = AT(model), .required = true,
     .help = "model file (GGUF), hf:OWNER/REPO[:QUANT], or a name of 'reprise models'; required"},
    {.name = "system", .kind = CLI_TEXT, .value = "STRING", .offset = AT(system), .help = "system prompt (none)"},
    CHAT_SETTING_ROWS(chat_options, settings),
    RUN_JSON_SCHEMA_ROW(chat_options, json_schema),
    {.name = "draft", .kind = CLI_INT, .value = "N", .offset = AT(draft), .min = RP_DRAFT_AUTO, .max = RP_MAX_DRAFT,
     .help = "speculative decoding by prompt lookup, and by --draft-model: draft up to N tokens a step; -1: as many as "
             "are expected to save time; the answer does not change (-1)"},
    CLI_DRAFT_ROW(chat_options, engine),
    CLI_ENGINE_ROWS(chat_options, engine, 't'),
    CLI_STORE_ROWS(chat_options, engine),
    {.name = "chat-format", .kind = CLI_TEXT, .value = "NAME", .offset = AT(chat_format),
     .help = "chat template name (from the model's metadata)"},
    {.name = "history", .kind = CLI_TEXT, .value = "FILE", .offset = AT(history),
     .help = "file of the messages that the arrow keys bring back; off: none ($XDG_STATE_HOME/reprise/chat_history)"},
    {.name = NULL},
};
/* clang-format on */
#undef AT

static int chat_main(int argc, char **argv);

const cli_command cli_command_chat = {
    .name = "chat",
    .summary = "chat with a model in the terminal",
    .synopsis = "-m MODEL [OPTIONS]",
    .notes = "/help lists the commands of a chat. Ctrl-C stops an answer, Ctrl-D ends the program.\n"
             "Without a terminal, each line of standard input is a message, and answers alone are printed.\n"
             "exit status: 0 success, 1 failure, 2 usage error, 130 interrupted (Ctrl-C, without a terminal)\n",
    .options = options,
    .main = chat_main,
};

static int chat_load(const chat_options *o, cli_loaded *loaded, chat_session *s) {
    static const cli_list no_schemas;
    int status = cli_load_model(loaded, o->model, o->chat_format);
    if (status == CLI_OK) status = cli_sampling_bias(&o->settings.sampling, loaded->model, &s->bias, &s->n_bias);
    if (status != CLI_OK) return status;
    cli_sampling_settle(&s->settings.sampling, loaded->model);
    rp_engine_options engine = cli_engine_options(&o->engine);
    status = cli_find_draft(loaded, o->engine.draft_model);
    if (status == CLI_OK) status = cli_load_engine(loaded, &engine, &no_schemas);
    if (status == CLI_OK) status = cli_prepare_engine(loaded, &engine);
    s->engine = loaded->engine;
    return status;
}

static void chat_print_welcome(const rp_model *model) {
    rp_model_info info = {.struct_size = sizeof(info)};
    const bool dim = cli_has_colour(stderr);
    rp_model_describe(model, &info);
    fputs(dim ? "\x1b[2m" : "", stderr);
    cli_print_fit(stderr, info.name[0] != '\0' ? info.name : info.architecture, 60, 0);
    fprintf(stderr, ", %s. /help lists the commands, Ctrl-D ends.%s\n", info.weights, dim ? "\x1b[0m" : "");
}

/* Returns an exit status. */
static int chat_take(chat_session *s, const char *text, bool *quit) {
    if (chat_is_command(text)) return chat_command_run(s, text, quit);
    return chat_session_send(s, text + (text[0] == '/' && text[1] == '/'));
}

/* On a terminal the conversation goes on after an error or Ctrl-C. */
static int chat_loop(chat_session *s, chat_input *in) {
    for (bool quit = false; !quit;) {
        char *text = NULL;
        if (s->interactive) cli_interrupt_catch_each();
        chat_read done = chat_input_read(in, &text);
        if (done == CHAT_READ_END) break;
        if (done == CHAT_READ_CANCELLED) continue;
        if (done == CHAT_READ_FAILED) return CLI_FAILED;
        if (!s->interactive) cli_interrupt_catch();
        int status = chat_take(s, text, &quit);
        free(text);
        if (!s->interactive) cli_interrupt_release(); /* Ctrl-C ends a program that waits for a line */
        if (status != CLI_OK && !s->interactive) return status;
    }
    return cli_finish_output();
}

static int chat_with(const chat_options *o) {
    cli_loaded loaded = {0};
    char *schema = NULL, *grammar = NULL;
    chat_session s = {
        .settings = o->settings, .draft = o->draft, .interactive = cli_is_terminal(stdin) && cli_is_terminal(stdout)};
    int status = o->json_schema != NULL ? run_schema_read(o->json_schema, &schema, &grammar) : CLI_OK;
    s.grammar = grammar;
    if (status == CLI_OK) status = chat_load(o, &loaded, &s);
    if (status == CLI_OK) {
        chat_session_set_system(&s, o->system);
        chat_input *in = chat_input_open(s.interactive, o->history);
        if (s.interactive) chat_print_welcome(loaded.model);
        status = chat_loop(&s, in);
        chat_input_close(in);
    }
    chat_session_free(&s);
    cli_loaded_free(&loaded);
    free(s.bias);
    free(schema);
    rp_free(grammar);
    return status;
}

static int chat_main(int argc, char **argv) {
    chat_options o = {.settings = {.sampling = cli_sampling_defaults(), .max_tokens = CHAT_MAX_TOKENS},
                      .draft = RP_DRAFT_AUTO};
    cli_parsed parsed = cli_options_parse(&cli_command_chat, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    int status = cli_sampling_check(&o.settings.sampling);
    return status == CLI_OK ? chat_with(&o) : status;
}
