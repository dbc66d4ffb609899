/* SPDX-License-Identifier: Apache-2.0 */
/* pool_s3_address.c: see pool_http_address.h: addresses of s3://. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "store/remote/pool_http_address.h"

#define PREFIX "s3://"
#define DEFAULT_REGION "us-east-1"
#define MAX_CREDENTIALS_BYTES ((size_t)64 << 10)
#define MIN_BUCKET 3
#define MAX_BUCKET 63
#define MAX_PREFIX 512

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* ---- credentials ---- */

/* One that is too long becomes an invalid one: it is not sent in part. */
static void set_secret(char *out, size_t n, const char *text, size_t n_text) {
    snprintf(out, n, "%.*s", (int)n_text, n_text < n ? text : " ");
}

/* A line of a file of the AWS tools: "NAME = VALUE", in section [default] or before the first. */
static void credentials_line(pool_http_address *out, const char *line, size_t n) {
    const char *value = memchr(line, '=', n);
    if (!value) return;
    size_t n_name = (size_t)(value++ - line), n_value = n - n_name - 1;
    while (n_name > 0 && isspace((unsigned char)line[n_name - 1])) n_name--;
    while (n_value > 0 && isspace((unsigned char)*value)) value++, n_value--;
    const struct {
        const char *name;
        char *out;
        size_t n;
    } known[] = {{"aws_access_key_id", out->user, sizeof(out->user)},
                 {"aws_secret_access_key", out->password, sizeof(out->password)},
                 {"aws_session_token", out->token, sizeof(out->token)}};
    for (size_t i = 0; i < BASE_ARRAY_LEN(known); i++)
        if (strlen(known[i].name) == n_name && strncmp(known[i].name, line, n_name) == 0)
            set_secret(known[i].out, known[i].n, value, n_value);
}

/* Two lines, or a file of the AWS tools: its first line is a section or has a '='. */
static void credentials_parse(pool_http_address *out, const char *text) {
    bool is_first = true, has_names = false, is_used = true;
    for (const char *line = text; *line;) {
        const char *next = line + strcspn(line, "\n");
        size_t n = (size_t)(next - line);
        while (n > 0 && isspace((unsigned char)line[n - 1])) n--;
        if (n > 0 && line[0] != '#') {
            if (is_first) has_names = line[0] == '[' || memchr(line, '=', n);
            if (has_names && line[0] == '[') is_used = n == 9 && strncmp(line, "[default]", n) == 0;
            else if (has_names && is_used) credentials_line(out, line, n);
            else if (!has_names && is_first) set_secret(out->user, sizeof(out->user), line, n);
            else if (!has_names && !out->password[0]) set_secret(out->password, sizeof(out->password), line, n);
            is_first = false;
        }
        line = next + (*next != '\0');
    }
}

static int credentials_read(pool_http_address *out, const char *file, rp_error *err) {
    base_buffer b;
    int rc = base_file_read_secret(file, MAX_CREDENTIALS_BYTES, "a pool's credentials", &b, err);
    if (rc) return rc;
    if (b.data) {
        credentials_parse(out, b.data);
        sodium_memzero(b.data, b.len);
    }
    base_buffer_free(&b);
    return RP_OK;
}

static int credentials_find(pool_http_address *out, const char *file, const char *address, rp_error *err) {
    if (file[0]) {
        const int rc = credentials_read(out, file, err);
        if (rc) return rc;
    } else {
        const char *user = getenv("AWS_ACCESS_KEY_ID"), *password = getenv("AWS_SECRET_ACCESS_KEY"),
                   *token = getenv("AWS_SESSION_TOKEN");
        if (user) set_secret(out->user, sizeof(out->user), user, strlen(user));
        if (password) set_secret(out->password, sizeof(out->password), password, strlen(password));
        if (token) set_secret(out->token, sizeof(out->token), token, strlen(token));
    }
    if (pool_http_is_plain(out->user) && pool_http_is_plain(out->password) &&
        (!out->token[0] || pool_http_is_plain(out->token)))
        return RP_OK;
    const char *what = file[0] ? "its credentials_file has no access key and secret key"
                               : "no credentials_file, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    return pool_http_address_wrong(address, what, err);
}

/* ---- bucket, prefix and endpoint ---- */

/* Characters that no server and no signature encodes, and no segment that a server would resolve. */
static bool is_prefix(const char *prefix) {
    if (prefix[strspn(prefix, LETTERS "-_.~/")] != '\0') return false;
    for (const char *at = prefix; *at;) {
        const size_t n = strcspn(at, "/");
        if (n == 0 || (n <= 2 && strspn(at, ".") == n)) return false;
        at += n + (at[n] == '/');
    }
    return true;
}

static bool is_amazon(const char *host) {
    static const char *const names[] = {".amazonaws.com", ".amazonaws.com.cn"};
    const size_t n = strcspn(host, ":");
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        const size_t length = strlen(names[i]);
        if (n > length && strncmp(host + n - length, names[i], length) == 0) return true;
    }
    return false;
}

