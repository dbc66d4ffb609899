/* SPDX-License-Identifier: Apache-2.0 */
/* test_counts.c: what bounds a step's time on a device, counted: bytes that products load of their weights, by type of
 * weights and number of rows; dispatches, submissions and waits of a step; bytes that the host writes for it.
 *
 * Counts of loads are those of invocations, without caches (load_counter.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "load_counter.h"
#include "support/forward_run.h"
#include "support/tiny_model.h"
#include "vulkan_world.h"

#define N_IN 1280 /* five blocks of 256: two and a half chunks */
#define N_OUT 20  /* two and a half workgroups of decode */
#define ROWS 65   /* more than a tile of either arithmetic */

/* ---- bytes of weights ---- */

/* Bytes that a product of some rows loads of its weights, as a share of them. */
static double share_read(kernel_type type, int32_t rows, rp_device_arithmetic arithmetic) {
    static const float zeros[ROWS * N_IN];
    const size_t bytes = (size_t)kernel_row_bytes(type, N_IN) * N_OUT;
    float out[ROWS * N_OUT];
    char *data = calloc(1, bytes);
    const model_weight weight = {.data = data, .type = type, .n_in = N_IN, .n_out = N_OUT, .n_slices = 1};
    world w;
    vulkan_on_device = load_counter_attach;
    world_open_in(&w, N_IN, ROWS, arithmetic);
    backend_buffer *src = world_buffer(&w, rows, N_IN, zeros), *dst = world_buffer(&w, rows, N_OUT, zeros);
    world_begin(&w);
    load_counter_watch(vulkan_weight(vulkan(w.b), &weight), bytes);
    w.b->ops->linear(w.b, src, rows, 1, (const model_weight *const[]){&weight}, NULL, (backend_buffer *const[]){dst});
    world_read(&w, dst, rows, out);
    const double share = (double)load_counter_bytes() / (double)bytes;
    load_counter_detach();
    w.b->ops->buffer_free(w.b, src);
    w.b->ops->buffer_free(w.b, dst);
    w.b->ops->free(w.b);
    vulkan_on_device = NULL;
    free(data);
    return share;
}

static const kernel_type types[] = {
#define X(name, number, block, bytes) KERNEL_##name,
    KERNEL_TYPES(X)
#undef X
};

/* Rows of a tile of many. */
static int32_t tile_rows(kernel_type type, rp_device_arithmetic arithmetic) {
    return arithmetic == RP_DEVICE_ARITHMETIC_INT8 && kernel_type_quantized(type) ? 64 : 32;
}

/* One row, few rows, and each tile of many read each byte of a weight once. */
static void check_shares(rp_device_arithmetic arithmetic, const char *name) {
    printf("bytes loaded of weights / their bytes, %s:  1 row   8 rows  a tile\n", name);
    for (size_t i = 0; i < BASE_ARRAY_LEN(types); i++) {
        const int32_t tile = tile_rows(types[i], arithmetic);
        const double shares[] = {share_read(types[i], 1, arithmetic), share_read(types[i], 8, arithmetic),
                                 share_read(types[i], tile, arithmetic)};
        printf("  %-8s %35.3f %8.3f %8.3f\n", kernel_type_name(types[i]), shares[0], shares[1], shares[2]);
        for (int k = 0; k < 3; k++) {
            if (shares[k] > 1.1) fail_msg("%s is read more than 1.1 times", kernel_type_name(types[i]));
            assert_true(shares[k] >= 1.0); /* all of it is read */
        }
    }
}

/* Decode is bound by bytes of weights. */
static void weights_are_read_once(void **state) {
    (void)state;
    check_shares(RP_DEVICE_ARITHMETIC_INT8, "int8");
    check_shares(RP_DEVICE_ARITHMETIC_F32, "f32");
}

/* The counter sees what is read again: 65 rows are three tiles of f32, and two of int8. */
static void what_is_read_again_is_counted(void **state) {
    (void)state;
    const double floats = share_read(KERNEL_F32, ROWS, RP_DEVICE_ARITHMETIC_INT8),
                 k4 = share_read(KERNEL_Q4_K, ROWS, RP_DEVICE_ARITHMETIC_INT8);
    printf("%d rows: F32 %.3f, Q4_K %.3f\n", ROWS, floats, k4);
    assert_true(floats == 3.0);
    assert_true(k4 == 2.0);
}

/* ---- steps ---- */

