/* SPDX-License-Identifier: Apache-2.0 */
/* pool_http_transfer.c: see pool_http_transfer.h.
 *
 * libcurl signs requests to S3 (AWS Signature Version 4). Version 7.88 signs every header in its list, even "Expect:",
 * which removes one, and sends no digest of the payload: the list has the headers of headers_make alone. A payload is
 * signed where TLS does not protect it.
 */
#include "store/remote/pool_http_transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <sodium.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/hash.h"

#define MAX_RETRIES 3
#define FIRST_DELAY_US UINT64_C(50000) /* before the first retry; each one after it waits twice as long */
#define MAX_RETRY_AFTER_S 3600
#define CONNECT_MS UINT64_C(5000)
#define IDLE_S 60L            /* greatest idle time of a reused connection: nginx closes them after 75 */
#define EXPECT_MS 500L        /* wait for a "100 Continue", which not every server sends */
#define RECEIVE_BYTES 131072L /* libcurl's buffer for replies; 16 KiB by default */
#define SEND_BYTES 262144L    /* for bodies of requests; 64 KiB by default */
#define URL_BYTES (POOL_HTTP_URL_BYTES + POOL_NAME_CHARS + 8)
#define DIGEST_CHARS (2 * crypto_hash_sha256_BYTES)
#define EMPTY_DIGEST "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* ---- the request's head ---- */

static bool header_add(struct curl_slist **list, const char *name, const char *value) {
    char line[POOL_HTTP_TOKEN_BYTES + 64];
    snprintf(line, sizeof(line), "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(*list, line);
    sodium_memzero(line, sizeof(line));
    if (longer) *list = longer;
    return longer != NULL;
}

static void payload_digest(const pool_http_request *r, char out[DIGEST_CHARS + 1]) {
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state h;
    crypto_hash_sha256_init(&h);
    for (int i = 0; i < r->n_pieces; i++) crypto_hash_sha256_update(&h, r->pieces[i].iov_base, r->pieces[i].iov_len);
    crypto_hash_sha256_final(&h, digest);
    sodium_bin2hex(out, DIGEST_CHARS + 1, digest, sizeof(digest));
}

static bool headers_make(pool_http_transfer *t) {
    const pool_http_address *a = t->address;
    const bool is_put = t->request.method == POOL_HTTP_PUT;
    char digest[DIGEST_CHARS + 1] = EMPTY_DIGEST;
    BASE_ASSERT(!t->headers);
    if (!a->is_s3) {
        char bearer[POOL_HTTP_TOKEN_BYTES + 8];
        snprintf(bearer, sizeof(bearer), "Bearer %s", a->token);
        const bool is_fine = !a->token[0] || header_add(&t->headers, "Authorization", bearer);
        sodium_memzero(bearer, sizeof(bearer));
        return is_fine;
    }
    if (is_put && a->is_tls) strcpy(digest, "UNSIGNED-PAYLOAD");
    else if (is_put) payload_digest(&t->request, digest);
    return header_add(&t->headers, "x-amz-content-sha256", digest) &&
           (!a->token[0] || header_add(&t->headers, "x-amz-security-token", a->token));
}

/* ---- the request's body ---- */

static size_t on_send(char *to, size_t size, size_t n, void *user) {
    pool_http_transfer *t = user;
    size_t sent = 0;
    n *= size;
    while (sent < n && t->piece < t->request.n_pieces) {
        const struct iovec *piece = &t->request.pieces[t->piece];
        BASE_ASSERT(t->at <= piece->iov_len);
        const size_t some = BASE_MIN(n - sent, piece->iov_len - t->at);
        if (some > 0) memcpy(to + sent, (const char *)piece->iov_base + t->at, some);
        sent += some;
        t->at += some;
        if (t->at < piece->iov_len) break;
        t->piece++;
        t->at = 0;
    }
    return sent;
}

/* libcurl sends a request again if the server has closed an idle connection. */
static int on_seek(void *user, curl_off_t offset, int origin) {
    pool_http_transfer *t = user;
    if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_FAIL;
    t->at = (size_t)offset;
    for (t->piece = 0; t->piece < t->request.n_pieces && t->at >= t->request.pieces[t->piece].iov_len; t->piece++)
        t->at -= t->request.pieces[t->piece].iov_len;
    return CURL_SEEKFUNC_OK;
}

/* ---- its end ---- */

/* When to retry: exponential, with a random part against herds, and not before the server wants it. */
static uint64_t retry_us(const pool_http_transfer *t, uint64_t now) {
    curl_off_t after_s = 0;
    BASE_ASSERT(t->n_retries <= MAX_RETRIES);
    const uint64_t delay = FIRST_DELAY_US << t->n_retries;
    curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &after_s);
    const uint64_t after_us = (uint64_t)BASE_MIN(after_s, (curl_off_t)MAX_RETRY_AFTER_S) * 1000000;
    return now + BASE_MAX(delay + base_mix64(now ^ (uintptr_t)t) % delay, after_us);
}

