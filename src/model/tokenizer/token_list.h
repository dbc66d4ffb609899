/* SPDX-License-Identifier: Apache-2.0 */
/* token_list.h: a growing list of token ids: the output of every tokenizer. A list belongs to one thread. */
#ifndef MODEL_TOKEN_LIST_H
#define MODEL_TOKEN_LIST_H

#include <stddef.h>
#include <stdint.h>

#define TOKENIZER_MAX_TOKENS ((size_t)1 << 24) /* of one text, and of a list */

/* Zero-initialise; release with token_list_free. */
typedef struct token_list {
    int32_t *ids;
    size_t n, cap;
} token_list;
/* 0, RP_ERR_MEMORY, RP_ERR_LIMIT (more than TOKENIZER_MAX_TOKENS); on error the list is unchanged. */
int token_list_push(token_list *l, int32_t id);
int token_list_append(token_list *l, const int32_t *ids, size_t n);
void token_list_free(token_list *l);

#endif
