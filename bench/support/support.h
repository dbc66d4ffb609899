/* SPDX-License-Identifier: Apache-2.0 */
/* support.h: what the benchmarks share: texts of a wanted number of tokens, medians, files, and what the machine can do at best.
 *
 * One thread may call these; read_bandwidth, multiply_peak and files_read_gbs start and join threads of their own.
 */
#ifndef BENCH_SUPPORT_H
#define BENCH_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reprise.h"

#define BENCH_MAX_THREADS 64

/* Where errors go: "NAME: what: message" to standard error, then exit status 1. err may be NULL. */
void bench_die(const char *what, const rp_error *err);
extern const char *bench_name; /* the program's, set by its main */

double bench_now_s(void);
double bench_median(double *values, size_t n); /* sorts them; n > 0 */

/* ---- texts ---- */

/* A growing text. Zeroed: empty. Freed with bench_text_free. */
typedef struct bench_text {
    char *bytes; /* NUL-terminated */
    size_t n, cap;
} bench_text;

void bench_text_add(bench_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bench_text_free(bench_text *t);

/* Appends words, then letters, until what was appended has at least n tokens: with most vocabularies exactly n. The same seed gives
 * the same text; it is moved on. */
void bench_text_add_words(bench_text *t, const rp_model *m, size_t n, unsigned *seed);

size_t bench_count_tokens(const rp_model *m, const char *text);

/* ---- what the machine can do ---- */

/* GB/s that n_threads threads read together from 512 MiB: the best of a few passes. */
double bench_read_bandwidth(int n_threads);

typedef enum bench_product {
    BENCH_INT8, /* 8-bit products, exact sums of 32 bits: on AVX2 maddubs, madd, add */
    BENCH_F32   /* multiply and add of f32: on AVX2 FMA */
} bench_product;

/* Gop/s (a product and its sum are two) that n_threads threads reach on registers, nothing read: the best of a few passes. */
double bench_multiply_peak(bench_product kind, int n_threads);

/* ---- disk.c: the records of a store as files ---- */

typedef struct bench_files {
    char **paths;
    uint64_t *sizes, bytes; /* bytes: of all */
    size_t n;
} bench_files;

bench_files bench_files_of(const char *dir); /* freed with bench_files_free */
void bench_files_free(bench_files *f);
/* The system drops what it holds of them in memory. Returns how many bytes it holds all the same (mincore). */
uint64_t bench_files_forget(const bench_files *f);
/* GB/s that n_threads threads read them with, in pieces of so many bytes, the first piece of each file first. What the system holds of them
 * in memory comes from there. */
double bench_files_read_gbs(const bench_files *f, int n_threads, size_t piece_bytes);
/* Removes a folder with all that is in it. */
void bench_folder_remove(const char *dir);

/* ---- limits_avx2.c; what limits.c does where the processor has AVX2 and FMA ---- */

uint64_t bench_sum_avx2(const uint64_t *data, size_t n); /* n: a multiple of 32 */
uint64_t bench_products_int8_avx2(long rounds);          /* operations done; so below */
uint64_t bench_products_f32_avx2(long rounds);

#endif
