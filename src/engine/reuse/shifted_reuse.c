/* SPDX-License-Identifier: Apache-2.0 */
/* shifted_reuse.c: a prompt that differs from a cached one by an edit in the middle: the KV after the edit is reused at
 * shifted positions.
 *
 *   cached        [ same | old piece | the rest ............ ]
 *   the prompt    [ same | new piece | the rest ............ | more ]
 *                  hit     computed    k recomputed, then shifted  computed
 *
 * The reused KV never attended to the new piece. This is therefore never exact, and off unless a request enables it.
 * The first k tokens of the rest are recomputed at their new positions: they get most of the attention of later tokens
 * (EPIC; Hu et al., 2024). The longest piece of the old text that the new one contains is searched by hashes of WINDOW
 * tokens (Karp and Rabin, 1987).
 *
 * KV computed after shifted KV is not kept for other requests. The engine's thread.
 */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/engine_internal.h"

#define WINDOW 16
#define LEAST_MOVED 64  /* tokens: below it, computing is cheaper than searching */
#define LOOK_UP 8       /* last steps of the path with other branches to try */
#define PROBES 8        /* tries per hash */
#define MAX_OLD (1 << 20) /* tokens of another branch */

/* A cached text. */
typedef struct old_text {
    span_path path;
    int32_t *tokens; /* [n] */
    int32_t n;
    uint32_t *table; /* [n_table] index + 1 of a window, by its hash; linear probing */
    uint32_t n_table;
} old_text;

static uint32_t shifted_reuse_hash_window(const int32_t *tokens) {
    uint64_t h = 0;
    for (int32_t i = 0; i < WINDOW; i++) h = (h ^ (uint32_t)tokens[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 32);
}

static void old_text_free(old_text *o) {
    span_path_release(&o->path);
    base_free(o->tokens);
    base_free(o->table);
    *o = (old_text){0};
}

/* KV with blocks evicted from layers with windows cannot be reused elsewhere. */
static bool span_path_is_whole(const span_path *p) {
    for (size_t i = 0; i < p->n_steps; i++)
        if (kv_span_readable_from(p->steps[i].span) != INT32_MIN) return false;
    return true;
}

static bool old_text_read(old_text *o, const span_path *path, size_t step) {
    if (span_path_other(path, step, &o->path, NULL) || o->path.n_tokens < LEAST_MOVED || o->path.n_tokens > MAX_OLD || !span_path_is_whole(&o->path))
        return false;
    o->tokens = base_alloc(o->path.n_tokens * sizeof(*o->tokens));
    for (o->n_table = 1; o->n_table < 2 * o->path.n_tokens; o->n_table *= 2) {}
    o->table = base_calloc(o->n_table, sizeof(*o->table));
    if (!o->tokens || !o->table) return false; /* a miss */
    for (size_t i = 0; i < o->path.n_steps; i++) {
        int32_t pos;
        memcpy(o->tokens + o->n, span_step_tokens(&o->path.steps[i], &pos), (size_t)o->path.steps[i].n_tokens * sizeof(*o->tokens));
        o->n += o->path.steps[i].n_tokens;
    }
    for (int32_t i = 0; i + WINDOW <= o->n; i++) {
        uint32_t at = shifted_reuse_hash_window(o->tokens + i) & (o->n_table - 1);
        for (int probe = 0; probe < PROBES && o->table[at]; probe++) at = (at + 1) & (o->n_table - 1);
        if (!o->table[at]) o->table[at] = (uint32_t)i + 1;
    }
    return true;
}

/* The longest prefix of new[i..n) in the old text: returns its length, *from: its index there. */
static int32_t longest_at(const old_text *o, const int32_t *new, int32_t i, int32_t n, int32_t *from) {
    int32_t best = 0;
    uint32_t at = shifted_reuse_hash_window(new + i) & (o->n_table - 1);
    for (int probe = 0; probe < PROBES && o->table[at]; probe++, at = (at + 1) & (o->n_table - 1)) {
        int32_t begin = (int32_t)o->table[at] - 1, len = 0;
        while (i + len < n && begin + len < o->n && new[i + len] == o->tokens[begin + len]) len++;
        if (len <= best) continue;
        best = len;
        *from = begin;
    }
    return best;
}

/* Position of a token of a path. */
static int32_t position_in(const span_path *p, int32_t index) {
    int32_t pos = 0;
    for (size_t i = 0; i < p->n_steps; index -= p->steps[i++].n_tokens) {
        span_step_tokens(&p->steps[i], &pos);
        if (index < p->steps[i].n_tokens) break;
    }
    return pos + index;
}

/* Do n tokens of the old path have consecutive positions, as those of a text? One shift then moves them all. */
static bool moves_as_one(const span_path *p, int32_t from, int32_t n) {
    return position_in(p, from + n - 1) - position_in(p, from) == n - 1;
}

/* Takes the longest common piece of an old text and the missed tokens of the scope in which the job's path ended. */
static void find_in(rp_job *c, old_text *o) {
    const int32_t *new = c->tokens + c->n_found, *positions = c->positions + c->n_found;
    const int32_t end = BASE_MIN(job_most_found(c), job_scope_end(c, job_scope_of(c, c->n_found)));
    int32_t n = end - c->n_found, shifted_reuse = c->request->options.shifted_reuse, from = 0, len;
    moved_run best = {.n = 0};
    for (int32_t i = 0; i + WINDOW <= n; i += BASE_MAX(len, 1)) {
        len = longest_at(o, new, i, n, &from);
        if (len - shifted_reuse < LEAST_MOVED || len - shifted_reuse <= best.n) continue;
        if (!moves_as_one(&o->path, from, len) || positions[i + len - 1] - positions[i] != len - 1) continue;
        best.n = len - shifted_reuse;
        best.n_recomputed = shifted_reuse;
        best.from = from + shifted_reuse;
        best.first = c->n_found + i + shifted_reuse;
        best.pos = positions[i + shifted_reuse];
        best.shift = best.pos - position_in(&o->path, from + shifted_reuse);
    }
    moved_run *run = best.n > 0 ? moved_kv_push(&c->moved, &o->path) : NULL;
    if (!run) return;
    best.path = o->path;
    *run = best;
    o->path = (span_path){0};
}

void shifted_reuse_find(rp_job *c) {
    if (c->n_resumed > 0) return; /* its answer goes on as one without an edit */
    if (c->request->options.shifted_reuse < 0 || c->request->options.reuse == RP_REUSE_EXACT || !c->shares || !model_is_movable(c->engine->model) || c->switch_at > 0) return;
    for (size_t k = 0; k < LOOK_UP && k < c->path.n_steps && c->moved.n_runs == 0; k++) {
        old_text o = {0};
        if (old_text_read(&o, &c->path, c->path.n_steps - 1 - k)) find_in(c, &o);
        old_text_free(&o);
    }
    if (c->moved.n_runs == 0) return;
    if (moved_kv_take(c)) {
        moved_kv_put_back(c); /* a miss */
        return;
    }
    BASE_TRACE(ENGINE, "job %llu: reuses %d tokens at a shift of %d positions", (unsigned long long)c->request->number, c->moved.n,
               c->moved.runs[0].shift);
}
