/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_store.h: entries of a store: listing, pins, expiry and removal, of a folder or of a running engine;
 * maintenance of folders.
 *
 *   rp_store *store;
 *   rp_store_listing *list;
 *   rp_store_open(&store, "kv", NULL, &err);      a folder (rp_engine_options.store_dir) without a model, or
 *   rp_store_attach(&store, engine, &err);        the RAM tier and the disk tier of a running engine
 *   rp_store_list(store, NULL, NULL, &list, &err);
 *
 * Words:
 *
 *   entry    the KV of one span, of up to 256 tokens; its name is its key
 *   record   the file of an entry on disk
 *   label    name of a module's entries: "cities/plan/miami"; entries of prompts and answers have none
 *   model    hash of model file and KV format; engines ignore records of other models
 *   index    metadata of records; the only place of uses, last use, expiry and pin
 *
 * Only one process can change a folder: while an engine has it open, others can open it read-only, and changes fail
 * with RP_ERR_CONFLICT. Every listing compares files and index; every change repairs the leftovers of a crash, as an
 * engine does when it opens a store.
 *
 * An attached store shows all tenants, but neither their names nor their texts: it is for the operator. Its entries
 * have no `model`, `fault` and `encrypted`, and the label of an encrypted module from disk is "". Each function waits
 * for the end of a step, and blocks the next one while it scans the store.
 *
 * Conventions are those of reprise.h. Threads: an opened store has one user at a time; an attached one any number,
 * except callbacks of its engine. Sizes are bytes on disk, times seconds since 1970. See docs/store.md.
 */
#ifndef REPRISE_STORE_H
#define REPRISE_STORE_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rp_store rp_store;

typedef struct rp_store_options {
    uint32_t struct_size;
    bool read_only;       /* change nothing; an engine may have the folder open */
    bool create;          /* make a store of a folder that is missing or empty; otherwise that is an error */
    const char *key_file; /* as rp_engine_options.store_key_file. Without the key, encrypted records have no label */
} rp_store_options;

