/* SPDX-License-Identifier: Apache-2.0 */
/* audit_table.c: see audit_table.h: comparing, adding, reporting. audit_text.c is its file. */
#include "engine/background/audit_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

/* ---- comparing ---- */

/* The most likely tokens, and the mean of the differences. */
static bool audit_table_judge_all(const float *exact, const float *reused, int32_t n, int32_t *top_exact,
                                  int32_t *top_reused, double *mean) {
    double sum = 0;
    *top_exact = *top_reused = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(exact[i]) || !isfinite(reused[i])) return false;
        if (exact[i] > exact[*top_exact]) *top_exact = i;
        if (reused[i] > reused[*top_reused]) *top_reused = i;
        sum += (double)exact[i] - (double)reused[i];
    }
    *mean = sum / n;
    return n > 0;
}

/* With w = exp(e - max e): KL = sum(w (e - r)) / sum(w) - (log-sum-exp of e) + (log-sum-exp of r). */
bool audit_compare(const float *exact, const float *reused, int32_t n, audit_distance *out) {
    int32_t e_top, r_top;
    double mean, sum_e = 0, sum_r = 0, moved = 0, squares = 0;
    if (!audit_table_judge_all(exact, reused, n, &e_top, &r_top, &mean)) return false;
    for (int32_t i = 0; i < n; i++) {
        double d = (double)exact[i] - (double)reused[i], w = exp((double)exact[i] - (double)exact[e_top]);
        sum_e += w;
        sum_r += exp((double)reused[i] - (double)reused[r_top]);
        moved += w * d;
        squares += (d - mean) * (d - mean);
    }
    double kl = moved / sum_e - ((double)exact[e_top] + log(sum_e)) + ((double)reused[r_top] + log(sum_r));
    *out = (audit_distance){e_top == r_top, fmax(kl, 0), sqrt(squares / n)};
    return true;
}

/* ---- the tables ---- */

audit_table *audit_table_new(void) { return base_calloc(1, sizeof(audit_table)); }

static void free_pair(audit_pair *p) {
    base_free(p->first);
    base_free(p->second);
}

void audit_table_free(audit_table *t) {
    for (size_t i = 0; t && i < t->n_schemas; i++) base_free(t->schemas[i].name);
    for (size_t i = 0; t && i < t->n_pairs; i++) free_pair(&t->pairs[i]);
    base_free(t);
}

static char *audit_table_copy_name(const char *name) {
    return base_strndup(name, BASE_MIN(strlen(name), AUDIT_NAME_BYTES - 1));
}

static bool same_name(const char *kept, const char *name) { return strncmp(kept, name, AUDIT_NAME_BYTES - 1) == 0; }

static void forget_pairs(audit_table *t, uint64_t schema) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_pairs; i++) {
        if (t->pairs[i].schema == schema) free_pair(&t->pairs[i]);
        else t->pairs[n++] = t->pairs[i];
    }
    t->n_pairs = n;
}

static size_t audit_table_schema_index(const audit_table *t, uint32_t tenant, const char *name) {
    size_t i = 0;
    while (i < t->n_schemas && (t->schemas[i].tenant != tenant || !same_name(t->schemas[i].name, name))) i++;
    return i;
}

const audit_schema *audit_table_find(const audit_table *t, uint32_t tenant, const base_key *version, const char *name) {
    size_t i = audit_table_schema_index(t, tenant, name);
    return i < t->n_schemas && base_key_equal(&t->schemas[i].version, version) ? &t->schemas[i] : NULL;
}

/* A free slot: evicts the least recently updated one. */
static audit_schema *audit_table_make_schema(audit_table *t) {
    if (t->n_schemas < AUDIT_MAX_SCHEMAS) return &t->schemas[t->n_schemas++];
    audit_schema *oldest = &t->schemas[0];
    for (size_t i = 1; i < t->n_schemas; i++)
        if (t->schemas[i].used < oldest->used) oldest = &t->schemas[i];
    forget_pairs(t, oldest->id);
    base_free(oldest->name);
    return oldest;
}

/* The schema's entry, created if missing; NULL: no memory. */
static audit_schema *need_schema(audit_table *t, const audit_origin *o) {
    size_t i = audit_table_schema_index(t, o->tenant, o->schema);
    audit_schema *s = i < t->n_schemas ? &t->schemas[i] : NULL;
    if (s && base_key_equal(&s->version, &o->version)) return s;
    char *name = audit_table_copy_name(o->schema);
    if (!name) return NULL;
    if (s) {
        forget_pairs(t, s->id);
        base_free(s->name);
    } else s = audit_table_make_schema(t);
    *s = (audit_schema){
        .id = ++t->n_ids, .tenant = o->tenant, .version = o->version, .name = name, .lowest = AUDIT_STEPS};
    return s;
}

