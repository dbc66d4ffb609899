/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c: see reprise_device.h. */
#include "reprise_device.h"

#include "backend/backend_registry.h"
#include "base/error.h"

int rp_devices(rp_device *out, size_t most, size_t *n, rp_error *err) {
    if (!n || (most > 0 && !out)) return base_fail(err, RP_ERR_INVALID, "rp_devices: out and n are needed");
    *n = backend_devices(out, most);
    return RP_OK;
}
