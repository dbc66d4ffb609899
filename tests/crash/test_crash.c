/* SPDX-License-Identifier: Apache-2.0 */
/* test_crash.c: kills the process at every system call that changes the disk, in turn, and at random moments. Another
 * process then continues with the files: every record is complete or absent, no temporary file is left, the folder
 * stays within its budget, and answers are bit-identical to a cold run. Every KV format takes its turn; one module has
 * a format of its own, and one is reduced: its answer is the one over its full or over its reduced KV.
 *
 * Linked with tests/vulkan/vulkan_engine.c it does so on a device: there a child is another process of the program
 * (test_crash live ...), because drivers do not survive a fork; and where the device cannot reduce KV, no module is.
 *
 *   REPRISE_TEST_SEED=N    other moments
 *   REPRISE_TEST_ROUNDS=N  random moments, 20 by default; calls in turn are every n-th for fewer than 10
 */
#define _XOPEN_SOURCE 700 /* nftw, setitimer */
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/io.h"
#include "store/record/record.h"
#include "support/oracle_run.h"
#include "support/seed.h"
#include "support/store_folder.h"
#include "support/test_device.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "support/experiments.h"

static const char schema_text[] = /* of reduced and of full KV */
    "<schema name='s'>Once <module name='a'>the river of the city</module><module name='b' kv='k4v2'>seven "
    "hills</module>"
    "<module name='c' keep='%s'>one of the seven hills of the city and of the river, two of the hills and the rivers "
    "of the "
    "cities, three cities and seven rivers of the hills, and four of the hills of the seven cities</module></schema>";
#define REDUCED "<prompt schema='s'><c/>Which?</prompt>"
static const struct {
    const char *prompt, *text;
} requests[] = {{"<prompt schema='s'><a/>Where to?</prompt>", NULL},
                {NULL, "the hills of the river"},
                {NULL, "the hills of the city, and more of them"},
                {"<prompt schema='s'><a/><b/>And then?</prompt>", NULL},
                {NULL, "the hills of the river, the hills of the city"}};
#define N_REQUESTS ((int)BASE_ARRAY_LEN(requests))
#define LIFE_ON_A_DEVICE_US 2000000
#define LOOSE ((uint64_t)64 << 20)
#define TIGHT ((uint64_t)1200 << 10) /* the store's own files and two or three records */

static rp_model *model;
static oracle_run cold[RP_N_KV_FORMATS][BASE_ARRAY_LEN(requests)], full[RP_N_KV_FORMATS], reduced[RP_N_KV_FORMATS];
static rp_kv_format format; /* of engines from now on */
static tiny_random r;
static int rounds;
static bool reduces; /* else module c has full KV */

static rp_request request_of(int i) {
    rp_request q = rp_request_defaults();
    q.prompt = requests[i].prompt ? rp_prompt_pml(requests[i].prompt) : rp_prompt_text(requests[i].text);
    q.max_tokens = 4;
    q.ignore_eos = true;
    return q;
}

static rp_engine *new_engine(const char *dir, rp_store_write write, uint64_t budget) {
    rp_engine *e = NULL;
    rp_error err = {0};
    char schema[sizeof(schema_text) + 8];
    rp_engine_options o = rp_engine_options_defaults();
    snprintf(schema, sizeof(schema), schema_text, reduces ? "25%" : "100%");
    o.n_threads = 1;
    o.n_ctx = 512;
    o.kv_format = format;
    o.store_dir = dir;
    o.store_write = write;
    o.store_budget_bytes = budget;
    if (rp_engine_new(&e, model, &o, &err) ||
        rp_schema_parse(e, schema, strlen(schema), "s", NULL, NULL, NULL, &err)) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    return e;
}

/* Does the plan have reduced KV? */
static bool is_reduced(const oracle_run *run) {
    bool any = false;
    for (int32_t i = 0; i < run->result->n_plan; i++) any |= run->result->plan[i].kept < 1;
    return any;
}

static void run_reduced(rp_engine *e, oracle_run *out) {
    rp_request q = request_of(0);
    q.prompt = rp_prompt_pml(REDUCED);
    oracle_run_make(out, e, &q);
    assert_int_equal(out->rc, RP_OK);
}

static void open_model(void) {
    tiny_model_shape shape = tiny_model_defaults();
    model = tiny_model_open(&shape, "chatml");
    reduces = test_device_has_studies();
}

/* The answers without a store, in the format of engines. */
static void run_cold(void) {
    rp_engine *e = new_engine(NULL, RP_STORE_WRITE_BACK, 0);
    for (int i = 0; i < N_REQUESTS; i++) {
        rp_request q = request_of(i);
        q.experiment = &experiment_no_prefix;
        oracle_run_make(&cold[format][i], e, &q);
        assert_int_equal(cold[format][i].rc, RP_OK);
    }
    run_reduced(e, &full[format]);
    rp_engine_drain(e, -1);
    run_reduced(e, &reduced[format]);
    assert_true(!is_reduced(&full[format]) && is_reduced(&reduced[format]) == reduces);
    rp_engine_free(e);
}

