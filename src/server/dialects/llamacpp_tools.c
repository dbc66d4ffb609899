/* SPDX-License-Identifier: Apache-2.0 */
/* llamacpp_tools.c: the routes of llama.cpp's server that do not generate: tokens, templates, properties, slots. */
#include <string.h>

#include "base/check.h"
#include "base/json_number.h"
#include "base/memory.h"
#include "server/answers/report.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/dialects.h"
#include "server/dialects/openai.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/prompt/conversation_prompt.h"
#include "server/prompt/prompt_tokens.h"
#include "server/prompt/tools.h"

#define MAX_DETOKENIZE ((size_t)1 << 20)
#define MAX_SLOTS 4096 /* listed */

/* The parsed body, or NULL after an error reply. */
static json_t *llamacpp_tools_body_of(server_request *x) {
    json_t *root = server_request_json(x);
    if (!root) server_request_reply_problem(x);
    return root;
}

static void llamacpp_tools_reply(server_request *x, json_t *root, json_t *object) {
    json_decref(root); /* first: the reply may free the request, and the generation shares root */
    if (x->problem.kind) {
        json_decref(object);
        server_request_reply_problem(x);
    } else server_request_reply_json(x, 200, object);
}

/* ---- tokens ---- */

#define PIECE_BYTES ((size_t)16 << 10) /* of a reply; a token takes a few dozen at most, or what its text has */

/* What a list of tokens is written from. */
typedef struct token_listing {
    bool pieces; /* each with its text */
    size_t n, done;
    int32_t tokens[];
} token_listing;

static int list_token(server_request *x, const token_listing *l, int32_t token) {
    if (!l->pieces) return base_buffer_printf(&x->reply, "%d", token);
    json_t *piece = openai_token_text(x, token);
    int rc = piece ? base_buffer_printf(&x->reply, "{\"id\":%d,\"piece\":", token) : RP_ERR_MEMORY;
    if (!rc) rc = server_request_append_json(&x->reply, piece);
    json_decref(piece);
    return rc ? rc : base_buffer_append_str(&x->reply, "}");
}

static int list_tokens(server_request *x) {
    token_listing *l = x->taken;
    BASE_ASSERT(l && l->done <= l->n && !x->stream_ended);
    int rc = l->done == 0 ? base_buffer_append_str(&x->reply, "{\"tokens\":[") : RP_OK;
    for (; l->done < l->n && x->reply.len < PIECE_BYTES && !rc; l->done++) {
        if (l->done > 0) rc = base_buffer_append_str(&x->reply, ",");
        if (!rc) rc = list_token(x, l, l->tokens[l->done]);
    }
    if (rc || l->done < l->n) return rc;
    x->stream_ended = true;
    return base_buffer_append_str(&x->reply, "]}");
}

static void tokenize_reply(server_request *x, const int32_t *tokens, size_t n, bool pieces) {
    token_listing *l = base_alloc(sizeof(*l) + n * sizeof(*l->tokens));
    if (!l) {
        server_fail_memory(&x->problem);
        server_request_reply_problem(x);
        return;
    }
    *l = (token_listing){.pieces = pieces, .n = n};
    if (n > 0) memcpy(l->tokens, tokens, n * sizeof(*tokens));
    server_request_drop_body(x);
    server_request_reply_pieces(x, "application/json", list_tokens, l);
}

void handle_llamacpp_tokenize(server_request *x) {
    json_t *root = llamacpp_tools_body_of(x);
    server_fields f = {root, &x->problem, ""};
    const char *content = NULL;
    bool special = false, parse = false, pieces = false;
    int32_t *tokens = NULL;
    size_t n = 0;
    rp_error err;
    if (!root) return;
    server_field_text(&f, "content", &content);
    server_field_bool(&f, "add_special", &special);
    server_field_bool(&f, "parse_special", &parse);
    server_field_bool(&f, "with_pieces", &pieces);
    if (!content) server_fail(&x->problem, SERVER_INVALID, "content", "'content' is missing: give a string");
    if (!x->problem.kind && rp_tokenize(x->model->model, content, strlen(content), parse, special, &tokens, &n, &err))
        server_fail_library(&x->problem, &err);
    json_decref(root);
    if (x->problem.kind) server_request_reply_problem(x);
    else tokenize_reply(x, tokens, n, pieces);
    rp_free(tokens);
}

