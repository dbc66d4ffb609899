/* SPDX-License-Identifier: Apache-2.0 */
/* kept_answers.c: see kept_answers.h. An entry is {"answer": the object, "items": the conversation with the answer,
 * without instructions, "first": the number of items that came from the answer before it}. */
#include "server/dialects/kept_answers.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/answers/response_registry.h"
#include "server/http/server_internal.h"

void kept_answers_id(const server_request *x, const kept_kind *k, char id[KEPT_ANSWERS_ID_BYTES]) {
    char stored[RELAY_ID_BYTES];
    relay_stored_id(x, stored);
    const int n = snprintf(id, KEPT_ANSWERS_ID_BYTES, "%s%s", k->prefix, stored);
    BASE_ASSERT(n > 0 && n < KEPT_ANSWERS_ID_BYTES); /* a cut id would name another answer */
}

void kept_answers_put(const server_request *x, const kept_kind *k, const json_t *object) {
    const char *id = json_string_value(json_object_get(object, "id"));
    if (json_is_false(json_object_get(x->gen->root, "store")) || !id) return;
    BASE_ASSERT(strncmp(id, k->prefix, strlen(k->prefix)) == 0); /* kept_answers_find looks for no other */
    json_t *items = k->items(json_object_get(x->gen->root, "input"));
    if (items) json_array_extend(items, json_object_get(object, k->output));
    json_t *kept =
        json_pack("{s:O, s:o, s:I}", "answer", object, "items", items, "first", (json_int_t)x->gen->n_earlier);
    char *text = kept ? base_json_text(kept, JSON_COMPACT) : NULL;
    json_t *read = text ? base_json_read(text, strlen(text), 0) : NULL; /* it is one level deeper than the request */
    if (read) response_registry_put(x->server->responses, id, x->key->tenant, text, strlen(text));
    json_decref(read);
    base_free(text);
    json_decref(kept);
}

/* The entry of an id, for its tenant; NULL: a problem is set. field: of the id in the request, or NULL. */
static json_t *kept_answers_find(server_request *x, const kept_kind *k, const char *id, const char *field) {
    base_buffer text = BASE_BUFFER(SERVER_MAX_RESPONSE_BYTES);
    json_t *kept = NULL;
    const bool is_one = strncmp(id, k->prefix, strlen(k->prefix)) == 0;
    if (!is_one || response_registry_get(x->server->responses, id, x->key->tenant, &text))
        server_fail(&x->problem, SERVER_NOT_FOUND, field, "unknown or expired %s '%.80s': give the whole conversation",
                    k->word, id);
    else if (!(kept = base_json_read(text.data, text.len, 0))) server_fail_memory(&x->problem);
    base_buffer_free(&text);
    return kept;
}

/* Puts the conversation up to the answer that a request names before its own input. Returns the number of items in it.
   May set a problem. */
static size_t kept_answers_advance(server_request *x, const kept_kind *k, json_t *root) {
    const json_t *previous = json_object_get(root, k->previous);
    if (!json_is_string(previous)) return 0;
    if (x->server->answers->pin) { /* the node that has it prepends it */
        x->server->answers->pin(x, json_string_value(previous), k->previous);
        return 0;
    }
    json_t *kept = kept_answers_find(x, k, json_string_value(previous), k->previous),
           *added = k->items(json_object_get(root, "input"));
    json_t *items = kept ? json_incref(json_object_get(kept, "items")) : NULL;
    const size_t n = json_array_size(items);
    if (items && (!added || json_array_extend(items, added) || json_object_set(root, "input", items)))
        server_fail_memory(&x->problem);
    json_decref(items);
    json_decref(added);
    json_decref(kept);
    return n;
}

/* The items of the request alone, without those before it and those of the answer. */
static json_t *own_items(const kept_kind *k, const json_t *kept) {
    const json_t *items = json_object_get(kept, "items");
    const size_t first = (size_t)json_integer_value(json_object_get(kept, "first"));
    const size_t n_answer = json_array_size(json_object_get(json_object_get(kept, "answer"), k->output));
    json_t *own = json_array();
    for (size_t i = first; i + n_answer < json_array_size(items) && own; i++)
        if (json_array_append(own, json_array_get(items, i))) return json_decref(own), NULL;
    return own;
}

json_t *kept_answers_get(server_request *x, const kept_kind *k, bool with_input) {
    json_t *kept = kept_answers_find(x, k, x->name, NULL), *object = json_incref(json_object_get(kept, "answer"));
    if (object && with_input && json_object_set_new(object, "input", own_items(k, kept))) {
        server_fail_memory(&x->problem);
        json_decref(object);
        object = NULL;
    }
    json_decref(kept);
    return object;
}

int kept_answers_remove(server_request *x, const kept_kind *k) {
    const bool is_one = strncmp(x->name, k->prefix, strlen(k->prefix)) == 0;
    if (is_one && response_registry_remove(x->server->responses, x->name, x->key->tenant) == 0) return SERVER_FINE;
    return server_fail(&x->problem, SERVER_NOT_FOUND, NULL, "unknown or expired %s '%.80s'", k->word, x->name);
}

void kept_answers_begin(server_request *x, const kept_kind *k, const server_form *form) {
    json_t *root = server_request_json(x);
    const size_t n_earlier = root ? kept_answers_advance(x, k, root) : 0;
    if (root && !x->problem.kind) generation_parse(x->gen, root, form->parse, &x->problem);
    x->gen->n_earlier = n_earlier;
    json_decref(root);
    if (x->problem.kind) server_request_reply_problem(x);
    else generate_begin(x, form);
}
