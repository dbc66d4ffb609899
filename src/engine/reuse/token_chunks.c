/* SPDX-License-Identifier: Apache-2.0 */
/* token_chunks.c: see token_chunks.h. */
#include "engine/reuse/token_chunks.h"

#include <stdbool.h>

#include "base/check.h"

/* The rolling hash shifts by one bit a token ("gear"; Xia et al., 2014): bits 12 and 13 depend on the last 14 tokens,
 * bits 16 to 21 on the last 22. These bits choose one line end in 4, and one other token in 64. With one line end in
 * 16, automatic modules of agents' prompts reused 0.88 of the tokens of earlier runs, with one in 4 0.90, with one in 2
 * 0.91 (docs/performance.md). */
#define LINE_BITS UINT32_C(0x00003000)
#define TOKEN_BITS UINT32_C(0x003f0000)

static uint32_t token_gear(int32_t token) {
    uint32_t h = (uint32_t)token * UINT32_C(0x9e3779b1);
    h ^= h >> 15;
    return h * UINT32_C(0x85ebca77);
}

static bool ends_chunk(uint32_t hash, int32_t length, token_class last) {
    if (length >= TOKEN_CHUNK_MOST) return true;
    if (length < TOKEN_CHUNK_LEAST) return false;
    if (last == TOKEN_CLASS_LINE_END && (hash & LINE_BITS) == 0) return true;
    return length >= TOKEN_CHUNK_LONG && (hash & TOKEN_BITS) == 0;
}

int32_t token_chunks_cut(const int32_t *tokens, int32_t n, const uint8_t *classes, int32_t *ends) {
    int32_t n_ends = 0, begin = 0,
            header = 0; /* header: tokens of a message's header that may still come; 0: none is open */
    uint32_t hash = 0;
    for (int32_t i = 0; i < n; i++) {
        const token_class kind = (token_class)classes[tokens[i]];
        if (kind == TOKEN_CLASS_CONTROL) {
            if (i > begin && header == 0) ends[n_ends++] = begin = i;
            header = TOKEN_CHUNK_HEADER;
            hash = 0;
            continue;
        }
        hash = (hash << 1) + token_gear(tokens[i]);
        const bool message = header > 0 && kind == TOKEN_CLASS_LINE_END;
        if (header > 0) header--;
        if (!message && !ends_chunk(hash, i + 1 - begin, kind)) continue;
        ends[n_ends++] = begin = i + 1;
        header = 0;
    }
    BASE_ASSERT(n_ends <= n && (n_ends == 0 || ends[n_ends - 1] <= n));
    return n_ends;
}
