/* SPDX-License-Identifier: Apache-2.0 */
/* test_recurrent.c: models with recurrent layers: a prefix of the cache is used up to a checkpoint of their states, in
 * RAM, on disk and after a restart, with the bytes of a run without reuse; a checkpoint that is missing or damaged is a
 * miss with its reason. All of it with a decayed sum (recurrent_model.h) and with a golden model of each kind of
 * recurrent layer.
 *
 *   test_recurrent [NAME...]     golden models, or "sum"
 *   REPRISE_TEST_ROUNDS=N        the first N + 2 of them
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "kv/span.h"
#include "model/model.h"
#include "support/gate.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/recurrent_model.h"
#include "support/seed.h"
#include "support/store_folder.h"
#include "reprise_store.h"
#include "reprise_tools.h"
#include "reprise_pml.h"
#include "support/experiments.h"

#define N_PROMPT 700
#define N_ANSWER 20
#define LEAST_PART 32 /* tokens of a module that is worth a checkpoint (checkpoints.c) */

/* NULL: a made-up llama with decayed sums; and tokens between checkpoints: whole spans whose KV is not smaller. */
static const struct subject {
    const char *golden;
    int32_t every;
} subjects[] = {{NULL, KV_SPAN_TOKENS},
                {"qwen35", KV_SPAN_TOKENS},
                {"falcon-h1", KV_SPAN_TOKENS},
                {"lfm2", KV_SPAN_TOKENS},
                {"granitehybrid", 2 * KV_SPAN_TOKENS},
                {"nemotron-h", KV_SPAN_TOKENS},
                {"mamba2", 4096},
                {"jamba", KV_SPAN_TOKENS},
                {"kimi-linear", KV_SPAN_TOKENS},
                {"mamba", 4096}};
#define LEAST_SUBJECTS 2 /* besides one for each round */

static const struct subject *subject;
static rp_model *model;
static int32_t n_vocab;

/* The last checkpoint before an edit of token n, of those in regular distances. */
static int32_t last_before(int32_t n) { return n - n % subject->every; }

static int open_recurrent(void **state) {
    (void)state;
    rp_model_info info = {.struct_size = sizeof(info)};
    model = recurrent_model_open(subject->golden);
    rp_model_describe(model, &info);
    n_vocab = info.n_vocab;
    return 0;
}

static int close_recurrent(void **state) {
    (void)state;
    rp_model_close(model);
    return 0;
}

static rp_engine *new_engine(const rp_engine_options *options) {
    rp_engine *e;
    rp_error err = {0};
    must(rp_engine_new(&e, model, options, &err), &err);
    return e;
}

static rp_engine_options usual(void) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.n_ctx = 4096;
    o.kv_budget_bytes = (uint64_t)64 << 20;
    return o;
}

/* Token i of text `which`: another one for each text. */
static int32_t token_of(int32_t i, int32_t which) {
    return 3 + (i * 7919 + which * 104729 + i * i / 3) % (n_vocab - 3);
}

/* tokens[from, n) of a text. */
static void fill(int32_t *tokens, int32_t from, int32_t n, int32_t which) {
    for (int32_t i = from; i < n; i++) tokens[i] = token_of(i, which);
}

static void run(rp_engine *e, const int32_t *tokens, int32_t n, int32_t n_answer, rp_reuse reuse, oracle_run *out) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_tokens(tokens, n);
    q.max_tokens = n_answer;
    q.ignore_eos = true;
    q.reuse = reuse;
    oracle_run_make(out, e, &q);
    if (out->rc) fail_msg("%s", out->err.message);
}

/* The expected result, in an engine of its own, one token a step. */
static void run_alone(const int32_t *tokens, int32_t n, int32_t n_answer, oracle_run *out) {
    rp_engine_options o = usual();
    o.chunk_tokens = 1;
    rp_engine *e = new_engine(&o);
    run(e, tokens, n, n_answer, RP_REUSE_OFF, out);
    rp_engine_free(e);
}

