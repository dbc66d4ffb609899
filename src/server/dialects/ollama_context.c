/* SPDX-License-Identifier: Apache-2.0 */
/* ollama_context.c: the `context` of /api/generate: the tokens of a conversation, which the client holds. Owns nothing.
 *
 *   answer 1: context = prompt 1, answer 1
 *   prompt 2 = context, the end of an answer, the new messages, the generation prompt
 *
 * The template writes the end of an answer between messages. It is what follows the answer of a short conversation that
 * goes on.
 */
#include <string.h>

#include "base/check.h"
#include "base/json_number.h"
#include "base/memory.h"
#include "server/dialects/ollama.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "reprise_chat.h"

typedef struct id_list {
    int32_t *ids; /* rp_free */
    size_t n;
} id_list;

/* ---- answers ---- */

static int append_ids(json_t *list, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(list, json_integer(ids[i]))) return -1;
    return 0;
}

/* The prompt's tokens, once more: the engine keeps none. */
static int tokenize_prompt(const server_request *x, id_list *out) {
    const generation *gen = x->gen;
    const rp_model *m = x->model->model;
    if (gen->n_prompts > 0)
        return rp_tokenize(m, gen->prompts[0].text, strlen(gen->prompts[0].text), false, true, &out->ids, &out->n,
                           NULL);
    if (gen->rendered) return rp_tokenize_rendered(m, gen->rendered, &out->ids, &out->n, NULL);
    return rp_tokenize_messages(m, gen->messages, gen->n_messages, gen->continues_last, &out->ids, &out->n, NULL);
}

json_t *ollama_context(const server_request *x, const server_choice *c) {
    const generation *gen = x->gen;
    bool continued = gen->n_prompts > 0 && gen->prompts[0].tokens;
    json_t *list = json_array();
    id_list prompt = {NULL, 0};
    int failed =
        continued ? append_ids(list, gen->prompts[0].tokens, gen->prompts[0].n_tokens) : tokenize_prompt(x, &prompt);
    if (!failed)
        failed =
            append_ids(list, prompt.ids, prompt.n) || append_ids(list, c->result->tokens, (size_t)c->result->n_tokens);
    rp_free(prompt.ids);
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

/* ---- prompts ---- */

/* The tokens that follow an answer before and in the new messages: those of "question, answer, messages" after those of
 * "question, answer", if the former begin with the latter; else those of the messages alone. */
static int tail_of(const server_request *x, id_list *out, size_t *from, rp_error *err) {
    const generation *gen = x->gen;
    const rp_model *m = x->model->model;
    rp_message *messages = base_calloc(gen->n_messages + 2, sizeof(*messages));
    id_list begun = {NULL, 0};
    if (!messages) return RP_ERR_MEMORY;
    messages[0] = (rp_message){RP_ROLE_USER, ".", 1};
    messages[1] = (rp_message){RP_ROLE_ASSISTANT, ".", 1};
    memcpy(messages + 2, gen->messages, gen->n_messages * sizeof(*messages));
    int rc = rp_tokenize_messages(m, messages, 2, true, &begun.ids, &begun.n, err);
    if (!rc) rc = rp_tokenize_messages(m, messages, gen->n_messages + 2, false, &out->ids, &out->n, err);
    *from = begun.n;
    if (!rc && (out->n < begun.n || memcmp(out->ids, begun.ids, begun.n * sizeof(*begun.ids)) != 0)) {
        rp_free(out->ids);
        *out = (id_list){NULL, 0};
        *from = 0;
        rc = rp_tokenize_messages(m, gen->messages, gen->n_messages, false, &out->ids, &out->n, err);
    }
    rp_free(begun.ids);
    base_free(messages);
    return rc;
}

/* -1: it is none. */
static int64_t id_of(const json_t *value) {
    int64_t id = -1;
    return base_json_int64(value, &id) ? id : -1;
}

static int check_ids(server_request *x, const json_t *context) {
    for (size_t i = 0; i < json_array_size(context) && !x->problem.kind; i++) {
        const json_t *one = json_array_get(context, i);
        if (id_of(one) < 0 || id_of(one) >= x->model->info.n_vocab)
            server_fail(&x->problem, SERVER_INVALID, "context",
                        "'context[%zu]' is not an id from 0 to %d: give the context of an answer of this model", i,
                        (int)x->model->info.n_vocab - 1);
    }
    return (int)x->problem.kind;
}

/* Makes the prompt of the two lists, and drops the messages. An answer that ended by itself has its end token, which is
   not repeated. */
static int join(server_request *x, const json_t *context, const id_list *tail, size_t from) {
    generation *gen = x->gen;
    size_t n = json_array_size(context);
    BASE_ASSERT(!gen->prompts && n > 0 && from <= tail->n);
    if (from < tail->n && id_of(json_array_get(context, n - 1)) == tail->ids[from]) from++;
    int32_t *ids = base_calloc(n + tail->n - from, sizeof(*ids));
    gen->prompts = base_calloc(1, sizeof(*gen->prompts));
    if (!ids || !gen->prompts) {
        base_free(ids);
        return server_fail_memory(&x->problem);
    }
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)id_of(json_array_get(context, i));
    memcpy(ids + n, tail->ids + from, (tail->n - from) * sizeof(*ids));
    gen->prompts[0] = (server_prompt){.tokens = ids, .n_tokens = n + tail->n - from};
    gen->n_prompts = gen->cap_prompts = 1;
    base_free(gen->messages);
    gen->messages = NULL;
    gen->n_messages = gen->cap_messages = 0;
    return SERVER_FINE;
}

int ollama_continue(server_request *x) {
    const json_t *context = server_field_array(&(server_fields){x->gen->root, &x->problem, ""}, "context");
    id_list tail = {NULL, 0};
    size_t from = 0;
    rp_error err;
    if (x->problem.kind || json_array_size(context) == 0 || x->gen->n_messages == 0 || check_ids(x, context))
        return (int)x->problem.kind;
    int rc = tail_of(x, &tail, &from, &err);
    if (rc == RP_ERR_MEMORY) server_fail_memory(&x->problem);
    else if (rc) server_fail_library(&x->problem, &err);
    else join(x, context, &tail, from);
    rp_free(tail.ids);
    return (int)x->problem.kind;
}
