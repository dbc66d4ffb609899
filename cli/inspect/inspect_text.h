/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_text.h: models, schemas and mosaics as text on standard output. */
#ifndef CLI_INSPECT_TEXT_H
#define CLI_INSPECT_TEXT_H

#include <stdbool.h>

#include "reprise_tools.h"

void inspect_text_model(const rp_model *model, const rp_memory *memory);
/* The schema as a tree with columns; with_prompt: marks the nodes that the prompt imports. */
void inspect_text_tree(const rp_inspection *in, bool with_prompt);
/* The prompt's tiles in order of position, and the gaps between them. */
void inspect_text_tiles(const rp_inspection *in);
/* A copy of the tiles in order of position. Freed by the caller. */
rp_inspect_tile *inspect_sorted_tiles(const rp_inspection *in);

#endif
