/* SPDX-License-Identifier: Apache-2.0 */
/* kv_format.h: what the KV formats of include/reprise.h (RP_KV_FORMATS, the only list of them) mean: the elements of their keys and
 * values. A format of elements that exist is one row of that list; new elements need kernels, sizes and rows of slots as well
 * (kernels.h, kv_layer.c). */
#ifndef KV_FORMAT_H
#define KV_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "reprise.h"

/* How elements of keys or values are stored, and computed with. The first three are floats: attention adds them in
 * order; the others are integers (kernels.h). Those of 4 and 2 bits have ranges over several elements and are encoded from
 * complete blocks. */
typedef enum kv_element {
    KV_ELEMENT_F32,
    KV_ELEMENT_F16,
    KV_ELEMENT_FP8,
    KV_ELEMENT_INT8,
    KV_ELEMENT_4BIT,
    KV_ELEMENT_2BIT
} kv_element;

static inline bool kv_element_is_int(kv_element e) { return e >= KV_ELEMENT_INT8; }
static inline bool kv_element_is_encoded(kv_element e) { return e >= KV_ELEMENT_4BIT; }
static inline int kv_element_bits(kv_element e) { return e >= KV_ELEMENT_INT8 ? 8 >> (e - KV_ELEMENT_INT8) : 32 >> e; }

kv_element kv_format_keys(rp_kv_format f);
kv_element kv_format_values(rp_kv_format f);
static inline kv_element kv_format_side(rp_kv_format f, bool is_key) { return is_key ? kv_format_keys(f) : kv_format_values(f); }
/* Is KV encoded from complete blocks, or else stored token by token? Formats with encoded keys have encoded values. */
static inline bool kv_format_is_encoded(rp_kv_format f) { return kv_element_is_encoded(kv_format_values(f)); }
static inline bool kv_format_is_int(rp_kv_format f) { return kv_element_is_int(kv_format_values(f)); }
/* Have elements less than 16 bits? */
static inline bool kv_format_is_small(rp_kv_format f) { return kv_element_bits(kv_format_keys(f)) < 16; }
/* A number for keys: it changes with the meaning of a format's bytes. */
uint64_t kv_format_identity(rp_kv_format f);
const char *kv_format_name(rp_kv_format f); /* "f16", ... */
bool kv_format_parse(const char *name, rp_kv_format *out);

#endif
