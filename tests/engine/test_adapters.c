/* SPDX-License-Identifier: Apache-2.0 */
/* test_adapters.c: requests with LoRA adapters. Every run is compared, byte for byte, with the same request in an
 * engine of its own: beside requests of other adapters, after requests that cached the same tokens with another adapter
 * or none, and from disk. Activated adapters use the base model's KV up to their invocation. tests/model/test_adapter.c
 * compares the arithmetic with merged weights.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "model/adapter.h"
#include "support/forward_run.h"
#include "support/gguf_variant.h"
#include "support/golden.h"
#include "support/lora_file.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/store_folder.h"
#include "reprise_pml.h"
#include "reprise_adapter.h"

#define N_PROMPT 300
#define AT 200 /* of the invocation */
#define N_ANSWER 6

static const int32_t invocation[] = {17, 300, 45};
#define N_INVOCATION 3

static char path[64] = "/tmp/reprise-adapters-XXXXXX";
static rp_model *model;
static rp_adapter *one, *two, *activated;
static int32_t plain_tokens[N_PROMPT], tokens[N_PROMPT]; /* `tokens` has the invocation, twice */

static rp_adapter *open_adapter(const rp_model *m, const char *of, const lora_shape *s) {
    rp_error err = {0};
    rp_adapter *a = NULL;
    char file[64];
    lora_file_write(of, s, file);
    must(rp_adapter_open(&a, m, file, &err), &err);
    unlink(file);
    return a;
}

static lora_shape activated_shape(void) {
    lora_shape s = lora_defaults(3);
    s.invocation = invocation;
    s.n_invocation = N_INVOCATION;
    return s;
}

static const lora_shape shape_one = {.rank = 4, .alpha = 8, .type = KERNEL_F32, .seed = 1};
static const lora_shape shape_two = {.rank = 9, .alpha = 9, .type = KERNEL_F16, .seed = 2};

static int setup(void **state) {
    rp_error err = {0};
    tiny_model_shape shape = tiny_model_defaults();
    const lora_shape s = activated_shape();
    int fd = mkstemp(path);
    (void)state;
    if (fd < 0) abort();
    close(fd);
    must(tiny_model_write(path, &shape, &err), &err);
    must(rp_model_open(&model, path, NULL, &err), &err);
    one = open_adapter(model, path, &shape_one);
    two = open_adapter(model, path, &shape_two);
    activated = open_adapter(model, path, &s);
    for (int32_t i = 0; i < N_PROMPT; i++) plain_tokens[i] = tokens[i] = 20 + i * 7919 % 200;
    memcpy(tokens + 50, invocation, sizeof invocation);
    memcpy(tokens + AT, invocation, sizeof invocation);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    rp_adapter_close(one);
    rp_adapter_close(two);
    rp_adapter_close(activated);
    rp_model_close(model);
    unlink(path);
    return 0;
}

static rp_engine *open_engine(rp_model *m, int32_t chunk, const char *store) {
    rp_error err = {0};
    rp_engine *e = NULL;
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = chunk % 2 + 1;
    o.chunk_tokens = chunk;
    o.store_dir = store;
    o.store_write = RP_STORE_WRITE_THROUGH;
    o.kv_format = RP_KV_F32;
    must(rp_engine_new(&e, m, &o, &err), &err);
    return e;
}

static rp_request request_of(const int32_t *ids, int32_t n, rp_adapter *a) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_tokens(ids, n);
    q.adapter = a;
    q.max_tokens = N_ANSWER;
    q.ignore_eos = true;
    return q;
}

static oracle_run ask(rp_engine *e, const rp_request *q) {
    oracle_run run;
    oracle_run_make(&run, e, q);
    must(run.rc, &run.err);
    return run;
}

static oracle_run cold(rp_model *m, const rp_request *q, const char *schema) {
    rp_error err = {0};
    rp_engine *e = open_engine(m, 64, NULL);
    if (schema) must(rp_schema_parse(e, schema, strlen(schema), "schema", NULL, NULL, NULL, &err), &err);
    oracle_run run = ask(e, q);
    rp_engine_free(e);
    return run;
}

