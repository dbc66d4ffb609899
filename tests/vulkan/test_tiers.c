/* SPDX-License-Identifier: Apache-2.0 */
/* test_tiers.c: the RAM tier below device memory (docs/gpu.md, "Memory"): a device of a few spans, so that requests
 * take each other's place in it. What it evicts is a hit in RAM, copied back or read in place over the bus; every hit
 * gives the bytes of a miss, and copies are counted to the byte. Memory of the test's device counts as apart from the
 * host's (vulkan_is_unmapped), and its queue as one or two (vulkan_forced_copies).
 *
 *   test_tiers [PATTERN]     tests of these names alone ("hits_*")
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

#include "backend/vulkan/vulkan_backend.h"
#include "queue_simulator.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "small_device.h"
#include "support/seed.h"

#define N_PROMPTS 4
#define STEPS 2
#define N_TOKENS 110 /* two columns */

static oracle_model model;
static oracle_run misses[N_PROMPTS];
static small_device device;

static rp_engine *open_engine(const small_device_setup *s) {
    rp_engine *e;
    rp_error err = {0};
    must(small_device_open(&e, &device, s, &err), &err);
    return e;
}

static rp_store_stats stats_of(rp_engine *e) {
    rp_store_stats t = {.struct_size = sizeof(t)};
    assert_int_equal(rp_engine_store_stats(e, &t), RP_OK);
    return t;
}

static rp_device_usage usage_of(rp_engine *e) {
    rp_device_usage u = {.struct_size = sizeof(u)};
    assert_int_equal(rp_engine_device_usage(e, &u), RP_OK);
    return u;
}

static void ask_any(oracle_run *run, rp_engine *e, int prompt, int32_t most) {
    small_device_ask(run, e, &device, prompt, most, NULL);
}

static void ask(oracle_run *run, rp_engine *e, int prompt, int32_t most) {
    ask_any(run, e, prompt, most);
    must(run->rc, &run->err);
}

static int32_t tokens_of_tier(const rp_result *r, const char *tier) {
    int32_t n = 0;
    for (int i = 0; i < r->n_plan; i++) n += strcmp(r->plan[i].tier, tier) == 0 ? r->plan[i].n_tokens : 0;
    return n;
}

/* Asks and compares with a miss; returns the tokens that came from a tier. */
static int32_t check(rp_engine *e, int prompt, const char *tier) {
    oracle_run run;
    ask(&run, e, prompt, STEPS);
    if (!oracle_run_same(&run, &misses[prompt])) fail_msg("prompt %d: not the bytes of a miss", prompt);
    const int32_t n = tokens_of_tier(run.result, tier);
    assert_int_equal(n, run.result->cached_tokens); /* all of one tier */
    oracle_run_free(&run);
    return n;
}

/* A prompt takes a span of two columns, its answer another: the device has memory for two prompts, one of which is
 * being computed. */
#define N_COLUMNS 5
static uint64_t few_bytes(void) { return N_COLUMNS * device.column_bytes; }

static void hits_in_device_memory_are_named(void **state) {
    const small_device_setup s = {.in_place = RP_KV_IN_PLACE_NEVER};
    rp_engine *e = open_engine(&s);
    (void)state;
    for (int i = 0; i < N_PROMPTS; i++) assert_int_equal(check(e, i, "device"), 0);
    for (int i = 0; i < N_PROMPTS; i++) assert_true(check(e, i, "device") > 100);
    const rp_store_stats t = stats_of(e);
    assert_int_equal(t.host_writes, 0);
    assert_int_equal(t.host_hits, 0);
    rp_engine_free(e);
}