RP_API void rp_store_options_init(rp_store_options *options, uint32_t struct_size);
static inline rp_store_options rp_store_options_defaults(void) {
    rp_store_options o;
    rp_store_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* Opens a folder. options: NULL for the defaults; borrowed during the call. *out: rp_store_close. RP_ERR_IO (no such
 * folder), RP_ERR_FORMAT (not a store; with `create`: neither empty nor a store, and nothing in it is changed),
 * RP_ERR_CONFLICT (another process has it open; not with read_only), RP_ERR_INVALID (the key), RP_ERR_MEMORY. */
RP_API int rp_store_open(rp_store **out, const char *dir, const rp_store_options *options, rp_error *err);
/* Attaches to the store of an engine, which is borrowed until rp_store_close. RP_ERR_MEMORY. */
RP_API int rp_store_attach(rp_store **out, rp_engine *engine, rp_error *err);
RP_API void rp_store_close(rp_store *store);

/* ---- Entries --------------------------------------------------------------------------------------------------- */

typedef enum rp_store_kind {
    RP_STORE_MODULE,
    RP_STORE_TEXT,    /* of a prompt or an answer */
    RP_STORE_UNKNOWN, /* a record with an unreadable header */
    RP_STORE_REDUCED, /* a part of a module's reduced KV: some slots of each head. It has the module's label, and
                         is pinned with it */
    RP_STORE_STATES,  /* what recurrent layers hold after a token of a prompt or an answer, or, with its label, of a
                         module, and is pinned with it: it has no tokens of its own */
    RP_N_STORE_KINDS
} rp_store_kind;
RP_API const char *rp_store_kind_name(rp_store_kind kind); /* "module", "text", "unknown", "reduced", "states";
                                                              NULL: no such kind. Static */

typedef struct rp_store_entry {
    char key[65];   /* 64 hexadecimal digits */
    char model[65]; /* 64 hexadecimal digits; "": unknown */
    rp_store_kind kind;
    const char *label;     /* "" for text, and for an encrypted record without the key */
    const char *kv_format; /* of its KV: "f16", "int8", ...; "": unknown. Static */
    const char *fault;     /* why the header cannot be read: "cipher", "version", ... (docs/format.md); "": it can.
                              Static */
    bool encrypted, pinned;
    bool expired; /* `expires` has passed, and the entry is not pinned: a pinned one does not expire */
    bool in_ram, on_disk;
    bool in_use;        /* held by a job or by the disk tier's writer */
    int32_t n_tokens;   /* tokens with KV in this entry; reduced: slots of the head that has most */
    uint64_t bytes;     /* in RAM and on disk together */
    uint64_t ram_bytes; /* in RAM */
    uint64_t cost_us;   /* predicted time to compute it, when it was cached */
    uint64_t uses;
    int64_t last_use;     /* 0: unknown */
    int64_t expires;      /* 0: never */
    uint64_t reserved[5]; /* 0 */
} rp_store_entry;

/* Entries, in the order of their keys unless a page says otherwise. The strings belong to the listing. */
typedef struct rp_store_listing {
    uint32_t struct_size;
    bool has_more;        /* more entries match than the page's limit */
    bool index_unwritten; /* of rp_store_remove: the disk is full, or the index could not be opened again after that,
                             and it still has rows of removed records. The next opening that can write repairs it */
    rp_store_entry *entries;
    size_t n_entries;
    void *owner; /* internal */
} rp_store_listing;

/* Selects the entries that match all fields that are set. Strings are borrowed during the call. */
typedef struct rp_store_selection {
    const char *name;    /* a label: its entries and those below it: "cities" selects "cities/plan" too, but not
                            "citiesandtowns" */
    const char *key;     /* the first 4 to 64 digits of a key */
    const char *model;   /* the first 4 to 64 digits of a model; NULL for an attached store */
    bool modules, texts; /* entries of these kinds, of modules also their reduced KV, of texts their states; both
                            or none: of any */
    bool expired;
    bool all; /* every entry (required if no other field is set) */
} rp_store_selection;

#define RP_STORE_MAX_LISTED 10000
#define RP_STORE_MAX_TTL_S 3153600000 /* a hundred years */

typedef enum rp_store_order {
    RP_STORE_BY_KEY,   /* ascending */
    RP_STORE_BY_BYTES, /* descending */
} rp_store_order;

/* Order and size of a listing. All zero: by key, as many as allowed. */
typedef struct rp_store_page {
    rp_store_order order;
    size_t limit;      /* 0: no limit; of an attached store: RP_STORE_MAX_LISTED, which is the maximum there */
    const char *after; /* a whole key: list the entries after it, by key; NULL: from the first. Borrowed during the
                          call */
} rp_store_page;

/* Lists the selected entries. selection NULL: all; page NULL: all zero. *out: rp_store_listing_free, before or after
 * rp_store_close. RP_ERR_INVALID (the selection is empty, or a value is malformed), RP_ERR_NAME (a name, key or model
 * that no entry has), RP_ERR_IO, RP_ERR_MEMORY. */
RP_API int rp_store_list(rp_store *store, const rp_store_selection *selection, const rp_store_page *page,
                         rp_store_listing **out, rp_error *err);
RP_API void rp_store_listing_free(rp_store_listing *listing);

/* The functions below change the selected entries. *changed and *removed (may be NULL) list those that changed, as
 * they are now; of removed ones, as they were. Errors of rp_store_list, and RP_ERR_CONFLICT (the store was opened
 * read-only).
 *
 * Pins or unpins modules. A pinned entry is not evicted, as long as half of the budget can hold all pinned ones, nor
 * removed by rp_store_gc. In a folder, all or nothing. A module that its schema pins is pinned again when an engine
 * uses it. RP_ERR_INVALID (the selection has texts only, which cannot be pinned). */
RP_API int rp_store_pin(rp_store *store, const rp_store_selection *selection, bool pinned, rp_store_listing **changed,
                        rp_error *err);
/* Sets the time to live in seconds, starting now; 0 clears it. In a running engine each use starts it again; in a
 * folder it is an expiry time. A schema's `ttl` applies again when an engine uses its module. */
RP_API int rp_store_set_ttl(rp_store *store, const rp_store_selection *selection, int64_t ttl_s,
                            rp_store_listing **changed, rp_error *err);
/* Removes entries from RAM and disk, pinned or not. Entries that jobs hold stay valid for them, no other job can hit
 * them, and they are freed when those jobs end. After RP_ERR_IO some entries are removed. */
RP_API int rp_store_remove(rp_store *store, const rp_store_selection *selection, rp_store_listing **removed,
                           rp_error *err);

/* ---- Folders --------------------------------------------------------------------------------------------------- */

/* All functions below need an opened store: RP_ERR_CONFLICT for an attached one.
 *
 * The folder as a whole. */
typedef struct rp_store_usage {
    uint32_t struct_size;
    uint64_t records, record_bytes;
    uint64_t modules, module_bytes, texts, text_bytes; /* of the records; the others are reduced, states, or of an
                                                          unknown kind */
    uint64_t tokens;
    uint64_t encrypted, unreadable; /* records; unreadable: their headers */
    uint64_t pinned, pinned_bytes, expired, expired_bytes;
    uint64_t bad, bad_bytes;            /* files that were set aside because they could not be read */
    uint64_t leftovers, leftover_bytes; /* temporary files, of a crash or of a write in progress */
    uint64_t foreign, foreign_bytes;    /* files that are not the store's: never touched, and not part of total_bytes */
    uint64_t broken;                    /* records with corrupt headers, not yet set aside */
    uint64_t without_row, without_file; /* records that the index lacks; rows without a record */
    uint64_t index_bytes;
    uint64_t total_bytes;            /* everything, folders included: the bytes that
                                        rp_engine_options.store_budget_bytes limits */
    int64_t owner;                   /* opened read-only: the process that has the folder open for writing, -1:
                                        unknown; 0: none */
    uint64_t reduced, reduced_bytes; /* of the records: parts of modules' reduced KV */
    uint64_t states, state_bytes;    /* of the records: checkpoints of recurrent layers in texts */
} rp_store_usage;
/* RP_ERR_IO, RP_ERR_MEMORY. */
RP_API int rp_store_get_usage(rp_store *store, rp_store_usage *out, rp_error *err);

/* Findings of rp_store_verify. */
typedef enum rp_store_flaw {
    RP_STORE_BAD_RECORD,   /* a record that is unreadable in whole or in part */
    RP_STORE_BAD_ROW,      /* the index contradicts the record */
    RP_STORE_BAD_INDEX,    /* the index is corrupt or missing */
    RP_STORE_WITHOUT_FILE, /* a row without a record */
    RP_STORE_WITHOUT_ROW,  /* a record without a row */
    RP_STORE_LEFTOVER,     /* a temporary file */
    RP_STORE_OTHER_KV,     /* rp_store_recompute: the model computes other bytes */
    RP_STORE_OLD_ROW,      /* the index describes an earlier record of the same key: cost, label or place differ */
} rp_store_flaw;
#define RP_N_STORE_FLAWS 8

RP_API const char *rp_store_flaw_name(rp_store_flaw flaw); /* "record", "row", "index", "without_file", ...;
                                                              static; NULL past the end */

/* Whether a flaw is damage. The others are leftovers of a killed process: the next process repairs them, or
 * rp_store_gc. */
RP_API bool rp_store_flaw_is_damage(rp_store_flaw flaw);

/* Strings are borrowed during the callback. */
typedef struct rp_store_finding {
    uint32_t struct_size;
    rp_store_flaw flaw;
    const char *path;
    const char *reason;  /* of a record: "truncated", "damaged", "cipher", "version", ... (docs/format.md); else
                            "". Static */
    const char *message; /* one line */
} rp_store_finding;

typedef void (*rp_on_store_finding)(void *user, const rp_store_finding *finding);

typedef struct rp_store_verification {
    uint32_t struct_size;
    bool is_whole;           /* false: an engine has the folder open, and files and index were not compared */
    uint64_t records, bytes; /* read, bad ones included */
    uint64_t flaws[RP_N_STORE_FLAWS];
} rp_store_verification;

/* Reads every byte of every record and compares files and index; changes nothing. A record of another key or version
 * counts as bad, because it cannot be verified. on_progress (bytes) and on_finding may be NULL; both are called on
 * the calling thread. Findings are not errors. RP_ERR_IO (the folder cannot be read), RP_ERR_MEMORY. */
RP_API int rp_store_verify(rp_store *store, rp_on_progress on_progress, rp_on_store_finding on_finding, void *user,
                           rp_store_verification *out, rp_error *err);

/* Result of rp_store_gc and rp_store_rebuild. */
typedef struct rp_store_cleaning {
    uint32_t struct_size;
    bool index_unwritten;               /* as in rp_store_listing */
    uint64_t records, bytes;            /* in the folder now */
    uint64_t leftovers, leftover_bytes; /* removed */
    uint64_t bad, bad_bytes;            /* removed; rebuild removes none */
    uint64_t expired, expired_bytes;    /* removed; rebuild removes none */
    uint64_t set_aside;                 /* records with corrupt headers; gc removes them with the other bad ones */
    uint64_t rows_entered, rows_removed;
    uint64_t rows_corrected; /* rows that contradicted their records; by rp_store_gc */
    uint64_t index_bytes_before, index_bytes;
} rp_store_cleaning;

/* Removes temporary files, bad files and expired records; enters records that the index lacks, removes rows without a
 * record, corrects rows that contradict their records, and compacts the index. On a full disk it removes as much as it
 * can, without the index if that cannot be changed. on_progress (records) may be NULL. RP_ERR_CONFLICT (opened
 * read-only), RP_ERR_IO, RP_ERR_MEMORY; after an error part of the work is done. */
RP_API int rp_store_gc(rp_store *store, rp_on_progress on_progress, void *user, rp_store_cleaning *out, rp_error *err);
/* Rebuilds the index from the records' headers. It keeps uses, last use, expiry and pin of each record from the old
 * one, and the whole row of a record with an unreadable header. The new index replaces the old one atomically. Errors
 * as above. */
RP_API int rp_store_rebuild(rp_store *store, rp_on_progress on_progress, void *user, rp_store_cleaning *out,
                            rp_error *err);

/* ---- Bundles --------------------------------------------------------------------------------------------------- */

/* Result of rp_store_export and rp_store_import. */
typedef struct rp_store_transfer {
    uint32_t struct_size;
    char name[256];          /* of the module */
    uint64_t records, bytes; /* records in the bundle; bytes of its file */
    uint64_t tokens;
    uint64_t present; /* records that the store already had */
} rp_store_transfer;

/* Writes the records with the label `name` or below it to one file, a bundle, atomically; an existing bundle is
 * replaced. A bundle is not encrypted, even if the store is: it is meant for others. Every byte is verified.
 * on_progress (bytes) may be NULL. RP_ERR_NAME (no such module; labels of encrypted records need the key),
 * RP_ERR_FORMAT (a record is corrupt), RP_ERR_LIMIT (65,536 records), RP_ERR_IO, RP_ERR_MEMORY. */
RP_API int rp_store_export(rp_store *store, const char *name, const char *path, rp_on_progress on_progress,
                           void *user, rp_store_transfer *out, rp_error *err);
/* Imports the records of a bundle, encrypted if the store has a key. The whole bundle is verified before anything is
 * written; then each record is written atomically, and existing records stay. The KV is whatever the bundle's author
 * put there: import only from somebody from whom you would accept a model. RP_ERR_FORMAT (not a bundle, corrupt, or
 * another version), RP_ERR_LIMIT, RP_ERR_CONFLICT (opened read-only), RP_ERR_IO, RP_ERR_MEMORY. */
RP_API int rp_store_import(rp_store *store, const char *path, rp_on_progress on_progress, void *user,
                           rp_store_transfer *out, rp_error *err);

/* ---- Repacked weights ------------------------------------------------------------------------------------------ */

/* A file of rp_engine_options.weights_dir. Strings are borrowed during the callback. */
typedef struct rp_weights_file {
    uint32_t struct_size;
    const char *path;
    const char *name;  /* of the model, from its metadata, else its file; "" if the header cannot be read. Untrusted */
    const char *model; /* 64 digits: hash of the model's files, equal for every chat format; "" likewise */
    int32_t side;      /* rows that are interleaved: depends on the instruction set (REPRISE_CPU) */
    uint64_t bytes;
    int64_t created, used; /* seconds since 1970 */
    bool is_temporary;     /* it is being written, or is left over from a killed process */
    const char *fault;     /* "": none; "truncated", "damaged", "version", "owner" (others can write to it), "io".
                              Static */
} rp_weights_file;

typedef void (*rp_on_weights_file)(void *user, const rp_weights_file *file);

/* Calls on_file with each file of the folder, by name. reads_all: verifies the checksum of every byte, else of headers.
 * A missing folder has none. on_progress (bytes of one file) may be NULL. RP_ERR_IO, RP_ERR_MEMORY. */
RP_API int rp_weights_each(const char *dir, bool reads_all, rp_on_progress on_progress, rp_on_weights_file on_file,
                           void *user, rp_error *err);
/* Removes the files of models whose hash begins with these digits (NULL: all files), and temporary files that no
 * process writes. An engine that has mapped a file keeps it. n and bytes: removed; may be NULL. RP_ERR_IO,
 * RP_ERR_MEMORY. */
RP_API int rp_weights_remove(const char *dir, const char *digits, uint64_t *n, uint64_t *bytes, rp_error *err);
/* Removes damaged files, and temporary files that no process writes. Otherwise the same. */
RP_API int rp_weights_clean(const char *dir, uint64_t *n, uint64_t *bytes, rp_error *err);

/* ---- Reuse audit ------------------------------------------------------------------------------------------------- */

/* The engine recomputes one in rp_engine_options.audit_every requests whose views are not exact, in full and when
 * idle, and compares the logits of the first token. docs/quality.md explains the figures. */

/* Statistics of audited requests. */
typedef struct rp_audit_figures {
    uint64_t samples;
    uint64_t agreed;        /* samples with the same most likely token */
    double mean_kl, max_kl; /* KL(exact || reused) of the first token's probabilities, in nats */
    double mean_distance;   /* root mean square of the differences of logits, less their mean */
    uint64_t reserved[2];   /* 0 */
} rp_audit_figures;

typedef struct rp_audit_schema {
    const char *name;
    char owner[9];         /* 8 hexadecimal digits derived from its tenant; "": shared */
    rp_audit_figures all;  /* since the schema has this text */
    rp_audit_figures now;  /* since its quality was last raised; equals `all` if it was not */
    const char *raised_to; /* "full KV" (keep is ignored), "link:8", "blend:15", "exact"; "": not raised. Static */
    bool exceeds;          /* its mean divergence exceeds max_divergence, and audit_raises is false */
} rp_audit_schema;

/* Modules that were imported together. */
typedef struct rp_audit_pair {
    size_t schema;              /* index into schemas */
    const char *first, *second; /* paths; twice the same: the module with any other */
    rp_audit_figures figures;
    double excess_kl; /* mean_kl less that of the schema's samples without the pair; 0: all samples had it */
} rp_audit_pair;

#define RP_AUDIT_TEXT ((size_t)-1)

/* A KV format below 16 bits, compared with f16: the exact run in f16 against the exact run in the format. */
typedef struct rp_audit_format {
    size_t schema;            /* index into schemas: its modules; RP_AUDIT_TEXT: the text of all requests, and
                                 modules in the same format */
    const char *format;       /* "int8", ...; of modules in several formats: the smallest. Static */
    rp_audit_figures figures; /* of the requests with the format: mean_kl is KL(f16 || format) */
    bool exceeds;             /* its mean divergence exceeds max_divergence, and audit_raises is false */
    bool falls_back;          /* requests use f16 instead */
    uint64_t reserved[2];     /* 0 */
} rp_audit_format;

/* Audit results. The strings belong to the rp_audit. */
typedef struct rp_audit {
    uint32_t struct_size;
    uint64_t sampled; /* requests chosen */
    uint64_t audited; /* of those: compared */
    uint64_t dropped; /* of those: abandoned, because too many were pending or memory was needed */
    uint64_t waiting; /* of those: pending */
    rp_audit_schema *schemas;
    size_t n_schemas;
    rp_audit_pair *pairs;
    size_t n_pairs;
    rp_audit_format *formats;
    size_t n_formats;
} rp_audit;

/* Returns the audit results so far, totals over all tenants; operator use only. Any thread; does not wait.
 * *out: owned by the caller, rp_audit_free. RP_ERR_MEMORY. */
RP_API int rp_engine_audit(rp_engine *engine, rp_audit **out, rp_error *err);
/* Reads the audit results that the last engine with this folder wrote. *out is NULL, without an error, if there are
 * none or they are unreadable. model: 65 bytes for rp_store_entry.model of that engine, or NULL. RP_ERR_CONFLICT (an
 * attached store: use rp_engine_audit), RP_ERR_MEMORY. */
RP_API int rp_store_read_audit(rp_store *store, rp_audit **out, char *model, rp_error *err);
RP_API void rp_audit_free(rp_audit *audit);

/* ---- Totals ---- */

/* State of the disk tier. An unavailable store does not stop an engine: lookups miss, and KV is computed. */
typedef enum rp_store_state {
    RP_STORE_OFF,       /* no store_dir */
    RP_STORE_WORKS,     /* includes a store opened read-only on request */
    RP_STORE_UNWRITTEN, /* the last write failed: records are read, and writes are retried every ten seconds */
    RP_STORE_READ_ONLY, /* could not be opened for writing: records are read, none is added until reopened */
    RP_STORE_UNUSABLE,  /* could not be opened: nothing is read or written until reopened */
} rp_store_state;
#define RP_N_STORE_STATES 5
RP_API const char *rp_store_state_name(rp_store_state state); /* "off", "works", "unwritten", ...; static; NULL
                                                                 past the end */

/* Totals over all tenants; operator use only. */
typedef struct rp_store_stats {
    uint32_t struct_size;
    uint64_t spans, bytes, budget_bytes;
    uint64_t used_bytes;                                /* KV of jobs that is not cached yet included; as of the
                                                           last step */
    uint64_t hits, misses, inserts, evictions;          /* evictions: from RAM and disk */
    uint64_t expired;                                   /* spans past their TTL */
    uint64_t disk_spans, disk_bytes, disk_budget_bytes; /* records, those of other models too */
    uint64_t disk_reads, disk_read_bytes, disk_writes, disk_write_bytes, disk_evictions;
    uint64_t disk_unwritten;                   /* spans not written: disk full, an error, or evicted from RAM
                                                  before the disk was ready */
    uint64_t disk_skipped;                     /* text used once, not written: the records on disk have higher
                                                  priority (docs/store.md) */
    uint64_t disk_late;                        /* spans of text that waited too long on a slow disk: written when
                                                  the queue is empty, or after their next use (docs/store.md) */
    uint64_t disk_waiting, disk_waiting_bytes; /* spans queued for writing, and their KV */
    uint64_t disk_once_bytes;                  /* of them: text used once, written when nothing else is queued */
    uint64_t disk_lag_us;                      /* age of the oldest of the others; 0: none */
    uint64_t disk_faults;                      /* unreadable records */
    rp_store_state disk_state;
    const char *disk_trouble; /* why it is neither off nor works: "no_space", "io_error", "permission",
                                 "read_only_disk", "open_files", "locked", "version", "memory", "other"; else "".
                                 Static */
    /* Of an engine on a device: spans and bytes are of the device's memory, and these of the RAM tier below it
       (docs/gpu.md). Writes: spans copied to RAM when the device evicted them; reads: copied back for a hit; in_place:
       hits that the device reads in RAM, over the bus; hits: reads and in_place. 0: there is no such tier */
    uint64_t host_spans, host_bytes, host_budget_bytes;
    uint64_t host_hits, host_in_place, host_evictions;
    uint64_t host_reads, host_read_bytes, host_writes, host_write_bytes;
    /* Of an engine with a pool (rp_cluster_options.pool; docs/cluster.md): looks: questions which KV of a request it
       has; reads: spans that were pulled from it, faults: those that could not be, late ones included; writes: spans
       pushed to it; present: those that it had already; unwritten: those that could not be pushed, or were evicted
       before. 0: there is none */
    uint64_t pool_looks, pool_reads, pool_read_bytes, pool_faults;
    uint64_t pool_writes, pool_write_bytes, pool_present, pool_unwritten;
    uint64_t pool_pauses;     /* how often nothing was read from it for a while, after failures */
    bool pool_is_paused;      /* as it is now */
    const char *pool_trouble; /* of the last operation, if it failed: "timeout", "refused", "no_access", "no_space",
                                 "read_only", "too_large", "busy", "not_ready", "lost", "unreachable", "protocol",
                                 "absent", "io_error"; else "". Static */
} rp_store_stats;
/* RP_ERR_INVALID (struct_size is not set). */
RP_API int rp_engine_store_stats(rp_engine *engine, rp_store_stats *out);

/* Learned scaffolds (RP_QUALITY_SCAFFOLD; docs/quality.md): totals over all tenants; operator use only. A combination
 * is a prompt up to the end of its last module. As of the last job. */
typedef struct rp_scaffold_stats {
    uint32_t struct_size;
    uint64_t known;               /* combinations remembered */
    uint64_t prefilled;           /* of them: prefilled jointly */
    uint64_t pending;             /* of them: to be prefilled jointly when the engine is idle */
    uint64_t hits;                /* requests made exact by a scaffold */
    uint64_t misses;              /* requests without one: RP_QUALITY_REUSE was used */
    uint64_t dropped;             /* scaffolds evicted, for lack of use or for others */
    uint64_t bytes, budget_bytes; /* KV they added; rp_engine_options.scaffold_bytes */
} rp_scaffold_stats;
/* RP_ERR_INVALID (struct_size is not set). */
RP_API int rp_engine_scaffold_stats(rp_engine *engine, rp_scaffold_stats *out);

#ifdef __cplusplus
}
#endif
#endif
