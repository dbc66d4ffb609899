/* SPDX-License-Identifier: Apache-2.0 */
/* test_focus.c: quality="focus:R" through the engine. A slow computation with the forward pass alone selects the tokens
 * that an uncertain prediction attends to most and recomputes them: the engine's logits equal its logits byte for byte.
 * Besides: the same bytes whatever is cached; what other requests may hit; reports. tests/oracle checks the logits
 * against an independent implementation, tests/exactness that they do not depend on schedules.
 */
#include <math.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/cpu.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/schemas.h"
#include "engine/core/steps.h"
#include "engine/features/focus.h"
#include "kv/context.h"
#include "backend/backend_registry.h"
#include "model/forward.h"
#include "pml/plan.h"
#include "sampling/sampler.h"
#include "support/eval_items.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/store_folder.h"
#include "support/test_device.h"
#include "reprise_pml.h"

#define N_CTX 512
#define STEPS 8

/* What to see depends on the reader, whom the other modules do not know: modules alone give a wrong place. */
static const char schema[] = "<schema name='persona'><system>Here is what we know. <module name='d1'>This reader has "
                             "always loved food.</module> <module name='d2'>This is "
                             "Orlford. The library is in Mergrove Street. The bakery is in Zanbrook Road. In Wickvale "
                             "Road stands the concert hall.</module> <module "
                             "name='d3'>This is Prinfield. The train yard is in Ostshaw Road. There is a library in "
                             "Dravbeck Street. The food market is in Jaskmere "
                             "Street.</module></system></schema>";
static const char prinfield[] =
    "<prompt schema='persona'><d1/><d2/><d3/><user>What should the reader see in Prinfield?</user></prompt>";
static const char orlford[] =
    "<prompt schema='persona'><d1/><d2/><d3/><user>Where should our reader go in Orlford?</user></prompt>";
static const char yard[] =
    "<prompt schema='persona'><d1/><d2/><d3/><user>Where is the train yard in Prinfield?</user></prompt>";

/* ---- engines
   -------------------------------------------------------------------------------------------------------- */

static rp_model *open_bundled(void) {
    char path[512];
    rp_error err = {0};
    rp_model *m;
    must(rp_model_open(&m, eval_path(path, "models/reprise-mini.gguf"), NULL, &err), &err);
    return m;
}

static rp_model *open_golden(const char *name) {
    rp_error err = {0};
    rp_model *m;
    golden *g = golden_open();
    must(rp_model_open(&m, golden_find(g, name)->path, NULL, &err), &err);
    golden_close(g);
    return m;
}

static rp_engine_options engine_options(void) {
    rp_engine_options o = rp_engine_options_defaults();
    o.kv_format = RP_KV_F32;
    o.n_ctx = N_CTX;
    o.n_threads = 2;
    return o;
}

static rp_engine *open_with(const rp_model *m, const rp_engine_options *o, const char *pml) {
    rp_error err = {0};
    rp_engine *e;
    must(rp_engine_new(&e, (rp_model *)(uintptr_t)m, o, &err), &err);
    must(rp_schema_parse(e, pml, strlen(pml), "schema", NULL, NULL, NULL, &err), &err);
    return e;
}

static rp_request request_of(const char *pml, rp_quality quality) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(pml);
    q.quality = quality;
    q.max_tokens = STEPS;
    q.ignore_eos = true;
    return q;
}

static const rp_quality reuse = {RP_QUALITY_REUSE, 0}, focus15 = {RP_QUALITY_FOCUS, 15};

static void run(rp_engine *e, const char *pml, rp_quality quality, oracle_run *out) {
    const rp_request q = request_of(pml, quality);
    oracle_run_make(out, e, &q);
    must(out->rc, &out->err);
}

static bool is_recomputed(const rp_result *r, int32_t pos) {
    for (int32_t i = 0; i < r->n_plan; i++)
        if (strcmp(r->plan[i].reason, "focus") == 0 && pos >= r->plan[i].position &&
            pos < r->plan[i].position + r->plan[i].n_tokens)
            return true;
    return false;
}

/* ---- by a slow computation
   ------------------------------------------------------------------------------------------ */

/* The forward pass alone, one row a step. */
typedef struct slow {
    const rp_model *model;
    backend *backend;
    model_forward *forward;
    kv_pool *pool;
    pml_document *schema, *prompt;
    pml_layout *layout;
    pml_plan *plan;
    kv_context context; /* views of modules; own tokens */
    float *logits;
    int32_t token, pos; /* of the last row */
} slow;

