/* SPDX-License-Identifier: Apache-2.0 */
/* test_probe.c: scattered recomputation, below the engine: spans with gaps between their positions, and the probe that
 * measures how far cached KV deviates from that of the current prompt.
 *
 * Scattered spans: the same tokens at the same positions, in a context that scatters and in one that does not, give the
 * same logits. The probe: against a plain run of the same tokens, with KV taken from its blocks; and bit-identical for
 * all sizes of steps.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "kv/host_memory.h"
#include "kernels/kernels.h"
#include "backend/backend_registry.h"
#include "model/forward.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/seed.h"

#define MAX_ROWS 32
#define N_CTX 512
#define N_FIRST 30 /* tokens of the first module, */
#define N_NEXT 90  /* of the second one: more than a block */
#define N_ALL (N_FIRST + N_NEXT)

/* Windows, soft caps, sinks, ALiBi, learned positions, parallel blocks, layers without positions, two bases of
   rotation, long-rope. */
static const char *const names[] = {"llama", "gemma2", "gemma3", "gpt-oss", "bloom",
                                    "mpt", "gpt2", "falcon-7b", "smollm3", "phi3-longrope"};

typedef struct world {
    const rp_model *model;
    const char *name;
    rp_kv_format format;
    kv_layer_shape layers[64]; /* of the pool's shape, where it has any: every second one, the probe's among them */
    backend *backend;
    model_forward *forward;
    kv_pool *pool;
    tiny_random *random;
    int32_t tokens[N_ALL];
} world;

static int32_t below(world *w, int32_t n) { return (int32_t)tiny_random_below(w->random, (uint64_t)n); }

/* Rows of a step: 1 to most, at most the rest. */
static int32_t some_rows(world *w, int32_t most, int32_t rest) {
    int32_t n = 1 + below(w, most);
    return BASE_MIN(n, rest);
}

static void open_forward(world *w, int32_t threads) {
    rp_error err = {0};
    base_cpu_level level;
    must(base_cpu_detect(&level, &err), &err);
    backend_options o = {.shape = model_kv_shape(w->model, w->format),
                         .level = level,
                         .n_ctx = N_CTX,
                         .n_threads = threads,
                         .max_rows = MAX_ROWS};
    must(backend_open(&w->backend, "cpu", &w->model->net, &o, &err), &err);
    must(model_forward_new(&w->forward, w->model, w->backend, MAX_ROWS, MAX_ROWS, &err), &err);
}

static void close_forward(world *w) {
    model_forward_free(w->forward);
    w->backend->ops->free(w->backend);
}

static void open_world(world *w, const rp_model *m, const char *name, rp_kv_format format, bool mixes,
                       tiny_random *random) {
    rp_error err = {0};
    *w = (world){.model = m, .name = name, .format = format, .random = random};
    kv_shape shape = model_kv_shape(m, format);
    assert_true(shape.n_layers <= 64);
    for (int32_t i = 0; i < shape.n_layers; i++) {
        w->layers[i] = shape.layers[i];
        w->layers[i].in_f16 = mixes && i % 2 == 1;
    }
    shape.layers = w->layers;
    open_forward(w, 1);
    must(kv_pool_new(&w->pool, &shape, (uint64_t)256 << 20, NULL, &err), &err);
    for (int32_t i = 0; i < N_ALL; i++) w->tokens[i] = below(w, m->net.hp.n_vocab);
}

static void close_world(world *w) {
    assert_int_equal(kv_pool_get_stats(w->pool).used_bytes, 0);
    close_forward(w);
    kv_pool_free(w->pool);
}

static void with_every_kind(void (*check)(world *w), tiny_random *random) {
    golden *g = golden_open();
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        rp_error err = {0};
        rp_model *m;
        const golden_model *file = golden_find(g, names[i]);
        assert_non_null(file);
        must(model_open(&m, file->path, NULL, &err), &err);
        for (int k = 0; k < 2 * RP_N_KV_FORMATS; k++) {
            world w;
            const rp_kv_format format = (rp_kv_format)(k / 2);
            if (kv_format_is_encoded(format) || (k % 2 == 1 && !kv_format_is_small(format))) continue;
            open_world(&w, m, names[i], format, k % 2, random);
            check(&w);
            close_world(&w);
        }
        model_close(m);
    }
    golden_close(g);
}

