/* SPDX-License-Identifier: Apache-2.0 */
/* kv_shapes.h: shapes of KV as initialisers: {KV_SAME(3, 2, 8, 4), .format = RP_KV_F16} has 3 layers of 2 KV heads with
 * 8 dimensions of keys and 4 of values. */
#ifndef SUPPORT_KV_SHAPES_H
#define SUPPORT_KV_SHAPES_H

#include "kv/kv_plan.h"

/* A layer of KV_PAIRS. */
#define KV_ROW(heads, keys, values, a_window, is_in_f16) \
    { .n_heads = heads, .key_dim = keys, .value_dim = values, .window = a_window, .in_f16 = is_in_f16 }

/* A list of layers. */
#define KV_ROWS(n, ...) \
    .n_layers = n, .layers = (const kv_layer_shape[n]) { __VA_ARGS__ }
/* n equal ones. */
#define KV_SAME(n, heads, keys, values) KV_ROWS(n, KV_TIMES_##n(KV_ROW(heads, keys, values, 0, false)))

#define KV_TIMES_1(...) __VA_ARGS__
#define KV_TIMES_2(...) __VA_ARGS__, __VA_ARGS__
#define KV_TIMES_3(...) KV_TIMES_2(__VA_ARGS__), __VA_ARGS__
#define KV_TIMES_4(...) KV_TIMES_2(__VA_ARGS__), KV_TIMES_2(__VA_ARGS__)
#define KV_TIMES_5(...) KV_TIMES_4(__VA_ARGS__), __VA_ARGS__
#define KV_TIMES_22(...) \
    KV_TIMES_5(__VA_ARGS__), KV_TIMES_5(__VA_ARGS__), KV_TIMES_5(__VA_ARGS__), KV_TIMES_5(__VA_ARGS__), \
        KV_TIMES_2(__VA_ARGS__)

#endif
