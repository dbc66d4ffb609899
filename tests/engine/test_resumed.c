/* SPDX-License-Identifier: Apache-2.0 */
/* test_resumed.c: answers that go on after tokens that were sampled before (rp_request.resumed).
 *
 * A random request is answered as a whole. Then its first k tokens are resumed, for random k, by the same engine, which
 * has their KV, and by a fresh one, with other threads and chunks: tokens, text, finish reason, all callbacks and the
 * logits of later tokens are the same bytes. Requests have temperatures, penalties, filters, stops that span tokens,
 * grammars with and without a trigger, drafts, adapters, modules, and any KV format.
 *
 *   REPRISE_TEST_SEED=N    another sequence
 *   REPRISE_TEST_ROUNDS=N  requests
 */
#define _POSIX_C_SOURCE 200809L
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

#include "support/answer_log.h"
#include "support/lora_file.h"
#include "support/must.h"
#include "support/seed.h"
#include "support/tiny_model.h"
#include "support/tiny_random.h"
#include "reprise_pml.h"
#include "support/experiments.h"
#include "reprise_test.h"
#include "reprise_adapter.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))
#define N_CTX 256
#define CUTS 3
#define MOST_TEXT 160
#define MOST_STOP 64

static const char schema[] =
    "<schema name='s'>Once upon a time <module name='a'>there was a little girl who lived in the house</module>"
    "<module name='b'>and the old man was in the garden with a <param name='p' len='6'/> in the "
    "morning</module></schema>";
static const char *const grammars[] = {
    "root ::= [a-z ]+ \".\"",
    "root ::= item (\", \" item)*\nitem ::= [^,\\x00-\\x1f]+",
    "root ::= \"[\" (root (\",\" root)*)? \"]\" | [0-9]+",
    "root ::= ([a-t] [a-z]* \" \")*",
};
static const char *const pieces[] = {
    "the ",
    "little ",
    "house",
    " was",
    " and",
    "\n",
    "Once upon a time",
    "in the garden ",
    "a",
    "\xc3\xa9t\xc3\xa9 ",
    "42",
};

static tiny_random r;
static rp_model *models[2];
static rp_adapter *adapter;
static char path[] = "/tmp/reprise_resumed_XXXXXX";

static int below(size_t n) { return (int)tiny_random_below(&r, n); }

static int setup(void **state) {
    rp_error err = {0};
    tiny_model_shape shape = tiny_model_defaults();
    const lora_shape lora = lora_defaults(3);
    char file[64];
    int fd = mkstemp(path);
    (void)state;
    r = (tiny_random){test_seed("resumed", 20261125)};
    if (fd < 0) abort();
    close(fd);
    must(tiny_model_write(path, &shape, &err), &err);
    must(rp_model_open(&models[0], path, NULL, &err), &err);
    lora_file_write(path, &lora, file);
    must(rp_adapter_open(&adapter, models[0], file, &err), &err);
    unlink(file);
    shape.vocab = TINY_VOCAB_BPE;
    models[1] = tiny_model_open(&shape, "chatml");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    rp_adapter_close(adapter);
    rp_model_close(models[0]);
    rp_model_close(models[1]);
    unlink(path);
    return 0;
}

static rp_engine *new_engine(rp_model *m, rp_kv_format format) {
    static const int32_t chunks[] = {1, 3, 16, 64, 100, 256};
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e;
    rp_error err = {0};
    o.n_threads = 1 + below(2);
    o.n_ctx = N_CTX;
    o.chunk_tokens = chunks[below(LEN(chunks))];
    o.kv_format = format;
    must(rp_engine_new(&e, m, &o, &err), &err);
    must(rp_schema_parse(e, schema, sizeof(schema) - 1, "s", NULL, NULL, NULL, &err), &err);
    return e;
}

/* ---- requests ---- */

/* What a request borrows. */
typedef struct asked {
    rp_request q;
    rp_kv_format format;
    size_t model;
    char text[2048], trigger[MOST_STOP], stop[MOST_STOP];
    const char *stops[2];
    int32_t tokens[MOST_TEXT];
    rp_logit_bias bias[2];
    rp_message messages[2];
    rp_builder *built;
} asked;

static void add_pieces(char *text, size_t cap, int n) {
    for (text[0] = '\0'; n > 0; n--) {
        const char *piece = pieces[below(LEN(pieces))];
        if (strlen(text) + strlen(piece) < cap) strcat(text, piece);
    }
}

