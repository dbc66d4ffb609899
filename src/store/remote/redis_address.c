/* SPDX-License-Identifier: Apache-2.0 */
/* redis_address.c: see redis_address.h. */
#include "store/remote/redis_address.h"

#include <sodium.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#define PORT 6379
#define SENTINEL_PORT 26379
#define MAX_DB 65535
#define EXPECTED "redis://[USER:PASSWORD@]HOST[:PORT][,HOST...][/DB][?OPTIONS]"

/* Bytes of an address. */
typedef struct text {
    const char *at;
    size_t n;
} text;

static text text_until(const char *at, const char *ends) { return (text){at, strcspn(at, ends)}; }

static bool text_is(text t, const char *word) { return strlen(word) == t.n && memcmp(t.at, word, t.n) == 0; }

/* A number without signs, spaces and leading zeros. */
static bool text_number(text t, uint32_t most, uint32_t *out) {
    uint64_t n = 0;
    if (t.n == 0 || t.n > 10 || (t.at[0] == '0' && t.n > 1)) return false;
    for (size_t i = 0; i < t.n; i++) {
        if (t.at[i] < '0' || t.at[i] > '9') return false;
        n = n * 10 + (uint64_t)(t.at[i] - '0');
    }
    *out = (uint32_t)n;
    return n <= most;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Percent-decoded, into *out (base_free). `what` is in the message, the text is not. */
static int text_decode(text t, const char *what, char **out, rp_error *err) {
    if (t.n > REDIS_MAX_WORD)
        return base_fail(err, RP_ERR_INVALID, "%s of a pool's address has more than %d bytes", what, REDIS_MAX_WORD);
    char *word = *out = base_alloc(t.n + 1);
    if (!word) return base_fail_memory(err, t.n + 1, "a pool");
    for (size_t i = 0; i < t.n; i++) {
        if (t.at[i] != '%') {
            *word++ = t.at[i];
            continue;
        }
        const int high = i + 2 < t.n ? hex_digit(t.at[i + 1]) : -1, low = i + 2 < t.n ? hex_digit(t.at[i + 2]) : -1;
        if (high < 0 || low < 0 || high + low == 0)
            return *word = '\0',
                   base_fail(err, RP_ERR_INVALID,
                             "%s of a pool's address has a %% that two digits of a byte must follow: write %%25 for %%",
                             what);
        *word++ = (char)(high * 16 + low);
        i += 2;
    }
    BASE_ASSERT((size_t)(word - *out) <= t.n);
    *word = '\0';
    return RP_OK;
}

/* ---- parts ---- */

static int read_user(redis_address *a, text t, rp_error *err) {
    const char *colon = memchr(t.at, ':', t.n);
    const text user = {t.at, colon ? (size_t)(colon - t.at) : t.n};
    int rc = user.n > 0 ? text_decode(user, "the user", &a->user, err) : RP_OK;
    if (!rc && colon) rc = text_decode((text){colon + 1, t.n - user.n - 1}, "the password", &a->password, err);
    return rc;
}

static bool is_host_name(text t, bool is_bracketed) {
    for (size_t i = 0; i < t.n; i++) {
        const char c = t.at[i];
        const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
        if (!is_plain && (is_bracketed ? c != ':' && c != '%' : c != '-' && c != '_')) return false;
    }
    return t.n > 0 && t.n < REDIS_HOST_BYTES;
}

/* Port 0: the default. */
static int read_host(redis_address *a, text t, rp_error *err) {
    const bool is_bracketed = t.n > 0 && t.at[0] == '[';
    const char *close = is_bracketed ? memchr(t.at, ']', t.n) : NULL;
    const char *colon = memchr(close ? close : t.at, ':', close ? t.n - (size_t)(close - t.at) : t.n);
    text name = {t.at, colon ? (size_t)(colon - t.at) : t.n};
    uint32_t port = 0;
    if (close) {
        if (close + 1 != name.at + name.n) name.n = 0;
        else name = (text){t.at + 1, (size_t)(close - t.at) - 1};
    }
    if (!is_host_name(name, close != NULL))
        return base_fail(err, RP_ERR_INVALID,
                         "host %d of a pool's address is not the name of a host: use " EXPECTED ", with "
                         "%%2F, %%3F and %%40 for /, ? and @ in a password",
                         a->n_hosts + 1);
    if (colon && (!text_number((text){colon + 1, t.n - (size_t)(colon + 1 - t.at)}, UINT16_MAX, &port) || port == 0))
        return base_fail(err, RP_ERR_INVALID, "the port of host %d of a pool's address is not a number of 1 to 65535",
                         a->n_hosts + 1);
    BASE_ASSERT(a->n_hosts <= REDIS_MAX_HOSTS);
    if (a->n_hosts == REDIS_MAX_HOSTS)
        return base_fail(err, RP_ERR_INVALID, "the address of a pool has more than %d hosts", REDIS_MAX_HOSTS);
    redis_host *h = &a->hosts[a->n_hosts++];
    memcpy(h->name, name.at, name.n);
    h->name[name.n] = '\0';
    h->port = (uint16_t)port;
    return RP_OK;
}

static int read_hosts(redis_address *a, text t, rp_error *err) {
    int rc = RP_OK;
    for (const char *at = t.at, *end = t.at + t.n; !rc && at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const text host = {at, (size_t)((comma ? comma : end) - at)};
        rc = read_host(a, host, err);
        at += host.n + 1;
    }
    return rc;
}

/* ---- options ---- */

/* Two of them are no words. */
static const char *const option_names[] = {"cluster", "ttl", "sentinel", "prefix",
                                           "password_file", "ca", "cert", "key"};
#define N_OPTIONS (sizeof(option_names) / sizeof(option_names[0]))

static int read_option(redis_address *a, text name, text value, unsigned *seen, rp_error *err) {
    static const char *const modes[] = {"auto", "yes", "no"};
    char **const words[N_OPTIONS] = {NULL, NULL, &a->sentinel, &a->prefix, &a->password_file,
                                     &a->ca, &a->cert, &a->key};
    size_t k = 0;
    while (k < N_OPTIONS && !text_is(name, option_names[k])) k++;
    if (k == N_OPTIONS)
        return base_fail(err, RP_ERR_INVALID,
                         "'%.*s' is not an option of a pool on Redis: use cluster, sentinel, prefix, "
                         "ttl, password_file, ca, cert, key",
                         name.n > 40 ? 40 : (int)name.n, name.at);
    if (*seen & 1u << k)
        return base_fail(err, RP_ERR_INVALID, "option '%s' of a pool's address is given twice", option_names[k]);
    *seen |= 1u << k;
    if (words[k] && value.n > 0) return text_decode(value, option_names[k], words[k], err);
    if (words[k])
        return base_fail(err, RP_ERR_INVALID, "option '%s' of a pool's address has no value", option_names[k]);
    if (k == 1) {
        if (text_number(value, REDIS_MAX_TTL_S, &a->ttl_s)) return RP_OK;
        return base_fail(err, RP_ERR_INVALID, "option 'ttl' of a pool's address is not a number of seconds, 0 to %d",
                         REDIS_MAX_TTL_S);
    }
    for (int mode = REDIS_CLUSTER_AUTO; mode <= REDIS_CLUSTER_NO; mode++)
        if (text_is(value, modes[mode])) return a->cluster = (redis_cluster_mode)mode, RP_OK;
    return base_fail(err, RP_ERR_INVALID, "option 'cluster' of a pool's address is not auto, yes or no");
}

static int read_options(redis_address *a, const char *at, rp_error *err) {
    unsigned seen = 0;
    int rc = RP_OK;
    while (!rc) {
        const text name = text_until(at, "=&");
        const text value = text_until(name.at + name.n + (name.at[name.n] == '='), "&");
        rc = read_option(a, name, value, &seen, err);
        at = value.at + value.n;
        if (*at++ == '\0') break;
    }
    return rc;
}

/* Settings that exclude or need each other. */
static int check_settings(const redis_address *a, rp_error *err) {
    const char *wrong = NULL;
    if (a->cluster == REDIS_CLUSTER_YES && a->sentinel) wrong = "cluster=yes and sentinel exclude each other";
    else if (a->cluster == REDIS_CLUSTER_YES && a->db > 0) wrong = "a cluster has database 0 alone";
    else if (a->password && a->password_file) wrong = "a password and password_file exclude each other";
    else if (a->user && !a->password && !a->password_file)
        wrong = "a user needs a password: USER:PASSWORD@, or password_file";
    else if (!a->is_tls && (a->ca || a->cert || a->key)) wrong = "ca, cert and key are of TLS: use rediss://";
    else if (!a->cert != !a->key) wrong = "cert and key need each other";
    else if (a->prefix && strlen(a->prefix) > REDIS_MAX_PREFIX) wrong = "prefix has more than 64 bytes";
    for (const char *c = a->prefix ? a->prefix : ""; *c; c++) /* braces would choose the node of a key */
        if (*c <= ' ' || *c > '~' || *c == '{' || *c == '}')
            wrong = "prefix has a space, a brace or no printable ASCII";
    return wrong ? base_fail(err, RP_ERR_INVALID, "the address of a pool on Redis: %s", wrong) : RP_OK;
}

static int read_password(redis_address *a, rp_error *err) {
    base_buffer b = BASE_BUFFER(REDIS_MAX_WORD);
    int rc = base_file_read_secret(a->password_file, REDIS_MAX_WORD, "the password of a pool", &b, err);
    size_t n = b.len;
    while (n > 0 && (b.data[n - 1] == '\n' || b.data[n - 1] == '\r')) n--;
    if (!rc && (n == 0 || memchr(b.data, '\0', n)))
        rc = base_fail(err, RP_ERR_INVALID, "'%s' has no password of a pool: a line of text", a->password_file);
    if (!rc && !(a->password = base_strndup(b.data, n))) rc = base_fail_memory(err, n + 1, "a pool");
    if (b.data) sodium_memzero(b.data, b.len);
    base_buffer_free(&b);
    return rc;
}

int redis_address_parse(redis_address *out, const char *address, rp_error *err) {
    *out = (redis_address){.is_tls = strncmp(address, REDIS_TLS_SCHEME, strlen(REDIS_TLS_SCHEME)) == 0};
    BASE_ASSERT(out->is_tls || strncmp(address, REDIS_SCHEME, strlen(REDIS_SCHEME)) == 0);
    const char *at = address + strlen(out->is_tls ? REDIS_TLS_SCHEME : REDIS_SCHEME);
    int rc = RP_OK;
    const text user = text_until(at, "@/?");
    if (at[user.n] == '@') rc = read_user(out, user, err), at += user.n + 1;
    const text hosts = text_until(at, "/?");
    if (!rc) rc = read_hosts(out, hosts, err);
    at += hosts.n;
    if (!rc && *at == '/') {
        const text db = text_until(at + 1, "?");
        if (db.n > 0 && !text_number(db, MAX_DB, &out->db))
            rc = base_fail(err, RP_ERR_INVALID, "the address of a pool on Redis has more than the number of a database "
                                                "after its hosts: use " EXPECTED);
        at = db.at + db.n;
    }
    if (!rc && *at == '?') rc = read_options(out, at + 1, err);
    if (!rc) rc = check_settings(out, err);
    if (!rc && out->password_file) rc = read_password(out, err);
    for (int i = 0; i < out->n_hosts; i++)
        if (out->hosts[i].port == 0) out->hosts[i].port = out->sentinel ? SENTINEL_PORT : PORT;
    return rc;
}

void redis_address_free(redis_address *a) {
    if (a->password) sodium_memzero(a->password, strlen(a->password));
    char *const words[] = {a->user, a->password, a->sentinel, a->prefix, a->password_file, a->ca, a->cert, a->key};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) base_free(words[i]);
    *a = (redis_address){0};
}
