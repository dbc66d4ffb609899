/* SPDX-License-Identifier: Apache-2.0 */
/* test_layers.c: models of which the device computes the last layers, and the processor the others (docs/gpu.md,
 * "Layers on the processor"): every number of layers gives answers near those of either alone; a hit gives the bytes of
 * a miss, in every chunk and format, from the disk, and with little memory; the limit of device memory chooses the
 * number, the same one at each start; what it cannot do is refused by name.
 *
 * REPRISE_TEST_ROUNDS: numbers of layers for which hits are compared, of 3.
 */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "reprise_adapter.h"
#include "reprise_cluster.h"
#include "reprise_device.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "support/golden.h"
#include "support/lora_file.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/seed.h"

#define N_LAYERS 4
#define N_EMBD 64
#define N_TOKENS 110 /* two columns of KV */
#define STEPS 3
#define WORDS " the quick river of Lisbon and 42 rivers of the quick and so on"

static const char schema[] = "<schema name=\"s\">You know" WORDS ".<module name=\"a\">One" WORDS WORDS WORDS
                             "</module><module name=\"b\">Two" WORDS WORDS WORDS WORDS "</module></schema>";
static const char both[] = "<prompt schema=\"s\"><a/><b/><user>And now" WORDS "?</user></prompt>";
static const char second[] = "<prompt schema=\"s\"><b/><user>And now" WORDS "?</user></prompt>"; /* b is moved */

static oracle_model model, wide; /* wide: 4 MiB of weights in each layer */

typedef struct setup {
    const char *device;  /* NULL: vulkan */
    int32_t layers;      /* on the device */
    uint64_t device_ram; /* 0: no limit */
    uint64_t ram;        /* of KV; 0: 64 MiB */
    rp_kv_format format; /* a zero is f16 */
    int32_t chunk;
    const char *store;
    const oracle_model *model; /* NULL: the narrow one */
} setup;

static int try_open(rp_engine **out, const setup *s, rp_error *err) {
    const rp_device_options device = {.struct_size = sizeof(device),
                                      .name = s->device ? s->device : "vulkan",
                                      .ram_bytes = s->device_ram,
                                      .layers = s->layers};
    rp_engine_options o = rp_engine_options_defaults();
    o.device = &device;
    o.n_threads = 1;
    o.n_ctx = 512;
    o.chunk_tokens = s->chunk;
    o.kv_format = s->format;
    o.kv_budget_bytes = s->ram ? s->ram : (uint64_t)64 << 20;
    o.store_dir = s->store;
    return rp_engine_new(out, (s->model ? s->model : &model)->model, &o, err);
}

static rp_engine *open_engine(const setup *s) {
    rp_engine *e;
    rp_error err = {0};
    must(try_open(&e, s, &err), &err);
    must(rp_schema_parse(e, schema, strlen(schema), "schema", NULL, NULL, NULL, &err), &err);
    return e;
}

static rp_device_usage usage_of(rp_engine *e) {
    rp_device_usage u = {.struct_size = sizeof(u)};
    assert_int_equal(rp_engine_device_usage(e, &u), RP_OK);
    return u;
}

static rp_store_stats stats_of(rp_engine *e) {
    rp_store_stats t = {.struct_size = sizeof(t)};
    assert_int_equal(rp_engine_store_stats(e, &t), RP_OK);
    return t;
}

/* Prompts that have no token in common. */
static void ask_tokens(oracle_run *run, rp_engine *e, int prompt, int32_t most) {
    int32_t tokens[N_TOKENS];
    rp_request req = rp_request_defaults();
    for (int32_t i = 0; i < N_TOKENS; i++) tokens[i] = 20 + prompt * 100 + i * (prompt + 3) % 97;
    req.prompt = rp_prompt_tokens(tokens, N_TOKENS);
    req.max_tokens = most;
    req.ignore_eos = true;
    oracle_run_make(run, e, &req);
}

static rp_request request(const char *prompt, rp_reuse reuse) {
    rp_request req = rp_request_defaults();
    req.prompt = rp_prompt_pml(prompt);
    req.reuse = reuse;
    req.max_tokens = STEPS;
    req.ignore_eos = true;
    return req;
}

static void ask(oracle_run *run, rp_engine *e, const char *prompt, rp_reuse reuse) {
    const rp_request req = request(prompt, reuse);
    oracle_run_make(run, e, &req);
    must(run->rc, &run->err);
}

/* The same bytes as those; the tokens of it that were cached. */
static int32_t check(rp_engine *e, const char *prompt, rp_reuse reuse, const oracle_run *expected) {
    oracle_run run;
    ask(&run, e, prompt, reuse);
    assert_true(oracle_run_same(&run, expected));
    const int32_t n = run.result->cached_tokens;
    oracle_run_free(&run);
    return n;
}

