/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_attention_plan.c: preparation of attention for a step: scratch, and tiles, the rows that are computed together.
 *
 * Contexts that share spans form a group. Its first context is the leader: its list of views is the order in which the
 * group's blocks are visited. Each other context has, for each view of the leader, the index of its own view of the
 * same span:
 *
 *     leader    A    B    C    D    p
 *     second    A  x      C    D       q
 *     matches   0   -1    2    3   -1
 *     visits:   A (both)  x (second)  B (leader)  C (both)  D (both)  p (leader)  q (second)
 *
 * Matches ascend, so that visits keep each context's own order, the order of its sums (cpu_attention.c). If contexts
 * have the same spans in different orders, the longest ascending subsequence is matched; other views are visited for
 * their context alone.
 *
 * A context that shares less than a quarter of its views with every leader becomes the leader of a new group: a later
 * context may match it better. A hash table by span finds the leaders, so the time is proportional to the number of
 * views of the step's contexts.
 */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"

/* ---- scratch ---- */

static void free_scratch(cpu_backend *b) {
    if (!b->scratch) return;
    for (int i = 0; i < base_threads_count(b->threads); i++) {
        base_free(b->scratch[i].scores);
        base_free(b->scratch[i].queries);
        base_free(b->scratch[i].sums);
        base_free(b->scratch[i].angles);
        base_free(b->scratch[i].tile);
        base_free(b->scratch[i].latent_values);
        base_free(b->scratch[i].transformed);
        base_free(b->scratch[i].int_queries);
        base_free(b->scratch[i].value_scales);
        base_free(b->scratch[i].weights);
        base_free(b->scratch[i].heavy);
        base_free(b->scratch[i].int_sums);
        base_free(b->scratch[i].folded);
        base_free(b->scratch[i].ranges.scales);
        base_free(b->scratch[i].ranges.least);
        base_free(b->scratch[i].unpacked);
    }
    base_free(b->scratch);
    b->scratch = NULL;
    b->scratch_slots = 0;
}

void cpu_attention_free(cpu_backend *b) {
    cpu_plan *p = &b->plan;
    free_scratch(b);
    base_free(p->tiles);
    base_free(p->parts);
    base_free(p->matches);
    base_free(p->runs);
    base_free(p->found);
    base_free(p->buckets);
    base_free(p->order);
    cpu_angles_free(b);
}

static bool alloc_scratch(cpu_backend *b, int64_t slots) {
    const model_hparams *hp = &b->net->hp;
    b->scratch = base_calloc((size_t)base_threads_count(b->threads), sizeof(*b->scratch));
    if (!b->scratch) return false;
    for (int i = 0; i < base_threads_count(b->threads); i++) {
        cpu_scratch *s = &b->scratch[i];
        s->scores = base_alloc_aligned(sizeof(float) * CPU_TILE_QUERIES * (size_t)slots, 64);
        s->queries = base_alloc_aligned(sizeof(float) * CPU_TILE_QUERIES * (size_t)hp->key_dim, 64);
        s->sums = base_alloc_aligned(sizeof(float) * CPU_TILE_QUERIES * (size_t)hp->value_dim, 64);
        s->angles = base_alloc_aligned(sizeof(float) * (size_t)hp->key_dim, 64);
        s->tile = base_alloc_aligned(cpu_tile_bytes(), 64);
        if (!s->scores || !s->queries || !s->sums || !s->angles || !s->tile) return false;
        if (hp->plain_key_dim > 0) {
            s->latent_values = base_alloc_aligned(sizeof(float) * KV_BLOCK_SLOTS * (size_t)hp->value_dim, 64);
            if (!s->latent_values) return false;
        }
        if (!b->has_int_scratch) continue;
        s->transformed = base_alloc_aligned(sizeof(float) * CPU_TILE_QUERIES * (size_t)hp->key_dim, 64);
        s->int_queries = base_alloc_aligned(sizeof(int16_t) * CPU_TILE_QUERIES * (size_t)hp->key_dim, 64);
        s->value_scales = base_alloc_aligned(sizeof(float) * CPU_TILE_QUERIES * (size_t)slots, 64);
        s->weights = base_alloc_aligned(sizeof(int16_t) * CPU_TILE_QUERIES * (size_t)slots, 64);
        s->heavy = base_alloc_aligned(sizeof(*s->heavy) * CPU_TILE_QUERIES * (size_t)kernel_int8_max_heavy(slots), 64);
        s->int_sums = base_alloc_aligned(sizeof(int32_t) * CPU_TILE_QUERIES * (size_t)hp->value_dim, 64);
        s->folded = base_alloc_aligned(sizeof(int16_t) * CPU_TILE_QUERIES * (size_t)hp->key_dim, 64);
        s->ranges.scales = base_alloc_aligned(sizeof(int16_t) * (size_t)hp->key_dim, 64);
        s->ranges.least = base_alloc_aligned(sizeof(float) * (size_t)hp->key_dim, 64);
        if (!s->transformed || !s->int_queries || !s->value_scales || !s->weights || !s->heavy || !s->int_sums)
            return false;
        s->unpacked = base_alloc_aligned((size_t)kernel_int8_bytes(BASE_MAX(hp->key_dim, hp->value_dim)), 64);
        if (!s->folded || !s->ranges.scales || !s->ranges.least || !s->unpacked) return false;
    }
    b->scratch_slots = slots;
    return true;
}

