/* SPDX-License-Identifier: Apache-2.0 */
/* recompute.c: rp_store_recompute: records of a store computed again by an engine without one, and compared.
 *
 *   text     its tokens and those of all its ancestors, up to the root of plain text, run in the background as a plain
 *         run. The computed path
 *            has the same tokens in the same order, in spans that may be cut at other places: compared token by token
 *   states   those after that text, likewise
 *   module   the engine's own span of the same key; likewise its reduced KV, and the states after it
 *
 * A record that leads to another root follows modules; the store does not record which.
 *
 * Threads: the caller's draws records and waits; the engine's computes and compares.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/sized.h"
#include "api/store.h"
#include "engine/core/identity.h"
#include "engine/core/job_tokens.h"
#include "engine/background/background.h"
#include "engine/core/commands.h"
#include "engine/core/engine_state.h"
#include "backend/backend.h"
#include "store/disk/disk_tier.h"
#include "store/record/record_layer.h"
#include "reprise_tools.h"
#include "reprise_store.h"

#define MOST_WAY_TOKENS ((size_t)1 << 24)

typedef enum verdict { SAME,
                       DIFFERENT,
                       UNREADABLE,
                       UNKNOWN_MODULE,
                       UNKNOWN_SCOPE,
                       NO_MEMORY } verdict;

typedef struct recomputation {
    store_admin *admin;
    rp_engine *e;
    base_key salt;
    base_key roots[2]; /* of plain text: in the engine's format, and in f16 (the auditor) */
    base_key *keys;    /* of candidates */
    size_t n, cap;
    /* the record that is checked */
    record_reader *reader;
    const base_key *key;
    int64_t n_way;       /* tokens from the root to its end */
    rp_kv_format format; /* of these */
    verdict verdict;
} recomputation;

/* ---- Comparison ---- */

/* Slots [at_a, at_a + n) of a against slots from at_b on of b, in all layers that have both blocks: a block outside a
 * window may have been freed. Both have the same format. */
static bool same_slots(const kv_span *a, int32_t at_a, const kv_span *b, int32_t at_b, int32_t n) {
    const size_t bytes = kv_shape_most_block_bytes(kv_span_shape(a));
    uint8_t *copies = base_alloc(2 * bytes);
    bool same = copies && kv_span_format(a) == kv_span_format(b);
    for (int32_t l = 0; l < kv_span_shape(a)->n_layers && same; l++)
        for (int32_t i = 0, copied_a = -1, copied_b = -1; i < n && same; i++) { /* blocks in copies */
            const int32_t i_a = at_a + i, i_b = at_b + i, block_a = i_a / KV_BLOCK_SLOTS,
                          block_b = i_b / KV_BLOCK_SLOTS;
            if (!kv_span_has(a, l, block_a) || !kv_span_has(b, l, block_b)) continue;
            if (block_a != copied_a) kv_span_get_block(a, l, copied_a = block_a, copies);
            if (block_b != copied_b) kv_span_get_block(b, l, copied_b = block_b, copies + bytes);
            same = kv_block_same_slot(kv_span_layer(a, l), copies, i_a % KV_BLOCK_SLOTS, copies + bytes,
                                      i_b % KV_BLOCK_SLOTS);
        }
    base_free(copies);
    return same;
}

/* Two spans of the same tokens, whole, in any format. */
static bool same_spans(const kv_span *a, const kv_span *b) {
    const size_t most = kv_shape_most_block_bytes(kv_span_shape(a));
    uint8_t *copies = base_alloc(2 * most);
    bool same = copies && kv_span_format(a) == kv_span_format(b);
    for (int32_t i = 0; i * KV_BLOCK_SLOTS < kv_span_tokens(a) && same; i++)
        for (int32_t l = 0; l < kv_span_shape(a)->n_layers && same; l++) {
            const kv_layer *layer = kv_span_layer(a, l);
            const size_t bytes = layer->block_bytes;
            if (!kv_span_has(a, l, i) || !kv_span_has(b, l, i)) continue;
            const kv_span *spans[] = {a, b};
            for (int k = 0; k < 2; k++) {
                kv_span_get_block(spans[k], l, i, copies + (size_t)k * bytes);
                kv_block_clear_slots(layer, copies + (size_t)k * bytes,
                                     BASE_MIN(kv_span_tokens(a) - i * KV_BLOCK_SLOTS, KV_BLOCK_SLOTS));
            }
            same = memcmp(copies, copies + bytes, bytes) == 0;
        }
    base_free(copies);
    return same;
}