/* ---- results ---- */

/* All weights are F32: the processor, the device, and every mixture of them compute the same sums in other orders. */
static void every_number_of_layers_is_near_the_processor(void **state) {
    oracle_run expected, alone, run;
    rp_engine *c = open_engine(&(setup){.device = "cpu", .format = RP_KV_F32}),
              *d = open_engine(&(setup){.format = RP_KV_F32});
    (void)state;
    ask_tokens(&expected, c, 0, 1);
    ask_tokens(&alone, d, 0, 1);
    for (int32_t layers = RP_DEVICE_LAYERS_NONE; layers <= N_LAYERS + 1; layers++) {
        if (layers == RP_DEVICE_LAYERS_AUTO) continue;
        rp_engine *e = open_engine(&(setup){.layers = layers, .format = RP_KV_F32});
        const bool is_split = layers > 0 && layers < N_LAYERS;
        ask_tokens(&run, e, 0, 1);
        must(run.rc, &run.err);
        const double difference =
            oracle_deviation(oracle_run_logits(&run, 0), oracle_run_logits(&expected, 0), run.n_vocab);
        printf("%d layers on the device: %.2g from the processor\n", layers, difference);
        assert_true(difference < 1e-4);
        assert_int_equal(oracle_run_same(&run, &expected), layers == RP_DEVICE_LAYERS_NONE);
        assert_int_equal(oracle_run_same(&run, &alone), layers >= N_LAYERS);
        const rp_device_usage u = usage_of(e);
        assert_int_equal(u.layers, layers < 0 ? 0 : layers < N_LAYERS ? layers
                                                                      : N_LAYERS);
        assert_int_equal(u.carried_bytes, is_split ? sizeof(float) * N_TOKENS * N_EMBD : 0); /* once a row */
        assert_int_equal(u.to_host_bytes, 0);
        assert_true(is_split ? u.submits > 0 && u.kv_bytes > 0 : true);
        oracle_run_free(&run);
        rp_engine_free(e);
    }
    oracle_run_free(&expected);
    oracle_run_free(&alone);
    rp_engine_free(c);
    rp_engine_free(d);
}

static void hits_give_the_bytes_of_misses(void **state) {
    static const int32_t chunks[] = {256, 37}, numbers[] = {2, 1, 3};
    static const rp_kv_format formats[] = {RP_KV_F16, RP_KV_F32, RP_KV_INT8};
    (void)state;
    for (int n = 0; n < test_rounds(3); n++)
        for (int f = 0; f < 3; f++) {
            oracle_run first = {0}, moved = {0};
            for (int c = 0; c < 2; c++) {
                rp_engine *e =
                    open_engine(&(setup){.layers = numbers[n], .chunk = chunks[c], .format = formats[f]});
                if (c == 0) ask(&first, e, both, RP_REUSE_OFF);
                if (c == 0) ask(&moved, e, second, RP_REUSE_OFF);
                check(e, both, RP_REUSE_ON, &first); /* prefills the modules */
                assert_true(check(e, both, RP_REUSE_ON, &first) > 100);
                assert_true(check(e, second, RP_REUSE_ON, &moved) > 100);
                assert_int_equal(check(e, both, RP_REUSE_OFF, &first), 0);
                rp_engine_free(e);
            }
            oracle_run_free(&first);
            oracle_run_free(&moved);
        }
}

/* Rows of two requests in one step. */
static void other_requests_change_nothing(void **state) {
    oracle_run alone[2], together[2];
    rp_job *jobs[2];
    rp_engine *e = open_engine(&(setup){.layers = 2, .chunk = 64});
    const rp_request requests[2] = {request(both, RP_REUSE_OFF), request(second, RP_REUSE_OFF)};
    (void)state;
    for (int i = 0; i < 2; i++) ask(&alone[i], e, i ? second : both, RP_REUSE_OFF);
    for (int i = 0; i < 2; i++) must(oracle_run_submit(&together[i], e, &requests[i], &jobs[i]), &together[i].err);
    for (int i = 0; i < 2; i++) oracle_run_finish(&together[i], jobs[i]);
    for (int i = 0; i < 2; i++) {
        must(together[i].rc, &together[i].err);
        assert_true(oracle_run_same(&alone[i], &together[i]));
        oracle_run_free(&alone[i]);
        oracle_run_free(&together[i]);
    }
    rp_engine_free(e);
}

