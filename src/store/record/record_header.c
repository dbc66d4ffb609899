/* SPDX-License-Identifier: Apache-2.0 */
/* record_header.c: see record_header.h. */
#define XXH_INLINE_ALL /* the state of a checksum on the stack, not allocated by the library */
#include <xxhash.h>

#include "store/record/record_layer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

const char *record_fault_name(record_fault fault) {
    static const char *const names[] = {
#define X(NAME, name, code, text) #name,
        RECORD_FAULTS(X)
#undef X
    };
    return fault < RECORD_FAULT_COUNT ? names[fault] : "?";
}

record_fault record_fail(rp_error *err, record_fault fault, const char *where, const char *fmt, ...) {
    static const struct {
        rp_code code;
        const char *text;
    } faults[] = {
#define X(NAME, name, code, text) {RP_##code, text},
        RECORD_FAULTS(X)
#undef X
    };
    char detail[160];
    va_list ap;
    BASE_ASSERT(fault > RECORD_FAULT_NONE && fault < RECORD_FAULT_COUNT);
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    base_fail_at(err, faults[fault].code, where, 0, "%s: %s", faults[fault].text, detail);
    return fault;
}

/* ---- checksums ---- */

record_checksum record_checksum_of(const struct iovec *pieces, int n) {
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    for (int i = 0; i < n; i++) XXH3_128bits_update(&state, pieces[i].iov_base, pieces[i].iov_len);
    XXH128_hash_t sum = XXH3_128bits_digest(&state);
    return (record_checksum){sum.low64, sum.high64};
}

record_checksum record_header_checksum(const uint8_t *header, size_t kv_at) {
    uint8_t *bytes = (uint8_t *)(uintptr_t)header;
    BASE_ASSERT(kv_at >= RECORD_PUBLIC_BYTES);
    const struct iovec pieces[] = {{bytes, RECORD_BOUND_BYTES},
                                   {bytes + RECORD_PUBLIC_BYTES, kv_at - RECORD_PUBLIC_BYTES}};
    return record_checksum_of(pieces, 2);
}

/* ---- sizes ---- */

uint8_t record_all_kept(int32_t n_slots) {
    BASE_ASSERT(n_slots >= 0 && n_slots <= KV_SPAN_TOKENS);
    return (uint8_t)((1 << BASE_DIV_UP(n_slots, KV_BLOCK_SLOTS)) - 1);
}

uint32_t record_version_of(const kv_shape *shape) { return kv_shape_capabilities(shape).reduces ? 2 : 3; }

/* n_heads: of all layers of a reduced span; else 0. */
static size_t reduced_bytes(int32_t n_heads) { return n_heads > 0 ? RECORD_REDUCED_BYTES + (size_t)n_heads * 2 : 0; }

size_t record_private_bytes(uint32_t version, int32_t n_layers, int32_t n_heads, int32_t n_tokens, size_t label_bytes) {
    return record_fixed_bytes(version) + (size_t)n_layers * record_layer_row_bytes(version) + reduced_bytes(n_heads) +
           (size_t)n_tokens * 4 + label_bytes;
}

uint64_t record_kv_at(bool is_encrypted, uint64_t private_bytes) {
    if (is_encrypted) return RECORD_PUBLIC_BYTES + RECORD_STREAM_START_BYTES + private_bytes + RECORD_MESSAGE_EXTRA;
    return BASE_DIV_UP(RECORD_PUBLIC_BYTES + private_bytes, RECORD_PAGE) * RECORD_PAGE;
}

/* ---- numbers, always little-endian ---- */

static uint8_t *record_header_put(uint8_t *out, uint64_t v, int n) {
    for (int i = 0; i < n; i++) out[i] = (uint8_t)(v >> (8 * i));
    return out + n;
}

static uint8_t *put_bytes(uint8_t *out, const void *bytes, size_t n) {
    if (n > 0) memcpy(out, bytes, n);
    return out + n;
}

static uint8_t *put_i32(uint8_t *out, int32_t v) { return record_header_put(out, (uint32_t)v, 4); }

