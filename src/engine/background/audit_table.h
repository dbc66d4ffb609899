/* SPDX-License-Identifier: Apache-2.0 */
/* audit_table.h: how far reused KV moved the first token's logits from those of an exact run: by schema, and by pairs
 * of modules that were imported together. The auditor (audit.h) fills it in; a file of the store keeps it
 * (docs/store.md).
 *
 *   sample    first token's logits, reused and exact --audit_compare--> agrees? KL divergence, distance
 *   schema    a name and its tenant; figures of `all` samples, and of those `now`: since its quality was last raised
 *   pair      two modules of a schema with views that were not exact, unordered; a single module pairs with itself
 *
 *             samples with the pair   | mean KL of these less mean KL of the others: the pair's excess. It separates
 *             samples without it      | a harmful pair from one that was only imported with it
 *
 * KV formats below 16 bits are judged apart from reuse, by the exact run in f16 against the exact run in the request's
 * formats: by schema, if its modules are in such a format, and for the text of all requests, if that is.
 *
 *   as written --> full KV --> link:8 --> blend:15 --> exact      quality of a schema, raised: by one step at a time,
 *         and beyond the
 *                                                                 lowest view of the samples that were judged. Only
 *                                                                 samples with reduced KV (reductions.h) make "full KV"
 *                                                                 a step
 *
 * A schema with a changed text starts empty. Tables are bounded; the least recently updated entry is evicted first, a
 * schema with its pairs. One user at a time (the auditor's lock).
 */
#ifndef ENGINE_AUDIT_TABLE_H
#define ENGINE_AUDIT_TABLE_H

#include "base/buffer.h"
#include "base/hash.h"
#include "kv/block_pool.h"
#include "reprise_store.h"

#define AUDIT_MAX_SCHEMAS 128
#define AUDIT_MAX_PAIRS 512                /* of all schemas together */
#define AUDIT_MOST_MODULES 16              /* that form pairs, per sample; of more: consecutive ones, rotating */
#define AUDIT_NAME_BYTES 256               /* of a schema's name or a module's path; longer ones are cut */
#define AUDIT_LEAST_SAMPLES 8              /* fewer samples give no reliable mean */
#define AUDIT_MAX_FILE ((size_t)480 << 10) /* > size of full tables; twice this < the store's margin for other data */

/* Steps of quality: a schema is raised from one to a later one. */
typedef enum audit_step {
    AUDIT_AS_WRITTEN, /* of a sample: some views are of reduced KV */
    AUDIT_FULL_KV,    /* keep is ignored */
    AUDIT_LINK,
    AUDIT_BLEND,
    AUDIT_EXACT,
    AUDIT_STEPS = AUDIT_EXACT,
} audit_step;

/* "" (as written), "full KV", "link:8", "blend:15", "exact". */
const char *audit_step_name(int32_t step);

/* Distance of the reused logits from the exact ones. */
typedef struct audit_distance {
    bool agrees;     /* both have the same most likely token */
    double kl;       /* KL(exact || reused) over all tokens, in nats */
    double distance; /* RMS difference of all logits, less the mean difference, which changes no probability */
} audit_distance;

/* Compares n logits, in double. false: some are not finite; there is no result. */
bool audit_compare(const float *exact, const float *reused, int32_t n, audit_distance *out);

typedef struct audit_figures {
    uint64_t samples, agreed;
    double sum_kl, max_kl, sum_distance;
} audit_figures;

/* A KV format of modules or of text, against f16. */
typedef struct audit_format {
    rp_kv_format format; /* of the last sample; of modules in several: the smallest */
    bool falls_back;     /* judged too inexact: f16 is used instead */
    bool exceeds;        /* over the bound, and logged */
    audit_figures figures;
} audit_format;

typedef struct audit_schema {
    uint64_t id;      /* never reused */
    uint64_t used;    /* sample number of its last update */
    uint32_t tenant;  /* 0: shared */
    base_key version; /* of its text */
    char *name;
    int32_t raised; /* audit_step */
    int32_t lowest; /* the lowest level of the samples of `now`; AUDIT_STEPS without any */
    bool exceeds;   /* over the bound, and logged */
    audit_figures all, now;
    audit_format kv; /* of its modules */
} audit_schema;

typedef struct audit_pair {
    uint64_t schema, used;
    char *first, *second; /* paths, in the order of strcmp */
    audit_figures figures;
} audit_pair;

typedef struct audit_table {
    audit_schema schemas[AUDIT_MAX_SCHEMAS];
    audit_pair pairs[AUDIT_MAX_PAIRS];
    size_t n_schemas, n_pairs;
    audit_format text; /* of the text of all requests */
    uint64_t n_ids, n_added;
    uint64_t sampled, audited, dropped; /* jobs: chosen; compared; given up */
} audit_table;

/* The origin of a sample. All pointers are borrowed. */
typedef struct audit_origin {
    const char *schema;
    uint32_t tenant;
    base_key version;
    int32_t level;              /* audit_step of its lowest view; */
    int32_t raised;             /* the schema's when the job was planned */
    const char *const *modules; /* n_modules distinct paths */
    int32_t n_modules;
} audit_origin;

/* When a schema is too far from exact. */
typedef struct audit_bound {
    double max_kl; /* mean of at least AUDIT_LEAST_SAMPLES samples; 0: no bound */
    bool raises;   /* its quality is raised, or its KV falls back to f16; else it is only logged */
} audit_bound;

typedef enum audit_verdict { AUDIT_FINE,
                             AUDIT_EXCEEDS,
                             AUDIT_RAISED } audit_verdict;

audit_table *audit_table_new(void); /* NULL: no memory */
void audit_table_free(audit_table *t);
/* Adds a sample. *verdict: the new state of its schema, *about (borrowed until the next call; NULL: none was kept).
 * RP_ERR_MEMORY: the sample was not added, or not to all of its pairs. */
int audit_table_add(audit_table *t, const audit_origin *o, const audit_distance *d, const audit_bound *bound,
                    audit_verdict *verdict, const audit_schema **about);
/* Adds a sample of a KV format. */
audit_verdict audit_format_add(audit_format *f, rp_kv_format format, const audit_distance *d, const audit_bound *bound);
/* The formats of a schema's modules; NULL: no memory. Created if missing. */
audit_format *audit_table_format(audit_table *t, const audit_origin *o);
/* NULL: it has no samples, or none of this version. */
const audit_schema *audit_table_find(const audit_table *t, uint32_t tenant, const base_key *version, const char *name);
/* Mean KL of the schema's samples with the pair less that of those without it; 0: there are none without it. */
double audit_excess(const audit_schema *s, const audit_pair *p);

static inline double audit_mean_kl(const audit_figures *f) { return f->samples ? f->sum_kl / (double)f->samples : 0; }
static inline double audit_mean_distance(const audit_figures *f) {
    return f->samples ? f->sum_distance / (double)f->samples : 0;
}

/* The report of a table, owned by the caller (rp_audit_free). RP_ERR_MEMORY. */
int audit_report_new(rp_audit **out, rp_error *err); /* an empty report */
int audit_table_report(const audit_table *t, rp_audit **out, rp_error *err);

/* The table as text, for a file; model: the fingerprint. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int audit_table_write(const audit_table *t, const base_key *model, base_buffer *out);
/* Parses a table of this version or an earlier one from n bytes of text. *model: its fingerprint. RP_ERR_FORMAT
 * (corrupt, another version, or not a table), RP_ERR_MEMORY: *out is NULL. */
int audit_table_read(audit_table **out, base_key *model, const char *text, size_t n);

#endif