/* cached: tokens that it must find. */
static void check_prompt(rp_engine *e, const int32_t *tokens, int32_t n, int32_t cached) {
    oracle_run alone, got;
    run_alone(tokens, n, N_ANSWER, &alone);
    run(e, tokens, n, N_ANSWER, RP_REUSE_ON, &got);
    assert_int_equal(got.result->cached_tokens, cached);
    assert_true(oracle_run_same(&alone, &got));
    oracle_run_free(&alone);
    oracle_run_free(&got);
}

/* ---- steps ---- */

static void every_division_into_steps_gives_the_same_bytes(void **state) {
    static const int32_t chunks[] = {1, 2, 7, 64, 300, 1024};
    int32_t tokens[N_PROMPT];
    (void)state;
    fill(tokens, 0, N_PROMPT, 0);
    oracle_run first = {0};
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++)
        for (int32_t threads = 1; threads <= 3; threads += 2) {
            rp_engine_options o = usual();
            oracle_run r;
            o.chunk_tokens = chunks[i];
            o.n_threads = threads;
            rp_engine *e = new_engine(&o);
            run(e, tokens, N_PROMPT, N_ANSWER, RP_REUSE_OFF, &r);
            rp_engine_free(e);
            if (i == 0 && threads == 1) first = r;
            else {
                assert_true(oracle_run_same(&first, &r));
                oracle_run_free(&r);
            }
        }
    oracle_run_free(&first);
}

/* Answers that share steps have their own states. */
static void requests_in_one_step_do_not_meet(void **state) {
    enum { N = 5 };
    static int32_t tokens[N][N_PROMPT];
    oracle_run alone[N], together[N];
    rp_job *jobs[N];
    (void)state;
    rp_engine_options o = usual();
    rp_engine *e = new_engine(&o);
    rp_request q = rp_request_defaults();
    for (int32_t i = 0; i < N; i++) {
        fill(tokens[i], 0, N_PROMPT, i / 2); /* pairs have one prompt */
        q.prompt = rp_prompt_tokens(tokens[i], N_PROMPT - 50 * i);
        q.max_tokens = N_ANSWER;
        q.ignore_eos = true;
        run_alone(tokens[i], N_PROMPT - 50 * i, N_ANSWER, &alone[i]);
        must(oracle_run_submit(&together[i], e, &q, &jobs[i]), NULL);
    }
    for (int32_t i = 0; i < N; i++) {
        oracle_run_finish(&together[i], jobs[i]);
        assert_true(oracle_run_same(&alone[i], &together[i]));
        oracle_run_free(&alone[i]);
        oracle_run_free(&together[i]);
    }
    rp_engine_free(e);
}

/* Answers of few words, which repeat themselves: prompt lookup drafts in every step, and some drafts are rejected. What
 * follows the answer continues from the checkpoint at its end: the states are those of the accepted tokens. */
static void drafts_change_no_result(void **state) {
    enum { LONG_ANSWER = 300 };
    static const rp_logit_bias few[] = {{3, 90}, {4, 90}, {5, 90}};
    static int32_t tokens[N_PROMPT + LONG_ANSWER + 40];
    int64_t drafted = 0, accepted = 0;
    (void)state;
    rp_request q = rp_request_defaults();
    q.max_tokens = LONG_ANSWER;
    q.ignore_eos = true;
    q.sampling.bias = few;
    q.sampling.n_bias = BASE_ARRAY_LEN(few);
    for (int32_t n_draft = 2; n_draft <= 10; n_draft += 4) {
        oracle_run alone, drafting;
        fill(tokens, 0, N_PROMPT, n_draft);
        q.prompt = rp_prompt_tokens(tokens, N_PROMPT);
        q.sampling.temperature = n_draft > 2 ? 1 : 0;
        rp_engine_options o = usual();
        rp_engine *e = new_engine(&o);
        q.n_draft = 0;
        q.reuse = RP_REUSE_OFF;
        oracle_run_make(&alone, e, &q);
        must(alone.rc, &alone.err);
        rp_engine_free(e);
        e = new_engine(&o);
        q.n_draft = n_draft;
        q.reuse = RP_REUSE_ON;
        oracle_run_make(&drafting, e, &q);
        must(drafting.rc, &drafting.err);
        assert_true(oracle_run_same(&alone, &drafting));
        drafted += drafting.result->drafted_tokens;
        accepted += drafting.result->accepted_tokens;
        memcpy(tokens + N_PROMPT, alone.result->tokens, sizeof(*tokens) * LONG_ANSWER);
        fill(tokens, N_PROMPT + LONG_ANSWER, N_PROMPT + LONG_ANSWER + 40, 2);
        check_prompt(e, tokens, N_PROMPT + LONG_ANSWER + 40, N_PROMPT + LONG_ANSWER - 1);
        oracle_run_free(&alone);
        oracle_run_free(&drafting);
        rp_engine_free(e);
    }
    printf("%lld tokens drafted, %lld accepted\n", (long long)drafted, (long long)accepted);
    assert_true(accepted > 100 && accepted < drafted);
}

