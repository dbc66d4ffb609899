/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c: see generate.h. on_text, on_token and on_done come on the engine's thread. */
#include "base/json_number.h"
#include "server/answers/embedding_request.h"
#include "server/models/model_pool.h"
#include "server/prompt/client_session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/budget.h"
#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "server/answers/hints.h"
#include "server/answers/report.h"
#include "server/answers/request_fingerprint.h"
#include "server/answers/template_hint.h"
#include "server/http/request_relay.h"
#include "server/http/server_internal.h"
#include "server/prompt/conversation_prompt.h"
#include "server/prompt/prompt_tokens.h"
#include "structured/answer_meaning.h"
#include "server/answers/stream_marks.h"
#include "server/http/request_memory.h"
#include "server/prompt/tools.h"

/* ---- callbacks ---- */

/* A stream's frames come at most so often, which looks continuous: a frame costs some 80 us of processor time, and
 * small models make a token in 200. The first text and the end do not wait; nor does anything longer than until the
 * guard looks. */
#define FRAME_EVERY_US 20000

/* There is more of an answer. Locked. */
static void generate_report_reader(server_request *x) {
    BASE_ASSERT(x->is_stream);
    if (x->stage != SERVER_STREAMING || base_clock_us() - x->reported_us >= FRAME_EVERY_US) server_request_wake(x);
    else x->has_news = true;
}

static bool too_slow(server_request *x) {
    atomic_fetch_add(&x->server->counts.overflows, 1);
    return false;
}

/* Counts what was appended; a reader that is behind gets no more until it has taken that (generate.h). Locked. */
static void count_pending(server_choice *c) {
    rp_server *s = c->x->server;
    size_t n = c->text.len + c->tokens.len;
    BASE_ASSERT(n >= c->pending); /* what was counted is still there, until the reader takes it */
    uint64_t all = atomic_fetch_add(&s->pending_bytes, n - c->pending) + (n - c->pending);
    bool behind = c->text.len >= SERVER_UNREAD_TEXT_BYTES || c->tokens.len >= SERVER_UNREAD_TOKENS_BYTES ||
                  (n > 0 && all > s->options.reply_buffer_bytes);
    c->pending = n;
    if (!behind || c->paused || !c->call) return;
    c->paused = true;
    atomic_fetch_add(&s->counts.pauses, 1);
    rp_job_pause(c->call);
}

static bool generate_on_text(void *user, const char *text, size_t n) {
    server_choice *c = user;
    server_request *x = c->x;
    pthread_mutex_lock(&x->lock);
    const request_memory_visit visit = request_memory_enter(x);
    bool goes_on = !x->gone && (base_buffer_append(&c->text, text, n) == 0 || too_slow(x));
    request_memory_leave(visit);
    if (goes_on) {
        count_pending(c);
        generate_report_reader(x);
    }
    pthread_mutex_unlock(&x->lock);
    return goes_on;
}

/* Into the next mark. */
static bool mark_token(server_choice *c, int32_t token) {
    server_request *x = c->x;
    pthread_mutex_lock(&x->lock);
    const request_memory_visit visit = request_memory_enter(x);
    bool goes_on = !x->gone && (stream_marks_add(c, token) || too_slow(x));
    request_memory_leave(visit);
    pthread_mutex_unlock(&x->lock);
    return goes_on;
}

static bool generate_on_token(void *user, const rp_token *token) {
    server_choice *c = user;
    server_request *x = c->x;
    if (stream_marks_is_resumed(c)) return true;
    const uint64_t now = base_clock_us();
    if (c->token_us > 0) histogram_add_us(&x->server->counts.between_tokens, now - c->token_us);
    c->token_us = now;
    if (x->relay && x->relay->has_marks) return mark_token(c, token->id);
    if (!x->gen->stream || x->gen->n_logprobs < 0) return true;
    server_token record = {token->id, token->logprob, BASE_MIN(token->n_top, x->gen->n_logprobs)};
    size_t top_bytes = (size_t)record.n_top * sizeof(*token->top);
    pthread_mutex_lock(&x->lock);
    const request_memory_visit visit = request_memory_enter(x);
    bool goes_on = !x->gone && (base_buffer_reserve(&c->tokens, sizeof(record) + top_bytes) == 0 || too_slow(x));
    request_memory_leave(visit);
    if (goes_on) {
        goes_on = base_buffer_append(&c->tokens, &record, sizeof(record)) == 0 &&
                  base_buffer_append(&c->tokens, token->top, top_bytes) == 0;
        count_pending(c);
        generate_report_reader(x);
    }
    pthread_mutex_unlock(&x->lock);
    return goes_on;
}

