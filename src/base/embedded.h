/* SPDX-License-Identifier: Apache-2.0 */
/* embedded.h: files that are part of the program: tables that cmake/EmbedFiles.cmake makes of them. Constants; any
   thread. */
#ifndef BASE_EMBEDDED_H
#define BASE_EMBEDDED_H

#include <stddef.h>
#include <string.h>

#include "base/check.h"

typedef struct base_embedded {
    const char *name;           /* its path below its root; NULL ends a table */
    const unsigned char *bytes; /* followed by a NUL */
    size_t n;
} base_embedded;

/* The file of that name, or NULL. */
static inline const base_embedded *base_embedded_find(const base_embedded *table, const char *name) {
    while (table->name && strcmp(table->name, name) != 0) table++;
    BASE_DCHECK(!table->name || table->bytes[table->n] == '\0');
    return table->name ? table : NULL;
}

#endif
