/* SPDX-License-Identifier: Apache-2.0 */
/* span_store_write.c: see span_store.h: write-back: which spans are written to disk, when, and which records they
 * replace.
 *
 *             module, text used twice or remembered ----> LIST_DUE ----+
 *   put ---->                                                         +--> LIST_WRITING (disk_tier.h) --> on disk
 *             text used once --> LIST_ONCE ---------------------------+        late text: to LIST_ONCE
 *                                  |  second use: LIST_DUE
 *                                  +--> not admitted: its row stays with it; second use: LIST_DUE
 *
 * Most text is used once (docs/eviction.md), and its writes compete with requests for disk and processor. Therefore
 *
 *   due       is written first, oldest first. The more bytes are queued, the larger the writer's share of a processor,
 *             up to 1/MOST_SHARE: the queue stays within about most_queued()
 *   once      is written when nothing is due: at any time into free space on disk, and after QUIET_US without
 *             computation also in place of records that eviction would select. Of more bytes than half of the disk
 *             budget the oldest are not admitted: they would be evicted first
 *   turnover  text replaces records on disk at most as fast as TURNOVER_US replaces all of them: a working set that
 *             does not fit would wear out the disk, and each record would be evicted before its next use. Text beyond
 *             it waits in LIST_ONCE
 *   victims   text is admitted to a full disk if the policy would keep it longer than the records it replaces
 *             (eviction_outranks)
 *
 *   late      due text that has waited BEGIN_US without the start of a write is counted (disk_late) and waits in
 *             LIST_ONCE from then on, until its next use: due text is on disk, or no longer due, within
 *             SPAN_STORE_LAG_LIMIT_US. Modules and pinned text stay due
 *
 * The tier gets two groups of writes at a time: the choice is made as late as possible. With write-through everything is
 * due.
 */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/span_store_internal.h"

#define NONE SPAN_STORE_NONE
/* Limits on the KV that waits for the disk, in bytes and as a share of the KV in RAM: it cannot be reclaimed
 * meanwhile. */
#define MOST_QUEUED_BYTES ((uint64_t)64 << 20)
#define QUEUED_SHARE 8
#define MOST_QUEUED 64 /* two groups of writes that share syncs in the disk tier */
/* The writer's share of a processor, 1/N, while requests are computed: doubled from LEAST_SHARE on with
 * each SHARE_STEPth of most_queued() in the queue. Chosen, not measured: only 1/32 was (docs/performance.md). Text
 * used once is worth less. */
#define LEAST_SHARE 32U
#define MOST_SHARE 4U
#define MOST_SHARE_ONCE 16U
#define SHARE_STEPS 4
#define QUIET_US 1000000
#define ONCE_SHARE 2 /* of the disk budget */
/* A third of the limit is for the start of a write; the others are for the syncs of its group, which are at most
 * about as many as were made in the first third, and for the index. */
#define BEGIN_US (SPAN_STORE_LAG_LIMIT_US / 3)
/* Chosen: without it 5 GB were written in 5 minutes into a budget of 60 MB (docs/performance.md); budgets of
 * gigabytes never reach it. */
#define TURNOVER_US 60000000.0
/* Delay after a failed write: the next one would probably fail too. */
#define RETRY_US 10000000

/* ---- victims on disk ---- */

/* Its record is written, and not being read. */
static bool span_store_write_may_go(void *user, uint32_t i) {
    const span_store *s = user;
    const span_entry *e = &s->entries[i];
    return e->file->written && (!e->span || kv_span_layers_ready(e->span) == kv_pool_shape(s->pool)->n_layers);
}

/* Removes the record of the lowest priority: of a group, or of all. about: unless it would be kept longer than that. */
static span_disk_fit span_store_write_give_one(span_store *s, uint32_t group, const eviction_item *about) {
    uint32_t i = eviction_victim(s->tiers[TIER_DISK], group, span_store_write_may_go, s);
    if (i == EVICTION_NONE) return s->lists[LIST_WRITING].newest == NONE ? DISK_FITS_NEVER : DISK_FITS_LATER;
    if (about && !eviction_outranks(s->tiers[TIER_DISK], about, i)) return DISK_FITS_NEVER;
    span_store_leave_disk(s, i, TIER_EVICT, true);
    s->stats.disk_evictions++;
    if (!s->entries[i].span) span_store_forget(s, i);
    return DISK_FITS;
}

static bool is_within_quota(const span_store *s, uint32_t tenant, uint64_t bytes) {
    return eviction_group_bytes(s->tiers[TIER_DISK], span_store_group(s, tenant)) + bytes <= span_store_quota(s, tenant, TIER_DISK);
}

