/* SPDX-License-Identifier: Apache-2.0 */
/* answer_memory.h: answers as the tokens that were sampled, so that the next turn of a conversation goes on with these and not with what
 * their text would be cut into.
 *
 *   what stood before: a tenant's salt, tokens --+
 *                                                +-- key --> tokens
 *   the answer's text ---------------------------+
 *
 * The last ANSWER_MEMORY_ANSWERS answers of all tenants, of ANSWER_MEMORY_TOKENS tokens together: what was kept or found longest ago goes
 * first. The salt makes one tenant's keys, which no other has. In RAM alone. The memory is used by one thread at a time (the engine's lock);
 * keys may be made by any.
 */
#ifndef ENGINE_ANSWER_MEMORY_H
#define ENGINE_ANSWER_MEMORY_H

#include <stddef.h>

#include "base/hash.h"
#include "reprise.h"

#define ANSWER_MEMORY_ANSWERS 4096
#define ANSWER_MEMORY_TOKENS ((size_t)1 << 20)

/* What stands before an answer, as it is read. */
typedef struct answer_before {
    base_hash hash;
    size_t n; /* tokens */
} answer_before;

void answer_before_init(answer_before *b, const base_key *salt);
void answer_before_add(answer_before *b, const int32_t *tokens, size_t n);
/* Names all that was added so far; more may be added. */
base_key answer_before_key(const answer_before *b);
/* The key of an answer behind that. */
base_key answer_memory_key(const base_key *before, const char *text, size_t n);

typedef struct answer_memory answer_memory;

int answer_memory_new(answer_memory **out, rp_error *err); /* RP_ERR_MEMORY */
void answer_memory_free(answer_memory *m);
/* Keeps n tokens, which are the memory's from now on (base_free); older ones of the key go, and what there is no room for. */
void answer_memory_put(answer_memory *m, const base_key *key, int32_t *tokens, size_t n);
/* The tokens of that key, until the next put; NULL: they are not known. */
const int32_t *answer_memory_find(answer_memory *m, const base_key *key, size_t *n);

#endif
