/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kv_elements.c: see cpu_kv_elements.h. */
#include "base/check.h"
#include "backend/cpu/cpu_kv_elements.h"

/* Where element d of a slot is: keys have slots fastest, values dimensions. */
static int64_t index_of(bool is_key, int64_t dim, int slot, int64_t d) {
    BASE_DCHECK(slot >= 0 && slot < KERNEL_SLOTS && d >= 0 && d < dim);
    return is_key ? d * KERNEL_SLOTS + slot : slot * dim + d;
}

static cpu_store_fn store_f32(const kernel_table *k, bool is_key) {
    return is_key ? k->store_key_f32 : k->store_value_f32;
}
static kernel_attn_scores_fn scores_f32(const kernel_table *k) { return k->attn_scores_f32; }
static kernel_attn_values_fn values_f32(const kernel_table *k) { return k->attn_values_f32; }
static float load_f32(const void *head, bool is_key, int64_t dim, int slot, int64_t d) {
    return ((const float *)head)[index_of(is_key, dim, slot, d)];
}
static float round_f32(float x) { return x; }
const cpu_element cpu_element_F32 = {store_f32, load_f32, scores_f32, values_f32, round_f32};

static cpu_store_fn store_f16(const kernel_table *k, bool is_key) {
    return is_key ? k->store_key_f16 : k->store_value_f16;
}
static kernel_attn_scores_fn scores_f16(const kernel_table *k) { return k->attn_scores_f16; }
static kernel_attn_values_fn values_f16(const kernel_table *k) { return k->attn_values_f16; }
static float load_f16(const void *head, bool is_key, int64_t dim, int slot, int64_t d) {
    return kernel_f16_to_f32(((const uint16_t *)head)[index_of(is_key, dim, slot, d)]);
}
static float round_f16(float x) { return kernel_f16_to_f32(kernel_f32_to_f16(x)); }
const cpu_element cpu_element_F16 = {store_f16, load_f16, scores_f16, values_f16, round_f16};

static cpu_store_fn store_int8(const kernel_table *k, bool is_key) {
    return is_key ? k->store_key_int8 : k->store_value_int8;
}
static float load_int8(const void *head, bool is_key, int64_t dim, int slot, int64_t d) {
    return is_key ? kernel_int8_key(head, dim, slot, d) : kernel_int8_value(head, dim, slot, d);
}
const cpu_element cpu_element_INT8 = {.store = store_int8, .load = load_int8};
const cpu_element cpu_element_4BIT = {0};
const cpu_element cpu_element_2BIT = {0};

const cpu_element *const cpu_element_rows[KV_N_ELEMENTS] = {
#define X(NAME, bits, kind) &cpu_element_##NAME,
    KV_ELEMENTS(X)
#undef X
};
