/* SPDX-License-Identifier: Apache-2.0 */
/* cache_audit.c: results of the quality audit, as a table and as JSON. One thread. */
#include "cache/cache_audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_out.h"
#include "common/text.h"
#include "reprise_store.h"

enum { NAME_CELLS = 28,
       WORST_PAIRS = 3 };
#define LEAST_EXCESS 0.001 /* smaller values are not shown */

/* ---- text ---- */

static void print_figures(const char *name, const rp_audit_figures *f) {
    double percent = f->samples > 0 ? 100.0 * (double)f->agreed / (double)f->samples : 0;
    cli_print_fit(stdout, name, NAME_CELLS, NAME_CELLS);
    printf(" %8llu %8.1f %% %8.3f %8.3f %9.3f", (unsigned long long)f->samples, percent, f->mean_kl, f->max_kl,
           f->mean_distance);
}

/* The pair of a schema with the largest excess after `after` (NULL: of all); NULL: no pair adds any divergence. */
static const rp_audit_pair *next_pair(const rp_audit *a, size_t schema, const rp_audit_pair *after) {
    const rp_audit_pair *next = NULL;
    for (size_t i = 0; i < a->n_pairs; i++) {
        const rp_audit_pair *p = &a->pairs[i];
        if (p->schema != schema || p->excess_kl < LEAST_EXCESS) continue;
        if (after != NULL && (p->excess_kl > after->excess_kl || (p->excess_kl == after->excess_kl && p <= after)))
            continue;
        if (next == NULL || p->excess_kl > next->excess_kl) next = p;
    }
    return next;
}

static void print_pairs(const rp_audit *a, size_t schema) {
    const rp_audit_pair *p = next_pair(a, schema, NULL);
    for (int n = 0; p != NULL && n < WORST_PAIRS; n++, p = next_pair(a, schema, p)) {
        char name[2 * 256 + 8];
        if (strcmp(p->first, p->second) == 0) snprintf(name, sizeof name, "  %s", p->first);
        else snprintf(name, sizeof name, "  %s + %s", p->first, p->second);
        print_figures(name, &p->figures);
        printf("   %.3f more than without\n", p->excess_kl);
    }
}

/* The row of a schema's modules, or of text; none: nothing. */
static void print_format(const rp_audit *a, size_t schema) {
    for (size_t i = 0; i < a->n_formats; i++) {
        const rp_audit_format *f = &a->formats[i];
        char name[64];
        if (f->schema != schema) continue;
        snprintf(name, sizeof name, schema == RP_AUDIT_TEXT ? "text in %s, from f16" : "  modules in %s, from f16",
                 f->format);
        print_figures(name, &f->figures);
        puts(f->falls_back ? "   replaced by f16" : f->exceeds ? "   divergence above the limit"
                                                               : "");
    }
}

void cache_audit_print(const rp_audit *a, const char *model) {
    printf("\naudited %llu of %llu sampled requests, model %.16s\n", (unsigned long long)a->audited,
           (unsigned long long)a->sampled, model);
    if (a->n_schemas == 0 && a->n_formats == 0) return;
    cli_print_fit(stdout, "SCHEMA, its worst pairs", NAME_CELLS, NAME_CELLS);
    printf(" %8s %10s %8s %8s %9s\n", "SAMPLES", "AGREED", "KL", "MAX KL", "DISTANCE");
    print_format(a, RP_AUDIT_TEXT);
    for (size_t i = 0; i < a->n_schemas; i++) {
        const rp_audit_schema *s = &a->schemas[i];
        char name[256 + 16];
        snprintf(name, sizeof name, "%s%s%s", s->owner, s->owner[0] != '\0' ? "/" : "", s->name);
        print_figures(name, &s->all);
        puts(s->exceeds ? "   divergence above the limit" : "");
        if (s->raised_to[0] != '\0') {
            snprintf(name, sizeof name, "  since quality %s", s->raised_to);
            print_figures(name, &s->now);
            putchar('\n');
        }
        print_format(a, i);
        print_pairs(a, i);
    }
}

/* ---- JSON ---- */

static json_t *figures_object(const rp_audit_figures *f) {
    json_t *o = json_object();
    cli_json_set(o, "samples", json_integer((json_int_t)f->samples));
    cli_json_set(o, "agreed", json_integer((json_int_t)f->agreed));
    cli_json_set(o, "mean_kl", json_real(f->mean_kl));
    cli_json_set(o, "max_kl", json_real(f->max_kl));
    cli_json_set(o, "mean_distance", json_real(f->mean_distance));
    return o;
}

static json_t *pair_object(const rp_audit_pair *p) {
    json_t *o = json_object(), *modules = json_array();
    cli_json_append(modules, cli_json_text(p->first));
    cli_json_append(modules, cli_json_text(p->second));
    cli_json_set(o, "modules", modules);
    cli_json_set(o, "figures", figures_object(&p->figures));
    cli_json_set(o, "excess_kl", json_real(p->excess_kl));
    return o;
}

static json_t *schema_object(const rp_audit *a, size_t i) {
    const rp_audit_schema *s = &a->schemas[i];
    json_t *o = json_object(), *pairs = json_array();
    cli_json_set(o, "schema", cli_json_text(s->name));
    cli_json_set(o, "owner", cli_json_text(s->owner));
    cli_json_set(o, "all", figures_object(&s->all));
    cli_json_set(o, "now", figures_object(&s->now));
    cli_json_set(o, "raised_to", cli_json_text(s->raised_to));
    cli_json_set(o, "exceeds", json_boolean(s->exceeds));
    for (size_t k = 0; k < a->n_pairs; k++)
        if (a->pairs[k].schema == i) cli_json_append(pairs, pair_object(&a->pairs[k]));
    cli_json_set(o, "pairs", pairs);
    return o;
}

static json_t *format_object(const rp_audit *a, const rp_audit_format *f) {
    const rp_audit_schema *s = f->schema == RP_AUDIT_TEXT ? NULL : &a->schemas[f->schema];
    json_t *o = json_object();
    cli_json_set(o, "format", cli_json_text(f->format));
    cli_json_set(o, "schema", s != NULL ? cli_json_text(s->name) : json_null());
    cli_json_set(o, "owner", cli_json_text(s != NULL ? s->owner : ""));
    cli_json_set(o, "figures", figures_object(&f->figures));
    cli_json_set(o, "exceeds", json_boolean(f->exceeds));
    cli_json_set(o, "falls_back", json_boolean(f->falls_back));
    return o;
}

json_t *cache_audit_object(const rp_audit *a, const char *model) {
    if (a == NULL) return json_null();
    json_t *o = json_object(), *schemas = json_array(), *formats = json_array();
    cli_json_set(o, "model", cli_json_text(model));
    cli_json_set(o, "sampled", json_integer((json_int_t)a->sampled));
    cli_json_set(o, "audited", json_integer((json_int_t)a->audited));
    cli_json_set(o, "dropped", json_integer((json_int_t)a->dropped));
    for (size_t i = 0; i < a->n_schemas; i++) cli_json_append(schemas, schema_object(a, i));
    cli_json_set(o, "schemas", schemas);
    for (size_t i = 0; i < a->n_formats; i++) cli_json_append(formats, format_object(a, &a->formats[i]));
    cli_json_set(o, "formats", formats);
    return o;
}
