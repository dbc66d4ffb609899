/* SPDX-License-Identifier: Apache-2.0 */
/* kv_event_batch.h: KV events as vLLM encodes them in MessagePack: arrays, an event with its tag first.
 *
 *   batch   [seconds since 1970 (float64), [event, ...], 0 (data-parallel rank)]
 *   event   ["BlockStored", [hash, ...], parent's hash | nil, [token, ...], block size, nil (lora_id), medium, nil
 *         (lora_name)]
 *           ["BlockRemoved", [hash, ...], medium]
 *           ["AllBlocksCleared"]
 *
 * A hash is the first 8 bytes of a name, as an integer of big-endian bytes; not 0, which gateways take for "no parent".
 * medium: "CPU" (RAM) or "DISK"; a block in both is stored twice. The blocks of a BlockStored are a chain: each is the
 * parent of the next. Without a state.
 */
#ifndef SERVER_KV_EVENT_BATCH_H
#define SERVER_KV_EVENT_BATCH_H

#include "base/buffer.h"
#include "server/node/kv_blocks.h"

/* Appends a batch to out. cleared: it begins with AllBlocksCleared. RP_ERR_MEMORY, RP_ERR_LIMIT (out's). */
int kv_event_batch_write(base_buffer *out, double seconds, bool cleared, const kv_block_change *changes, size_t n);

#endif
