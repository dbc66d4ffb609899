/* SPDX-License-Identifier: Apache-2.0 */
/* identity.c: see identity.h. */
#include "engine/core/identity.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "backend/backend.h"
#include "engine/core/engine_state.h"
#include "reprise_cluster.h"
#include "store/disk/fingerprints.h"
#include "store/record/record.h"

static base_key identity_name(const rp_engine *e, kernel_arithmetic arithmetic) {
    const rp_model *m = e->model;
    BASE_ASSERT(arithmetic > KERNEL_ARITHMETIC_UNKNOWN && arithmetic < KERNEL_ARITHMETIC_END);
    base_hash h;
    base_key out;
    base_hash_init(&h, "reprise states 2");
    base_hash_key(&h, atomic_load(&e->model->has_fingerprint) ? &m->fingerprint : &m->header_digest);
    base_hash_u64(&h, kv_format_identity(e->states->shape.format));
    base_hash_u64(&h, model_rope_is_long(&m->net, e->n_ctx));
    base_hash_u64(&h, (uint64_t)arithmetic);
    for (int32_t i = 0; e->kv_layers && i < m->n_kv_layers; i++)
        base_hash_bytes(&h, &(uint8_t){e->kv_layers[i].in_f16}, 1);
    if (arithmetic == KERNEL_ARITHMETIC_DEVICE) {
        const char *device = e->backend->ops->arithmetic(e->backend);
        base_hash_u64(&h, strlen(device));
        base_hash_bytes(&h, device, strlen(device));
    }
    base_hash_final(&h, &out);
    return out;
}

static void set_salt(rp_engine *e) {
    base_hash h;
    base_hash_init(&h, "reprise salt 1");
    base_hash_key(&h, &e->states->fingerprint);
    base_hash_final(&h, &e->salt);
    base_key_hex(&e->states->fingerprint, e->identity, 2 * BASE_KEY_BYTES);
}

void identity_take(rp_engine *e, const base_key *identity) {
    e->states->fingerprint = *identity;
    set_salt(e);
}

static bool is_on_device(const rp_engine *e) { return e->backend && e->backend->ops->arithmetic; }

void identity_make(rp_engine *e, kernel_arithmetic arithmetic) {
    if (is_on_device(e)) arithmetic = KERNEL_ARITHMETIC_DEVICE;
    e->is_whole = atomic_load(&e->model->has_fingerprint);
    e->states->arithmetic = (uint8_t)arithmetic;
    e->states->fingerprint = identity_name(e, arithmetic);
    set_salt(e);
}

size_t identity_others(const rp_engine *e, base_key *out) {
    size_t n = 0;
    for (int a = KERNEL_ARITHMETIC_UNKNOWN + 1; a < KERNEL_ARITHMETIC_END; a++)
        if (a != e->states->arithmetic && a != KERNEL_ARITHMETIC_DEVICE)
            out[n++] = identity_name(e, (kernel_arithmetic)a);
    BASE_ASSERT(n >= KERNEL_ARITHMETIC_END - 3); /* of the CPU: all but its own */
    return n;
}

const char *rp_engine_identity(const rp_engine *e) { return e ? e->identity : NULL; }

bool identity_is_whole(const rp_engine *e) { return e->is_whole; }

int engine_salt(const rp_engine *e, const char *tenant, base_key *out, rp_error *err) {
    size_t n = tenant ? strlen(tenant) : 0;
    *out = e->salt;
    if (n == 0) return RP_OK;
    if (n > RP_MAX_TENANT_BYTES)
        return base_fail(err, RP_ERR_LIMIT, "the name of a tenant is %zu bytes long: give at most %d", n,
                         RP_MAX_TENANT_BYTES);
    base_hash h;
    base_hash_init(&h, "reprise tenant 1");
    base_hash_key(&h, &e->salt);
    base_hash_bytes(&h, tenant, n);
    base_hash_final(&h, out);
    return RP_OK;
}

/* ---- remembered fingerprints ---- */

typedef struct finding {
    const rp_engine *e;
    const char *dir;
    identity_note *note;
} finding;

static bool find_digest(void *user, const base_key *files, base_key *digest) {
    const finding *f = user;
    return f->dir && fingerprints_find(f->dir, f->e->cipher, files, digest);
}

static void note_digest(void *user, const base_key *files, const base_key *digest) {
    const finding *f = user;
    *f->note = (identity_note){.is_new = true, .files = *files, .digest = *digest};
}

int identity_find(rp_engine *e, const rp_engine_options *o, identity_note *note, rp_error *err) {
    finding f = {.e = e, .dir = o->store_dir, .note = note};
    model_digests known = {find_digest, note_digest, &f};
    *note = (identity_note){.is_new = false};
    int rc = model_fingerprint(e->model, &known, e->n_threads, NULL, NULL, err);
    if (!rc) identity_make(e, (kernel_arithmetic)e->states->arithmetic);
    BASE_ASSERT(rc || e->is_whole);
    return rc;
}

void identity_keep(const rp_engine *e, const rp_engine_options *o, const identity_note *note) {
    rp_error err;
    if (!note->is_new || !o->store_dir || o->store_read_only || o->store_write == RP_STORE_WRITE_OFF) return;
    BASE_ASSERT(e->is_whole); /* a hash of all bytes */
    if (fingerprints_keep(o->store_dir, e->cipher, &note->files, &note->digest, &err))
        base_log(BASE_LOG_WARN,
                 "store: the model's fingerprint was not saved and is computed again at the next start: %s",
                 err.message);
}
