/* SPDX-License-Identifier: Apache-2.0 */
/* test_faults.c: failures of the device and of the host, injected at each kind of call that a step, a copy or an
 * opening makes: memory, buffers, pipelines, commands, submissions; loss of the device at a submission or a wait; waits
 * that end by time. In memory that the host reaches and apart from it, and with adapters.
 *
 * Requests fail by name or are answered right; what was short once is no loss; nothing crashes; the store stays whole,
 * and another engine on a new device gives the same answers from it.
 *
 *   test_faults                  all but hangs
 *   test_faults [hangs] SCENE    in one scene
 *   test_faults hangs            those: memory that a device may still use is never freed, so leaks are not looked for
 *   REPRISE_TEST_ROUNDS=N        calls of each kind that fail in each scene, 2 by default; all, if there are fewer
 *   REPRISE_TEST_SEED=N          other ones
 */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/vulkan/vulkan_device.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "reprise_adapter.h"
#include "reprise_device.h"
#include "reprise_store.h"
#include "small_device.h"
#include "support/lora_file.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/seed.h"

#define STEPS 2
#define N_PROMPTS 3
#define MOST_ASKED 6

/* ---- scenes ---- */

typedef struct scene {
    const char *name;
    bool is_apart, has_adapter, has_two_queues;
    int32_t layers;           /* on the device; 0: all, else the CPU computes the others */
    int32_t n_tokens;         /* of a prompt */
    int asked[MOST_ASKED], n; /* prompts; a later one of a number is a hit */
} scene;

static const scene scenes[] = {
    {.name = "one memory", .n_tokens = 66, .asked = {0, 1, 0}, .n = 3},
    {.name = "apart", .is_apart = true, .n_tokens = 66, .asked = {0, 1, 0}, .n = 3},
    {.name = "two queues", .is_apart = true, .has_two_queues = true, .n_tokens = 66, .asked = {0, 1, 0}, .n = 3},
    {.name = "one layer", .layers = 1, .n_tokens = 66, .asked = {0, 1, 0}, .n = 3},
    {.name = "adapter", .has_adapter = true, .n_tokens = 40, .asked = {0, 1, 0}, .n = 3},
};

static const char *only; /* a scene's name; NULL: all */
static const scene *now;
static small_device device;
static rp_adapter *adapter;
static oracle_run expected[N_PROMPTS];

static int open_engine(rp_engine **out, const char *store, rp_error *err) {
    const small_device_setup s = {.store = store, .layers = now->layers};
    return small_device_open(out, &device, &s, err);
}

static void ask(oracle_run *run, rp_engine *e, int prompt) {
    small_device_ask(run, e, &device, prompt, STEPS, prompt == 0 ? adapter : NULL);
}

static void open_adapter(const tiny_model_shape *shape, rp_model *m) {
    const lora_shape lora = lora_defaults(1);
    char base[] = "/tmp/reprise-faults-XXXXXX", file[64];
    rp_error err = {0};
    const int fd = mkstemp(base);
    assert_true(fd >= 0);
    close(fd);
    must(tiny_model_write(base, shape, &err), &err); /* the model's own file is unlinked */
    lora_file_write(base, &lora, file);
    must(rp_adapter_open(&adapter, m, file, &err), &err);
    unlink(file);
    unlink(base);
}

static rp_model *open_scene(const scene *s) {
    const char *chat;
    const tiny_model_shape shape = oracle_shape(1, &chat);
    rp_model *m = tiny_model_open(&shape, chat);
    rp_engine *e;
    rp_error err = {0};
    now = s;
    vulkan_is_unmapped = s->is_apart;
    vulkan_forced_copies = s->has_two_queues ? VULKAN_COPIES_SECOND : VULKAN_COPIES_SHARE;
    small_device_init(&device, m, RP_KV_F32, s->n_tokens);
    if (s->has_adapter) open_adapter(&shape, m);
    must(open_engine(&e, NULL, &err), &err);
    for (int i = 0; i < N_PROMPTS; i++) {
        ask(&expected[i], e, i);
        must(expected[i].rc, &expected[i].err);
    }
    rp_engine_free(e);
    return m;
}

