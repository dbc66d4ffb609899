/* SPDX-License-Identifier: Apache-2.0 */
/* test_faults.c: failures of the device, injected into the table of its functions: each allocation, each pipeline and
 * each submission once, and loss of the device at each submission and wait. Requests fail by name or are answered
 * right; nothing crashes; a store that was open stays whole, and another engine on a new device gives the same answer.
 */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/vulkan/vulkan_device.h"
#include "reprise_device.h"
#include "reprise_store.h"
#include "support/must.h"
#include "support/oracle_run.h"

#define STEPS 3

static oracle_model model; /* of two layers */
static oracle_run answers[2], *expected;
static int32_t layers; /* on the device; the processor computes the others */

/* ---- injection ---- */

typedef enum fault { FAULT_NONE,
                     FAULT_ALLOCATION,
                     FAULT_PIPELINE,
                     FAULT_SUBMISSION, /* out of memory */
                     FAULT_LOSS,       /* at a submission */
                     FAULT_LOSS_LATER, /* at a wait */
                     N_FAULTS } fault;

static struct VolkDeviceTable real;
static fault kind;
static int countdown, n_hit; /* the call that fails; those that did */

static bool is_due(fault f) {
    if (f != kind || --countdown > 0) return false;
    const bool once = f == FAULT_ALLOCATION || f == FAULT_PIPELINE || f == FAULT_SUBMISSION;
    if (once && n_hit > 0) return false;
    n_hit++; /* a lost device stays lost */
    return true;
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice d, const VkMemoryAllocateInfo *info,
                                               const VkAllocationCallbacks *a, VkDeviceMemory *out) {
    return is_due(FAULT_ALLOCATION) ? VK_ERROR_OUT_OF_DEVICE_MEMORY : real.vkAllocateMemory(d, info, a, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice d, VkPipelineCache c, uint32_t n,
                                                       const VkComputePipelineCreateInfo *infos,
                                                       const VkAllocationCallbacks *a, VkPipeline *out) {
    return is_due(FAULT_PIPELINE) ? VK_ERROR_OUT_OF_HOST_MEMORY : real.vkCreateComputePipelines(d, c, n, infos, a, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue q, uint32_t n, const VkSubmitInfo *infos, VkFence fence) {
    if (is_due(FAULT_SUBMISSION)) return VK_ERROR_OUT_OF_HOST_MEMORY;
    if (is_due(FAULT_LOSS)) return VK_ERROR_DEVICE_LOST;
    return real.vkQueueSubmit(q, n, infos, fence);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait(VkDevice d, uint32_t n, const VkFence *fences, VkBool32 all, uint64_t ns) {
    const VkResult result = real.vkWaitForFences(d, n, fences, all, ns);
    return is_due(FAULT_LOSS_LATER) ? VK_ERROR_DEVICE_LOST : result;
}

static void replace(vulkan_device *d) {
    real = d->vk;
    d->vk.vkAllocateMemory = allocate;
    d->vk.vkCreateComputePipelines = create_pipelines;
    d->vk.vkQueueSubmit = submit;
    d->vk.vkWaitForFences = wait;
}

/* ---- engines ---- */

static int open_engine(rp_engine **out, const char *store, rp_error *err) {
    const rp_device_options device = {.struct_size = sizeof(device), .name = "vulkan", .layers = layers};
    rp_engine_options o = rp_engine_options_defaults();
    o.device = &device;
    o.n_threads = 1;
    o.n_ctx = 512;
    o.kv_budget_bytes = (uint64_t)8 << 20;
    o.store_dir = store;
    return rp_engine_new(out, model.model, &o, err);
}

static void ask(oracle_run *run, rp_engine *e) {
    rp_request req = rp_request_defaults();
    req.prompt = rp_prompt_text("The quick river of Lisbon and the 42 rivers of the quick, and so on and on.");
    req.max_tokens = STEPS;
    req.ignore_eos = true;
    oracle_run_make(run, e, &req);
}

static bool is_named(int rc, const rp_error *err) {
    const bool is_known = rc == RP_ERR_MEMORY || rc == RP_ERR_IO || rc == RP_ERR_BUDGET || rc == RP_ERR_UNSUPPORTED;
    return is_known && err->message[0] != '\0';
}

/* One engine with a fault, two requests. Returns whether the fault was reached. */
static bool try_fault(fault f, int call, const char *store) {
    rp_engine *e = NULL;
    rp_error err = {0};
    kind = f;
    countdown = call;
    n_hit = 0;
    int rc = open_engine(&e, store, &err);
    bool before = n_hit > 0; /* the request */
    if (rc && !is_named(rc, &err)) fail_msg("fault %d, call %d: opening gave %d: %s", f, call, rc, err.message);
    for (int i = 0; i < 2 && !rc; i++) {
        oracle_run run;
        ask(&run, e);
        if (run.rc == RP_OK) assert_true(oracle_run_same(&run, expected));
        else if (!is_named(run.rc, &run.err))
            fail_msg("fault %d, call %d: request %d gave %d: %s", f, call, i, run.rc, run.err.message);
        /* memory that was short once is no loss of the device */
        if (n_hit > 0 && (f == FAULT_ALLOCATION || f == FAULT_SUBMISSION) && i == 1 && before) {
            if (run.rc) fail_msg("fault %d, call %d: the device is not used any more: %s", f, call, run.err.message);
        }
        before = n_hit > 0;
        if (n_hit > 0 && (f == FAULT_LOSS || f == FAULT_LOSS_LATER) && i == 1) assert_int_equal(run.rc, RP_ERR_IO);
        oracle_run_free(&run);
    }
    rp_engine_free(e);
    kind = FAULT_NONE;
    return n_hit > 0;
}

static void check_answer(const char *store) {
    rp_engine *e;
    rp_error err = {0};
    oracle_run run;
    must(open_engine(&e, store, &err), &err);
    ask(&run, e);
    if (run.rc) fail_msg("%s", run.err.message);
    assert_true(oracle_run_same(&run, expected));
    oracle_run_free(&run);
    rp_engine_free(e);
}

/* All layers, or the last one. */
static void use_layers(int32_t n) {
    layers = n;
    expected = &answers[n];
}

static void every_call_fails_once(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        const int apart = i > 0; /* copies go over the bus, through staging buffers and the RAM tier */
        vulkan_is_unmapped = apart == 1;
        use_layers(i == 2);
        for (fault f = FAULT_ALLOCATION; f < N_FAULTS; f++) {
            int call = 1;
            while (try_fault(f, call, NULL)) call += call < 8 ? 1 : 5 + 50 * apart;
            printf("fault %d: %d calls, %d layers\n", (int)f, call - 1, layers);
            assert_true(call > 1);
        }
        check_answer(NULL);
    }
    vulkan_is_unmapped = false;
    use_layers(RP_DEVICE_LAYERS_AUTO);
}

static void a_store_stays_whole(void **state) {
    char dir[] = "/tmp/reprise-vulkan-XXXXXX", command[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int32_t n = 2; n-- > 0;) {
        use_layers(n);
        for (int call = 1; call < 8; call += 2) {
            try_fault(FAULT_LOSS_LATER, call, dir);
            check_answer(dir); /* on a new device; what is in the store is right */
        }
        check_answer(dir);
    }
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(a_store_stays_whole),
    };
    rp_device devices[16];
    rp_error err = {0};
    size_t n;
    const char *chat;
    must(rp_devices(devices, 16, &n, &err), &err);
    if (n < 2 || !devices[1].is_usable) {
        printf("skipped: %s\n", n < 2 ? "no device" : devices[1].reason);
        return 77;
    }
    must(vulkan_instance_ref(&err), &err);
    const tiny_model_shape shape = oracle_shape(1, &chat);
    oracle_model_open(&model, &shape, chat);
    for (int32_t i = 2; i-- > 0;) {
        rp_engine *e;
        use_layers(i);
        must(open_engine(&e, NULL, &err), &err);
        ask(expected, e);
        must(expected->rc, &expected->err);
        rp_engine_free(e);
    }
    vulkan_on_device = replace;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < 2; i++) oracle_run_free(&answers[i]);
    oracle_model_close(&model);
    vulkan_instance_unref();
    return failed;
}