static uint64_t record_header_get(const uint8_t **in, int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v |= (uint64_t)(*in)[i] << (8 * i);
    *in += n;
    return v;
}

static uint32_t get_u32(const uint8_t **in) { return (uint32_t)record_header_get(in, 4); }
static int32_t get_i32(const uint8_t **in) { return (int32_t)get_u32(in); }

static void get_bytes(const uint8_t **in, void *out, size_t n) {
    if (n > 0) memcpy(out, *in, n);
    *in += n;
}

static record_checksum get_checksum(const uint8_t **in) {
    uint64_t low = record_header_get(in, 8);
    return (record_checksum){low, record_header_get(in, 8)};
}

void record_put_checksum(uint8_t out[16], record_checksum sum) {
    record_header_put(record_header_put(out, sum.low, 8), sum.high, 8);
}

/* ---- the public header ---- */

void record_put_public(uint8_t out[RECORD_PUBLIC_BYTES], const record_public *p) {
    uint8_t *at = put_bytes(out, RECORD_MAGIC, RECORD_MAGIC_BYTES);
    at = record_header_put(record_header_put(at, p->version, 4), p->flags, 4);
    at = record_header_put(record_header_put(at, p->file_bytes, 8), p->private_bytes, 4);
    at = put_bytes(record_header_put(at, 0, 4), p->cipher_id, sizeof p->cipher_id);
    BASE_ASSERT(at + 16 == out + RECORD_PUBLIC_BYTES && p->version <= RECORD_FILE_VERSION);
    record_put_checksum(at, p->checksum);
}

uint64_t record_get_file_bytes(const uint8_t in[RECORD_PUBLIC_BYTES]) {
    const uint8_t *at = in + RECORD_MAGIC_BYTES + 8; /* after version and flags */
    return record_header_get(&at, 8);
}

record_fault record_get_public(record_public *out, const uint8_t in[RECORD_PUBLIC_BYTES], uint64_t file_bytes,
                               const char *where, rp_error *err) {
    static const uint8_t no_id[RECORD_CIPHER_ID_BYTES];
    record_public p;
    const uint8_t *at = in + RECORD_MAGIC_BYTES;
    if (memcmp(in, RECORD_MAGIC, RECORD_MAGIC_BYTES) != 0)
        return record_fail(err, RECORD_FAULT_DAMAGED, where, "it does not begin with a record's magic number");
    p.version = get_u32(&at);
    p.flags = get_u32(&at);
    p.file_bytes = record_header_get(&at, 8);
    p.private_bytes = get_u32(&at);
    uint32_t zeros = get_u32(&at);
    get_bytes(&at, p.cipher_id, sizeof p.cipher_id);
    p.checksum = get_checksum(&at);
    BASE_ASSERT(at == in + RECORD_PUBLIC_BYTES);
    if (p.version < 1 || p.version > RECORD_FILE_VERSION)
        return record_fail(err, RECORD_FAULT_VERSION, where, "%u, but this program reads 1 to %d", p.version,
                           RECORD_FILE_VERSION);
    if (file_bytes != p.file_bytes)
        return record_fail(err, file_bytes < p.file_bytes ? RECORD_FAULT_TRUNCATED : RECORD_FAULT_DAMAGED, where,
                           "%llu bytes instead of %llu", (unsigned long long)file_bytes,
                           (unsigned long long)p.file_bytes);
    bool is_encrypted = p.flags & RECORD_ENCRYPTED, has_id = memcmp(p.cipher_id, no_id, sizeof no_id) != 0;
    if (p.flags & ~(uint32_t)RECORD_ENCRYPTED || zeros || (has_id && !is_encrypted))
        return record_fail(err, RECORD_FAULT_DAMAGED, where, "unknown flags");
    if (p.private_bytes < record_fixed_bytes(p.version) || p.private_bytes > RECORD_MAX_PRIVATE ||
        record_kv_at(is_encrypted, p.private_bytes) > file_bytes)
        return record_fail(err, RECORD_FAULT_DAMAGED, where, "a header of %u bytes", p.private_bytes);
    *out = p;
    return RECORD_FAULT_NONE;
}

