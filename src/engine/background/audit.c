/* SPDX-License-Identifier: Apache-2.0 */
/* audit.c: see audit.h. */
#include "engine/background/audit.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/background/audit_table.h"
#include "engine/background/background.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/observer.h"
#include "engine/core/schemas.h"
#include "kv/block_pool.h"
#include "kv/kv_format.h"
#include "model/model.h"
#include "pml/document.h"
#include "pml/layout.h"
#include "pml/plan.h"
#include "reprise_store.h"
#include "store/disk/disk_folder.h"
#include "store/record/record.h"
#include "store/span_store.h"

struct audit_case {
    bool taken;
    float *logits;     /* [n_vocab]: reused; of the exact run, once that is compared */
    rp_schema *schema; /* a reference; NULL: plain text */
    bool judges_reuse;
    bool automatic; /* its automatic modules, after the text `begins` of the tenant: there is no schema */
    base_key begins;
    uint32_t tenant;
    bool judges_modules, judges_text; /* their KV format; */
    rp_kv_format modules, text;
    bool compared;          /* its reuse */
    background_task in_f16; /* the twin to submit after the exact one */
    int32_t level, raised;
    int32_t holders[AUDIT_CASE_MODULES]; /* nodes of the schema */
    int32_t n_holders;
};

struct auditor {
    int32_t every;
    audit_bound bound;
    bool keeps;          /* the store may have a file of it */
    bool judges_formats; /* the pool takes f16 */
    pthread_mutex_t lock;
    bool has_lock;
    audit_table *table; /* locked */
    uint64_t n_waiting; /* locked; changed by the engine's thread */

    /* the engine's thread */
    uint64_t n_modular, n_others; /* seen requests, with inexact views and without */
    uint64_t written_us;
    bool is_new; /* changed since the last write */
    audit_case cases[AUDIT_MAX_WAITING];
    float *logits; /* buffers of all cases */
};

/* ---- quality ---- */

/* The quality step of a view. A scaffold that was not computed yet counts as reuse; above focus is exact. */
static audit_step level_of(const pml_item *view) {
    if (view->reduced) return AUDIT_AS_WRITTEN;
    switch (view->quality.mode) {
    case RP_QUALITY_LINK: return AUDIT_LINK;
    case RP_QUALITY_BLEND:
    case RP_QUALITY_FOCUS: return AUDIT_BLEND;
    case RP_QUALITY_EXACT: return AUDIT_EXACT;
    default: return AUDIT_FULL_KV;
    }
}

/* Has the request or its prompt chosen the quality? */
static bool names_quality(const rp_job *c) {
    return c->request->options.quality.mode != RP_QUALITY_AS_WRITTEN ||
           c->request->document->nodes[0].quality.mode != RP_QUALITY_AS_WRITTEN;
}

/* ---- tenants ---- */

static uint32_t audit_tenant_of(const rp_engine *e, const rp_schema *s) {
    return base_key_equal(&s->salt, &e->salt) ? 0 : span_tenant(&s->salt);
}

typedef struct audit_remedy {
    int32_t raised;
    bool falls_back;
} audit_remedy;

/* What became of a schema. */
static audit_remedy audit_remedy_of(const rp_engine *e, const rp_schema *s) {
    auditor *a = e->auditor;
    audit_remedy remedy = {0};
    if (!a || !a->bound.raises) return remedy;
    pthread_mutex_lock(&a->lock);
    const audit_schema *known = audit_table_find(a->table, audit_tenant_of(e, s), &s->version, s->name);
    if (known) remedy = (audit_remedy){known->raised, known->kv.falls_back};
    pthread_mutex_unlock(&a->lock);
    return remedy;
}

