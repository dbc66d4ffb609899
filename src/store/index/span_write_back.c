/* SPDX-License-Identifier: Apache-2.0 */
/* span_write_back.c: see span_write_back.h. */
#include "store/index/span_write_back.h"

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "reprise_store.h"

#define NONE SPAN_INDEX_NONE
/* Limits on the KV that waits for the disk, in bytes and as a share of the KV in RAM: it cannot be reclaimed
 * meanwhile. */
#define MOST_QUEUED_BYTES ((uint64_t)64 << 20)
#define QUEUED_SHARE 8
#define MOST_QUEUED 64 /* two groups of writes that share syncs in the disk tier */
/* The writer's share of a processor, 1/N, while requests are computed: doubled from LEAST_SHARE on with each
 * SHARE_STEPth of most_queued() in the queue. Chosen, not measured: only 1/32 was (docs/performance.md). Text used once
 * is worth less. */
#define LEAST_SHARE 32U
#define MOST_SHARE 4U
#define MOST_SHARE_ONCE 16U
#define SHARE_STEPS 4
#define QUIET_US 1000000
#define ONCE_SHARE 2 /* of the disk budget */
/* A third of the limit is for the start of a write; the others are for the syncs of its group, which are at most
 * about as many as were made in the first third, and for the index. */
#define BEGIN_US (SPAN_WRITE_LAG_LIMIT_US / 3)
/* Chosen: without it 5 GB were written in 5 minutes into a budget of 60 MB (docs/performance.md); budgets of
 * gigabytes never reach it. */
#define TURNOVER_US 60000000.0
/* Delay after a failed write: the next one would probably fail too. */
#define RETRY_US 10000000

typedef enum span_disk_fit {
    DISK_FITS,
    DISK_FITS_LATER,
    DISK_FITS_NEVER,
} span_disk_fit;

static span_entry *entry_at(const span_write_back *w, uint32_t i) { return &w->places->index.entries[i]; }
static uint32_t oldest_in(const span_write_back *w, span_list_kind list) { return w->places->index.lists[list].oldest; }

void span_write_back_init(span_write_back *w, span_places *places) {
    *w = (span_write_back){.places = places, .share = LEAST_SHARE};
}

bool span_write_back_is_on(const span_write_back *w) { return w->places->tier && w->mode != SPAN_STORE_WRITE_OFF; }

/* ---- victims on disk ---- */

uint64_t span_write_back_limit(const span_write_back *w) {
    const uint64_t budget = w->places->budget.bytes[TIER_DISK], overhead = tier_measure(w->places->tier).overhead_bytes;
    return budget > overhead ? budget - overhead : 0;
}

/* Removes the record of the lowest priority: of a group, or of all. about: unless it would be kept longer than that. */
static span_disk_fit evict_record(span_write_back *w, uint32_t group, const eviction_item *about) {
    span_places *p = w->places;
    const uint32_t i = span_budget_victim(&p->budget, TIER_DISK, group);
    if (i == EVICTION_NONE) return oldest_in(w, LIST_WRITING) == NONE ? DISK_FITS_NEVER : DISK_FITS_LATER;
    BASE_ASSERT(entry_at(w, i)->places[TIER_DISK].is_written && entry_at(w, i)->waits != LIST_WRITING);
    if (about && !eviction_outranks(p->budget.tiers[TIER_DISK], about, i)) return DISK_FITS_NEVER;
    span_places_leave_disk(p, i, TIER_EVICT, true);
    p->stats.disk_evictions++;
    span_places_settle(p, i);
    return DISK_FITS;
}

static bool is_free(const span_write_back *w, uint32_t tenant, uint64_t bytes) {
    const span_places *p = w->places;
    return span_budget_fits_quota(&p->budget, tenant, TIER_DISK, bytes) &&
           p->stats.disk_bytes + bytes <= span_write_back_limit(w);
}

/* Frees that many bytes on disk for a tenant. about: only if it would be kept longer than the victims; NULL: in any
 * case. */
