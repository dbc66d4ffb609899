/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_weights.c: weights in device memory, in the block formats of their file, side by side in buffers.
 *
 * A weight is known by the address of its data on the host: tied matrices are one. Layers may use a part of a vector
 * that others use more of (ones): the longer one replaces it. Matrices are uploaded by prepare,
 * small vectors (norms, biases, sinks) when a step first uses them.
 */
#include <string.h>

#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"

#define CHUNK_BYTES ((uint64_t)64 << 20)
#define SMALL_CHUNK_BYTES ((uint64_t)1 << 20) /* of models that are smaller than a chunk */
#define ALIGNMENT 256
#define MAX_CHUNKS 65536

typedef struct place {
    const void *data; /* NULL: free */
    uint64_t address, bytes;
} place;

struct vulkan_weights {
    vulkan_buffer *chunks; /* [n]; the last is being filled */
    size_t n, cap;
    uint64_t used, bytes; /* of the last chunk; of all */
    place *places;        /* [n_places], a power of two: a hash table with open addressing */
    size_t n_places, n_used;
    bool prepared;
};

static uint64_t slice_bytes_of(const model_weight *w) {
    return (uint64_t)kernel_row_bytes(w->type, w->n_in) * (uint64_t)w->n_out;
}
static uint64_t bytes_of(const model_weight *w) { return slice_bytes_of(w) * (uint64_t)BASE_MAX(w->n_slices, 1); }

/* ---- the table ---- */

static place *find(const vulkan_weights *x, const void *data) {
    size_t i = (size_t)base_mix64((uint64_t)(uintptr_t)data) & (x->n_places - 1);
    while (x->places[i].data && x->places[i].data != data) i = (i + 1) & (x->n_places - 1);
    return &x->places[i];
}

/* At least twice as many places as weights. */
static int grow_table(vulkan_weights *x, rp_error *err) {
    if (2 * (x->n_used + 1) <= x->n_places) return RP_OK;
    const size_t n = x->n_places ? 2 * x->n_places : 256;
    vulkan_weights larger = *x;
    larger.n_places = n;
    larger.places = base_calloc(n, sizeof(*x->places));
    if (!larger.places) return base_fail_memory(err, n * sizeof(*x->places), "weights");
    for (size_t i = 0; i < x->n_places; i++)
        if (x->places[i].data) *find(&larger, x->places[i].data) = x->places[i];
    base_free(x->places);
    *x = larger;
    return RP_OK;
}

/* ---- uploading ---- */

/* Of a chunk that a weight begins. */
static uint64_t chunk_bytes_for(const vulkan_backend *b, uint64_t need) {
    const uint64_t usual = b->net->weight_bytes < CHUNK_BYTES ? SMALL_CHUNK_BYTES : CHUNK_BYTES;
    return BASE_MAX(BASE_DIV_UP(need, 4) * 4, usual); /* shaders read whole words */
}

static uint64_t aligned(uint64_t bytes) { return BASE_DIV_UP(bytes, ALIGNMENT) * ALIGNMENT; }

static int add_chunk(vulkan_backend *b, uint64_t need, rp_error *err) {
    vulkan_weights *x = b->weights;
    int rc = base_grow((void **)&x->chunks, &x->cap, x->n + 1, MAX_CHUNKS, sizeof(*x->chunks));
    if (rc) return base_fail_memory(err, (x->n + 1) * sizeof(*x->chunks), "weights");
    rc = vulkan_take(b, VULKAN_ON_DEVICE, chunk_bytes_for(b, need), "the weights", &x->chunks[x->n], err);
    if (rc) return rc;
    x->bytes += x->chunks[x->n++].bytes;
    x->used = 0;
    return RP_OK;
}

