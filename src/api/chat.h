/* SPDX-License-Identifier: Apache-2.0 */
/* chat.h: what the files of reprise_chat.h share: chats (chat_api.c), their jobs (chat_jobs.c), their answers
 * (chat_answers.c).
 *
 * A chat owns copies of all that its options point to: strings in `strings`, JSON in `values`. After rp_chat_new
 * nothing in it changes but the number of references: the caller's, and one for each job and reader that may outlive
 * it.
 */
#ifndef API_CHAT_H
#define API_CHAT_H

#include <stdatomic.h>

#include "reprise_chat.h"
#include "structured/answer_form.h"
#include "structured/tool_grammar.h"

struct rp_chat {
    atomic_int refs;
    json_t *values; /* an array: schemas */
    char **strings;
    size_t n_strings, cap_strings;
    tool_spec *tools;
    answer_form form;
    tool_grammar grammar;
    bool special_text;
    rp_message *messages; /* [n_messages], for a model without a chat template of its own; NULL: `rendered` */
    size_t n_messages, cap_messages;
    rp_template_text *rendered;
    rp_rendered_turn *turns; /* [n_turns] of `rendered` */
    size_t n_turns;
    size_t n_calls; /* of the conversation */
};

/* A reference, released by rp_chat_free. Any thread. */
rp_chat *chat_ref(const rp_chat *c);

#endif