static uint64_t scratch_bytes(const cpu_backend *b, int64_t slots) {
    const uint64_t bytes =
        sizeof(float) + (b->has_int_scratch ? sizeof(float) + sizeof(int16_t) : 0); /* scores, scales, weights */
    return bytes * CPU_TILE_QUERIES * (uint64_t)slots * (uint64_t)base_threads_count(b->threads);
}

/* An odd number of cache lines: lists a power of two apart would evict each other. */
static int cpu_backend_reserve(cpu_backend *b, int64_t slots, bool has_ints, rp_error *err) {
    slots = ((slots + 15) / 16 | 1) * 16;
    b->activation_bytes -= scratch_bytes(b, b->scratch_slots);
    free_scratch(b);
    b->has_int_scratch = has_ints;
    if (!alloc_scratch(b, slots)) {
        free_scratch(b);
        return base_fail_memory(err, scratch_bytes(b, slots), "attention scores");
    }
    b->activation_bytes += scratch_bytes(b, slots);
    return RP_OK;
}

/* Scratch for contexts up to this size is allocated at opening: 4 MiB per thread. */
#define OPEN_SLOTS 32768

/* Allocates scratch for the longest list of scores of a context of n_ctx slots, plus a sink. */
int cpu_attention_open(cpu_backend *b, int32_t n_ctx, rp_error *err) {
    return cpu_backend_reserve(b, BASE_MIN((int64_t)n_ctx, OPEN_SLOTS) + 1, kv_format_is_int(b->shape.format), err);
}

/* The same for the step's contexts. They may be very long, or hold more slots than positions (masked slots). The
 * capacity grows by half, so that decoding rarely allocates. */
static int reserve_scratch(cpu_backend *b, rp_error *err) {
    int64_t most = 0;
    b->sees_ints = b->sees_floats = false;
    for (int32_t i = 0; i < b->step->n_contexts; i++) {
        const kv_context *c = b->step->contexts[i];
        most = BASE_MAX(most, kv_context_slots(c) + 1);
        for (size_t k = 0; k < c->n_views; k++) {
            const bool is_int = kv_format_is_int(kv_span_format(c->views[k].span));
            b->sees_ints |= is_int;
            b->sees_floats |= !is_int;
        }
    }
    if (most <= b->scratch_slots && b->has_int_scratch >= b->sees_ints) return RP_OK;
    return cpu_backend_reserve(b, most <= b->scratch_slots ? b->scratch_slots : most + most / 2,
                               b->has_int_scratch || b->sees_ints, err);
}

/* ---- groups ---- */

#define NONE (-1)

/* The rows of one context. */
struct cpu_run {
    cpu_part part;
    int32_t leader;     /* a run; itself: this run is the leader */
    int32_t next, last; /* the next run of the group, or NONE; the last one, of a leader */
    int32_t n_rows;     /* of a leader: of the whole group */
    int32_t votes;      /* of a leader: number of views that it shares with the current context */
};

