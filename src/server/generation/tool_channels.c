/* SPDX-License-Identifier: Apache-2.0 */
/* tool_channels.c: see tool_channels.h. Owns nothing. */
#include "server/generation/tool_channels.h"

#include <string.h>

#include "base/compiler.h"

static const char message_mark[] = "<|message|>", channel_mark[] = "<|channel|>", recipient_mark[] = "to=";
static const char *const begins[] = {"<|start|>", "<|channel|>", NULL}, *const ends[] = {"<|end|>", "<|return|>", "<|call|>", NULL};

const char *tool_channels_end(size_t i) { return ends[i]; }
const char *tool_channels_begin(size_t i) { return begins[i]; }

/* Where a text is in [at, end); NULL: nowhere. */
static const char *find_text(const char *at, const char *end, const char *text) {
    const size_t n = strlen(text);
    for (; (size_t)(end - at) >= n; at++)
        if (memcmp(at, text, n) == 0) return at;
    return NULL;
}

/* Does b begin as a header does? The first one may begin with its recipient. */
static tool_match header_begins(const base_buffer *b) {
    static const char *const texts[] = {"<|start|>", "<|channel|>", " to=", "to="};
    tool_match all = TOOL_NO;
    for (size_t i = 0; i < BASE_ARRAY_LEN(texts); i++) {
        const size_t n = BASE_MIN(strlen(texts[i]), b->len);
        if (memcmp(b->data, texts[i], n) != 0) continue;
        if (n == strlen(texts[i])) return TOOL_YES;
        all = TOOL_PERHAPS;
    }
    return all;
}

/* The word after a mark in [at, end): letters of names. */
static size_t word_after(const char *at, const char *end, const char *mark, const char **word) {
    const char *found = find_text(at, end, mark);
    if (!found) return 0;
    *word = found += strlen(mark);
    while (found < end && *found != ' ' && *found != '<') found++;
    return (size_t)(found - *word);
}

tool_match tool_channels_header(const generation *gen, const base_buffer *b, size_t most, tool_channel *channel, const server_tool **tool,
                                size_t *n_bytes) {
    static const char functions[] = "functions.";
    if (b->len == 0) return TOOL_PERHAPS;
    tool_match m = header_begins(b);
    if (m != TOOL_YES) return m;
    const size_t n = BASE_MIN(b->len, most);
    const char *end = find_text(b->data, b->data + n, message_mark), *to = NULL, *name = NULL;
    if (!end) return b->len < most ? TOOL_PERHAPS : TOOL_NO;
    for (size_t i = 0; ends[i]; i++)
        if (find_text(b->data, end, ends[i])) return TOOL_NO;
    size_t n_to = word_after(b->data, end, recipient_mark, &to), n_name = word_after(b->data, end, channel_mark, &name);
    *n_bytes = (size_t)(end - b->data) + sizeof(message_mark) - 1;
    *channel = n_to > 0 ? TOOL_CHANNEL_UNKNOWN : n_name == 8 && memcmp(name, "analysis", 8) == 0 ? TOOL_CHANNEL_REASONING
                                                                                                 : TOOL_CHANNEL_TEXT;
    if (n_to <= sizeof(functions) - 1 || memcmp(to, functions, sizeof(functions) - 1) != 0) return TOOL_YES;
    *tool = tool_heads_find_tool(gen, to + sizeof(functions) - 1, n_to - (sizeof(functions) - 1));
    if (!*tool) return TOOL_YES;
    size_t at = *n_bytes;
    m = tool_heads_expect(b, &at, "{");
    if (m == TOOL_YES && at <= most) {
        *channel = TOOL_CHANNEL_CALL;
        *n_bytes = at - 1;
    }
    return m == TOOL_PERHAPS && b->len < most ? TOOL_PERHAPS : TOOL_YES;
}
