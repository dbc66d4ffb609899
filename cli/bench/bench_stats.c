/* SPDX-License-Identifier: Apache-2.0 */
/* bench_stats.c: see bench_stats.h. Owns nothing. */
#include "bench/bench_stats.h"

#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

#include "common/json_out.h"

#define LEAST_MS 1e-3
#define BUCKET_RATIO 1.01

/* ---- times ---- */

static int bench_stats_bucket_of(double ms) {
    if (!(ms > LEAST_MS)) return 0;
    double i = log(ms / LEAST_MS) / log(BUCKET_RATIO);
    return i < BENCH_BUCKETS - 1 ? (int)i : BENCH_BUCKETS - 1;
}

void bench_histogram_add(bench_histogram *h, double ms) {
    h->n++;
    h->sum_ms += ms;
    if (ms > h->max_ms) h->max_ms = ms;
    h->buckets[bench_stats_bucket_of(ms)]++;
}

double bench_histogram_at(const bench_histogram *h, double share) {
    uint64_t rank = (uint64_t)ceil(share * (double)h->n), seen = 0;
    if (h->n == 0) return 0;
    for (int i = 0; i < BENCH_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen >= rank && seen > 0) return fmin(LEAST_MS * pow(BUCKET_RATIO, i + 0.5), h->max_ms);
    }
    return h->max_ms;
}

json_t *bench_histogram_object(const bench_histogram *h) {
    static const struct {
        const char *name;
        double share;
    } shares[] = {{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}};
    json_t *o = json_object();
    cli_json_set(o, "n", json_integer((json_int_t)h->n));
    cli_json_set(o, "mean", cli_json_real(h->n > 0 ? h->sum_ms / (double)h->n : 0));
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        cli_json_set(o, shares[i].name, cli_json_real(bench_histogram_at(h, shares[i].share)));
    cli_json_set(o, "max", cli_json_real(h->max_ms));
    return o;
}

static void print_ms(double ms) { printf(" %8.*f", ms < 10 ? 2 : 1, ms); }

void bench_histogram_print(const bench_histogram *h, const double shares[3]) {
    for (int i = 0; i < 3; i++) h->n > 0 ? print_ms(bench_histogram_at(h, shares[i])) : (void)printf(" %8s", "-");
    h->n > 0 ? print_ms(h->max_ms) : (void)printf(" %8s", "-");
}

/* ---- random numbers ---- */

uint64_t bench_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint32_t bench_random_below(uint64_t *state, uint32_t n) { return (uint32_t)((bench_random(state) >> 32) * n >> 32); }

double bench_random_real(uint64_t *state) {
    return (double)(bench_random(state) >> 11) / 9007199254740992.0; /* 2^53 */
}

int32_t bench_random_around(uint64_t *state, int32_t n) {
    int32_t v = n / 2 + (int32_t)bench_random_below(state, (uint32_t)n + 1);
    return v > 0 ? v : 1;
}

double bench_random_gap_ms(uint64_t *state, double rate) { return -log(1 - bench_random_real(state)) / rate * 1e3; }

uint64_t bench_random_stream(uint64_t seed, uint64_t stream) {
    uint64_t state = seed ^ bench_random(&stream);
    return bench_random(&state);
}

/* ---- memory ---- */

bench_process bench_process_now(void) {
    bench_process p = {0};
    char line[256];
    unsigned long long kib;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "VmHWM: %llu", &kib) == 1) p.peak_bytes = kib * 1024;
        if (sscanf(line, "VmRSS: %llu", &kib) == 1) p.resident_bytes = kib * 1024;
        if (sscanf(line, "RssAnon: %llu", &kib) == 1) p.own_bytes = kib * 1024;
    }
    if (f != NULL) fclose(f);
    struct rusage usage = {0};
    if (p.peak_bytes == 0 && getrusage(RUSAGE_SELF, &usage) == 0) p.peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
    return p;
}
