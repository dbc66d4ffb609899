/* SPDX-License-Identifier: Apache-2.0 */
/* kv_format.c: see kv_format.h. */
#include "kv/kv_format.h"

#include <string.h>

#include "base/check.h"

const kv_element_row kv_elements[KV_N_ELEMENTS] = {
#define X(NAME, bits, kind) {bits, kind},
    KV_ELEMENTS(X)
#undef X
};

static const struct {
    const char *name;
    uint32_t number;
    kv_element keys, values;
} formats[RP_N_KV_FORMATS] = {
#define X(NAME, number, name, keys, values) {name, number, KV_ELEMENT_##keys, KV_ELEMENT_##values},
    RP_KV_FORMATS(X)
#undef X
};

kv_element kv_format_keys(rp_kv_format f) { return formats[f].keys; }
kv_element kv_format_values(rp_kv_format f) { return formats[f].values; }
/* Keys of int8 without the Hadamard transform had the number alone. */
uint64_t kv_format_identity(rp_kv_format f) {
    return (uint64_t)formats[f].number | (kv_format_keys(f) == KV_ELEMENT_INT8 ? 0x100 : 0);
}

const char *kv_format_name(rp_kv_format f) {
    BASE_ASSERT((unsigned)f < RP_N_KV_FORMATS);
    return formats[f].name;
}

bool kv_format_parse(const char *name, rp_kv_format *out) {
    for (int i = 0; i < RP_N_KV_FORMATS; i++) {
        if (strcmp(name, formats[i].name) != 0) continue;
        *out = (rp_kv_format)i;
        return true;
    }
    return false;
}

const char *kv_format_advice(const char *name) {
#define X(number, removed, advice) \
    if (strcmp(name, removed) == 0) return removed " was removed: " advice " (KV formats:" RP_KV_FORMAT_NAMES ")";
    KV_REMOVED_FORMATS(X)
#undef X
    return "give one of" RP_KV_FORMAT_NAMES;
}

uint32_t kv_format_number(rp_kv_format f) {
    BASE_ASSERT((unsigned)f < RP_N_KV_FORMATS); /* no other number enters a file */
    return formats[f].number;
}

bool kv_format_of_number(uint32_t number, rp_kv_format *out) {
    for (int i = 0; i < RP_N_KV_FORMATS; i++) {
        if (formats[i].number != number) continue;
        *out = (rp_kv_format)i;
        return true;
    }
    return false;
}

/* A switch: two formats, removed ones too, with one number do not compile. */
const char *kv_format_removed(uint32_t number) {
    switch (number) {
#define X(removed_number, removed, advice) \
    case removed_number: return removed;
        KV_REMOVED_FORMATS(X)
#undef X
#define X(NAME, known, name, keys, values) case known:
        RP_KV_FORMATS(X)
#undef X
    default: return NULL;
    }
}
