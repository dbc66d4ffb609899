/* SPDX-License-Identifier: Apache-2.0 */
/* route_answers.c: requests that nodes answer: submission by a worker to the network thread, and replies to the client
 * (route_internal.h). */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "server/answers/generate.h"
#include "server/http/request_memory.h"
#include "server/models/model_pool.h"
#include "server/route/route_internal.h"

#define REFUSED_RETRY_MS 1000 /* Retry-After of refusals without a prediction */
#define BYTES_PER_TOKEN 4     /* of requests without a plan */

/* ---- the queue to the network thread ---- */

void route_post(route_request *rr, unsigned commands) {
    route *t = rr->t;
    pthread_mutex_lock(&t->queue_lock);
    const bool is_new = !rr->over && !rr->is_queued;
    if (!rr->over) rr->commands |= commands;
    if (is_new) {
        rr->is_queued = true;
        BASE_LIST_APPEND(&t->queue, rr, queued);
    }
    pthread_mutex_unlock(&t->queue_lock);
    if (is_new) route_wake(t);
}

route_request *route_next_posted(route *t, unsigned *commands) {
    pthread_mutex_lock(&t->queue_lock);
    route_request *rr = t->queue.first;
    if (rr) {
        BASE_ASSERT(rr->is_queued && !rr->over && rr->commands != 0);
        BASE_LIST_REMOVE(&t->queue, rr, queued);
        *commands = rr->commands;
        rr->commands = 0;
        rr->is_queued = false;
    }
    pthread_mutex_unlock(&t->queue_lock);
    return rr;
}

/* The network thread no longer uses the request, which may be freed from here on. */
static void set_over(route_request *rr) {
    route *t = rr->t;
    pthread_mutex_lock(&t->queue_lock);
    BASE_ASSERT(!rr->over);
    if (rr->is_queued) BASE_LIST_REMOVE(&t->queue, rr, queued);
    rr->is_queued = false;
    rr->over = true;
    pthread_cond_broadcast(&t->is_over);
    pthread_mutex_unlock(&t->queue_lock);
}

/* ---- plan and submission ---- */

static uint64_t answers_hash(const char *domain, const char *text) {
    base_hash h;
    base_key key;
    uint64_t value;
    base_hash_init(&h, domain);
    base_hash_bytes(&h, text, strlen(text));
    base_hash_final(&h, &key);
    memcpy(&value, key.bytes, sizeof(value));
    return value | 1; /* never 0 */
}

/* Sets names of the first prompt and tokens of all prompts. A request that cannot be planned is sent to a node by load
 * alone, which replies with the error. */
static void plan(route_request *rr) {
    server_request *x = rr->x;
    rp_error err;
    const size_t n_prompts = BASE_MAX(x->gen->n_prompts, 1);
    rp_request q = generate_request_of(&x->answers->choices[0]);
    q.grammar = q.grammar_trigger = NULL; /* of the answer, not of the prompt */
    q.on_text = NULL;
    q.on_token = NULL;
    q.on_done = NULL;
    if (!rp_plan_names_of(x->model->engine, &q, &rr->names, &err)) {
        rr->r.items = rr->names->items;
        rr->r.n_items = rr->names->n_items;
        rr->r.max_tokens = rr->names->max_tokens;
        rr->r.prompt_tokens = (int32_t)BASE_MIN((size_t)rr->names->prompt_tokens * n_prompts, (size_t)INT32_MAX);
        return;
    }
    atomic_fetch_add(&rr->t->unplanned, 1);
    rr->names = NULL;
    rr->r.prompt_tokens = (int32_t)BASE_MIN(x->body.len / BYTES_PER_TOKEN, (size_t)INT32_MAX - 1) + 1;
    rr->r.max_tokens = q.max_tokens;
}