static void what_the_device_evicts_is_a_hit_in_ram(void **state) {
    const small_device_setup s = {.device_bytes = few_bytes(), .in_place = RP_KV_IN_PLACE_NEVER};
    rp_engine *e = open_engine(&s);
    (void)state;
    for (int i = 0; i < N_PROMPTS; i++) assert_int_equal(check(e, i, "ram"), 0);
    const rp_store_stats before = stats_of(e);
    const rp_device_usage u = usage_of(e);
    assert_true(before.host_writes > 0 && before.host_spans > 0);
    assert_int_equal(before.host_reads, 0);
    assert_int_equal(u.to_host_bytes, before.host_write_bytes); /* and nothing else came over the bus */
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < N_PROMPTS; i++) assert_true(check(e, i, "ram") > 100);
    const rp_store_stats after = stats_of(e);
    const rp_device_usage v = usage_of(e);
    assert_int_equal(after.host_hits, 2 * N_PROMPTS);
    assert_int_equal(after.host_reads, after.host_hits);
    assert_int_equal(after.host_in_place, 0);
    assert_int_equal(after.evictions, 0); /* nothing was lost */
    assert_int_equal(v.to_host_bytes, after.host_write_bytes);
    assert_int_equal(v.to_device_bytes - u.to_device_bytes, after.host_read_bytes);
    assert_int_equal(v.in_place_bytes, 0);
    assert_true(after.used_bytes <= few_bytes() && after.host_bytes <= after.host_budget_bytes);
    assert_true(v.host_bytes > 0 && v.kv_bytes <= few_bytes() && v.weight_bytes > 0 && v.submits > 0);
    rp_engine_free(e);
}

/* The same hits, without a copy: each of a request's steps reads the span. */
static void hits_are_read_in_place(void **state) {
    const small_device_setup s = {.device_bytes = few_bytes(), .in_place = RP_KV_IN_PLACE_ALWAYS};
    rp_engine *e = open_engine(&s);
    (void)state;
    for (int i = 0; i < N_PROMPTS; i++) assert_int_equal(check(e, i, "ram"), 0);
    const rp_store_stats before = stats_of(e);
    const uint64_t copied = usage_of(e).to_device_bytes;
    uint64_t n_hits = 0;
    for (int i = 0; i < N_PROMPTS; i++) {
        oracle_run run;
        const uint64_t hits = stats_of(e).host_in_place;
        ask(&run, e, i, STEPS);
        assert_true(oracle_run_same(&run, &misses[i]));
        assert_true(run.result->cached_tokens > 100);
        n_hits += stats_of(e).host_in_place - hits;
        oracle_run_free(&run);
    }
    const rp_store_stats after = stats_of(e);
    assert_true(n_hits > 0);
    assert_int_equal(after.host_hits, n_hits);
    assert_int_equal(after.host_reads, 0);
    assert_int_equal(usage_of(e).to_device_bytes, copied);
    assert_true(usage_of(e).in_place_bytes >= n_hits * STEPS * device.column_bytes);
    assert_int_equal(before.host_in_place, 0);
    rp_engine_free(e);
}

/* By cost: one token, read once, does not pay for a copy that evicts other KV; an answer of many does. */
static void cost_chooses_the_way(void **state) {
    const small_device_setup s = {.device_bytes = few_bytes()};
    rp_engine *e = open_engine(&s);
    (void)state;
    for (int i = 0; i < N_PROMPTS; i++) assert_int_equal(check(e, i, "ram"), 0);
    oracle_run run;
    ask(&run, e, 0, 1); /* the last token of the prompt alone is computed */
    assert_int_equal(stats_of(e).host_in_place, 1);
    assert_int_equal(stats_of(e).host_reads, 0);
    oracle_run_free(&run);
    ask(&run, e, 0, 20);
    assert_int_equal(stats_of(e).host_in_place, 1);
    assert_int_equal(stats_of(e).host_reads, 1);
    oracle_run_free(&run);
    rp_engine_free(e);
}

/* RAM for one span: the others leave it, and are computed again. */
static void the_limit_of_ram_holds(void **state) {
    const small_device_setup s = {
        .device_bytes = few_bytes(), .ram_bytes = 4 * device.column_bytes, .in_place = RP_KV_IN_PLACE_NEVER};
    rp_engine *e = open_engine(&s);
    (void)state;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < N_PROMPTS; i++) {
            oracle_run run;
            ask(&run, e, i, STEPS);
            assert_true(oracle_run_same(&run, &misses[i]));
            oracle_run_free(&run);
            const rp_store_stats t = stats_of(e);
            assert_true(t.host_bytes <= 4 * device.column_bytes && t.host_budget_bytes <= 4 * device.column_bytes);
        }
    assert_true(stats_of(e).host_evictions > 0);
    rp_engine_free(e);
    const small_device_setup none = {.device_bytes = few_bytes(), .ram_bytes = 1};
    e = open_engine(&none);
    for (int i = 0; i < N_PROMPTS; i++) assert_int_equal(check(e, i, "ram"), 0);
    assert_int_equal(stats_of(e).host_writes, 0);
    rp_engine_free(e);
}

