/* SPDX-License-Identifier: Apache-2.0 */
/* test_bus_model.c: choices between a copy over the bus, reads in place, and computing again, by measured speeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/core/bus_model.h"

#define MIB ((uint64_t)1 << 20)

/* n copies of 8 MiB, at so many bytes a microsecond. */
static void copy(bus_speed *s, int n, uint64_t bytes_us) {
    for (int i = 0; i < n; i++) bus_model_learn(s, 8 * MIB, 8 * MIB / bytes_us);
}

static void without_measurements_both_ways_cost_the_same(void **state) {
    bus_model m = {0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_false(bus_model_reads_in_place(&m, 1, false));
        assert_true(bus_model_reads_in_place(&m, 1, true));
        assert_false(bus_model_reads_in_place(&m, 2, true)); /* of equal costs, the copy */
        assert_false(bus_model_recomputes(&m, 1000 * MIB, 1));
        copy(&m.to_device, 2, 1); /* too little */
        copy(&m.to_ram, 2, 100);
        bus_model_learn(&m.to_ram, 0, 1000000);
    }
    assert_true(bus_model_byte_us(&m.to_ram) == 0);
}

static void a_slow_way_out_favours_reads_in_place(void **state) {
    bus_model m = {0};
    (void)state;
    copy(&m.to_device, 20, 8192);
    copy(&m.to_ram, 20, 2048);
    assert_true(bus_model_reads_in_place(&m, 4, true)); /* a copy costs as much as five reads */
    assert_false(bus_model_reads_in_place(&m, 5, true));
    assert_false(bus_model_reads_in_place(&m, 1, false)); /* nothing leaves the device */
    copy(&m.to_ram, 2000, 8192);                          /* what was measured long ago is forgotten */
    assert_false(bus_model_reads_in_place(&m, 2.1, true));
}

static void a_slow_bus_favours_computing_again(void **state) {
    bus_model m = {0};
    (void)state;
    copy(&m.to_device, 20, 1024); /* 64 MiB take 65,536 us */
    assert_true(bus_model_byte_us(&m.to_device) == 1.0 / 1024);
    assert_false(bus_model_recomputes(&m, 64 * MIB, 100000));
    assert_false(bus_model_recomputes(&m, 64 * MIB, 40000)); /* quicker, but not by enough */
    assert_true(bus_model_recomputes(&m, 64 * MIB, 30000));
    assert_false(bus_model_recomputes(&m, 64 * MIB, 0)); /* not known */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_measurements_both_ways_cost_the_same),
        cmocka_unit_test(a_slow_way_out_favours_reads_in_place),
        cmocka_unit_test(a_slow_bus_favours_computing_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