/* Stop strings count in the answer's text. The finder reads what precedes the first one when that is complete. */
static rp_stop_verdict generate_on_stop(void *user, const char *stop, const char *text, size_t n, size_t end) {
    server_choice *c = user;
    BASE_ASSERT(n >= c->n_stop_finder && end <= n); /* the answer only grows */
    if (!c->stop_finder.answer) tool_finder_init(&c->stop_finder, &c->x->gen->form, TOOL_REASONING_DROPPED, NULL, NULL);
    if (tool_finder_feed(&c->stop_finder, text + c->n_stop_finder, n - c->n_stop_finder))
        return RP_STOP_COUNTS; /* out of memory */
    c->n_stop_finder = n;
    return tool_finder_stop(&c->stop_finder, stop, n - end);
}

static bool generate_on_meaning(void *user, const char *opening, const char *text, size_t n,
                                uint8_t meaning[RP_MEANING_BYTES]) {
    const server_choice *c = user;
    return answer_meaning(&c->x->gen->form, opening, text, n, meaning);
}

/* All jobs have ended and nothing was sent yet: a worker makes the reply. Locked. */
static void finish(server_request *x) {
    BASE_ASSERT(x->stage == SERVER_RUNNING && !x->held); /* its place in the queue is free */
    server_request_enter(x, SERVER_FINISHING);
    work_queue_put(x->server->work, &x->work);
}

static bool is_embedding(const server_request *x) { return x->gen->embedding.pooling != RP_POOLING_OFF; }

static void submit_embeddings(server_request *x);

static void generate_on_done(void *user) {
    server_choice *c = user;
    server_request *x = c->x;
    pthread_mutex_lock(&x->lock);
    BASE_ASSERT(!c->done);
    c->done = true;
    x->answers->n_done++;
    if (is_embedding(x)) submit_embeddings(x);
    if (x->stage == SERVER_RUNNING && x->answers->n_done == x->answers->n_choices) finish(x);
    else if (x->is_stream && x->stage == SERVER_STREAMING) server_request_wake(x);
    pthread_mutex_unlock(&x->lock);
}

/* ---- tool calls and reasoning in an answer ---- */

/* In a stream, the finder's output is sent. The tokens of text that it held back are sent with the first text after
   them. */
static int on_event(void *user, tool_event event, const tool_item *item, const char *bytes, size_t n) {
    server_choice *c = user;
    server_request *x = c->x;
    if (!x->is_stream) return 0;
    if (event != TOOL_TEXT && event != TOOL_REASONING)
        return x->answers->form->call ? x->answers->form->call(x, c, event, item, bytes, n) : 0;
    server_piece piece = {bytes, n, c->piece.tokens, c->piece.tokens_end};
    c->piece.tokens = c->piece.tokens_end = NULL;
    BASE_ASSERT(event == TOOL_TEXT || x->answers->form->reasoning); /* splits_reasoning */
    if (event == TOOL_REASONING) return x->answers->form->reasoning(x, c, &piece);
    return x->answers->form->piece ? x->answers->form->piece(x, c, &piece) : 0;
}

static json_t *text_of_finder(const server_choice *c, bool reasoning) {
    base_buffer text = BASE_BUFFER(SERVER_REPLY_BYTES);
    json_t *value = NULL;
    if (tool_finder_text(&c->finder, reasoning, &text) == 0) value = base_json_string(text.data, text.len);
    base_buffer_free(&text);
    return value;
}

json_t *generate_text(const server_choice *c) {
    BASE_ASSERT(generate_is_parsed(c) || c->result);
    return generate_is_parsed(c) ? text_of_finder(c, false)
                                 : base_json_string(c->result->text, strlen(c->result->text));
}

json_t *generate_reasoning(const server_choice *c) { return text_of_finder(c, true); }

/* ---- the end of jobs ---- */

static void generate_cancel(server_request *x) {
    for (int32_t i = 0; i < x->answers->n_choices; i++)
        if (x->answers->choices[i].call) rp_job_cancel(x->answers->choices[i].call);
}

void generate_free(server_request *x) {
    pthread_mutex_lock(&x->lock);
    generate_cancel(x);
    int32_t n = x->answers->n_choices;
    x->answers->n_choices = 0; /* for server_request_abandon */
    pthread_mutex_unlock(&x->lock);
    for (int32_t i = 0; i < n; i++) {
        server_choice *c = &x->answers->choices[i];
        bool called = c->call != NULL;
        rp_job_free(c->call); /* waits until the engine has ended it: then it counts no more */
        if (called) atomic_fetch_sub(&x->server->counts.jobs_open, 1);
        rp_result_free(c->result);
        tool_finder_free(&c->finder);
        tool_finder_free(&c->stop_finder);
        uint64_t pending = atomic_fetch_sub(&x->server->pending_bytes, c->pending);
        BASE_ASSERT(pending >= c->pending); /* invariant 6 */
        base_buffer_free(&c->text);
        base_buffer_free(&c->tokens);
        base_buffer_free(&c->taken_text);
        base_buffer_free(&c->taken_tokens);
        base_buffer_free(&c->sampled);
        base_buffer_free(&c->taken_sampled);
        base_buffer_free(&c->listed);
    }
    base_free(x->answers->choices);
    x->answers->choices = NULL;
}

