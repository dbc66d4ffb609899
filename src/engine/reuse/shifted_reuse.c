/* SPDX-License-Identifier: Apache-2.0 */
/* shifted_reuse.c: a prompt that differs from a cached one by an edit in the middle: the KV after the edit is reused at
 * shifted positions.
 *
 *   cached        [ same | old piece | the rest ............ ]
 *   the prompt    [ same | new piece | the rest ............ | more ]
 *                  hit     computed    k recomputed, then shifted  computed
 *
 * The reused KV never attended to the new piece. This is therefore never exact, and off unless a request enables it.
 * The first k tokens of the rest are computed at their new positions: they get most of the attention of later tokens
 * (EPIC; Hu et al., 2024). Of the texts that leave the prompt's path near its end, the newest OTHERS are searched for
 * the longest piece that the prompt contains, by hashes of WINDOW tokens of the prompt (Karp and Rabin, 1987).
 *
 * What is computed after shifted KV is kept under a root that names it (moved_kv.h): the next turn, with the same
 * cached text before and after the edit, finds the same run, and hits what follows it. In a scope before the last one
 * (span_tree.h) it is not kept. The engine's thread.
 */
#include "engine/reuse/shifted_reuse.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_tokens.h"
#include "engine/reuse/moved_kv.h"
#include "kv/span.h"
#include "model/model.h"
#include "store/index/span_tree.h"

#define WINDOW 16
#define LEAST_MOVED 64    /* tokens: below it, computing is cheaper than searching */
#define LOOK_UP 8         /* last steps of the path with other branches to try */
#define OTHERS 32         /* branches, of all steps */
#define PROBES 8          /* tries per hash */
#define WORK 32           /* tokens compared for each token of a branch */
#define MAX_OLD (1 << 20) /* tokens of all branches */
#define HASH_FACTOR UINT64_C(0x9e3779b97f4a7c15)

/* The windows of the missed tokens of a scope. */
typedef struct new_text {
    const int32_t *tokens, *positions; /* the job's */
    int32_t begin, end;                /* indices of missed tokens */
    uint32_t *table;                   /* [n_table] index + 1 of a window, by its hash; linear probing */
    uint32_t n_table;
    uint64_t first_factor; /* of the first token of a window in its hash */
} new_text;

/* A cached text. */
typedef struct old_text {
    span_path path;
    int32_t *tokens; /* [n] */
    int32_t n;
} old_text;

static uint64_t add_token(uint64_t h, int32_t token) { return h * HASH_FACTOR + (uint32_t)token + 1; }

static uint64_t hash_window(const int32_t *tokens) {
    uint64_t h = 0;
    for (int32_t i = 0; i < WINDOW; i++) h = add_token(h, tokens[i]);
    return h;
}

static uint32_t place_of(const new_text *x, uint64_t h) {
    BASE_DCHECK(x->n_table > 0 && (x->n_table & (x->n_table - 1)) == 0);
    return (uint32_t)((h ^ h >> 29) * HASH_FACTOR >> 32) & (x->n_table - 1);
}

static bool new_text_open(new_text *x, const rp_job *c) {
    const int32_t end = BASE_MIN(job_most_found(c), job_scope_end(c, job_scope_of(c, c->prefix.n_found)));
    *x = (new_text){.tokens = c->tokens,
                    .positions = c->positions,
                    .begin = c->prefix.n_found,
                    .end = end,
                    .n_table = 1,
                    .first_factor = 1};
    if (end - x->begin < LEAST_MOVED) return false;
    while (x->n_table < 2 * (uint32_t)(end - x->begin)) x->n_table *= 2;
    if (!(x->table = base_calloc(x->n_table, sizeof(*x->table)))) return false; /* a miss */
    for (int32_t i = 0; i < WINDOW; i++) x->first_factor *= HASH_FACTOR;
    for (int32_t i = x->begin; i + WINDOW <= end; i++) {
        uint32_t at = place_of(x, hash_window(x->tokens + i));
        for (int probe = 0; probe < PROBES && x->table[at]; probe++) at = (at + 1) & (x->n_table - 1);
        if (!x->table[at]) x->table[at] = (uint32_t)i + 1;
    }
    return true;
}

