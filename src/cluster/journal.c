/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c: see journal.h.
 *
 * Owns the table (an index with one node), the ring, and readers. One lock guards table, ring, load and the number of
 * readers; the fields of a reader belong to its user. Frames are written and signed without the lock.
 *
 * Order of a stream: hello; then the pieces of a snapshot, each after the changes so far; a digest after exactly the
 * changes that it includes.
 */
#include "cluster/journal.h"

#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "cluster/index.h"

#define RING CLUSTER_RING_CHANGES
#define ONLY 0 /* the node of the table */

_Static_assert((RING & (RING - 1)) == 0, "a seq wraps around the ring");
_Static_assert(CLUSTER_PIECE <= CLUSTER_MAX_CHANGES, "a piece is one frame");

struct cluster_journal {
    uint8_t secret[RP_CLUSTER_KEY_BYTES];
    cluster_hello hello;
    pthread_mutex_t lock; /* of the fields below */
    cluster_index *table;
    rp_span_change *ring; /* change seq is at seq % RING */
    uint64_t seq;         /* number of the last change; 0: none yet */
    uint64_t left_out;
    cluster_load load;
    uint64_t load_version; /* 0: no load yet */
    int n_readers;
};

struct cluster_journal_reader {
    cluster_journal *j;
    cluster_stream_key key;
    uint64_t number; /* of the next frame */
    uint64_t after;  /* number of the last change that was written */
    bool wants_snapshot, in_snapshot;
    cluster_index_place place; /* position in the snapshot */
    cluster_digest digest;     /* if has_digest: to be written after change digest.seq */
    bool has_digest;
    uint64_t digest_due_us, load_us, load_version; /* load_us: time at which load_version was written */
    rp_span_change piece[CLUSTER_PIECE];
};

int cluster_journal_new(cluster_journal **out, const uint8_t *secret, const cluster_hello *hello, rp_error *err) {
    cluster_journal *j = base_calloc(1, sizeof *j);
    *out = NULL;
    BASE_ASSERT(hello->epoch != 0);
    if (!j) return base_fail_memory(err, sizeof *j, "a journal");
    j->ring = base_alloc(RING * sizeof *j->ring);
    int rc =
        j->ring ? cluster_index_new_source(&j->table, err) : base_fail_memory(err, RING * sizeof *j->ring, "a journal");
    if (rc == RP_OK && pthread_mutex_init(&j->lock, NULL) != 0) {
        cluster_index_free(j->table);
        rc = base_fail_memory(err, sizeof j->lock, "a lock");
    }
    if (rc) {
        base_free(j->ring);
        base_free(j);
        return rc;
    }
    memcpy(j->secret, secret, sizeof j->secret);
    j->hello = *hello;
    *out = j;
    return RP_OK;
}

void cluster_journal_set_hello(cluster_journal *j, const cluster_hello *hello) {
    pthread_mutex_lock(&j->lock);
    BASE_ASSERT(j->n_readers == 0 && hello->epoch == j->hello.epoch);
    j->hello = *hello;
    pthread_mutex_unlock(&j->lock);
}

void cluster_journal_free(cluster_journal *j) {
    if (!j) return;
    BASE_ASSERT(j->n_readers == 0);
    pthread_mutex_destroy(&j->lock);
    cluster_index_free(j->table);
    base_free(j->ring);
    base_free(j);
}

/* Under lock. */
static void journal_apply(cluster_journal *j, const rp_span_change *c) {
    const uint32_t tiers = c->tiers & (RP_TIER_RAM | RP_TIER_DISK),
                   before = cluster_index_get(j->table, &c->name, ONLY);
    if (before == tiers) return;
    const bool is_full = before == 0 && cluster_index_count(j->table) >= CLUSTER_JOURNAL_MAX_NAMES;
    if (is_full || cluster_index_set(j->table, &c->name, ONLY, tiers)) {
        j->left_out++;
        return;
    }
    j->seq++;
    j->ring[j->seq % RING] = (rp_span_change){c->name, tiers};
}

void cluster_journal_change(void *journal, const rp_span_change *changes, size_t n) {
    cluster_journal *j = journal;
    for (size_t i = 0; i < n;) { /* in pieces, so that readers do not wait long */
        const size_t end = BASE_MIN(n, i + CLUSTER_PIECE);
        pthread_mutex_lock(&j->lock);
        for (; i < end; i++) journal_apply(j, &changes[i]);
        pthread_mutex_unlock(&j->lock);
    }
}

