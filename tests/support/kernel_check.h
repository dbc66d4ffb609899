/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_check.h: a program that checks every variant of the kernels against their expected results, and times them.
 *
 *   test_kernel_... [--seed N] [--function NAME] [--cpu LEVEL] [--bench]     (levels: base/cpu.h)
 *
 * A subject is one entry of kernel_table. For each variant of the machine (and some emulated ones: kernel_emulated.h)
 * its check runs once on seeded random, odd-sized, misaligned and extreme inputs and reports differences with
 * check_that. Results that differ between variants by rounding are compared with a double-precision result under a
 * bound that the check derives; all others are compared as bytes. A crash is a failure of its subject. Single-threaded.
 * The last line is "N passed, N failed"; the exit status is 0 only if none failed.
 */
#ifndef SUPPORT_KERNEL_CHECK_H
#define SUPPORT_KERNEL_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

#define CHECK_UNIT 0x1p-24 /* half a unit in the last place of a float, relative */

typedef struct check_subject {
    const char *name;
    int arg; /* free for the functions below, for example a kernel_type */
    void (*check)(const kernel_table *t, int arg);
    void (*bench)(const kernel_table *t, int arg); /* or NULL */
} check_subject;

int check_main(int argc, char **argv, const check_subject *subjects, size_t n_subjects);

/* The implementation in plain C; and that of the lowest level above it, or NULL if the machine has none. */
const kernel_table *check_reference(void);
const kernel_table *check_lowest_level(void);

/* Records a failure of the running subject unless `ok`; the first few are printed. Returns ok. */
bool check_that(bool ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* |got - want| <= bound, where a NaN is never near. */
bool check_near(double got, double want, double bound, const char *what, int64_t index);
bool check_same_bytes(const void *a, const void *b, size_t bytes, const char *what);

/* ---- random inputs
   ------------------------------------------------------------------------------------------------ */
uint64_t check_random(void);
int64_t check_random_in(int64_t low, int64_t high); /* both included */

/* The kinds of input, used in turn. */
typedef enum check_kind { CHECK_NORMAL,
                          CHECK_ZERO,
                          CHECK_SUBNORMAL,
                          CHECK_HUGE,
                          CHECK_MIXED,
                          CHECK_KINDS } check_kind;
float check_float(check_kind kind);
void check_fill(float *x, int64_t n, check_kind kind);

/* ---- guarded memory ------------------------------------------------------------------------------------------------
 * `bytes` bytes at an address that is a multiple of 64 plus `offset`, between two guards of 0xff bytes (NaNs in every
 * float format: a read of a guard is visible in the result, and AddressSanitizer reports it). check_release reports a
 * guard that has changed. */
void *check_alloc(size_t bytes, size_t offset);
void check_release(void *p);

/* ---- timing
   ------------------------------------------------------------------------------------------------------- */
/* Runs fn for 0.05 s, five times; prints the median with the rates that the bytes
 * read and the operations of one call give. */
void check_time(const char *label, void (*fn)(void *), void *arg, double bytes, double operations);

#endif
