/* SPDX-License-Identifier: Apache-2.0 */
/* view.c: see view.h.
 *
 * Owns the state of one node's stream and the node's entries in the index, which it changes by cluster_index_report
 * alone, so that speculative entries stay. One user at a time. Every error of a stream ends in view_close: the next
 * stream begins with a hello.
 *
 *   whole   the node's reported entries are those that it held at seq, in epoch: a stream can continue there. Otherwise
 *           a snapshot is needed
 */
#include "cluster/view.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "reprise_cluster.h"

#define FIRST_DELAY_US 100000
#define LAST_DELAY_US 5000000
#define LEAST_NAME_BYTES 256 /* least KV of a name */

struct cluster_view {
    cluster_index *index;
    int32_t node;
    uint8_t secret[RP_CLUSTER_KEY_BYTES];
    cluster_view_state state;
    cluster_reader *reader; /* NULL: closed, or no memory */
    uint64_t now_us;        /* of the current call */
    uint64_t opens_at, opened_us, delay_us, n_opened;
    bool in_snapshot; /* of this stream */
    bool whole;
    bool ignores;   /* names since the last snapshot were ignored: the digests of node and index differ */
    uint64_t most;  /* names (cluster_view_set_most) */
    bool connected; /* false: the last connection ended or failed, and no frame has arrived since */
    uint64_t epoch, seq;
    uint64_t heard_us;
    cluster_hello hello;
    cluster_load load;
    cluster_view_counts counts;
};

int cluster_view_new(cluster_view **out, cluster_index *index, int32_t node, const uint8_t *secret, rp_error *err) {
    cluster_view *v = base_calloc(1, sizeof *v);
    *out = v;
    if (!v) return base_fail_memory(err, sizeof *v, "a view of a node");
    BASE_ASSERT(node >= 0 && node < CLUSTER_MAX_NODES);
    v->index = index;
    v->node = node;
    v->delay_us = FIRST_DELAY_US;
    v->most = CLUSTER_MAX_NAMES;
    v->load.engine.struct_size = sizeof v->load.engine;
    memcpy(v->secret, secret, sizeof v->secret);
    return RP_OK;
}

void cluster_view_free(cluster_view *v) {
    if (!v) return;
    cluster_index_clear(v->index, v->node);
    cluster_reader_free(v->reader);
    base_free(v);
}

/* ---- State ---- */

static void view_close(cluster_view *v, uint64_t now_us) {
    BASE_ASSERT(v->state != CLUSTER_VIEW_CLOSED);
    cluster_reader_free(v->reader);
    v->reader = NULL;
    v->state = CLUSTER_VIEW_CLOSED;
    v->opens_at = now_us + v->delay_us;
    v->delay_us = BASE_MIN(2 * v->delay_us, (uint64_t)LAST_DELAY_US);
}

void cluster_view_open(cluster_view *v, uint64_t now_us, uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t random,
                       uint64_t *epoch, uint64_t *after) {
    cluster_stream_key key;
    BASE_ASSERT(v->state == CLUSTER_VIEW_CLOSED && !v->reader);
    v->n_opened++; /* no nonce is used twice, whatever `random` is */
    memcpy(nonce, &random, 8);
    memcpy(nonce + 8, &v->n_opened, 8);
    cluster_stream_key_make(&key, v->secret, nonce);
    (void)cluster_reader_new(&v->reader, &key, NULL); /* without memory the first bytes end the stream */
    v->state = CLUSTER_VIEW_OPENING;
    v->opened_us = now_us;
    v->opens_at = UINT64_MAX;
    v->in_snapshot = false;
    *epoch = v->whole ? v->epoch : 0;
    *after = v->whole ? v->seq : 0;
}

void cluster_view_cut(cluster_view *v, uint64_t now_us) {
    if (v->state == CLUSTER_VIEW_CLOSED) return;
    v->counts.cuts++;
    v->connected = false;
    view_close(v, now_us);
}

uint64_t cluster_view_opens_at(const cluster_view *v) { return v->opens_at; }

/* ---- Frames ---- */

