/* SPDX-License-Identifier: Apache-2.0 */
/* test_hits.c: the exactness rule on the device, in a short form (vulkan/exactness is the long one): one prompt with
 * modules that begin inside of blocks, byte by byte the same with and without the cache, in chunks of any size, beside
 * other requests, and from the disk, with every quality; and other KV keys than the processor's.
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
#include "reprise_device.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "support/golden.h"
#include "support/lora_file.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/seed.h"

#define STEPS 3
#define WORDS " the quick river of Lisbon and 42 rivers of the quick and so on"

static const char schema[] = "<schema name=\"s\">You know" WORDS ".<module name=\"a\">One" WORDS WORDS WORDS
                             "</module><module name=\"b\">Two" WORDS WORDS WORDS WORDS "</module></schema>";
static const char both[] = "<prompt schema=\"s\"><a/><b/><user>And now" WORDS "?</user></prompt>";
static const char second[] = "<prompt schema=\"s\"><b/><user>And now" WORDS "?</user></prompt>"; /* b is moved */

static oracle_model model;

static rp_engine *open_engine(int32_t chunk, rp_kv_format format, const char *device, const char *store) {
    const rp_device_options named = {.struct_size = sizeof(named), .name = device};
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e;
    rp_error err = {0};
    o.device = &named;
    o.n_threads = 1;
    o.n_ctx = 1024;
    o.chunk_tokens = chunk;
    o.kv_format = format;
    o.kv_budget_bytes = (uint64_t)16 << 20;
    o.store_dir = store;
    must(rp_engine_new(&e, model.model, &o, &err), &err);
    must(rp_schema_parse(e, schema, strlen(schema), "schema", NULL, NULL, NULL, &err), &err);
    return e;
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

static void check(rp_engine *e, const char *prompt, rp_reuse reuse, const oracle_run *expected) {
    oracle_run run;
    ask(&run, e, prompt, reuse);
    assert_true(oracle_run_same(&run, expected));
    oracle_run_free(&run);
}

static void hits_give_the_bytes_of_misses(void **state) {
    static const int32_t chunks[] = {256, 37};
    static const rp_kv_format formats[] = {RP_KV_F16, RP_KV_F32, RP_KV_INT8};
    (void)state;
    for (int f = 0; f < 3; f++) {
        oracle_run first = {0}, moved = {0};
        for (int c = 0; c < 2; c++) {
            rp_engine *e = open_engine(chunks[c], formats[f], "vulkan", NULL);
            if (c == 0) ask(&first, e, both, RP_REUSE_OFF);
            if (c == 0) ask(&moved, e, second, RP_REUSE_OFF);
            check(e, both, RP_REUSE_ON, &first); /* prefills the modules */
            check(e, both, RP_REUSE_ON, &first); /* hits */
            check(e, second, RP_REUSE_ON, &moved);
            check(e, both, RP_REUSE_OFF, &first);
            rp_engine_free(e);
        }
        oracle_run_free(&first);
        oracle_run_free(&moved);
    }
}

/* Modules of an encoded format: encoded once, read from then on by prompts in any order and chunk; and from the disk.
 */
static void encoded_modules_are_the_same_in_every_chunk(void **state) {
    static const rp_kv_format formats[] = {RP_KV_KIVI4, RP_KV_K4V2, RP_KV_KIVI2};
    char dir[] = "/tmp/reprise-vulkan-XXXXXX", command[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int f = 0; f < 3; f++) {
        oracle_run first, moved;
        for (int c = 0; c < 2; c++) {
            rp_engine *e = open_engine(c ? 37 : 256, formats[f], "vulkan", c ? NULL : dir);
            if (c == 0) ask(&first, e, both, RP_REUSE_ON); /* prefills and encodes the modules */
            if (c == 0) ask(&moved, e, second, RP_REUSE_ON);
            check(e, both, RP_REUSE_ON, &first);
            check(e, second, RP_REUSE_ON, &moved);
            rp_engine_free(e);
        }
        rp_engine *e = open_engine(64, formats[f], "vulkan", dir); /* hits of the disk */
        oracle_run run;
        ask(&run, e, both, RP_REUSE_ON);
        assert_true(run.result->cached_tokens > 100);
        assert_true(oracle_run_same(&run, &first));
        oracle_run_free(&run);
        rp_engine_free(e);
        oracle_run_free(&first);
        oracle_run_free(&moved);
    }
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* The processor computes integers with rounded queries and weights: its answers are near, and nearer than the format is
 * to f32. */
static void formats_are_near_the_processors(void **state) {
    static const rp_kv_format formats[] = {RP_KV_F32, RP_KV_INT8, RP_KV_KIVI4, RP_KV_K4V2, RP_KV_KIVI2};
    const float *exact = NULL;
    oracle_run runs[5], other;
    (void)state;
    for (int f = 0; f < 5; f++) {
        rp_engine *e = open_engine(256, formats[f], "vulkan", NULL), *c = open_engine(256, formats[f], "cpu", NULL);
        ask(&runs[f], e, both, RP_REUSE_ON);
        ask(&other, c, both, RP_REUSE_ON);
        exact = oracle_run_logits(&runs[0], 0);
        const int32_t n = runs[f].n_vocab;
        const double difference = oracle_deviation(oracle_run_logits(&runs[f], 0), oracle_run_logits(&other, 0), n),
                     rounding = oracle_deviation(oracle_run_logits(&runs[f], 0), exact, n);
        printf("%s: %.2g from the processor, %.2g from f32\n", rp_kv_format_name(formats[f]), difference, rounding);
        assert_true(difference < 1e-2);
        assert_true(f == 0 ? rounding == 0 : difference < rounding);
        oracle_run_free(&other);
        rp_engine_free(e);
        rp_engine_free(c);
    }
    for (int f = 0; f < 5; f++) oracle_run_free(&runs[f]);
}

/* The first tokens of each module are computed again in the prompt's context: of views with holes, and positions before
   them. */
static void linked_modules_give_the_same_bytes(void **state) {
    oracle_run run[3];
    rp_engine *e = open_engine(64, RP_KV_F16, "vulkan", NULL);
    (void)state;
    for (int i = 0; i < 3; i++) {
        rp_request req = request(second, i == 0 ? RP_REUSE_OFF : RP_REUSE_ON);
        req.quality = (rp_quality){.mode = RP_QUALITY_LINK, .amount = 4};
        oracle_run_make(&run[i], e, &req);
        must(run[i].rc, &run[i].err);
        assert_true(oracle_run_same(&run[0], &run[i]));
    }
    assert_true(run[2].result->cached_tokens > 0);
    for (int i = 0; i < 3; i++) oracle_run_free(&run[i]);
    rp_engine_free(e);
}

/* Requests of one batch, of different lengths. */
static void other_requests_change_nothing(void **state) {
    oracle_run alone[2], together[2];
    rp_job *jobs[2];
    rp_engine *e = open_engine(64, RP_KV_F16, "vulkan", NULL);
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

/* Rows of two adapters and of none in one batch, of F32 and of F16, with a rank that is no multiple of anything. */
static void adapters_change_their_own_rows(void **state) {
    const lora_shape shapes[2] = {{.rank = 4, .alpha = 8, .type = KERNEL_F32, .seed = 1},
                                  {.rank = 9, .alpha = 9, .type = KERNEL_F16, .seed = 2}};
    rp_adapter *adapters[3] = {NULL};
    rp_request requests[3];
    oracle_run alone[3], together[3], other;
    rp_job *jobs[3];
    rp_engine *e = open_engine(64, RP_KV_F32, "vulkan", NULL), *c = open_engine(64, RP_KV_F32, "cpu", NULL);
    char base[] = "/tmp/reprise-vulkan-XXXXXX";
    rp_error err = {0};
    const int fd = mkstemp(base);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    must(tiny_model_write(base, &model.shape, &err), &err); /* the model's own file is unlinked */
    for (int i = 0; i < 3; i++) {
        char file[64];
        if (i < 2) lora_file_write(base, &shapes[i], file);
        if (i < 2) must(rp_adapter_open(&adapters[i], model.model, file, &err), &err);
        if (i < 2) unlink(file);
        requests[i] = request(both, RP_REUSE_OFF);
        requests[i].adapter = adapters[i];
        oracle_run_make(&alone[i], e, &requests[i]);
        oracle_run_make(&other, c, &requests[i]);
        must(alone[i].rc, &alone[i].err);
        must(other.rc, &other.err);
        const double difference =
            oracle_deviation(oracle_run_logits(&alone[i], 0), oracle_run_logits(&other, 0), other.n_vocab);
        printf("adapter %d: %.2g from the processor\n", i, difference);
        assert_true(difference < 1e-4);
        if (i > 0) assert_false(oracle_run_same(&alone[i], &alone[0]));
        oracle_run_free(&other);
    }
    for (int i = 0; i < 3; i++) must(oracle_run_submit(&together[i], e, &requests[i], &jobs[i]), &together[i].err);
    for (int i = 0; i < 3; i++) oracle_run_finish(&together[i], jobs[i]);
    for (int i = 0; i < 3; i++) {
        must(together[i].rc, &together[i].err);
        assert_true(oracle_run_same(&alone[i], &together[i]));
        oracle_run_free(&together[i]);
        requests[i].reuse = RP_REUSE_ON;
        for (int k = 0; k < 2; k++) { /* prefills the modules, then hits */
            oracle_run_make(&together[i], e, &requests[i]);
            must(together[i].rc, &together[i].err);
            assert_true(oracle_run_same(&alone[i], &together[i]));
            if (k == 1) assert_true(together[i].result->cached_tokens > 0);
            oracle_run_free(&together[i]);
        }
        oracle_run_free(&alone[i]);
    }
    rp_engine_free(e);
    rp_engine_free(c);
    for (int i = 0; i < 2; i++) rp_adapter_close(adapters[i]);
    unlink(base);
}

static int32_t cached_tokens(const char *device, const char *dir, oracle_run *run) {
    rp_engine *e = open_engine(256, RP_KV_F16, device, dir);
    ask(run, e, both, RP_REUSE_ON);
    rp_engine_free(e);
    return run->result->cached_tokens;
}

/* KV on disk is a hit for the same device alone. */
static void the_disk_keeps_devices_apart(void **state) {
    char dir[] = "/tmp/reprise-vulkan-XXXXXX", command[64];
    oracle_run run[4];
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(cached_tokens("vulkan", dir, &run[0]), 0);
    assert_true(cached_tokens("vulkan", dir, &run[1]) > 100);
    assert_true(oracle_run_same(&run[0], &run[1]));
    assert_int_equal(cached_tokens("cpu", dir, &run[2]), 0);
    assert_true(cached_tokens("cpu", dir, &run[3]) > 100);
    assert_true(oracle_run_same(&run[2], &run[3]));
    for (int i = 0; i < 4; i++) oracle_run_free(&run[i]);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* A request in a store's folder; reuse off: without. */
static void ask_in(oracle_run *run, rp_model *m, const char *dir, int32_t chunk) {
    const rp_device_options named = {.struct_size = sizeof(named), .name = "vulkan"};
    rp_engine_options o = rp_engine_options_defaults();
    rp_request req = rp_request_defaults();
    rp_engine *e;
    rp_error err = {0};
    o.device = &named;
    o.n_threads = 1;
    o.chunk_tokens = chunk;
    o.store_dir = dir;
    req.prompt = rp_prompt_text("The quick river of Lisbon and the 42 rivers of the quick, and so on and on.");
    req.reuse = dir ? RP_REUSE_ON : RP_REUSE_OFF;
    req.max_tokens = STEPS;
    req.ignore_eos = true;
    must(rp_engine_new(&e, m, &o, &err), &err);
    oracle_run_make(run, e, &req);
    must(run->rc, &run->err);
    rp_engine_free(e);
}

/* Latent vectors, the keys of an indexer, and checkpoints of recurrent layers, which pass through the host.
   vulkan/families has modules of these models. */
static void states_and_latent_vectors_come_from_the_disk(void **state) {
    static const char *const names[] = {"deepseek2", "deepseek32", "falcon-h1", "qwen3next"};
    golden *g = golden_open();
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char dir[] = "/tmp/reprise-vulkan-XXXXXX", command[64];
        oracle_run off, first, again;
        rp_model *m;
        rp_error err = {0};
        assert_non_null(mkdtemp(dir));
        must(rp_model_open(&m, golden_find(g, names[i])->path, NULL, &err), &err);
        ask_in(&off, m, NULL, 256);
        ask_in(&first, m, dir, 7);
        ask_in(&again, m, dir, 64);
        assert_int_equal(first.result->cached_tokens, 0);
        assert_true(again.result->cached_tokens > 0);
        if (!oracle_run_same(&off, &first) || !oracle_run_same(&off, &again)) fail_msg("%s", names[i]);
        oracle_run_free(&off);
        oracle_run_free(&first);
        oracle_run_free(&again);
        rp_model_close(m);
        snprintf(command, sizeof(command), "rm -rf %s", dir);
        assert_int_equal(system(command), 0);
    }
    golden_close(g);
}

static void expect_refusal(const rp_engine_options *o, int rc, const char *text) {
    rp_engine *e = NULL;
    rp_error err = {0};
    assert_int_equal(rp_engine_new(&e, model.model, o, &err), rc);
    assert_null(e);
    if (!strstr(err.message, text)) fail_msg("'%s' has no '%s'", err.message, text);
}

static void what_there_is_not_is_refused_by_name(void **state) {
    rp_device_options device = {.struct_size = sizeof(device), .name = "vulkan:99"};
    rp_engine_options o = rp_engine_options_defaults();
    (void)state;
    o.device = &device;
    expect_refusal(&o, RP_ERR_UNSUPPORTED, "no device of that number");
    device.name = "cuda";
    expect_refusal(&o, RP_ERR_NAME, "there is no device 'cuda'");
    device.name = "vulkan";
    device.ram_bytes = (uint64_t)1 << 20;
    device.layers = model.shape.n_layers; /* fewer would fit */
    expect_refusal(&o, RP_ERR_BUDGET, "memory");
}

/* Requests whose slots are judged: recomputed tokens by deviation and by attention, reduced KV, slots that each row
 * chooses. Missed, hit, in chunks of another size, beside another request. */
static void judged_slots_are_the_same_in_every_schedule(void **state) {
    static const struct {
        rp_quality quality;
        const char *keep, *method;
    } kinds[] = {{{RP_QUALITY_BLEND, 30}, NULL, NULL},
                 {{RP_QUALITY_FOCUS, 30}, NULL, NULL},
                 {{RP_QUALITY_REUSE, 0}, "40%", "snapkv"},
                 {{RP_QUALITY_REUSE, 0}, "40%", "quest"}};
    oracle_run plain;
    (void)state;
    rp_engine *engines[] = {open_engine(256, RP_KV_F16, "vulkan", NULL), open_engine(37, RP_KV_F16, "vulkan", NULL)};
    ask(&plain, engines[0], both, RP_REUSE_OFF);
    for (size_t k = 0; k < BASE_MIN((size_t)test_rounds(BASE_ARRAY_LEN(kinds)), BASE_ARRAY_LEN(kinds)); k++) {
        rp_request req = request(both, RP_REUSE_OFF), beside = request(second, RP_REUSE_OFF);
        oracle_run first, run, other;
        rp_job *jobs[2];
        req.quality = kinds[k].quality;
        req.kv_keep = kinds[k].keep;
        req.kv_method = kinds[k].method;
        oracle_run_make(&first, engines[0], &req);
        must(first.rc, &first.err);
        assert_false(oracle_run_same(&plain, &first)); /* it is no request of another kind */
        for (int i = 0; i < 4; i++) {
            req.reuse = i == 3 ? RP_REUSE_OFF : RP_REUSE_ON;
            oracle_run_make(&run, engines[i % 2], &req);
            must(run.rc, &run.err);
            if (!oracle_run_same(&first, &run)) fail_msg("kind %zu, run %d", k, i);
            oracle_run_free(&run);
        }
        must(oracle_run_submit(&run, engines[1], &req, &jobs[0]), &run.err);
        must(oracle_run_submit(&other, engines[1], &beside, &jobs[1]), &other.err);
        oracle_run_finish(&run, jobs[0]);
        oracle_run_finish(&other, jobs[1]);
        must(run.rc, &run.err);
        assert_true(oracle_run_same(&first, &run));
        oracle_run_free(&run);
        oracle_run_free(&other);
        oracle_run_free(&first);
    }
    oracle_run_free(&plain);
    rp_engine_free(engines[0]);
    rp_engine_free(engines[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_give_the_bytes_of_misses),
        cmocka_unit_test(encoded_modules_are_the_same_in_every_chunk),
        cmocka_unit_test(formats_are_near_the_processors),
        cmocka_unit_test(linked_modules_give_the_same_bytes),
        cmocka_unit_test(other_requests_change_nothing),
        cmocka_unit_test(adapters_change_their_own_rows),
        cmocka_unit_test(the_disk_keeps_devices_apart),
        cmocka_unit_test(states_and_latent_vectors_come_from_the_disk),
        cmocka_unit_test(judged_slots_are_the_same_in_every_schedule),
        cmocka_unit_test(what_there_is_not_is_refused_by_name),
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
    const tiny_model_shape shape = oracle_shape(1, &chat);
    oracle_model_open(&model, &shape, chat);
    rp_engine *stays = open_engine(64, RP_KV_F16, "vulkan", NULL); /* so that pipelines are made once */
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rp_engine_free(stays);
    oracle_model_close(&model);
    return failed;
}
