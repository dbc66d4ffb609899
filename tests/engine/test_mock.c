/* SPDX-License-Identifier: Apache-2.0 */
/* test_mock.c: the mock model (rp_model_open_mock): as exact as a real one, above the arithmetic.
 *
 * Random requests over modules, documents and shared beginnings are answered alone by an engine that reuses nothing,
 * and then in batches by an engine with a store folder and less memory than they need, with other chunks, and by a
 * later engine over the same folder: the same bytes, in every KV format. Anything that a row sees changes its answer.
 * Times of steps are not judged.
 *
 *   REPRISE_TEST_SEED=N    another sequence
 *   REPRISE_TEST_ROUNDS=N  rounds of requests for each format
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/answer_log.h"
#include "support/must.h"
#include "support/seed.h"
#include "support/store_folder.h"
#include "support/tiny_model.h"
#include "support/tiny_random.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "reprise_test.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))
#define N_REQUESTS 48
#define BATCH 6
#define MODULES 12
#define N 60      /* questions, */
#define MOST 2000 /* and tokens of their answers */
#define MOST_TEXT 6000

typedef struct asked {
    rp_request q;
    char text[MOST_TEXT];
    rp_builder *built;
    answer_log alone;
} asked;

static tiny_random r;
static char path[] = "/tmp/reprise_mock_XXXXXX", schema[MODULES * 1200];
static rp_model *mock, *real;

static int below(size_t n) { return (int)tiny_random_below(&r, n); }

static rp_model *open_mock(double step_us, double row_us, double row_slot_us) {
    const rp_mock_options o = {sizeof(o), "chatml", step_us, row_us, row_slot_us};
    rp_model *m;
    rp_error err = {0};
    must(rp_model_open_mock(&m, path, &o, &err), &err);
    return m;
}

static rp_model *open_model(void) {
    rp_model_options o = rp_model_options_defaults();
    rp_model *m;
    rp_error err = {0};
    o.chat_format = "chatml";
    must(rp_model_open(&m, path, &o, &err), &err);
    return m;
}

static void add_words(char *text, size_t cap, int n) {
    static const char *const words[] = {"the ", "little ", "house ", "was ", "and ", "garden ",
                                        "in ", "morning ", "old ", "man ", "girl ", "bird "};
    for (; n > 0; n--) {
        const char *word = words[below(LEN(words))];
        if (strlen(text) + strlen(word) + 64 < cap) strcat(text, word);
    }
}

static void make_schema(void) {
    strcpy(schema, "<schema name='s'>");
    for (int i = 0; i < MODULES; i++) {
        sprintf(schema + strlen(schema), "<module name='m%d'%s>", i, i % 3 == 0 ? " scope='path'" : "");
        add_words(schema, strlen(schema) + 64 + (size_t)(20 + below(900)), 200);
        strcat(schema, i % 4 == 0 ? "<param name='p' len='8'/></module>" : "</module>");
    }
    strcat(schema, "</schema>");
}

static int setup(void **state) {
    rp_error err = {0};
    tiny_model_shape shape = tiny_model_defaults();
    int fd = mkstemp(path);
    (void)state;
    r = (tiny_random){test_seed("mock", 20261125)};
    if (fd < 0) abort();
    close(fd);
    shape.n_ctx = 4096;
    must(tiny_model_write(path, &shape, &err), &err);
    mock = open_mock(0, 0, 0);
    real = open_model();
    make_schema();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    rp_model_close(mock);
    rp_model_close(real);
    unlink(path);
    return 0;
}

static rp_engine *new_engine(const rp_engine_options *o) {
    rp_engine *e;
    rp_error err = {0};
    must(rp_engine_new(&e, mock, o, &err), &err);
    must(rp_schema_parse(e, schema, strlen(schema), "s", NULL, NULL, NULL, &err), &err);
    return e;
}

static rp_engine *plain_engine(rp_kv_format format) {
    rp_engine_options o = rp_engine_options_defaults();
    o.kv_format = format;
    return new_engine(&o);
}

