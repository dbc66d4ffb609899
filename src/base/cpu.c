/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c: what the processor can do. Owns nothing and keeps nothing: every call asks again. Thread-safe as long as
 * nobody changes the environment.
 */
#define _GNU_SOURCE /* sched_getaffinity: the processors of this process, not of the machine */

#include "base/check.h"
#include "base/cpu.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/error.h"

static const char *const names[] = {
#define X(NAME, name) [BASE_CPU_##NAME] = #name,
    BASE_CPU_LEVELS(X)
#undef X
};

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

/* Bits of cpuid (Intel SDM, volume 2A, CPUID). */
#define LEAF1_C_FMA (1u << 12)
#define LEAF1_C_OSXSAVE (1u << 27)
#define LEAF1_C_AVX (1u << 28)
#define LEAF1_C_F16C (1u << 29)
#define LEAF7_B_AVX2 (1u << 5)
#define LEAF7_B_AVX512 (1u << 16 | 1u << 17 | 1u << 30 | 1u << 31) /* F, DQ, BW, VL */
#define LEAF7_C_AVX512_VNNI (1u << 11)
#define LEAF7_D_AMX (1u << 24 | 1u << 25) /* TILE, INT8 */
#define LEAF7_1_A_AVX_VNNI (1u << 4)
#define XCR0_SSE_AVX 0x06u
#define XCR0_AVX512 0xe0u /* mask registers, upper halves of 0 to 15, all of 16 to 31 */

#define XCR0_AMX 0x60000u /* configuration and data of tiles */

/* Linux allocates the 8 KiB of a thread's tiles only if the process asks (Documentation/arch/x86/xstate.rst). */
static bool may_use_tiles(void) {
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023,
           XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

static bool has_all(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

bool base_cpu_has(base_cpu_level level) {
    unsigned a, b, c, d, leaf7_b, leaf7_c, leaf7_d;
    if (level == BASE_CPU_GENERIC) return true;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
    if (!has_all(c, LEAF1_C_FMA | LEAF1_C_OSXSAVE | LEAF1_C_AVX | LEAF1_C_F16C)) return false;
    const unsigned saved = base_x86_xcr0();
    if (!has_all(saved, XCR0_SSE_AVX)) return false;
    if (!__get_cpuid_count(7, 0, &a, &leaf7_b, &leaf7_c, &leaf7_d) || !has_all(leaf7_b, LEAF7_B_AVX2)) return false;
    const bool has_avx512 =
        has_all(leaf7_b, LEAF7_B_AVX512) && has_all(leaf7_c, LEAF7_C_AVX512_VNNI) && has_all(saved, XCR0_AVX512);
    switch (level) {
    case BASE_CPU_AVX2: return true;
    case BASE_CPU_AVXVNNI: return a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && has_all(a, LEAF7_1_A_AVX_VNNI);
    case BASE_CPU_AVX512: return has_avx512;
    case BASE_CPU_AMX:
        return has_avx512 && has_all(leaf7_d, LEAF7_D_AMX) && has_all(saved, XCR0_AMX) && may_use_tiles();
    default: return false;
    }
}
#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>

/* Bits of the kernel's lists (Linux, arch/arm64/include/uapi/asm/hwcap.h). */
#define CAN_SDOT (getauxval(AT_HWCAP) >> 20 & 1)
#define CAN_SMMLA (getauxval(AT_HWCAP2) >> 13 & 1)
#else /* no way to ask the system: the target of the compiler */
#if defined(__ARM_FEATURE_DOTPROD)
#define CAN_SDOT 1
#else
#define CAN_SDOT 0
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8)
#define CAN_SMMLA 1
#else
#define CAN_SMMLA 0
#endif
#endif

bool base_cpu_has(base_cpu_level level) {
    switch (level) {
    case BASE_CPU_GENERIC:
    case BASE_CPU_NEON: return true;
    case BASE_CPU_DOTPROD: return CAN_SDOT;
    case BASE_CPU_I8MM: return CAN_SDOT && CAN_SMMLA;
    default: return false;
    }
}
#else
bool base_cpu_has(base_cpu_level level) { return level == BASE_CPU_GENERIC; }
#endif

int base_cpu_detect(base_cpu_level *out, rp_error *err) {
    int level = BASE_CPU_LEVEL_COUNT - 1;
    const char *mask = getenv("REPRISE_CPU");
    if (mask && *mask) {
        while (level >= 0 && strcmp(names[level], mask) != 0) level--;
        if (level < 0) {
#define X(NAME, name) " " #name
            return base_fail(err, RP_ERR_INVALID, "REPRISE_CPU: '%s' is not an instruction-set level of this "
                                                  "architecture: unset it, or give one of:%s",
                             mask, BASE_CPU_LEVELS(X));
#undef X
        }
    }
    while (!base_cpu_has((base_cpu_level)level)) level--;
    BASE_ASSERT(level >= 0); /* every processor has the generic level */
    *out = (base_cpu_level)level;
    return 0;
}

const char *base_cpu_name(base_cpu_level level) {
    return (size_t)level < BASE_ARRAY_LEN(names) ? names[level] : "unknown";
}

uint64_t base_cpu_memory(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : 0;
}

int base_cpu_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* more processors than cpu_set_t holds */
    return n > 0 ? (int)n : 1;
}