static void fill_request(route_request *rr) {
    server_request *x = rr->x;
    const generation *gen = x->gen;
    const char *tenant = x->key->tenant ? x->key->tenant : "";
    /* The client's session; of a subagent, that of its parent: both begin with the same text. */
    const char *session = gen->parent_session[0] ? gen->parent_session : gen->session;
    rr->r.tenant = answers_hash("reprise tenant 1", tenant);
    rr->r.session = session[0] ? answers_hash("reprise session 1", session) : 0;
    rr->r.priority = gen->priority;
    rr->r.only_node = x->only_node;
    /* A stream of one answer has marks, if a node can continue it from its tokens alone. */
    rr->r.continues = gen->stream && x->answers->n_choices == 1 && gen->embedding.pooling == RP_POOLING_OFF &&
                      !gen->context_shift && !(gen->kv_keep && gen->kv_keep[0]);
    rr->r.node = -1;
    if (gen->deadline_ms > 0) rr->r.deadline_us = x->arrived_us + (uint64_t)gen->deadline_ms * 1000;
    plan(rr);
}

static void request_free(route_request *rr) {
    if (!rr) return;
    cluster_request_close(&rr->r);
    rp_plan_names_free(rr->names);
    route_frames_free(&rr->frames);
    base_buffer_free(&rr->held);
    base_buffer_free(&rr->out);
    curl_slist_free_all(rr->headers);
    base_free(rr->target);
    base_free(rr);
}

static route_request *request_new(server_request *x) {
    bool failed = false;
    route_request *rr = base_calloc(1, sizeof(*rr));
    if (!rr) return NULL;
    rr->t = x->server->route;
    rr->x = x;
    rr->created = (int64_t)time(NULL);
    rr->wants_stream = x->is_stream;
    rr->out = rr->held = BASE_BUFFER(SERVER_REPLY_BYTES);
    route_frames_init(&rr->frames, false);
    rr->target = route_target_of(x);
    rr->headers = route_headers_of(x, &failed);
    if (rr->target && !failed) return rr;
    request_free(rr);
    return NULL;
}

static void route_take(server_request *x);

/* After route_post other threads use the request. */
static int answers_begin(server_request *x) {
    route_request *rr = request_new(x);
    if (!rr) return server_fail_memory(&x->problem);
    fill_request(rr);
    model_pool_part(x);
    x->take = route_take;
    pthread_mutex_lock(&x->lock);
    x->routed = rr; /* for server_request_abandon */
    x->stage = SERVER_RUNNING;
    x->reported_us = base_clock_us();
    route_post(rr, ROUTE_SUBMIT | (x->gone ? ROUTE_CANCEL : 0));
    pthread_mutex_unlock(&x->lock);
    return SERVER_FINE;
}

/* ---- a stream's bytes ---- */

/* Under the request's lock. The name is sent with the reply's head, and does not change when another node continues. */
static void show_node(route_request *rr) {
    if (!rr->x->node) snprintf(rr->shown_node, sizeof(rr->shown_node), "%s", rr->node_name);
    rr->x->node = rr->shown_node;
}

void route_relay(route_request *rr, base_buffer *bytes) {
    server_request *x = rr->x;
    pthread_mutex_lock(&x->lock);
    if (!rr->wants_stream && !x->is_bytes) { /* a long reply without a stream */
        x->is_stream = x->is_bytes = true;
        x->content_type = rr->content_type;
    }
    if (x->stage == SERVER_RUNNING) show_node(rr);
    if (base_buffer_append(&rr->out, bytes->data, bytes->len)) x->gone = true;
    if (bytes->len == 1) rr->tail[0] = rr->tail[1];
    else if (bytes->len > 1) rr->tail[0] = bytes->data[bytes->len - 2];
    if (bytes->len > 0) rr->tail[1] = bytes->data[bytes->len - 1];
    BASE_ASSERT(rr->pending <= rr->out.len); /* what was counted is a part of what is there */
    atomic_fetch_add(&x->server->pending_bytes, rr->out.len - rr->pending);
    rr->pending = rr->out.len;
    server_request_wake(x);
    pthread_mutex_unlock(&x->lock);
    base_buffer_clear(bytes);
}