static bool span_store_write_is_free(const span_store *s, uint32_t tenant, uint64_t bytes) {
    return is_within_quota(s, tenant, bytes) && s->stats.disk_bytes + bytes <= span_store_disk_limit(s);
}

span_disk_fit span_store_make_disk_space(span_store *s, uint32_t tenant, uint64_t bytes, const eviction_item *about) {
    uint64_t most = span_store_disk_limit(s);
    span_disk_fit room = DISK_FITS;
    if (bytes > most || bytes > span_store_quota(s, tenant, TIER_DISK)) return DISK_FITS_NEVER;
    while (room == DISK_FITS && !is_within_quota(s, tenant, bytes)) room = span_store_write_give_one(s, span_store_group(s, tenant), about);
    while (room == DISK_FITS && s->stats.disk_bytes + bytes > most) room = span_store_write_give_one(s, EVICTION_NONE, about);
    return room;
}

/* ---- queues ---- */

static uint64_t most_queued(const span_store *s) {
    return BASE_MIN(kv_pool_get_stats(s->pool).budget_bytes / QUEUED_SHARE, MOST_QUEUED_BYTES);
}

static void wait_in(span_store *s, span_list_kind list, uint32_t i) {
    span_entry *e = &s->entries[i];
    BASE_ASSERT(e->waits == LIST_RAM && e->span && (e->row || list == LIST_WRITING));
    e->waits = list;
    e->wait_bytes = kv_span_bytes(e->span);
    s->waiting_bytes[list] += e->wait_bytes;
    s->stats.disk_waiting++;
    span_store_link(s, list, i);
}

/* Removes the entry from its list. */
static void leave_list(span_store *s, uint32_t i) {
    span_entry *e = &s->entries[i];
    if (e->waits == LIST_RAM) return;
    span_store_unlink(s, e->waits, i);
    BASE_ASSERT(s->waiting_bytes[e->waits] >= e->wait_bytes && s->stats.disk_waiting > 0);
    s->waiting_bytes[e->waits] -= e->wait_bytes;
    s->stats.disk_waiting--;
    e->waits = LIST_RAM;
}

void span_store_end_write(span_store *s, uint32_t i) {
    if (s->entries[i].waits == LIST_WRITING) leave_list(s, i);
}

void span_store_stop_waiting(span_store *s, uint32_t i, bool is_lost) {
    span_entry *e = &s->entries[i];
    if (!e->row) return;
    if (is_lost && e->waits == LIST_DUE) s->stats.disk_unwritten++;
    if (is_lost && e->waits == LIST_ONCE) s->stats.disk_skipped++;
    leave_list(s, i);
    base_free(e->row);
    e->row = NULL;
}

/* Does not admit it; its row stays, for a second use. */
static void span_store_write_skip(span_store *s, uint32_t i) {
    leave_list(s, i);
    s->stats.disk_skipped++;
}

/* The latest start of the write of a due span. None: with write-through, where callers wait; of modules and pins, which
 * were requested; and of the flush at the end. */
static uint64_t begin_by(const span_store *s, const span_entry *e, uint64_t since) {
    return s->write == SPAN_STORE_WRITE_THROUGH || s->closing || e->pinned || record_is_of_module(e->kind) ? UINT64_MAX : since + BEGIN_US;
}

/* Late due text is written when nothing is due. */
static void span_store_write_demote(span_store *s, uint32_t i) {
    s->stats.disk_late++;
    s->entries[i].since_us = base_clock_us();
    wait_in(s, LIST_ONCE, i);
}

/* The oldest come first in the list. */
static void demote_late(span_store *s) {
    uint64_t now = base_clock_us();
    for (uint32_t i = s->lists[LIST_DUE].oldest, next; i != NONE && s->entries[i].since_us + BEGIN_US < now; i = next) {
        next = s->entries[i].links[LIST_DUE].newer;
        if (begin_by(s, &s->entries[i], s->entries[i].since_us) >= now) continue;
        leave_list(s, i);
        span_store_write_demote(s, i);
    }
}

/* ---- rows ---- */

