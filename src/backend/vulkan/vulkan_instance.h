/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_instance.h: Vulkan's loader, which is opened at run time, and the devices of this machine.
 *
 * The instance is one for the process; it lives as long as anyone refers to it. Thread-safe.
 */
#ifndef BACKEND_VULKAN_INSTANCE_H
#define BACKEND_VULKAN_INSTANCE_H

#include <stdbool.h>

#include <volk.h>

#include "reprise.h"

#define VULKAN_MAX_DEVICES 16

/* Where copies over the bus are submitted, the better the later. */
typedef enum vulkan_copy_queue { VULKAN_COPIES_SHARE,  /* in the queue of the steps, in whose order they take effect */
                                 VULKAN_COPIES_SECOND, /* in a second queue of its family */
                                 VULKAN_COPIES_APART } /* in a queue of a family that copies and does not compute */
vulkan_copy_queue;

typedef struct vulkan_queues {
    uint32_t family; /* of steps; their queue is its first one */
    vulkan_copy_queue copies;
    uint32_t copy_family, copy_index; /* of copies: the same family and 0, if they share */
    uint32_t timestamp_bits;          /* of the family of copies; 0: it writes none */
} vulkan_queues;

/* Cooperative matrices of int8 with sums of int32, M x K times K x N, as the constants of linear_matrix.comp. m 0: the
 * device has none, or this build has no shader for them. */
typedef struct vulkan_matrices {
    uint32_t m, n, k, subgroups; /* subgroups: of a workgroup of 128 */
} vulkan_matrices;

/* A device as its driver describes it. */
typedef struct vulkan_description {
    VkPhysicalDevice physical;
    VkPhysicalDeviceType type;
    char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
    char driver[VK_MAX_DRIVER_NAME_SIZE + VK_MAX_DRIVER_INFO_SIZE];
    uint8_t driver_uuid[VK_UUID_SIZE];
    uint32_t vendor, device, driver_version;
    vulkan_queues queues;
    uint64_t memory_bytes;   /* of its largest heap that is its own */
    uint64_t host_alignment; /* of memory of the process that it can import; 0: none (VK_EXT_external_memory_host) */
    bool has_dot;            /* products of 4 x 8 bits (VK_KHR_shader_integer_dot_product) */
    vulkan_matrices matrices;
    const char *unusable; /* why the backend cannot use it; NULL: it can. Static */
} vulkan_description;

/* Opens the loader and creates the instance, or refers to it once more. RP_ERR_UNSUPPORTED: there is no loader, or no
 * driver. */
int vulkan_instance_ref(rp_error *err);
void vulkan_instance_unref(void);

/* Describes at most VULKAN_MAX_DEVICES devices, in the order of the loader; returns their number. The caller refers to
 * the instance. */
int32_t vulkan_describe_all(vulkan_description out[VULKAN_MAX_DEVICES]);

/* The queues of a device with these n families; why it has none: NULL, or static. Prefers families without graphics, so
 * that a desktop does not wait for steps, nor steps for it. */
const char *vulkan_choose_queues(const VkQueueFamilyProperties *families, uint32_t n, vulkan_queues *out);

/* The device of that number; -1: the best usable one: discrete, integrated, virtual, or else of any kind. NULL: there
 * is none; *reason tells why. */
const vulkan_description *vulkan_choose(const vulkan_description *all, int32_t n, int32_t number,
                                        const char **reason);
/* "discrete GPU", ...; static. */
const char *vulkan_type_name(VkPhysicalDeviceType type);

#endif
