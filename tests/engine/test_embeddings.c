/* SPDX-License-Identifier: Apache-2.0 */
/* test_embeddings.c: embeddings and rank scores against transformers (tests/golden/embeddings); that chunks, other
 * requests and the prefix cache change no byte; what is refused. */
#define _DEFAULT_SOURCE /* strsep */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include "base/memory.h"
#include "reprise_tools.h"
#include "support/must.h"
#include "support/vector_file.h"
#include "reprise_pml.h"
#include "reprise_test.h"
#include "reprise_embedding.h"

#define LIMIT 1e-4
#define MAX_TOKENS 512
#define MAX_VALUES 512

typedef struct world {
    rp_model *model;
    rp_engine *engine;
} world;

/* options: NULL for f32 KV and the defaults. */
static void open_world(world *w, const char *path, const rp_engine_options *options) {
    rp_error err = {0};
    rp_engine_options o = rp_engine_options_defaults();
    o.kv_format = RP_KV_F32;
    o.n_threads = 2;
    must(rp_model_open(&w->model, path, NULL, &err), &err);
    must(rp_engine_new(&w->engine, w->model, options ? options : &o, &err), &err);
}

static void close_world(world *w) {
    rp_engine_free(w->engine);
    rp_model_close(w->model);
}

static rp_request request_of(rp_pooling pooling, const int32_t *tokens, int32_t n) {
    rp_request q = rp_request_defaults();
    q.pooling = pooling;
    q.prompt = rp_prompt_tokens(tokens, n);
    return q;
}

static rp_result *embed(rp_engine *e, rp_pooling pooling, const int32_t *tokens, int32_t n) {
    rp_error err = {0};
    rp_result *r;
    rp_request q = request_of(pooling, tokens, n);
    must(rp_engine_run(e, &q, &r, &err), &err);
    assert_non_null(r->embedding);
    assert_true(r->n_tokens == 0 && r->text[0] == '\0' && r->prompt_tokens == n);
    return r;
}

/* Tokens that depend on the seed, without the first few, which are control tokens. */
static void fill_tokens(int32_t *tokens, int32_t n, uint32_t seed) {
    for (int32_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        tokens[i] = 6 + (int32_t)(seed >> 8) % 300;
    }
}

/* ---- against transformers ---- */

typedef struct golden_run {
    char name[64]; /* of the open model */
    world w;
    double worst;
    int n;
} golden_run;

static int32_t read_ints(char *text, int32_t *out, int32_t most) {
    int32_t n = 0;
    for (char *field; (field = strsep(&text, "|"));) {
        assert_true(n < most);
        out[n++] = atoi(field);
    }
    return n;
}

static int32_t read_reals(char *text, double *out, int32_t most) {
    int32_t n = 0;
    for (char *field; (field = strsep(&text, "|"));) {
        assert_true(n < most);
        out[n++] = strtod(field, NULL);
    }
    return n;
}

static void open_golden(golden_run *g, const char *name) {
    char path[128];
    const bool encoder = strcmp(name, "llama") != 0 && strcmp(name, "qwen3") != 0;
    if (strcmp(g->name, name) == 0) return;
    if (g->name[0]) close_world(&g->w);
    snprintf(g->name, sizeof(g->name), "%s", name);
    snprintf(path, sizeof(path), "%s%s.gguf", encoder ? "embeddings/" : "", name);
    open_world(&g->w, vector_path(path), NULL);
}

static void compare_line(void *user, vector_case *c) {
    golden_run *g = user;
    int32_t tokens[MAX_TOKENS];
    double values[MAX_VALUES];
    char *pooling_name = strchr(c->fields[0], ' ');
    rp_pooling pooling;
    *pooling_name++ = '\0';
    open_golden(g, c->fields[0]);
    must(rp_pooling_parse(pooling_name, &pooling, NULL), &(rp_error){.message = "pooling"});
    int32_t n = read_ints(c->fields[1], tokens, MAX_TOKENS), width = read_reals(c->fields[2], values, MAX_VALUES);
    rp_result *r = embed(g->w.engine, pooling, tokens, n);
    assert_int_equal(r->n_embedding, width);
    for (int32_t i = 0; i < width; i++) {
        double error = fabs((double)r->embedding[i] - values[i]);
        if (!(error < LIMIT))
            fail_msg("line %d: %s %s: value %d is %g, expected %g", c->line, g->name, pooling_name, (int)i,
                     (double)r->embedding[i], values[i]);
        g->worst = fmax(g->worst, error);
    }
    g->n++;
    rp_result_free(r);
}