/* Appends n tokens at the given positions in steps of random sizes. logits: [n][n_vocab], or NULL. */
static void feed(world *w, kv_context *c, const int32_t *tokens, const int32_t *positions, int32_t n, float *logits) {
    rp_error err = {0};
    const kv_context *contexts[] = {c};
    for (int32_t done = 0, k; done < n; done += k) {
        model_row rows[MAX_ROWS];
        k = some_rows(w, MAX_ROWS, n - done);
        for (int32_t i = 0; i < k; i++) {
            rows[i] =
                (model_row){.token = tokens[done + i], .pos = positions[done + i], .wants_logits = logits != NULL};
            must(kv_context_append(c, rows[i].pos, &rows[i].span, &rows[i].slot, &err), &err);
        }
        must(model_forward_step(w->forward,
                                &(model_step){.rows = rows, .n_rows = k, .contexts = contexts, .n_contexts = 1}, logits,
                                &err),
             &err);
        if (logits) logits += (size_t)k * (size_t)w->model->net.hp.n_vocab;
    }
}

static void seal_all(kv_context *c) {
    base_key key = {{1}};
    kv_context_close(c);
    for (size_t i = 0; i < c->n_views; i++) kv_span_seal(c->views[i].span, &key);
}

static void feed_run(world *w, kv_context *c, const int32_t *tokens, int32_t pos, int32_t n) {
    int32_t positions[N_ALL];
    for (int32_t i = 0; i < n; i++) positions[i] = pos + i;
    feed(w, c, tokens, positions, n, NULL);
}

/* A module with no context. */
static void make_module(world *w, kv_context *c, const int32_t *tokens, int32_t pos, int32_t n) {
    kv_context_init(c, w->pool);
    feed_run(w, c, tokens, pos, n);
    seal_all(c);
}

static void add_views(kv_context *c, const kv_context *module, int32_t shift) {
    rp_error err = {0};
    for (size_t i = 0; i < module->n_views; i++)
        must(kv_context_add(c, module->views[i].span, shift, NULL, &err), &err);
}

/* ---- scattered spans ---- */

static void check_scattered(world *w) {
    int32_t positions[N_ALL], pos = 8;
    kv_context module, c[2];
    size_t bytes = sizeof(float) * N_ALL * (size_t)w->model->net.hp.n_vocab;
    float *logits[2] = {base_alloc(bytes), base_alloc(bytes)};
    for (int32_t i = 0; i < N_ALL; i++)
        positions[i] = pos, pos += below(w, 3) ? 1 : 1 + below(w, 4); /* gpt2 has 256 positions or more */
    make_module(w, &module, w->tokens, 0, 8);
    for (int i = 0; i < 2; i++) {
        kv_context_init(&c[i], w->pool);
        add_views(&c[i], &module, 0);
        c[i].scatters = i == 1;
        feed(w, &c[i], w->tokens, positions, N_ALL, logits[i]);
    }
    assert_true(c[0].n_views > c[1].n_views);
    assert_int_equal(c[1].n_views, 2);
    if (memcmp(logits[0], logits[1], bytes) != 0) fail_msg("%s: scattered tokens see something else", w->name);
    for (int i = 0; i < 2; i++) {
        kv_context_clear(&c[i]);
        base_free(logits[i]);
    }
    kv_context_clear(&module);
}

static void scattered_tokens_see_what_others_see(void **state) { with_every_kind(check_scattered, *state); }

/* ---- the probe ---- */

/* An element of a head's keys or values, of dim elements a slot. Keys of int8: of the orthonormal Hadamard transform,
   which keeps distances. */
static float element(rp_kv_format format, const void *p, bool is_key, int64_t dim, int slot, int64_t d) {
    int64_t i = is_key ? d * KV_BLOCK_SLOTS + slot : slot * dim + d;
    switch (format) {
    case RP_KV_F32: return ((const float *)p)[i];
    case RP_KV_INT8:
        return is_key ? kernel_int8_key(p, dim, slot, d) / sqrtf((float)kernel_hadamard_size(dim))
                      : kernel_int8_value(p, dim, slot, d);
    default: return kernel_f16_to_f32(((const uint16_t *)p)[i]);
    }
}

/* The KV of token i among a context's own tokens, all of them in spans of KV_SPAN_TOKENS. */
static void read_kv(const world *w, const kv_context *c, int32_t layer, int32_t i, float *out) {
    const kv_shape *s = kv_pool_shape(w->pool);
    const kv_span *span = c->views[i / KV_SPAN_TOKENS].span;
    const rp_kv_format format = kv_shape_layer_format(s, layer);
    int32_t block = i % KV_SPAN_TOKENS / KV_BLOCK_SLOTS, slot = i % KV_BLOCK_SLOTS;
    for (int32_t h = 0; h < kv_shape_heads(s); h++) {
        const void *keys = kv_host_bytes(kv_span_keys(span, layer, block, h)),
                   *values = kv_host_bytes(kv_span_values(span, layer, block, h));
        for (int32_t d = 0; d < s->layers[0].key_dim; d++)
            *out++ = element(format, keys, true, s->layers[0].key_dim, slot, d);
        for (int32_t d = 0; d < s->layers[0].value_dim; d++)
            *out++ = element(format, values, false, s->layers[0].value_dim, slot, d);
    }
}