/* Records are written from either memory, and are hits for the next engine. */
static void the_disk_is_below_ram(void **state) {
    char dir[] = "/tmp/reprise-tiers-XXXXXX", command[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    const small_device_setup s = {.device_bytes = few_bytes(), .in_place = RP_KV_IN_PLACE_NEVER, .store = dir};
    rp_engine *e = open_engine(&s);
    for (int i = 0; i < N_PROMPTS; i++) assert_int_equal(check(e, i, "ram"), 0);
    assert_true(stats_of(e).host_writes > 0);
    rp_engine_free(e);
    e = open_engine(&s);
    for (int i = 0; i < N_PROMPTS; i++) assert_true(check(e, i, "disk") > 100);
    for (int i = 0; i < N_PROMPTS; i++) assert_true(check(e, i, "ram") > 100);
    rp_engine_free(e);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static PFN_vkQueueSubmit real_submit;
static int countdown; /* submissions until one fails; 0: none */

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue q, uint32_t n, const VkSubmitInfo *infos, VkFence fence) {
    if (countdown > 0 && --countdown == 0) return VK_ERROR_OUT_OF_HOST_MEMORY;
    return real_submit(q, n, infos, fence);
}

static void replace(vulkan_device *d) {
    real_submit = d->vk.vkQueueSubmit;
    d->vk.vkQueueSubmit = submit;
}

/* Of requests that evict, copy back and compute, each submission fails once: the request fails by name or gives the
   bytes of a miss, and later ones are right. */
static void a_failed_submission_loses_nothing(void **state) {
    const small_device_setup s = {.device_bytes = few_bytes(), .in_place = RP_KV_IN_PLACE_NEVER};
    rp_engine *e = open_engine(&s);
    int n_failed = 0, call = 1;
    (void)state;
    for (int i = 0; i < N_PROMPTS; i++) assert_int_equal(check(e, i, "ram"), 0);
    for (bool was_reached = true; was_reached && call < 200; call++) {
        countdown = call;
        for (int i = 0; i < N_PROMPTS; i++) {
            oracle_run run;
            ask_any(&run, e, i, STEPS);
            const bool has_failed = run.rc != RP_OK;
            if (has_failed) assert_int_equal(run.rc, RP_ERR_MEMORY);
            else assert_true(oracle_run_same(&run, &misses[i]));
            oracle_run_free(&run);
            if (!has_failed) continue;
            n_failed++;
            ask(&run, e, i, STEPS);
            assert_true(oracle_run_same(&run, &misses[i]));
            oracle_run_free(&run);
        }
        was_reached = countdown == 0;
        countdown = 0;
    }
    printf("%d submissions, %d requests failed\n", call - 1, n_failed);
    assert_true(call > 8 && call < 200 && n_failed > 0 && n_failed < call - 1);
    assert_false(usage_of(e).is_lost);
    rp_engine_free(e);
}

/* ---- copies beside steps ---- */

/* Copies run as late as they can: the first layer is computed before the copy of the second one begins, and so on. */
static void layers_are_computed_as_their_kv_arrives(void **state) {
    const small_device_setup s = {.device_bytes = few_bytes(), .in_place = RP_KV_IN_PLACE_NEVER};
    rp_engine *e = open_engine(&s);
    const int32_t n_layers = 8;
    char turns[2 * 8 + 1] = "";
    (void)state;
    queue_simulator_start(QUEUE_COPIES_LATE, 0);
    for (int i = 0; i < N_PROMPTS; i++) assert_int_equal(check(e, i, "ram"), 0);
    for (int32_t i = 0; i < n_layers; i++) strcat(turns, "cs");
    for (int i = 0; i < N_PROMPTS; i++) {
        queue_simulator_start(QUEUE_COPIES_LATE, 0);
        assert_true(check(e, i, "ram") > 100);
        const char *log = queue_simulator_log();
        if (!strstr(log, turns)) fail_msg("prompt %d: '%s' has not '%s'", i, log, turns);
        if (i == 0) printf("copies and parts of steps of a hit in RAM: %s\n", log);
    }
    rp_engine_free(e);
}

/* A prompt takes the memory of what it evicts: its step begins before the copy of that, and waits where it writes
   there. Nothing else waits. */
static void evictions_run_beside_steps(void **state) {
    const small_device_setup s = {.device_bytes = few_bytes(), .in_place = RP_KV_IN_PLACE_NEVER};
    rp_engine *e = open_engine(&s);
    (void)state;
    for (int i = 0; i < N_PROMPTS; i++) {
        queue_simulator_start(QUEUE_COPIES_LATE, 0);
        assert_int_equal(check(e, i, "ram"), 0);
        if (i >= 2) assert_string_equal(queue_simulator_log(), "scss"); /* two parts of a prefill, a decode step */
    }
    rp_engine_free(e);
}

static void a_step_without_copies_is_one_submission(void **state) {
    const small_device_setup s = {.in_place = RP_KV_IN_PLACE_NEVER};
    rp_engine *e = open_engine(&s);
    (void)state;
    assert_int_equal(check(e, 0, "device"), 0);
    queue_simulator_start(QUEUE_COPIES_LATE, 0);
    const uint64_t before = usage_of(e).submits;
    assert_true(check(e, 0, "device") > 100);
    assert_string_equal(queue_simulator_log(), "ss"); /* one for each token */
    assert_int_equal(usage_of(e).submits - before, STEPS);
    rp_engine_free(e);
}

/* `blend` compares recomputed KV with the modules' in the middle of a step, before its layer attends to them. */
static void deviations_wait_for_the_kv_they_are_of(void **state) {
    static const char schema[] = "<schema name='s'>Once<module name='a'>the hills of a river are seven, and more of "
                                 "them are far from here</module><module name='b'>nine bridges over the water of a "
                                 "city with seven hills and more</module></schema>",
                      prompt[] = "<prompt schema='s'><b/><a/><user>and how many are there?</user></prompt>";
    const small_device_setup s = {.device_bytes = few_bytes() + device.column_bytes, .in_place = RP_KV_IN_PLACE_NEVER};
    rp_engine *e = open_engine(&s);
    oracle_run first, other, again;
    rp_error err = {0};
    (void)state;
    queue_simulator_start(QUEUE_COPIES_LATE, 0);
    must(rp_schema_parse(e, schema, strlen(schema), "s", NULL, NULL, NULL, &err), &err);
    rp_request req = rp_request_defaults();
    req.prompt = rp_prompt_pml(prompt);
    req.max_tokens = STEPS;
    req.ignore_eos = true;
    req.quality = (rp_quality){RP_QUALITY_BLEND, 30};
    oracle_run_make(&first, e, &req);
    must(first.rc, &first.err);
    assert_true(first.result->quality.probed_tokens > 0);
    for (int i = 0; i < N_PROMPTS; i++) { /* take the modules' place */
        ask(&other, e, i, STEPS);
        oracle_run_free(&other);
    }
    queue_simulator_start(QUEUE_COPIES_LATE, 0);
    const uint64_t reads = stats_of(e).host_reads;
    oracle_run_make(&again, e, &req);
    must(again.rc, &again.err);
    assert_true(stats_of(e).host_reads > reads);
    assert_true(oracle_run_same(&first, &again));
    oracle_run_free(&first);
    oracle_run_free(&again);
    rp_engine_free(e);
}

static void any_order_gives_the_bytes_of_a_miss(void **state) {
    uint64_t random = test_seed("tiers", 20260101);
    (void)state;
    for (int round = 0; round < 3; round++) {
        const small_device_setup s = {.device_bytes = few_bytes() + (uint64_t)round * device.column_bytes,
                                      .in_place = round == 2 ? RP_KV_IN_PLACE_AUTO : RP_KV_IN_PLACE_NEVER};
        rp_engine *e = open_engine(&s);
        queue_simulator_start(QUEUE_RANDOM, base_random_next(&random));
        for (int i = 0; i < 10; i++) {
            oracle_run run;
            const int prompt = (int)(base_random_next(&random) % N_PROMPTS);
            ask(&run, e, prompt, STEPS);
            if (!oracle_run_same(&run, &misses[prompt])) fail_msg("prompt %d: not the bytes of a miss", prompt);
            oracle_run_free(&run);
        }
        rp_engine_free(e);
    }
}

/* ---- arrangements of queues ---- */

static VkQueueFamilyProperties family_of(VkQueueFlags flags, uint32_t n) {
    return (VkQueueFamilyProperties){.queueFlags = flags, .queueCount = n, .timestampValidBits = 64};
}

static void queues_are_chosen_by_their_families(void **state) {
    const VkQueueFlags copy = VK_QUEUE_TRANSFER_BIT, compute = VK_QUEUE_COMPUTE_BIT | copy,
                       all = VK_QUEUE_GRAPHICS_BIT | compute;
    const VkQueueFamilyProperties discrete[] = {family_of(all, 16), family_of(copy, 2), family_of(compute, 8)},
                                  two[] = {family_of(all, 1), family_of(compute, 4)}, one[] = {family_of(all, 1)},
                                  none[] = {family_of(copy, 1)};
    vulkan_queues q;
    (void)state;
    assert_null(vulkan_choose_queues(discrete, 3, &q));
    assert_true(q.family == 2 && q.copies == VULKAN_COPIES_APART && q.copy_family == 1 && q.copy_index == 0);
    assert_int_equal(q.timestamp_bits, 64);
    assert_null(vulkan_choose_queues(two, 2, &q));
    assert_true(q.family == 1 && q.copies == VULKAN_COPIES_SECOND && q.copy_family == 1 && q.copy_index == 1);
    assert_null(vulkan_choose_queues(one, 1, &q));
    assert_true(q.family == 0 && q.copies == VULKAN_COPIES_SHARE && q.copy_family == 0 && q.copy_index == 0);
    assert_non_null(vulkan_choose_queues(none, 1, &q));
}

static rp_engine *open_device(int copies, void (*on_device)(vulkan_device *)) {
    vulkan_forced_copies = copies;
    vulkan_on_device = on_device;
    return open_engine(&(small_device_setup){0}); /* it stays open, so that pipelines are made once */
}

int main(int argc, char **argv) {
    const struct CMUnitTest overlapping[] = {
        cmocka_unit_test(layers_are_computed_as_their_kv_arrives),
        cmocka_unit_test(evictions_run_beside_steps),
        cmocka_unit_test(a_step_without_copies_is_one_submission),
        cmocka_unit_test(deviations_wait_for_the_kv_they_are_of),
        cmocka_unit_test(any_order_gives_the_bytes_of_a_miss),
    };
    const struct CMUnitTest once[] = {cmocka_unit_test(queues_are_chosen_by_their_families)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_in_device_memory_are_named),
        cmocka_unit_test(what_the_device_evicts_is_a_hit_in_ram),
        cmocka_unit_test(hits_are_read_in_place),
        cmocka_unit_test(cost_chooses_the_way),
        cmocka_unit_test(the_limit_of_ram_holds),
        cmocka_unit_test(the_disk_is_below_ram),
        cmocka_unit_test(a_failed_submission_loses_nothing),
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
    const tiny_model_shape shape = small_device_shape(&chat);
    oracle_model_open(&model, &shape, chat);
    must(vulkan_instance_ref(&err), &err); /* opening a driver takes long */
    vulkan_is_unmapped = true;
    small_device_init(&device, model.model, RP_KV_F32, N_TOKENS);
    rp_engine *stays = open_device(VULKAN_COPIES_SHARE, replace);
    for (int i = 0; i < N_PROMPTS; i++) ask(&misses[i], stays, i, STEPS);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    int failed = cmocka_run_group_tests(once, NULL, NULL);
    for (int copies = VULKAN_COPIES_SHARE; copies <= VULKAN_COPIES_APART; copies++) {
        printf("copies: %s\n", ((const char *[]){"in the queue of steps", "in a second queue", "apart"})[copies]);
        if (copies > 0) {
            rp_engine_free(stays);
            stays = open_device(copies, replace);
        }
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    rp_engine_free(stays);
    stays = open_device(VULKAN_COPIES_APART, queue_simulator_attach);
    vulkan_batch_bytes = 1; /* each layer is one */
    failed += cmocka_run_group_tests(overlapping, NULL, NULL);
    for (int i = 0; i < N_PROMPTS; i++) oracle_run_free(&misses[i]);
    rp_engine_free(stays);
    oracle_model_close(&model);
    vulkan_instance_unref();
    return failed;
}