/* ---- exactness ---- */

static void random_prompt(asked *a, rp_kv_format format) {
    char name[16];
    rp_error err = {0};
    (void)format;
    a->text[0] = '\0';
    switch (below(3)) {
    case 0: /* one of a few beginnings */
        for (int i = 0, k = below(4); i < 40 * k + 80; i++)
            strcat(a->text, k % 2 ? "the old house " : "in the garden ");
        add_words(a->text, sizeof(a->text), below(60));
        a->q.prompt = rp_prompt_text(a->text);
        return;
    case 1:
        must(rp_builder_new(&a->built, NULL, &err), &err);
        for (int i = 0, n = 1 + below(3); i < n; i++) {
            char document[4000] = "";
            for (int k = 0, d = below(6); k < 20 + 25 * d; k++)
                strcat(document, d % 2 ? "the little bird " : "an old man was here ");
            rp_builder_append_document(a->built, document, strlen(document));
        }
        add_words(a->text, 300, 1 + below(20));
        rp_builder_append_text(a->built, a->text, strlen(a->text));
        a->q.prompt = rp_prompt_built(a->built);
        return;
    default:
        strcpy(a->text, "<prompt schema='s'>");
        for (int i = 0, m = 0; i < 4 && (m += 1 + below(4)) < MODULES; i++) {
            snprintf(name, sizeof(name), m % 4 == 0 && below(2) ? "<m%d p='cat'/>" : "<m%d/>", m);
            strcat(a->text, name);
        }
        add_words(a->text, sizeof(a->text), 1 + below(30));
        strcat(a->text, "</prompt>");
        a->q.prompt = rp_prompt_pml(a->text);
        if (below(4) == 0) a->q.reuse = RP_REUSE_EXACT;
    }
}

static void make_request(asked *a, rp_kv_format format) {
    *a = (asked){.q = rp_request_defaults()};
    random_prompt(a, format);
    a->q.max_tokens = 1 + below(40);
    a->q.sampling.temperature = (float)below(2);
    a->q.sampling.seed = tiny_random_u64(&r);
    a->q.n_draft = below(3) ? 0 : 4;
    if (below(5) == 0) a->q.grammar = "root ::= [a-z ]+ \".\"";
}

static void ask_alone(asked *all, rp_kv_format format) {
    rp_engine *e = plain_engine(format);
    for (int i = 0; i < N_REQUESTS; i++) {
        rp_request q = all[i].q;
        if (q.reuse == RP_REUSE_EXACT) q.quality = (rp_quality){RP_QUALITY_EXACT, 0};
        q.reuse = RP_REUSE_OFF;
        answer_log_run(&all[i].alone, e, &q);
        if (all[i].alone.rc) fail_msg("request %d: %s", i, all[i].alone.err.message);
    }
    rp_engine_free(e);
}

static uint64_t n_ram, n_disk, n_evictions, n_cut;

static void count_tiers(const rp_result *result) {
    for (int32_t i = 0; i < result->n_plan; i++) {
        n_ram += strcmp(result->plan[i].tier, "ram") == 0;
        n_disk += strcmp(result->plan[i].tier, "disk") == 0;
    }
}

/* All requests, some of them resumed, in random order and batches. */
static void ask_all(asked *all, rp_engine *e, const char *where) {
    for (int done = 0; done < N_REQUESTS;) {
        answer_log logs[BATCH] = {{0}};
        rp_job *jobs[BATCH];
        int which[BATCH], cut[BATCH], n = 1 + below(BATCH);
        for (int i = 0; i < n; i++) {
            which[i] = below(N_REQUESTS);
            rp_request q = all[which[i]].q;
            const rp_result *whole = all[which[i]].alone.result;
            cut[i] = below(3) ? 0 : below((size_t)whole->n_tokens + 1);
            q.resumed = whole->tokens;
            q.n_resumed = cut[i];
            n_cut += cut[i] > 0;
            answer_log_submit(&logs[i], e, &q, &jobs[i]);
        }
        for (int i = 0; i < n; i++) {
            answer_log_finish(&logs[i], jobs[i]);
            const bool same = answer_log_same(&all[which[i]].alone, &logs[i], cut[i]);
            if (!same) fail_msg("request %d, %s: not the bytes of a request alone", which[i], where);
            count_tiers(logs[i].result);
            answer_log_free(&logs[i]);
        }
        done += n;
    }
}

