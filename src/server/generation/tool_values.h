/* SPDX-License-Identifier: Apache-2.0 */
/* tool_values.h: arguments that are written as text (TOOL_BODY_ARG_KEYS, TOOL_BODY_PARAMETERS), as JSON. For tool_calls.h. */
#ifndef SERVER_TOOL_VALUES_H
#define SERVER_TOOL_VALUES_H

#include "server/generation/tool_items.h"

/* Is the argument a string by the tool's schema, written as it is? Otherwise it is JSON where it reads as JSON: so are the strings of an enum of
 * which one has the end of values in it, which no text could. */
bool tool_values_is_text(const tool_form *form, const server_tool *tool, const char *name, size_t n);
/* The strings that such an argument may be, an array, or one string; NULL: any. Borrowed. */
const json_t *tool_values_listed(const json_t *schema);
/* Where a value in f->held ends that is no text: its length, and that of its end in *n_end. JSON may have the end within its strings. false: more
 * of the answer is needed. Called as f->held grows, from tool_values_begin on. */
void tool_values_begin(tool_finder *f);
bool tool_values_end(tool_finder *f, size_t *n, size_t *n_end);
/* There is no more: what is incomplete JSON is text. */
void tool_values_give_up(tool_finder *f);
/* These append to the arguments of the current call: a string; the inside of a string; a value of any type, which is a string if it is neither
 * JSON nor True, False or None. Each returns 0, RP_ERR_MEMORY or the result of on_event. */
int tool_values_string(tool_finder *f, const char *text, size_t n);
int tool_values_escaped(tool_finder *f, const char *text, size_t n);
int tool_values_any(tool_finder *f, const char *text, size_t n);

#endif
