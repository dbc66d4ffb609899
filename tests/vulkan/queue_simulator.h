/* SPDX-License-Identifier: Apache-2.0 */
/* queue_simulator.h: two queues of a device on its one queue (vulkan_forced_copies), with the order of their work
 * chosen by a test. A submission is held until what it begins after is complete, and, if it copies, until the order
 * lets it go:
 *
 *   QUEUE_AS_SUBMITTED   none is held for its order
 *   QUEUE_COPIES_LATE    a copy begins when nothing else can: each part of a step that can run before it has run
 *   QUEUE_RANDOM         drawn for each copy
 *
 * A submission is complete before the next one begins, so that work that does not wait for what it needs reads what was
 * there before. Attach it to a device as it is opened (vulkan_on_device), in place of other replacements.
 */
#ifndef VULKAN_QUEUE_SIMULATOR_H
#define VULKAN_QUEUE_SIMULATOR_H

#include "backend/vulkan/vulkan_device.h"

typedef enum queue_order { QUEUE_AS_SUBMITTED,
                           QUEUE_COPIES_LATE,
                           QUEUE_RANDOM } queue_order;

void queue_simulator_attach(vulkan_device *d);
/* The order from now on, with an empty log. Nothing is held. */
void queue_simulator_start(queue_order order, uint64_t seed);
/* What ran since then, in its order: 's' a part of a step, 'c' copies; valid until the next start. Runs what is
 * held. */
const char *queue_simulator_log(void);

#endif
