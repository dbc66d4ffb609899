/* SPDX-License-Identifier: Apache-2.0 */
/* remote_work.c: see remote_work.h.
 *
 *   look   pointers of all texts, in one round trip -> keys of records -> their first 8 KiB, 64 at a time -> rows
 *                                                      ^                                                 |
 *                                                      +---- parents of texts that no pointer led to <---+
 *
 * A span of text without a multiple of SPAN_NAME_TOKENS in it has no pointer: it is found as a parent.
 */
#include "store/remote/remote_work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/record/record_header.h"
#include "store/remote/pool_names.h"
#include "store/remote/pool_object.h"

#define BATCH ((size_t)64)      /* headers that are read at once */
#define MAX_ROWS ((size_t)8192) /* of a look */
#define MAX_ROUNDS 16

void remote_look_free(remote_look *l) {
    for (size_t i = 0; i < l->n_rows; i++) base_free(l->rows[i].row);
    base_free(l->texts);
    base_free(l->keys);
    base_free(l->rows);
    *l = (remote_look){0};
}

void remote_job_free(remote_job *j) {
    remote_look_free(&j->event.look);
    kv_span_unref(j->event.span);
    base_free(j->row);
    base_free(j);
}

/* ---- looks ---- */

typedef struct looking {
    const remote_context *context;
    pool_link *link;
    remote_job *job;
    remote_look *look;
    record_cipher *cipher; /* of the last salt */
    base_key salt;
    size_t n_done; /* keys of the look whose headers were asked for */
} looking;

/* Keeps the errno of a failed operation. */
static int fail_job(remote_job *j, int rc) {
    j->event.failed = true;
    j->event.cause = rc == RP_ERR_IO ? errno : 0;
    return rc;
}

static int cipher_of(looking *l, const base_key *salt) {
    if (l->cipher && base_key_equal(&l->salt, salt)) return RP_OK;
    record_cipher_close(l->cipher);
    l->salt = *salt;
    return pool_cipher(&l->cipher, &l->context->secret, salt, &l->job->event.err);
}

/* Adds a key that is not wanted yet. */
static int want(looking *l, const base_key *key, const base_key *salt) {
    for (size_t i = l->look->n_keys; i-- > 0;)
        if (base_key_equal(&l->look->keys[i].key, key)) return RP_OK;
    const int rc = base_grow((void **)&l->look->keys, &l->look->cap_keys, l->look->n_keys + 1, MAX_ROWS,
                             sizeof(*l->look->keys));
    if (rc) return base_fail(&l->job->event.err, rc, "a look for more than %zu records", MAX_ROWS);
    l->look->keys[l->look->n_keys++] = (remote_key){*key, *salt};
    return RP_OK;
}

/* The keys of the records that have the tokens of the texts. */
static int follow_pointers(looking *l) {
    const size_t n = l->look->n_texts;
    pool_range *ranges = base_calloc(n, sizeof(*ranges));
    uint8_t *bytes = base_alloc(n * POOL_POINTER_BYTES);
    int rc = ranges && bytes ? RP_OK : base_fail_memory(&l->job->event.err, n * sizeof(*ranges), "a look");
    for (size_t i = 0; i < n && !rc; i++) {
        ranges[i].bytes = bytes + i * POOL_POINTER_BYTES;
        ranges[i].n = POOL_POINTER_BYTES;
        pool_text_name(&l->context->secret, &l->look->texts[i].name, ranges[i].name);
    }
    if (!rc && (rc = pool_get(l->link, ranges, n, l->job->deadline_us, &l->job->event.err))) fail_job(l->job, rc);
    for (size_t i = 0; i < n && !rc; i++) {
        base_key key;
        if (!ranges[i].found) continue;
        l->job->event.bytes += ranges[i].got;
        rc = cipher_of(l, &l->look->texts[i].salt);
        if (!rc && pool_pointer_open(&key, l->cipher, ranges[i].name, ranges[i].bytes, ranges[i].got))
            rc = want(l, &key, &l->look->texts[i].salt);
    }
    base_free(ranges);
    base_free(bytes);
    return rc;
}