/* Equality without sent_us. */
static bool load_equal(const cluster_load *a, const cluster_load *b) {
    const rp_engine_load *x = &a->engine, *y = &b->engine;
    for (int i = 0; i < RP_COST_KNOTS; i++)
        if (x->knot_us[i] != y->knot_us[i]) return false;
    if (a->schemas != b->schemas || a->draining != b->draining) return false;
    if (x->running != y->running || x->waiting != y->waiting || x->decoding != y->decoding ||
        x->background != y->background)
        return false;
    return x->queued_tokens == y->queued_tokens && x->context_tokens == y->context_tokens &&
           x->drain_us == y->drain_us && x->gap_p95_us == y->gap_p95_us &&
           x->kv_bytes_per_token == y->kv_bytes_per_token && x->free_bytes == y->free_bytes &&
           x->max_running == y->max_running && x->chunk_tokens == y->chunk_tokens && x->row_slot_us == y->row_slot_us &&
           x->slot_us == y->slot_us && x->read_byte_us == y->read_byte_us;
}

void cluster_journal_set_load(cluster_journal *j, const cluster_load *load) {
    pthread_mutex_lock(&j->lock);
    if (j->load_version == 0 || !load_equal(&j->load, load)) j->load_version++;
    j->load = *load;
    pthread_mutex_unlock(&j->lock);
}

static cluster_digest journal_digest_locked(cluster_journal *j) {
    cluster_digest d = {.seq = j->seq};
    cluster_index_digest(j->table, ONLY, &d.count, &d.sum);
    BASE_ASSERT(d.count == cluster_index_count(j->table)); /* the table has one node, and no speculative entries */
    return d;
}

cluster_digest cluster_journal_digest(cluster_journal *j) {
    pthread_mutex_lock(&j->lock);
    const cluster_digest d = journal_digest_locked(j);
    pthread_mutex_unlock(&j->lock);
    return d;
}

size_t cluster_journal_count(cluster_journal *j) { return (size_t)cluster_journal_digest(j).count; }

uint64_t cluster_journal_left_out(cluster_journal *j) {
    pthread_mutex_lock(&j->lock);
    const uint64_t n = j->left_out;
    pthread_mutex_unlock(&j->lock);
    return n;
}

/* ---- Readers ---- */

int cluster_journal_open(cluster_journal *j, const uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t epoch, uint64_t after,
                         cluster_journal_reader **out, rp_error *err) {
    *out = NULL;
    cluster_journal_reader *r = base_calloc(1, sizeof *r);
    if (!r) return base_fail_memory(err, sizeof *r, "a reader of the span stream");
    pthread_mutex_lock(&j->lock);
    const bool is_full = j->n_readers >= CLUSTER_MAX_READERS;
    if (!is_full) j->n_readers++;
    r->wants_snapshot = epoch != j->hello.epoch || after > j->seq;
    pthread_mutex_unlock(&j->lock);
    if (is_full) {
        base_free(r);
        return base_fail(err, RP_ERR_LIMIT, "%d routers read the span stream, which is the limit", CLUSTER_MAX_READERS);
    }
    r->j = j;
    r->after = after;
    cluster_stream_key_make(&r->key, j->secret, nonce);
    *out = r;
    return RP_OK;
}

void cluster_journal_close(cluster_journal_reader *r) {
    if (!r) return;
    pthread_mutex_lock(&r->j->lock);
    BASE_ASSERT(r->j->n_readers > 0);
    r->j->n_readers--;
    pthread_mutex_unlock(&r->j->lock);
    base_free(r);
}

/* Does the ring lack a change that the reader needs? Under lock. */
static bool reader_is_behind(const cluster_journal_reader *r) {
    BASE_ASSERT(r->after <= r->j->seq); /* a reader with a later one gets a snapshot */
    return r->j->seq - r->after > RING;
}

static bool reader_load_is_due(const cluster_journal_reader *r, uint64_t now_us) {
    if (r->j->load_version == 0) return false;
    if (r->load_version == 0) return true;
    const uint64_t every = r->load_version != r->j->load_version ? CLUSTER_LOAD_EVERY_US : CLUSTER_DIGEST_EVERY_US;
    return now_us >= r->load_us + every;
}

/* The next frame and its data, copied under the lock. */
typedef struct reader_next {
    enum { NEXT_NOTHING,
           NEXT_HELLO,
           NEXT_SNAPSHOT,
           NEXT_NAMES,
           NEXT_CHANGES,
           NEXT_LOAD,
           NEXT_DIGEST } what;
    size_t n;                  /* names or changes in r->piece */
    uint64_t seq, names;       /* of a snapshot */
    cluster_index_place place; /* position after these names */
    cluster_load load;
    uint64_t load_version;
} reader_next;

