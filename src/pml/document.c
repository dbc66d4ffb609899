/* SPDX-License-Identifier: Apache-2.0 */
/* document.c: the finished tree: string storage, lookup, freeing, and errors with a position in it.
 *
 * Owns storage. Does not parse: document_parse.c does. All functions except freeing are read-only; any thread may read.
 */
#include "pml/document.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "pml/document_internal.h"

/* ---- Storage: a list of chunks. Small pieces fill the first; a large one gets a separate chunk after it. ---- */

#define CHUNK_BYTES ((size_t)8192)
#define LARGE_BYTES (CHUNK_BYTES / 4)

struct pml_chunk {
    pml_chunk *next;
    size_t used, bytes;
    alignas(max_align_t) char data[];
};

void *pml_storage_take(pml_storage *s, size_t bytes) {
    if (bytes > SIZE_MAX - alignof(max_align_t)) return NULL;
    bytes = (bytes + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    pml_chunk *c = s->chunks;
    if (!c || bytes > c->bytes - c->used) {
        const bool large = bytes > LARGE_BYTES;
        const size_t room = large ? bytes : CHUNK_BYTES;
        if (room > SIZE_MAX - sizeof *c || !(c = base_alloc(sizeof *c + room))) return NULL;
        *c = (pml_chunk){.bytes = room};
        pml_chunk **place = large && s->chunks ? &s->chunks->next : &s->chunks;
        c->next = *place;
        *place = c;
    }
    void *p = c->data + c->used;
    BASE_ASSERT(bytes <= c->bytes - c->used && c->used % alignof(max_align_t) == 0);
    c->used += bytes;
    return p;
}

char *pml_storage_string(pml_storage *s, const char *bytes, size_t n) {
    char *p = pml_storage_take(s, n + 1);
    if (!p) return NULL;
    memcpy(p, bytes, n);
    p[n] = '\0';
    return p;
}

void pml_storage_free(pml_storage *s) {
    if (!s) return;
    while (s->chunks) {
        pml_chunk *next = s->chunks->next;
        base_free(s->chunks);
        s->chunks = next;
    }
    base_free(s->named);
    base_free(s);
}

void pml_document_free(pml_document *d) {
    if (!d) return;
    pml_storage_free(d->owner);
    base_free(d->nodes);
    base_free(d);
}

/* ---- Look-ups ---- */

static const pml_node *node_at(const pml_document *d, int32_t i) {
    BASE_ASSERT(i >= 0 && i < d->n_nodes);
    return &d->nodes[i];
}

int32_t pml_holder(const pml_document *d, int32_t node) {
    int32_t i = node_at(d, node)->parent;
    while (i >= 0) {
        pml_kind kind = d->nodes[i].kind;
        if (kind == PML_SCHEMA || kind == PML_MODULE || kind == PML_PROMPT || kind == PML_IMPORT) break;
        i = d->nodes[i].parent;
    }
    return i;
}

int pml_role_of(const pml_document *d, int32_t module) {
    int32_t i = node_at(d, module)->parent;
    while (i >= 0 && d->nodes[i].kind != PML_ROLE) i = d->nodes[i].parent;
    return i >= 0 ? d->nodes[i].role : -1;
}

bool pml_contains_role(const pml_document *d, int32_t module) {
    const int32_t end = node_at(d, module)->next; /* of the module's nodes, which follow it; -1: the parent's */
    BASE_ASSERT(end < 0 || end > module);         /* nodes are in document order */
    for (int32_t i = module + 1; i < d->n_nodes && i != end; i++) {
        if (d->nodes[i].parent < module) break;
        if (d->nodes[i].kind == PML_ROLE) return true;
    }
    return false;
}

int32_t pml_union_of(const pml_document *d, int32_t module) {
    int32_t parent = node_at(d, module)->parent;
    return parent >= 0 && d->nodes[parent].kind == PML_UNION ? parent : -1;
}

void pml_include_defaults(const pml_document *schema, bool *included) {
    for (int32_t u = 0; u < schema->n_nodes; u++) {
        const pml_node *n = &schema->nodes[u];
        if (n->kind != PML_UNION || !n->scaffold || !included[pml_holder(schema, u)]) continue;
        int32_t chosen = -1;
        bool taken = false;
        for (int32_t m = n->first_child; m >= 0; m = schema->nodes[m].next) {
            taken |= included[m];
            if (strcmp(schema->nodes[m].name, n->scaffold) == 0) chosen = m;
        }
        BASE_ASSERT(chosen >= 0); /* document_check.c: the default is a member */
        if (!taken) included[chosen] = true;
    }
}

size_t pml_named_modules(const pml_storage *s, int32_t holder) {
    size_t low = 0, high = s->n_named; /* modules precede the parameters of the same holder */
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (s->named[mid].holder < holder) low = mid + 1;
        else high = mid;
    }
    return low;
}