/* The row of a record whose first bytes were read. One that cannot be used is left out: a miss. */
static int take_head(looking *l, const remote_key *k, const pool_range *r) {
    remote_look *look = l->look;
    rp_error *err = &l->job->event.err;
    record_row *row;
    int cause, rc = cipher_of(l, &k->salt);
    if (rc) return rc;
    const record_fault fault = pool_object_look(&row, l->link, r->name, l->job->deadline_us, r->bytes, r->got,
                                                l->context->format, &k->key, l->cipher, &cause, err);
    l->job->event.fault = fault;
    errno = cause;
    if (fault == RECORD_FAULT_IO) return fail_job(l->job, RP_ERR_IO);
    if (fault == RECORD_FAULT_MEMORY) return RP_ERR_MEMORY;
    if (fault) return RP_OK;
    const base_key salt = k->salt, parent = row->record.parent;
    const bool has_parent = record_is_of_text(row->record.kind) && row->record.at > 0;
    rc = base_grow((void **)&look->rows, &look->cap_rows, look->n_rows + 1, MAX_ROWS, sizeof(*look->rows));
    if (rc) {
        base_free(row);
        return base_fail(err, rc, "a look that found more than %zu records", MAX_ROWS);
    }
    look->rows[look->n_rows++] = (remote_row){row, salt};
    return has_parent ? want(l, &parent, &salt) : RP_OK;
}

/* The headers of the next keys. */
static int read_heads(looking *l, uint8_t *heads) {
    pool_range ranges[BATCH];
    const size_t n = BASE_MIN(l->look->n_keys - l->n_done, BATCH), first = l->n_done;
    for (size_t i = 0; i < n; i++) {
        ranges[i] = (pool_range){.bytes = heads + i * POOL_HEAD_BYTES, .n = POOL_HEAD_BYTES};
        pool_record_name(&l->context->secret, &l->look->keys[first + i].key, ranges[i].name);
    }
    int rc = pool_get(l->link, ranges, n, l->job->deadline_us, &l->job->event.err);
    if (rc) return fail_job(l->job, rc);
    l->n_done += n;
    for (size_t i = 0; i < n && !rc; i++) {
        const remote_key k = l->look->keys[first + i]; /* the array may move */
        l->job->event.bytes += ranges[i].got;
        if (ranges[i].found) rc = take_head(l, &k, &ranges[i]);
    }
    return rc;
}

/* By the position of their first token: parents come before children. */
static int compare_rows(const void *a, const void *b) {
    const record *x = &((const remote_row *)a)->row->record, *y = &((const remote_row *)b)->row->record;
    const int64_t p = (int64_t)x->form.first_pos + x->first_slot, q = (int64_t)y->form.first_pos + y->first_slot;
    return (p > q) - (p < q);
}

static void run_look(const remote_context *context, pool_link *link, remote_job *j) {
    looking l = {.context = context, .link = link, .job = j, .look = &j->event.look};
    uint8_t *heads = base_alloc(BATCH * POOL_HEAD_BYTES);
    int rc = heads ? RP_OK : base_fail_memory(&j->event.err, BATCH * POOL_HEAD_BYTES, "a look");
    if (!rc && l.look->n_texts > 0) rc = follow_pointers(&l);
    const size_t most = (l.look->n_keys + BATCH - 1) / BATCH + MAX_ROUNDS;
    for (size_t i = 0; i < most && !rc && l.n_done < l.look->n_keys; i++) rc = read_heads(&l, heads);
    if (rc) j->event.failed = true;
    if (l.look->n_rows > 0) qsort(l.look->rows, l.look->n_rows, sizeof(*l.look->rows), compare_rows);
    record_cipher_close(l.cipher);
    base_free(heads);
}

/* ---- pulls ---- */

