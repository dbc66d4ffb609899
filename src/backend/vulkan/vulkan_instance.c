/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_instance.c: see vulkan_instance.h. The only file that has the loader's code (volk). */
#define VOLK_IMPLEMENTATION
#include "backend/vulkan/vulkan_instance.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards those below */
static VkInstance instance;
static int32_t n_refs;

static int create_instance(rp_error *err) {
    if (volkInitialize() != VK_SUCCESS)
        return base_fail(err, RP_ERR_UNSUPPORTED, "there is no Vulkan loader (libvulkan.so.1): install a driver");
    if (volkGetInstanceVersion() < VK_API_VERSION_1_2)
        return base_fail(err, RP_ERR_UNSUPPORTED, "Vulkan's loader is older than version 1.2");
    const VkApplicationInfo application = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "Reprise", .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &application};
    const VkResult result = vkCreateInstance(&info, NULL, &instance);
    if (result != VK_SUCCESS)
        return base_fail(err, RP_ERR_UNSUPPORTED, "Vulkan found no driver (VkResult %d): install one", (int)result);
    volkLoadInstanceOnly(instance);
    return RP_OK;
}

int vulkan_instance_ref(rp_error *err) {
    pthread_mutex_lock(&lock);
    const int rc = n_refs > 0 ? RP_OK : create_instance(err);
    n_refs += rc == RP_OK;
    pthread_mutex_unlock(&lock);
    return rc;
}

void vulkan_instance_unref(void) {
    pthread_mutex_lock(&lock);
    BASE_ASSERT(n_refs > 0);
    if (--n_refs == 0) {
        vkDestroyInstance(instance, NULL);
        instance = NULL;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- devices ---- */

const char *vulkan_choose_queues(const VkQueueFamilyProperties *families, uint32_t n, vulkan_queues *out) {
    uint32_t steps = UINT32_MAX, copies = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const VkQueueFlags flags = families[i].queueFlags;
        const bool computes = flags & VK_QUEUE_COMPUTE_BIT, draws = flags & VK_QUEUE_GRAPHICS_BIT;
        if (families[i].queueCount == 0) continue;
        if (computes && (steps == UINT32_MAX || !draws)) steps = i;
        if ((flags & VK_QUEUE_TRANSFER_BIT) && !computes && !draws && copies == UINT32_MAX) copies = i;
    }
    *out = (vulkan_queues){.family = steps, .copy_family = steps};
    if (steps == UINT32_MAX) return "it has no compute queue";
    if (copies != UINT32_MAX) {
        out->copies = VULKAN_COPIES_APART;
        out->copy_family = copies;
    } else if (families[steps].queueCount > 1) {
        out->copies = VULKAN_COPIES_SECOND;
        out->copy_index = 1;
    }
    out->timestamp_bits = families[out->copy_family].timestampValidBits;
    return NULL;
}

static const char *find_queues(VkPhysicalDevice physical, vulkan_queues *out) {
    VkQueueFamilyProperties families[16];
    uint32_t n = BASE_ARRAY_LEN(families);
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &n, families);
    return vulkan_choose_queues(families, n, out);
}

/* What the shaders need (vulkan_device.c enables it). */
static const char *missing_feature(VkPhysicalDevice physical, uint32_t api_version) {
    VkPhysicalDeviceVulkan12Features f12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceVulkan11Features f11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                                            .pNext = &f12};
    VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &f11};
    if (api_version < VK_API_VERSION_1_2) return "its driver is older than Vulkan 1.2";
    vkGetPhysicalDeviceFeatures2(physical, &f);
    if (!f12.bufferDeviceAddress) return "its driver has no buffer device addresses";
    if (!f.features.shaderInt64) return "it has no integers of 64 bits";
    if (!f11.storageBuffer16BitAccess) return "it does not read 16 bits from memory";
    if (!f12.storageBuffer8BitAccess) return "it does not read 8 bits from memory";
    if (!f12.timelineSemaphore || !f12.hostQueryReset) return "its driver has no timeline semaphores";
    if (!f12.scalarBlockLayout) return "its driver has no scalar block layout";
    return NULL;
}

