/* SPDX-License-Identifier: Apache-2.0 */
/* bench_device.c: a GPU's part of tools/bench_gpu, as lines of JSON: its name and the rate of copies in its memory, or
 * counts of what it does for a prompt, which need no fast device.
 *
 *   bench_device --device NAME
 *   bench_device --device NAME --count MODEL.gguf --tokens N --modules N --fresh N
 *
 * Copies: 20 in one submission, half of them after the others; a copied byte is read and written. The best of 5.
 * Counts: of the same prompt as a full prefill, and after its modules (of --tokens) are in device memory, in RAM and
 * copied, and in RAM and read in place: bytes that shaders load (tests/vulkan/load_counter.h), dispatches, submissions,
 * bytes over the bus. Memory of a device that is RAM counts as apart from it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend_registry.h"
#include "base/compiler.h"
#include "load_counter.h"
#include "reprise_device.h"
#include "reprise_pml.h"
#include "support.h"
#include "support/experiments.h"

#define COPY_BYTES ((uint64_t)256 << 20)
#define COPIES 20
#define PASSES 5

/* ---- copies ---- */

static double copy_once_s(vulkan_stream *s, const vulkan_buffer *from, const vulkan_buffer *to) {
    rp_error err = {0};
    if (vulkan_stream_begin(s, &err)) bench_die("commands", &err);
    for (int i = 0; i < COPIES; i++) {
        s->device->vk.vkCmdCopyBuffer(s->commands, i % 2 ? to->handle : from->handle, i % 2 ? from->handle : to->handle,
                                      1, &(VkBufferCopy){.size = from->bytes});
        vulkan_stream_barrier(s);
    }
    const double start = bench_now_s();
    if (vulkan_stream_submit(s, (vulkan_after){0}, &err) || vulkan_stream_wait(s, &err)) bench_die("a copy", &err);
    return bench_now_s() - start;
}

static double copy_gbs(vulkan_device *d) {
    vulkan_buffer from, to;
    vulkan_timeline timeline;
    vulkan_stream s;
    rp_error err = {0};
    double best = 0;
    const bool is_emulated = d->description.type == VK_PHYSICAL_DEVICE_TYPE_CPU;
    const uint64_t bytes = is_emulated ? COPY_BYTES / 16 : COPY_BYTES;
    if (vulkan_buffer_new(d, VULKAN_ON_DEVICE, bytes, "a copy", &from, &err) ||
        vulkan_buffer_new(d, VULKAN_ON_DEVICE, bytes, "a copy", &to, &err) ||
        vulkan_timeline_new(&timeline, d, &err) || vulkan_stream_new(&s, d, &d->queue, &timeline, &err))
        bench_die("memory", &err);
    for (int i = 0; i < PASSES; i++) {
        const double seconds = copy_once_s(&s, &from, &to), rate = 2.0 * COPIES * (double)bytes / seconds * 1e-9;
        best = rate > best ? rate : best;
    }
    vulkan_stream_free(&s);
    vulkan_timeline_free(&timeline);
    vulkan_buffer_free(d, &from);
    vulkan_buffer_free(d, &to);
    return best;
}

static void print_device(int32_t number) {
    vulkan_description all[VULKAN_MAX_DEVICES];
    vulkan_device *d;
    rp_error err = {0};
    const char *why;
    if (vulkan_instance_ref(&err)) bench_die("Vulkan", &err);
    const vulkan_description *best = vulkan_choose(all, vulkan_describe_all(all), number, &why);
    if (!best) {
        fprintf(stderr, "%s: %s\n", bench_name, why);
        exit(1);
    }
    if (vulkan_device_ref(&d, best, &err)) bench_die("device", &err);
    printf("{\"name\":\"%s\",\"driver\":\"%s\",\"memory_bytes\":%llu,\"is_emulated\":%s,\"has_memory\":%s,"
           "\"copy_gbs\":%.2f}\n",
           best->name, best->driver, (unsigned long long)best->memory_bytes,
           best->type == VK_PHYSICAL_DEVICE_TYPE_CPU ? "true" : "false", d->is_mapped ? "false" : "true",
           copy_gbs(d));
    vulkan_device_unref(d);
    vulkan_instance_unref();
}

