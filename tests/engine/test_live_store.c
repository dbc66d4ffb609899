/* SPDX-License-Identifier: Apache-2.0 */
/* test_live_cache.c: an operator lists and changes the cache of a running engine: selections, order and limits; pins
 * and TTLs that survive a restart; removed entries are computed again, and KV held by a running job stays valid.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "engine/core/commands.h"
#include "engine/core/engine_state.h"
#include "store/span_store.h"
#include "support/gate.h"
#include "support/oracle_run.h"
#include "support/shared_model.h"
#include "support/store_folder.h"
#include "reprise_store.h"

/* The functions of reprise_store.h on the store of an engine; *n (may be NULL) counts the changed entries. */
static rp_store *live_attach(rp_engine *e) {
    rp_store *store;
    assert_int_equal(rp_store_attach(&store, e, NULL), RP_OK);
    return store;
}

static int live_list(rp_engine *e, const rp_store_selection *s, const rp_store_page *page, rp_store_listing **out,
                     rp_error *err) {
    rp_store *store = live_attach(e);
    int rc = rp_store_list(store, s, page, out, err);
    rp_store_close(store);
    return rc;
}

static void live_count(rp_store *store, rp_store_listing *changed, size_t *n) {
    if (n) *n = changed ? changed->n_entries : 0;
    rp_store_listing_free(changed);
    rp_store_close(store);
}

static int live_pin(rp_engine *e, const rp_store_selection *s, bool pinned, size_t *n, rp_error *err) {
    rp_store *store = live_attach(e);
    rp_store_listing *changed = NULL;
    int rc = rp_store_pin(store, s, pinned, n ? &changed : NULL, err);
    for (size_t i = 0; changed && i < changed->n_entries; i++) assert_int_equal(changed->entries[i].pinned, pinned);
    live_count(store, changed, n);
    return rc;
}

static int live_set_ttl(rp_engine *e, const rp_store_selection *s, int64_t ttl_s, size_t *n, rp_error *err) {
    rp_store *store = live_attach(e);
    rp_store_listing *changed = NULL;
    int rc = rp_store_set_ttl(store, s, ttl_s, n ? &changed : NULL, err);
    for (size_t i = 0; changed && i < changed->n_entries; i++)
        assert_int_equal(changed->entries[i].expires > 0, ttl_s > 0);
    live_count(store, changed, n);
    return rc;
}

static int live_remove(rp_engine *e, const rp_store_selection *s, size_t *n, rp_error *err) {
    rp_store *store = live_attach(e);
    rp_store_listing *removed = NULL;
    int rc = rp_store_remove(store, s, n ? &removed : NULL, err);
    for (size_t i = 0; removed && i < removed->n_entries; i++) assert_non_null(removed->entries[i].label);
    live_count(store, removed, n);
    return rc;
}

static const char schema_text[] = "<schema name='s'>Once <module name='one'>the river of the city</module>"
                                  "<module name='two'>the hills of the river</module></schema>";
static const char both[] = "<prompt schema='s'><one/><two/> and a word</prompt>";
static const rp_store_selection all = {.all = true};

static rp_engine *new_engine(const char *dir, bool read_only) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.n_ctx = 1024;
    o.store_dir = dir;
    o.store_read_only = read_only;
    o.store_write = RP_STORE_WRITE_THROUGH;
    rp_engine *e = open_engine(&o);
    load_schema(e, schema_text, "s");
    return e;
}

static rp_request request(const char *prompt, const char *text) {
    rp_request q = rp_request_defaults();
    q.prompt = text ? rp_prompt_text(text) : rp_prompt_pml(prompt);
    q.max_tokens = 4;
    q.ignore_eos = true;
    return q;
}

static int32_t cached(rp_engine *e, const char *prompt, const char *text) {
    rp_request q = request(prompt, text);
    rp_result *r = tiny_model_answer(e, &q);
    int32_t n = r->cached_tokens;
    rp_result_free(r);
    return n;
}

static rp_store_listing *list(rp_engine *e, const rp_store_selection *s, const rp_store_page *page) {
    rp_store_listing *l;
    rp_error err;
    if (live_list(e, s, page, &l, &err)) fail_msg("%s", err.message);
    return l;
}