static void build_documents(asked *a) {
    static const char *const documents[] = {
        "The garden was full of little birds in the morning.",
        "The old man had a house near the sea, and a boat.",
    };
    rp_error err = {0};
    must(rp_builder_new(&a->built, NULL, &err), &err);
    rp_builder_begin_role(a->built, RP_ROLE_USER);
    for (int i = 0, at = below(2); i < 1 + below(2); i++, at = !at)
        rp_builder_append_document(a->built, documents[at], strlen(documents[at]));
    rp_builder_append_text(a->built, a->text, strlen(a->text));
    rp_builder_end_role(a->built);
    a->q.prompt = rp_prompt_built(a->built);
}

static void random_prompt(asked *a) {
    rp_request *q = &a->q;
    add_pieces(a->text, sizeof(a->text) - 200, below(12));
    switch (below(6)) {
    case 0: q->prompt = rp_prompt_text(a->text); break;
    case 1: q->prompt = rp_prompt_text(""); break;
    case 2:
        q->prompt = rp_prompt_tokens(a->tokens, (size_t)(1 + below(MOST_TEXT)));
        for (size_t i = 0; i < q->prompt.n; i++) a->tokens[i] = 10 + below(400);
        break;
    case 3:
        a->messages[0] = (rp_message){RP_ROLE_SYSTEM, "the house", 9};
        a->messages[1] = (rp_message){RP_ROLE_USER, a->text, strlen(a->text)};
        q->prompt = rp_prompt_messages(a->messages, 2);
        break;
    case 4: build_documents(a); break;
    default: {
        static const char *const imports[] = {"<a/>", "<b p='cat'/>", "<a/><b/>", "<b p='a dog'/>"};
        static const rp_quality qualities[] = {
            {RP_QUALITY_AS_WRITTEN, 0}, {RP_QUALITY_LINK, 4}, {RP_QUALITY_BLEND, 30}, {RP_QUALITY_EXACT, 0}};
        char tail[512];
        add_pieces(tail, sizeof(tail), below(8));
        snprintf(a->text, sizeof(a->text), "<prompt schema='s'>%s %s</prompt>", imports[below(LEN(imports))], tail);
        q->prompt = rp_prompt_pml(a->text);
        q->reuse = below(2) ? RP_REUSE_ON : RP_REUSE_EXACT;
        if (q->reuse == RP_REUSE_ON) q->quality = qualities[below(LEN(qualities))];
    }
    }
}

static void random_sampling(asked *a) {
    rp_sampling *s = &a->q.sampling;
    static const float temperatures[] = {0, 0.7f, 1, 2};
    s->temperature = temperatures[below(LEN(temperatures))];
    s->seed = tiny_random_u64(&r);
    if (below(3) == 0) s->top_k = 1 + below(40);
    if (below(3) == 0) s->top_p = 0.5f + 0.05f * (float)below(10);
    if (below(4) == 0) s->min_p = 0.02f;
    if (below(4) == 0) s->typical = 0.9f;
    if (below(2) == 0) s->repeat_penalty = 1.1f + 0.1f * (float)below(5);
    if (below(3) == 0) s->presence_penalty = 0.5f;
    if (below(3) == 0) s->frequency_penalty = 0.25f;
    if (below(2) == 0) s->repeat_last = below(3) == 0 ? -1 : below(30);
    if (below(4) > 0) return;
    a->bias[0] = (rp_logit_bias){10 + below(400), 5};
    a->bias[1] = (rp_logit_bias){10 + below(400), -INFINITY};
    s->bias = a->bias;
    s->n_bias = 2;
}

static void random_request(asked *a) {
    static const rp_kv_format formats[] = {RP_KV_F16, RP_KV_F32, RP_KV_INT8, RP_KV_KIVI4, RP_KV_K4V2};
    static const int32_t drafts[] = {0, 3, RP_MAX_DRAFT, RP_DRAFT_AUTO};
    rp_request *q = &a->q;
    memset(a, 0, sizeof(*a));
    *q = rp_request_defaults();
    a->model = (size_t)below(2);
    a->format = formats[below(LEN(formats))];
    random_prompt(a);
    random_sampling(a);
    q->max_tokens = below(5) == 0 ? 1000 : 1 + below(48);
    q->n_draft = drafts[below(LEN(drafts))];
    q->ignore_eos = below(3) == 0;
    q->special_text = below(4) == 0;
    q->n_logprobs = below(5) == 0 ? 2 : 0;
    if (a->model == 0 && below(3) == 0) q->adapter = adapter;
    if (below(8) == 0) q->reuse = RP_REUSE_OFF;
    if (below(3) > 0) return;
    q->grammar = grammars[below(LEN(grammars))];
}

