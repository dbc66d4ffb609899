/* SPDX-License-Identifier: Apache-2.0 */
/* span_memory.h: may the KV of a span be trusted? The memory of a device can be lost (block_memory.h). Any thread. */
#ifndef KV_SPAN_MEMORY_H
#define KV_SPAN_MEMORY_H

#include "kv/span.h"

/* Has the memory of its blocks failed? If so, data that were read of it before this call may be wrong. */
bool kv_span_is_lost(const kv_span *s);

#endif
