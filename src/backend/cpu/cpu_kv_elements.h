/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kv_elements.h: what the CPU does with one kind of element of KV (kv/kv_format.h, KV_ELEMENTS): a row of
 * functions. Functions that a kind does not need are NULL.
 *
 *                store   load   scores, values, round
 *   KV_FLOATS      x       x              x
 *   KV_INTS        x       x              -            attention computes in integers (cpu_attention.c)
 *   KV_ENCODED     -       -              -            blocks are encoded whole (cpu_encode.c)
 *
 * An element NAME has the row cpu_element_NAME, in cpu_kv_elements.c or in a file of its own.
 */
#ifndef BACKEND_CPU_KV_ELEMENTS_H
#define BACKEND_CPU_KV_ELEMENTS_H

#include "kernels/kernels.h"
#include "kv/kv_layer.h"

/* Stores a slot of a head's keys or values. */
typedef void (*cpu_store_fn)(const float *x, int64_t dim, void *head, int slot);

typedef struct cpu_element {
    cpu_store_fn (*store)(const kernel_table *k, bool is_key);
    float (*load)(const void *head, bool is_key, int64_t dim, int slot, int64_t d); /* element d of a slot, as stored */
    kernel_attn_scores_fn (*scores)(const kernel_table *k);
    kernel_attn_values_fn (*values)(const kernel_table *k);
    float (*round)(float x); /* what load returns of a stored x */
} cpu_element;

#define X(NAME, bits, kind) extern const cpu_element cpu_element_##NAME;
KV_ELEMENTS(X)
#undef X
extern const cpu_element *const cpu_element_rows[]; /* by kv_element */

/* Element d of a slot in a head's keys or values of dim elements, as stored: keys of int8 are transformed
   (kernel_hadamard). */
float cpu_stored_element(kv_element e, const void *head, bool is_key, int64_t dim, int slot, int64_t d);
/* out[dim]: a slot of a head's keys or values in the format of `shape`. */
void cpu_elements(const kv_layer *l, const void *head, bool is_key, int slot, float *out);
/* Keys or values of one head, n slots of a block, in another format; x: scratch of [64][dimension]. Shapes: in the
   formats of the layer. */
void cpu_encode_head(const kernel_table *k, const kv_layer *from_layer, const void *from, bool is_key, int n, float *x,
                     const kv_layer *to_layer, void *to);

#endif
