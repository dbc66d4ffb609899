/* SPDX-License-Identifier: Apache-2.0 */
/* request_origin.c: see request_origin.h. */
#define _POSIX_C_SOURCE 200809L /* strncasecmp */
#include "server/http/request_origin.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "server/http/server_internal.h"

/* ---- names ---- */

static bool names_have(const server_names *names, const char *name) {
    for (int i = 0; i < names->n; i++)
        if (strcmp(names->names[i], name) == 0) return true;
    return false;
}

/* The name of n bytes in lower case, without the dot of the root at its end. false: empty or too long. */
static bool request_origin_copy_name(char out[SERVER_HOST_BYTES], const char *name, size_t n) {
    if (n > 1 && name[n - 1] == '.') n--;
    if (n == 0 || n >= SERVER_HOST_BYTES) return false;
    for (size_t i = 0; i < n; i++) out[i] = (char)tolower((unsigned char)name[i]);
    out[n] = '\0';
    return true;
}

static int names_add(server_names *names, const char *name, size_t n, rp_error *err) {
    char lower[SERVER_HOST_BYTES];
    BASE_ASSERT(names->n >= 0 && names->n <= (int)BASE_ARRAY_LEN(names->names));
    if (!request_origin_copy_name(lower, name, n))
        return base_fail(err, RP_ERR_INVALID, "a host name has 1 to %d bytes", SERVER_HOST_BYTES - 1);
    if (lower[strcspn(lower, "/@ \t\r\n")] || (lower[0] != '[' && strchr(lower, ':')))
        return base_fail(err, RP_ERR_INVALID,
                         "'%.100s' is not a host name: give the name alone, without http:// and without a port", lower);
    if (names_have(names, lower)) return RP_OK;
    if (names->n == (int)BASE_ARRAY_LEN(names->names))
        return base_fail(err, RP_ERR_LIMIT, "a server has at most %d host names", SERVER_MAX_HOST_NAMES);
    if (!(names->names[names->n] = base_strdup(lower))) return base_fail_memory(err, n, "a host name");
    names->n++;
    return RP_OK;
}

/* How long the name of "name:port" or "[address]:port" is; SIZE_MAX: that is no host. */
static size_t name_length(const char *host, size_t n) {
    const char *end = n > 0 && host[0] == '[' ? memchr(host, ']', n) : memchr(host, ':', n);
    if (!end) return n > 0 && host[0] == '[' ? SIZE_MAX : n;
    size_t name = (size_t)(end - host) + (host[0] == '[');
    BASE_ASSERT(name <= n);
    size_t digits = name;
    if (digits < n && host[digits++] != ':') return SIZE_MAX;
    for (; digits < n; digits++)
        if (!isdigit((unsigned char)host[digits])) return SIZE_MAX;
    return name;
}

static int names_add_listener(server_names *names, const server_listener *l, rp_error *err) {
    const char *host = l->address + (sizeof("http://") - 1);
    if (l->is_unix || l->is_cluster || strncmp(l->address, "http://", sizeof("http://") - 1) != 0) return RP_OK;
    size_t n = name_length(host, strlen(host));
    if (strncmp(host, "0.0.0.0", n) == 0 || strncmp(host, "[::]", n) == 0) {
        names->any_address = true;
        return RP_OK;
    }
    return names_add(names, host, n, err);
}

int server_names_init(server_names *names, const rp_server_options *o, const server_listeners *l, rp_error *err) {
    static const char *const loopback[] = {"localhost", "127.0.0.1", "[::1]"};
    int rc = RP_OK;
    if (o->n_host_names < 0 || o->n_host_names > SERVER_MAX_HOST_NAMES)
        return base_fail(err, RP_ERR_INVALID, "a server has at most %d host names", SERVER_MAX_HOST_NAMES);
    for (size_t i = 0; i < BASE_ARRAY_LEN(loopback) && !rc; i++)
        rc = names_add(names, loopback[i], strlen(loopback[i]), err);
    for (int i = 0; i < l->n && !rc; i++) rc = names_add_listener(names, &l->items[i], err);
    /* What --host was given: a name, or an address, which has no brackets there. */
    if (o->host && !rc && strchr(o->host, ':')) {
        char bracketed[SERVER_HOST_BYTES + 2];
        snprintf(bracketed, sizeof(bracketed), "[%.*s]", SERVER_HOST_BYTES - 3, o->host);
        rc = names_add(names, bracketed, strlen(bracketed), err);
    } else if (o->host && !rc) rc = names_add(names, o->host, strlen(o->host), err);
    for (int32_t i = 0; i < o->n_host_names && !rc; i++)
        rc = names_add(names, o->host_names[i], strlen(o->host_names[i]), err);
    return rc;
}

