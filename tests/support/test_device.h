/* SPDX-License-Identifier: Apache-2.0 */
/* test_device.h: the device that a test computes on: REPRISE_TEST_DEVICE, or the CPU. */
#ifndef SUPPORT_TEST_DEVICE_H
#define SUPPORT_TEST_DEVICE_H

#include <stdlib.h>

static inline const char *test_device(void) {
    const char *name = getenv("REPRISE_TEST_DEVICE");
    return name && *name ? name : "cpu";
}

#endif
