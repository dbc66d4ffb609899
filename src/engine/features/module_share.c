/* SPDX-License-Identifier: Apache-2.0 */
/* module_share.c: see module_share.h. */
#include "engine/features/module_share.h"

#include "base/check.h"

bool module_share_includes(const pml_item *item, rp_quality_mode mode) {
    return item->is_view && item->quality.mode == mode && !item->exact && item->n_again == 0;
}

int32_t module_share_most(const pml_plan *p, rp_quality_mode mode) {
    int64_t counts[MODULE_SHARE_PERCENT + 1] = {0}, most = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        if (!module_share_includes(&p->items[i], mode)) continue;
        BASE_ASSERT(p->items[i].quality.amount > 0 && p->items[i].quality.amount <= MODULE_SHARE_PERCENT);
        counts[p->items[i].quality.amount] += p->items[i].n_counted;
    }
    for (int32_t percent = 1; percent <= MODULE_SHARE_PERCENT; percent++)
        most += module_share_of(counts[percent], percent);
    return (int32_t)most;
}
