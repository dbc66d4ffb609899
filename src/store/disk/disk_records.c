/* SPDX-License-Identifier: Apache-2.0 */
/* disk_records.c: see disk_records.h. */
#include "store/disk/disk_records.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/disk/disk_tier.h"

typedef struct comparison {
    disk_records *r;
    disk_file *files; /* by ascending key */
    size_t n_files, next;
    base_key *gone; /* rows to remove */
    size_t n_gone, cap_gone;
} comparison;

int disk_records_enter(record_index *index, const record_cipher *cipher, const record_row *row, rp_error *err) {
    record_row r = *row;
    if (cipher) {
        r.record.n_tokens = 0;
        r.record.label = "";
    }
    return record_index_put(index, &r, err);
}

static void comparison_report(const comparison *c, disk_oddity_kind kind, const char *path, uint64_t bytes,
                              record_fault fault, const rp_error *err) {
    disk_oddity o = {.kind = kind, .path = path, .bytes = bytes, .fault = fault, .message = fault ? err->message : ""};
    if (c->r->on_odd) c->r->on_odd(c->r->user, &o);
}

static void disk_records_note_failure(disk_records *r, int rc, const rp_error *err) {
    if (!rc || r->index_rc) return;
    r->index_rc = rc;
    r->index_err = *err;
}

/* Removes the row of this key. */
static int drop_row(comparison *c, const base_key *key, rp_error *err) {
    int rc = base_grow((void **)&c->gone, &c->cap_gone, c->n_gone + 1, DISK_TIER_MAX_RECORDS, sizeof(*c->gone));
    if (rc) return base_fail(err, rc, "the index names %zu missing records", c->n_gone);
    c->gone[c->n_gone++] = *key;
    return RP_OK;
}

static int note_gone(comparison *c, const base_key *key, rp_error *err) {
    char path[DISK_PATH_BYTES];
    disk_folder_record(c->r->folder, key, path);
    comparison_report(c, DISK_ROW_WITHOUT_FILE, path, 0, RECORD_FAULT_NONE, NULL);
    return drop_row(c, key, err);
}

/* Can nobody use it? A record that another key, program or machine may be able to read stays. */
static bool is_broken(record_fault f) {
    return f == RECORD_FAULT_TRUNCATED || f == RECORD_FAULT_DAMAGED || f == RECORD_FAULT_KEY;
}

static int set_aside(comparison *c, const disk_file *file, const record_row *known, const char *path,
                     record_fault fault, const rp_error *why, rp_error *err) {
    base_log(BASE_LOG_WARN, "store: %s is %s: %s", path, c->r->folder->read_only ? "broken" : "set aside",
             record_fault_name(fault));
    comparison_report(c, DISK_BROKEN, path, file->bytes, fault, why);
    if (!c->r->folder->read_only) disk_folder_set_aside(c->r->folder, &file->key);
    return known ? drop_row(c, &file->key, err) : RP_OK;
}

disk_row_digests disk_records_digest(const record *r, const base_key *fingerprint, int32_t n_layers, bool has_text) {
    disk_row_digests out;
    base_hash h;
    BASE_ASSERT(n_layers > 0 && r->form.kept);
    base_hash_init(&h, "reprise row");
    base_hash_key(&h, fingerprint);
    base_hash_u64(&h, (uint64_t)r->kind << 32 | kv_format_number(r->form.format));
    base_hash_u64(&h, (uint64_t)(uint32_t)r->form.first_pos << 32 | (uint32_t)r->form.n_tokens);
    base_hash_u64(&h, (uint64_t)(uint32_t)r->form.readable_from << 32 | (uint32_t)r->first_slot);
    base_hash_bytes(&h, r->form.kept, (size_t)n_layers);
    if (r->form.slots) {
        base_hash_u64(&h, (uint64_t)(uint32_t)r->form.end << 32 | (uint32_t)r->form.n_parts);
        base_hash_bytes(&h, r->form.slots, sizeof(*r->form.slots) * (size_t)n_layers * (size_t)r->form.n_kv_heads);
    }
    if (has_text) base_hash_bytes(&h, r->tokens, (size_t)r->n_tokens * sizeof(*r->tokens));
    base_hash_final(&h, &out.own);
    base_hash_init(&h, "reprise row's rest");
    base_hash_key(&h, &r->parent);
    base_hash_u64(&h, (uint64_t)(uint32_t)r->at << 32 | r->tenant);
    base_hash_u64(&h, r->cost_us);
    if (has_text) base_hash_bytes(&h, r->label, strlen(r->label));
    base_hash_final(&h, &out.rest);
    return out;
}

/* Does the row agree with the record's header? */
static bool comparison_agrees(const comparison *c, const record_row *known, const record_row *row) {
    if (known->n_layers != row->n_layers || known->bytes != row->bytes) return false;
    disk_row_digests a = disk_records_digest(&known->record, &known->fingerprint, known->n_layers, !c->r->cipher);
    disk_row_digests b = disk_records_digest(&row->record, &row->fingerprint, row->n_layers, !c->r->cipher);
    return base_key_equal(&a.own, &b.own) && base_key_equal(&a.rest, &b.rest);
}

