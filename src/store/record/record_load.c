/* SPDX-License-Identifier: Apache-2.0 */
/* record_load.c: see record_load.h. */
#include "store/record/record_load.h"

#include "base/check.h"
#include "base/error.h"
#include "store/record/record_header.h"

static record_fault open_place(record_reader **out, const record_place *p, const record_format *format,
                               const base_key *key, const record_cipher *cipher, rp_error *err) {
    return p->bytes ? record_reader_open_in(out, p->path, p->at, p->bytes, format, key, cipher, err)
                    : record_reader_open(out, p->path, format, key, cipher, err);
}

record_fault record_place_open(record_reader **out, const record_place *place, const base_key *key,
                               const record_cipher *cipher, rp_error *err) {
    return open_place(out, place, NULL, key, cipher, err);
}

/* Layers in f16 may not fit into blocks of a smaller format; the other layers are packed into blocks of f16. */
kv_shape record_pool_shape(const kv_shape *s) { return kv_shape_in(s, kv_shape_mixes(s) ? RP_KV_F16 : s->format); }

/* Makes a pool for its blocks: the file has at least one slot of 64 of each. */
static int record_loaded_make_space(record_loaded *l, rp_error *err) {
    const record *r = record_reader_record(l->headers);
    const kv_shape shape = record_pool_shape(&record_reader_format(l->headers)->shape);
    if (kv_pool_new(&l->pool, &shape, 0, NULL, err)) return RP_ERR_MEMORY;
    const uint64_t bytes = (uint64_t)kv_form_blocks(l->pool, &r->form) * kv_pool_block_bytes(l->pool);
    kv_pool_set_budget(l->pool, bytes);
    return kv_span_restore(&l->span, l->pool, &r->form, &r->key, NULL) ? base_fail_memory(err, bytes, "a record")
                                                                       : RP_OK;
}

static record_fault read_layers(record_loaded *l, rp_error *err) {
    record_fault fault = RECORD_FAULT_NONE;
    const int32_t n = record_reader_format(l->reader)->shape.n_layers;
    BASE_ASSERT(kv_span_has_form(l->span, &record_reader_record(l->reader)->form));
    for (int32_t i = 0; i < n && !fault; i++)
        if (!(fault = record_read_layer(l->reader, i, l->span, err))) kv_span_set_ready(l->span, i + 1);
    if (fault) kv_span_set_failed(l->span);
    return fault;
}

record_fault record_load(record_loaded *out, const record_place *place, const base_key *key,
                         const record_cipher *cipher, rp_error *err) {
    *out = (record_loaded){0};
    record_fault fault = open_place(&out->headers, place, NULL, key, cipher, err);
    if (!fault) fault = open_place(&out->reader, place, record_reader_format(out->headers), key, cipher, err);
    if (!fault && record_loaded_make_space(out, err)) fault = RECORD_FAULT_MEMORY;
    if (!fault) fault = read_layers(out, err);
    BASE_ASSERT(fault || !key || base_key_equal(kv_span_key(out->span), key));
    if (fault) record_loaded_free(out);
    return fault;
}

void record_loaded_free(record_loaded *l) {
    kv_span_unref(l->span);
    kv_pool_free(l->pool);
    record_reader_close(l->reader);
    record_reader_close(l->headers);
    *l = (record_loaded){0};
}