pool_http_outcome pool_http_transfer_end(pool_http_transfer *t, CURLcode code, uint64_t deadline_us) {
    BASE_ASSERT(t->state == POOL_HTTP_RUNS);
    t->state = POOL_HTTP_IDLE;
    const pool_http_verdict verdict = pool_http_reply_judge(&t->reply, code, t->why, &t->cause, t->reason);
    if (verdict == POOL_HTTP_SUCCESS) return POOL_HTTP_DONE;
    t->due_us = retry_us(t, base_clock_us());
    if (verdict == POOL_HTTP_LASTING || t->n_retries == MAX_RETRIES || t->due_us >= deadline_us)
        return POOL_HTTP_FAILED;
    t->n_retries++;
    t->state = POOL_HTTP_WAITS;
    return POOL_HTTP_AGAIN;
}

/* ---- its begin ---- */

/* Settings of all transfers. Any that cannot be made is an error: they are what a transfer may not do. */
static bool transfer_settings(pool_http_transfer *t) {
    const pool_http_address *a = t->address;
    CURL *e = t->easy;
    char signature[POOL_HTTP_REGION_BYTES + 16];
    bool is_fine = true;
#define SET(option, value) is_fine = is_fine && curl_easy_setopt(e, option, value) == CURLE_OK
    SET(CURLOPT_ERRORBUFFER, t->why);
    SET(CURLOPT_PRIVATE, t);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_PROTOCOLS_STR, a->is_tls ? "https" : "http");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_USERAGENT, "reprise/" RP_VERSION_STRING);
    SET(CURLOPT_MAXAGE_CONN, IDLE_S);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_BUFFERSIZE, RECEIVE_BYTES);
    SET(CURLOPT_UPLOAD_BUFFERSIZE, SEND_BYTES);
    SET(CURLOPT_EXPECT_100_TIMEOUT_MS, EXPECT_MS);
    SET(CURLOPT_HEADERFUNCTION, pool_http_reply_head);
    SET(CURLOPT_HEADERDATA, &t->reply);
    SET(CURLOPT_WRITEFUNCTION, pool_http_reply_body);
    SET(CURLOPT_WRITEDATA, &t->reply);
    SET(CURLOPT_READFUNCTION, on_send);
    SET(CURLOPT_READDATA, t);
    SET(CURLOPT_SEEKFUNCTION, on_seek);
    SET(CURLOPT_SEEKDATA, t);
#if LIBCURL_VERSION_NUM >= 0x075700
    SET(CURLOPT_QUICK_EXIT, 1L); /* a transfer that ends does not wait for its getaddrinfo, which may take longer */