/* The tokens of o's path. false: it is too short, too long, or cannot be moved. */
static bool old_text_read(old_text *o, size_t most) {
    if (o->path.n_tokens < LEAST_MOVED || o->path.n_tokens > most || !moved_kv_can_move(&o->path)) return false;
    if (!(o->tokens = base_alloc(o->path.n_tokens * sizeof(*o->tokens)))) return false; /* a miss */
    for (size_t i = 0; i < o->path.n_steps; i++) {
        int32_t pos;
        memcpy(o->tokens + o->n, span_step_tokens(&o->path.steps[i], &pos),
               (size_t)o->path.steps[i].n_tokens * sizeof(*o->tokens));
        o->n += o->path.steps[i].n_tokens;
    }
    BASE_ASSERT((size_t)o->n == o->path.n_tokens);
    return true;
}

/* Tokens that both texts have in common, from index first of the new one and index from of the old one on. */
typedef struct common_piece {
    int32_t first, from, n;
} common_piece;

/* The longest common piece from an old token on, whose window has the hash h; of pieces that overlap `last`, none that
 * is part of it. Compared tokens are taken from *work. */
static common_piece longest_at(const new_text *x, uint64_t h, const old_text *o, int32_t from, const common_piece *last,
                               int64_t *work) {
    common_piece best = {.from = from};
    uint32_t at = place_of(x, h);
    for (int probe = 0; probe < PROBES && x->table[at]; probe++, at = (at + 1) & (x->n_table - 1)) {
        int32_t first = (int32_t)x->table[at] - 1, n = 0;
        if (from < last->from + last->n && first - from == last->first - last->from) continue;
        while (first + n < x->end && from + n < o->n && x->tokens[first + n] == o->tokens[from + n]) n++;
        *work -= n;
        if (n > best.n) best = (common_piece){.first = first, .from = from, .n = n};
    }
    return best;
}

/* Position of a token of a path. */
static int32_t position_in(const span_path *p, int32_t index) {
    int32_t pos = 0;
    BASE_ASSERT(index >= 0 && (size_t)index < p->n_tokens);
    for (size_t i = 0; i < p->n_steps; index -= p->steps[i++].n_tokens) {
        span_step_tokens(&p->steps[i], &pos);
        if (index < p->steps[i].n_tokens) break;
    }
    return pos + index;
}

/* How many tokens before index `first` of the new text, up to `most`, are those before index `from` of the old one. */
static int32_t same_before(const new_text *x, const old_text *o, int32_t first, int32_t from, int32_t most) {
    int32_t n = 0;
    while (n < most && n < first && n < from && x->tokens[first - 1 - n] == o->tokens[from - 1 - n]) n++;
    return n;
}

/* Takes the piece, less its first `links` tokens, if it is longer than *best. */
static bool take_piece(const new_text *x, const old_text *o, const common_piece *p, int32_t links, moved_run *best) {
    const int32_t skipped = links - same_before(x, o, p->first, p->from, links), n = p->n - skipped;
    if (n < LEAST_MOVED || n <= best->n) return false;
    /* positions are consecutive, as those of a text, in both: one shift then moves them all */
    if (position_in(&o->path, p->from + p->n - 1) - position_in(&o->path, p->from) != p->n - 1) return false;
    if (x->positions[p->first + p->n - 1] - x->positions[p->first] != p->n - 1) return false;
    *best = (moved_run){
        .from = p->from + skipped, .n = n, .first = p->first + skipped, .n_recomputed = skipped, .path = best->path};
    best->pos = x->positions[best->first];
    best->shift = best->pos - position_in(&o->path, best->from);
    BASE_ASSERT(best->first >= x->begin && best->first + best->n <= x->end && best->from + best->n <= o->n);
    return true;
}

/* Looks for a longer run than *best in an old text. Returns whether it found one. In text that repeats itself, pieces
 * within a piece are passed by once WORK tokens were compared for each of the old text's. */
