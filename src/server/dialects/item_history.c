/* SPDX-License-Identifier: Apache-2.0 */
/* item_history.c: see item_history.h. */
#include "server/dialects/item_history.h"

#include "base/check.h"

void item_history_hold(item_history *h, const json_t *item) {
    if (h->n_reasoning < ITEM_HISTORY_MAX_REASONING) h->reasoning[h->n_reasoning++] = item;
}

static bool add_texts(generation *gen, const json_t *list, server_problem *p) {
    bool any = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_object_get(json_array_get(list, i), "text"));
        generation_add_reasoning(gen, text, p);
        any |= text && text[0];
    }
    return any;
}

static bool ends_with_answer(const generation *gen) {
    return gen->n_messages > 0 && gen->messages[gen->n_messages - 1].role == RP_ROLE_ASSISTANT;
}

/* Its own text, else the summary of it. Those of other servers may be encrypted: nothing is known of them. */
void item_history_attach(generation *gen, item_history *h, server_problem *p) {
    const bool is_answer = ends_with_answer(gen);
    for (size_t i = 0; i < h->n_reasoning && is_answer && !p->kind; i++)
        if (!add_texts(gen, json_object_get(h->reasoning[i], "content"), p))
            add_texts(gen, json_object_get(h->reasoning[i], "summary"), p);
    h->n_reasoning = 0;
}

void item_history_add_call(generation *gen, const char *id, const char *name, const char *arguments,
                           server_problem *p) {
    if (!ends_with_answer(gen)) generation_text_message(gen, RP_ROLE_ASSISTANT, "", p);
    BASE_ASSERT(p->kind || ends_with_answer(gen));
    if (!p->kind) generation_add_call(gen, id, name, arguments[0] ? arguments : "{}", p);
}
