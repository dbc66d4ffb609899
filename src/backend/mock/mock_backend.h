/* SPDX-License-Identifier: Apache-2.0 */
/* mock_backend.h: a backend without a model's arithmetic, for tests of many engines on few processors
 * (rp_model_open_mock).
 *
 *   KV of a token      8 numbers from a hash of the token and the position of its prefill, stored in any KV format
 *   state of a row     the sum, modulo 2^64, of a hash of each slot that its context shows it: the stored bytes, and
 *         the position in this prompt
 *   logits             of rows that want them: a hash of the state and the token's id, shaped so that answers look like
 *         text
 *
 * A sum of integers has no order, so that chunks, batches, spans, and hits change no bit; a wrong mask, shift or byte
 * changes all. A step takes the time of backend_options.times, slept, never spun.
 * What needs a model's attention (observers, bounds, deviations) sees none, always the same.
 * Kernels of the generic level store and encode the KV: the same bytes on all machines.
 */
#ifndef BACKEND_MOCK_BACKEND_H
#define BACKEND_MOCK_BACKEND_H

#include "backend/backend_registry.h"

#define MOCK_HEAD_DIM 4 /* of the network's only head, the least of all KV formats: 8 numbers, 64 bits, a token */

#endif
