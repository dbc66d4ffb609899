/* SPDX-License-Identifier: Apache-2.0 */
/* drafts.c: see drafts.h. */
#include "engine/core/drafts.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "engine/core/cost_model.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "model/model.h"
#include "sampling/answer.h"
#include "sampling/prompt_lookup.h"

/* A draft must promise to decode this much faster: predictions are inexact. */
#define LEAST_GAIN 1.05
#define READ_SHARE 0.5 /* of a step's time, for reading by the draft model before its first draft */
#define READ_ROWS 64   /* at most */
#define LEAST_LEFT 12  /* tokens that an answer may still have, for the draft model to begin to read */
#define LONG_MATCH 3   /* tokens: a lookup that is preferred to the model where the length is given */
/* A step that explores may be predicted to take so many times that of one without drafts, unless it has a single draft
 * token, and has so many at most. */
#define MOST_EXPLORED 3.0
#define EXPLORED_TOKENS 5
#define EXPLORED_SHARE 0.25 /* of a step's time, for a token of a draft: its cost was measured long ago, or cold */

typedef struct draft_round {
    rp_engine *e;
    cost_load load; /* of the step so far, drafts included */
    int32_t n_answers;
    int32_t left;                   /* draft tokens that the step has room for */
    int32_t drafting[RP_MAX_DRAFT]; /* requests that the draft model drafts a k-th token for */
    int32_t rows_left;              /* of the draft model's first step */
    bool reads;                     /* a request's text is read by the draft model */
    bool tries, rests;              /* to explore, an answer gets a draft that does not promise enough, or none does */
    bool is_chosen;                 /* an answer's length is not given */
    draft_part *parts;
    int32_t n_parts;
} draft_round;

/* A load with more rows of one of its contexts, which has `slots` slots. */
static cost_load with_rows(cost_load load, int32_t rows, double slots) {
    load.rows += rows;
    load.row_slots += rows * (slots + 0.5 * rows);
    load.slots += rows;
    return load;
}

/* ---- sources ---- */

static int32_t lookup_most(draft_round *r, rp_job *c, int32_t room) {
    (void)r;
    prompt_lookup_guess(&c->prompt_lookup, room);
    return c->prompt_lookup.n_guessed =
               answer_fitting(&c->answer, c->prompt_lookup.tokens, c->prompt_lookup.n_guessed);
}

static double lookup_rate(const draft_round *r, rp_job *c) {
    (void)r;
    return prompt_lookup_rate(&c->prompt_lookup);
}

static double lookup_cost_us(const draft_round *r, int32_t k) {
    (void)r;
    (void)k;
    return 0;
}

static int32_t model_most(draft_round *r, rp_job *c, int32_t room) {
    const prompt_lookup *text = &c->prompt_lookup;
    if (!r->e->draft_model || r->e->draft_model->is_head || text->most == 0 || room <= 0) return 0;
    if (!c->drafts.model.kv.pool && c->answer.most - c->result->n_tokens < LEAST_LEFT) return 0;
    return BASE_MIN(room, text->most);
}

static int32_t head_most(draft_round *r, rp_job *c, int32_t room) {
    const draft_model *d = r->e->draft_model;
    return d && d->is_head && c->drafts.model.n_hidden > 0 ? BASE_MIN(room, c->prompt_lookup.most) : 0;
}

static double model_rate(const draft_round *r, rp_job *c) {
    return draft_context_rate(r->e->draft_model, &c->drafts.model);
}

/* The k-th token of a draft is computed in one step with those of other requests. */
static double model_cost_us(const draft_round *r, int32_t k) {
    const draft_model *d = r->e->draft_model;
    const int32_t others = r->drafting[k - 1];
    return BASE_MAX(draft_model_step_us(d, others + 1) - draft_model_step_us(d, others), 0);
}

typedef struct draft_source_row {
    int32_t (*most)(draft_round *r, rp_job *c, int32_t room); /* tokens that it may draft; 0: none */
    double (*rate)(const draft_round *r, rp_job *c);          /* probability that a token is right after right ones */
    double (*cost_us)(const draft_round *r, int32_t k);       /* of its k-th token, 1 or more */
} draft_source_row;

static const draft_source_row sources[N_DRAFT_SOURCES] = {
    [DRAFT_LOOKUP] = {lookup_most, lookup_rate, lookup_cost_us},
    [DRAFT_MODEL] = {model_most, model_rate, model_cost_us},
    [DRAFT_HEAD] = {head_most, model_rate, model_cost_us},
};

/* ---- choice ---- */

typedef struct draft_choice {
    int32_t length;
    double speed; /* expected tokens per microsecond of the step */
} draft_choice;

/* The best length of a source's draft, up to `most`. A token of a draft counts if all before it are right. explores: as
 * if the step took no longer with it, nor the draft model longer than usual, which is measured then. */
