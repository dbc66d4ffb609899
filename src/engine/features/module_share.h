/* SPDX-License-Identifier: Apache-2.0 */
/* module_share.h: the share of a prompt's module tokens that a quality of R per cent recomputes: R per cent of all
 * tokens with the same mode and R together, rounded up. Modules that have the KV of a full prefill do not count.
 */
#ifndef ENGINE_MODULE_SHARE_H
#define ENGINE_MODULE_SHARE_H

#include "pml/plan.h"

#define MODULE_SHARE_PERCENT 100 /* highest R */

/* May tokens of the item be chosen for this mode? */
bool module_share_includes(const pml_item *item, rp_quality_mode mode);
static inline int64_t module_share_of(int64_t n, int32_t percent) { return (n * percent + 99) / 100; }
/* Maximum number of tokens that are chosen for this mode. */
int32_t module_share_most(const pml_plan *p, rp_quality_mode mode);

#endif
