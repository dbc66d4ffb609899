/* SPDX-License-Identifier: Apache-2.0 */
/* record_row.c: see record_row.h. */
#include "store/record/record_row.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"

/* A row in a block of its own. The form's arrays, of form_bytes, are still to be copied to *arrays. */
static record_row *new_row(const record *r, size_t form_bytes, int32_t n_layers, const base_key *fingerprint,
                           void **arrays) {
    BASE_ASSERT(r->n_tokens >= 0 && r->n_tokens <= KV_SPAN_TOKENS);
    const size_t token_bytes = (size_t)r->n_tokens * sizeof(*r->tokens), label_bytes = strlen(r->label) + 1;
    record_row *row = base_calloc(1, sizeof(*row) + token_bytes + form_bytes + label_bytes);
    if (!row) return NULL;
    int32_t *tokens = (int32_t *)(row + 1);
    *arrays = tokens + r->n_tokens;
    char *label = (char *)*arrays + form_bytes;
    if (token_bytes > 0) memcpy(tokens, r->tokens, token_bytes);
    memcpy(label, r->label, label_bytes);
    *row = (record_row){.record = *r, .fingerprint = *fingerprint, .n_layers = n_layers};
    row->record.tokens = tokens;
    row->record.label = label;
    return row;
}

record_row *record_row_new(const record *r, const kv_span *span, const base_key *fingerprint) {
    void *arrays;
    BASE_ASSERT(kv_span_is_sealed(span));
    record_row *row = new_row(r, kv_span_form_bytes(span), kv_span_shape(span)->n_layers, fingerprint, &arrays);
    if (!row) return NULL;
    row->record.key = *kv_span_key(span);
    row->record.form = kv_span_describe(span, arrays);
    return row;
}

record_row *record_row_copy(const record *r, int32_t n_layers, const base_key *fingerprint) {
    void *arrays;
    record_row *row = new_row(r, kv_form_bytes(&r->form, n_layers), n_layers, fingerprint, &arrays);
    if (row) row->record.form = kv_form_copy(&r->form, n_layers, arrays);
    return row;
}
