/* SPDX-License-Identifier: Apache-2.0 */
/* test_keeping.c: retention as set by the owner: pins, TTL and quotas, through the public interface, in RAM, on disk
 * and after restarts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "support/oracle_run.h"
#include "support/shared_model.h"
#include "support/store_folder.h"
#include "reprise_store.h"

static const char schema_text[] = "<schema name='s'>Once <module name='kept' pin='true'>the river of the city</module>"
                                  "<module name='brief' ttl='1h'>the hills of the river</module><module name='plain'>a "
                                  "city and more</module></schema>";
#define N_TEXTS 40
#define MOST_FLOODS 8

static rp_engine *new_engine(const char *dir, uint64_t kv_bytes) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.n_ctx = 256;
    o.kv_budget_bytes = kv_bytes;
    o.store_dir = dir;
    o.store_write = RP_STORE_WRITE_THROUGH;
    rp_engine *e = open_engine(&o);
    load_schema(e, schema_text, "s");
    return e;
}

static int32_t run(rp_engine *e, rp_request q) {
    rp_result *r = NULL;
    rp_error err;
    q.max_tokens = 1;
    if (rp_engine_run(e, &q, &r, &err)) fail_msg("%s", err.message);
    int32_t cached = r->cached_tokens;
    rp_result_free(r);
    return cached;
}

static int32_t ask(rp_engine *e, const char *tenant, const char *prompt, const char *text) {
    rp_request q = rp_request_defaults();
    q.tenant = tenant;
    q.prompt = text ? rp_prompt_text(text) : rp_prompt_pml(prompt);
    return run(e, q);
}

/* n texts, each used once. */
static void flood(rp_engine *e, const char *tenant, int from, int n) {
    for (int i = from; i < from + n; i++) {
        char text[128];
        snprintf(text, sizeof(text), "%d hills, %d rivers and %d cities of the %d", i, 3 * i, 7 * i, 11 * i);
        ask(e, tenant, NULL, text);
    }
}

static rp_store_stats stats_of(rp_engine *e) {
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    rp_engine_store_stats(e, &stats);
    return stats;
}

