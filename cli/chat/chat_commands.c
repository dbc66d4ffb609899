/* SPDX-License-Identifier: Apache-2.0 */
/* chat_commands.c: the /commands of `reprise chat`: a table, and a function for each. Owns nothing. One thread. */
#include "chat/chat_commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "common/text.h"
#include "run_report.h"
#include "reprise_store.h"

/* What cli_options_parse fills in for /set. */
typedef struct setting_values {
    chat_settings values;
} setting_values;

static const cli_option settings[] = {CHAT_SETTING_ROWS(setting_values, values), {.name = NULL}};

/* For cli_options_parse, which gives errors the names of command and option. */
static const cli_command set_command = {
    .name = "chat", .summary = "", .synopsis = "", .notes = "", .options = settings};

/* ---- Settings ---- */

static bool setting_is_number(const cli_option *o) {
    return o->kind == CLI_INT || o->kind == CLI_REAL || o->kind == CLI_U64;
}

static void setting_print(const cli_option *o, const chat_settings *values) {
    const char *at = (const char *)values + o->offset;
    fprintf(stderr, "  %-18s ", o->name);
    if (o->kind == CLI_INT) fprintf(stderr, "%" PRId32 "\n", *(const int32_t *)(const void *)at);
    if (o->kind == CLI_U64) fprintf(stderr, "%" PRIu64 "\n", *(const uint64_t *)(const void *)at);
    if (o->kind == CLI_REAL) fprintf(stderr, "%g\n", (double)*(const float *)(const void *)at);
}

static int setting_unknown(const char *name) {
    cli_nearest nearest = cli_nearest_start(name);
    for (const cli_option *o = settings; o->name != NULL; o++)
        if (setting_is_number(o)) cli_nearest_try(&nearest, o->name);
    if (nearest.best != NULL)
        return cli_fail(CLI_FAILED, "/set: there is no '%s': did you mean '%s'?", name, nearest.best);
    return cli_fail(CLI_FAILED, "/set: there is no '%s': /set alone lists the names", name);
}

/* text: "NAME VALUE", or "NAME=VALUE". */
static int command_set(chat_session *s, const char *text) {
    size_t n = strcspn(text, " =");
    char *option = cli_alloc(strlen(text) + 4);
    const cli_option *o = settings;
    if (n == 0) {
        for (; o->name != NULL; o++)
            if (setting_is_number(o)) setting_print(o, &s->settings);
        free(option);
        return CLI_OK;
    }
    sprintf(option, "--%.*s", (int)n, text);
    while (o->name != NULL && (strcmp(o->name, option + 2) != 0 || !setting_is_number(o))) o++;
    int status = o->name == NULL ? setting_unknown(option + 2) : CLI_OK;
    if (status == CLI_OK) {
        sprintf(option + n + 2, "=%s", text + n + strspn(text + n, " ="));
        char *argv[] = {(char *)(uintptr_t) "chat", option};
        status = cli_options_parse(&set_command, 2, argv, &s->settings) == CLI_PARSED ? CLI_OK : CLI_FAILED;
    }
    free(option);
    return status;
}

/* ---- The conversation ---- */

static int command_reset(chat_session *s, const char *text) {
    (void)text;
    chat_session_reset(s);
    return CLI_OK;
}

static int command_system(chat_session *s, const char *text) {
    if (*text != '\0') {
        chat_session_set_system(s, strcmp(text, "-") == 0 ? NULL : text);
        return CLI_OK;
    }
    if (s->system == NULL) fputs("no system prompt: set one with /system TEXT\n", stderr);
    else cli_print_safe(stderr, s->system, strlen(s->system)), fputc('\n', stderr);
    return CLI_OK;
}

static int command_retry(chat_session *s, const char *text) {
    (void)text;
    return chat_session_retry(s);
}

static int command_undo(chat_session *s, const char *text) {
    (void)text;
    return chat_session_undo(s) ? CLI_OK : cli_fail(CLI_FAILED, "there is no message to remove");
}

static int command_save(chat_session *s, const char *text) { return chat_session_save(s, text); }

static int command_load(chat_session *s, const char *text) {
    int status = chat_session_load(s, text);
    if (status == CLI_OK && s->interactive) fprintf(stderr, "%zu messages\n", s->n);
    return status;
}

/* ---- Reports ---- */

static int command_stats(chat_session *s, const char *text) {
    const chat_totals *t = &s->totals;
    rp_memory memory = {.struct_size = sizeof(memory)};
    rp_store_stats store = {.struct_size = sizeof(store)};
    (void)text;
    rp_engine_memory(s->engine, &memory);
    rp_engine_store_stats(s->engine, &store);
    fprintf(stderr,
            "%" PRId64 " answers; prompts %" PRId64 " tokens, %.0f %% cached; answers %" PRId64
            " tokens, %.1f tokens/s; prefill saved %.1f s\n",
            t->answers, t->prompt_tokens,
            t->prompt_tokens > 0 ? 100.0 * (double)t->cached_tokens / (double)t->prompt_tokens : 0.0, t->answer_tokens,
            t->decode_ms > 0 ? 1e3 * (double)(t->answer_tokens - t->answers) / t->decode_ms : 0.0, t->saved_ms / 1e3);
    fprintf(stderr, "KV cache %.1f of %.1f MiB", (double)memory.kv / (1 << 20), (double)memory.kv_limit / (1 << 20));
    if (store.disk_state != RP_STORE_OFF)
        fprintf(stderr, "; store (%s) %.1f of %.1f MiB", rp_store_state_name(store.disk_state),
                (double)store.disk_bytes / (1 << 20), (double)store.disk_budget_bytes / (1 << 20));
    fputc('\n', stderr);
    return CLI_OK;
}

