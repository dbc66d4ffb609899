/* SPDX-License-Identifier: Apache-2.0 */
/* test_exactness.c: the exactness rule (docs/architecture.md), byte by byte: logits depend on model, scope, tokens and
 * KV format, not on reuse, threads, chunks, earlier requests or eviction. Also the two cases in which composing equals
 * the plain run.
 *
 *   REPRISE_TEST_SEED=N    another sequence
 *   REPRISE_TEST_ROUNDS=N  random schemas for each test, 6 by default
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "support/oracle_run.h"
#include "support/random_pml.h"
#include "support/seed.h"
#include "support/test_device.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "reprise_test.h"

#define STEPS 5
#define MOVED_LIMIT_F32 1e-4
/* Cached keys are unchanged, but a fresh key is rotated for its own position before it is rounded to f16: another
 * position rounds it differently, by up to 2e-4 over some hundred prompts. */
#define MOVED_LIMIT_F16 5e-4
#define MOVED_LIMIT_INT8 1e-2

/* Formats of tokens, by round, and their limits. */
static const rp_kv_format formats[] = {RP_KV_F16, RP_KV_F32, RP_KV_INT8};
static const double moved_limits[RP_N_KV_FORMATS] =
    {[RP_KV_F16] = MOVED_LIMIT_F16, [RP_KV_F32] = MOVED_LIMIT_F32, [RP_KV_INT8] = MOVED_LIMIT_INT8};

static uint64_t seed;
static double worst_moved[RP_N_KV_FORMATS]; /* by rp_kv_format */
static int rounds;

/* ---- models and engines ---------------------------------------------------------------------------------------- */

enum { MODEL_F32,
       MODEL_Q8_0,
       MODEL_NO_BOS,
       N_MODELS };
static oracle_model models[N_MODELS];

static int open_models(void **state) {
    const char *chat;
    (void)state;
    seed = test_seed("exactness", 20261123);
    rounds = test_rounds(6);
    tiny_model_shape shape = oracle_shape(1, &chat);
    oracle_model_open(&models[MODEL_F32], &shape, chat);
    shape.weight_type = shape.embd_type = KERNEL_Q8_0;
    oracle_model_open(&models[MODEL_Q8_0], &shape, chat);
    shape = oracle_shape(2, &chat);
    oracle_model_open(&models[MODEL_NO_BOS], &shape, chat);
    return 0;
}

static int close_models(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) oracle_model_close(&models[i]);
    return 0;
}

typedef struct settings {
    int32_t threads, chunk;
    rp_kv_format format;
    uint64_t budget;
} settings;

static const settings usual = {.threads = 1, .chunk = 64, .format = RP_KV_F16, .budget = (uint64_t)256 << 20};

static rp_engine *new_engine(const oracle_model *m, settings s, const char *schema) {
    rp_engine_options options = rp_engine_options_defaults();
    rp_engine *engine = NULL;
    rp_error err = {0};
    options.n_threads = s.threads;
    options.chunk_tokens = s.chunk;
    options.kv_format = s.format;
    options.kv_budget_bytes = s.budget;
    if (rp_engine_new(&engine, m->model, &options, &err)) fail_msg("%s", err.message);
    if (rp_schema_parse(engine, schema, strlen(schema), "schema", NULL, NULL, NULL, &err))
        fail_msg("%s\n%s", err.message, schema);
    return engine;
}

static void ask(oracle_run *run, rp_engine *engine, const char *prompt, rp_reuse reuse, int32_t first_position) {
    rp_request req = rp_request_defaults();
    req.prompt = rp_prompt_pml(prompt);
    req.reuse = reuse;
    req.max_tokens = STEPS;
    req.ignore_eos = true;
    const rp_request_experiment experiment = {.struct_size = sizeof(experiment), .first_position = first_position};
    req.experiment = &experiment;
    oracle_run_make(run, engine, &req);
}

static void ask_new(oracle_run *run, const oracle_model *m, settings s, const char *schema, const char *prompt,
                    rp_reuse reuse) {
    rp_engine *engine = new_engine(m, s, schema);
    ask(run, engine, prompt, reuse, 0);
    rp_engine_free(engine);
}

