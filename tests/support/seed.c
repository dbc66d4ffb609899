/* SPDX-License-Identifier: Apache-2.0 */
/* seed.c: see seed.h. */
#include "seed.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t number_from_environment(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

uint64_t test_seed(const char *test, uint64_t fixed) {
    uint64_t seed = number_from_environment("REPRISE_TEST_SEED", fixed);
    printf("%s: REPRISE_TEST_SEED=%llu\n", test, (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

int test_rounds(int otherwise) { return (int)number_from_environment("REPRISE_TEST_ROUNDS", (uint64_t)otherwise); }

bool test_has_tsan(void) {
#if defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
    return __has_feature(thread_sanitizer);
#else
    return false;
#endif
}