/* ---- jobs ---- */

/* What a router left of it counts from here on, as well. */
static int64_t generate_deadline_ms(const server_request *x) {
    const int64_t own = x->gen->deadline_ms, left = x->relay ? x->relay->route.left_ms : 0;
    return own > 0 && left > 0 ? BASE_MIN(own, left) : own;
}

/* The convention is that of a chat's answers: a completion's text is what the model writes. */
static bool needs_finder(const generation *gen) {
    return gen->n_messages > 0 && tool_finder_is_needed(&gen->form);
}

/* Automatic modules, where the operator allows them: in place of on, as they reuse more. */
static rp_reuse generate_reuse(const server_request *x) {
    const generation *gen = x->gen;
    const rp_auto_reuse allowed =
        x->key->auto_reuse >= 0 ? (rp_auto_reuse)x->key->auto_reuse : x->server->options.auto_reuse;
    if (gen->reuse == RP_REUSE_AUTO) return allowed == RP_AUTO_OFF ? RP_REUSE_ON : RP_REUSE_AUTO;
    const bool names_none = !gen->names_reuse && !gen->modular && gen->reuse == RP_REUSE_ON;
    return names_none && allowed == RP_AUTO_ON ? RP_REUSE_AUTO : (rp_reuse)gen->reuse;
}

/* Of a request with several prompts: none yet (generate_request_of). */
static rp_prompt generate_prompt(const generation *a) {
    rp_prompt p = {.kind = RP_PROMPT_NONE};
    if (a->built) p = rp_prompt_built(a->built); /* of a rendered conversation, too, if its documents are modules */
    else if (a->pml) p = rp_prompt_pml(a->pml);
    else if (a->rendered) p = rp_prompt_rendered(a->rendered, a->rendered_turns, a->n_rendered_turns);
    else if (a->messages) p = rp_prompt_messages(a->messages, a->n_messages);
    p.name = a->n_messages > 0 ? "messages" : NULL;
    p.continues_last = a->continues_last;
    return p;
}

static rp_request generate_make_request(const server_request *x) {
    const generation *a = x->gen;
    rp_request q = rp_request_defaults();
    q.tenant = x->answers->tenant;
    q.kv_format = x->key->kv_format;               /* of the documents of its prompt */
    q.flow = x->key->tenant ? x->key->tenant : ""; /* salts of a client's make no turns of their own */
    q.prompt = generate_prompt(a);
    q.max_tokens =
        a->max_tokens >= 0 ? a->max_tokens : BASE_MAX(x->server->options.default_max_tokens, a->default_tokens);
    q.sampling = a->sampling;
    q.sampling.bias = a->bias;
    q.sampling.n_bias = a->n_bias;
    q.stops = a->stops;
    q.n_stops = a->n_stops;
    q.grammar = a->grammar;
    q.grammar_trigger = a->grammar_trigger;
    q.n_logprobs = a->n_logprobs >= 0 ? BASE_MAX(a->n_logprobs, 1) : 0;
    q.n_prompt_logprobs = a->n_prompt_logprobs >= 0 ? BASE_MAX(a->n_prompt_logprobs, 1) : 0;
    if (a->echo && a->n_logprobs >= 0) q.n_prompt_logprobs = BASE_MAX(q.n_prompt_logprobs, q.n_logprobs);
    q.priority = a->priority;
    q.deadline_ms = generate_deadline_ms(x);
    q.n_draft = a->n_draft;
    q.shifted_reuse = a->names_shifted || a->reuse != RP_REUSE_ON ? a->shifted_reuse : x->server->options.shifted_reuse;
    q.reuse = generate_reuse(x);
    q.session = a->session;
    q.parent_session = a->parent_session;
    q.ends_session = a->ends_session;
    q.adds_nothing = a->adds_nothing;
    q.retain_s = a->retention_s;
    q.quality = a->quality;
    q.kv_keep = a->kv_keep;
    q.kv_method = a->kv_method;
    q.n_kept_shares = a->n_kept_shares;
    q.truncates = a->truncates;
    q.context_shift = a->context_shift;
    q.ignore_eos = a->ignore_eos;
    q.special_text = a->special_text;
    q.pooling = a->embedding.pooling;
    q.raw_embedding = a->embedding.raw;
    if (x->adapter) {
        q.adapter = x->adapter->adapter;
        q.adapter_scale = x->adapter_scale;
    }
    q.on_text = a->stream ? generate_on_text : NULL;
    q.turn_tokens = a->stream ? SERVER_TURN_TOKENS
                              : 0; /* its client may not read it: only then is the buffer of the connection full */
    q.on_token = generate_on_token;
    q.on_done = generate_on_done;
    q.on_meaning = a->n_messages > 0 ? generate_on_meaning : NULL;
    q.on_stop = needs_finder(a) && !a->stop_in_reasoning ? generate_on_stop : NULL;
    stream_marks_resume(x, &q);
    return q;
}