rp_quality audit_least(rp_job *c) {
    static const rp_quality steps[AUDIT_STEPS + 1] = {
        [AUDIT_LINK] = {RP_QUALITY_LINK, 8},
        [AUDIT_BLEND] = {RP_QUALITY_BLEND, 15},
        [AUDIT_EXACT] = {RP_QUALITY_EXACT, 0},
    };
    job_draft(c)->raised =
        c->request->schema ? audit_remedy_of(c->engine, c->request->schema).raised : AUDIT_AS_WRITTEN;
    BASE_ASSERT(c->request->raised >= 0 && c->request->raised <= AUDIT_STEPS);
    return steps[c->request->raised];
}

bool audit_ignores_keep(const rp_job *c) { return c->request->raised >= AUDIT_FULL_KV && !names_quality(c); }

bool audit_needs_full(const rp_engine *e, const rp_schema *s) { return audit_remedy_of(e, s).raised >= AUDIT_FULL_KV; }

bool audit_falls_back(const rp_engine *e, const rp_schema *s) { return audit_remedy_of(e, s).falls_back; }

/* ---- automatic modules ---- */

#define AUTO_DIGITS 8

static void write_auto_name(const base_key *begins, char *out) {
    memcpy(out, AUDIT_AUTO, sizeof(AUDIT_AUTO) - 1);
    base_key_hex(begins, out + sizeof(AUDIT_AUTO) - 1, AUTO_DIGITS);
}

static uint32_t auto_tenant_of(const rp_job *c) {
    return base_key_equal(&c->salt, &c->engine->salt) ? 0 : span_tenant(&c->salt);
}

bool audit_allows_auto(const rp_job *c) {
    auditor *a = c->engine->auditor;
    char name[sizeof(AUDIT_AUTO) + AUTO_DIGITS];
    if (!a || !a->bound.raises) return true;
    write_auto_name(&c->automatic.begins, name);
    pthread_mutex_lock(&a->lock);
    const audit_schema *known = audit_table_find(a->table, auto_tenant_of(c), &c->automatic.begins, name);
    const bool allows = !known || known->raised < AUDIT_EXACT;
    pthread_mutex_unlock(&a->lock);
    return allows;
}

/* Has the job automatic modules, or tokens that were computed after them? */
static bool is_automatic(const rp_job *c) { return c->moved.n > 0 && c->automatic.n > 0; }

/* ---- choosing ---- */

/* Of a key and a value together. */
static int bits_of(rp_kv_format f) { return kv_element_bits(kv_format_keys(f)) + kv_element_bits(kv_format_values(f)); }

/* The KV formats of a request that are to be judged. Text is judged by requests without modules in other small
   formats. */
static void take_formats(audit_case *k, const rp_job *c) {
    const pml_plan *p = c->plan;
    bool mixes = false;
    k->text = c->format;
    k->judges_modules = false;
    for (size_t i = 0; i < p->n_items && !c->exact; i++) {
        if (!p->items[i].is_view) continue;
        const rp_kv_format f = p->layout->segments[p->items[i].segment].format;
        if (!kv_format_is_small(f)) continue;
        mixes |= f != c->format;
        if (!k->judges_modules || bits_of(f) < bits_of(k->modules))
            k->modules = f;
        k->judges_modules = true;
    }
    k->judges_text = kv_format_is_small(c->format) && !mixes;
}

static bool is_inexact(const pml_item *i) { return i->is_view && !i->exact; }

static bool is_modular(const rp_job *c) {
    const pml_plan *p = c->plan;
    if (!c->request->schema || c->exact || c->request->options.reuse != RP_REUSE_ON || c->moved.n > 0) return false;
    if (names_quality(c)) return false;
    for (size_t i = 0; i < p->n_items; i++)
        if (is_inexact(&p->items[i])) return true;
    return false;
}

/* Is the answer that of the exact run in the request's formats? */
static bool is_whole(const rp_job *c) {
    const pml_plan *p = c->plan;
    if (c->moved.n > 0 || c->wants.scatters || c->wants.n_late > 0) return false;
    for (size_t i = 0; i < p->n_items && !c->exact; i++)
        if (is_inexact(&p->items[i])) return false;
    return true;
}

