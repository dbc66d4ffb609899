/* SPDX-License-Identifier: Apache-2.0 */
/* test_tenants.c: tenant isolation: no tenant can hit, learn of, wait for, or profit from another tenant's entries.
 *
 * Pairs: a request of tenant "b" in two engines with one difference: in the first, "a" has sent the same request (or
 * a prefix of it), in the second another one. Result, plan, reasons, keys and logits are bit-identical. The work is
 * equal as well: no time is measured here (bench_tenants does that); the store's lookups and the rows of every step are
 * counted. Requests of "b" itself do make a difference. Each pair runs twice: in one engine's RAM, and with a store on
 * disk and a restart before the request.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/compiler.h"
#include "support/calls.h"
#include "support/gate.h"
#include "support/oracle_run.h"
#include "support/shared_model.h"
#include "support/store_folder.h"
#include "reprise_tools.h"
#include "reprise_pml.h"
#include "reprise_store.h"

#define MOST_STEPS 512

static const char shared_text[] =
    "<schema name='shared'><module name='m'>The first module, with <param name='p' len='4'/> in it.</module>"
    "<module name='n'>Another one, about hills.</module><module name='o' cache='false'>No meat.</module></schema>";
static const char own_text[] =
    "<schema name='own'>Begin.<module name='m'>What only one tenant has in its modules.</module></schema>";

/* ---- instrumented engines ---------------------------------------------------------------------------------------- */

/* A step: the callers' report by kinds and rows; times are not kept. */
typedef struct seen_step {
    int32_t n_parts, n_running, n_waiting, kind, n_rows, context_tokens; /* of the first part */
} seen_step;

typedef struct watched {
    rp_engine *engine;
    seen_step steps[MOST_STEPS]; /* the engine's thread while a call is under way */
    int32_t n_steps;
    int32_t rows[RP_N_STEP_KINDS]; /* by rp_step_kind */
    uint64_t look_ups[3];          /* of the last request: hits, misses, inserts */
    char dir[STORE_FOLDER_BYTES];  /* "": no disk */
} watched;

static void see_step(void *user, const rp_step *step) {
    watched *w = user;
    const rp_step_part *first = &step->parts[0];
    assert_true(w->n_steps < MOST_STEPS);
    w->steps[w->n_steps++] = (seen_step){step->n_parts, step->n_running, step->n_waiting,
                                         (int32_t)first->kind, first->n_rows, first->context_tokens};
    for (int32_t i = 0; i < step->n_parts; i++) w->rows[step->parts[i].kind] += step->parts[i].n_rows;
}

static void load(rp_engine *e, const char *schema, const char *tenant) {
    rp_schema_options o = {.struct_size = sizeof(o), .tenant = tenant};
    rp_error err;
    if (rp_schema_parse(e, schema, strlen(schema), "s.xml", NULL, &o, NULL, &err)) fail_msg("%s", err.message);
}

static void open_watched(watched *w, uint64_t budget) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_error err;
    o.n_threads = 1;
    o.store_dir = w->dir[0] ? w->dir : NULL;
    o.chunk_tokens = 64;
    o.kv_budget_bytes = budget;
    o.on_step = see_step;
    o.step_user = w;
    if (rp_engine_new(&w->engine, model, &o, &err)) fail_msg("%s", err.message);
    load(w->engine, shared_text, NULL);
    load(w->engine, own_text, "a");
    load(w->engine, own_text, "b");
}

static void watched_open(watched *w, uint64_t budget) {
    *w = (watched){0};
    open_watched(w, budget);
}

static void watched_close(watched *w) {
    rp_engine_free(w->engine);
    if (w->dir[0]) store_folder_remove(w->dir);
}

static void forget_steps(watched *w) {
    w->n_steps = 0;
    memset(w->rows, 0, sizeof(w->rows));
}