static uint64_t evictions_of(rp_engine *e) {
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    rp_engine_store_stats(e, &stats);
    return stats.evictions;
}

static void check_format(rp_kv_format format) {
    static const int32_t chunks[] = {1, 7, 64, 100, 256};
    static asked all[N_REQUESTS];
    char dir[STORE_FOLDER_BYTES];
    rp_engine_options o = rp_engine_options_defaults();
    for (int i = 0; i < N_REQUESTS; i++) make_request(&all[i], format);
    ask_alone(all, format);
    store_folder_make(dir);
    o.kv_format = format;
    o.store_dir = dir;
    o.kv_budget_bytes = format == RP_KV_F32 ? 160 << 10 : 80 << 10;
    for (int i = 0; i < 2; i++) {
        o.chunk_tokens = chunks[below(LEN(chunks))];
        o.max_sequences = 1 + below(BATCH);
        rp_engine *e = new_engine(&o);
        ask_all(all, e, i == 0 ? "first engine" : "later engine");
        n_evictions += evictions_of(e);
        rp_engine_free(e);
    }
    store_folder_remove(dir);
    for (int i = 0; i < N_REQUESTS; i++) {
        answer_log_free(&all[i].alone);
        rp_builder_free(all[i].built);
    }
}

static void answers_are_those_of_requests_alone(void **state) {
    const int rounds = test_rounds(1);
    (void)state;
    for (int i = 0; i < rounds; i++)
        for (int format = 0; format < RP_N_KV_FORMATS; format++) check_format((rp_kv_format)format);
    printf("views in RAM: %llu, from disk: %llu; evictions: %llu; resumed: %llu\n", (unsigned long long)n_ram,
           (unsigned long long)n_disk, (unsigned long long)n_evictions, (unsigned long long)n_cut);
    assert_true(n_ram > 0 && n_disk > 0 && n_evictions > 0 && n_cut > 0);
}

/* ---- what a row sees ---- */

static void logits_of(rp_engine *e, const char *prompt, base_buffer *out) {
    answer_log l = {0};
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(prompt);
    q.max_tokens = 1;
    answer_log_run(&l, e, &q);
    assert_int_equal(l.rc, RP_OK);
    *out = l.logits;
    l.logits = (base_buffer){0};
    answer_log_free(&l);
}

static void everything_that_is_seen_changes_logits(void **state) {
    static const char *const prompts[] = {
        "<prompt schema='s'><m1/><m2/> yes</prompt>",
        "<prompt schema='s'><m1/> yes</prompt>",
        "<prompt schema='s'><m2/> yes</prompt>",
        "<prompt schema='s'><m1/><m2/>no</prompt>",
        "<prompt schema='s'><m4 p='cat'/> yes</prompt>",
        "<prompt schema='s'><m4 p='dog'/> yes</prompt>",
        "<prompt schema='s'><m4/> yes</prompt>",
        "<prompt schema='s'>text <m1/><m2/> yes</prompt>",
    };
    rp_engine *e = plain_engine(RP_KV_F16);
    base_buffer logits[LEN(prompts)];
    (void)state;
    for (size_t i = 0; i < LEN(prompts); i++) {
        logits_of(e, prompts[i], &logits[i]);
        assert_int_equal(logits[i].len, sizeof(uint64_t));
        for (size_t k = 0; k < i; k++) assert_memory_not_equal(logits[i].data, logits[k].data, sizeof(uint64_t));
    }
    for (size_t i = 0; i < LEN(prompts); i++) base_buffer_free(&logits[i]);
    rp_engine_free(e);
}

