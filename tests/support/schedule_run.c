/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_run.c: see schedule_run.h. */
#include "schedule_run.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sched.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "kv/block_pool.h"
#include "store_folder.h"
#include "test_device.h"
#include "reprise_cluster.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "reprise_test.h"

#define DRAFT_POSITIONS 256 /* that a draft model has at least, here */
#define MOST_SLOTS (2 * SCHEDULE_CALLS)
#define MOST_CLIENTS 4
#define MOST_ACTS (5 * MOST_SLOTS)
#define MOST_PASSES 3
#define NEVER INT32_MAX
#define MOST_WAIT_US 20000000             /* for a busy machine's disk */
#define LEAST_DISK ((uint64_t)1600 << 10) /* the store's own files and some records */

typedef struct schedule schedule;

/* OWNER has the schema for itself besides the shared one. A NEWCOMER's name is unique. */
typedef enum tenant { OPERATOR,
                      GUEST,
                      OWNER,
                      NEWCOMER } tenant;
static const char *const tenants[] = {NULL, "guest", "owner"};

/* What a call's modules may have been when it was planned: all of full KV, all of reduced KV; or some of each, which no
   run alone has. */
typedef enum form { FORM_FULL,
                    FORM_REDUCED,
                    N_FORMS,
                    FORM_MIXED = N_FORMS } form;

/* A job under way. */
typedef struct slot {
    schedule *run;
    const schedule_call *call;
    rp_request request;
    rp_request_experiment experiment; /* of the request */
    tenant tenant;
    char newcomer[24];
    bool has_schema;     /* for itself */
    bool may_end_early;  /* somebody may cancel it, or its deadline comes */
    int32_t stops_at;    /* its own callback ends it at this token */
    struct slot *victim; /* another that is cancelled */
    int32_t victim_at;   /* when this one is at this token */
    bool by_callback;    /* is submitted on the engine's thread */
    rp_job *handle;      /* under the schedule's lock until all have ended */
    int submit_rc;
    rp_error submit_err;
    /* the engine's thread, until it has ended */
    int32_t n_steps, n_tokens, n_done;
    int32_t bad_step[N_FORMS], bad_token[N_FORMS]; /* the first that differs; -1 */
    char *text;                                    /* n_text bytes and a NUL; not allocated by base/, where allocations
                                                      may fail */
    size_t n_text;
} slot;

typedef enum act_kind { ACT_SUBMIT,
                        ACT_CANCEL,
                        ACT_ENCODE,
                        ACT_REPLACE,
                        ACT_STATUS,
                        ACT_FAIL } act_kind;

/* The action of a client thread after `gate` events. */
typedef struct act {
    act_kind kind;
    uint64_t gate;
    slot *slot;
    uint64_t n;    /* ACT_FAIL: so many allocations from then */
    tenant tenant; /* of the schema that is prefilled or replaced */
} act;

typedef struct client {
    schedule *run;
    act acts[MOST_ACTS];
    int32_t n_acts;
    pthread_t thread;
    int prefill_rc;
} client;

struct schedule {
    const schedule_world *w;
    tiny_random *r;
    schedule_tally *tally;
    bool fails; /* allocations do, in this pass */
    rp_engine *engine;
    rp_engine_options engine_options;
    rp_engine_experiment engine_experiment;
    bool is_tight;                 /* the small budget */
    char dir[STORE_FOLDER_BYTES];  /* of the store on disk; "": none */
    char pool[STORE_FOLDER_BYTES]; /* of a pool; "": none */
    char pool_address[STORE_FOLDER_BYTES + 4];
    tiny_random of_pool; /* what concerns it: it changes nothing else of a schedule */
    rp_cluster_options cluster;
    char key[2][STORE_FOLDER_BYTES];                    /* its key, and a wrong one */
    int32_t n_tenants;                                  /* 1: the operator alone */
    int32_t n_asked, n_asked_by[NEWCOMER], n_newcomers; /* calls of all passes, and modules encoded */
    slot slots[MOST_SLOTS];
    int32_t n_slots, n_by_callback;
    client clients[MOST_CLIENTS];
    int32_t n_clients;
    uint64_t waits, shared_steps, over_budget; /* the engine's thread */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t events;
    int32_t n_live;
    int32_t next_by_callback; /* slots from here on may be submitted by callbacks */
};

static int32_t below(schedule *s, int32_t n) { return (int32_t)tiny_random_below(s->r, (uint64_t)n); }
static bool chance(schedule *s, int32_t one_in) { return below(s, one_in) == 0; }

/* ---- the engine's thread: callbacks ------------------------------------------------------------------------------ */