static int view_hello(cluster_view *v, const cluster_hello *h) {
    BASE_ASSERT(h->epoch != 0); /* cluster_reader refuses 0 */
    v->hello = *h;
    if (h->epoch == v->epoch) return RP_OK;
    if (v->epoch != 0) v->counts.other_epochs++;
    cluster_index_clear(v->index, v->node);
    v->epoch = h->epoch;
    v->seq = 0;
    v->whole = false;
    return RP_OK;
}

/* Changes are missing: the view needs a snapshot. */
static int view_gap(cluster_view *v, uint64_t seq, const char *what, rp_error *err) {
    v->counts.gaps++;
    v->whole = false;
    return base_fail(err, RP_ERR_FORMAT, "span stream: %s %llu after change %llu", what, (unsigned long long)seq,
                     (unsigned long long)v->seq);
}

void cluster_view_set_most(cluster_view *v, uint64_t names) { v->most = names; }

static uint64_t view_count(const cluster_view *v) {
    uint64_t count, sum;
    cluster_index_digest(v->index, v->node, &count, &sum);
    return count;
}

/* Is it a name beyond the limit? Names that the index has stay, and can change their tiers. */
static bool view_ignores(cluster_view *v, const rp_span_change *c, uint64_t most) {
    const uint32_t reported = RP_TIER_RAM | RP_TIER_DISK;
    if ((c->tiers & reported) == 0 || view_count(v) < most || cluster_index_get(v->index, &c->name, v->node) & reported)
        return false;
    v->ignores = true;
    v->counts.ignored++;
    return true;
}

/* Applies changes to the index. The caller sets seq and whole; after a failure neither is valid. */
static int view_report(cluster_view *v, const cluster_frame *f, rp_error *err) {
    /* The most names that the reported budgets can hold. A name is 64 tokens of KV in memory, less on disk for a short
     * module, and less in a KV format of a tenant that is smaller than the node's: an eighth of a block is a lower
     * bound of all. Before the first load the size of a token is unknown. */
    const uint64_t least = BASE_MAX(8 * BASE_MIN(v->load.engine.kv_bytes_per_token, CLUSTER_MOST_BYTES),
                                    (uint64_t)LEAST_NAME_BYTES);
    const uint64_t most = BASE_MIN((v->hello.kv_budget_bytes + v->hello.disk_budget_bytes) / least, v->most);
    for (size_t i = 0; i < f->n_changes; i++) {
        if (view_ignores(v, &f->changes[i], most)) continue;
        int rc = cluster_index_report(v->index, &f->changes[i].name, v->node, f->changes[i].tiers);
        if (rc == RP_OK) continue;
        if (rc == RP_ERR_LIMIT) { /* the index is full */
            v->ignores = true;
            v->counts.ignored++;
            continue;
        }
        v->whole = false;
        return base_fail(err, RP_ERR_MEMORY, "no space in the index of names: %zu names, %llu bytes",
                         cluster_index_count(v->index), (unsigned long long)cluster_index_bytes(v->index));
    }
    v->counts.changes += f->n_changes;
    return RP_OK;
}

static int view_snapshot(cluster_view *v, const cluster_frame *f) {
    v->counts.snapshots++;
    cluster_index_begin_snapshot(v->index, v->node);
    v->in_snapshot = true;
    v->whole = v->ignores = false;
    v->state = CLUSTER_VIEW_OPENING;
    v->seq = f->seq;
    return RP_OK;
}

static int view_names(cluster_view *v, const cluster_frame *f, rp_error *err) {
    if (!v->in_snapshot) return view_gap(v, v->seq, "names without a snapshot", err);
    if (f->n_changes > 0) return view_report(v, f, err);
    cluster_index_end_snapshot(v->index, v->node);
    v->in_snapshot = false;
    v->whole = true;
    v->state = CLUSTER_VIEW_LIVE;
    return RP_OK;
}

static int view_changes(cluster_view *v, const cluster_frame *f, rp_error *err) {
    if (!v->in_snapshot && !v->whole) return view_gap(v, f->seq, "no snapshot, but change", err);
    if (f->seq != v->seq + 1) return view_gap(v, f->seq, "change", err);
    int rc = view_report(v, f, err);
    if (rc) return rc;
    v->seq += f->n_changes;
    if (v->whole) v->state = CLUSTER_VIEW_LIVE;
    return RP_OK;
}

