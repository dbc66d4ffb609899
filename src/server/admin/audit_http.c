/* SPDX-License-Identifier: Apache-2.0 */
/* audit_http.c: the results of the engine's auditor, for operators: by schema for Prometheus, with pairs of modules as
 * JSON. */
#include "server/admin/audit_http.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json_write.h"
#include "server/admin/admin_handlers.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"

#define LABEL_BYTES 600 /* a name of up to 256 bytes, each of them escaped, and its tenant */

/* ---- Prometheus ---- */

/* The value of a schema's label: TENANT/NAME, or NAME alone if the schema is shared. */
static const char *audit_schema_label_of(const rp_audit_schema *s, char out[LABEL_BYTES]) {
    size_t n = 0;
    BASE_ASSERT(strlen(s->owner) < sizeof(s->owner) && sizeof(s->owner) < LABEL_BYTES);
    for (const char *c = s->owner; *c; c++) out[n++] = *c;
    if (n > 0) out[n++] = '/';
    for (const char *c = s->name; *c && n + 3 < LABEL_BYTES; c++) {
        if (*c == '\\' || *c == '"' || *c == '\n') out[n++] = '\\';
        out[n++] = *c == '\n' ? 'n' : *c;
    }
    out[n] = '\0';
    return out;
}

typedef double (*value_fn)(const rp_audit_schema *s);

static double audit_schema_samples(const rp_audit_schema *s) { return (double)s->all.samples; }
static double audit_schema_agreed(const rp_audit_schema *s) { return (double)s->all.agreed; }
static double audit_schema_divergence(const rp_audit_schema *s) { return s->now.mean_kl; }
static double audit_schema_largest(const rp_audit_schema *s) { return s->now.max_kl; }
static double audit_schema_distance(const rp_audit_schema *s) { return s->now.mean_distance; }
static double audit_schema_exceeds(const rp_audit_schema *s) { return s->exceeds; }
static double audit_schema_raised(const rp_audit_schema *s) { return s->raised_to[0] != '\0'; }

static const struct {
    const char *name, *type, *help;
    value_fn value;
} families[] = {
    {"samples_total", "counter", "Audited requests, by schema.", audit_schema_samples},
    {"agreed_total", "counter", "Audited requests with the same most likely first token as an exact run, by schema.",
     audit_schema_agreed},
    {"divergence", "gauge", "Mean KL divergence of the first token from an exact run, in nats, by schema.",
     audit_schema_divergence},
    {"divergence_max", "gauge", "Maximum KL divergence of the first token from an exact run, in nats, by schema.",
     audit_schema_largest},
    {"distance", "gauge", "Mean RMS difference of the first token's logits from an exact run, by schema.",
     audit_schema_distance},
    {"exceeds", "gauge", "1 if the mean divergence of the schema exceeds max_divergence, else 0.",
     audit_schema_exceeds},
    {"raised", "gauge", "1 if the auditor raised the quality of the schema, else 0.", audit_schema_raised},
};

static int append_family(base_buffer *b, const audit_metrics *engines, size_t n, size_t f) {
    char label[LABEL_BYTES];
    BASE_ASSERT(f < BASE_ARRAY_LEN(families));
    int rc = base_buffer_printf(b, "# HELP reprise_audit_%s %s\n# TYPE reprise_audit_%s %s\n", families[f].name,
                                families[f].help, families[f].name, families[f].type);
    for (size_t e = 0; e < n; e++) {
        const rp_audit *a = engines[e].audit;
        for (size_t i = 0; a && i < a->n_schemas && !rc; i++)
            rc = base_buffer_printf(b, "reprise_audit_%s{%sschema=\"%s\"} %.6g\n", families[f].name, engines[e].label,
                                    audit_schema_label_of(&a->schemas[i], label), families[f].value(&a->schemas[i]));
    }
    return rc;
}

/* ---- KV formats ---- */

typedef double (*format_value_fn)(const rp_audit_format *f);

static double audit_format_samples(const rp_audit_format *f) { return (double)f->figures.samples; }
static double audit_format_agreed(const rp_audit_format *f) { return (double)f->figures.agreed; }
static double audit_format_divergence(const rp_audit_format *f) { return f->figures.mean_kl; }
static double audit_format_exceeds(const rp_audit_format *f) { return f->exceeds; }
static double audit_format_fallback(const rp_audit_format *f) { return f->falls_back; }

static const struct {
    const char *name, *type, *help;
    format_value_fn value;
} format_families[] = {
    {"samples_total", "counter", "Requests compared with f16, by KV format: of text, or of a schema's modules.",
     audit_format_samples},
    {"agreed_total", "counter", "Requests with the same most likely first token as in f16, by KV format.",
     audit_format_agreed},
    {"divergence", "gauge", "Mean KL divergence of the first token from f16, in nats, by KV format.",
     audit_format_divergence},
    {"exceeds", "gauge", "1 if the mean divergence of the KV format exceeds max_divergence, else 0.",
     audit_format_exceeds},
    {"fallback", "gauge", "1 if the auditor replaced the KV format by f16, else 0.", audit_format_fallback},
};

