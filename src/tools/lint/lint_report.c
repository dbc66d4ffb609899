/* SPDX-License-Identifier: Apache-2.0 */
/* lint_report.c: the list of findings: every check adds to it, and it becomes a rp_lint, sorted by place. Uses no
   check. One thread. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "tools/lint/lint_internal.h"

#define PATH_BYTES 512

static const char *const names[] = {
#define X(id, name, severity) name,
    RP_LINTS(X)
#undef X
};
static const rp_lint_severity severities[] = {
#define X(id, name, severity) RP_LINT_##severity,
    RP_LINTS(X)
#undef X
};
static const char *const severity_names[] = {"error", "warning", "note"};

const char *rp_lint_name(rp_lint_code code) { return (unsigned)code < RP_N_LINTS ? names[code] : NULL; }
const char *rp_lint_severity_name(rp_lint_severity s) {
    return (unsigned)s < RP_N_LINT_SEVERITIES ? severity_names[s] : NULL;
}

/* ---- adding ---- */

/* One block for a finding's strings: document, module, message. */
static char *join_strings(const char *document, const char *module, const char *message, rp_lint_finding *f) {
    size_t a = strlen(document) + 1, b = strlen(module) + 1, c = strlen(message) + 1;
    char *s = base_alloc(a + b + c);
    if (!s) return NULL;
    f->document = memcpy(s, document, a);
    f->module = memcpy(s + a, module, b);
    f->message = memcpy(s + a + b, message, c);
    return s;
}

int lint_add_at(lint *x, rp_lint_code code, const lint_place *place, int32_t module, const char *fmt, ...) {
    BASE_ASSERT((unsigned)code < RP_N_LINTS && (module <= 0 || module < x->d->n_nodes));
    char path[PATH_BYTES] = "", message[RP_ERROR_MESSAGE_BYTES];
    if (x->n_entries == RP_LINT_MAX_FINDINGS) {
        x->n_left_out++;
        return RP_OK;
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    if (base_grow((void **)&x->entries, &x->cap_entries, x->n_entries + 1, RP_LINT_MAX_FINDINGS, sizeof(*x->entries)))
        return base_fail_memory(x->err, sizeof(lint_entry), "a finding");
    lint_entry *e = &x->entries[x->n_entries];
    *e = (lint_entry){.number = x->n_entries, .source = place->source};
    e->f = (rp_lint_finding){.code = code, .severity = severities[code], .line = place->line, .column = place->column};
    e->strings =
        join_strings(place->document, module > 0 ? pml_path(x->d, module, path, sizeof(path)) : "", message, &e->f);
    if (!e->strings) return base_fail_memory(x->err, sizeof(message), "a finding");
    x->n_entries++;
    return RP_OK;
}

static int lint_compare(const void *a, const void *b) {
    const lint_entry *p = a, *q = b;
    if (p->source != q->source) return p->source < q->source ? -1 : 1;
    if (p->source != LINT_OF_PROMPT && p->f.line != q->f.line) return p->f.line < q->f.line ? -1 : 1;
    if (p->source != LINT_OF_PROMPT && p->f.column != q->f.column) return p->f.column < q->f.column ? -1 : 1;
    return p->number < q->number ? -1 : 1;
}

/* ---- the result ---- */

void lint_entries_free(lint_entry *entries, size_t n) {
    for (size_t i = 0; i < n; i++) base_free(entries[i].strings);
    base_free(entries);
}

/* What rp_lint.owner is: the strings of the findings. */
typedef struct lint_owner {
    lint_entry *entries;
    size_t n;
} lint_owner;

int lint_hand_over(lint *x, rp_lint **out) {
    rp_lint *made = base_calloc(1, sizeof(*made));
    lint_owner *owner = base_calloc(1, sizeof(*owner));
    rp_lint_finding *findings = base_calloc(x->n_entries + 1, sizeof(*findings));
    if (!made || !owner || !findings) {
        base_free(made);
        base_free(owner);
        base_free(findings);
        return base_fail_memory(x->err, sizeof(*findings) * (x->n_entries + 1), "findings");
    }
    *owner = (lint_owner){x->entries, x->n_entries};
    *made = (rp_lint){.struct_size = (uint32_t)sizeof(*made),
                      .findings = findings,
                      .n_findings = x->n_entries,
                      .n_left_out = x->n_left_out,
                      .n_prompts = (size_t)x->use.n_planned,
                      .n_others = x->n_others,
                      .owner = owner};
    if (x->n_entries > 0) qsort(x->entries, x->n_entries, sizeof(*x->entries), lint_compare);
    for (size_t i = 0; i < x->n_entries; i++) {
        findings[i] = x->entries[i].f;
        made->n_severity[findings[i].severity]++;
    }
    x->entries = NULL;
    x->n_entries = 0;
    *out = made;
    return RP_OK;
}

void rp_lint_free(rp_lint *made) {
    if (!made) return;
    lint_owner *owner = made->owner;
    lint_entries_free(owner->entries, owner->n);
    base_free(owner);
    base_free(made->findings);
    base_free(made);
}