/* ---- the private header ---- */

#define DERIVATION_BYTES 16
#define SIGNATURE_BYTES 64

static uint8_t *put_layer(uint8_t *at, const record_layer *l, int32_t window, uint8_t kept, bool is_f16) {
    at = put_i32(record_header_put(at, l->begin, 8), window);
    at = record_header_put(record_header_put(record_header_put(at, kept, 1), is_f16, 1), 0, 2);
    record_put_checksum(at, l->checksum);
    return at + 16;
}

/* What version 3 has of a layer beyond the others. */
static uint8_t *put_layer_shape(uint8_t *at, const kv_layer_shape *l) {
    at = put_i32(put_i32(record_header_put(at, (uint64_t)l->kind, 4), l->n_heads), l->key_dim);
    return record_header_put(record_header_put(put_i32(at, l->value_dim), l->state_bytes, 4), 0, 4);
}

void record_put_private(uint8_t *out, const record_format *format, const record *r, const record_layer *layers) {
    const kv_shape *shape = &format->shape;
    const bool is_uniform = record_version_of(shape) < 3;
    const kv_layer_shape none = {0}, *common = is_uniform ? &shape->layers[0] : &none;
    size_t label_bytes = strlen(r->label);
    uint8_t *at = put_bytes(out, format->fingerprint.bytes, BASE_KEY_BYTES);
    at = put_bytes(put_bytes(at, r->key.bytes, BASE_KEY_BYTES), r->parent.bytes, BASE_KEY_BYTES);
    at = record_header_put(record_header_put(at, r->cost_us, 8), (uint64_t)r->kind, 4);
    at = put_i32(put_i32(put_i32(at, r->at), r->first_slot), r->n_tokens);
    at = put_i32(put_i32(put_i32(at, r->form.n_tokens), r->form.first_pos), r->form.readable_from);
    const uint64_t number = kv_format_number(shape->format) + (kv_shape_mixes(shape) ? RECORD_MIXES : 0);
    at = put_i32(record_header_put(at, number | (uint64_t)format->arithmetic << 8, 4), shape->n_layers);
    at = put_i32(put_i32(put_i32(at, common->n_heads), common->key_dim), common->value_dim);
    at = record_header_put(record_header_put(at, label_bytes, 4), r->tenant, 4);
    memset(at, 0, DERIVATION_BYTES + SIGNATURE_BYTES);
    at += DERIVATION_BYTES + SIGNATURE_BYTES;
    BASE_ASSERT(at == out + RECORD_FIXED_BYTES);
    for (int32_t i = 0; i < shape->n_layers; i++) {
        at = put_layer(at, &layers[i], shape->layers[i].window, r->form.kept[i],
                       kv_shape_layer_format(shape, i) != shape->format);
        if (!is_uniform) at = put_layer_shape(at, &shape->layers[i]);
    }
    const int32_t n_heads = r->form.slots ? shape->n_layers * r->form.n_kv_heads : 0; /* of a reduced span */
    if (r->form.slots) at = put_i32(put_i32(at, r->form.end), r->form.n_parts);
    for (int32_t i = 0; i < n_heads; i++) at = record_header_put(at, r->form.slots[i], 2);
    for (int32_t i = 0; i < r->n_tokens; i++) at = put_i32(at, r->tokens[i]);
    at = put_bytes(at, r->label, label_bytes);
    BASE_ASSERT(
        at == out + record_private_bytes(record_version_of(shape), shape->n_layers, n_heads, r->n_tokens, label_bytes));
}

/* State of the parser of a private header. */
typedef struct parse {
    const uint8_t *at;
    const record_public *public;
    const char *where;
    rp_error *err;
    record_layer *layers;  /* the arrays of the record and the format, writable */
    kv_layer_shape common; /* of all layers but for windows and formats */
    kv_layer_shape *shapes;
    int32_t *tokens;
    uint16_t *slots; /* of a reduced span */
    uint8_t *kept;
    bool mixes; /* some layers are in f16 */
    char *label;
    uint32_t label_bytes;
} parse;