enum { ITEMS = 16 }; /* of its plan, at most; modules have one span each */

static void slow_open(slow *s, const rp_model *m, const char *pml, const char *prompt) {
    rp_error err = {0};
    base_cpu_level level;
    const kv_shape shape = model_kv_shape(m, RP_KV_F32);
    const base_key salt = {{0}};
    *s = (slow){.model = m, .logits = malloc(sizeof(float) * (size_t)m->net.hp.n_vocab)};
    must(base_cpu_detect(&level, &err), &err);
    const backend_options o = {.shape = shape, .level = level, .n_ctx = N_CTX, .n_threads = 1, .max_rows = 1};
    must(backend_open(&s->backend, test_device(), &m->net, &o, &err), &err);
    must(model_forward_new(&s->forward, m, s->backend, 1, 1, &err), &err);
    must(kv_pool_new(&s->pool, &shape, (uint64_t)64 << 20, s->backend->ops->memory(s->backend), &err), &err);
    must(pml_schema_parse(&s->schema, pml, strlen(pml), "schema", NULL, NULL, &err), &err);
    must(pml_prompt_parse(&s->prompt, prompt, strlen(prompt), "prompt", &err), &err);
    must(pml_layout_new(&s->layout, s->schema, m, NULL, &salt, &err), &err);
    must(pml_plan_new(&s->plan, s->layout, s->prompt, false, reuse, (rp_quality){0}, &err), &err);
    assert_true(s->plan->n_items <= ITEMS);
    kv_context_init(&s->context, s->pool);
}

static void slow_close(slow *s) {
    kv_context_clear(&s->context);
    pml_plan_free(s->plan);
    pml_layout_free(s->layout);
    pml_document_free(s->prompt);
    pml_document_free(s->schema);
    kv_pool_free(s->pool);
    model_forward_free(s->forward);
    s->backend->ops->free(s->backend);
    free(s->logits);
}

static void slow_feed(slow *s, kv_context *c, int32_t token, int32_t pos, attention_observer *observer) {
    rp_error err = {0};
    model_row row = {.token = token, .pos = pos, .wants_logits = true, .observer = observer};
    must(kv_context_append(c, pos, &row.span, &row.slot, &err), &err);
    must(model_forward_step(
             s->forward,
             &(model_step){.rows = &row, .n_rows = 1, .contexts = (const kv_context *[]){c}, .n_contexts = 1},
             s->logits, &err),
         &err);
    s->token = token;
    s->pos = pos;
}

/* A segment in its scope, whose segments are parts of the plan before it. */
static kv_span *slow_segment(slow *s, int32_t index, kv_span *const *spans) {
    static const base_key key = {{1}};
    rp_error err = {0};
    const pml_segment *g = &s->layout->segments[index];
    kv_context c;
    int32_t cursor = 0;
    kv_context_init(&c, s->pool);
    for (int32_t i = 0; i < g->n_scope; i++) {
        const int32_t scope = pml_segment_scope(s->layout, g)[i];
        const int32_t at = pml_scope_position(s->layout, g, i, &cursor);
        assert_non_null(spans[scope]);
        must(kv_context_add(&c, spans[scope], at - s->layout->segments[scope].pos, NULL, &err), &err);
    }
    for (int32_t i = 0; i < g->n_tokens; i++) slow_feed(s, &c, pml_segment_tokens(s->layout, g)[i], g->pos + i, NULL);
    kv_span *span = kv_span_ref(c.views[c.n_views - 1].span);
    kv_context_clear(&c);
    kv_span_seal(span, &key);
    return span;
}

/* Views of all segments, then the prompt's own tokens. */
static void slow_compose(slow *s) {
    kv_span *spans[ITEMS] = {NULL};
    rp_error err = {0};
    assert_true(s->layout->n_segments <= ITEMS);
    for (int32_t i = 0; i < s->layout->n_segments; i++) spans[i] = slow_segment(s, i, spans);
    for (size_t i = 0; i < s->plan->n_items; i++) {
        const pml_item *item = &s->plan->items[i];
        uint64_t mask[KV_SPAN_BLOCKS];
        kv_mask_first(mask, item->n_tokens);
        if (item->is_view) must(kv_context_add(&s->context, spans[item->segment], item->shift, mask, &err), &err);
    }
    for (size_t i = 0; i < s->plan->n_items; i++) {
        const pml_item *item = &s->plan->items[i];
        for (int32_t k = 0; k < item->n_tokens && !item->is_view; k++)
            slow_feed(s, &s->context, s->plan->tokens.ids[item->first_token + (size_t)k], item->pos + k, NULL);
    }
    for (int32_t i = 0; i < s->layout->n_segments; i++) kv_span_unref(spans[i]);
}

