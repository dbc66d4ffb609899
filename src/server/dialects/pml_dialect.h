/* SPDX-License-Identifier: Apache-2.0 */
/* pml_dialect.h: the parser of /v1/prompts, for the route and for fuzz/fuzz_requests.c. */
#ifndef SERVER_PML_DIALECT_H
#define SERVER_PML_DIALECT_H

#include "server/prompt/generation.h"

int pml_parse_prompt(generation *gen, server_problem *p);

#endif
