/* SPDX-License-Identifier: Apache-2.0 */
/* abilities.c: see abilities.h. */
#include "engine/core/abilities.h"

#include "backend/backend_registry.h"
#include "base/error.h"
#include "engine/core/engine_state.h"
#include "model/model.h"

int engine_check_reduces(const rp_engine *e, const char *what, rp_error *err) {
    if (!model_capabilities(e->model).reduces)
        return base_fail(
            err, RP_ERR_UNSUPPORTED,
            "%s: the layers of '%s' have no KV, latent KV, or KV of different heads, which cannot be reduced: leave it "
            "out",
            what, e->model->arch->name);
    if (!(e->backend_row->can & BACKEND_STUDIES))
        return base_fail(err, RP_ERR_UNSUPPORTED, "%s: the backend '%s' cannot judge slots: leave it out", what,
                         e->backend_row->name);
    return RP_OK;
}