/* Runs a request; the answer is that of an engine of its own. Returns its cached tokens. */
static int32_t check(rp_engine *e, const rp_request *q, const char *schema, const char *where) {
    oracle_run alone = cold(model, q, schema), run = ask(e, q);
    const int32_t cached = run.result->cached_tokens;
    if (!oracle_run_same(&alone, &run)) {
        oracle_run_print(&run, NULL);
        fail_msg("%s: differs from the request alone", where);
    }
    assert_int_equal(alone.result->adapter_from, run.result->adapter_from);
    oracle_run_free(&alone);
    oracle_run_free(&run);
    return cached;
}

static bool differ(const oracle_run *a, const oracle_run *b) {
    return memcmp(a->logits, b->logits, (size_t)a->n_vocab * sizeof(float)) != 0;
}

static const char *reason_of(const rp_result *r, int32_t pos) {
    for (int32_t i = 0; i < r->n_plan; i++)
        if (!r->plan[i].is_view && r->plan[i].position >= pos) return r->plan[i].reason;
    return "";
}

/* ---- one batch ---- */

#define N_MIXED 7

static void test_mixed(void **state) {
    rp_error err = {0};
    rp_request q[N_MIXED];
    oracle_run alone[N_MIXED], run[N_MIXED];
    rp_job *jobs[N_MIXED];
    rp_adapter *const adapters[N_MIXED] = {NULL, one, two, activated, one, NULL, activated};
    (void)state;
    for (int i = 0; i < N_MIXED; i++) {
        q[i] = request_of(tokens + i % 2, N_PROMPT - 17 * i, adapters[i]);
        if (i == 4) q[i].adapter_scale = 0.5f;
        alone[i] = cold(model, &q[i], NULL);
    }
    for (int32_t chunk = 16; chunk <= 257; chunk += 241) {
        rp_engine *e = open_engine(model, chunk, NULL);
        must(rp_engine_prepare(e, NULL, NULL, &err), &err);
        for (int i = 0; i < N_MIXED; i++) must(oracle_run_submit(&run[i], e, &q[i], &jobs[i]), &run[i].err);
        for (int i = 0; i < N_MIXED; i++) {
            oracle_run_finish(&run[i], jobs[i]);
            if (!oracle_run_same(&alone[i], &run[i]))
                fail_msg("chunks of %d: request %d differs from the request alone", (int)chunk, i);
            oracle_run_free(&run[i]);
        }
        rp_engine_free(e);
    }
    assert_true(differ(&alone[0], &alone[2]) && differ(&alone[1], &alone[3]) && differ(&alone[2], &alone[4]));
    for (int i = 0; i < N_MIXED; i++) oracle_run_free(&alone[i]);
}

/* ---- keys ---- */

static void test_keys(void **state) {
    rp_engine *e = open_engine(model, 64, NULL);
    rp_request q = request_of(plain_tokens, N_PROMPT, NULL);
    (void)state;
    assert_int_equal(check(e, &q, NULL, "base"), 0);
    assert_int_equal(check(e, &q, NULL, "base again"), N_PROMPT - 1);
    q.adapter = one;
    oracle_run run = ask(e, &q);
    assert_int_equal(run.result->cached_tokens, 0);
    assert_int_equal(run.result->adapter_from, 0);
    assert_string_equal(reason_of(run.result, 0), "adapter");
    oracle_run_free(&run);
    assert_int_equal(check(e, &q, NULL, "one again"), N_PROMPT - 1);
    q.adapter_scale = 0.5f;
    assert_int_equal(check(e, &q, NULL, "one, another scale"), 0);
    q.adapter_scale = 0;
    assert_int_equal(check(e, &q, NULL, "scale 0: base"), N_PROMPT - 1);
    q = request_of(plain_tokens, N_PROMPT, two);
    assert_int_equal(check(e, &q, NULL, "two"), 0);
    assert_int_equal(check(e, &q, NULL, "two again"), N_PROMPT - 1);
    q.adapter = NULL;
    assert_int_equal(check(e, &q, NULL, "base at last"), N_PROMPT - 1);
    q = request_of(plain_tokens, N_PROMPT, one);
    q.tenant = "tenant";
    assert_int_equal(check(e, &q, NULL, "another tenant"), 0);
    rp_engine_free(e);
}