/* By definition: the module alone against a plain run of all tokens, both at the same positions. */
static void naive_deviations(world *w, double *out) {
    int32_t layer = w->model->net.layers[model_probe_layer(w->model)].states;
    const kv_shape *s = kv_pool_shape(w->pool);
    int32_t n = kv_shape_heads(s) * (s->layers[0].key_dim + s->layers[0].value_dim);
    float *a = base_alloc(sizeof(float) * (size_t)n), *b = base_alloc(sizeof(float) * (size_t)n);
    kv_context plain, module;
    kv_context_init(&plain, w->pool);
    feed_run(w, &plain, w->tokens, 0, N_ALL);
    make_module(w, &module, w->tokens + N_FIRST, N_FIRST, N_NEXT);
    for (int32_t i = 0; i < N_NEXT; i++) {
        read_kv(w, &plain, layer, N_FIRST + i, a);
        read_kv(w, &module, layer, i, b);
        out[i] = 0;
        for (int32_t k = 0; k < n; k++) out[i] += ((double)a[k] - b[k]) * ((double)a[k] - b[k]);
    }
    kv_context_clear(&plain);
    kv_context_clear(&module);
    base_free(a);
    base_free(b);
}

/* The deviations of all tokens of a composed prompt, in steps of up to `most` rows. */
static void probe(world *w, const kv_context *c, int32_t most, float *out) {
    rp_error err = {0};
    const kv_context *contexts[] = {c};
    for (int32_t done = 0, k; done < N_ALL; done += k) {
        model_row rows[MAX_ROWS];
        k = some_rows(w, most, N_ALL - done);
        for (int32_t i = 0; i < k; i++) {
            bool first = done + i < N_FIRST;
            rows[i] = (model_row){.token = w->tokens[done + i],
                                  .pos = done + i,
                                  .span = c->views[first ? 0 : 1].span,
                                  .slot = done + i - (first ? 0 : N_FIRST)};
        }
        must(model_forward_probe(w->forward,
                                 &(model_step){.rows = rows, .n_rows = k, .contexts = contexts, .n_contexts = 1},
                                 out + done, &err),
             &err);
    }
}

/* home: where the second module was computed; limit: of differences, as a share of the largest deviation. */
static void check_probe_of(world *w, int32_t home, double limit) {
    float got[N_ALL], again[N_ALL];
    double expected[N_NEXT], most = 0;
    kv_context first, next, c;
    make_module(w, &first, w->tokens, 0, N_FIRST);
    make_module(w, &next, w->tokens + N_FIRST, home, N_NEXT);
    kv_context_init(&c, w->pool);
    add_views(&c, &first, 0);
    add_views(&c, &next, N_FIRST - home);
    probe(w, &c, MAX_ROWS, got);
    naive_deviations(w, expected);
    for (int32_t i = 0; i < N_FIRST; i++) assert_true(got[i] == 0); /* prefilled with the same context: no deviation */
    for (int32_t i = 0; i < N_NEXT; i++) most = BASE_MAX(most, expected[i]);
    assert_true(most > 0);
    for (int32_t i = 0; i < N_NEXT; i++) {
        double d = got[N_FIRST + i] - expected[i];
        if (d > limit * most || d < -limit * most)
            fail_msg("%s in %s, from %d: token %d deviates by %g, not by %g (largest %g)", w->name,
                     kv_format_name(w->format), (int)home, (int)i, (double)got[N_FIRST + i], expected[i], most);
    }
    for (int32_t threads = 1; threads <= 3; threads++) {
        close_forward(w);
        open_forward(w, threads);
        probe(w, &c, threads * 9, again);
        assert_memory_equal(got, again, sizeof(got));
    }
    kv_context_clear(&c);
    kv_context_clear(&first);
    kv_context_clear(&next);
}

/* Not moved, the module has the keys that the definition reads, in every format. A key rounded at another position
 * differs: in f16 in its last bit, and where two experts are nearly equal that bit chooses another one; in 8 bits as
 * much as the limit of f16. */
static void check_probe(world *w) {
    check_probe_of(w, N_FIRST, 1e-4);
    if (!model_is_movable(w->model)) return;
    if (w->format == RP_KV_F32) check_probe_of(w, 5, 1e-4);
    else if (w->format == RP_KV_F16 && w->model->net.hp.n_experts == 0) check_probe_of(w, 5, 2e-2);
}

static void a_probe_tells_how_far_states_are_from_a_plain_run(void **state) { with_every_kind(check_probe, *state); }

int main(void) {
    tiny_random random = {.state = test_seed("probe", 20261123)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(scattered_tokens_see_what_others_see, &random),
        cmocka_unit_test_prestate(a_probe_tells_how_far_states_are_from_a_plain_run, &random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
