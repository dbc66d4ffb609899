/* SPDX-License-Identifier: Apache-2.0 */
/* tool_items.h: the output of a tool_finder: its items, and events of them. For the files of tool_calls.h. */
#ifndef SERVER_TOOL_ITEMS_H
#define SERVER_TOOL_ITEMS_H

#include "server/generation/tool_calls.h"

/* Each returns 0, RP_ERR_MEMORY or the result of on_event. n may be 0. */
int tool_items_text(tool_finder *f, const char *bytes, size_t n);
int tool_items_reasoning(tool_finder *f, const char *bytes, size_t n);
int tool_items_begin(tool_finder *f, const server_tool *tool);
int tool_items_arguments(tool_finder *f, const char *bytes, size_t n);
int tool_items_end(tool_finder *f, bool is_whole);
/* The current call. */
const tool_item *tool_items_last(const tool_finder *f);

/* Forgets the first n bytes that were held back; outputs them as text. */
void tool_items_drop(tool_finder *f, size_t n);
int tool_items_release(tool_finder *f, size_t n);

/* Reasoning begins and ends here, that many bytes into the held-back text. */
int tool_items_begin_reasoning(tool_finder *f, size_t at);
void tool_items_end_reasoning(tool_finder *f, size_t at);

#endif
