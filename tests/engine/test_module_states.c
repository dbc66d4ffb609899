/* SPDX-License-Identifier: Apache-2.0 */
/* test_module_states.c: modules of models with recurrent layers (rp_engine_options.module_states): what is found, what
 * is computed, and the same bytes for hits and misses, in RAM, on disk and after a restart, for each kind of recurrent
 * layer; and what the settings mean:
 *
 *   one module after the schema's text   its states are those of the whole prompt: the bytes of `exact`
 *   last, a model without attention      modules before the last one leave nothing: the bytes of a prompt without them
 *   composed                             a first layer of Mamba2 has the states of a run from the states before
 *
 *   test_module_states [NAME...]         golden models, or "sum"
 *   REPRISE_TEST_ROUNDS=N                the first N + 2 of them
 */
#include <math.h>
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
#include "base/cpu.h"
#include "kv/block_pool.h"
#include "kv/span.h"
#include "model/model.h"
#include "support/experiments.h"
#include "support/forward_run.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/recurrent_model.h"
#include "support/seed.h"
#include "support/store_folder.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "reprise_tools.h"

#define N_ANSWER 8
#define LEAST_SUBJECTS 2 /* besides one for each round */

/* NULL: a made-up llama with decayed sums. */
static const struct subject {
    const char *golden;
    bool composes, attends;
} subjects[] = {
    {NULL, .attends = true},
    {"granitehybrid", .composes = true, .attends = true},
    {"mamba2", .composes = true},
    {"qwen35", .attends = true},
    {"lfm2", .attends = true},
    {"falcon-h1", .composes = true, .attends = true},
    {"jamba", .attends = true},
    {"nemotron-h", .composes = true, .attends = true},
    {"mamba", .attends = false},
    {"kimi-linear", .attends = true},
};

static const struct subject *subject;
static rp_model *model;

static int open_subject(void **state) {
    (void)state;
    model = recurrent_model_open(subject->golden);
    return 0;
}

static int close_subject(void **state) {
    (void)state;
    rp_model_close(model);
    return 0;
}

/* ---- engines and requests ---- */

/* Modules of one span, of several, and one that another contains. */
static const char *schema_text(void) {
    static char text[16384];
    char river[8192] = "";
    for (int i = 0; i < 24; i++) strcat(river, "the river of the city, seven hills, ");
    snprintf(text, sizeof(text),
             "<schema name='s'>Once there were words before."
             "<module name='one'>the hills of a river are seven, and more of them <module name='inner'>are far from "
             "here</module></module><module name='two'>%s</module>"
             "<module name='three'>nine bridges over <param name='p' len='6'/> of the water</module></schema>",
             river);
    return text;
}

static rp_engine_options usual(rp_module_states states) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.n_ctx = 4096;
    o.kv_budget_bytes = (uint64_t)64 << 20;
    o.module_states = states;
    return o;
}

static rp_engine *new_engine(const rp_engine_options *options) {
    rp_engine *e;
    rp_error err = {0};
    must(rp_engine_new(&e, model, options, &err), &err);
    must(rp_schema_parse(e, schema_text(), strlen(schema_text()), "s", NULL, NULL, NULL, &err), &err);
    return e;
}

static rp_request request_of(const char *prompt, rp_quality quality, rp_reuse reuse) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(prompt);
    q.max_tokens = N_ANSWER;
    q.ignore_eos = true;
    q.reuse = reuse;
    if (reuse != RP_REUSE_EXACT) q.quality = quality;
    return q;
}

static void run(rp_engine *e, const char *prompt, rp_quality quality, rp_reuse reuse, oracle_run *out) {
    const rp_request q = request_of(prompt, quality, reuse);
    oracle_run_make(out, e, &q);
    if (out->rc) fail_msg("%s", out->err.message);
}

/* In an engine of its own, one token a step, without a hit. */
static void run_alone(rp_module_states states, const char *prompt, rp_quality quality, rp_reuse reuse,
                      oracle_run *out) {
    rp_engine_options o = usual(states);
    o.chunk_tokens = 1;
    rp_engine *e = new_engine(&o);
    run(e, prompt, quality, reuse, out);
    rp_engine_free(e);
}