static int append_format_family(base_buffer *b, const audit_metrics *engines, size_t n, size_t family) {
    char label[LABEL_BYTES];
    const char *name = format_families[family].name;
    int rc = base_buffer_printf(b, "# HELP reprise_audit_format_%s %s\n# TYPE reprise_audit_format_%s %s\n", name,
                                format_families[family].help, name, format_families[family].type);
    for (size_t e = 0; e < n; e++) {
        const rp_audit *a = engines[e].audit;
        for (size_t i = 0; a && i < a->n_formats && !rc; i++) {
            const rp_audit_format *f = &a->formats[i];
            const bool of_text = f->schema == RP_AUDIT_TEXT;
            BASE_ASSERT(of_text || f->schema < a->n_schemas);
            rc = base_buffer_printf(b, "reprise_audit_format_%s{%sformat=\"%s\"%s%s%s} %.6g\n", name, engines[e].label,
                                    f->format, of_text ? "" : ",schema=\"",
                                    of_text ? "" : audit_schema_label_of(&a->schemas[f->schema], label),
                                    of_text ? "" : "\"", format_families[family].value(f));
        }
    }
    return rc;
}

static int append_requests(base_buffer *b, const audit_metrics *engines, size_t n) {
    int rc = base_buffer_append_str(
        b, "# HELP reprise_audit_requests_total Requests sampled for the quality audit, by outcome.\n"
           "# TYPE reprise_audit_requests_total counter\n");
    for (size_t e = 0; e < n && !rc; e++) {
        const audit_metrics *m = &engines[e];
        if (m->audit)
            rc = base_buffer_printf(b, "reprise_audit_requests_total{%soutcome=\"compared\"} %" PRIu64 "\n"
                                       "reprise_audit_requests_total{%soutcome=\"dropped\"} %" PRIu64 "\n",
                                    m->label, m->audit->audited, m->label, m->audit->dropped);
    }
    return rc;
}

static bool has_any(const audit_metrics *engines, size_t n, bool formats) {
    for (size_t e = 0; e < n; e++)
        if (engines[e].audit && (formats ? engines[e].audit->n_formats : engines[e].audit->n_schemas) > 0) return true;
    return false;
}

int audit_append_metrics(base_buffer *b, const audit_metrics *engines, size_t n) {
    int rc = append_requests(b, engines, n);
    for (size_t f = 0; f < BASE_ARRAY_LEN(families) && has_any(engines, n, false) && !rc; f++)
        rc = append_family(b, engines, n, f);
    for (size_t f = 0; f < BASE_ARRAY_LEN(format_families) && has_any(engines, n, true) && !rc; f++)
        rc = append_format_family(b, engines, n, f);
    return rc;
}

/* ---- GET /v1/audit ---- */

static json_t *audit_figures_figures(const rp_audit_figures *f) {
    return json_pack("{s:I, s:I, s:f, s:f, s:f}", "samples", (json_int_t)f->samples, "agreed", (json_int_t)f->agreed,
                     "mean_kl", f->mean_kl, "max_kl", f->max_kl, "mean_distance", f->mean_distance);
}

static json_t *audit_http_text(const char *s) { return base_json_string(s, strlen(s)); }

static int compare_pairs(const void *a, const void *b) {
    double x = ((const rp_audit_pair *)a)->excess_kl, y = ((const rp_audit_pair *)b)->excess_kl;
    return (x < y) - (x > y);
}

/* Of one schema; sorted, so the worst come first. */
static json_t *audit_pairs(const rp_audit *a, size_t schema) {
    json_t *list = json_array();
    for (size_t i = 0; i < a->n_pairs && list; i++) {
        const rp_audit_pair *p = &a->pairs[i];
        BASE_ASSERT(p->schema < a->n_schemas);
        if (p->schema == schema)
            json_array_append_new(list, json_pack("{s:[o, o], s:o, s:f}", "modules", audit_http_text(p->first),
                                                  audit_http_text(p->second), "figures",
                                                  audit_figures_figures(&p->figures), "excess_kl", p->excess_kl));
    }
    return list;
}

static json_t *audit_schemas(const rp_audit *a) {
    json_t *list = json_array();
    for (size_t i = 0; i < a->n_schemas && list; i++) {
        const rp_audit_schema *s = &a->schemas[i];
        json_array_append_new(list, json_pack("{s:o, s:s, s:o, s:o, s:s, s:b, s:o}", "schema", audit_http_text(s->name),
                                              "owner", s->owner, "all", audit_figures_figures(&s->all), "now",
                                              audit_figures_figures(&s->now), "raised_to", s->raised_to, "exceeds",
                                              s->exceeds, "pairs", audit_pairs(a, i)));
    }
    return list;
}

static json_t *audit_formats(const rp_audit *a) {
    json_t *list = json_array();
    for (size_t i = 0; i < a->n_formats && list; i++) {
        const rp_audit_format *f = &a->formats[i];
        BASE_ASSERT(f->schema == RP_AUDIT_TEXT || f->schema < a->n_schemas);
        const rp_audit_schema *s = f->schema == RP_AUDIT_TEXT ? NULL : &a->schemas[f->schema];
        json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:o, s:b, s:b}", "format", f->format, "schema",
                                              s ? audit_http_text(s->name) : json_null(), "owner", s ? s->owner : "",
                                              "figures", audit_figures_figures(&f->figures), "exceeds", f->exceeds,
                                              "falls_back", f->falls_back));
    }
    return list;
}

void handle_audit(server_request *x) {
    rp_audit *a;
    rp_error err;
    if (rp_engine_audit(x->model->engine, &a, &err)) {
        server_fail_library(&x->problem, &err);
        server_request_reply_problem(x);
        return;
    }
    if (a->n_pairs > 0) qsort(a->pairs, a->n_pairs, sizeof(*a->pairs), compare_pairs);
    server_request_reply_json(x, 200,
                              json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "object", "audit", "sampled",
                                        (json_int_t)a->sampled, "audited", (json_int_t)a->audited, "dropped",
                                        (json_int_t)a->dropped, "waiting", (json_int_t)a->waiting, "schemas",
                                        audit_schemas(a), "formats", audit_formats(a)));
    rp_audit_free(a);
}
