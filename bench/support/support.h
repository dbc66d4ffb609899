/* SPDX-License-Identifier: Apache-2.0 */
/* support.h: shared by the benchmarks: texts with a given number of tokens, medians, files, and the machine's limits.
 *
 * Not thread-safe: one thread calls them; read_bandwidth, multiply_peak and files_read_gbs start and join threads of
 * their own.
 */
#ifndef BENCH_SUPPORT_H
#define BENCH_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reprise.h"

#define BENCH_MAX_THREADS 64

/* Prints "NAME: what: message" on standard error and exits with status 1. err may be NULL. */
void bench_die(const char *what, const rp_error *err);
extern const char *bench_name; /* the program's name, set by its main */

double bench_now_s(void);
double bench_median(double *values, size_t n); /* sorts them; n > 0 */

/* ---- texts ---- */

/* A growing text. Zero-initialise: empty. Free with bench_text_free. */
typedef struct bench_text {
    char *bytes; /* NUL-terminated */
    size_t n, cap;
} bench_text;

void bench_text_add(bench_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bench_text_free(bench_text *t);

/* Appends words, then letters, until the appended text has at least n tokens: with most vocabularies exactly n. The
 * same seed gives the same text; *seed advances. */
void bench_text_add_words(bench_text *t, const rp_model *m, size_t n, unsigned *seed);

size_t bench_count_tokens(const rp_model *m, const char *text);

/* ---- options ---- */

/* What follows `name` among the arguments after the first; else fallback. */
const char *bench_text_after(int argc, char **argv, const char *name, const char *fallback);
int bench_number_after(int argc, char **argv, const char *name, int fallback);
bool bench_has_flag(int argc, char **argv, const char *name); /* among these arguments */

extern const char *const bench_kv_formats[RP_N_KV_FORMATS]; /* by rp_kv_format */
/* The format named by n bytes; false: none. */
bool bench_kv_format_parse(const char *name, size_t n, rp_kv_format *out);

/* ---- limits of the machine ---- */

/* GB/s at which n_threads threads together read 512 MiB: the best of a few passes. */
double bench_read_bandwidth(int n_threads);

typedef enum bench_product {
    BENCH_INT8,  /* 8-bit products, exact sums of 32 bits: VPDPBUSD, on AVX2 maddubs, madd, add */
    BENCH_INT16, /* 16-bit products, exact sums of 32 bits: VPDPWSSD, on AVX2 madd, add */
    BENCH_F32,   /* multiply and add of f32: FMA */
    BENCH_N_PRODUCTS
} bench_product;

/* Gop/s (a product and its sum are two) of n_threads threads on registers, without loads, with the machine's highest
 * instruction-set level: the best of a few passes. */
double bench_multiply_peak(bench_product kind, int n_threads);

/* ---- devices.c ---- */

/* An engine on o->device, which is to have memory for kv_bytes of KV and for what else the engine needs there. */
rp_engine *bench_open_small_device(rp_model *m, const rp_engine_options *o, uint64_t kv_bytes);
/* Tokens of a result that came from a tier: "device", "ram", "disk". */
int32_t bench_tokens_of_tier(const rp_result *r, const char *tier);

/* ---- disk.c: the records of a store as files ---- */

typedef struct bench_files {
    char **paths;
    uint64_t *sizes, bytes; /* bytes: total */
    size_t n;
} bench_files;

bench_files bench_files_of(const char *dir); /* freed with bench_files_free */
void bench_files_free(bench_files *f);
/* Removes them from the page cache. Returns the bytes that remain in it (mincore). */
uint64_t bench_files_forget(const bench_files *f);
/* GB/s at which n_threads threads read them, in pieces of piece_bytes, the first piece of each file first. Cached pages
 * are read from memory. */
double bench_files_read_gbs(const bench_files *f, int n_threads, size_t piece_bytes);
/* Removes a folder and its content. */
void bench_folder_remove(const char *dir);

#endif