/* Prints the first step and index at which two runs differ. */
static void print_difference(const oracle_run *a, const oracle_run *b) {
    if (a->rc || b->rc) printf("one: %s\nother: %s\n", a->rc ? a->err.message : "ran", b->rc ? b->err.message : "ran");
    for (int32_t s = 0; !a->rc && !b->rc && s < a->n_steps && s < b->n_steps; s++) {
        const float *x = oracle_run_logits(a, s), *y = oracle_run_logits(b, s);
        for (int32_t i = 0; i < a->n_vocab; i++) {
            if (memcmp(&x[i], &y[i], sizeof x[i]) == 0) continue;
            printf("step %d, token %d: %.9g and %.9g (deviation %.3g)\n", s, i, (double)x[i], (double)y[i],
                   oracle_deviation(x, y, a->n_vocab));
            return;
        }
    }
}

static void check_same(const oracle_run *a, const oracle_run *b, const char *schema, const char *prompt,
                       const char *what) {
    if (oracle_run_same(a, b)) return;
    printf("REPRISE_TEST_SEED=%llu\n%s\n%s\n", (unsigned long long)seed, schema, prompt);
    print_difference(a, b);
    fail_msg("not the same bytes: %s", what);
}

/* ---- reuse, threads, chunks, order of requests ------------------------------------------------------------------ */

static void check_variants(const oracle_model *m, settings s, const char *schema, const char *prompt,
                           const oracle_run *expected) {
    static const int32_t chunks[] = {1, 7, 64, 512};
    for (int i = 0; i < 16; i++) {
        rp_reuse reuse = i & 1 ? RP_REUSE_OFF : RP_REUSE_ON;
        oracle_run run;
        char what[96];
        s.threads = i & 2 ? 2 : 1;
        s.chunk = chunks[i >> 2];
        snprintf(what, sizeof what, "reuse %s, %d threads, chunks of %d", i & 1 ? "off" : "on", s.threads, s.chunk);
        rp_engine *engine = new_engine(m, s, schema);
        ask(&run, engine, prompt, reuse, 0);
        check_same(expected, &run, schema, prompt, what);
        oracle_run_free(&run);
        ask(&run, engine, prompt, reuse, 0);
        check_same(expected, &run, schema, prompt, "the second request");
        if (reuse == RP_REUSE_OFF) assert_int_equal(run.result->cached_tokens, 0);
        oracle_run_free(&run);
        rp_engine_free(engine);
    }
}

/* A schema with a fitting prompt; random ones of fixed layout may not fit. */
static void random_documents(random_pml *pml, const oracle_model *m, settings s, oracle_run *run) {
    for (;;) {
        random_pml_schema(pml);
        for (int tries = 0; tries < 5; tries++) {
            random_pml_prompt(pml, m->tokenizer);
            ask_new(run, m, s, pml->schema.data, pml->prompt.data, RP_REUSE_ON);
            if (run->rc == 0) return;
            assert_int_equal(run->rc, RP_ERR_LENGTH);
            oracle_run_free(run);
        }
    }
}

static void on_off_threads_chunks_and_repetition_give_the_same_bytes(void **state) {
    tiny_random r = {.state = seed};
    (void)state;
    for (int i = 0; i < rounds; i++) {
        const oracle_model *m = &models[i % 2 ? MODEL_Q8_0 : MODEL_F32];
        settings s = usual;
        random_pml pml;
        oracle_run expected;
        s.format = formats[i % (int)BASE_ARRAY_LEN(formats)];
        random_pml_init(&pml, &r);
        random_documents(&pml, m, s, &expected);
        check_variants(m, s, pml.schema.data, pml.prompt.data, &expected);
        oracle_run_free(&expected);
        random_pml_free(&pml);
    }
}

/* ---- shifting -------------------------------------------------------------------------------------------------- */

