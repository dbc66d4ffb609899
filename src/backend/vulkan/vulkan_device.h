/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_device.h: a logical device of Vulkan: its queues, buffers by address, pipelines.
 *
 * Devices are shared: engines of one process that use the same one have one vulkan_device. Thread-safe, but for
 * streams, which belong to one thread each.
 */
#ifndef BACKEND_VULKAN_DEVICE_H
#define BACKEND_VULKAN_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/vulkan/vulkan_instance.h"
#include "backend/vulkan/vulkan_shaders.h"

/* What memory is for. */
typedef enum vulkan_use { VULKAN_ON_DEVICE, /* read and written by shaders */
                          VULKAN_TO_DEVICE, /* written by the host, read by shaders; mapped */
                          VULKAN_TO_HOST,   /* written by the device, read by the host; mapped */
                          VULKAN_N_USES } vulkan_use;

/* A queue; two may be the same one of the driver, and have one lock then. */
typedef struct vulkan_queue {
    VkQueue handle;
    uint32_t family;
    VkPipelineStageFlags stages; /* that its commands have */
    pthread_mutex_t *lock;
} vulkan_queue;

typedef struct vulkan_device {
    vulkan_description description;
    VkDevice handle;
    struct VolkDeviceTable vk;      /* of this device; tests replace entries (vulkan_on_device) */
    vulkan_queue queue, copy_queue; /* of steps; of copies over the bus */
    bool overlaps;                  /* they are two: copies run beside steps */
    pthread_mutex_t queue_locks[2];
    double tick_us;          /* of timestamps */
    VkPipelineLayout layout; /* arguments are push constants; there are no descriptors */
    uint32_t memory_types[VULKAN_N_USES];
    bool is_mapped; /* the host reaches memory of VULKAN_ON_DEVICE, too */
    VkDeviceSize max_allocation;
    pthread_mutex_t pipelines_lock;
    VkPipeline pipelines[VULKAN_N_SHADERS][VULKAN_MAX_VARIANTS];
    atomic_bool is_lost; /* VK_ERROR_DEVICE_LOST: nothing works any more */
    atomic_bool is_hung; /* a wait has timed out: lost, and it may still use whatever it had: nothing is freed */
    int32_t n_refs;      /* guarded by the lock of the list of devices */
    struct vulkan_device *next;
} vulkan_device;

/* Opens the device of a description, or refers to it once more, unless it is lost. RP_ERR_UNSUPPORTED,
   RP_ERR_MEMORY. */
int vulkan_device_ref(vulkan_device **out, const vulkan_description *d, rp_error *err);
void vulkan_device_unref(vulkan_device *d); /* NULL is fine */

/* Fault injection (tests): called with each device that is opened, to replace entries of its table. NULL: none.
   Is_unmapped: memory of the device counts as out of the host's reach. */
extern void (*vulkan_on_device)(vulkan_device *d);
extern bool vulkan_is_unmapped;
/* Where copies go on devices that are opened from now on; -1: the best that the device has. On a device without such a
 * queue, its one queue counts as two. */
extern int vulkan_forced_copies;

/* By which instructions products of int8 are added: the best of the device up to this one (tests). */
typedef enum vulkan_products { VULKAN_BY_CODES,
                               VULKAN_BY_DOTS,
                               VULKAN_BY_MATRICES } vulkan_products;
extern vulkan_products vulkan_most_products;
vulkan_products vulkan_products_of(const vulkan_device *d);

/* Is device memory other memory than the host's, with a bus between them? */
static inline bool vulkan_device_is_apart(const vulkan_device *d) { return !d->is_mapped; }

/* RP_OK, or what a result means: RP_ERR_MEMORY, RP_ERR_IO (device loss, which is_lost keeps). what: the operation. */
int vulkan_check(vulkan_device *d, VkResult result, const char *what, rp_error *err);

/* After a failure that leaves memory undefined: the device counts as lost, and its results are not used. */
void vulkan_device_give_up(vulkan_device *d, const char *what, const rp_error *err);

/* ---- memory ---- */