static void embeddings_are_those_of_transformers(void **state) {
    (void)state;
    golden_run g = {0};
    vector_file_each("embeddings/embeddings.txt", 3, compare_line, &g);
    printf("%d vectors, worst %.1e\n", g.n, g.worst);
    assert_true(g.n > 30);
    close_world(&g.w);
}

static void models_say_what_they_are(void **state) {
    (void)state;
    static const struct {
        const char *path, *pooling;
        bool is_encoder;
        int32_t n_scores;
    } models[] = {
        {"embeddings/bert.gguf", "cls", true, 0},
        {"embeddings/nomic-bert.gguf", "mean", true, 0},
        {"embeddings/jina-bert-v3.gguf", "mean", true, 0},
        {"embeddings/modern-bert.gguf", "cls", true, 0},
        {"embeddings/eurobert.gguf", "mean", true, 0},
        {"embeddings/gemma-embedding.gguf", "mean", true, 0},
        {"embeddings/reranker.gguf", "rank", true, 1},
        {"llama.gguf", "last", false, 0},
    };
    for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
        world w;
        rp_model_info info = {.struct_size = sizeof(info)};
        open_world(&w, vector_path(models[i].path), NULL);
        rp_model_describe(w.model, &info);
        assert_true(info.is_encoder == models[i].is_encoder && info.n_scores == models[i].n_scores);
        assert_string_equal(info.pooling, models[i].pooling);
        close_world(&w);
    }
}

/* ---- the same bytes ---- */

static void same_embedding(const rp_result *a, const rp_result *b) {
    assert_int_equal(a->n_embedding, b->n_embedding);
    assert_memory_equal(a->embedding, b->embedding, (size_t)a->n_embedding * sizeof(float));
}

static void a_cache_hit_changes_no_byte(void **state) {
    (void)state;
    world w;
    rp_engine_options f16 = rp_engine_options_defaults();
    int32_t tokens[400];
    fill_tokens(tokens, 400, 1);
    open_world(&w, vector_path("llama.gguf"), &f16);
    rp_result *miss = embed(w.engine, RP_POOLING_LAST, tokens, 400),
              *hit = embed(w.engine, RP_POOLING_LAST, tokens, 400);
    assert_int_equal(miss->cached_tokens, 0);
    assert_int_equal(hit->cached_tokens, 399); /* all but the last token, which is computed for its state */
    same_embedding(miss, hit);
    rp_result_free(hit);
    rp_result *shorter = embed(w.engine, RP_POOLING_LAST, tokens, 300); /* a prefix, itself cached */
    assert_true(shorter->cached_tokens > 0);
    world other;
    open_world(&other, vector_path("llama.gguf"), &f16);
    rp_result *fresh = embed(other.engine, RP_POOLING_LAST, tokens, 300);
    assert_int_equal(fresh->cached_tokens, 0);
    same_embedding(shorter, fresh);
    rp_result_free(fresh);
    rp_result_free(shorter);
    /* the answer to the same prompt hits what the embedding computed */
    rp_request q = rp_request_defaults();
    rp_error err = {0};
    rp_result *answer;
    q.prompt = rp_prompt_tokens(tokens, 400);
    q.max_tokens = 4;
    must(rp_engine_run(w.engine, &q, &answer, &err), &err);
    assert_int_equal(answer->cached_tokens, 399);
    rp_result_free(answer);
    rp_result_free(miss);
    close_world(&other);
    close_world(&w);
}

static void mean_computes_every_token(void **state) {
    (void)state;
    world w;
    int32_t tokens[200];
    fill_tokens(tokens, 200, 2);
    open_world(&w, vector_path("llama.gguf"), NULL);
    rp_result *warm = embed(w.engine, RP_POOLING_LAST, tokens, 200);
    static const rp_pooling poolings[] = {RP_POOLING_MEAN, RP_POOLING_CLS};
    for (size_t i = 0; i < 2; i++) {
        rp_result *a = embed(w.engine, poolings[i], tokens, 200), *b = embed(w.engine, poolings[i], tokens, 200);
        assert_true(a->cached_tokens == 0 && b->cached_tokens == 0);
        same_embedding(a, b);
        rp_result_free(a);
        rp_result_free(b);
    }
    rp_result_free(warm);
    close_world(&w);
}