/* ---- the prefix cache ---- */

/* The prompts of a conversation, and what each must find after those before it. */
static void check_conversation(rp_engine *e, int32_t first_cached) {
    static int32_t tokens[4 * N_PROMPT];
    oracle_run r;
    fill(tokens, 0, N_PROMPT, 1);
    check_prompt(e, tokens, N_PROMPT, first_cached);
    check_prompt(e, tokens, N_PROMPT, N_PROMPT - 1); /* again: all but the last token */

    /* another turn, exactly after the answer, whose last token was not computed */
    run(e, tokens, N_PROMPT, N_ANSWER, RP_REUSE_ON, &r);
    memcpy(tokens + N_PROMPT, r.result->tokens, sizeof(*tokens) * N_ANSWER);
    oracle_run_free(&r);
    fill(tokens, N_PROMPT + N_ANSWER, N_PROMPT + N_ANSWER + 40, 2);
    check_prompt(e, tokens, N_PROMPT + N_ANSWER + 40,
                 first_cached > 0 ? N_PROMPT + N_ANSWER + 39 : N_PROMPT + N_ANSWER - 1);
}

static void a_prefix_is_used_up_to_a_checkpoint(void **state) {
    (void)state;
    rp_engine_options o = usual();
    rp_engine *e = new_engine(&o);
    check_conversation(e, 0);
    rp_engine_free(e);
}

/* The text of an edited prompt is computed from the last checkpoint before the edit. There it leaves one, for the next
   edit. */
static void an_edit_leaves_a_checkpoint_at_the_branch(void **state) {
    int32_t tokens[N_PROMPT];
    (void)state;
    rp_engine_options o = usual();
    rp_engine *e = new_engine(&o);
    fill(tokens, 0, N_PROMPT, 1);
    check_prompt(e, tokens, N_PROMPT, 0);
    fill(tokens, 600, N_PROMPT, 2);
    check_prompt(e, tokens, N_PROMPT, last_before(600));
    fill(tokens, 600, N_PROMPT, 3);
    check_prompt(e, tokens, N_PROMPT, 600);
    fill(tokens, 100, N_PROMPT, 4); /* before the first checkpoint */
    check_prompt(e, tokens, N_PROMPT, 0);
    fill(tokens, 100, N_PROMPT, 5);
    check_prompt(e, tokens, N_PROMPT, 100);
    rp_engine_free(e);
}

enum { SYSTEM = 60,
       ASKED = 150,
       ANSWERED = 240,
       EDITED = 330,
       HEAD = 3 }; /* where messages end */

/* tokens[from, end) of a text, as a message: its last token ends answers. */
static void fill_message(int32_t *tokens, int32_t from, int32_t end, int32_t which) {
    fill(tokens, from, end, which);
    tokens[end - 1] = tokenizer_eos(model->tokenizer);
}

/* The prompt of a conversation: a system message, a question, an answer, a question, and the head of an answer. */
static int32_t fill_conversation(int32_t *tokens, int32_t system, int32_t question) {
    fill_message(tokens, 0, SYSTEM, system);
    fill_message(tokens, SYSTEM, ASKED, 11);
    fill_message(tokens, ASKED, ANSWERED, 12);
    fill_message(tokens, ANSWERED, EDITED, question);
    fill(tokens, EDITED, EDITED + HEAD, 13);
    return EDITED + HEAD;
}

/* Of prompts that were never edited there before, only the edited message is computed; of another conversation with the
   same first message, all but that. */