static void llamacpp_tools_detokenize(server_request *x, const json_t *tokens, base_buffer *out) {
    size_t n = json_array_size(tokens);
    if (n > MAX_DETOKENIZE)
        server_fail(&x->problem, SERVER_INVALID, "tokens", "'tokens' has %zu entries: give at most %zu", n,
                    MAX_DETOKENIZE);
    for (size_t i = 0; i < n && !x->problem.kind; i++) {
        const json_t *one = json_array_get(tokens, i);
        int64_t id = -1;
        const bool is_id = base_json_int64(one, &id);
        int32_t token = (int32_t)id;
        if (!is_id || id < 0 || id >= x->model->info.n_vocab)
            server_fail(&x->problem, SERVER_INVALID, "tokens", "'tokens[%zu]' is not an id from 0 to %d", i,
                        (int)x->model->info.n_vocab - 1);
        else if (prompt_tokens_text(x->model->model, &token, 1, out)) server_fail_memory(&x->problem);
    }
}

void handle_llamacpp_detokenize(server_request *x) {
    json_t *root = llamacpp_tools_body_of(x);
    server_fields f = {root, &x->problem, ""};
    base_buffer text = BASE_BUFFER(SERVER_REPLY_BYTES);
    if (!root) return;
    const json_t *tokens = server_field_array(&f, "tokens");
    if (!tokens) server_fail(&x->problem, SERVER_INVALID, "tokens", "'tokens' is missing: give an array of ids");
    llamacpp_tools_detokenize(x, tokens, &text);
    json_t *content = base_json_string(text.data, text.len);
    base_buffer_free(&text);
    llamacpp_tools_reply(x, root, json_pack("{s:o}", "content", content));
}

/* ---- templates ---- */

static json_t *llamacpp_tools_render(server_request *x) {
    base_buffer text = BASE_BUFFER(SERVER_REPLY_BYTES);
    int32_t *tokens = NULL;
    size_t n = 0;
    rp_error err;
    json_t *prompt = NULL;
    if (x->gen->rendered) prompt = base_json_string(x->gen->rendered->bytes, x->gen->rendered->n);
    else if (rp_tokenize_messages(x->model->model, x->gen->messages, x->gen->n_messages, x->gen->continues_last,
                                  &tokens, &n, &err))
        server_fail_library(&x->problem, &err);
    else if (prompt_tokens_text(x->model->model, tokens, n, &text)) server_fail_memory(&x->problem);
    else prompt = base_json_string(text.data, text.len);
    rp_free(tokens);
    base_buffer_free(&text);
    return report_unknown(x, json_pack("{s:o*}", "prompt", prompt));
}

int llamacpp_parse_messages(generation *gen, server_problem *p) {
    if (!openai_parse_chat(gen, p) && gen->has_markup)
        server_fail(p, SERVER_UNSUPPORTED, "messages", "modules have no template: see GET /v1/schemas/NAME/layout");
    return (int)p->kind;
}

void handle_llamacpp_template(server_request *x) {
    json_t *root = llamacpp_tools_body_of(x), *object = NULL;
    if (!root) return;
    if (!generation_parse(x->gen, root, llamacpp_parse_messages, &x->problem) && !generate_check_fields(x) &&
        !tools_check(x->gen, &x->problem) && !conversation_prompt_build(x))
        object = llamacpp_tools_render(x);
    llamacpp_tools_reply(x, root, object);
}

/* ---- the server ---- */

/* What /completion samples with, where a request does not say: llama.cpp's defaults, or the advice of the model's
   file. */
