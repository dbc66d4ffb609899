/* SPDX-License-Identifier: Apache-2.0 */
/* model_fingerprint.c: the identity of a model: a hash of the whole contents of its files.
 *
 *   piece    BLAKE2b of PIECE_BYTES of a tensor's data, by any thread
 *   digest   BLAKE2b of the header of each part, and of the pieces of each tensor, in the file's order
 *   fingerprint   BLAKE2b of the digest and the chat format, which is selected when the model is opened
 *
 * A change of one byte of a weight changes the fingerprint, and with it all KV keys. Hashing a whole model takes
 * seconds, so digests are cached (model_digests) by device, inode, size, mtime and ctime of every part. The hash is
 * cryptographic because tenants share the spans that it names.
 */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "model/model_internal.h"

#define PIECE_BYTES ((uint64_t)4 << 20) /* large: starting a hash costs little; small: threads finish together */
#define BATCH_PIECES 16                 /* between two calls of on_progress */

static void hash_headers(const rp_model *m, base_hash *h) {
    base_hash_u64(h, gguf_n_parts(m->file));
    for (size_t i = 0; i < gguf_n_parts(m->file); i++) {
        size_t n = 0;
        const void *header = gguf_header(m->file, i, &n);
        base_hash_bytes(h, header, n);
    }
}

static void hash_chat_format(const rp_model *m, base_hash *h) {
    base_hash_bytes(h, chat_format_name(m->chat), strlen(chat_format_name(m->chat)));
}

void model_identify(rp_model *m) {
    base_hash h;
    base_hash_init(&h, "reprise model header 1");
    hash_headers(m, &h);
    hash_chat_format(m, &h);
    base_hash_final(&h, &m->header_digest);
}

/* ---- files ---- */

/* Hashes the identity of all files at the time they were mapped. false: the model is not in files, or one had just been
 * modified. */
static bool name_files(const rp_model *m, base_key *out) {
    base_hash h;
    base_hash_init(&h, "reprise model files 2"); /* the number is the digest's */
    for (size_t i = 0; i < gguf_n_parts(m->file); i++) {
        base_file_id id;
        if (!gguf_part_id(m->file, i, &id) || !id.is_settled) return false;
        const uint64_t numbers[] = {id.device, id.inode, id.bytes, (uint64_t)id.mtime_ns, (uint64_t)id.ctime_ns};
        for (size_t k = 0; k < BASE_ARRAY_LEN(numbers); k++) base_hash_u64(&h, numbers[k]);
    }
    base_hash_final(&h, out);
    return true;
}

/* A file that was replaced by rename or removed is still mapped, unchanged. */
int model_check_files(const rp_model *m, rp_error *err) {
    for (size_t i = 0; i < gguf_n_parts(m->file); i++) {
        base_file_id then, now;
        const char *path = gguf_part_name(m->file, i);
        if (!gguf_part_id(m->file, i, &then) || !base_file_identify(path, &now)) continue;
        if (then.device != now.device || then.inode != now.inode) continue;
        if (then.bytes != now.bytes || then.mtime_ns != now.mtime_ns)
            return base_fail_at(err, RP_ERR_IO, path, 0, "changed while it was being opened: open it again, and "
                                                         "replace models by rename, never in place");
    }
    return RP_OK;
}

/* ---- weights ---- */

typedef struct hashing {
    const rp_model *m;
    uint64_t *first; /* [tensors + 1]: number of each tensor's first piece */
    base_key *pieces;
    uint64_t begin; /* of the batch */
} hashing;

/* The tensor of a piece: the last tensor with a first piece at or before it. */
static size_t tensor_of(const hashing *g, uint64_t piece) {
    size_t low = 0, high = gguf_n_tensors(g->m->file);
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (g->first[mid] <= piece) low = mid;
        else high = mid;
    }
    BASE_ASSERT(g->first[low] <= piece && piece < g->first[low + 1]);
    return low;
}

/* A base_loop_fn. */
static void hash_pieces(void *arg, int64_t begin, int64_t end, int thread) {
    hashing *g = arg;
    (void)thread;
    for (uint64_t p = g->begin + (uint64_t)begin; p < g->begin + (uint64_t)end; p++) {
        size_t i = tensor_of(g, p);
        const gguf_tensor *t = gguf_tensor_at(g->m->file, i);
        uint64_t at = (p - g->first[i]) * PIECE_BYTES, n = BASE_MIN(PIECE_BYTES, t->bytes - at);
        BASE_ASSERT(at + n <= t->bytes);
        const char *bytes = (const char *)t->data + at;
        base_hash h;
        base_hash_init(&h, "reprise weights 2");
        base_hash_bytes(&h, bytes, (size_t)n);
        base_hash_final(&h, &g->pieces[p]);
        gguf_forget(g->m->file, bytes, (size_t)n); /* mapped pages count towards a memory limit */
    }
}