/* The entry of a module; its label is not checked. */
static rp_store_entry entry_of(rp_engine *e, const char *label) {
    rp_store_listing *l = list(e, &(rp_store_selection){.name = label}, NULL);
    assert_int_equal(l->n_entries, 1);
    rp_store_entry entry = l->entries[0];
    assert_string_equal(entry.label, label);
    rp_store_listing_free(l);
    return entry;
}

static size_t count(rp_engine *e, const rp_store_selection *s) {
    rp_store_listing *l = list(e, s, NULL);
    size_t n = l->n_entries;
    rp_store_listing_free(l);
    return n;
}

static void fill(rp_engine *e) {
    cached(e, both, NULL);
    for (int i = 0; i < 5; i++) {
        char text[600] = "";
        snprintf(text, sizeof(text), "%d rivers", i);
        for (int k = 0; k < 30 * i; k++) strcat(text, " of");
        cached(e, NULL, text);
    }
}

static void entries_are_listed_in_pages(void **state) {
    (void)state;
    rp_engine *e = new_engine(NULL, false);
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    uint64_t bytes = 0, last = UINT64_MAX;
    fill(e);
    rp_store_listing *l = list(e, &all, NULL);
    rp_engine_store_stats(e, &stats);
    assert_int_equal(l->n_entries, stats.spans);
    assert_false(l->has_more);
    for (size_t i = 0; i < l->n_entries; i++) {
        const rp_store_entry *x = &l->entries[i];
        if (i > 0) assert_true(strcmp(l->entries[i - 1].key, x->key) < 0);
        assert_true(x->in_ram && !x->on_disk && !x->in_use && !x->pinned && x->n_tokens > 0 && x->uses > 0 &&
                    x->last_use > 0);
        assert_true((x->kind == RP_STORE_MODULE) == (x->label[0] != '\0'));
        assert_int_equal(x->bytes, x->ram_bytes);
        bytes += x->bytes;
    }
    assert_int_equal(bytes, stats.bytes);
    size_t n = 0;
    char after[65] = "";
    for (bool more = true; more;) { /* two at a time */
        rp_store_listing *page = list(e, &all, &(rp_store_page){.limit = 2, .after = after[0] ? after : NULL});
        for (size_t i = 0; i < page->n_entries; i++) assert_string_equal(page->entries[i].key, l->entries[n++].key);
        more = page->has_more;
        snprintf(after, sizeof(after), "%s", page->entries[page->n_entries - 1].key);
        rp_store_listing_free(page);
    }
    assert_int_equal(n, l->n_entries);
    rp_store_listing *large = list(e, NULL, &(rp_store_page){.order = RP_STORE_BY_BYTES, .limit = 3});
    assert_true(large->n_entries == 3 && large->has_more);
    for (size_t i = 0; i < 3; last = large->entries[i++].bytes) assert_true(large->entries[i].bytes <= last);
    for (size_t i = 0, above = 0; i < l->n_entries; i++) {
        above += l->entries[i].bytes > last;
        assert_true(above <= 3);
    }
    rp_store_listing_free(large);
    rp_store_listing_free(l);
    rp_engine_free(e);
}