/* Two reduced spans: positions and used slots, as they are stored. form: of b. */
static bool same_reduced(const kv_span *a, const kv_span *b, const kv_span_form *form) {
    const size_t space = record_single_space(kv_span_shape(b), form);
    uint8_t *bytes = kv_span_has_form(a, form) ? base_alloc(2 * space) : NULL;
    bool same = bytes;
    for (int32_t l = 0; same && l < kv_span_shape(b)->n_layers; l++) {
        const size_t n = record_get_single(a, l, bytes);
        same = record_get_single(b, l, bytes + space) == n && memcmp(bytes, bytes + space, n) == 0;
    }
    base_free(bytes);
    return same;
}

/* Two spans of states: of all recurrent layers. */
static bool same_states(const kv_span *a, const kv_span *b) {
    const kv_shape *shape = kv_span_shape(a);
    bool same = true;
    for (int32_t l = 0; l < shape->n_layers && same; l++) {
        const size_t bytes = shape->layers[l].state_bytes;
        uint8_t *copies = base_alloc(2 * bytes);
        if (copies && bytes > 0) kv_span_get_state(a, l, copies), kv_span_get_state(b, l, copies + bytes);
        same = copies && memcmp(copies, copies + bytes, bytes) == 0;
        base_free(copies);
    }
    return same;
}

/* The record's KV, in blocks of the engine. */
static verdict load_record(recomputation *r, kv_span **out) {
    const record *rec = record_reader_record(r->reader);
    rp_error err;
    int rc = kv_span_restore(out, r->e->pool, &rec->form, &rec->key, &err);
    if (rc) return rc == RP_ERR_FORMAT ? UNREADABLE : NO_MEMORY;
    record_fault fault = RECORD_FAULT_NONE;
    for (int32_t l = 0; l < r->e->states->shape.n_layers && !fault; l++)
        fault = record_read_layer(r->reader, l, *out, &err);
    if (!fault) {
        kv_span_set_ready(*out, r->e->states->shape.n_layers);
        return SAME;
    }
    kv_span_set_failed(*out);
    kv_span_unref(*out);
    *out = NULL;
    return UNREADABLE;
}

/* ---- Modules ---- */

/* An engine_command_fn. */
static void check_module(rp_engine *e, void *arg) {
    recomputation *r = arg;
    kv_span *own = span_store_get(e->store, r->key, NULL), *kept = NULL;
    r->verdict = own ? load_record(r, &kept) : UNKNOWN_MODULE;
    const kv_span_form *form = &record_reader_record(r->reader)->form;
    bool same = !kept || (kv_span_is_reduced(own) == kv_span_is_reduced(kept) &&
                          kv_span_is_states(own) == kv_span_is_states(kept));
    if (kept && same && form->is_states) same = same_states(own, kept);
    else if (kept && same) same = form->slots ? same_reduced(own, kept, form) : same_spans(own, kept);
    if (!same) r->verdict = DIFFERENT;
    kv_span_unref(own);
    kv_span_unref(kept);
}

/* ---- Texts ---- */

