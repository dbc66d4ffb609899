/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_device.c: see vulkan_device.h. */
#include "backend/vulkan/vulkan_device.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/embedded.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

extern const base_embedded vulkan_binaries[]; /* "norm.spv"; of products "linear_few.12.spv" */

void (*vulkan_on_device)(vulkan_device *d);
bool vulkan_is_unmapped;
int vulkan_forced_copies = -1;
vulkan_products vulkan_most_products = VULKAN_BY_MATRICES;

vulkan_products vulkan_products_of(const vulkan_device *d) {
    const vulkan_description *x = &d->description;
    const vulkan_products best = x->matrices.m ? VULKAN_BY_MATRICES : x->has_dot ? VULKAN_BY_DOTS
                                                                                 : VULKAN_BY_CODES;
    if (best <= vulkan_most_products) return best;
    return vulkan_most_products == VULKAN_BY_DOTS && !x->has_dot ? VULKAN_BY_CODES : vulkan_most_products;
}

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static vulkan_device *list; /* guarded by list_lock */

static uint32_t most_wait_s(const vulkan_device *d) {
    return d->description.type == VK_PHYSICAL_DEVICE_TYPE_CPU ? VULKAN_MOST_EMULATED_WAIT_S : VULKAN_MOST_WAIT_S;
}

int vulkan_check(vulkan_device *d, VkResult result, const char *what, rp_error *err) {
    const char *name = d->description.name;
    switch (result) {
    case VK_SUCCESS: return RP_OK;
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
        return base_fail(err, RP_ERR_MEMORY, "out of memory on the device '%s': %s", name, what);
    case VK_ERROR_DEVICE_LOST:
        if (!atomic_exchange(&d->is_lost, true))
            base_log(BASE_LOG_ERROR, "vulkan: the device '%s' is lost: %s", name, what);
        return base_fail(err, RP_ERR_IO, "the device '%s' is lost: start the program again, or use --device cpu", name);
    case VK_TIMEOUT:
        atomic_store(&d->is_hung, true);
        if (!atomic_exchange(&d->is_lost, true))
            base_log(BASE_LOG_ERROR, "vulkan: the device '%s' hangs: %s did not end in %u s", name, what,
                     most_wait_s(d));
        return base_fail(err, RP_ERR_IO,
                         "the device '%s' hangs (no end of %s in %u s): start the program again, or use --device cpu",
                         name, what, most_wait_s(d));
    default: return base_fail(err, RP_ERR_IO, "the device '%s' failed (VkResult %d): %s", name, (int)result, what);
    }
}

void vulkan_device_give_up(vulkan_device *d, const char *what, const rp_error *err) {
    if (!atomic_exchange(&d->is_lost, true))
        base_log(BASE_LOG_ERROR, "vulkan: %s failed, the device is not used any more: %s", what, err->message);
}

/* ---- opening ---- */

static bool has_flags(VkMemoryPropertyFlags all, VkMemoryPropertyFlags wanted) { return (all & wanted) == wanted; }

/* The first type with all wanted properties and, if there is such a one, those that are better to have. */
static uint32_t find_type(const VkPhysicalDeviceMemoryProperties *m, VkMemoryPropertyFlags wanted,
                          VkMemoryPropertyFlags better) {
    uint32_t found = UINT32_MAX;
    for (uint32_t i = m->memoryTypeCount; i-- > 0;)
        if (has_flags(m->memoryTypes[i].propertyFlags, wanted)) found = i;
    for (uint32_t i = m->memoryTypeCount; i-- > 0;)
        if (has_flags(m->memoryTypes[i].propertyFlags, wanted | better)) found = i;
    return found;
}