static void add_holder(audit_case *k, int32_t holder) {
    for (int32_t i = 0; i < k->n_holders; i++)
        if (k->holders[i] == holder) return;
    if (k->n_holders < AUDIT_CASE_MODULES) k->holders[k->n_holders++] = holder;
}

static void take_case(audit_case *k, rp_job *c) {
    const pml_plan *p = c->plan;
    BASE_ASSERT(!k->taken && !k->in_f16.tokens);
    k->taken = true;
    k->compared = false;
    k->schema = c->request->schema ? engine_schema_ref(c->engine, c->request->schema) : NULL;
    k->raised = c->request->raised;
    k->level = AUDIT_STEPS;
    k->n_holders = 0;
    k->automatic = is_automatic(c);
    if (k->automatic) {
        k->level = AUDIT_BLEND; /* the step below exact */
        k->begins = c->automatic.begins;
        k->tenant = auto_tenant_of(c);
    }
    for (size_t i = 0; i < p->n_items; i++) {
        const pml_item *item = &p->items[i];
        if (!is_inexact(item)) continue;
        k->level = BASE_MIN(k->level, (int32_t)level_of(item));
        if (item->holder > 0) add_holder(k, item->holder);
    }
}

static void auditor_count(auditor *a, uint64_t *what, int waiting) {
    pthread_mutex_lock(&a->lock);
    BASE_ASSERT(waiting >= 0 || a->n_waiting > 0);
    if (what) ++*what;
    a->n_waiting += (uint64_t)waiting;
    pthread_mutex_unlock(&a->lock);
}

static void audit_look(rp_job *c, const float *logits) {
    auditor *a = c->engine->auditor;
    audit_case formats = {.taken = false};
    if (!a || c->wants.adapter) return; /* schemas and formats are judged by the base model */
    take_formats(&formats, c);
    const bool is_reused = is_modular(c) || is_automatic(c),
               is_formatted = a->judges_formats && (formats.judges_modules || formats.judges_text);
    if (!is_reused && !(is_formatted && is_whole(c))) return;
    if ((is_reused ? a->n_modular++ : a->n_others++) % (uint64_t)a->every != 0) return;
    audit_case *k = NULL;
    for (int i = 0; i < AUDIT_MAX_WAITING && !k; i++)
        if (!a->cases[i].taken) k = &a->cases[i];
    auditor_count(a, &a->table->sampled, k != NULL);
    if (!k) {
        auditor_count(a, &a->table->dropped, 0);
        return;
    }
    take_formats(k, c);
    take_case(k, c);
    k->judges_reuse = is_reused;
    memcpy(k->logits, logits, (size_t)c->engine->model->net.hp.n_vocab * sizeof(*logits));
    BASE_ASSERT(!c->audited); /* a request has one first token */
    c->audited = k;
}

/* ---- comparing ---- */