/* A view of a leader. */
struct cpu_found {
    const kv_span *span;
    int32_t leader, view, next; /* next: with the same hash, or NONE */
};

static const kv_context *context_of(const cpu_backend *b, const cpu_run *run) {
    return b->step->contexts[run->part.context];
}

static int collect_runs(cpu_backend *b, rp_error *err) {
    const model_step *step = b->step;
    cpu_plan *p = &b->plan;
    p->n_runs = 0;
    size_t first_view = 0, need = (size_t)step->n_contexts;
    int rc = base_grow((void **)&p->runs, &p->cap_runs, need, SIZE_MAX / 256, sizeof(*p->runs));
    if (rc) return base_fail_memory(err, need * sizeof(*p->runs), "tiles");
    for (int32_t r = 0, context = 0; r < step->n_rows;) {
        int32_t end = r + 1;
        /* contexts need not be in the order of the rows */
        if (step->rows[r].context < context) first_view = 0, context = 0;
        for (; context < step->rows[r].context; context++) first_view += step->contexts[context]->n_views;
        while (end < step->n_rows && step->rows[end].context == context) end++;
        BASE_ASSERT(p->n_runs < need); /* rows of a context are adjacent */
        p->runs[p->n_runs] = (cpu_run){
            .part = {r, end - r, context, first_view, CPU_LEADS},
            .leader = (int32_t)p->n_runs,
            .next = NONE,
            .last = (int32_t)p->n_runs,
            .n_rows = end - r,
        };
        p->n_runs++;
        r = end;
    }
    return RP_OK;
}

static int32_t *cpu_plan_bucket_of(const cpu_plan *p, const kv_span *span) {
    uint64_t h = (uint64_t)((uintptr_t)span >> 4) * UINT64_C(0x9e3779b97f4a7c15);
    BASE_DCHECK((p->n_buckets & (p->n_buckets - 1)) == 0);
    return &p->buckets[(h >> 32) & (p->n_buckets - 1)];
}

static int empty_table(cpu_backend *b, rp_error *err) {
    cpu_plan *p = &b->plan;
    size_t n = 0, longest = 0;
    for (size_t i = 0; i < p->n_runs; i++) {
        size_t views = context_of(b, &p->runs[i])->n_views;
        n += views;
        longest = BASE_MAX(longest, views);
    }
    for (p->n_buckets = 64; p->n_buckets < n;) p->n_buckets *= 2;
    p->n_found = p->n_matches = 0;
    if (base_grow((void **)&p->found, &p->cap_found, n, SIZE_MAX / 64, sizeof(*p->found)) ||
        base_grow((void **)&p->buckets, &p->cap_buckets, p->n_buckets, SIZE_MAX / 64, sizeof(*p->buckets)) ||
        base_grow((void **)&p->order, &p->cap_order, 3 * longest, SIZE_MAX / 64, sizeof(*p->order)))
        return base_fail_memory(err, n * sizeof(*p->found), "the views of a step");
    memset(p->buckets, 0xff, p->n_buckets * sizeof(*p->buckets));
    return RP_OK;
}

/* Inserts in reverse order, so that lookup returns the first of equal spans first. */
static void add_leader(cpu_backend *b, int32_t run) {
    cpu_plan *p = &b->plan;
    const kv_context *c = context_of(b, &p->runs[run]);
    BASE_ASSERT(p->n_found + c->n_views <= p->cap_found);
    for (size_t v = c->n_views; v-- > 0;) {
        int32_t *bucket = cpu_plan_bucket_of(p, c->views[v].span);
        p->found[p->n_found] = (cpu_found){c->views[v].span, run, (int32_t)v, *bucket};
        *bucket = (int32_t)p->n_found++;
    }
}

/* Returns true if a context with n_views views follows a leader with which it shares n of them. */
static bool is_enough(size_t n, size_t n_views) { return n > 0 && 4 * n >= n_views; }

