/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h: what the processor can do, less what REPRISE_CPU masks away. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>

#include "reprise.h"

/* The levels of this architecture in rising order: of those that a machine has, a later one is the better choice.
 * X(NAME, name)
 *
 *   x86-64    avx2      AVX2, FMA, F16C
 *             avxvnni   and AVX-VNNI (Alder Lake, Zen 5)
 *             avx512    avx2 and AVX-512 F, BW, DQ, VL, VNNI (Ice Lake, Zen 4; they may lack AVX-VNNI)
 *             amx       avx512 and AMX-TILE, AMX-INT8 (Sapphire Rapids)
 *   AArch64   neon      what every processor has
 *             dotprod   and SDOT (Cortex-A76, Neoverse N1, Apple M1)
 *             i8mm      and SMMLA (Cortex-X2, Neoverse V1 and N2, Apple M2)
 *
 * A level names registers that the operating system saves, too. */
#if defined(__x86_64__)
#define BASE_CPU_LEVELS(X) X(GENERIC, generic) X(AVX2, avx2) X(AVXVNNI, avxvnni) X(AVX512, avx512) X(AMX, amx)
#elif defined(__aarch64__)
#define BASE_CPU_LEVELS(X) X(GENERIC, generic) X(NEON, neon) X(DOTPROD, dotprod) X(I8MM, i8mm)
#else
#define BASE_CPU_LEVELS(X) X(GENERIC, generic)
#endif

typedef enum base_cpu_level {
#define X(NAME, name) BASE_CPU_##NAME,
    BASE_CPU_LEVELS(X)
#undef X
        BASE_CPU_LEVEL_COUNT
} base_cpu_level;

/* Can this machine run what is compiled for a level? Asks Linux for leave to use AMX's registers, which holds for all
 * threads of the process that are started later. */
bool base_cpu_has(base_cpu_level level);
/* The highest level that the machine has and that is not above REPRISE_CPU (a level's name; unset: no mask). An unknown
 * name in REPRISE_CPU is RP_ERR_INVALID with the list of names. */
int base_cpu_detect(base_cpu_level *out, rp_error *err);
const char *base_cpu_name(base_cpu_level level);

/* Processors this process may run on (at least 1). */
int base_cpu_count(void);
/* Bytes of this machine's memory; 0: not known. */
uint64_t base_cpu_memory(void);

#endif