/* ---- answers ---- */

/* Words, and an end after some tens to hundreds of them. */
static void answers_look_like_text(void **state) {
    rp_engine *e = plain_engine(RP_KV_F16);
    int n_stopped = 0, n_tokens = 0;
    char text[32];
    (void)state;
    for (int i = 0; i < N; i++) {
        rp_request q = rp_request_defaults();
        rp_result *result;
        rp_error err = {0};
        snprintf(text, sizeof(text), "question %d", i);
        q.prompt = rp_prompt_text(text);
        q.max_tokens = MOST;
        q.sampling.temperature = (float)(i % 2);
        must(rp_engine_run(e, &q, &result, &err), &err);
        n_stopped += strcmp(result->finish_reason, "stop") == 0;
        n_tokens += result->n_tokens;
        for (int32_t k = 0; k < result->n_tokens; k++) {
            size_t n = 0;
            const char *bytes = rp_token_bytes(mock, result->tokens[k], false, &n);
            assert_true(n > 0 && bytes[n - 1] >= 'A' && bytes[n - 1] <= 'z');
        }
        rp_result_free(result);
    }
    assert_int_equal(n_stopped, N);
    assert_in_range(n_tokens / N, 20, 200);
    rp_engine_free(e);
}

/* ---- the model ---- */

static void a_mock_is_no_model(void **state) {
    const char *a, *b;
    rp_error err = {0};
    rp_model_info info = {.struct_size = sizeof(info)}, of_real = {.struct_size = sizeof(of_real)};
    (void)state;
    must(rp_model_fingerprint(mock, 1, NULL, NULL, &a, &err), &err);
    must(rp_model_fingerprint(real, 1, NULL, NULL, &b, &err), &err);
    assert_string_not_equal(a, b);
    rp_model_describe(mock, &info);
    rp_model_describe(real, &of_real);
    assert_string_equal(info.architecture, "mock");
    assert_int_equal(info.weight_bytes, 0);
    assert_int_equal(info.n_vocab, of_real.n_vocab);
    assert_int_equal(info.n_ctx_train, of_real.n_ctx_train);
    assert_string_equal(info.chat_format, of_real.chat_format);
    assert_true(info.movable && info.kv_bytes_per_token < of_real.kv_bytes_per_token);
}

static void wrong_options_are_refused(void **state) {
    rp_mock_options o = {.row_us = 1};
    rp_model *model;
    (void)state;
    assert_int_equal(rp_model_open_mock(&model, path, &o, NULL), RP_ERR_INVALID); /* no struct_size */
    o = (rp_mock_options){.struct_size = sizeof(o), .row_us = -1};
    assert_int_equal(rp_model_open_mock(&model, path, &o, NULL), RP_ERR_INVALID);
    o.row_us = 2e9;
    assert_int_equal(rp_model_open_mock(&model, path, &o, NULL), RP_ERR_INVALID);
    assert_null(model);
}

/* An engine that sleeps gives the bytes of one that does not. */
static void times_change_no_answer(void **state) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_request q = rp_request_defaults();
    answer_log a = {0}, b = {0};
    (void)state;
    q.prompt = rp_prompt_text("the little house");
    q.max_tokens = 8;
    rp_engine *fast = new_engine(&o);
    rp_model *slow_model = open_mock(300, 20, 0.5);
    rp_engine *slow;
    must(rp_engine_new(&slow, slow_model, &o, NULL), NULL);
    answer_log_run(&a, fast, &q);
    answer_log_run(&b, slow, &q);
    assert_true(answer_log_same(&a, &b, 0));
    answer_log_free(&a);
    answer_log_free(&b);
    rp_engine_free(fast);
    rp_engine_free(slow);
    rp_model_close(slow_model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_requests_alone),
        cmocka_unit_test(everything_that_is_seen_changes_logits),
        cmocka_unit_test(answers_look_like_text),
        cmocka_unit_test(a_mock_is_no_model),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(times_change_no_answer),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