static void selections_name_what_is_meant(void **state) {
    (void)state;
    rp_engine *e = new_engine(NULL, false);
    rp_store_listing *l;
    rp_error err;
    fill(e);
    rp_store_entry one = entry_of(e, "s/one");
    assert_int_equal(count(e, &(rp_store_selection){.key = one.key}), 1);
    assert_true(count(e, &(rp_store_selection){.name = "s"}) >= 3);
    assert_int_equal(count(e, &(rp_store_selection){.modules = true}), count(e, &(rp_store_selection){.name = "s"}));
    assert_int_equal(count(e, &(rp_store_selection){.modules = true}) + count(e, &(rp_store_selection){.texts = true}),
                     count(e, &all));
    assert_int_equal(count(e, &(rp_store_selection){.expired = true}), 0);
    assert_int_equal(live_list(e, &(rp_store_selection){.name = "s/on"}, NULL, &l, &err), RP_ERR_NAME);
    assert_null(l);
    assert_int_equal(live_list(e, &(rp_store_selection){.key = "00000000000"}, NULL, &l, &err), RP_ERR_NAME);
    const rp_store_selection wrong[] = {{0}, {.key = "xyz0"}, {.key = "abc"}, {.model = "abcd"}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_int_equal(live_list(e, &wrong[i], NULL, &l, &err), RP_ERR_INVALID);
        assert_int_equal(live_remove(e, &wrong[i], NULL, &err), RP_ERR_INVALID);
    }
    const rp_store_page pages[] = {{.limit = RP_STORE_MAX_LISTED + 1},
                                   {.after = "abcd"},
                                   {.after = one.key, .order = RP_STORE_BY_BYTES},
                                   {.order = (rp_store_order)2}};
    for (size_t i = 0; i < sizeof(pages) / sizeof(*pages); i++)
        assert_int_equal(live_list(e, &all, &pages[i], &l, &err), RP_ERR_INVALID);
    assert_int_equal(live_pin(e, NULL, true, NULL, &err), RP_ERR_INVALID);
    assert_int_equal(live_set_ttl(e, &all, -1, NULL, &err), RP_ERR_INVALID);
    assert_int_equal(live_pin(e, &(rp_store_selection){.texts = true}, true, NULL, &err), RP_ERR_INVALID);
    rp_engine_free(e);
}

static void what_is_said_holds_over_a_restart(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    rp_store_listing *l;
    rp_error err;
    size_t n = 0;
    store_folder_make(dir);
    rp_engine *e = new_engine(dir, false);
    fill(e);
    assert_int_equal(live_pin(e, &(rp_store_selection){.name = "s/one"}, true, &n, &err), RP_OK);
    assert_int_equal(n, 1);
    assert_int_equal(live_set_ttl(e, &(rp_store_selection){.name = "s/two"}, 1000, &n, &err), RP_OK);
    rp_store_entry one = entry_of(e, "s/one"), two = entry_of(e, "s/two");
    assert_true(one.pinned && one.on_disk && one.in_ram && one.bytes > one.ram_bytes && one.expires == 0);
    assert_true(!two.pinned && two.expires >= two.last_use + 1000);
    rp_engine_free(e);
    e = new_engine(dir, true); /* its index, which has pins and times, is not open */
    one = entry_of(e, "s/one");
    assert_true(one.on_disk && !one.in_ram);
    assert_int_equal(one.ram_bytes, 0);
    assert_int_equal(live_list(e, &all, NULL, &l, &err), RP_OK);
    rp_store_listing_free(l);
    assert_int_equal(live_remove(e, &all, &n, &err), RP_ERR_CONFLICT);
    assert_int_equal(live_pin(e, &all, true, &n, &err), RP_ERR_CONFLICT);
    rp_engine_free(e);
    e = new_engine(dir, false);
    assert_true(entry_of(e, "s/one").pinned);
    assert_int_equal(entry_of(e, "s/two").expires, two.expires);
    assert_int_equal(live_pin(e, &(rp_store_selection){.key = one.key}, false, &n, &err), RP_OK);
    assert_int_equal(live_set_ttl(e, &(rp_store_selection){.key = two.key}, 0, &n, &err), RP_OK);
    assert_true(!entry_of(e, "s/one").pinned && entry_of(e, "s/two").expires == 0);
    rp_engine_free(e);
    e = new_engine(dir, false);
    assert_true(!entry_of(e, "s/one").pinned && entry_of(e, "s/two").expires == 0);
    assert_true(cached(e, both, NULL) > 0);
    assert_int_equal(live_remove(e, &all, &n, &err), RP_OK);
    assert_true(n > 2);
    assert_int_equal(count(e, &all), 0);
    assert_int_equal(cached(e, both, NULL), 0);
    rp_engine_free(e);
    store_folder_remove(dir);
}

/* ---- expired entries ---- */

typedef struct holder {
    rp_engine *e;
    atomic_bool begun;
} holder;

static int64_t in_an_hour(void) { return (int64_t)time(NULL) + 3600; }

/* The engine's thread: waits for the next command, which then meets the store an hour later; the engine removes expired
 * entries after its commands. */
