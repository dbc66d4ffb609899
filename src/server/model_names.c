/* SPDX-License-Identifier: Apache-2.0 */
/* model_names.c: the names of the model in requests. Owns nothing. Any thread, once the server is ready. */
#include <string.h>

#include "server/server_internal.h"

static bool is_name(const char *own, const char *name, size_t n) { return strlen(own) == n && memcmp(own, name, n) == 0; }

bool server_has_model(const rp_server *s, const char *name) {
    static const char latest[] = ":latest";
    size_t n = strlen(name), suffix = sizeof(latest) - 1;
    if (n > suffix && strcmp(name + n - suffix, latest) == 0) n -= suffix;
    bool has = is_name(s->model_name, name, n) || strcmp(s->model_name, name) == 0 || is_name("default", name, n);
    for (int32_t i = 0; i < s->options.n_aliases && !has; i++) has = is_name(s->aliases[i], name, n) || strcmp(s->aliases[i], name) == 0;
    return has;
}
