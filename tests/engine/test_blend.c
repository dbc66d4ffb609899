/* SPDX-License-Identifier: Apache-2.0 */
/* test_blend.c: quality="blend:R" through the engine: the chosen tokens, the result's report of them, and cases without
 * candidates. tests/oracle checks the logits, tests/exactness that they do not depend on schedules.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/memory.h"
#include "backend/backend_registry.h"
#include "model/forward.h"
#include "pml/plan.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "reprise_pml.h"

#define N_CTX 2048

/* Modules with only the schema's own text as context, at fixed positions. */
static const char schema[] = "<schema name='s' layout='fixed'>Here is what is known. <module name='a'>The river runs "
                             "slowly past the old mill, and a grey horse stands "
                             "there in the rain every morning.</module><module name='b'>People say that the harbour "
                             "was built by two brothers, one of whom never saw it, "
                             "and that its lamp is green.</module></schema>";
static const char prompt[] = "<prompt schema='s'><a/><b/> And the horse?</prompt>";
enum { TEXT,
       A,
       B }; /* of its plan */

typedef struct world {
    rp_model *model;
    rp_engine *engine;
} world;

/* chunk: 0 for the default */
static world open_world(rp_model *m, const char *pml, int32_t chunk) {
    rp_error err = {0};
    world w = {.model = m};
    rp_engine_options o = rp_engine_options_defaults();
    o.kv_format = RP_KV_F32;
    o.n_ctx = N_CTX;
    o.n_threads = 2;
    if (chunk > 0) o.chunk_tokens = chunk;
    must(rp_engine_new(&w.engine, m, &o, &err), &err);
    must(rp_schema_parse(w.engine, pml, strlen(pml), "schema", NULL, NULL, NULL, &err), &err);
    return w;
}

static void close_world(world *w) {
    rp_engine_free(w->engine);
    rp_model_close(w->model);
}

static rp_model *open_golden(const char *name) {
    rp_error err = {0};
    rp_model *m;
    golden *g = golden_open();
    must(rp_model_open(&m, golden_find(g, name)->path, NULL, &err), &err);
    golden_close(g);
    return m;
}

static void run(const world *w, const char *pml, rp_quality quality, oracle_run *out) {
    rp_request req = rp_request_defaults();
    req.prompt = rp_prompt_pml(pml);
    req.quality = quality;
    req.max_tokens = 4;
    req.ignore_eos = true;
    oracle_run_make(out, w->engine, &req);
    must(out->rc, &out->err);
}

static int32_t count_reason(const rp_result *r, const char *reason) {
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_plan; i++) n += strcmp(r->plan[i].reason, reason) ? 0 : r->plan[i].n_tokens;
    return n;
}

/* ---- by a naive computation ---- */

/* The KV of the probed layer, token by token, of a plain run. out: [n][width] */
static int32_t states_of(const rp_model *m, const int32_t *tokens, const int32_t *positions, int32_t n, float *out) {
    enum { ROWS = 512 };
    rp_error err = {0};
    static model_row rows[ROWS];
    base_cpu_level level;
    backend *b;
    model_forward *f;
    kv_pool *pool;
    kv_context c;
    kv_shape s = model_kv_shape(m, RP_KV_F32);
    int32_t layer = m->net.layers[model_probe_layer(m)].states,
            width = kv_shape_heads(&s) * (s.layers[0].key_dim + s.layers[0].value_dim);
    assert_true(n <= ROWS);
    must(base_cpu_detect(&level, &err), &err);
    must(backend_open(&b, "cpu", &m->net,
                      &(backend_options){.shape = s, .level = level, .n_ctx = N_CTX, .n_threads = 1, .max_rows = ROWS},
                      &err),
         &err);
    must(model_forward_new(&f, m, b, ROWS, 1, &err), &err);
    must(kv_pool_new(&pool, &s, (uint64_t)64 << 20, NULL, &err), &err);
    kv_context_init(&c, pool);
    for (int32_t i = 0; i < n; i++) {
        rows[i] = (model_row){.token = tokens[i], .pos = positions[i]};
        must(kv_context_append(&c, positions[i], &rows[i].span, &rows[i].slot, &err), &err);
    }
    must(model_forward_step(
             f, &(model_step){.rows = rows, .n_rows = n, .contexts = (const kv_context *[]){&c}, .n_contexts = 1}, NULL,
             &err),
         &err);
    for (int32_t i = 0; i < n; i++) {
        char *block = kv_span_in_place(rows[i].span, layer, rows[i].slot / KV_BLOCK_SLOTS);
        int32_t slot = rows[i].slot % KV_BLOCK_SLOTS;
        for (int32_t h = 0; h < kv_shape_heads(&s); h++) {
            const kv_layer *l = kv_span_layer(rows[i].span, layer);
            const float *keys = (float *)(block + kv_block_keys_at(l, h)),
                        *values = (float *)(block + kv_block_values_at(l, h));
            for (int32_t d = 0; d < s.layers[0].key_dim; d++) *out++ = keys[d * KV_BLOCK_SLOTS + slot];
            for (int32_t d = 0; d < s.layers[0].value_dim; d++) *out++ = values[slot * s.layers[0].value_dim + d];
        }
    }
    kv_context_clear(&c);
    kv_pool_free(pool);
    model_forward_free(f);
    b->ops->free(b);
    return width;
}

