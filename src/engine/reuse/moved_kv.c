/* SPDX-License-Identifier: Apache-2.0 */
/* moved_kv.c: see moved_kv.h. */
#include "engine/reuse/moved_kv.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "engine/core/job.h"
#include "kv/context.h"
#include "kv/span.h"
#include "store/index/span_tree.h"

#define MOST_RUNS ((size_t)1 << 16)

bool moved_kv_can_move(const span_path *p) {
    for (size_t i = 0; i < p->n_steps; i++)
        if (p->steps[i].span && kv_span_readable_from(p->steps[i].span) != INT32_MIN) return false;
    return true;
}

moved_run *moved_kv_push(job_moved *m, const span_path *path) {
    BASE_ASSERT(!m->tokens && m->n == 0 && m->n_added == 0); /* runs are chosen before their tokens are removed */
    size_t cap = (size_t)m->cap_runs;
    if (base_grow((void **)&m->runs, &cap, (size_t)m->n_runs + 1, MOST_RUNS, sizeof(*m->runs))) return NULL;
    m->cap_runs = (int32_t)cap;
    moved_run *r = &m->runs[m->n_runs++];
    *r = (moved_run){.path = *path};
    return r;
}

int32_t moved_kv_index(const job_moved *m, int32_t token) {
    int32_t n = 0;
    for (int32_t i = 0; i < m->n_runs && m->runs[i].at <= token; i++) n += m->runs[i].n;
    return token + n;
}

/* ---- the job's tokens ---- */

/* Moves what follows a run: from index `from` of the job's arrays to `to`. */
static void move_tokens(rp_job *c, int32_t to, int32_t from, int32_t n) {
    BASE_ASSERT(to >= 0 && from >= 0 && n >= 0 && BASE_MAX(to, from) + n <= c->cap_tokens);
    memmove(c->tokens + to, c->tokens + from, (size_t)n * sizeof(*c->tokens));
    memmove(c->positions + to, c->positions + from, (size_t)n * sizeof(*c->positions));
}

/* Removes the tokens of all runs from the job's. RP_ERR_MEMORY: nothing was removed. */
static int take_tokens(rp_job *c) {
    job_moved *m = &c->moved;
    int32_t n = 0, done = 0; /* removed, and those of the runs before */
    for (int32_t i = 0; i < m->n_runs; i++) n += m->runs[i].n;
    if (n == 0) return RP_OK;
    if (!(m->tokens = base_alloc((size_t)n * sizeof(*m->tokens)))) return RP_ERR_MEMORY;
    for (int32_t i = 0; i < m->n_runs; i++) {
        moved_run *r = &m->runs[i];
        const int32_t end = r->first + r->n, next = i + 1 < m->n_runs ? m->runs[i + 1].first : c->n_tokens;
        BASE_ASSERT(r->n > 0 && r->from >= 0 && (size_t)(r->from + r->n) <= r->path.n_tokens);
        BASE_ASSERT(r->first >= done && end <= next && end < c->n_prompt + c->n_resumed); /* not the last token */
        memcpy(m->tokens + done, c->tokens + r->first, (size_t)r->n * sizeof(*m->tokens));
        r->at = r->first - done;
        done += r->n;
        move_tokens(c, r->at, end, next - end);
    }
    m->n = n;
    c->n_tokens -= n;
    c->n_prompt -= n;
    c->n_runs += m->n_runs;
    return RP_OK;
}

void moved_kv_put_back(rp_job *c) {
    job_moved *m = &c->moved;
    int32_t done = m->n, end = c->n_tokens; /* tokens of the runs before; the end of what follows a run */
    for (int32_t i = m->n_runs; i-- > 0 && m->tokens;) {
        const moved_run *r = &m->runs[i];
        move_tokens(c, r->at + done, r->at, end - r->at);
        end = r->at;
        done -= r->n;
        memcpy(c->tokens + r->first, m->tokens + done, (size_t)r->n * sizeof(*m->tokens));
        for (int32_t k = 0; k < r->n; k++) c->positions[r->first + k] = r->pos + k;
    }
    BASE_ASSERT(done == 0);
    c->n_tokens += m->n;
    c->n_prompt += m->n;
    if (m->n > 0) c->n_runs -= m->n_runs;
    moved_kv_release_paths(m);
    base_free(m->runs);
    base_free(m->tokens);
    *m = (job_moved){0};
}

