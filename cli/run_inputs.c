/* SPDX-License-Identifier: Apache-2.0 */
/* run_inputs.c: see run_inputs.h. Owns the texts that were read. One thread. */
#include "run_inputs.h"

#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "common/json_out.h"
#include "common/input.h"

/* ---- the command line ---- */

static size_t count_dashes(const cli_list *list) {
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) n += strcmp(list->items[i], "-") == 0;
    return n;
}

int run_prompts_check(const run_prompts *p) {
    const size_t n_texts = p->prompts.n + p->files.n;
    if (p->text != NULL && n_texts > 0)
        return cli_fail(CLI_WRONG_USE, "unexpected argument '%s': " CLI_QUOTE_ADVICE, p->text);
    if (p->documents.n > 0 && (n_texts > 0 || p->text != NULL))
        return cli_fail(CLI_WRONG_USE, "--pml and text (%s) exclude each other: give one of them",
                        p->prompts.n > 0 ? "--prompt" : p->files.n > 0 ? "--file"
                                                                       : "an argument");
    if (p->documents.n > 0 && p->system != NULL)
        return cli_fail(CLI_WRONG_USE,
                        "--system is for prompts of text: write a <system> element in the schema or the prompt");
    if (p->raw && p->system != NULL)
        return cli_fail(CLI_WRONG_USE,
                        "--raw and --system exclude each other: a system prompt needs the chat template");
    if (count_dashes(&p->files) + count_dashes(&p->documents) > 1)
        return cli_fail(CLI_WRONG_USE, "standard input ('-') is given twice: it can be read only once");
    return CLI_OK;
}

/* ---- reading ---- */

static run_input *run_inputs_add(run_inputs *in, const char *name) {
    in->items[in->n] = (run_input){.name = name};
    return &in->items[in->n++];
}

static int run_inputs_read_document(run_inputs *in, const char *path) {
    run_input *item = run_inputs_add(in, cli_input_name(path));
    return cli_read_utf8(path, "a prompt is an XML document", &item->document);
}

static int run_inputs_read_file(run_inputs *in, const char *path) {
    run_input *item = run_inputs_add(in, cli_input_name(path));
    int status = cli_read_utf8(path, "a prompt is text", &item->bytes);
    if (status == CLI_OK) item->text = cli_cut_line_end(item->bytes);
    return status;
}

/* No prompt on the command line: what is piped into the program is one. */
static int run_inputs_read_standard(run_inputs *in) {
    int status = cli_is_terminal(stdin) ? CLI_OK : run_inputs_read_file(in, "-");
    if (status == CLI_OK && (in->n == 0 || *in->items[0].text == '\0'))
        return cli_fail(CLI_WRONG_USE,
                        "'reprise run' needs a prompt: give -p TEXT, -f FILE or --pml FILE, or text on standard input");
    return status;
}

int run_inputs_read(run_inputs *in, const run_prompts *p) {
    int status = CLI_OK;
    in->items = cli_alloc((p->prompts.n + p->files.n + p->documents.n + 1) * sizeof *in->items);
    if (p->text != NULL && strcmp(p->text, "-") == 0) status = run_inputs_read_file(in, "-");
    else if (p->text != NULL) run_inputs_add(in, "text")->text = p->text, cli_warn_of_file("", p->text);
    for (size_t i = 0; i < p->prompts.n; i++) {
        run_inputs_add(in, "text")->text = p->prompts.items[i];
        cli_warn_of_file("-p ", p->prompts.items[i]);
    }
    for (size_t i = 0; i < p->files.n && status == CLI_OK; i++) status = run_inputs_read_file(in, p->files.items[i]);
    for (size_t i = 0; i < p->documents.n && status == CLI_OK; i++)
        status = run_inputs_read_document(in, p->documents.items[i]);
    return status == CLI_OK && in->n == 0 ? run_inputs_read_standard(in) : status;
}

/* ---- the chat template ---- */

/* {"messages": [...], "add_generation_prompt": true} */
static char *run_input_json(const run_input *item) {
    json_t *messages = json_array(), *all = json_object();
    for (int32_t i = 0; i < item->n_messages; i++) {
        json_t *message = json_object();
        cli_json_set(message, "role", cli_json_text(rp_role_name(item->messages[i].role)));
        cli_json_set(message, "content", cli_json_text(item->messages[i].text));
        cli_json_append(messages, message);
    }
    cli_json_set(all, "messages", messages);
    cli_json_set(all, "add_generation_prompt", json_true());
    char *text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return text;
}

static int run_input_render(run_input *item, const char *system, const rp_model *model) {
    rp_error err;
    if (system != NULL && *system != '\0')
        item->messages[item->n_messages++] = (rp_message){.role = RP_ROLE_SYSTEM, .text = system, .n = strlen(system)};
    item->messages[item->n_messages++] =
        (rp_message){.role = RP_ROLE_USER, .text = item->text, .n = strlen(item->text)};
    if (rp_model_template(model) == NULL) return CLI_OK;
    char *json = run_input_json(item);
    if (json == NULL) return cli_fail(CLI_FAILED, "out of memory");
    int rc = rp_model_render(model, json, strlen(json), NULL, &item->rendered, &err);
    free(json);
    return rc == RP_OK ? CLI_OK : cli_fail_library(&err);
}

int run_inputs_render(run_inputs *in, const run_prompts *p, const run_form *form, const rp_model *model,
                      const char *chat_format) {
    rp_model_info info = {.struct_size = sizeof(info)};
    int status = CLI_OK;
    rp_model_describe(model, &info);
    if (p->raw || info.is_encoder || (info.chat_template == NULL && chat_format == NULL)) {
        const char *needs = p->system != NULL ? "--system" : form->of_chats;
        if (needs != NULL)
            return cli_fail(CLI_WRONG_USE, "%s: the model has no chat template: give --chat-format NAME, too", needs);
        return CLI_OK;
    }
    for (size_t i = 0; i < in->n && status == CLI_OK; i++) {
        run_input *item = &in->items[i];
        if (item->text == NULL) continue;
        if (run_form_is_given(form)) status = run_form_chat(form, model, p->system, item->text, i == 0, &item->chat);
        else status = run_input_render(item, p->system, model);
    }
    return status;
}

void run_input_apply(const run_input *in, rp_request *r) {
    if (in->chat != NULL) return;
    if (in->document != NULL) r->prompt = rp_prompt_pml(in->document), r->prompt.name = in->name;
    else if (in->rendered != NULL) r->prompt = rp_prompt_rendered(in->rendered, NULL, 0);
    else if (in->n_messages > 0) r->prompt = rp_prompt_messages(in->messages, (size_t)in->n_messages);
    else r->prompt = rp_prompt_text(in->text);
}

void run_inputs_free(run_inputs *in) {
    for (size_t i = 0; i < in->n; i++) {
        free(in->items[i].document);
        free(in->items[i].bytes);
        rp_template_text_free(in->items[i].rendered);
        rp_chat_free(in->items[i].chat);
    }
    free(in->items);
    *in = (run_inputs){0};
}
