/* SPDX-License-Identifier: Apache-2.0 */
/* layout_keys.c: keys of spans.
 *
 *   key of a span = H(salt, scope, position, tokens, blocks kept, KV format)
 *   scope of a segment's first span:  nothing             H(root, position)
 *                                     one chain           the key of the chain's last span
 *                                     anything else       H(list of (last key, position))
 *   scope of its next spans:          the key of the span before
 *
 * The salt belongs to the tenant that owns the schema. Modules of a shared schema have the public salt, so their keys
 * are the same for all tenants. Keys here do not depend on prompts: keys of arguments and of the prompt's own text
 * continue after the views, with the request's salt (engine/core/job_tokens.c).
 *
 * A scope is a chain if its last segment has the other segments, at the same positions, as its own scope, and ends at
 * the start of the new segment. The last key then covers the whole scope, and the segment has the key of a plain prefix
 * of these tokens.
 *
 * Blocks kept: in layers with a window, the rest of the segment and its holes decide which blocks of a span are freed
 * (kv_span_trim). Two segments with a common prefix may therefore keep different blocks. For models without windows
 * this input is empty.
 *
 * KV format: only of a segment with another than the one that the salt covers: the engine's own.
 */
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "pml/layout_internal.h"

static const base_key *last_key(const pml_layout *l, const pml_segment *s) {
    BASE_ASSERT(s->n_spans > 0); /* invariant 2: it was named before those that see it */
    return &pml_segment_keys(l, s)[s->n_spans - 1];
}

static bool is_chain(const pml_layout *l, const pml_segment *s) {
    const int32_t *scope = pml_segment_scope(l, s);
    BASE_DCHECK(s->n_scope > 0);
    const pml_segment *last = &l->segments[scope[s->n_scope - 1]];
    const int32_t *last_scope = pml_segment_scope(l, last);
    if (last->n_scope != s->n_scope - 1 || last->pos + last->n_tokens != s->pos) return false;
    for (int32_t i = 0; i < last->n_scope; i++)
        if (last_scope[i] != scope[i]) return false;
    return true; /* the same segments in the same order have the same positions, in both layouts */
}

static void scope_key(const pml_layout *l, const pml_segment *s, base_key *out) {
    if (s->n_scope > 0 && is_chain(l, s)) {
        *out = *last_key(l, &l->segments[pml_segment_scope(l, s)[s->n_scope - 1]]);
        return;
    }
    base_hash h;
    base_hash_init(&h, "reprise scope 1");
    base_hash_u64(&h, (uint64_t)s->pos);
    int32_t cursor = 0;
    for (int32_t i = 0; i < s->n_scope; i++) {
        base_hash_key(&h, last_key(l, &l->segments[pml_segment_scope(l, s)[i]]));
        base_hash_u64(&h, (uint64_t)pml_scope_position(l, s, i, &cursor));
    }
    base_hash_final(&h, out);
}

/* Returns true if a segment keeps a layer's block at pos. */
static bool keeps_block(const pml_segment *s, const kv_shape *shape, int32_t layer, int32_t pos,
                        const kv_positions *readers) {
    return kv_block_is_reached(pos, shape->layers[layer].window, s->pos + s->n_tokens - 1, readers, (size_t)s->n_holes);
}

bool pml_segment_has_kept(const pml_layout *l, const pml_segment *s, int32_t i, const kv_span *span) {
    BASE_ASSERT(i >= 0 && i < s->n_spans);
    kv_shape shape = model_kv_shape(l->model, RP_KV_F16);
    kv_positions *readers;
    bool has = true;
    if (!kv_shape_has_windows(&shape)) return true;
    if (pml_segment_readers(l, s, &readers, NULL)) return false;
    for (int32_t layer = 0; layer < shape.n_layers; layer++)
        for (int32_t b = 0; b * KV_BLOCK_SLOTS < kv_span_tokens(span); b++) {
            const bool kept = keeps_block(s, &shape, layer, s->pos + i * KV_SPAN_TOKENS + b * KV_BLOCK_SLOTS, readers);
            const bool has_block = kv_span_has(span, layer, b);
            /* A span that grew in another format than the pool's freed none. */
            has &= has_block == kept ||
                   (has_block && !kv_span_has_pool_format(span) && !kv_format_is_encoded(kv_span_format(span)));
        }
    base_free(readers);
    return has;
}

/* A bit for each block of n tokens at pos, layer by layer, that its segment keeps. */
static void hash_kept_blocks(const pml_layout *l, const pml_segment *s, int32_t pos, int32_t n,
                             const kv_positions *readers, base_hash *h) {
    kv_shape shape = model_kv_shape(l->model, RP_KV_F16);
    const bool has_windows = kv_shape_has_windows(&shape);
    for (int32_t layer = 0; has_windows && layer < shape.n_layers; layer++) {
        uint64_t kept = 0;
        for (int32_t slot = 0; slot < n; slot += KV_BLOCK_SLOTS)
            kept = kept << 1 | keeps_block(s, &shape, layer, pos + slot, readers);
        base_hash_u64(h, kept);
    }
}

static int name_segment(pml_layout *l, pml_segment *s, const base_key *salt, rp_error *err) {
    kv_positions *readers;
    s->n_spans = BASE_DIV_UP(s->n_tokens, KV_SPAN_TOKENS);
    s->first_key = l->n_keys;
    int rc = base_grow((void **)&l->keys, &l->cap_keys, l->n_keys + (size_t)s->n_spans, KV_MAX_VIEWS, sizeof(base_key));
    if (rc) return base_fail(err, rc, "out of memory: the keys of schema '%s'", l->schema->nodes[0].name);
    l->n_keys += (size_t)s->n_spans;
    if ((rc = pml_segment_readers(l, s, &readers, err))) return rc;
    base_key scope;
    scope_key(l, s, &scope);
    BASE_ASSERT(s->first_key + (size_t)s->n_spans == l->n_keys);
    for (int32_t i = 0; i < s->n_spans; i++) {
        int32_t first = i * KV_SPAN_TOKENS, n = BASE_MIN(KV_SPAN_TOKENS, s->n_tokens - first);
        base_hash h;
        base_hash_init(&h, "reprise span 1");
        base_hash_key(&h, salt);
        base_hash_key(&h, &scope);
        base_hash_u64(&h, (uint64_t)(s->pos + first));
        base_hash_bytes(&h, pml_segment_tokens(l, s) + first, (size_t)n * sizeof(int32_t));
        hash_kept_blocks(l, s, s->pos + first, n, readers, &h);
        if (s->format != pml_formats_named(&l->formats)) base_hash_u64(&h, kv_format_identity(s->format));
        base_hash_final(&h, &l->keys[s->first_key + (size_t)i]);
        scope = l->keys[s->first_key + (size_t)i];
    }
    base_free(readers);
    return RP_OK;
}

int pml_layout_name(pml_layout *l, const base_key *salt, rp_error *err) {
    for (int32_t i = 0; i < l->n_segments; i++) {
        int rc = name_segment(l, &l->segments[i], salt, err);
        if (rc) return rc;
    }
    return RP_OK;
}
