/* SPDX-License-Identifier: Apache-2.0 */
/* sized.h: structs of the public headers that may grow: their first field is `uint32_t struct_size`, the size that the
 * program was compiled with. A program and a library of different versions agree on the fields that both know.
 */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include <stddef.h>

#include "reprise.h"

/* Reads options: copies the fields that the program knows over `own`, which has the defaults and own_bytes. theirs:
 * NULL: all have their defaults. type: the struct's name in messages.
 * RP_ERR_INVALID (struct_size is not set), RP_ERR_UNSUPPORTED (the program set a field that this library does not
 * have). */
int base_sized_read(void *own, size_t own_bytes, const void *theirs, const char *type, rp_error *err);

/* Writes the defaults `own` into a program's options of struct_size bytes, which need not be initialised: as
 * base_sized_write, and sets struct_size. For the _init functions. */
void base_sized_init(void *theirs, uint32_t struct_size, const void *own, size_t own_bytes);

/* Writes a report: copies `own` of own_bytes over the fields that the program knows; fields that this library does not
 * have become 0. `theirs` keeps its struct_size. */
void base_sized_write(void *theirs, const void *own, size_t own_bytes);

/* Whether a report can be written to: RP_ERR_INVALID (NULL, or struct_size is not set). Call it before anything is
   computed. */
int base_sized_check(const void *theirs, const char *type, rp_error *err);

#endif