static void check_edits(rp_engine *e, int32_t first_cached) {
    static int32_t tokens[EDITED + HEAD + N_ANSWER + 40];
    oracle_run r;
    int32_t n = fill_conversation(tokens, 10, 20);
    check_prompt(e, tokens, n, first_cached);
    n = fill_conversation(tokens, 10, 21);
    check_prompt(e, tokens, n, first_cached ? first_cached : ANSWERED);
    fill_message(tokens, SYSTEM, ASKED, 22);
    check_prompt(e, tokens, n, first_cached ? first_cached : SYSTEM);

    /* the next turn, whose client leaves out the first tokens of the answer (its reasoning): from the answer's head */
    n = fill_conversation(tokens, 10, 23);
    run(e, tokens, n, N_ANSWER, RP_REUSE_ON, &r);
    memcpy(tokens + n, r.result->tokens + N_ANSWER / 2, sizeof(*tokens) * N_ANSWER / 2);
    oracle_run_free(&r);
    fill(tokens, n + N_ANSWER / 2, n + N_ANSWER / 2 + 40, 24);
    check_prompt(e, tokens, n + N_ANSWER / 2 + 40, first_cached ? n + N_ANSWER / 2 + 39 : n - 1);
}

static void an_edited_message_is_computed_from_its_beginning(void **state) {
    char dir[STORE_FOLDER_BYTES];
    (void)state;
    store_folder_make(dir);
    rp_engine_options o = usual();
    o.store_dir = dir;
    o.store_write = RP_STORE_WRITE_THROUGH;
    rp_engine *e = new_engine(&o);
    check_edits(e, 0);
    rp_engine_free(e);
    e = new_engine(&o);
    check_edits(e, EDITED + HEAD - 1);
    int32_t tokens[EDITED + HEAD];
    check_prompt(e, tokens, fill_conversation(tokens, 10, 25), ANSWERED); /* after a restart */
    rp_engine_free(e);
    store_folder_remove(dir);
}

/* A miss that only a checkpoint would have avoided says so. */
static void a_missing_checkpoint_is_a_reason(void **state) {
    int32_t tokens[N_PROMPT];
    oracle_run r;
    (void)state;
    rp_engine_options o = usual();
    rp_engine *e = new_engine(&o);
    fill(tokens, 0, N_PROMPT, 1);
    run(e, tokens, N_PROMPT, N_ANSWER, RP_REUSE_ON, &r);
    oracle_run_free(&r);
    run(e, tokens, 650, N_ANSWER, RP_REUSE_ON, &r); /* cached KV for 649 of its tokens */
    assert_int_equal(r.result->cached_tokens, last_before(600));
    bool has_reason = false;
    for (int32_t i = 0; i < r.result->n_plan; i++) has_reason |= strcmp(r.result->plan[i].reason, "checkpoint") == 0;
    assert_true(has_reason);
    oracle_run_free(&r);
    rp_engine_free(e);
}

/* A second request for the same prompt waits for the first, and continues from a checkpoint that this leaves for it. */
static void a_job_that_waits_gets_a_checkpoint(void **state) {
    int32_t tokens[2][N_PROMPT];
    oracle_run alone[2], r[2];
    rp_job *jobs[2];
    (void)state;
    rp_engine_options o = usual();
    o.chunk_tokens = 16;
    rp_engine *e = new_engine(&o);
    rp_request q = rp_request_defaults();
    for (int i = 0; i < 2; i++) {
        fill(tokens[i], 0, N_PROMPT, 1);
        fill(tokens[i], 601, N_PROMPT, 2 + i);
        run_alone(tokens[i], N_PROMPT, N_ANSWER, &alone[i]);
    }
    gate g; /* both are submitted before a token of the first is computed */
    q.ignore_eos = true;
    q.max_tokens = 2;
    q.prompt = rp_prompt_tokens(tokens[0] + 1, 3);
    gate_close(&g, e, &q);
    for (int i = 0; i < 2; i++) {
        q.prompt = rp_prompt_tokens(tokens[i], N_PROMPT);
        q.max_tokens = N_ANSWER;
        must(oracle_run_submit(&r[i], e, &q, &jobs[i]), NULL);
    }
    gate_end(&g);
    for (int i = 0; i < 2; i++) {
        oracle_run_finish(&r[i], jobs[i]);
        assert_true(oracle_run_same(&alone[i], &r[i]));
    }
    assert_int_equal(r[1].result->cached_tokens, 601);
    for (int i = 0; i < 2; i++) {
        oracle_run_free(&alone[i]);
        oracle_run_free(&r[i]);
    }
    rp_engine_free(e);
}

