/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuts.c: the exactness rule (docs/architecture.md) at every border of a block of 64 slots, in every KV format.
 *
 *   text      a cached prompt is cut after 64, 65, ... 127 tokens, in RAM and on disk: every residue of 64
 *   modules   a schema of 64 modules with lengths of every residue, in the engine's format and in mixed ones: computed,
 *             hit in RAM, and hit on disk by another engine
 *
 * Each request has another tail, requests share steps, and every engine has its own number of threads (1 to 4) and size
 * of chunks. Logits and tokens are compared, byte for byte, with those of requests that reuse nothing, one at a time on
 * one thread.
 *
 *   REPRISE_TEST_SEED=N    another sequence
 *   REPRISE_TEST_ROUNDS=N  rounds, 1 by default; every second one with weights in Q8_0
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
#include "base/compiler.h"
#include "kv/block_pool.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/seed.h"
#include "support/store_folder.h"
#include "reprise_pml.h"
#include "support/experiments.h"

#define RESIDUES 64
#define TAIL 3
#define LONGEST (2 * RESIDUES + TAIL)
#define MODULES RESIDUES
#define PROMPTS (MODULES / 2)
#define MOST_BATCH 8
#define STEPS 3
#define MIXED RP_N_KV_FORMATS /* modules in any format, text in f16 */

typedef struct request {
    rp_request asked;
    int32_t tokens[LONGEST], n_cut; /* of text: so many of its tokens are the cached prompt's */
    char prompt[256];               /* of modules */
    oracle_run alone;
} request;

typedef struct world {
    const rp_model *model;
    int32_t n_vocab;
    rp_kv_format format;
    const char *f16_layers; /* rp_engine_options.kv_f16_layers */
    base_buffer schema;     /* without data: there is none */
    request requests[RESIDUES];
    int n;
    tiny_random *r;
} world;

static rp_model *models[2];
static tiny_random r;
static int rounds;
static uint64_t n_rows, n_ram, n_disk; /* rows of logits; cached tokens by tier */
static uint64_t residues[2];           /* of cut text, and of modules: bit i: i slots of the last block are used */

static int open_models(void **state) {
    (void)state;
    tiny_model_shape shape = tiny_model_defaults();
    shape.n_kv_heads = 4; /* an engine in int8 holds modules in f16 then */
    models[0] = tiny_model_open(&shape, "chatml");
    shape.weight_type = shape.embd_type = KERNEL_Q8_0;
    models[1] = tiny_model_open(&shape, "chatml");
    r = (tiny_random){test_seed("cuts", 20261124)};
    rounds = test_rounds(1);
    return 0;
}

static int close_models(void **state) {
    (void)state;
    rp_model_close(models[0]);
    rp_model_close(models[1]);
    return 0;
}

static int32_t below(int32_t n) { return (int32_t)tiny_random_below(&r, (uint64_t)n); }

/* ---- engines ----------------------------------------------------------------------------------------------------- */

static rp_engine *new_engine(const world *w, const rp_engine_options *options) {
    rp_engine *e;
    rp_error err = {0};
    must(rp_engine_new(&e, (rp_model *)w->model, options, &err), &err);
    if (w->schema.data) must(rp_schema_parse(e, w->schema.data, w->schema.len, "schema", NULL, NULL, NULL, &err), &err);
    return e;
}

static rp_engine *plain_engine(const world *w) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.kv_format = w->format;
    o.kv_f16_layers = w->f16_layers;
    return new_engine(w, &o);
}