static void ask(oracle_run *run, watched *w, const char *tenant, const rp_request *q) {
    rp_store_stats before = {.struct_size = sizeof(before)}, after = {.struct_size = sizeof(after)};
    rp_request r = *q;
    r.tenant = tenant;
    forget_steps(w);
    rp_engine_store_stats(w->engine, &before);
    oracle_run_make(run, w->engine, &r);
    if (run->rc) fail_msg("%s", run->err.message);
    rp_engine_store_stats(w->engine, &after);
    w->look_ups[0] = after.hits - before.hits;
    w->look_ups[1] = after.misses - before.misses;
    w->look_ups[2] = after.inserts - before.inserts;
}

static rp_request request(const char *text, const char *prompt) {
    rp_request q = rp_request_defaults();
    q.prompt = prompt ? rp_prompt_pml(prompt) : rp_prompt_text(text);
    q.max_tokens = 3;
    q.ignore_eos = true;
    return q;
}

/* The report of a request, without times. */
static rp_result *reported(watched *w, const char *tenant, const rp_request *q) {
    oracle_run run;
    ask(&run, w, tenant, q);
    rp_result *r = run.result;
    run.result = NULL;
    oracle_run_free(&run);
    return r;
}

static void read_it(watched *w, const char *tenant, const rp_request *q) { rp_result_free(reported(w, tenant, q)); }

static char *join(const char *a, const char *b, const char *c) {
    char *text = malloc(strlen(a) + strlen(b) + strlen(c) + 1);
    return strcat(strcat(strcpy(text, a), b), c);
}

static const rp_plan_item *last_item(const rp_result *r) { return &r->plan[r->n_plan - 1]; }

/* ---- pairs
   --------------------------------------------------------------------------------------------------------- */

static bool same_item(const rp_plan_item *a, const rp_plan_item *b) {
    return a->is_view == b->is_view && a->exact == b->exact && strcmp(a->module, b->module) == 0 &&
           a->n_tokens == b->n_tokens && a->position == b->position && a->shift == b->shift &&
           strcmp(a->tier, b->tier) == 0 && strcmp(a->reason, b->reason) == 0 && strcmp(a->key, b->key) == 0;
}

static bool same_mismatch(const rp_mismatch *a, const rp_mismatch *b) {
    return a->token == b->token && a->position == b->position && strcmp(a->module, b->module) == 0 &&
           strcmp(a->message, b->message) == 0 && strcmp(a->before, b->before) == 0 &&
           strcmp(a->prompt, b->prompt) == 0 && strcmp(a->cached, b->cached) == 0;
}

/* Are two reports equal except for times? */
static bool same_told(const rp_result *a, const rp_result *b) {
    bool same = strcmp(a->text, b->text) == 0 && strcmp(a->finish_reason, b->finish_reason) == 0 &&
                a->prompt_tokens == b->prompt_tokens && a->cached_tokens == b->cached_tokens &&
                a->fresh_tokens == b->fresh_tokens && a->drafted_tokens == b->drafted_tokens &&
                a->accepted_tokens == b->accepted_tokens && a->bytes_copied == b->bytes_copied &&
                a->kv_bytes == b->kv_bytes && a->n_plan == b->n_plan && same_mismatch(&a->mismatch, &b->mismatch);
    for (int32_t i = 0; i < a->n_plan && same; i++) same = same_item(&a->plan[i], &b->plan[i]);
    return same;
}

static bool same_work(const watched *a, const watched *b) {
    return memcmp(a->look_ups, b->look_ups, sizeof(a->look_ups)) == 0 && a->n_steps == b->n_steps &&
           memcmp(a->steps, b->steps, (size_t)a->n_steps * sizeof(*a->steps)) == 0;
}

/* `before` is sent first: the same request, or a prefix of it; `other` has the same length and another text. */
typedef struct pair {
    const char *name;
    rp_request request, before, other;
    bool keeps_work; /* the tenant's own earlier requests change its report only; after a restart not even that: records
                        do not have the tenant of a prefix */
    bool moves;      /* the bytes change as well: KV that is not exact is reused */
} pair;