static int view_digest(cluster_view *v, const cluster_digest *d, rp_error *err) {
    uint64_t count, sum;
    if (!v->whole || d->seq != v->seq) return view_gap(v, d->seq, "digest of change", err);
    cluster_index_digest(v->index, v->node, &count, &sum);
    if (v->ignores || (count == d->count && sum == d->sum)) {
        v->state = CLUSTER_VIEW_LIVE;
        v->delay_us = FIRST_DELAY_US; /* the stream works */
        return RP_OK;
    }
    v->counts.wrong_digests++;
    v->whole = false;
    return base_fail(err, RP_ERR_FORMAT,
                     "span stream: digest of %llu names after change %llu, but the router has %llu, or others",
                     (unsigned long long)d->count, (unsigned long long)d->seq, (unsigned long long)count);
}

typedef struct view_call {
    cluster_view *v;
    rp_error *err;
    bool refused; /* by the view, which has counted the reason */
} view_call;

static int view_frame(void *user, const cluster_frame *f) {
    view_call *call = user;
    cluster_view *v = call->v;
    int rc = RP_OK;
    v->counts.frames++;
    v->heard_us = v->now_us;
    v->connected = true;
    switch (f->kind) {
    case CLUSTER_HELLO: rc = view_hello(v, &f->hello); break;
    case CLUSTER_SNAPSHOT: rc = view_snapshot(v, f); break;
    case CLUSTER_NAMES: rc = view_names(v, f, call->err); break;
    case CLUSTER_CHANGES: rc = view_changes(v, f, call->err); break;
    case CLUSTER_LOAD: v->load = f->load; break;
    case CLUSTER_DIGEST: rc = view_digest(v, &f->digest, call->err); break;
    }
    call->refused = rc != RP_OK;
    BASE_ASSERT(!(v->whole && v->in_snapshot) && (rc || v->whole || v->state != CLUSTER_VIEW_LIVE));
    return rc;
}

int cluster_view_feed(cluster_view *v, uint64_t now_us, const void *bytes, size_t n, rp_error *err) {
    view_call call = {.v = v, .err = err};
    if (v->state == CLUSTER_VIEW_CLOSED) return base_fail(err, RP_ERR_INVALID, "the span stream is closed");
    v->now_us = now_us;
    v->counts.bytes += n;
    if (view_count(v) > v->most) { /* the limit was higher before */
        cluster_index_clear(v->index, v->node);
        v->whole = false;
        view_close(v, now_us);
        return base_fail(err, RP_ERR_LIMIT, "the node has more names than its share of the index, %llu",
                         (unsigned long long)v->most);
    }
    int rc = v->reader ? cluster_reader_feed(v->reader, bytes, n, view_frame, &call, err)
                       : base_fail_memory(err, CLUSTER_MAX_FRAME, "a reader of a span stream");
    if (rc == RP_OK) return RP_OK;
    if (rc == RP_ERR_FORMAT && !call.refused) v->counts.forged++;
    view_close(v, now_us);
    return rc;
}

/* ---- Health and reports ---- */

bool cluster_view_is_silent(const cluster_view *v, uint64_t now_us) {
    return v->state != CLUSTER_VIEW_CLOSED && now_us >= BASE_MAX(v->heard_us, v->opened_us) + CLUSTER_DEAD_US;
}

cluster_view_state cluster_view_get_state(const cluster_view *v) { return v->state; }
const cluster_hello *cluster_view_hello(const cluster_view *v) { return &v->hello; }
const cluster_load *cluster_view_load(const cluster_view *v) { return &v->load; }
uint64_t cluster_view_heard_us(const cluster_view *v) { return v->heard_us; }
const cluster_view_counts *cluster_view_counted(const cluster_view *v) { return &v->counts; }

cluster_health cluster_view_health(const cluster_view *v, uint64_t now_us) {
    if (!v->connected || now_us >= v->heard_us + CLUSTER_DEAD_US) return CLUSTER_DEAD;
    return now_us >= v->heard_us + CLUSTER_SUSPECT_US ? CLUSTER_SUSPECT : CLUSTER_WELL;
}