/* dir NULL: without a store. */
static rp_engine *random_engine(const world *w, const char *dir) {
    static const int32_t chunks[] = {1, 3, 16, 63, 64, 100, 256};
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1 + below(4);
    o.chunk_tokens = chunks[below((int32_t)BASE_ARRAY_LEN(chunks))];
    o.max_sequences = 1 + below(MOST_BATCH);
    o.kv_format = w->format;
    o.kv_f16_layers = w->f16_layers;
    o.store_dir = dir;
    return new_engine(w, &o);
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static void check_result(const world *w, const request *q, const oracle_run *run, const char *where) {
    if (run->rc) fail_msg("%s, %s: %s", kv_format_name((rp_kv_format)w->format), where, run->err.message);
    if (!oracle_run_same(run, &q->alone)) {
        printf("%s\n%s\n", w->schema.data ? w->schema.data : "", q->prompt);
        fail_msg("%s, %s: not the bytes of a request alone (cut after %d tokens)",
                 kv_format_name((rp_kv_format)w->format), where, q->n_cut);
    }
    if (q->n_cut && run->result->cached_tokens != q->n_cut)
        fail_msg("%s: %d tokens cached, of %d", where, run->result->cached_tokens, q->n_cut);
    if (q->n_cut) residues[0] |= UINT64_C(1) << q->n_cut % RESIDUES;
    for (int32_t i = 0; i < run->result->n_plan; i++) {
        const rp_plan_item *p = &run->result->plan[i];
        n_ram += strcmp(p->tier, "ram") == 0 ? (uint64_t)p->n_tokens : 0;
        n_disk += strcmp(p->tier, "disk") == 0 ? (uint64_t)p->n_tokens : 0;
        if (p->is_view && p->module[0] == 'm') residues[1] |= UINT64_C(1) << p->n_tokens % RESIDUES;
    }
    n_rows += (uint64_t)run->n_steps;
}

/* All requests, in random order and in batches. */
static void ask_all(const world *w, rp_engine *e, const char *where) {
    int order[RESIDUES];
    for (int i = 0; i < w->n; i++) {
        int k = below(i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    for (int done = 0, batch; done < w->n; done += batch) {
        oracle_run runs[MOST_BATCH];
        rp_job *jobs[MOST_BATCH];
        batch = 1 + below(MOST_BATCH);
        if (batch > w->n - done) batch = w->n - done;
        for (int i = 0; i < batch; i++) oracle_run_submit(&runs[i], e, &w->requests[order[done + i]].asked, &jobs[i]);
        for (int i = 0; i < batch; i++) {
            oracle_run_finish(&runs[i], jobs[i]);
            check_result(w, &w->requests[order[done + i]], &runs[i], where);
            oracle_run_free(&runs[i]);
        }
    }
}

static void ask_alone(world *w) {
    rp_engine *e = plain_engine(w);
    for (int i = 0; i < w->n; i++) {
        rp_request q = w->requests[i].asked;
        q.reuse = RP_REUSE_OFF;
        q.experiment = &experiment_no_prefix;
        oracle_run_make(&w->requests[i].alone, e, &q);
        if (w->requests[i].alone.rc) fail_msg("%s", w->requests[i].alone.err.message);
    }
    rp_engine_free(e);
}

static void release(world *w) {
    for (int i = 0; i < w->n; i++) oracle_run_free(&w->requests[i].alone);
    base_buffer_free(&w->schema);
}

static rp_request new_request(void) {
    rp_request q = rp_request_defaults();
    q.max_tokens = STEPS;
    q.ignore_eos = true;
    return q;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Any token of the vocabulary except the control and byte tokens at its beginning. */
static int32_t some_token(void) { return 259 + below(512 - 259); }

static void keep_prompt(const world *w, rp_engine *e, const int32_t *prompt) {
    rp_request q = new_request();
    oracle_run run;
    (void)w;
    q.prompt = rp_prompt_tokens(prompt, 2 * RESIDUES);
    q.max_tokens = 1;
    oracle_run_make(&run, e, &q);
    if (run.rc) fail_msg("%s", run.err.message);
    oracle_run_free(&run);
}

/* The first 64 + i tokens of the prompt, and others. */
static void make_cut(request *q, const int32_t *prompt, int i) {
    *q = (request){.asked = new_request(), .n_cut = RESIDUES + i};
    memcpy(q->tokens, prompt, (size_t)q->n_cut * sizeof(*prompt));
    for (int k = 0; k < TAIL; k++) q->tokens[q->n_cut + k] = some_token();
    if (q->tokens[q->n_cut] == prompt[q->n_cut]) q->tokens[q->n_cut] = prompt[q->n_cut] == 259 ? 260 : 259;
    q->asked.prompt = rp_prompt_tokens(q->tokens, (size_t)(q->n_cut + TAIL));
}

/* Of every second world in a format below 16 bits: one of its two layers. */
static const char *some_f16_layer(rp_kv_format format) {
    return kv_format_is_small((rp_kv_format)format) && below(2) == 0 ? below(2) ? "0" : "1" : NULL;
}

static void cut_text(const rp_model *m, rp_kv_format format) {
    static world w;
    int32_t prompt[2 * RESIDUES];
    char dir[STORE_FOLDER_BYTES];
    w = (world){.model = m, .format = format, .f16_layers = some_f16_layer(format), .n = RESIDUES};
    for (int i = 0; i < 2 * RESIDUES; i++) prompt[i] = some_token();
    for (int i = 0; i < RESIDUES; i++) make_cut(&w.requests[i], prompt, i);
    ask_alone(&w);
    store_folder_make(dir);
    rp_engine *e = random_engine(&w, dir);
    keep_prompt(&w, e, prompt);
    rp_engine_free(e); /* writes it */
    e = random_engine(&w, dir);
    ask_all(&w, e, "text on disk");
    rp_engine_free(e);
    e = random_engine(&w, NULL);
    keep_prompt(&w, e, prompt);
    ask_all(&w, e, "text in RAM");
    rp_engine_free(e);
    store_folder_remove(dir);
    release(&w);
}

static void a_cached_prompt_may_be_cut_anywhere(void **state) {
    (void)state;
    for (int round = 0; round < rounds; round++)
        for (int f = RP_KV_F16; f < RP_N_KV_FORMATS; f++) cut_text(models[round % 2], (rp_kv_format)f);
    assert_true(residues[0] == UINT64_MAX);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

/* Characters that no longer piece of the vocabulary contains: a token each. */
static void put_tokens(base_buffer *b, int n) {
    static const char letters[] = "0123456789QZXJKVBWMFG";
    for (int i = 0; i < n; i++)
        if (base_buffer_printf(b, "%c", letters[below((int32_t)sizeof(letters) - 1)])) abort();
}

/* Modules of 1 to 64 tokens, one in four with 64 more. */
static void make_schema(world *w, bool is_mixed) {
    base_buffer *b = &w->schema;
    if (base_buffer_append_str(b, "<schema name=\"s\">")) abort();
    put_tokens(b, 1 + below(20));
    for (int i = 0; i < MODULES; i++) {
        if (base_buffer_printf(b, "<module name=\"m%d\"", i)) abort();
        if (is_mixed && base_buffer_printf(b, " kv=\"%s\"", kv_format_name((rp_kv_format)below(RP_N_KV_FORMATS))))
            abort();
        if (base_buffer_append_str(b, ">")) abort();
        put_tokens(b, 1 + i + (i % 4 == 0 ? RESIDUES : 0));
        if (base_buffer_append_str(b, "</module>")) abort();
    }
    if (base_buffer_append_str(b, "</schema>")) abort();
}

/* Two modules, the later one first in every second prompt, and text. */
static void make_prompt(request *q, int i) {
    base_buffer tail = BASE_BUFFER(64);
    *q = (request){.asked = new_request()};
    put_tokens(&tail, 1 + below(5));
    snprintf(q->prompt, sizeof q->prompt, "<prompt schema=\"s\"><m%d/><m%d/>%s</prompt>", 2 * i + i % 2,
             2 * i + 1 - i % 2, tail.data);
    q->asked.prompt = rp_prompt_pml(q->prompt);
    base_buffer_free(&tail);
}

static void compare_modules(const rp_model *m, int format) {
    static world w;
    char dir[STORE_FOLDER_BYTES];
    w = (world){.model = m,
                .format = format == MIXED ? RP_KV_F16 : (rp_kv_format)format,
                .n = PROMPTS,
                .schema = BASE_BUFFER(1 << 16)};
    w.f16_layers = some_f16_layer(w.format);
    make_schema(&w, format == MIXED);
    for (int i = 0; i < PROMPTS; i++) make_prompt(&w.requests[i], i);
    ask_alone(&w);
    store_folder_make(dir);
    rp_engine *e = random_engine(&w, dir);
    ask_all(&w, e, "modules computed");
    ask_all(&w, e, "modules in RAM");
    rp_engine_free(e);
    e = random_engine(&w, dir);
    ask_all(&w, e, "modules on disk");
    rp_engine_free(e);
    store_folder_remove(dir);
    release(&w);
}

static void modules_may_have_any_length(void **state) {
    (void)state;
    for (int round = 0; round < rounds; round++)
        for (int f = RP_KV_F16; f <= MIXED; f++) compare_modules(models[round % 2], f);
    assert_true(residues[1] == UINT64_MAX);
}

static int print_tally(void **state) {
    printf("cuts: %llu rows of logits, %llu tokens from RAM, %llu from disk: no difference\n",
           (unsigned long long)n_rows, (unsigned long long)n_ram, (unsigned long long)n_disk);
    return close_models(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cached_prompt_may_be_cut_anywhere),
        cmocka_unit_test(modules_may_have_any_length),
    };
    return cmocka_run_group_tests_name("cuts", tests, open_models, print_tally);
}