static int choose_memory(vulkan_device *d, rp_error *err) {
    const VkMemoryPropertyFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const bool is_unified = d->description.type != VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    VkPhysicalDeviceMemoryProperties m;
    vkGetPhysicalDeviceMemoryProperties(d->description.physical, &m);
    uint32_t *types = d->memory_types;
    types[VULKAN_ON_DEVICE] = find_type(&m, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, is_unified ? host : 0);
    types[VULKAN_TO_DEVICE] = find_type(&m, host, 0);
    types[VULKAN_TO_HOST] = find_type(&m, host, VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
    for (int i = 0; i < VULKAN_N_USES; i++)
        if (types[i] == UINT32_MAX)
            return base_fail(err, RP_ERR_UNSUPPORTED, "the device '%s' lacks a type of memory", d->description.name);
    d->is_mapped = !vulkan_is_unmapped && has_flags(m.memoryTypes[types[VULKAN_ON_DEVICE]].propertyFlags, host);
    return RP_OK;
}

/* The queues that are used of those that the device has. */
static void choose_queues(vulkan_device *d) {
    vulkan_queues *q = &d->description.queues;
    const int forced = vulkan_forced_copies;
    d->overlaps = forced < 0 ? q->copies != VULKAN_COPIES_SHARE : forced != VULKAN_COPIES_SHARE;
    if (forced >= 0 && forced != (int)q->copies) { /* the queue of the steps, whatever it counts as */
        q->copy_family = q->family;
        q->copy_index = 0;
    }
    const bool copies_alone = forced < 0 ? q->copies == VULKAN_COPIES_APART : forced == VULKAN_COPIES_APART;
    const VkPipelineStageFlags copies = VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_HOST_BIT,
                               all = copies | VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    const bool are_two = q->copy_family != q->family || q->copy_index != 0;
    d->queue = (vulkan_queue){.family = q->family, .stages = all, .lock = &d->queue_locks[0]};
    d->copy_queue = (vulkan_queue){.family = q->copy_family,
                                   .stages = copies_alone ? copies : all,
                                   .lock = &d->queue_locks[are_two ? 1 : 0]};
}

static int create_device(vulkan_device *d, rp_error *err) {
    const float priorities[] = {1, 1};
    const vulkan_queues *q = &d->description.queues;
    const bool is_apart = q->copy_family != q->family;
    const VkDeviceQueueCreateInfo queues[] = {{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                               .queueFamilyIndex = q->family,
                                               .queueCount = is_apart ? 1 : q->copy_index + 1,
                                               .pQueuePriorities = priorities},
                                              {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                               .queueFamilyIndex = q->copy_family,
                                               .queueCount = 1,
                                               .pQueuePriorities = priorities}};
    const vulkan_description *x = &d->description;
    const char *extensions[4];
    uint32_t n = 0;
    VkPhysicalDeviceVulkan12Features f12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                            .bufferDeviceAddress = VK_TRUE,
                                            .timelineSemaphore = VK_TRUE,
                                            .hostQueryReset = VK_TRUE,
                                            .storageBuffer8BitAccess = VK_TRUE,
                                            .scalarBlockLayout = VK_TRUE};
    VkPhysicalDeviceVulkan11Features f11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                                            .pNext = &f12,
                                            .storageBuffer16BitAccess = VK_TRUE};
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR,
        .pNext = &f11,
        .shaderIntegerDotProduct = VK_TRUE};
    void *features = x->has_dot ? (void *)&dot : &f11;
    if (x->has_dot) extensions[n++] = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME;
    if (x->host_alignment > 0) extensions[n++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
#ifdef REPRISE_VULKAN_MATRICES
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
        .pNext = features,
        .cooperativeMatrix = VK_TRUE};
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT subgroups = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT,
        .pNext = &matrices,
        .computeFullSubgroups = VK_TRUE};
    if (x->matrices.m) {
        features = &subgroups;
        extensions[n++] = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
        extensions[n++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
        f12.shaderInt8 = f12.vulkanMemoryModel = f12.vulkanMemoryModelDeviceScope = VK_TRUE;
    }
#endif
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = features,
                                     .enabledExtensionCount = n,
                                     .ppEnabledExtensionNames = extensions,
                                     .queueCreateInfoCount = is_apart ? 2 : 1,
                                     .pQueueCreateInfos = queues,
                                     .pEnabledFeatures = &(VkPhysicalDeviceFeatures){.shaderInt64 = VK_TRUE}};
    int rc = vulkan_check(d, vkCreateDevice(d->description.physical, &info, NULL, &d->handle), "opening it", err);
    if (rc) return rc;
    volkLoadDeviceTable(&d->vk, d->handle);
    if (vulkan_on_device) vulkan_on_device(d);
    d->vk.vkGetDeviceQueue(d->handle, q->family, 0, &d->queue.handle);
    d->vk.vkGetDeviceQueue(d->handle, q->copy_family, q->copy_index, &d->copy_queue.handle);
    const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, VULKAN_MAX_ARGUMENTS};
    const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                               .pushConstantRangeCount = 1,
                                               .pPushConstantRanges = &range};
    return vulkan_check(d, d->vk.vkCreatePipelineLayout(d->handle, &layout, NULL, &d->layout), "a pipeline layout",
                        err);
}