static span_disk_fit make_disk_space(span_write_back *w, uint32_t tenant, uint64_t bytes, const eviction_item *about) {
    const span_budget *b = &w->places->budget;
    const uint64_t most = span_write_back_limit(w);
    span_disk_fit fit = DISK_FITS;
    if (bytes > most || bytes > span_budget_quota(b, tenant, TIER_DISK)) return DISK_FITS_NEVER;
    while (fit == DISK_FITS && !span_budget_fits_quota(b, tenant, TIER_DISK, bytes))
        fit = evict_record(w, span_budget_group(b, tenant), about);
    while (fit == DISK_FITS && w->places->stats.disk_bytes + bytes > most) fit = evict_record(w, EVICTION_NONE, about);
    BASE_ASSERT(fit != DISK_FITS ||
                (w->places->stats.disk_bytes + bytes <= most && span_budget_fits_quota(b, tenant, TIER_DISK, bytes)));
    return fit;
}

void span_write_back_fit(span_write_back *w) {
    if (!span_write_back_is_on(w)) return;
    const span_budget *b = &w->places->budget;
    for (size_t k = 0; k < b->n_quotas; k++) make_disk_space(w, b->quotas[k].tenant, 0, NULL);
    make_disk_space(w, 0, 0, NULL);
}

/* ---- queues ---- */

static uint64_t most_queued(const span_write_back *w) {
    return BASE_MIN(w->places->budget.bytes[TIER_MEMORY] / QUEUED_SHARE, MOST_QUEUED_BYTES);
}

/* Moves a waiting entry to another list, as its newest. */
static void queue_again(span_write_back *w, span_list_kind list, uint32_t i) {
    span_places_unqueue(w->places, i);
    span_places_queue(w->places, list, i);
}

/* Does not admit it; its row stays, for a second use. */
static void skip_write(span_write_back *w, uint32_t i) {
    BASE_ASSERT(entry_at(w, i)->waits == LIST_ONCE &&
                entry_at(w, i)->row); /* what is due is written, or is counted as late */
    span_places_unqueue(w->places, i);
    w->places->stats.disk_skipped++;
}

/* The latest start of the write of a due span. None: with write-through, where callers wait; of modules and pins, which
 * were requested; and of the flush at the end. */
static uint64_t begin_by(const span_write_back *w, const span_entry *e, uint64_t since) {
    const bool waits =
        w->mode == SPAN_STORE_WRITE_THROUGH || w->closing || e->use.pinned || record_is_of_module(e->kind);
    return waits ? UINT64_MAX : since + BEGIN_US;
}

/* Late due text is written when nothing is due. */
static void demote(span_write_back *w, uint32_t i) {
    BASE_ASSERT(entry_at(w, i)->row && w->mode != SPAN_STORE_WRITE_THROUGH);
    w->places->stats.disk_late++;
    entry_at(w, i)->since_us = base_clock_us();
    queue_again(w, LIST_ONCE, i);
}

/* The oldest come first in the list. */
static void demote_late(span_write_back *w) {
    const uint64_t now = base_clock_us();
    for (uint32_t i = oldest_in(w, LIST_DUE), next; i != NONE && entry_at(w, i)->since_us + BEGIN_US < now; i = next) {
        next = entry_at(w, i)->links[LIST_DUE].newer;
        if (begin_by(w, entry_at(w, i), entry_at(w, i)->since_us) < now) demote(w, i);
    }
}

bool span_write_back_has_queued(const span_write_back *w) {
    return oldest_in(w, LIST_DUE) != NONE || oldest_in(w, LIST_ONCE) != NONE || oldest_in(w, LIST_WRITING) != NONE;
}

bool span_write_back_has_pins(const span_write_back *w) {
    if (w->closing || base_clock_us() < w->retry_us) return false;
    for (uint32_t i = oldest_in(w, LIST_DUE); i != NONE; i = entry_at(w, i)->links[LIST_DUE].newer)
        if (entry_at(w, i)->use.pinned) return true;
    return false;
}

