/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedules.c: the exactness rule (docs/architecture.md) for many concurrent jobs: whatever runs with a job or
 * before it, on any number of threads, in any chunks, after any hits, evictions, drafts or cancellations, for any
 * tenant, its logits, tokens and text are bit-identical to those of a run alone; and no tenant hits another's entries.
 *
 *   REPRISE_TEST_SEED=N    another sequence; a failure prints the seed of its world
 *   REPRISE_TEST_ROUNDS=N  schedules, 48 by default; four over each world
 *
 * Linked with tests/vulkan/vulkan_engine.c: on a device, without what that refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/schedule_run.h"
#include "support/seed.h"
#include "support/test_device.h"

#define SCHEDULES_OF_A_WORLD 4

static schedule_model models[SCHEDULE_MODELS];

static int open_models(void **state) {
    (void)state;
    schedule_models_open(models);
    return 0;
}

static int close_models(void **state) {
    (void)state;
    schedule_models_close(models);
    return 0;
}

static void calls_give_what_they_give_alone(void **state) {
    (void)state;
    uint64_t seed = test_seed("schedules", 20261123);
    int rounds = test_rounds(48);
    schedule_tally tally = {0};
    for (int i = 0; i < rounds; i += SCHEDULES_OF_A_WORLD, seed++) {
        schedule_world world;
        schedule_world_make(&world, models, seed);
        tiny_random r = {.state = ~seed};
        for (int k = 0; k < SCHEDULES_OF_A_WORLD; k++) schedule_run(&world, &r, false, &tally);
        schedule_world_free(&world);
    }
    schedule_tally_print("schedules", &tally);
    if (rounds < 40) return; /* too few to meet everything */
    const bool reduces = test_device_has_studies();
    assert_true(tally.compared > 0 && tally.cancelled > 0 && tally.logits > 0 && tally.shared_steps > 0);
    assert_true(tally.prefix_tokens > 0 && tally.module_tokens > 0 && tally.evictions > 0 && tally.accepted > 0 &&
                tally.model_accepted > 0 && tally.waits > 0);
    assert_true(tally.firsts > 0 && (!reduces || (tally.reduced_logits > 0 && tally.reduced > 0)));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_give_what_they_give_alone)};
    return cmocka_run_group_tests_name("schedules", tests, open_models, close_models);
}
