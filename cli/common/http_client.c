/* SPDX-License-Identifier: Apache-2.0 */
/* http_client.c: see http_client.h. Owns the process-wide state of libcurl, and the handles of http_target_open and
 * http_ask. */
#define _POSIX_C_SOURCE 200809L

#include "common/http_client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "common/command.h"
#include "common/console.h"

#define HTTP_CONNECT_MS 10000L

/* ---- handles ---- */

static void http_client_begin(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }

CURL *http_handle_new(char why[CURL_ERROR_SIZE]) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, http_client_begin);
    CURL *h = curl_easy_init();
    if (h == NULL) exit(cli_fail(CLI_FAILED, "out of memory"));
    why[0] = '\0';
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L); /* no SIGALRM: the program has threads */
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, HTTP_CONNECT_MS);
    return h;
}

static void http_handle_aim(CURL *h, const http_target *t) {
    curl_easy_setopt(h, CURLOPT_URL, t->base);
    curl_easy_setopt(h, CURLOPT_PROXY, "");
    if (t->unix_path != NULL) curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, t->unix_path);
    if (t->ca_file != NULL) {
        curl_easy_setopt(h, CURLOPT_CAINFO, t->ca_file);
        curl_easy_setopt(h, CURLOPT_CAPATH, NULL);
    }
}

/* ---- targets ---- */

static int wrong_url(const char *option, const char *url, const char *what) {
    return cli_fail(CLI_WRONG_USE, "%s '%s': %s: give http://HOST:PORT or https://HOST:PORT", option, url, what);
}

static bool http_url_has(CURLU *u, CURLUPart part) {
    char *text = NULL;
    bool has = curl_url_get(u, part, &text, 0) == CURLUE_OK;
    curl_free(text);
    return has;
}

/* The URL without a '/' at its end, if it has only the parts that a server's address may have. */
static int http_target_parse(http_target *t, CURLU *u, const char *option, const char *url) {
    char *scheme = NULL, *whole = NULL;
    CURLUcode rc = curl_url_set(u, CURLUPART_URL, url, 0);
    if (rc != CURLUE_OK) return wrong_url(option, url, curl_url_strerror(rc));
    if (curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK) return wrong_url(option, url, "no URL scheme");
    bool is_http = strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0;
    curl_free(scheme);
    if (!is_http) return wrong_url(option, url, "unsupported URL scheme (only http and https)");
    if (http_url_has(u, CURLUPART_USER) || http_url_has(u, CURLUPART_PASSWORD))
        return wrong_url(option, url, "a user name or password; servers use API keys instead");
    if (http_url_has(u, CURLUPART_QUERY) || http_url_has(u, CURLUPART_FRAGMENT))
        return wrong_url(option, url, "a query or fragment");
    if (curl_url_get(u, CURLUPART_URL, &whole, 0) != CURLUE_OK) return wrong_url(option, url, "not a URL");
    size_t n = strlen(whole);
    while (n > 0 && whole[n - 1] == '/') n--;
    bool fits = n < sizeof t->base;
    snprintf(t->base, sizeof t->base, "%.*s", (int)n, whole);
    curl_free(whole);
    return fits ? CLI_OK : wrong_url(option, url, "the URL is too long");
}

/* Connects, and closes the connection. */
static int http_target_check(const http_target *t) {
    http_transfer x = {.handle = http_handle_new(x.why)};
    http_handle_aim(x.handle, t);
    curl_easy_setopt(x.handle, CURLOPT_CONNECT_ONLY, 1L);
    CURLcode rc = curl_easy_perform(x.handle);
    int status = CLI_OK;
    if (rc == CURLE_SSL_CACERT_BADFILE)
        status = cli_fail(CLI_FAILED, "--ca-file '%s': no certificates (PEM) in it", t->ca_file);
    else if (rc == CURLE_PEER_FAILED_VERIFICATION)
        status = cli_fail(CLI_FAILED, "cannot reach %s: its certificate is not trusted: %s: give --ca-file", t->name,
                          http_fault(x.why, rc));
    else if (rc != CURLE_OK)
        status =
            cli_fail(CLI_FAILED, "cannot reach %s: %s: is a server running there?", t->name, http_fault(x.why, rc));
    http_transfer_close(&x);
    return status;
}

int http_target_read(http_target *t, const char *option, const char *url, const char *unix_path, const char *ca_file) {
    *t = (http_target){.unix_path = unix_path, .ca_file = ca_file};
    CURLU *u = curl_url();
    if (u == NULL) exit(cli_fail(CLI_FAILED, "out of memory"));
    int status = http_target_parse(t, u, option, url);
    curl_url_cleanup(u);
    if (status != CLI_OK) return status;
    size_t longest = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
    if (unix_path != NULL && strlen(unix_path) > longest)
        return cli_fail(CLI_WRONG_USE, "--unix '%s': a socket path has at most %zu bytes", unix_path, longest);
    snprintf(t->name, sizeof t->name, "%s%s", unix_path != NULL ? "unix:" : "",
             unix_path != NULL ? unix_path : t->base);
    return CLI_OK;
}

