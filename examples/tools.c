/* SPDX-License-Identifier: Apache-2.0 */
/* tools.c: a tool call, its result, and an answer in a JSON Schema, without a server. The weather is always the same
 * here.
 *
 *   cc tools.c $(pkg-config --cflags --libs reprise) -o tools
 *   ./tools model.gguf "What is the weather in Miami?"
 */
#include <reprise_chat.h>
#include <stdio.h>
#include <string.h>

static const rp_tool weather = {
    .name = "weather",
    .description = "The weather in a city.",
    .parameters = "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"maxLength\": 20}}, "
                  "\"required\": [\"city\"]}",
    .strict = true,
};
static const char forecast[] =
    "{\"type\": \"object\", \"properties\": {\"sky\": {\"enum\": [\"sunny\", \"rainy\"]}, "
    "\"degrees\": {\"type\": \"integer\", \"minimum\": -50, \"maximum\": 60}}, \"required\": [\"sky\", \"degrees\"]}";

/* One turn: the options' messages, and the answer to them. *answer: rp_chat_answer_free. */
static int turn(rp_engine *engine, const rp_model *model, const rp_chat_options *options, rp_chat_answer **answer,
                rp_error *err) {
    rp_chat *chat = NULL;
    rp_result *result = NULL;
    int rc = rp_chat_new(&chat, model, options, err);
    if (!rc) rc = rp_chat_run(chat, engine, NULL, &result, err);
    if (!rc) rc = rp_chat_parse(chat, result->text, strlen(result->text), answer, err);
    rp_result_free(result);
    rp_chat_free(chat);
    return rc;
}

static int converse(rp_engine *engine, const rp_model *model, const char *question, rp_error *err) {
    rp_chat_message messages[3] = {{.role = RP_ROLE_USER, .text = question}};
    rp_chat_answer *call = NULL, *answer = NULL;
    rp_chat_options options = rp_chat_options_defaults();
    options.messages = messages;
    options.n_messages = 1;
    options.tools = &weather;
    options.n_tools = 1;
    options.tool_choice = RP_TOOL_CHOICE_REQUIRED;
    options.one_call = true;
    int rc = turn(engine, model, &options, &call, err);
    if (!rc) {
        for (size_t i = 0; i < call->n_calls; i++)
            printf("call %s: %s %s\n", call->calls[i].id, call->calls[i].name, call->calls[i].arguments);
        messages[1] = (rp_chat_message){
            .role = RP_ROLE_ASSISTANT, .text = call->text, .calls = call->calls, .n_calls = call->n_calls};
        messages[2] = (rp_chat_message){
            .role = RP_ROLE_TOOL, .text = "sunny, 28 degrees", .call_id = call->n_calls ? call->calls[0].id : NULL};
        options.n_messages = 3;
        options.tool_choice = RP_TOOL_CHOICE_NONE;
        options.json_schema = forecast;
        rc = turn(engine, model, &options, &answer, err);
    }
    if (!rc) printf("answer: %s\n", answer->text);
    rp_chat_answer_free(call);
    rp_chat_answer_free(answer);
    return rc;
}

int main(int argc, char **argv) {
    rp_error err;
    rp_model *model = NULL;
    rp_engine *engine = NULL;
    if (argc != 3) return fprintf(stderr, "usage: tools MODEL QUESTION\n"), 2;
    int rc = rp_model_open(&model, argv[1], NULL, &err);
    if (!rc) rc = rp_engine_new(&engine, model, NULL, &err);
    if (!rc) rc = converse(engine, model, argv[2], &err);
    if (rc) fprintf(stderr, "tools: %s\n", err.message);
    rp_engine_free(engine);
    rp_model_close(model);
    return rc ? 1 : 0;
}
