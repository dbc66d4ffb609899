/* SPDX-License-Identifier: Apache-2.0 */
/* audit.c: see audit.h. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/engine_internal.h"
#include "pml/quality.h"
#include "store/disk_folder.h"

struct audit_case {
    bool taken;
    float *logits;      /* [n_vocab], reused */
    rp_schema *schema;  /* a reference */
    int32_t level, raised;
    int32_t holders[AUDIT_CASE_MODULES]; /* nodes of the schema */
    int32_t n_holders;
};

struct auditor {
    int32_t every;
    audit_bound bound;
    bool keeps; /* the store may have a file of it */
    pthread_mutex_t lock;
    bool has_lock;
    audit_table *table; /* locked */
    uint64_t n_waiting; /* locked; changed by the engine's thread */

    /* the engine's thread */
    uint64_t n_modular;
    uint64_t written_us;
    bool is_new; /* changed since the last write */
    audit_case cases[AUDIT_MAX_WAITING];
    float *logits; /* buffers of all cases */
};

/* ---- quality ---- */

static rp_quality quality_of(int32_t step) {
    static const rp_quality steps[AUDIT_STEPS + 1] = {
        {RP_QUALITY_AS_WRITTEN, 0}, {RP_QUALITY_LINK, 8}, {RP_QUALITY_BLEND, 15}, {RP_QUALITY_EXACT, 0}};
    return steps[step];
}

/* The number of quality steps of a view. A scaffold that was not computed yet counts as reuse. */
static int32_t level_of(rp_quality q) {
    return q.mode == RP_QUALITY_EXACT ? 3 : q.mode == RP_QUALITY_BLEND ? 2 : q.mode == RP_QUALITY_LINK ? 1 : 0;
}

/* ---- tenants ---- */

static uint32_t audit_tenant_of(const rp_engine *e, const rp_schema *s) { return base_key_equal(&s->salt, &e->salt) ? 0 : span_tenant(&s->salt); }

rp_quality audit_least(rp_job *c) {
    auditor *a = c->engine->auditor;
    job_draft(c)->raised = 0;
    if (!a || !a->bound.raises || !c->request->schema) return quality_of(0);
    pthread_mutex_lock(&a->lock);
    const audit_schema *s = audit_table_find(a->table, audit_tenant_of(c->engine, c->request->schema), &c->request->schema->version, c->request->schema->name);
    if (s) job_draft(c)->raised = s->raised;
    pthread_mutex_unlock(&a->lock);
    return quality_of(c->request->raised);
}

/* ---- choosing ---- */

static bool is_inexact(const pml_item *i) { return i->is_view && !i->exact; }

static bool is_modular(const rp_job *c) {
    const pml_plan *p = c->plan;
    if (!c->request->schema || c->exact || c->request->options.reuse != RP_REUSE_ON || c->moved.n > 0) return false;
    if (c->request->options.quality.mode != RP_QUALITY_AS_WRITTEN || c->request->document->nodes[0].quality.mode != RP_QUALITY_AS_WRITTEN) return false;
    for (size_t i = 0; i < p->n_items; i++)
        if (is_inexact(&p->items[i])) return true;
    return false;
}

static audit_case *free_case(auditor *a) {
    for (int i = 0; i < AUDIT_MAX_WAITING; i++)
        if (!a->cases[i].taken) return &a->cases[i];
    return NULL;
}

static void add_holder(audit_case *k, int32_t holder) {
    for (int32_t i = 0; i < k->n_holders; i++)
        if (k->holders[i] == holder) return;
    if (k->n_holders < AUDIT_CASE_MODULES) k->holders[k->n_holders++] = holder;
}

static void take_case(audit_case *k, rp_job *c) {
    const pml_plan *p = c->plan;
    k->taken = true;
    k->schema = engine_schema_ref(c->engine, c->request->schema);
    k->raised = c->request->raised;
    k->level = AUDIT_STEPS;
    k->n_holders = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        const pml_item *item = &p->items[i];
        if (!is_inexact(item)) continue;
        k->level = BASE_MIN(k->level, level_of(item->quality));
        if (item->holder > 0) add_holder(k, item->holder);
    }
}

static void auditor_count(auditor *a, uint64_t *what, int waiting) {
    pthread_mutex_lock(&a->lock);
    if (what) ++*what;
    a->n_waiting += (uint64_t)waiting;
    pthread_mutex_unlock(&a->lock);
}

static void audit_look(rp_job *c, const float *logits) {
    auditor *a = c->engine->auditor;
    if (!a || !is_modular(c) || a->n_modular++ % (uint64_t)a->every != 0) return;
    audit_case *k = free_case(a);
    auditor_count(a, &a->table->sampled, k != NULL);
    if (!k) {
        auditor_count(a, &a->table->dropped, 0);
        return;
    }
    take_case(k, c);
    memcpy(k->logits, logits, (size_t)c->engine->model->hp.n_vocab * sizeof(*logits));
    c->audited = k;
}