int http_target_open(http_target *t, const char *url, const char *unix_path, const char *ca_file) {
    int status = http_target_read(t, "--url", url, unix_path, ca_file);
    return status == CLI_OK ? http_target_check(t) : status;
}

/* ---- transfers ---- */

static size_t http_transfer_write(char *bytes, size_t size, size_t n, void *user) {
    http_transfer *x = user;
    return x->on_body(x->user, bytes, size * n) ? size * n : CURL_WRITEFUNC_ERROR;
}

void http_transfer_open(http_transfer *x, const http_target *t,
                        bool (*on_body)(void *user, const char *bytes, size_t n), void *user) {
    *x = (http_transfer){.handle = http_handle_new(x->why), .on_body = on_body, .user = user};
    http_handle_aim(x->handle, t);
    curl_easy_setopt(x->handle, CURLOPT_WRITEFUNCTION, http_transfer_write);
    curl_easy_setopt(x->handle, CURLOPT_WRITEDATA, x);
}

void http_transfer_close(http_transfer *x) {
    curl_easy_cleanup(x->handle);
    curl_slist_free_all(x->headers);
    *x = (http_transfer){0};
}

static void http_transfer_add_header(http_transfer *x, const char *name, const char *value) {
    size_t n = strlen(name) + strlen(value) + 1;
    char *line = cli_alloc(n);
    snprintf(line, n, "%s%s", name, value);
    struct curl_slist *longer = curl_slist_append(x->headers, line);
    free(line);
    if (longer == NULL) exit(cli_fail(CLI_FAILED, "out of memory"));
    x->headers = longer;
}

void http_transfer_set(http_transfer *x, const http_target *t, const http_request *q) {
    size_t n = strlen(t->base) + strlen(q->path) + 1;
    char *url = cli_alloc(n);
    snprintf(url, n, "%s%s", t->base, q->path);
    curl_easy_setopt(x->handle, CURLOPT_URL, url);
    free(url);
    curl_slist_free_all(x->headers);
    x->headers = NULL;
    if (q->key != NULL) http_transfer_add_header(x, "Authorization: Bearer ", q->key);
    if (q->body != NULL) {
        http_transfer_add_header(x, "Content-Type: ", q->content_type != NULL ? q->content_type : "application/json");
        http_transfer_add_header(x, "Expect:", ""); /* no 100-continue: it would delay the body */
        curl_easy_setopt(x->handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->n_body);
        curl_easy_setopt(x->handle, CURLOPT_POSTFIELDS, q->body);
    } else curl_easy_setopt(x->handle, CURLOPT_HTTPGET, 1L);
    curl_easy_setopt(x->handle, CURLOPT_NOBODY, strcmp(q->method, "HEAD") == 0 ? 1L : 0L);
    curl_easy_setopt(x->handle, CURLOPT_CUSTOMREQUEST, q->method);
    curl_easy_setopt(x->handle, CURLOPT_HTTPHEADER, x->headers);
    x->why[0] = '\0';
}

int http_transfer_status(const http_transfer *x) {
    long status = 0;
    curl_easy_getinfo(x->handle, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

const char *http_fault(const char why[CURL_ERROR_SIZE], CURLcode code) {
    if (code == CURLE_GOT_NOTHING) return "the connection closed before a reply";
    if (code == CURLE_PARTIAL_FILE) return "the connection closed before the end of the reply";
    if (code == CURLE_OPERATION_TIMEDOUT) return "no answer within the time limit";
    return why[0] != '\0' ? why : curl_easy_strerror(code);
}

/* ---- requests ---- */

static bool keep_body(void *user, const char *bytes, size_t n) {
    http_reply *reply = user;
    if (n > HTTP_MAX_REPLY_BYTES - reply->n_body) return false;
    reply->body = cli_realloc(reply->body, reply->n_body + n + 1);
    if (n > 0) memcpy(reply->body + reply->n_body, bytes, n);
    reply->n_body += n;
    reply->body[reply->n_body] = '\0';
    return true;
}

int http_ask(const http_target *t, const http_request *q, http_reply *reply) {
    http_transfer x;
    *reply = (http_reply){0};
    keep_body(reply, "", 0);
    http_transfer_open(&x, t, keep_body, reply);
    http_transfer_set(&x, t, q);
    curl_easy_setopt(x.handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(x.handle, CURLOPT_LOW_SPEED_TIME, (long)HTTP_PATIENCE_S);
    CURLcode rc = curl_easy_perform(x.handle);
    int status = CLI_OK;
    reply->status = http_transfer_status(&x);
    if (rc == CURLE_WRITE_ERROR)
        status = cli_fail(CLI_FAILED, "%s %s%s: the reply has more than %zu MiB", q->method, t->name, q->path,
                          HTTP_MAX_REPLY_BYTES >> 20);
    else if (rc != CURLE_OK)
        status = cli_fail(CLI_FAILED, "%s %s%s: %s", q->method, t->name, q->path, http_fault(x.why, rc));
    http_transfer_close(&x);
    return status;
}

void http_reply_free(http_reply *reply) {
    free(reply->body);
    *reply = (http_reply){0};
}
