/* SPDX-License-Identifier: Apache-2.0 */
/* hostile_template.h: random chat templates of an attacker: values that double themselves, large repetitions, every
 * filter, method and test on them, loops around all of it, macros that call themselves. One seed, one template. */
#ifndef SUPPORT_HOSTILE_TEMPLATE_H
#define SUPPORT_HOSTILE_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#define HOSTILE_TEMPLATE_BYTES 8192

/* The variables that the templates read. */
extern const char hostile_template_input[];

/* Writes the template of that seed, NUL-terminated. */
void hostile_template_make(uint64_t seed, char out[HOSTILE_TEMPLATE_BYTES]);

#endif
