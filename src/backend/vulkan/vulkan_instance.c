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

#define SHARED_BYTES 32768 /* what a workgroup of products has at most (shaders/tile.glsl) */

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
    if (result != VK_SUCCESS) {
        instance = NULL;
        return base_fail(err, RP_ERR_UNSUPPORTED, "Vulkan found no driver (VkResult %d): install one", (int)result);
    }
    volkLoadInstanceOnly(instance);
    return RP_OK;
}

int vulkan_instance_ref(rp_error *err) {
    pthread_mutex_lock(&lock);
    const int rc = instance ? RP_OK : create_instance(err);
    n_refs += rc == RP_OK;
    pthread_mutex_unlock(&lock);
    return rc;
}

void vulkan_instance_unref(void) {
    pthread_mutex_lock(&lock);
    BASE_ASSERT(n_refs > 0);
    n_refs--;
#if !defined(BASE_SANITIZED) /* a driver that is unloaded loses memory that it keeps for the process */
    if (n_refs == 0) {
        vkDestroyInstance(instance, NULL);
        instance = NULL;
    }
#endif
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

/* The extensions of a device; the caller frees them. NULL: none. */
static VkExtensionProperties *list_extensions(VkPhysicalDevice physical, uint32_t *n) {
    VkExtensionProperties *all = NULL;
    *n = 0;
    if (vkEnumerateDeviceExtensionProperties(physical, NULL, n, NULL) == VK_SUCCESS && *n > 0)
        all = base_calloc(*n, sizeof(*all));
    if (!all || vkEnumerateDeviceExtensionProperties(physical, NULL, n, all) != VK_SUCCESS) *n = 0;
    return all;
}

static bool has_extension(const VkExtensionProperties *all, uint32_t n, const char *name) {
    bool has = false;
    for (uint32_t i = 0; i < n && !has; i++) has = strcmp(all[i].extensionName, name) == 0;
    return has;
}

/* Alignment of imported memory of the process. */
static uint64_t host_alignment(VkPhysicalDevice physical) {
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &host};
    vkGetPhysicalDeviceProperties2(physical, &p);
    return host.minImportedHostPointerAlignment;
}

static bool has_dot(VkPhysicalDevice physical) {
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR};
    VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &dot};
    vkGetPhysicalDeviceFeatures2(physical, &f);
    return dot.shaderIntegerDotProduct;
}

#ifdef REPRISE_VULKAN_MATRICES
#define TILE 64 /* of linear_matrix.comp: outputs and rows */
#define INVOCATIONS 128

/* Does a workgroup of linear_matrix divide its tile into matrices of this size? */
static bool divides_tile(const vulkan_matrices *m) {
    if (m->m == 0 || m->n == 0 || m->k == 0 || TILE % m->m || TILE % m->n || 32 % m->k || m->k % 4) return false;
    const uint32_t across = TILE / m->n, all = TILE / m->m * across, own = all / m->subgroups;
    return all % m->subgroups == 0 && own > 0 && (own % across == 0 || across % own == 0);
}

/* Sums are scaled in matrices of floats, which are of the types that the device lists for some product. */
static bool has_floats(const VkCooperativeMatrixPropertiesKHR *all, uint32_t n, const vulkan_matrices *m) {
    for (uint32_t i = 0; i < n; i++)
        if (all[i].scope == VK_SCOPE_SUBGROUP_KHR && all[i].MSize == m->m && all[i].NSize == m->n &&
            (all[i].CType == VK_COMPONENT_TYPE_FLOAT32_KHR || all[i].ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR))
            return true;
    return false;
}

/* The largest matrices that fit. */
static vulkan_matrices choose_matrices(const VkCooperativeMatrixPropertiesKHR *all, uint32_t n, uint32_t subgroups) {
    vulkan_matrices best = {0};
    for (uint32_t i = 0; i < n; i++) {
        const VkCooperativeMatrixPropertiesKHR *p = &all[i];
        const vulkan_matrices m = {p->MSize, p->NSize, p->KSize, subgroups};
        if (p->AType != VK_COMPONENT_TYPE_SINT8_KHR || p->BType != VK_COMPONENT_TYPE_SINT8_KHR ||
            p->CType != VK_COMPONENT_TYPE_SINT32_KHR || p->ResultType != VK_COMPONENT_TYPE_SINT32_KHR ||
            p->scope != VK_SCOPE_SUBGROUP_KHR || !divides_tile(&m) || !has_floats(all, n, &m))
            continue;
        if (m.m * m.n * m.k > best.m * best.n * best.k) best = m;
    }
    return best;
}

static vulkan_matrices find_matrices(VkPhysicalDevice physical, uint32_t subgroup_size) {
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT subgroups = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR, .pNext = &subgroups};
    VkPhysicalDeviceVulkan12Features f12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                            .pNext = &matrix};
    VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &f12};
    VkCooperativeMatrixPropertiesKHR all[128];
    uint32_t n = BASE_ARRAY_LEN(all);
    vkGetPhysicalDeviceFeatures2(physical, &f);
    if (!matrix.cooperativeMatrix || !f12.shaderInt8 || !f12.vulkanMemoryModel || !f12.vulkanMemoryModelDeviceScope ||
        !subgroups.computeFullSubgroups)
        return (vulkan_matrices){0};
    if (subgroup_size == 0 || INVOCATIONS % subgroup_size) return (vulkan_matrices){0};
    for (uint32_t i = 0; i < n; i++)
        all[i] = (VkCooperativeMatrixPropertiesKHR){.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
    const VkResult result = vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(physical, &n, all);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE) n = 0;
    return choose_matrices(all, n, INVOCATIONS / subgroup_size);
}
#endif

/* What a device that is usable can do besides. */
static void describe_extensions(VkPhysicalDevice physical, uint32_t subgroup_size, vulkan_description *out) {
    uint32_t n;
    VkExtensionProperties *all = list_extensions(physical, &n);
    if (has_extension(all, n, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME))
        out->host_alignment = host_alignment(physical);
    if (has_extension(all, n, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME)) out->has_dot = has_dot(physical);
#ifdef REPRISE_VULKAN_MATRICES
    if (has_extension(all, n, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME) &&
        has_extension(all, n, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME))
        out->matrices = find_matrices(physical, subgroup_size);
#else
    (void)subgroup_size;
#endif
    base_free(all);
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
    if (!out->unusable && p.properties.limits.maxComputeSharedMemorySize < SHARED_BYTES)
        out->unusable = "it has less than 32 KiB of shared memory";
    if (!out->unusable) describe_extensions(physical, p11.subgroupSize, out);
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
