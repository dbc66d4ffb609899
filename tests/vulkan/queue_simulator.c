/* SPDX-License-Identifier: Apache-2.0 */
/* queue_simulator.c: see queue_simulator.h. */
#include "queue_simulator.h"

#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

#define MOST_HELD 1024
#define MOST_SEMAPHORES 64
#define MOST_BUFFERS 256
#define MOST_EVENTS 65536

typedef struct submission {
    VkQueue queue;
    VkCommandBuffer commands;
    VkSemaphore after, signals; /* after: VK_NULL_HANDLE: nothing */
    uint64_t after_number, number;
} submission;

typedef struct held_list {
    submission items[MOST_HELD];
    int n;
} held_list;

typedef struct timeline {
    VkSemaphore semaphore;
    uint64_t number; /* that is reached */
    bool is_of_steps;
} timeline;

static struct VolkDeviceTable real;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards those below */
static queue_order order;
static uint64_t random_state;
static held_list steps, copies;
static timeline timelines[MOST_SEMAPHORES];
static int n_timelines;
static VkCommandBuffer computing[MOST_BUFFERS]; /* that have a dispatch */
static int n_computing;
static char events[MOST_EVENTS + 1];
static int n_events;

static timeline *timeline_of(VkSemaphore s) {
    for (int i = 0; i < n_timelines; i++)
        if (timelines[i].semaphore == s) return &timelines[i];
    BASE_ASSERT(n_timelines < MOST_SEMAPHORES);
    timelines[n_timelines] = (timeline){.semaphore = s};
    return &timelines[n_timelines++];
}

static int find_computing(VkCommandBuffer commands) {
    int i = 0;
    while (i < n_computing && computing[i] != commands) i++;
    return i;
}

static bool can_begin(const submission *s) {
    return s->after == VK_NULL_HANDLE || timeline_of(s->after)->number >= s->after_number;
}

/* Runs the first of a list. */
static VkResult run_first(held_list *list, char event) {
    const submission s = list->items[0];
    const VkPipelineStageFlags stages = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    const bool waits = s.after != VK_NULL_HANDLE;
    const VkTimelineSemaphoreSubmitInfo numbers = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                   .waitSemaphoreValueCount = waits,
                                                   .pWaitSemaphoreValues = &s.after_number,
                                                   .signalSemaphoreValueCount = 1,
                                                   .pSignalSemaphoreValues = &s.number};
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .pNext = &numbers,
                               .waitSemaphoreCount = waits,
                               .pWaitSemaphores = &s.after,
                               .pWaitDstStageMask = &stages,
                               .commandBufferCount = 1,
                               .pCommandBuffers = &s.commands,
                               .signalSemaphoreCount = 1,
                               .pSignalSemaphores = &s.signals};
    BASE_ASSERT(can_begin(&s));
    memmove(list->items, list->items + 1, sizeof(s) * (size_t)--list->n);
    VkResult result = real.vkQueueSubmit(s.queue, 1, &info, VK_NULL_HANDLE);
    if (result == VK_SUCCESS) result = real.vkQueueWaitIdle(s.queue);
    timeline_of(s.signals)->number = s.number;
    if (n_events < MOST_EVENTS) events[n_events++] = event;
    events[n_events] = '\0';
    return result;
}

static VkResult run_steps(void) {
    VkResult result = VK_SUCCESS;
    while (steps.n > 0 && result == VK_SUCCESS && can_begin(&steps.items[0])) result = run_first(&steps, 's');
    return result;
}

/* Runs what the order lets run. */
static VkResult run(void) {
    VkResult result = VK_SUCCESS;
    while (order != QUEUE_COPIES_LATE && copies.n > 0 && result == VK_SUCCESS && can_begin(&copies.items[0]) &&
           (order == QUEUE_AS_SUBMITTED || base_random_next(&random_state) % 2 == 0))
        result = run_first(&copies, 'c');
    return result == VK_SUCCESS ? run_steps() : result;
}