#define N_TEXTS 20

/* One at a time with whole prompts in a step, then all together in small chunks beside answers. */
static void steps_change_no_byte(const char *path, rp_pooling pooling) {
    world alone, together;
    rp_engine_options small = rp_engine_options_defaults();
    rp_error err = {0};
    rp_job *jobs[N_TEXTS], *answer = NULL;
    int32_t tokens[N_TEXTS][240];
    small.kv_format = RP_KV_F32;
    small.n_threads = 1;
    small.chunk_tokens = 7;
    small.max_sequences = 5;
    open_world(&alone, vector_path(path), NULL);
    open_world(&together, vector_path(path), &small);
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(together.model, &info);
    rp_request text = request_of(RP_POOLING_OFF, tokens[0], 3);
    for (int i = 0; i < N_TEXTS; i++) {
        rp_request q = request_of(pooling, tokens[i], 1 + i * 12);
        q.reuse = RP_REUSE_OFF;
        fill_tokens(tokens[i], 240, (uint32_t)i);
        if (i == 4 && !info.is_encoder) must(rp_engine_submit(together.engine, &text, &answer, &err), &err);
        must(rp_engine_submit(together.engine, &q, &jobs[i], &err), &err);
    }
    for (int i = 0; i < N_TEXTS; i++) {
        rp_result *a = embed(alone.engine, pooling, tokens[i], 1 + i * 12), *b;
        must(rp_job_result(jobs[i], &b, &err), &err);
        same_embedding(a, b);
        rp_result_free(a);
        rp_result_free(b);
        rp_job_free(jobs[i]);
    }
    rp_job_free(answer);
    close_world(&alone);
    close_world(&together);
}

static void chunks_and_other_requests_change_no_byte(void **state) {
    (void)state;
    steps_change_no_byte("llama.gguf", RP_POOLING_MEAN);
    steps_change_no_byte("llama.gguf", RP_POOLING_LAST);
    steps_change_no_byte("embeddings/bert.gguf", RP_POOLING_MEAN);
    steps_change_no_byte("embeddings/nomic-bert.gguf", RP_POOLING_CLS);
    steps_change_no_byte("embeddings/modern-bert.gguf", RP_POOLING_MEAN);
    steps_change_no_byte("embeddings/gemma-embedding.gguf", RP_POOLING_CLS);
    steps_change_no_byte("embeddings/reranker.gguf", RP_POOLING_RANK);
}

/* ---- texts ---- */

static void many_texts_are_embedded_in_order(void **state) {
    (void)state;
    world w;
    rp_engine_options o = rp_engine_options_defaults();
    rp_error err = {0};
    rp_embedding_input inputs[40] = {{.text = NULL}};
    rp_result *results[40];
    char texts[40][32];
    o.max_sequences = 2;
    o.max_queue = 1; /* fewer than are submitted */
    open_world(&w, vector_path("embeddings/bert.gguf"), &o);
    for (int i = 0; i < 40; i++) {
        snprintf(texts[i], sizeof(texts[i]), "the sea %d", i);
        inputs[i].text = texts[i];
        inputs[i].n_bytes = strlen(texts[i]);
    }
    must(rp_engine_embed(w.engine, NULL, inputs, 40, results, &err), &err);
    for (int i = 0; i < 40; i++) {
        rp_request q = rp_request_defaults();
        rp_result *one;
        double squares = 0;
        q.pooling = RP_POOLING_MODEL;
        q.prompt = rp_prompt_text(texts[i]);
        must(rp_engine_run(w.engine, &q, &one, &err), &err);
        same_embedding(one, results[i]);
        for (int32_t d = 0; d < one->n_embedding; d++) squares += (double)one->embedding[d] * (double)one->embedding[d];
        assert_true(fabs(squares - 1) < 1e-5);
        rp_result_free(one);
        rp_result_free(results[i]);
    }
    inputs[7].text = NULL; /* no tokens either */
    assert_int_equal(rp_engine_embed(w.engine, NULL, inputs, 40, results, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "text 8: "));
    for (int i = 0; i < 40; i++) assert_null(results[i]);
    close_world(&w);
}

