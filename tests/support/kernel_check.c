/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_check.c: the frame of the kernel tests (kernel_check.h). */
#define _POSIX_C_SOURCE 200809L /* sigsetjmp */
#include "support/kernel_check.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__has_include)
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#endif
#endif

#include "base/compiler.h"
#include "base/cpu.h"
#include "base/file.h"
#include "support/kernel_emulated.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#if !defined(ASAN_POISON_MEMORY_REGION)
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#define GUARD 128
#define MAX_PRINTED 8

typedef struct check_options {
    uint64_t seed;
    const char *function; /* NULL: all */
    const char *cpu;      /* NULL: all */
    bool bench;
} check_options;

static struct {
    tiny_random random;
    kernel_table reference, lowest;
    const char *subject, *variant;
    int failures; /* of the running subject */
} state;

const kernel_table *check_reference(void) { return &state.reference; }
const kernel_table *check_lowest_level(void) { return state.lowest.name ? &state.lowest : NULL; }

bool check_that(bool ok, const char *fmt, ...) {
    if (ok) return true;
    if (state.failures++ < MAX_PRINTED) {
        va_list args;
        va_start(args, fmt);
        printf("    %s %s: ", state.subject, state.variant);
        vprintf(fmt, args);
        printf("\n");
        va_end(args);
    }
    return false;
}

bool check_near(double got, double want, double bound, const char *what, int64_t index) {
    return check_that(fabs(got - want) <= bound, "%s [%lld]: %.9g, expected %.9g within %.3g", what, (long long)index,
                      got, want, bound);
}

bool check_same_bytes(const void *a, const void *b, size_t bytes, const char *what) {
    const uint8_t *x = a, *y = b;
    size_t i = 0;
    while (i < bytes && x[i] == y[i]) i++;
    return check_that(i == bytes, "%s: byte %zu of %zu differs", what, i, bytes);
}

uint64_t check_random(void) { return tiny_random_u64(&state.random); }

int64_t check_random_in(int64_t low, int64_t high) {
    return low + (int64_t)tiny_random_below(&state.random, (uint64_t)(high - low + 1));
}

float check_float(check_kind kind) {
    const float x = tiny_random_normal(&state.random);
    switch (kind) {
    case CHECK_ZERO: return x < 0 ? -0.0f : 0.0f;
    case CHECK_SUBNORMAL: return x * 1e-39f;
    case CHECK_HUGE: return x * 1e16f;
    case CHECK_MIXED: return check_float((check_kind)check_random_in(CHECK_NORMAL, CHECK_HUGE));
    default: return x;
    }
}

void check_fill(float *x, int64_t n, check_kind kind) {
    for (int64_t i = 0; i < n; i++) x[i] = check_float(kind);
}

/* ---- guarded memory: [base, bytes] header, guard, data, guard
   ------------------------------------------------------- */

typedef struct watchdog_header {
    void *base;
    size_t bytes;
} watchdog_header;

static const uint8_t *watchdog_before(const void *p) { return (const uint8_t *)p - GUARD; }

void *check_alloc(size_t bytes, size_t offset) {
    uint8_t *base = malloc(sizeof(watchdog_header) + 64 + offset + 2 * GUARD + bytes);
    if (base == NULL) abort();
    const uintptr_t data = ((uintptr_t)(base + sizeof(watchdog_header) + GUARD) + 63) / 64 * 64 + offset;
    uint8_t *p = base + (data - (uintptr_t)base);
    const watchdog_header header = {base, bytes};
    memcpy(p - GUARD - sizeof header, &header, sizeof header);
    memset(p - GUARD, 0xff, 2 * GUARD + bytes);
    ASAN_POISON_MEMORY_REGION(p - GUARD, GUARD); /* to detect reads from there */
    ASAN_POISON_MEMORY_REGION(p + bytes, GUARD);
    return p;
}

void check_release(void *p) {
    watchdog_header header;
    memcpy(&header, watchdog_before(p) - sizeof header, sizeof header);
    const uint8_t *after = (const uint8_t *)p + header.bytes;
    ASAN_UNPOISON_MEMORY_REGION(watchdog_before(p), GUARD);
    ASAN_UNPOISON_MEMORY_REGION(after, GUARD);
    bool intact = true;
    for (int i = 0; i < GUARD; i++) intact = intact && watchdog_before(p)[i] == 0xff && after[i] == 0xff;
    check_that(intact, "wrote outside a buffer of %zu bytes", header.bytes);
    free(header.base);
}

/* ---- timing
   --------------------------------------------------------------------------------------------------------- */

static double time_once(void (*fn)(void *), void *arg, int64_t calls) {
    const uint64_t begin = base_clock_us();
    for (int64_t i = 0; i < calls; i++) fn(arg);
    return (double)(base_clock_us() - begin) * 1e-6 / (double)calls;
}