static void hash_weights(hashing *g, base_threads *threads, rp_on_progress on_progress, void *user,
                         uint64_t total_bytes) {
    uint64_t n = g->first[gguf_n_tensors(g->m->file)];
    uint64_t batch = BATCH_PIECES * (uint64_t)base_threads_count(threads);
    for (g->begin = 0; g->begin < n; g->begin += batch) {
        uint64_t count = BASE_MIN(batch, n - g->begin);
        base_threads_for(threads, hash_pieces, g, (int64_t)count, 1);
        if (on_progress) on_progress(user, BASE_MIN((g->begin + count) * PIECE_BYTES, total_bytes), total_bytes);
    }
}

static void hashing_hash_model(const hashing *g, base_key *out) {
    base_hash h;
    base_hash_init(&h, "reprise model 2");
    hash_headers(g->m, &h);
    for (size_t i = 0; i < gguf_n_tensors(g->m->file); i++) {
        base_hash_u64(&h, gguf_tensor_at(g->m->file, i)->bytes);
        for (uint64_t p = g->first[i]; p < g->first[i + 1]; p++) base_hash_key(&h, &g->pieces[p]);
    }
    base_hash_final(&h, out);
}

static int compute_digest(rp_model *m, int n_threads, rp_on_progress on_progress, void *user, base_key *out,
                          rp_error *err) {
    size_t n = gguf_n_tensors(m->file);
    uint64_t total = 0, start = base_clock_us();
    hashing g = {.m = m, .first = base_calloc(n + 1, sizeof(*g.first))};
    base_threads *threads = NULL;
    int rc = g.first ? base_threads_new(&threads, n_threads, err)
                     : base_fail_memory(err, (n + 1) * sizeof(*g.first), "a fingerprint");
    for (size_t i = 0; !rc && i < n; i++) {
        uint64_t bytes = gguf_tensor_at(m->file, i)->bytes;
        g.first[i + 1] = g.first[i] + BASE_DIV_UP(bytes, PIECE_BYTES);
        total += bytes;
    }
    if (!rc && !(g.pieces = base_calloc((size_t)g.first[n] + 1, sizeof(*g.pieces))))
        rc = base_fail_memory(err, g.first[n] * sizeof(*g.pieces), "a fingerprint");
    if (!rc) {
        hash_weights(&g, threads, on_progress, user, total);
        hashing_hash_model(&g, out);
        m->hashed_bytes = total;
        BASE_TRACE(MODEL, "hashed %" PRIu64 " bytes of weights in %.1f ms", total,
                   (double)(base_clock_us() - start) / 1e3);
    }
    base_threads_free(threads);
    base_free(g.pieces);
    base_free(g.first);
    return rc;
}

/* ---- the fingerprint ---- */

static void set_fingerprint(rp_model *m, const base_key *digest) {
    BASE_ASSERT(!atomic_load(&m->has_fingerprint)); /* it is final */
    base_hash h;
    base_hash_init(&h, "reprise fingerprint 2");
    base_hash_key(&h, digest);
    hash_chat_format(m, &h);
    base_hash_final(&h, &m->fingerprint);
    m->digest = *digest;
    base_key_hex(&m->fingerprint, m->fingerprint_hex, 2 * BASE_KEY_BYTES);
    atomic_store(&m->has_fingerprint, true);
}

void model_identify_mock(rp_model *m) {
    base_hash h;
    base_hash_init(&h, "reprise mock model 1");
    hash_headers(m, &h);
    hash_chat_format(m, &h);
    base_hash_final(&h, &m->header_digest);
    set_fingerprint(m, &m->header_digest);
}

/* The caller holds the lock. */
static int find_fingerprint(rp_model *m, const model_digests *known, int n_threads, rp_on_progress on_progress,
                            void *user, rp_error *err) {
    base_key files, digest;
    bool named = name_files(m, &files);
    int rc = model_check_files(m, err);
    bool found = !rc && named && known && known->find && known->find(known->user, &files, &digest);
    if (!rc && !found) {
        rc = compute_digest(m, n_threads, on_progress, user, &digest, err);
        if (!rc) rc = model_check_files(m, err);
        if (!rc && named && known && known->keep) known->keep(known->user, &files, &digest);
    }
    if (!rc) set_fingerprint(m, &digest);
    return rc;
}

int model_fingerprint(rp_model *m, const model_digests *known, int n_threads, rp_on_progress on_progress, void *user,
                      rp_error *err) {
    pthread_mutex_lock(&m->lock);
    int rc = atomic_load(&m->has_fingerprint) ? RP_OK : find_fingerprint(m, known, n_threads, on_progress, user, err);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

bool model_fingerprint_cached(rp_model *m, const model_digests *known) {
    base_key files, digest;
    pthread_mutex_lock(&m->lock);
    bool found = atomic_load(&m->has_fingerprint);
    if (!found && name_files(m, &files) && known->find(known->user, &files, &digest) && !model_check_files(m, NULL)) {
        set_fingerprint(m, &digest);
        found = true;
    }
    pthread_mutex_unlock(&m->lock);
    return found;
}