static void device_free(vulkan_device *d) {
    for (int s = 0; s < VULKAN_N_SHADERS; s++)
        for (int v = 0; v < VULKAN_MAX_VARIANTS; v++)
            if (d->pipelines[s][v]) d->vk.vkDestroyPipeline(d->handle, d->pipelines[s][v], NULL);
    if (d->layout) d->vk.vkDestroyPipelineLayout(d->handle, d->layout, NULL);
    if (d->handle) d->vk.vkDestroyDevice(d->handle, NULL);
    for (int i = 0; i < 2; i++) pthread_mutex_destroy(&d->queue_locks[i]);
    pthread_mutex_destroy(&d->pipelines_lock);
    base_free(d);
}

static int device_new(vulkan_device **out, const vulkan_description *description, rp_error *err) {
    vulkan_device *d = base_calloc(1, sizeof(*d));
    if (!d) return base_fail_memory(err, sizeof(*d), "a device");
    d->description = *description;
    pthread_mutex_t *const locks[] = {&d->queue_locks[0], &d->queue_locks[1], &d->pipelines_lock};
    for (size_t i = 0; i < BASE_ARRAY_LEN(locks); i++) {
        if (pthread_mutex_init(locks[i], NULL) == 0) continue;
        while (i-- > 0) pthread_mutex_destroy(locks[i]);
        base_free(d);
        return base_fail_memory(err, sizeof(pthread_mutex_t), "a device");
    }
    VkPhysicalDeviceMaintenance3Properties limits = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &limits};
    vkGetPhysicalDeviceProperties2(d->description.physical, &p);
    d->max_allocation = limits.maxMemoryAllocationSize;
    choose_queues(d);
    d->tick_us = (double)p.properties.limits.timestampPeriod / 1000;
    int rc = choose_memory(d, err);
    if (!rc) rc = create_device(d, err);
    if (rc) device_free(d);
    else *out = d;
    return rc;
}

int vulkan_device_ref(vulkan_device **out, const vulkan_description *description, rp_error *err) {
    int rc = vulkan_instance_ref(err); /* of each reference */
    *out = NULL;
    if (rc) return rc;
    pthread_mutex_lock(&list_lock);
    vulkan_device *d = list;
    while (d && (d->description.physical != description->physical || atomic_load(&d->is_lost))) d = d->next;
    if (!d && !(rc = device_new(&d, description, err))) {
        d->next = list;
        list = d;
    }
    if (!rc) d->n_refs++;
    pthread_mutex_unlock(&list_lock);
    if (rc) vulkan_instance_unref();
    *out = rc ? NULL : d;
    return rc;
}

void vulkan_device_unref(vulkan_device *d) {
    bool is_kept = false; /* with its instance, until the process ends */
    if (!d) return;
    pthread_mutex_lock(&list_lock);
    BASE_ASSERT(d->n_refs > 0);
    if (--d->n_refs == 0) {
        vulkan_device **at = &list;
        while (*at != d) at = &(*at)->next;
        *at = d->next;
        if (!(is_kept = atomic_load(&d->is_hung))) device_free(d);
    }
    pthread_mutex_unlock(&list_lock);
    if (!is_kept) vulkan_instance_unref();
}

