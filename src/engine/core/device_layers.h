/* SPDX-License-Identifier: Apache-2.0 */
/* device_layers.h: which layers of a model an engine's device computes: the last ones, with the output head; the
 * processor computes the others, where the device's memory is too small for all weights (backend/split). While an
 * engine opens.
 */
#ifndef ENGINE_DEVICE_LAYERS_H
#define ENGINE_DEVICE_LAYERS_H

#include "backend/backend_registry.h"
#include "reprise_device.h"

/* Finds the backend of the engine by the options' name: the processor's, if no layer is the device's. RP_ERR_NAME,
 * RP_ERR_INVALID (layers), RP_ERR_UNSUPPORTED. */
int device_layers_find(rp_engine *e, const rp_device_options *o, rp_error *err);
/* Opens the engine's backend and its forward pass. Without a number of layers, and with a limit on the device's memory:
 * with all layers, or else with the most that leave memory for KV. Sets host_layers. As backend_open and
 * model_forward_new; RP_ERR_UNSUPPORTED, too: KV of an encoded format in two memories. */
int device_layers_open(rp_engine *e, const rp_device_options *o, backend_options *options, rp_error *err);

/* Are some layers the processor's? Then the KV of these is in RAM. */
bool device_layers_are_split(const rp_engine *e);

#define DEVICE_MIN_KV_BYTES ((uint64_t)1 << 20) /* of KV, or an engine does not open */

#endif