static draft_choice best_length(const draft_round *r, rp_job *c, const draft_source_row *source, int32_t most,
                                bool explores) {
    const double rate = source->rate(r, c), plain_us = cost_model_predict(r->e->cost, &r->load);
    double tokens = r->n_answers, right = 1, us = 0, explored_us = plain_us;
    draft_choice best = {0, 0};
    if (plain_us <= 0) return best;
    best.speed = LEAST_GAIN * r->n_answers / plain_us;
    for (int32_t k = 1; k <= (explores ? BASE_MIN(most, EXPLORED_TOKENS) : most); k++) {
        const cost_load load = with_rows(r->load, k, (double)c->seq.slots);
        const double step_us = cost_model_predict(r->e->cost, &load);
        tokens += right *= rate;
        const double cost_us = source->cost_us(r, k);
        us += cost_us;
        explored_us += BASE_MIN(cost_us, EXPLORED_SHARE * plain_us);
        if (explores && k > 1 && step_us + us > MOST_EXPLORED * plain_us) break;
        const double speed = tokens / (explores ? explored_us : step_us + us);
        if (speed > best.speed) best = (draft_choice){k, speed};
    }
    return best;
}

/* The lengths that a job's sources propose. */
static void propose(draft_round *r, rp_job *c, int32_t room, draft_choice best[N_DRAFT_SOURCES]) {
    const bool is_given = c->request->options.n_draft != RP_DRAFT_AUTO;
    int32_t most[N_DRAFT_SOURCES], n = 0;
    for (int i = 0; i < N_DRAFT_SOURCES; i++) {
        most[i] = BASE_MAX(sources[i].most(r, c, room), 0);
        const bool is_open = !is_given && !r->rests && most[i] > 0;
        best[i] = is_given  ? (draft_choice){most[i], 0}
                  : is_open ? best_length(r, c, &sources[i], most[i], false)
                            : (draft_choice){0, 0};
        n += best[i].length;
    }
    r->is_chosen |= !is_given && c->prompt_lookup.most > 0;
    if (is_given || n > 0 || !r->tries) return;
    for (int i = 0; i < N_DRAFT_SOURCES; i++) {
        if (most[i] > 0) best[i] = best_length(r, c, &sources[i], most[i], true);
        r->tries &= best[i].length == 0; /* one answer a step */
    }
}

/* The draft model's part in the step: drafts, or reads the text in pieces first. is_given: the length is the request's,
 * and no time decides. Returns whether it drafts. */
static bool add_model_part(draft_round *r, rp_job *c, int32_t length, bool is_given) {
    draft_model *d = r->e->draft_model;
    draft_context *own = &c->drafts.model;
    const prompt_lookup *text = &c->prompt_lookup;
    const int32_t lag = draft_context_follow(d, own, text->history, text->n);
    draft_part part = {.context = own,
                       .history = text->history,
                       .n = text->n,
                       .n_read = lag,
                       .n_draft = length,
                       .sampler = &c->answer.sampler,
                       .n_answer = c->result->n_tokens,
                       .experiment = &c->request->experiment};
    if (lag == 0 || r->n_parts == d->max_parts) return false;
    const bool drafts = lag <= DRAFT_LAG;
    if (!drafts) {
        const cost_load none = {0};
        const double us = READ_SHARE * cost_model_predict(r->e->cost, &r->load);
        const int32_t most = BASE_MIN(BASE_MIN(lag - 1, READ_ROWS), r->rows_left);
        if (r->reads || most <= 0) return false;
        const int32_t fitting = is_given ? most : cost_model_overhead(&d->cost, &none, own->slots, most, us);
        part.n_read = BASE_MIN(BASE_MAX(fitting, DRAFT_LAG), most); /* the answer must not outrun it */
        part.n_draft = 0;
        r->reads = true;
    }
    if (part.n_read > r->rows_left) return false;
    r->rows_left -= part.n_read;
    r->parts[r->n_parts++] = part;
    for (int32_t k = 0; k < part.n_draft; k++) r->drafting[k]++;
    return drafts;
}

static void choose(draft_round *r, rp_job *c) {
    const bool is_given = c->request->options.n_draft != RP_DRAFT_AUTO;
    /* rows that may follow the last token before the context ends */
    const int32_t in_context = BASE_MAX(r->e->n_ctx - 1 - job_answer_position(c, c->n_tokens - 1), 0);
    const int32_t fitting = BASE_MIN(BASE_MIN(r->left, in_context), c->answer.most - c->result->n_tokens - 1);
    const int32_t room = fitting > 0 ? checkpoints_next(c, 1 + fitting) - 1 : fitting; /* a step ends there */
    draft_choice best[N_DRAFT_SOURCES];
    propose(r, c, room, best);
    const draft_source other = r->e->draft_model && r->e->draft_model->is_head ? DRAFT_HEAD : DRAFT_MODEL;
    draft_choice *lookup = &best[DRAFT_LOOKUP], *model = &best[other];
    const bool is_long = lookup->length > 0 && c->prompt_lookup.matched >= LONG_MATCH;
    const bool is_better = lookup->length == 0 || model->speed > lookup->speed;
    const bool prefers = model->length > 0 && (is_given ? !is_long : is_better);
    c->drafts.source = prefers && add_model_part(r, c, model->length, is_given) ? other : DRAFT_LOOKUP;
    c->drafts.n = best[c->drafts.source].length;
    if (c->drafts.source == DRAFT_LOOKUP)
        memcpy(c->drafts.tokens, c->prompt_lookup.tokens, (size_t)c->drafts.n * sizeof(*c->drafts.tokens));
    r->left -= c->drafts.n;
    r->load = with_rows(r->load, c->drafts.n, (double)c->seq.slots);
    BASE_ASSERT(r->left >= 0); /* there are rows for so many: engine_steps.max_rows */
}

