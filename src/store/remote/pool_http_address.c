/* SPDX-License-Identifier: Apache-2.0 */
/* pool_http_address.c: see pool_http_address.h: addresses of https:// and http://, and what those of s3:// share. */
#include "store/remote/pool_http_address.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <curl/curl.h>
#include <sodium.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "store/remote/pool_driver.h"

#define MAX_CA_BYTES ((size_t)16 << 20)
#define MAX_OPTIONS 8

int pool_http_address_wrong(const char *address, const char *what, rp_error *err) {
    char text[RP_ERROR_WHERE_BYTES];
    const bool is_s3 = strncmp(address, "s3:", 3) == 0;
    return base_fail(err, RP_ERR_INVALID, "'%s' is not the address of a pool: %s: use %s",
                     pool_address_text(address, text, sizeof(text)), what,
                     is_s3 ? "s3://BUCKET/PREFIX[?OPTION=VALUE&...] with the options endpoint, region, style, "
                             "credentials_file and ca"
                           : "http[s]://[USER:PASSWORD@]HOST[:PORT]/PATH/[?OPTION=VALUE&...] with the options ca and "
                             "bearer_file");
}

bool pool_http_is_plain(const char *secret) {
    const char *c = secret;
    while (*c > ' ' && *c < 0x7f) c++;
    return *c == '\0' && c > secret;
}

void pool_http_address_wipe(pool_http_address *a) { sodium_memzero(a, sizeof(*a)); }

/* ---- options ---- */

/* Percent-decodes text[n_text] into out[n]. false: it is malformed, empty, or too long. */
static bool decode(char *out, size_t n, const char *text, size_t n_text) {
    size_t length = 0;
    for (size_t i = 0; i < n_text; i++) {
        int c = (unsigned char)text[i];
        if (c == '%') {
            const int high = i + 2 < n_text ? base_hex_digit(text[i + 1]) : -1;
            const int low = high >= 0 ? base_hex_digit(text[i + 2]) : -1;
            c = low >= 0 ? high * 16 + low : 0;
            i += 2;
        }
        if (iscntrl(c) || length + 1 >= n) return false;
        out[length++] = (char)c;
    }
    out[length] = '\0';
    return length > 0;
}

int pool_http_options_read(const char *query, const pool_http_option *options, int n_options, const char *address,
                           rp_error *err) {
    bool is_given[MAX_OPTIONS] = {false};
    char what[128];
    BASE_ASSERT(n_options <= MAX_OPTIONS);
    for (const char *at = query; *at;) {
        const size_t n = strcspn(at, "&"), n_name = strcspn(at, "=&");
        int i = 0;
        while (i < n_options && (strlen(options[i].name) != n_name || strncmp(options[i].name, at, n_name) != 0)) i++;
        const char *fault = i == n_options ? "unknown option"
                            : is_given[i]  ? "an option that is given twice"
                            : n_name == n  ? "an option without a value"
                            : !decode(options[i].value, options[i].n, at + n_name + 1, n - n_name - 1)
                                ? "an invalid value of the option"
                                : NULL;
        if (fault) {
            snprintf(what, sizeof(what), "%s '%.*s'", fault, (int)BASE_MIN(n_name, (size_t)40), at);
            return pool_http_address_wrong(address, what, err);
        }
        is_given[i] = true;
        at += n + (at[n] == '&');
    }
    return RP_OK;
}

int pool_http_ca_check(const pool_http_address *a, const char *address, rp_error *err) {
    base_buffer b;
    if (!a->ca[0]) return RP_OK;
    if (!a->is_tls) return pool_http_address_wrong(address, "'ca' is an option of https", err);
    const int rc = base_file_read(a->ca, MAX_CA_BYTES, &b, err);
    if (rc) return rc;
    base_buffer_free(&b);
    return RP_OK;
}

/* ---- the URL ---- */

