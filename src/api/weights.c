/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c: rp_weights_*: checks arguments; store/weights_cache.c does the work. */
#include "base/error.h"
#include "reprise_store.h"
#include "store/weights_cache.h"

int rp_weights_each(const char *dir, bool reads_all, rp_on_progress on_progress, rp_on_weights_file on_file, void *user,
                    rp_error *err) {
    if (!dir || !on_file) return base_fail(err, RP_ERR_INVALID, "rp_weights_each: dir and on_file are needed");
    return weights_cache_each(dir, reads_all, on_progress, on_file, user, err);
}

int rp_weights_remove(const char *dir, const char *digits, uint64_t *n, uint64_t *bytes, rp_error *err) {
    uint64_t own_n, own_bytes;
    if (!dir) return base_fail(err, RP_ERR_INVALID, "rp_weights_remove: dir is needed");
    return weights_cache_remove(dir, digits, n ? n : &own_n, bytes ? bytes : &own_bytes, err);
}

int rp_weights_clean(const char *dir, uint64_t *n, uint64_t *bytes, rp_error *err) {
    uint64_t own_n, own_bytes;
    if (!dir) return base_fail(err, RP_ERR_INVALID, "rp_weights_clean: dir is needed");
    return weights_cache_clean(dir, n ? n : &own_n, bytes ? bytes : &own_bytes, err);
}
