/* SPDX-License-Identifier: Apache-2.0 */
/* test_backend_registry.c: backends by name, and the reason for each that cannot compute a network. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend_registry.h"

static model_layer layer;
static const model_network real = {.hp = {.n_layers = 1}, .layers = &layer}, mock = {.is_mock = true};

static void the_first_that_can_is_chosen(void **state) {
    const backend_row *row;
    rp_error err = {0};
    (void)state;
    assert_int_equal(backend_find(&row, NULL, &real, &err), RP_OK);
    assert_string_equal(row->name, "cpu");
    assert_true(row->can & BACKEND_STUDIES);
    assert_int_equal(backend_find(&row, NULL, &mock, &err), RP_OK);
    assert_string_equal(row->name, "mock");
    assert_int_equal(row->can, BACKEND_AUTO);
}

static void names_are_exact(void **state) {
    const backend_row *row;
    rp_error err = {0};
    (void)state;
    assert_int_equal(backend_find(&row, "mock", &mock, &err), RP_OK);
    assert_string_equal(row->name, "mock");
    assert_int_equal(backend_find(&row, "cp", &real, &err), RP_ERR_NAME);
    assert_string_equal(err.message, "there is no device 'cp': give auto, one of vulkan, cpu, mock, or vulkan:N");
    assert_null(row);
}

static void reasons_are_given(void **state) {
    const backend_options options = {.n_threads = 1, .max_rows = 1};
    const backend_row *row;
    backend *b;
    rp_error err = {0};
    (void)state;
    assert_int_equal(backend_find(&row, "cpu", &mock, &err), RP_ERR_UNSUPPORTED);
    assert_string_equal(err.message,
                        "device 'cpu' is unavailable: the model was opened with mock, and has no weights");
    assert_int_equal(backend_open(&b, "mock", &real, &options, &err), RP_ERR_UNSUPPORTED);
    assert_string_equal(err.message,
                        "device 'mock' is unavailable: the model has weights: it is for models opened with mock");
    assert_null(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_can_is_chosen),
        cmocka_unit_test(names_are_exact),
        cmocka_unit_test(reasons_are_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
