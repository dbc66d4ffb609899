/* SPDX-License-Identifier: Apache-2.0 */
/* test_scopes.c: text of prompts with modules is named by what it attends to, the modules and the text at lower
 * positions: how many tokens are computed when modules are exchanged, change their order, or are not there at all;
 * after a restart; of other tenants; of requests at the same time. Every answer has the bytes of a cold run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "kv/context.h"
#include "kv/span_view.h"
#include "support/gate.h"
#include "support/oracle_run.h"
#include "support/store_folder.h"
#include "reprise_pml.h"

#define RULES \
    "Be kind. Name the river of each city. Do not guess. Answer in one line. Write no list. Write no table. Ask if " \
    "it is unclear."
#define NOTE " What follows is the second part, which is newer than the first one."
#define QUESTION " Which of them is older?"

static const char *const documents[] = {" Lisbon was built on seven hills beside the river.",
                                        " Miami is a city at the sea, with warm winters.",
                                        " Oslo lies at the end of a fjord, between forests."};

enum { A,
       B,
       C };

static oracle_model model;

static int open_model(bool no_bos) {
    const char *chat;
    tiny_model_shape shape = oracle_shape(2, &chat);
    shape.no_bos = no_bos; /* else a schema's anonymous text is that token */
    oracle_model_open(&model, &shape, chat);
    return 0;
}

static int open_with_bos(void **state) {
    (void)state;
    return open_model(false);
}

static int open_without_bos(void **state) {
    (void)state;
    return open_model(true);
}

static int close_model(void **state) {
    (void)state;
    oracle_model_close(&model);
    return 0;
}

static rp_engine *open_engine(const char *dir) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e = NULL;
    rp_error err = {0};
    o.n_threads = 1;
    o.store_dir = dir;
    if (rp_engine_new(&e, model.model, &o, &err)) fail_msg("%s", err.message);
    return e;
}

static const char *part_name(const rp_plan_item *item) { return item->module[0] ? item->module : "prompt"; }

/* A prompt: rules, then a document, a note and another document, then a question. first -1: rules and question only. */
static rp_builder *make_prompt(int first, int second) {
    rp_builder *p;
    rp_error err = {0};
    if (rp_builder_new(&p, NULL, &err)) fail_msg("%s", err.message);
    int rc = rp_builder_append_text(p, RULES, strlen(RULES));
    if (first >= 0) rc |= rp_builder_append_document(p, documents[first], strlen(documents[first]));
    if (first >= 0) rc |= rp_builder_append_text(p, NOTE, strlen(NOTE));
    if (second >= 0) rc |= rp_builder_append_document(p, documents[second], strlen(documents[second]));
    rc |= rp_builder_append_text(p, QUESTION, strlen(QUESTION));
    assert_int_equal(rc, RP_OK);
    return p;
}

static rp_request request_of(const rp_builder *built, rp_quality quality) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_built(built);
    q.quality = quality;
    q.max_tokens = 3;
    q.ignore_eos = true;
    return q;
}

typedef struct answered {
    int32_t n[5]; /* tokens of the parts: rules with the beginning-of-text token, document, note, document, question */
    int32_t computed, total;
} answered;

static void sum_parts(const rp_result *r, answered *out) {
    int part = 0;
    for (int32_t i = 0; i < r->n_plan; i++) { /* a part may have several lines: hits, misses, recomputed tokens */
        if (i > 0 && strcmp(part_name(&r->plan[i]), part_name(&r->plan[i - 1])) != 0) part++;
        assert_true(part < 5);
        out->n[part] += r->plan[i].n_tokens;
    }
}

static const rp_quality as_written = {RP_QUALITY_AS_WRITTEN, 0};

/* Asks, and compares with a cold run. */
static answered ask_as(rp_engine *e, const char *tenant, int first, int second, rp_quality quality) {
    rp_builder *p = make_prompt(first, second);
    rp_engine *cold = open_engine(NULL);
    rp_request q = request_of(p, quality);
    oracle_run run, expected;
    answered out = {0};
    oracle_run_make(&expected, cold, &q);
    rp_engine_free(cold);
    q.tenant = tenant;
    oracle_run_make(&run, e, &q);
    if (run.rc) fail_msg("%s", run.err.message);
    assert_true(oracle_run_same(&expected, &run));
    sum_parts(run.result, &out);
    out.computed = run.result->fresh_tokens;
    out.total = run.result->prompt_tokens;
    oracle_run_free(&expected);
    oracle_run_free(&run);
    rp_builder_free(p);
    return out;
}

static answered ask(rp_engine *e, int first, int second) { return ask_as(e, NULL, first, second, as_written); }

