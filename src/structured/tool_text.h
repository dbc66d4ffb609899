/* SPDX-License-Identifier: Apache-2.0 */
/* tool_text.h: tools, calls and results as text of a prompt, for models without a template of their own.
 *
 *   <tools> {"function":{...},"type":"function"} ... </tools>      in the system message
 *   <tool_call> {"name": "f", "arguments": {...}} </tool_call>     in the assistant's, after its text
 *   <tool_response> ... </tool_response>                           in a message of role tool; in chatml of the user, as
 *         for Qwen
 *
 * Definitions are compact and have sorted keys: the prompt does not depend on the client's order of keys, and hits the
 * prefix cache. Texts are UTF-8, which the callers have checked: JSON has no others, and its NULL means no memory.
 * Functions with a buffer return 0, RP_ERR_LIMIT or RP_ERR_MEMORY; then a part may have been appended.
 * Any thread.
 */
#ifndef STRUCTURED_TOOL_TEXT_H
#define STRUCTURED_TOOL_TEXT_H

#include "base/buffer.h"
#include "structured/answer_form.h"

/* Around the definitions, each of which ends with a line end. */
extern const char tool_text_before[], tool_text_after[];

/* A definition as OpenAI has it; a new reference. NULL: out of memory. */
json_t *tool_text_json(const tool_spec *t);
int tool_text_definition(base_buffer *out, const tool_spec *t) BASE_NODISCARD;
/* After other text of the message, if there is any. arguments: JSON. */
int tool_text_call(base_buffer *out, const char *name, const char *arguments) BASE_NODISCARD;
/* *at: where the result's own text begins in the buffer. */
int tool_text_result(base_buffer *out, const char *text, bool is_error, size_t *at) BASE_NODISCARD;
/* Are results messages of the user in this chat format (rp_model_info)? */
bool tool_text_results_are_users(const char *chat_format);

#endif
