/* SPDX-License-Identifier: Apache-2.0 */
/* test_oracle_families.c: correctness of modular reuse in every family: over each model of tests/golden, random schemas
 * and prompts give the logits of the reference (tests/support/reference.h), as test_oracle.c shows for random llama
 * models. The KV cache is f32.
 *
 * Models with movable positions are tested with both layouts. Learned positions cannot move: gpt2 is tested with
 * layout="fixed" only, and must refuse a packed schema. Texts have about 6 tokens a word here, to make modules longer
 * than the windows of 24. Besides the golden models there are copies of some with shared KV in their last layers.
 *
 *   REPRISE_TEST_SEED=N     another sequence; a failure prints the seed of its own round
 *   REPRISE_TEST_ROUNDS=N   schemas to try for each model, 4 by default; two prompts each
 *   REPRISE_TEST_FAMILY=S   this model alone
 */
#define _POSIX_C_SOURCE 200809L /* unlink */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "pml/document.h"
#include "support/gguf_variant.h"
#include "support/golden.h"
#include "support/oracle_run.h"
#include "support/random_pml.h"
#include "support/reference.h"
#include "support/seed.h"
#include "reprise_pml.h"
#include "support/experiments.h"

#define STEPS 2
#define PROMPTS_PER_SCHEMA 2
#define N_CTX 4096 /* long-rope's long factors hold */
#define WINDOW 24  /* of the golden models that have one */
/* Relative to the largest logit. 7e-6 (gpt-oss, which has large gates) is the worst of some six thousand prompts; other
 * models stay below 5e-6. */
#define LIMIT 2e-5
#define LEAST_MARGIN 1e-5     /* closer choices of experts may go either way */
#define MOST_TRIES 400        /* rounds in which a model of few positions may look for a prompt that fits */
#define SEEDS_OF_A_MODEL 1000 /* so that each has other documents */

/* Copies of golden models. Quantized ones are tested as F32: the engine would quantize the activations as well. */
static const struct copy {
    const char *name, *golden;
    gguf_variant variant;
} copies[] = {
    {"gpt-oss-mxfp4-f32", "gpt-oss-mxfp4", {0}},
    {"gpt-oss-untold", "gpt-oss-mxfp4", {.without_key = "gpt-oss.rope.scaling.yarn_truncate"}},
    {"mixtral-split", "mixtral", {.split_experts = true}},
    {"llama-shared", "llama", {.shared_kv_layers = 1}},
    {"gemma2-shared", "gemma2", {.shared_kv_layers = 2}}, /* a local and a global layer */
    {"gemma3-shared", "gemma3", {.shared_kv_layers = 1}}, /* a local one, and a global one in between */
};

typedef struct family {
    const char *name;
    rp_model *model;
    reference *ref;
    gguf_file *file; /* what `tokenizer` reads */
    tokenizer *tokenizer;
    int32_t n_positions; /* learned ones; 0: none */
} family;

typedef struct tally {
    int models, prompts, too_long, reused, joint, past_window, undecided, blended, focused;
    double worst;
} tally;

/* The data of a failure message. */
typedef struct round {
    const family *f;
    uint64_t seed;
    random_pml pml;
    pml_document *schema, *prompt;
    rp_engine *engine;
    tally *t;
} round;

/* ---- models ---------------------------------------------------------------------------------------------------- */

static bool is_wanted(const char *name) {
    const char *one = getenv("REPRISE_TEST_FAMILY");
    return !one || !*one || strcmp(one, name) == 0;
}

static int32_t learned_positions(const gguf_file *f) {
    const gguf_tensor *t = gguf_find_tensor(f, "position_embd.weight");
    return t ? (int32_t)t->dims[1] : 0;
}

static void open_family(family *f, const char *name, const char *path) {
    rp_error err = {0};
    *f = (family){.name = name};
    if (rp_model_open(&f->model, path, NULL, &err) || gguf_open(&f->file, path, &err) ||
        tokenizer_new(&f->tokenizer, f->file, &err) || reference_open(&f->ref, path, NULL, N_CTX, &err))
        fail_msg("%s: %s", name, err.message);
    f->n_positions = learned_positions(f->file);
}

static void close_family(family *f) {
    reference_close(f->ref);
    tokenizer_free(f->tokenizer);
    gguf_close(f->file);
    rp_model_close(f->model);
}

/* ---- one prompt ------------------------------------------------------------------------------------------------ */

static void print_round(const round *c) {
    printf("REPRISE_TEST_FAMILY=%s REPRISE_TEST_SEED=%llu REPRISE_TEST_ROUNDS=1\n%s\n%s\n", c->f->name,
           (unsigned long long)c->seed, c->pml.schema.data, c->prompt ? c->pml.prompt.data : "");
}

static bool has_long_view(const rp_result *r) {
    for (int32_t i = 0; i < r->n_plan; i++)
        if (r->plan[i].is_view && r->plan[i].n_tokens > WINDOW) return true;
    return false;
}

