/* SPDX-License-Identifier: Apache-2.0 */
/* hub_name.c: see hub_name.h. */
#include "models/hub_name.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "common/command.h"
#include "common/console.h"
#include "pull/pull_check.h"

#define MAX_PATH_BYTES 1024
#define MAX_SEGMENTS 8

/* ---- names ---- */

bool hub_is_name(const char *text) { return strncmp(text, HUB_PREFIX, strlen(HUB_PREFIX)) == 0; }

bool hub_is_word(const char *text, size_t n) {
    bool is_word = n > 0 && n <= 96 && isalnum((unsigned char)text[0]);
    for (size_t i = 0; i < n && is_word; i++) {
        is_word = isalnum((unsigned char)text[i]) || strchr("._-", text[i]) != NULL;
        if (i > 0 && text[i] == '.' && text[i - 1] == '.') is_word = false;
    }
    return is_word;
}

int hub_name_read(hub_name *out, const char *text) {
    const char *owner = text + strlen(HUB_PREFIX), *slash = strchr(owner, '/');
    *out = (hub_name){.quant = ""};
    const size_t n_owner = slash != NULL ? (size_t)(slash - owner) : 0;
    const size_t n_repo = slash != NULL ? strcspn(slash + 1, ":") : 0;
    const char *quant = slash != NULL ? slash + 1 + n_repo : "";
    bool fits = hub_is_word(owner, n_owner) && slash != NULL && hub_is_word(slash + 1, n_repo);
    if (*quant == ':')
        fits = fits && quant[1] != '\0' && strlen(quant + 1) < sizeof out->quant && hub_is_path(quant + 1);
    if (!fits)
        return cli_fail(CLI_WRONG_USE,
                        "'%s': give hf:OWNER/REPO, or hf:OWNER/REPO:QUANT with a quantization such as Q4_K_M", text);
    memcpy(out->owner, owner, n_owner);
    memcpy(out->repo, slash + 1, n_repo);
    if (*quant == ':') memcpy(out->quant, quant + 1, strlen(quant));
    return CLI_OK;
}

/* ---- paths ---- */

bool hub_is_path(const char *path) {
    size_t n_segments = 0;
    if (strlen(path) > MAX_PATH_BYTES) return false;
    for (const char *p = path;; p++) {
        const size_t n = strcspn(p, "/");
        if (n == 0 || n > 255 || ++n_segments > MAX_SEGMENTS) return false;
        if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.')) return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)p[i] < ' ' || p[i] == 0x7f || p[i] == '\\') return false;
        p += n;
        if (*p == '\0') return true;
    }
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool contains_word(const char *text, const char *word) {
    for (; *text != '\0'; text++)
        if (strncasecmp(text, word, strlen(word)) == 0) return true;
    return false;
}

bool hub_is_model(const char *path) {
    const char *name = base_name(path);
    size_t n_stem;
    if (!cli_is_model_file(name) || contains_word(name, "mmproj") || contains_word(name, "imatrix")) return false;
    return pull_split_parts(name, &n_stem) == 0 || strncmp(name + n_stem, "-00001-", 7) == 0;
}

/* ---- quantizations ---- */

bool hub_has_quant(const char *path, const char *quant) {
    const size_t n = strlen(quant);
    for (const char *p = path; *p != '\0'; p++) {
        if (strncasecmp(p, quant, n) != 0) continue;
        const char after = p[n];
        const bool begins = p == path || (!isalnum((unsigned char)p[-1]) && p[-1] != '_');
        if (begins && !isalnum((unsigned char)after) && after != '_') return true;
    }
    return false;
}

/* Q4_K_M, IQ3_XXS, TQ1_0, F16, BF16, MXFP4 */
static bool is_quant(const char *text, size_t n) {
    static const char *const whole[] = {"F16", "F32", "BF16", "FP16", "MXFP4", "NVFP4"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (n == strlen(whole[i]) && strncasecmp(text, whole[i], n) == 0) return true;
    const size_t before = strspn(text, "IiTt") > 0 ? 1 : 0;
    return n >= before + 2 && n < 24 && toupper((unsigned char)text[before]) == 'Q' &&
           isdigit((unsigned char)text[before + 1]);
}

bool hub_quant_of(const char *path, char out[HUB_QUANT_BYTES]) {
    bool found = false;
    for (const char *p = base_name(path); *p != '\0';) {
        const size_t n = strcspn(p, "-. ");
        if (n > 0 && is_quant(p, n)) {
            memcpy(out, p, n);
            out[n] = '\0';
            found = true;
        }
        p += n;
        if (*p != '\0') p++;
    }
    return found;
}

static int32_t first_with(const char *const *paths, size_t n, const char *quant) {
    for (size_t i = 0; i < n; i++)
        if (hub_is_model(paths[i]) && (quant[0] == '\0' || hub_has_quant(paths[i], quant))) return (int32_t)i;
    return -1;
}

int32_t hub_choose(const char *const *paths, size_t n, const char *quant, bool *is_preferred) {
    static const char *const defaults[] = {"Q4_K_M", "Q8_0", ""};
    if (is_preferred != NULL) *is_preferred = true;
    for (size_t i = 0; i < n && quant[0] != '\0'; i++)
        if (strcmp(paths[i], quant) == 0 && hub_is_model(paths[i])) return (int32_t)i;
    if (quant[0] != '\0') return first_with(paths, n, quant);
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        const int32_t found = first_with(paths, n, defaults[i]);
        if (found >= 0) return found;
        if (is_preferred != NULL) *is_preferred = false;
    }
    return -1;
}
