/* SPDX-License-Identifier: Apache-2.0 */
/* test_pool.c: several engines with one pool (docs/cluster.md), in a folder: what one has computed is a hit for the
 * others, byte for byte: modules, text, text that begins as their own does; each tenant's for itself alone. A pool that
 * is absent, or altered in every object, is a miss.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/store_folder.h"
#include "support/tiny_model.h"
#include "reprise_cluster.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "reprise_test.h"

#define N_TOKENS 700
#define WAIT_US 20000000

static const uint8_t secret[RP_CLUSTER_KEY_BYTES] = {9, 8, 7}, other_secret[RP_CLUSTER_KEY_BYTES] = {9, 8, 6};
static const char schema_text[] =
    "<schema name='s'>You are a guide of few words, who knows every street and every bus of the town by its number.\n"
    "<module name='plan'>Plan a trip with a walk along the river, a museum, a market, and a late dinner near the "
    "harbour, where boats come in with fish until midnight.</module><module name='diet'>No meat, no fish, and nothing "
    "that was fried in the fat of either of them, as the doctor has said more than once.</module></schema>";
static const char prompt_text[] = "<prompt schema='s'><plan/><diet/><user>Where do I eat?</user></prompt>";

static rp_model *model;
static int32_t tokens[N_TOKENS];

static int setup(void **state) {
    tiny_model_shape shape = tiny_model_defaults();
    (void)state;
    shape.n_ctx = 4096;
    model = tiny_model_open(&shape, NULL);
    for (int32_t i = 0; i < N_TOKENS; i++) tokens[i] = 20 + i * 7919 % 400;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    rp_model_close(model);
    return 0;
}

/* address NULL: no pool. */
static rp_engine *engine_at(const char *address, const uint8_t *key) {
    rp_cluster_options cluster = {.struct_size = sizeof(cluster), .key = key};
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e = NULL;
    rp_error err = {0};
    cluster.pool = address;
    const rp_engine_experiment experiment = {.struct_size = sizeof(experiment), .pool_at_any_cost = true};
    o.cluster = &cluster;
    o.experiment = &experiment;
    o.n_threads = 1;
    o.n_ctx = 4096;
    must(rp_engine_new(&e, model, &o, &err), &err);
    must(rp_schema_parse(e, schema_text, strlen(schema_text), "s.xml", NULL, NULL, NULL, &err), &err);
    return e;
}

/* dir NULL: no pool. */
static rp_engine *engine_with(const char *dir, const uint8_t *key) {
    char address[STORE_FOLDER_BYTES + 4];
    snprintf(address, sizeof(address), "dir:%s", dir ? dir : "");
    return engine_at(dir ? address : NULL, key);
}

static rp_store_stats stats_of(rp_engine *e) {
    rp_store_stats s = {.struct_size = sizeof(s)};
    rp_engine_store_stats(e, &s);
    return s;
}

/* Text of n tokens, the last of which are `last`. */
static rp_request text_request(int32_t *own, int32_t n, int32_t last, const char *tenant) {
    memcpy(own, tokens, (size_t)n * sizeof(*own));
    own[n - 1] = last;
    rp_request r = rp_request_defaults();
    r.prompt = rp_prompt_tokens(own, (size_t)n);
    r.max_tokens = 8;
    r.tenant = tenant;
    return r;
}

static rp_request pml_request(void) {
    rp_request r = rp_request_defaults();
    r.prompt = rp_prompt_pml(prompt_text);
    r.max_tokens = 8;
    return r;
}

static oracle_run run_on(rp_engine *e, const rp_request *r) {
    oracle_run run;
    oracle_run_make(&run, e, r);
    if (run.rc) fail_msg("%s", run.err.message);
    return run;
}

/* The same request without a pool and a cache. */
static oracle_run cold_run(const rp_request *r) {
    rp_engine *e = engine_with(NULL, secret);
    oracle_run run = run_on(e, r);
    rp_engine_free(e);
    return run;
}

/* A short request: figures are those of the last step. */
static void run_step(rp_engine *e) {
    rp_request r = rp_request_defaults();
    r.prompt = rp_prompt_tokens(tokens, 2);
    r.max_tokens = 1;
    oracle_run run = run_on(e, &r);
    oracle_run_free(&run);
    base_rest_us(2000);
}