/* ---- disk ---- */

static rp_engine_options with_store(const char *dir) {
    rp_engine_options o = usual();
    o.store_dir = dir;
    o.store_write = RP_STORE_WRITE_THROUGH;
    return o;
}

static rp_store_usage usage_of(const char *dir) {
    rp_store_usage u = {.struct_size = sizeof(u)};
    rp_store *store;
    rp_error err = {0};
    must(rp_store_open(&store, dir, NULL, &err), &err);
    must(rp_store_get_usage(store, &u, &err), &err);
    rp_store_close(store);
    return u;
}

static void checkpoints_survive_a_restart(void **state) {
    char dir[STORE_FOLDER_BYTES];
    int32_t tokens[N_PROMPT];
    (void)state;
    store_folder_make(dir);
    rp_engine_options o = with_store(dir);
    rp_engine *e = new_engine(&o);
    check_conversation(e, 0);
    rp_engine_free(e);
    assert_true(usage_of(dir).states >= 3 && usage_of(dir).texts >= 3);
    e = new_engine(&o);
    check_conversation(e, N_PROMPT - 1);
    fill(tokens, 0, N_PROMPT, 1);
    fill(tokens, 600, N_PROMPT, 2);
    check_prompt(e, tokens, N_PROMPT, last_before(600));
    rp_engine_free(e);
    store_folder_remove(dir);
}

/* Damages the records of a kind. */
static void damage(const char *dir, rp_store_kind kind) {
    rp_store *store;
    rp_store_listing *list;
    rp_error err = {0};
    must(rp_store_open(&store, dir, NULL, &err), &err);
    must(rp_store_list(store, NULL, NULL, &list, &err), &err);
    size_t n = 0;
    for (size_t i = 0; i < list->n_entries; i++) {
        char end[80];
        if (list->entries[i].kind != kind) continue;
        snprintf(end, sizeof(end), "%s.rps", list->entries[i].key + 40);
        store_folder_flip(dir, end);
        n++;
    }
    assert_true(n > 0);
    rp_store_listing_free(list);
    rp_store_close(store);
}

/* Of the KV or of the states: both are needed. One miss, even if the span of the damaged record is still referenced
 * when the text is inserted again. */
static void damaged_records_are_misses(void **state) {
    static const rp_store_kind kinds[] = {RP_STORE_TEXT, RP_STORE_STATES};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char dir[STORE_FOLDER_BYTES];
        int32_t tokens[N_PROMPT];
        store_folder_make(dir);
        rp_engine_options o = with_store(dir);
        rp_engine *e = new_engine(&o);
        fill(tokens, 0, N_PROMPT, 1);
        check_prompt(e, tokens, N_PROMPT, 0);
        rp_engine_free(e);
        damage(dir, kinds[i]);
        e = new_engine(&o);
        check_prompt(e, tokens, N_PROMPT, 0);
        check_prompt(e, tokens, N_PROMPT, N_PROMPT - 1);
        rp_engine_free(e);
        store_folder_remove(dir);
    }
}

/* `reprise cache verify --recompute`: the states of every record, from the text before them. */
static void states_are_computed_again(void **state) {
    char dir[STORE_FOLDER_BYTES];
    (void)state;
    store_folder_make(dir);
    rp_error err = {0};
    const char *fingerprint;
    must(rp_model_fingerprint(model, 1, NULL, NULL, &fingerprint, &err), &err);
    rp_engine_options o = with_store(dir), bare = usual();
    rp_engine *e = new_engine(&o);
    check_conversation(e, 0);
    rp_engine_free(e);
    const rp_store_usage usage = usage_of(dir);
    rp_store *store;
    rp_store_recomputed done = {.struct_size = sizeof(done)};
    must(rp_store_open(&store, dir, NULL, &err), &err);
    e = new_engine(&bare);
    must(rp_store_recompute(store, e, NULL, NULL, NULL, NULL, &done, &err), &err);
    assert_int_equal(done.checked, usage.records);
    assert_true(usage.records > usage.texts);
    assert_int_equal(done.different, 0);
    rp_engine_free(e);
    rp_store_close(store);
    store_folder_remove(dir);
}