rp_request generate_request_of(server_choice *c) {
    server_request *x = c->x;
    rp_request q = generate_make_request(x);
    if (x->gen->n_prompts > 0) {
        const server_prompt *prompt = &x->gen->prompts[c->index / x->gen->n];
        q.prompt = prompt->tokens ? rp_prompt_tokens(prompt->tokens, prompt->n_tokens) : rp_prompt_text(prompt->text);
    }
    q.sampling.seed = x->answers->seed + (uint64_t)(c->index % x->gen->n);
    q.user = c;
    return q;
}

static int generate_submit(server_request *x, server_choice *c, rp_job **call, rp_error *err) {
    BASE_ASSERT(x->gen->n_prompts == 0 || (size_t)(c->index / x->gen->n) < x->gen->n_prompts);
    rp_request q = generate_request_of(c);
    c->submitted_us = base_clock_us();
    int rc = rp_engine_submit(x->model->engine, &q, call, err);
    if (!rc) atomic_fetch_add(&x->server->counts.jobs_open, 1);
    return rc;
}

/* The jobs of all answers. Returns a server_problem_kind. */
static int submit_answers(server_request *x) {
    if (base_budget_refusal()) return server_fail_memory(&x->problem); /* the prompt may lack a part */
    x->answers->n_submitted = x->answers->n_choices;
    for (int32_t i = 0; i < x->answers->n_choices; i++) {
        server_choice *c = &x->answers->choices[i];
        BASE_ASSERT(!c->call && c->index == i);
        rp_error err;
        rp_job *call;
        int rc = generate_submit(x, c, &call, &err);
        if (rc == RP_ERR_LIMIT && tools_loosen(x->gen, &x->problem)) {
            tool_finder_free(&c->stop_finder); /* it may have read resumed text */
            c->stop_finder = (tool_finder){0};
            c->n_stop_finder = 0;
            c->n_resumed = 0;
            rc = generate_submit(x, c, &call, &err);
        }
        if (rc) return server_fail_library(&x->problem, &err);
        pthread_mutex_lock(&x->lock);
        c->call = call;
        count_pending(c); /* callbacks may have come before */
        if (x->gone) rp_job_cancel(call);
        pthread_mutex_unlock(&x->lock);
    }
    return SERVER_FINE;
}

static void set_convention(server_request *x) {
    generation *gen = x->gen;
    gen->form.convention = x->model->convention.convention;
    gen->form.splits_reasoning = x->answers->form->reasoning != NULL;
    gen->special_text = x->model->convention.special_text && needs_finder(gen);
    if (!gen->continues_last || gen->n_messages == 0) return;
    const rp_message *last = &gen->messages[gen->n_messages - 1];
    gen->form.reasoning_open = tool_convention_opens_reasoning(&gen->form.convention, last->text, last->n);
}

/* ---- jobs of embeddings: they have tokens, so that planning them takes no time, and no callback before their end
   ---- */

/* Submits as many as run at a time. A full queue ends the request only if none of its jobs is in it: otherwise the next
 * one that ends tries again. After an error the remaining choices count as done. Locked; worker or the engine's
 * thread. */
static void submit_embeddings(server_request *x) {
    BASE_ASSERT(x->answers->n_done <= x->answers->n_submitted);
    while (!x->gone && x->answers->n_submitted < x->answers->n_choices &&
           x->answers->n_submitted - x->answers->n_done < SERVER_EMBEDDING_JOBS) {
        server_choice *c = &x->answers->choices[x->answers->n_submitted];
        rp_error err;
        const int rc = generate_submit(x, c, &c->call, &err);
        if (rc == RP_ERR_BUSY && x->answers->n_submitted > x->answers->n_done) return;
        x->answers->n_submitted++;
        if (!rc) continue;
        server_fail_library(&c->problem, &err);
        x->answers->n_done += 1 + x->answers->n_choices - x->answers->n_submitted;
        x->answers->n_submitted = x->answers->n_choices;
    }
}