static int upload_slices(vulkan_backend *b, const model_weight *w, uint64_t at, rp_error *err) {
    const vulkan_buffer *chunk = &b->weights->chunks[b->weights->n - 1];
    const uint64_t slice = slice_bytes_of(w);
    int rc = RP_OK;
    for (int64_t i = 0; i < BASE_MAX(w->n_slices, 1) && !rc; i++) {
        const char *from = (const char *)w->data + i * w->slice_bytes;
        const vulkan_region to = {.buffer = chunk, .at = at + (uint64_t)i * slice, .bytes = slice};
        rc = vulkan_upload(&b->copies, from, &to, err);
        /* rows of the embedding are read again */
        if (!rc && b->net->forget && w->data != b->net->embedding.data) b->net->forget(b->net->source, from, slice);
    }
    return rc;
}

static int upload(vulkan_backend *b, const model_weight *w, uint64_t *address, rp_error *err) {
    vulkan_weights *x = b->weights;
    const uint64_t bytes = bytes_of(w);
    int rc = grow_table(x, err);
    if (rc) return rc;
    if ((x->n == 0 || x->used + bytes > x->chunks[x->n - 1].bytes) && (rc = add_chunk(b, bytes, err))) return rc;
    if ((rc = upload_slices(b, w, x->used, err))) return rc;
    *address = x->chunks[x->n - 1].address + x->used;
    place *p = find(x, w->data);
    x->n_used += !p->data;
    *p = (place){w->data, *address, bytes};
    x->used = BASE_MIN(aligned(x->used + bytes), x->chunks[x->n - 1].bytes);
    return RP_OK;
}

uint64_t vulkan_weight(vulkan_backend *b, const model_weight *w) {
    uint64_t address = 0;
    rp_error err = {0};
    if (!w || !w->data || b->failure.code) return 0;
    const place *p = b->weights->n_places ? find(b->weights, w->data) : NULL;
    if (p && p->data && p->bytes >= bytes_of(w)) return p->address;
    const int rc = upload(b, w, &address, &err);
    if (rc) vulkan_step_fail(b, rc, &err);
    return address;
}

int vulkan_weights_prepare(backend *self, rp_on_progress on_progress, void *user, rp_error *err) {
    vulkan_backend *b = vulkan(self);
    const model_network *net = b->net;
    uint64_t total = 0, done = 0;
    if (b->weights->prepared) return RP_OK;
    for (int32_t i = 0; i < net->n_matrices; i++)
        if (net->matrices[i]->data) total += bytes_of(net->matrices[i]);
    for (int32_t i = 0; i < net->n_matrices; i++) {
        const model_weight *w = net->matrices[i];
        uint64_t address;
        if (!w->data || (b->weights->n_places && find(b->weights, w->data)->data)) continue;
        const int rc = upload(b, w, &address, err);
        if (rc) return rc;
        done += bytes_of(w);
        if (on_progress) on_progress(user, done, total);
    }
    b->weights->prepared = true;
    return RP_OK;
}

/* ---- life ---- */

int vulkan_weights_new(vulkan_backend *b, rp_error *err) {
    b->weights = base_calloc(1, sizeof(*b->weights));
    return b->weights ? RP_OK : base_fail_memory(err, sizeof(*b->weights), "weights");
}

void vulkan_weights_free(vulkan_backend *b) {
    vulkan_weights *x = b->weights;
    if (!x) return;
    for (size_t i = 0; i < x->n; i++) vulkan_give(b, &x->chunks[i]);
    base_free(x->chunks);
    base_free(x->places);
    base_free(x);
}

/* The chunks that prepare will add: it uploads in the same order. */
uint64_t vulkan_weights_pending(const vulkan_backend *b) {
    const vulkan_weights *x = b->weights;
    uint64_t bytes = 0, left = x->n > 0 ? x->chunks[x->n - 1].bytes - x->used : 0;
    for (int32_t i = 0; i < b->net->n_matrices && !x->prepared; i++) {
        const model_weight *w = b->net->matrices[i];
        if (!w->data || (x->n_places && find(x, w->data)->data)) continue;
        if (bytes_of(w) > left) bytes += left = chunk_bytes_for(b, bytes_of(w));
        left -= BASE_MIN(aligned(bytes_of(w)), left);
    }
    return bytes;
}

uint64_t vulkan_weights_bytes(const vulkan_backend *b) { return b->weights->bytes + vulkan_weights_pending(b); }