/* The deviation of each token of module b from a plain run of all. Returns their number; *first: their first index. */
static int32_t naive_deviations(const rp_model *m, const pml_plan *p, double *out, int32_t *first) {
    enum { MOST = 512,
           WIDTH = 512 };
    static float plain[MOST * WIDTH], alone[MOST * WIDTH];
    static int32_t tokens[MOST], positions[MOST];
    rp_error err = {0};
    int32_t n_text = p->items[TEXT].n_tokens, before = n_text + p->items[A].n_tokens, n = p->items[B].n_tokens;
    assert_true(p->n_cached + p->n_fresh <= MOST && p->items[B].is_view);
    must(pml_plan_flatten(p, tokens, positions, &err), &err);
    int32_t width = states_of(m, tokens, positions, before + n, plain);
    assert_true(width <= WIDTH);
    memmove(tokens + n_text, tokens + before, (size_t)n * sizeof(int32_t)); /* without module a */
    memmove(positions + n_text, positions + before, (size_t)n * sizeof(int32_t));
    states_of(m, tokens, positions, n_text + n, alone);
    for (int32_t i = 0; i < n; i++) {
        out[i] = 0;
        for (int32_t k = 0; k < width; k++) {
            double d = (double)plain[(before + i) * width + k] - (double)alone[(n_text + i) * width + k];
            out[i] += d * d;
        }
    }
    *first = p->items[B].pos;
    return n;
}

static bool is_chosen(const rp_result *r, int32_t pos) {
    for (int32_t i = 0; i < r->n_plan; i++)
        if (strcmp(r->plan[i].reason, "blend") == 0 && pos >= r->plan[i].position &&
            pos < r->plan[i].position + r->plan[i].n_tokens)
            return true;
    return false;
}

enum { BEGINNING = 8 }; /* tokens of each module: three quarters of the chosen ones */

/* The module's first tokens are chosen; further chosen tokens deviate at least as much as all others. */
static void check_choice(const rp_model *m, const rp_result *r, int32_t percent) {
    static double deviations[512];
    rp_error err = {0};
    pml_document *s, *q;
    pml_layout *l;
    pml_plan *p;
    base_key salt = {{0}};
    int32_t first, chosen = 0, begins = 0;
    double least = INFINITY, most = 0;
    must(pml_schema_parse(&s, schema, strlen(schema), "schema", NULL, NULL, &err), &err);
    must(pml_prompt_parse(&q, prompt, strlen(prompt), "prompt", &err), &err);
    must(pml_layout_new(&l, s, m, NULL, &salt, &err), &err);
    must(pml_plan_new(&p, l, q, false, (rp_quality){0}, (rp_quality){0}, &err), &err);
    int32_t n = naive_deviations(m, p, deviations, &first), all = (n * percent + 99) / 100;
    while (begins < BEGINNING && begins < all * 3 / 4) assert_true(is_chosen(r, first + begins++));
    for (int32_t i = begins; i < n; i++) {
        bool is = is_chosen(r, first + i);
        chosen += is;
        if (is && deviations[i] < least) least = deviations[i];
        if (!is && deviations[i] > most) most = deviations[i];
    }
    assert_int_equal(begins + chosen, all);
    assert_true(chosen > 0 && most > 0 && least >= most * (1 - 1e-3));
    pml_plan_free(p);
    pml_layout_free(l);
    pml_document_free(q);
    pml_document_free(s);
}

