/* SPDX-License-Identifier: Apache-2.0 */
/* seed.h: the seed and the number of rounds of a random test.
 *
 * Every random test draws from one seed. `make test` uses the fixed seed in the test's source, for the same result
 * everywhere; `make test-random` sets REPRISE_TEST_SEED to a new one. The printed seed reproduces a failure.
 *
 * Sanitizers' builds run REPRISE_TEST_ROUNDS=1 (CMakePresets.json): what a test repeats with other inputs, to
 * compare results, has been compared by `make test`. They look for what no result shows: a test's first round has to
 * take each of its paths once (each kind of prompt, each format, each number of threads), its further rounds other
 * pairs of them. */
#ifndef SUPPORT_SEED_H
#define SUPPORT_SEED_H

#include <stdbool.h>
#include <stdint.h>

/* REPRISE_TEST_SEED, or `fixed`. Prints it with the name of the test. */
uint64_t test_seed(const char *test, uint64_t fixed);
/* REPRISE_TEST_ROUNDS, or `otherwise`. */
int test_rounds(int otherwise);
/* Was it built with ThreadSanitizer? */
bool test_has_tsan(void);

#endif