/* Waits until so many spans were pushed. */
static void await_writes(rp_engine *e, uint64_t n) {
    const uint64_t end = base_clock_us() + WAIT_US;
    while (stats_of(e).pool_writes < n && base_clock_us() < end) run_step(e);
    if (stats_of(e).pool_writes < n) fail_msg("%d spans were pushed", (int)stats_of(e).pool_writes);
}

static int32_t tokens_of_tier(const oracle_run *run, const char *tier) {
    int32_t n = 0;
    for (int32_t i = 0; i < run->result->n_plan; i++) {
        const rp_plan_item *item = &run->result->plan[i];
        if (item->is_view && strcmp(item->tier, tier) == 0) n += item->n_tokens;
    }
    return n;
}

static void check_same(const oracle_run *cold, const oracle_run *run) {
    if (oracle_run_same(cold, run)) return;
    oracle_run_print(run, NULL);
    fail_msg("an answer differs from one without a pool");
}

/* ---- hits ---- */

static void modules_of_one_engine_are_hits_of_another(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    store_folder_make(dir);
    rp_request r = pml_request();
    oracle_run cold = cold_run(&r);
    rp_engine *a = engine_with(dir, secret);
    oracle_run first = run_on(a, &r);
    check_same(&cold, &first);
    assert_int_equal(tokens_of_tier(&first, "pool"), 0);
    await_writes(a, 3); /* the anonymous text and two modules */
    rp_engine *b = engine_with(dir, secret);
    oracle_run second = run_on(b, &r);
    check_same(&cold, &second);
    assert_true(tokens_of_tier(&second, "pool") > 60);
    assert_int_equal(stats_of(b).pool_reads, 3);
    assert_int_equal(stats_of(b).pool_faults, 0);
    oracle_run third = run_on(b, &r); /* from its own memory */
    check_same(&cold, &third);
    assert_int_equal(tokens_of_tier(&third, "pool"), 0);
    assert_int_equal(stats_of(b).pool_reads, 3);
    oracle_run_free(&cold);
    oracle_run_free(&first);
    oracle_run_free(&second);
    oracle_run_free(&third);
    rp_engine_free(a);
    rp_engine_free(b);
    store_folder_remove(dir);
}

/* Fills the pool with a text of n tokens, which is used twice. */
static void fill_text(const char *dir, int32_t n, const char *tenant) {
    int32_t own[N_TOKENS];
    rp_engine *a = engine_with(dir, secret);
    for (int k = 0; k < 2; k++) {
        rp_request r = text_request(own, n, 30 + k, tenant);
        oracle_run run = run_on(a, &r);
        oracle_run_free(&run);
    }
    await_writes(a, (uint64_t)(n - 1) / 256);
    rp_engine_free(a); /* completes the pushes */
}

static void text_that_was_used_twice_is_a_hit_elsewhere(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    int32_t own[N_TOKENS];
    store_folder_make(dir);
    fill_text(dir, N_TOKENS, NULL);
    rp_request r = text_request(own, N_TOKENS, 77, NULL);
    oracle_run cold = cold_run(&r);
    rp_engine *b = engine_with(dir, secret);
    oracle_run run = run_on(b, &r);
    check_same(&cold, &run);
    assert_true(tokens_of_tier(&run, "pool") >= 512);
    oracle_run_free(&cold);
    oracle_run_free(&run);
    rp_engine_free(b);
    store_folder_remove(dir);
}

/* The other engine has a text of its own, which begins with the same tokens: what it pulls goes on from there. */
static void pulled_text_continues_what_is_there(void **state) {
    (void)state;
    static const int32_t common[] = {10, 64, 100, 255, 256, 257, 300, 500, 600};
    int32_t own[N_TOKENS], begun[N_TOKENS];
    char dir[STORE_FOLDER_BYTES];
    store_folder_make(dir);
    fill_text(dir, N_TOKENS, NULL);
    rp_request r = text_request(own, N_TOKENS, 77, NULL);
    oracle_run cold = cold_run(&r);
    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++) {
        rp_engine *b = engine_with(dir, secret);
        rp_request alone = text_request(begun, common[i] + 40, 5, NULL);
        for (int32_t k = common[i]; k < common[i] + 40; k++) begun[k] = 401 + k % 50;
        oracle_run before = run_on(b, &alone);
        oracle_run run = run_on(b, &r);
        check_same(&cold, &run);
        const int32_t n = tokens_of_tier(&run, "pool") + tokens_of_tier(&run, "ram");
        if (n < 512) fail_msg("%d of 700 tokens were found after %d common ones", n, common[i]);
        oracle_run_free(&before);
        oracle_run_free(&run);
        rp_engine_free(b);
    }
    oracle_run_free(&cold);
    store_folder_remove(dir);
}

