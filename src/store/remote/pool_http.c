/* SPDX-License-Identifier: Apache-2.0 */
/* pool_http.c: a pool of objects by HTTP: S3, Ceph RGW, MinIO, nginx with DAV. See pool_driver.h, and
 * pool_http_address.h for addresses.
 *
 *   URL of the folder / 3f / 3f09...e1       an object, as in a folder (pool_folder.c): nginx's root can be one
 *
 *   GET with Range   206: a part; 200: the whole object, from a server without ranges; 404: not there; 416: empty, or
 *                    shorter
 *   PUT              the whole object; servers replace one when they have received the last byte
 *   DELETE           404 is a success
 *
 * A link has a multi handle of libcurl with its connections (HTTP/1.1, kept alive) and up to MAX_TRANSFERS transfers at
 * once. 429, 500, 502, 503, 504 and lost connections are retried as long as the deadline allows. A bucket answers 403
 * for a missing object unless the credentials may list it (s3:ListBucket): every miss is then EACCES.
 *
 * No redirects, no proxy, no cookies, no protocol but that of the address, and certificates are always verified.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <curl/curl.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "store/remote/pool_drivers.h"
#include "store/remote/pool_http_address.h"
#include "store/remote/pool_http_transfer.h"

#define MAX_TRANSFERS 16
#define MAX_WAIT_US UINT64_C(1000000)

typedef struct pool_http {
    pool_driver base;
    pool_http_address address;
    char text[RP_ERROR_WHERE_BYTES]; /* the address for messages */
} pool_http;

typedef struct pool_http_link {
    pool_link base;
    const pool_http *http;
    CURLM *multi;
    int n_transfers; /* that were opened: as many as ever ran at once */
    pool_http_transfer transfers[MAX_TRANSFERS];
} pool_http_link;

/* The requests of an operation: one, or a GET of each range. */
typedef struct pool_http_work {
    pool_http_request first; /* range: [n] */
    size_t n, next, n_left;  /* next to be sent; not ended */
    uint64_t deadline_us;
} pool_http_work;

/* ---- transfers ---- */

static int link_fail(const pool_http_link *l, int cause, const char *reason, rp_error *err) {
    BASE_ASSERT(cause != 0);
    base_fail(err, RP_ERR_IO, "%s: %s", l->http->text, reason);
    errno = cause;
    return RP_ERR_IO;
}

static int link_no_memory(rp_error *err) { return base_fail(err, RP_ERR_MEMORY, "out of memory for a pool"); }

/* Gives idle transfers their next requests. */
static int link_fill(pool_http_link *l, pool_http_work *w, rp_error *err) {
    BASE_ASSERT(w->next <= w->n && l->n_transfers <= MAX_TRANSFERS);
    for (int i = 0; i < MAX_TRANSFERS && w->next < w->n; i++) {
        pool_http_transfer *t = &l->transfers[i];
        pool_http_request r = w->first;
        if (i == l->n_transfers) {
            if (pool_http_transfer_open(t, &l->http->address)) return link_no_memory(err);
            l->n_transfers++;
        }
        if (t->state != POOL_HTTP_IDLE) continue;
        if (r.method == POOL_HTTP_GET) r.range += w->next;
        if (pool_http_transfer_set(t, &r)) return link_no_memory(err);
        w->next++;
    }
    return RP_OK;
}

/* Begins waiting transfers when they are due. *next_us: when the next one is. */
static int link_begin(pool_http_link *l, const pool_http_work *w, uint64_t now, uint64_t *next_us, rp_error *err) {
    BASE_ASSERT(now < w->deadline_us);
    *next_us = w->deadline_us;
    for (int i = 0; i < l->n_transfers; i++) {
        pool_http_transfer *t = &l->transfers[i];
        if (t->state != POOL_HTTP_WAITS) continue;
        if (t->due_us > now) {
            *next_us = BASE_MIN(*next_us, t->due_us);
            continue;
        }
        pool_http_transfer_begin(t, now, w->deadline_us);
        if (curl_multi_add_handle(l->multi, t->easy) == CURLM_OK) continue;
        t->state = POOL_HTTP_IDLE;
        return link_no_memory(err);
    }
    return RP_OK;
}

/* Takes transfers that have ended: *has_any. */
static int link_take(pool_http_link *l, pool_http_work *w, bool *has_any, rp_error *err) {
    int n;
    *has_any = false;
    for (CURLMsg *m; (m = curl_multi_info_read(l->multi, &n));) {
        char *user = NULL;
        const CURLcode code = m->data.result;
        if (m->msg != CURLMSG_DONE) continue;
        *has_any = true;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &user);
        pool_http_transfer *t = (pool_http_transfer *)(void *)user;
        BASE_ASSERT(t && t->easy == m->easy_handle && w->n_left > 0);
        curl_multi_remove_handle(l->multi, t->easy);
        switch (pool_http_transfer_end(t, code, w->deadline_us)) {
        case POOL_HTTP_DONE: w->n_left--; break;
        case POOL_HTTP_AGAIN: break;
        case POOL_HTTP_FAILED: return link_fail(l, t->cause, t->reason, err);
        }
    }
    return RP_OK;
}

/* Ends what still runs or waits: its connection is closed. */
static void link_stop(pool_http_link *l) {
    for (int i = 0; i < l->n_transfers; i++) {
        pool_http_transfer *t = &l->transfers[i];
        if (t->state == POOL_HTTP_RUNS) curl_multi_remove_handle(l->multi, t->easy);
        t->state = POOL_HTTP_IDLE;
    }
}

