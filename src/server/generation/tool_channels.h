/* SPDX-License-Identifier: Apache-2.0 */
/* tool_channels.h: headers of harmony's messages (gpt-oss), matched against text that may not be complete. Pure, any thread.
 *
 *   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>     the recipient may also be before the channel;
 *   <|channel|>final<|message|>                                                             <|start|>assistant is in the prompt
 */
#ifndef SERVER_TOOL_CHANNELS_H
#define SERVER_TOOL_CHANNELS_H

#include "server/generation/tool_heads.h"

typedef enum tool_channel {
    TOOL_CHANNEL_TEXT,      /* final, or commentary to the user */
    TOOL_CHANNEL_REASONING, /* analysis */
    TOOL_CHANNEL_CALL,      /* to a tool, and its arguments begin */
    TOOL_CHANNEL_UNKNOWN,   /* to anybody else: its header is text */
} tool_channel;

/* A header at the beginning of b; n_bytes: up to the message, or a call's '{'. A header of more than `most` bytes is none. */
tool_match tool_channels_header(const generation *gen, const base_buffer *b, size_t most, tool_channel *channel, const server_tool **tool,
                                size_t *n_bytes);

/* Texts that end a message; NULL past the end. Those that begin a header. */
const char *tool_channels_end(size_t i);
const char *tool_channels_begin(size_t i);

#endif