/* The report and the work of "b" after `tenant` has sent q. */
static void ask_after(oracle_run *run, watched *w, const pair *p, bool restart, const char *tenant,
                      const rp_request *q) {
    *w = (watched){0};
    if (restart) store_folder_make(w->dir);
    open_watched(w, 0);
    assert_int_equal(rp_schema_prefill(w->engine, NULL, "shared", NULL, NULL, NULL), RP_OK);
    read_it(w, tenant, q);
    if (restart) {
        rp_engine_free(w->engine);
        open_watched(w, 0);
    }
    ask(run, w, "b", &p->request);
}

/* Does a plan have tokens from disk? */
static bool is_from_disk(const rp_result *r) {
    for (int32_t i = 0; i < r->n_plan; i++)
        if (strcmp(r->plan[i].tier, "disk") == 0) return true;
    return false;
}

static void check_twins(const pair *p, bool restart) {
    watched *w = calloc(3, sizeof(*w));
    oracle_run nobody, other, own;
    ask_after(&nobody, &w[0], p, restart, "a", &p->other);
    ask_after(&other, &w[1], p, restart, "a", &p->before);
    ask_after(&own, &w[2], p, restart, "b", &p->before);
    if (is_from_disk(own.result) != restart && !p->keeps_work)
        fail_msg("%s: from disk without a restart, or not from there", p->name);
    if (!same_told(nobody.result, other.result)) fail_msg("%s: told of another tenant", p->name);
    if (!same_work(&w[0], &w[1])) fail_msg("%s: another tenant changes the work", p->name);
    if (!oracle_run_same(&nobody, &other)) fail_msg("%s: another tenant changes the bytes", p->name);
    if (same_told(nobody.result, own.result) && !(restart && p->keeps_work))
        fail_msg("%s: a tenant is not told of its own", p->name);
    if (same_work(&w[0], &w[2]) != p->keeps_work) fail_msg("%s: a tenant's own states do not change the work", p->name);
    if (!p->moves && !oracle_run_same(&nobody, &own)) fail_msg("%s: a tenant's own states change the bytes", p->name);
    oracle_run *runs[] = {&nobody, &other, &own};
    for (size_t i = 0; i < BASE_ARRAY_LEN(runs); i++) {
        oracle_run_free(runs[i]);
        watched_close(&w[i]);
    }
    free(w);
}

static void check_pair(const pair *p) {
    check_twins(p, false);
    check_twins(p, true);
}

static void text_is_its_tenants_alone(void **state) {
    (void)state;
    char *text = calls_text(1, 200), *other = calls_text(2, 200), *longer = join(text, " and then", "");
    pair p = {.name = "the same text",
              .request = request(text, NULL),
              .before = request(text, NULL),
              .other = request(other, NULL)};
    check_pair(&p);
    p.name = "the same text, reuse exact";
    p.request.reuse = RP_REUSE_EXACT;
    check_pair(&p);
    p.name = "a text that begins alike";
    p.request = request(longer, NULL);
    check_pair(&p);
    free(text);
    free(other);
    free(longer);
}

static void drafts_come_from_the_request_alone(void **state) {
    (void)state;
    pair p = {.name = "drafts", .request = request("a b c d a b c d a b c d a b", NULL)};
    p.request.max_tokens = 60;
    p.request.n_draft = RP_MAX_DRAFT;
    p.before = p.other = p.request;
    p.other.prompt = rp_prompt_text("b c d e b c d e b c d e b c");
    check_pair(&p);
}

static void what_stands_behind_an_edit_is_moved_for_its_tenant_alone(void **state) {
    (void)state;
    char *same = calls_text(1, 40), *rest = calls_text(2, 150), *other_same = calls_text(3, 40);
    char *old = join(same, " with an old piece in its middle", rest), *new = join(same, " and a new one", rest);
    char *other = join(other_same, " with an old piece in its middle", rest);
    pair p = {.name = "an edit",
              .request = request(new, NULL),
              .before = request(old, NULL),
              .other = request(other, NULL),
              .moves = true};
    p.request.shifted_reuse = 4;
    check_pair(&p);
    char *all[] = {same, rest, other_same, old, new, other};
    for (size_t i = 0; i < BASE_ARRAY_LEN(all); i++) free(all[i]);
}