static int open_all(void **state) {
    (void)state;
    open_model();
    r = (tiny_random){test_seed("crash", 20261123)};
    rounds = test_rounds(20);
    for (int f = 0; f < RP_N_KV_FORMATS; f++) {
        format = (rp_kv_format)f;
        run_cold();
    }
    format = RP_KV_F16;
    return 0;
}

static int close_all(void **state) {
    (void)state;
    for (int i = 0; i < RP_N_KV_FORMATS * N_REQUESTS; i++) oracle_run_free(&cold[i / N_REQUESTS][i % N_REQUESTS]);
    for (int f = 0; f < RP_N_KV_FORMATS; f++) oracle_run_free(&full[f]), oracle_run_free(&reduced[f]);
    rp_model_close(model);
    return 0;
}

/* All requests; false: bytes differ. */
static bool run_all(rp_engine *e, int32_t *cached) {
    bool same = true;
    for (int i = 0; i < N_REQUESTS; i++) {
        rp_request q = request_of(i);
        oracle_run run = {0};
        oracle_run_make(&run, e, &q);
        same &= oracle_run_same(&run, &cold[format][i]);
        if (cached && !run.rc) *cached += run.result->cached_tokens;
        oracle_run_free(&run);
    }
    for (int i = 0; i < 2; i++) { /* the second time over reduced KV */
        oracle_run run = {0};
        run_reduced(e, &run);
        same &=
            oracle_run_same(&run, is_reduced(&run) ? &reduced[format] : &full[format]) &&
            (i == 0 || is_reduced(&run) == reduces);
        oracle_run_free(&run);
        rp_engine_drain(e, -1);
    }
    return same;
}

/* What is killed: two lives of an engine. */
static _Noreturn void live(const char *dir, rp_store_write write, uint64_t budget) {
    for (int i = 0; i < 2; i++) {
        rp_engine *e = new_engine(dir, write, budget);
        bool same = run_all(e, NULL);
        rp_engine_free(e);
        if (!same) _exit(3);
    }
    _exit(0);
}

static int n_records, n_bad; /* nftw has no argument for its function */
static uint64_t evictions;   /* from disk */

static int verify_file(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)st;
    (void)where;
    size_t n = strlen(path);
    rp_error err = {0};
    if (type != FTW_F || n < 4 || strcmp(path + n - 4, ".rps") != 0) return 0;
    n_records++;
    if (record_verify(path, NULL, NULL, &err) != RECORD_FAULT_NONE) {
        n_bad++;
        printf("%s\n", err.message);
    }
    return 0;
}

/* Continues with the files. */
static void check_rest(const char *dir, rp_store_write write, uint64_t budget, const char *what, uint64_t n) {
    n_records = n_bad = 0;
    nftw(dir, verify_file, 8, FTW_PHYS);
    if (n_bad > 0) fail_msg("%s %llu: %d of %d records are not whole", what, (unsigned long long)n, n_bad, n_records);
    for (int life = 0; life < 2; life++) {
        int32_t cached = 0;
        rp_engine *e = new_engine(dir, write, budget);
        if (store_folder_count(dir, ".tmp") > 0)
            fail_msg("%s %llu: temporary files are left", what, (unsigned long long)n);
        if (!run_all(e, &cached)) fail_msg("%s %llu: not the bytes of a cold run", what, (unsigned long long)n);
        rp_store_stats stats = {.struct_size = sizeof(stats)};
        rp_engine_store_stats(e, &stats);
        if (stats.disk_faults > 0)
            fail_msg("%s %llu: %llu records could not be read", what, (unsigned long long)n,
                     (unsigned long long)stats.disk_faults);
        evictions += stats.disk_evictions;
        rp_engine_free(e);
        if (store_folder_bytes(dir) > budget)
            fail_msg("%s %llu: the folder takes more than its budget", what, (unsigned long long)n);
        if (budget == LOOSE && store_folder_count(dir, ".rps") == 0)
            fail_msg("%s %llu: nothing is kept", what, (unsigned long long)n);
    }
}

typedef enum moment { AT_CALL,
                      AT_TIME } moment;

static _Noreturn void live_until(const char *dir, rp_store_write write, uint64_t budget, moment m, uint64_t n) {
    struct itimerval t = {.it_value = {.tv_sec = (time_t)(n / 1000000), .tv_usec = (suseconds_t)(n % 1000000)}};
    if (m == AT_CALL) base_io_fault_at(n, BASE_IO_KILL, BASE_IO_CHANGES);
    else if (setitimer(ITIMER_REAL, &t, NULL)) abort();
    live(dir, write, budget);
}

