/* SPDX-License-Identifier: Apache-2.0 */
/* test_windows.c: layers with a sliding window keep only the blocks within its reach; freed blocks change no result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kv/span.h"
#include "model/model.h"
#include "support/golden.h"
#include "support/oracle_run.h"
#include "reprise_pml.h"
#include "support/experiments.h"

#define LONG_TOKENS 8192
#define MAX_CTX 20000

static golden *models;

typedef struct opened {
    rp_model *model;
    rp_engine *engine;
} opened;

/* Formats of KV: all of it in f16, or in int8 with the layers that have windows in f16. */
typedef enum formats { ALL_F16,
                       WINDOWS_IN_F16,
                       N_FORMATS } formats;

static opened open_model_within(const char *name, int32_t chunk, uint64_t budget, formats in) {
    rp_error err = {0};
    opened o = {0};
    rp_engine_options options = rp_engine_options_defaults();
    options.n_ctx = MAX_CTX;
    options.chunk_tokens = chunk;
    options.kv_budget_bytes = budget;
    options.kv_format = in == ALL_F16 ? RP_KV_F16 : RP_KV_INT8;
    options.kv_f16_layers = in == ALL_F16 ? NULL : "windows";
    if (rp_model_open(&o.model, golden_find(models, name)->path, NULL, &err) ||
        rp_engine_new(&o.engine, o.model, &options, &err))
        fail_msg("%s", err.message);
    return o;
}

static opened open_model(const char *name, int32_t chunk) { return open_model_within(name, chunk, 0, ALL_F16); }

static void close_model(opened *o) {
    rp_engine_free(o->engine);
    rp_model_close(o->model);
}

/* Text of at least n tokens; the caller checks their number. Owned by the caller. */
static char *words(size_t n) {
    char *text = malloc(n + 1);
    for (size_t i = 0; i < n; i++) text[i] = (char)(i % 7 == 6 ? ' ' : 'a' + (i * i + i / 5) % 26);
    text[n] = '\0';
    return text;
}

static void run(opened *o, rp_request req, oracle_run *out) {
    oracle_run_make(out, o->engine, &req);
    if (out->rc) fail_msg("%s", out->err.message);
}

/* Blocks of one layer within reach of the last token, of the n that its sequence took. */
static uint64_t kept_blocks(const rp_model *m, int32_t layer, int32_t n_tokens) {
    int32_t window = m->net.layers[layer].window, n = (n_tokens + KV_BLOCK_SLOTS - 1) / KV_BLOCK_SLOTS;
    int32_t first = window > 0 && n_tokens > window ? (n_tokens - window) / KV_BLOCK_SLOTS : 0;
    return (uint64_t)(n - first);
}

/* If other requests may share the prefix, and memory allows, all of it is kept; otherwise only the windows. A layer in
 * f16 has two blocks of int8 for each of its own. */
static void check_long_sequence(formats in) {
    opened o = open_model_within("gemma3", 256, 0, in);
    char *text = words(LONG_TOKENS);
    rp_request req = rp_request_defaults();
    oracle_run r;
    kv_shape shape = model_kv_shape(o.model, in == ALL_F16 ? RP_KV_F16 : RP_KV_INT8);
    uint64_t expected = 0, whole = 0;
    req.prompt = rp_prompt_text(text);
    req.max_tokens = 1;
    req.experiment = &experiment_no_prefix;
    run(&o, req, &r);
    int32_t n = r.result->prompt_tokens;
    assert_true(n > LONG_TOKENS / 2);
    for (int32_t l = 0; l < o.model->net.hp.n_layers; l++) {
        const uint64_t block =
            kv_shape_block_bytes(&shape) * (in == WINDOWS_IN_F16 && o.model->net.layers[l].window > 0 ? 2 : 1);
        expected += kept_blocks(o.model, l, n) * block;
        whole += (uint64_t)((n + KV_BLOCK_SLOTS - 1) / KV_BLOCK_SLOTS) * block;
    }
    printf("%d tokens, 6 local layers to 1 global: %llu KiB of states, %llu KiB without windows\n", (int)n,
           (unsigned long long)r.result->kv_bytes >> 10, (unsigned long long)whole >> 10);
    assert_int_equal(r.result->kv_bytes, expected);
    oracle_run shared, small;
    req.experiment = NULL;
    run(&o, req, &shared);
    assert_int_equal(shared.result->kv_bytes, whole);
    assert_true(oracle_run_same(&r, &shared));
    close_model(&o);
    o = open_model_within("gemma3", 256, whole / 2, in);
    run(&o, req, &small);
    assert_int_equal(small.result->kv_bytes, expected);
    assert_true(oracle_run_same(&r, &small));
    oracle_run_free(&shared);
    oracle_run_free(&small);
    oracle_run_free(&r);
    free(text);
    close_model(&o);
}

static void a_long_sequence_keeps_what_windows_reach(void **state) {
    (void)state;
    for (int in = ALL_F16; in < N_FORMATS; in++) check_long_sequence((formats)in);
}