typedef struct vulkan_buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    uint64_t address, bytes; /* address: of the device */
    char *mapped;            /* NULL: the host does not reach it */
    void *imported;          /* memory of the process that it is; NULL: it is the driver's */
} vulkan_buffer;

/* RP_ERR_MEMORY, RP_ERR_IO. */
int vulkan_buffer_new(vulkan_device *d, vulkan_use use, uint64_t bytes, const char *what, vulkan_buffer *out,
                      rp_error *err);
/* Memory of the host that shaders read and write over the bus, mapped: pages of the process that the device imports
 * where it can, else the driver's. RP_ERR_MEMORY, RP_ERR_IO. */
int vulkan_buffer_new_host(vulkan_device *d, uint64_t bytes, const char *what, vulkan_buffer *out, rp_error *err);
void vulkan_buffer_free(vulkan_device *d, vulkan_buffer *b); /* all zeros is fine */

/* ---- work ---- */

/* Drivers end work that hangs by themselves, after seconds. If one does not, a wait for a submission of this time is
 * loss of the device; an emulated device is as slow as the processor. */
#define VULKAN_MOST_WAIT_S 120
#define VULKAN_MOST_EMULATED_WAIT_S 3600

/* A timeline semaphore, for the submissions to one queue: each has the next number, from 1 on. */
typedef struct vulkan_timeline {
    vulkan_device *device;
    VkSemaphore semaphore;
    atomic_ullong submitted; /* written with the queue's lock */
    atomic_ullong completed; /* as far as known */
} vulkan_timeline;

int vulkan_timeline_new(vulkan_timeline *t, vulkan_device *d, rp_error *err); /* RP_ERR_MEMORY, RP_ERR_IO */
void vulkan_timeline_free(vulkan_timeline *t);                                /* all zeros is fine; waits for nothing */
/* Is the submission of that number complete? Does not wait. Any thread, as is the next. */
bool vulkan_timeline_is_past(vulkan_timeline *t, uint64_t number);
int vulkan_timeline_wait(vulkan_timeline *t, uint64_t number, rp_error *err); /* RP_ERR_MEMORY, RP_ERR_IO */

/* Submissions of another timeline that a submission begins after; 0: none. */
typedef struct vulkan_after {
    const vulkan_timeline *timeline;
    uint64_t number;
} vulkan_after;

/* Command buffers that are recorded one after another. */
#define VULKAN_MAX_PARTS 64
typedef struct vulkan_stream {
    vulkan_device *device;
    const vulkan_queue *queue;
    vulkan_timeline *timeline;
    VkCommandPool pool;
    VkCommandBuffer commands; /* that is recorded */
    VkCommandBuffer parts[VULKAN_MAX_PARTS];
    int n_parts;     /* of them used since `begin`, `commands` included; others are made when they are needed */
    uint64_t number; /* of the last submission; 0: none */
    bool is_recording, is_submitted;
} vulkan_stream;

/* RP_ERR_MEMORY, RP_ERR_IO. Borrows the queue and the timeline, whose numbers it takes. */
int vulkan_stream_new(vulkan_stream *s, vulkan_device *d, const vulkan_queue *queue, vulkan_timeline *timeline,
                      rp_error *err);
void vulkan_stream_free(vulkan_stream *s); /* waits; all zeros is fine */
/* Waits for what was submitted, then records; ends recording. */
int vulkan_stream_begin(vulkan_stream *s, rp_error *err);
int vulkan_stream_submit(vulkan_stream *s, vulkan_after after, rp_error *err);
/* Submits what is recorded, and records on. At most VULKAN_MAX_PARTS - 1 times after begin. */
int vulkan_stream_split(vulkan_stream *s, vulkan_after after, rp_error *err);
int vulkan_stream_wait(vulkan_stream *s, rp_error *err);
/* What is recorded later sees what earlier commands wrote. */
void vulkan_stream_barrier(vulkan_stream *s);

/* The pipeline of a shader, made at its first use; variant: see vulkan_shaders.h. RP_ERR_MEMORY, RP_ERR_IO. */
int vulkan_pipeline(vulkan_device *d, vulkan_shader shader, uint32_t variant, VkPipeline *out, rp_error *err);

#endif