/* The same file is the same adapter, opened again, in another engine. */
static void test_disk(void **state) {
    char dir[STORE_FOLDER_BYTES];
    rp_request q = request_of(plain_tokens, N_PROMPT, NULL);
    (void)state;
    store_folder_make(dir);
    rp_engine *e = open_engine(model, 64, dir);
    assert_int_equal(check(e, &q, NULL, "base"), 0);
    rp_engine_free(e);
    e = open_engine(model, 64, dir);
    q.adapter = one;
    assert_int_equal(check(e, &q, NULL, "one: the base is on disk"), 0);
    rp_engine_free(e);
    rp_adapter *again = open_adapter(model, path, &shape_one);
    e = open_engine(model, 64, dir);
    q.adapter = two;
    assert_int_equal(check(e, &q, NULL, "two: base and one are on disk"), 0);
    q.adapter = again;
    assert_int_equal(check(e, &q, NULL, "one from disk"), N_PROMPT - 1);
    q.adapter = NULL;
    assert_int_equal(check(e, &q, NULL, "base from disk"), N_PROMPT - 1);
    rp_engine_free(e);
    rp_adapter_close(again);
    store_folder_remove(dir);
}

/* ---- modules ---- */

static const char schema[] = "<schema name='s'>Here is what is known. <module name='a'>The river runs slowly past the "
                             "old mill, and a grey horse stands there in the rain "
                             "every morning.</module><module name='b'>People say that the harbour was built by <param "
                             "name='who' len='8'/>, one of whom never saw it, and "
                             "that its lamp is green.</module></schema>";
static const char prompt[] = "<prompt schema='s'><a/><b who='two brothers'/> And the horse?</prompt>";

static rp_request modular(rp_adapter *a, rp_quality_mode mode, int32_t amount) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(prompt);
    q.adapter = a;
    q.max_tokens = N_ANSWER;
    q.ignore_eos = true;
    q.quality = (rp_quality){mode, amount};
    return q;
}

static void test_modules(void **state) {
    static const rp_quality qualities[] = {{RP_QUALITY_REUSE, 0},
                                           {RP_QUALITY_LINK, 4},
                                           {RP_QUALITY_BLEND, 30},
                                           {RP_QUALITY_SCAFFOLD, 0},
                                           {RP_QUALITY_EXACT, 0}};
    rp_error err = {0};
    rp_engine *e = open_engine(model, 64, NULL);
    (void)state;
    must(rp_schema_parse(e, schema, strlen(schema), "schema", NULL, NULL, NULL, &err), &err);
    for (size_t i = 0; i < sizeof qualities / sizeof *qualities; i++) {
        rp_request q = modular(NULL, qualities[i].mode, qualities[i].amount);
        const bool learns =
            qualities[i].mode == RP_QUALITY_SCAFFOLD; /* the base model's answer may become exact meanwhile */
        const int32_t base = learns ? 0 : check(e, &q, schema, "base");
        q.adapter = one;
        const int32_t first = check(e, &q, schema, "one"), second = check(e, &q, schema, "one again");
        if (i == 0) assert_true(base == 0 && first == 0);
        assert_true(second > 0);
        q.adapter_scale = 2;
        if (i == 0) assert_int_equal(check(e, &q, schema, "one, another scale"), 0);
        q.reuse = RP_REUSE_OFF;
        if (qualities[i].mode != RP_QUALITY_EXACT) check(e, &q, schema, "one, reuse off");
        q = modular(NULL, qualities[i].mode, qualities[i].amount);
        if (learns) rp_result_free(tiny_model_answer(e, &q));
        else assert_true(check(e, &q, schema, "base again") > 0);
    }
    assert_true(rp_engine_drain(e, -1));
    rp_request q = modular(one, RP_QUALITY_SCAFFOLD, 0);
    check(e, &q, schema, "one: scaffolds are the base's");
    rp_engine_free(e);
}