/* Alignment of imported memory of the process; 0: the driver imports none. */
static uint64_t host_alignment(VkPhysicalDevice physical) {
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &host};
    VkExtensionProperties *all = NULL;
    uint32_t n = 0;
    bool has = false;
    if (vkEnumerateDeviceExtensionProperties(physical, NULL, &n, NULL) == VK_SUCCESS && n > 0)
        all = base_calloc(n, sizeof(*all));
    if (!all || vkEnumerateDeviceExtensionProperties(physical, NULL, &n, all) != VK_SUCCESS) n = 0;
    for (uint32_t i = 0; i < n && !has; i++)
        has = strcmp(all[i].extensionName, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME) == 0;
    base_free(all);
    if (has) vkGetPhysicalDeviceProperties2(physical, &p);
    return has ? host.minImportedHostPointerAlignment : 0;
}

static void describe(VkPhysicalDevice physical, vulkan_description *out) {
    VkPhysicalDeviceVulkan12Properties p12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
    VkPhysicalDeviceVulkan11Properties p11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
                                              .pNext = &p12};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &p11};
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceProperties(physical, &p.properties);
    if (p.properties.apiVersion >= VK_API_VERSION_1_2) vkGetPhysicalDeviceProperties2(physical, &p);
    *out = (vulkan_description){.physical = physical,
                                .type = p.properties.deviceType,
                                .vendor = p.properties.vendorID,
                                .device = p.properties.deviceID,
                                .driver_version = p.properties.driverVersion};
    memcpy(out->name, p.properties.deviceName, sizeof(out->name));
    memcpy(out->driver_uuid, p11.driverUUID, sizeof(out->driver_uuid));
    snprintf(out->driver, sizeof(out->driver), "%s %s", p12.driverName, p12.driverInfo);
    vkGetPhysicalDeviceMemoryProperties(physical, &memory);
    for (uint32_t i = 0; i < memory.memoryHeapCount; i++)
        if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) &&
            memory.memoryHeaps[i].size > out->memory_bytes)
            out->memory_bytes = memory.memoryHeaps[i].size;
    out->unusable = missing_feature(physical, p.properties.apiVersion);
    if (!out->unusable) out->host_alignment = host_alignment(physical);
    const char *no_queue = find_queues(physical, &out->queues);
    if (!out->unusable) out->unusable = no_queue;
}

int32_t vulkan_describe_all(vulkan_description out[VULKAN_MAX_DEVICES]) {
    VkPhysicalDevice physical[VULKAN_MAX_DEVICES];
    uint32_t n = VULKAN_MAX_DEVICES;
    pthread_mutex_lock(&lock);
    BASE_ASSERT(n_refs > 0);
    const VkResult result = vkEnumeratePhysicalDevices(instance, &n, physical);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE) n = 0;
    for (uint32_t i = 0; i < n; i++) describe(physical[i], &out[i]);
    pthread_mutex_unlock(&lock);
    return (int32_t)n;
}

static int rank_of(VkPhysicalDeviceType type) {
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return 4;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return 3;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return 1;
    default: return 0;
    }
}

const vulkan_description *vulkan_choose(const vulkan_description *all, int32_t n, int32_t number,
                                        const char **reason) {
    const vulkan_description *best = NULL;
    *reason = n == 0 ? "Vulkan has no device" : "no Vulkan device is usable";
    if (number >= n) *reason = "Vulkan has no device of that number: see reprise devices";
    for (int32_t i = 0; i < n; i++) {
        if (number >= 0 && i != number) continue;
        if (all[i].unusable) *reason = all[i].unusable;
        else if (!best || rank_of(all[i].type) > rank_of(best->type)) best = &all[i];
    }
    if (best) *reason = NULL;
    return best;
}

const char *vulkan_type_name(VkPhysicalDeviceType type) {
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return "discrete GPU";
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return "integrated GPU";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return "virtual GPU";
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return "processor";
    default: return "other";
    }
}