static void audit_release(rp_engine *e, audit_case *k, uint64_t *counted) {
    BASE_ASSERT(k->taken);
    engine_schema_unref(e, k->schema);
    background_task_free(&k->in_f16);
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
static void audit_table_write_line(const audit_table *t, const audit_schema *s, const audit_figures *was,
                                   audit_verdict v, char *out) {
    const audit_pair *p = worst_pair(t, s);
    const bool automatic = strncmp(s->name, AUDIT_AUTO, sizeof(AUDIT_AUTO) - 1) == 0;
    int n = snprintf(out, LINE_BYTES, "audit: %s%s%s: mean divergence from exact %.3f nats over %llu requests",
                     automatic ? "" : "schema '", s->name, automatic ? "" : "'", audit_mean_kl(was),
                     (unsigned long long)was->samples);
    if (p && n < LINE_BYTES)
        n += snprintf(out + n, (size_t)(LINE_BYTES - n), ", largest where '%s' and '%s' are combined", p->first,
                      p->second);
    if (n >= LINE_BYTES) return;
    if (v == AUDIT_RAISED)
        snprintf(out + n, (size_t)(LINE_BYTES - n), ": raising its quality to %s", audit_step_name(s->raised));
    else if (automatic)
        snprintf(out + n, (size_t)(LINE_BYTES - n),
                 ": use reuse 'on' for them, or let the auditor do so (audit_raises)");
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
    BASE_ASSERT(verdict == AUDIT_FINE || s);
    if (verdict != AUDIT_FINE) { /* at the quality that was judged */
        was.samples++;
        was.sum_kl += d->kl;
        audit_table_write_line(a->table, s, &was, verdict, line);
    }
    pthread_mutex_unlock(&a->lock);
    if (verdict != AUDIT_FINE) base_log(BASE_LOG_WARN, "%s", line);
}

static audit_origin origin_of(const rp_engine *e, const audit_case *k) {
    BASE_ASSERT(k->schema && !k->automatic);
    return (audit_origin){
        .schema = k->schema->name,
        .tenant = audit_tenant_of(e, k->schema),
        .version = k->schema->version,
        .level = k->level,
        .raised = k->raised,
    };
}

/* Paths of the modules, for the table: in one allocation. */
static int add_case(rp_engine *e, const audit_case *k, const audit_distance *d) {
    const char *names[AUDIT_CASE_MODULES];
    BASE_ASSERT(k->n_holders <= AUDIT_CASE_MODULES && (!k->automatic || k->n_holders == 0)); /* it has the first path */
    char *paths = base_alloc((size_t)(k->n_holders + 1) * AUDIT_NAME_BYTES);
    if (!paths) return RP_ERR_MEMORY;
    for (int32_t i = 0; i < k->n_holders; i++)
        names[i] = pml_path(k->schema->document, k->holders[i], paths + (size_t)i * AUDIT_NAME_BYTES, AUDIT_NAME_BYTES);
    audit_origin o;
    if (k->automatic) {
        write_auto_name(&k->begins, paths);
        o = (audit_origin){.schema = paths, .tenant = k->tenant, .version = k->begins, .level = k->level};
    } else o = origin_of(e, k);
    o.modules = names;
    o.n_modules = k->n_holders;
    auditor_add(e->auditor, &o, d);
    base_free(paths);
    return RP_OK;
}

/* ---- KV formats ---- */

/* Locked. f: the table's. Logs what becomes of the format. about: "schema 'x'", or "text". Returns whether the format
 * is no longer used. */
static bool format_add(rp_engine *e, audit_format *f, rp_kv_format format, const char *about, const audit_distance *d) {
    auditor *a = e->auditor;
    char line[LINE_BYTES];
    const audit_verdict v = audit_format_add(f, format, d, &a->bound);
    if (v == AUDIT_FINE) return false;
    snprintf(line, LINE_BYTES,
             "audit: KV of %s in %s: mean divergence from f16 %.3f nats over %llu requests, "
             "%llu of them with another first token: %s",
             about, kv_format_name(f->format), audit_mean_kl(&f->figures), (unsigned long long)f->figures.samples,
             (unsigned long long)(f->figures.samples - f->figures.agreed),
             v == AUDIT_RAISED ? "new requests use f16"
                               : "use f16 (kv, kv_format), or let the auditor do so (audit_raises)");
    pthread_mutex_unlock(&a->lock);
    base_log(BASE_LOG_WARN, "%s", line);
    pthread_mutex_lock(&a->lock);
    return v == AUDIT_RAISED;
}

static void add_formats(rp_engine *e, const audit_case *k, const audit_distance *d) {
    auditor *a = e->auditor;
    char about[AUDIT_NAME_BYTES + 16];
    pthread_mutex_lock(&a->lock);
    if (k->judges_text && format_add(e, &a->table->text, k->text, "text", d)) atomic_store(&e->falls_back, true);
    if (k->judges_modules) {
        const audit_origin o = origin_of(e, k);
        audit_format *f = audit_table_format(a->table, &o);
        snprintf(about, sizeof(about), "schema '%.200s'", k->schema->name);
        if (f) format_add(e, f, k->modules, about, d);
    }
    pthread_mutex_unlock(&a->lock);
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
    int rc = audit_table_write(a->table, &e->states->fingerprint, &text);
    pthread_mutex_unlock(&a->lock);
    size_t n = text.len;
    char *bytes = rc ? NULL : base_buffer_take(&text);
    if (!rc) rc = span_store_keep_audit(e->store, bytes, n);
    if (!rc) return;
    base_free(bytes);
    base_buffer_free(&text);
    base_log(BASE_LOG_WARN, "audit: the report was not saved: %s", rp_code_text((rp_code)rc));
}

static void end_case(rp_engine *e, audit_case *k, bool known) {
    auditor *a = e->auditor;
    audit_release(e, k, known || k->compared ? &a->table->audited : &a->table->dropped);
    a->is_new = true;
    if (base_clock_us() - a->written_us >= AUDIT_WRITE_S * UINT64_C(1000000)) audit_keep(e);
}

/* A background_done_fn: the exact run in f16. */
static void meet_f16(rp_engine *e, void *user, int rc, const background_result *result) {
    audit_case *k = user;
    audit_distance d;
    bool known = !rc && audit_compare(result->logits, k->logits, e->model->net.hp.n_vocab, &d);
    if (known) add_formats(e, k, &d);
    end_case(e, k, known);
}

/* Takes its arrays over, in any case. */
static int submit_twin(rp_engine *e, background_task *twin, audit_case *k, background_done_fn done) {
    twin->done = done;
    twin->user = k;
    twin->keeps = false;
    int rc = background_submit(e, twin);
    if (rc) background_task_free(twin);
    twin->tokens = twin->positions = NULL;
    twin->pieces = NULL;
    return rc;
}

/* A background_done_fn: the exact run in the request's formats. */
static void meet_exact(rp_engine *e, void *user, int rc, const background_result *result) {
    audit_case *k = user;
    audit_distance d;
    BASE_ASSERT(k->taken && k->judges_reuse && !k->compared);
    k->compared =
        !rc && audit_compare(result->logits, k->logits, e->model->net.hp.n_vocab, &d) && add_case(e, k, &d) == RP_OK;
    if (k->compared && k->in_f16.tokens) {
        memcpy(k->logits, result->logits, (size_t)e->model->net.hp.n_vocab * sizeof(*k->logits));
        if (submit_twin(e, &k->in_f16, k, meet_f16) == RP_OK) return;
    }
    end_case(e, k, false);
}

/* The twin in f16: the same tokens. */
static int make_f16(const background_task *twin, background_task *out) {
    const size_t bytes = (size_t)twin->n * sizeof(int32_t);
    *out = (background_task){.salt = twin->salt,
                             .format = RP_KV_F16,
                             .tokens = base_alloc(bytes),
                             .positions = base_alloc(bytes),
                             .n = twin->n};
    if (!out->tokens || !out->positions) {
        background_task_free(out);
        return RP_ERR_MEMORY;
    }
    memcpy(out->tokens, twin->tokens, bytes);
    memcpy(out->positions, twin->positions, bytes);
    return RP_OK;
}

static void audit_end(rp_job *c, int rc) {
    audit_case *k = c->audited;
    rp_engine *e = c->engine;
    background_task twin = {.n = 0};
    if (!k) return;
    c->audited = NULL;
    const bool judges_format = e->auditor->judges_formats && (k->judges_text || k->judges_modules);
    BASE_ASSERT(k->judges_reuse || judges_format); /* why it was taken */
    if (!rc) rc = background_twin(c, &twin);
    if (!rc && judges_format) rc = make_f16(&twin, &k->in_f16);
    if (!rc && k->judges_reuse) rc = submit_twin(e, &twin, k, meet_exact);
    else if (!rc) rc = judges_format ? submit_twin(e, &k->in_f16, k, meet_f16) : RP_ERR_UNSUPPORTED;
    background_task_free(&twin);
    if (rc) audit_release(e, k, &e->auditor->table->dropped);
}

const job_observer audit_observer = {.first_logits = audit_look, .ended = audit_end};

/* ---- opening and closing ---- */

uint64_t audit_bytes(const rp_engine_options *o, int32_t n_vocab) {
    return o->audit_every > 0 ? (uint64_t)AUDIT_MAX_WAITING * (uint64_t)n_vocab * sizeof(float) : 0;
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
    if (!rc && !base_key_equal(&model, &e->states->fingerprint)) audit_table_free(t);
    else if (!rc) {
        audit_table_free(a->table);
        a->table = t;
    }
    for (size_t i = 0; !a->bound.raises && i < a->table->n_schemas; i++) {
        a->table->schemas[i].raised = 0;
        a->table->schemas[i].kv.falls_back = false;
    }
    a->table->text.falls_back &= a->bound.raises;
    if (!a->table->text.falls_back) return;
    atomic_store(&e->falls_back, true);
    base_log(BASE_LOG_WARN, "audit: requests use KV in f16, not in %s, which an earlier audit found too inexact",
             kv_format_name(a->table->text.format));
}

static int audit_open_parts(rp_engine *e, rp_error *err) {
    auditor *a = e->auditor;
    size_t n = (size_t)e->model->net.hp.n_vocab;
    a->has_lock = pthread_mutex_init(&a->lock, NULL) == 0;
    a->table = audit_table_new();
    a->logits = base_calloc(AUDIT_MAX_WAITING * n, sizeof(float));
    if (!a->has_lock || !a->table || !a->logits)
        return base_fail_memory(err, AUDIT_MAX_WAITING * n * sizeof(float), "the auditor");
    for (size_t i = 0; i < AUDIT_MAX_WAITING; i++) a->cases[i].logits = a->logits + i * n;
    return RP_OK;
}

int audit_open(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    const double most = (double)o->max_divergence;
    if (o->audit_every < 0)
        return base_fail(err, RP_ERR_INVALID, "audit_every is %d: give 0 (off) or more", o->audit_every);
    if (!(most >= 0)) return base_fail(err, RP_ERR_INVALID, "max_divergence is %g: give 0 (off) or more", most);
    if (o->audit_every == 0) return RP_OK;
    auditor *a = e->auditor = base_calloc(1, sizeof(*a));
    if (!a) return base_fail_memory(err, sizeof(*a), "the auditor");
    a->every = o->audit_every;
    a->bound = (audit_bound){most, o->audit_raises};
    a->judges_formats = kv_pool_takes(e->pool, RP_KV_F16);
    if (!a->judges_formats)
        base_log(BASE_LOG_WARN, "audit: KV in %s is not judged: a block cannot hold f16 of this model",
                 kv_format_name(e->formats->text));
    a->written_us = base_clock_us();
    const int rc = audit_open_parts(e, err);
    if (rc) return rc;
    bool named = o->store_dir && !e->cipher;
    a->keeps = named && !o->store_read_only && o->store_write != RP_STORE_WRITE_OFF;
    if (named) read_kept(e, o->store_dir);
    return RP_OK;
}

void audit_close(rp_engine *e) {
    auditor *a = e->auditor;
    if (!a) return;
    BASE_ASSERT(a->n_waiting == 0); /* their tasks have ended */
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
    BASE_ASSERT(a->n_waiting <= AUDIT_MAX_WAITING);
    int rc = audit_table_report(a->table, out, err);
    if (!rc) (*out)->waiting = a->n_waiting;
    pthread_mutex_unlock(&a->lock);
    return rc;
}
