/* openai_models.c: /v1/models: the one model. */
#include <string.h>

#include "server/handlers.h"
#include "server/server_internal.h"

static json_t *model(const rp_server *s) {
    return json_pack("{s:s, s:s, s:I, s:s, s:{s:s, s:I, s:i, s:i, s:s, s:s}}", "id", s->model_name, "object", "model", "created",
                     (json_int_t)s->created, "owned_by", "reprise", "meta", "architecture", s->info.architecture, "n_params",
                     (json_int_t)s->info.parameters, "n_ctx_train", (int)s->info.n_ctx_train, "n_vocab", (int)s->info.n_vocab,
                     "chat_format", s->info.chat_format, "fingerprint", s->info.fingerprint);
}

void handle_openai_models(server_exchange *x) {
    exchange_reply_json(x, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", model(x->server)));
}

void handle_openai_model(server_exchange *x) {
    if (strcmp(x->name, x->server->model_name) == 0) {
        exchange_reply_json(x, 200, model(x->server));
        return;
    }
    server_fail(&x->problem, SERVER_MODEL, "model", "there is no model '%.80s' here, there is '%s'", x->name, x->server->model_name);
    exchange_reply_problem(x);
}