#define HALF \
    "The river runs slowly past the old mill, and a grey horse stands there in the rain. People say that its lamp is " \
    "green. "
#define LONG HALF HALF HALF HALF
static const char long_schema[] =
    "<schema name='s'>Here is what is known. <module name='a'>" LONG
    "</module><module name='b'>It was built by <param name='who' len='8'/>. " LONG "</module></schema>";

/* Reduced KV of modules: of the base and of an adapter, side by side. */
static oracle_run reduced_run(bool base_first) {
    rp_error err = {0};
    rp_engine *e = NULL;
    rp_engine_options o = rp_engine_options_defaults();
    o.keep_share = "50%";
    o.n_threads = 1;
    must(rp_engine_new(&e, model, &o, &err), &err);
    must(rp_schema_parse(e, long_schema, strlen(long_schema), "schema", NULL, NULL, NULL, &err), &err);
    for (int i = !base_first; i < 2; i++) {
        rp_request q = modular(i ? one : NULL, RP_QUALITY_REUSE, 0);
        for (int again = 0; again < 2; again++) {
            rp_result_free(tiny_model_answer(e, &q));
            assert_true(rp_engine_drain(e, -1));
        }
    }
    rp_request q = modular(one, RP_QUALITY_REUSE, 0);
    oracle_run run = ask(e, &q);
    rp_engine_free(e);
    return run;
}

static void test_reduced_modules(void **state) {
    oracle_run alone = reduced_run(false), after = reduced_run(true);
    bool is_reduced = false;
    (void)state;
    for (int32_t i = 0; i < alone.result->n_plan; i++) is_reduced |= alone.result->plan[i].kept < 1;
    assert_true(is_reduced);
    assert_true(oracle_run_same(&alone, &after));
    oracle_run_free(&alone);
    oracle_run_free(&after);
}

/* The model with the merged weights, over the same modules. */
static const lora_shape *merged;
static void merge(const char *name, float *x, int64_t n_rows, int64_t width) {
    if (lora_file_changes(name, n_rows)) lora_file_add(merged, name, x, n_rows, width);
}

static void test_merged_modules(void **state) {
    rp_error err = {0};
    rp_model *whole = NULL;
    char file[64];
    (void)state;
    merged = &shape_one;
    gguf_variant_write(path, &(gguf_variant){.change = merge}, file);
    must(rp_model_open(&whole, file, NULL, &err), &err);
    rp_request q = modular(NULL, RP_QUALITY_REUSE, 0), own = modular(one, RP_QUALITY_REUSE, 0);
    oracle_run wanted = cold(whole, &q, schema), got = cold(model, &own, schema), base = cold(model, &q, schema);
    const double error = oracle_deviation(got.logits, wanted.logits, got.n_vocab),
                 effect = oracle_deviation(base.logits, wanted.logits, got.n_vocab);
    if (error > 2e-5 || effect < 1e-2)
        fail_msg("off by %g of the merged model; without the adapter by %g", error, effect);
    oracle_run_free(&wanted);
    oracle_run_free(&got);
    oracle_run_free(&base);
    rp_model_close(whole);
    unlink(file);
}

/* ---- activated ---- */

/* The forward pass alone: rows before the invocation without the adapter. */
static void check_arithmetic(const oracle_run *run) {
    base_cpu_level level;
    rp_error err = {0};
    forward_run r;
    float *logits = calloc((size_t)run->n_vocab, sizeof(float));
    must(base_cpu_detect(&level, &err), &err);
    forward_run_open(&r, model, level, 2048, 64, 1);
    forward_run_feed(&r, tokens, 0, AT, 0, NULL);
    r.adapter = &activated->weights;
    forward_run_feed(&r, tokens + AT, AT, N_PROMPT - AT, 1, logits);
    forward_run_close(&r);
    assert_memory_equal(logits, run->logits, (size_t)run->n_vocab * sizeof(float));
    free(logits);
}