/* ---- counts ---- */

static struct VolkDeviceTable real;
static unsigned long long n_dispatches, n_submissions;

static VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer c, uint32_t x, uint32_t y, uint32_t z) {
    n_dispatches++;
    real.vkCmdDispatch(c, x, y, z);
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue q, uint32_t n, const VkSubmitInfo *infos, VkFence fence) {
    n_submissions++;
    return real.vkQueueSubmit(q, n, infos, fence);
}

static void watch(vulkan_device *d) {
    real = d->vk;
    d->vk.vkCmdDispatch = dispatch;
    d->vk.vkQueueSubmit = submit;
    load_counter_attach(d);
}

typedef struct subject {
    rp_model *model;
    rp_engine *engine;
    const rp_device_options *device;
    const char *prompt;
    unsigned seed; /* of the next modules */
    int n_modules, n_tokens, n_fresh;
} subject;

/* The schema and prompt of n_modules new modules, each of n_tokens tokens. */
static void add_documents(subject *s, const char *name, bench_text *schema, bench_text *prompt) {
    bench_text_add(schema, "<schema name=\"%s\">", name);
    bench_text_add(prompt, "<prompt schema=\"%s\">", name);
    for (int i = 0; i < s->n_modules; i++) {
        bench_text_add(schema, "<module name=\"m%d\">", i);
        bench_text_add_words(schema, s->model, (size_t)s->n_tokens, &s->seed);
        bench_text_add(schema, "</module>");
        bench_text_add(prompt, "<m%d/>", i);
    }
    bench_text_add(schema, "</schema>");
    bench_text_add_words(prompt, s->model, (size_t)s->n_fresh, &s->seed);
    bench_text_add(prompt, "</prompt>");
}

static rp_result *run(const subject *s, const char *prompt, rp_reuse reuse) {
    rp_error err;
    rp_result *r;
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(prompt);
    q.reuse = reuse;
    q.experiment = &experiment_no_prefix;
    q.max_tokens = 1;
    q.ignore_eos = true;
    if (rp_engine_run(s->engine, &q, &r, &err)) bench_die("run", &err);
    return r;
}

/* tier: of the modules; NULL: they are computed */
static void print_request(const subject *s, const char *cell, const char *tier) {
    rp_device_usage before = {.struct_size = sizeof(before)}, after = before;
    rp_engine_device_usage(s->engine, &before);
    load_counter_watch(0, UINT64_MAX);
    n_dispatches = n_submissions = 0;
    rp_result *r = run(s, s->prompt, tier ? RP_REUSE_ON : RP_REUSE_EXACT);
    rp_engine_device_usage(s->engine, &after);
    if (r->cached_tokens > (tier ? bench_tokens_of_tier(r, tier) + 1 : 0)) { /* 1: at the beginning of the text */
        fprintf(stderr, "%s: %s: of %d tokens %d are in device memory, %d in RAM\n", bench_name, cell, r->cached_tokens,
                bench_tokens_of_tier(r, "device"), bench_tokens_of_tier(r, "ram"));
        exit(1);
    }
    printf("{\"cell\":\"%s\",\"cached\":%d,\"fresh\":%d,\"loaded_bytes\":%llu,\"dispatches\":%llu,"
           "\"submissions\":%llu,\"to_device_bytes\":%llu,\"to_host_bytes\":%llu,\"in_place_bytes\":%llu}\n",
           cell, r->cached_tokens, r->fresh_tokens, (unsigned long long)load_counter_bytes(), n_dispatches,
           n_submissions, (unsigned long long)(after.to_device_bytes - before.to_device_bytes),
           (unsigned long long)(after.to_host_bytes - before.to_host_bytes),
           (unsigned long long)(after.in_place_bytes - before.in_place_bytes));
    rp_result_free(r);
}