static void reader_choose(cluster_journal_reader *r, uint64_t now_us, reader_next *next) {
    cluster_journal *j = r->j;
    next->what = NEXT_NOTHING;
    if (r->number == 0) {
        next->what = NEXT_HELLO;
    } else if (reader_load_is_due(r, now_us)) {
        next->what = NEXT_LOAD;
        next->load = j->load;
        next->load_version = j->load_version;
    } else if (r->wants_snapshot || reader_is_behind(r)) {
        next->what = NEXT_SNAPSHOT;
        next->seq = j->seq;
        next->names = cluster_index_count(j->table);
    } else {
        if (!r->in_snapshot && !r->has_digest && now_us >= r->digest_due_us) {
            r->digest = journal_digest_locked(j);
            r->has_digest = true;
        }
        if (r->has_digest && r->after == r->digest.seq) next->what = NEXT_DIGEST;
        else if (r->after < j->seq) { /* changes after the reader's last one, up to the seq of its digest */
            const uint64_t until = r->has_digest ? r->digest.seq : j->seq;
            BASE_ASSERT(r->after < until && until <= j->seq && j->seq - r->after <= RING); /* the ring has them */
            next->n = (size_t)BASE_MIN(until - r->after, (uint64_t)CLUSTER_PIECE);
            for (size_t i = 0; i < next->n; i++) r->piece[i] = j->ring[(r->after + 1 + i) % RING];
            next->what = NEXT_CHANGES;
        } else if (r->in_snapshot) {
            next->place = r->place;
            next->n = cluster_index_walk(j->table, ONLY, &next->place, r->piece, CLUSTER_PIECE);
            next->what = NEXT_NAMES;
        }
    }
}

/* Writes the frame, and advances the reader if that succeeds. */
static int reader_write(cluster_journal_reader *r, uint64_t now_us, const reader_next *next, base_buffer *out) {
    const uint64_t number = r->number;
    int rc = RP_OK;
    switch (next->what) {
    case NEXT_NOTHING: return RP_OK;
    case NEXT_HELLO: rc = cluster_write_hello(out, &r->key, number, &r->j->hello); break;
    case NEXT_SNAPSHOT:
        if ((rc = cluster_write_snapshot(out, &r->key, number, next->seq, next->names))) break;
        r->wants_snapshot = r->has_digest = false;
        r->in_snapshot = true;
        r->place = (cluster_index_place){0};
        r->after = next->seq;
        break;
    case NEXT_NAMES:
        BASE_ASSERT(r->in_snapshot);
        if ((rc = cluster_write_names(out, &r->key, number, r->piece, next->n))) break;
        r->place = next->place;
        if (next->n == 0) { /* the snapshot is complete: a digest follows at once */
            r->in_snapshot = false;
            r->digest_due_us = 0;
        }
        break;
    case NEXT_CHANGES:
        if ((rc = cluster_write_changes(out, &r->key, number, r->after + 1, r->piece, next->n))) break;
        r->after += next->n;
        break;
    case NEXT_LOAD:
        if ((rc = cluster_write_load(out, &r->key, number, &next->load))) break;
        r->load_us = now_us;
        r->load_version = next->load_version;
        break;
    case NEXT_DIGEST:
        BASE_ASSERT(r->has_digest && r->after == r->digest.seq); /* it includes exactly the changes before it */
        if ((rc = cluster_write_digest(out, &r->key, number, &r->digest))) break;
        r->has_digest = false;
        r->digest_due_us = now_us + CLUSTER_DIGEST_EVERY_US;
        break;
    }
    if (rc == RP_OK) r->number++;
    return rc;
}

int cluster_journal_read(cluster_journal_reader *r, uint64_t now_us, size_t most, base_buffer *out, uint64_t *next_us) {
    const size_t before = out->len;
    reader_next next = {.what = NEXT_HELLO};
    int rc = RP_OK;
    while (rc == RP_OK && next.what != NEXT_NOTHING && out->len - before < most) {
        pthread_mutex_lock(&r->j->lock);
        reader_choose(r, now_us, &next);
        pthread_mutex_unlock(&r->j->lock);
        rc = reader_write(r, now_us, &next, out);
    }
    pthread_mutex_lock(&r->j->lock);
    *next_us = r->in_snapshot || r->has_digest ? 0 : r->digest_due_us; /* when a frame is due without a change */
    if (r->j->load_version != 0) {
        const uint64_t every = r->load_version != r->j->load_version ? CLUSTER_LOAD_EVERY_US : CLUSTER_DIGEST_EVERY_US;
        *next_us = BASE_MIN(*next_us, r->load_us + every);
    }
    pthread_mutex_unlock(&r->j->lock);
    return rc;
}

bool cluster_journal_is_ready(cluster_journal_reader *r, uint64_t now_us) {
    pthread_mutex_lock(&r->j->lock);
    const bool ready = r->number == 0 || r->wants_snapshot || r->in_snapshot || r->has_digest ||
                       r->after != r->j->seq || now_us >= r->digest_due_us || reader_load_is_due(r, now_us);
    pthread_mutex_unlock(&r->j->lock);
    return ready;
}
