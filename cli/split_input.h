/* SPDX-License-Identifier: Apache-2.0 */
/* split_input.h: input of `reprise split`: a file per prompt, or JSON Lines. */
#ifndef CLI_SPLIT_INPUT_H
#define CLI_SPLIT_INPUT_H

#include "common/options.h"
#include "reprise_tools.h"

/* Owns every string and array in it. Zero-initialise. */
typedef struct split_input {
    rp_split_prompt *prompts;
    size_t n, cap;
} split_input;

/* Appends the prompts of the files, '-' for standard input, in order. Returns an exit status. */
int split_input_read(split_input *in, const cli_list *files);
void split_input_free(split_input *in);

#endif