/* A copy of a note as a row: one block of memory, with tokens, form and label after the row. */
static record_row *new_row(const span_store *s, const span_entry *e, const span_note *n) {
    int32_t n_layers = kv_pool_shape(s->pool)->n_layers;
    const size_t token_bytes = (size_t)n->n_tokens * sizeof(*n->tokens), form_bytes = kv_span_form_bytes(e->span), label_bytes = strlen(n->label) + 1;
    record_row *row = base_calloc(1, sizeof(*row) + token_bytes + form_bytes + label_bytes);
    if (!row) return NULL;
    int32_t *tokens = (int32_t *)(row + 1);
    void *arrays = tokens + n->n_tokens;
    char *label = (char *)arrays + form_bytes;
    if (token_bytes > 0) memcpy(tokens, n->tokens, token_bytes);
    memcpy(label, n->label, label_bytes);
    const kv_span_form form = kv_span_describe(e->span, arrays);
    *row = (record_row){.record.key = e->key,
                        .record.parent = n->parent,
                        .record.kind = n->kind,
                        .record.at = n->at,
                        .record.first_slot = n->first_slot,
                        .record.n_tokens = n->n_tokens,
                        .record.tokens = tokens,
                        .record.form = form,
                        .record.cost_us = n->cost_us,
                        .record.label = label,
                        .record.tenant = n->tenant,
                        .fingerprint = s->format->fingerprint,
                        .n_layers = n_layers};
    return row;
}

static void take_use(record_row *row, span_entry *e) {
    row->use = (record_use){e->uses, e->last_use, e->expires, e->pinned};
    e->noted = true;
}

/* Passes a row, which the tier owns from here, and its span to the disk. */
static bool span_store_write_row(span_store *s, uint32_t i, record_row *row, uint64_t bytes, uint64_t since) {
    span_file *f = span_store_new_file(s, &row->record.form, row->n_layers);
    if (!f) return false;
    if (s->entries[i].file) span_store_forget_file(s, i, false); /* unreadable: the new record replaces it */
    f->bytes = bytes;
    if (span_store_enter_disk(s, i, f, 0)) {
        base_free(f);
        return false;
    }
    take_use(row, &s->entries[i]);
    if (tier_write(s->tier, row, s->entries[i].span, begin_by(s, &s->entries[i], since)) == RP_OK) {
        f->serial = s->tier->serial;
        return true;
    }
    span_store_forget_file(s, i, false);
    return false;
}

/* ---- writing ---- */

static bool is_quiet(const span_store *s) { return s->closing || (!s->computing && base_clock_us() >= s->quiet_us + QUIET_US); }

/* Does the disk accept one more write now? */
static bool span_store_write_is_taken(const span_store *s, const span_entry *e) {
    uint64_t queued = s->tier->queued_bytes;
    if (s->write == SPAN_STORE_WRITE_THROUGH || queued == 0) return true;
    return s->tier->n_queued < MOST_QUEUED && queued + kv_span_bytes(e->span) <= most_queued(s);
}

/* May text of that many bytes replace records now? The allowance grows with time, up to the disk budget. */
static bool span_store_write_may_replace(span_store *s, uint64_t bytes) {
    uint64_t now = base_clock_us(), limit = span_store_disk_limit(s);
    double grown = (double)(now - s->allowed_us) / TURNOVER_US * (double)limit;
    s->allowed_bytes = (uint64_t)BASE_MIN((double)s->allowed_bytes + grown, (double)limit);
    s->allowed_us = now;
    return bytes <= s->allowed_bytes;
}

/* Text that may not replace records now waits for free space, or for the next use. At the end of the engine it is not
 * written. */
static bool span_store_write_postpone(span_store *s, uint32_t i) {
    bool is_once = s->entries[i].waits == LIST_ONCE;
    if (is_once && !s->closing) return false;
    if (is_once) {
        span_store_write_skip(s, i);
        return true;
    }
    leave_list(s, i);
    wait_in(s, LIST_ONCE, i);
    return true;
}