/* ---- writing ---- */

/* Passes an entry's row and its span to the tier, which owns the row from here. false: no memory. */
static bool pass_to_tier(span_write_back *w, uint32_t i, uint64_t bytes, uint64_t since) {
    span_places *p = w->places;
    span_entry *e = entry_at(w, i);
    bool is_own;
    BASE_ASSERT(span_write_back_is_on(w) && e->waits == LIST_MEMORY && base_key_equal(&e->row->record.key, &e->key));
    kv_span_form *form = span_places_copy_form(p, &e->row->record.form, e->row->n_layers, &is_own);
    if (!form) return false;
    if (span_entry_is_in(e, TIER_DISK)) span_places_lose_disk(p, i, false); /* unreadable: the new record replaces it */
    if (span_places_enter_disk(p, i, form, is_own, bytes, 0)) {
        base_free(form);
        return false;
    }
    e->row->use = e->use;
    e->is_noted = true;
    if (tier_write(p->tier, e->row, e->span, begin_by(w, e, since)) != RP_OK) {
        span_places_lose_disk(p, i, false);
        return false;
    }
    e->row = NULL;
    e->places[TIER_DISK].serial = p->tier->serial;
    return true;
}

static bool is_quiet(const span_write_back *w) {
    return w->closing || (!w->computing && base_clock_us() >= w->quiet_us + QUIET_US);
}

/* Does the tier accept one more write now? */
static bool is_accepted(const span_write_back *w, const span_entry *e) {
    const store_tier *t = w->places->tier;
    if (w->mode == SPAN_STORE_WRITE_THROUGH || t->queued_bytes == 0) return true;
    return t->n_queued < MOST_QUEUED && t->queued_bytes + kv_span_bytes(e->span) <= most_queued(w);
}

/* The reference that the write takes must not use reserved blocks. */
static bool leaves_reserved(const span_write_back *w, const span_entry *e) {
    if (span_entry_place(e) == TIER_RAM) return true;
    const int64_t blocks = (int64_t)(kv_span_bytes(e->span) / kv_pool_block_bytes(w->places->pool));
    return span_entry_is_held(e) || blocks <= span_places_free_blocks(w->places);
}

/* May text of that many bytes replace records now? The allowance grows with time, up to the disk budget. */
static bool may_replace(span_write_back *w, uint64_t bytes) {
    const uint64_t now = base_clock_us(), limit = span_write_back_limit(w);
    const double grown = (double)(now - w->allowed_us) / TURNOVER_US * (double)limit;
    w->allowed_bytes = (uint64_t)BASE_MIN((double)w->allowed_bytes + grown, (double)limit);
    w->allowed_us = now;
    return bytes <= w->allowed_bytes;
}

/* Text that may not replace records now waits for free space, or for the next use. At the end of the engine it is not
 * written. */
static bool postpone(span_write_back *w, uint32_t i) {
    const bool is_once = entry_at(w, i)->waits == LIST_ONCE;
    if (is_once && !w->closing) return false;
    if (is_once) skip_write(w, i);
    else queue_again(w, LIST_ONCE, i);
    return true;
}

