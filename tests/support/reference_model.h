/* reference_model.h: the slow, obvious transformer of architecture `llama`, one token at a time.
 *
 * Knows nothing of views, spans, blocks or plans: the caller says for each token which earlier tokens it sees, and at
 * which distance. Arithmetic is in double over F32 weights; keys and queries are kept un-rotated, and a score is
 *
 *     score(t, u) = (R(distance(t, u)) q_t) . k_u / sqrt(head_dim)
 *
 * For tests: running out of memory ends the program. Not thread-safe.
 */
#ifndef SUPPORT_REFERENCE_MODEL_H
#define SUPPORT_REFERENCE_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "model/gguf.h"
#include "reprise.h"

/* calloc that does not return without memory; release with free. */
void *reference_alloc(size_t n, size_t bytes);

typedef struct reference_model reference_model;

/* The file must stay open. RP_ERR_UNSUPPORTED: not `llama` with F32 weights; RP_ERR_FORMAT: something is missing. */
int reference_model_open(reference_model **out, const gguf_file *f, rp_error *err);
void reference_model_close(reference_model *m);
int32_t reference_model_n_vocab(const reference_model *m);

/* One token that another sees: its number, and how many positions it stands before (0 or more). */
typedef struct reference_sight {
    int32_t token, distance;
} reference_sight;

/* The tokens computed so far, numbered 0, 1, ... */
typedef struct reference_states reference_states;
reference_states *reference_states_new(const reference_model *m);
void reference_states_free(reference_states *s);
int32_t reference_states_count(const reference_states *s);

/* Computes the next token, which sees `sights` and itself. logits: n_vocab floats, or NULL if nobody asks. */
void reference_states_add(reference_states *s, int32_t id, const reference_sight *sights, size_t n_sights, float *logits);

#endif