void server_names_free(server_names *names) {
    for (int i = 0; i < names->n; i++) base_free(names->names[i]);
    *names = (server_names){.n = 0};
}

bool server_names_accept(const server_names *names, const char *host) {
    char name[SERVER_HOST_BYTES];
    size_t n = name_length(host, strlen(host));
    if (n == SIZE_MAX || !request_origin_copy_name(name, host, n)) return false;
    /* An address, not a name: no page can have bound that. */
    const bool is_address = name[0] == '[' || name[strspn(name, "0123456789.")] == '\0';
    return names_have(names, name) || (names->any_address && is_address);
}

/* ---- origins ---- */

/* "HOST:PORT" without the port that the scheme has anyway. */
static size_t without_port(const char *authority, const char *port) {
    size_t n = strlen(authority), ends = strlen(port);
    return n > ends && strcmp(authority + n - ends, port) == 0 ? n - ends : n;
}

bool server_origin_is_own(const char *origin, const char *host) {
    bool tls = strncasecmp(origin, "https://", 8) == 0;
    if (!host || (!tls && strncasecmp(origin, "http://", 7) != 0)) return false;
    const char *authority = origin + (tls ? 8 : 7), *port = tls ? ":443" : ":80";
    size_t a = without_port(authority, port), h = without_port(host, port);
    return a > 0 && a == h && strncasecmp(authority, host, a) == 0;
}

/* ---- requests ---- */

void request_check_host(server_request *x) {
    const char *host = server_request_header(x, MHD_HTTP_HEADER_HOST);
    if (!host) return; /* HTTP/1.0 may have none; browsers send one */
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    /* A web page cannot open a Unix socket; the Host header that a proxy sends over it proves nothing. */
    if (info && info->client_addr && info->client_addr->sa_family == AF_UNIX) return;
    if (server_names_accept(&x->server->names, host)) return;
    server_fail(&x->problem, SERVER_HOST, NULL, "unknown host name '%.100s': if it is correct, add it to the server's "
                                                "host_names (reprise serve --host-name %.*s)",
                host, (int)BASE_MIN(name_length(host, strlen(host)), 100u), host);
}

void request_check_origin(server_request *x) {
    const char *origin = server_request_header(x, MHD_HTTP_HEADER_ORIGIN),
               *site = server_request_header(x, "Sec-Fetch-Site");
    bool own = origin ? server_origin_is_own(origin, server_request_header(x, MHD_HTTP_HEADER_HOST))
                      : !site || strcmp(site, "none") == 0 || strcmp(site, "same-origin") == 0;
    const char *cors = x->server->cors_origin;
    bool allowed = cors && (strcmp(cors, "*") == 0 || (origin && strcmp(cors, origin) == 0));
    if (x->route->right == SERVER_OPEN || own || allowed) return;
    if (origin)
        server_fail(&x->problem, SERVER_ORIGIN, NULL, "web pages of the origin '%.100s' are not allowed: to allow "
                                                      "them, set the server's cors_origin (reprise serve --cors "
                                                      "%.100s)",
                    origin, strcmp(origin, "null") == 0 ? "'*'" : origin);
    else
        server_fail(&x->problem, SERVER_ORIGIN, NULL,
                    "web pages of other sites are not allowed (Sec-Fetch-Site: %.20s)", site);
}

