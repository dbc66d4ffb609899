/* SPDX-License-Identifier: Apache-2.0 */
/* span_memory.h: may the KV of a span be trusted? The memory of a device can be lost (block_memory.h). Any thread. */
#ifndef KV_SPAN_MEMORY_H
#define KV_SPAN_MEMORY_H

#include "kv/span.h"

/* The count of failures of the memory of its blocks: of a time before they are read or written, for kv_span_is_lost. */
uint64_t kv_span_failures(const kv_span *s);
/* Has a read or a write failed since that count, or is the memory lost? Bytes may then be wrong. Any thread. */
bool kv_span_is_lost(const kv_span *s, uint64_t since);

#endif