static record_fault parse_damaged(const parse *p, const char *what, long long value) {
    return record_fail(p->err, RECORD_FAULT_DAMAGED, p->where, "%s %lld is out of range", what, value);
}

static void get_fixed(record_head *h, parse *p, uint32_t *kind, uint32_t *format) {
    record *r = &h->record;
    kv_shape *shape = &h->format.shape;
    get_bytes(&p->at, h->format.fingerprint.bytes, BASE_KEY_BYTES);
    get_bytes(&p->at, r->key.bytes, BASE_KEY_BYTES);
    get_bytes(&p->at, r->parent.bytes, BASE_KEY_BYTES);
    r->cost_us = record_header_get(&p->at, 8);
    *kind = get_u32(&p->at);
    r->at = get_i32(&p->at);
    r->first_slot = get_i32(&p->at);
    r->n_tokens = get_i32(&p->at);
    r->form.n_tokens = get_i32(&p->at);
    r->form.first_pos = get_i32(&p->at);
    r->form.readable_from = get_i32(&p->at);
    *format = get_u32(&p->at);
    shape->n_layers = get_i32(&p->at);
    p->common.n_heads = get_i32(&p->at);
    p->common.key_dim = get_i32(&p->at);
    p->common.value_dim = get_i32(&p->at);
    p->label_bytes = get_u32(&p->at);
    r->tenant = get_u32(&p->at);
}

/* Keys that are derived from the store's, and signatures, are for later programs: this one cannot check them. */
static record_fault get_protection(parse *p) {
    static const uint8_t zeros[DERIVATION_BYTES + SIGNATURE_BYTES];
    if (p->public->version == 1) return RECORD_FAULT_NONE;
    const uint8_t *at = p->at;
    p->at += sizeof zeros;
    BASE_ASSERT(p->public->private_bytes >= record_fixed_bytes(p->public->version)); /* record_get_public */
    if (memcmp(at, zeros, DERIVATION_BYTES) != 0)
        return record_fail(p->err, RECORD_FAULT_CIPHER, p->where, "a derived key, which is unknown here");
    if (memcmp(at, zeros, sizeof zeros) != 0)
        return record_fail(p->err, RECORD_FAULT_CIPHER, p->where, "a signature, which cannot be checked here");
    return RECORD_FAULT_NONE;
}

/* Numbers of a layer in a format. */
static record_fault check_layer_shape(const parse *p, const kv_layer_shape *s, rp_kv_format format) {
    if (s->kind == KV_STATE)
        return s->state_bytes < 1 || s->state_bytes > RECORD_MAX_BLOCK_BYTES || s->n_heads || s->key_dim || s->value_dim
                   ? parse_damaged(p, "a state's size of", s->state_bytes)
                   : RECORD_FAULT_NONE;
    if (s->n_heads < 1 || s->n_heads > (s->kind == KV_LATENT ? 1 : 65536))
        return parse_damaged(p, "a number of heads", s->n_heads);
    if (s->key_dim < 1 || s->key_dim > 65536) return parse_damaged(p, "a number of key dimensions", s->key_dim);
    if (s->value_dim < 1 || s->value_dim > (s->kind == KV_LATENT ? s->key_dim : 65536))
        return parse_damaged(p, "a number of value dimensions", s->value_dim);
    const kv_layer l = kv_layer_make(s, format), largest = p->mixes ? kv_layer_make(s, RP_KV_F16) : l;
    if (s->state_bytes || !kv_layer_is_supported(&l)) return parse_damaged(p, "a number of key dimensions", s->key_dim);
    const uint64_t block = largest.block_bytes;
    return block > RECORD_MAX_BLOCK_BYTES ? parse_damaged(p, "a block's size of", (long long)block) : RECORD_FAULT_NONE;
}