#endif
    if (a->ca[0]) {
        SET(CURLOPT_CAINFO, a->ca);
        SET(CURLOPT_CAPATH, NULL);
    }
    if (a->user[0]) {
        SET(CURLOPT_USERNAME, a->user);
        SET(CURLOPT_PASSWORD, a->password);
        SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
    }
    if (a->is_s3) {
        snprintf(signature, sizeof(signature), "aws:amz:%s:s3", a->region);
        SET(CURLOPT_AWS_SIGV4, signature);
    }
#undef SET
    return is_fine;
}

int pool_http_transfer_open(pool_http_transfer *t, const pool_http_address *address) {
    BASE_ASSERT(address->base[0] != '\0');
    *t = (pool_http_transfer){.address = address, .easy = curl_easy_init()};
    if (t->easy && transfer_settings(t)) return RP_OK;
    pool_http_transfer_close(t);
    return RP_ERR_MEMORY;
}

void pool_http_transfer_close(pool_http_transfer *t) {
    BASE_ASSERT(t->state != POOL_HTTP_RUNS);
    if (t->easy) curl_easy_cleanup(t->easy);
    curl_slist_free_all(t->headers);
    *t = (pool_http_transfer){0};
}

static bool method_set(pool_http_transfer *t) {
    const pool_http_request *r = &t->request;
    const char *custom = r->method == POOL_HTTP_DELETE ? "DELETE" : NULL;
    char range[64];
    curl_off_t n = 0;
    bool is_fine;
    for (int i = 0; i < r->n_pieces; i++) n += (curl_off_t)r->pieces[i].iov_len;
    if (r->method == POOL_HTTP_PUT)
        is_fine = curl_easy_setopt(t->easy, CURLOPT_UPLOAD, 1L) == CURLE_OK &&
                  curl_easy_setopt(t->easy, CURLOPT_INFILESIZE_LARGE, n) == CURLE_OK;
    else is_fine = curl_easy_setopt(t->easy, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    if (r->method == POOL_HTTP_GET) {
        const uint64_t begin = r->range->begin, asked = pool_http_asked(r->range);
        BASE_ASSERT(begin <= UINT64_MAX - asked);
        snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, begin, begin + asked - 1);
    }
    return is_fine &&
           curl_easy_setopt(t->easy, CURLOPT_RANGE, r->method == POOL_HTTP_GET ? range : NULL) == CURLE_OK &&
           curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, custom) == CURLE_OK;
}

int pool_http_transfer_set(pool_http_transfer *t, const pool_http_request *request) {
    const char *name = request->method == POOL_HTTP_GET ? request->range->name : request->name;
    char url[URL_BYTES];
    BASE_ASSERT(t->state == POOL_HTTP_IDLE);
    BASE_ASSERT(strlen(name) == POOL_NAME_CHARS && strspn(name, "0123456789abcdef") == POOL_NAME_CHARS);
    t->request = *request;
    t->n_retries = 0;
    t->due_us = 0;
    curl_slist_free_all(t->headers);
    t->headers = NULL;
    snprintf(url, sizeof(url), "%s/%.2s/%s", t->address->base, name, name);
    const bool is_fine = headers_make(t) && curl_easy_setopt(t->easy, CURLOPT_URL, url) == CURLE_OK &&
                         curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers) == CURLE_OK && method_set(t);
    if (!is_fine) return RP_ERR_MEMORY;
    t->state = POOL_HTTP_WAITS;
    return RP_OK;
}

void pool_http_transfer_begin(pool_http_transfer *t, uint64_t now_us, uint64_t deadline_us) {
    BASE_ASSERT(t->state == POOL_HTTP_WAITS && deadline_us > now_us);
    const uint64_t left_ms = BASE_MIN((deadline_us - now_us + 999) / 1000, (uint64_t)INT32_MAX);
    curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)left_ms);
    curl_easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)BASE_MIN(left_ms, CONNECT_MS));
    t->state = POOL_HTTP_RUNS;
    t->piece = 0;
    t->at = 0;
    pool_http_reply_clear(&t->reply, t->easy, t->request.method, t->request.range);
    t->why[0] = '\0';
}
