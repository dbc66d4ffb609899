/* SPDX-License-Identifier: Apache-2.0 */
/* reduced_modules.h: the modules whose reduced KV plans use: those whose reduced KV was computed, or was on disk at the
 * engine's start. None leaves the set (background/reductions.h). */
#ifndef ENGINE_REDUCED_MODULES_H
#define ENGINE_REDUCED_MODULES_H

#include "pml/layout.h"

#define REDUCED_MODULES_MAX ((size_t)1 << 16) /* others stay as they are */

/* Keys of first spans, ascending; guarded by the engine's lock. Zero-initialise. */
typedef struct reduced_modules {
    base_key *keys;
    size_t n, cap;
} reduced_modules;

/* Notes the reduced KV of the store's disk. Before the engine's thread starts. */
void reduced_modules_open(rp_engine *e);
void reduced_modules_free(rp_engine *e);
/* The reduced KV of a segment is in the store. */
void reduced_modules_add(rp_engine *e, const pml_segment *s);
/* Any thread. */
bool reduced_modules_has(rp_engine *e, const pml_segment *s);

#endif