/* What version 3 has of a layer beyond the others. */
static record_fault get_layer_shape(parse *p, kv_layer_shape *out, rp_kv_format format) {
    const uint32_t kind = get_u32(&p->at);
    out->n_heads = get_i32(&p->at);
    out->key_dim = get_i32(&p->at);
    out->value_dim = get_i32(&p->at);
    out->state_bytes = get_u32(&p->at);
    const uint32_t zeros = get_u32(&p->at);
    if (kind > KV_STATE || zeros) return parse_damaged(p, "a kind of layer", kind);
    out->kind = (kv_kind)kind;
    if (out->kind == KV_STATE && out->window) return parse_damaged(p, "a window", out->window);
    return check_layer_shape(p, out, format);
}

#define X(NAME, number, name, keys, values) \
    _Static_assert((number) < RECORD_MIXES, "a number of a KV format has 7 bits in records");
RP_KV_FORMATS(X)
#undef X

static record_fault check_shape(parse *p, record_format *f, uint32_t number) {
    kv_shape *shape = &f->shape;
    const uint32_t format = number & ~(uint32_t)(0xff00 | RECORD_MIXES);
    const char *removed = kv_format_removed(format);
    f->arithmetic = (uint8_t)(number >> 8);
    p->mixes = number & RECORD_MIXES;
    if (removed) return record_fail(p->err, RECORD_FAULT_FORMAT, p->where, "%s, which was removed", removed);
    if (!kv_format_of_number(format, &shape->format) || (p->mixes && !kv_format_is_small(shape->format)))
        return record_fail(p->err, RECORD_FAULT_FORMAT, p->where, "unknown number %u", number & ~(uint32_t)0xff00);
    if (shape->n_layers < 1 || shape->n_layers > RECORD_MAX_LAYERS)
        return parse_damaged(p, "a number of layers", shape->n_layers);
    const kv_layer_shape *common = &p->common;
    if (p->public->version < 3) return check_layer_shape(p, common, shape->format);
    return common->n_heads || common->key_dim || common->value_dim
               ? parse_damaged(p, "a number of heads", common->n_heads)
               : RECORD_FAULT_NONE;
}

static record_fault parse_check_reduced(const parse *p, record *r, const kv_shape *shape) {
    if (r->at < 0 || r->at >= KV_REDUCED_MAX_PARTS) return parse_damaged(p, "a part", r->at);
    if (r->n_tokens != 0) return parse_damaged(p, "a number of tokens", r->n_tokens);
    if (r->first_slot != 0) return parse_damaged(p, "a slot", r->first_slot);
    if (shape->n_layers * (int64_t)p->common.n_heads > KV_REDUCED_MAX_HEADS)
        return parse_damaged(p, "a number of heads", p->common.n_heads);
    r->form.n_kv_heads = p->common.n_heads;
    return RECORD_FAULT_NONE;
}

/* shape: checked. */
static record_fault parse_check_record(const parse *p, record *r, const kv_shape *shape, uint32_t kind) {
    const kv_span_form *f = &r->form;
    const uint32_t n_kinds[] = {RECORD_REDUCED, RECORD_STATES, RECORD_KIND_COUNT}; /* of each version */
    if (kind >= n_kinds[p->public->version - 1] || (kind == RECORD_REDUCED && p->public->version > 2))
        return parse_damaged(p, "a kind", kind);
    r->kind = (record_kind)kind;
    r->form.is_states = record_is_of_states(r->kind);
    if (f->is_states ? f->n_tokens != 0 : f->n_tokens < 1 || f->n_tokens > KV_SPAN_TOKENS)
        return parse_damaged(p, "a number of slots", f->n_tokens);
    if (f->first_pos < 0 || f->first_pos > INT32_MAX - KV_SPAN_TOKENS)
        return parse_damaged(p, "a position", f->first_pos);
    if (r->kind == RECORD_REDUCED) return parse_check_reduced(p, r, shape);
    if (r->at < 0 || r->at > KV_SPAN_TOKENS) return parse_damaged(p, "a position after tokens", r->at);
    if (r->n_tokens < 0 || r->n_tokens > f->n_tokens) return parse_damaged(p, "a number of tokens", r->n_tokens);
    if (r->first_slot < 0 || r->first_slot > f->n_tokens - r->n_tokens)
        return parse_damaged(p, "a slot", r->first_slot);
    return RECORD_FAULT_NONE;
}