/* An adapter adds to the layers of both sides. */
static void adapters_change_both_sides(void **state) {
    const lora_shape shape = {.rank = 4, .alpha = 8, .type = KERNEL_F32, .seed = 1};
    rp_engine *e = open_engine(&(setup){.layers = 2, .format = RP_KV_F32}),
              *c = open_engine(&(setup){.device = "cpu", .format = RP_KV_F32});
    char base[] = "/tmp/reprise-layers-XXXXXX", file[64];
    rp_request req = request(both, RP_REUSE_OFF);
    oracle_run plain, run, hit, other;
    rp_adapter *adapter;
    rp_error err = {0};
    const int fd = mkstemp(base);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    must(tiny_model_write(base, &model.shape, &err), &err); /* the model's own file is unlinked */
    lora_file_write(base, &shape, file);
    must(rp_adapter_open(&adapter, model.model, file, &err), &err);
    unlink(file);
    unlink(base);
    ask(&plain, e, both, RP_REUSE_OFF);
    req.adapter = adapter;
    oracle_run_make(&run, e, &req);
    must(run.rc, &run.err);
    oracle_run_make(&other, c, &req);
    assert_false(oracle_run_same(&run, &plain));
    assert_true(oracle_deviation(oracle_run_logits(&run, 0), oracle_run_logits(&other, 0), run.n_vocab) < 1e-4);
    req.reuse = RP_REUSE_ON;
    for (int i = 0; i < 2; i++) {
        oracle_run_make(&hit, e, &req);
        must(hit.rc, &hit.err);
        assert_true(oracle_run_same(&hit, &run));
        assert_int_equal(hit.result->cached_tokens > 0, i == 1);
        oracle_run_free(&hit);
    }
    oracle_run_free(&plain);
    oracle_run_free(&run);
    oracle_run_free(&other);
    rp_engine_free(e);
    rp_engine_free(c);
    rp_adapter_close(adapter);
}

/* ---- the disk ---- */

static int32_t cached_in(const char *dir, int32_t layers, oracle_run *run) {
    rp_engine *e = open_engine(&(setup){.layers = layers, .store = dir});
    ask(run, e, both, RP_REUSE_ON);
    rp_engine_free(e);
    return run->result->cached_tokens;
}

/* A record has the KV of both memories, and is a hit for the same number of layers alone. */
static void the_disk_keeps_numbers_of_layers_apart(void **state) {
    static const int32_t numbers[] = {2, 1, RP_DEVICE_LAYERS_NONE, N_LAYERS};
    char dir[] = "/tmp/reprise-layers-XXXXXX", command[64];
    oracle_run run[4], again;
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 4; i++) assert_int_equal(cached_in(dir, numbers[i], &run[i]), 0);
    for (int i = 0; i < 4; i++) {
        assert_true(cached_in(dir, numbers[i], &again) > 100);
        assert_true(oracle_run_same(&run[i], &again));
        oracle_run_free(&again);
    }
    for (int i = 0; i < 4; i++) oracle_run_free(&run[i]);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* ---- memory ---- */

/* Memory for a few spans, on either side: others are evicted, and what comes back from the disk has the bytes of a
   miss. */
static void little_memory_changes_nothing(void **state) {
    char dir[] = "/tmp/reprise-layers-XXXXXX", command[64];
    oracle_run expected[4], run;
    rp_engine *e = open_engine(&(setup){.layers = 1});
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 4; i++) {
        ask_tokens(&expected[i], e, i, STEPS);
        must(expected[i].rc, &expected[i].err);
    }
    const uint64_t column = 64 * 4 * 16 * 2 * 2; /* of a layer: keys and values in f16 */
    rp_engine_free(e);
    const setup small = {.layers = 1, .ram = 3 * 6 * column, .store = dir};
    e = open_engine(&small);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 4; i++) {
            ask_tokens(&run, e, i, STEPS);
            must(run.rc, &run.err);
            assert_true(oracle_run_same(&run, &expected[i]));
            assert_true(round == 0 || run.result->cached_tokens > 0);
            oracle_run_free(&run);
            rp_memory m = {.struct_size = sizeof(m)};
            assert_int_equal(rp_engine_memory(e, &m), RP_OK);
            assert_true(m.kv > 0 && m.kv <= small.ram);
        }
    assert_true(stats_of(e).disk_reads > 0);
    assert_true(stats_of(e).budget_bytes <= small.ram * N_LAYERS / 3);
    rp_engine_free(e);
    for (int i = 0; i < 4; i++) oracle_run_free(&expected[i]);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* Opens with that limit, computes if it is asked to, and returns the number of layers. */
static uint64_t layers_with(uint64_t device_ram, bool computes, char identity[80]) {
    rp_engine *e = open_engine(&(setup){.model = &wide, .device_ram = device_ram});
    oracle_run run;
    if (computes) {
        ask_tokens(&run, e, 1, 1);
        must(run.rc, &run.err);
        oracle_run_free(&run);
    }
    const rp_device_usage u = usage_of(e);
    if (u.layers > 0) assert_true(u.weight_bytes + u.activation_bytes + u.kv_bytes + u.scratch_bytes <= device_ram);
    snprintf(identity, 80, "%s", rp_engine_identity(e));
    rp_engine_free(e);
    return u.layers;
}

