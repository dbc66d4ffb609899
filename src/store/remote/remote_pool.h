/* SPDX-License-Identifier: Apache-2.0 */
/* remote_pool.h: a pool that nodes share (docs/cluster.md), as one engine uses it: looks, pulls and pushes, which
 * threads carry out over a driver (pool_driver.h).
 *
 *                    +-> looks: pointers of texts, then headers of records --+
 *   engine's thread -+-> pulls: a record into a span                         +-> events --> engine's thread
 *                    +-> pushes: a record, then the pointers to it ----------+   (remote_pool_next)
 *
 *   look     names of texts, keys of spans  -->  rows of the records that the pool has, parents before children
 *   pull     a row, a span of its form      -->  the span is ready, or failed with a record_fault
 *   push     a row, a sealed span           -->  the pool has it, or not
 *
 * A pool may be slow, full, evicting, down, or lie: each of these is a miss with a reason, and no operation of the
 * engine waits for one. Each read has a deadline. After three failed reads in a row nothing is read for ten seconds,
 * then one look is a trial (the breaker); likewise of writes: a full pool can be read. Reads and writes have threads of
 * their own.
 *
 * Used by one thread, the engine's.
 */
#ifndef STORE_REMOTE_POOL_H
#define STORE_REMOTE_POOL_H

#include "reprise_cluster.h"
#include "store/record/record_row.h"

#define REMOTE_POOL_TEXTS 8192 /* of a look */
#define REMOTE_POOL_NAMES 5    /* of a push: multiples of SPAN_NAME_TOKENS within a span */

typedef struct remote_pool remote_pool;

typedef struct remote_pool_options {
    const char *address;         /* pool_driver_open */
    const base_key *secret;      /* of names and ciphers; copied */
    const record_format *format; /* that pulls expect; borrowed until the pool is closed */
    uint64_t write_bytes_per_s;  /* 0: no limit */
    void (*notify)(void *user);  /* called by any thread when there is an event */
    void *notify_user;
} remote_pool_options;

/* Does not ask the pool. RP_ERR_INVALID (not an address), RP_ERR_MEMORY, RP_ERR_IO (no thread; a file that the address
 * names), RP_ERR_UNSUPPORTED, RP_ERR_INTERNAL. */
int remote_pool_open(remote_pool **out, const remote_pool_options *options, rp_error *err);
/* Ends looks and pulls, completes pushes until the deadline (base_clock_us). Events that were not taken are lost. NULL
 * is fine. */
void remote_pool_close(remote_pool *p, uint64_t deadline_us);

/* ---- operations ---- */

/* Whose objects are meant: the salt of a tenant. */
typedef struct remote_text {
    rp_name name; /* of a text up to a multiple of SPAN_NAME_TOKENS (index/span_names.h) */
    base_key salt;
} remote_text;
typedef struct remote_key {
    base_key key;
    base_key salt;
} remote_key;

typedef struct remote_row {
    record_row *row; /* base_free */
    base_key salt;
} remote_row;

/* What is looked for, and what was found. One allocation each, base_free; remote_look_free. */
typedef struct remote_look {
    remote_text *texts; /* [n_texts], at most REMOTE_POOL_TEXTS */
    size_t n_texts, cap_texts;
    remote_key *keys; /* [n_keys] */
    size_t n_keys, cap_keys;
    remote_row *rows; /* [n_rows], by the event: each key once; records of text after their parents */
    size_t n_rows, cap_rows;
} remote_look;
void remote_look_free(remote_look *l); /* what it contains */

/* May the pool be asked now? false: the breaker of reads is open. After its time it is true until the next look, which
 * is its trial, and again after that. */
bool remote_pool_is_usable(remote_pool *p);
/* Looks, until deadline_us. The content of look is owned by the pool until its event. RP_ERR_MEMORY: the caller keeps
 * it. *ticket: of the event. */
int remote_pool_look(remote_pool *p, remote_look *look, uint64_t deadline_us, uint64_t *ticket);
/* Pulls the record of a row into a span that kv_span_restore made with its form (takes a reference). The row and its
 * salt are copied. RP_ERR_MEMORY. */
int remote_pool_pull(remote_pool *p, const remote_row *row, kv_span *span, uint64_t deadline_us, uint64_t *ticket);
/* Pushes a sealed span (takes a reference). row: of record_row_new, owned by the pool from here; names[n_names]: of the
 * texts that end in it; salt: of its tenant. RP_ERR_MEMORY, RP_ERR_BUSY (the breaker of writes is open, or too much
 * waits): the caller keeps the row. */
int remote_pool_push(remote_pool *p, record_row *row, kv_span *span, const rp_name *names, int n_names,
                     const base_key *salt);

typedef enum remote_event_kind { REMOTE_LOOKED,
                                 REMOTE_PULLED,
                                 REMOTE_PUSHED } remote_event_kind;

typedef struct remote_event {
    remote_event_kind kind;
    uint64_t ticket;
    kv_span *span;      /* of a pull or a push: a reference, owned by the caller */
    base_key key;       /* of a push */
    remote_look look;   /* of a look: owned by the caller */
    bool failed;        /* a look may have found rows nevertheless */
    bool was_there;     /* of a push: nothing was written */
    record_fault fault; /* of a pull */
    uint64_t bytes;     /* read or written */
    rp_error err;       /* the reason of a failure, */
    int cause;          /* and its errno; 0: none */
} remote_event;

bool remote_pool_next(remote_pool *p, remote_event *out);

/* ---- figures ---- */

typedef struct remote_figures {
    bool is_busy;      /* there are events to come, or to be taken */
    bool is_open;      /* the breaker of reads: nothing is asked */
    int cause;         /* errno of the last operation, if it failed; else 0 */
    double byte_us;    /* measured: of a byte that is pulled; 0: not known */
    uint64_t n_opened; /* how often the breaker of reads opened */
} remote_figures;
remote_figures remote_pool_measure(remote_pool *p);

#endif