/* ---- memory ---- */

/* The type of the memory of a buffer: that of its use, or one that can be imported at b->imported. */
static int type_for(vulkan_device *d, vulkan_use use, const vulkan_buffer *b, uint32_t bits, uint32_t *out) {
    VkMemoryHostPointerPropertiesEXT host = {.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    *out = d->memory_types[use];
    if (b->imported) {
        const VkResult rc = d->vk.vkGetMemoryHostPointerPropertiesEXT(
            d->handle, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, b->imported, &host);
        bits = rc == VK_SUCCESS ? bits & host.memoryTypeBits : 0;
        for (*out = 0; *out < 31 && !(bits & (1u << *out));) ++*out;
    }
    return bits & (1u << *out) ? RP_OK : RP_ERR_UNSUPPORTED;
}

static int bind_memory(vulkan_device *d, vulkan_use use, const char *what, vulkan_buffer *b, rp_error *err) {
    VkMemoryRequirements need;
    uint32_t type;
    d->vk.vkGetBufferMemoryRequirements(d->handle, b->handle, &need);
    if (type_for(d, use, b, need.memoryTypeBits, &type) || (b->imported && need.size > b->bytes))
        return base_fail(err, RP_ERR_UNSUPPORTED, "the device '%s' has no memory for buffers", d->description.name);
    const VkImportMemoryHostPointerInfoEXT import = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
        .pHostPointer = b->imported};
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .pNext = b->imported ? &import : NULL,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &flags,
                                       .allocationSize = b->imported ? b->bytes : need.size,
                                       .memoryTypeIndex = type};
    int rc = vulkan_check(d, d->vk.vkAllocateMemory(d->handle, &info, NULL, &b->memory), what, err);
    if (!rc) rc = vulkan_check(d, d->vk.vkBindBufferMemory(d->handle, b->handle, b->memory, 0), what, err);
    if (b->imported) b->mapped = b->imported;
    else if (!rc && (use != VULKAN_ON_DEVICE || d->is_mapped))
        rc = vulkan_check(d, d->vk.vkMapMemory(d->handle, b->memory, 0, VK_WHOLE_SIZE, 0, (void **)&b->mapped), what,
                          err);
    return rc;
}

/* imported: bytes of the process that it is, which are the buffer's if this succeeds; NULL: of the driver. */
static int buffer_new(vulkan_device *d, vulkan_use use, uint64_t bytes, void *imported, const char *what,
                      vulkan_buffer *out, rp_error *err) {
    BASE_ASSERT(bytes > 0 && use < VULKAN_N_USES);
    const VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
        .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT};
    const uint32_t families[] = {d->queue.family, d->copy_queue.family};
    const bool is_apart = families[0] != families[1]; /* steps and copies take turns in a buffer, also in parts of it */
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .pNext = imported ? &external : NULL,
        .size = bytes,
        .sharingMode = is_apart ? VK_SHARING_MODE_CONCURRENT : VK_SHARING_MODE_EXCLUSIVE,
        .queueFamilyIndexCount = is_apart ? 2 : 0,
        .pQueueFamilyIndices = is_apart ? families : NULL,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                 VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    *out = (vulkan_buffer){.bytes = bytes, .imported = imported};
    if (bytes > d->max_allocation)
        return base_fail(err, RP_ERR_MEMORY, "the device '%s' allocates at most %llu MiB at once, %s needs %llu",
                         d->description.name, (unsigned long long)d->max_allocation >> 20, what,
                         (unsigned long long)bytes >> 20);
    int rc = vulkan_check(d, d->vk.vkCreateBuffer(d->handle, &info, NULL, &out->handle), what, err);
    if (!rc) rc = bind_memory(d, use, what, out, err);
    if (rc) {
        out->imported = NULL;
        vulkan_buffer_free(d, out);
        return rc;
    }
    out->address = d->vk.vkGetBufferDeviceAddress(
        d->handle, &(VkBufferDeviceAddressInfo){.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                                .buffer = out->handle});
    return RP_OK;
}

