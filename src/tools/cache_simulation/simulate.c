/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.c: rp_simulator_*: replays requests against a cache of a given size under a given policy.
 *
 *   request    [b0][b1][b2][b3]..     each block follows the previous one
 *   cache       +   +   -   +         hits: 2 blocks; b3 is useless without b2
 *
 * Every block counts as a whole one. Requests run one after the other. Cost is counted in tokens of linear work: the
 * i-th token of a request, from 0, takes 1 + i / attention_tokens. Each call uses the caller's thread.
 */

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "reprise_tools.h"
#include "tools/cache_simulation/simulate_policies.h"

#define MAX_REQUESTS ((size_t)1 << 24)
#define MAX_BLOCKS ((size_t)1 << 26)
#define EMPTY UINT32_MAX
#define COST_UNITS 1000.0 /* of a token's linear part: the policy counts whole units */

static const simulate_policy *const policies[RP_N_POLICIES] = {
    [RP_POLICY_LRU] = &simulate_lru,
    [RP_POLICY_LFU] = &simulate_lfu,
    [RP_POLICY_ARC] = &simulate_arc,
    [RP_POLICY_S3_FIFO] = &simulate_s3_fifo,
    [RP_POLICY_REPRISE] = &simulate_reprise,
    [RP_POLICY_OPTIMUM] = &simulate_optimum,
};

/* The position of a request's blocks in `refs` and `next`. */
typedef struct row {
    size_t first, n;
    int32_t n_tokens;
    uint64_t session;
    bool ends_session;
} row;

struct rp_simulator {
    rp_simulate_options options;
    row *rows;
    size_t n_rows;
    uint32_t *refs; /* blocks of all requests, numbered from 0 by first appearance */
    uint32_t *next; /* of each of them: the request that uses the same block next */
    size_t n_refs;
    uint64_t *names;   /* [n_blocks] as given */
    uint32_t *parents; /* [n_blocks] EMPTY: none */
    uint64_t *costs;   /* [n_blocks] of a whole block in its position */
    size_t n_blocks;
    uint32_t *buckets; /* by name; only while requests are read */
    size_t n_buckets;
};

const char *rp_policy_name(rp_policy policy) {
    return (unsigned)policy < RP_N_POLICIES ? policies[policy]->name : NULL;
}

void rp_simulate_options_init(rp_simulate_options *options, uint32_t struct_size) {
    base_sized_init(options, struct_size, &(rp_simulate_options){.block_tokens = 512, .attention_tokens = 16384},
                    sizeof(rp_simulate_options));
}

void rp_simulator_free(rp_simulator *s) {
    if (!s) return;
    base_free(s->rows);
    base_free(s->refs);
    base_free(s->next);
    base_free(s->names);
    base_free(s->parents);
    base_free(s->costs);
    base_free(s->buckets);
    base_free(s);
}

size_t rp_simulator_blocks(const rp_simulator *s) { return s->n_blocks; }

/* ---- costs ---- */

/* The cost of n tokens after `pos`: each has its linear part, and attends to all before it. */
static double simulator_cost_of(const rp_simulator *s, double pos, double n) {
    return n + (pos * n + n * (n - 1) / 2) / s->options.attention_tokens;
}

/* Tokens of the i-th block of a request. */
static int32_t block_tokens(const rp_simulator *s, const row *r, size_t i) {
    const int64_t left = r->n_tokens - (int64_t)i * s->options.block_tokens;
    BASE_ASSERT(i < r->n && left > 0);
    return (int32_t)BASE_MIN(left, s->options.block_tokens);
}

/* ---- reading ---- */

/* The number of a block, the i-th of its request, after the block `parent`. */
static int number_block(rp_simulator *s, uint64_t name, uint32_t parent, size_t i, uint32_t *out) {
    BASE_ASSERT(s->n_buckets > s->n_blocks); /* a probe ends */
    size_t mask = s->n_buckets - 1, b = (size_t)((name * 0x9e3779b97f4a7c15u) >> 32) & mask;
    while (s->buckets[b] != EMPTY && s->names[s->buckets[b]] != name) b = (b + 1) & mask;
    if (s->buckets[b] == EMPTY) {
        s->names[s->n_blocks] = name;
        s->parents[s->n_blocks] = parent;
        s->costs[s->n_blocks] =
            (uint64_t)(COST_UNITS * simulator_cost_of(s, (double)i * s->options.block_tokens, s->options.block_tokens));
        s->buckets[b] = (uint32_t)s->n_blocks++;
    }
    *out = s->buckets[b];
    return s->parents[*out] == parent ? RP_OK : RP_ERR_INVALID;
}

