/* SPDX-License-Identifier: Apache-2.0 */
/* test_calls.c: jobs under way: queueing, order, cancellation, deadlines, budgets; prefix caching; drafts; reports of
 * results and steps. tests/exactness shows that answers depend on none of these.
 *
 * A job with an on_token that waits at a gate stops the engine at a chosen point.
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
#include "base/file.h"
#include "reprise.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "support/calls.h"
#include "support/gate.h"
#include "support/shared_model.h"
#include "support/tiny_model.h"
#include "support/experiments.h"

/* ---- the gate ---------------------------------------------------------------------------------------------------- */

/* The engine is held in the middle of an answer of two tokens until gate_end. */
static void close_gate(gate *g, rp_engine *e) {
    rp_request q = calls_request("gate", 2);
    gate_close(g, e, &q);
}

/* ---- queueing -----------------------------------------------------------------------------------------------------
 * */

static void a_full_queue_refuses_and_says_when_to_come_back(void **state) {
    (void)state;
    rp_engine_options o = rp_engine_options_defaults();
    o.max_sequences = 1;
    o.max_queue = 2;
    rp_engine *e = open_engine(&o);
    rp_request q = calls_request("hello", 1);
    rp_job *waiting[2], *none = NULL;
    rp_error err = {0};
    rp_job_status status = {.struct_size = sizeof(status)};
    gate g;
    close_gate(&g, e);
    for (int i = 0; i < 2; i++) waiting[i] = calls_submit(e, &q);
    assert_int_equal(rp_engine_submit(e, &q, &none, &err), RP_ERR_BUSY);
    assert_null(none);
    assert_true(err.retry_after_ms > 0);
    assert_false(rp_job_wait(waiting[1], 0));
    rp_job_get_status(waiting[1], &status);
    assert_int_equal(status.state, RP_JOB_WAITING);
    gate_end(&g);
    for (int i = 0; i < 2; i++) {
        assert_true(rp_job_wait(waiting[i], -1));
        rp_job_get_status(waiting[i], &status);
        assert_true(status.state == RP_JOB_DONE && status.queue_position == 0 && status.answer_tokens <= 1);
        rp_result_free(calls_result(waiting[i]));
        rp_result *again;
        assert_int_equal(rp_job_result(waiting[i], &again, &err), RP_ERR_INVALID);
        rp_job_free(waiting[i]);
    }
    rp_engine_free(e);
}

