/* SPDX-License-Identifier: Apache-2.0 */
/* quality.c: see quality.h. */
#include "pml/quality.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

/* The name of each mode, and its largest amount; 0: the mode has no amount. */
static const struct {
    const char *name;
    int32_t most;
} modes[] = {
    [RP_QUALITY_AS_WRITTEN] = {"", 0},
    [RP_QUALITY_REUSE] = {"reuse", 0},
    [RP_QUALITY_LINK] = {"link", RP_MAX_LINK_TOKENS},
    [RP_QUALITY_BLEND] = {"blend", 100},
    [RP_QUALITY_SCAFFOLD] = {"scaffold", 0},
    [RP_QUALITY_EXACT] = {"exact", 0},
    [RP_QUALITY_FOCUS] = {"focus", 100},
};

static bool quality_read_amount(const char *s, int32_t most, int32_t *out) {
    int32_t n = 0;
    if (!*s) return false;
    for (; *s >= '0' && *s <= '9' && n <= most; s++) n = 10 * n + (*s - '0');
    *out = n;
    return !*s && n >= 1 && n <= most;
}

bool pml_quality_read(const char *text, rp_quality *out) {
    for (size_t i = RP_QUALITY_REUSE; i < BASE_ARRAY_LEN(modes); i++) {
        size_t n = strlen(modes[i].name);
        rp_quality q = {(rp_quality_mode)i, 0};
        if (strncmp(text, modes[i].name, n) != 0) continue;
        bool good = modes[i].most == 0 ? !text[n]
                                       : text[n] == ':' && quality_read_amount(text + n + 1, modes[i].most, &q.amount);
        if (good) *out = q;
        return good;
    }
    return false;
}

char *pml_quality_write(rp_quality q, char out[RP_QUALITY_BYTES]) {
    if (!pml_quality_is_valid(q)) out[0] = '\0'; /* rp_quality_text takes any */
    else if (modes[q.mode].most > 0) snprintf(out, RP_QUALITY_BYTES, "%s:%d", modes[q.mode].name, q.amount);
    else snprintf(out, RP_QUALITY_BYTES, "%s", modes[q.mode].name);
    return out;
}

bool pml_quality_is_valid(rp_quality q) {
    if ((int)q.mode < 0 || (size_t)q.mode >= BASE_ARRAY_LEN(modes)) return false;
    return modes[q.mode].most == 0 ? q.amount == 0 : q.amount >= 1 && q.amount <= modes[q.mode].most;
}