/* By its definition. */
static double entropy_of(const float *logits, int32_t n) {
    long double total = 0, entropy = 0;
    for (int32_t i = 0; i < n; i++) total += expl(logits[i]);
    for (int32_t i = 0; i < n; i++) {
        const long double p = expl(logits[i]) / total;
        if (p > 0) entropy -= p * logl(p);
    }
    return (double)entropy;
}

typedef struct looked {
    size_t view;
    int32_t slot, token, pos;
    double weight;
} looked;

static int by_weight(const void *a, const void *b) {
    const looked *x = a, *y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return (x->pos > y->pos) - (x->pos < y->pos);
}

static int by_position(const void *a, const void *b) {
    const looked *x = a, *y = b;
    return (x->pos > y->pos) - (x->pos < y->pos);
}

/* The tokens of modules without the KV of a full prefill; each with what the last row gives it: layer by layer, head by
   head. */
static int32_t slow_look(slow *s, looked *out) {
    rp_error err = {0};
    const kv_shape *shape = kv_pool_shape(s->pool);
    attention_observer *o;
    size_t view = 0;
    int32_t n = 0;
    kv_context_truncate(&s->context, 1);
    must(attention_observer_new(&o, shape->n_layers, kv_shape_heads(shape), ATTENTION_SUM, 64, 0, s->context.n_views,
                                &err),
         &err);
    slow_feed(s, &s->context, s->token, s->pos, o);
    for (size_t i = 0; i < s->plan->n_items; i++) {
        const pml_item *item = &s->plan->items[i];
        if (!item->is_view) continue;
        const int32_t *tokens = pml_segment_tokens(s->layout, &s->layout->segments[item->segment]);
        for (int32_t slot = 0; slot < item->n_tokens && !item->exact; slot++) {
            double weight = 0;
            for (int32_t l = 0; l < shape->n_layers; l++)
                for (int32_t h = 0; h < kv_shape_heads(shape); h++)
                    weight += attention_observer_weight(o, l, h, view, slot);
            out[n++] = (looked){view, slot, tokens[slot], item->pos + slot, weight};
        }
        view++;
    }
    attention_observer_free(o);
    kv_context_truncate(&s->context, 1);
    return n;
}

/* Recomputes `most` of n tokens, and then the last row. */
static void slow_recompute(slow *s, looked *tokens, int32_t n, int32_t most) {
    const int32_t token = s->token, pos = s->pos;
    qsort(tokens, (size_t)n, sizeof(*tokens), by_weight);
    assert_true(tokens[most - 1].weight > tokens[most].weight + 1e-9); /* no rounding decides */
    qsort(tokens, (size_t)most, sizeof(*tokens), by_position);
    kv_context_close(&s->context);
    s->context.scatters = true;
    for (int32_t i = 0; i < most; i++)
        kv_mask_clear(s->context.views[tokens[i].view].mask, tokens[i].slot, tokens[i].slot + 1);
    for (int32_t i = 0; i < most; i++) slow_feed(s, &s->context, tokens[i].token, tokens[i].pos, NULL);
    slow_feed(s, &s->context, token, pos, NULL);
}

/* Follows the engine's answer. Returns the answer's token, from 1, that was predicted again. */
static int32_t check_slowly(const rp_model *m, const char *pml, const char *prompt, const oracle_run *r,
                            int32_t percent) {
    static looked tokens[N_CTX];
    const size_t bytes = sizeof(float) * (size_t)m->net.hp.n_vocab;
    int32_t focused = 0;
    slow s;
    slow_open(&s, m, pml, prompt);
    slow_compose(&s);
    for (int32_t step = 0; step < r->n_steps; step++) {
        if (step > 0) slow_feed(&s, &s.context, r->result->tokens[step - 1], s.pos + 1, NULL);
        const double entropy = entropy_of(s.logits, m->net.hp.n_vocab);
        assert_true(fabs(entropy - logprobs_entropy(s.logits, m->net.hp.n_vocab)) < 1e-9 * (1 + entropy));
        if (!focused && entropy > FOCUS_ENTROPY) {
            const int32_t n = slow_look(&s, tokens), most = (n * percent + 99) / 100;
            focused = step + 1;
            slow_recompute(&s, tokens, n, most);
            for (int32_t i = 0; i < n; i++) assert_int_equal(is_recomputed(r->result, tokens[i].pos), i < most);
            assert_int_equal(r->result->quality.recomputed_tokens, most);
        }
        assert_memory_equal(oracle_run_logits(r, step), s.logits, bytes);
    }
    slow_close(&s);
    return focused;
}