#define WORDS "What is this about, who wrote it, and why are there so many words in it that say nothing at all?"
#define OTHER "Who wrote it, what is this about, and why are there so many words in it that say nothing at all?"

static void modules_of_a_tenants_schema_are_its_own(void **state) {
    (void)state;
    pair p = {.name = "modules of one's own",
              .request = request(NULL, "<prompt schema='own'><m/>" WORDS "</prompt>"),
              .before = request(NULL, "<prompt schema='own'><m/></prompt>"),
              .other = request(NULL, "<prompt schema='shared'><n/></prompt>")};
    check_pair(&p);
    p.name = "modules of one's own, and text behind them";
    p.before = p.request;
    check_pair(&p);
}

static void text_behind_shared_modules_is_its_tenants_alone(void **state) {
    (void)state;
    pair p = {.name = "behind shared modules",
              .request = request(NULL, "<prompt schema='shared'><m p='9'/><o/>" WORDS "</prompt>"),
              .other = request(NULL, "<prompt schema='shared'><m p='7'/><o/>" OTHER "</prompt>")};
    p.before = p.request;
    check_pair(&p);
    p.name = "shared modules, reuse exact";
    p.request.reuse = p.before.reuse = p.other.reuse = RP_REUSE_EXACT;
    check_pair(&p);
}

/* Regression: a request's report had "scope" if another tenant's request had the same text after other modules. */
static void what_was_read_behind_other_modules_is_told_to_its_tenant_alone(void **state) {
    (void)state;
    pair p = {.name = "behind other modules",
              .request = request(NULL, "<prompt schema='shared'><n/>" WORDS "</prompt>"),
              .before = request(NULL, "<prompt schema='shared'><m/>" WORDS "</prompt>"),
              .other = request(NULL, "<prompt schema='shared'><m/>" OTHER "</prompt>"),
              .keeps_work = true};
    check_pair(&p);
    watched w;
    watched_open(&w, 0);
    read_it(&w, "a", &p.before);
    rp_result *other = reported(&w, "b", &p.request), *own = reported(&w, "a", &p.request);
    assert_string_equal(last_item(other)->reason, "new");
    assert_string_equal(last_item(own)->reason, "scope");
    rp_result_free(other);
    rp_result_free(own);
    rp_engine_free(w.engine);
}

static void that_something_was_dropped_is_told_to_its_tenant_alone(void **state) {
    (void)state;
    watched w;
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(model, &info);
    watched_open(&w, info.kv_bytes_per_token * 64 * 24);
    char *text = calls_text(0, 100);
    rp_request q = request(text, NULL), modules = request(NULL, "<prompt schema='own'><m/></prompt>");
    read_it(&w, "a", &q);
    read_it(&w, "a", &modules);
    for (int i = 1; i < 100; i++) { /* slow KV is kept longer: one slow step must not outweigh this many */
        char *others = calls_text(i, 100);
        rp_request other = request(others, NULL);
        read_it(&w, "a", &other);
        free(others);
    }
    rp_result *b = reported(&w, "b", &q), *b_modules = reported(&w, "b", &modules), *a = reported(&w, "a", &q),
              *a_modules = reported(&w, "a", &modules);
    assert_string_equal(last_item(b)->reason, "new");
    assert_string_equal(b_modules->plan[0].reason, "new");
    assert_string_equal(last_item(a)->reason, "evicted");
    assert_string_equal(a_modules->plan[0].reason, "evicted");
    rp_result *all[] = {b, b_modules, a, a_modules};
    for (size_t i = 0; i < BASE_ARRAY_LEN(all); i++) rp_result_free(all[i]);
    free(text);
    rp_engine_free(w.engine);
}

/* ---- shared entries ------------------------------------------------------------------------------------------------
 * */