static int make_choices(server_request *x) {
    int32_t n = (int32_t)BASE_MAX(x->gen->n_prompts, 1) * x->gen->n;
    BASE_ASSERT(n > 0 && !x->answers->choices);
    server_choice *choices = base_calloc((size_t)n, sizeof(*choices));
    if (!choices) return server_fail_memory(&x->problem);
    for (int32_t i = 0; i < n; i++)
        choices[i] = (server_choice){.x = x,
                                     .index = i,
                                     .n_progress = -1,
                                     .text = BASE_BUFFER(SERVER_PENDING_TEXT_BYTES),
                                     .tokens = BASE_BUFFER(SERVER_PENDING_TOKENS_BYTES),
                                     .taken_text = BASE_BUFFER(SERVER_PENDING_TEXT_BYTES),
                                     .taken_tokens = BASE_BUFFER(SERVER_PENDING_TOKENS_BYTES),
                                     .sampled = BASE_BUFFER(SERVER_PENDING_TOKENS_BYTES),
                                     .taken_sampled = BASE_BUFFER(SERVER_PENDING_TOKENS_BYTES),
                                     .listed = BASE_BUFFER(SERVER_REPLY_BYTES)};
    tool_reasoning reasoning = x->gen->form.splits_reasoning ? TOOL_REASONING_ITEMS : TOOL_REASONING_AS_TEXT;
    if (x->gen->hides_reasoning) reasoning = TOOL_REASONING_DROPPED;
    for (int32_t i = 0; i < n && needs_finder(x->gen); i++)
        tool_finder_init(&choices[i].finder, &x->gen->form, reasoning, on_event, &choices[i]);
    pthread_mutex_lock(&x->lock); /* server_request_abandon may look */
    x->answers->choices = choices;
    x->answers->n_choices = n;
    x->has_jobs = true;
    pthread_mutex_unlock(&x->lock);
    return SERVER_FINE;
}

int generate_check_fields(server_request *x) {
    const char *name = x->gen->unknown[0];
    if (x->problem.kind || !x->server->options.strict) return (int)x->problem.kind;
    if (x->gen->n_unknown > 0)
        return server_fail(&x->problem, SERVER_INVALID, name, "unknown field '%s': leave it out", name);
    if (x->gen->n_ignored > 0)
        return server_fail(&x->problem, SERVER_UNSUPPORTED, NULL, "%s: is not supported: leave it out",
                           x->gen->ignored[0]);
    return SERVER_FINE;
}

/* One of llama.cpp's {"id": 0, "scale": 1.0}. A scale of 0 is as good as none. */
static int take_lora(server_request *x, const json_t *one) {
    const json_t *id = json_object_get(one, "id"), *scale = json_object_get(one, "scale");
    int64_t i = -1;
    if (!base_json_is_whole(id) || !json_is_number(scale) || !isfinite(json_number_value(scale)))
        return server_fail(&x->problem, SERVER_INVALID, "lora", "'lora' must be a list of {\"id\": 0, \"scale\": 1.0}");
    const server_adapter *a = base_json_int64(id, &i) && i >= 0 && i < SERVER_MAX_ADAPTERS
                                  ? model_pool_adapter_of(x->server->models, x->model, (int32_t)i)
                                  : NULL;
    if (!a)
        return server_fail(&x->problem, SERVER_INVALID, "lora",
                           "'lora': there is no adapter with id %lld: see GET /lora-adapters", (long long)i);
    if (json_number_value(scale) == 0) return SERVER_FINE;
    if (x->adapter)
        return server_fail(&x->problem, SERVER_UNSUPPORTED, "lora",
                           "'lora' has several adapters: give one with a scale that is not 0");
    x->adapter = a;
    x->adapter_scale = (float)json_number_value(scale);
    return SERVER_FINE;
}

static int check_ask(server_request *x) {
    model_pool *models = x->server->models;
    client_session_read(x);
    if (generate_check_fields(x)) return (int)x->problem.kind;
    const char *name = x->gen->model;
    /* A name that no model here has: with one model there is no other that it could mean, so --strict alone refuses it
     * (docs/decisions/0041-compatibility-with-agents.md); with several the request was refused before. */
    if (name && !model_pool_find(models, name)) {
        if (x->server->options.strict) return model_pool_fail(models, &x->problem, name);
        generation_ignore(x->gen, &x->problem, "unknown model '%.80s'", name);
        if (x->problem.kind) return (int)x->problem.kind;
    }
    /* The adapter whose name is the request's model, or that `lora` names instead. A router's nodes have them. */
    if (!x->server->route) {
        x->adapter = !x->gen->lora && name ? model_pool_adapter(models, name) : NULL;
        x->adapter_scale = 1;
        for (size_t i = 0; i < json_array_size(x->gen->lora) && !x->problem.kind; i++)
            take_lora(x, json_array_get(x->gen->lora, i));
        if (x->problem.kind) return (int)x->problem.kind;
    }
    if (x->gen->priority > 0 && !(x->key->rights & SERVER_PRIORITY))
        return server_fail(
            &x->problem, SERVER_RIGHTS, "priority",
            "this API key may not set a priority above 0: leave 'priority' out, or give the key the right 'priority'");
    return SERVER_FINE;
}