static void an_uncertain_token_is_predicted_again(void **state) {
    static const char *const prompts[] = {prinfield, orlford};
    (void)state;
    rp_model *m = open_bundled();
    const rp_engine_options o = engine_options();
    rp_engine *e = open_with(m, &o, schema);
    for (size_t i = 0; i < BASE_ARRAY_LEN(prompts); i++)
        for (int32_t percent = 5; percent <= 45; percent += 10) {
            oracle_run r;
            run(e, prompts[i], (rp_quality){RP_QUALITY_FOCUS, percent}, &r);
            assert_int_equal(check_slowly(m, schema, prompts[i], &r, percent), 2); /* " the", and then the place */
            assert_int_equal(r.result->quality.focus_token, 2);
            oracle_run_free(&r);
        }
    rp_engine_free(e);
    rp_model_close(m);
}

/* Models with random weights are uncertain from the first token on: the last row of the prompt. */
static void the_first_token_is_predicted_again(void **state) {
    static const char own[] = "<schema name='s'>Here is what is known. <module name='a'>The river runs slowly past the "
                              "old mill.</module><module name='b'>People say "
                              "that the harbour was built by two brothers, one of whom never saw it.</module></schema>";
    static const char prompt[] = "<prompt schema='s'><a/><b/> And the horse?</prompt>";
    static const char *const names[] = {"llama", "bloom", "qwen3", "gemma3", "gpt-oss"};
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        rp_model *m = open_golden(names[i]);
        rp_engine_options o = engine_options();
        o.chunk_tokens = i % 2 ? 3 : 256; /* several chunks of recomputed tokens */
        rp_engine *e = open_with(m, &o, own);
        oracle_run r;
        run(e, prompt, (rp_quality){RP_QUALITY_FOCUS, 40}, &r);
        assert_int_equal(check_slowly(m, own, prompt, &r, 40), 1);
        oracle_run_free(&r);
        rp_engine_free(e);
        rp_model_close(m);
    }
}

/* ---- whatever is cached
   --------------------------------------------------------------------------------------------- */

static void the_bytes_do_not_depend_on_what_is_cached(void **state) {
    (void)state;
    rp_model *m = open_bundled();
    rp_engine_options o = engine_options();
    oracle_run cold;
    rp_engine *e = open_with(m, &o, schema);
    run(e, prinfield, focus15, &cold);
    assert_int_equal(cold.result->cached_tokens, 0);
    rp_engine_free(e);
    for (int32_t threads = 1; threads <= 4; threads++) {
        oracle_run r;
        o.n_threads = threads;
        o.chunk_tokens = threads == 3 ? 1 : threads == 4 ? 7
                                                         : 256;
        e = open_with(m, &o, schema);
        for (int i = 0; i < 5; i++) {
            rp_request q = request_of(prinfield, focus15);
            q.reuse = i == 3 ? RP_REUSE_OFF : RP_REUSE_ON;
            q.n_draft = i == 4 ? 8 : 0;
            if (i == 1) run(e, prinfield, reuse, &r), oracle_run_free(&r); /* its prompt and its answer may be hit */
            oracle_run_make(&r, e, &q);
            must(r.rc, &r.err);
            assert_true(oracle_run_same(&r, &cold) && oracle_run_same_choice(&r, &cold));
            assert_true(r.result->cached_tokens > 0 || i == 0 || i == 3);
            oracle_run_free(&r);
        }
        rp_engine_free(e);
    }
    oracle_run_free(&cold);
    rp_model_close(m);
}

static void the_bytes_do_not_depend_on_the_disk(void **state) {
    char dir[STORE_FOLDER_BYTES];
    (void)state;
    rp_model *m = open_bundled();
    rp_engine_options o = engine_options();
    oracle_run cold, warm;
    store_folder_make(dir);
    o.store_dir = dir;
    o.store_write = RP_STORE_WRITE_THROUGH;
    rp_engine *e = open_with(m, &o, schema);
    run(e, prinfield, focus15, &cold);
    rp_engine_free(e);
    for (int i = 0; i < 2; i++) {
        e = open_with(m, &o, schema);
        run(e, prinfield, focus15, &warm);
        assert_true(oracle_run_same(&cold, &warm) && oracle_run_same_choice(&cold, &warm));
        int32_t from_disk = 0;
        for (int32_t k = 0; k < warm.result->n_plan; k++)
            from_disk += strcmp(warm.result->plan[k].tier, "disk") == 0 ? warm.result->plan[k].n_tokens : 0;
        assert_true(from_disk > 0);
        oracle_run_free(&warm);
        rp_engine_free(e);
    }
    oracle_run_free(&cold);
    store_folder_remove(dir);
    rp_model_close(m);
}