static void a_limit_of_memory_chooses_the_layers(void **state) {
    const uint64_t large = (uint64_t)1 << 30, mib = (uint64_t)1 << 20;
    rp_engine *e = open_engine(&(setup){.model = &wide, .device_ram = large, .ram = large});
    const uint64_t rest = large - stats_of(e).budget_bytes; /* all but KV */
    char identity[80], again[80], processor[80];
    uint64_t before = N_LAYERS, seen = 0;
    (void)state;
    rp_engine_free(e);
    e = open_engine(&(setup){.model = &wide, .device = "cpu"});
    snprintf(processor, sizeof(processor), "%s", rp_engine_identity(e));
    rp_engine_free(e);
    for (int i = 0; i < 10; i++) {
        const uint64_t limit = rest + mib - (uint64_t)i * 2 * mib, layers = layers_with(limit, i == 3, identity);
        printf("%llu MiB: %llu layers\n", (unsigned long long)(limit / mib), (unsigned long long)layers);
        assert_true(i == 0 ? layers == N_LAYERS : layers <= before);
        assert_int_equal(layers_with(limit, false, again), layers); /* the next start */
        assert_string_equal(again, identity);
        assert_int_equal(strcmp(identity, processor) == 0, layers == 0);
        seen |= (uint64_t)1 << layers;
        before = layers;
    }
    assert_int_equal(layers_with(mib, true, identity), 0);
    assert_string_equal(identity, processor);
    assert_int_equal(seen | 1, (1 << (N_LAYERS + 1)) - 1); /* each number of them */
}

/* ---- refusals ---- */

static void expect_refusal(const setup *s, int rc, const char *text) {
    rp_engine *e = NULL;
    rp_error err = {0};
    assert_int_equal(try_open(&e, s, &err), rc);
    assert_null(e);
    if (!strstr(err.message, text)) fail_msg("'%s' has no '%s'", err.message, text);
}

static void what_is_impossible_is_refused_by_name(void **state) {
    golden *g = golden_open();
    rp_engine_options o = rp_engine_options_defaults();
    rp_device_options device = {.struct_size = sizeof(device), .name = "vulkan", .layers = 1};
    rp_model *m;
    rp_engine *e = NULL;
    rp_error err = {0};
    (void)state;
    expect_refusal(&(setup){.layers = -2}, RP_ERR_INVALID, "device_layers is -2");
    expect_refusal(&(setup){.device = "cpu", .layers = 1}, RP_ERR_UNSUPPORTED, "is the processor");
    expect_refusal(&(setup){.layers = 1, .format = RP_KV_KIVI4}, RP_ERR_UNSUPPORTED, "kv_format kivi4");
    expect_refusal(&(setup){.layers = N_LAYERS, .device_ram = 1 << 20}, RP_ERR_BUDGET, "leaves none for the KV cache");
    /* its last layers read the KV of layers before them */
    must(rp_model_open(&m, golden_find(g, "gemma3n")->path, NULL, &err), &err);
    o.device = &device;
    assert_int_equal(rp_engine_new(&e, m, &o, &err), RP_ERR_UNSUPPORTED);
    if (!strstr(err.message, "must be on the same side")) fail_msg("'%s'", err.message);
    rp_model_close(m);
    golden_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_layers_is_near_the_processor),
        cmocka_unit_test(hits_give_the_bytes_of_misses),
        cmocka_unit_test(other_requests_change_nothing),
        cmocka_unit_test(adapters_change_both_sides),
        cmocka_unit_test(the_disk_keeps_numbers_of_layers_apart),
        cmocka_unit_test(little_memory_changes_nothing),
        cmocka_unit_test(a_limit_of_memory_chooses_the_layers),
        cmocka_unit_test(what_is_impossible_is_refused_by_name),
    };
    rp_device devices[16];
    rp_error err = {0};
    size_t n;
    const char *chat;
    must(rp_devices(devices, 16, &n, &err), &err);
    if (n < 2 || !devices[1].is_usable) {
        printf("skipped: %s\n", n < 2 ? "no device" : devices[1].reason);
        return 77;
    }
    tiny_model_shape shape = oracle_shape(1, &chat);
    shape.n_layers = N_LAYERS;
    shape.n_kv_heads = 4;
    oracle_model_open(&model, &shape, chat);
    shape.n_embd = 256;
    shape.head_dim = 64;
    shape.n_ff = 1024;
    oracle_model_open(&wide, &shape, chat);
    rp_engine *stays = open_engine(&(setup){0}); /* so that pipelines are made once */
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rp_engine_free(stays);
    oracle_model_close(&model);
    oracle_model_close(&wide);
    return failed;
}