static void raw_embeddings_are_not_scaled(void **state) {
    (void)state;
    world w;
    rp_error err = {0};
    int32_t tokens[20];
    fill_tokens(tokens, 20, 3);
    open_world(&w, vector_path("embeddings/nomic-bert.gguf"), NULL);
    rp_result *unit = embed(w.engine, RP_POOLING_MODEL, tokens, 20), *raw;
    rp_request q = request_of(RP_POOLING_MODEL, tokens, 20);
    q.raw_embedding = true;
    must(rp_engine_run(w.engine, &q, &raw, &err), &err);
    double squares = 0;
    for (int32_t d = 0; d < raw->n_embedding; d++) squares += (double)raw->embedding[d] * (double)raw->embedding[d];
    assert_true(fabs(sqrt(squares) - 1) > 0.1);
    for (int32_t d = 0; d < raw->n_embedding; d++)
        assert_true(fabs((double)raw->embedding[d] / sqrt(squares) - (double)unit->embedding[d]) < 1e-6);
    rp_result_free(raw);
    rp_result_free(unit);
    close_world(&w);
}

static void quantized_encoders_work(void **state) {
    (void)state;
    char path[] = "/tmp/reprise-embeddings-XXXXXX";
    rp_error err = {0};
    world full, quantized;
    int32_t tokens[100];
    close(mkstemp(path));
    unlink(path);
    must(rp_model_quantize(vector_path("embeddings/bert.gguf"), path, "Q8_0", NULL, &err), &err);
    fill_tokens(tokens, 100, 4);
    open_world(&full, vector_path("embeddings/bert.gguf"), NULL);
    open_world(&quantized, path, NULL);
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(quantized.model, &info);
    assert_string_equal(info.weights, "Q8_0");
    rp_result *a = embed(full.engine, RP_POOLING_MEAN, tokens, 100),
              *b = embed(quantized.engine, RP_POOLING_MEAN, tokens, 100);
    double cosine = 0;
    for (int32_t d = 0; d < a->n_embedding; d++) cosine += (double)a->embedding[d] * (double)b->embedding[d];
    printf("Q8_0: cosine %.6f\n", cosine);
    assert_true(cosine > 0.999 && cosine < 0.9999999);
    rp_result_free(a);
    rp_result_free(b);
    close_world(&full);
    close_world(&quantized);
    unlink(path);
}

/* ---- what is refused ---- */

static void expect_refused(rp_engine *e, const rp_request *q, rp_code code, const char *says) {
    rp_error err = {0};
    rp_result *r;
    int rc = rp_engine_run(e, q, &r, &err);
    if (rc != code || !strstr(err.message, says)) fail_msg("%d: %s, expected %d: %s", rc, err.message, (int)code, says);
}

static void encoders_generate_no_text(void **state) {
    (void)state;
    world w;
    rp_error err = {0};
    int32_t tokens[400];
    fill_tokens(tokens, 400, 5);
    open_world(&w, vector_path("embeddings/bert.gguf"), NULL);
    rp_request q = request_of(RP_POOLING_OFF, tokens, 4);
    expect_refused(w.engine, &q, RP_ERR_UNSUPPORTED, "encoder");
    q = request_of(RP_POOLING_RANK, tokens, 4);
    expect_refused(w.engine, &q, RP_ERR_UNSUPPORTED, "no rank head");
    q = request_of(RP_POOLING_MEAN, tokens, 400);
    expect_refused(w.engine, &q, RP_ERR_CONTEXT, "320"); /* its learned positions */
    q = request_of(RP_POOLING_MEAN, NULL, 0);
    q.prompt = rp_prompt_messages(&(rp_message){RP_ROLE_USER, "a", 1}, 1);
    expect_refused(w.engine, &q, RP_ERR_UNSUPPORTED, "plain text");
    assert_int_equal(rp_schema_parse(w.engine, "<schema name='s'>a</schema>", 27, "s.xml", NULL, NULL, NULL, &err),
                     RP_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "encoder"));
    close_world(&w);
}

