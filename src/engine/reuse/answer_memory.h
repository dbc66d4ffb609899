/* SPDX-License-Identifier: Apache-2.0 */
/* answer_memory.h: answers as the tokens that were sampled: the next turn of a conversation continues with these
 * tokens, not with a new tokenization of their text.
 *
 *   preceding context: a tenant's salt, tokens --+
 *                                                +-- key --> tokens
 *   the answer's text, or what it means ---------+
 *
 * Holds the last ANSWER_MEMORY_ANSWERS answers of all tenants, ANSWER_MEMORY_TOKENS tokens together; the least recently
 * used is evicted first. The salt keeps the keys of tenants apart. RAM only. The memory is used by one thread at a time
 * (the engine's lock); any thread may make keys.
 */
#ifndef ENGINE_ANSWER_MEMORY_H
#define ENGINE_ANSWER_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "reprise.h"

#define ANSWER_MEMORY_ANSWERS 4096
#define ANSWER_MEMORY_TOKENS ((size_t)1 << 20)

/* The tokens before an answer. */
typedef struct answer_before {
    base_hash hash;
    size_t n; /* tokens */
} answer_before;

void answer_before_init(answer_before *b, const base_key *salt);
void answer_before_add(answer_before *b, const int32_t *tokens, size_t n);
/* The key of everything added so far; more may be added. */
base_key answer_before_key(const answer_before *b);
/* The key of an answer after that context, by its text or by its meaning (rp_on_meaning). */
base_key answer_memory_key(const base_key *before, const char *text, size_t n);
base_key answer_memory_key_of_meaning(const base_key *before, const uint8_t meaning[RP_MEANING_BYTES]);

typedef struct answer_memory answer_memory;

int answer_memory_new(answer_memory **out, rp_error *err); /* RP_ERR_MEMORY */
void answer_memory_free(answer_memory *m);
/* Inserts n tokens and takes ownership of them (base_free). Replaces the key's older tokens; evicts down to the limits.
 * */
void answer_memory_put(answer_memory *m, const base_key *key, int32_t *tokens, size_t n);
/* The tokens of a key, valid until the next put; NULL: a miss. */
const int32_t *answer_memory_find(answer_memory *m, const base_key *key, size_t *n);

#endif