static int read_request(rp_simulator *s, const rp_simulate_request *r, size_t number, rp_error *err) {
    int64_t most = (int64_t)BASE_MIN(r->n_blocks, MAX_BLOCKS) * s->options.block_tokens;
    int rc = RP_OK;
    if (r->n_blocks == 0 || !r->blocks || r->n_tokens > most || r->n_tokens <= most - s->options.block_tokens)
        rc = base_fail(err, RP_ERR_INVALID, "request %zu has %zu blocks of %d tokens, which do not match %d tokens",
                       number, r->n_blocks, (int)s->options.block_tokens, (int)r->n_tokens);
    row *out = &s->rows[s->n_rows++];
    *out =
        (row){s->n_refs, r->n_blocks, r->n_tokens, s->options.sessions == RP_SESSIONS_IGNORED ? 0 : r->session, false};
    for (size_t i = 0; i < r->n_blocks && !rc; i++) {
        uint32_t parent = i > 0 ? s->refs[s->n_refs - 1] : EMPTY;
        rc = number_block(s, r->blocks[i], parent, i, &s->refs[s->n_refs++]);
        if (rc)
            base_fail(err, rc,
                      "request %zu: block %llu follows another block than before: a hash id identifies tokens and "
                      "their whole prefix",
                      number, (unsigned long long)r->blocks[i]);
    }
    return rc;
}

static int simulator_allocate(rp_simulator *s, size_t n_rows, size_t n_refs) {
    s->n_buckets = 64;
    while (s->n_buckets < 2 * n_refs) s->n_buckets *= 2;
    s->rows = base_calloc(n_rows, sizeof(*s->rows));
    s->refs = base_calloc(n_refs, sizeof(*s->refs));
    s->next = base_calloc(n_refs, sizeof(*s->next));
    s->names = base_calloc(n_refs, sizeof(*s->names));
    s->parents = base_calloc(n_refs, sizeof(*s->parents));
    s->costs = base_calloc(n_refs, sizeof(*s->costs));
    s->buckets = base_calloc(s->n_buckets, sizeof(*s->buckets));
    if (!s->rows || !s->refs || !s->next || !s->names || !s->parents || !s->costs || !s->buckets) return RP_ERR_MEMORY;
    memset(s->buckets, 0xff, s->n_buckets * sizeof(*s->buckets));
    return RP_OK;
}

/* From the last request to the first; also frees the table, which is no longer needed. */
static int find_next_uses(rp_simulator *s) {
    uint32_t *later = base_alloc((s->n_blocks + 1) * sizeof(*later));
    base_free(s->buckets);
    s->buckets = NULL;
    if (!later) return RP_ERR_MEMORY;
    memset(later, 0xff, (s->n_blocks + 1) * sizeof(*later)); /* SIMULATE_NEVER */
    for (size_t r = s->n_rows; r-- > 0;)
        for (size_t i = s->rows[r].first; i < s->rows[r].first + s->rows[r].n; i++) {
            s->next[i] = later[s->refs[i]];
            later[s->refs[i]] = (uint32_t)r;
        }
    base_free(later);
    return RP_OK;
}

/* The last request of each session ends it: from the last request to the first, by a table of sessions. */
static int find_session_ends(rp_simulator *s) {
    size_t n = 64;
    while (n < 2 * s->n_rows) n *= 2;
    uint64_t *seen = base_calloc(n, sizeof(*seen));
    if (!seen) return RP_ERR_MEMORY;
    for (size_t i = s->n_rows; i-- > 0;) {
        row *r = &s->rows[i];
        size_t at = (size_t)((r->session * 0x9e3779b97f4a7c15u) >> 32) & (n - 1);
        while (r->session != 0 && seen[at] != 0 && seen[at] != r->session) at = (at + 1) & (n - 1);
        r->ends_session = r->session != 0 && seen[at] == 0;
        if (r->session != 0) seen[at] = r->session;
    }
    base_free(seen);
    return RP_OK;
}