/* ---- memory ---- */

/* Where there is no memory for checkpoints, prompts are computed. */
static void a_small_budget_changes_no_result(void **state) {
    int32_t tokens[N_PROMPT];
    rp_engine_options o = usual();
    (void)state;
    fill(tokens, 0, N_PROMPT, 1);
    oracle_run alone;
    run_alone(tokens, N_PROMPT, N_ANSWER, &alone);
    const kv_shape shape = model_kv_shape(model, RP_KV_F16);
    const uint64_t block = kv_shape_block_bytes(&shape);
    uint64_t reserved = 0; /* for running states */
    for (int32_t l = 0; l < shape.n_layers; l++) reserved += (shape.layers[l].state_bytes + block - 1) / block * block;
    o.kv_budget_bytes = reserved + alone.result->kv_bytes + alone.result->kv_bytes / 4;
    rp_engine *e = new_engine(&o);
    for (int32_t i = 0; i < 6; i++) {
        oracle_run r, expected;
        fill(tokens, 300 + 50 * i, N_PROMPT, 1 + i);
        run_alone(tokens, N_PROMPT, N_ANSWER, &expected);
        run(e, tokens, N_PROMPT, N_ANSWER, RP_REUSE_ON, &r);
        assert_true(oracle_run_same(&expected, &r));
        oracle_run_free(&expected);
        oracle_run_free(&r);
    }
    oracle_run_free(&alone);
    rp_engine_free(e);
}

/* ---- what such a model cannot do ---- */

static int try_request(rp_engine *e, const rp_request *q) {
    rp_error err = {0};
    rp_result *r = NULL;
    const int rc = rp_engine_run(e, q, &r, &err);
    if (rc) printf("%s\n", err.message);
    rp_result_free(r);
    return rc;
}

static void what_needs_other_kv_is_refused(void **state) {
    (void)state;
    rp_error err = {0};
    rp_engine_options o = usual();
    rp_engine *e = new_engine(&o), *refused = NULL;
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_text("a river");
    q.kv_keep = "50%";
    assert_int_equal(try_request(e, &q), RP_ERR_UNSUPPORTED);
    q.kv_keep = NULL;
    q.context_shift = true;
    q.max_tokens = 5000;
    assert_int_equal(try_request(e, &q), RP_ERR_UNSUPPORTED);
    q.context_shift = false;
    q.max_tokens = 4;
    q.shifted_reuse = 8; /* approximate reuse: there is none */
    assert_int_equal(try_request(e, &q), RP_OK);
    o.kv_keep = "50%";
    assert_int_equal(rp_engine_new(&refused, model, &o, &err), RP_ERR_UNSUPPORTED);
    printf("%s\n", err.message);
    rp_engine_free(e);
}

static const char schema_text[] = "<schema name='s'>Once <module name='one'>the river of the city</module>"
                                  "<module name='two'>the hills of the river</module></schema>";

/* Modules are text, in the order of the prompt, and share a prefix like any text. */
static void modules_are_text(void **state) {
    (void)state;
    rp_error err = {0};
    rp_engine_options o = usual();
    oracle_run on, off, exact;
    rp_engine *e = new_engine(&o);
    must(rp_schema_parse(e, schema_text, strlen(schema_text), "s", NULL, NULL, NULL, &err), &err);
    must(rp_schema_prefill(e, NULL, "s", NULL, NULL, &err), &err);
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml("<prompt schema='s'><two/><one/> and a word</prompt>");
    q.max_tokens = N_ANSWER;
    q.ignore_eos = true;
    oracle_run_make(&on, e, &q);
    must(on.rc, &on.err);
    q.reuse = RP_REUSE_EXACT;
    oracle_run_make(&exact, e, &q);
    assert_int_equal(exact.result->cached_tokens, exact.result->prompt_tokens - 1);
    assert_int_equal(exact.result->n_warnings, 0); /* it asked for that */
    assert_int_equal(on.result->n_warnings, 1);
    assert_non_null(strstr(on.result->warnings[0], "modules are text of this prompt"));
    q.reuse = RP_REUSE_OFF;
    rp_engine_free(e);
    o.chunk_tokens = 1;
    e = new_engine(&o);
    must(rp_schema_parse(e, schema_text, strlen(schema_text), "s", NULL, NULL, NULL, &err), &err);
    q.reuse = RP_REUSE_EXACT;
    q.experiment = &experiment_no_prefix;
    oracle_run_make(&off, e, &q);
    assert_true(oracle_run_same(&on, &off));
    assert_true(oracle_run_same(&on, &exact));
    oracle_run_free(&on);
    oracle_run_free(&off);
    oracle_run_free(&exact);
    rp_engine_free(e);
}

