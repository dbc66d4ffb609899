/* SPDX-License-Identifier: Apache-2.0 */
/* compiler.h: the one place for GNU extensions. Everything here has a plain C17 fallback. */
#ifndef BASE_COMPILER_H
#define BASE_COMPILER_H

#if defined(__GNUC__) || defined(__clang__)
#define BASE_PRINTF(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))
#define BASE_LIKELY(x) __builtin_expect(!!(x), 1)
#define BASE_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define BASE_RESTRICT __restrict
#define BASE_NOINLINE __attribute__((noinline))
#define BASE_ALWAYS_INLINE inline __attribute__((always_inline)) /* for kernels specialised by constant arguments */
#define BASE_UNUSED __attribute__((unused))
/* Before a loop with few, constant rounds: unrolls it before registers are chosen. Not with sanitizers: their checks
 * make the result too large to compile in minutes. */
#if defined(__clang__)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BASE_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BASE_SANITIZED
#endif
#if defined(BASE_SANITIZED)
#define BASE_UNROLL
#define BASE_UNROLL_4
#elif defined(__clang__)
#define BASE_UNROLL _Pragma("clang loop unroll(full)")
#define BASE_UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define BASE_UNROLL _Pragma("GCC unroll 16")
#define BASE_UNROLL_4 _Pragma("GCC unroll 4")
#endif
#define BASE_NODISCARD __attribute__((warn_unused_result))
#define BASE_PREFETCH(p) __builtin_prefetch(p, 0, 3)    /* to be read soon */
#define BASE_PREFETCH_L2(p) __builtin_prefetch(p, 0, 2) /* a little later */
#define base_popcount64(x) __builtin_popcountll(x)
#define base_ctz64(x) __builtin_ctzll(x)
#else
#define BASE_PRINTF(fmt_index, first_arg)
#define BASE_LIKELY(x) (x)
#define BASE_UNLIKELY(x) (x)
#define BASE_RESTRICT
#define BASE_NOINLINE
#define BASE_ALWAYS_INLINE inline
#define BASE_UNUSED
#define BASE_UNROLL
#define BASE_UNROLL_4
#define BASE_NODISCARD
#define BASE_PREFETCH(p) ((void)(p))
#define BASE_PREFETCH_L2(p) ((void)(p))
static inline int base_popcount64(unsigned long long x) {
    int n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}
static inline int base_ctz64(unsigned long long x) {
    int n = 0;
    while (!(x & 1)) {
        x >>= 1;
        n++;
    }
    return n;
}
#endif

/* A hint that the thread waits for another one's write. */
#if defined(__x86_64__) && defined(__GNUC__)
#define base_cpu_relax() __builtin_ia32_pause()
#elif defined(__aarch64__) && defined(__GNUC__)
#define base_cpu_relax() __asm__ volatile("yield")
#else
#define base_cpu_relax() ((void)0)
#endif

/* Which registers the operating system saves (XCR0); only where cpuid announces OSXSAVE. */
#if defined(__x86_64__) && defined(__GNUC__)
static inline unsigned base_x86_xcr0(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv"
                     : "=a"(low), "=d"(high)
                     : "c"(0));
    return low;
}
#endif

#define BASE_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define BASE_MIN(a, b) ((a) < (b) ? (a) : (b))
#define BASE_MAX(a, b) ((a) > (b) ? (a) : (b))
#define BASE_DIV_UP(n, by) (((n) + (by)-1) / (by)) /* integers, n >= 0, by > 0 */

#endif