enum { AT_ONCE = 9 };

static void the_bytes_do_not_depend_on_other_requests(void **state) {
    static const char *const prompts[] = {prinfield, orlford, yard};
    const rp_quality qualities[] = {focus15, {RP_QUALITY_FOCUS, 40}, reuse};
    (void)state;
    rp_model *m = open_bundled();
    const rp_engine_options o = engine_options();
    oracle_run alone[AT_ONCE], together[AT_ONCE];
    rp_request requests[AT_ONCE];
    rp_job *jobs[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        rp_engine *e = open_with(m, &o, schema);
        requests[i] = request_of(prompts[i % 3], qualities[i / 3]);
        oracle_run_make(&alone[i], e, &requests[i]);
        must(alone[i].rc, &alone[i].err);
        rp_engine_free(e);
    }
    rp_engine *e = open_with(m, &o, schema);
    for (int i = 0; i < AT_ONCE; i++)
        must(oracle_run_submit(&together[i], e, &requests[i], &jobs[i]), &together[i].err);
    for (int i = 0; i < AT_ONCE; i++) {
        oracle_run_finish(&together[i], jobs[i]);
        must(together[i].rc, &together[i].err);
        assert_true(oracle_run_same(&alone[i], &together[i]) && oracle_run_same_choice(&alone[i], &together[i]));
        oracle_run_free(&alone[i]);
        oracle_run_free(&together[i]);
    }
    rp_engine_free(e);
    rp_model_close(m);
}

/* KV that attended to recomputed tokens is no hit for other requests; that of own tokens before them, which attended to
   the modules, is. */
static void others_hit_what_plain_reuse_computed(void **state) {
    char longer[1024];
    (void)state;
    rp_model *m = open_bundled();
    const rp_engine_options o = engine_options();
    oracle_run focused, hit, miss;
    rp_engine *e = open_with(m, &o, schema);
    run(e, prinfield, focus15, &focused);
    snprintf(
        longer, sizeof(longer),
        "<prompt schema='persona'><d1/><d2/><d3/><user>What should the reader see in Prinfield?</user><assistant>%s"
        "</assistant><user>Where is the train yard?</user></prompt>",
        focused.result->text);
    run(e, longer, reuse, &hit);
    int32_t modules = 0;
    for (int32_t i = 0; i < hit.result->n_plan; i++)
        modules += strcmp(hit.result->plan[i].module, "prompt") ? hit.result->plan[i].n_tokens : 0;
    assert_true(hit.result->cached_tokens > modules);
    rp_engine_free(e);
    e = open_with(m, &o, schema);
    run(e, longer, reuse, &miss);
    assert_true(oracle_run_same(&hit, &miss));
    oracle_run_free(&focused);
    oracle_run_free(&hit);
    oracle_run_free(&miss);
    rp_engine_free(e);
    rp_model_close(m);
}

/* ---- reports
   -------------------------------------------------------------------------------------------------------- */

static void the_result_tells_what_was_done(void **state) {
    (void)state;
    rp_model *m = open_bundled();
    const rp_engine_options o = engine_options();
    rp_engine *e = open_with(m, &o, schema);
    oracle_run plain, focused;
    run(e, prinfield, reuse, &plain);
    run(e, prinfield, focus15, &focused);
    const rp_result *r = focused.result;
    assert_non_null(strstr(plain.result->text, "library")); /* wrong */
    assert_non_null(strstr(r->text, "food market"));
    assert_int_equal(r->quality.used.mode, RP_QUALITY_FOCUS);
    assert_int_equal(r->quality.used.amount, 15);
    assert_string_equal(r->quality.reason, "");
    assert_int_equal(r->quality.focus_token, 2);
    assert_int_equal(r->quality.probed_tokens, 0);
    assert_true(r->quality.ms > 0);
    int32_t sum = 0, again = 0;
    for (int32_t i = 0; i < r->n_plan; i++) {
        sum += r->plan[i].n_tokens;
        again += strcmp(r->plan[i].reason, "focus") ? 0 : r->plan[i].n_tokens;
    }
    assert_int_equal(again, r->quality.recomputed_tokens);
    assert_int_equal(sum, plain.result->prompt_tokens);
    assert_int_equal(r->prompt_tokens, plain.result->prompt_tokens);
    oracle_run_free(&plain);
    oracle_run_free(&focused);
    rp_engine_free(e);
    rp_model_close(m);
}