/* false: it is too long, or has control characters. */
static bool url_part(CURLU *u, CURLUPart part, char *out, size_t n) {
    char *text = NULL;
    const CURLUcode rc = curl_url_get(u, part, &text, part == CURLUPART_URL ? 0 : CURLU_URLDECODE);
    const bool fits = !text || strlen(text) < n;
    if (text && fits) snprintf(out, n, "%s", text);
    if (text) sodium_memzero(text, strlen(text));
    curl_free(text);
    return fits && (rc == CURLUE_OK || rc == CURLUE_NO_USER || rc == CURLUE_NO_PASSWORD);
}

static const char *url_read(pool_http_address *out, CURLU *u, const char *url) {
    const CURLUcode rc = curl_url_set(u, CURLUPART_URL, url, 0);
    if (rc) return curl_url_strerror(rc);
    if (!url_part(u, CURLUPART_USER, out->user, sizeof(out->user)) ||
        !url_part(u, CURLUPART_PASSWORD, out->password, sizeof(out->password)))
        return "user or password are invalid or too long";
    curl_url_set(u, CURLUPART_USER, NULL, 0);
    curl_url_set(u, CURLUPART_PASSWORD, NULL, 0);
    if (!url_part(u, CURLUPART_URL, out->base, sizeof(out->base))) return "it is too long";
    size_t n = strlen(out->base);
    while (n > 0 && out->base[n - 1] == '/') out->base[--n] = '\0';
    out->is_tls = strncmp(out->base, "https:", 6) == 0;
    return out->is_tls || strncmp(out->base, "http:", 5) == 0 ? NULL : "its scheme is neither https nor http";
}

int pool_http_url_read(pool_http_address *out, const char *url, const char *address, rp_error *err) {
    BASE_ASSERT(!strchr(url, '?'));
    CURLU *u = curl_url();
    if (!u) return base_fail(err, RP_ERR_MEMORY, "out of memory for a URL");
    const char *what = url_read(out, u, url);
    curl_url_cleanup(u);
    return what ? pool_http_address_wrong(address, what, err) : RP_OK;
}

/* ---- http and https ---- */

static int bearer_read(pool_http_address *out, const char *file, rp_error *err) {
    base_buffer b;
    int rc = base_file_read_secret(file, sizeof(out->token) - 1, "a pool's bearer token", &b, err);
    if (rc) return rc;
    size_t n = b.len;
    while (n > 0 && isspace((unsigned char)b.data[n - 1])) n--;
    snprintf(out->token, sizeof(out->token), "%.*s", (int)n, b.data ? b.data : "");
    if (b.data) sodium_memzero(b.data, b.len);
    base_buffer_free(&b);
    if (pool_http_is_plain(out->token)) return RP_OK;
    return base_fail(err, RP_ERR_INVALID, "a pool's bearer token: '%s' is not one line of printable characters", file);
}

int pool_http_address_read(pool_http_address *out, const char *address, rp_error *err) {
    char url[POOL_HTTP_URL_BYTES + 4 * POOL_HTTP_USER_BYTES], bearer_file[POOL_HTTP_FILE_BYTES] = "";
    const size_t n = strcspn(address, "?");
    *out = (pool_http_address){.is_s3 = false};
    const pool_http_option options[] = {{"ca", out->ca, sizeof(out->ca)},
                                        {"bearer_file", bearer_file, sizeof(bearer_file)}};
    if (strchr(address, '#')) return pool_http_address_wrong(address, "a fragment", err);
    if (n >= sizeof(url)) return pool_http_address_wrong(address, "it is too long", err);
    snprintf(url, sizeof(url), "%.*s", (int)n, address);
    int rc = pool_http_url_read(out, url, address, err);
    sodium_memzero(url, sizeof(url));
    if (!rc)
        rc = pool_http_options_read(address[n] ? address + n + 1 : "", options, BASE_ARRAY_LEN(options), address, err);
    if (!rc) rc = pool_http_ca_check(out, address, err);
    if (!rc && bearer_file[0] && out->user[0])
        rc = pool_http_address_wrong(address, "a user and a bearer token", err);
    if (!rc && bearer_file[0]) rc = bearer_read(out, bearer_file, err);
    return rc;
}
