/* SPDX-License-Identifier: Apache-2.0 */
/* token_list.c: see token_list.h. */
#include "model/tokenizer/token_list.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "reprise.h"

int token_list_append(token_list *l, const int32_t *ids, size_t n) {
    BASE_ASSERT(l->n <= l->cap && l->cap <= TOKENIZER_MAX_TOKENS);
    if (n > TOKENIZER_MAX_TOKENS - l->n) return RP_ERR_LIMIT;
    int rc = base_grow((void **)&l->ids, &l->cap, l->n + n, TOKENIZER_MAX_TOKENS, sizeof(*l->ids));
    if (rc) return rc;
    if (n > 0) memcpy(l->ids + l->n, ids, n * sizeof(*ids));
    l->n += n;
    return RP_OK;
}

int token_list_push(token_list *l, int32_t id) {
    if (l->n == l->cap) return token_list_append(l, &id, 1);
    l->ids[l->n++] = id;
    return RP_OK;
}

void token_list_free(token_list *l) {
    base_free(l->ids);
    *l = (token_list){0};
}