/* Lines of JSON have no comments: their keep-alive is an empty piece of text. */
static int keep_alive(server_request *x) {
    const server_piece nothing = {.text = ""};
    if (!x->is_lines) return base_buffer_append_str(&x->reply, ": keep-alive\n\n");
    return x->answers->form->piece(x, &x->answers->choices[0], &nothing);
}

/* within: after a part of a frame, which the client drops. */
static void fail_stream(server_request *x, const server_problem *problem, bool within) {
    x->problem = *problem;
    if (within && !x->is_bytes && base_buffer_append_str(&x->reply, x->is_lines ? "\n" : "\n\n")) x->gone = true;
    if (x->is_bytes || !x->answers->form->fail || x->answers->form->fail(x, problem))
        x->gone = true; /* the stream is cut */
}

/* The stream's next bytes: swaps the buffers of the client and the network thread. */
static void route_take(server_request *x) {
    route_request *rr = x->routed;
    pthread_mutex_lock(&x->lock);
    /* Has the client a part of a frame or of a line of JSON? Nothing may be inserted then. */
    const bool within = rr->tail[1] && (rr->tail[1] != '\n' || (!x->is_lines && rr->tail[0] != '\n'));
    const bool was_paused = rr->is_paused;
    const bool is_idle = x->is_idle && rr->out.len == 0 && !rr->out_ended && !within;
    base_buffer taken = rr->out;
    BASE_ASSERT(x->reply.len == 0 && rr->pending == taken.len);
    rr->out = x->reply;
    x->reply = taken;
    atomic_fetch_sub(&x->server->pending_bytes, rr->pending);
    rr->pending = 0;
    rr->is_paused = x->is_idle = false;
    x->reported_us = base_clock_us();
    const bool has_ended = rr->out_ended;
    const server_problem problem = rr->problem;
    pthread_mutex_unlock(&x->lock);
    if (was_paused) route_post(rr, ROUTE_RESUME);
    if (is_idle && keep_alive(x)) x->gone = true;
    if (!has_ended) return;
    x->stream_ended = true;
    if (problem.kind) fail_stream(x, &problem, within);
}

static void answers_look(server_request *x, uint64_t keep_alive_us) {
    pthread_mutex_lock(&x->lock);
    const bool runs = x->stage == SERVER_RUNNING || x->stage == SERVER_STREAMING;
    if (runs && x->routed && x->routed->wants_stream && x->suspended) {
        const bool idle = keep_alive_us > 0 && base_clock_us() - x->reported_us >= keep_alive_us;
        x->is_idle |= idle;
        if (idle || x->has_news) server_request_wake(x);
    }
    pthread_mutex_unlock(&x->lock);
}

/* ---- the end ---- */

static void describe_outcome(server_problem *p, cluster_outcome outcome, uint64_t retry_after_ms) {
    switch (outcome) {
    case CLUSTER_SERVED:
    case CLUSTER_ANSWERED:
    case CLUSTER_N_OUTCOMES: return;
    case CLUSTER_REFUSED_TTFT:
        server_fail(p, SERVER_OVERLOADED, NULL, "no node can begin this answer within the TTFT goal: retry later");
        break;
    case CLUSTER_REFUSED_ITL:
        server_fail(p, SERVER_OVERLOADED, NULL, "no node can add an answer within the ITL goal: retry later");
        break;
    case CLUSTER_REFUSED_QUEUE:
        server_fail(p, SERVER_OVERLOADED, NULL, "too many requests wait for a node: retry later");
        break;
    case CLUSTER_REFUSED_BUSY: server_fail(p, SERVER_OVERLOADED, NULL, "all nodes are busy: retry later"); break;
    case CLUSTER_NO_NODE:
        server_fail(p, SERVER_BUSY, NULL, "no node that can serve this request is reachable: retry later");
        break;
    case CLUSTER_LATE:
        server_fail(p, SERVER_DEADLINE, NULL, "the deadline passed before a node began the answer");
        return;
    case CLUSTER_FAILED:
        server_fail(p, SERVER_NODE, NULL, "the node failed, and no other node could continue: retry");
        return;
    case CLUSTER_CANCELLED: server_fail(p, SERVER_CANCELLED, NULL, "the client disconnected"); return;
    }
    p->retry_after_ms =
        (uint32_t)BASE_MIN(retry_after_ms > 0 ? retry_after_ms : (uint64_t)REFUSED_RETRY_MS, (uint64_t)UINT32_MAX);
}