int vulkan_buffer_new(vulkan_device *d, vulkan_use use, uint64_t bytes, const char *what, vulkan_buffer *out,
                      rp_error *err) {
    return buffer_new(d, use, bytes, NULL, what, out, err);
}

int vulkan_buffer_new_host(vulkan_device *d, uint64_t bytes, const char *what, vulkan_buffer *out, rp_error *err) {
    const uint64_t alignment = d->description.host_alignment;
    if (alignment > 0) {
        const uint64_t whole = BASE_DIV_UP(bytes, alignment) * alignment;
        void *pages = base_alloc_aligned((size_t)whole, (size_t)alignment);
        if (!pages) return base_fail_memory(err, whole, what);
        if (buffer_new(d, VULKAN_TO_HOST, whole, pages, what, out, NULL) == RP_OK) return RP_OK;
        base_free(pages); /* drivers limit what they import */
    }
    return buffer_new(d, VULKAN_TO_HOST, bytes, NULL, what, out, err);
}

void vulkan_buffer_free(vulkan_device *d, vulkan_buffer *b) {
    if (atomic_load(&d->is_hung)) *b = (vulkan_buffer){0};
    if (b->handle) d->vk.vkDestroyBuffer(d->handle, b->handle, NULL);
    if (b->memory) d->vk.vkFreeMemory(d->handle, b->memory, NULL); /* unmaps it */
    base_free(b->imported);
    *b = (vulkan_buffer){0};
}

/* ---- work ---- */

int vulkan_timeline_new(vulkan_timeline *t, vulkan_device *d, rp_error *err) {
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    *t = (vulkan_timeline){.device = d};
    return vulkan_check(d, d->vk.vkCreateSemaphore(d->handle, &info, NULL, &t->semaphore), "a semaphore", err);
}

void vulkan_timeline_free(vulkan_timeline *t) {
    if (t->semaphore && !atomic_load(&t->device->is_hung))
        t->device->vk.vkDestroySemaphore(t->device->handle, t->semaphore, NULL);
    t->semaphore = VK_NULL_HANDLE;
}

static void timeline_note(vulkan_timeline *t, uint64_t number) {
    unsigned long long known = atomic_load(&t->completed);
    while (known < number && !atomic_compare_exchange_weak(&t->completed, &known, number)) continue;
}

bool vulkan_timeline_is_past(vulkan_timeline *t, uint64_t number) {
    uint64_t now = 0;
    if (number <= atomic_load(&t->completed)) return true;
    if (t->device->vk.vkGetSemaphoreCounterValue(t->device->handle, t->semaphore, &now) != VK_SUCCESS) return false;
    timeline_note(t, BASE_MIN(now, atomic_load(&t->submitted))); /* of a lost device, it may be any number */
    return number <= atomic_load(&t->completed);
}

int vulkan_timeline_wait(vulkan_timeline *t, uint64_t number, rp_error *err) {
    BASE_ASSERT(number <= atomic_load(&t->submitted));
    if (number <= atomic_load(&t->completed)) return RP_OK;
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &t->semaphore,
                                      .pValues = &number};
    vulkan_device *d = t->device;
    const uint64_t most_ns = UINT64_C(1000000000) * most_wait_s(d);
    const VkResult result =
        atomic_load(&d->is_hung) ? VK_TIMEOUT : d->vk.vkWaitSemaphores(d->handle, &info, most_ns);
    if (result == VK_SUCCESS) timeline_note(t, number);
    return vulkan_check(d, result, "a submission", err);
}

