/* cpu.c: what the processor can do. Owns nothing and keeps nothing: every call asks again. Thread-safe as long as
 * nobody changes the environment.
 */
#define _GNU_SOURCE /* sched_getaffinity: the processors of this process, not of the machine */

#include "base/cpu.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/error.h"

static const char *const names[] = {[BASE_CPU_GENERIC] = "generic", [BASE_CPU_AVX2] = "avx2"};

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>

/* cpuid leaf 1, register c, and leaf 7.0, register b (Intel SDM, volume 2A, CPUID). */
#define LEAF1_C_FMA (1u << 12)
#define LEAF1_C_OSXSAVE (1u << 27)
#define LEAF1_C_AVX (1u << 28)
#define LEAF1_C_F16C (1u << 29)
#define LEAF7_B_AVX2 (1u << 5)
#define XCR0_SSE_AVX 6u

static base_cpu_level machine_level(void) {
    const unsigned want = LEAF1_C_FMA | LEAF1_C_OSXSAVE | LEAF1_C_AVX | LEAF1_C_F16C;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & want) != want) return BASE_CPU_GENERIC;
    if ((base_x86_xcr0() & XCR0_SSE_AVX) != XCR0_SSE_AVX) return BASE_CPU_GENERIC;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & LEAF7_B_AVX2)) return BASE_CPU_GENERIC;
    return BASE_CPU_AVX2;
}
#else
static base_cpu_level machine_level(void) { return BASE_CPU_GENERIC; }
#endif

int base_cpu_detect(base_cpu_level *out, rp_error *err) {
    base_cpu_level level = machine_level();
    const char *mask = getenv("REPRISE_CPU");
    if (mask && *mask) {
        size_t i = 0;
        while (i < BASE_ARRAY_LEN(names) && strcmp(names[i], mask) != 0) i++;
        if (i == BASE_ARRAY_LEN(names))
            return base_fail(err, RP_ERR_INVALID, "REPRISE_CPU: '%s' is not a level; set it to generic or avx2, or unset it",
                             mask);
        level = BASE_MIN(level, (base_cpu_level)i);
    }
    *out = level;
    return 0;
}

const char *base_cpu_name(base_cpu_level level) {
    return (size_t)level < BASE_ARRAY_LEN(names) ? names[level] : "unknown";
}

int base_cpu_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* more processors than cpu_set_t holds */
    return n > 0 ? (int)n : 1;
}