/* A node's error for a stream that has begun: its message, in any dialect. */
static void describe_refusal(server_problem *p, const route_request *rr) {
    json_t *root = json_loadb(rr->held.data ? rr->held.data : "", rr->held.len, 0, NULL),
           *error = json_object_get(root, "error");
    const char *message = json_string_value(json_is_string(error) ? error : json_object_get(error, "message"));
    server_fail(p, server_problem_of_status(rr->status), NULL, "%.600s",
                message ? message : "the node refused the request");
    json_decref(root);
}

/* Sends a complete reply for a claimed request. */
static void reply_held(route_request *rr) {
    server_request *x = rr->x;
    base_buffer body = rr->held;
    rr->held = BASE_BUFFER(SERVER_REPLY_BYTES);
    x->problem.retry_after_ms = rr->retry_after_ms;
    show_node(rr);
    server_request_reply_text(x, rr->status, rr->content_type, &body);
}

void route_deliver(route_request *rr, cluster_outcome outcome, uint64_t retry_after_ms) {
    server_request *x = rr->x;
    server_problem problem = {0};
    const request_memory_visit visit = request_memory_enter(x);
    const bool is_whole = outcome == CLUSTER_ANSWERED || (outcome == CLUSTER_SERVED && rr->first_us == 0);
    BASE_ASSERT(!rr->is_ended && !rr->transfer && !rr->must_send); /* once, and without a transfer */
    describe_outcome(&problem, outcome, retry_after_ms);
    rr->is_ended = true;
    pthread_mutex_lock(&x->lock);
    const bool streams =
        x->stage == SERVER_STREAMING || (outcome == CLUSTER_SERVED && !is_whole && x->stage == SERVER_RUNNING);
    if (streams && outcome == CLUSTER_ANSWERED) describe_refusal(&problem, rr);
    else if (streams && is_whole) server_fail(&problem, SERVER_NODE, NULL, "the node replied without a stream");
    if (streams) {
        BASE_ASSERT(!rr->out_ended);
        rr->problem = problem;
        rr->out_ended = true;
        server_request_wake(x);
    }
    const bool replies = !streams && x->stage == SERVER_RUNNING;
    if (replies) x->stage = SERVER_FINISHING; /* claimed: from now on no other thread changes it */
    pthread_mutex_unlock(&x->lock);
    if (replies && is_whole) reply_held(rr);
    else if (replies) {
        x->problem = problem;
        server_request_reply_problem(x);
    }
    request_memory_leave(visit);
    set_over(rr);
}

/* ---- the server's operations ---- */

/* Nothing to do: the network thread makes the replies. */
static void answers_finish(server_request *x) { (void)x; }

static void answers_cancel(server_request *x) {
    if (x->routed) route_post(x->routed, ROUTE_CANCEL);
}

static void answers_free(server_request *x) {
    route_request *rr = x->routed;
    if (rr && x->take == route_take) {
        route *t = rr->t;
        route_post(rr, ROUTE_CANCEL);
        pthread_mutex_lock(&t->queue_lock);
        while (!rr->over) pthread_cond_wait(&t->is_over, &t->queue_lock);
        pthread_mutex_unlock(&t->queue_lock);
    }
    if (rr) atomic_fetch_sub(&x->server->pending_bytes, rr->pending);
    pthread_mutex_lock(&x->lock);
    x->routed = NULL;
    x->node = NULL;
    pthread_mutex_unlock(&x->lock);
    request_free(rr);
    generate_free(x);
}

const server_answer_ops route_operations = {.begin = answers_begin,
                                            .finish = answers_finish,
                                            .look = answers_look,
                                            .cancel = answers_cancel,
                                            .free = answers_free,
                                            .pin = route_pin};
