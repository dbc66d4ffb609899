/* SPDX-License-Identifier: Apache-2.0 */
/* http_client.h: HTTP/1.1 requests to a server at a TCP port or a Unix socket, with or without TLS, through libcurl.
 *
 *   http_target   the server: URL, Unix socket, CA file
 *   http_transfer one request after another through a handle of libcurl, for callers that drive libcurl themselves:
 *                 with curl_easy_perform, or in a multi handle
 *   http_ask      sends one request and waits for the whole reply
 *
 * Proxies of the environment are not used: a benchmark measures the server, and a report is about it. Redirects are
 * not followed. Thread-safe; a target is immutable once open; a transfer belongs to one thread at a time.
 */
#ifndef CLI_HTTP_CLIENT_H
#define CLI_HTTP_CLIENT_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#define HTTP_DEFAULT_URL "http://127.0.0.1:8080"
#define HTTP_CA_FILE_HELP "certificates (PEM) to trust for https instead of the system's"
#define HTTP_MAX_REPLY_BYTES ((size_t)64 << 20)
#define HTTP_PATIENCE_S 60 /* timeout of http_ask for the next byte */

typedef struct http_target {
    char name[640];        /* for messages: "http://127.0.0.1:8080", "unix:/run/reprise.sock" */
    char base[512];        /* prefix of every path: "http://127.0.0.1:8080", "https://example.org/reprise" */
    const char *unix_path; /* borrowed; NULL: TCP */
    const char *ca_file;   /* borrowed; certificates (PEM) to trust instead of the system's; NULL: the system's */
} http_target;

/* Reads a server's address, without connecting. option: that of the URL, for messages. Returns an exit status:
 * CLI_WRONG_USE for an invalid URL. */
int http_target_read(http_target *t, const char *option, const char *url, const char *unix_path, const char *ca_file);
/* Reads the address of --url and --unix, and checks that the server accepts connections (and its certificate). url:
 * "http://HOST[:PORT][/BASE]" or "https://..."; unix_path: a Unix socket instead of its host and port, or NULL;
 * ca_file: NULL, or PEM. Returns an exit status: as above, CLI_FAILED if no server listens or its certificate is not
 * trusted. */
int http_target_open(http_target *t, const char *url, const char *unix_path, const char *ca_file);

typedef struct http_request {
    const char *method, *path; /* "GET", "/v1/models" */
    const char *key;           /* sent as "Authorization: Bearer KEY"; NULL: none */
    const char *content_type;  /* NULL: application/json */
    const char *body;          /* NULL: none */
    size_t n_body;
} http_request;

typedef struct http_transfer {
    CURL *handle;
    struct curl_slist *headers; /* of the current request */
    bool (*on_body)(void *user, const char *bytes, size_t n);
    void *user;
    char why[CURL_ERROR_SIZE]; /* libcurl's description of a failure */
} http_transfer;

/* on_body: called with the bytes of a reply's body as they arrive; false ends the transfer. x must not move while it is
 * open. Exits if out of memory. */
void http_transfer_open(http_transfer *x, const http_target *t,
                        bool (*on_body)(void *user, const char *bytes, size_t n), void *user);
void http_transfer_close(http_transfer *x);
/* Sets the request to send next. Its body is borrowed until the transfer ends; the rest is copied. */
void http_transfer_set(http_transfer *x, const http_target *t, const http_request *q);
/* HTTP status of the current reply; 0: none yet. */
int http_transfer_status(const http_transfer *x);
/* A handle with the settings that all of the program's transfers share: protocols, HTTP version, error text. Exits if
 * out of memory. */
CURL *http_handle_new(char why[CURL_ERROR_SIZE]);

/* libcurl's description of a failure, in `why` if it wrote one. */
const char *http_fault(const char why[CURL_ERROR_SIZE], CURLcode code);

typedef struct http_reply {
    int status;
    char *body; /* NUL-terminated */
    size_t n_body;
} http_reply;

/* Sends a request and waits for its reply, with any status. Returns an exit status; free the reply in any case. */
int http_ask(const http_target *t, const http_request *q, http_reply *reply);
void http_reply_free(http_reply *reply);

#endif