/* As with reuse, byte for byte, with the reason; up to the end of the answer. */
static void check_nothing_is_recomputed(rp_engine *e, const char *pml, const char *why) {
    oracle_run plain, focused;
    rp_request q = request_of(pml, reuse);
    q.ignore_eos = false;
    oracle_run_make(&plain, e, &q);
    must(plain.rc, &plain.err);
    q.quality = (rp_quality){RP_QUALITY_FOCUS, 50};
    oracle_run_make(&focused, e, &q);
    must(focused.rc, &focused.err);
    assert_int_equal(focused.result->quality.used.mode, RP_QUALITY_REUSE);
    assert_string_equal(focused.result->quality.reason, why);
    assert_int_equal(focused.result->quality.recomputed_tokens, 0);
    assert_int_equal(focused.result->quality.focus_token, 0);
    assert_true(oracle_run_same(&plain, &focused));
    oracle_run_free(&plain);
    oracle_run_free(&focused);
}

static void certain_answers_and_exact_modules_are_left(void **state) {
    static const char bridges[] = "<schema name='bridges'><system>Read the documents. <module name='d1'>The reader is "
                                  "an engineer.</module> <module name='d2'>The bridge of "
                                  "Ivorbeck is as high as eight houses: 315 metres high.</module> <module "
                                  "name='d3'>The crane of Haskshaw is as long as "
                                  "ten whales: 539 metres long.</module></system></schema>";
    (void)state;
    rp_model *m = open_bundled();
    const rp_engine_options o = engine_options();
    rp_engine *e = open_with(m, &o, bridges);
    check_nothing_is_recomputed(
        e,
        "<prompt schema='bridges'><d1/><d2/><d3/><user>I ask you: How high is the bridge of Ivorbeck?</user></prompt>",
        "certain");
    rp_engine_free(e);
    e = open_with(m, &o, "<schema name='s'>Known: <module name='a'>The reader is an engineer.</module></schema>");
    check_nothing_is_recomputed(e, "<prompt schema='s'><a/> Who is the reader?</prompt>", "plain");
    rp_engine_free(e);
    rp_model_close(m);
}

/* Longer than the window and a block: the KV that its own tokens attended to was freed. */
static void windows_forget_what_tokens_inside_modules_saw(void **state) {
    (void)state;
    char pml[4096], words[2048] = "";
    for (int i = 0; i < 120; i++) strcat(words, "and the river ");
    snprintf(pml, sizeof(pml),
             "<schema name='s'>Known: <module name='a'>Nothing.</module><module name='b'>%s</module></schema>", words);
    rp_model *m = open_golden("gemma3");
    rp_engine_options o = engine_options();
    o.n_ctx = 2048;
    rp_engine *e = open_with(m, &o, pml);
    check_nothing_is_recomputed(e, "<prompt schema='s'><a/><b/> And?</prompt>", "window");
    rp_engine_free(e);
    rp_model_close(m);
}

/* Modules with different percentages, and one without any. */
static void every_module_has_its_own_share(void **state) {
    static const char own[] =
        "<schema name='s'>Known: <module name='z'>Zero.</module><module name='a' quality='focus:50'>The river runs "
        "slowly past the mill.</module>"
        "<module name='b' quality='focus:10'>The harbour was built by two brothers, one of whom never saw it.</module>"
        "<module name='c'>Nothing changed at the bridge.</module><module name='d' quality='link:2'>The lamp is "
        "green.</module></schema>";
    (void)state;
    rp_model *m = open_golden("llama");
    const rp_engine_options o = engine_options();
    rp_engine *e = open_with(m, &o, own);
    oracle_run r;
    int32_t views[2] = {0}, again[2] = {0}, linked = 0;
    run(e, "<prompt schema='s'><z/><a/><b/><c/><d/> And?</prompt>", (rp_quality){0}, &r);
    for (int32_t i = 0; i < r.result->n_plan; i++) {
        const rp_plan_item *t = &r.result->plan[i];
        const bool is_again = strcmp(t->reason, "focus") == 0;
        if (strcmp(t->module, "a") == 0 || strcmp(t->module, "b") == 0)
            (is_again ? again : views)[t->module[0] - 'a'] += t->n_tokens;
        else assert_false(is_again);
        linked += strcmp(t->reason, "link") == 0 ? t->n_tokens : 0;
    }
    assert_int_equal(again[0], (50 * (again[0] + views[0]) + 99) / 100);
    assert_int_equal(again[1], (10 * (again[1] + views[1]) + 99) / 100);
    assert_int_equal(linked, 2);
    assert_int_equal(r.result->quality.asked.mode, RP_QUALITY_FOCUS); /* above link */
    assert_int_equal(r.result->quality.asked.amount, 50);
    assert_int_equal(r.result->quality.recomputed_tokens, again[0] + again[1] + linked);
    oracle_run_free(&r);
    rp_engine_free(e);
    rp_model_close(m);
}

