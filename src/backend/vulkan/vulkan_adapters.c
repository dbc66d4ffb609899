/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_adapters.c: what LoRA adapters add to linear layers on the device (backend/model_network.h).
 *
 *   low      = A x                rows of a group: neighbours with one adapter and scale
 *   product  = B low
 *   y       += factor * product
 *
 * Both products are those of linear layers, whose elements depend on their own inputs only, and each element of y is
 * added to once: a row's result does not depend on the other rows, on groups or on tiles. Rows without an adapter are
 * not touched.
 *
 * Matrices are uploaded at the first step that uses an adapter, unpacked. The device keeps MOST_ADAPTERS of them, those
 * that were used last; when there is no memory, those of the step alone.
 */
#include <string.h>

#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define MOST_ADAPTERS 64
#define PRODUCT_BYTES ((uint64_t)8 << 20) /* of scratch, or what one row needs */
#define ALIGNMENT 64

/* An adapter on the device. */
typedef struct adapter_copy {
    uint64_t id;   /* of adapter_weights; 0: none */
    uint64_t used; /* number of the last step that used it */
    vulkan_buffer memory;
    uint64_t *a, *b; /* [n_matrices]: addresses; 0: none */
    int64_t most_out;
} adapter_copy;

struct vulkan_adapters {
    adapter_copy copies[MOST_ADAPTERS];
    uint64_t n_steps;
    vulkan_buffer low, product; /* scratch */
    bool are_on;                /* in this step */
};

/* ---- copies ---- */

static uint64_t bytes_of(const model_weight *w) {
    const uint64_t bytes = (uint64_t)(kernel_row_bytes(w->type, w->n_in) * w->n_out);
    return BASE_DIV_UP(bytes, ALIGNMENT) * ALIGNMENT;
}

static void free_copy(vulkan_backend *b, adapter_copy *c) {
    vulkan_copies_settle(&b->copies);
    vulkan_give(b, &c->memory);
    base_free(c->a);
    *c = (adapter_copy){.id = 0};
}

static int upload(vulkan_backend *b, int side, const model_weight *w, const vulkan_buffer *to, uint64_t at,
                  rp_error *err) {
    const size_t row = (size_t)kernel_row_bytes(w->type, w->n_in), bytes = row * (size_t)w->n_out;
    char *rows = base_alloc(bytes);
    if (!rows) return base_fail_memory(err, bytes, "an adapter");
    for (int64_t o = 0; o < w->n_out; o++)
        kernel_packed_row(w->type, side, w->data, w->n_in, o, rows + row * (size_t)o);
    const int rc = vulkan_upload(&b->copies, rows, &(vulkan_region){.buffer = to, .at = at, .bytes = bytes}, err);
    base_free(rows);
    return rc;
}

/* Matrices that share A (of one tensor of the model) share its copy, too. */
static bool shares_a(const adapter_weights *w, int32_t i, int32_t last) {
    return last >= 0 && w->matrices[i].a.data == w->matrices[last].a.data;
}

/* Does it add to a matrix that this backend computes with? */
static bool adds_to(const vulkan_backend *b, const adapter_weights *w, int32_t i) {
    return w->matrices[i].a.data && b->net->matrices[i]->data;
}

static int fill_copy(vulkan_backend *b, adapter_copy *c, const adapter_weights *w, rp_error *err) {
    uint64_t at = 0;
    int rc = RP_OK;
    for (int32_t i = 0, last = -1; i < b->net->n_matrices && !rc; i++) {
        const adapter_matrix *m = &w->matrices[i];
        if (!adds_to(b, w, i)) continue;
        c->a[i] = shares_a(w, i, last) ? c->a[last] : c->memory.address + at;
        if (!shares_a(w, i, last)) {
            rc = upload(b, w->side, &m->a, &c->memory, at, err);
            at += bytes_of(&m->a);
        }
        c->b[i] = c->memory.address + at;
        if (!rc) rc = upload(b, w->side, &m->b, &c->memory, at, err);
        at += bytes_of(&m->b);
        c->most_out = BASE_MAX(c->most_out, m->b.n_out);
        last = i;
    }
    return rc;
}