static void comparison_enter(comparison *c, const record_row *row) {
    disk_records *r = c->r;
    rp_error err;
    BASE_ASSERT(r->index && row->n_layers > 0);
    if (!r->folder->read_only) disk_records_note_failure(r, disk_records_enter(r->index, r->cipher, row, &err), &err);
}

/* Takes over the header of a file without a row, or with an incomplete one. known: its row; or NULL. */
static int comparison_take_over(comparison *c, const disk_file *file, const record_row *known, rp_error *err) {
    disk_records *r = c->r;
    BASE_ASSERT(!known || base_key_equal(&known->record.key, &file->key));
    char path[DISK_PATH_BYTES];
    record_reader *reader = NULL;
    rp_error why;
    record_row row = {.record = {.key = file->key, .label = ""}};
    disk_folder_record(r->folder, &file->key, path);
    record_fault fault = record_reader_open(&reader, path, NULL, &file->key, r->cipher, &why);
    if (is_broken(fault)) return set_aside(c, file, known, path, fault, &why, err);
    /* It was removed since the scan of the folder. */
    if (fault == RECORD_FAULT_GONE) return known ? note_gone(c, &file->key, err) : RP_OK;
    if (fault && known && r->by_index) row = *known;
    if (!fault) {
        row.record = *record_reader_record(reader);
        row.fingerprint = record_reader_format(reader)->fingerprint;
        row.n_layers = record_reader_format(reader)->shape.n_layers;
    }
    row.bytes = file->bytes;
    if (known) row.use = known->use;
    else if (r->index) record_index_recall(r->index, &row.record.key, &row.use);
    bool differs = r->compares && known && !fault && !comparison_agrees(c, known, &row);
    if (differs) comparison_report(c, DISK_ROW_DIFFERS, path, file->bytes, fault, NULL);
    if (fault) comparison_report(c, DISK_UNREADABLE, path, file->bytes, fault, &why);
    else if (!known && r->index) comparison_report(c, DISK_FILE_WITHOUT_ROW, path, file->bytes, fault, NULL);
    int rc = r->fn(r->user, &row, err);
    if (!rc && !fault && (!known || differs) && r->index) comparison_enter(c, &row);
    record_reader_close(reader);
    return rc;
}

/* Rows and files both come by ascending key. */
static int match_row(void *user, const record_row *row, rp_error *err) {
    comparison *c = user;
    int rc = RP_OK;
    /* It was entered again under the cursor. */
    if (c->next > 0 && base_key_equal(&c->files[c->next - 1].key, &row->record.key)) return RP_OK;
    BASE_ASSERT(c->next <= c->n_files);
    while (!rc && c->next < c->n_files &&
           memcmp(c->files[c->next].key.bytes, row->record.key.bytes, sizeof(base_key)) < 0)
        rc = comparison_take_over(c, &c->files[c->next++], NULL, err);
    if (rc) return rc;
    if (c->next == c->n_files || !base_key_equal(&c->files[c->next].key, &row->record.key))
        return note_gone(c, &row->record.key, err);
    const disk_file *file = &c->files[c->next++];
    const record *r = &row->record;
    if (c->r->compares || c->r->cipher || /* of an encrypted record, only the file has the text */
        (r->n_tokens == 0 && r->kind != RECORD_STATES && (r->kind == RECORD_MODULE || r->label[0] == '\0')))
        return comparison_take_over(c, file, row, err);
    record_row known = *row;
    known.bytes = file->bytes;
    return c->r->fn(c->r->user, &known, err);
}

static void meet_other(void *user, disk_file_kind kind, const char *path, uint64_t bytes) {
    comparison_report(user, kind == DISK_FILE_FOREIGN ? DISK_FOREIGN : DISK_LEFTOVER, path, bytes, RECORD_FAULT_NONE,
                      NULL);
}

int disk_records_each(disk_records *r, rp_error *err) {
    comparison c = {.r = r};
    rp_error why;
    r->index_rc = RP_OK;
    int rc = disk_folder_scan(r->folder, meet_other, &c, &c.files, &c.n_files, err);
    if (!rc && r->index) rc = record_index_each(r->index, NULL, match_row, &c, err);
    if (rc == RP_ERR_IO && c.files) { /* the index is unreadable: the remaining files are read instead */
        base_log(BASE_LOG_WARN, "store: the index of records is only partly readable");
        rc = RP_OK;
    }
    BASE_ASSERT(c.next <= c.n_files);
    while (!rc && c.next < c.n_files) rc = comparison_take_over(&c, &c.files[c.next++], NULL, err);
    for (size_t i = 0; i < c.n_gone && !r->folder->read_only; i++)
        disk_records_note_failure(r, record_index_remove(r->index, &c.gone[i], &why), &why);
    if (!rc && r->index && !r->folder->read_only) record_index_complete(r->index);
    base_free(c.files);
    base_free(c.gone);
    return rc;
}