/* A number from the index of a store that is not open. */
static int64_t query(const char *dir, const char *sql) {
    char path[STORE_FOLDER_BYTES + 16];
    sqlite3 *db;
    sqlite3_stmt *s;
    int64_t number = -1;
    snprintf(path, sizeof(path), "%s/index.db", dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    if (sqlite3_step(s) == SQLITE_ROW) number = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return number;
}

/* Was the module a hit? */
static bool finds(rp_engine *e, const char *module, int i) {
    char prompt[128];
    rp_request q = rp_request_defaults();
    rp_result *r = NULL;
    rp_error err;
    bool found = false;
    snprintf(prompt, sizeof(prompt), "<prompt schema='s'><%s/>%d</prompt>", module, i);
    q.prompt = rp_prompt_pml(prompt);
    q.max_tokens = 1;
    if (rp_engine_run(e, &q, &r, &err)) fail_msg("%s", err.message);
    for (int32_t k = 0; k < r->n_plan; k++)
        found |= strcmp(r->plan[k].module, module) == 0 && strcmp(r->plan[k].tier, "ram") == 0;
    rp_result_free(r);
    return found;
}

/* Two modules of the same size, each used once; then twice as many texts each time, until the other one is evicted:
 * slow KV has a higher priority. */
static void a_pinned_module_stays(void **state) {
    (void)state;
    rp_engine *e = new_engine(NULL, 0);
    ask(e, NULL, "<prompt schema='s'><kept/></prompt>", NULL);
    uint64_t one = stats_of(e).bytes / (uint64_t)stats_of(e).spans;
    rp_engine_free(e);
    e = new_engine(NULL, 24 * one);
    assert_false(finds(e, "kept", 0));
    bool plain = !finds(e, "plain", 0);
    for (int i = 0, n = 0; i < MOST_FLOODS && plain; n += N_TEXTS << i++) {
        flood(e, NULL, n, N_TEXTS << i);
        plain = finds(e, "plain", i + 1);
        assert_true(finds(e, "kept", i + 1));
    }
    assert_false(plain);
    rp_engine_free(e);
}

static void pins_and_times_outlive_a_restart(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    store_folder_make(dir);
    rp_engine *e = new_engine(dir, 0);
    ask(e, NULL, "<prompt schema='s'><kept/><brief/></prompt>", NULL);
    rp_engine_free(e);
    assert_int_equal(query(dir, "SELECT count(*) FROM records WHERE pinned AND label = 's/kept'"), 1);
    assert_int_equal(query(dir, "SELECT count(*) FROM records WHERE pinned AND label <> 's/kept'"), 0);
    assert_int_equal(query(dir, "SELECT expires - last_use FROM records WHERE label = 's/brief'"), 3600);
    assert_int_equal(query(dir, "SELECT count(*) FROM records WHERE expires <> 0 AND label <> 's/brief'"), 0);

    query(
        dir,
        /* half an hour later */
        "UPDATE records SET last_use = last_use - 1800, expires = expires - 1800 WHERE expires <> 0");
    e = new_engine(dir, 0);
    int32_t all = ask(e, NULL, "<prompt schema='s'><kept/><brief/>2</prompt>", NULL);
    assert_int_equal(stats_of(e).expired, 0);
    rp_engine_free(e);
    assert_int_equal(query(dir, "SELECT expires - last_use FROM records WHERE label = 's/brief'"), 3600); /* renewed */

    query(
        dir,
        /* two hours later */
        "UPDATE records SET last_use = last_use - 7200, expires = expires - 7200 WHERE expires <> 0");
    e = new_engine(dir, 0);
    assert_true(ask(e, NULL, "<prompt schema='s'><kept/><brief/>3</prompt>", NULL) < all);
    assert_int_equal(stats_of(e).expired, 1);
    rp_engine_free(e);
    assert_int_equal(query(dir, "SELECT count(*) FROM records WHERE label = 's/brief'"), 1); /* recomputed, kept */
    store_folder_remove(dir);
}

/* Tenant a has a quota and many texts; b has one text, which is kept. */
static void a_quota_holds_in_both_tiers(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    store_folder_make(dir);
    rp_engine *e = new_engine(dir, 0);
    assert_int_equal(ask(e, "b", NULL, "the river of the city"), 0);
    rp_store_stats one = stats_of(e);
    rp_quota quota = {.kv_bytes = 6 * one.bytes, .store_bytes = 4 * one.disk_bytes};
    rp_error err;
    assert_int_equal(rp_engine_set_quota(e, "a", &quota, &err), RP_OK);
    flood(e, "a", 0, N_TEXTS);
    assert_true(stats_of(e).bytes <= quota.kv_bytes + one.bytes);
    assert_true(stats_of(e).disk_bytes <= quota.store_bytes + one.disk_bytes);
    assert_true(stats_of(e).disk_evictions > 0 && stats_of(e).disk_spans > one.disk_spans);
    rp_engine_free(e);
    assert_true(query(dir, "SELECT count(DISTINCT tenant) FROM records") == 2);

    e = new_engine(dir, 0); /* records keep their tenant over a restart */
    quota.store_bytes = 2 * one.disk_bytes;
    assert_int_equal(rp_engine_set_quota(e, "a", &quota, &err), RP_OK);
    flood(e, "a", N_TEXTS, N_TEXTS);
    assert_true(stats_of(e).disk_bytes <= quota.store_bytes + one.disk_bytes);
    assert_true(ask(e, "b", NULL, "the river of the city") > 0);
    rp_engine_free(e);
    store_folder_remove(dir);
}

static void a_quota_needs_a_tenant_that_can_be(void **state) {
    (void)state;
    char name[RP_MAX_TENANT_BYTES + 2];
    rp_engine *e = new_engine(NULL, 0);
    rp_error err;
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(rp_engine_set_quota(e, name, &(rp_quota){0}, &err), RP_ERR_LIMIT);
    assert_int_equal(rp_engine_set_quota(e, NULL, &(rp_quota){.kv_bytes = 1}, &err), RP_OK);
    ask(e, NULL, "<prompt schema='s'><plain/></prompt>", NULL); /* the next request does not depend on it */
    rp_engine_free(e);
}

/* ---- sessions, retention, and requests that add nothing ---- */

static const char conversation[] = "Once the river of the city and the hills of the river, a city and more";

/* A, then n texts, each used once, then A again, in RAM for 12 spans: its cached tokens. */
static int32_t after_flood(rp_request a, int n) {
    rp_engine *e = new_engine(NULL, 0);
    ask(e, NULL, NULL, conversation);
    const uint64_t one = stats_of(e).bytes / (uint64_t)stats_of(e).spans;
    rp_engine_free(e);
    e = new_engine(NULL, 12 * one);
    ask(e, NULL, NULL, "of"); /* the first token of all: else the others would depend on A's span */
    a.prompt = rp_prompt_text(conversation);
    run(e, a);
    flood(e, NULL, 0, n);
    const int32_t cached = ask(e, NULL, NULL, conversation);
    rp_engine_free(e);
    return cached;
}

/* "A, 32 documents, A again" in RAM alone, after one turn. */
static void a_conversation_outlives_one_off_prompts(void **state) {
    (void)state;
    rp_request a = rp_request_defaults();
    const int32_t nothing = after_flood(a, 32), all = after_flood(a, 0);
    assert_true(nothing < all / 2);
    a.session = "a";
    assert_int_equal(after_flood(a, 32), all);
    a.session = NULL;
    a.retain_s = 300;
    assert_int_equal(after_flood(a, 32), all);
    assert_int_equal(after_flood(a, 400), all); /* it does not age while it is kept */
    a.session = "a";
    a.retain_s = 0;
    a.ends_session = true;
    assert_true(after_flood(a, 32) < all / 2);
}

/* What is kept takes half of the budget at most: as many kept texts as fit twice do not push out one another's half,
 * and a text that asks for nothing is a hit afterwards. */
static void what_is_kept_leaves_half_of_the_budget(void **state) {
    (void)state;
    rp_engine *e = new_engine(NULL, 0);
    ask(e, NULL, NULL, conversation);
    const uint64_t one = stats_of(e).bytes / (uint64_t)stats_of(e).spans;
    rp_engine_free(e);
    e = new_engine(NULL, 24 * one);
    rp_request q = rp_request_defaults();
    char texts[48][96];
    q.retain_s = 3600;
    for (int i = 0; i < 48; i++) {
        snprintf(texts[i], sizeof(texts[i]), "%d cities and %d hills of a river", i, 17 * i);
        q.prompt = rp_prompt_text(texts[i]);
        run(e, q);
    }
    flood(e, NULL, 0, 6);
    flood(e, NULL, 5, 1);
    const uint64_t hits = stats_of(e).hits;
    flood(e, NULL, 5, 1);
    assert_true(stats_of(e).hits > hits);
    flood(e, NULL, 100, 60);
    int kept = 0;
    for (int i = 0; i < 48; i++) {
        q = rp_request_defaults();
        q.prompt = rp_prompt_text(texts[i]);
        q.adds_nothing = true;
        kept += run(e, q) > 4;
    }
    assert_true(kept >= 6 && kept <= 13);
    rp_engine_free(e);
}

static void a_request_can_read_and_add_nothing(void **state) {
    (void)state;
    rp_engine *e = new_engine(NULL, 0);
    rp_request q = rp_request_defaults();
    const int32_t all = (ask(e, NULL, NULL, conversation), ask(e, NULL, NULL, conversation));
    const rp_store_stats before = stats_of(e);
    q.prompt = rp_prompt_text("Once the river of the city and the hills of the river, a city and more of the hills and "
                              "the rivers and cities");
    q.adds_nothing = true;
    assert_true(run(e, q) >= all);
    const int32_t again = run(e, q);
    assert_true(again >= all && again < all + 4); /* nothing of the first run */
    assert_int_equal(stats_of(e).spans, before.spans);
    assert_int_equal(stats_of(e).inserts, before.inserts);
    q.adds_nothing = false;
    run(e, q);
    assert_true(run(e, q) > again);
    rp_engine_free(e);
}

static void names_of_sessions_are_limited(void **state) {
    (void)state;
    static char name[RP_MAX_SESSION_BYTES + 2];
    rp_engine *e = new_engine(NULL, 0);
    rp_request q = rp_request_defaults();
    rp_result *r = NULL;
    rp_error err;
    memset(name, 'x', sizeof(name) - 1);
    q.prompt = rp_prompt_text(conversation);
    q.session = name;
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_LIMIT);
    q.session = NULL;
    q.retain_s = -1;
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_INVALID);
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pinned_module_stays),
        cmocka_unit_test(pins_and_times_outlive_a_restart),
        cmocka_unit_test(a_quota_holds_in_both_tiers),
        cmocka_unit_test(a_quota_needs_a_tenant_that_can_be),
        cmocka_unit_test(a_conversation_outlives_one_off_prompts),
        cmocka_unit_test(what_is_kept_leaves_half_of_the_budget),
        cmocka_unit_test(a_request_can_read_and_add_nothing),
        cmocka_unit_test(names_of_sessions_are_limited),
    };
    return cmocka_run_group_tests_name("keeping", tests, open_model, close_model);
}