/* ---- comparing ---- */

static void audit_release(rp_engine *e, audit_case *k, uint64_t *counted) {
    engine_schema_unref(e, k->schema);
    k->schema = NULL;
    k->taken = false;
    auditor_count(e->auditor, counted, -1);
}

/* Locked: the pair with the highest excess; NULL: none has any. */
static const audit_pair *worst_pair(const audit_table *t, const audit_schema *s) {
    const audit_pair *worst = NULL;
    double most = 0;
    for (size_t i = 0; i < t->n_pairs; i++) {
        double excess = t->pairs[i].schema == s->id ? audit_excess(s, &t->pairs[i]) : 0;
        if (excess <= most) continue;
        most = excess;
        worst = &t->pairs[i];
    }
    return worst;
}

#define LINE_BYTES 1024

/* Locked. Logs the new state of a schema; `was`: its previous figures. */
static void audit_table_write_line(const audit_table *t, const audit_schema *s, const audit_figures *was, audit_verdict v, char *out) {
    char quality[RP_QUALITY_BYTES];
    const audit_pair *p = worst_pair(t, s);
    int n = snprintf(out, LINE_BYTES, "audit: schema '%s': mean divergence from exact %.3f nats over %llu requests", s->name, audit_mean_kl(was),
                     (unsigned long long)was->samples);
    if (p && n < LINE_BYTES) n += snprintf(out + n, (size_t)(LINE_BYTES - n), ", largest where '%s' and '%s' are combined", p->first, p->second);
    if (n >= LINE_BYTES) return;
    if (v == AUDIT_RAISED) snprintf(out + n, (size_t)(LINE_BYTES - n), ": raising its quality to %s", pml_quality_write(quality_of(s->raised), quality));
    else snprintf(out + n, (size_t)(LINE_BYTES - n), ": raise its quality, or put the modules into a scaffold");
}

/* Adds a sample and logs the new state of its schema. */
static void auditor_add(auditor *a, const audit_origin *o, const audit_distance *d) {
    char line[LINE_BYTES];
    audit_verdict verdict = AUDIT_FINE;
    const audit_schema *s;
    pthread_mutex_lock(&a->lock);
    const audit_schema *before = audit_table_find(a->table, o->tenant, &o->version, o->schema);
    audit_figures was = before ? before->now : (audit_figures){0};
    audit_table_add(a->table, o, d, &a->bound, &verdict, &s);
    if (verdict != AUDIT_FINE) { /* at the quality that was judged */
        was.samples++;
        was.sum_kl += d->kl;
        audit_table_write_line(a->table, s, &was, verdict, line);
    }
    pthread_mutex_unlock(&a->lock);
    if (verdict != AUDIT_FINE) base_log(BASE_LOG_WARN, "%s", line);
}

/* Paths of the modules, for the table: in one allocation. */
static int add_case(rp_engine *e, const audit_case *k, const audit_distance *d) {
    const char *names[AUDIT_CASE_MODULES];
    char *paths = base_alloc((size_t)(k->n_holders + 1) * AUDIT_NAME_BYTES);
    if (!paths) return RP_ERR_MEMORY;
    for (int32_t i = 0; i < k->n_holders; i++)
        names[i] = pml_path(k->schema->document, k->holders[i], paths + (size_t)i * AUDIT_NAME_BYTES, AUDIT_NAME_BYTES);
    audit_origin o = {.schema = k->schema->name, .tenant = audit_tenant_of(e, k->schema), .version = k->schema->version, .level = k->level,
                      .raised = k->raised, .modules = names, .n_modules = k->n_holders};
    auditor_add(e->auditor, &o, d);
    base_free(paths);
    return RP_OK;
}

/* ---- the file ---- */

/* The store's thread writes it later. */
static void audit_keep(rp_engine *e) {
    auditor *a = e->auditor;
    base_buffer text = BASE_BUFFER(AUDIT_MAX_FILE);
    if (!a->keeps || !a->is_new) return;
    a->written_us = base_clock_us();
    a->is_new = false;
    pthread_mutex_lock(&a->lock);
    int rc = audit_table_write(a->table, &e->states.fingerprint, &text);
    pthread_mutex_unlock(&a->lock);
    size_t n = text.len;
    char *bytes = rc ? NULL : base_buffer_take(&text);
    if (!rc) rc = span_store_keep_audit(e->store, bytes, n);
    if (!rc) return;
    base_free(bytes);
    base_buffer_free(&text);
    base_log(BASE_LOG_WARN, "audit: the report was not saved: %s", rp_code_text((rp_code)rc));
}