static const rp_quality as_written = {RP_QUALITY_AS_WRITTEN, 0}, link_4 = {RP_QUALITY_LINK, 4};

/* The settings of the subject that reuse modules. */
static int32_t n_settings(void) { return subject->composes ? 2 : 1; }
static rp_module_states setting(int32_t i) { return i == 0 ? RP_MODULE_STATES_LAST : RP_MODULE_STATES_COMPOSED; }

/* Tokens of the views of a result's plan. */
static int32_t view_tokens(const rp_result *r) {
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_plan; i++) n += r->plan[i].is_view ? r->plan[i].n_tokens : 0;
    return n;
}

/* ---- hits and misses ---- */

static const char *const prompts[] = {
    "<prompt schema='s'><one/><two/> and a word</prompt>",
    "<prompt schema='s'><two/><one><inner/></one> and a word</prompt>",
    "<prompt schema='s'><three p='ten'/><two/><one/> and a word</prompt>",
    "<prompt schema='s'>at first <two/> so it is <one/><three/> why is that?</prompt>",
    "<prompt schema='s'><two/><three p='a'/></prompt>",
};

/* Each prompt as the first one, after all others, without hits, in steps of any size, by any number of threads. */
static void hits_and_misses_have_the_same_bytes(void **state) {
    const rp_quality qualities[] = {as_written, link_4};
    (void)state;
    for (int32_t i = 0; i < n_settings(); i++)
        for (size_t q = 0; q < BASE_ARRAY_LEN(qualities); q++) {
            rp_engine_options o = usual(setting(i));
            rp_engine *e = new_engine(&o), *divided;
            o.chunk_tokens = 5;
            o.n_threads = 3;
            divided = new_engine(&o);
            for (size_t k = 0; k < 2 * BASE_ARRAY_LEN(prompts); k++) {
                oracle_run alone, on, off, other;
                const char *prompt = prompts[k % BASE_ARRAY_LEN(prompts)];
                run_alone(setting(i), prompt, qualities[q], RP_REUSE_ON, &alone);
                run(e, prompt, qualities[q], RP_REUSE_ON, &on);
                run(e, prompt, qualities[q], RP_REUSE_OFF, &off);
                run(divided, prompt, qualities[q], RP_REUSE_ON, &other);
                assert_true(oracle_run_same(&alone, &on) && oracle_run_same(&alone, &off));
                assert_true(oracle_run_same(&alone, &other));
                assert_int_equal(off.result->cached_tokens, 0);
                if (k >= BASE_ARRAY_LEN(prompts)) /* all modules, and the prefix up to the last token */
                    assert_int_equal(on.result->cached_tokens, on.result->prompt_tokens - 1);
                oracle_run_free(&alone);
                oracle_run_free(&on);
                oracle_run_free(&off);
                oracle_run_free(&other);
            }
            rp_engine_free(e);
            rp_engine_free(divided);
        }
}

/* Modules in another order are found; what is computed are the prompt's own tokens, and link tokens. */
static void modules_are_found_in_any_order(void **state) {
    (void)state;
    for (int32_t i = 0; i < n_settings(); i++) {
        rp_engine_options o = usual(setting(i));
        rp_engine *e = new_engine(&o);
        oracle_run first, second, linked;
        run(e, "<prompt schema='s'><one/><two/> and a word</prompt>", as_written, RP_REUSE_ON, &first);
        run(e, "<prompt schema='s'><two/><one/> or another</prompt>", as_written, RP_REUSE_ON, &second);
        run(e, "<prompt schema='s'><two/><one/> or another</prompt>", link_4, RP_REUSE_ON, &linked);
        assert_int_equal(first.result->cached_tokens, 0);
        assert_int_equal(second.result->cached_tokens, view_tokens(second.result));
        assert_true(second.result->cached_tokens > 100);
        /* the first module is exact: it has no link tokens */
        assert_int_equal(linked.result->cached_tokens, second.result->cached_tokens - 4);
        assert_int_equal(linked.result->quality.recomputed_tokens, 4);
        oracle_run_free(&first);
        oracle_run_free(&second);
        oracle_run_free(&linked);
        rp_engine_free(e);
    }
}

