/* SPDX-License-Identifier: Apache-2.0 */
/* backend_registry.c: see backend_registry.h. */
#include "backend/backend_registry.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"

static const backend_row rows[] = {
#define X(name, can) {#name, can, name##_backend_unavailable, name##_backend_new},
    BACKENDS(X)
#undef X
};

#define X(name, can) ", " #name
static const char names[] = BACKENDS(X);
#undef X

int backend_find(const backend_row **out, const char *name, const model_network *net, rp_error *err) {
    const char *reason = NULL;
    *out = NULL;
    for (size_t i = 0; i < BASE_ARRAY_LEN(rows) && !*out; i++) {
        if (name && strcmp(name, rows[i].name) != 0) continue;
        const char *why = rows[i].unavailable(net);
        if (!why) *out = &rows[i];
        else if (!reason) reason = why; /* of the preferred one */
    }
    if (*out) return RP_OK;
    if (!reason) return base_fail(err, RP_ERR_NAME, "there is no backend '%.40s': give one of %s", name, names + 2);
    return base_fail(err, RP_ERR_UNSUPPORTED, "backend '%.40s' is unavailable: %s", name ? name : rows[0].name, reason);
}

int backend_open(backend **out, const char *name, const model_network *net, const backend_options *options,
                 rp_error *err) {
    const backend_row *row;
    *out = NULL;
    int rc = backend_find(&row, name, net, err);
    if (!rc) rc = row->open(out, net, options, err);
    BASE_ASSERT(rc || ((row->can & BACKEND_STUDIES) != 0) == ((*out)->ops->study != NULL));
    BASE_ASSERT(rc || !model_is_recurrent(net) || (*out)->ops->recurrence);
    return rc;
}