int rp_simulator_new(rp_simulator **out, const rp_simulate_request *requests, size_t n,
                     const rp_simulate_options *options, rp_error *err) {
    rp_simulate_options o = rp_simulate_options_defaults();
    size_t n_refs = 0;
    if (!out || (!requests && n > 0))
        return base_fail(err, RP_ERR_INVALID, "rp_simulator_new: out and requests are needed");
    *out = NULL;
    int rc = base_sized_read(&o, sizeof(o), options, "rp_simulate_options", err);
    if (rc) return rc;
    if (o.block_tokens < 1 || o.attention_tokens < 1)
        return base_fail(err, RP_ERR_INVALID, "block_tokens %d and attention_tokens %d must be 1 or more",
                         (int)o.block_tokens, (int)o.attention_tokens);
    if ((unsigned)o.sessions > RP_SESSIONS_ENDED)
        return base_fail(err, RP_ERR_INVALID, "sessions is %d: give RP_SESSIONS_KNOWN, _IGNORED or _ENDED",
                         (int)o.sessions);
    for (size_t i = 0; i < n && n_refs <= MAX_BLOCKS; i++) n_refs += BASE_MIN(requests[i].n_blocks, MAX_BLOCKS + 1);
    if (n > MAX_REQUESTS || n_refs > MAX_BLOCKS)
        return base_fail(err, RP_ERR_LIMIT, "at most %zu requests with %zu blocks can be replayed", MAX_REQUESTS,
                         MAX_BLOCKS);
    rp_simulator *s = base_calloc(1, sizeof(*s));
    if (!s) return base_fail_memory(err, sizeof(*s), "a simulator");
    s->options = o;
    if (simulator_allocate(s, n, n_refs)) rc = base_fail_memory(err, n_refs * 40, "the requests to replay");
    for (size_t i = 0; i < n && !rc; i++) rc = read_request(s, &requests[i], i, err);
    if (!rc && o.sessions == RP_SESSIONS_ENDED && find_session_ends(s))
        rc = base_fail_memory(err, n * 32, "the sessions to replay");
    if (!rc && find_next_uses(s)) rc = base_fail_memory(err, s->n_blocks * sizeof(uint32_t), "the requests to replay");
    if (rc) rp_simulator_free(s);
    else *out = s;
    return rc;
}

/* ---- running ---- */

/* Counts a request's hits. */
static void count_hits(const rp_simulator *s, const simulate_policy *policy, const void *state, const row *r,
                       rp_simulation *out) {
    bool hit = true;
    for (size_t i = 0; i < r->n; i++) {
        double cost = simulator_cost_of(s, (double)i * s->options.block_tokens, block_tokens(s, r, i));
        hit = hit && policy->has(state, s->refs[r->first + i]);
        out->compute += cost;
        if (!hit) continue;
        out->saved += cost;
        out->hit_tokens += (uint64_t)block_tokens(s, r, i);
    }
    out->prompt_tokens += (uint64_t)r->n_tokens;
    out->requests++;
    BASE_ASSERT(out->hit_tokens <= out->prompt_tokens && out->saved <= out->compute);
}

static int simulator_replay(const rp_simulator *s, const simulate_policy *policy, void *state, rp_simulation *out) {
    int rc = RP_OK;
    for (size_t i = 0; i < s->n_rows && !rc; i++) {
        const row *r = &s->rows[i];
        simulate_chain chain = {s->refs + r->first, s->next + r->first, r->n, (uint32_t)i, r->session, r->ends_session};
        count_hits(s, policy, state, r, out);
        rc = policy->read(state, &chain);
    }
    return rc;
}

int rp_simulator_run(const rp_simulator *s, rp_policy policy, size_t capacity, rp_simulation *out, rp_error *err) {
    void *state = NULL;
    rp_simulation own = {0};
    if (!s) return base_fail(err, RP_ERR_INVALID, "rp_simulator_run: simulator is needed");
    int rc = base_sized_check(out, "rp_simulation", err);
    if (rc) return rc;
    if ((unsigned)policy >= RP_N_POLICIES || capacity < 1)
        return base_fail(err, RP_ERR_INVALID,
                         "policy %d with a capacity of %zu blocks: give a known policy, and 1 block or more",
                         (int)policy, capacity);
    simulate_world world = {BASE_MAX(s->n_blocks, (size_t)1), capacity, s->costs};
    rc = policies[policy]->open(&state, &world);
    if (!rc) rc = simulator_replay(s, policies[policy], state, &own);
    policies[policy]->close(state);
    if (rc) return base_fail(err, rc, "%s over %zu blocks: out of memory", policies[policy]->name, s->n_blocks);
    base_sized_write(out, &own, sizeof(own));
    return RP_OK;
}