/* The reference follows the engine's tokens, until a choice of experts is too close for a unique result. */
static void compare(const round *c, reference_prompt *ref, const oracle_run *run) {
    const float *expected = reference_prompt_logits(ref);
    for (int32_t step = 0; step < run->n_steps; step++) {
        if (reference_prompt_margin(ref) < LEAST_MARGIN) {
            c->t->undecided++;
            return;
        }
        double d = oracle_deviation(oracle_run_logits(run, step), expected, run->n_vocab);
        if (d > c->t->worst) c->t->worst = d;
        if (!(d <= LIMIT)) {
            print_round(c);
            oracle_run_print(run, ref);
            fail_msg("%s: logits before token %d deviate by %.3g", c->f->name, step, d);
        }
        assert_true(oracle_run_is_greedy(run, step));
        if (step + 1 < run->n_steps) expected = reference_prompt_append(ref, run->result->tokens[step]);
    }
}

static void count(tally *t, const reference_prompt *ref, const oracle_run *run) {
    t->prompts++;
    t->reused += reference_prompt_reused(ref) > 0;
    t->joint += reference_prompt_joint(ref) > 0;
    t->past_window += has_long_view(run->result);
    t->blended += run->result->quality.used.mode == RP_QUALITY_BLEND;
    t->focused += run->result->quality.focus_token > 0;
}

static void make_run(const round *c, bool exact, oracle_run *run) {
    rp_request req = rp_request_defaults();
    req.prompt = rp_prompt_pml(c->pml.prompt.data);
    req.reuse = exact ? RP_REUSE_EXACT : RP_REUSE_ON;
    req.experiment = &experiment_no_prefix; /* the reference knows modules alone */
    req.max_tokens = STEPS;
    req.ignore_eos = true;
    oracle_run_make(run, c->engine, &req);
}

static void check_run(const round *c, const reference_prompt *ref, const oracle_run *run, int rc, const char *why) {
    if (run->rc != rc || (!rc && !oracle_run_counts_agree(run, ref))) {
        print_round(c);
        oracle_run_print(run, ref);
        fail_msg("%s: the engine and the reference disagree: %s", c->f->name, rc ? why : "the reference is content");
    }
    if (!rc) count(c->t, ref, run);
}

/* Does the prompt, with its answer, fit the learned positions? */
static bool fits(const family *f, int rc, const reference_prompt *ref) {
    if (f->n_positions == 0) return true;
    return rc != RP_ERR_CONTEXT && (rc || reference_prompt_end(ref) + STEPS <= f->n_positions);
}

static void check_prompt(const round *c, bool exact) {
    reference_prompt *ref = NULL;
    rp_error err = {0};
    oracle_run run;
    make_run(c, exact, &run);
    int rc = reference_prompt_new(&ref, c->f->ref, c->schema, c->prompt,
                                  exact ? (rp_quality){RP_QUALITY_EXACT, 0} : (rp_quality){0}, run.result, &err);
    c->t->too_long += rc == RP_ERR_LENGTH;
    if (fits(c->f, rc, ref)) {
        check_run(c, ref, &run, rc, err.message);
        if (!rc) compare(c, ref, &run);
    }
    oracle_run_free(&run);
    reference_prompt_free(ref);
}

/* ---- one schema ------------------------------------------------------------------------------------------------ */

static rp_engine *new_engine(const family *f, tiny_random *r) {
    static const int32_t chunks[] = {1, 7, 64, 256};
    rp_engine_options options = rp_engine_options_defaults();
    rp_engine *engine = NULL;
    rp_error err = {0};
    options.kv_format = RP_KV_F32;
    options.n_threads = 1;
    options.n_ctx = f->n_positions ? 0 : N_CTX;
    options.chunk_tokens = chunks[tiny_random_below(r, BASE_ARRAY_LEN(chunks))];
    options.kv_budget_bytes = (uint64_t)256 << 20;
    if (rp_engine_new(&engine, f->model, &options, &err)) fail_msg("%s: %s", f->name, err.message);
    return engine;
}

static void check_next_prompt(round *c, bool exact) {
    rp_error err = {0};
    random_pml_prompt(&c->pml, c->f->tokenizer);
    if (pml_prompt_parse(&c->prompt, c->pml.prompt.data, c->pml.prompt.len, "prompt", &err))
        fail_msg("%s", err.message);
    check_prompt(c, false);
    if (exact) check_prompt(c, true);
    pml_document_free(c->prompt);
    c->prompt = NULL;
}