/* ---- callers in between
   ---------------------------------------------------------------------------------------------- */

/* Stops a job in the step in which its uncertain row is looked at: the first prompt's step after one of its answer. */
typedef struct stopper {
    _Atomic(rp_job *) job;
    bool pauses; /* else: cancels */
    bool has_decoded, has_stopped;
} stopper;

static void stop_in_between(void *user, const rp_step *step) {
    stopper *s = user;
    rp_job *job;
    while (!(job = atomic_load(&s->job))) {} /* it is being submitted */
    for (int32_t i = 0; i < step->n_parts && !s->has_stopped; i++) {
        if (step->parts[i].job != rp_job_number(job)) continue;
        s->has_decoded |= step->parts[i].kind == RP_STEP_DECODE;
        if (!s->has_decoded || step->parts[i].kind != RP_STEP_PREFILL) continue;
        s->has_stopped = true;
        if (s->pauses) rp_job_pause(job);
        else rp_job_cancel(job);
    }
}

static void callers_stop_it_as_an_answer(void **state) {
    (void)state;
    rp_model *m = open_bundled();
    oracle_run whole, stopped, other;
    rp_engine_options o = engine_options();
    rp_engine *e = open_with(m, &o, schema);
    run(e, prinfield, focus15, &whole);
    rp_engine_free(e);
    for (int pauses = 0; pauses < 2; pauses++) {
        stopper s = {.pauses = pauses};
        rp_error err = {0};
        rp_job *job;
        const rp_request q = request_of(prinfield, focus15);
        o.on_step = stop_in_between;
        o.step_user = &s;
        e = open_with(m, &o, schema);
        must(oracle_run_submit(&stopped, e, &q, &job), &stopped.err);
        atomic_store(&s.job, job);
        if (pauses) {
            run(e, prinfield, reuse, &other); /* many steps later, although it has the same prefix */
            oracle_run_free(&other);
            run(e, orlford, reuse, &other);
            oracle_run_free(&other);
            rp_job_status status = {.struct_size = sizeof(status)};
            must(rp_job_get_status(job, &status), &err);
            assert_int_equal(status.state, RP_JOB_DECODE);
            assert_false(rp_job_wait(job, 0));
            rp_job_resume(job);
        }
        oracle_run_finish(&stopped, job);
        must(stopped.rc, &stopped.err);
        assert_true(s.has_stopped);
        if (pauses) assert_true(oracle_run_same(&whole, &stopped) && oracle_run_same_choice(&whole, &stopped));
        else assert_string_equal(stopped.result->finish_reason, "cancelled");
        if (!pauses) assert_int_equal(stopped.result->n_tokens, 1); /* " the" */
        oracle_run_free(&stopped);
        rp_engine_free(e);
    }
    oracle_run_free(&whole);
    rp_model_close(m);
}

/* Each is stopped in between, so that the next one runs in its place; all go on at once. */
enum { CROWD = 2 + ENGINE_STEP_PREFILLS + 4 }; /* more than the parts that a step of one sequence lists */

typedef struct crowd {
    _Atomic(rp_job *) jobs[CROWD];
    atomic_int n_stopped;
    bool has_decoded, has_resumed;
} crowd;