static void test_activated(void **state) {
    rp_engine *e = open_engine(model, 64, NULL);
    rp_request q = request_of(tokens, AT + 20, NULL);
    (void)state;
    assert_int_equal(check(e, &q, NULL, "base"), 0);
    q = request_of(tokens, N_PROMPT, activated);
    oracle_run run = ask(e, &q);
    assert_int_equal(run.result->cached_tokens, AT);
    assert_int_equal(run.result->adapter_from, AT);
    assert_string_equal(reason_of(run.result, AT), "new");
    check_arithmetic(&run);
    oracle_run_free(&run);
    assert_int_equal(check(e, &q, NULL, "activated again"), N_PROMPT - 1);
    q.adapter_scale = 0.5f;
    assert_int_equal(check(e, &q, NULL, "another scale"), AT);
    q = request_of(tokens, N_PROMPT, NULL);
    assert_int_equal(check(e, &q, NULL, "base after activated"), AT + 20);
    q = request_of(tokens, AT, activated); /* the invocation at 50 */
    assert_int_equal(check(e, &q, NULL, "an earlier invocation"), 50);
    q = request_of(plain_tokens, N_PROMPT, activated);
    run = ask(e, &q);
    assert_int_equal(run.result->adapter_from, -1);
    assert_int_equal(run.result->n_warnings, 1);
    assert_non_null(strstr(run.result->warnings[0], "invocation tokens"));
    oracle_run_free(&run);
    q.adapter = NULL;
    assert_int_equal(check(e, &q, NULL, "not invoked: the base's"), N_PROMPT - 1);
    q = request_of(invocation, N_INVOCATION, activated);
    check(e, &q, NULL, "invoked at once");
    assert_int_equal(check(e, &q, NULL, "invoked at once again"), N_INVOCATION - 1);
    q.context_shift = true;
    assert_int_equal(rp_engine_run(e, &q, &(rp_result *){NULL}, NULL), RP_ERR_CONFLICT);
    rp_engine_free(e);
}

/* Base KV that the activated request computed is the base's. */
static void test_activated_gives(void **state) {
    rp_engine *e = open_engine(model, 64, NULL);
    rp_request q = request_of(tokens, N_PROMPT, activated);
    (void)state;
    assert_int_equal(check(e, &q, NULL, "activated"), 0);
    q.adapter = NULL;
    assert_int_equal(check(e, &q, NULL, "base"), AT);
    q.adapter = one;
    assert_int_equal(check(e, &q, NULL, "one"), 0);
    rp_engine_free(e);
}

static void test_activated_on_disk(void **state) {
    char dir[STORE_FOLDER_BYTES];
    rp_request q = request_of(tokens, N_PROMPT, activated);
    (void)state;
    store_folder_make(dir);
    rp_engine *e = open_engine(model, 64, dir);
    assert_int_equal(check(e, &q, NULL, "activated"), 0);
    rp_engine_free(e);
    e = open_engine(model, 64, dir);
    assert_int_equal(check(e, &q, NULL, "activated, from disk"), N_PROMPT - 1);
    q.adapter = NULL;
    assert_int_equal(check(e, &q, NULL, "base, from disk"), AT);
    rp_engine_free(e);
    store_folder_remove(dir);
}

/* The last n tokens of a prompt: an adapter that they activate. */
static rp_adapter *open_for_end(rp_engine *e, const rp_builder *p, int32_t n) {
    rp_request q = rp_request_defaults();
    lora_shape s = activated_shape();
    q.prompt = rp_prompt_built(p);
    q.max_tokens = 0;
    q.quality = (rp_quality){RP_QUALITY_EXACT, 0};
    q.n_prompt_logprobs = 1;
    rp_result *r = tiny_model_answer(e, &q);
    s.invocation = r->prompt_ids + r->prompt_tokens - n;
    s.n_invocation = n;
    rp_adapter *a = open_adapter(model, path, &s);
    rp_result_free(r);
    return a;
}

