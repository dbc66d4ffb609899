/* SPDX-License-Identifier: Apache-2.0 */
/* small_device.h: engines on a device with memory for a few columns of KV, and prompts that take each other's place in
 * it. For tests: a failing setup ends the program. Not thread-safe.
 */
#ifndef VULKAN_SMALL_DEVICE_H
#define VULKAN_SMALL_DEVICE_H

#include "reprise_device.h"
#include "support/oracle_run.h"

#define SMALL_MOST_TOKENS 512

/* A model, a format of KV, and what the rest of an engine takes of the device's memory. */
typedef struct small_device {
    rp_model *model;
    rp_kv_format format;
    int32_t n_vocab, n_tokens; /* of a prompt */
    uint64_t column_bytes;     /* of the KV of 64 tokens */
    uint64_t rest_bytes;       /* of the device's memory: what is not KV */
} small_device;

typedef struct small_device_setup {
    uint64_t device_bytes, ram_bytes; /* of KV; 0: as much as there is */
    rp_kv_in_place in_place;
    const char *store;
    int32_t layers; /* on the device; 0: all */
} small_device_setup;

/* The made-up model of the tiers' tests: 1 MiB of f32 a column, the least KV that an engine takes. */
tiny_model_shape small_device_shape(const char **chat);

void small_device_init(small_device *d, rp_model *model, rp_kv_format format, int32_t n_tokens);
/* rp_engine_new. */
int small_device_open(rp_engine **out, const small_device *d, const small_device_setup *s, rp_error *err);
/* Prompts of different numbers have no prefix in common. */
void small_device_ask(oracle_run *run, rp_engine *e, const small_device *d, int prompt, int32_t most,
                      rp_adapter *adapter);

#endif
