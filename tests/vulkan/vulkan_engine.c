/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_engine.c: linked with --wrap=rp_engine_new (cmake/Vulkan.cmake), it makes every engine of a program compute on
 * Vulkan's best device, an emulated one included, or on that of REPRISE_TEST_DEVICE, with the layers of
 * REPRISE_TEST_DEVICE_LAYERS (test_device.h): the exactness tests of the CPU become those of the device.
 *
 * The device stays open until the program ends, so that its pipelines are made once. Without a device the program ends
 * with status 77: skipped.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */

#include <stdio.h>
#include <stdlib.h>

#include "backend/vulkan/vulkan_device.h"
#include "kv/kv_format.h"
#include "model/model.h"
#include "reprise_device.h"
#include "support/must.h"
#include "support/test_device.h"

int __real_rp_engine_new(rp_engine **out, rp_model *model, const rp_engine_options *options, rp_error *err);
int __wrap_rp_engine_new(rp_engine **out, rp_model *model, const rp_engine_options *options, rp_error *err);

static vulkan_device *device;
static size_t n_engines;

int __wrap_rp_engine_new(rp_engine **out, rp_model *model, const rp_engine_options *options, rp_error *err) {
    rp_engine_options o = options ? *options : rp_engine_options_defaults();
    const model_network *net = &model->net;
    const int32_t host_layers = kv_format_is_encoded(o.kv_format) ? 0 : test_host_layers(net);
    const rp_device_options named = {.struct_size = sizeof(named),
                                     .name = test_device(),
                                     .layers = host_layers ? net->hp.n_layers - host_layers : RP_DEVICE_LAYERS_AUTO};
    o.device = &named;
    n_engines++;
    return __real_rp_engine_new(out, model, &o, err);
}

__attribute__((constructor)) static void open_device(void) {
    vulkan_description all[VULKAN_MAX_DEVICES];
    rp_error err = {0};
    const char *why;
    int32_t number = -1;
    if (test_device_is_cpu()) setenv("REPRISE_TEST_DEVICE", "vulkan", 1);
    sscanf(test_device(), "vulkan:%d", &number);
    if (vulkan_instance_ref(&err)) {
        printf("skipped: %s\n", err.message);
        exit(77);
    }
    const vulkan_description *best = vulkan_choose(all, vulkan_describe_all(all), number, &why);
    if (!best) {
        printf("skipped: %s\n", why);
        exit(77);
    }
    printf("on %s, %s\n", best->name, best->driver);
    must(vulkan_device_ref(&device, best, &err), &err);
    vulkan_instance_unref();
}

__attribute__((destructor)) static void close_device(void) {
    vulkan_device_unref(device);
    if (device && n_engines == 0) {
        fprintf(stderr, "vulkan_engine: no engine was opened\n");
        _Exit(1);
    }
}
