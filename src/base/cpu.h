/* cpu.h: what the processor can do, less what REPRISE_CPU masks away. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include "reprise.h"

/* Levels in rising order; a level includes all before it. */
typedef enum base_cpu_level {
    BASE_CPU_GENERIC = 0,
    BASE_CPU_AVX2 = 1, /* AVX2, FMA, F16C, and the operating system saves the registers */
} base_cpu_level;

/* The highest level that both the machine and REPRISE_CPU (generic|avx2, unset: no mask) allow. An unknown name in
 * REPRISE_CPU is RP_ERR_INVALID with the list of names. */
int base_cpu_detect(base_cpu_level *out, rp_error *err);
const char *base_cpu_name(base_cpu_level level);

/* Processors this process may run on (at least 1). */
int base_cpu_count(void);

#endif
