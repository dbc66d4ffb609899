/* SPDX-License-Identifier: Apache-2.0 */
/* adapters.h: the LoRA adapter of a request: where it is switched on.
 *
 *   ordinary    modules: keys of the adapter (fallback.c)      text: a root of the adapter
 *   activated   | base model: keys and root of the base | invocation tokens, rest, answer: a root of the adapter |
 *                                                       from
 *
 * The root of the adapter is that of a scope (job_tokens.c), which the adapter with its scale names as well.
 */
#ifndef ENGINE_ADAPTERS_H
#define ENGINE_ADAPTERS_H

#include "engine/core/job_feature.h"

extern const job_feature adapters_feature;

#endif