static void causal_models_refuse_what_they_cannot_compute(void **state) {
    (void)state;
    world w;
    rp_error err = {0};
    int32_t tokens[20];
    static const char schema[] = "<schema name='s'>Once <module name='m'>upon a time</module></schema>";
    fill_tokens(tokens, 20, 6);
    open_world(&w, vector_path("llama.gguf"), NULL);
    rp_request q = request_of(RP_POOLING_RANK, tokens, 20);
    expect_refused(w.engine, &q, RP_ERR_UNSUPPORTED, "no rank head");
    q = request_of((rp_pooling)77, tokens, 20);
    expect_refused(w.engine, &q, RP_ERR_INVALID, "pooling");
    q = request_of(RP_POOLING_LAST, tokens, 20);
    q.kv_keep = "16";
    expect_refused(w.engine, &q, RP_ERR_CONFLICT, "kv_keep");
    q.kv_keep = NULL;
    q.context_shift = true;
    expect_refused(w.engine, &q, RP_ERR_CONFLICT, "context_shift");
    must(rp_schema_parse(w.engine, schema, strlen(schema), "s.xml", NULL, NULL, NULL, &err), &err);
    q = request_of(RP_POOLING_MEAN, NULL, 0);
    q.prompt = rp_prompt_pml("<prompt schema='s'><m/> there was</prompt>");
    expect_refused(w.engine, &q, RP_ERR_UNSUPPORTED, "pooling last");
    /* modules serve the last state, and every state of their exact form is computed */
    rp_result *r;
    q.reuse = RP_REUSE_EXACT;
    must(rp_engine_run(w.engine, &q, &r, &err), &err);
    rp_result_free(r);
    q.reuse = RP_REUSE_ON;
    q.pooling = RP_POOLING_LAST;
    for (int i = 0; i < 2; i++) {
        must(rp_engine_run(w.engine, &q, &r, &err), &err);
        assert_true(i == 0 || r->cached_tokens > 0);
        rp_result_free(r);
    }
    close_world(&w);
}

/* An embedding ignores what is of an answer or of logits. */
static void options_of_answers_change_no_embedding(void **state) {
    (void)state;
    static const struct {
        const char *path;
        rp_pooling pooling;
    } cases[] = {
        {"llama.gguf", RP_POOLING_MEAN}, {"llama.gguf", RP_POOLING_LAST}, {"embeddings/bert.gguf", RP_POOLING_CLS}};
    int32_t tokens[40], forced[] = {9, 10, 11};
    fill_tokens(tokens, 40, 5);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rp_error err = {0};
        rp_result *odd;
        world w;
        open_world(&w, vector_path(cases[i].path), NULL);
        rp_result *plain = embed(w.engine, cases[i].pooling, tokens, 40);
        rp_request q = request_of(cases[i].pooling, tokens, 40);
        q.experiment =
            &(rp_request_experiment){.struct_size = sizeof(rp_request_experiment), .forced = forced, .n_forced = 3};
        q.n_prompt_logprobs = 2;
        must(rp_engine_run(w.engine, &q, &odd, &err), &err);
        assert_true(odd->n_tokens == 0 && odd->n_prompt_top == 0);
        same_embedding(plain, odd);
        rp_result_free(odd);
        rp_result_free(plain);
        close_world(&w);
    }
}

static void a_cancelled_embedding_ends(void **state) {
    (void)state;
    world w;
    rp_engine_options o = rp_engine_options_defaults();
    rp_error err = {0};
    rp_job *jobs[8];
    int32_t tokens[500];
    int cancelled = 0;
    o.chunk_tokens = 1;
    o.max_sequences = 1;
    fill_tokens(tokens, 500, 7);
    open_world(&w, vector_path("llama.gguf"), &o);
    for (int i = 0; i < 8; i++) {
        rp_request q = request_of(RP_POOLING_MEAN, tokens + i, 400);
        must(rp_engine_submit(w.engine, &q, &jobs[i], &err), &err);
    }
    for (int i = 7; i >= 0; i--) rp_job_cancel(jobs[i]);
    for (int i = 0; i < 8; i++) {
        rp_result *r = NULL;
        int rc = rp_job_result(jobs[i], &r, &err);
        assert_true(rc == RP_OK || rc == RP_ERR_CANCELLED);
        cancelled += rc == RP_ERR_CANCELLED;
        rp_result_free(r);
        rp_job_free(jobs[i]);
    }
    assert_true(cancelled >= 7); /* at most the first one was complete */
    close_world(&w);
}

