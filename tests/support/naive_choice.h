/* SPDX-License-Identifier: Apache-2.0 */
/* naive_choice.h: the slots that a row chooses (backend/slot_bounds.h) by definition, in double: each group's bound
 * dimension by dimension, then the highest one after the other. For tests; out of memory ends the program.
 */
#ifndef SUPPORT_NAIVE_CHOICE_H
#define SUPPORT_NAIVE_CHOICE_H

#include "backend/slot_bounds.h"
#include "support/naive_attention.h"

/* hidden: [views of the context][KV_SPAN_TOKENS]: the listed slots that are not chosen. q: any head of the KV head
 * kv_head, x: the row's queries of all heads, [heads][key_dim]; hidden is ignored. Returns how far the lowest bound
 * that was chosen is above the highest one that was not: another implementation may choose otherwise if that is as
 * small as rounding. Infinite if all or none are. */
double naive_choose(const naive_query *q, int32_t kv_head, const slot_bounds *s, const kv_context *c, bool *hidden);

#endif
