/* SPDX-License-Identifier: Apache-2.0 */
/* pool_http_reply.c: see pool_http_reply.h. */
#include "store/remote/pool_http_reply.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"

#define MAX_HEAD_BYTES ((size_t)64 << 10)
#define MAX_ERROR_BYTES ((uint64_t)64 << 10) /* of an error's body */
#define MAX_SKIP_BYTES ((uint64_t)256 << 20) /* of an object from a server without ranges */
#define NAME_BYTES 64

/* ---- the head ---- */

void pool_http_reply_clear(pool_http_reply *r, CURL *easy, pool_http_method method, pool_range *range) {
    BASE_ASSERT((method == POOL_HTTP_GET) == (range != NULL));
    *r = (pool_http_reply){.easy = easy, .method = method, .range = range};
    if (range) r->n_asked = pool_http_asked(range);
}

/* Also interim replies (100 Continue) and trailers count. */
size_t pool_http_reply_head(char *line, size_t size, size_t n, void *user) {
    pool_http_reply *r = user;
    (void)line;
    if ((r->head_bytes += size * n) <= MAX_HEAD_BYTES) return size * n;
    r->broken = "endless head";
    return 0;
}

/* A header that is there once; NULL otherwise. */
static const char *reply_header(const pool_http_reply *r, const char *name) {
    struct curl_header *h;
    return curl_easy_header(r->easy, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK && h->amount == 1 ? h->value : NULL;
}

static bool number_read(const char **at, uint64_t *out) {
    char *end;
    if (!isdigit((unsigned char)**at)) return false;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return true;
}

/* "bytes 0-99/1000"; the end is exclusive, and the total UINT64_MAX for "*". Of "bytes [*]/1000", with the star alone,
 * begin and end are 0. */
static bool content_range_read(const char *at, uint64_t *begin, uint64_t *end, uint64_t *total) {
    *begin = *end = 0;
    *total = UINT64_MAX;
    if (!at || strncmp(at, "bytes ", 6) != 0) return false;
    at += 6;
    if (*at == '*') at++;
    else if (!number_read(&at, begin) || *at++ != '-' || !number_read(&at, end) || *end < *begin || ++*end == 0)
        return false;
    if (*at++ != '/') return false;
    if (strcmp(at, "*") == 0) return true;
    return number_read(&at, total) && *at == '\0' && *end <= *total;
}

/* The head of a reply to a GET: where its body is in the object. */
static void reply_place(pool_http_reply *r) {
    BASE_ASSERT(r->n_asked > 0);
    const uint64_t asked = r->range->begin;
    const char *text = reply_header(r, "Content-Range");
    uint64_t begin, end, total;
    const bool has_range = content_range_read(text, &begin, &end, &total);
    if (r->status == 206) {
        r->n_expected = has_range ? end - begin : 0;
        /* A shorter part is the object's end. */
        if (!has_range || begin != asked || r->n_expected == 0 || r->n_expected > r->n_asked ||
            (r->n_expected < r->n_asked && end != total))
            r->broken = "another range than the requested one";
    } else if (r->status == 200) {
        r->skip = asked;
        if (asked > MAX_SKIP_BYTES) r->broken = "the whole object, and the requested range is too far from its begin";
    } else if (r->status == 416 && text && (!has_range || end > 0 || total == UINT64_MAX || total > asked))
        r->broken = "no range, although the object has it";
}

/* The head is complete: the body begins, or the transfer has succeeded. */
static void reply_begin(pool_http_reply *r) {
    if (r->has_begun) return;
    r->has_begun = true;
    curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
    if (r->method == POOL_HTTP_GET) reply_place(r);
}

/* ---- the body ---- */

static bool has_object(const pool_http_reply *r) {
    return r->method == POOL_HTTP_GET && (r->status == 200 || r->status == 206);
}

static size_t take_text(pool_http_reply *r, const char *bytes, size_t n) {
    BASE_ASSERT(r->n_text < sizeof(r->text));
    const size_t kept = BASE_MIN(n, sizeof(r->text) - 1 - r->n_text);
    memcpy(r->text + r->n_text, bytes, kept);
    r->n_text += kept;
    if ((r->n_body += n) > MAX_ERROR_BYTES) r->broken = "endless error";
    return r->broken ? 0 : n;
}

static size_t take_object(pool_http_reply *r, const char *bytes, size_t n) {
    const size_t skipped = (size_t)BASE_MIN((uint64_t)n, r->skip);
    const size_t taken = (size_t)BASE_MIN((uint64_t)(n - skipped), r->n_asked - r->n_body);
    BASE_ASSERT(r->n_body <= r->n_asked);
    r->skip -= skipped;
    if (r->n_body < r->range->n)
        memcpy((char *)r->range->bytes + r->n_body, bytes + skipped, BASE_MIN(taken, r->range->n - (size_t)r->n_body));
    r->n_body += taken;
    if (skipped + taken < n && r->status == 206) r->broken = "more bytes than requested";
    r->is_cut = r->status == 200 && r->n_body == r->n_asked;
    return r->broken || r->is_cut ? 0 : n; /* 0 ends the transfer */
}

size_t pool_http_reply_body(char *bytes, size_t size, size_t n, void *user) {
    pool_http_reply *r = user;
    reply_begin(r);
    if (r->broken) return 0;
    return has_object(r) ? take_object(r, bytes, size * n) : take_text(r, bytes, size * n);
}

/* The body of an object has ended by itself: is it whole? */
static void reply_check(pool_http_reply *r) {
    curl_off_t length = -1;
    if (!has_object(r) || r->broken) return;
    curl_easy_getinfo(r->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (r->status == 206 && r->n_body != r->n_expected) r->broken = "another number of bytes than its range has";
    else if (r->status == 200 && length < 0 && !reply_header(r, "Transfer-Encoding"))
        r->broken = "neither a range nor a length";
}

/* ---- its meaning ---- */

static bool was_lost(CURLcode code) {
    return code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING ||
           code == CURLE_PARTIAL_FILE;
}

static int code_cause(const pool_http_reply *r, CURLcode code) {
    long cause = 0;
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT: return ETIMEDOUT;
    case CURLE_COULDNT_RESOLVE_HOST: return EHOSTUNREACH;
    case CURLE_COULDNT_CONNECT:
        curl_easy_getinfo(r->easy, CURLINFO_OS_ERRNO, &cause);
        return cause ? (int)cause : ECONNREFUSED;
    default: return was_lost(code) ? ECONNRESET : EPROTO;
    }
}

static pool_http_verdict judge_code(const pool_http_reply *r, CURLcode code, const char *why, int *cause,
                                    char reason[POOL_HTTP_REASON_BYTES]) {
    if (!why[0]) why = curl_easy_strerror(code);
    *cause = code_cause(r, code);
    if (code == CURLE_PEER_FAILED_VERIFICATION)
        snprintf(reason, POOL_HTTP_REASON_BYTES, "its certificate is not trusted: %s: give ca=FILE", why);
    else if (code == CURLE_OUT_OF_MEMORY) /* also of a line that is longer than libcurl's limit */
        snprintf(reason, POOL_HTTP_REASON_BYTES, "out of memory, or a header of more than 100 KiB");
    else snprintf(reason, POOL_HTTP_REASON_BYTES, "%s", why);
    return was_lost(code) ? POOL_HTTP_PASSING : POOL_HTTP_LASTING;
}

/* S3's name of an error: <Code>NoSuchKey</Code>. "": none. */
static void error_name(const pool_http_reply *r, char out[NAME_BYTES]) {
    const char *code = strstr(r->text, "<Code>");
    size_t n = 0;
    for (code = code ? code + 6 : ""; n < NAME_BYTES - 1 && isalnum((unsigned char)code[n]); n++) out[n] = code[n];
    out[n] = '\0';
}

static pool_http_verdict judge_status(const pool_http_reply *r, int *cause, char reason[POOL_HTTP_REASON_BYTES]) {
    char name[NAME_BYTES];
    error_name(r, name);
    const bool is_absent = r->status == 404 && strcmp(name, "NoSuchBucket") != 0;
    if (r->method == POOL_HTTP_GET && (has_object(r) || is_absent || r->status == 416)) {
        r->range->found = !is_absent;
        r->range->got = has_object(r) ? (size_t)BASE_MIN(r->n_body, (uint64_t)r->range->n) : 0;
        return POOL_HTTP_SUCCESS;
    }
    if (r->method != POOL_HTTP_GET && r->status >= 200 && r->status < 300) return POOL_HTTP_SUCCESS;
    if (r->method == POOL_HTTP_DELETE && is_absent) return POOL_HTTP_SUCCESS;
    snprintf(reason, POOL_HTTP_REASON_BYTES, name[0] ? "HTTP status %ld (%s)" : "HTTP status %ld", r->status, name);
    switch (r->status) {
    case 401:
    case 403: *cause = EACCES; return POOL_HTTP_LASTING;
    case 404: *cause = ENOENT; return POOL_HTTP_LASTING; /* of the folder or the bucket */
    case 413:
    case 507: *cause = ENOSPC; return POOL_HTTP_LASTING;
    case 429:
    case 503: *cause = EBUSY; return POOL_HTTP_PASSING;
    case 500:
    case 502:
    case 504: *cause = EIO; return POOL_HTTP_PASSING;
    default: *cause = EPROTO; return POOL_HTTP_LASTING;
    }
}

pool_http_verdict pool_http_reply_judge(pool_http_reply *r, CURLcode code, const char *why, int *cause,
                                        char reason[POOL_HTTP_REASON_BYTES]) {
    BASE_ASSERT(r->easy);
    if (!code) {
        reply_begin(r);
        reply_check(r);
    }
    if (r->broken) {
        *cause = EPROTO;
        snprintf(reason, POOL_HTTP_REASON_BYTES, "malformed reply: %s", r->broken);
        return POOL_HTTP_LASTING;
    }
    if (code && !(code == CURLE_WRITE_ERROR && r->is_cut)) return judge_code(r, code, why, cause, reason);
    return judge_status(r, cause, reason);
}