/* Text between modules is a prefix of its scope: its checkpoint is at the next module. */
static void text_between_modules_is_found(void **state) {
    (void)state;
    for (int32_t i = 0; i < n_settings(); i++) {
        rp_engine_options o = usual(setting(i));
        rp_engine *e = new_engine(&o);
        oracle_run first, second, alone;
        const char *const other = "<prompt schema='s'><two/> so it is with this one <one/> or another</prompt>";
        run(e, "<prompt schema='s'><two/> so it is with this one <one/> and a word</prompt>", as_written, RP_REUSE_ON,
            &first);
        run(e, other, as_written, RP_REUSE_ON, &second);
        run_alone(setting(i), other, as_written, RP_REUSE_ON, &alone);
        assert_true(oracle_run_same(&alone, &second));
        assert_true(second.result->cached_tokens > view_tokens(first.result)); /* what is found is a view */
        oracle_run_free(&first);
        oracle_run_free(&second);
        oracle_run_free(&alone);
        rp_engine_free(e);
    }
}

/* ---- what the settings mean ---- */

static void one_module_after_the_schemas_text_is_exact(void **state) {
    const char *const prompt = "<prompt schema='s'><one><inner/></one> and a word</prompt>";
    (void)state;
    for (int32_t i = 0; i < n_settings(); i++) {
        oracle_run reused, exact;
        run_alone(setting(i), prompt, as_written, RP_REUSE_ON, &reused);
        run_alone(RP_MODULE_STATES_EXACT, prompt, as_written, RP_REUSE_ON, &exact);
        assert_true(view_tokens(reused.result) > 0 && view_tokens(exact.result) == 0);
        for (int32_t k = 0; k < reused.result->n_plan; k++) assert_true(reused.result->plan[k].exact);
        assert_true(oracle_run_same(&reused, &exact));
        oracle_run_free(&reused);
        oracle_run_free(&exact);
    }
}

/* A prompt that ends with a module computes that again: its states are not known before its last token. */
static void a_last_module_is_computed(void **state) {
    const char *const prompt = "<prompt schema='s'><one/></prompt>";
    (void)state;
    for (int32_t i = 0; i < n_settings(); i++) {
        oracle_run reused, exact;
        run_alone(setting(i), prompt, as_written, RP_REUSE_ON, &reused);
        run_alone(RP_MODULE_STATES_EXACT, prompt, as_written, RP_REUSE_ON, &exact);
        assert_true(oracle_run_same(&reused, &exact));
        oracle_run_free(&reused);
        oracle_run_free(&exact);
    }
}

static void without_attention_the_last_module_is_all_there_is(void **state) {
    oracle_run all, last, exact;
    (void)state;
    if (subject->attends) return;
    run_alone(RP_MODULE_STATES_LAST, "<prompt schema='s'><two/><three/><one/> and a word</prompt>", as_written,
              RP_REUSE_ON, &all);
    run_alone(RP_MODULE_STATES_LAST, "<prompt schema='s'><one/> and a word</prompt>", as_written, RP_REUSE_ON, &last);
    run_alone(RP_MODULE_STATES_EXACT, "<prompt schema='s'><one/> and a word</prompt>", as_written, RP_REUSE_ON, &exact);
    assert_true(oracle_run_same(&all, &last) && oracle_run_same(&all, &exact));
    oracle_run_free(&all);
    oracle_run_free(&last);
    oracle_run_free(&exact);
}