static struct VolkDeviceTable real;
static int n_submissions, n_waits;

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue q, uint32_t n, const VkSubmitInfo *infos, VkFence fence) {
    n_submissions++;
    return real.vkQueueSubmit(q, n, infos, fence);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait(VkDevice d, const VkSemaphoreWaitInfo *info, uint64_t ns) {
    n_waits++;
    return real.vkWaitSemaphores(d, info, ns);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_fences(VkDevice d, uint32_t n, const VkFence *fences, VkBool32 all,
                                                  uint64_t ns) {
    n_waits++;
    return real.vkWaitForFences(d, n, fences, all, ns);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_queue(VkQueue q) {
    n_waits++;
    return real.vkQueueWaitIdle(q);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_device(VkDevice d) {
    n_waits++;
    return real.vkDeviceWaitIdle(d);
}

static void watch_calls(vulkan_device *d) {
    real = d->vk;
    d->vk.vkQueueSubmit = submit;
    d->vk.vkWaitSemaphores = wait;
    d->vk.vkWaitForFences = wait_fences;
    d->vk.vkQueueWaitIdle = wait_queue;
    d->vk.vkDeviceWaitIdle = wait_device;
}

typedef struct step_counts {
    uint64_t dispatches, table_bytes;
    int submissions, waits;
} step_counts;

/* Counts of a step of n_rows after a context of `before` tokens. */
static step_counts count_step(const rp_model *m, int32_t before, int32_t n_rows) {
    int32_t *tokens = calloc((size_t)(before + n_rows), sizeof(*tokens));
    float *logits = calloc((size_t)m->net.hp.n_vocab, sizeof(*logits));
    forward_run r;
    vulkan_on_device = watch_calls;
    forward_run_open(&r, m, BASE_CPU_GENERIC, 2048, FORWARD_RUN_ROWS, 1);
    assert_string_equal(r.backend->ops->name, "vulkan"); /* REPRISE_TEST_DEVICE */
    for (int32_t i = 0; i < before + n_rows; i++) tokens[i] = 3 + i % 100;
    forward_run_feed(&r, tokens, 0, before, 1, logits);
    n_submissions = n_waits = 0;
    forward_run_feed(&r, tokens + before, before, n_rows, 1, logits);
    const vulkan_backend *b = vulkan(r.backend);
    const step_counts c = {b->counts.dispatches, b->counts.table_bytes, n_submissions, n_waits};
    forward_run_close(&r);
    vulkan_on_device = NULL;
    free(tokens), free(logits);
    return c;
}

#define DISPATCHES_OF_A_LAYER 17 /* 2 norms, 7 products, storing, 4 of attention, an activation, 2 sums */
#define DISPATCHES_OF_CODES 4    /* more of a layer, of quantized weights and many rows: inputs of products in int8 */
#define DISPATCHES_BESIDES 4     /* at most */

/* Of a decode step, the host writes what a row sees of each block, and no addresses of KV. */
#define BYTES_OF_A_BLOCK 32
#define BYTES_BESIDES 128 /* alignment */

static void a_step_is_one_submission(void **state) {
    static const int32_t contexts[] = {1, 500, 1000};
    (void)state;
    for (int32_t k = 0; k < 4; k++) {
        const int32_t layers = 2 + k / 2 * 2;
        const bool is_quantized = k % 2 == 1;
        tiny_model_shape shape = tiny_model_defaults();
        shape.n_layers = layers;
        shape.n_ctx = 2048;
        shape.weight_type = is_quantized ? KERNEL_Q8_0 : KERNEL_F32;
        rp_model *m = tiny_model_open(&shape, NULL);
        uint64_t decode_bytes[BASE_ARRAY_LEN(contexts)];
        for (size_t i = 0; i < BASE_ARRAY_LEN(contexts); i++)
            for (int32_t rows = 1; rows <= 64; rows += 63) {
                const step_counts c = count_step(m, contexts[i], rows);
                printf("%d layers of %s, %4d tokens before, %2d rows: %d submission, %d wait, %3llu dispatches, "
                       "%llu bytes of tables\n",
                       layers, kernel_type_name(shape.weight_type), contexts[i], rows, c.submissions, c.waits,
                       (unsigned long long)c.dispatches, (unsigned long long)c.table_bytes);
                assert_int_equal(c.submissions, 1);
                assert_int_equal(c.waits, 1);
                const int32_t of_codes = is_quantized && rows > 8 ? DISPATCHES_OF_CODES : 0;
                assert_true(c.dispatches <=
                            (uint64_t)((DISPATCHES_OF_A_LAYER + of_codes) * layers + DISPATCHES_BESIDES));
                if (rows == 1) decode_bytes[i] = c.table_bytes;
            }
        for (size_t i = 1; i < BASE_ARRAY_LEN(contexts); i++) {
            const uint64_t blocks = (uint64_t)(contexts[i] / 64 - contexts[i - 1] / 64);
            assert_true(decode_bytes[i] > decode_bytes[i - 1]);
            assert_true(decode_bytes[i] - decode_bytes[i - 1] <= BYTES_OF_A_BLOCK * blocks + BYTES_BESIDES);
        }
        rp_model_close(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_read_once),
        cmocka_unit_test(what_is_read_again_is_counted),
        cmocka_unit_test(a_step_is_one_submission),
    };
    if (!world_is_available(N_IN)) return 77;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vulkan_instance_unref();
    return failed;
}
