/* SPDX-License-Identifier: Apache-2.0 */
/* pool_http_transfer.h: requests to the storage of a pool over HTTP, one after another. Owns a handle of libcurl, which
 * its owner adds to a multi handle and removes from it.
 *
 *   IDLE --set--> WAITS --(at due_us)--> RUNS --end--> IDLE     it has succeeded or failed
 *                   ^                            |
 *                   +------- end: again ---------+
 */
#ifndef STORE_POOL_HTTP_TRANSFER_H
#define STORE_POOL_HTTP_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <curl/curl.h>

#include "store/remote/pool_driver.h"
#include "store/remote/pool_http_address.h"
#include "store/remote/pool_http_reply.h"

typedef struct pool_http_request {
    pool_http_method method;
    pool_range *range;          /* GET */
    const char *name;           /* PUT, DELETE */
    const struct iovec *pieces; /* PUT: [n_pieces] */
    int n_pieces;
} pool_http_request;

typedef enum pool_http_state { POOL_HTTP_IDLE,
                               POOL_HTTP_WAITS,
                               POOL_HTTP_RUNS } pool_http_state;

typedef enum pool_http_outcome { POOL_HTTP_DONE,
                                 POOL_HTTP_AGAIN, /* it waits until due_us */
                                 POOL_HTTP_FAILED } pool_http_outcome;

typedef struct pool_http_transfer {
    const pool_http_address *address;
    CURL *easy;
    pool_http_state state;
    uint64_t due_us; /* WAITS: when it is to run */
    pool_http_request request;
    struct curl_slist *headers;
    int n_retries;
    int piece; /* of a PUT: the next byte to send */
    size_t at;
    pool_http_reply reply;
    /* after POOL_HTTP_FAILED */
    int cause; /* errno */
    char reason[POOL_HTTP_REASON_BYTES];
    char why[CURL_ERROR_SIZE]; /* libcurl's */
} pool_http_transfer;

/* RP_ERR_MEMORY. address is borrowed. */
int pool_http_transfer_open(pool_http_transfer *t, const pool_http_address *address);
/* A zeroed one is fine. Not while it is in a multi handle. */
void pool_http_transfer_close(pool_http_transfer *t);
/* A new request, which waits to be run. What it names is borrowed until its end. RP_ERR_MEMORY. */
int pool_http_transfer_set(pool_http_transfer *t, const pool_http_request *request);
/* Before it is added to a multi handle, until deadline_us. */
void pool_http_transfer_begin(pool_http_transfer *t, uint64_t now_us, uint64_t deadline_us);
/* libcurl is done with it, and it was removed from the multi handle. A failure that would be retried after the deadline
 * is one now. */
pool_http_outcome pool_http_transfer_end(pool_http_transfer *t, CURLcode code, uint64_t deadline_us);

#endif
