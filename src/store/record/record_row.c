/* SPDX-License-Identifier: Apache-2.0 */
/* record_row.c: see record_row.h. */
#include "store/record/record_row.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"

record_row *record_row_new(const record *r, const kv_span *span, const base_key *fingerprint) {
    BASE_ASSERT(kv_span_is_sealed(span) && r->n_tokens >= 0 && r->n_tokens <= KV_SPAN_TOKENS);
    const size_t token_bytes = (size_t)r->n_tokens * sizeof(*r->tokens), form_bytes = kv_span_form_bytes(span),
                 label_bytes = strlen(r->label) + 1;
    record_row *row = base_calloc(1, sizeof(*row) + token_bytes + form_bytes + label_bytes);
    if (!row) return NULL;
    int32_t *tokens = (int32_t *)(row + 1);
    void *arrays = tokens + r->n_tokens;
    char *label = (char *)arrays + form_bytes;
    if (token_bytes > 0) memcpy(tokens, r->tokens, token_bytes);
    memcpy(label, r->label, label_bytes);
    *row = (record_row){.record = *r, .fingerprint = *fingerprint, .n_layers = kv_span_shape(span)->n_layers};
    row->record.key = *kv_span_key(span);
    row->record.form = kv_span_describe(span, arrays);
    row->record.tokens = tokens;
    row->record.label = label;
    return row;
}