static void run_pull(const remote_context *context, pool_link *link, remote_job *j) {
    char name[POOL_NAME_CHARS + 1];
    record_cipher *cipher = NULL;
    remote_event *e = &j->event;
    e->fault = RECORD_FAULT_MEMORY;
    pool_record_name(&context->secret, &e->key, name);
    if (!pool_cipher(&cipher, &context->secret, &j->salt, &e->err))
        e->fault = pool_object_pull(e->span, link, name, j->deadline_us, context->format, &e->key, cipher, &e->bytes,
                                    &e->cause, &e->err);
    e->failed = e->fault != RECORD_FAULT_NONE;
    if (e->failed) kv_span_set_failed(e->span);
    record_cipher_close(cipher);
}

/* ---- pushes ---- */

/* The pool has an object of that name. */
static int is_there(pool_link *link, const char *name, remote_job *j, bool *found) {
    uint8_t byte;
    pool_range r = {.bytes = &byte, .n = 1};
    memcpy(r.name, name, sizeof(r.name));
    const int rc = pool_get(link, &r, 1, j->deadline_us, &j->event.err);
    *found = !rc && r.found && r.got > 0;
    return rc ? fail_job(j, rc) : RP_OK;
}

static int put_record(const remote_context *context, pool_link *link, remote_job *j, const record_cipher *cipher,
                      const char *name) {
    uint8_t *bytes;
    size_t n;
    int rc = record_encode(&bytes, &n, context->format, &j->row->record, j->event.span, cipher, &j->event.err);
    if (rc) return rc;
    rc = pool_put(link, name, &(struct iovec){bytes, n}, 1, j->deadline_us, &j->event.err);
    if (rc) fail_job(j, rc);
    else j->event.bytes += n;
    base_free(bytes);
    return rc;
}

/* Pointers come after the record that they lead to. */
static int put_pointers(const remote_context *context, pool_link *link, remote_job *j, const record_cipher *cipher) {
    int rc = RP_OK;
    for (int i = 0; i < j->n_names && !rc; i++) {
        char name[POOL_NAME_CHARS + 1];
        uint8_t pointer[POOL_POINTER_BYTES];
        pool_text_name(&context->secret, &j->names[i], name);
        pool_pointer_seal(pointer, cipher, name, &j->event.key);
        rc = pool_put(link, name, &(struct iovec){pointer, sizeof(pointer)}, 1, j->deadline_us, &j->event.err);
        if (rc) fail_job(j, rc);
        else j->event.bytes += sizeof(pointer);
    }
    return rc;
}

static void run_push(const remote_context *context, pool_link *link, remote_job *j) {
    char name[POOL_NAME_CHARS + 1];
    record_cipher *cipher = NULL;
    pool_record_name(&context->secret, &j->event.key, name);
    int rc = is_there(link, name, j, &j->event.was_there);
    if (!rc) rc = pool_cipher(&cipher, &context->secret, &j->salt, &j->event.err);
    if (!rc && !j->event.was_there) rc = put_record(context, link, j, cipher, name);
    if (!rc) rc = put_pointers(context, link, j, cipher); /* those of before may have been evicted */
    if (rc) j->event.failed = true;
    record_cipher_close(cipher);
}

/* ---- jobs ---- */

void remote_job_run(const remote_context *context, pool_link *link, remote_job *j) {
    static void (*const run[])(const remote_context *, pool_link *, remote_job *) = {
        [REMOTE_LOOKED] = run_look, [REMOTE_PULLED] = run_pull, [REMOTE_PUSHED] = run_push};
    run[j->event.kind](context, link, j);
}

void remote_job_refuse(remote_job *j) {
    j->event.failed = true;
    j->event.fault = RECORD_FAULT_IO;
    base_fail(&j->event.err, RP_ERR_CANCELLED, "the pool is not used now");
    if (j->event.kind == REMOTE_PULLED) kv_span_set_failed(j->event.span);
}