int vulkan_stream_new(vulkan_stream *s, vulkan_device *d, const vulkan_queue *queue, vulkan_timeline *timeline,
                      rp_error *err) {
    *s = (vulkan_stream){.device = d, .queue = queue, .timeline = timeline};
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = queue->family};
    const int rc = vulkan_check(d, d->vk.vkCreateCommandPool(d->handle, &pool, NULL, &s->pool), "commands", err);
    if (rc) vulkan_stream_free(s);
    return rc;
}

void vulkan_stream_free(vulkan_stream *s) {
    vulkan_device *d = s->device;
    if (!d) return;
    vulkan_stream_wait(s, NULL);
    if (atomic_load(&d->is_hung)) *s = (vulkan_stream){0};
    if (s->pool) d->vk.vkDestroyCommandPool(d->handle, s->pool, NULL);
    *s = (vulkan_stream){0};
}

int vulkan_stream_wait(vulkan_stream *s, rp_error *err) {
    if (!s->is_submitted) return RP_OK;
    const int rc = vulkan_timeline_wait(s->timeline, s->number, err);
    s->is_submitted = rc && !atomic_load(&s->device->is_lost); /* it is awaited again */
    return rc;
}

/* Records the next part. */
static int begin_part(vulkan_stream *s, rp_error *err) {
    vulkan_device *d = s->device;
    const VkCommandBufferAllocateInfo one = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                             .commandPool = s->pool,
                                             .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                             .commandBufferCount = 1};
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    BASE_ASSERT(s->n_parts < VULKAN_MAX_PARTS && !s->is_recording);
    VkCommandBuffer *part = &s->parts[s->n_parts];
    int rc = RP_OK;
    if (!*part) rc = vulkan_check(d, d->vk.vkAllocateCommandBuffers(d->handle, &one, part), "commands", err);
    if (!rc) rc = vulkan_check(d, d->vk.vkBeginCommandBuffer(*part, &info), "commands", err);
    if (rc) return rc;
    s->commands = *part;
    s->n_parts++;
    s->is_recording = true;
    return RP_OK;
}

int vulkan_stream_begin(vulkan_stream *s, rp_error *err) {
    vulkan_device *d = s->device;
    if (atomic_load(&d->is_lost)) return vulkan_check(d, VK_ERROR_DEVICE_LOST, "before this step", err);
    const int rc = vulkan_stream_wait(s, err);
    if (s->is_recording) d->vk.vkEndCommandBuffer(s->commands); /* of a step that failed: it is not submitted */
    s->n_parts = 0;
    s->is_recording = false;
    return rc ? rc : begin_part(s, err);
}

int vulkan_stream_submit(vulkan_stream *s, vulkan_after after, rp_error *err) {
    vulkan_device *d = s->device;
    const VkPipelineStageFlags stages = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    uint64_t number;
    const VkTimelineSemaphoreSubmitInfo numbers = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                   .waitSemaphoreValueCount = after.number > 0,
                                                   .pWaitSemaphoreValues = &after.number,
                                                   .signalSemaphoreValueCount = 1,
                                                   .pSignalSemaphoreValues = &number};
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .pNext = &numbers,
                               .waitSemaphoreCount = after.number > 0,
                               .pWaitSemaphores = after.number > 0 ? &after.timeline->semaphore : NULL,
                               .pWaitDstStageMask = &stages,
                               .commandBufferCount = 1,
                               .pCommandBuffers = &s->commands,
                               .signalSemaphoreCount = 1,
                               .pSignalSemaphores = &s->timeline->semaphore};
    BASE_ASSERT(s->is_recording && (after.number == 0 || after.number <= atomic_load(&after.timeline->submitted)));
    s->is_recording = false;
    const int rc = vulkan_check(d, d->vk.vkEndCommandBuffer(s->commands), "commands", err);
    if (rc) return rc;
    pthread_mutex_lock(s->queue->lock);
    number = atomic_load(&s->timeline->submitted) + 1;
    const VkResult result = d->vk.vkQueueSubmit(s->queue->handle, 1, &info, VK_NULL_HANDLE);
    if (result == VK_SUCCESS) atomic_store(&s->timeline->submitted, number);
    pthread_mutex_unlock(s->queue->lock);
    if (result == VK_SUCCESS) {
        s->number = number;
        s->is_submitted = true;
    }
    return vulkan_check(d, result, "a submission", err);
}

