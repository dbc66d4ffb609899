/* eval_setting.c: see eval_setting.h. No state. */
#include "eval_setting.h"

#include <string.h>

#include "command.h"
#include "console.h"

const eval_setting eval_reference = {.name = "exact", .reuse = RP_REUSE_EXACT, .layout = RP_LAYOUT_PACKED};

/* Words of one group exclude each other. */
typedef struct setting_word {
    const char *word;
    int group;
    eval_setting sets; /* fields that are not 0 are taken over */
} setting_word;

static const setting_word words[] = {
    {"exact", 0, {.reuse = RP_REUSE_EXACT}},     {"off", 0, {.reuse = RP_REUSE_OFF}},
    {"path", 1, {.scope = RP_SCOPE_PATH}},       {"module", 1, {.scope = RP_SCOPE_MODULE}},
    {"packed", 2, {.layout = RP_LAYOUT_PACKED}}, {"fixed", 2, {.layout = RP_LAYOUT_FIXED}},
    {"scaffold", 3, {.scaffold = true}},
};
#define N_GROUPS 4
#define KNOWN "words are exact, off, path, module, packed, fixed and scaffold, joined by '+'"

static const setting_word *find(const char *text, size_t n) {
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i].word) == n && memcmp(words[i].word, text, n) == 0) return &words[i];
    return NULL;
}

int eval_setting_parse(eval_setting *s, const char *text) {
    const char *taken[N_GROUPS] = {NULL};
    *s = (eval_setting){.name = text};
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, "+");
        const setting_word *w = find(p, n);
        if (w == NULL) return cli_fail(CLI_WRONG_USE, "--setting '%s': '%.*s' is not known: " KNOWN, text, (int)n, p);
        if (taken[w->group] != NULL)
            return cli_fail(CLI_WRONG_USE, "--setting '%s': '%s' and '%s' exclude each other: " KNOWN, text, taken[w->group], w->word);
        taken[w->group] = w->word;
        if (w->sets.reuse) s->reuse = w->sets.reuse;
        if (w->sets.scope) s->scope = w->sets.scope;
        if (w->sets.layout) s->layout = w->sets.layout;
        if (w->sets.scaffold) s->scaffold = true;
        p += n;
        if (*p == '\0') return CLI_OK;
    }
}