static void shared_modules_are_computed_once_for_all(void **state) {
    (void)state;
    static const char *const tenants[] = {"a", "b", "", NULL, "c"};
    rp_request q = request(NULL, "<prompt schema='shared'><m p='9'/><n/>" WORDS "</prompt>");
    char key[17] = "";
    int32_t modules = 0;
    watched w;
    watched_open(&w, 0);
    for (size_t i = 0; i < BASE_ARRAY_LEN(tenants); i++) {
        rp_result *r = reported(&w, tenants[i], &q);
        if (i == 0) {
            assert_int_equal(r->cached_tokens, 0);
            modules = w.rows[RP_STEP_MODULE];
            assert_true(modules > 0);
            strcpy(key, r->plan[1].key);
        } else {
            assert_int_equal(w.rows[RP_STEP_MODULE], 0);
            assert_string_equal(r->plan[1].key, key);
            assert_string_equal(last_item(r)->reason, i == 3 ? "last" : "new"); /* "" and NULL are one */
            if (i != 3) assert_int_equal(r->cached_tokens, modules - 4);        /* without the parameter's slots */
        }
        rp_result_free(r);
    }
    rp_engine_free(w.engine);
}

/* The operator's own prompts are isolated as well. */
static void the_operators_text_is_its_own(void **state) {
    (void)state;
    char *text = calls_text(1, 100);
    rp_request q = request(text, NULL);
    watched w;
    watched_open(&w, 0);
    read_it(&w, NULL, &q);
    rp_result *r = reported(&w, "a", &q);
    assert_int_equal(r->cached_tokens, 0);
    assert_string_equal(last_item(r)->reason, "new");
    assert_int_equal(r->mismatch.token, -1);
    rp_result_free(r);
    free(text);
    rp_engine_free(w.engine);
}

/* ---- schemas by name
   ----------------------------------------------------------------------------------------------- */

/* The key of a schema with one module. */
static void key_of(watched *w, const char *tenant, const char *schema, char key[17]) {
    rp_inspection *i;
    assert_int_equal(rp_engine_inspect(w->engine, tenant, schema, NULL, NULL, &i, NULL), RP_OK);
    for (int32_t k = 0; k < i->n_nodes; k++)
        if (strcmp(i->nodes[k].kind, "module") == 0) strcpy(key, i->nodes[k].key);
    rp_inspection_free(i);
}

static void unknown(watched *w, const char *tenant, const char *schema, const char *says) {
    rp_error err = {0};
    rp_inspection *i;
    rp_result *r;
    char prompt[64];
    snprintf(prompt, sizeof(prompt), "<prompt schema='%s'/>", schema);
    rp_request q = request(NULL, prompt);
    q.tenant = tenant;
    assert_int_equal(rp_engine_run(w->engine, &q, &r, &err), RP_ERR_NAME);
    assert_string_equal(err.message + strcspn(err.message, " ") + 1, says); /* after the place in the prompt */
    assert_int_equal(rp_engine_inspect(w->engine, tenant, schema, NULL, NULL, &i, &err), RP_ERR_NAME);
    assert_string_equal(err.message, says);
    assert_int_equal(rp_schema_prefill(w->engine, tenant, schema, NULL, NULL, &err), RP_ERR_NAME);
    assert_string_equal(err.message, says);
}

static void a_tenants_schemas_are_named_to_it_alone(void **state) {
    (void)state;
    watched w;
    watched_open(&w, 0);
    load(w.engine, "<schema name='secret'><module name='m'>x</module></schema>", "a");
    load(w.engine, "<schema name='shared'><module name='m'>y</module></schema>",
         "a"); /* for "a" it hides the shared one */
    unknown(&w, "a", "none", "schema 'none' is not loaded (loaded: 'own', 'secret', 'shared')");
    unknown(&w, "b", "secret", "schema 'secret' is not loaded (loaded: 'own', 'shared')");
    unknown(&w, "c", "secret", "schema 'secret' is not loaded (loaded: 'shared')");
    unknown(&w, "c", "own", "schema 'own' is not loaded (loaded: 'shared')");
    unknown(&w, NULL, "own", "schema 'own' is not loaded (loaded: 'shared')");
    rp_engine_free(w.engine);
}

