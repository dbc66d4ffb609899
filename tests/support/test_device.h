/* SPDX-License-Identifier: Apache-2.0 */
/* test_device.h: the device that a test computes on, REPRISE_TEST_DEVICE, or the CPU; and what it can do. */
#ifndef SUPPORT_TEST_DEVICE_H
#define SUPPORT_TEST_DEVICE_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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

/* Does it judge slots (reduced KV, blend, focus, context shift)? */
static inline bool test_device_has_studies(void) {
    return test_device_is_cpu() || test_device_describe().has_studies;
}

/* Is its memory other memory than the processor's? Limits of KV in RAM are not limits of KV in it. */
static inline bool test_device_is_apart(void) {
    return !test_device_is_cpu() && strcmp(test_device_describe().kind, "discrete GPU") == 0;
}

#endif