/* ---- tenants and secrets ---- */

static void no_other_tenant_and_no_other_secret_finds_it(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    int32_t own[N_TOKENS];
    store_folder_make(dir);
    fill_text(dir, N_TOKENS, "alice");
    static const char *const tenants[] = {"alice", "bob", NULL};
    for (int i = 0; i < 3; i++) {
        rp_request r = text_request(own, N_TOKENS, 77, tenants[i]);
        rp_engine *b = engine_with(dir, secret), *c = engine_with(dir, other_secret);
        oracle_run of_b = run_on(b, &r), of_c = run_on(c, &r);
        assert_int_equal(stats_of(b).pool_reads > 0, i == 0);
        assert_int_equal(tokens_of_tier(&of_b, "pool") > 0, i == 0);
        assert_int_equal(stats_of(c).pool_reads, 0);
        check_same(&of_c, &of_b);
        oracle_run_free(&of_b);
        oracle_run_free(&of_c);
        rp_engine_free(b);
        rp_engine_free(c);
    }
    store_folder_remove(dir);
}

/* ---- a pool that lies, or is not there ---- */

typedef void (*file_fn)(const char *path);

static void each_file(const char *dir, file_fn fn) {
    char folder[STORE_FOLDER_BYTES + 64], path[STORE_FOLDER_BYTES + 256];
    DIR *d = opendir(dir);
    for (const struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(folder, sizeof(folder), "%s/%.2s", dir, e->d_name);
        DIR *sub = opendir(folder);
        for (const struct dirent *f; (f = readdir(sub));) {
            if (f->d_name[0] == '.') continue;
            snprintf(path, sizeof(path), "%s/%.70s", folder, f->d_name);
            fn(path);
        }
        closedir(sub);
    }
    closedir(d);
}

static double altered_at; /* as a share of a file */

static void flip(const char *path) {
    FILE *f = fopen(path, "r+b");
    fseek(f, 0, SEEK_END);
    const long n = ftell(f), at = (long)((double)(n - 1) * altered_at);
    fseek(f, at, SEEK_SET);
    const int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 1, f);
    fclose(f);
}

static void cut(const char *path) {
    struct stat st;
    if (stat(path, &st) || truncate(path, (off_t)((double)st.st_size * altered_at))) abort();
}

static void empty(const char *path) {
    if (truncate(path, 0)) abort();
}

static void altered_objects_are_misses(void **state) {
    (void)state;
    static const file_fn ways[] = {flip, cut, empty};
    static const double places[] = {0, 0.0001, 0.003, 0.01, 0.5, 1};
    char dir[STORE_FOLDER_BYTES];
    int32_t own[N_TOKENS];
    rp_request text = text_request(own, N_TOKENS, 77, NULL), pml = pml_request();
    oracle_run cold_text = cold_run(&text), cold_pml = cold_run(&pml);
    for (size_t w = 0; w < 3; w++)
        for (size_t k = 0; k < sizeof(places) / sizeof(places[0]); k++) {
            if (ways[w] == empty && k > 0) continue;
            store_folder_make(dir);
            fill_text(dir, N_TOKENS, NULL);
            rp_engine *a = engine_with(dir, secret);
            oracle_run first = run_on(a, &pml);
            await_writes(a, 3);
            rp_engine_free(a);
            altered_at = places[k];
            each_file(dir, ways[w]);
            rp_engine *b = engine_with(dir, secret);
            oracle_run of_text = run_on(b, &text), of_pml = run_on(b, &pml);
            check_same(&cold_text, &of_text);
            check_same(&cold_pml, &of_pml);
            const bool is_whole = ways[w] == cut && places[k] == 1;
            assert_int_equal(stats_of(b).pool_reads > 0, is_whole);
            oracle_run_free(&first);
            oracle_run_free(&of_text);
            oracle_run_free(&of_pml);
            rp_engine_free(b);
            store_folder_remove(dir);
        }
    oracle_run_free(&cold_text);
    oracle_run_free(&cold_pml);
}

