/* SPDX-License-Identifier: Apache-2.0 */
/* item_history.h: a conversation that is a list of items (Responses) or steps (Interactions), one for each text,
 * reasoning, call and result, as messages: for their parsers. Owns nothing. */
#ifndef SERVER_ITEM_HISTORY_H
#define SERVER_ITEM_HISTORY_H

#include "server/prompt/generation.h"

#define ITEM_HISTORY_MAX_REASONING 16 /* items before one of the assistant's */

/* Reasoning items that wait for the assistant's message after them. Zeroed: none. */
typedef struct item_history {
    const json_t *reasoning[ITEM_HISTORY_MAX_REASONING];
    size_t n_reasoning;
} item_history;

/* {"content" or "summary": a list of {"text"}}: borrowed. */
void item_history_hold(item_history *h, const json_t *item);
/* Another item was added: those that wait become the reasoning of its message, if that is the assistant's. */
void item_history_attach(generation *gen, item_history *h, server_problem *p);
/* Adds a call. Calls that follow each other, or a text of the assistant, are one message. */
void item_history_add_call(generation *gen, const char *id, const char *name, const char *arguments, server_problem *p);

#endif
