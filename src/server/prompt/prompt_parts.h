/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_parts.h: what /v1/prompts made of parts shares with messages that have modules: the arguments of a module. */
#ifndef SERVER_PROMPT_PARTS_H
#define SERVER_PROMPT_PARTS_H

#include "server/core/fields.h"

/* Sets the arguments of the module that was imported last. args: an object of strings and numbers, or NULL. prefix: of
   their names in problems. */
void prompt_parts_add_arguments(rp_builder *prompt, const json_t *args, const char *prefix, server_problem *p);

#endif