static void parse(const subject *s, const bench_text *schema) {
    rp_error err;
    if (rp_schema_parse(s->engine, schema->bytes, schema->n, "bench", NULL, NULL, NULL, &err))
        bench_die("schema", &err);
}

/* Device memory for the modules and half as many again: two sets of other modules take their place. */
static void print_ram_counts(const subject *like, const bench_text *schema, const char *cell, rp_kv_in_place in_place) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_device_options device = *like->device;
    rp_model_info info = {.struct_size = sizeof(info)};
    subject s = *like;
    device.kv_in_place = in_place;
    o.device = &device;
    o.n_threads = 1;
    rp_model_describe(s.model, &info);
    s.engine = bench_open_small_device(s.model, &o,
                                       (uint64_t)(s.n_modules * s.n_tokens) * 3 / 2 * info.kv_bytes_per_token);
    parse(&s, schema);
    rp_result_free(run(&s, s.prompt, RP_REUSE_ON));
    for (int i = 0; i < 2; i++) {
        char name[16];
        bench_text others = {0}, prompt = {0};
        snprintf(name, sizeof(name), "others%d", i);
        add_documents(&s, name, &others, &prompt);
        parse(&s, &others);
        rp_result_free(run(&s, prompt.bytes, RP_REUSE_ON));
        bench_text_free(&others);
        bench_text_free(&prompt);
    }
    print_request(&s, cell, "ram");
    rp_engine_free(s.engine);
}

static void print_counts(const char *path, const char *name, subject *s) {
    bench_text schema = {0}, prompt = {0};
    rp_error err;
    const rp_device_options device = {.struct_size = sizeof(device), .name = name};
    rp_engine_options o = rp_engine_options_defaults();
    o.device = s->device = &device;
    o.n_threads = 1;
    vulkan_on_device = watch;
    vulkan_is_unmapped = true;
    if (rp_model_open(&s->model, path, NULL, &err)) bench_die("model", &err);
    add_documents(s, "bench", &schema, &prompt);
    s->prompt = prompt.bytes;
    if (rp_engine_new(&s->engine, s->model, &o, &err)) bench_die("engine", &err);
    if (rp_engine_prepare(s->engine, NULL, NULL, &err)) bench_die("weights", &err);
    parse(s, &schema);
    print_request(s, "full", NULL);
    rp_result_free(run(s, s->prompt, RP_REUSE_ON));
    print_request(s, "device", "device");
    print_ram_counts(s, &schema, "ram, copied", RP_KV_IN_PLACE_NEVER);
    print_ram_counts(s, &schema, "ram, in place", RP_KV_IN_PLACE_ALWAYS);
    load_counter_detach();
    rp_engine_free(s->engine);
    rp_model_close(s->model);
    bench_text_free(&schema);
    bench_text_free(&prompt);
}

int main(int argc, char **argv) {
    bench_name = "bench_device";
    const char *device = argc >= 3 && strcmp(argv[1], "--device") == 0 ? argv[2] : "";
    const char *model = bench_text_after(argc, argv, "--count", NULL);
    subject s = {.seed = 7,
                 .n_tokens = bench_number_after(argc, argv, "--tokens", 100),
                 .n_modules = bench_number_after(argc, argv, "--modules", 5),
                 .n_fresh = bench_number_after(argc, argv, "--fresh", 20)};
    int32_t number = BACKEND_ANY_DEVICE;
    if ((strcmp(device, "vulkan") != 0 && sscanf(device, "vulkan:%d", &number) != 1) || s.n_tokens < 1 ||
        s.n_modules < 1 || s.n_fresh < 1) {
        fprintf(stderr, "usage: bench_device --device vulkan[:N] [--count MODEL.gguf [--tokens N] [--modules N] "
                        "[--fresh N]]\n");
        return 2;
    }
    if (model) print_counts(model, device, &s);
    else print_device(number);
    return 0;
}