static uint64_t copy_bytes(const vulkan_backend *b, const adapter_weights *w) {
    uint64_t bytes = 0;
    for (int32_t i = 0, last = -1; i < b->net->n_matrices; i++) {
        if (!adds_to(b, w, i)) continue;
        bytes += (shares_a(w, i, last) ? 0 : bytes_of(&w->matrices[i].a)) + bytes_of(&w->matrices[i].b);
        last = i;
    }
    return bytes;
}

/* The copy that was used longest ago, or a free one; NULL: all are of this step. */
static adapter_copy *oldest_copy(vulkan_adapters *x, bool is_used) {
    adapter_copy *oldest = NULL;
    for (adapter_copy *c = x->copies; c < x->copies + MOST_ADAPTERS; c++)
        if (c->used < x->n_steps && (c->id != 0 || !is_used) && (!oldest || c->used < oldest->used)) oldest = c;
    return oldest;
}

static adapter_copy *copy_of(vulkan_adapters *x, const adapter_weights *w) {
    for (adapter_copy *c = x->copies; c < x->copies + MOST_ADAPTERS; c++)
        if (c->id == w->id) return c;
    return NULL;
}

static int make_copy(vulkan_backend *b, const adapter_weights *w, rp_error *err) {
    vulkan_adapters *x = b->adapters;
    const size_t n = (size_t)b->net->n_matrices;
    adapter_copy *c = oldest_copy(x, false), *other;
    if (!c) return base_fail(err, RP_ERR_LIMIT, "a step has rows of more than %d adapters", MOST_ADAPTERS);
    free_copy(b, c);
    if (!(c->a = base_calloc(2 * n, sizeof(*c->a)))) return base_fail_memory(err, 2 * n * sizeof(*c->a), "an adapter");
    c->b = c->a + n;
    int rc;
    while ((rc = vulkan_take(b, VULKAN_ON_DEVICE, copy_bytes(b, w), "an adapter", &c->memory, err)) &&
           (other = oldest_copy(x, true)))
        free_copy(b, other);
    if (!rc) rc = fill_copy(b, c, w, err);
    if (rc) {
        free_copy(b, c);
        return rc;
    }
    c->id = w->id;
    c->used = x->n_steps;
    return RP_OK;
}

/* ---- a step ---- */

static int grow(vulkan_backend *b, vulkan_buffer *buffer, uint64_t bytes, rp_error *err) {
    if (buffer->bytes >= bytes) return RP_OK;
    vulkan_give(b, buffer); /* no step runs */
    return vulkan_take(b, VULKAN_ON_DEVICE, bytes, "an adapter's activations", buffer, err);
}

int vulkan_adapters_begin(vulkan_backend *b, rp_error *err) {
    vulkan_adapters *x = b->adapters;
    int64_t most_out = 0, most_rank = 0;
    const uint64_t rows = (uint64_t)b->step->n_rows;
    int rc = RP_OK;
    if (x) x->n_steps++;
    if (x) x->are_on = false;
    for (int32_t r = 0; r < b->step->n_rows && !rc; r++) {
        const adapter_weights *w = b->step->rows[r].adapter;
        if (!w || (r > 0 && w == b->step->rows[r - 1].adapter)) continue;
        if (!x && !(x = b->adapters = base_calloc(1, sizeof(*x)))) return base_fail_memory(err, sizeof(*x), "adapters");
        if (x->n_steps == 0) x->n_steps = 1;
        BASE_ASSERT(w->net == model_network_whole(b->net) && w->id != 0);
        if (!copy_of(x, w) && (rc = make_copy(b, w, err))) return rc;
        adapter_copy *c = copy_of(x, w);
        c->used = x->n_steps;
        x->are_on = true;
        most_out = BASE_MAX(most_out, c->most_out);
        most_rank = BASE_MAX(most_rank, w->max_rank);
    }
    if (!x || !x->are_on) return RP_OK;
    const uint64_t row_bytes = sizeof(float) * (uint64_t)most_out;
    rc = grow(b, &x->low, sizeof(float) * (uint64_t)most_rank * rows, err);
    return rc ? rc : grow(b, &x->product, BASE_MAX(BASE_MIN(row_bytes * rows, PRODUCT_BYTES), row_bytes), err);
}

bool vulkan_adapters_are_on(const backend *self) {
    const vulkan_adapters *x = ((const vulkan_backend *)self)->adapters;
    return x && x->are_on;
}