static void check_moved(const oracle_model *m, settings s, const random_pml *pml, const oracle_run *expected) {
    static const int32_t positions[] = {0, 1, 63, 64, 1000};
    rp_engine *engine = new_engine(m, s, pml->schema.data);
    const double limit = moved_limits[s.format];
    for (size_t i = 0; i < BASE_ARRAY_LEN(positions); i++) {
        oracle_run run;
        ask(&run, engine, pml->prompt.data, RP_REUSE_ON, positions[i]);
        if (run.rc) fail_msg("moved by %d: %s", positions[i], run.err.message);
        if (i == 0) check_same(expected, &run, pml->schema.data, pml->prompt.data, "not moved");
        for (int32_t step = 0; step < run.n_steps; step++) {
            double d = oracle_deviation(oracle_run_logits(&run, step), oracle_run_logits(expected, step), run.n_vocab);
            worst_moved[s.format] = BASE_MAX(worst_moved[s.format], d);
            if (d > limit) {
                printf("REPRISE_TEST_SEED=%llu\n%s\n%s\n", (unsigned long long)seed, pml->schema.data,
                       pml->prompt.data);
                fail_msg("moved by %d, step %d: logits deviate by %.3g", positions[i], step, d);
            }
            if (run.result->tokens[step] != expected->result->tokens[step])
                break; /* a tie: from here on another text */
        }
        oracle_run_free(&run);
    }
    rp_engine_free(engine);
}

/* With weights in F32: quantized weights round activations to 8 bits, which can turn the smallest difference into a
 * whole step. */
static void a_moved_plan_gives_the_same_logits(void **state) {
    tiny_random r = {.state = seed + 1};
    (void)state;
    for (int i = 0; i < rounds * 2; i++) {
        const oracle_model *m = &models[i % 4 < 2 ? MODEL_F32 : MODEL_NO_BOS];
        settings s = usual;
        random_pml pml;
        oracle_run expected;
        s.format = formats[i % (int)BASE_ARRAY_LEN(formats)];
        random_pml_init(&pml, &r);
        random_documents(&pml, m, s, &expected);
        check_moved(m, s, &pml, &expected);
        oracle_run_free(&expected);
        random_pml_free(&pml);
    }
    printf("moved plans: worst deviation %.2g f32, %.2g f16, %.2g int8\n", worst_moved[RP_KV_F32],
           worst_moved[RP_KV_F16], worst_moved[RP_KV_INT8]);
}

/* ---- composing equals the plain run ----------------------------------------------------------------------------- */

/* A text of n tokens, if the vocabulary permits (not asserted: the borders matter). */
static void put_tokens(base_buffer *b, tiny_random *r, const oracle_model *m, size_t n) {
    static const char *const words[] = {" the", " river", " of", " x", " Lisbon", " 42", ",", " quick", " and"};
    base_buffer text = BASE_BUFFER(1 << 16);
    token_list l = {0};
    while (l.n < n) {
        if (base_buffer_append_str(&text, words[tiny_random_below(r, 9)])) abort();
        l.n = 0;
        if (tokenizer_encode(m->tokenizer, text.data, text.len, (tokenizer_options){0}, &l, NULL)) abort();
    }
    if (base_buffer_append_str(b, text.data)) abort();
    token_list_free(&l);
    base_buffer_free(&text);
}

static size_t some_length(tiny_random *r) {
    static const size_t lengths[] = {1, 2, 5, 30, 62, 63, 64, 65, 100, 127, 128, 190, 254, 255, 256, 257, 300};
    return lengths[tiny_random_below(r, BASE_ARRAY_LEN(lengths))];
}

static void put(base_buffer *b, const char *text) {
    if (base_buffer_append_str(b, text)) abort();
}

static void check_plain(const oracle_model *m, settings s, const char *schema, const char *prompt) {
    oracle_run exact, on, off;
    ask_new(&exact, m, s, schema, prompt, RP_REUSE_EXACT);
    ask_new(&on, m, s, schema, prompt, RP_REUSE_ON);
    ask_new(&off, m, s, schema, prompt, RP_REUSE_OFF);
    if (exact.rc) fail_msg("%s", exact.err.message);
    check_same(&exact, &on, schema, prompt, "exact and on");
    check_same(&exact, &off, schema, prompt, "exact and off");
    int32_t in_views = 0;
    for (int32_t i = 0; i < on.result->n_plan; i++) {
        assert_true(on.result->plan[i].exact);
        in_views += on.result->plan[i].is_view;
    }
    assert_true(in_views > 0);
    oracle_run_free(&exact);
    oracle_run_free(&on);
    oracle_run_free(&off);
}

