/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_quality.h: accuracy levels of reuse, and formats of KV. Conventions are those of reprise.h, which includes
 * it.
 */
#ifndef REPRISE_QUALITY_H
#define REPRISE_QUALITY_H

#include "reprise_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Accuracy level: which module tokens are recomputed in the context of the prompt, from none to all. docs/quality.md
 * gives the cost and the accuracy of each.
 *
 *   reuse      KV as cached
 *   link:K     recompute the first K tokens of each module in the prompt (EPIC; Hu et al., 2025)
 *   blend:R    recompute R per cent of the modules' tokens: their beginnings, and the tokens with the largest KV
 *              deviation in the second layer (CacheBlend; Yao et al., 2025)
 *   focus:R    decode over the cached modules; where the answer is uncertain for the first time, recompute the R per
 *   cent
 *              of the modules' tokens that this prediction attends to most, and predict again. Certain answers cost one
 *              pass over their logits
 *   scaffold   prefill the combined modules jointly when idle: the next prompt with the same beginning is exact; until
 *              then reuse
 *   exact      every token attends to all tokens before it
 *
 * Modules that already have the KV of a full prefill, because the tokens before them are those of their scope, are
 * not recomputed. */
typedef enum rp_quality_mode {
    RP_QUALITY_AS_WRITTEN = 0, /* of the prompt, else of each module, else of the schema; else reuse */
    RP_QUALITY_REUSE,
    RP_QUALITY_LINK,
    RP_QUALITY_BLEND,
    RP_QUALITY_SCAFFOLD,
    RP_QUALITY_EXACT,
    RP_QUALITY_FOCUS, /* between blend and scaffold */
} rp_quality_mode;

#define RP_MAX_LINK_TOKENS 4096

typedef struct rp_quality {
    rp_quality_mode mode;
    int32_t amount; /* link: tokens, 1 to RP_MAX_LINK_TOKENS; blend, focus: per cent, 1 to 100; else 0 */
} rp_quality;

/* Parses "reuse", "link:8", "blend:15", "focus:15", "scaffold" or "exact". RP_ERR_INVALID. */
RP_API int rp_quality_parse(const char *text, rp_quality *out, rp_error *err);
#define RP_QUALITY_BYTES 24
/* Formats a quality into out; "" for as written. Returns out. */
RP_API char *rp_quality_text(rp_quality quality, char out[RP_QUALITY_BYTES]);

/* Formats of KV: X(NAME, number, name, elements of keys, elements of values). The number is that of records and of
 * keys, for ever, and the name that of options, PML and reports; values of the enumeration are the positions in this
 * list.
 *
 * The formats with elements of 8 bits or more are for every token. The others are for modules: they are encoded once
 * all of a module's tokens are computed, and the other tokens have RP_KV_INT8. */
#define RP_KV_FORMATS(X) \
    X(F16, 0, "f16", F16, F16) \
    X(F32, 1, "f32", F32, F32) \
    X(INT8, 2, "int8", INT8, INT8)   /* 8 bits, a scale for each token and head */ \
    X(KIVI4, 4, "kivi4", 4BIT, 4BIT) /* KIVI: keys with ranges by dimension, values by token */ \
    X(K4V2, 5, "k4v2", 4BIT, 2BIT)   /* the same, keys in 4 bits, values in 2 */ \
    X(KIVI2, 6, "kivi2", 2BIT, 2BIT) /* the same, both in 2 bits */

#define RP_KV_FORMAT_VALUE(NAME, number, name, keys, values) RP_KV_##NAME,
typedef enum rp_kv_format { RP_KV_FORMATS(RP_KV_FORMAT_VALUE) RP_N_KV_FORMATS } rp_kv_format;

#define RP_KV_FORMAT_WORD(NAME, number, name, keys, values) " " name
#define RP_KV_FORMAT_NAMES RP_KV_FORMATS(RP_KV_FORMAT_WORD) /* all names, for messages: " f16 f32 ..." */

/* The name of format i, "f16", ...; NULL if there is none. Static. */
RP_API const char *rp_kv_format_name(int32_t i);

/* Names of the methods that choose the slots of reduced modules (keep_method) and of requests (rp_request.kv_method),
 * from i = 0, the default; NULL after the last one. Static. */
RP_API const char *rp_keep_method_name(int32_t i);
RP_API const char *rp_kv_method_name(int32_t i);

#ifdef __cplusplus
}
#endif
#endif