/* Feeds n tokens in an empty context, from states, and saves those after them. */
static kv_span *feed(forward_run *r, kv_span *from, bool begins, const int32_t *tokens, int32_t n) {
    const backend_recurrence *ops = r->backend->ops->recurrence;
    rp_error err = {0};
    kv_span *to;
    backend_states *fresh;
    must(ops->states_new(r->backend, &fresh, &err), &err);
    ops->states_free(r->backend, r->states);
    r->states = fresh;
    kv_context_clear(&r->context);
    if (from) ops->states_load(r->backend, r->states, from);
    if (begins) ops->states_begin(r->backend, r->states);
    forward_run_feed(r, tokens, 0, n, 0, NULL);
    must(kv_span_new_states(&to, r->pool, n, &err), &err);
    ops->states_save(r->backend, r->states, to);
    return to;
}

/* Which states the first layer's inputs begin with does not matter to them: after the same tokens its states differ by
 * what is left of the difference before them. The convolution's inputs are the same if the last tokens before are. */
static void composed_states_are_those_of_a_run(void **state) {
    enum { N = 40 };
    (void)state;
    if (!subject->composes || !model_mixer_recurs(model->net.layers[0].mixer)) return;
    const int32_t layer = model->net.layers[0].recurrence;
    const size_t bytes = model_state_bytes(&model->net), n = bytes / sizeof(float);
    int32_t one[N], two[N], module[N];
    forward_run r;
    rp_error err = {0};
    for (int32_t i = 0; i < N; i++) {
        one[i] = 3 + i * 7 % 200;
        two[i] = i < N - 8 ? 3 + i * 11 % 190 : one[i];
        module[i] = 5 + i * 13 % 170;
    }
    forward_run_open(&r, model, BASE_CPU_GENERIC, 256, 16, 1);
    kv_span *before = feed(&r, NULL, false, one, N), *begin = feed(&r, NULL, false, two, N);
    kv_span *expected = feed(&r, before, true, module, N), *end = feed(&r, begin, true, module, N), *got;
    r.backend->ops->recurrence->states_load(r.backend, r.states, before);
    must(r.backend->ops->recurrence->states_compose(r.backend, r.states, end, begin, &err), &err);
    must(kv_span_new_states(&got, r.pool, N, &err), &err);
    r.backend->ops->recurrence->states_save(r.backend, r.states, got);
    float *values = malloc(3 * bytes);
    kv_span_get_state(expected, layer, values);
    kv_span_get_state(got, layer, values + n);
    kv_span_get_state(end, layer, values + 2 * n);
    const int32_t matrices = (int32_t)n - model->net.hp.recurrent.n_heads; /* and inputs, without products of decays */
    const double off = oracle_deviation(values, values + n, matrices),
                 without = oracle_deviation(values, values + 2 * n, matrices);
    printf("deviation %.1e, without composition %.1e\n", off, without);
    assert_true(off < 1e-5 && without > 10 * off);
    free(values);
    kv_span *spans[] = {before, begin, expected, end, got};
    for (size_t i = 0; i < BASE_ARRAY_LEN(spans); i++) kv_span_unref(spans[i]);
    forward_run_close(&r);
}

/* ---- the store ---- */

/* Removes the checkpoints of a running engine's store, and nothing else. */
static size_t remove_states(rp_engine *e) {
    rp_store *store;
    rp_store_listing *list;
    rp_error err = {0};
    size_t n = 0;
    must(rp_store_attach(&store, e, &err), &err);
    must(rp_store_list(store, &(rp_store_selection){.all = true}, NULL, &list, &err), &err);
    for (size_t i = 0; i < list->n_entries; i++) {
        if (list->entries[i].kind != RP_STORE_STATES) continue;
        must(rp_store_remove(store, &(rp_store_selection){.key = list->entries[i].key}, NULL, &err), &err);
        n++;
    }
    rp_store_listing_free(list);
    rp_store_close(store);
    return n;
}