/* Starts the write of a queued entry; false: not now. */
static bool begin_write(span_store *s, uint32_t i) {
    span_entry *e = &s->entries[i];
    uint64_t bytes = tier_record_bytes(s->tier, &e->row->record), since = e->waits == LIST_ONCE ? base_clock_us() : e->since_us;
    bool through = s->write == SPAN_STORE_WRITE_THROUGH, is_once = e->waits == LIST_ONCE;
    if (!span_store_write_is_taken(s, e)) return false;
    /* the reference that the write takes must not use reserved blocks */
    if (kv_span_is_unshared(e->span) && (int64_t)(kv_span_bytes(e->span) / kv_pool_block_bytes(s->pool)) > span_store_free_blocks(s)) return false;
    bool replaces = !span_store_write_is_free(s, e->tenant, bytes), is_limited = replaces && e->kind == RECORD_TEXT && !e->pinned && !through;
    if (is_once && replaces && !is_quiet(s)) return false;
    if (is_limited && !span_store_write_may_replace(s, bytes)) return span_store_write_postpone(s, i);
    eviction_item about = span_store_item(s, TIER_DISK, i, bytes, 0);
    span_disk_fit room = span_store_make_disk_space(s, e->tenant, bytes, e->kind == RECORD_TEXT && !through ? &about : NULL);
    if (room == DISK_FITS_LATER && !through) return false;
    if (room != DISK_FITS && is_once) {
        span_store_write_skip(s, i);
        return true;
    }
    leave_list(s, i);
    if (room == DISK_FITS && span_store_write_row(s, i, e->row, bytes, since)) {
        e->row = NULL;
        e->since_us = since;
        BASE_ASSERT(!is_limited || s->allowed_bytes >= bytes);
        if (is_limited) s->allowed_bytes -= bytes;
        wait_in(s, LIST_WRITING, i);
        return true;
    }
    base_free(e->row);
    e->row = NULL;
    s->stats.disk_unwritten++;
    return true;
}

/* Does not admit text used once that would be evicted before the rest of the list was written. */
static void span_store_write_thin_out(span_store *s) {
    uint64_t most = span_store_disk_limit(s) / ONCE_SHARE;
    while (s->waiting_bytes[LIST_ONCE] > most && s->lists[LIST_ONCE].oldest != s->lists[LIST_ONCE].newest)
        span_store_write_skip(s, s->lists[LIST_ONCE].oldest);
}

/* Only while requests are computed: nobody is delayed otherwise, and with write-through requests wait for the writes. */
static void apply_share(span_store *s) {
    tier_set_share(s->tier, s->computing && s->write == SPAN_STORE_WRITE_BACK ? s->share : 1);
}

/* The writer's share grows with the queue. */
static void set_share(span_store *s) {
    uint64_t step = most_queued(s) / SHARE_STEPS + 1, due = s->waiting_bytes[LIST_DUE] + s->waiting_bytes[LIST_WRITING];
    uint64_t doubled = BASE_MIN(due / step, SHARE_STEPS), doubled_once = BASE_MIN((due + s->waiting_bytes[LIST_ONCE]) / step, SHARE_STEPS);
    uint32_t share = BASE_MAX(LEAST_SHARE >> doubled, MOST_SHARE), once = BASE_MAX(LEAST_SHARE >> doubled_once, MOST_SHARE_ONCE);
    s->share = BASE_MIN(share, once);
    apply_share(s);
}

static void write_list(span_store *s, span_list_kind list) {
    for (uint32_t i = s->lists[list].oldest; i != NONE; i = s->lists[list].oldest)
        if (!begin_write(s, i)) return;
}

void span_store_write_waiting(span_store *s) {
    if (!span_store_can_write(s)) return;
    demote_late(s);
    if (base_clock_us() < s->retry_us) return;
    span_store_write_thin_out(s);
    set_share(s);
    write_list(s, LIST_DUE);
    if (s->lists[LIST_DUE].oldest == NONE) write_list(s, LIST_ONCE);
    /* writes that are refused now are tried again after another quiet period */
    if (is_quiet(s) && s->lists[LIST_WRITING].oldest == NONE) s->quiet_us = base_clock_us();
}

void span_store_write_entry(span_store *s, uint32_t i, const span_note *note, bool seen) {
    span_entry *e = &s->entries[i];
    if (!span_store_can_write(s)) return;
    e->row = new_row(s, e, note);
    if (!e->row) {
        s->stats.disk_unwritten++;
        return;
    }
    bool is_due = s->write == SPAN_STORE_WRITE_THROUGH || record_is_of_module(e->kind) || e->uses > 1 || seen;
    e->since_us = base_clock_us();
    wait_in(s, is_due ? LIST_DUE : LIST_ONCE, i);
    span_store_write_waiting(s);
}

void span_store_write_sooner(span_store *s, uint32_t i) {
    span_entry *e = &s->entries[i];
    if (!e->row || e->waits == LIST_DUE) return;
    leave_list(s, i);
    e->since_us = base_clock_us();
    wait_in(s, LIST_DUE, i);
}

void span_store_set_computing(span_store *s, bool computing) {
    if (s->computing && !computing) s->quiet_us = base_clock_us();
    s->computing = computing;
    if (!s->share) s->share = LEAST_SHARE;
    if (s->tier) apply_share(s);
}

