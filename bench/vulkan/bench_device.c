/* SPDX-License-Identifier: Apache-2.0 */
/* bench_device.c: a GPU's part of tools/bench_gpu, as lines of JSON: its name and the rate of copies in its memory, or
 * counts of what it does for a prompt, which need no fast device.
 *
 *   bench_device --device NAME
 *   bench_device --device NAME --count MODEL.gguf --tokens N --modules N --fresh N
 *
 * Copies: 20 in one submission, half of them after the others; a copied byte is read and written. The best of 5.
 * Counts: of the same prompt as a full prefill, and after its modules (of --tokens) are in device memory: bytes that
 * shaders load (tests/vulkan/load_counter.h), dispatches, submissions.
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
    printf("{\"name\":\"%s\",\"driver\":\"%s\",\"memory_bytes\":%llu,\"is_emulated\":%s,\"copy_gbs\":%.2f}\n",
           best->name, best->driver, (unsigned long long)best->memory_bytes,
           best->type == VK_PHYSICAL_DEVICE_TYPE_CPU ? "true" : "false", copy_gbs(d));
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

static void print_request(rp_engine *e, const char *name, const char *prompt, rp_reuse reuse, bool prints) {
    rp_error err;
    rp_result *r;
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(prompt);
    q.reuse = reuse;
    q.experiment = &experiment_no_prefix;
    q.max_tokens = 1;
    q.ignore_eos = true;
    load_counter_watch(0, UINT64_MAX);
    n_dispatches = n_submissions = 0;
    if (rp_engine_run(e, &q, &r, &err)) bench_die("run", &err);
    if (prints)
        printf("{\"cell\":\"%s\",\"cached\":%d,\"fresh\":%d,\"loaded_bytes\":%llu,\"dispatches\":%llu,"
               "\"submissions\":%llu,\"bytes_copied\":%llu}\n",
               name, r->cached_tokens, r->fresh_tokens, (unsigned long long)load_counter_bytes(), n_dispatches,
               n_submissions, (unsigned long long)r->bytes_copied);
    rp_result_free(r);
}

static void add_documents(const rp_model *m, int modules, int tokens, int fresh, bench_text *schema,
                          bench_text *prompt) {
    unsigned seed = 7;
    bench_text_add(schema, "<schema name=\"bench\">");
    bench_text_add(prompt, "<prompt schema=\"bench\">");
    for (int i = 0; i < modules; i++) {
        bench_text_add(schema, "<module name=\"m%d\">", i);
        bench_text_add_words(schema, m, (size_t)tokens, &seed);
        bench_text_add(schema, "</module>");
        bench_text_add(prompt, "<m%d/>", i);
    }
    bench_text_add(schema, "</schema>");
    bench_text_add_words(prompt, m, (size_t)fresh, &seed);
    bench_text_add(prompt, "</prompt>");
}

static void print_counts(const char *path, const char *device, int modules, int tokens, int fresh) {
    bench_text schema = {0}, prompt = {0};
    rp_error err;
    rp_model *m;
    rp_engine *e;
    const rp_device_options named = {.struct_size = sizeof(named), .name = device};
    rp_engine_options o = rp_engine_options_defaults();
    o.device = &named;
    o.n_threads = 1;
    vulkan_on_device = watch;
    if (rp_model_open(&m, path, NULL, &err)) bench_die("model", &err);
    add_documents(m, modules, tokens, fresh, &schema, &prompt);
    if (rp_engine_new(&e, m, &o, &err)) bench_die("engine", &err);
    if (rp_schema_parse(e, schema.bytes, schema.n, "bench", NULL, NULL, NULL, &err)) bench_die("schema", &err);
    print_request(e, "full", prompt.bytes, RP_REUSE_EXACT, true);
    print_request(e, "", prompt.bytes, RP_REUSE_ON, false);
    print_request(e, "hit", prompt.bytes, RP_REUSE_ON, true);
    load_counter_detach();
    rp_engine_free(e);
    rp_model_close(m);
    bench_text_free(&schema);
    bench_text_free(&prompt);
}

int main(int argc, char **argv) {
    bench_name = "bench_device";
    const char *device = argc >= 3 && strcmp(argv[1], "--device") == 0 ? argv[2] : "";
    const char *model = bench_text_after(argc, argv, "--count", NULL);
    const int tokens = bench_number_after(argc, argv, "--tokens", 100),
              modules = bench_number_after(argc, argv, "--modules", 5),
              fresh = bench_number_after(argc, argv, "--fresh", 20);
    int32_t number = BACKEND_ANY_DEVICE;
    if ((strcmp(device, "vulkan") != 0 && sscanf(device, "vulkan:%d", &number) != 1) || tokens < 1 || modules < 1 ||
        fresh < 1) {
        fprintf(stderr, "usage: bench_device --device vulkan[:N] [--count MODEL.gguf [--tokens N] [--modules N] "
                        "[--fresh N]]\n");
        return 2;
    }
    if (model) print_counts(model, device, modules, tokens, fresh);
    else print_device(number);
    return 0;
}