/* A background_done_fn. */
static void compare_text(rp_engine *e, void *user, int rc, const background_result *result) {
    recomputation *r = user;
    (void)e;
    const record *rec = record_reader_record(r->reader);
    kv_span *kept = NULL;
    r->verdict = rc ? NO_MEMORY : load_record(r, &kept);
    if (!kept) return;
    int64_t begin = 0, first = r->n_way - rec->n_tokens; /* of a step; of the record's own tokens, which end the way */
    if ((int64_t)result->path->n_tokens < r->n_way) r->verdict = NO_MEMORY;
    for (size_t i = 1; i < result->path->n_steps && r->verdict == SAME; i++) {
        const span_step *s = &result->path->steps[i];
        int64_t from = BASE_MAX(begin, first), end = BASE_MIN(begin + s->n_tokens, r->n_way);
        if (from < end && !same_slots(s->span, s->first_slot + (int32_t)(from - begin), kept,
                                      rec->first_slot + (int32_t)(from - first), (int32_t)(end - from)))
            r->verdict = DIFFERENT;
        begin += s->n_tokens;
    }
    kv_span_unref(kept);
}

/* A background_done_fn. */
static void compare_states(rp_engine *e, void *user, int rc, const background_result *result) {
    recomputation *r = user;
    kv_span *kept = NULL, *own = NULL;
    r->verdict = rc || !result->states ||
                         kv_span_new_states(&own, e->pool, record_reader_record(r->reader)->form.first_pos, NULL)
                     ? NO_MEMORY
                     : load_record(r, &kept);
    if (own) e->backend->ops->recurrence->states_save(e->backend, result->states, own);
    if (kept && !same_states(own, kept)) r->verdict = DIFFERENT;
    kv_span_unref(own);
    kv_span_unref(kept);
}

/* A way's tokens, gathered from its end. */
typedef struct way {
    int32_t *tokens, *positions; /* [n] from the last token to the first, until it is turned round */
    size_t n, cap_tokens, cap_positions;
} way;

static int way_add(way *w, const record *rec, int32_t n) {
    size_t need = w->n + (size_t)n;
    if (base_grow((void **)&w->tokens, &w->cap_tokens, need, MOST_WAY_TOKENS, sizeof(int32_t)) ||
        base_grow((void **)&w->positions, &w->cap_positions, need, MOST_WAY_TOKENS, sizeof(int32_t)))
        return RP_ERR_MEMORY;
    for (int32_t i = n - 1; i >= 0; i--, w->n++) {
        w->tokens[w->n] = rec->tokens[i];
        w->positions[w->n] = rec->form.first_pos + rec->first_slot + i;
    }
    return RP_OK;
}

static void turn_round(int32_t *v, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        int32_t last = v[n - 1 - i];
        v[n - 1 - i] = v[i];
        v[i] = last;
    }
}

static record_reader *recomputation_open_record(const recomputation *r, const base_key *key) {
    char path[DISK_PATH_BYTES];
    record_reader *reader = NULL;
    rp_error err;
    disk_folder_record(&r->admin->folder, key, path);
    return record_reader_open(&reader, path, r->e->states, key, r->admin->cipher, &err) ? NULL : reader;
}

static bool is_root(const recomputation *r, const base_key *key) {
    return base_key_equal(key, &r->roots[0]) || base_key_equal(key, &r->roots[1]);
}

/* The way of the text from plain text's root on. SAME: it is complete. */
static verdict find_way(recomputation *r, way *w) {
    const record *rec = record_reader_record(r->reader);
    record_reader *above = NULL;
    verdict v = way_add(w, rec, rec->n_tokens) ? NO_MEMORY : SAME;
    while (v == SAME && !is_root(r, &rec->parent)) {
        int32_t at = rec->at;
        record_reader *next = recomputation_open_record(r, &rec->parent);
        record_reader_close(above);
        above = next;
        rec = above ? record_reader_record(above) : NULL;
        if (!rec || rec->kind != RECORD_TEXT || at > rec->n_tokens) v = UNKNOWN_SCOPE;
        else if (way_add(w, rec, at)) v = NO_MEMORY;
        else if (w->n > (size_t)r->e->n_ctx) v = NO_MEMORY; /* a circle of parents ends here, too */
    }
    if (v == SAME) r->format = base_key_equal(&rec->parent, &r->roots[0]) ? r->e->formats->text : RP_KV_F16;
    record_reader_close(above);
    turn_round(w->tokens, w->n);
    turn_round(w->positions, w->n);
    return v;
}