/* Is it this media type, with or without parameters? */
static bool request_origin_is_type(const char *type, const char *wanted) {
    size_t n = strlen(wanted);
    return type && strncasecmp(type, wanted, n) == 0 &&
           (type[n + strspn(type + n, " \t")] == ';' || type[n + strspn(type + n, " \t")] == '\0');
}

bool request_is_document(const server_request *x) {
    const char *type = server_request_header(x, MHD_HTTP_HEADER_CONTENT_TYPE);
    return request_origin_is_type(type, "application/xml") || request_origin_is_type(type, "text/xml");
}

static bool begins_with(const char *text, const char *prefix) { return strncasecmp(text, prefix, strlen(prefix)) == 0; }

/* Is it a page of this server? "http://localhost:8080/#chat" has the Host "localhost:8080". */
static bool is_own_page(const char *url, const char *host) {
    char origin[SERVER_HOST_BYTES + 16];
    const char *authority = strstr(url, "://");
    const size_t n = authority ? (size_t)(authority - url) + 3 + strcspn(authority + 3, "/?#") : SIZE_MAX;
    if (n >= sizeof(origin)) return false;
    memcpy(origin, url, n);
    origin[n] = '\0';
    return server_origin_is_own(origin, host);
}

typedef struct browser_signs {
    const char *host;
    bool found;
} browser_signs;

/* Headers that a browser adds to a request of a page, and that the page can neither change nor suppress all. */
static enum MHD_Result find_sign(void *cls, enum MHD_ValueKind kind, const char *name, const char *value) {
    browser_signs *s = cls;
    (void)kind;
    if (!name || !value) return MHD_YES;
    if (strcasecmp(name, MHD_HTTP_HEADER_ORIGIN) == 0 || begins_with(name, "Sec-")) s->found = true;
    if (strcasecmp(name, MHD_HTTP_HEADER_REFERER) == 0 && !is_own_page(value, s->host)) s->found = true;
    if (strcasecmp(name, MHD_HTTP_HEADER_USER_AGENT) == 0 &&
        (begins_with(value, "Mozilla/") || begins_with(value, "Opera/")))
        s->found = true;
    return s->found ? MHD_NO : MHD_YES;
}

static bool is_from_page(const server_request *x) {
    browser_signs s = {.host = server_request_header(x, MHD_HTTP_HEADER_HOST)};
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, find_sign, &s);
    return s.found;
}

/* Without a type, or with that of `curl -d`: a client that sends nothing else than JSON, or a form of a page. */
static bool has_default_type(const char *type) {
    return !type || !type[0] || request_origin_is_type(type, "application/x-www-form-urlencoded");
}

static bool takes_json(const server_route *r) {
    return strcmp(r->method, "POST") == 0 || strcmp(r->method, "PATCH") == 0;
}

const char *request_media(const server_request *x) {
    const char *type = server_request_header(x, MHD_HTTP_HEADER_CONTENT_TYPE);
    return takes_json(x->route) && has_default_type(type) ? "application/json" : type;
}

/* A body without a type is one that a page may send to anybody by POST; PUT needs a preflight whatever its type is. */
void request_check_media(server_request *x) {
    const server_route *r = x->route;
    const char *type = server_request_header(x, MHD_HTTP_HEADER_CONTENT_TYPE);
    bool posts = takes_json(r), puts = strcmp(r->method, "PUT") == 0;
    bool takes_xml = puts || strcmp(r->path, "/v1/prompts") == 0; /* POST there takes JSON or PML, PUT PML alone */
    if ((!posts && !puts) || (puts && !type) || (posts && request_origin_is_type(type, "application/json")) ||
        (takes_xml && request_is_document(x)))
        return;
    if (posts && has_default_type(type) && !is_from_page(x)) return;
    server_fail(&x->problem, SERVER_MEDIA, "Content-Type",
                "add the header 'Content-Type: %s'%s (with curl: -H "
                "'Content-Type: %s'): the body was sent %s%.80s%s",
                puts ? "application/xml" : "application/json",
                posts && takes_xml ? ", or application/xml for a PML document" : "",
                puts ? "application/xml" : "application/json", type ? "as '" : "without a type", type ? type : "",
                type ? "'" : "");
}