/* Anonymous text and nested modules, one in each. */
static void nested_documents(base_buffer *schema, base_buffer *prompt, tiny_random *r, const oracle_model *m,
                             bool fixed, int depth) {
    put(schema, fixed ? "<schema name=\"s\" layout=\"fixed\">" : "<schema name=\"s\">");
    put(prompt, "<prompt schema=\"s\">");
    put_tokens(schema, r, m, some_length(r));
    for (int i = 0; i < depth; i++) {
        if (base_buffer_printf(schema, "<module name=\"m%d\">", i)) abort();
        if (base_buffer_printf(prompt, "<m%d>", i)) abort();
        put_tokens(schema, r, m, some_length(r));
    }
    for (int i = depth - 1; i >= 0; i--) {
        put(schema, "</module>");
        if (base_buffer_printf(prompt, "</m%d>", i)) abort();
    }
    put(schema, "</schema>");
    put_tokens(prompt, r, m, some_length(r));
    if (tiny_random_below(r, 2)) put(prompt, "<user>And now?</user>");
    put(prompt, "</prompt>");
}

static void nested_modules_give_the_bytes_of_exact(void **state) {
    tiny_random r = {.state = seed + 2};
    (void)state;
    for (int i = 0; i < rounds * 4; i++) {
        const oracle_model *m = &models[i % N_MODELS];
        base_buffer schema = BASE_BUFFER(1 << 20), prompt = BASE_BUFFER(1 << 20);
        settings s = usual;
        s.format = i % 5 == 0 ? RP_KV_F32 : i % 5 < 3 ? RP_KV_INT8
                                                      : RP_KV_F16;
        nested_documents(&schema, &prompt, &r, m, i % 2 == 1, 1 + i % 4);
        check_plain(m, s, schema.data, prompt.data);
        base_buffer_free(&schema);
        base_buffer_free(&prompt);
    }
}

/* The prompt is BOS, a module anchored to it, and text. */
static void an_anchored_module_gives_the_bytes_of_exact(void **state) {
    tiny_random r = {.state = seed + 5};
    (void)state;
    for (int i = 0; i < rounds * 2; i++) {
        const oracle_model *m = &models[i % N_MODELS];
        base_buffer schema = BASE_BUFFER(1 << 20), prompt = BASE_BUFFER(1 << 20);
        put(&schema, i / N_MODELS % 2 ? "<schema name=\"s\" layout=\"fixed\">" : "<schema name=\"s\">");
        put(&schema, "<module name=\"a\" scope=\"module\" anchor=\"bos\">");
        put_tokens(&schema, &r, m, some_length(&r));
        put(&schema, "<module name=\"never\">unseen</module>"); /* so that it has two segments */
        put_tokens(&schema, &r, m, some_length(&r));
        put(&schema, "</module></schema>");
        put(&prompt, "<prompt schema=\"s\"><a/>");
        put_tokens(&prompt, &r, m, some_length(&r));
        put(&prompt, "</prompt>");
        check_plain(m, usual, schema.data, prompt.data);
        base_buffer_free(&schema);
        base_buffer_free(&prompt);
    }
}

/* Sibling and nested modules, all named by a scaffold. Scope path permits anonymous text and BOS as well; with scope
 * module, members exclude those: the prompt must consist of the members only, or of them and BOS with an anchor. */
static void scaffold_documents(base_buffer *schema, base_buffer *prompt, tiny_random *r, const oracle_model *m,
                               bool fixed, bool scope_module, bool anchored) {
    put(schema, fixed ? "<schema name=\"s\" layout=\"fixed\"" : "<schema name=\"s\"");
    put(schema, scope_module ? " scope=\"module\"" : "");
    put(schema, anchored ? " anchor=\"bos\">" : ">");
    if (!scope_module) put_tokens(schema, r, m, some_length(r));
    put(schema, "<module name=\"a\">");
    put_tokens(schema, r, m, some_length(r));
    put(schema, "<module name=\"x\">");
    put_tokens(schema, r, m, some_length(r));
    put(schema, "</module>");
    put_tokens(schema, r, m, some_length(r));
    put(schema, "</module><module name=\"b\">");
    put_tokens(schema, r, m, some_length(r));
    put(schema, "</module>");
    if (!scope_module) put_tokens(schema, r, m, some_length(r));
    put(schema, "<module name=\"c\">");
    put_tokens(schema, r, m, some_length(r));
    put(schema, "</module><scaffold modules=\"a a/x b c\"/></schema>");
    put(prompt, "<prompt schema=\"s\"><a><x/></a><b/><c/>");
    put_tokens(prompt, r, m, some_length(r));
    put(prompt, "</prompt>");
}