/* Starts the write of a queued entry; false: not now. */
static bool begin_write(span_write_back *w, uint32_t i) {
    span_places *p = w->places;
    span_entry *e = entry_at(w, i);
    BASE_ASSERT(e->row && e->span);
    const bool through = w->mode == SPAN_STORE_WRITE_THROUGH, is_once = e->waits == LIST_ONCE,
               is_text = record_is_of_text(e->kind);
    const uint64_t bytes = tier_record_bytes(p->tier, &e->row->record), since = is_once ? base_clock_us() : e->since_us;
    if (!is_accepted(w, e) || !leaves_reserved(w, e)) return false;
    const bool replaces = !is_free(w, e->tenant, bytes), is_limited = replaces && is_text && !e->use.pinned && !through;
    if (is_once && replaces && !is_quiet(w)) return false;
    if (is_limited && !may_replace(w, bytes)) return postpone(w, i);
    const eviction_item about = span_budget_item(&p->budget, TIER_DISK, i, bytes, 0);
    const span_disk_fit fit = make_disk_space(w, e->tenant, bytes, is_text && !through ? &about : NULL);
    if (fit == DISK_FITS_LATER && !through) return false;
    if (fit != DISK_FITS && is_once) {
        skip_write(w, i);
        return true;
    }
    span_places_unqueue(p, i);
    if (fit != DISK_FITS || !pass_to_tier(w, i, bytes, since)) {
        base_free(e->row);
        e->row = NULL;
        p->stats.disk_unwritten++;
        return true;
    }
    BASE_ASSERT(!is_limited || w->allowed_bytes >= bytes);
    if (is_limited) w->allowed_bytes -= bytes;
    e->since_us = since;
    span_places_queue(p, LIST_WRITING, i);
    return true;
}

/* Does not admit text used once that would be evicted before the rest of the list was written. */
static void thin_out(span_write_back *w) {
    const uint64_t most = span_write_back_limit(w) / ONCE_SHARE;
    const span_list *once = &w->places->index.lists[LIST_ONCE];
    while (w->places->waiting_bytes[LIST_ONCE] > most && once->oldest != once->newest) skip_write(w, once->oldest);
}

/* Only while requests are computed: nobody is delayed otherwise, and with write-through requests wait for the
   writes. */
static void apply_share(const span_write_back *w) {
    if (w->places->tier)
        tier_set_share(w->places->tier, w->computing && w->mode == SPAN_STORE_WRITE_BACK ? w->share : 1);
}

/* The writer's share grows with the queue. */
static void set_share(span_write_back *w) {
    const uint64_t *waiting = w->places->waiting_bytes, step = most_queued(w) / SHARE_STEPS + 1,
                   due = waiting[LIST_DUE] + waiting[LIST_WRITING];
    const uint64_t doubled = BASE_MIN(due / step, SHARE_STEPS),
                   doubled_once = BASE_MIN((due + waiting[LIST_ONCE]) / step, SHARE_STEPS);
    const uint32_t share = BASE_MAX(LEAST_SHARE >> doubled, MOST_SHARE),
                   once = BASE_MAX(LEAST_SHARE >> doubled_once, MOST_SHARE_ONCE);
    w->share = BASE_MIN(share, once);
    BASE_ASSERT(w->share >= MOST_SHARE && w->share <= LEAST_SHARE);
    apply_share(w);
}

static void write_list(span_write_back *w, span_list_kind list) {
    for (uint32_t i = oldest_in(w, list); i != NONE; i = oldest_in(w, list))
        if (!begin_write(w, i)) return;
}

void span_write_back_continue(span_write_back *w) {
    if (!span_write_back_is_on(w)) return;
    demote_late(w);
    if (base_clock_us() < w->retry_us) return;
    thin_out(w);
    set_share(w);
    write_list(w, LIST_DUE);
    if (oldest_in(w, LIST_DUE) == NONE) write_list(w, LIST_ONCE);
    /* writes that are refused now are tried again after another quiet period */
    if (is_quiet(w) && oldest_in(w, LIST_WRITING) == NONE) w->quiet_us = base_clock_us();
}

void span_write_back_add(span_write_back *w, uint32_t i, const record *r, bool seen) {
    span_entry *e = entry_at(w, i);
    if (!span_write_back_is_on(w)) return;
    BASE_ASSERT(e->span && !e->row && e->waits == LIST_MEMORY);
    e->row = record_row_new(r, e->span, w->fingerprint);
    if (!e->row) {
        w->places->stats.disk_unwritten++;
        return;
    }
    const bool is_due = w->mode == SPAN_STORE_WRITE_THROUGH || record_is_of_module(e->kind) || e->use.uses > 1 || seen;
    e->since_us = base_clock_us();
    span_places_queue(w->places, is_due ? LIST_DUE : LIST_ONCE, i);
    span_write_back_continue(w);
}