/* Rotation, ALiBi, layers without positions, norms of keys. */
static void beginnings_and_what_deviates_most_are_chosen(void **state) {
    static const char *const names[] = {"llama", "bloom", "smollm3", "qwen3"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        world w = open_world(open_golden(names[i]), schema, i % 2 ? 7 : 0);
        for (int32_t percent = 5; percent <= 45; percent += 20) {
            oracle_run r;
            run(&w, prompt, (rp_quality){RP_QUALITY_BLEND, percent}, &r);
            check_choice(w.model, r.result, percent);
            oracle_run_free(&r);
        }
        close_world(&w);
    }
}

/* Recomputed tokens at the beginning of a module's view. */
static int32_t count_leading(const rp_result *r, const char *module) {
    int32_t i = 0;
    while (i < r->n_plan && strcmp(r->plan[i].module, module)) i++;
    assert_true(i < r->n_plan);
    int32_t n = 0, first = r->plan[i].position;
    while (is_chosen(r, first + n)) n++;
    return n;
}

/* The first token of each module, then the second of each. */
static void modules_begin_evenly(void **state) {
    static const char own[] = "<schema name='s'>Known: <module name='z'>Zero.</module><module name='a'>The river runs "
                              "slowly past the old mill, and a grey "
                              "horse stands there in the rain.</module><module name='b'>The lamp is "
                              "green.</module><module name='c'>The harbour was built by two brothers, one "
                              "of whom never saw it, and nothing changed at the bridge.</module></schema>";
    (void)state;
    world w = open_world(open_golden("llama"), own, 0);
    for (int32_t percent = 5; percent <= 45; percent += 10) {
        oracle_run r;
        run(&w, "<prompt schema='s'><z/><a/><b/><c/> And?</prompt>", (rp_quality){RP_QUALITY_BLEND, percent}, &r);
        int32_t beginnings = r.result->quality.recomputed_tokens * 3 / 4;
        assert_true(beginnings >= 3);
        for (const char *m = "abc"; *m; m++) {
            const char name[] = {*m, 0};
            int32_t share = (beginnings - (*m - 'a') + 2) / 3;
            assert_true(count_leading(r.result, name) >= (share < BEGINNING ? share : BEGINNING));
        }
        oracle_run_free(&r);
    }
    close_world(&w);
}

/* ---- reports ---- */

static void the_result_tells_what_was_done(void **state) {
    (void)state;
    world w = open_world(open_golden("llama"), schema, 0);
    oracle_run reuse, blend, exact;
    run(&w, prompt, (rp_quality){RP_QUALITY_REUSE, 0}, &reuse);
    run(&w, prompt, (rp_quality){RP_QUALITY_BLEND, 20}, &blend);
    const rp_quality_report *q = &blend.result->quality;
    assert_int_equal(q->used.mode, RP_QUALITY_BLEND);
    assert_int_equal(q->used.amount, 20);
    assert_string_equal(q->reason, "");
    assert_true(q->probed_tokens > 0 && q->ms > 0);
    assert_int_equal(q->recomputed_tokens, (q->probed_tokens * 20 + 99) / 100);
    assert_int_equal(q->recomputed_tokens, count_reason(blend.result, "blend"));
    assert_int_equal(blend.result->cached_tokens + blend.result->fresh_tokens, reuse.result->prompt_tokens);
    oracle_run_free(&blend);
    run(&w, prompt, (rp_quality){RP_QUALITY_BLEND, 100}, &blend); /* all of b is recomputed */
    run(&w, prompt, (rp_quality){RP_QUALITY_EXACT, 0}, &exact);
    assert_true(oracle_deviation(blend.logits, exact.logits, exact.n_vocab) < 1e-4);
    assert_true(oracle_deviation(reuse.logits, exact.logits, exact.n_vocab) > 1e-3);
    oracle_run_free(&reuse);
    oracle_run_free(&blend);
    oracle_run_free(&exact);
    close_world(&w);
}