/* Jobs for all choices; what has come of them meanwhile is looked at now. */
static int begin_jobs(server_request *x) {
    int kind = stream_marks_begin(x);
    if (kind) return kind;
    if (is_embedding(x)) {
        BASE_ASSERT(x->answers->n_choices > 0 && x->answers->n_submitted == 0);
        pthread_mutex_lock(&x->lock);
        submit_embeddings(x);
        x->problem = x->answers->choices[0].problem; /* if the first job is refused */
        pthread_mutex_unlock(&x->lock);
        kind = (int)x->problem.kind;
    } else kind = submit_answers(x);
    if (kind) return kind;
    pthread_mutex_lock(&x->lock);
    BASE_ASSERT(x->stage == SERVER_HANDLING);
    server_request_enter(x, SERVER_RUNNING);
    x->reported_us = base_clock_us();
    if (x->answers->n_done == x->answers->n_choices) finish(x);
    else if (x->is_stream && x->has_news) server_request_wake(x);
    pthread_mutex_unlock(&x->lock);
    return SERVER_FINE;
}

void generate_begin(server_request *x, const server_form *form) {
    BASE_ASSERT(work_queue_is_worker() && !x->answers->form && x->answers->n_choices == 0);
    x->answers->tenant = request_tenant(x, x->answers->salted);
    if (!x->server->route) server_request_drop_body(x); /* the ask has its own copy, as JSON */
    x->answers->form = form;
    x->take = generate_take;
    x->is_stream = x->gen->stream;
    if (x->gen->has_seed) x->answers->seed = x->gen->sampling.seed;
    else
        x->answers->seed =
            (x->relay && x->relay->has_route ? x->relay->route.seed : x->server->seed ^ base_clock_us()) & INT64_MAX;
    set_convention(x);
    generation_settle_sampling(x->gen, x->model->model);
    int kind = check_ask(x);
    if (!kind) kind = prompt_tokens_fill(x->gen, x->model->model, &x->problem);
    if (!kind && is_embedding(x)) kind = embedding_prepare(x);
    if (!kind && x->gen->is_diagnosed && !x->server->route)
        kind = request_fingerprint_make(x); /* a router's nodes do */
    if (!kind) kind = tools_check(x->gen, &x->problem);
    if (!kind) kind = conversation_prompt_build(x);
    if (!kind) kind = tools_constrain(x->gen, &x->problem);
    if (!kind) kind = make_choices(x);
    if (!kind) kind = x->server->answers->begin(x);
    if (!kind) return;
    bool in_stream = kind == SERVER_CONTEXT && x->gen->overflow_in_stream && x->is_stream && x->answers->n_choices > 0;
    if (in_stream) in_stream = form->open(x) == 0 && form->fail(x, &x->problem) == 0;
    x->server->answers->free(x); /* those that were submitted before one was refused */
    if (in_stream) {
        base_buffer frames = x->reply; /* the stream is complete: it is replied as a text */
        x->reply = BASE_BUFFER(SERVER_REPLY_BYTES);
        server_request_reply_text(x, 200, "text/event-stream", &frames);
    } else server_request_reply_problem(x);
}

void generate_handle(server_request *x, const server_form *form) {
    json_t *root = server_request_json(x);
    if (root) generation_parse(x->gen, root, form->parse, &x->problem);
    json_decref(root);
    if (x->problem.kind) server_request_reply_problem(x);
    else generate_begin(x, form);
}

/* ---- results ---- */

/* Takes a call's result, once; its call is over, or is about to be. */
static void server_choice_collect(server_choice *c) {
    rp_error err;
    if (c->collected || !c->call) return;
    BASE_ASSERT(!c->result && !c->problem.kind);
    c->collected = true;
    if (rp_job_result(c->call, &c->result, &err)) {
        server_fail_library(&c->problem, &err);
        return;
    }
    /* The library counts from rp_engine_submit; a client's request arrived before. */
    rp_timings *t = &c->result->timings;
    double waited = (double)(c->x->handled_us - c->x->arrived_us) / 1e3;
    double read = (double)(c->submitted_us - c->x->handled_us) / 1e3;
    t->queue_ms += waited;
    t->plan_ms += read;
    t->ttft_ms += waited + read;
    report_count(c->x, c);
}

/* Worker. */
static void generate_find_hint(server_request *x) {
    x->answers->hint_sought = true;
    template_hint_find(x);
}