/* States that are gone while KV lives are a miss with its reason, of the modules that need them alone. */
static void a_module_without_states_is_a_miss(void **state) {
    const char *const prompt = "<prompt schema='s'><two/><one/> and a word</prompt>";
    (void)state;
    for (int32_t i = 0; i < n_settings(); i++) {
        rp_engine_options o = usual(setting(i));
        rp_engine *e = new_engine(&o);
        oracle_run first, missed, hit;
        int32_t n_missed = 0;
        run(e, prompt, as_written, RP_REUSE_ON, &first);
        assert_true(remove_states(e) > 0);
        run(e, prompt, as_written, RP_REUSE_ON, &missed);
        for (int32_t k = 0; k < missed.result->n_plan; k++)
            if (missed.result->plan[k].is_view && strcmp(missed.result->plan[k].tier, "computed") == 0) {
                assert_string_equal(missed.result->plan[k].reason, "checkpoint");
                n_missed++;
            }
        assert_int_equal(n_missed, setting(i) == RP_MODULE_STATES_LAST ? 1 : 3); /* the schema's own text, too */
        run(e, prompt, as_written, RP_REUSE_ON, &hit);
        assert_int_equal(hit.result->cached_tokens, hit.result->prompt_tokens - 1);
        assert_true(oracle_run_same(&first, &missed) && oracle_run_same(&first, &hit));
        oracle_run_free(&first);
        oracle_run_free(&missed);
        oracle_run_free(&hit);
        rp_engine_free(e);
    }
}

/* Damages the records of states. */
static void damage_states(const char *dir) {
    rp_store *store;
    rp_store_listing *list;
    rp_error err = {0};
    must(rp_store_open(&store, dir, NULL, &err), &err);
    must(rp_store_list(store, NULL, NULL, &list, &err), &err);
    for (size_t i = 0; i < list->n_entries; i++) {
        char end[80];
        if (list->entries[i].kind != RP_STORE_STATES) continue;
        snprintf(end, sizeof(end), "%s.rps", list->entries[i].key + 40);
        store_folder_flip(dir, end);
    }
    rp_store_listing_free(list);
    rp_store_close(store);
}

static void modules_survive_a_restart(void **state) {
    const char *const first = "<prompt schema='s'><one/><two/> and a word</prompt>",
                      *const then = "<prompt schema='s'><two/><one/> or another</prompt>";
    (void)state;
    for (int32_t i = 0; i < n_settings(); i++) {
        char dir[STORE_FOLDER_BYTES];
        oracle_run alone, made, found, damaged;
        store_folder_make(dir);
        rp_engine_options o = usual(setting(i));
        o.store_dir = dir;
        o.store_write = RP_STORE_WRITE_THROUGH;
        rp_engine *e = new_engine(&o);
        run(e, first, as_written, RP_REUSE_ON, &made);
        rp_engine_free(e);
        run_alone(setting(i), then, as_written, RP_REUSE_ON, &alone);
        e = new_engine(&o);
        run(e, then, as_written, RP_REUSE_ON, &found);
        rp_engine_free(e);
        assert_int_equal(found.result->cached_tokens, view_tokens(found.result));
        assert_true(oracle_run_same(&alone, &found));
        damage_states(dir);
        e = new_engine(&o);
        run(e, then, as_written, RP_REUSE_ON, &damaged);
        rp_engine_free(e);
        assert_true(damaged.result->cached_tokens < damaged.result->prompt_tokens - 1);
        assert_true(oracle_run_same(&alone, &damaged));
        oracle_run_free(&alone);
        oracle_run_free(&made);
        oracle_run_free(&found);
        oracle_run_free(&damaged);
        store_folder_remove(dir);
    }
}

/* Checkpoints of modules in a folder; the states of texts have no label. */
static size_t count_states(rp_store *store, bool pinned) {
    rp_store_listing *list;
    rp_error err = {0};
    size_t n = 0;
    must(rp_store_list(store, &(rp_store_selection){.modules = true}, NULL, &list, &err), &err);
    for (size_t i = 0; i < list->n_entries; i++) {
        const rp_store_entry *e = &list->entries[i];
        assert_true(strncmp(e->label, "s", 1) == 0 && e->kind != RP_STORE_TEXT);
        n += e->kind == RP_STORE_STATES && e->pinned == pinned;
    }
    rp_store_listing_free(list);
    return n;
}