/* Runs the next copy, as nothing else can run. */
static VkResult run_copy(void) {
    BASE_ASSERT(copies.n > 0 && can_begin(&copies.items[0])); /* else nothing would ever run */
    const VkResult result = run_first(&copies, 'c');
    return result == VK_SUCCESS ? run() : result;
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue q, uint32_t n, const VkSubmitInfo *infos, VkFence fence) {
    const VkTimelineSemaphoreSubmitInfo *numbers = infos->pNext;
    BASE_ASSERT(n == 1 && fence == VK_NULL_HANDLE && infos->commandBufferCount == 1);
    submission s = {.queue = q,
                    .commands = infos->pCommandBuffers[0],
                    .signals = infos->pSignalSemaphores[0],
                    .number = numbers->pSignalSemaphoreValues[0]};
    if (infos->waitSemaphoreCount > 0) {
        s.after = infos->pWaitSemaphores[0];
        s.after_number = numbers->pWaitSemaphoreValues[0];
    }
    pthread_mutex_lock(&lock);
    timeline *t = timeline_of(s.signals);
    t->is_of_steps |= find_computing(s.commands) < n_computing;
    held_list *list = t->is_of_steps ? &steps : &copies;
    BASE_ASSERT(list->n < MOST_HELD);
    list->items[list->n++] = s;
    const VkResult result = run();
    pthread_mutex_unlock(&lock);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL wait(VkDevice d, const VkSemaphoreWaitInfo *info, uint64_t ns) {
    VkResult result = VK_SUCCESS;
    pthread_mutex_lock(&lock);
    while (result == VK_SUCCESS && timeline_of(info->pSemaphores[0])->number < info->pValues[0]) result = run_copy();
    pthread_mutex_unlock(&lock);
    return result == VK_SUCCESS ? real.vkWaitSemaphores(d, info, ns) : result;
}

static VKAPI_ATTR VkResult VKAPI_CALL begin_commands(VkCommandBuffer commands, const VkCommandBufferBeginInfo *info) {
    pthread_mutex_lock(&lock);
    const int i = find_computing(commands);
    if (i < n_computing) computing[i] = computing[--n_computing];
    pthread_mutex_unlock(&lock);
    return real.vkBeginCommandBuffer(commands, info);
}

static VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z) {
    pthread_mutex_lock(&lock);
    if (find_computing(commands) == n_computing) {
        BASE_ASSERT(n_computing < MOST_BUFFERS);
        computing[n_computing++] = commands;
    }
    pthread_mutex_unlock(&lock);
    real.vkCmdDispatch(commands, x, y, z);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_semaphore(VkDevice d, const VkSemaphoreCreateInfo *info,
                                                       const VkAllocationCallbacks *a, VkSemaphore *out) {
    const VkResult result = real.vkCreateSemaphore(d, info, a, out);
    pthread_mutex_lock(&lock);
    if (result == VK_SUCCESS) *timeline_of(*out) = (timeline){.semaphore = *out}; /* an old one's handle, maybe */
    pthread_mutex_unlock(&lock);
    return result;
}

void queue_simulator_attach(vulkan_device *d) {
    real = d->vk;
    d->vk.vkQueueSubmit = submit;
    d->vk.vkWaitSemaphores = wait;
    d->vk.vkBeginCommandBuffer = begin_commands;
    d->vk.vkCmdDispatch = dispatch;
    d->vk.vkCreateSemaphore = create_semaphore;
}

void queue_simulator_start(queue_order o, uint64_t seed) {
    pthread_mutex_lock(&lock);
    while (copies.n > 0 || steps.n > 0) run_copy();
    order = o;
    random_state = seed;
    n_events = 0;
    events[0] = '\0';
    pthread_mutex_unlock(&lock);
}

const char *queue_simulator_log(void) {
    pthread_mutex_lock(&lock);
    while (copies.n > 0) run_copy();
    pthread_mutex_unlock(&lock);
    return events;
}
