/* SPDX-License-Identifier: Apache-2.0 */
/* document_builder.c: a document under construction: drafts and texts are added under the innermost open element, and
 * the first failure is kept with its place. Every file that makes documents uses it; it uses none of them. One thread a
 * builder.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "pml/document_internal.h"

/* ---- Failing ---- */

void pml_builder_place(pml_builder *b, size_t offset, int32_t *line, int32_t *column) {
    if (b->by_parts) {
        *line = (int32_t)offset;
        *column = 0;
        return;
    }
    if (offset < b->offset) {
        b->offset = b->line_start = 0;
        b->line = 1;
    }
    pml_count_lines(b->bytes, b->n, b->offset, offset, &b->line, &b->line_start);
    b->offset = offset;
    BASE_ASSERT(b->line >= 1 && b->line_start <= offset);
    *line = b->line;
    *column = (int32_t)(offset - b->line_start) + 1;
}

int pml_builder_fail(pml_builder *b, size_t offset, rp_code code, const char *fmt, ...) {
    char where[RP_ERROR_WHERE_BYTES], message[RP_ERROR_MESSAGE_BYTES];
    int32_t line, column;
    if (b->rc != 0) return b->rc;
    BASE_ASSERT(code < 0);
    b->rc = code;
    pml_builder_place(b, offset, &line, &column);
    pml_where(where, b->name, line, column);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (b->parser) XML_StopParser(b->parser, XML_FALSE);
    return base_fail_at(b->err, code, where, b->by_parts ? 0 : b->mark + offset, "%s", message);
}

int pml_builder_memory(pml_builder *b, size_t offset, size_t bytes, const char *what) {
    return pml_builder_fail(b, offset, RP_ERR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}

/* ---- Drafts ---- */

int pml_builder_add(pml_builder *b, pml_kind kind, size_t offset, int32_t *out) {
    BASE_ASSERT(b->rc == 0); /* nothing is added after the first failure */
    void *drafts = b->drafts;
    int rc = base_grow(&drafts, &b->cap_drafts, b->n_drafts + 1, PML_MAX_NODES, sizeof *b->drafts);
    b->drafts = drafts;
    if (rc == RP_ERR_LIMIT)
        return pml_builder_fail(b, offset, RP_ERR_LIMIT, "more than %zu elements and texts: split the document",
                                PML_MAX_NODES);
    if (rc != 0) return pml_builder_memory(b, offset, b->n_drafts * sizeof *b->drafts, "the document's tree");
    int32_t i = (int32_t)b->n_drafts++;
    int32_t parent = b->depth > 0 ? b->frames[b->depth - 1].draft : -1;
    pml_draft *d = &b->drafts[i];
    *d = (pml_draft){.node = {.kind = kind, .parent = parent, .first_child = -1, .next = -1, .name = "", .role = -1},
                     .last_child = -1,
                     .final = -1,
                     .offset = offset};
    pml_builder_place(b, offset, &d->node.line, &d->node.column);
    if (parent >= 0) {
        pml_draft *p = &b->drafts[parent];
        d->preserve = p->preserve;
        if (p->last_child >= 0) b->drafts[p->last_child].node.next = i;
        else p->node.first_child = i;
        p->last_child = i;
    }
    *out = i;
    return 0;
}

int pml_builder_add_text(pml_builder *b, const char *bytes, size_t n, size_t offset) {
    int32_t i = -1;
    BASE_ASSERT(b->text_total <= PML_MAX_TEXT_TOTAL);
    if (n > PML_MAX_TEXT_TOTAL - b->text_total)
        return pml_builder_fail(b, offset, RP_ERR_LIMIT,
                                "the document's texts, src files included, exceed %zu bytes: split the schema",
                                PML_MAX_TEXT_TOTAL);
    if (pml_builder_add(b, PML_TEXT, offset, &i) != 0) return b->rc;
    char *raw = pml_storage_take(b->storage, n + 2);
    if (!raw) return pml_builder_memory(b, offset, n + 2, "a text");
    raw[0] = ' ';
    if (n > 0) memcpy(raw + 1, bytes, n);
    raw[n + 1] = '\0';
    b->drafts[i].raw = raw + 1;
    b->drafts[i].node.n_text = n;
    b->text_total += n;
    return 0;
}

/* Comments and CDATA sections do not split a text. */
int pml_builder_flush_text(pml_builder *b) {
    if (b->pending.len == 0) return 0;
    int rc = pml_builder_add_text(b, b->pending.data, b->pending.len, b->pending_offset);
    base_buffer_clear(&b->pending);
    b->pending_solid = false;
    return rc;
}