int64_t span_store_wait_ms(const span_store *s) {
    if (!span_store_can_write(s) || s->computing || s->lists[LIST_WRITING].oldest != NONE) return -1;
    uint32_t oldest = s->lists[LIST_DUE].oldest;
    uint64_t now = base_clock_us(), due = UINT64_MAX;
    if (s->lists[LIST_ONCE].oldest != NONE) due = BASE_MAX(s->quiet_us + QUIET_US, s->retry_us);
    if (oldest != NONE && begin_by(s, &s->entries[oldest], s->entries[oldest].since_us) != UINT64_MAX)
        due = BASE_MIN(due, s->entries[oldest].since_us + BEGIN_US + 1);
    if (due == UINT64_MAX) return -1;
    return now >= due ? 0 : (int64_t)((due - now + 999) / 1000);
}

/* ---- events of the disk tier ---- */

/* The tier returns the row of a late write. */
static void take_late(span_store *s, uint32_t i, record_row *row) {
    span_entry *e = &s->entries[i];
    span_store_forget_file(s, i, false);
    if (!e->span || e->row || e->failed) {
        base_free(row);
        s->stats.disk_late++;
        return;
    }
    e->row = row;
    span_store_write_demote(s, i);
}

static void fail_write(span_store *s, const tier_event *event) {
    bool is_cancelled = event->err.code == RP_ERR_CANCELLED; /* it was erased, or the deadline has passed */
    s->stats.disk_unwritten += !is_cancelled || s->closing;
    if (is_cancelled) return;
    s->stats.disk_state = RP_STORE_UNWRITTEN;
    s->stats.disk_trouble = tier_trouble_name(event->cause);
    s->retry_us = base_clock_us() + RETRY_US;
    base_log(s->reported_failure ? BASE_LOG_DEBUG : BASE_LOG_WARN, "store: %s: continuing without writing", event->err.message);
    s->reported_failure = true;
}

/* After a successful write: writes are accepted again. */
static void span_store_write_mend(span_store *s) {
    s->stats.disk_state = RP_STORE_WORKS;
    s->stats.disk_trouble = "";
}

void span_store_take_write(span_store *s, const tier_event *event) {
    uint32_t i = span_store_find(s, &event->key);
    span_file *f = i == NONE ? NULL : s->entries[i].file;
    s->flushed = event->serial;
    if (event->failed && !event->late) fail_write(s, event);
    else if (!event->failed) s->stats.disk_writes++, s->stats.disk_write_bytes += event->bytes, s->reported_failure = false, span_store_write_mend(s);
    if (!f || f->serial != event->serial) { /* it was removed meanwhile */
        base_free(event->late);
        return;
    }
    if (event->late) {
        take_late(s, i, event->late);
        return;
    }
    if (event->failed) {
        span_store_forget_file(s, i, false);
        return;
    }
    span_store_end_write(s, i);
    f->written = true;
    span_store_set_cost(s, i);
    span_store_report(s, i);
    s->stats.disk_bytes -= f->bytes - event->bytes;
    f->bytes = event->bytes;
}

size_t span_store_flush(span_store *s, uint64_t deadline_us) {
    span_store_set_computing(s, false);
    s->closing = true;
    tier_set_deadline(s->tier, deadline_us);
    uint64_t before = s->stats.disk_unwritten, bytes = 0;
    while ((s->lists[LIST_DUE].oldest != NONE || s->lists[LIST_ONCE].oldest != NONE || s->lists[LIST_WRITING].oldest != NONE) &&
           base_clock_us() < deadline_us && base_clock_us() >= s->retry_us) {
        uint64_t n = s->stats.disk_waiting;
        span_store_poll(s);
        if (s->stats.disk_waiting != n) continue;
        if (!tier_measure(s->tier).is_busy) break; /* it waits for memory, which nobody frees any more */
        tier_wait(s->tier);
    }
    s->write = SPAN_STORE_WRITE_OFF; /* nothing more is started; the tier's writes end soon */
    while (s->lists[LIST_WRITING].oldest != NONE && tier_measure(s->tier).is_busy) {
        tier_wait(s->tier);
        span_store_poll(s);
    }
    for (int list = LIST_DUE; list < N_LISTS; list++) bytes += s->waiting_bytes[list];
    size_t n_lost = (size_t)(s->stats.disk_waiting + s->stats.disk_unwritten - before);
    if (n_lost > 0)
        base_log(BASE_LOG_WARN, "store: %zu spans (%llu KV bytes) were not written before the end: they are recomputed when needed",
                 n_lost, (unsigned long long)bytes);
    return n_lost;
}