/* Documents before the invocation are the base model's modules. */
static void test_activated_modules(void **state) {
    static const char text[] =
        "The river runs slowly past the old mill, and a grey horse stands there in the rain every morning.";
    static const char call[] = "Say it again, please.";
    rp_error err = {0};
    char long_text[sizeof text + 128];
    rp_adapter *a = NULL;
    (void)state;
    snprintf(long_text, sizeof long_text, "%s People say that the harbour was built by two brothers.", text);
    rp_engine *e = open_engine(model, 64, NULL);
    for (int order = 0; order < 2; order++) {
        rp_builder *p = NULL;
        rp_result *r = NULL;
        must(rp_builder_new(&p, NULL, &err), &err);
        must(rp_builder_append_document(p, text, strlen(text)), &err);
        if (order) must(rp_builder_append_text(p, call, strlen(call)), &err);
        must(rp_builder_append_document(p, long_text, strlen(long_text)), &err);
        must(rp_builder_append_text(p, call, order ? 5 : strlen(call)), &err);
        rp_request q = rp_request_defaults();
        q.prompt = rp_prompt_built(p);
        q.max_tokens = N_ANSWER;
        q.ignore_eos = true;
        if (!order) check(e, &q, NULL, "base");
        if (!order) a = open_for_end(e, p, 4);
        q.adapter = a;
        if (!order) {
            oracle_run run = ask(e, &q);
            assert_true(run.result->adapter_from > 0);
            for (int32_t i = 0; i < run.result->n_plan; i++)
                if (strncmp(run.result->plan[i].module, "prompt", 6) != 0)
                    assert_true(run.result->plan[i].is_view && run.result->plan[i].tier[0] == 'r');
            oracle_run_free(&run);
            check(e, &q, NULL, "activated after documents");
            q.quality = (rp_quality){RP_QUALITY_BLEND, 30};
            check(e, &q, NULL, "activated after documents, blend");
        } else {
            assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_UNSUPPORTED);
            assert_non_null(strstr(err.message, "is after the invocation tokens of the adapter"));
            q.quality = (rp_quality){RP_QUALITY_EXACT, 0};
            check(e, &q, NULL, "activated at quality exact");
        }
        rp_builder_free(p);
    }
    rp_engine_free(e);
    rp_adapter_close(a);
}

/* Other families: windows, learned positions, shared weights, fused matrices. */
static void test_families(void **state) {
    static const char *const names[] = {"gemma2", "phi3", "gpt2", "mistral", "qwen3moe", "bloom", "falcon-7b"};
    golden *g = golden_open();
    rp_model *tiny = model;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const golden_model *of = golden_find(g, names[i]);
        rp_error err = {0};
        int32_t ids[90];
        lora_shape s = lora_defaults(i + 10);
        must(rp_model_open(&model, of->path, NULL, &err), &err);
        rp_model_info info = {.struct_size = sizeof info};
        rp_model_describe(model, &info);
        const int32_t n = info.n_ctx_train < 100 ? info.n_ctx_train - N_ANSWER : 90, at = n * 2 / 3;
        for (int32_t k = 0; k < n; k++) ids[k] = 3 + k * 31 % (info.n_vocab - 3);
        rp_adapter *whole = open_adapter(model, of->path, &s);
        s.invocation = ids + at;
        s.n_invocation = 3;
        rp_adapter *part = open_adapter(model, of->path, &s);
        rp_engine *e = open_engine(model, 16, NULL);
        rp_request q = request_of(ids, n, NULL);
        check(e, &q, NULL, names[i]);
        q.adapter = whole;
        assert_int_equal(check(e, &q, NULL, names[i]), 0);
        assert_int_equal(check(e, &q, NULL, names[i]), n - 1);
        q.adapter = part;
        assert_int_equal(check(e, &q, NULL, names[i]), at);
        assert_int_equal(check(e, &q, NULL, names[i]), n - 1);
        rp_engine_free(e);
        rp_adapter_close(whole);
        rp_adapter_close(part);
        rp_model_close(model);
    }
    model = tiny;
    golden_close(g);
}