/* Rows [first, first + n) of the source. */
typedef struct adapter_group {
    const adapter_weights *adapter;
    float scale;
    int32_t first, n;
} adapter_group;

static vulkan_linear_args product_args(const model_weight *w, uint64_t weights, uint64_t src, int64_t src_width,
                                       uint64_t dst, int32_t rows) {
    return (vulkan_linear_args){.src = src,
                                .dst = dst,
                                .weights = weights,
                                .n_in = (uint32_t)w->n_in,
                                .n_out = (uint32_t)w->n_out,
                                .rows = (uint32_t)rows,
                                .row_bytes = (uint32_t)kernel_row_bytes(w->type, w->n_in),
                                .src_width = (uint32_t)src_width,
                                .dst_width = (uint32_t)w->n_out};
}

static void adapt_group(vulkan_backend *b, const adapter_group *g, const backend_buffer *src,
                        const model_weight *weight, backend_buffer *dst) {
    const vulkan_adapters *x = b->adapters;
    const adapter_matrix *m = &g->adapter->matrices[weight->matrix];
    const adapter_copy *c = copy_of(b->adapters, g->adapter);
    BASE_DCHECK(weight->matrix < b->net->n_matrices);
    if (!m->a.data) return;
    BASE_ASSERT(m->a.n_in <= src->width && m->b.n_out == dst->width);
    const uint64_t fit = x->product.bytes / (sizeof(float) * (uint64_t)m->b.n_out);
    const int32_t at_once = (int32_t)BASE_MIN(fit, (uint64_t)g->n);
    for (int32_t r = 0; r < g->n; r += at_once) {
        const int32_t rows = BASE_MIN(at_once, g->n - r);
        const uint64_t row = (uint64_t)(g->first + r) * sizeof(float);
        const vulkan_linear_args low = product_args(&m->a, c->a[weight->matrix],
                                                    src->memory.address + row * (uint64_t)src->width, src->width,
                                                    x->low.address, rows),
                                 high = product_args(&m->b, c->b[weight->matrix], x->low.address, m->a.n_out,
                                                     x->product.address, rows);
        const vulkan_elements_args sum = {.dst = dst->memory.address + row * (uint64_t)dst->width,
                                          .src = x->product.address,
                                          .rows = (uint32_t)rows,
                                          .width = (uint32_t)dst->width,
                                          .x = g->scale * m->factor};
        vulkan_product(b, &low, m->a.type);
        vulkan_product(b, &high, m->b.type);
        vulkan_element_op_record(b, VULKAN_ADD, &sum);
    }
}

/* The group that begins at a row of the source, or at the first row after it that has an adapter; n 0: none. */
static adapter_group next_group(const vulkan_backend *b, const int32_t *indices, int32_t first, int32_t rows) {
    adapter_group g = {.first = first};
    for (int32_t r = first; r < rows; r++) {
        const model_row *row = &b->step->rows[indices ? indices[r] : r];
        if (g.n > 0 && (row->adapter != g.adapter || row->adapter_scale != g.scale)) break;
        if (!row->adapter) continue;
        if (g.n == 0) g = (adapter_group){.adapter = row->adapter, .scale = row->adapter_scale, .first = r};
        g.n++;
    }
    return g;
}

void vulkan_adapt(backend *self, const backend_buffer *src, const int32_t *indices, int32_t rows, int32_t n,
                  const model_weight *const *weights, backend_buffer *const *dst) {
    vulkan_backend *b = vulkan(self);
    BASE_ASSERT(vulkan_adapters_are_on(self) && n <= BACKEND_MAX_WEIGHTS);
    for (adapter_group g = next_group(b, indices, 0, rows); g.n > 0; g = next_group(b, indices, g.first + g.n, rows))
        for (int32_t i = 0; i < n; i++) adapt_group(b, &g, src, weights[i], dst[i]);
}

void vulkan_adapters_free(vulkan_backend *b) {
    vulkan_adapters *x = b->adapters;
    if (!x) return;
    for (int i = 0; i < MOST_ADAPTERS; i++) free_copy(b, &x->copies[i]);
    vulkan_give(b, &x->low);
    vulkan_give(b, &x->product);
    base_free(x);
}