bool moved_kv_settle(rp_job *c) {
    if (take_tokens(c)) {
        moved_kv_put_back(c);
        c->prefix.shares = false;
        return false;
    }
    c->prefix.n_found = (int32_t)c->prefix.path.n_tokens;
    c->prefix.n_found_steps = c->prefix.path.n_steps;
    c->prefix.found_end = c->prefix.path.end;
    c->prefix.n_known = 0;
    if (c->prefix.found_end != SPAN_END_ALL)
        c->prefix.n_known = span_path_known(&c->prefix.path, c->prefix.known, RP_MISMATCH_TOKENS);
    return true;
}

void moved_kv_release_paths(job_moved *m) {
    for (int32_t i = 0; i < m->n_runs; i++) span_path_release(&m->runs[i].path);
}

/* ---- the path ---- */

int32_t moved_kv_follow(rp_job *c, int32_t removed, int32_t most) {
    BASE_ASSERT(c->moved.n_runs > 0 && c->moved.n_turned == c->moved.n_runs - 1 && removed <= most);
    const moved_run *r = &c->moved.runs[c->moved.n_runs - 1];
    const span_root root = {.salt = c->salt, .key = r->key};
    const size_t before = c->prefix.path.n_tokens;
    BASE_ASSERT(r->has_key && before == (size_t)(r->first + r->n - removed)); /* all tokens before it, but for runs */
    if (span_path_turn(&c->prefix.path, &root, c->tokens + removed, c->positions + removed, (size_t)(most - removed),
                       NULL)) {
        c->prefix.shares = false; /* the path may end at that root */
        return -1;
    }
    c->moved.n_turned++;
    return (int32_t)(c->prefix.path.n_tokens - before);
}

/* ---- the context ---- */

int moved_kv_add_views(rp_job *c, rp_error *err) {
    BASE_ASSERT(c->moved.n_added < c->moved.n_runs);
    moved_run *r = &c->moved.runs[c->moved.n_added];
    const int32_t begin = r->from, end = begin + r->n;
    int32_t at = 0, rc = RP_OK;
    r->n_views = 0;
    for (size_t i = 0; i < r->path.n_steps && !rc; at += r->path.steps[i++].n_tokens) {
        const span_step *s = &r->path.steps[i];
        const int32_t first = BASE_MAX(begin - at, 0), last = BASE_MIN(end - at, s->n_tokens);
        uint64_t mask[KV_SPAN_BLOCKS];
        if (first >= last) continue;
        kv_mask_range(mask, s->first_slot + first, s->first_slot + last);
        rc = kv_context_add(&c->seq.context, s->span, r->shift, mask, err);
        r->n_views += rc == RP_OK;
    }
    c->moved.n_added++;
    return rc;
}

int moved_kv_add_due(rp_job *c, int32_t token, rp_error *err) {
    job_moved *m = &c->moved;
    int rc = RP_OK;
    while (m->n_added < m->n_runs && m->runs[m->n_added].at <= token && !rc) {
        c->seq.slots += m->runs[m->n_added].n;
        rc = moved_kv_add_views(c, err);
    }
    return rc;
}

bool moved_kv_turn(rp_job *c) {
    job_moved *m = &c->moved;
    while (m->n_turned < m->n_added && m->runs[m->n_turned].at == c->prefix.n_given) {
        const moved_run *r = &m->runs[m->n_turned];
        const span_root root = {.salt = c->salt, .key = r->key};
        if (!r->has_key ||
            span_path_turn(&c->prefix.path, &root, c->tokens, c->positions, (size_t)c->prefix.n_given, NULL))
            return false;
        c->prefix.first_own_view += r->n_views;
        m->n_turned++;
    }
    return true;
}

void moved_kv_use(const job_moved *m) {
    for (int32_t i = 0; i < m->n_runs; i++) span_path_use(&m->runs[i].path);
}
