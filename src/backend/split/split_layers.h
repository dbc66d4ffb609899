/* SPDX-License-Identifier: Apache-2.0 */
/* split_layers.h: where a network may be divided between the CPU and a device, and what computes it so. For the
 * registry, and for those who choose the number of layers. Any thread.
 */
#ifndef BACKEND_SPLIT_LAYERS_H
#define BACKEND_SPLIT_LAYERS_H

#include "backend/backend_registry.h"

/* Can a network be divided before this layer, which is neither its first nor after its last one? RP_ERR_UNSUPPORTED:
 * no, with the reason: a layer reads the KV, or what the indexer chose, of one on the other side; the device has no KV.
 */
int split_check(const model_network *net, int32_t first, rp_error *err);
/* Layers of spans that belong to layers before this one. */
int32_t split_kv_layers(const model_network *net, int32_t first);

/* Computes layers [0, options->host_layers) on the CPU, and the others on the device of that row; the number is greater
 * than 0, and less than the network's layers. As backend_row.open; RP_ERR_UNSUPPORTED (split_check). */
int split_backend_new(backend **out, const backend_row *device, const model_network *net,
                      const backend_options *options, rp_error *err);

#endif