typedef struct submission {
    background_task task;
    int rc;
} submission;

/* An engine_command_fn. */
static void recompute_submit(rp_engine *e, void *arg) {
    submission *s = arg;
    s->rc = background_submit(e, &s->task);
}

/* What a record says is computed as it is: a forged one may name tokens that the model lacks. */
static verdict check_way(const recomputation *r, const way *w) {
    const int32_t n_vocab = r->e->model->net.hp.n_vocab;
    verdict v = w->n == 0 ? UNREADABLE : w->n > (size_t)r->e->n_ctx ? NO_MEMORY
                                                                    : SAME;
    for (size_t i = 0; i < w->n && v == SAME; i++) {
        if (w->tokens[i] < 0 || w->tokens[i] >= n_vocab || w->positions[i] < 0) v = UNREADABLE;
        else if (w->positions[i] >= r->e->n_ctx) v = NO_MEMORY;
    }
    return v;
}

static int recomputation_check_text(recomputation *r, rp_error *err) {
    way w = {0};
    r->verdict = find_way(r, &w);
    if (r->verdict == SAME) r->verdict = check_way(r, &w);
    r->n_way = (int64_t)w.n;
    submission s = {
        .task = {.salt = r->salt,
                 .format = r->format,
                 .tokens = w.tokens,
                 .positions = w.positions,
                 .n = (int32_t)w.n,
                 .keeps = true,
                 .done = record_reader_record(r->reader)->kind == RECORD_STATES ? compare_states : compare_text,
                 .user = r}};
    int rc = RP_OK;
    bool runs = r->verdict == SAME;
    if (runs && !(rc = engine_do(r->e, recompute_submit, &s, err)) && s.rc)
        rc = base_fail_memory(err, w.n * sizeof(int32_t), "a text to recompute");
    if (runs && !rc) {
        rp_engine_drain(r->e, -1); /* the tokens are the task's */
        return RP_OK;
    }
    base_free(w.tokens);
    base_free(w.positions);
    return rc;
}

/* ---- All records ---- */

/* A store_item_fn. */
static int recompute_gather(void *user, const store_item *item, rp_error *err) {
    recomputation *r = user;
    if (item->fault || item->row.n_layers == 0 || !base_key_equal(&item->row.fingerprint, &r->e->states->fingerprint))
        return RP_OK;
    if (base_grow((void **)&r->keys, &r->cap, r->n + 1, DISK_TIER_MAX_RECORDS, sizeof(*r->keys)))
        return base_fail_memory(err, (r->n + 1) * sizeof(*r->keys), "the records of a store");
    r->keys[r->n++] = item->row.record.key;
    return RP_OK;
}

/* Fisher and Yates. */
static void recomputation_shuffle(recomputation *r, uint64_t seed) {
    for (size_t i = r->n; i > 1; i--) {
        size_t k = (size_t)(base_random_next(&seed) % i);
        base_key last = r->keys[i - 1];
        r->keys[i - 1] = r->keys[k];
        r->keys[k] = last;
    }
}

static int recomputation_check_record(recomputation *r, rp_error *err) {
    BASE_ASSERT(!r->reader); /* one record at a time */
    int rc = RP_OK;
    r->reader = recomputation_open_record(r, r->key);
    r->verdict = UNREADABLE;
    if (r->reader && !record_is_of_text(record_reader_record(r->reader)->kind))
        rc = engine_do(r->e, check_module, r, err);
    else if (r->reader) rc = recomputation_check_text(r, err);
    record_reader_close(r->reader);
    r->reader = NULL;
    return rc;
}