static bool begins_character(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

/* Some characters of a text; "": none. */
static void take_piece(const char *text, int most, char out[MOST_STOP]) {
    const size_t n = strlen(text);
    out[0] = '\0';
    if (n == 0) return;
    size_t from = (size_t)below(n), end;
    while (from > 0 && !begins_character(text[from])) from--;
    end = from + 1 + (size_t)below((size_t)most);
    if (end > n) end = n;
    while (end < n && !begins_character(text[end])) end++;
    memcpy(out, text + from, end - from);
    out[end - from] = '\0';
}

/* A stop, and a trigger, that occur in the answer. */
static void add_ends(asked *a, rp_engine *e) {
    answer_log l = {0};
    rp_request q = a->q;
    q.grammar = NULL;
    answer_log_run(&l, e, &q);
    if (l.rc) fail_msg("%s", l.err.message);
    if (a->q.grammar && below(2) == 0) take_piece(l.result->text, 6, a->trigger);
    if (a->trigger[0]) a->q.grammar_trigger = a->trigger;
    if (below(2) == 0) take_piece(l.result->text, 20, a->stop);
    if (a->stop[0]) {
        a->stops[0] = "no text has this \xe2\x9c\x93";
        a->stops[1] = a->stop;
        a->q.stops = a->stops;
        a->q.n_stops = 2;
    }
    answer_log_free(&l);
}

/* ---- the oracle ---- */

static int n_resumed, n_over, n_stopped, n_grammar, n_cancelled, n_full, n_found;

static void check_counts(const rp_result *whole, const rp_result *other, int32_t k) {
    assert_int_equal(whole->prompt_tokens, other->prompt_tokens);
    assert_true(other->cached_tokens + other->fresh_tokens == other->prompt_tokens && other->fresh_tokens >= 0);
    assert_int_equal(whole->n_top, other->n_top);
    for (int32_t i = 0; i < other->n_tokens && other->n_top > 0; i++) {
        if (i < k)
            assert_true(other->logprobs[i] != other->logprobs[i] && other->top_logprobs[i * other->n_top].token == -1);
        else assert_memory_equal(&other->logprobs[i], &whole->logprobs[i], sizeof(float));
    }
}

static void resume(const asked *a, rp_engine *e, const answer_log *whole, int32_t k, const char *where, int round) {
    rp_request q = a->q;
    answer_log l = {.cancel_at = whole->cancel_at};
    int32_t *tokens = malloc((size_t)(k + 1) * sizeof(*tokens)); /* exactly: a sanitizer sees a read beyond them */
    if (!tokens) abort();
    if (k > 0) memcpy(tokens, whole->result->tokens, (size_t)k * sizeof(*tokens));
    q.resumed = tokens;
    q.n_resumed = k;
    answer_log_run(&l, e, &q);
    free(tokens);
    if (!answer_log_same(whole, &l, k))
        fail_msg("request %d, %s: not the whole answer's bytes after %d resumed tokens", round, where, k);
    check_counts(whole->result, l.result, k);
    n_resumed++;
    n_over += k > 0 && l.logits.len == 0;
    n_found += l.result->fresh_tokens == 0;
    answer_log_free(&l);
}

/* A callback that stops the answer stops a resumed one at the same place. */
static void check_cancelled(const asked *a, rp_engine *e, const answer_log *whole, int round) {
    const int32_t n = whole->n_events;
    if (n == 0) return;
    answer_log stopped = {.cancel_at = 1 + below((size_t)n)};
    answer_log_run(&stopped, e, &a->q);
    assert_int_equal(stopped.rc, RP_OK);
    assert_string_equal(stopped.result->finish_reason, "cancelled");
    answer_log full = *whole; /* its tokens are resumed, beyond the place too */
    const int32_t k = below((size_t)whole->result->n_tokens + 1);
    rp_request q = a->q;
    q.resumed = full.result->tokens;
    q.n_resumed = k;
    answer_log l = {.cancel_at = stopped.cancel_at};
    answer_log_run(&l, e, &q);
    assert_int_equal(l.rc, RP_OK);
    if (strcmp(l.result->text, stopped.result->text) != 0 || l.result->n_tokens != stopped.result->n_tokens ||
        l.events.len != stopped.events.len || strcmp(l.result->finish_reason, "cancelled") != 0)
        fail_msg("request %d: cancelled at event %d, after %d resumed tokens: '%s', %d tokens, %s; expected '%s', %d",
                 round, l.cancel_at, k, l.result->text, l.result->n_tokens, l.result->finish_reason,
                 stopped.result->text, stopped.result->n_tokens);
    n_cancelled++;
    answer_log_free(&l);
    answer_log_free(&stopped);
}

static void check_request(int round) {
    static asked a;
    answer_log whole = {0};
    random_request(&a);
    rp_engine *e = new_engine(models[a.model], a.format);
    add_ends(&a, e);
    answer_log_run(&whole, e, &a.q);
    if (whole.rc) fail_msg("request %d: %s", round, whole.err.message);
    n_stopped += whole.result->stop != NULL;
    n_grammar += a.q.grammar != NULL;
    n_full += a.q.max_tokens == 1000 && strcmp(whole.result->finish_reason, "length") == 0;
    for (int i = 0; i < CUTS; i++) {
        const int32_t n = whole.result->n_tokens, k = i == 0 ? n : below((size_t)n + 1);
        rp_engine *fresh = new_engine(models[a.model], a.format);
        resume(&a, e, &whole, k, "same engine", round);
        resume(&a, fresh, &whole, k, "fresh engine", round);
        rp_engine_free(fresh);
    }
    check_cancelled(&a, e, &whole, round);
    answer_log_free(&whole);
    rp_engine_free(e);
    rp_builder_free(a.built);
}

static void resumed_answers_are_whole_answers(void **state) {
    const int rounds = test_rounds(120);
    (void)state;
    for (int i = 0; i < rounds; i++) check_request(i);
    printf("%d resumed: %d over, %d of stopped requests, %d with grammars, %d that filled the context, %d cancelled; "
           "%d prompts found\n",
           n_resumed, n_over, n_stopped, n_grammar, n_full, n_cancelled, n_found);
    assert_true(rounds < 100 ||
                (n_over > 20 && n_stopped > 10 && n_grammar > 20 && n_full > 2 && n_cancelled > 20 && n_found > 20));
}

/* ---- prompt log-probabilities and streams ---- */

static void prompts_keep_their_logprobs(void **state) {
    rp_engine *e = new_engine(models[0], RP_KV_F16);
    answer_log whole = {0}, l = {0};
    rp_request q = rp_request_defaults();
    (void)state;
    q.prompt = rp_prompt_text("Once upon a time there was a little house");
    q.max_tokens = 12;
    q.ignore_eos = true;
    q.n_prompt_logprobs = 2;
    answer_log_run(&whole, e, &q);
    q.resumed = whole.result->tokens;
    for (q.n_resumed = 0; q.n_resumed <= 12; q.n_resumed++) {
        answer_log_run(&l, e, &q);
        assert_true(answer_log_same(&whole, &l, q.n_resumed));
        const size_t n = (size_t)whole.result->prompt_tokens;
        assert_memory_equal(l.result->prompt_ranks, whole.result->prompt_ranks, n * sizeof(int32_t));
        assert_memory_equal(l.result->prompt_logprobs + 1, whole.result->prompt_logprobs + 1, (n - 1) * sizeof(float));
        answer_log_free(&l);
    }
    answer_log_free(&whole);
    rp_engine_free(e);
}

static void streams_have_resumed_text(void **state) {
    rp_engine *e = new_engine(models[0], RP_KV_F16);
    const rp_stream_event *events;
    rp_stream *stream;
    rp_result *whole;
    rp_job *job;
    rp_error err = {0};
    rp_request q = rp_request_defaults();
    base_buffer text = BASE_BUFFER(4096);
    bool ended = false;
    (void)state;
    q.prompt = rp_prompt_text("Once upon a time");
    q.max_tokens = 12;
    q.ignore_eos = true;
    must(rp_engine_run(e, &q, &whole, &err), &err);
    must(rp_stream_new(&stream, &err), &err);
    q.stream = stream;
    q.resumed = whole->tokens;
    q.n_resumed = 7;
    must(rp_engine_submit(e, &q, &job, &err), &err);
    while (!ended)
        for (int32_t i = 0, n = rp_stream_read(stream, -1, &events); i < n; i++) {
            assert_int_equal(base_buffer_append(&text, events[i].text, events[i].n_bytes), RP_OK);
            ended = events[i].ended;
        }
    rp_job_free(job);
    rp_stream_free(stream);
    assert_int_equal(text.len, strlen(whole->text));
    assert_memory_equal(text.data, whole->text, text.len);
    base_buffer_free(&text);
    rp_result_free(whole);
    rp_engine_free(e);
}

/* ---- errors ---- */

static rp_engine *erring;

static void expect_error(const rp_request *q, rp_code code, const char *part) {
    rp_error err = {0};
    rp_job *job = NULL;
    const int rc = rp_engine_submit(erring, q, &job, &err);
    if (rc != (int)code) fail_msg("%d (%s), not %d (%s)", rc, err.message, (int)code, part);
    assert_null(job);
    if (!strstr(err.message, part)) fail_msg("'%s' has no '%s'", err.message, part);
}

static int32_t token_of(const char *text) {
    int32_t *tokens;
    size_t n;
    rp_error err = {0};
    must(rp_tokenize(models[1], text, strlen(text), true, false, &tokens, &n, &err), &err);
    assert_int_equal(n, 1);
    const int32_t token = tokens[0];
    rp_free(tokens);
    return token;
}

static void wrong_resumed_tokens_are_refused(void **state) {
    static const char *const stops[] = {"bc"};
    const int32_t a = token_of("a"), b = token_of("b"), c = token_of("c"), end = token_of("<|endoftext|>");
    int32_t tokens[N_CTX + 1] = {a, b, c, a};
    rp_request q = rp_request_defaults(), base;
    (void)state;
    erring = new_engine(models[1], RP_KV_F16);
    q.prompt = rp_prompt_text("the house");
    q.resumed = tokens;
    q.n_resumed = 4;
    base = q;
    q.stops = stops;
    q.n_stops = 1;
    expect_error(&q, RP_ERR_INVALID, "ends before its token 3 (stop)");
    q = base;
    q.max_tokens = 3;
    expect_error(&q, RP_ERR_INVALID, "max_tokens is 3");
    q = base;
    q.grammar = "root ::= \"ab\" [d-z]";
    expect_error(&q, RP_ERR_INVALID, "token 2 of the resumed answer");
    q.grammar = "root ::= \"abc\"";
    expect_error(&q, RP_ERR_INVALID, "ends before its token 3");
    q.grammar = "root ::= \"x\"*";
    q.grammar_trigger = "bc";
    expect_error(&q, RP_ERR_INVALID, "token 3 of the resumed answer");
    q = base;
    q.n_resumed = -1;
    expect_error(&q, RP_ERR_INVALID, "n_resumed is -1");
    q.resumed = NULL;
    q.n_resumed = 1;
    expect_error(&q, RP_ERR_INVALID, "resumed is NULL");
    q = base;
    q.pooling = RP_POOLING_LAST;
    expect_error(&q, RP_ERR_CONFLICT, "embeddings");
    q = base;
    q.kv_keep = "64";
    expect_error(&q, RP_ERR_CONFLICT, "kv_keep");
    q = base;
    q.context_shift = true;
    q.max_tokens = 1000; /* beyond the context */
    expect_error(&q, RP_ERR_CONFLICT, "context_shift");
    q = base;
    q.prompt = rp_prompt_pml("<prompt schema='s'><a/><b/> the house</prompt>");
    q.quality = (rp_quality){RP_QUALITY_FOCUS, 50};
    expect_error(&q, RP_ERR_CONFLICT, "focus");
    q = base;
    const rp_request_experiment forced = experiment_forced(tokens, 4);
    q.experiment = &forced;
    expect_error(&q, RP_ERR_CONFLICT, "forced");
    q = base;
    q.max_tokens = 1000;
    q.n_resumed = N_CTX + 1;
    for (int i = 0; i <= N_CTX; i++) tokens[i] = a;
    expect_error(&q, RP_ERR_CONTEXT, "n_ctx");
    q = base;
    tokens[1] = 1 << 20;
    expect_error(&q, RP_ERR_INVALID, "resumed token 1");
    tokens[1] = end;
    expect_error(&q, RP_ERR_INVALID, "end of text");
    rp_engine_free(erring);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed_answers_are_whole_answers),
        cmocka_unit_test(prompts_keep_their_logprobs),
        cmocka_unit_test(streams_have_resumed_text),
        cmocka_unit_test(wrong_resumed_tokens_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