static json_t *llamacpp_props_sampling(const rp_model *model) {
    generation gen;
    server_problem problem = {0};
    json_t *empty = json_pack("{s:s}", "prompt", ""), *all = NULL;
    if (empty && !generation_parse(&gen, empty, llamacpp_parse_completion, &problem)) {
        generation_settle_sampling(&gen, model);
        const rp_sampling *s = &gen.sampling;
        all = json_pack("{s:f, s:i, s:f, s:f, s:f, s:i}", "temperature", (double)s->temperature, "top_k", (int)s->top_k,
                        "top_p", (double)s->top_p, "min_p", (double)s->min_p, "repeat_penalty",
                        (double)s->repeat_penalty, "repeat_last_n", (int)s->repeat_last);
    }
    if (empty) generation_free(&gen);
    json_decref(empty);
    return all;
}

void handle_llamacpp_props(server_request *x) {
    const server_model *m = x->model;
    rp_engine_info e = {.struct_size = sizeof(e)};
    rp_engine_describe(m->engine, &e);
    server_request_reply_json(
        x, 200,
        json_pack("{s:{s:i, s:o*}, s:i, s:s, s:s, s:s, s:s, s:{s:i, s:i, s:i, s:i, s:i, s:i}}",
                  "default_generation_settings", "n_ctx", (int)e.n_ctx, "params", llamacpp_props_sampling(m->model),
                  "total_slots", (int)e.max_sequences, "model_alias", m->name, "chat_format", m->info.chat_format,
                  "fingerprint", m->info.fingerprint, "build_info", rp_version(), "engine", "n_ctx_train",
                  (int)m->info.n_ctx_train, "threads", (int)e.n_threads, "max_sequences", (int)e.max_sequences,
                  "max_queue", (int)e.max_queue, "running", (int)e.running, "waiting", (int)e.waiting));
}

typedef struct slot_list {
    const server_model *model;
    json_t *list;
    int n_ctx;
} slot_list;

static void add_slots(server_request *x, void *user) {
    static const char *const states[] = {"waiting", "prefill", "decode", "done"};
    slot_list *slots = user;
    pthread_mutex_lock(&x->lock);
    for (int32_t i = 0;
         x->model == slots->model && i < x->answers->n_choices && json_array_size(slots->list) < MAX_SLOTS; i++) {
        rp_job_status status = {.state = RP_JOB_DONE};
        if (x->answers->choices[i].call) rp_job_get_status(x->answers->choices[i].call, &status);
        if (status.state == RP_JOB_DONE) continue;
        BASE_ASSERT((size_t)status.state < BASE_ARRAY_LEN(states));
        json_array_append_new(
            slots->list,
            json_pack("{s:i, s:I, s:i, s:b, s:s, s:i, s:i, s:i, s:i, s:i}", "id", (int)json_array_size(slots->list),
                      "id_task", (json_int_t)rp_job_number(x->answers->choices[i].call), "n_ctx", slots->n_ctx,
                      "is_processing", 1, "state", states[status.state], "queue_position", (int)status.queue_position,
                      "prompt_tokens", (int)status.prompt_tokens, "cached_tokens", (int)status.cached_tokens,
                      "computed_tokens", (int)status.computed_tokens, "n_decoded", (int)status.answer_tokens));
    }
    pthread_mutex_unlock(&x->lock);
}

void handle_llamacpp_slots(server_request *x) {
    rp_engine_info e = {.struct_size = sizeof(e)};
    rp_engine_describe(x->model->engine, &e);
    slot_list slots = {x->model, json_array(), e.n_ctx};
    watchdog_visit(x->server->watchdog, add_slots, &slots);
    server_request_reply_json(x, 200, slots.list);
}

void handle_llamacpp_slot_change(server_request *x) {
    server_fail(&x->problem, SERVER_NOT_IMPLEMENTED, NULL,
                "slots are not saved or restored by requests: every prompt is cached, and with --store it is still "
                "cached after a restart");
    server_request_reply_problem(x);
}
