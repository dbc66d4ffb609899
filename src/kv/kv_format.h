/* SPDX-License-Identifier: Apache-2.0 */
/* kv_format.h: what the KV formats of include/reprise_quality.h (RP_KV_FORMATS, the only list of them) mean: the
 * elements of their keys and values.
 *
 * To add a format:
 *
 *   of elements that exist   a row of RP_KV_FORMATS
 *   of new floats            the same, a row of KV_ELEMENTS, and a cpu_element with their kernels
 *         (backend/cpu/cpu_kv_elements.h); tests/f8
 *                            does this
 *   of new integers          the same, sizes and rows of slots (kv_layer.c), and what attention does with them
 *         (cpu_attention.c)
 */
#ifndef KV_FORMAT_H
#define KV_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "reprise.h"

typedef enum kv_element_kind {
    KV_FLOATS,  /* stored token by token; attention adds them in order, as floats */
    KV_INTS,    /* 8 bits, stored token by token, with a scale for each slot of a head; attention computes in
                   integers */
    KV_ENCODED, /* integers with ranges over several elements, encoded from complete blocks */
} kv_element_kind;

/* Elements of keys or values: X(NAME, bits, kind). */
#define KV_ELEMENTS(X) \
    X(F32, 32, KV_FLOATS) \
    X(F16, 16, KV_FLOATS) \
    X(INT8, 8, KV_INTS) \
    X(4BIT, 4, KV_ENCODED) \
    X(2BIT, 2, KV_ENCODED)

#define KV_ELEMENT_VALUE(NAME, bits, kind) KV_ELEMENT_##NAME,
typedef enum kv_element { KV_ELEMENTS(KV_ELEMENT_VALUE) KV_N_ELEMENTS } kv_element;

/* Formats of earlier versions: X(number, name, advice). Their numbers and names stay theirs: a record in one is a miss,
 * and no other format takes its number. */
#define KV_REMOVED_FORMATS(X) \
    X(3, "k8v4", "use int8, which is as exact, or k4v2, which is smaller") \
    X(7, "fp8", "use int8, which is about as small and more exact")

typedef struct kv_element_row {
    int bits;
    kv_element_kind kind;
} kv_element_row;
extern const kv_element_row kv_elements[]; /* by kv_element */

static inline bool kv_element_is_int(kv_element e) { return kv_elements[e].kind != KV_FLOATS; }
static inline bool kv_element_is_encoded(kv_element e) { return kv_elements[e].kind == KV_ENCODED; }
static inline int kv_element_bits(kv_element e) { return kv_elements[e].bits; }

kv_element kv_format_keys(rp_kv_format f);
kv_element kv_format_values(rp_kv_format f);
static inline kv_element kv_format_side(rp_kv_format f, bool is_key) {
    return is_key ? kv_format_keys(f) : kv_format_values(f);
}
/* Is KV encoded from complete blocks, or else stored token by token? Formats with encoded keys have encoded values. */
static inline bool kv_format_is_encoded(rp_kv_format f) { return kv_element_is_encoded(kv_format_values(f)); }
static inline bool kv_format_is_int(rp_kv_format f) { return kv_element_is_int(kv_format_values(f)); }
/* Have elements less than 16 bits? */
static inline bool kv_format_is_small(rp_kv_format f) { return kv_element_bits(kv_format_keys(f)) < 16; }
/* A number for keys: it changes with the meaning of a format's bytes. */
uint64_t kv_format_identity(rp_kv_format f);

const char *kv_format_name(rp_kv_format f); /* "f16", ... */
bool kv_format_parse(const char *name, rp_kv_format *out);
/* The end of a message about a name that kv_format_parse refused: the names that there are, and what replaces a removed
   format. Static. */
const char *kv_format_advice(const char *name);

/* The number of a format in files, which is not its rp_kv_format. */
uint32_t kv_format_number(rp_kv_format f);
/* false: no format has this number. */
bool kv_format_of_number(uint32_t number, rp_kv_format *out);
/* The name of the removed format that had this number; NULL: none had it. Static. */
const char *kv_format_removed(uint32_t number);

#endif