/* The sizes are valid: allocates one block of memory for all arrays, the widest elements first. */
static record_fault make_arrays(record_head *h, parse *p) {
    size_t n_layers = (size_t)h->format.shape.n_layers, n_tokens = (size_t)h->record.n_tokens;
    BASE_ASSERT(n_layers <= RECORD_MAX_LAYERS && n_tokens <= KV_SPAN_TOKENS &&
                p->label_bytes <= RECORD_MAX_LABEL);                     /* checked */
    const size_t n_heads = n_layers * (size_t)h->record.form.n_kv_heads; /* of a reduced span */
    size_t bytes = n_layers * (sizeof(record_layer) + sizeof(kv_layer_shape) + 1) + n_tokens * sizeof(int32_t) +
                   n_heads * sizeof(uint16_t) + p->label_bytes + 1;
    h->memory = base_alloc(bytes);
    if (!h->memory) {
        base_fail_memory(p->err, bytes, p->where);
        return RECORD_FAULT_MEMORY;
    }
    p->layers = h->memory;
    p->shapes = (kv_layer_shape *)(p->layers + n_layers);
    p->tokens = (int32_t *)(p->shapes + n_layers);
    p->slots = (uint16_t *)(p->tokens + n_tokens);
    p->kept = (uint8_t *)(p->slots + n_heads);
    p->label = (char *)(p->kept + n_layers);
    h->layers = p->layers;
    h->format.shape.layers = p->shapes;
    h->record.tokens = p->tokens;
    h->record.form.kept = p->kept;
    if (n_heads > 0) h->record.form.slots = p->slots;
    h->record.label = p->label;
    return RECORD_FAULT_NONE;
}

/* The numbers of a reduced span, which follow the layers: their sizes depend on it. */
static record_fault get_reduced(record_head *h, parse *p) {
    kv_span_form *f = &h->record.form;
    const uint8_t *at = p->at + (size_t)h->format.shape.n_layers * record_layer_row_bytes(p->public->version);
    if (!f->slots) return RECORD_FAULT_NONE;
    f->end = get_i32(&at);
    f->n_parts = get_i32(&at);
    if (f->end < f->first_pos + f->n_tokens || f->end - f->first_pos > KV_SELECTION_MAX_SLOTS)
        return parse_damaged(p, "an end", f->end);
    if (h->record.at >= f->n_parts || f->n_parts > KV_REDUCED_MAX_PARTS)
        return parse_damaged(p, "a number of parts", f->n_parts);
    for (int32_t i = 0; i < h->format.shape.n_layers * f->n_kv_heads; i++) {
        p->slots[i] = (uint16_t)record_header_get(&at, 2);
        if (p->slots[i] > f->n_tokens) return parse_damaged(p, "a head's number of slots", p->slots[i]);
    }
    return RECORD_FAULT_NONE;
}

