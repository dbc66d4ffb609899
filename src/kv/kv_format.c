/* SPDX-License-Identifier: Apache-2.0 */
/* kv_format.c: see kv_format.h. */
#include "kv/kv_format.h"

#include <string.h>

static const struct {
    const char *name;
    kv_element keys, values;
} formats[RP_N_KV_FORMATS] = {
#define X(NAME, number, name, keys, values) [number] = {name, KV_ELEMENT_##keys, KV_ELEMENT_##values},
    RP_KV_FORMATS(X)
#undef X
};

/* Numbers have no gaps: no entry of the table is empty. */
#define X(NAME, number, name, keys, values) +1
_Static_assert(RP_KV_FORMATS(X) == RP_N_KV_FORMATS, "the last row of RP_KV_FORMATS has the highest number, and no number is missing");
#undef X

kv_element kv_format_keys(rp_kv_format f) { return formats[f].keys; }
kv_element kv_format_values(rp_kv_format f) { return formats[f].values; }
/* Keys of int8 without the Hadamard transform had the number alone. */
uint64_t kv_format_identity(rp_kv_format f) { return (uint64_t)f | (kv_format_keys(f) == KV_ELEMENT_INT8 ? 0x100 : 0); }

const char *kv_format_name(rp_kv_format f) { return formats[f].name; }

bool kv_format_parse(const char *name, rp_kv_format *out) {
    for (int i = 0; i < RP_N_KV_FORMATS; i++) {
        if (strcmp(name, formats[i].name) != 0) continue;
        *out = (rp_kv_format)i;
        return true;
    }
    return false;
}