/* A background_done_fn. */
static void meet_twin(rp_engine *e, void *user, int rc, const background_result *result) {
    audit_case *k = user;
    auditor *a = e->auditor;
    audit_distance d;
    bool known = !rc && audit_compare(result->logits, k->logits, e->model->hp.n_vocab, &d) && add_case(e, k, &d) == RP_OK;
    audit_release(e, k, known ? &a->table->audited : &a->table->dropped);
    a->is_new = true;
    if (base_clock_us() - a->written_us >= AUDIT_WRITE_S * UINT64_C(1000000)) audit_keep(e);
}

static void audit_end(rp_job *c, int rc) {
    audit_case *k = c->audited;
    background_task twin = {.done = meet_twin, .user = k};
    if (!k) return;
    c->audited = NULL;
    if (!rc) rc = background_twin(c, &twin);
    if (!rc && (rc = background_submit(c->engine, &twin))) {
        base_free(twin.tokens);
        base_free(twin.positions);
    }
    if (rc) audit_release(c->engine, k, &c->engine->auditor->table->dropped);
}

const job_observer audit_observer = {.first_logits = audit_look, .ended = audit_end};

/* ---- opening and closing ---- */

uint64_t audit_bytes(const rp_engine_options *o, int32_t n_vocab) {
    return o->audit_every > 0 ? (uint64_t)AUDIT_MAX_WAITING * (uint64_t)n_vocab * sizeof(float) : 0;
}

static int audit_check_options(const rp_engine_options *o, rp_error *err) {
    if (o->audit_every < 0) return base_fail(err, RP_ERR_INVALID, "audit_every is %d: give 0 (off) or more", o->audit_every);
    if (!(o->max_divergence >= 0)) return base_fail(err, RP_ERR_INVALID, "max_divergence is %g: give 0 (off) or more", (double)o->max_divergence);
    return RP_OK;
}

/* Loads the table of an earlier engine; starts empty if it is of another model or cannot be read. */
static void read_kept(rp_engine *e, const char *dir) {
    auditor *a = e->auditor;
    base_buffer text = {0};
    audit_table *t;
    base_key model;
    if (disk_folder_read_audit(dir, AUDIT_MAX_FILE, &text)) return;
    int rc = audit_table_read(&t, &model, text.data ? text.data : "", text.len);
    base_buffer_free(&text);
    if (rc) base_log(BASE_LOG_WARN, "audit: %s/audit is unreadable: starting a new report", dir);
    if (!rc && !base_key_equal(&model, &e->states.fingerprint)) audit_table_free(t);
    else if (!rc) {
        audit_table_free(a->table);
        a->table = t;
    }
    for (size_t i = 0; !a->bound.raises && i < a->table->n_schemas; i++) a->table->schemas[i].raised = 0;
}

static int audit_open_parts(rp_engine *e, rp_error *err) {
    auditor *a = e->auditor;
    size_t n = (size_t)e->model->hp.n_vocab;
    a->has_lock = pthread_mutex_init(&a->lock, NULL) == 0;
    a->table = audit_table_new();
    a->logits = base_calloc(AUDIT_MAX_WAITING * n, sizeof(float));
    if (!a->has_lock || !a->table || !a->logits) return base_fail_memory(err, AUDIT_MAX_WAITING * n * sizeof(float), "the auditor");
    for (size_t i = 0; i < AUDIT_MAX_WAITING; i++) a->cases[i].logits = a->logits + i * n;
    return RP_OK;
}

int audit_open(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    int rc = audit_check_options(o, err);
    if (rc || o->audit_every == 0) return rc;
    auditor *a = e->auditor = base_calloc(1, sizeof(*a));
    if (!a) return base_fail_memory(err, sizeof(*a), "the auditor");
    a->every = o->audit_every;
    a->bound = (audit_bound){(double)o->max_divergence, o->audit_raises};
    a->written_us = base_clock_us();
    if ((rc = audit_open_parts(e, err))) return rc;
    bool named = o->store_dir && !e->cipher;
    a->keeps = named && !o->store_read_only && o->store_write != RP_STORE_WRITE_OFF;
    if (named) read_kept(e, o->store_dir);
    return RP_OK;
}

void audit_close(rp_engine *e) {
    auditor *a = e->auditor;
    if (!a) return;
    if (a->table && e->store) audit_keep(e);
    audit_table_free(a->table);
    base_free(a->logits);
    if (a->has_lock) pthread_mutex_destroy(&a->lock);
    base_free(a);
    e->auditor = NULL;
}

/* ---- reports ---- */

int rp_engine_audit(rp_engine *e, rp_audit **out, rp_error *err) {
    if (!e || !out) return base_fail(err, RP_ERR_INVALID, "rp_engine_audit: engine and out are needed");
    auditor *a = e->auditor;
    *out = NULL;
    if (!a) return audit_report_new(out, err);
    pthread_mutex_lock(&a->lock);
    int rc = audit_table_report(a->table, out, err);
    if (!rc) (*out)->waiting = a->n_waiting;
    pthread_mutex_unlock(&a->lock);
    return rc;
}