static void a_scaffold_of_everything_gives_the_bytes_of_exact(void **state) {
    tiny_random r = {.state = seed + 3};
    (void)state;
    for (int i = 0; i < rounds * 4; i++) {
        bool scope_module = i % 2 == 1, fixed = i / 2 % 2 == 1;
        bool anchored = tiny_random_below(&r, 2);
        const oracle_model *m = &models[scope_module && !anchored ? MODEL_NO_BOS : i / 4 % N_MODELS];
        base_buffer schema = BASE_BUFFER(1 << 20), prompt = BASE_BUFFER(1 << 20);
        scaffold_documents(&schema, &prompt, &r, m, fixed, scope_module, anchored);
        check_plain(m, usual, schema.data, prompt.data);
        base_buffer_free(&schema);
        base_buffer_free(&prompt);
    }
}

/* ---- text shared by prompts with different modules --------------------------------------------------------------- */

#define SHARED_TEXTS 3
#define SHARED_MODULES 4

/* Texts and modules of a few, in random order, each module at most once: many prompts begin alike. */
static void sharing_prompt(base_buffer *prompt, tiny_random *r, const base_buffer texts[SHARED_TEXTS]) {
    static const char *const qualities[] = {"reuse", "link:1", "link:70", "reuse"};
    bool taken[SHARED_MODULES] = {false};
    if (base_buffer_printf(prompt, "<prompt schema=\"s\" quality=\"%s\">", qualities[tiny_random_below(r, 4)])) abort();
    for (int i = 0; i < 5; i++) {
        const size_t module = tiny_random_below(r, SHARED_MODULES);
        if (i % 2 == 0 || taken[module]) put(prompt, texts[i < 2 ? 0 : tiny_random_below(r, SHARED_TEXTS)].data);
        else if (base_buffer_printf(prompt, "<m%zu/>", module)) abort();
        taken[module] |= i % 2 == 1;
    }
    put(prompt, "</prompt>");
}

static void prompts_that_share_text_give_the_bytes_of_cold_runs(void **state) {
    tiny_random r = {.state = seed + 6};
    int64_t cached = 0;
    (void)state;
    for (int i = 0; i < rounds; i++) {
        const oracle_model *m = &models[(i + i / N_MODELS) % N_MODELS]; /* each with each format */
        base_buffer schema = BASE_BUFFER(1 << 20), texts[SHARED_TEXTS];
        settings s = usual;
        s.format = formats[i % (int)BASE_ARRAY_LEN(formats)];
        put(&schema, tiny_random_below(&r, 2) ? "<schema name=\"s\" scope=\"module\">" : "<schema name=\"s\">");
        for (int k = 0; k < SHARED_MODULES; k++) {
            if (base_buffer_printf(&schema, "<module name=\"m%d\">", k)) abort();
            put_tokens(&schema, &r, m, some_length(&r));
            put(&schema, "</module>");
        }
        put(&schema, "</schema>");
        for (int k = 0; k < SHARED_TEXTS; k++) {
            texts[k] = BASE_BUFFER(1 << 20);
            put_tokens(&texts[k], &r, m, some_length(&r));
        }
        rp_engine *engine = new_engine(m, s, schema.data);
        for (int k = 0; k < 8; k++) {
            base_buffer prompt = BASE_BUFFER(1 << 20);
            oracle_run cold, warm;
            sharing_prompt(&prompt, &r, texts);
            ask_new(&cold, m, s, schema.data, prompt.data, RP_REUSE_OFF);
            ask(&warm, engine, prompt.data, RP_REUSE_ON, 0);
            if (warm.rc) fail_msg("%s", warm.err.message);
            check_same(&cold, &warm, schema.data, prompt.data, "after other prompts");
            for (int32_t n = 0; n < warm.result->n_plan; n++)
                if (strcmp(warm.result->plan[n].module, "prompt") == 0 && warm.result->plan[n].is_view)
                    cached += warm.result->plan[n].n_tokens;
            oracle_run_free(&cold);
            oracle_run_free(&warm);
            base_buffer_free(&prompt);
        }
        rp_engine_free(engine);
        for (int k = 0; k < SHARED_TEXTS; k++) base_buffer_free(&texts[k]);
        base_buffer_free(&schema);
    }
    printf("exactness: %lld tokens of text were cached\n", (long long)cached);
    assert_true(cached > 0);
}