static audit_pair *make_pair(audit_table *t) {
    if (t->n_pairs < AUDIT_MAX_PAIRS) return &t->pairs[t->n_pairs++];
    audit_pair *oldest = &t->pairs[0];
    for (size_t i = 1; i < t->n_pairs; i++)
        if (t->pairs[i].used < oldest->used) oldest = &t->pairs[i];
    free_pair(oldest);
    return oldest;
}

static audit_pair *need_pair(audit_table *t, uint64_t schema, const char *a, const char *b) {
    const char *first = strcmp(a, b) <= 0 ? a : b, *second = first == a ? b : a;
    for (size_t i = 0; i < t->n_pairs; i++)
        if (t->pairs[i].schema == schema && same_name(t->pairs[i].first, first) &&
            same_name(t->pairs[i].second, second))
            return &t->pairs[i];
    audit_pair own = {.schema = schema, .first = audit_table_copy_name(first), .second = audit_table_copy_name(second)};
    if (!own.first || !own.second) {
        free_pair(&own);
        return NULL;
    }
    audit_pair *p = make_pair(t);
    *p = own;
    return p;
}

static void add_figures(audit_figures *f, const audit_distance *d) {
    f->samples++;
    f->agreed += d->agrees;
    f->sum_kl += d->kl;
    f->max_kl = fmax(f->max_kl, d->kl);
    f->sum_distance += d->distance;
}

static int add_pairs(audit_table *t, uint64_t schema, const audit_origin *o, const audit_distance *d) {
    int32_t n = o->n_modules < AUDIT_MOST_MODULES ? o->n_modules : AUDIT_MOST_MODULES;
    int32_t from = o->n_modules > n ? (int32_t)(t->n_added % (uint64_t)o->n_modules) : 0;
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = i; k < n; k++) {
            audit_pair *p =
                need_pair(t, schema, o->modules[(from + i) % o->n_modules], o->modules[(from + k) % o->n_modules]);
            if (!p) return RP_ERR_MEMORY;
            p->used = t->n_added;
            add_figures(&p->figures, d);
        }
    return RP_OK;
}

static audit_verdict audit_schema_judge(audit_schema *s, const audit_bound *bound) {
    bool over = bound->max_kl > 0 && s->now.samples >= AUDIT_LEAST_SAMPLES && audit_mean_kl(&s->now) > bound->max_kl;
    if (!over || s->raised >= AUDIT_STEPS || s->lowest >= AUDIT_STEPS) {
        if (!over) s->exceeds = false;
        return AUDIT_FINE;
    }
    if (bound->raises) {
        s->raised = BASE_MAX(s->raised, s->lowest) + 1;
        BASE_ASSERT(s->raised <= AUDIT_STEPS);
        s->lowest = AUDIT_STEPS;
        s->now = (audit_figures){0};
        return AUDIT_RAISED;
    }
    bool is_new = !s->exceeds;
    s->exceeds = true;
    return is_new ? AUDIT_EXCEEDS : AUDIT_FINE;
}

int audit_table_add(audit_table *t, const audit_origin *o, const audit_distance *d, const audit_bound *bound,
                    audit_verdict *verdict, const audit_schema **about) {
    BASE_ASSERT(o->level >= 0 && o->level <= AUDIT_STEPS && o->raised >= 0 && o->raised <= AUDIT_STEPS);
    audit_schema *s = need_schema(t, o);
    *verdict = AUDIT_FINE;
    *about = s;
    if (!s) return RP_ERR_MEMORY;
    s->used = ++t->n_added;
    add_figures(&s->all, d);
    int rc = add_pairs(t, s->id, o, d);
    if (o->raised != s->raised) return rc; /* planned before the schema was raised */
    add_figures(&s->now, d);
    s->lowest = BASE_MIN(s->lowest, o->level);
    *verdict = audit_schema_judge(s, bound);
    return rc;
}

/* ---- KV formats ---- */

audit_format *audit_table_format(audit_table *t, const audit_origin *o) {
    audit_schema *s = need_schema(t, o);
    if (!s) return NULL;
    s->used = ++t->n_added;
    return &s->kv;
}

audit_verdict audit_format_add(audit_format *f, rp_kv_format format, const audit_distance *d,
                               const audit_bound *bound) {
    BASE_ASSERT(!f->falls_back || !f->exceeds);
    f->format = format;
    add_figures(&f->figures, d);
    if (f->falls_back) return AUDIT_FINE; /* the request was planned before */
    const bool was_over = f->exceeds;
    f->exceeds =
        bound->max_kl > 0 && f->figures.samples >= AUDIT_LEAST_SAMPLES && audit_mean_kl(&f->figures) > bound->max_kl;
    if (!f->exceeds) return AUDIT_FINE;
    if (!bound->raises) return was_over ? AUDIT_FINE : AUDIT_EXCEEDS;
    f->falls_back = true;
    f->exceeds = false;
    return AUDIT_RAISED;
}