/* The leader with which a context shares most views; NONE: it shares too few with each. */
static int32_t find_leader(cpu_backend *b, int32_t run) {
    cpu_plan *p = &b->plan;
    const kv_context *c = context_of(b, &p->runs[run]);
    int32_t best = 0;
    for (int32_t i = 0; i < run; i++) p->runs[i].votes = 0;
    for (size_t v = 0; v < c->n_views; v++)
        for (int32_t f = *cpu_plan_bucket_of(p, c->views[v].span); f != NONE; f = p->found[f].next)
            if (p->found[f].span == c->views[v].span) p->runs[p->found[f].leader].votes++;
    for (int32_t i = 1; i < run; i++)
        if (p->runs[i].votes > p->runs[best].votes) best = i;
    return is_enough((size_t)p->runs[best].votes, c->n_views) ? best : NONE;
}

/* Longest ascending subsequence of at[] (Schensted 1961): ends[k] is the last view of a subsequence of k + 1 views with
 * the least at[], before[v] the predecessor of v in it. Returns its length. */
static size_t choose_rising(const int32_t *at, size_t n, int32_t *ends, int32_t *before) {
    size_t length = 0;
    for (size_t v = 0; v < n; v++) {
        if (at[v] == NONE) continue;
        size_t low = 0, high = length;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (at[ends[middle]] < at[v]) low = middle + 1;
            else high = middle;
        }
        before[v] = low > 0 ? ends[low - 1] : NONE;
        ends[low] = (int32_t)v;
        length = BASE_MAX(length, low + 1);
    }
    return length;
}

/* Makes a run follow a leader if enough of their views are in the same order. */
static int cpu_backend_follow(cpu_backend *b, int32_t run, int32_t leader, rp_error *err) {
    cpu_plan *p = &b->plan;
    cpu_run *r = &p->runs[run], *l = &p->runs[leader];
    const kv_context *c = context_of(b, r);
    size_t n = context_of(b, l)->n_views;
    BASE_ASSERT(leader < run && l->leader == leader && r->leader == run); /* a leader follows none */
    int32_t *at = p->order, *ends = at + c->n_views, *before = ends + c->n_views;
    for (size_t v = 0; v < c->n_views; v++) { /* the leader's index of each view of the context */
        const kv_span *span = c->views[v].span;
        int32_t f = *cpu_plan_bucket_of(p, span);
        while (f != NONE && (p->found[f].span != span || p->found[f].leader != leader)) f = p->found[f].next;
        at[v] = f == NONE ? NONE : p->found[f].view;
    }
    size_t length = choose_rising(at, c->n_views, ends, before);
    if (!is_enough(length, c->n_views)) return RP_OK;
    int rc = base_grow((void **)&p->matches, &p->cap_matches, p->n_matches + n, SIZE_MAX / 64, sizeof(*p->matches));
    if (rc) return base_fail_memory(err, n * sizeof(*p->matches), "the views of a step");
    memset(p->matches + p->n_matches, 0xff, n * sizeof(*p->matches));
    for (int32_t v = ends[length - 1]; v != NONE; v = before[v]) p->matches[p->n_matches + (size_t)at[v]] = v;
    r->part.matches = p->n_matches;
    r->leader = leader;
    p->n_matches += n;
    p->runs[l->last].next = run;
    l->last = run;
    l->n_rows += r->part.n_rows;
    return RP_OK;
}

static int form_groups(cpu_backend *b, rp_error *err) {
    cpu_plan *p = &b->plan;
    if (p->n_runs < 2) return RP_OK;
    int rc = empty_table(b, err);
    for (int32_t run = 0; run < (int32_t)p->n_runs && !rc; run++) {
        int32_t leader = run > 0 ? find_leader(b, run) : NONE;
        if (leader != NONE) rc = cpu_backend_follow(b, run, leader, err);
        if (!rc && p->runs[run].leader == run) add_leader(b, run);
    }
    return rc;
}

/* ---- tiles ---- */

static bool cpu_plan_leads(const cpu_plan *p, size_t run) { return p->runs[run].leader == (int32_t)run; }
static bool leads_others(const cpu_plan *p, size_t run) { return cpu_plan_leads(p, run) && p->runs[run].next != NONE; }

static int64_t tiles_of(int32_t n_rows, int32_t rows_per_tile) { return (n_rows + rows_per_tile - 1) / rows_per_tile; }

