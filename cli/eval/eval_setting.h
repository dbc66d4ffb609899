/* SPDX-License-Identifier: Apache-2.0 */
/* eval_setting.h: a way to compute a prompt, written as words: "path", "module+fixed", "exact". */
#ifndef CLI_EVAL_SETTING_H
#define CLI_EVAL_SETTING_H

#include <stdbool.h>

#include "reprise.h"

typedef struct eval_setting {
    const char *name; /* as it was written; borrowed */
    rp_reuse reuse;
    rp_quality quality;
    rp_scope scope;
    rp_anchor anchor;
    rp_layout layout;
    bool scaffold;    /* what a prompt imports is computed together */
} eval_setting;

/* What every other setting is compared with: one plain run, everything packed. */
extern const eval_setting eval_reference;

/* Words joined by '+', each kind once:
 *   exact, off         one plain run; the same plan computed anew (else states are reused)
 *   link:K, blend:R    what of the modules is computed again (rp_quality; else as the schema says)
 *   path, module       scope of all modules (else as the schema says)
 *   bos                their anchor (where the scope is module)
 *   scaffold           the modules of each prompt are computed together
 *   packed, fixed      layout (else as the schema says)
 * Returns an exit status. */
int eval_setting_parse(eval_setting *setting, const char *text);

#endif