/* A checkpoint is pinned, exported, and checked with its module. */
static void checkpoints_go_with_their_modules(void **state) {
    const char *const prompt = "<prompt schema='s'><two/><one/> and a word</prompt>";
    (void)state;
    for (int32_t i = 0; i < n_settings(); i++) {
        char from[STORE_FOLDER_BYTES], to[STORE_FOLDER_BYTES], path[STORE_FOLDER_BYTES + 8];
        oracle_run made, found;
        rp_error err = {0};
        rp_store *store;
        rp_store_listing *list;
        rp_store_transfer sent = {.struct_size = sizeof(sent)}, got = {.struct_size = sizeof(got)};
        rp_store_recomputed done = {.struct_size = sizeof(done)};
        rp_engine_options o = usual(setting(i)), bare = usual(RP_MODULE_STATES_LAST);
        const char *fingerprint;
        store_folder_make(from);
        store_folder_make(to);
        snprintf(path, sizeof(path), "%s.rpb", from);
        must(rp_model_fingerprint(model, 1, NULL, NULL, &fingerprint, &err), &err);
        o.store_dir = from;
        o.store_write = RP_STORE_WRITE_THROUGH;
        rp_engine *e = new_engine(&o);
        run(e, prompt, as_written, RP_REUSE_ON, &made);
        rp_engine_free(e);

        must(rp_store_open(&store, from, NULL, &err), &err);
        const size_t n = count_states(store, false);
        assert_true(n > 0 && count_states(store, true) == 0);
        must(rp_store_pin(store, &(rp_store_selection){.name = "s"}, true, &list, &err), &err);
        rp_store_listing_free(list);
        assert_true(count_states(store, false) == 0 && count_states(store, true) == n);
        must(rp_store_export(store, "s", path, NULL, NULL, &sent, &err), &err);
        e = new_engine(&bare);
        must(rp_schema_prefill(e, NULL, "s", NULL, NULL, &err), &err);
        must(rp_store_recompute(store, e, NULL, NULL, NULL, NULL, &done, &err), &err);
        assert_true(done.checked >= sent.records && done.unknown_module == 0 && done.different == 0);
        rp_engine_free(e);
        rp_store_close(store);

        const rp_store_options create = {.struct_size = sizeof(create), .create = true};
        must(rp_store_open(&store, to, &create, &err), &err);
        must(rp_store_import(store, path, NULL, NULL, &got, &err), &err);
        assert_true(got.records == sent.records && count_states(store, false) == n);
        rp_store_close(store);
        o.store_dir = to;
        e = new_engine(&o);
        run(e, prompt, as_written, RP_REUSE_ON, &found);
        rp_engine_free(e);
        assert_int_equal(found.result->cached_tokens, view_tokens(found.result));
        assert_true(oracle_run_same(&made, &found));
        oracle_run_free(&made);
        oracle_run_free(&found);
        unlink(path);
        store_folder_remove(from);
        store_folder_remove(to);
    }
}

/* ---- memory ---- */

/* Where there is little memory, states and modules are evicted, and computed again. */
static void a_small_budget_changes_no_result(void **state) {
    (void)state;
    for (int32_t i = 0; i < n_settings(); i++) {
        oracle_run alone[BASE_ARRAY_LEN(prompts)], got;
        rp_engine_options o = usual(setting(i));
        int32_t n_ran = 0;
        for (size_t k = 0; k < BASE_ARRAY_LEN(prompts); k++)
            run_alone(setting(i), prompts[k], as_written, RP_REUSE_ON, &alone[k]);
        o.kv_budget_bytes = 0;
        for (size_t k = 0; k < BASE_ARRAY_LEN(prompts); k++)
            o.kv_budget_bytes = BASE_MAX(o.kv_budget_bytes, alone[k].result->kv_bytes);
        for (int32_t more = 0; more < 6; more++, o.kv_budget_bytes += o.kv_budget_bytes / 3) {
            rp_engine *e = new_engine(&o);
            for (size_t k = 0; k < 2 * BASE_ARRAY_LEN(prompts); k++) {
                const rp_request q = request_of(prompts[k % BASE_ARRAY_LEN(prompts)], as_written, RP_REUSE_ON);
                oracle_run_make(&got, e, &q);
                assert_true(got.rc == RP_OK || got.rc == RP_ERR_BUDGET);
                n_ran += got.rc == RP_OK;
                if (got.rc == RP_OK) assert_true(oracle_run_same(&alone[k % BASE_ARRAY_LEN(prompts)], &got));
                oracle_run_free(&got);
            }
            rp_engine_free(e);
        }
        assert_true(n_ran > (int32_t)BASE_ARRAY_LEN(prompts));
        for (size_t k = 0; k < BASE_ARRAY_LEN(prompts); k++) oracle_run_free(&alone[k]);
    }
}