/* The first request with another question computes nothing but the question. */
static void modules_end_in_checkpoints(void **state) {
    static const char *const questions[] = {" Where is it?", " And how far is it from here, by a road?"};
    char text[2048];
    (void)state;
    rp_error err = {0};
    rp_engine_options o = usual();
    rp_engine *e = new_engine(&o);
    snprintf(text, sizeof(text), "<schema name='s'><module name='one'>%s</module>%s</schema>",
             "The river of the city flows from the hills to the sea, and under nine bridges.",
             "<module name='two'>The hills of the river are seven; on each stands a tower.</module>");
    must(rp_schema_parse(e, text, strlen(text), "s", NULL, NULL, NULL, &err), &err);
    rp_request q = rp_request_defaults();
    q.max_tokens = N_ANSWER;
    q.ignore_eos = true;
    int32_t cached = 0, n_prompt[2];
    for (int i = 0; i < 2; i++) {
        oracle_run r;
        snprintf(text, sizeof(text), "<prompt schema='s'><two/><one/>%s</prompt>", questions[i]);
        q.prompt = rp_prompt_pml(text);
        oracle_run_make(&r, e, &q);
        must(r.rc, &r.err);
        cached = r.result->cached_tokens;
        n_prompt[i] = r.result->prompt_tokens;
        assert_true(i > 0 || cached == 0);
        printf("%d of %d tokens were cached\n", cached, n_prompt[i]);
        oracle_run_free(&r);
    }
    assert_true(cached > LEAST_PART && cached < n_prompt[0]);
    assert_true(n_prompt[1] - cached <= (int32_t)strlen(questions[1]) + 1);
    rp_engine_free(e);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_division_into_steps_gives_the_same_bytes),
        cmocka_unit_test(requests_in_one_step_do_not_meet),
        cmocka_unit_test(drafts_change_no_result),
        cmocka_unit_test(a_prefix_is_used_up_to_a_checkpoint),
        cmocka_unit_test(an_edit_leaves_a_checkpoint_at_the_branch),
        cmocka_unit_test(an_edited_message_is_computed_from_its_beginning),
        cmocka_unit_test(a_missing_checkpoint_is_a_reason),
        cmocka_unit_test(a_job_that_waits_gets_a_checkpoint),
        cmocka_unit_test(checkpoints_survive_a_restart),
        cmocka_unit_test(damaged_records_are_misses),
        cmocka_unit_test(states_are_computed_again),
        cmocka_unit_test(a_small_budget_changes_no_result),
        cmocka_unit_test(what_needs_other_kv_is_refused),
        cmocka_unit_test(modules_are_text),
        cmocka_unit_test(modules_end_in_checkpoints),
    };
    int failed = 0;
    const int32_t n_all = (int32_t)BASE_ARRAY_LEN(subjects), n_some = test_rounds(n_all) + LEAST_SUBJECTS;
    for (int32_t i = 0; i < BASE_MIN(n_all, n_some); i++) {
        const char *name = subjects[i].golden ? subjects[i].golden : "sum";
        bool is_wanted = argc == 1;
        for (int k = 1; k < argc; k++) is_wanted |= strcmp(argv[k], name) == 0;
        subject = &subjects[i];
        if (is_wanted) failed += cmocka_run_group_tests_name(name, tests, open_recurrent, close_recurrent);
    }
    return failed;
}