/* Counts steps of a kind; has_drafts: of this one. */
static void count_kind(draft_exploration *x, bool has_drafts) {
    if (x->explores) {
        x->n = 0;
        x->after = BASE_MIN(2 * x->after, DRAFT_EXPLORE_LAST);
    } else if (has_drafts == x->drafts && x->after > 0) {
        x->n++;
    } else {
        x->drafts = has_drafts;
        x->n = 1;
        x->after = DRAFT_EXPLORE_FIRST;
    }
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double drafts_measured_us(rp_engine *e, double predicted, double us) {
    draft_exploration *x = e->exploration;
    double sorted[DRAFT_RECENT];
    if (predicted <= 0 || us <= 0) return us;
    if (!x->explores) {
        x->recent[x->n_recent++ % DRAFT_RECENT] = us / predicted;
        return us;
    }
    x->explores = false;
    if (x->n_recent < DRAFT_RECENT) return us;
    memcpy(sorted, x->recent, sizeof(sorted));
    qsort(sorted, DRAFT_RECENT, sizeof(*sorted), compare_doubles);
    return us / sorted[DRAFT_RECENT / 2];
}

void drafts_make(rp_engine *e, rp_job *const *jobs, int32_t n) {
    draft_model *d = e->draft_model;
    draft_exploration *x = e->exploration;
    draft_round r = {.e = e, .n_answers = n, .left = RP_MAX_DRAFT};
    x->explores = n > 0 && x->after > 0 && x->n >= x->after;
    r.tries = x->explores && !x->drafts;
    r.rests = x->explores && x->drafts;
    if (d) r.rows_left = d->max_rows - 1, r.parts = d->parts;
    for (int32_t i = 0; i < n; i++) {
        r.load = with_rows(r.load, 1, (double)jobs[i]->seq.slots); /* the next token of each, without drafts */
        r.load.slots += (double)jobs[i]->seq.slots;
    }
    for (int32_t i = 0; i < n; i++) choose(&r, jobs[i]);
    if (r.n_parts > 0) draft_model_run(d, r.parts, r.n_parts);
    for (int32_t i = 0; i < n; i++) {
        job_drafts *drafts = &jobs[i]->drafts;
        if (drafts->source == DRAFT_LOOKUP) continue;
        BASE_ASSERT(drafts->model.n <= drafts->n); /* less where memory was short */
        drafts->n = answer_fitting(&jobs[i]->answer, drafts->model.tokens, drafts->model.n);
        memcpy(drafts->tokens, drafts->model.tokens, (size_t)drafts->n * sizeof(*drafts->tokens));
    }
    const bool has_drafts = r.left < RP_MAX_DRAFT;
    const bool reads_first = x->explores && !x->drafts && r.reads && !has_drafts;
    if (reads_first) x->explores = false; /* a later step explores */
    else if (r.is_chosen) count_kind(x, has_drafts);
}

/* ---- outcome ---- */

bool drafts_read_hidden(const rp_job *c) {
    return c->engine->draft_model && c->engine->draft_model->is_head && c->prompt_lookup.most > 0;
}

void drafts_see(rp_job *c, const float *hidden, int32_t n) {
    draft_context_see(c->engine->draft_model, &c->drafts.model, hidden, n, c->prompt_lookup.n - 1 - n);
}

void drafts_learn(rp_job *c, int32_t right, int32_t first, int32_t drawn) {
    const bool is_model = c->drafts.source != DRAFT_LOOKUP && c->drafts.n > 0;
    BASE_ASSERT(right >= 0 && right <= c->drafts.n);
    c->prompt_lookup.n_tokens = is_model ? 0 : c->drafts.n;
    prompt_lookup_learn(&c->prompt_lookup, is_model ? 0 : right, is_model ? first : drawn);
    if (is_model) {
        draft_context_learn(c->engine->draft_model, &c->drafts.model, right, c->drafts.n);
        c->result->model_drafted_tokens += c->drafts.n;
        c->result->model_accepted_tokens += right;
    } else draft_context_forget(&c->drafts.model);
    c->drafts.n = 0;
}

void drafts_drop(rp_job *c) { c->drafts.n = c->prompt_lookup.n_guessed = c->prompt_lookup.n_tokens = 0; }

const char *drafts_reason(const rp_job *c) {
    const rp_engine *e = c->engine;
    if (!e->draft_model || c->result->model_drafted_tokens > 0) return "";
    if (c->request->options.n_draft == 0 || c->request->experiment.forced) return "off";
    return c->drafts.model.lacked_memory ? "memory" : "cost";
}