static void close_scene(rp_model *m) {
    for (int i = 0; i < N_PROMPTS; i++) oracle_run_free(&expected[i]);
    rp_adapter_close(adapter);
    adapter = NULL;
    rp_model_close(m);
    vulkan_is_unmapped = false;
    vulkan_forced_copies = -1;
}

/* ---- injection ---- */

#define FAULTS(X) \
    X(NONE, false) \
    X(HOST_MEMORY, true) /* of base/memory.h */ \
    X(ALLOCATION, true) \
    X(BUFFER, true) \
    X(MAP, true) \
    X(PIPELINE, true) \
    X(COMMANDS, true)    /* at their begin or end, or a semaphore */ \
    X(SUBMISSION, true)  /* out of memory */ \
    X(UNKNOWN, false)    /* a submission fails, once, with another code: what it wrote is undefined */ \
    X(LOSS, false)       /* at a submission */ \
    X(LOSS_LATER, false) /* at a wait */ \
    X(HANG, false)

typedef enum fault {
#define X(name, is_shortage) FAULT_##name,
    FAULTS(X)
#undef X
        N_FAULTS
} fault;

static const struct {
    const char *name;
    bool is_shortage; /* of memory: once, and no loss */
} faults[] = {
#define X(name, is_shortage) {#name, is_shortage},
    FAULTS(X)
#undef X
};

static struct VolkDeviceTable real;
static fault kind;
static uint64_t n_calls, failing; /* of the kind; the number of the one that fails */
static bool was_hit;

