/* SPDX-License-Identifier: Apache-2.0 */
/* chat_truncation.c: see chat_truncation.h. */
#include "structured/chat_truncation.h"

#include "base/check.h"
#include "base/compiler.h"

#define PIECES 4 /* of the context */

int64_t chat_excess(int64_t n_tokens, int32_t n_ctx, int32_t max_tokens) {
    BASE_ASSERT(n_ctx > 0);
    return n_tokens - (n_ctx - BASE_MIN(BASE_MAX(max_tokens, 1), n_ctx / PIECES));
}

size_t chat_count_leading_systems(const rp_message *messages, size_t n_messages) {
    size_t n = 0;
    while (n < n_messages && messages[n].role == RP_ROLE_SYSTEM) n++;
    return n;
}

size_t chat_first_kept(const rp_message *messages, size_t n_messages, const size_t *ends, size_t first, int64_t excess,
                       int32_t n_ctx) {
    const int64_t piece = BASE_MAX(n_ctx / PIECES, 1), drop = (excess + piece - 1) / piece * piece;
    const size_t before = first > 0 && first <= n_messages ? ends[first - 1] : 0;
    size_t kept = 0;
    BASE_ASSERT(excess > 0);
    for (size_t i = first + 1; i < n_messages; i++) {
        BASE_ASSERT(ends[i] >= ends[i - 1]);
        if (messages[i].role != RP_ROLE_USER) continue;
        kept = i;
        if (ends[i - 1] - before >= (size_t)drop) break;
    }
    return kept;
}