static void report_difference(const recomputation *r, rp_on_store_finding on_finding, void *user) {
    char path[DISK_PATH_BYTES], message[DISK_PATH_BYTES + 128];
    disk_folder_record(&r->admin->folder, r->key, path);
    snprintf(message, sizeof(message), "%s: its KV differs from the KV that the model computes: remove it", path);
    if (on_finding)
        on_finding(user, &(rp_store_finding){.struct_size = (uint32_t)sizeof(rp_store_finding),
                                             .flaw = RP_STORE_OTHER_KV,
                                             .path = path,
                                             .reason = "",
                                             .message = message});
}

static int check_engine(rp_engine *e, rp_error *err) {
    rp_store_stats store = {.struct_size = (uint32_t)sizeof(store)};
    rp_engine_store_stats(e, &store);
    if (store.disk_budget_bytes > 0)
        return base_fail(err, RP_ERR_CONFLICT,
                         "the engine has a store: use an engine without one to recompute records");
    if (identity_is_whole(e)) return RP_OK;
    return base_fail(
        err, RP_ERR_CONFLICT,
        "the engine was created before the model's fingerprint was known: call rp_model_fingerprint first");
}

int rp_store_recompute(rp_store *s, rp_engine *e, const rp_store_recompute_options *options, rp_on_progress on_progress,
                       rp_on_store_finding on_finding, void *user, rp_store_recomputed *out, rp_error *err) {
    rp_store_recompute_options o = rp_store_recompute_options_defaults();
    rp_store_recomputed own = {0};
    if (!e) return base_fail(err, RP_ERR_INVALID, "rp_store_recompute: engine is needed");
    int rc = store_check_folder(s, "rp_store_recompute", err);
    if (!rc) rc = base_sized_check(out, "rp_store_recomputed", err);
    if (!rc) rc = base_sized_read(&o, sizeof(o), options, "rp_store_recompute_options", err);
    if (rc) return rc;
    recomputation r = {.admin = s->admin, .e = e};
    rc = check_engine(e, err);
    if (!rc) rc = engine_salt(e, o.tenant, &r.salt, err);
    r.roots[0] = job_text_root(e, &r.salt, e->formats->text);
    r.roots[1] = job_text_root(e, &r.salt, RP_KV_F16);
    if (!rc) rc = rp_engine_prepare(e, NULL, NULL, err); /* the background waits for it */
    if (!rc) rc = store_admin_peek(r.admin, recompute_gather, NULL, &r, err);
    own.candidates = r.n;
    recomputation_shuffle(&r, o.seed);
    uint64_t total = o.sample && o.sample < r.n ? o.sample : r.n;
    for (size_t i = 0; i < r.n && !rc && own.checked < total;
         i++) { /* a record that cannot be checked is replaced by the next */
        r.key = &r.keys[i];
        if ((rc = recomputation_check_record(&r, err))) break;
        own.checked += r.verdict == SAME || r.verdict == DIFFERENT;
        own.different += r.verdict == DIFFERENT;
        own.unreadable += r.verdict == UNREADABLE;
        own.unknown_module += r.verdict == UNKNOWN_MODULE;
        own.unknown_scope += r.verdict == UNKNOWN_SCOPE;
        own.no_memory += r.verdict == NO_MEMORY;
        if (r.verdict == DIFFERENT) report_difference(&r, on_finding, user);
        if (on_progress) on_progress(user, own.checked, total);
    }
    BASE_ASSERT(own.checked <= total && own.different <= own.checked);
    base_free(r.keys);
    base_sized_write(out, &own, sizeof(own));
    return rc;
}

void rp_store_recompute_options_init(rp_store_recompute_options *options, uint32_t struct_size) {
    base_sized_init(options, struct_size, &(rp_store_recompute_options){.sample = 0},
                    sizeof(rp_store_recompute_options));
}
