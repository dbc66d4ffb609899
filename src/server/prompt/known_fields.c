/* SPDX-License-Identifier: Apache-2.0 */
/* known_fields.c: see known_fields.h. Owns nothing. Any thread. */
#include "server/prompt/known_fields.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 80 /* of a path as it is reported: "messages[2].content[0]." */

/* One step of a path: a field, or, with "[]", each element of the array in it. */
static void known_fields_walk(generation *gen, const json_t *value, const char *rest, const char *done,
                              const char *known, server_problem *p) {
    char here[PATH_BYTES];
    size_t n = strcspn(rest, ".["), more = n;
    if (!json_is_object(value) || p->kind) return;
    if (*rest == '\0') {
        generation_known(gen, &(server_fields){value, p, done}, known);
        return;
    }
    bool each = strncmp(rest + n, "[]", 2) == 0;
    if (each) more += 2;
    if (rest[more] == '.') more++;
    const json_t *inside = json_object_getn(value, rest, n);
    for (size_t i = 0; i < (each ? json_array_size(inside) : 1); i++) {
        if (each) snprintf(here, sizeof(here), "%s%.*s[%zu].", done, (int)n, rest, i);
        else snprintf(here, sizeof(here), "%s%.*s.", done, (int)n, rest);
        known_fields_walk(gen, each ? json_array_get(inside, i) : inside, rest + more, here, known, p);
    }
}

void generation_known_inside(generation *gen, const server_known_fields *list, size_t n, server_problem *p) {
    for (size_t i = 0; i < n && !p->kind; i++) known_fields_walk(gen, gen->root, list[i].path, "", list[i].known, p);
}