/* Rows of several contexts in a tile: as many as fit, unless threads would idle for more than an eighth of the time. */
static int32_t shared_rows_per_tile(const cpu_backend *b) {
    const cpu_plan *p = &b->plan;
    int64_t threads = base_threads_count(b->threads);
    int32_t n = b->rows_per_tile;
    for (; n > 1; n = (n + 1) / 2) {
        int64_t tasks = 0;
        for (size_t i = 0; i < p->n_runs; i++)
            if (cpu_plan_leads(p, i))
                tasks += tiles_of(p->runs[i].n_rows, leads_others(p, i) ? n : b->rows_per_tile) * b->net->hp.n_kv_heads;
        if ((tasks + threads - 1) / threads * threads * 8 <= tasks * 9) break;
    }
    return n;
}

/* Cuts the rows of a group into tiles of n rows; the last one may have fewer. */
static void cut_group(cpu_plan *p, int32_t leader, int32_t n) {
    BASE_ASSERT(n > 0 && cpu_plan_leads(p, (size_t)leader));
    const int32_t first = (int32_t)p->n_tiles, n_tiles = (int32_t)tiles_of(p->runs[leader].n_rows, n);
    cpu_row_tile *t = NULL;
    for (int32_t run = leader; run != NONE; run = p->runs[run].next) {
        const cpu_part *all = &p->runs[run].part;
        for (int32_t done = 0, k; done < all->n_rows; done += k) {
            if (!t || t->n_rows == n) {
                t = &p->tiles[p->n_tiles++];
                *t = (cpu_row_tile){.first_part = (int32_t)p->n_parts, .first_tile = first, .n_tiles = n_tiles};
            }
            k = BASE_MIN(all->n_rows - done, n - t->n_rows);
            cpu_part *part = &p->parts[p->n_parts++];
            *part = *all;
            part->row += done;
            part->n_rows = k;
            t->n_rows += k;
            /* rows of one context: as without other contexts */
            t->leader = ++t->n_parts == 1 ? all->context : p->runs[leader].part.context;
        }
    }
    BASE_ASSERT((int32_t)p->n_tiles == first + n_tiles);
}

static int cpu_backend_cut_tiles(cpu_backend *b, rp_error *err) {
    cpu_plan *p = &b->plan;
    size_t n = (size_t)b->step->n_rows;
    if (base_grow((void **)&p->tiles, &p->cap_tiles, n, SIZE_MAX / 64, sizeof(*p->tiles)) ||
        base_grow((void **)&p->parts, &p->cap_parts, n, SIZE_MAX / 64, sizeof(*p->parts)))
        return base_fail_memory(err, n * (sizeof(*p->tiles) + sizeof(*p->parts)), "tiles");
    p->n_tiles = p->n_parts = 0;
    p->most_rows = 1;
    int32_t shared = shared_rows_per_tile(b);
    for (size_t i = 0; i < p->n_runs; i++) {
        if (!cpu_plan_leads(p, i)) continue;
        int32_t rows = p->runs[i].n_rows, most = leads_others(p, i) ? shared : b->rows_per_tile;
        /* shared tiles have equal sizes; tiles of a single context are full except the last */
        if (leads_others(p, i)) most = (int32_t)((rows + tiles_of(rows, most) - 1) / tiles_of(rows, most));
        cut_group(p, (int32_t)i, most);
    }
    BASE_ASSERT(p->n_parts <= n); /* each has a row at least */
    for (size_t i = 0; i < p->n_tiles; i++) p->most_rows = BASE_MAX(p->most_rows, p->tiles[i].n_rows);
    return RP_OK;
}

static void find_observers(cpu_backend *b) {
    b->is_observed = b->is_recorded = b->is_relative = false;
    for (int32_t r = 0; r < b->step->n_rows; r++) {
        const attention_observer *o = b->step->rows[r].observer;
        b->is_observed |= o != NULL;
        b->is_relative |= o && o->measure == ATTENTION_RELATIVE;
        b->is_recorded |= b->step->rows[r].queries != NULL;
    }
}

int cpu_attention_begin(cpu_backend *b, rp_error *err) {
    int rc = reserve_scratch(b, err);
    find_observers(b);
    if (!rc) rc = cpu_angles_begin(b, err);
    if (!rc) rc = collect_runs(b, err);
    if (!rc) rc = form_groups(b, err);
    return rc ? rc : cpu_backend_cut_tiles(b, err);
}
