/* SPDX-License-Identifier: Apache-2.0 */
/* tier.c: see tier.h: calls through the table, and what every tier would count alike. */
#include "store/tier.h"

#include <errno.h>

#include "base/check.h"

void tier_close(store_tier *t) {
    if (t) t->ops->close(t);
}

void tier_set_deadline(store_tier *t, uint64_t at_us) { t->ops->set_deadline(t, at_us); }

int tier_read(store_tier *t, kv_span *span, uint64_t request) {
    BASE_ASSERT(kv_span_is_sealed(span) && kv_span_layers_ready(span) == 0);
    return t->ops->read(t, span, request);
}

int tier_write(store_tier *t, record_row *row, kv_span *span, uint64_t begin_by) {
    BASE_ASSERT(base_key_equal(&row->record.key, kv_span_key(span)) && kv_span_layers_ready(span) == row->n_layers);
    const int rc = t->ops->write(t, row, span, begin_by, t->serial + 1);
    if (rc) return rc;
    t->serial++;
    t->n_queued++;
    t->queued_bytes += kv_span_bytes(span);
    return RP_OK;
}

void tier_remove(store_tier *t, const base_key *key, tier_removal how) { t->ops->remove(t, key, how); }
void tier_note(store_tier *t, const base_key *key, const record_use *use) { t->ops->note(t, key, use); }
int tier_keep_audit(store_tier *t, char *bytes, size_t n) { return t->ops->keep_audit(t, bytes, n); }

int tier_sync(store_tier *t, uint64_t *serial) {
    const int rc = t->ops->sync(t, t->n_syncs + 1);
    if (!rc) *serial = ++t->n_syncs;
    return rc;
}

bool tier_next(store_tier *t, tier_event *out) {
    if (!t->ops->next(t, out)) return false;
    BASE_ASSERT((out->span != NULL) == (out->kind != TIER_SYNCED)); /* rule 3, */
    BASE_ASSERT(out->failed || (!out->fault && !out->late));
    if (out->kind != TIER_WRITTEN) return true;
    BASE_ASSERT(out->serial > t->written && t->n_queued > 0 &&
                t->queued_bytes >= kv_span_bytes(out->span)); /* and its order */
    t->written = out->serial;
    t->n_queued--;
    t->queued_bytes -= kv_span_bytes(out->span);
    return true;
}

void tier_wait(store_tier *t) { t->ops->wait(t); }
void tier_settle(store_tier *t) { t->ops->settle(t); }

void tier_set_share(store_tier *t, uint32_t one_in) {
    BASE_ASSERT(one_in > 0);
    t->ops->set_share(t, one_in);
}

tier_figures tier_measure(store_tier *t) {
    tier_figures f = {0};
    t->ops->measure(t, &f);
    return f;
}

uint64_t tier_record_bytes(const store_tier *t, const record *r) { return t->ops->record_bytes(t, r); }

const char *tier_trouble_name(int cause) {
    switch (cause) {
    case ENOSPC:
    case EDQUOT: return "no_space";
    case EACCES:
    case EPERM: return "permission";
    case ELOOP:
    case EMLINK: return "foreign_file"; /* base_io_make_private */
    case EROFS: return "read_only_disk";
    case EMFILE:
    case ENFILE: return "open_files";
    case EBUSY: return "locked";
    case ENOTSUP: return "version";
    case ENOMEM: return "memory";
    case EIO: return "io_error";
    default: return "other";
    }
}
