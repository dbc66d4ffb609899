/* SPDX-License-Identifier: Apache-2.0 */
/* eval_setting.c: see eval_setting.h. No state. */
#include "eval/eval_setting.h"

#include <stdio.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "common/loader.h"

const eval_setting eval_reference = {.name = "exact", .reuse = RP_REUSE_EXACT, .layout = RP_LAYOUT_PACKED};

/* A word of a setting. Words of one group exclude each other. */
typedef struct setting_word {
    const char *word;
    int group;
    eval_setting sets; /* its nonzero fields are copied */
} setting_word;

static const setting_word words[] = {
    {"exact", 0, {.reuse = RP_REUSE_EXACT}},
    {"off", 0, {.reuse = RP_REUSE_OFF}},
    {"path", 1, {.scope = RP_SCOPE_PATH}},
    {"module", 1, {.scope = RP_SCOPE_MODULE}},
    {"packed", 2, {.layout = RP_LAYOUT_PACKED}},
    {"fixed", 2, {.layout = RP_LAYOUT_FIXED}},
    {"scaffold", 3, {.scaffold = true}},
    {"bos", 4, {.anchor = RP_ANCHOR_BOS}},
};
enum { KV_FORMATS = 5,
       KEEP,
       METHOD,
       KV_KEEP,
       N_GROUPS };
#define KNOWN \
    "give exact, off, link:K, blend:R, focus:R, path, module, packed, fixed, scaffold, bos, a KV format (one " \
    "of" RP_KV_FORMAT_NAMES "), " \
    "keep:SHARE or its method, kv-keep:N or kv-keep:N:METHOD, joined by '+'; '*' for all methods"

/* A mode with an amount, in the group of exact and off. */
static bool eval_setting_read_amount(const char *text, size_t n, setting_word *out) {
    char word[RP_QUALITY_BYTES] = "";
    if (n >= sizeof word || memchr(text, ':', n) == NULL) return false;
    memcpy(word, text, n);
    *out = (setting_word){.word = "link:K, blend:R or focus:R"};
    return rp_quality_parse(word, &out->sets.quality, NULL) == RP_OK;
}

static bool eval_setting_read_format(const char *text, size_t n, setting_word *out) {
    for (int i = 0; cli_kv_formats[i]; i++) {
        if (strlen(cli_kv_formats[i]) != n || memcmp(cli_kv_formats[i], text, n) != 0) continue;
        *out = (setting_word){cli_kv_formats[i], KV_FORMATS, {.has_kv_format = true, .kv_format = (rp_kv_format)i}};
        return true;
    }
    return false;
}

/* "keep:25%": its share in out->sets.keep; or a method. */
static bool eval_setting_read_keep(const char *text, size_t n, setting_word *out) {
    const size_t head = strlen("keep:");
    *out = (setting_word){.word = "keep:SHARE", .group = KEEP};
    if (n > head && n - head < sizeof out->sets.keep && memcmp(text, "keep:", head) == 0) {
        memcpy(out->sets.keep, text + head, n - head);
        return true;
    }
    const char *method;
    for (int32_t i = 0; (method = rp_keep_method_name(i)) != NULL; i++) {
        if (strlen(method) != n || memcmp(method, text, n) != 0) continue;
        *out = (setting_word){method, METHOD, {.keep_method = method}};
        return true;
    }
    return false;
}

/* The engine judges share and method. */
static bool eval_setting_read_kv_keep(const char *text, size_t n, setting_word *out) {
    const size_t prefix = strlen("kv-keep:");
    if (n <= prefix || memcmp(text, "kv-keep:", prefix) != 0) return false;
    text += prefix;
    n -= prefix;
    const char *method = memchr(text, ':', n);
    const size_t n_keep = method != NULL ? (size_t)(method - text) : n, n_method = method != NULL ? n - n_keep - 1 : 0;
    *out = (setting_word){.word = "kv-keep:N", .group = KV_KEEP};
    if (n_keep == 0 || n_keep >= sizeof out->sets.kv_keep || n_method >= sizeof out->sets.kv_method) return false;
    memcpy(out->sets.kv_keep, text, n_keep);
    if (n_method > 0) memcpy(out->sets.kv_method, method + 1, n_method);
    return true;
}

static bool eval_setting_find(const char *text, size_t n, setting_word *out) {
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i].word) != n || memcmp(words[i].word, text, n) != 0) continue;
        *out = words[i];
        return true;
    }
    return eval_setting_read_format(text, n, out) || eval_setting_read_keep(text, n, out) ||
           eval_setting_read_kv_keep(text, n, out) || eval_setting_read_amount(text, n, out);
}

/* Up to the next '+' that a word follows: a method's name may end with one. */
static size_t eval_setting_word_length(const char *text) {
    size_t n = strcspn(text, "+");
    if (n > 0 && text[n] == '+' && (text[n + 1] == '\0' || text[n + 1] == '+')) n++;
    return n;
}

int eval_setting_parse(eval_setting *s, const char *text) {
    const char *taken[N_GROUPS] = {NULL};
    *s = (eval_setting){.name = text};
    for (const char *p = text;; p++) {
        size_t n = eval_setting_word_length(p);
        setting_word w;
        if (!eval_setting_find(p, n, &w))
            return cli_fail(CLI_WRONG_USE, "--setting '%s': unknown word '%.*s': " KNOWN, text, (int)n, p);
        if (taken[w.group] != NULL)
            return cli_fail(CLI_WRONG_USE, "--setting '%s': '%s' and '%s' exclude each other: " KNOWN, text,
                            taken[w.group], w.word);
        taken[w.group] = w.word;
        if (w.sets.reuse) s->reuse = w.sets.reuse;
        if (w.sets.quality.mode) s->quality = w.sets.quality;
        if (w.sets.scope) s->scope = w.sets.scope;
        if (w.sets.anchor) s->anchor = w.sets.anchor;
        if (w.sets.layout) s->layout = w.sets.layout;
        if (w.sets.scaffold) s->scaffold = true;
        if (w.sets.keep[0]) memcpy(s->keep, w.sets.keep, sizeof s->keep);
        if (w.sets.keep_method) s->keep_method = w.sets.keep_method;
        if (w.sets.has_kv_format) s->has_kv_format = true, s->kv_format = w.sets.kv_format;
        if (w.sets.kv_keep[0]) {
            memcpy(s->kv_keep, w.sets.kv_keep, sizeof s->kv_keep);
            memcpy(s->kv_method, w.sets.kv_method, sizeof s->kv_method);
        }
        p += n;
        if (*p == '\0') return CLI_OK;
    }
}

/* The name of the i-th method that replaces a '*': of modules, or after "kv-keep:N:" of requests. NULL after the last
   one. */
static const char *method_in_place(const char *text, const char *star, int32_t i) {
    return star > text && star[-1] == ':' ? rp_kv_method_name(i) : rp_keep_method_name(i);
}

size_t eval_setting_expand(char **out, const char *text) {
    const char *star = strchr(text, '*'), *method;
    if (star == NULL) {
        *out = cli_alloc(strlen(text) + 1);
        memcpy(*out, text, strlen(text) + 1);
        return 1;
    }
    size_t n = 0;
    for (int32_t i = 0; (method = method_in_place(text, star, i)) != NULL && n < EVAL_MAX_EXPANDED; i++) {
        const size_t bytes = strlen(text) + strlen(method);
        out[n] = cli_alloc(bytes + 1);
        snprintf(out[n++], bytes + 1, "%.*s%s%s", (int)(star - text), text, method, star + 1);
    }
    return n;
}