static void text_before_a_change_of_modules_is_cached(void **state) {
    rp_engine *e = open_engine(NULL);
    (void)state;
    answered r = ask(e, A, B);
    assert_int_equal(r.computed, r.total);
    r = ask(e, A, C); /* another second module */
    assert_int_equal(r.computed, r.n[3] + r.n[4]);
    r = ask(e, C, B); /* another first one */
    assert_int_equal(r.computed, r.n[2] + r.n[4]);
    r = ask(e, B, A); /* another order */
    assert_int_equal(r.computed, r.n[2] + r.n[4]);
    r = ask(e, B, C); /* and each half was there */
    assert_int_equal(r.computed, r.n[4]);
    r = ask(e, B, -1); /* one is removed: note and question are one text, which begins with the note */
    assert_int_equal(r.computed, r.total - r.n[0] - r.n[1] - ask(e, B, C).n[2]);
    r = ask(e, B, C); /* nothing is new */
    assert_int_equal(r.computed, 1);
    rp_engine_free(e);
}

static void plain_prompts_and_prompts_with_modules_share_text(void **state) {
    (void)state;
    for (int plain_first = 0; plain_first < 2; plain_first++) {
        rp_engine *e = open_engine(NULL);
        const answered before = plain_first ? ask(e, -1, -1) : ask(e, A, B);
        const answered r = plain_first ? ask(e, A, B) : ask(e, -1, -1);
        assert_int_equal(before.computed, before.total);
        assert_int_equal(r.computed, r.total - (plain_first ? r.n[0] : before.n[0]));
        rp_engine_free(e);
    }
}

/* The first tokens of a module that are recomputed in the prompt attend to the text before it, and not to the
   module. */
static void recomputed_tokens_are_named_like_text(void **state) {
    const rp_quality link = {RP_QUALITY_LINK, 3};
    rp_engine *e = open_engine(NULL);
    (void)state;
    rp_request plain = request_of(NULL, as_written);
    oracle_run run;
    plain.prompt = rp_prompt_text(RULES " Lisbon was built of stone.");
    oracle_run_make(&run, e, &plain);
    assert_int_equal(run.rc, RP_OK);
    oracle_run_free(&run);
    answered r = ask_as(e, NULL, A, B, link);
    assert_int_equal(r.computed, r.total - r.n[0] - 3); /* the document begins as the plain text goes on */
    r = ask_as(e, NULL, A, C, link);
    assert_int_equal(r.computed, r.n[3] + r.n[4]);
    r = ask(e, A, C); /* other views: without the recomputed tokens */
    assert_int_equal(r.computed, r.n[2] + r.n[4]);
    rp_engine_free(e);
}

static void text_is_cached_after_a_restart(void **state) {
    char dir[STORE_FOLDER_BYTES];
    (void)state;
    store_folder_make(dir);
    for (int run = 0; run < 2; run++) {
        rp_engine *e = open_engine(dir);
        answered r = ask(e, A, B);
        assert_int_equal(r.computed, run == 0 ? r.total : 1);
        r = ask(e, A, C);
        assert_int_equal(r.computed, run == 0 ? r.n[3] + r.n[4] : 1);
        rp_engine_free(e);
    }
    store_folder_remove(dir);
}

static void tenants_share_no_text(void **state) {
    rp_engine *e = open_engine(NULL);
    (void)state;
    ask_as(e, "x", A, B, as_written);
    answered r = ask_as(e, "y", A, C, as_written);
    assert_int_equal(r.computed, r.total);
    r = ask_as(e, "x", A, C, as_written);
    assert_int_equal(r.computed, r.n[3] + r.n[4]);
    rp_engine_free(e);
}

/* Requests with different modules at the same time: the second waits for the text that they share. */
static void requests_at_the_same_time_compute_text_once(void **state) {
    rp_engine *e = open_engine(NULL);
    rp_builder *p[] = {make_prompt(A, B), make_prompt(A, C)};
    rp_request q[2], hold = rp_request_defaults();
    oracle_run runs[2];
    rp_job *jobs[2];
    answered r = {0};
    gate g;
    (void)state;
    hold.prompt = rp_prompt_text("gate");
    hold.max_tokens = 2;
    gate_close(&g, e, &hold);
    for (int i = 0; i < 2; i++) {
        q[i] = request_of(p[i], as_written);
        assert_int_equal(oracle_run_submit(&runs[i], e, &q[i], &jobs[i]), RP_OK);
    }
    gate_end(&g);
    for (int i = 0; i < 2; i++) oracle_run_finish(&runs[i], jobs[i]);
    sum_parts(runs[1].result, &r);
    assert_int_equal(runs[0].result->fresh_tokens, runs[0].result->prompt_tokens);
    assert_true(runs[1].result->cached_tokens >= r.n[0]); /* document A: whoever came first missed it, for both */
    for (int i = 0; i < 2; i++) {
        rp_engine *cold = open_engine(NULL);
        oracle_run expected;
        oracle_run_make(&expected, cold, &q[i]);
        assert_true(oracle_run_same(&expected, &runs[i]));
        oracle_run_free(&expected);
        oracle_run_free(&runs[i]);
        rp_builder_free(p[i]);
        rp_engine_free(cold);
    }
    rp_engine_free(e);
}

