/* SPDX-License-Identifier: Apache-2.0 */
/* model_path.c: see model_path.h. Owns nothing. */
#define _POSIX_C_SOURCE 200809L

#include "models/model_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/command.h"
#include "common/console.h"
#include "models/hub.h"
#include "models/model_list.h"

/* Two models have the name: as a list of theirs. */
static int fail_ambiguous(const model_list *l, const char *given) {
    char all[512] = "";
    for (size_t i = 0; i < l->n; i++) {
        size_t n = 0;
        const model_list one = {.items = &l->items[i], .n = 1};
        const size_t used = strlen(all);
        if (model_list_choose(&one, given, &n) == NULL || used + strlen(l->items[i].name) + 8 > sizeof all) continue;
        snprintf(all + used, sizeof all - used, "%s%s", used > 0 ? ", " : "", l->items[i].name);
    }
    return cli_fail(CLI_WRONG_USE, "-m %s: several models have this name: give one of %s", given, all);
}

/* "ollama:x": a name, and no path that could be created. */
static bool has_prefix(const char *given) {
    static const char *const prefixes[] = {"ollama:", "lmstudio:", "llama.cpp:"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(given, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

int model_path_find(const char *given, char **path) {
    const size_t bytes = strlen(given) + 1;
    *path = NULL;
    if (access(given, F_OK) != 0 && hub_is_name(given)) return hub_path(given, path);
    if (given[0] != '\0' && strchr("/.~", given[0]) == NULL && access(given, F_OK) != 0) {
        size_t n;
        model_list l = model_list_find();
        const model_entry *e = model_list_choose(&l, given, &n);
        int status = CLI_OK;
        if (n > 1) status = fail_ambiguous(&l, given);
        else if (n == 1) *path = memcpy(cli_alloc(strlen(e->path) + 1), e->path, strlen(e->path) + 1);
        else if (has_prefix(given))
            status = cli_fail(CLI_FAILED, "-m %s: no such model: 'reprise models' lists those that are here", given);
        model_list_free(&l);
        if (status != CLI_OK || *path != NULL) return status;
    }
    *path = memcpy(cli_alloc(bytes), given, bytes);
    return CLI_OK;
}