static int command_explain(chat_session *s, const char *text) {
    (void)text;
    if (s->last == NULL) return cli_fail(CLI_FAILED, "there is no answer to explain: send a message first");
    run_report_explain(stderr, s->last);
    return CLI_OK;
}

/* ---- The table ---- */

static int command_help(chat_session *s, const char *text);

typedef enum command_argument { ARGUMENT_NONE,
                                ARGUMENT_OPTIONAL,
                                ARGUMENT_REQUIRED } command_argument;

static const struct {
    const char *name, *value;
    command_argument argument;
    int (*run)(chat_session *s, const char *text);
    const char *help; /* NULL: another name of the one before */
} commands[] = {
    {"help", "", ARGUMENT_NONE, command_help, "list the commands"},
    {"reset", "", ARGUMENT_NONE, command_reset, "begin a new conversation (/new); the system prompt stays"},
    {"new", "", ARGUMENT_NONE, command_reset, NULL},
    {"system", "TEXT", ARGUMENT_OPTIONAL, command_system, "set the system prompt, or print it; '-' removes it"},
    {"retry", "", ARGUMENT_NONE, command_retry, "answer the last message again, with the next seed"},
    {"undo", "", ARGUMENT_NONE, command_undo, "remove the last message and its answer"},
    {"save", "FILE", ARGUMENT_REQUIRED, command_save, "write the conversation as JSON"},
    {"load", "FILE", ARGUMENT_REQUIRED, command_load, "continue a conversation that was saved"},
    {"set", "NAME VALUE", ARGUMENT_OPTIONAL, command_set,
     "set a sampling parameter, such as temp 0.7; alone: list them"},
    {"stats", "", ARGUMENT_NONE, command_stats, "print tokens, reuse and memory of the session"},
    {"explain", "", ARGUMENT_NONE, command_explain, "print where each part of the last prompt came from"},
    {"quit", "", ARGUMENT_NONE, NULL, "end the program (Ctrl-D)"},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static int command_help(chat_session *s, const char *text) {
    char head[64];
    (void)s;
    (void)text;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (commands[i].help == NULL) continue;
        snprintf(head, sizeof head, "/%s %s", commands[i].name, commands[i].value);
        fprintf(stderr, "  %-18s %s\n", head, commands[i].help);
    }
    fputs("\n"
          "Alt-Enter, or \\ at the end of a line, continues a message on the next line; so do \"\"\" before and after "
          "it, and a paste.\n"
          "// begins a message with a slash. Ctrl-C stops an answer.\n",
          stderr);
    return CLI_OK;
}

bool chat_is_command(const char *text) { return text[0] == '/' && text[1] != '/' && strchr(text, '\n') == NULL; }

static int command_unknown(const char *line, size_t n) {
    char word[CLI_NEAREST_BYTES];
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), line);
    cli_nearest nearest = cli_nearest_start(word);
    for (size_t i = 0; i < N_COMMANDS; i++) cli_nearest_try(&nearest, commands[i].name);
    if (nearest.best != NULL)
        return cli_fail(CLI_FAILED, "unknown command '/%s': did you mean '/%s'? A message with a slash begins with //",
                        word, nearest.best);
    return cli_fail(CLI_FAILED,
                    "unknown command '/%s': /help lists the commands; a message with a slash begins with //", word);
}

int chat_command_run(chat_session *s, const char *line, bool *quit) {
    size_t n = strcspn(++line, " \t"), i = 0;
    while (i < N_COMMANDS && (strlen(commands[i].name) != n || memcmp(commands[i].name, line, n) != 0)) i++;
    if (i == N_COMMANDS) return command_unknown(line, n);
    char *text = cli_alloc(strlen(line) + 1); /* without white space around it */
    strcpy(text, line + n + strspn(line + n, " \t"));
    for (size_t end = strlen(text); end > 0 && strchr(" \t\r", text[end - 1]) != NULL;) text[--end] = '\0';
    int status = CLI_OK;
    if (commands[i].argument == ARGUMENT_NONE && *text != '\0')
        status = cli_fail(CLI_FAILED, "/%s takes no argument", commands[i].name);
    else if (commands[i].argument == ARGUMENT_REQUIRED && *text == '\0')
        status = cli_fail(CLI_FAILED, "/%s needs a value: give /%s %s", commands[i].name, commands[i].name,
                          commands[i].value);
    else if (commands[i].run == NULL) *quit = true;
    else status = commands[i].run(s, text);
    free(text);
    return status;
}