static void hold_until_a_command(rp_engine *e, void *arg) {
    atomic_store(&((holder *)arg)->begun, true);
    for (bool is_next = false; !is_next; sched_yield()) {
        pthread_mutex_lock(&e->lock);
        is_next = e->commands->queued != NULL;
        pthread_mutex_unlock(&e->lock);
    }
    span_store_set_clock(e->store, in_an_hour);
}

static void *hold(void *arg) {
    holder *h = arg;
    if (engine_do(h->e, hold_until_a_command, h, NULL)) abort();
    return NULL;
}

/* A changed entry is listed as it is after the change: neither a pinned nor a renewed one has expired. */
static void changes_renew_what_has_expired(void **state) {
    (void)state;
    for (int pins = 0; pins < 2; pins++) {
        const rp_store_selection over = {.expired = true};
        holder h = {.e = new_engine(NULL, false)};
        pthread_t thread;
        rp_store_listing *changed;
        rp_error err;
        size_t n;
        cached(h.e, both, NULL);
        assert_int_equal(live_set_ttl(h.e, &(rp_store_selection){.name = "s/one"}, 60, &n, &err), RP_OK);
        rp_store *store = live_attach(h.e);
        assert_int_equal(pthread_create(&thread, NULL, hold, &h), 0);
        while (!atomic_load(&h.begun)) sched_yield();
        if (pins) assert_int_equal(rp_store_pin(store, &over, true, &changed, &err), RP_OK);
        else assert_int_equal(rp_store_set_ttl(store, &over, 7200, &changed, &err), RP_OK);
        assert_int_equal(changed->n_entries, 1); /* it had expired */
        assert_string_equal(changed->entries[0].label, "s/one");
        assert_int_equal(changed->entries[0].pinned, pins);
        assert_false(changed->entries[0].expired);
        assert_int_equal(count(h.e, &over), 0);
        assert_false(entry_of(h.e, "s/one").expired);
        pthread_join(thread, NULL);
        rp_store_listing_free(changed);
        rp_store_close(store);
        rp_engine_free(h.e);
    }
}

/* Everything that a decoding job holds is removed: the job continues unchanged, other jobs miss, and its end frees the
 * memory. */
static void what_is_held_stays_valid(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    rp_error err;
    store_folder_make(dir);
    for (int with_disk = 0; with_disk < 2; with_disk++) {
        rp_engine *e = new_engine(with_disk ? dir : NULL, false);
        rp_request q = request(both, NULL);
        q.max_tokens = 200;
        rp_result *before = tiny_model_answer(e, &q), *held, *after;
        size_t n;
        gate g;
        q.max_tokens = 20;
        gate_close(&g, e, &q); /* held at its first token; the command waits until after that step */
        gate_open(&g);
        assert_int_equal(live_remove(e, &all, &n, &err), RP_OK);
        assert_true(n > 2);
        if (rp_job_result(g.call, &held, &err)) fail_msg("%s", err.message);
        rp_job_free(g.call);
        assert_true(held->cached_tokens > 0);
        assert_memory_equal(held->tokens, before->tokens, 20 * sizeof(*held->tokens));
        assert_int_equal(live_remove(e, &all, &n, &err), RP_OK); /* entries inserted by the job meanwhile */
        assert_int_equal(count(e, &all), 0);
        q.max_tokens = 200;
        after = tiny_model_answer(e, &q);
        assert_int_equal(after->cached_tokens, 0);
        assert_int_equal(after->n_tokens, before->n_tokens);
        assert_memory_equal(after->tokens, before->tokens, (size_t)before->n_tokens * sizeof(*before->tokens));
        assert_int_equal(cached(e, both, NULL), after->prompt_tokens - 1); /* kept again */
        rp_result_free(before);
        rp_result_free(held);
        rp_result_free(after);
        rp_engine_free(e);
    }
    store_folder_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_listed_in_pages),
        cmocka_unit_test(selections_name_what_is_meant),
        cmocka_unit_test(what_is_said_holds_over_a_restart),
        cmocka_unit_test(what_is_held_stays_valid),
        cmocka_unit_test(changes_renew_what_has_expired),
    };
    return cmocka_run_group_tests_name("live cache", tests, open_model, close_model);
}