static int compare_double(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void check_time(const char *label, void (*fn)(void *), void *arg, double bytes, double operations) {
    double seconds[5];
    int64_t calls = 1;
    while (time_once(fn, arg, calls) * (double)calls < 0.05) calls *= 2;
    for (int i = 0; i < 5; i++) seconds[i] = time_once(fn, arg, calls);
    qsort(seconds, 5, sizeof seconds[0], compare_double);
    printf("%-20s %-8s %-22s %10.2f us %8.2f GB/s %8.2f Gop/s\n", state.subject, state.variant, label, seconds[2] * 1e6,
           bytes / seconds[2] * 1e-9, operations / seconds[2] * 1e-9);
}

/* ---- crashes: a failure of the running subject, after which the next one runs
   ---------------------------------------- */

static sigjmp_buf before_check;
static volatile sig_atomic_t is_checking;

static void on_crash(int signal_number) {
    if (is_checking) siglongjmp(before_check, signal_number);
    signal(signal_number, SIG_DFL); /* not our doing: the instruction runs again and ends the program */
}

static void catch_crashes(void) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    struct sigaction action = {.sa_handler = on_crash};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < BASE_ARRAY_LEN(signals); i++) sigaction(signals[i], &action, NULL);
}

static void check_without_crash(const check_subject *s, const kernel_table *t) {
    const int signal_number = sigsetjmp(before_check, 1);
    if (signal_number == 0) {
        is_checking = 1;
        s->check(t, s->arg);
    }
    is_checking = 0;
    check_that(signal_number == 0, "crashed by signal %d", signal_number);
}

/* ---- main
   ----------------------------------------------------------------------------------------------------------- */

static int usage(const char *program) {
    fprintf(stderr, "usage: %s [--seed N] [--function NAME] [--cpu LEVEL] [--bench]\nlevels:", program);
#define X(NAME, name) " " #name
    fprintf(stderr, "%s\n", BASE_CPU_LEVELS(X));
#undef X
    return 2;
}

static bool parse(int argc, char **argv, check_options *o) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0) {
            o->bench = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            o->seed = strtoull(argv[++i], NULL, 0);
        } else if (i + 1 < argc && strcmp(argv[i], "--function") == 0) {
            o->function = argv[++i];
        } else if (i + 1 < argc && strcmp(argv[i], "--cpu") == 0) {
            o->cpu = argv[++i];
        } else {
            return false;
        }
    }
    return true;
}

/* The inputs of a subject depend only on the seed: --function repeats the inputs of a full run. */
static bool run_subject(const check_options *o, const check_subject *s, const kernel_table *t) {
    state.random.state = o->seed;
    state.subject = s->name;
    state.variant = t->name;
    state.failures = 0;
    if (o->bench) {
        if (s->bench) s->bench(t, s->arg);
        return true;
    }
    check_without_crash(s, t);
    printf("%-4s %s %s\n", state.failures ? "FAIL" : "ok", s->name, t->name);
    return state.failures == 0;
}

/* The machine's levels up to REPRISE_CPU; the others emulated, except for timing or if REPRISE_CPU is set. */
static bool find_table(const check_options *o, base_cpu_level level, base_cpu_level highest, kernel_table *t) {
    if (!base_cpu_has(level)) return !o->bench && getenv("REPRISE_CPU") == NULL && kernel_emulated(level, t);
    if (level <= highest) kernel_table_init(t, level);
    return level <= highest;
}

int check_main(int argc, char **argv, const check_subject *subjects, size_t n_subjects) {
    check_options o = {.seed = test_seed("kernel", 20261123)};
    base_cpu_level highest;
    rp_error err = {0};
    int counts[2] = {0, 0};
    if (!parse(argc, argv, &o)) return usage(argv[0]);
    if (base_cpu_detect(&highest, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    catch_crashes();
    kernel_table_init(&state.reference, BASE_CPU_GENERIC);
    if (BASE_CPU_GENERIC + 1 < BASE_CPU_LEVEL_COUNT && base_cpu_has((base_cpu_level)(BASE_CPU_GENERIC + 1)))
        kernel_table_init(&state.lowest, (base_cpu_level)(BASE_CPU_GENERIC + 1));
    for (size_t i = 0; i < n_subjects; i++) {
        if (o.function && strcmp(o.function, subjects[i].name) != 0) continue;
        for (int level = BASE_CPU_GENERIC; level < BASE_CPU_LEVEL_COUNT; level++) {
            kernel_table t;
            if (!find_table(&o, (base_cpu_level)level, highest, &t)) continue;
            if (o.cpu && strncmp(o.cpu, t.name, strcspn(t.name, "-")) != 0) continue; /* also "avx512-emulated" */
            counts[run_subject(&o, &subjects[i], &t)]++;
        }
    }
    printf("%d passed, %d failed\n", counts[1], counts[0]);
    return counts[0] || counts[1] == 0 ? 1 : 0;
}
