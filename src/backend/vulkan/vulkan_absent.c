/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_absent.c: the backend of builds without Vulkan (-DREPRISE_VULKAN=OFF): always unavailable. Compiled instead of
 * the other files of this folder. */
#include "backend/backend_registry.h"
#include "base/error.h"

#include <stdio.h>

const char *vulkan_backend_unavailable(const model_network *net, int32_t device) {
    (void)net, (void)device;
    return "this program was built without Vulkan (-DREPRISE_VULKAN=ON)";
}

size_t vulkan_backend_devices(rp_device *out, size_t most) {
    if (most == 0) return 1;
    *out = (rp_device){.name = "vulkan", .kind = "other"};
    snprintf(out->reason, sizeof(out->reason), "%s", vulkan_backend_unavailable(NULL, BACKEND_ANY_DEVICE));
    return 1;
}

int vulkan_backend_new(backend **out, const model_network *net, const backend_options *options, rp_error *err) {
    (void)options;
    *out = NULL;
    return base_fail(err, RP_ERR_UNSUPPORTED, "%s", vulkan_backend_unavailable(net, BACKEND_ANY_DEVICE));
}