static void a_tenants_own_schema_goes_before_the_shared_one(void **state) {
    (void)state;
    static const char first[] = "<schema name='own'><module name='m'>first</module></schema>";
    char shared[17], a[17], b[17], c[17], again[17];
    watched w;
    watched_open(&w, 0);
    load(w.engine, first, NULL); /* besides those of "a" and "b" of that name */
    key_of(&w, "a", "own", a);
    key_of(&w, "b", "own", b);
    key_of(&w, "c", "own", c);
    key_of(&w, NULL, "own", shared);
    assert_string_equal(c, shared);
    assert_string_not_equal(a, shared);
    assert_string_not_equal(a, b);
    load(w.engine, first, "a"); /* replaces its own; the same text has another key there */
    key_of(&w, "a", "own", again);
    assert_string_not_equal(again, a);
    assert_string_not_equal(again, shared);
    key_of(&w, "b", "own", again);
    assert_string_equal(again, b);
    rp_engine_free(w.engine);
}

static void modules_are_computed_ahead_for_whom_it_is_asked(void **state) {
    (void)state;
    rp_request q = request(NULL, "<prompt schema='own'><m/> x</prompt>");
    watched w;
    watched_open(&w, 0);
    assert_int_equal(rp_schema_prefill(w.engine, "a", "own", NULL, NULL, NULL), RP_OK);
    rp_result *b = reported(&w, "b", &q), *a = reported(&w, "a", &q);
    assert_int_equal(b->cached_tokens, 0);
    assert_true(a->cached_tokens > 0);
    assert_int_equal(a->cached_tokens + 2, a->prompt_tokens);
    rp_result_free(a);
    rp_result_free(b);
    rp_engine_free(w.engine);
}

/* ---- names of tenants
   ------------------------------------------------------------------------------------------------ */

static void check_limit(int rc, const rp_error *err) {
    assert_int_equal(rc, RP_ERR_LIMIT);
    assert_string_equal(err->message, "the name of a tenant is 257 bytes long: give at most 256");
}

static void names_have_a_limit(void **state) {
    (void)state;
    char name[RP_MAX_TENANT_BYTES + 2];
    rp_error err;
    rp_result *r;
    rp_job *c;
    rp_inspection *i;
    watched w;
    watched_open(&w, 0);
    memset(name, '\x80', sizeof(name)); /* bytes, not text */
    name[RP_MAX_TENANT_BYTES + 1] = '\0';
    rp_request q = request("x", NULL);
    q.tenant = name;
    rp_schema_options o = {.struct_size = sizeof(o), .tenant = name};
    check_limit(rp_engine_run(w.engine, &q, &r, &err), &err);
    check_limit(rp_engine_submit(w.engine, &q, &c, &err), &err);
    check_limit(rp_schema_parse(w.engine, own_text, strlen(own_text), "s", NULL, &o, NULL, &err), &err);
    check_limit(rp_schema_prefill(w.engine, name, "own", NULL, NULL, &err), &err);
    check_limit(rp_engine_inspect(w.engine, name, "own", NULL, NULL, &i, &err), &err);
    name[RP_MAX_TENANT_BYTES] = '\0';
    load(w.engine, own_text, name);
    for (int k = 0; k < 2; k++) {
        q = request(NULL, "<prompt schema='own'><m/> x</prompt>");
        r = reported(&w, name, &q);
        assert_int_equal(r->cached_tokens > 0, k);
        rp_result_free(r);
    }
    name[RP_MAX_TENANT_BYTES - 1] = '\0'; /* another one with a common prefix */
    unknown(&w, name, "own", "schema 'own' is not loaded (loaded: 'shared')");
    rp_engine_free(w.engine);
}

/* ---- concurrency
 * ----------------------------------------------------------------------------------------------------- */

static rp_job *submit(watched *w, const char *tenant, const rp_request *q) {
    rp_request r = *q;
    rp_job *c;
    rp_error err;
    r.tenant = tenant;
    if (rp_engine_submit(w->engine, &r, &c, &err)) fail_msg("%s", err.message);
    return c;
}