/* ---- text after an edit ---- */

#define OLD " The first one was written in haste, and nobody has read it since then."
#define REST \
    " The second one is longer. It names all rivers that reach the sea near the town, and the bridges across them. " \
    "It was written by a teacher of " \
    "the school at the harbour, who had lived there for thirty years, and whose notes are kept in the library beside " \
    "the market."

typedef struct order {
    rp_engine *engine;
    size_t n_modules; /* views of modules, which are first */
    int n_checked;
    bool rises;
} order;

static int32_t first_position(const kv_view *v) {
    int32_t slot = 0;
    while (!(v->mask[slot / KV_BLOCK_SLOTS] >> slot % KV_BLOCK_SLOTS & 1)) slot++;
    return kv_span_slot_position(v->span, slot) + v->shift;
}

static void check_order(void *user, const rp_step *step) {
    order *o = user;
    (void)step;
    if (!o->engine) return;
    const kv_context *c = &o->engine->running[0]->seq.context;
    for (size_t i = o->n_modules + 1; i < c->n_views; i++)
        o->rises &= first_position(&c->views[i - 1]) < first_position(&c->views[i]);
    o->n_checked++;
}

/* A program may fill in the struct itself. */
static void a_quality_of_options_is_checked(void **state) {
    static const rp_quality wrong[] = {
        {RP_QUALITY_BLEND, 0}, {RP_QUALITY_FOCUS, 101}, {RP_QUALITY_LINK, -1}, {(rp_quality_mode)99, 0}};
    static const char text[] = "<schema name='q'><module name='m'>A text.</module></schema>";
    rp_engine *e = open_engine(NULL);
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        rp_schema_options o = rp_schema_options_defaults();
        rp_error err = {0};
        o.quality = wrong[i];
        assert_int_equal(rp_schema_parse(e, text, strlen(text), NULL, NULL, &o, NULL, &err), RP_ERR_INVALID);
        assert_non_null(strstr(err.message, "quality"));
    }
    rp_engine_free(e);
}

static void run_edited(rp_engine *e, const char *old, oracle_run *run) {
    rp_builder *p;
    assert_int_equal(rp_builder_new(&p, NULL, NULL), RP_OK);
    const char *const texts[] = {RULES, documents[A], NOTE, old, REST, QUESTION};
    for (int i = 0; i < 6; i++)
        assert_int_equal((i == 1 ? rp_builder_append_document : rp_builder_append_text)(p, texts[i], strlen(texts[i])),
                         RP_OK);
    rp_request q = request_of(p, as_written);
    q.shifted_reuse = 0;
    oracle_run_make(run, e, &q);
    if (run->rc) fail_msg("%s", run->err.message);
    rp_builder_free(p);
}

/* Cached text, moved text and computed text in the order of positions, although the path of the cached text has the
   roots of two scopes. */
static void moved_text_is_in_its_place(void **state) {
    rp_engine_options options = rp_engine_options_defaults();
    order o = {.n_modules = 1, .rises = true};
    oracle_run run;
    rp_error err = {0};
    rp_engine *e;
    (void)state;
    options.n_threads = 1;
    options.on_step = check_order;
    options.step_user = &o;
    if (rp_engine_new(&e, model.model, &options, &err)) fail_msg("%s", err.message);
    run_edited(e, OLD, &run);
    oracle_run_free(&run);
    o.engine = e;
    run_edited(e, "", &run);
    int32_t n_moved = 0;
    for (int32_t i = 0; i < run.result->n_plan; i++)
        n_moved += run.result->plan[i].is_view && run.result->plan[i].shift < 0;
    oracle_run_free(&run);
    rp_engine_free(e);
    assert_true(n_moved > 0 && o.n_checked > 0);
    assert_true(o.rises);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quality_of_options_is_checked),
        cmocka_unit_test(text_before_a_change_of_modules_is_cached),
        cmocka_unit_test(plain_prompts_and_prompts_with_modules_share_text),
        cmocka_unit_test(recomputed_tokens_are_named_like_text),
        cmocka_unit_test(text_is_cached_after_a_restart),
        cmocka_unit_test(tenants_share_no_text),
        cmocka_unit_test(requests_at_the_same_time_compute_text_once),
        cmocka_unit_test(moved_text_is_in_its_place),
    };
    return cmocka_run_group_tests_name("scopes", tests, open_without_bos, close_model) +
           cmocka_run_group_tests_name("scopes with a beginning-of-text token", tests, open_with_bos, close_model);
}
