/* SPDX-License-Identifier: Apache-2.0 */
/* shared_model.h: fixture of most engine tests: one model for all tests of a program, with tiny_model's default shape
 * and chat template "chatml", and engines on it. */
#ifndef SUPPORT_SHARED_MODEL_H
#define SUPPORT_SHARED_MODEL_H

#include "reprise.h"

extern rp_model *model;
extern uint64_t column_bytes; /* KV of 64 tokens, in f16 */

/* Setup and teardown of a group. */
int open_model(void **state);
int close_model(void **state);

/* Engines on it; options: NULL for the defaults. load_schema parses PML with the file name `file`.
 * A failure ends the program. */
rp_engine *open_engine(const rp_engine_options *options);
void load_schema(rp_engine *engine, const char *pml, const char *file);

#endif