/* ---- failures ---- */

/* Every allocation fails once, or from then on: an error, or the answer. */
static void test_allocations(void **state) {
    rp_error err = {0};
    char file[64];
    int failed = 0, answered = 0;
    (void)state;
    const lora_shape s = activated_shape();
    lora_file_write(path, &s, file);
    rp_request q = request_of(tokens, N_PROMPT, activated);
    oracle_run wanted = cold(model, &q, NULL);
    rp_engine *e = open_engine(model, 64, NULL);
    must(rp_schema_parse(e, schema, strlen(schema), "schema", NULL, NULL, NULL, &err), &err);
    must(rp_engine_prepare(e, NULL, NULL, &err), &err);
    for (uint64_t n = 1; answered < 3; n++) {
        rp_adapter *a = NULL;
        rp_result *r = NULL, *m = NULL;
        rp_request of_modules = modular(one, RP_QUALITY_REUSE, 0);
        of_modules.adapter_scale = 1 + (float)n; /* another form of the schema */
        base_alloc_fail_at(n, n % 3 == 0);
        int rc = rp_adapter_open(&a, model, file, &err);
        q.adapter = a;
        if (!rc) rc = rp_engine_run(e, &q, &r, &err);
        if (!rc) rc = rp_engine_run(e, &of_modules, &m, &err);
        base_alloc_fail_at(0, 0);
        if (r) assert_memory_equal(r->tokens, wanted.result->tokens, (size_t)r->n_tokens * sizeof *r->tokens);
        failed += rc != 0;
        answered = rc ? 0 : answered + 1;
        rp_result_free(r);
        rp_result_free(m);
        rp_adapter_close(a);
    }
    assert_true(failed > 50);
    rp_engine_free(e);
    oracle_run_free(&wanted);
    unlink(file);
}

/* ---- the interface ---- */

static void test_interface(void **state) {
    rp_error err = {0};
    rp_model *other = NULL;
    rp_adapter *a = NULL;
    rp_result *r = NULL;
    (void)state;
    rp_adapter_info info = {.struct_size = sizeof info};
    assert_int_equal(rp_adapter_describe(activated, &info), RP_OK);
    assert_int_equal(info.rank, 4);
    assert_true(info.alpha == 8 && info.n_tensors == 15 && info.bytes > 0 && strlen(info.fingerprint) == 64);
    assert_int_equal(info.n_invocation_tokens, N_INVOCATION);
    assert_memory_equal(info.invocation_tokens, invocation, sizeof invocation);
    assert_string_equal(info.name, "test adapter");
    assert_int_equal(rp_adapter_open(&a, model, "/nowhere/adapter.gguf", &err), RP_ERR_IO);
    assert_int_equal(rp_adapter_open(&a, model, path, &err), RP_ERR_FORMAT); /* a model */
    must(rp_model_open(&other, path, NULL, &err), &err);
    rp_engine *e = open_engine(other, 64, NULL);
    rp_request q = request_of(tokens, N_PROMPT, one);
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "opened for another model"));
    rp_engine_free(e);
    rp_model_close(other);
    e = open_engine(model, 64, NULL);
    q.adapter_scale = NAN;
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_INVALID);
    /* closed while a job uses it */
    a = open_adapter(model, path, &shape_two);
    rp_job *job = NULL;
    q = request_of(tokens, N_PROMPT, a);
    must(rp_engine_submit(e, &q, &job, &err), &err);
    rp_adapter_close(a);
    must(rp_job_result(job, &r, &err), &err);
    rp_result_free(r);
    rp_job_free(job);
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_disk),
        cmocka_unit_test(test_modules),
        cmocka_unit_test(test_merged_modules),
        cmocka_unit_test(test_activated),
        cmocka_unit_test(test_activated_gives),
        cmocka_unit_test(test_activated_on_disk),
        cmocka_unit_test(test_activated_modules),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_interface),
        cmocka_unit_test(test_reduced_modules),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
