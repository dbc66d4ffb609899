/* SPDX-License-Identifier: Apache-2.0 */
/* texts.c: texts with a given number of tokens, errors, times. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support.h"

const char *bench_name = "bench";

void bench_die(const char *what, const rp_error *err) {
    fprintf(stderr, "%s: %s%s%s\n", bench_name, what, err ? ": " : "", err ? err->message : "");
    exit(1);
}

double bench_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, size_t n) {
    qsort(values, n, sizeof(double), compare_double);
    return values[n / 2];
}

void bench_text_add(bench_text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int more = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (t->n + (size_t)more + 1 > t->cap) {
        t->cap = 2 * (t->n + (size_t)more + 1);
        t->bytes = realloc(t->bytes, t->cap);
        if (!t->bytes) bench_die("out of memory", NULL);
    }
    va_start(args, format);
    t->n += (size_t)vsnprintf(t->bytes + t->n, t->cap - t->n, format, args);
    va_end(args);
}

void bench_text_free(bench_text *t) {
    free(t->bytes);
    *t = (bench_text){0};
}

size_t bench_count_tokens(const rp_model *m, const char *text) {
    rp_error err;
    int32_t *tokens;
    size_t n;
    if (rp_tokenize(m, text, strlen(text), false, false, &tokens, &n, &err)) bench_die("tokenize", &err);
    rp_free(tokens);
    return n;
}

void bench_text_add_words(bench_text *t, const rp_model *m, size_t n, unsigned *seed) {
    static const char *const words[] = {" river", " stone", " of", " the", " north",
                                        " is", " a", " lantern", " quiet", " seven"};
    size_t start = t->n;
    for (size_t have = 0; have < n; have = bench_count_tokens(m, t->bytes + start)) {
        int count = n - have > 100 ? 8 : 1;
        for (int i = 0; i < count; i++) {
            *seed = *seed * 1664525u + 1013904223u;
            unsigned random = *seed >> 16;
            if (n - have < 10) bench_text_add(t, "%c", "kxqz"[random % 4]);
            else bench_text_add(t, "%s", words[random % 10]);
        }
    }
}