/* ---- failing allocations ---- */

typedef struct attempt {
    world w;
    rp_result *results[3];
} attempt;

/* Everything from the file to the embeddings: texts, a pair, tokens. */
static int do_all(attempt *a, const char *path, rp_pooling pooling, rp_error *err) {
    static const int32_t tokens[] = {7, 8, 9};
    const rp_embedding_input inputs[] = {{.text = "The s\u00e9a", .n_bytes = 8},
                                         {.text = "a", .n_bytes = 1, .second = "b c", .n_second = 3},
                                         {.tokens = tokens, .n_tokens = 3}};
    rp_request q = rp_request_defaults();
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    q.pooling = pooling;
    int rc = rp_model_open(&a->w.model, path, NULL, err);
    if (!rc) rc = rp_engine_new(&a->w.engine, a->w.model, &o, err);
    return rc ? rc : rp_engine_embed(a->w.engine, &q, inputs, 3, a->results, err);
}

static void free_all(attempt *a) {
    for (int i = 0; i < 3; i++) rp_result_free(a->results[i]);
    close_world(&a->w);
}

static void fail_allocations(const char *name, rp_pooling pooling) {
    char path[4096];
    attempt a = {0};
    rp_error err = {0};
    snprintf(path, sizeof(path), "%s", vector_path(name));
    base_alloc_count();
    must(do_all(&a, path, pooling, &err), &err);
    const uint64_t n = base_alloc_count();
    free_all(&a);
    assert_true(n > 50);
    for (uint64_t i = 1; i <= n; i++) {
        a = (attempt){0};
        err = (rp_error){0};
        base_alloc_fail_at(i, i % 3 == 0);
        const int rc = do_all(&a, path, pooling, &err);
        base_alloc_fail_at(0, 0);
        if (rc && (rc != (int)err.code || (rc != RP_ERR_MEMORY && rc != RP_ERR_LIMIT) || err.message[0] == '\0'))
            fail_msg("%s: allocation %d: %d: %s", name, (int)i, rc, err.message);
        assert_true(rc || a.results[2]->embedding);
        free_all(&a);
    }
}

static void every_allocation_fails_cleanly(void **state) {
    (void)state;
    fail_allocations("embeddings/bert.gguf", RP_POOLING_MODEL);
    fail_allocations("embeddings/reranker.gguf", RP_POOLING_RANK);
    fail_allocations("llama.gguf", RP_POOLING_LAST);
}

static void pooling_names_are_parsed(void **state) {
    (void)state;
    rp_error err = {0};
    for (int i = RP_POOLING_MODEL; i < RP_N_POOLINGS; i++) {
        rp_pooling p;
        assert_int_equal(rp_pooling_parse(rp_pooling_name((rp_pooling)i), &p, &err), RP_OK);
        assert_int_equal(p, i);
    }
    rp_pooling p;
    assert_int_equal(rp_pooling_parse("max", &p, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "mean"));
    assert_null(rp_pooling_name((rp_pooling)RP_N_POOLINGS));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_are_those_of_transformers),
        cmocka_unit_test(models_say_what_they_are),
        cmocka_unit_test(a_cache_hit_changes_no_byte),
        cmocka_unit_test(mean_computes_every_token),
        cmocka_unit_test(chunks_and_other_requests_change_no_byte),
        cmocka_unit_test(many_texts_are_embedded_in_order),
        cmocka_unit_test(raw_embeddings_are_not_scaled),
        cmocka_unit_test(quantized_encoders_work),
        cmocka_unit_test(encoders_generate_no_text),
        cmocka_unit_test(causal_models_refuse_what_they_cannot_compute),
        cmocka_unit_test(options_of_answers_change_no_embedding),
        cmocka_unit_test(a_cancelled_embedding_ends),
        cmocka_unit_test(every_allocation_fails_cleanly),
        cmocka_unit_test(pooling_names_are_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