static void cancel(slot *victim) {
    schedule *s = victim->run;
    pthread_mutex_lock(&s->lock);
    if (victim->handle) rp_job_cancel(victim->handle);
    pthread_mutex_unlock(&s->lock);
}

static void submit(slot *c) {
    schedule *s = c->run;
    rp_job *handle;
    pthread_mutex_lock(&s->lock);
    s->n_live++;
    pthread_mutex_unlock(&s->lock);
    int rc = rp_engine_submit(s->engine, &c->request, &handle, &c->submit_err);
    pthread_mutex_lock(&s->lock);
    c->submit_rc = rc;
    c->handle = handle;
    if (rc) s->n_live--;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* The next slot to submit from a callback, if any is left; counts an event. */
static slot *note_event(schedule *s, bool ended, bool may_submit) {
    slot *next = NULL;
    pthread_mutex_lock(&s->lock);
    s->events++;
    s->n_live -= ended;
    if (may_submit && s->next_by_callback < s->n_slots && s->events % 3 == 0) {
        next = &s->slots[s->next_by_callback++];
        s->n_live++; /* before it is submitted: waiting threads must not see 0 */
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return next;
}

static void note_submitted(schedule *s) {
    pthread_mutex_lock(&s->lock);
    s->n_live--;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void happen(schedule *s, bool ended) {
    slot *next = note_event(s, ended, true);
    if (!next) return;
    submit(next);
    note_submitted(s);
}

static const oracle_run *alone_of(const slot *c, form f) {
    return f == FORM_FULL ? &c->call->alone : &c->call->reduced;
}

static void on_logits(void *user, const float *logits, int32_t n_vocab) {
    slot *c = user;
    int32_t i = c->n_steps++;
    for (form f = 0; f < N_FORMS; f++) {
        const oracle_run *alone = alone_of(c, f);
        bool same =
            i < alone->n_steps && memcmp(oracle_run_logits(alone, i), logits, (size_t)n_vocab * sizeof(*logits)) == 0;
        if (!same && c->bad_step[f] < 0) c->bad_step[f] = i;
    }
    if (c->victim && i == c->victim_at) cancel(c->victim);
    happen(c->run, false);
}

static bool on_token(void *user, const rp_token *token) {
    slot *c = user;
    int32_t i = c->n_tokens++;
    for (form f = 0; f < N_FORMS; f++) {
        const rp_result *alone = alone_of(c, f)->result;
        if ((!alone || i >= alone->n_tokens || alone->tokens[i] != token->id) && c->bad_token[f] < 0)
            c->bad_token[f] = i;
    }
    return i != c->stops_at;
}

static bool on_text(void *user, const char *text, size_t n) {
    slot *c = user;
    c->text = realloc(c->text, c->n_text + n + 1);
    memcpy(c->text + c->n_text, text, n + 1);
    c->n_text += n;
    return true;
}

static void on_done(void *user) {
    slot *c = user;
    c->n_done++;
    happen(c->run, true);
}

static void on_step(void *user, const rp_step *step) {
    schedule *s = user;
    if (step->n_waiting > 0 && step->n_running < s->engine_options.max_sequences && !s->is_tight) s->waits++;
    for (int32_t i = 1; i < step->n_parts; i++)
        if (step->parts[i].job != step->parts[0].job) {
            s->shared_steps++;
            break;
        }
    s->over_budget += step->kv_bytes > s->engine_options.kv_budget_bytes && !test_device_is_apart();
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

static void wait_for(schedule *s, uint64_t gate) {
    pthread_mutex_lock(&s->lock);
    while (s->events < gate && s->n_live > 0) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void look(slot *c) {
    schedule *s = c->run;
    rp_job_status status = {.struct_size = sizeof(status)};
    pthread_mutex_lock(&s->lock);
    if (c->handle) {
        rp_job_get_status(c->handle, &status);
        rp_job_wait(c->handle, 0);
    }
    pthread_mutex_unlock(&s->lock);
}

static void do_act(client *k, const act *a) {
    schedule *s = k->run;
    rp_schema_options options = {.struct_size = sizeof(options)};
    rp_error err;
    int rc = 0;
    switch (a->kind) {
    case ACT_SUBMIT: submit(a->slot); break;
    case ACT_CANCEL: cancel(a->slot); break;
    case ACT_STATUS: look(a->slot); break;
    case ACT_FAIL: base_alloc_fail_at(a->n, 0); break;
    case ACT_ENCODE:
        rc = rp_schema_prefill(s->engine, tenants[a->tenant], "s", NULL, NULL, &err);
        if (rc == s->w->prefill_rc) rc = 0;
        break;
    case ACT_REPLACE:
        options.tenant = tenants[a->tenant];
        rc = rp_schema_parse(s->engine, s->w->pml.schema.data, s->w->pml.schema.len, "schema", NULL, &options, NULL,
                             &err);
        break;
    }
    if (rc && !k->prefill_rc) k->prefill_rc = rc;
}

static void *client_main(void *arg) {
    client *k = arg;
    for (int32_t i = 0; i < k->n_acts; i++) {
        wait_for(k->run, k->acts[i].gate);
        do_act(k, &k->acts[i]);
    }
    return NULL;
}

/* ---- generating a pass ------------------------------------------------------------------------------------------- */

/* Some newcomers bring a schema that equals the shared one except for its tenant. */
static void draw_tenant(schedule *s, slot *c) {
    c->tenant = s->n_tenants == 1 ? OPERATOR : (tenant)below(s, s->n_tenants);
    c->has_schema = c->tenant == OWNER || (c->tenant == NEWCOMER && chance(s, 3));
    s->n_asked++;
    if (c->tenant == NEWCOMER) {
        snprintf(c->newcomer, sizeof(c->newcomer), "newcomer %d", ++s->n_newcomers);
        c->request.tenant = c->newcomer;
        if (c->has_schema) schedule_world_load(s->w, s->engine, c->newcomer);
    } else {
        c->request.tenant = tenants[c->tenant];
        s->n_asked_by[c->tenant]++;
    }
}

/* Changes a request in ways that do not change its answer. */
static void vary(schedule *s, slot *c) {
    rp_request *q = &c->request;
    *q = c->call->request;
    draw_tenant(s, c);
    q->n_draft = chance(s, 2) ? below(s, RP_MAX_DRAFT + 2) + RP_DRAFT_AUTO : 0;
    c->experiment = c->call->experiment;
    c->experiment.no_prefix = chance(s, 6);
    q->experiment = &c->experiment;
    q->priority = chance(s, 3) ? below(s, 5) - 2 : 0;
    /* without modules all compute the same */
    if (q->prompt.kind == RP_PROMPT_TEXT && chance(s, 3))
        q->reuse = (rp_reuse)below(s, 3), q->quality = (rp_quality){0};
    if (q->prompt.kind == RP_PROMPT_PML && q->reuse != RP_REUSE_EXACT)
        q->reuse = chance(s, 5) ? RP_REUSE_OFF : RP_REUSE_ON;
    if (q->prompt.kind == RP_PROMPT_TEXT && chance(s, 3))
        q->shifted_reuse = below(s, 8); /* it may change its own answer only */
    if (chance(s, 4)) q->deadline_ms = 3600 * 1000 + below(s, 1000);
    if (chance(s, 25)) {
        q->deadline_ms = 1 + below(s, 8);
        c->may_end_early = true;
    }
    q->on_logits = on_logits;
    q->on_token = on_token;
    q->on_text = on_text;
    q->on_done = on_done;
    q->user = c;
}

/* Some jobs are ended by their own callback, some by another's. */
static void draw_cancels(schedule *s) {
    for (int32_t n = below(s, 1 + s->n_slots / 3); n > 0; n--) {
        slot *c = &s->slots[below(s, s->n_slots)];
        c->may_end_early = true;
        if (chance(s, 2)) c->stops_at = below(s, 12);
        else {
            slot *by = &s->slots[below(s, s->n_slots)];
            by->victim = c;
            by->victim_at = below(s, 12);
        }
    }
}

static void draw_slots(schedule *s) {
    const schedule_world *w = s->w;
    s->n_slots = w->n_calls + below(s, w->n_calls + 1);
    int32_t start = below(s, w->n_calls);
    for (int32_t i = 0; i < s->n_slots; i++) {
        slot *c = &s->slots[i];
        int32_t k = i < w->n_calls ? (start + i) % w->n_calls : below(s, w->n_calls);
        *c = (slot){.run = s, .call = &w->calls[k], .stops_at = NEVER, .bad_step = {-1, -1}, .bad_token = {-1, -1}};
    }
    for (int32_t i = s->n_slots - 1; i > 0; i--) { /* in any order */
        int32_t k = below(s, i + 1);
        const schedule_call *other = s->slots[i].call;
        s->slots[i].call = s->slots[k].call;
        s->slots[k].call = other;
    }
    for (int32_t i = 0; i < s->n_slots; i++) vary(s, &s->slots[i]);
    draw_cancels(s);
    s->n_by_callback = chance(s, 2) ? below(s, 1 + s->n_slots / 3) : 0;
    s->next_by_callback = s->n_slots - s->n_by_callback;
}

static void add_act(client *k, act_kind kind, uint64_t gate, slot *c) {
    assert_true(k->n_acts < MOST_ACTS);
    k->acts[k->n_acts++] = (act){.kind = kind, .gate = gate, .slot = c};
}

/* Prefills or replaces the schema: the shared one, or the owner's. */
static void add_schema_act(schedule *s, client *k, uint64_t gate) {
    add_act(k, chance(s, 2) ? ACT_ENCODE : ACT_REPLACE, gate, NULL);
    act *a = &k->acts[k->n_acts - 1];
    a->tenant = s->n_tenants > 1 && chance(s, 2) ? OWNER : OPERATOR;
    s->n_asked_by[a->tenant] += a->kind == ACT_ENCODE;
}

/* Gates rise, to keep a client's actions in order; `events` of earlier passes count. */
static void draw_clients(schedule *s) {
    bool together = chance(s, 3);
    s->n_clients = 1 + below(s, MOST_CLIENTS);
    for (int32_t i = 0; i < s->n_clients; i++) s->clients[i] = (client){.run = s};
    uint64_t gate = s->events;
    for (int32_t i = 0; i < s->n_slots - s->n_by_callback; i++) {
        client *k = &s->clients[below(s, s->n_clients)];
        if (!together) gate += (uint64_t)below(s, 1 + below(s, 20));
        if (s->fails && chance(s, 3)) {
            add_act(k, ACT_FAIL, gate, NULL);
            k->acts[k->n_acts - 1].n = 1 + (uint64_t)below(s, 1 + below(s, 300));
        }
        if (chance(s, 10)) add_schema_act(s, k, gate);
        add_act(k, ACT_SUBMIT, gate, &s->slots[i]);
        if (chance(s, 6)) add_act(k, ACT_STATUS, gate + (uint64_t)below(s, 9), &s->slots[below(s, s->n_slots)]);
        if (!chance(s, 10)) continue;
        slot *victim = &s->slots[below(s, s->n_slots)];
        victim->may_end_early = true;
        add_act(k, ACT_CANCEL, gate + (uint64_t)below(s, 30), victim);
    }
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

BASE_PRINTF(2, 3)
static _Noreturn void refuse(const slot *c, const char *format, ...) {
    const schedule *s = c->run;
    const rp_request *q = &c->request;
    const rp_engine_options *o = &s->engine_options;
    char what[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    printf("REPRISE_TEST_SEED=%llu (%s)\n", (unsigned long long)s->w->seed, s->w->model->name);
    printf("engine: %d threads, chunks of %d, %d sequences, goal %g ms, budget %llu\n", o->n_threads, o->chunk_tokens,
           o->max_sequences, (double)o->token_goal_ms, (unsigned long long)o->kv_budget_bytes);
    printf("request: tenant '%s', reuse %d, no_prefix %d, n_draft %d, shifted_reuse %d, max_tokens %d, n_forced %d, "
           "kv_keep %s %s, context_shift %d, "
           "temperature %g\n%s\n",
           q->tenant ? q->tenant : "", (int)q->reuse, q->experiment->no_prefix, q->n_draft, q->shifted_reuse,
           q->max_tokens, q->experiment->forced ? q->experiment->n_forced : 0, q->kv_keep ? q->kv_keep : "-",
           q->kv_method ? q->kv_method : "", q->context_shift, (double)q->sampling.temperature,
           (const char *)q->prompt.content);
    if (q->prompt.kind == RP_PROMPT_PML) printf("%s\n", s->w->pml.schema.data);
    fail_msg("%s", what);
    abort();
}

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* An answer that ended early is a prefix of the whole; a deadline publishes held-back bytes, which a stop string would
 * have cut. */
static void check_beginning(const slot *c, form f, const rp_result *got) {
    const rp_result *alone = alone_of(c, f)->result;
    if (got->n_tokens > alone->n_tokens || c->n_steps > alone_of(c, f)->n_steps)
        refuse(c, "a longer answer than alone");
    if (!begins(alone->text, got->text) && !begins(got->text, alone->text)) refuse(c, "another text: '%s'", got->text);
}

static void check_whole(const slot *c, form f, const rp_result *got) {
    const oracle_run *run = alone_of(c, f);
    const rp_result *alone = run->result;
    if (c->n_steps != run->n_steps || got->n_tokens != alone->n_tokens)
        refuse(c, "%d tokens by %d logits, alone %d by %d", got->n_tokens, c->n_steps, alone->n_tokens, run->n_steps);
    if (strcmp(got->text, alone->text) != 0) refuse(c, "text '%s', alone '%s'", got->text, alone->text);
    if (strcmp(got->finish_reason, alone->finish_reason) != 0)
        refuse(c, "ends by '%s', alone '%s'", got->finish_reason, alone->finish_reason);
    if (got->n_top != alone->n_top || (alone->n_top > 0 && memcmp(got->logprobs, alone->logprobs,
                                                                  (size_t)got->n_tokens * sizeof(*got->logprobs)) != 0))
        refuse(c, "other log-probabilities");
}

static void count(schedule *s, const slot *c, const rp_result *r) {
    schedule_tally *t = s->tally;
    for (int32_t i = 0; i < r->n_plan; i++) {
        const rp_plan_item *item = &r->plan[i];
        bool by_prefix = strcmp(item->module, "prompt") == 0 || c->request.reuse == RP_REUSE_EXACT;
        bool found = item->is_view && strcmp(item->tier, "computed") != 0;
        if (found) *(by_prefix ? &t->prefix_tokens : &t->module_tokens) += (uint64_t)item->n_tokens;
    }
    for (int32_t i = 0; i < r->n_plan; i++) {
        t->disk_tokens += strcmp(r->plan[i].tier, "disk") == 0 ? (uint64_t)r->plan[i].n_tokens : 0;
        t->pool_tokens += strcmp(r->plan[i].tier, "pool") == 0 ? (uint64_t)r->plan[i].n_tokens : 0;
    }
    t->reduced += r->kv_reduction.share < 1;
    t->beyond += r->context_shifts > 0;
    t->drafted += (uint64_t)r->drafted_tokens;
    t->accepted += (uint64_t)r->accepted_tokens;
    t->model_drafted += (uint64_t)r->model_drafted_tokens;
    t->model_accepted += (uint64_t)r->model_accepted_tokens;
}

static bool looks_for_nothing(const rp_request *q) {
    return q->reuse == RP_REUSE_OFF ||
           (q->experiment->no_prefix && (q->prompt.kind == RP_PROMPT_TEXT || q->reuse == RP_REUSE_EXACT));
}

static int32_t tokens_in_views(const rp_result *r) {
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_plan; i++) n += r->plan[i].is_view ? r->plan[i].n_tokens : 0;
    return n;
}

/* A tenant's first request hits shared modules only, which are views of the plan whatever is cached; none, if it has
 * its own schema. */
static void check_first(schedule *s, const slot *c, const rp_result *r) {
    bool first = c->tenant == NEWCOMER || s->n_asked_by[c->tenant] == 1;
    if (!first || s->n_asked == 1) return;
    if (tokens_in_views(r) != tokens_in_views(c->call->alone.result)) refuse(c, "found what another tenant has read");
    if (c->has_schema && r->cached_tokens > 0) refuse(c, "found modules that another tenant has computed");
    s->tally->firsts++;
}

static bool may_move(const rp_request *q) { return q->shifted_reuse >= 0 && q->prompt.kind == RP_PROMPT_TEXT; }

/* Was KV reused that never attended to the tokens before it here? */
static bool has_moved(const slot *c, const rp_result *r) {
    bool moved = false;
    for (int32_t i = 0; i < r->n_plan; i++)
        moved |= !r->plan[i].exact; /* by 0 positions, perhaps: a piece that was as long */
    return moved && may_move(&c->request);
}

/* The share of its slots that each view keeps is in the plan. */
static form form_of(const slot *c, const rp_result *r) {
    const rp_result *reduced = c->call->reduced.result;
    bool any = false, all = reduced != NULL;
    int32_t k = 0; /* views of reduced KV in the other plan */
    for (int32_t i = 0; i < r->n_plan; i++) {
        if (r->plan[i].kept >= 1) continue;
        any = true;
        while (all && k < reduced->n_plan && reduced->plan[k].kept >= 1) k++;
        all = all && k < reduced->n_plan && strcmp(reduced->plan[k++].key, r->plan[i].key) == 0;
    }
    while (all && k < reduced->n_plan && reduced->plan[k].kept >= 1) k++;
    return !any ? FORM_FULL : all && k == reduced->n_plan ? FORM_REDUCED
                                                          : FORM_MIXED;
}

static void check_answer(schedule *s, const slot *c, const rp_result *r) {
    const form f = form_of(c, r);
    bool early = strcmp(r->finish_reason, "cancelled") == 0 || strcmp(r->finish_reason, "deadline") == 0;
    check_first(s, c, r);
    if (has_moved(c, r)) {
        s->tally->shifted++;
        return;
    }
    if (f == FORM_MIXED) {
        s->tally->mixed++;
        return;
    }
    if (c->bad_step[f] >= 0)
        refuse(c, "not the same bytes%s: logits %d of %d", f ? ", reduced" : "", c->bad_step[f],
               alone_of(c, f)->n_steps);
    if (c->bad_token[f] >= 0) refuse(c, "not the same token%s: %d", f ? ", reduced" : "", c->bad_token[f]);
    if (r->n_tokens != c->n_tokens) refuse(c, "%d tokens told, %d given", c->n_tokens, r->n_tokens);
    if (strcmp(c->text ? c->text : "", r->text) != 0)
        refuse(c, "'%s' told, '%s' given", c->text ? c->text : "", r->text);
    if (r->bytes_copied != 0) refuse(c, "states were copied");
    if (r->prompt_tokens != c->call->alone.result->prompt_tokens) refuse(c, "%d tokens of a prompt", r->prompt_tokens);
    if (r->cached_tokens + r->fresh_tokens != r->prompt_tokens) refuse(c, "tokens are lost");
    if (looks_for_nothing(&c->request) && r->cached_tokens) refuse(c, "found what was not to be looked for");
    if (early && !c->may_end_early) refuse(c, "ends by '%s'", r->finish_reason);
    if (early) check_beginning(c, f, r);
    else check_whole(c, f, r);
    s->tally->logits += (uint64_t)c->n_steps;
    if (f == FORM_REDUCED) s->tally->reduced_logits += (uint64_t)c->n_steps;
    s->tally->logits_in[s->w->format] += (uint64_t)c->n_steps;
    *(early ? &s->tally->cancelled : &s->tally->compared) += 1;
    count(s, c, r);
}

static void check_error(schedule *s, const slot *c, int rc, const rp_error *err) {
    bool no_memory = rc == RP_ERR_MEMORY || rc == RP_ERR_LIMIT || rc == RP_ERR_BUDGET;
    if (rc != (int)err->code || !err->message[0]) refuse(c, "error %d does not say what it is: '%s'", rc, err->message);
    if (rc == RP_ERR_CANCELLED && c->may_end_early) s->tally->cancelled++;
    else if (rc == RP_ERR_DEADLINE && c->may_end_early) s->tally->expired++;
    else if (rc == RP_ERR_BUSY && s->n_slots >= s->engine_options.max_queue) s->tally->full++;
    else if (no_memory && s->fails) s->tally->failed++;
    else refuse(c, "error: %s", err->message);
    /* a failed job has no plan, which would report shifted KV */
    if (c->bad_step[FORM_FULL] >= 0 && !c->call->reduced.result && !may_move(&c->request))
        refuse(c, "not the same bytes before its error: logits %d", c->bad_step[FORM_FULL]);
}

static void check_slot(schedule *s, slot *c) {
    rp_result *result = NULL;
    rp_error err = c->submit_err;
    int rc = c->handle ? rp_job_result(c->handle, &result, &err) : c->submit_rc;
    s->tally->calls++;
    if (c->n_done != (c->handle != NULL)) refuse(c, "ended %d times", c->n_done);
    if (rc) check_error(s, c, rc, &err);
    else check_answer(s, c, result);
    rp_result_free(result);
    rp_job_free(c->handle);
    free(c->text);
}

/* No job holds memory: after the disk is idle, the memory in use is the store's. */
static void check_store(const schedule *s) {
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    uint64_t start_us = base_clock_us();
    do {
        sched_yield();
        rp_engine_store_stats(s->engine, &stats);
    } while ((s->dir[0] || s->pool[0]) && stats.used_bytes != stats.bytes && base_clock_us() - start_us < MOST_WAIT_US);
    if (stats.disk_bytes > stats.disk_budget_bytes)
        refuse(&s->slots[0], "%llu bytes on disk, of %llu", (unsigned long long)stats.disk_bytes,
               (unsigned long long)stats.disk_budget_bytes);
    if (stats.used_bytes != stats.bytes || stats.bytes > stats.budget_bytes || s->over_budget)
        refuse(&s->slots[0], "%llu bytes are used, %llu kept, of %llu; over it in %llu steps",
               (unsigned long long)stats.used_bytes, (unsigned long long)stats.bytes,
               (unsigned long long)stats.budget_bytes, (unsigned long long)s->over_budget);
}

/* ---- a schedule -------------------------------------------------------------------------------------------------- */

static void wait_for_all(schedule *s) {
    pthread_mutex_lock(&s->lock);
    while (s->n_live > 0) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* Submits the slots that no callback submitted. */
static void submit_rest(schedule *s) {
    for (;;) {
        pthread_mutex_lock(&s->lock);
        slot *c = s->next_by_callback < s->n_slots ? &s->slots[s->next_by_callback++] : NULL;
        pthread_mutex_unlock(&s->lock);
        if (!c) return;
        submit(c);
    }
}

static void check_client(const schedule *s, const client *k) {
    int rc = k->prefill_rc;
    bool may = rc == RP_ERR_BUSY || (rc == RP_ERR_BUDGET && s->is_tight) ||
               ((rc == RP_ERR_MEMORY || rc == RP_ERR_LIMIT) && s->fails);
    if (rc && !may) refuse(&s->slots[0], "encoding or loading the schema: %s", rp_code_name((rp_code)rc));
}

static void run_pass(schedule *s) {
    draw_slots(s);
    draw_clients(s);
    for (int32_t i = 0; i < s->n_clients; i++)
        if (pthread_create(&s->clients[i].thread, NULL, client_main, &s->clients[i])) abort();
    for (int32_t i = 0; i < s->n_clients; i++) pthread_join(s->clients[i].thread, NULL);
    submit_rest(s);
    wait_for_all(s);
    base_alloc_fail_at(0, 0);
    if (s->w->keep) rp_engine_drain(s->engine, -1); /* the next pass meets reduced modules */
    for (int32_t i = 0; i < s->n_slots; i++) check_slot(s, &s->slots[i]);
    for (int32_t i = 0; i < s->n_clients; i++) check_client(s, &s->clients[i]);
    check_store(s);
}

static void draw_disk(schedule *s) {
    static const rp_store_write ways[] = {RP_STORE_WRITE_BACK, RP_STORE_WRITE_BACK, RP_STORE_WRITE_THROUGH,
                                          RP_STORE_WRITE_OFF};
    rp_engine_options *o = &s->engine_options;
    store_folder_make(s->dir);
    o->store_dir = s->dir;
    o->store_write = ways[below(s, (int32_t)BASE_ARRAY_LEN(ways))];
    o->store_budget_bytes = chance(s, 2) ? LEAST_DISK + (uint64_t)below(s, 1 << 20) : 0;
    s->engine_experiment.store_whole_reads = chance(s, 2);
    if (!chance(s, 3)) return;
    store_folder_key(s->dir, s->key[0], 1);
    store_folder_key(s->dir, s->key[1], 2);
    o->store_key_file = s->key[0];
}

/* A pool that outlives restarts, as the folder of the store does. */
static void draw_pool(schedule *s) {
    static const uint8_t secret[RP_CLUSTER_KEY_BYTES] = {5, 5, 5};
    store_folder_make(s->pool);
    snprintf(s->pool_address, sizeof(s->pool_address), "dir:%s", s->pool);
    s->cluster =
        (rp_cluster_options){.struct_size = sizeof(s->cluster), .key = secret, .pool = s->pool_address};
    s->engine_options.cluster = &s->cluster;
    s->engine_experiment.pool_at_any_cost = true;
}

/* Sometimes with little memory for that. */
static void draw_draft_model(schedule *s) {
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(s->w->model->draft, &info);
    if (info.n_ctx_train < DRAFT_POSITIONS) return;
    s->engine_options.draft_model = s->w->model->draft;
    s->engine_options.draft_kv_bytes = chance(s, 3) ? (uint64_t)1 << 17 : 0;
}

static void draw_engine(schedule *s) {
    static const float goals[] = {0, 0.0001f, 0.05f, 1, 50, INFINITY};
    static const int32_t chunks[] = {1, 2, 7, 16, 64, 100, 256, 512};
    rp_engine_options *o = &s->engine_options;
    *o = schedule_world_options(s->w);
    o->n_threads = 1 + below(s, 4);
    o->max_sequences = 1 + below(s, 8);
    o->chunk_tokens = chunks[below(s, (int32_t)BASE_ARRAY_LEN(chunks))];
    o->token_goal_ms = goals[below(s, (int32_t)BASE_ARRAY_LEN(goals))];
    if (chance(s, 12)) o->max_queue = 1 + below(s, 4);
    s->is_tight = chance(s, 2) && s->w->small_budget > 0; /* models without KV need none; 0 is the default budget */
    if (s->is_tight) {
        o->kv_budget_bytes = s->w->small_budget * (uint64_t)(4 + (chance(s, 2) ? 0 : below(s, 8))) / 4;
        o->chunk_tokens = BASE_MIN(o->chunk_tokens, s->w->most_chunk);
    }
    o->on_step = on_step;
    o->step_user = s;
    if (!s->is_tight && chance(s, 3)) draw_draft_model(s);
    s->engine_experiment = (rp_engine_experiment){.struct_size = sizeof(rp_engine_experiment)};
    o->experiment = &s->engine_experiment;
    if (chance(s, 2)) draw_disk(s);
    s->of_pool.state = s->r->state;
    if (tiny_random_below(&s->of_pool, s->w->keep ? 6 : 2) == 0) draw_pool(s); /* which has no reduced modules */
}

static void count_store(schedule *s) {
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    rp_engine_store_stats(s->engine, &stats);
    s->tally->evictions += stats.evictions;
    s->tally->disk_evictions += stats.disk_evictions;
    s->tally->disk_faults += stats.disk_faults;
}

static void open_engine(schedule *s) {
    s->engine = schedule_world_engine(s->w, &s->engine_options);
    if (s->n_tenants > 1) schedule_world_load(s->w, s->engine, tenants[OWNER]);
}

/* While no engine has it open. */
static void check_folder(schedule *s) {
    if (!s->dir[0]) return;
    uint64_t bytes = store_folder_bytes(s->dir), most = s->engine_options.store_budget_bytes;
    if (most > 0 && bytes > most)
        refuse(&s->slots[0], "the folder takes %llu bytes, of %llu", (unsigned long long)bytes,
               (unsigned long long)most);
    if (store_folder_count(s->dir, ".tmp") > 0) refuse(&s->slots[0], "temporary files are left");
}

/* Frees the engine, and opens another one with the store's folder and the pool. */
static void restart(schedule *s) {
    count_store(s);
    rp_engine_free(s->engine);
    check_folder(s);
    if (s->dir[0] && chance(s, 3)) store_folder_damage(s->dir, s->r);
    if (s->pool[0] && tiny_random_below(&s->of_pool, 3) == 0) store_folder_damage(s->pool, &s->of_pool);
    if (s->key[0][0]) s->engine_options.store_key_file = chance(s, 4) ? NULL : s->key[below(s, 4) == 0];
    open_engine(s);
    s->tally->restarts++;
}

void schedule_run(const schedule_world *w, tiny_random *r, bool may_fail, schedule_tally *tally) {
    schedule *s = calloc(1, sizeof(*s));
    *s = (schedule){.w = w, .r = r, .tally = tally};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    draw_engine(s);
    s->n_tenants = chance(s, 2) ? 1 : NEWCOMER + 1;
    open_engine(s);
    for (int32_t n = below(s, MOST_PASSES); n > 0; n--) {
        s->fails = may_fail;
        run_pass(s);
        const bool restarts = s->dir[0] ? chance(s, 2) : s->pool[0] && tiny_random_below(&s->of_pool, 2) == 0;
        if (restarts) restart(s);
    }
    s->fails = false; /* the last pass runs without failures */
    run_pass(s);
    count_store(s);
    rp_engine_free(s->engine);
    if (s->dir[0]) store_folder_remove(s->dir);
    if (s->pool[0]) store_folder_remove(s->pool);
    for (int i = 0; i < 2 && s->key[i][0]; i++) unlink(s->key[i]);
    tally->schedules++;
    tally->waits += s->waits;
    tally->shared_steps += s->shared_steps;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void schedule_tally_print(const char *test, const schedule_tally *t) {
    const struct {
        const char *name;
        uint64_t n;
    } counts[] = {
        {"schedules", t->schedules},
        {"calls", t->calls},
        {"whole", t->compared},
        {"cancelled", t->cancelled},
        {"expired", t->expired},
        {"refused", t->full},
        {"without memory", t->failed},
        {"rows of logits", t->logits},
        {"tokens found by prefix", t->prefix_tokens},
        {"tokens found in modules", t->module_tokens},
        {"evictions", t->evictions},
        {"drafts right", t->accepted},
        {"by the draft model", t->model_accepted},
        {"of drafts", t->drafted},
        {"answers with an edit", t->shifted},
        {"first answers of tenants", t->firsts},
        {"with reduced KV", t->reduced},
        {"beyond the context", t->beyond},
        {"steps with a wait", t->waits},
        {"shared steps", t->shared_steps},
        {"restarts", t->restarts},
        {"tokens from disk", t->disk_tokens},
        {"tokens from the pool", t->pool_tokens},
        {"evictions from disk", t->disk_evictions},
        {"damaged records", t->disk_faults},
        {"rows over reduced modules", t->reduced_logits},
        {"answers over some of them", t->mixed},
    };
    printf("%s:", test);
    for (size_t i = 0; i < BASE_ARRAY_LEN(counts); i++)
        printf("%s %llu %s", i ? "," : "", (unsigned long long)counts[i].n, counts[i].name);
    printf("\n%s, rows of logits by KV format:", test);
    for (int f = 0; f < RP_N_KV_FORMATS; f++)
        printf(" %s %llu", kv_format_name((rp_kv_format)f), (unsigned long long)t->logits_in[f]);
    printf("\n");
}
