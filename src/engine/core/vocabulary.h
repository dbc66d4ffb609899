/* SPDX-License-Identifier: Apache-2.0 */
/* vocabulary.h: forms of a model's vocabulary that some requests need: made for the first one, and kept as long as the
   engine. Any thread.
 */
#ifndef ENGINE_VOCABULARY_H
#define ENGINE_VOCABULARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "grammar/token_trie.h"
#include "reprise.h"

typedef struct engine_vocabulary {
    pthread_mutex_t lock; /* held while a form is made; lock order: this, the engine's */
    bool has_lock;
    uint8_t *classes;     /* [n_vocab] (token_chunks.h) */
    token_trie *tries[2]; /* by special_text */
} engine_vocabulary;

/* false: no memory. */
bool vocabulary_open(engine_vocabulary *v);
void vocabulary_close(engine_vocabulary *v);

/* The vocabulary as a trie, for grammars. special: the text of special tokens counts. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int vocabulary_trie(rp_engine *e, bool special, const token_trie **out, rp_error *err);
/* The classes of all tokens, for automatic modules. NULL: no memory. */
const uint8_t *vocabulary_classes(rp_engine *e);

#endif