static void an_absent_pool_is_a_miss(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    int32_t own[N_TOKENS];
    store_folder_make(dir);
    rp_engine *b = engine_with(dir, secret);
    store_folder_remove(dir);
    rp_request r = text_request(own, N_TOKENS, 77, NULL), pml = pml_request();
    oracle_run cold = cold_run(&r), cold_pml = cold_run(&pml);
    for (int k = 0; k < 3; k++) {
        oracle_run run = run_on(b, &r), of_pml = run_on(b, &pml);
        check_same(&cold, &run);
        check_same(&cold_pml, &of_pml);
        oracle_run_free(&run);
        oracle_run_free(&of_pml);
    }
    assert_int_equal(stats_of(b).pool_reads, 0);
    assert_int_equal(stats_of(b).pool_writes, 0);
    oracle_run_free(&cold);
    oracle_run_free(&cold_pml);
    rp_engine_free(b);
}

/* Nobody listens: after three failed reads nothing is asked. */
static void a_pool_that_is_down_is_not_asked_again(void **state) {
    (void)state;
    int32_t own[N_TOKENS];
    rp_engine *b = engine_at("redis://127.0.0.1:1", secret);
    for (int k = 0; k < 6; k++) {
        rp_request r = text_request(own, N_TOKENS, 77, NULL);
        own[0] = 100 + k; /* another text */
        oracle_run cold = cold_run(&r), run = run_on(b, &r);
        check_same(&cold, &run);
        oracle_run_free(&cold);
        oracle_run_free(&run);
    }
    const rp_store_stats s = stats_of(b);
    assert_int_equal(s.pool_looks, 3);
    assert_int_equal(s.pool_pauses, 1);
    assert_true(s.pool_is_paused);
    assert_string_equal(s.pool_trouble, "refused");
    rp_engine_free(b);
}

/* Files in the place of its folders: nothing can be written, and reads go on. */
static void a_pool_that_takes_nothing_is_read(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES], path[STORE_FOLDER_BYTES + 4];
    int32_t own[N_TOKENS];
    store_folder_make(dir);
    fill_text(dir, N_TOKENS, NULL);
    for (int k = 0; k < 256; k++) {
        snprintf(path, sizeof(path), "%s/%02x", dir, k);
        FILE *f = access(path, F_OK) ? fopen(path, "w") : NULL; /* other folders stay */
        if (f) fclose(f);
    }
    rp_engine *b = engine_with(dir, secret);
    for (int k = 0; k < 12; k++) { /* their spans' names are anywhere */
        rp_request r = text_request(own, N_TOKENS, 77, NULL);
        own[0] = 100 + k;
        oracle_run run = run_on(b, &r);
        oracle_run_free(&run);
    }
    const uint64_t end = base_clock_us() + WAIT_US;
    while (stats_of(b).pool_unwritten < 3 && base_clock_us() < end) run_step(b);
    rp_request r = text_request(own, N_TOKENS, 77, NULL);
    oracle_run cold = cold_run(&r), run = run_on(b, &r);
    check_same(&cold, &run);
    assert_true(tokens_of_tier(&run, "pool") >= 512);
    assert_true(stats_of(b).pool_unwritten >= 3);
    assert_int_equal(stats_of(b).pool_pauses, 0);
    oracle_run_free(&cold);
    oracle_run_free(&run);
    rp_engine_free(b);
    store_folder_remove(dir);
}

static void options_are_checked(void **state) {
    (void)state;
    const struct {
        rp_cluster_options o;
        const char *says;
    } wrong[] = {
        {{.struct_size = sizeof(rp_cluster_options), .pool = "dir:/tmp"}, "cluster key"},
        {{.struct_size = sizeof(rp_cluster_options), .pool = "dir:/tmp", .key = secret, .plans_only = true},
         "plans_only"},
        {{.struct_size = sizeof(rp_cluster_options), .pool = "tmp", .key = secret}, "not the address of a pool"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        rp_engine_options o = rp_engine_options_defaults();
        rp_engine *e = NULL;
        rp_error err = {0};
        o.cluster = &wrong[i].o;
        assert_int_equal(rp_engine_new(&e, model, &o, &err), RP_ERR_INVALID);
        assert_null(e);
        assert_non_null(strstr(err.message, wrong[i].says));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_of_one_engine_are_hits_of_another),
        cmocka_unit_test(text_that_was_used_twice_is_a_hit_elsewhere),
        cmocka_unit_test(pulled_text_continues_what_is_there),
        cmocka_unit_test(no_other_tenant_and_no_other_secret_finds_it),
        cmocka_unit_test(altered_objects_are_misses),
        cmocka_unit_test(an_absent_pool_is_a_miss),
        cmocka_unit_test(a_pool_that_is_down_is_not_asked_again),
        cmocka_unit_test(a_pool_that_takes_nothing_is_read),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