/* base: from the endpoint's URL to that of the prefix. */
static int place_bucket(pool_http_address *out, const char *bucket, const char *prefix, const char *style,
                        const char *address, rp_error *err) {
    char endpoint[POOL_HTTP_URL_BYTES];
    memcpy(endpoint, out->base, sizeof(endpoint));
    BASE_ASSERT(strstr(endpoint, "://"));
    char *host = strstr(endpoint, "://") + 3;
    if (strchr(host, '/')) return pool_http_address_wrong(address, "its endpoint has a path", err);
    const bool is_virtual = style[0] ? strcmp(style, "virtual") == 0 : is_amazon(host);
    const char *slash = prefix[0] ? "/" : "";
    const int n = is_virtual ? snprintf(out->base, sizeof(out->base), "%.*s%s.%s%s%s", (int)(host - endpoint), endpoint,
                                        bucket, host, slash, prefix)
                             : snprintf(out->base, sizeof(out->base), "%s/%s%s%s", endpoint, bucket, slash, prefix);
    return n < (int)sizeof(out->base) ? RP_OK : pool_http_address_wrong(address, "it is too long", err);
}

/* Splits BUCKET/PREFIX. */
static int bucket_read(const char *address, char bucket[MAX_BUCKET + 1], char prefix[MAX_PREFIX + 1], rp_error *err) {
    const char *at = address + strlen(PREFIX);
    const size_t n = strcspn(at, "/?");
    if (n < MIN_BUCKET || n > MAX_BUCKET || strspn(at, LETTERS "-_.") < n || strspn(at, LETTERS) == 0)
        return pool_http_address_wrong(address, "invalid name of a bucket", err);
    snprintf(bucket, MAX_BUCKET + 1, "%.*s", (int)n, at);
    at += n + (at[n] == '/');
    size_t n_prefix = strcspn(at, "?");
    while (n_prefix > 0 && at[n_prefix - 1] == '/') n_prefix--;
    snprintf(prefix, MAX_PREFIX + 1, "%.*s", (int)BASE_MIN(n_prefix, (size_t)MAX_PREFIX), at);
    if (n_prefix <= MAX_PREFIX && is_prefix(prefix)) return RP_OK;
    return pool_http_address_wrong(address, "a prefix has letters, digits and -_.~ between single '/'", err);
}

static int region_find(pool_http_address *out, const char *address, rp_error *err) {
    const char *region = getenv("AWS_REGION");
    if (out->region[0]) region = NULL;
    else if (!region || !region[0]) region = DEFAULT_REGION;
    if (region && strlen(region) < sizeof(out->region)) snprintf(out->region, sizeof(out->region), "%s", region);
    const bool is_fine = out->region[0] && strspn(out->region, LETTERS "-_") == strlen(out->region);
    return is_fine ? RP_OK : pool_http_address_wrong(address, "invalid region", err);
}

static int endpoint_find(pool_http_address *out, const char *option, const char *address, rp_error *err) {
    char url[POOL_HTTP_URL_BYTES];
    const char *endpoint = option[0] ? option : getenv("AWS_ENDPOINT_URL");
    snprintf(url, sizeof(url), "https://s3.%s.amazonaws.com", out->region);
    if (endpoint && strcspn(endpoint, "?#@") < strlen(endpoint))
        return pool_http_address_wrong(address, "its endpoint has more than a host and a port", err);
    return pool_http_url_read(out, endpoint && endpoint[0] ? endpoint : url, address, err);
}

int pool_s3_address_read(pool_http_address *out, const char *address, rp_error *err) {
    char bucket[MAX_BUCKET + 1] = "", prefix[MAX_PREFIX + 1] = "", style[8] = "";
    char endpoint[POOL_HTTP_FILE_BYTES] = "", credentials_file[POOL_HTTP_FILE_BYTES] = "";
    const char *query = strchr(address, '?');
    BASE_ASSERT(strncmp(address, PREFIX, strlen(PREFIX)) == 0);
    *out = (pool_http_address){.is_s3 = true};
    const pool_http_option options[] = {
        {"endpoint", endpoint, sizeof(endpoint)},
        {"region", out->region, sizeof(out->region)},
        {"style", style, sizeof(style)},
        {"credentials_file", credentials_file, sizeof(credentials_file)},
        {"ca", out->ca, sizeof(out->ca)},
    };
    int rc = bucket_read(address, bucket, prefix, err);
    if (!rc) rc = pool_http_options_read(query ? query + 1 : "", options, BASE_ARRAY_LEN(options), address, err);
    if (!rc && style[0] && strcmp(style, "path") != 0 && strcmp(style, "virtual") != 0)
        rc = pool_http_address_wrong(address, "its style is neither path nor virtual", err);
    if (!rc) rc = region_find(out, address, err);
    if (!rc) rc = endpoint_find(out, endpoint, address, err);
    if (!rc) rc = place_bucket(out, bucket, prefix, style, address, err);
    if (!rc) rc = pool_http_ca_check(out, address, err);
    return rc ? rc : credentials_find(out, credentials_file, address, err);
}
