/* SPDX-License-Identifier: Apache-2.0 */
/* test_device.h: the device that a test computes on, REPRISE_TEST_DEVICE, or the CPU; and what it can do.
 * REPRISE_TEST_DEVICE_LAYERS=most, half or few: how many of a model's layers the device computes, but not all; the CPU
 * computes the others.
 */
#ifndef SUPPORT_TEST_DEVICE_H
#define SUPPORT_TEST_DEVICE_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend_registry.h"
#include "backend/split/split_layers.h"
#include "kv/block_pool.h"
#include "reprise_device.h"

static inline const char *test_device(void) {
    const char *name = getenv("REPRISE_TEST_DEVICE");
    return name && *name ? name : "cpu";
}

static inline bool test_device_is_cpu(void) { return strcmp(test_device(), "cpu") == 0; }

/* As rp_devices lists it; a name without a number: the first one. All zeros: there is none. */
static inline rp_device test_device_describe(void) {
    static rp_device found;
    static bool is_known;
    rp_device all[16];
    size_t n = 0;
    if (is_known) return found;
    if (rp_devices(all, sizeof(all) / sizeof(all[0]), &n, NULL)) n = 0;
    for (size_t i = n < 16 ? n : 16; i-- > 0;)
        if (strncmp(all[i].name, test_device(), strlen(test_device())) == 0) found = all[i];
    is_known = true;
    return found;
}

/* Does the CPU compute some layers? */
static inline bool test_device_is_divided(void) {
    const char *share = getenv("REPRISE_TEST_DEVICE_LAYERS");
    return share && *share;
}

/* Does it judge slots (reduced KV, blend, focus, context shift)? */
static inline bool test_device_has_studies(void) { return !test_device_is_divided(); }

/* Is its memory other memory than the processor's? Limits of KV in RAM are not limits of KV in it. */
static inline bool test_device_is_apart(void) {
    return !test_device_is_cpu() && strcmp(test_device_describe().kind, "discrete GPU") == 0;
}

/* Layers of a network that the CPU computes; 0: none, for the network cannot be divided, or no layers are asked for. */
static inline int32_t test_host_layers(const model_network *net) {
    const char *share = getenv("REPRISE_TEST_DEVICE_LAYERS");
    int32_t n = 0, first = 0, last = 0;
    if (!share || !*share) return 0;
    for (int32_t i = 1; i < net->hp.n_layers; i++) n += split_check(net, i, NULL) == RP_OK;
    const int32_t wanted = strcmp(share, "most") == 0 ? 0 : strcmp(share, "half") == 0 ? n / 2
                                                                                       : n - 1;
    for (int32_t i = 1, k = 0; i < net->hp.n_layers; i++) {
        if (split_check(net, i, NULL)) continue;
        if (k++ == wanted) first = i;
        last = i;
    }
    return first ? first : last;
}

/* Divides a pool as its backend needs it; before its first block. */
static inline void test_divide(kv_pool *pool, const backend *b, uint64_t host_bytes) {
    const int32_t n = b->ops->host_layers ? b->ops->host_layers(b) : 0;
    if (n > 0) kv_pool_divide(pool, n, host_bytes, UINT64_MAX);
}

#endif