/* Submits a request for each of two tenants while the engine is held. Returns the number of tokens computed for both;
 * *waits: the number of steps in which one of them waited. */
static int32_t run_together(watched *w, const char *const tenants[2], const rp_request *q, int32_t *waits) {
    gate g;
    rp_request hold = request("gate", NULL);
    rp_job *calls[2];
    int32_t fresh = 0;
    hold.max_tokens = 1;
    hold.tenant = "gate";
    gate_close(&g, w->engine, &hold);
    for (int i = 0; i < 2; i++) calls[i] = submit(w, tenants[i], q);
    forget_steps(w); /* the engine's thread, which reports them, is held */
    gate_open(&g);
    for (int i = 0; i < 2; i++) {
        rp_result *r;
        assert_int_equal(rp_job_result(calls[i], &r, NULL), RP_OK);
        fresh += r->fresh_tokens;
        rp_result_free(r);
        rp_job_free(calls[i]);
    }
    rp_job_free(g.call);
    *waits = 0;
    for (int32_t i = 0; i < w->n_steps; i++) *waits += w->steps[i].n_waiting > 0;
    return fresh;
}

static void check_together(const char *const tenants[2], const rp_request *q, bool shares_text, bool shares_modules) {
    int32_t alone, alone_modules, waits;
    watched w;
    watched_open(&w, 0);
    rp_result *r = reported(&w, "a", q);
    alone = r->prompt_tokens;
    alone_modules = w.rows[RP_STEP_MODULE];
    int32_t prefill = w.rows[RP_STEP_PREFILL];
    rp_result_free(r);
    rp_engine_free(w.engine);
    watched_open(&w, 0);
    int32_t fresh = run_together(&w, tenants, q, &waits);
    assert_int_equal(w.rows[RP_STEP_MODULE], shares_modules ? alone_modules : 2 * alone_modules);
    assert_int_equal(w.rows[RP_STEP_PREFILL], shares_text ? prefill + 1 : 2 * prefill);
    assert_true(shares_text ? waits > 0 : waits == 0);
    if (alone_modules == 0) assert_int_equal(fresh, shares_text ? alone + 1 : 2 * alone);
    rp_engine_free(w.engine);
}

static void tenants_do_not_wait_for_each_other(void **state) {
    (void)state;
    static const char *const two[] = {"a", "b"}, *const one[] = {"a", "a"};
    char *text = calls_text(3, 300);
    rp_request plain = request(text, NULL), own = request(NULL, "<prompt schema='own'><m/>" WORDS "</prompt>");
    rp_request shared = request(NULL, "<prompt schema='shared'><n/>" WORDS "</prompt>");
    check_together(one, &plain, true, true);
    check_together(two, &plain, false, true);
    check_together(one, &own, true, true);
    check_together(two, &own, false, false);
    check_together(one, &shared, true, true);
    check_together(two, &shared, false, true);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_its_tenants_alone),
        cmocka_unit_test(drafts_come_from_the_request_alone),
        cmocka_unit_test(what_stands_behind_an_edit_is_moved_for_its_tenant_alone),
        cmocka_unit_test(modules_of_a_tenants_schema_are_its_own),
        cmocka_unit_test(text_behind_shared_modules_is_its_tenants_alone),
        cmocka_unit_test(what_was_read_behind_other_modules_is_told_to_its_tenant_alone),
        cmocka_unit_test(that_something_was_dropped_is_told_to_its_tenant_alone),
        cmocka_unit_test(shared_modules_are_computed_once_for_all),
        cmocka_unit_test(the_operators_text_is_its_own),
        cmocka_unit_test(a_tenants_schemas_are_named_to_it_alone),
        cmocka_unit_test(a_tenants_own_schema_goes_before_the_shared_one),
        cmocka_unit_test(modules_are_computed_ahead_for_whom_it_is_asked),
        cmocka_unit_test(names_have_a_limit),
        cmocka_unit_test(tenants_do_not_wait_for_each_other),
    };
    return cmocka_run_group_tests_name("tenants", tests, open_model, close_model);
}