/* layout: of the schema. The first prompt is tested in exact mode as well. */
static void check_schema(const family *f, uint64_t seed, random_pml_layout layout, tally *t) {
    tiny_random r = {.state = seed};
    round c = {.f = f, .seed = seed, .t = t};
    rp_error err = {0};
    random_pml_init(&c.pml, &r);
    c.pml.layout = layout;
    c.pml.dial = true;
    c.pml.shorter = f->n_positions ? 7 : 3;
    random_pml_schema(&c.pml);
    c.engine = new_engine(f, &r);
    if (rp_schema_parse(c.engine, c.pml.schema.data, c.pml.schema.len, "schema", NULL, NULL, NULL, &err) ||
        pml_schema_parse(&c.schema, c.pml.schema.data, c.pml.schema.len, "schema", NULL, NULL, &err)) {
        print_round(&c);
        fail_msg("%s", err.message);
    }
    for (int i = 0; i < PROMPTS_PER_SCHEMA; i++) check_next_prompt(&c, i == 0);
    rp_engine_free(c.engine);
    pml_document_free(c.schema);
    random_pml_free(&c.pml);
}

/* Alternates the layouts, so that few rounds cover both; the seed of a round selects the layout. */
static void check_family(const family *f, uint64_t seed, int rounds, tally *t) {
    for (int i = 0; i < rounds; i++) {
        uint64_t s = seed + (uint64_t)i;
        if (f->n_positions == 0) check_schema(f, s, s % 2 ? RANDOM_PML_PACKED : RANDOM_PML_FIXED, t);
    }
    for (int i = 0; f->n_positions && i < MOST_TRIES && t->prompts < rounds * PROMPTS_PER_SCHEMA; i++)
        check_schema(f, seed + (uint64_t)i, RANDOM_PML_FIXED, t);
}

static void add(tally *sum, const tally *t) {
    sum->models++;
    sum->prompts += t->prompts;
    sum->too_long += t->too_long;
    sum->reused += t->reused;
    sum->joint += t->joint;
    sum->past_window += t->past_window;
    sum->blended += t->blended;
    sum->focused += t->focused;
    sum->undecided += t->undecided;
    if (t->worst > sum->worst) sum->worst = t->worst;
}

static void check_file(const char *name, const char *path, uint64_t seed, tally *sum) {
    family f;
    tally t = {0};
    int rounds = test_rounds(4);
    open_family(&f, name, path);
    check_family(&f, seed + (uint64_t)sum->models * SEEDS_OF_A_MODEL, rounds, &t);
    printf("  %-20s %d prompts, worst deviation %.2g\n", name, t.prompts, t.worst);
    assert_true(rounds < 4 || t.prompts > 0);
    close_family(&f);
    add(sum, &t);
}

static bool is_quantized(const golden_model *m) { return strstr(m->name, "mxfp4") != NULL; }

static void every_family_gives_the_reference_logits(void **state) {
    uint64_t seed = test_seed("oracle_families", 20261123);
    golden *g = golden_open();
    tally sum = {0};
    (void)state;
    for (int32_t i = 0; i < g->n_models; i++)
        if (is_wanted(g->models[i].name) && !is_quantized(&g->models[i]) && !golden_is_recurrent(&g->models[i]))
            check_file(g->models[i].name, g->models[i].path, seed, &sum);
    for (size_t i = 0; i < BASE_ARRAY_LEN(copies); i++) {
        char path[64];
        if (!is_wanted(copies[i].name)) continue;
        gguf_variant_write(golden_find(g, copies[i].golden)->path, &copies[i].variant, path);
        check_file(copies[i].name, path, seed, &sum);
        unlink(path);
    }
    printf("oracle_families: %d models, %d prompts (%d reuse states, %d compute some for an uncertain token, %d "
           "modules past the window, "
           "%d take joint states, %d do not fit, %d undecided), worst deviation %.2g\n",
           sum.models, sum.prompts, sum.reused, sum.focused, sum.past_window, sum.joint, sum.too_long, sum.undecided,
           sum.worst);
    assert_true(sum.models > 0);
    if (sum.models > 1)
        assert_true(sum.reused > 0 && sum.focused > 0 && sum.past_window > 0 && 5 * sum.undecided < sum.prompts);
    golden_close(g);
}

/* ---- learned positions ----------------------------------------------------------------------------------------- */

static void check_is_refused(const family *f, const char *schema) {
    tiny_random r = {.state = 1};
    rp_engine *engine = new_engine(f, &r);
    rp_error err = {0};
    assert_int_equal(rp_schema_parse(engine, schema, strlen(schema), "schema", NULL, NULL, NULL, &err),
                     RP_ERR_UNSUPPORTED);
    if (!strstr(err.message, "learned positions"))
        fail_msg("%s: the message does not say why: %s", f->name, err.message);
    rp_engine_free(engine);
}

static void learned_positions_cannot_move(void **state) {
    golden *g = golden_open();
    family f;
    (void)state;
    open_family(&f, "gpt2", golden_find(g, "gpt2")->path);
    assert_int_equal(f.n_positions, 256);
    check_is_refused(&f, "<schema name=\"s\" layout=\"packed\"><module name=\"m\">Seven hills.</module></schema>");
    close_family(&f);
    golden_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_gives_the_reference_logits),
        cmocka_unit_test(learned_positions_cannot_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