static void priorities_then_deadlines_then_arrival(void **state) {
    (void)state;
    static const struct {
        int32_t priority;
        int64_t deadline_ms;
        int expected;
    } calls[] = {{0, 0, 5}, {0, 900000, 4}, {0, 800000, 3}, {7, 0, 1}, {7, 0, 2}, {-1, 1000, 6}};
    rp_engine_options o = rp_engine_options_defaults();
    o.max_sequences = 1;
    rp_engine *e = open_engine(&o);
    rp_job *call[BASE_ARRAY_LEN(calls)];
    calls_order places[BASE_ARRAY_LEN(calls)];
    int next = 0;
    gate g;
    close_gate(&g, e);
    for (size_t i = 0; i < BASE_ARRAY_LEN(calls); i++) {
        rp_request q = calls_request("x", 1);
        q.priority = calls[i].priority;
        q.deadline_ms = calls[i].deadline_ms > 1000 ? calls[i].deadline_ms : 0;
        places[i] = (calls_order){&next, 0};
        q.on_done = calls_note_order;
        q.user = &places[i];
        call[i] = calls_submit(e, &q);
    }
    gate_end(&g);
    for (size_t i = 0; i < BASE_ARRAY_LEN(calls); i++) {
        rp_result_free(calls_result(call[i]));
        assert_int_equal(places[i].place, calls[i].expected);
        rp_job_free(call[i]);
    }
    rp_engine_free(e);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static bool spin_past_deadline(void *user, const rp_token *token) {
    (void)token;
    uint64_t *until = user;
    while (base_clock_us() < *until) {}
    return true;
}

static void deadlines_end_calls(void **state) {
    (void)state;
    rp_engine_options o = rp_engine_options_defaults();
    o.max_sequences = 1;
    rp_engine *e = open_engine(&o);
    rp_request q = calls_request("x", 5);
    rp_result *r;
    rp_error err = {0};
    gate g;
    close_gate(&g, e);
    q.deadline_ms = 1;
    rp_job *late = calls_submit(e, &q);
    uint64_t until = base_clock_us() + 2000;
    while (base_clock_us() < until) {}
    gate_end(&g);
    assert_int_equal(rp_job_result(late, &r, &err), RP_ERR_DEADLINE);
    assert_non_null(strstr(err.message, "deadline"));
    rp_job_free(late);
    q.deadline_ms = 200;
    until = base_clock_us() + 250000;
    q.on_token = spin_past_deadline;
    q.user = &until;
    rp_result *cut = tiny_model_answer(e, &q);
    assert_string_equal(cut->finish_reason, "deadline");
    assert_true(cut->n_tokens >= 1 && cut->n_tokens < 5);
    rp_result_free(cut);
    rp_engine_free(e);
}

static void cancelled_calls_end_wherever_they_are(void **state) {
    (void)state;
    rp_engine_options o = rp_engine_options_defaults();
    o.max_sequences = 1;
    rp_engine *e = open_engine(&o);
    rp_request q = calls_request("x", 3);
    rp_result *r;
    gate g;
    close_gate(&g, e);
    rp_job *waiting = calls_submit(e, &q), *freed = calls_submit(e, &q);
    rp_job_cancel(waiting);
    rp_job_cancel(g.call); /* in the middle of its answer */
    rp_job_cancel(freed);
    pthread_mutex_lock(&g.lock);
    g.open = true;
    pthread_cond_broadcast(&g.changed);
    pthread_mutex_unlock(&g.lock);
    assert_int_equal(rp_job_result(waiting, &r, NULL), RP_ERR_CANCELLED);
    rp_result *begun = calls_result(g.call);
    assert_string_equal(begun->finish_reason, "cancelled");
    assert_int_equal(begun->n_tokens, 1);
    rp_result_free(begun);
    rp_job_free(waiting);
    rp_job_free(g.call);
    rp_job_free(freed);
    rp_result *after = tiny_model_answer(e, &q);
    assert_int_equal(after->n_tokens, 3);
    rp_result_free(after);
    rp_engine_free(e);
}

static void a_prompt_that_never_fits_is_refused_and_an_answer_ends_with_the_budget(void **state) {
    (void)state;
    rp_engine_options o = rp_engine_options_defaults();
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(model, &info);
    o.kv_budget_bytes = info.kv_bytes_per_token * 256; /* four blocks in each layer */
    rp_engine *e = open_engine(&o);
    char *text = calls_text(1, 300);
    rp_request q = calls_request(text, 1);
    rp_job *c;
    rp_error err = {0};
    assert_int_equal(rp_engine_submit(e, &q, &c, &err), RP_ERR_BUDGET);
    assert_non_null(strstr(err.message, "budget"));
    q = calls_request("short", 1000);
    rp_result *r = tiny_model_answer(e, &q);
    assert_string_equal(r->finish_reason, "length");
    assert_true(r->n_tokens > 100 && r->prompt_tokens + r->n_tokens <= 257);
    rp_result_free(r);
    free(text);
    rp_engine_free(e);
}

/* ---- prefix cache --------------------------------------------------------------------------------------------------
 * */

static const rp_plan_item *last_item(const rp_result *r) { return &r->plan[r->n_plan - 1]; }

static char *join(const char *a, const char *b) {
    char *text = malloc(strlen(a) + strlen(b) + 1);
    return strcat(strcpy(text, a), b);
}

static void a_text_is_read_once(void **state) {
    (void)state;
    rp_engine *e = open_engine(NULL);
    char *text = calls_text(2, 200), *other = join(text, " and now something else"), *cut = join(text, "");
    rp_request q = calls_request(text, 4), more = calls_request(other, 1), off = calls_request(text, 1), other_end;
    rp_result *first = tiny_model_answer(e, &q), *second = tiny_model_answer(e, &q),
              *longer = tiny_model_answer(e, &more);
    assert_int_equal(first->cached_tokens, 0);
    assert_string_equal(last_item(first)->reason, "new");
    assert_int_equal(second->cached_tokens, second->prompt_tokens - 1);
    assert_string_equal(last_item(second)->reason, "last");
    assert_int_equal(second->mismatch.token, -1);
    assert_memory_equal(first->tokens, second->tokens, 4 * sizeof(int32_t));
    assert_true(longer->cached_tokens >= first->prompt_tokens - 2); /* before a space the last token may differ */
    assert_string_equal(longer->plan[0].tier, "ram");
    assert_int_equal(strlen(longer->plan[0].key), 16);
    off.experiment = &experiment_no_prefix;
    rp_result *without = tiny_model_answer(e, &off);
    assert_int_equal(without->cached_tokens, 0);
    assert_string_equal(last_item(without)->reason, "off");
    strcpy(cut + strlen(cut) - 4, " zzz");
    other_end = calls_request(cut, 1);
    rp_result *diverges = tiny_model_answer(e, &other_end);
    assert_int_equal(diverges->mismatch.token, diverges->cached_tokens);
    assert_true(strlen(diverges->mismatch.before) > 0 &&
                strcmp(diverges->mismatch.prompt, diverges->mismatch.cached) != 0);
    assert_string_equal(diverges->mismatch.module, "prompt");
    rp_result *all[] = {first, second, longer, without, diverges};
    for (size_t i = 0; i < BASE_ARRAY_LEN(all); i++) rp_result_free(all[i]);
    free(text);
    free(other);
    free(cut);
    rp_engine_free(e);
}

/* After the same modules a conversation hits its prefix; after other modules it misses. */
static void a_conversation_goes_on_behind_its_modules(void **state) {
    (void)state;
    static const char schema[] =
        "<schema name='s'><module name='a'>The first module.</module><module name='b'>Another.</module></schema>";
    rp_engine *e = open_engine(NULL);
    rp_request q = rp_request_defaults();
    assert_int_equal(rp_schema_parse(e, schema, strlen(schema), "s.xml", NULL, NULL, NULL, NULL), RP_OK);
    q.max_tokens = 2;
    q.prompt = rp_prompt_pml("<prompt schema='s'><a/><user>What is this about, and who wrote it?</user></prompt>");
    rp_result *first = tiny_model_answer(e, &q);
    q.prompt = rp_prompt_pml("<prompt schema='s'><a/><user>What is this about, and who wrote it?</user>"
                             "<assistant>Me.</assistant><user>Why?</user></prompt>");
    rp_result *second = tiny_model_answer(e, &q);
    q.prompt = rp_prompt_pml("<prompt schema='s'><b/><user>What is this about, and who wrote it?</user></prompt>");
    rp_result *third = tiny_model_answer(e, &q);
    q.prompt = rp_prompt_pml("<prompt schema='s'><a/><user>What is this about, and who wrote it?</user>"
                             "<assistant>Me.</assistant><user>When?</user></prompt>");
    rp_result *fourth = tiny_model_answer(e, &q);
    assert_string_equal(fourth->mismatch.message, "user 2");
    assert_string_equal(fourth->mismatch.module, "prompt");
    rp_result_free(fourth);
    assert_int_equal(second->cached_tokens, first->prompt_tokens);
    assert_true(last_item(second)->position > 0 && !last_item(second)->is_view);
    assert_int_equal(third->cached_tokens,
                     third->plan[0].n_tokens); /* the beginning-of-text token before the modules */
    rp_result_free(first);
    rp_result_free(second);
    assert_string_equal(last_item(third)->reason, "scope");
    rp_result_free(third);
    rp_engine_free(e);
}

/* ---- reports while a job runs ---- */

/* Holds a request at its first token and compares the job's status with its result, which the caller owns. */
static rp_result *run_watched(rp_engine *e, const rp_request *q) {
    rp_job_status held = {.struct_size = sizeof(held)}, ended = {.struct_size = sizeof(ended)};
    gate g;
    gate_close(&g, e, q);
    rp_job_get_status(g.call, &held);
    gate_open(&g);
    rp_result *r = calls_result(g.call);
    rp_job_get_status(g.call, &ended);
    rp_job_free(g.call);
    assert_int_equal(held.state, RP_JOB_PREFILL);
    assert_true(held.computed_tokens <= held.prompt_tokens);
    assert_int_equal(held.prompt_tokens, r->prompt_tokens);
    assert_int_equal(held.cached_tokens, r->cached_tokens);
    assert_int_equal(ended.prompt_tokens, r->prompt_tokens);
    assert_int_equal(ended.cached_tokens, r->cached_tokens);
    assert_int_equal(ended.computed_tokens, r->prompt_tokens);
    assert_int_equal(ended.answer_tokens, r->n_tokens);
    return r;
}

/* Modules, hits and misses, a cached prefix, and tokens after an edit: all are counted before the first token. */
static void a_call_counts_its_prompt_before_the_first_token(void **state) {
    (void)state;
    static const char schema[] =
        "<schema name='s'><module name='a'>The first module.</module><module name='b'>Another.</module></schema>";
    static const char *const prompts[] = {"<prompt schema='s'><a/><user>What is this?</user></prompt>",
                                          "<prompt schema='s'><a/><user>What is this? And that?</user></prompt>",
                                          "<prompt schema='s'><a/><b/><user>What is this?</user></prompt>"};
    static const rp_reuse reuses[] = {RP_REUSE_ON, RP_REUSE_OFF, RP_REUSE_EXACT};
    rp_engine *e = open_engine(NULL);
    char *rest = calls_text(3, 200), *texts[] = {malloc(4096), malloc(4096)};
    int32_t found = 0;
    assert_int_equal(rp_schema_parse(e, schema, strlen(schema), "s.xml", NULL, NULL, NULL, NULL), RP_OK);
    for (size_t i = 0; i < BASE_ARRAY_LEN(prompts); i++)
        for (size_t k = 0; k < BASE_ARRAY_LEN(reuses); k++) {
            rp_request q = calls_request(NULL, 2);
            q.prompt = rp_prompt_pml(prompts[i]);
            q.reuse = reuses[k];
            rp_result *r = run_watched(e, &q);
            assert_true((r->cached_tokens > 0) == (r->timings.saved_ms > 0));
            found += r->cached_tokens > 0;
            rp_result_free(r);
        }
    assert_true(found >= 2);
    for (int i = 0; i < 2; i++) {
        snprintf(texts[i], 4096, "Before it, %s word. %s", i ? "another" : "one", rest);
        rp_request q = calls_request(texts[i], 2);
        q.shifted_reuse = 4;
        rp_result *r = run_watched(e, &q);
        if (i == 1) assert_true(r->cached_tokens > 200 && r->plan[r->n_plan - 1].position > 200); /* moved */
        rp_result_free(r);
        free(texts[i]);
    }
    free(rest);
    rp_engine_free(e);
}

static void an_engine_describes_itself(void **state) {
    (void)state;
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine_info info = {.struct_size = sizeof(info)};
    o.n_threads = 1;
    o.n_ctx = 512;
    o.max_sequences = 1;
    o.max_queue = 7;
    rp_engine *e = open_engine(&o);
    rp_engine_describe(e, &info);
    assert_true(info.n_threads == 1 && info.n_ctx == 512 && info.max_sequences == 1 && info.max_queue == 7 &&
                !info.prepared);
    assert_true(info.chunk_tokens > 0 && info.kv_format == RP_KV_F16 && info.running == 0 && info.waiting == 0);
    rp_request q = calls_request("hello", 1);
    gate g;
    close_gate(&g, e);
    rp_job *waiting = calls_submit(e, &q);
    rp_engine_describe(e, &info);
    assert_int_equal(info.running + info.waiting, 2);
    gate_end(&g);
    rp_result_free(calls_result(waiting));
    rp_job_free(waiting);
    rp_engine_describe(e, &info);
    assert_true(info.running == 0 && info.waiting == 0 && info.prepared);
    rp_engine_free(e);
}

/* The prefill of a schema can be waited for, or cancelled halfway; the finished part is kept. */
static void computing_a_schema_can_be_cancelled(void **state) {
    (void)state;
    rp_engine *e = open_engine(NULL);
    char *schema = malloc(1 << 16), *end = schema + sprintf(schema, "<schema name='s'>");
    for (int i = 0; i < 8; i++) {
        char *text = calls_text(i, 60);
        end += sprintf(end, "<module name='m%d'>%s</module>", i, text);
        free(text);
    }
    sprintf(end, "</schema>");
    assert_int_equal(rp_schema_parse(e, schema, strlen(schema), "s.xml", NULL, NULL, NULL, NULL), RP_OK);
    rp_request q = calls_request("hello", 1);
    rp_job *call = NULL;
    rp_result *none;
    rp_error err;
    gate g;
    assert_int_equal(rp_schema_submit(e, NULL, "other", NULL, NULL, &call, &err), RP_ERR_NAME);
    assert_null(call);
    close_gate(&g, e);
    assert_int_equal(rp_schema_submit(e, NULL, "s", NULL, NULL, &call, &err), RP_OK);
    rp_job_cancel(call);
    gate_end(&g);
    assert_int_equal(rp_job_result(call, &none, &err), RP_ERR_CANCELLED);
    rp_job_free(call);
    assert_int_equal(rp_schema_submit(e, NULL, "s", NULL, NULL, &call, &err), RP_OK);
    assert_int_equal(rp_job_result(call, &none, &err), RP_OK);
    assert_null(none);
    rp_job_free(call);
    q.prompt = rp_prompt_pml("<prompt schema='s'><m0/><m7/> And?</prompt>");
    rp_result *r = tiny_model_answer(e, &q);
    assert_true(r->cached_tokens > 100);
    rp_result_free(r);
    free(schema);
    rp_engine_free(e);
}

/* ---- prompts of token ids ---- */

/* They are the prompt as given: those of a text hit the text's prefix, and give its answer. */
static void token_ids_are_a_prompt(void **state) {
    (void)state;
    rp_engine *e = open_engine(NULL);
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(model, &info);
    char *text = calls_text(5, 60);
    int32_t *tokens, bad[] = {1, info.n_vocab};
    size_t n;
    rp_error err;
    rp_result *none;
    rp_request q = calls_request(text, 6);
    rp_result *first = tiny_model_answer(e, &q);
    assert_int_equal(rp_tokenize(model, text, strlen(text), false, true, &tokens, &n, &err), RP_OK);
    q.prompt = rp_prompt_tokens(tokens, n);
    rp_result *second = tiny_model_answer(e, &q);
    assert_int_equal(second->prompt_tokens, first->prompt_tokens);
    assert_int_equal(second->cached_tokens, first->prompt_tokens - 1);
    assert_string_equal(second->text, first->text);
    q.prompt.n = 0;
    assert_int_equal(rp_engine_run(e, &q, &none, &err), RP_ERR_INVALID);
    q.prompt = rp_prompt_tokens(bad, 2);
    assert_int_equal(rp_engine_run(e, &q, &none, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "token 1"));
    bad[0] = -1;
    assert_int_equal(rp_engine_run(e, &q, &none, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "token 0"));
    rp_result_free(first);
    rp_result_free(second);
    rp_free(tokens);
    free(text);
    rp_engine_free(e);
}

/* ---- stop strings ---- */

/* Three ASCII characters of a text; the last two occur nowhere before. */
static const char *find_stop(const char *text) {
    for (const char *s = text; strlen(s) > 3; s++) {
        char two[3] = {s[1], s[2]};
        if ((s[0] | s[1] | s[2]) > 0 && strstr(text, two) == s + 1) return s;
    }
    fail_msg("'%s' has none", text);
    return NULL;
}

static void a_result_names_the_stop_string(void **state) {
    (void)state;
    rp_engine *e = open_engine(NULL);
    rp_request q = calls_request("Where is", 60);
    rp_result *whole = tiny_model_answer(e, &q);
    char shorter[4] = "", longer[4] = "";
    const char *stops[] = {"no such thing", shorter, longer}, *at = find_stop(whole->text);
    assert_null(whole->stop);
    memcpy(shorter, at + 1, 2); /* both end at the same byte: the longer one counts */
    memcpy(longer, at, 3);
    q.stops = stops;
    q.n_stops = 3;
    rp_result *stopped = tiny_model_answer(e, &q);
    assert_string_equal(stopped->stop, longer);
    assert_int_equal(strlen(stopped->text), at - whole->text);
    q.n_stops = 1;
    rp_result *missed = tiny_model_answer(e, &q);
    assert_null(missed->stop);
    rp_result_free(whole);
    rp_result_free(stopped);
    rp_result_free(missed);
    rp_engine_free(e);
}

static void what_was_dropped_says_so(void **state) {
    (void)state;
    rp_engine_options o = rp_engine_options_defaults();
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(model, &info);
    o.kv_budget_bytes = info.kv_bytes_per_token * 64 * 24;
    rp_engine *e = open_engine(&o);
    char *text = calls_text(0, 100), *others = NULL;
    rp_request q = calls_request(text, 1);
    rp_result_free(tiny_model_answer(e, &q));
    for (int i = 1; i < 100; i++) { /* slow KV is kept longer: one slow step must not outweigh this many */
        others = calls_text(i, 100);
        rp_request other = calls_request(others, 1);
        rp_result_free(tiny_model_answer(e, &other));
        free(others);
    }
    rp_result *again = tiny_model_answer(e, &q);
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    assert_string_equal(last_item(again)->reason, "evicted");
    rp_engine_store_stats(e, &stats);
    assert_true(stats.evictions > 0 && stats.bytes == stats.used_bytes && stats.used_bytes <= stats.budget_bytes);
    rp_result_free(again);
    free(text);
    rp_engine_free(e);
}

/* Eight callers submit one new prompt: one job computes it. */
static void the_same_new_prompt_is_computed_once(void **state) {
    (void)state;
    rp_engine_options o = rp_engine_options_defaults();
    o.chunk_tokens = 64;
    rp_engine *e = open_engine(&o);
    char *text = calls_text(3, 300);
    rp_request q = calls_request(text, 3);
    rp_job *calls[8];
    gate g;
    int32_t computed = 0, tokens = 0;
    close_gate(&g, e);
    for (int i = 0; i < 8; i++) calls[i] = calls_submit(e, &q);
    gate_end(&g);
    for (int i = 0; i < 8; i++) {
        rp_result *r = calls_result(calls[i]);
        tokens = r->prompt_tokens;
        computed += r->fresh_tokens;
        rp_result_free(r);
        rp_job_free(calls[i]);
    }
    assert_true(tokens > 300);
    assert_int_equal(computed, tokens + 7);
    free(text);
    rp_engine_free(e);
}

/* ---- drafts
   -------------------------------------------------------------------------------------------------------- */

static void drafts_change_steps_and_nothing_else(void **state) {
    (void)state;
    rp_engine *e = open_engine(NULL);
    for (int warm = 0; warm < 2; warm++) {
        rp_request q = calls_request("a b c d a b c d a b c d a b", 200);
        q.sampling.temperature = warm ? 0.7f : 0;
        q.sampling.seed = 5;
        rp_result *plain = tiny_model_answer(e, &q);
        q.n_draft = RP_MAX_DRAFT;
        rp_result *drafted = tiny_model_answer(e, &q);
        assert_int_equal(plain->n_tokens, drafted->n_tokens);
        assert_memory_equal(plain->tokens, drafted->tokens, (size_t)plain->n_tokens * sizeof(int32_t));
        assert_string_equal(plain->text, drafted->text);
        assert_int_equal(plain->drafted_tokens, 0);
        if (!warm) assert_true(drafted->drafted_tokens >= drafted->accepted_tokens && drafted->accepted_tokens > 0);
        rp_result_free(drafted);
        q.n_draft = RP_DRAFT_AUTO;
        drafted = tiny_model_answer(e, &q);
        assert_int_equal(plain->n_tokens, drafted->n_tokens);
        assert_memory_equal(plain->tokens, drafted->tokens, (size_t)plain->n_tokens * sizeof(int32_t));
        rp_result_free(plain);
        rp_result_free(drafted);
    }
    rp_engine_free(e);
}

/* ---- steps
   --------------------------------------------------------------------------------------------------------- */

typedef struct seen_steps {
    uint64_t number, mixed, late; /* late: steps with prompt rows and without the answer under way */
    bool decoding;
} seen_steps;

static void see_step(void *user, const rp_step *step) {
    seen_steps *s = user;
    bool decode = false, prefill = false;
    assert_int_equal(step->number, ++s->number);
    assert_true(step->end_us >= step->start_us && step->n_parts > 0);
    for (int32_t i = 0; i < step->n_parts; i++) {
        assert_true(step->parts[i].n_rows > 0 && step->parts[i].context_tokens >= step->parts[i].n_rows);
        decode |= step->parts[i].kind == RP_STEP_DECODE && step->parts[i].job == 1;
        prefill |= step->parts[i].kind == RP_STEP_PREFILL;
    }
    s->mixed += decode && prefill;
    s->late += s->decoding && prefill && !decode;
}

static bool note_decoding(void *user, const rp_token *token) {
    seen_steps *s = user;
    (void)token;
    s->decoding = true;
    return true;
}

static void stop_decoding(void *user) { ((seen_steps *)user)->decoding = false; }

static void no_answer_waits_for_a_prompt(void **state) {
    (void)state;
    seen_steps seen = {0};
    rp_engine_options o = rp_engine_options_defaults();
    o.on_step = see_step;
    o.step_user = &seen;
    o.token_goal_ms = 0.01f; /* chunks of minimal size */
    rp_engine *e = open_engine(&o);
    char *text = calls_text(4, 200);
    rp_request answer = calls_request("x", 400), prompt = calls_request(text, 1);
    answer.on_token = note_decoding;
    answer.on_done = stop_decoding;
    answer.user = &seen;
    rp_job *a = calls_submit(e, &answer), *b = calls_submit(e, &prompt);
    rp_result *ra = calls_result(a), *rb = calls_result(b);
    assert_true(ra->n_tokens == 400 && rb->n_tokens == 1);
    rp_result_free(ra);
    rp_result_free(rb);
    rp_job_free(a);
    rp_job_free(b);
    rp_engine_free(e);
    assert_true(seen.mixed > 20);
    assert_int_equal(seen.late, 0);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_queue_refuses_and_says_when_to_come_back),
        cmocka_unit_test(priorities_then_deadlines_then_arrival),
        cmocka_unit_test(deadlines_end_calls),
        cmocka_unit_test(cancelled_calls_end_wherever_they_are),
        cmocka_unit_test(a_prompt_that_never_fits_is_refused_and_an_answer_ends_with_the_budget),
        cmocka_unit_test(a_text_is_read_once),
        cmocka_unit_test(a_conversation_goes_on_behind_its_modules),
        cmocka_unit_test(a_call_counts_its_prompt_before_the_first_token),
        cmocka_unit_test(an_engine_describes_itself),
        cmocka_unit_test(computing_a_schema_can_be_cancelled),
        cmocka_unit_test(token_ids_are_a_prompt),
        cmocka_unit_test(a_result_names_the_stop_string),
        cmocka_unit_test(what_was_dropped_says_so),
        cmocka_unit_test(the_same_new_prompt_is_computed_once),
        cmocka_unit_test(drafts_change_steps_and_nothing_else),
        cmocka_unit_test(no_answer_waits_for_a_prompt),
    };
    return cmocka_run_group_tests_name("calls", tests, open_model, close_model);
}