/* The same in a process that has opened nothing. */
static _Noreturn void live_elsewhere(const char *dir, rp_store_write write, uint64_t budget, moment m, uint64_t n) {
    const uint64_t values[] = {write, budget, m, n, format};
    char texts[BASE_ARRAY_LEN(values)][24];
    for (size_t i = 0; i < BASE_ARRAY_LEN(values); i++)
        snprintf(texts[i], sizeof(texts[i]), "%llu", (unsigned long long)values[i]);
    execl("/proc/self/exe", "test_crash", "live", dir, texts[0], texts[1], texts[2], texts[3], texts[4], (char *)NULL);
    abort();
}

/* test_crash live DIR WRITE BUDGET MOMENT N FORMAT */
static _Noreturn void live_here(char **argv) {
    unsigned long long values[5];
    for (int i = 0; i < 5; i++) values[i] = strtoull(argv[3 + i], NULL, 10);
    open_model();
    format = (rp_kv_format)values[4];
    run_cold(); /* and pipelines are made */
    live_until(argv[2], (rp_store_write)values[0], values[1], (moment)values[2], values[3]);
}

/* A child that is killed at its n-th call that changes the disk, or after n microseconds. Returns whether it was. */
static bool kill_one(const char *dir, rp_store_write write, uint64_t budget, moment m, uint64_t n) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0 && test_device_is_cpu()) live_until(dir, write, budget, m, n);
    if (child == 0) live_elsewhere(dir, write, budget, m, n);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), m == AT_CALL ? SIGKILL : SIGALRM);
        return true;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    return false;
}

/* At call `first`, and every step-th after it. */
static void kill_at_calls(rp_store_write write, uint64_t budget, uint64_t first, uint64_t step) {
    uint64_t n = first, kills = 0;
    bool killed;
    evictions = 0;
    do {
        char dir[STORE_FOLDER_BYTES];
        store_folder_make(dir);
        killed = kill_one(dir, write, budget, AT_CALL, n);
        check_rest(dir, write, budget, "call", n);
        store_folder_remove(dir);
        kills += killed;
        n += step;
    } while (killed);
    printf("%s: killed at %llu calls, %llu evictions\n", kv_format_name((rp_kv_format)format),
           (unsigned long long)kills, (unsigned long long)evictions);
    assert_true(kills >= 40 / step);
    assert_true(budget == LOOSE || evictions > 0);
}

static void kill_at_every_call(rp_store_write write, uint64_t budget) {
    format = RP_KV_F16;
    kill_at_calls(write, budget, 1, rounds < 10 ? 7 : 1);
}

static void write_back(void **state) {
    (void)state;
    kill_at_every_call(RP_STORE_WRITE_BACK, LOOSE);
}

static void write_through(void **state) {
    (void)state;
    kill_at_every_call(RP_STORE_WRITE_THROUGH, LOOSE);
}

static void write_back_tight(void **state) {
    (void)state;
    kill_at_every_call(RP_STORE_WRITE_BACK, TIGHT);
}

static void write_through_tight(void **state) {
    (void)state;
    kill_at_every_call(RP_STORE_WRITE_THROUGH, TIGHT);
}

/* Every tenth call for each of the other formats, from a random one. */
static void in_every_format(void **state) {
    (void)state;
    for (int f = RP_KV_F16 + 1; f < RP_N_KV_FORMATS; f++) {
        format = (rp_kv_format)f;
        kill_at_calls(f % 2 ? RP_STORE_WRITE_BACK : RP_STORE_WRITE_THROUGH, LOOSE, 1 + tiny_random_below(&r, 10), 10);
    }
}

/* In SQLite's own calls, too; the same folder dies again and again. */
static void at_random_moments(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES];
    int kills = 0;
    store_folder_make(dir);
    for (int i = 0; i < rounds; i++) {
        if (i % 5 == 0) format = (rp_kv_format)tiny_random_below(&r, RP_N_KV_FORMATS); /* of a folder */
        kills += kill_one(dir, i % 2 ? RP_STORE_WRITE_BACK : RP_STORE_WRITE_THROUGH, i % 4 < 2 ? TIGHT : LOOSE, AT_TIME,
                          1000 + tiny_random_below(&r, test_device_is_cpu() ? 60000 : LIFE_ON_A_DEVICE_US));
        check_rest(dir, RP_STORE_WRITE_BACK, LOOSE, "moment", (uint64_t)i);
        if (i % 5 != 4) continue;
        store_folder_remove(dir);
        store_folder_make(dir);
    }
    store_folder_remove(dir);
    printf("killed at %d of %d moments\n", kills, rounds);
}

int main(int argc, char **argv) {
    if (argc == 8 && strcmp(argv[1], "live") == 0) live_here(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_back),
        cmocka_unit_test(write_through),
        cmocka_unit_test(write_back_tight),
        cmocka_unit_test(write_through_tight),
        cmocka_unit_test(in_every_format),
        cmocka_unit_test(at_random_moments),
    };
    return cmocka_run_group_tests_name("crash", tests, open_all, close_all);
}
