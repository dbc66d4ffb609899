/* SPDX-License-Identifier: Apache-2.0 */
/* load_counter.h: counts the bytes that shaders load from a range of device memory.
 *
 * Every shader that a device opens is rewritten: before each load from memory by address (storage class
 * PhysicalStorageBuffer) it adds the size of the load to a counter if the range contains the address. A byte
 * that two invocations load counts twice, whatever caches do: the count is an upper bound of what memory delivers.
 * Shaders need no preparation, so that a new load in one of them is counted as well.
 *
 * One device at a time; not thread-safe.
 */
#ifndef VULKAN_LOAD_COUNTER_H
#define VULKAN_LOAD_COUNTER_H

#include "backend/vulkan/vulkan_device.h"

/* Rewrites the shaders of a device from now on (vulkan_on_device). */
void load_counter_attach(vulkan_device *d);
/* Before the device is freed; after it, counts are 0. */
void load_counter_detach(void);
/* Counts loads from [begin, begin + bytes), from 0 again. The device must be idle. */
void load_counter_watch(uint64_t begin, uint64_t bytes);
uint64_t load_counter_bytes(void);

#endif