static bool find_in(const new_text *x, const old_text *o, int32_t links, moved_run *best) {
    bool found = false;
    int64_t work = (int64_t)WORK * o->n;
    common_piece last = {0};
    uint64_t h = 0;
    for (int32_t from = 0, next = 0; from + WINDOW <= o->n;) {
        if (from == next && from > 0)
            h = add_token(h, o->tokens[from + WINDOW - 1]) - x->first_factor * add_token(0, o->tokens[from - 1]);
        else h = hash_window(o->tokens + from);
        const common_piece p = longest_at(x, h, o, from, &last, &work);
        if (p.n >= LEAST_MOVED && take_piece(x, o, &p, links, best)) found = true;
        if (p.n > last.from + last.n - from) last = p;
        next = from + 1;
        from = work > 0 ? next : from + BASE_MAX(p.n, 1);
    }
    return found;
}

/* Names the root after a run: all tokens before it, and the text that it was computed in. */
static void name_root(const rp_job *c, moved_run *r) {
    base_hash h;
    size_t step = 0; /* that of the run's last token */
    int32_t last = r->from + r->n - 1;
    BASE_ASSERT(last >= 0 && (size_t)last < r->path.n_tokens);
    while (last >= r->path.steps[step].n_tokens) last -= r->path.steps[step++].n_tokens;
    BASE_ASSERT(r->first >= c->scopes[c->n_scopes - 1].first); /* the key is of the last scope */
    base_hash_init(&h, "reprise shifted 1");
    base_hash_key(&h, &c->scopes[c->n_scopes - 1].root);
    base_hash_bytes(&h, c->tokens, (size_t)r->first * sizeof(*c->tokens));
    base_hash_bytes(&h, c->positions, (size_t)r->first * sizeof(*c->positions));
    base_hash_key(&h, kv_span_key(r->path.steps[step].span));
    base_hash_u64(&h, (uint64_t)r->first);
    base_hash_u64(&h, (uint64_t)r->n);
    base_hash_u64(&h, (uint64_t)(int64_t)r->shift);
    base_hash_final(&h, &r->key);
    r->has_key = true;
}

/* Searches the branches beside the last steps of the path; *best owns its path. */
static void search(rp_job *c, const new_text *x, moved_run *best) {
    const int32_t links = c->request->options.shifted_reuse;
    size_t most = MAX_OLD;
    int others = 0;
    for (size_t k = 0; k < LOOK_UP && k < c->prefix.path.n_steps; k++)
        for (uint64_t below = UINT64_MAX; others < OTHERS; others++) {
            old_text o = {0};
            const span_path *own = &c->prefix.path;
            const int rc = span_path_other(own, own->n_steps - 1 - k, &below, &o.path, NULL); /* no memory: a miss */
            const bool failed = rc != RP_OK;
            if (!failed && below > 0 && old_text_read(&o, most) && find_in(x, &o, links, best)) {
                span_path_release(&best->path);
                best->path = o.path;
                o.path = (span_path){0};
            }
            most -= (size_t)o.n;
            span_path_release(&o.path);
            base_free(o.tokens);
            if (failed || below == 0) break;
        }
}

void shifted_reuse_find(rp_job *c) {
    const rp_request *q = &c->request->options;
    if (c->n_resumed > 0) return; /* its answer continues as one without an edit */
    if (q->shifted_reuse < 0 || q->reuse == RP_REUSE_EXACT || !c->prefix.shares || c->switch_at > 0) return;
    if (!model_is_movable(c->engine->model) || !model_capabilities(c->engine->model).shifts) return;
    new_text x;
    moved_run best = {0};
    BASE_ASSERT(c->moved.n_runs == 0);
    if (!new_text_open(&x, c)) return;
    search(c, &x, &best);
    base_free(x.table);
    if (best.n == 0) return;
    if (job_scope_of(c, c->prefix.n_found) == c->n_scopes - 1) name_root(c, &best);
    moved_run *run = moved_kv_push(&c->moved, &best.path);
    if (!run) {
        span_path_release(&best.path);
        return;
    }
    *run = best;
    if (run->has_key && run->first == c->prefix.n_found) moved_kv_follow(c, run->n, job_most_found(c));
    if (moved_kv_settle(c))
        BASE_TRACE(ENGINE, "job %llu: reuses %d tokens at a shift of %d positions",
                   (unsigned long long)c->request->number, c->moved.n, c->moved.runs[0].shift);
}
