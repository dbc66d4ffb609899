/* SPDX-License-Identifier: Apache-2.0 */
/* eval_setting.h: a reuse setting, written as words: "path", "module+fixed", "exact". */
#ifndef CLI_EVAL_SETTING_H
#define CLI_EVAL_SETTING_H

#include <stdbool.h>

#include "reprise.h"
#include "reprise_pml.h"

typedef struct eval_setting {
    const char *name; /* as given by the user; borrowed */
    rp_reuse reuse;
    rp_quality quality;
    rp_scope scope;
    rp_anchor anchor;
    rp_layout layout;
    bool scaffold;      /* the modules that a prompt imports are prefilled jointly */
    bool has_kv_format; /* else --kv-format's */
    rp_kv_format kv_format;
    char keep[8];                    /* "25%": share of their KV that modules keep; "": --keep's */
    const char *keep_method;         /* NULL: --keep-method's */
    char kv_keep[16], kv_method[16]; /* rp_request; "": none */
} eval_setting;

/* The reference for all other settings: exact prefill, packed layout. */
extern const eval_setting eval_reference;

/* Words joined by '+', each kind once:
 *   exact, off         ordinary full prefill; the same plan recomputed (default: KV is reused)
 *   link:K, blend:R, focus:R    module tokens to recompute (rp_quality; default: the schema's quality)
 *   path, module       scope of all modules (default: the schema's)
 *   bos                their anchor (for scope module)
 *   scaffold           the modules of each prompt are prefilled jointly
 *   packed, fixed      layout (default: the schema's)
 *   f16, f32, int8     KV format (default: --kv-format)
 *   keep:25%, expected  reduced KV of modules and the method that chooses it (default: --keep, --keep-method)
 *   kv-keep:N          KV reduction of the request: slots or a share that are kept for the answer (kv-keep:12.5%), by
 *         snapkv
 *   kv-keep:N:METHOD   the same by another method (kv-keep:12.5%:sinks)
 * Returns an exit status. */
int eval_setting_parse(eval_setting *setting, const char *text);

#define EVAL_MAX_EXPANDED 64
/* Expands a text to settings: of "keep:25%+*" one for each method of modules, of "kv-keep:12.5%:*" for each method of
 * requests, of others itself. out: [EVAL_MAX_EXPANDED], each freed by the caller. Returns their number. */
size_t eval_setting_expand(char **out, const char *text);

#endif
