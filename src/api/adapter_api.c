/* SPDX-License-Identifier: Apache-2.0 */
/* adapter_api.c: rp_adapter. */
#include "base/cpu.h"
#include "base/error.h"
#include "base/sized.h"
#include "model/adapter.h"
#include "reprise_adapter.h"

int rp_adapter_open(rp_adapter **out, const rp_model *model, const char *path, rp_error *err) {
    base_cpu_level level;
    if (!out || !model || !path)
        return base_fail(err, RP_ERR_INVALID, "rp_adapter_open: out, model and path are needed");
    *out = NULL;
    int rc = base_cpu_detect(&level, err);
    return rc ? rc : adapter_open(out, model, path, level, err);
}

void rp_adapter_close(rp_adapter *adapter) { adapter_unref(adapter); }

int rp_adapter_describe(const rp_adapter *a, rp_adapter_info *out) {
    if (!a || base_sized_check(out, "rp_adapter_info", NULL)) return RP_ERR_INVALID;
    const rp_adapter_info info = {
        .name = a->name,
        .fingerprint = a->key_hex,
        .rank = a->weights.max_rank,
        .alpha = a->alpha,
        .n_tensors = a->n_tensors,
        .bytes = a->bytes,
        .invocation_tokens = a->invocation,
        .n_invocation_tokens = a->n_invocation,
    };
    base_sized_write(out, &info, sizeof(info));
    return RP_OK;
}