double audit_excess(const audit_schema *s, const audit_pair *p) {
    BASE_ASSERT(p->schema == s->id);
    uint64_t n = s->all.samples - p->figures.samples;
    if (s->all.samples <= p->figures.samples || p->figures.samples == 0) return 0;
    return audit_mean_kl(&p->figures) - (s->all.sum_kl - p->figures.sum_kl) / (double)n;
}

/* ---- the report ---- */

const char *audit_step_name(int32_t step) {
    static const char *const names[AUDIT_STEPS + 1] = {"", "full KV", "link:8", "blend:15", "exact"};
    BASE_ASSERT(step >= 0 && step <= AUDIT_STEPS);
    return names[step];
}

static rp_audit_figures audit_figures_reported(const audit_figures *f) {
    return (rp_audit_figures){
        .samples = f->samples,
        .agreed = f->agreed,
        .mean_kl = audit_mean_kl(f),
        .max_kl = f->max_kl,
        .mean_distance = audit_mean_distance(f),
    };
}

static int report_schemas(const audit_table *t, rp_audit *a) {
    if (!(a->schemas = base_calloc(t->n_schemas + 1, sizeof(*a->schemas)))) return RP_ERR_MEMORY;
    for (size_t i = 0; i < t->n_schemas; i++) {
        const audit_schema *s = &t->schemas[i];
        rp_audit_schema *r = &a->schemas[i];
        *r = (rp_audit_schema){
            .name = base_strdup(s->name),
            .now = audit_figures_reported(&s->now),
            .all = audit_figures_reported(&s->all),
            .raised_to = audit_step_name(s->raised),
            .exceeds = s->exceeds,
        };
        if (s->tenant) snprintf(r->owner, sizeof(r->owner), "%08x", (unsigned)s->tenant);
        a->n_schemas = i + 1;
        if (!r->name) return RP_ERR_MEMORY;
    }
    return RP_OK;
}

static int report_pairs(const audit_table *t, rp_audit *a) {
    if (!(a->pairs = base_calloc(t->n_pairs + 1, sizeof(*a->pairs)))) return RP_ERR_MEMORY;
    for (size_t i = 0; i < t->n_pairs; i++) {
        const audit_pair *p = &t->pairs[i];
        size_t s = 0;
        while (s < t->n_schemas && t->schemas[s].id != p->schema) s++;
        BASE_ASSERT(s < t->n_schemas); /* a pair is evicted with its schema */
        a->pairs[i] = (rp_audit_pair){
            .schema = s,
            .first = base_strdup(p->first),
            .second = base_strdup(p->second),
            .figures = audit_figures_reported(&p->figures),
            .excess_kl = audit_excess(&t->schemas[s], p),
        };
        a->n_pairs = i + 1;
        if (!a->pairs[i].first || !a->pairs[i].second) return RP_ERR_MEMORY;
    }
    return RP_OK;
}

static void report_format(rp_audit *a, const audit_format *f, size_t schema) {
    if (f->figures.samples == 0) return;
    a->formats[a->n_formats++] = (rp_audit_format){
        .schema = schema,
        .format = kv_format_name(f->format),
        .figures = audit_figures_reported(&f->figures),
        .exceeds = f->exceeds,
        .falls_back = f->falls_back,
    };
}

static int report_formats(const audit_table *t, rp_audit *a) {
    if (!(a->formats = base_calloc(t->n_schemas + 1, sizeof(*a->formats)))) return RP_ERR_MEMORY;
    report_format(a, &t->text, RP_AUDIT_TEXT);
    for (size_t i = 0; i < t->n_schemas; i++) report_format(a, &t->schemas[i].kv, i);
    return RP_OK;
}

int audit_report_new(rp_audit **out, rp_error *err) {
    *out = base_calloc(1, sizeof(**out));
    if (!*out) return base_fail_memory(err, sizeof(**out), "an audit report");
    (*out)->struct_size = (uint32_t)sizeof(**out);
    return RP_OK;
}

int audit_table_report(const audit_table *t, rp_audit **out, rp_error *err) {
    if (audit_report_new(out, err)) return RP_ERR_MEMORY;
    rp_audit *a = *out;
    int rc = report_schemas(t, a);
    if (!rc) rc = report_pairs(t, a);
    if (!rc) rc = report_formats(t, a);
    if (rc) {
        rp_audit_free(a);
        *out = NULL;
        return base_fail_memory(err, sizeof(*a), "an audit report");
    }
    a->sampled = t->sampled;
    a->audited = t->audited;
    a->dropped = t->dropped;
    return RP_OK;
}

void rp_audit_free(rp_audit *a) {
    if (!a) return;
    for (size_t i = 0; i < a->n_schemas; i++) base_free((char *)(uintptr_t)a->schemas[i].name);
    for (size_t i = 0; i < a->n_pairs; i++) {
        base_free((char *)(uintptr_t)a->pairs[i].first);
        base_free((char *)(uintptr_t)a->pairs[i].second);
    }
    base_free(a->schemas);
    base_free(a->pairs);
    base_free(a->formats);
    base_free(a);
}
