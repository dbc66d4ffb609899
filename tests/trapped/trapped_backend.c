/* SPDX-License-Identifier: Apache-2.0 */
/* trapped_backend.c: linked with --wrap=cpu_backend_new (cmake/Tests.cmake), it makes every CPU backend of a program
 * keep its KV in trap memory (support/trap_memory.h), which only the operations on blocks open: anyone else who touches
 * a byte of a block ends the program. The engine tests that are built again with it are the tests of everything above
 * the backend with KV on a device.
 *
 * A program that made no such memory fails at its exit.
 */
#include <stdio.h>
#include <unistd.h>

#include "backend/backend_registry.h"
#include "support/trap_memory.h"

int __real_cpu_backend_new(backend **out, const model_network *net, const backend_options *options, rp_error *err);
int __wrap_cpu_backend_new(backend **out, const model_network *net, const backend_options *options, rp_error *err);

static const backend_ops *cpu; /* the same table for all backends */

static kv_memory *memory(backend *b) {
    (void)b;
    return trap_memory();
}

static void store(backend *b, int32_t layer, backend_buffer *keys, const backend_buffer *values) {
    trap_memory_open();
    cpu->store(b, layer, keys, values);
    trap_memory_close();
}

static int encode(backend *b, const kv_span *from, kv_span *to, rp_error *err) {
    trap_memory_open();
    const int rc = cpu->encode(b, from, to, err);
    trap_memory_close();
    return rc;
}

static int read_head(backend *b, const kv_span *const *run, size_t n, int32_t layer, int32_t kv_head, bool is_key,
                     float *to, rp_error *err) {
    trap_memory_open();
    const int rc = cpu->study->read_head(b, run, n, layer, kv_head, is_key, to, err);
    trap_memory_close();
    return rc;
}

static int bound(backend *b, struct slot_bounds *bounds, const kv_context *context, rp_error *err) {
    trap_memory_open();
    const int rc = cpu->study->bound(b, bounds, context, err);
    trap_memory_close();
    return rc;
}

static void deviate(backend *b, int32_t layer, backend_buffer *keys, const backend_buffer *values, float *deviations) {
    trap_memory_open();
    cpu->study->deviate(b, layer, keys, values, deviations);
    trap_memory_close();
}

static void attend(backend *b, int32_t layer, const backend_buffer *queries, backend_buffer *dst) {
    trap_memory_open();
    cpu->attend(b, layer, queries, dst);
    trap_memory_close();
}

int __wrap_cpu_backend_new(backend **out, const model_network *net, const backend_options *options, rp_error *err) {
    static backend_ops trapped;
    static backend_study study;
    const int rc = __real_cpu_backend_new(out, net, options, err);
    if (rc) return rc;
    if (!cpu) {
        trapped = *(cpu = (*out)->ops);
        trapped.memory = memory;
        trapped.store = store;
        trapped.encode = encode;
        trapped.attend = attend;
        study = *cpu->study;
        study.read_head = read_head;
        study.bound = bound;
        study.deviate = deviate;
        trapped.study = &study;
    }
    (*out)->ops = &trapped;
    return RP_OK;
}

__attribute__((destructor)) static void check_use(void) {
    if (trap_memory_used().allocated > 0) return;
    fprintf(stderr, "trapped_backend: no KV was in trap memory\n");
    _exit(1);
}
