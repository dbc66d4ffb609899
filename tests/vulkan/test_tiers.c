/* SPDX-License-Identifier: Apache-2.0 */
/* test_tiers.c: the RAM tier below device memory (docs/gpu.md, "Memory"): a device of a few spans, so that requests
 * take each other's place in it. What it evicts is a hit in RAM, copied back or read in place over the bus; every hit
 * gives the bytes of a miss, and copies are counted to the byte. Memory of the test's device counts as apart from the
 * host's (vulkan_is_unmapped).
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

#include "backend/vulkan/vulkan_device.h"
#include "reprise_device.h"
#include "reprise_store.h"
#include "small_device.h"
#include "support/must.h"
#include "support/oracle_run.h"

#define N_PROMPTS 4
#define STEPS 2
#define N_TOKENS 110 /* two columns */

static oracle_model model;
static small_device device; /* the model, the format: of all engines */
static oracle_run misses[N_PROMPTS];

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

static rp_engine *open_engine(const small_device_setup *s) {
    rp_engine *e;
    rp_error err = {0};
    must(small_device_open(&e, &device, s, &err), &err);
    return e;
}

static void ask_any(oracle_run *run, rp_engine *e, int prompt, int32_t most) {
    small_device_ask(run, e, &device, prompt, most, NULL);
}

static void ask(oracle_run *run, rp_engine *e, int prompt, int32_t most) {
    ask_any(run, e, prompt, most);
    must(run->rc, &run->err);
}

static void forget(void) {
    for (int i = 0; i < N_PROMPTS; i++) oracle_run_free(&misses[i]);
}

/* What engines are of from now on, and the misses of its prompts. */
static void use(rp_model *m, rp_kv_format format, int32_t n_tokens) {
    forget();
    small_device_init(&device, m, format, n_tokens);
    rp_engine *e = open_engine(&(small_device_setup){0});
    for (int i = 0; i < N_PROMPTS; i++) ask(&misses[i], e, i, STEPS);
    rp_engine_free(e);
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
static const int n_columns = 5;
static uint64_t few_columns(void) { return (uint64_t)n_columns * device.column_bytes; }

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
    const small_device_setup s = {.device_bytes = few_columns(), .in_place = RP_KV_IN_PLACE_NEVER};
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
    assert_true(after.used_bytes <= few_columns() && after.host_bytes <= after.host_budget_bytes);
    assert_true(v.host_bytes > 0 && v.kv_bytes <= few_columns() && v.weight_bytes > 0 && v.submits > 0);
    rp_engine_free(e);
}

/* The same hits, without a copy: each of a request's steps reads the span. */
static void hits_are_read_in_place(void **state) {
    const small_device_setup s = {.device_bytes = few_columns(), .in_place = RP_KV_IN_PLACE_ALWAYS};
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
    const small_device_setup s = {.device_bytes = few_columns()};
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
        .device_bytes = few_columns(), .ram_bytes = 4 * device.column_bytes, .in_place = RP_KV_IN_PLACE_NEVER};
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
    const small_device_setup none = {.device_bytes = few_columns(), .ram_bytes = 1};
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
    const small_device_setup s = {.device_bytes = few_columns(), .in_place = RP_KV_IN_PLACE_NEVER, .store = dir};
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
    const small_device_setup s = {.device_bytes = few_columns(), .in_place = RP_KV_IN_PLACE_NEVER};
    rp_engine *e = open_engine(&s);
    int n_failed = 0, call = 1;
    (void)state;
    for (int i = 0; i < N_PROMPTS; i++) assert_int_equal(check(e, i, "ram"), 0);
    for (bool was_reached = true; was_reached && call < 200; call++) {
        oracle_run run;
        countdown = call;
        for (int i = 0; i < N_PROMPTS; i++) {
            ask_any(&run, e, i, STEPS);
            if (run.rc == RP_OK) assert_true(oracle_run_same(&run, &misses[i]));
            else assert_int_equal(run.rc, RP_ERR_MEMORY);
            n_failed += run.rc != RP_OK;
            oracle_run_free(&run);
        }
        was_reached = countdown == 0;
        countdown = 0;
        for (int i = 0; i < N_PROMPTS; i++) {
            ask(&run, e, i, STEPS);
            assert_true(oracle_run_same(&run, &misses[i]));
            oracle_run_free(&run);
        }
    }
    printf("%d submissions, %d requests failed\n", call - 1, n_failed);
    assert_true(call > 8 && call < 200 && n_failed > 0 && n_failed < call - 1);
    assert_false(usage_of(e).is_lost);
    rp_engine_free(e);
}

int main(int argc, char **argv) {
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
    vulkan_is_unmapped = true;
    vulkan_on_device = replace;
    small_device_init(&device, model.model, RP_KV_F32, N_TOKENS);
    rp_engine *stays = open_engine(&(small_device_setup){0}); /* so that pipelines are made once */
    use(model.model, RP_KV_F32, N_TOKENS);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    forget();
    rp_engine_free(stays);
    oracle_model_close(&model);
    return failed;
}
