/* SPDX-License-Identifier: Apache-2.0 */
/* lint_prompts.h: files of prompts: a sequence of PML documents, or JSON Lines.
 *
 *   <prompt schema="a">...</prompt>          {"prompt": "<prompt schema='a'>...</prompt>", ...}
 *   <!-- and another -->                     "<prompt schema='a'>...</prompt>"
 *   <prompt schema="a">...</prompt>
 *
 * A line of JSON is a string, or an object with a string "prompt"; other fields are ignored, so task files of `reprise
 * eval` are accepted.
 */
#ifndef CLI_LINT_PROMPTS_H
#define CLI_LINT_PROMPTS_H

#include "common/options.h"
#include "reprise_tools.h"

#define LINT_MOST_PROMPTS 1000000

typedef struct lint_prompts {
    rp_lint_prompt *items; /* named "FILE#3": the third document, or the third line */
    size_t n;
    char **texts; /* the strings that items point into */
    size_t n_texts;
} lint_prompts;

/* Appends all prompts of the files, '-' for standard input. Zero-initialise; free it in any case. Returns an exit
 * status. */
int lint_prompts_read(lint_prompts *p, const cli_list *files);
void lint_prompts_free(lint_prompts *p);

#endif