static void generate_finish(server_request *x) {
    for (int32_t i = 0; i < x->answers->n_choices; i++) {
        server_choice *c = &x->answers->choices[i];
        server_choice_collect(c);
        if (i == 0 && c->result) generate_find_hint(x);
        if (c->result && generate_is_parsed(c) && !x->is_stream) { /* calls in an answer that is sent as a whole */
            int rc = tool_finder_feed(&c->finder, c->result->text, strlen(c->result->text));
            if (rc || tool_finder_finish(&c->finder)) server_fail_memory(&c->problem);
        }
        if (c->problem.kind && !x->problem.kind) x->problem = c->problem;
    }
    if (x->problem.kind) {
        server_request_reply_problem(x);
        return;
    }
    if (!x->is_stream) {
        report_keep(x);
        server_request_reply_json(x, 200, x->answers->form->whole(x));
        return;
    }
    pthread_mutex_lock(&x->lock); /* a stream without any text: its end alone */
    BASE_ASSERT(x->stage == SERVER_FINISHING);
    x->stage = SERVER_STREAMING;
    x->has_news = true;
    server_request_resume(x);
    pthread_mutex_unlock(&x->lock);
}

/* ---- streams ---- */

static void swap_buffers(base_buffer *a, base_buffer *b) {
    base_buffer t = *a;
    *a = *b;
    *b = t;
}

/* What has come of a choice, into the reader's own buffers. Returns whether its call was over then. */
static bool take_pending(server_request *x, server_choice *c) {
    BASE_ASSERT(!c->ended);
    base_buffer_clear(&c->taken_text);
    base_buffer_clear(&c->taken_tokens);
    base_buffer_clear(&c->taken_sampled);
    pthread_mutex_lock(&x->lock);
    swap_buffers(&c->text, &c->taken_text);
    swap_buffers(&c->tokens, &c->taken_tokens);
    swap_buffers(&c->sampled, &c->taken_sampled);
    /* The reader has taken all of it. */
    const uint64_t all = atomic_fetch_sub(&x->server->pending_bytes, c->pending);
    BASE_ASSERT(all >= c->pending && (!c->paused || c->call)); /* invariant 6 */
    c->pending = 0;
    if (c->paused) rp_job_resume(c->call);
    c->paused = false;
    bool done = c->done;
    pthread_mutex_unlock(&x->lock);
    return done;
}

static int generate_render_piece(server_request *x, server_choice *c, server_piece piece) {
    if (generate_is_parsed(c)) {
        c->piece = piece;
        int rc = tool_finder_feed(&c->finder, piece.text, piece.n);
        if (rc) return rc;
        piece = (server_piece){"", 0, c->piece.tokens, c->piece.tokens_end};
        c->piece = (server_piece){0};
    }
    if ((piece.n == 0 && piece.tokens == piece.tokens_end) || !x->answers->form->piece) return 0;
    return x->answers->form->piece(x, c, &piece);
}

/* What the client has already, from another node, is rendered apart, and dropped. */
static int generate_report_piece(server_request *x, server_choice *c) {
    const size_t had = stream_marks_count_had(x, c->taken_text.len), before = x->reply.len;
    server_piece piece = {.text = c->taken_text.data ? c->taken_text.data : "", .n = had};
    int rc = stream_marks_take(x, c);
    if (!rc && had > 0) rc = generate_render_piece(x, c, piece);
    stream_marks_rendered(x, c, had, before);
    if (rc || stream_marks_skip(x)) return rc;
    piece.text += had;
    piece.n = c->taken_text.len - had;
    if (c->taken_tokens.len > 0) {
        piece.tokens = (const server_token *)(const void *)c->taken_tokens.data;
        piece.tokens_end = (const server_token *)(const void *)(c->taken_tokens.data + c->taken_tokens.len);
    }
    rc = generate_render_piece(x, c, piece);
    stream_marks_rendered(x, c, piece.n, before);
    return rc;
}

/* ---- progress of prompts ---- */

json_t *generate_progress(const server_prompt_progress *p) {
    return json_pack("{s:i, s:i, s:i, s:I}", "total", (int)p->total, "cache", (int)p->cached, "processed", (int)p->done,
                     "time_ms", (json_int_t)p->ms);
}

/* Frames that depend on the time are not part of a stream that another node may continue. */
static bool reports_progress(const server_request *x) {
    return x->gen->returns_progress && x->answers->form->progress && (!x->relay || !x->relay->has_route);
}

/* A choice's progress, if it is more than was reported. is_over: its first text is there, so that the whole prompt is
   done. */
static bool new_progress(const server_choice *c, bool is_over, server_prompt_progress *out) {
    rp_job_status status = {.struct_size = sizeof(status)};
    if (c->is_prompt_done || !c->call || rp_job_get_status(c->call, &status)) return false;
    if (!is_over && status.state != RP_JOB_PREFILL) return false;
    *out = (server_prompt_progress){status.prompt_tokens, status.cached_tokens,
                                    is_over ? status.prompt_tokens : status.computed_tokens,
                                    (double)(base_clock_us() - c->submitted_us) / 1e3};
    return is_over || out->done > c->n_progress;
}

