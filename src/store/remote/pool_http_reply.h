/* SPDX-License-Identifier: Apache-2.0 */
/* pool_http_reply.h: the reply to a request to a pool over HTTP: what of it is the object, and what it means.
 *
 * No byte of a reply is trusted: its head has at most 64 KiB; its body is copied into the range as far as the range was
 * requested, and a reply that has more, another range, or no recognisable end is malformed.
 */
#ifndef STORE_POOL_HTTP_REPLY_H
#define STORE_POOL_HTTP_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <curl/curl.h>

#include "store/remote/pool_driver.h"

#define POOL_HTTP_REASON_BYTES 320
#define POOL_HTTP_TEXT_BYTES 512

typedef enum pool_http_method { POOL_HTTP_GET,
                                POOL_HTTP_PUT,
                                POOL_HTTP_DELETE } pool_http_method;

typedef enum pool_http_verdict { POOL_HTTP_SUCCESS,
                                 POOL_HTTP_PASSING, /* a failure that a retry may not have */
                                 POOL_HTTP_LASTING } pool_http_verdict;

typedef struct pool_http_reply {
    CURL *easy;
    pool_http_method method;
    pool_range *range; /* of a GET */
    size_t head_bytes;
    bool has_begun; /* the head is complete: status, skip and n_expected are known */
    long status;
    uint64_t n_asked;                /* bytes of the object that were requested: */
    uint64_t n_expected;             /* that a part has, */
    uint64_t skip;                   /* that precede them in the body, */
    uint64_t n_body;                 /* that were received; or bytes of another body */
    bool is_cut;                     /* all were, and the rest of the body is not wanted */
    char text[POOL_HTTP_TEXT_BYTES]; /* the first bytes of another body */
    size_t n_text;
    const char *broken; /* why the reply is malformed: static; NULL: it is not */
} pool_http_reply;

/* Bytes to request for a range: also one without bytes finds out whether its object is there. */
static inline uint64_t pool_http_asked(const pool_range *r) { return r->n > 0 ? r->n : 1; }

/* Before each request. */
void pool_http_reply_clear(pool_http_reply *r, CURL *easy, pool_http_method method, pool_range *range);
/* libcurl's callbacks; user: the pool_http_reply. */
size_t pool_http_reply_head(char *line, size_t size, size_t n, void *user);
size_t pool_http_reply_body(char *bytes, size_t size, size_t n, void *user);
/* After the transfer, which ended with code. A success sets found and got of the range; a failure sets *cause (errno)
 * and reason. why: libcurl's error text. */
pool_http_verdict pool_http_reply_judge(pool_http_reply *r, CURLcode code, const char *why, int *cause,
                                        char reason[POOL_HTTP_REASON_BYTES]);

#endif
