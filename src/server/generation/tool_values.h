/* SPDX-License-Identifier: Apache-2.0 */
/* tool_values.h: arguments that are written as text (TOOL_BODY_ARG_KEYS, TOOL_BODY_PARAMETERS), as JSON. For tool_calls.h. */
#ifndef SERVER_TOOL_VALUES_H
#define SERVER_TOOL_VALUES_H

#include "server/generation/tool_items.h"

/* Is the argument a string by the tool's schema? Otherwise it is JSON where it reads as JSON. */
bool tool_values_is_text(const server_tool *tool, const char *name, size_t n);
/* These append to the arguments of the current call: a string; the inside of a string; a value of any type, which is a string if it is neither
 * JSON nor True, False or None. Each returns 0, RP_ERR_MEMORY or the result of on_event. */
int tool_values_string(tool_finder *f, const char *text, size_t n);
int tool_values_escaped(tool_finder *f, const char *text, size_t n);
int tool_values_any(tool_finder *f, const char *text, size_t n);

#endif
