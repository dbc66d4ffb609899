/* SPDX-License-Identifier: Apache-2.0 */
/* test_schema_registry.c: uploaded schemas and the times of their changes: digests say whether two registries have the
 * same, in whatever order they came; removals are remembered, the latest ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "server/models/schema_registry.h"

static schema_registry *registry_new(void) {
    schema_registry *s;
    rp_error err;
    assert_int_equal(schema_registry_new(&s, &err), RP_OK);
    return s;
}

static void put(schema_registry *s, const char *tenant, const char *name, uint64_t changed) {
    const schema_entry e = {tenant, name, "<schema/>", 9, changed};
    assert_int_equal(schema_registry_put(s, &e), RP_OK);
}

static void times(void **state) {
    schema_registry *s = registry_new();
    (void)state;
    assert_true(schema_registry_digest(s) == 0 && schema_registry_changed(s, NULL, "a") == 0);
    put(s, NULL, "a", 5);
    put(s, "t", "a", 6);
    assert_true(schema_registry_changed(s, NULL, "a") == 5 && schema_registry_changed(s, "t", "a") == 6 &&
                schema_registry_changed(s, "u", "a") == 0);
    assert_true(schema_registry_remove(s, NULL, "a", 7, false));
    assert_int_equal(schema_registry_changed(s, NULL, "a"), 7);
    assert_false(schema_registry_remove(s, NULL, "a", 8, false)); /* it was not there */
    assert_int_equal(schema_registry_changed(s, NULL, "a"), 7);
    assert_false(schema_registry_remove(s, NULL, "a", 8, true));
    assert_int_equal(schema_registry_changed(s, NULL, "a"), 8);
    put(s, NULL, "a", 9);
    assert_int_equal(schema_registry_changed(s, NULL, "a"), 9);
    assert_true(schema_registry_remove(s, NULL, "a", 0, true)); /* as if it had never been there */
    assert_int_equal(schema_registry_changed(s, NULL, "a"), 0);
    assert_true(schema_registry_remove(s, "t", "a", 10, false));
    assert_int_equal(schema_registry_digest(s), 0);
    schema_registry_free(s);
}

typedef struct listed {
    int there, removed;
} listed;

static void count(void *user, const schema_entry *e) {
    listed *l = user;
    *(e->text ? &l->there : &l->removed) += 1;
}

static void digests(void **state) {
    schema_registry *s = registry_new(), *t = registry_new();
    uint64_t random = 3;
    (void)state;
    for (int i = 0; i < 500; i++) { /* the same set, by other ways */
        char name[16];
        snprintf(name, sizeof(name), "s%d", i);
        put(s, i % 3 ? "t" : NULL, name, 100 + (uint64_t)i);
    }
    for (int i = 499; i >= 0; i--) {
        char name[16];
        const char *tenant = i % 3 ? "t" : NULL;
        snprintf(name, sizeof(name), "s%d", i);
        if (base_random_next(&random) & 1) put(t, tenant, name, 7);
        if (base_random_next(&random) & 1) schema_registry_remove(t, tenant, name, 8, true);
        put(t, tenant, name, 100 + (uint64_t)i);
    }
    assert_true(schema_registry_digest(s) == schema_registry_digest(t) && schema_registry_digest(s) != 0);
    put(t, "t", "s1", 900); /* another time, another tenant, one less */
    assert_true(schema_registry_digest(s) != schema_registry_digest(t));
    put(t, "t", "s1", 101);
    assert_true(schema_registry_digest(s) == schema_registry_digest(t));
    schema_registry_remove(t, "t", "s1", 901, false);
    put(t, "u", "s1", 101);
    assert_true(schema_registry_digest(s) != schema_registry_digest(t));
    schema_registry_free(s);
    schema_registry_free(t);
}

static void removals_are_bounded(void **state) {
    schema_registry *s = registry_new();
    listed l = {0};
    (void)state;
    for (int i = 0; i < SERVER_MAX_REGISTRY + 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s%d", i);
        schema_registry_remove(s, "t", name, 1000 + (uint64_t)i, true);
    }
    put(s, "t", "s200", 5);
    schema_registry_visit(s, count, &l);
    assert_true(l.there == 1 && l.removed == SERVER_MAX_REGISTRY - 1);
    assert_int_equal(schema_registry_changed(s, "t", "s99"), 0); /* the oldest ones are forgotten */
    assert_int_equal(schema_registry_changed(s, "t", "s100"), 1100);
    schema_registry_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(times), cmocka_unit_test(digests),
                                       cmocka_unit_test(removals_are_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