/* ---- what is refused ---- */

static void states_that_do_not_compose_are_refused(void **state) {
    rp_engine *e = NULL;
    rp_error err = {0};
    rp_engine_options o = usual(RP_MODULE_STATES_COMPOSED);
    (void)state;
    const int rc = rp_engine_new(&e, model, &o, &err);
    assert_int_equal(rc, subject->composes ? RP_OK : RP_ERR_UNSUPPORTED);
    if (rc) printf("%s\n", err.message);
    else rp_engine_free(e);
    o.module_states = (rp_module_states)3;
    assert_int_equal(rp_engine_new(&e, model, &o, &err), RP_ERR_INVALID);
}

/* Qualities that compute tokens out of their order are those of `reuse`. */
static void blend_and_focus_reuse(void **state) {
    static const rp_quality qualities[] = {{RP_QUALITY_BLEND, 20}, {RP_QUALITY_FOCUS, 20}};
    (void)state;
    oracle_run reused, got;
    run_alone(RP_MODULE_STATES_LAST, prompts[0], as_written, RP_REUSE_ON, &reused);
    for (size_t i = 0; i < BASE_ARRAY_LEN(qualities); i++) {
        run_alone(RP_MODULE_STATES_LAST, prompts[0], qualities[i], RP_REUSE_ON, &got);
        assert_true(oracle_run_same(&reused, &got));
        assert_int_equal(got.result->quality.used.mode, RP_QUALITY_REUSE);
        assert_string_equal(got.result->quality.reason, "model");
        oracle_run_free(&got);
    }
    oracle_run_free(&reused);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_and_misses_have_the_same_bytes),
        cmocka_unit_test(modules_are_found_in_any_order),
        cmocka_unit_test(text_between_modules_is_found),
        cmocka_unit_test(one_module_after_the_schemas_text_is_exact),
        cmocka_unit_test(a_last_module_is_computed),
        cmocka_unit_test(without_attention_the_last_module_is_all_there_is),
        cmocka_unit_test(composed_states_are_those_of_a_run),
        cmocka_unit_test(a_module_without_states_is_a_miss),
        cmocka_unit_test(modules_survive_a_restart),
        cmocka_unit_test(checkpoints_go_with_their_modules),
        cmocka_unit_test(a_small_budget_changes_no_result),
        cmocka_unit_test(states_that_do_not_compose_are_refused),
        cmocka_unit_test(blend_and_focus_reuse),
    };
    int failed = 0;
    const int32_t n_all = (int32_t)BASE_ARRAY_LEN(subjects), n_some = test_rounds(n_all) + LEAST_SUBJECTS;
    for (int32_t i = 0; i < BASE_MIN(n_all, n_some); i++) {
        const char *name = subjects[i].golden ? subjects[i].golden : "sum";
        bool is_wanted = argc == 1;
        for (int k = 1; k < argc; k++) is_wanted |= strcmp(argv[k], name) == 0;
        subject = &subjects[i];
        if (is_wanted) failed += cmocka_run_group_tests_name(name, tests, open_subject, close_subject);
    }
    return failed;
}
