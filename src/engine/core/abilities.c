/* SPDX-License-Identifier: Apache-2.0 */
/* abilities.c: see abilities.h. */
#include "engine/core/abilities.h"

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
    return engine_check_backend(e, BACKEND_STUDIES, what, err);
}

int engine_check_backend(const rp_engine *e, uint32_t can, const char *what, rp_error *err) {
    const char *lack = can == BACKEND_STUDIES ? "cannot judge slots" : "has no adapters";
    if (e->backend_row->can & can) return RP_OK;
    return base_fail(err, RP_ERR_UNSUPPORTED, "%s: the device '%s' %s: leave it out, or use the device cpu", what,
                     e->backend_row->name, lack);
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