/* Modules with different percentages, and one without any. */
static void every_module_has_its_own_share(void **state) {
    static const char own[] =
        "<schema name='s'>Known: <module name='z'>Zero.</module><module name='a' quality='blend:50'>The river runs "
        "slowly past the mill.</module>"
        "<module name='b' quality='blend:10'>The harbour was built by two brothers, one of whom never saw it.</module>"
        "<module name='c'>Nothing changed at the bridge.</module></schema>";
    (void)state;
    world w = open_world(open_golden("llama"), own, 0);
    oracle_run r;
    int32_t views[2] = {0}, again[2] = {0};
    run(&w, "<prompt schema='s'><z/><a/><b/><c/> And?</prompt>", (rp_quality){0}, &r);
    for (int32_t i = 0; i < r.result->n_plan; i++) {
        const rp_plan_item *t = &r.result->plan[i];
        bool is_again = strcmp(t->reason, "blend") == 0;
        if (strcmp(t->module, "a") == 0 || strcmp(t->module, "b") == 0)
            (is_again ? again : views)[t->module[0] - 'a'] += t->n_tokens;
        else assert_false(is_again);
    }
    assert_int_equal(again[0], (50 * (again[0] + views[0]) + 99) / 100);
    assert_int_equal(again[1], (10 * (again[1] + views[1]) + 99) / 100);
    assert_int_equal(r.result->quality.asked.amount, 50);
    assert_int_equal(r.result->quality.probed_tokens, again[0] + views[0] + again[1] + views[1]);
    oracle_run_free(&r);
    close_world(&w);
}

/* ---- no candidates ---- */

static void check_nothing_is_chosen(world *w, const char *pml, const char *why) {
    oracle_run reuse, blend;
    run(w, pml, (rp_quality){RP_QUALITY_REUSE, 0}, &reuse);
    run(w, pml, (rp_quality){RP_QUALITY_BLEND, 50}, &blend);
    assert_int_equal(blend.result->quality.used.mode, RP_QUALITY_REUSE);
    assert_string_equal(blend.result->quality.reason, why);
    assert_int_equal(blend.result->quality.probed_tokens + blend.result->quality.recomputed_tokens, 0);
    assert_true(oracle_run_same(&reuse, &blend));
    oracle_run_free(&reuse);
    oracle_run_free(&blend);
}

static void a_model_of_one_layer_has_nothing_to_compare(void **state) {
    (void)state;
    tiny_model_shape shape = tiny_model_defaults();
    shape.n_layers = 1;
    world w = open_world(tiny_model_open(&shape, NULL), schema, 0);
    check_nothing_is_chosen(&w, prompt, "model");
    close_world(&w);
}

static void modules_that_are_exact_are_left(void **state) {
    (void)state;
    world w = open_world(open_golden("llama"), schema, 0);
    check_nothing_is_chosen(&w, "<prompt schema='s'><a/> And the horse?</prompt>", "plain");
    close_world(&w);
}

/* Longer than the window and a block: the KV that its own tokens attended to was freed. */
static void windows_forget_what_tokens_inside_modules_saw(void **state) {
    (void)state;
    char pml[4096], words[2048] = "";
    for (int i = 0; i < 120; i++) strcat(words, "and the river ");
    snprintf(pml, sizeof(pml),
             "<schema name='s'>Known: <module name='a'>Nothing.</module><module name='b'>%s</module></schema>", words);
    world w = open_world(open_golden("gemma3"), pml, 0);
    check_nothing_is_chosen(&w, "<prompt schema='s'><a/><b/> And?</prompt>", "window");
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beginnings_and_what_deviates_most_are_chosen),
        cmocka_unit_test(modules_begin_evenly),
        cmocka_unit_test(the_result_tells_what_was_done),
        cmocka_unit_test(every_module_has_its_own_share),
        cmocka_unit_test(a_model_of_one_layer_has_nothing_to_compare),
        cmocka_unit_test(modules_that_are_exact_are_left),
        cmocka_unit_test(windows_forget_what_tokens_inside_modules_saw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
