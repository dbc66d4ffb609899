/* SPDX-License-Identifier: Apache-2.0 */
/* abilities.c: see abilities.h. */
#include "engine/core/abilities.h"

#include "backend/backend_registry.h"
#include "backend/model_network.h"
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

bool engine_reuses_modules(const rp_engine *e) {
    return model_capabilities(e->model).modules || (e->is_recurrent && e->module_states != RP_MODULE_STATES_EXACT);
}

int engine_check_module_states(const rp_engine *e, rp_module_states states, rp_error *err) {
    if ((unsigned)states > RP_MODULE_STATES_COMPOSED)
        return base_fail(err, RP_ERR_INVALID, "module_states is %d: give a value of rp_module_states", (int)states);
    if (states == RP_MODULE_STATES_COMPOSED && e->is_recurrent && !model_states_compose(&e->model->net))
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "module_states 'composed': the recurrent layers of '%s' are not Mamba2, whose states compose: "
                         "use 'last'",
                         e->model->arch->name);
    return RP_OK;
}