static int link_run(pool_http_link *l, pool_http_work *w, rp_error *err) {
    int rc = RP_OK, n_running;
    uint64_t next_us = 0;
    bool has_any = false;
    w->n_left = w->n;
    while (w->n_left > 0 && !rc) {
        const uint64_t now = base_clock_us();
        rc = now < w->deadline_us ? link_fill(l, w, err) : link_fail(l, ETIMEDOUT, "no reply within the deadline", err);
        if (!rc) rc = link_begin(l, w, now, &next_us, err);
        if (!rc && curl_multi_perform(l->multi, &n_running) != CURLM_OK) rc = link_no_memory(err);
        if (!rc) rc = link_take(l, w, &has_any, err);
        if (rc || has_any) continue;
        const uint64_t wait_us = next_us > now ? BASE_MIN(next_us - now, MAX_WAIT_US) : 0;
        (void)curl_multi_poll(l->multi, NULL, 0, (int)((wait_us + 999) / 1000), NULL);
    }
    const int cause = errno;
    link_stop(l);
    errno = cause;
    BASE_ASSERT(rc || w->next == w->n);
    return rc;
}

/* ---- operations ---- */

static int pool_http_get(pool_link *l, pool_range *ranges, size_t n, uint64_t deadline_us, rp_error *err) {
    pool_http_work w = {.first = {.method = POOL_HTTP_GET, .range = ranges}, .n = n, .deadline_us = deadline_us};
    return link_run((pool_http_link *)l, &w, err);
}

static int pool_http_put(pool_link *l, const char *name, const struct iovec *pieces, int n_pieces, uint64_t deadline_us,
                         rp_error *err) {
    pool_http_work w = {
        .first = {.method = POOL_HTTP_PUT, .name = name, .pieces = pieces, .n_pieces = n_pieces},
        .n = 1,
        .deadline_us = deadline_us,
    };
    return link_run((pool_http_link *)l, &w, err);
}

static int pool_http_remove(pool_link *l, const char *name, uint64_t deadline_us, rp_error *err) {
    pool_http_work w = {.first = {.method = POOL_HTTP_DELETE, .name = name}, .n = 1, .deadline_us = deadline_us};
    return link_run((pool_http_link *)l, &w, err);
}

/* ---- opening ---- */

static void pool_http_disconnect(pool_link *link) {
    pool_http_link *l = (pool_http_link *)link;
    for (int i = 0; i < l->n_transfers; i++) pool_http_transfer_close(&l->transfers[i]);
    if (l->multi) curl_multi_cleanup(l->multi);
    base_free(l);
}

static int pool_http_connect(pool_driver *d, pool_link **out, rp_error *err) {
    pool_http_link *l = base_calloc(1, sizeof(*l));
    if (!l) return base_fail_memory(err, sizeof(*l), "a pool");
    *l = (pool_http_link){.base.ops = d->ops, .http = (pool_http *)d, .multi = curl_multi_init()};
    if (!l->multi) {
        pool_http_disconnect(&l->base);
        return link_no_memory(err);
    }
    curl_multi_setopt(l->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(l->multi, CURLMOPT_MAXCONNECTS, (long)MAX_TRANSFERS);
    *out = &l->base;
    return RP_OK;
}

static void pool_http_close(pool_driver *d) {
    pool_http_address_wipe(&((pool_http *)d)->address);
    base_free(d);
}

/* libcurl's state of the process, which is never freed: a program's own curl_global_init counts beside it. */
static CURLcode global_result;
static void global_begin(void) { global_result = curl_global_init(CURL_GLOBAL_DEFAULT); }

static int driver_open(pool_driver **out, const pool_driver_ops *ops, const char *address, rp_error *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, global_begin);
    if (global_result) return base_fail(err, RP_ERR_MEMORY, "libcurl cannot be initialized");
    pool_http *h = base_calloc(1, sizeof(*h));
    if (!h) return base_fail_memory(err, sizeof(*h), "a pool");
    h->base.ops = ops;
    pool_address_text(address, h->text, sizeof(h->text));
    h->text[strcspn(h->text, "?")] = '\0';
    const int rc = ops == &pool_s3_ops ? pool_s3_address_read(&h->address, address, err)
                                       : pool_http_address_read(&h->address, address, err);
    if (rc) pool_http_close(&h->base);
    else *out = &h->base;
    return rc;
}

static int pool_s3_open(pool_driver **out, const char *address, rp_error *err) {
    return driver_open(out, &pool_s3_ops, address, err);
}

static int pool_http_open(pool_driver **out, const char *address, rp_error *err) {
    return driver_open(out, &pool_http_ops, address, err);
}

static int pool_https_open(pool_driver **out, const char *address, rp_error *err) {
    return driver_open(out, &pool_https_ops, address, err);
}

#define OPERATIONS(scheme, opener) \
    { .prefix = scheme, \
      .open = opener, \
      .connect = pool_http_connect, \
      .get = pool_http_get, \
      .put = pool_http_put, \
      .remove = pool_http_remove, \
      .disconnect = pool_http_disconnect, \
      .close = pool_http_close }

const pool_driver_ops pool_s3_ops = OPERATIONS("s3://", pool_s3_open);
const pool_driver_ops pool_http_ops = OPERATIONS("http://", pool_http_open);
const pool_driver_ops pool_https_ops = OPERATIONS("https://", pool_https_open);