static void stop_each_in_between(void *user, const rp_step *step) {
    crowd *c = user;
    const int at = atomic_load(&c->n_stopped);
    rp_job *job;
    if (at == CROWD && !c->has_resumed) {
        for (int i = 0; i < CROWD; i++) rp_job_resume(atomic_load(&c->jobs[i]));
        c->has_resumed = true;
    }
    if (at == CROWD) return;
    while (!(job = atomic_load(&c->jobs[at]))) {} /* it is being submitted */
    for (int32_t i = 0; i < step->n_parts; i++) {
        if (step->parts[i].job != rp_job_number(job)) continue;
        c->has_decoded |= step->parts[i].kind == RP_STEP_DECODE;
        if (!c->has_decoded || step->parts[i].kind != RP_STEP_PREFILL) continue;
        rp_job_pause(job);
        c->has_decoded = false;
        atomic_store(&c->n_stopped, at + 1);
        return;
    }
}

static void more_go_on_at_once_than_a_step_can_list(void **state) {
    (void)state;
    rp_model *m = open_bundled();
    rp_engine_options o = engine_options();
    rp_error err = {0};
    crowd c = {.n_stopped = 0};
    oracle_run whole, other;
    rp_engine *e = open_with(m, &o, schema);
    run(e, prinfield, focus15, &whole);
    rp_engine_free(e);
    o.max_sequences = 1;
    o.on_step = stop_each_in_between;
    o.step_user = &c;
    e = open_with(m, &o, schema);
    for (int i = 0; i < CROWD; i++) {
        const rp_request q = request_of(prinfield, focus15);
        rp_job *job;
        must(rp_engine_submit(e, &q, &job, &err), &err);
        atomic_store(&c.jobs[i], job);
        while (atomic_load(&c.n_stopped) == i) {}
    }
    run(e, orlford, reuse, &other);
    for (int i = 0; i < CROWD; i++) {
        rp_result *r;
        must(rp_job_result(atomic_load(&c.jobs[i]), &r, &err), &err);
        assert_int_equal(r->n_tokens, whole.result->n_tokens);
        assert_memory_equal(r->tokens, whole.result->tokens, sizeof(*r->tokens) * (size_t)r->n_tokens);
        rp_result_free(r);
        rp_job_free(atomic_load(&c.jobs[i]));
    }
    assert_true(c.has_resumed);
    oracle_run_free(&other);
    oracle_run_free(&whole);
    rp_engine_free(e);
    rp_model_close(m);
}

/* ---- the budget ---------------------------------------------------------------------------------------------- */

/* A share of 100 per cent of a budget that holds it exactly: every block was reserved. */
static void what_it_may_take_is_reserved(void **state) {
    (void)state;
    rp_model *m = open_bundled();
    rp_engine_options o = engine_options();
    oracle_run wide, tight;
    rp_engine *e = open_with(m, &o, schema);
    run(e, prinfield, (rp_quality){RP_QUALITY_FOCUS, 100}, &wide);
    rp_engine_free(e);
    const kv_shape shape = model_kv_shape(m, RP_KV_F32);
    int n_run = 0, n_short = 0;
    for (uint64_t blocks = 4; n_run < 3; blocks += 2) {
        o.kv_budget_bytes = blocks * kv_shape_block_bytes(&shape);
        e = open_with(m, &o, schema);
        const rp_request q = request_of(prinfield, (rp_quality){RP_QUALITY_FOCUS, 100});
        oracle_run_make(&tight, e, &q);
        if (tight.rc) assert_int_equal(tight.rc, RP_ERR_BUDGET);
        else if (tight.n_steps == wide.n_steps) assert_true(oracle_run_same(&wide, &tight)), n_run++;
        n_short += n_run == 0;
        oracle_run_free(&tight);
        rp_engine_free(e);
        assert_true(blocks < 400);
    }
    assert_true(n_short > 0);
    oracle_run_free(&wide);
    rp_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_uncertain_token_is_predicted_again),
        cmocka_unit_test(the_first_token_is_predicted_again),
        cmocka_unit_test(the_bytes_do_not_depend_on_what_is_cached),
        cmocka_unit_test(the_bytes_do_not_depend_on_the_disk),
        cmocka_unit_test(the_bytes_do_not_depend_on_other_requests),
        cmocka_unit_test(others_hit_what_plain_reuse_computed),
        cmocka_unit_test(the_result_tells_what_was_done),
        cmocka_unit_test(certain_answers_and_exact_modules_are_left),
        cmocka_unit_test(windows_forget_what_tokens_inside_modules_saw),
        cmocka_unit_test(every_module_has_its_own_share),
        cmocka_unit_test(callers_stop_it_as_an_answer),
        cmocka_unit_test(more_go_on_at_once_than_a_step_can_list),
        cmocka_unit_test(what_it_may_take_is_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