#define PARTS 4

/* A module far longer than the windows, with parameters in its middle and at its end, and a nested module. */
static char *schema_of(const char *text) {
    char *s = malloc(strlen(text) * PARTS + 1024);
    sprintf(s,
            "<schema name='w'><module name='m'>%s <param name='a' len='6'/> %s<module name='inner'>%s</module>%s "
            "<param name='b' len='4'/>"
            "</module></schema>",
            text, text, text, text);
    return s;
}

/* Modules free KV that only their own middle attends to; arguments there, text after them and a prompt that ends with a
 * module's last token have the KV that they need: the bytes of a computation token by token. */
static void modules_keep_what_prompts_may_read(void **state) {
    (void)state;
    static const char *const names[] = {"gemma3", "gemma2", "gpt-oss", "mistral", "phi3"};
    static const char *const prompts[] = {
        "<prompt schema='w'><m a='x y' b='z'><inner/></m> and so on</prompt>",
        "<prompt schema='w'><m a='x y'><inner/></m></prompt>", "<prompt schema='w'><m b='z'/>and so on</prompt>",
        "<prompt schema='w'><m><inner/></m></prompt>", "<prompt schema='w'><m/></prompt>"};
    char *text = words(200), *schema = schema_of(text);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        opened o = open_model(names[i], 64);
        rp_error err = {0};
        if (rp_schema_parse(o.engine, schema, strlen(schema), "w", NULL, NULL, NULL, &err)) fail_msg("%s", err.message);
        for (size_t k = 0; k < sizeof(prompts) / sizeof(prompts[0]); k++) {
            oracle_run on, off;
            rp_request req = rp_request_defaults();
            req.prompt = rp_prompt_pml(prompts[k]);
            req.max_tokens = 40;
            req.ignore_eos = true;
            req.sampling.temperature = 0;
            run(&o, req, &on);
            req.reuse = RP_REUSE_OFF;
            run(&o, req, &off);
            assert_true(oracle_run_same(&on, &off));
            oracle_run_free(&on);
            oracle_run_free(&off);
        }
        close_model(&o);
    }
    free(text);
    free(schema);
}

/* A text of exactly n tokens when tokenized as a module. Owned by the caller. */
static char *words_of_tokens(const rp_model *m, size_t n) {
    for (size_t bytes = n / 4; bytes < 16 * n; bytes++) {
        char *text = words(bytes);
        token_list l = {0};
        if (tokenizer_encode(m->tokenizer, text, bytes, (tokenizer_options){.space_prefix = true}, &l, NULL)) abort();
        size_t tokens = l.n;
        token_list_free(&l);
        if (tokens == n) return text;
        free(text);
    }
    fail_msg("no text of %zu tokens", n);
    return NULL;
}

/* Two members of a union with the same first 256 tokens, which are all of one member: the longer one frees KV of them
 * that the shorter one's prompts need, so their keys must differ. Whichever is computed first, both give the bytes of a
 * run alone. */
static void what_one_module_forgets_another_has(void **state) {
    (void)state;
    static const char *const prompts[] = {"<prompt schema='u'><b/> and so on</prompt>",
                                          "<prompt schema='u'><a/> and so on</prompt>",
                                          "<prompt schema='u'><a/></prompt>"};
    opened o = open_model("gemma3", 64), alone = open_model("gemma3", 64);
    rp_error err = {0};
    char *text = words_of_tokens(o.model, KV_SPAN_TOKENS), *schema = malloc(3 * strlen(text) + 256);
    sprintf(schema,
            "<schema name='u'><union><module name='a'>%s</module><module name='b'>%s %s</module></union></schema>",
            text, text, text);
    if (rp_schema_parse(o.engine, schema, strlen(schema), "u", NULL, NULL, NULL, &err)) fail_msg("%s", err.message);
    if (rp_schema_parse(alone.engine, schema, strlen(schema), "u", NULL, NULL, NULL, &err)) fail_msg("%s", err.message);
    for (size_t k = 0; k < sizeof(prompts) / sizeof(prompts[0]); k++) {
        oracle_run after, first;
        rp_request req = rp_request_defaults();
        req.prompt = rp_prompt_pml(prompts[k]);
        req.max_tokens = 4;
        req.ignore_eos = true;
        run(&o, req, &after);
        req.reuse = RP_REUSE_OFF;
        run(&alone, req, &first);
        assert_true(oracle_run_same(&after, &first));
        oracle_run_free(&after);
        oracle_run_free(&first);
    }
    free(text);
    free(schema);
    close_model(&o);
    close_model(&alone);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_long_sequence_keeps_what_windows_reach),
                                       cmocka_unit_test(modules_keep_what_prompts_may_read),
                                       cmocka_unit_test(what_one_module_forgets_another_has)};
    models = golden_open();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    golden_close(models);
    return failed;
}