/* strcmp of the first n bytes of `name` with the whole of `other`. */
static int compare_name(const char *name, size_t n, const char *other) {
    int order = strncmp(name, other, n);
    return order != 0 ? order : other[n] != '\0' ? -1
                                                 : 0;
}

int32_t pml_find_module(const pml_document *d, int32_t holder, const char *name, size_t n) {
    const pml_storage *s = d->owner;
    size_t low = 0, high = s->n_named;
    if (memchr(name, '\0', n)) return -1;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const pml_named *e = &s->named[mid];
        int order = holder != e->holder ? (holder < e->holder ? -1 : 1)
                    : e->is_param       ? -1
                                        : compare_name(name, n, e->name);
        if (order == 0) return e->node;
        if (order < 0) high = mid;
        else low = mid + 1;
    }
    return -1;
}

const char *pml_nearest_module(const pml_document *d, int32_t holder, const char *name) {
    const pml_storage *s = d->owner;
    base_guess guess = {.name = name};
    for (size_t i = pml_named_modules(s, holder); i < s->n_named; i++) {
        const pml_named *e = &s->named[i];
        if (e->holder != holder || e->is_param) break;
        base_guess_offer(&guess, e->name);
    }
    return guess.best;
}

int32_t pml_find_param(const pml_document *d, int32_t module, const char *name) {
    const pml_storage *s = d->owner;
    for (size_t i = pml_named_modules(s, module); i < s->n_named && s->named[i].holder == module; i++)
        if (s->named[i].is_param && strcmp(s->named[i].name, name) == 0) return s->named[i].node;
    return -1;
}

const char *pml_nearest_param(const pml_document *d, int32_t module, const char *name) {
    const pml_storage *s = d->owner;
    base_guess guess = {.name = name};
    for (size_t i = pml_named_modules(s, module); i < s->n_named && s->named[i].holder == module; i++)
        if (s->named[i].is_param) base_guess_offer(&guess, s->named[i].name);
    return guess.best;
}

const char *pml_path(const pml_document *d, int32_t module, char *out, size_t bytes) {
    int32_t way[PML_MAX_DEPTH];
    int n = 0;
    size_t used = 0;
    BASE_ASSERT(bytes > 0);
    out[0] = '\0';
    for (int32_t i = module; i > 0 && n < PML_MAX_DEPTH; i = pml_holder(d, i))
        if (d->nodes[i].kind == PML_MODULE || d->nodes[i].kind == PML_IMPORT) way[n++] = i;
    while (n-- > 0 && used + 1 < bytes) {
        int wrote = snprintf(out + used, bytes - used, "%s%s", used > 0 ? "/" : "", d->nodes[way[n]].name);
        used = wrote < 0 ? bytes : BASE_MIN(used + (size_t)wrote, bytes);
    }
    return out;
}

/* ---- Errors at nodes ---- */

#define SHOWN_DOCUMENT_BYTES 120 /* the end of the name is kept: it is more specific than its start */

void pml_where(char out[RP_ERROR_WHERE_BYTES], const char *name, int32_t line, int32_t column) {
    size_t n = strlen(name), skip = n > SHOWN_DOCUMENT_BYTES ? n - SHOWN_DOCUMENT_BYTES + 3 : 0;
    while (skip > 0 && ((unsigned char)name[skip] & 0xC0) == 0x80) skip++; /* whole characters */
    size_t used = (size_t)snprintf(out, RP_ERROR_WHERE_BYTES, "%s%s", skip > 0 ? "..." : "", name + skip);
    BASE_ASSERT(used < RP_ERROR_WHERE_BYTES);
    if (column > 0) snprintf(out + used, RP_ERROR_WHERE_BYTES - used, ":%d:%d", (int)line, (int)column);
    else if (line > 0) snprintf(out + used, RP_ERROR_WHERE_BYTES - used, ", part %d", (int)line);
}

int pml_fail(rp_error *err, rp_code code, const pml_document *d, int32_t node, const char *fmt, ...) {
    char where[RP_ERROR_WHERE_BYTES], message[RP_ERROR_MESSAGE_BYTES];
    if (!err) return code;
    pml_where(where, d->name, node_at(d, node)->line, d->nodes[node].column);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return base_fail_at(err, code, where, 0, "%s", message);
}