int vulkan_stream_split(vulkan_stream *s, vulkan_after after, rp_error *err) {
    const int rc = vulkan_stream_submit(s, after, err);
    return rc ? rc : begin_part(s, err);
}

void vulkan_stream_barrier(vulkan_stream *s) {
    const VkPipelineStageFlags stages = s->queue->stages;
    const bool computes = stages & VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    const VkMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = (computes ? VK_ACCESS_SHADER_WRITE_BIT : 0) | VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = (computes ? VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT : 0) |
                         VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_HOST_READ_BIT};
    s->device->vk.vkCmdPipelineBarrier(s->commands, stages & ~(VkPipelineStageFlags)VK_PIPELINE_STAGE_HOST_BIT, stages,
                                       0, 1, &barrier, 0, NULL, 0, NULL);
}

/* ---- pipelines ---- */

static const struct {
    const char *file;
    bool by_type;
    uint32_t rows;
} shaders[] = {
#define X(NAME, file, by_type, rows) {file, by_type, rows},
    VULKAN_SHADERS(X)
#undef X
};

static int create_pipeline(vulkan_device *d, vulkan_shader shader, uint32_t variant, VkPipeline *out, rp_error *err) {
    char name[64];
    if (shaders[shader].by_type) snprintf(name, sizeof(name), "%s.%u.spv", shaders[shader].file, variant);
    else snprintf(name, sizeof(name), "%s.spv", shaders[shader].file);
    const base_embedded *binary = base_embedded_find(vulkan_binaries, name);
    BASE_ASSERT(binary != NULL);            /* cmake/Vulkan.cmake embeds those of VULKAN_SHADERS */
    uint32_t *code = base_alloc(binary->n); /* aligned */
    if (!code) return base_fail_memory(err, binary->n, "a shader");
    memcpy(code, binary->bytes, binary->n);
    VkShaderModule module = VK_NULL_HANDLE;
    const VkShaderModuleCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = binary->n, .pCode = code};
    int rc = vulkan_check(d, d->vk.vkCreateShaderModule(d->handle, &info, NULL, &module), name, err);
    base_free(code);
    if (rc) return rc;
    const vulkan_matrices *m = &d->description.matrices;
    const bool is_matrix = shader == VULKAN_MATRIX_MANY;
    const uint32_t value = shaders[shader].by_type ? shaders[shader].rows : variant;
    const uint32_t values[4] = {is_matrix ? m->m : value, m->n, m->k, m->subgroups};
    VkSpecializationMapEntry entries[4];
    for (uint32_t i = 0; i < 4; i++) entries[i] = (VkSpecializationMapEntry){i, 4 * i, sizeof(uint32_t)};
    const VkSpecializationInfo constants = {is_matrix ? 4 : 1, entries, sizeof(values), values};
    const VkComputePipelineCreateInfo pipeline = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .flags = is_matrix ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT : 0,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = &constants},
        .layout = d->layout};
    rc = vulkan_check(d, d->vk.vkCreateComputePipelines(d->handle, VK_NULL_HANDLE, 1, &pipeline, NULL, out), name, err);
    d->vk.vkDestroyShaderModule(d->handle, module, NULL);
    return rc;
}

int vulkan_pipeline(vulkan_device *d, vulkan_shader shader, uint32_t variant, VkPipeline *out, rp_error *err) {
    BASE_ASSERT(variant < VULKAN_MAX_VARIANTS);
    VkPipeline *p = &d->pipelines[shader][variant];
    int rc = RP_OK;
    pthread_mutex_lock(&d->pipelines_lock);
    if (!*p) rc = create_pipeline(d, shader, variant, p, err);
    *out = *p;
    pthread_mutex_unlock(&d->pipelines_lock);
    return rc;
}