/* Layers are contiguous, and the file ends with the last. */
static record_fault get_layers(const record_head *h, parse *p) {
    bool is_encrypted = p->public->flags & RECORD_ENCRYPTED;
    uint64_t begin = record_kv_at(is_encrypted, p->public->private_bytes);
    const uint8_t all_kept = record_all_kept(h->record.form.n_tokens);
    for (int32_t i = 0; i < h->format.shape.n_layers; i++) {
        p->layers[i].begin = record_header_get(&p->at, 8);
        p->shapes[i] = p->common;
        p->shapes[i].window = get_i32(&p->at);
        p->kept[i] = (uint8_t)record_header_get(&p->at, 1);
        uint64_t is_f16 = record_header_get(&p->at, 1), zeros = record_header_get(&p->at, 2);
        p->shapes[i].in_f16 = is_f16;
        p->layers[i].checksum = get_checksum(&p->at);
        if (p->layers[i].begin != begin) return parse_damaged(p, "a layer's offset", (long long)p->layers[i].begin);
        const int32_t window = p->shapes[i].window;
        if (window < 0) return parse_damaged(p, "a window", window);
        if (p->public->version >= 3) {
            const record_fault fault = get_layer_shape(p, &p->shapes[i], h->format.shape.format);
            if (fault) return fault;
        }
        const uint8_t all = p->shapes[i].kind == KV_STATE ? 0 : all_kept;
        if (p->kept[i] & ~all || (window == 0 && !h->record.form.slots && p->kept[i] != all) || zeros)
            return parse_damaged(p, "a layer with blocks", p->kept[i]);
        if (is_f16 > p->mixes) return parse_damaged(p, "a layer's format", (long long)is_f16);
        /* at most 2^12 * 2^2 * 2^26 */
        begin += record_layer_bytes(&h->format.shape, &h->record.form, i, p->public->version, is_encrypted);
    }
    p->at += reduced_bytes(h->format.shape.n_layers * h->record.form.n_kv_heads); /* get_reduced */
    if (!kv_form_is_possible(&h->record.form, &h->format.shape))
        return parse_damaged(p, "a number of slots", h->record.form.n_tokens);
    if (p->public->version != record_version_of(&h->format.shape) && p->public->version > 2)
        return parse_damaged(p, "a version", p->public->version);
    if (p->mixes && !kv_shape_mixes(&h->format.shape)) return parse_damaged(p, "a number of layers in f16", 0);
    return begin == p->public->file_bytes ? RECORD_FAULT_NONE
                                          : parse_damaged(p, "a last layer's end at", (long long)begin);
}

static record_fault get_rest(const record_head *h, parse *p) {
    for (int32_t i = 0; i < h->record.n_tokens; i++) {
        p->tokens[i] = get_i32(&p->at);
        if (p->tokens[i] < 0) return parse_damaged(p, "a token", p->tokens[i]);
    }
    get_bytes(&p->at, p->label, p->label_bytes);
    p->label[p->label_bytes] = '\0';
    return strlen(p->label) == p->label_bytes ? RECORD_FAULT_NONE : parse_damaged(p, "a label with a byte", 0);
}

record_fault record_get_private(record_head *out, const uint8_t *in, const record_public *public, const char *where,
                                rp_error *err) {
    parse p = {.at = in, .public = public, .where = where, .err = err};
    record_head h = {0};
    uint32_t kind, format;
    get_fixed(&h, &p, &kind, &format);
    record_fault fault = get_protection(&p);
    if (!fault) fault = check_shape(&p, &h.format, format);
    h.record.form.format = h.format.shape.format;
    if (!fault) fault = parse_check_record(&p, &h.record, &h.format.shape, kind);
    if (!fault && p.label_bytes > RECORD_MAX_LABEL) fault = parse_damaged(&p, "a label's size of", p.label_bytes);
    const int32_t n_heads = h.record.form.n_kv_heads * h.format.shape.n_layers; /* of a reduced span */
    size_t bytes = fault ? 0
                         : record_private_bytes(public->version, h.format.shape.n_layers, n_heads, h.record.n_tokens,
                                                p.label_bytes);
    if (!fault && bytes != public->private_bytes) fault = parse_damaged(&p, "a header of bytes", (long long)bytes);
    if (!fault) fault = make_arrays(&h, &p);
    if (!fault) fault = get_reduced(&h, &p);
    if (!fault) fault = get_layers(&h, &p);
    if (!fault) fault = get_rest(&h, &p);
    BASE_ASSERT(fault || p.at == in + public->private_bytes); /* every byte has a meaning */
    if (fault) record_head_free(&h);
    *out = h;
    return fault;
}

void record_head_free(record_head *h) {
    base_free(h->memory);
    *h = (record_head){0};
}