void span_write_back_sooner(span_write_back *w, uint32_t i) {
    span_entry *e = entry_at(w, i);
    if (!e->row || e->waits == LIST_DUE) return;
    e->since_us = base_clock_us();
    queue_again(w, LIST_DUE, i);
}

void span_write_back_set_computing(span_write_back *w, bool computing) {
    if (w->computing && !computing) w->quiet_us = base_clock_us();
    w->computing = computing;
    apply_share(w);
}

int64_t span_write_back_wait_ms(const span_write_back *w) {
    if (!span_write_back_is_on(w) || w->computing || oldest_in(w, LIST_WRITING) != NONE) return -1;
    const uint32_t oldest = oldest_in(w, LIST_DUE);
    uint64_t now = base_clock_us(), due = UINT64_MAX;
    if (oldest_in(w, LIST_ONCE) != NONE) due = BASE_MAX(w->quiet_us + QUIET_US, w->retry_us);
    if (oldest != NONE && begin_by(w, entry_at(w, oldest), entry_at(w, oldest)->since_us) != UINT64_MAX)
        due = BASE_MIN(due, entry_at(w, oldest)->since_us + BEGIN_US + 1);
    if (due == UINT64_MAX) return -1;
    return now >= due ? 0 : (int64_t)((due - now + 999) / 1000);
}

/* ---- events ---- */

/* The tier returns the row of a late write. */
static void take_late(span_write_back *w, uint32_t i, record_row *row) {
    span_entry *e = entry_at(w, i);
    BASE_ASSERT(base_key_equal(&row->record.key, &e->key) && !e->places[TIER_DISK].is_written);
    span_places_lose_disk(w->places, i, false);
    if (!e->span || e->row) {
        base_free(row);
        w->places->stats.disk_late++;
        return;
    }
    e->row = row;
    demote(w, i);
}

static void take_failure(span_write_back *w, const tier_event *event) {
    rp_store_stats *stats = &w->places->stats;
    const bool is_cancelled = event->err.code == RP_ERR_CANCELLED; /* it was erased, or the deadline has passed */
    stats->disk_unwritten += !is_cancelled || w->closing;
    if (is_cancelled) return;
    stats->disk_state = RP_STORE_UNWRITTEN;
    stats->disk_trouble = tier_trouble_name(event->cause);
    w->retry_us = base_clock_us() + RETRY_US;
    base_log(w->reported_failure ? BASE_LOG_DEBUG : BASE_LOG_WARN, "store: %s: continuing without writing",
             event->err.message);
    w->reported_failure = true;
}

/* Writes are accepted again. */
static void take_success(span_write_back *w, const tier_event *event) {
    rp_store_stats *stats = &w->places->stats;
    stats->disk_writes++;
    stats->disk_write_bytes += event->bytes;
    stats->disk_state = RP_STORE_WORKS;
    stats->disk_trouble = "";
    w->reported_failure = false;
}

void span_write_back_take(span_write_back *w, const tier_event *event) {
    span_places *p = w->places;
    const uint32_t i = span_index_find(&p->index, &event->key);
    BASE_ASSERT(event->kind == TIER_WRITTEN);
    w->flushed = event->serial;
    if (!event->failed) take_success(w, event);
    else if (!event->late) take_failure(w, event);
    const span_place *disk = i == NONE ? NULL : &entry_at(w, i)->places[TIER_DISK];
    if (!disk || !disk->is_there || disk->serial != event->serial)
        base_free(event->late); /* it was removed meanwhile */
    else if (event->late) take_late(w, i, event->late);
    else if (event->failed) span_places_lose_disk(p, i, false);
    else span_places_set_written(p, i, event->bytes);
}