/* ---- eviction -------------------------------------------------------------------------------------------------- */

typedef struct eviction_tally {
    int same, refused, cut;
    uint64_t evictions;
} eviction_tally;

/* Did the budget end the answer, correct up to there? */
static bool is_cut(const oracle_run *whole, const oracle_run *run) {
    if (whole->rc || run->rc || run->n_steps >= whole->n_steps || strcmp(run->result->finish_reason, "length"))
        return false;
    oracle_run beginning = *whole;
    rp_result result = *whole->result;
    beginning.n_steps = run->n_steps;
    beginning.result = &result;
    result.n_tokens = run->result->n_tokens;
    return result.n_tokens == run->n_steps && oracle_run_same(&beginning, run);
}

static void check_budget(const random_pml *pml, const base_buffer *prompts, const oracle_run *expected, int n,
                         uint64_t budget, eviction_tally *t) {
    settings s = usual;
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    s.budget = budget;
    rp_engine *engine = new_engine(&models[MODEL_F32], s, pml->schema.data);
    for (int i = 0; i < 2 * n; i++) {
        oracle_run run;
        ask(&run, engine, prompts[i % n].data, RP_REUSE_ON, 0);
        if (run.rc == RP_ERR_BUDGET && expected[i % n].rc == 0) t->refused++;
        else if (is_cut(&expected[i % n], &run)) t->cut++;
        else {
            check_same(&expected[i % n], &run, pml->schema.data, prompts[i % n].data, "with a small budget");
            t->same++;
        }
        oracle_run_free(&run);
        rp_engine_store_stats(engine, &stats);
        assert_true(stats.bytes <= stats.budget_bytes);
        assert_true(stats.budget_bytes <= budget || test_device_is_divided()); /* then it is of the device's layers */
    }
    t->evictions += stats.evictions;
    rp_engine_free(engine);
}

static void a_small_budget_gives_the_same_bytes_or_a_clean_error(void **state) {
    tiny_random r = {.state = seed + 4};
    eviction_tally t = {0};
    (void)state;
    for (int round = 0; round < rounds; round++) {
        random_pml pml;
        base_buffer prompts[4];
        oracle_run expected[4];
        random_pml_init(&pml, &r);
        random_pml_schema(&pml);
        for (int i = 0; i < 4; i++) {
            random_pml_prompt(&pml, models[MODEL_F32].tokenizer);
            prompts[i] = pml.prompt;
            pml.prompt = BASE_BUFFER(1 << 20);
            ask_new(&expected[i], &models[MODEL_F32], usual, pml.schema.data, prompts[i].data, RP_REUSE_ON);
        }
        for (uint64_t budget = (uint64_t)16 << 10; budget <= (uint64_t)4 << 20; budget += budget / 4)
            check_budget(&pml, prompts, expected, 4, budget, &t);
        for (int i = 0; i < 4; i++) {
            oracle_run_free(&expected[i]);
            base_buffer_free(&prompts[i]);
        }
        random_pml_free(&pml);
    }
    printf("exactness: small budgets: %d runs the same, %d cut, %d refused, %llu evictions\n", t.same, t.cut, t.refused,
           (unsigned long long)t.evictions);
    assert_true(t.same > 0);
    assert_true(t.refused > 0);
    if (rounds >= 6) assert_true(t.evictions > 0); /* few documents may give budgets too small or ample only */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_off_threads_chunks_and_repetition_give_the_same_bytes),
        cmocka_unit_test(a_moved_plan_gives_the_same_logits),
        cmocka_unit_test(nested_modules_give_the_bytes_of_exact),
        cmocka_unit_test(an_anchored_module_gives_the_bytes_of_exact),
        cmocka_unit_test(a_scaffold_of_everything_gives_the_bytes_of_exact),
        cmocka_unit_test(prompts_that_share_text_give_the_bytes_of_cold_runs),
        cmocka_unit_test(a_small_budget_gives_the_same_bytes_or_a_clean_error),
    };
    return cmocka_run_group_tests_name("exactness", tests, open_models, close_models);
}