static bool is_due(fault f) {
    if (f != kind) return false;
    const bool stays = f == FAULT_LOSS || f == FAULT_LOSS_LATER || f == FAULT_HANG; /* a lost device stays lost */
    const bool due = ++n_calls == failing || (stays && n_calls > failing);
    was_hit |= due;
    return due;
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice d, const VkMemoryAllocateInfo *info,
                                               const VkAllocationCallbacks *a, VkDeviceMemory *out) {
    return is_due(FAULT_ALLOCATION) ? VK_ERROR_OUT_OF_DEVICE_MEMORY : real.vkAllocateMemory(d, info, a, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_buffer(VkDevice d, const VkBufferCreateInfo *info,
                                                    const VkAllocationCallbacks *a, VkBuffer *out) {
    return is_due(FAULT_BUFFER) ? VK_ERROR_OUT_OF_HOST_MEMORY : real.vkCreateBuffer(d, info, a, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL map(VkDevice d, VkDeviceMemory m, VkDeviceSize at, VkDeviceSize n,
                                          VkMemoryMapFlags flags, void **out) {
    return is_due(FAULT_MAP) ? VK_ERROR_OUT_OF_HOST_MEMORY : real.vkMapMemory(d, m, at, n, flags, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice d, VkPipelineCache c, uint32_t n,
                                                       const VkComputePipelineCreateInfo *infos,
                                                       const VkAllocationCallbacks *a, VkPipeline *out) {
    return is_due(FAULT_PIPELINE) ? VK_ERROR_OUT_OF_HOST_MEMORY : real.vkCreateComputePipelines(d, c, n, infos, a, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL begin_commands(VkCommandBuffer c, const VkCommandBufferBeginInfo *info) {
    return is_due(FAULT_COMMANDS) ? VK_ERROR_OUT_OF_HOST_MEMORY : real.vkBeginCommandBuffer(c, info);
}

static VKAPI_ATTR VkResult VKAPI_CALL end_commands(VkCommandBuffer c) {
    const VkResult result = real.vkEndCommandBuffer(c);
    return is_due(FAULT_COMMANDS) ? VK_ERROR_OUT_OF_DEVICE_MEMORY : result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_semaphore(VkDevice d, const VkSemaphoreCreateInfo *info,
                                                       const VkAllocationCallbacks *a, VkSemaphore *out) {
    return is_due(FAULT_COMMANDS) ? VK_ERROR_OUT_OF_HOST_MEMORY : real.vkCreateSemaphore(d, info, a, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue q, uint32_t n, const VkSubmitInfo *infos, VkFence fence) {
    if (is_due(FAULT_SUBMISSION)) return VK_ERROR_OUT_OF_HOST_MEMORY;
    if (is_due(FAULT_UNKNOWN)) return VK_ERROR_UNKNOWN;
    if (is_due(FAULT_LOSS)) return VK_ERROR_DEVICE_LOST;
    return real.vkQueueSubmit(q, n, infos, fence);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait(VkDevice d, const VkSemaphoreWaitInfo *info, uint64_t ns) {
    const VkResult result = real.vkWaitSemaphores(d, info, ns);
    if (ns > UINT64_C(3600) * 1000000000) fail_msg("a wait without an end");
    if (is_due(FAULT_HANG)) return VK_TIMEOUT;
    return is_due(FAULT_LOSS_LATER) ? VK_ERROR_DEVICE_LOST : result;
}

static void replace(vulkan_device *d) {
    real = d->vk;
    d->vk.vkAllocateMemory = allocate;
    d->vk.vkCreateBuffer = create_buffer;
    d->vk.vkMapMemory = map;
    d->vk.vkCreateComputePipelines = create_pipelines;
    d->vk.vkBeginCommandBuffer = begin_commands;
    d->vk.vkEndCommandBuffer = end_commands;
    d->vk.vkCreateSemaphore = create_semaphore;
    d->vk.vkQueueSubmit = submit;
    d->vk.vkWaitSemaphores = wait;
}

/* The call of that number of a kind fails from now on; none: UINT64_MAX, to count them. */
static void begin_fault(fault f, uint64_t call) {
    kind = f;
    n_calls = 0;
    failing = call;
    was_hit = false;
    base_alloc_count();
    if (f == FAULT_HOST_MEMORY) base_alloc_fail_at(call == UINT64_MAX ? 0 : call, 0);
}

/* Calls of the kind so far. */
static uint64_t count_calls(void) {
    if (kind != FAULT_HOST_MEMORY) return n_calls;
    n_calls += base_alloc_count();
    was_hit = n_calls >= failing;
    return n_calls;
}

static void end_fault(void) {
    base_alloc_fail_at(0, 0);
    kind = FAULT_NONE;
}

/* ---- engines with a fault ---- */

/* Keeps a device open, so that pipelines are made once for all engines on it. */
static void keep_device(bool keeps) {
    static vulkan_device *kept;
    vulkan_description all[VULKAN_MAX_DEVICES];
    rp_error err = {0};
    const char *why;
    if (kept && (!keeps || atomic_load(&kept->is_lost) || vulkan_device_is_apart(kept) != now->is_apart)) {
        vulkan_device_unref(kept);
        kept = NULL;
    }
    if (!keeps || kept) return;
    must(vulkan_device_ref(&kept, vulkan_choose(all, vulkan_describe_all(all), -1, &why), &err), &err);
}

static bool is_named(int rc, const rp_error *err) {
    const bool is_known = rc == RP_ERR_MEMORY || rc == RP_ERR_IO || rc == RP_ERR_BUDGET || rc == RP_ERR_UNSUPPORTED;
    return is_known && err->message[0] != '\0';
}

/* was_before: the fault was before the request. */
static void check_run(const oracle_run *run, int prompt, bool was_before, const char *what) {
    if (run->rc == RP_OK && !oracle_run_same(run, &expected[prompt])) fail_msg("%s: another answer", what);
    if (run->rc && !is_named(run->rc, &run->err)) fail_msg("%s: %d: %s", what, run->rc, run->err.message);
    if (run->rc && was_before && faults[kind].is_shortage)
        fail_msg("%s: what was short once is a loss: %s", what, run->err.message);
    if (run->rc != RP_ERR_IO && was_before && (kind == FAULT_LOSS || kind == FAULT_LOSS_LATER || kind == FAULT_HANG))
        fail_msg("%s: the device is not lost: %d", what, run->rc);
}

/* The scene's requests in an engine with a fault. */
static void run_with_fault(fault f, uint64_t call, const char *store) {
    char what[128];
    rp_engine *e = NULL;
    rp_error err = {0};
    begin_fault(f, call);
    const int rc = open_engine(&e, store, &err);
    snprintf(what, sizeof(what), "%s, %s, call %llu", now->name, faults[f].name, (unsigned long long)call);
    if (rc && !is_named(rc, &err)) fail_msg("%s: opening gave %d: %s", what, rc, err.message);
    for (int i = 0; i < now->n && !rc; i++) {
        oracle_run run;
        count_calls();
        const bool was_before = was_hit;
        ask(&run, e, now->asked[i]);
        check_run(&run, now->asked[i], was_before, what);
        oracle_run_free(&run);
    }
    count_calls();
    rp_engine_free(e);
    end_fault();
}

/* On a new device, if the last one was lost; what is in the store is right. */
static void check_answers(const char *store) {
    rp_engine *e;
    rp_store_stats t = {.struct_size = sizeof(t)};
    rp_error err = {0};
    must(open_engine(&e, store, &err), &err);
    for (int i = 0; i < now->n; i++) {
        oracle_run run;
        ask(&run, e, now->asked[i]);
        must(run.rc, &run.err);
        assert_true(oracle_run_same(&run, &expected[now->asked[i]]));
        oracle_run_free(&run);
    }
    assert_int_equal(rp_engine_store_stats(e, &t), RP_OK);
    assert_int_equal(t.disk_faults, 0);
    rp_engine_free(e);
}

/* Some calls of a kind, of all that the scene makes: the first two, and random ones. */
static void fail_some(fault f, int tries, tiny_random *r, const char *store) {
    keep_device(f != FAULT_PIPELINE);
    run_with_fault(f, UINT64_MAX, NULL);
    const uint64_t n = n_calls;
    int done = 0;
    for (; done < tries && (uint64_t)done < n; done++) {
        const uint64_t call = n <= (uint64_t)tries || done < 2 ? (uint64_t)done + 1 : 1 + tiny_random_below(r, n);
        keep_device(f != FAULT_PIPELINE);
        run_with_fault(f, call, store);
        keep_device(f != FAULT_PIPELINE);
        if (store) check_answers(store);
    }
    printf("%s, %s: %d of %llu calls\n", now->name, faults[f].name, done, (unsigned long long)n);
    assert_true(n > 0 || (f == FAULT_MAP && now->is_apart));
}

static void fail_in_all_scenes(fault first, fault end, int tries) {
    tiny_random r = {test_seed("faults", 20261130)};
    for (size_t i = 0; i < BASE_ARRAY_LEN(scenes); i++) {
        if (only && strcmp(only, scenes[i].name) != 0) continue;
        char dir[] = "/tmp/reprise-vulkan-XXXXXX", command[64];
        assert_non_null(mkdtemp(dir));
        rp_model *m = open_scene(&scenes[i]);
        for (fault f = first; f < end; f++) fail_some(f, tries, &r, f >= FAULT_UNKNOWN ? dir : NULL);
        check_answers(NULL);
        check_answers(dir);
        close_scene(m);
        keep_device(false);
        snprintf(command, sizeof(command), "rm -rf %s", dir);
        assert_int_equal(system(command), 0);
    }
}

static void every_kind_of_call_fails(void **state) {
    (void)state;
    fail_in_all_scenes(FAULT_HOST_MEMORY, FAULT_HANG, test_rounds(2));
}

static void a_hanging_device_is_lost(void **state) {
    (void)state;
    fail_in_all_scenes(FAULT_HANG, N_FAULTS, BASE_MIN(test_rounds(2), 2));
}

int main(int argc, char **argv) {
    const struct CMUnitTest most[] = {cmocka_unit_test(every_kind_of_call_fails)},
                            hangs[] = {cmocka_unit_test(a_hanging_device_is_lost)};
    rp_device devices[16];
    rp_error err = {0};
    size_t n;
    must(rp_devices(devices, 16, &n, &err), &err);
    if (n < 2 || !devices[1].is_usable) {
        printf("skipped: %s\n", n < 2 ? "no device" : devices[1].reason);
        return 77;
    }
    must(vulkan_instance_ref(&err), &err);
    vulkan_on_device = replace;
    const bool hang = argc > 1 && strcmp(argv[1], "hangs") == 0;
    only = argc > 1 + hang ? argv[1 + hang] : NULL;
    if (hang) {
        const int failed = cmocka_run_group_tests(hangs, NULL, NULL);
        fflush(stdout);
        _Exit(failed);
    }
    const int failed = cmocka_run_group_tests(most, NULL, NULL);
    vulkan_instance_unref();
    return failed;
}