/* The watchdog's thread. Locked. */
static bool has_progress(const server_request *x) {
    server_prompt_progress progress;
    for (int32_t i = 0; i < x->answers->n_choices && reports_progress(x); i++)
        if (new_progress(&x->answers->choices[i], false, &progress)) return true;
    return false;
}

static int generate_report_choice(server_request *x, server_choice *c) {
    if (c->ended || (c == x->answers->choices && server_request_is_held(x))) return 0;
    bool done = take_pending(x, c), is_over = done || c->taken_text.len > 0;
    int rc = 0;
    server_prompt_progress progress;
    if (reports_progress(x) && new_progress(c, is_over, &progress)) {
        BASE_ASSERT(!c->is_prompt_done);
        c->n_progress = progress.done;
        c->is_prompt_done = is_over;
        rc = x->answers->form->progress(x, c, &progress);
    }
    if (!rc) rc = generate_report_piece(x, c);
    if (!done || rc) return rc;
    if (stream_marks_skip(x))
        return (int)server_fail(&x->problem, SERVER_INTERNAL, NULL,
                                "the continued answer ends before the text that was sent of it") == SERVER_FINE;
    server_choice_collect(c);
    if (c == x->answers->choices && c->result && !x->answers->hint_sought && template_hint_is_due(x)) {
        x->answers->hint_sought = true;
        server_request_ask_worker(x); /* it looks for a hint (template_hint.h): the end of the stream waits for that */
        return 0;
    }
    c->ended = true;
    if (c->problem.kind && !x->problem.kind) x->problem = c->problem;
    if (c->result && generate_is_parsed(c)) rc = tool_finder_finish(&c->finder);
    if (rc) return rc;
    return c->result && x->answers->form->close ? x->answers->form->close(x, c) : 0;
}

static void generate_look(server_request *x, uint64_t keep_alive_us) {
    pthread_mutex_lock(&x->lock);
    bool runs = x->stage == SERVER_RUNNING || x->stage == SERVER_STREAMING;
    if (runs && x->is_stream && x->take == generate_take && x->suspended) {
        /* A router keeps its client's stream alive itself; a node's keep-alive would be the first byte of the answer to
         * it. */
        bool is_of_router = x->relay && x->relay->has_route;
        bool idle = keep_alive_us > 0 && !is_of_router && base_clock_us() - x->reported_us >= keep_alive_us;
        x->is_idle |= idle;
        if (idle || x->has_news || has_progress(x)) server_request_wake(x);
    }
    pthread_mutex_unlock(&x->lock);
}

/* Is there nothing to send except that jobs continue? */
static bool generate_only_continues(server_request *x) {
    pthread_mutex_lock(&x->lock);
    bool idle = x->is_idle && x->answers->n_done < x->answers->n_choices && !has_progress(x);
    for (int32_t i = 0; i < x->answers->n_choices && idle; i++)
        idle = x->answers->choices[i].text.len == 0 && x->answers->choices[i].tokens.len == 0;
    x->is_idle = false;
    x->reported_us = base_clock_us();
    pthread_mutex_unlock(&x->lock);
    return idle;
}

void generate_take(server_request *x) {
    BASE_ASSERT(x->is_stream && !x->stream_ended);
    const size_t before = x->reply.len;
    int rc = 0;
    if (generate_only_continues(x)) {
        const server_piece nothing = {.text = ""}; /* a stream of lines has no comments: this is its keep-alive */
        if (x->is_lines) rc = x->answers->form->piece(x, &x->answers->choices[0], &nothing);
        else rc = base_buffer_append_str(&x->reply, ": keep-alive\n\n");
        if (rc || stream_marks_append(x, before)) x->gone = true;
        return;
    }
    if (!x->stream_began && x->answers->form->open) rc = x->answers->form->open(x);
    if (!x->stream_began) stream_marks_drop_begin(x, before);
    x->stream_began = true;
    for (int32_t i = 0; i < x->answers->n_choices && !rc && !x->problem.kind; i++)
        rc = generate_report_choice(x, &x->answers->choices[i]);
    if (rc) server_fail_memory(&x->problem);
    bool all_ended = true;
    for (int32_t i = 0; i < x->answers->n_choices; i++) all_ended &= x->answers->choices[i].ended;
    if (!x->problem.kind && !all_ended) {
        if (stream_marks_append(x, before)) x->gone = true;
        return;
    }
    x->stream_ended = true;
    if (!x->problem.kind) {
        report_keep(x);
        if (x->answers->form->end) rc = x->answers->form->end(x);
    } else if (x->answers->form->fail) rc = x->answers->form->fail(x, &x->problem);
    if (rc) x->gone = true; /* no error can be sent any more */
}

const server_answer_ops generate_operations = {.begin = begin_jobs,
                                               .finish = generate_finish,
                                               .assist = generate_find_hint,
                                               .look = generate_look,
                                               .cancel = generate_cancel,
                                               .free = generate_free};
