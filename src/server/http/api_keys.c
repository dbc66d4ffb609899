/* SPDX-License-Identifier: Apache-2.0 */
/* api_keys.c: see api_keys.h. */
#define _POSIX_C_SOURCE 200809L /* strtok_r */
#include "server/http/api_keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "reprise_server.h"
#include "server/http/routing.h"

#define MAX_RUNNING 65536
#define OWN_TENANT_DIGITS 32 /* 128 bits: nobody who sees other names can guess one, and no two keys have the same */

struct api_keys {
    server_key *keys;
    size_t n, cap;
    bool open; /* no file */
    server_key everybody;
};

static void hash_secret(const char *secret, base_key *out) {
    base_hash h;
    base_hash_init(&h, "reprise api key 1");
    base_hash_bytes(&h, secret, strlen(secret));
    base_hash_final(&h, out);
}

int rp_server_hash_key(const char *key, char hash[RP_SERVER_HASH_DIGITS + 1], rp_error *err) {
    size_t n = strlen(key);
    base_key hashed;
    bool printable = true;
    for (size_t i = 0; i < n; i++) printable &= key[i] > ' ' && key[i] <= '~';
    if (n < RP_SERVER_MIN_KEY_BYTES || n > RP_SERVER_MAX_KEY_BYTES || !printable)
        return base_fail(
            err, RP_ERR_INVALID,
            "a key is %d to %d printable characters without white space: make one with 'openssl rand -hex 24'",
            RP_SERVER_MIN_KEY_BYTES, RP_SERVER_MAX_KEY_BYTES);
    hash_secret(key, &hashed);
    base_key_hex(&hashed, hash, RP_SERVER_HASH_DIGITS);
    return RP_OK;
}

/* ---- the file ---- */

static bool parse_rights(char *text, unsigned *out) {
    static const struct {
        const char *name;
        unsigned right;
    } names[] = {
        {"request", SERVER_REQUEST},
        {"schemas", SERVER_SCHEMAS},
        {"share", SERVER_SHARE},
        {"operate", SERVER_OPERATE},
        {"priority", SERVER_PRIORITY},
    };
    char *rest = text;
    *out = 0;
    for (char *word; (word = strtok_r(rest, ",", &rest));) {
        unsigned right = 0;
        for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
            if (strcmp(word, names[i].name) == 0) right = names[i].right;
        if (!right) return false;
        *out |= right;
    }
    return *out != 0;
}

static bool api_keys_parse_count(const char *text, int *out) {
    char *end = NULL;
    errno = 0;
    long v = strtol(text, &end, 10);
    *out = (int)v;
    return errno == 0 && end != text && *end == '\0' && v >= 1 && v <= MAX_RUNNING;
}

/* "500M" */
static bool parse_bytes(const char *text, uint64_t *out) {
    static const char units[] = "KMGT";
    char *end = NULL;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    *out = (uint64_t)n << shift;
    return errno == 0 && *text >= '1' && *text <= '9' && n <= UINT64_MAX >> shift && (unit ? end[1] : *end) == '\0';
}

static bool parse_auto(const char *text, int *out) {
    static const char *const names[] = {[RP_AUTO_OFF] = "off", [RP_AUTO_ASK] = "ask", [RP_AUTO_ON] = "on"};
    for (*out = 0; *out < (int)BASE_ARRAY_LEN(names) && strcmp(text, names[*out]) != 0;) ++*out;
    return *out < (int)BASE_ARRAY_LEN(names);
}

/* NULL, or the error in the word. */
static const char *parse_word(server_key *k, char *word) {
    static const char bytes[] = "ram and disk are sizes in bytes, with K, M, G or T";
    char *value = strchr(word, '=');
    if (!value) return "give NAME=VALUE after the hash";
    *value++ = '\0';
    if (strcmp(word, "rights") == 0)
        return parse_rights(value, &k->rights)
                   ? NULL
                   : "rights are request, schemas, share, operate and priority, separated by commas";
    if (strcmp(word, "running") == 0)
        return api_keys_parse_count(value, &k->max_running) ? NULL : "running is a number from 1 to 65536";
    if (strcmp(word, "ram") == 0) return parse_bytes(value, &k->quota.kv_bytes) ? NULL : bytes;
    if (strcmp(word, "disk") == 0) return parse_bytes(value, &k->quota.store_bytes) ? NULL : bytes;
    if (strcmp(word, "kv") == 0) {
        for (int32_t i = 0; (k->kv_format = rp_kv_format_name(i)) != NULL && strcmp(value, k->kv_format) != 0;) i++;
        return k->kv_format ? NULL : "kv is one of" RP_KV_FORMAT_NAMES;
    }
    if (strcmp(word, "reuse") == 0) {
        k->reuse = strcmp(value, "on") == 0 ? "on" : strcmp(value, "modular") == 0 ? "modular"
                                                                                   : NULL;
        return k->reuse ? NULL : "reuse is on or modular";
    }
    if (strcmp(word, "auto") == 0) return parse_auto(value, &k->auto_reuse) ? NULL : "auto is off, ask or on";
    if (strcmp(word, "tenant") != 0) return "unknown name: use tenant, rights, running, ram, disk, kv, reuse or auto";
    if (k->tenant) return "a key has only one tenant";
    if (!value[0] || strlen(value) > RP_MAX_TENANT_BYTES) return "a tenant's name has 1 to 256 bytes";
    k->tenant = base_strdup(value);
    return k->tenant ? NULL : "out of memory";
}

/* A tenant that this key alone has, derived from its hash so that it is the same after a restart. NULL: no memory. */
static char *own_tenant(const base_key *hash) {
    char name[sizeof("key:") + OWN_TENANT_DIGITS] = "key:";
    base_hash h;
    base_key derived;
    base_hash_init(&h, "reprise tenant of a key 1");
    base_hash_bytes(&h, hash->bytes, sizeof(hash->bytes));
    base_hash_final(&h, &derived);
    base_key_hex(&derived, name + strlen(name), OWN_TENANT_DIGITS);
    return base_strdup(name);
}

static const char *parse_line(server_key *k, char *line) {
    char *rest = line, *hash = strtok_r(rest, " \t\r", &rest);
    if (strlen(hash) != 2 * BASE_KEY_BYTES || !base_key_parse(&k->hash, hash))
        return "a line begins with the hash of a key, 64 hexadecimal digits (rp_server_hash_key)";
    k->rights = SERVER_REQUEST;
    for (char *word; (word = strtok_r(rest, " \t\r", &rest));) {
        const char *wrong = parse_word(k, word);
        if (wrong) return wrong;
    }
    if (!k->tenant && !(k->tenant = own_tenant(&k->hash))) return "out of memory";
    return NULL;
}

static int add_line(api_keys *keys, const char *path, int number, char *line, rp_error *err) {
    char where[RP_ERROR_WHERE_BYTES];
    line += strspn(line, " \t\r");
    if (!*line || *line == '#') return RP_OK;
    int rc = base_grow((void **)&keys->keys, &keys->cap, keys->n + 1, SERVER_MAX_KEYS, sizeof(*keys->keys));
    if (rc) return base_fail(err, rc, "%s: out of memory: key %zu", path, keys->n + 1);
    server_key *k = &keys->keys[keys->n++];
    *k = (server_key){.auto_reuse = -1};
    const char *wrong = parse_line(k, line);
    if (!wrong) return RP_OK;
    snprintf(where, sizeof(where), "%.200s:%d", path, number);
    return base_fail_at(err, RP_ERR_FORMAT, where, 0, "%s", wrong);
}

static int compare_tenants(const void *a, const void *b) {
    const server_key *x = *(server_key *const *)a, *y = *(server_key *const *)b;
    const int order = strcmp(x->tenant, y->tenant);
    return order ? order : (x > y) - (x < y); /* as in the file */
}

/* Calls a function for the keys of each tenant, in the order of the file. */
static int api_keys_visit_tenants(api_keys *keys, int (*visit)(server_key *const *of_tenant, size_t n, void *user),
                                  void *user, rp_error *err) {
    int rc = RP_OK;
    BASE_ASSERT(keys->n > 0); /* a file without keys is refused */
    server_key **sorted = base_alloc(keys->n * sizeof(*sorted));
    if (!sorted) return base_fail_memory(err, keys->n * sizeof(*sorted), "keys");
    for (size_t i = 0; i < keys->n; i++) sorted[i] = &keys->keys[i];
    qsort(sorted, keys->n, sizeof(*sorted), compare_tenants);
    for (size_t i = 0, end; i < keys->n && !rc; i = end) {
        for (end = i + 1; end < keys->n && strcmp(sorted[end]->tenant, sorted[i]->tenant) == 0;) end++;
        rc = visit(&sorted[i], end - i, user);
    }
    base_free(sorted);
    return rc ? base_fail_memory(err, keys->n * sizeof(**sorted), "keys") : RP_OK;
}

/* All keys of a tenant have the KV format of the last of its lines that has one. */
static int share_format(server_key *const *of_tenant, size_t n, void *user) {
    const char *format = NULL;
    (void)user;
    for (size_t i = 0; i < n; i++)
        if (of_tenant[i]->kv_format) format = of_tenant[i]->kv_format;
    for (size_t i = 0; i < n; i++) of_tenant[i]->kv_format = format;
    return RP_OK;
}

static int api_keys_read_file(api_keys *keys, const char *path, rp_error *err) {
    base_buffer text = {0};
    int rc = base_file_read_text(path, SERVER_MAX_KEY_FILE, &text, err), number = 1;
    if (rc) return rc;
    for (char *line = text.data, *end; line && !rc; line = end, number++) {
        end = strchr(line, '\n');
        if (end) *end++ = '\0';
        rc = add_line(keys, path, number, line, err);
    }
    if (!rc && keys->n == 0) rc = base_fail(err, RP_ERR_FORMAT, "%s: contains no keys", path);
    if (!rc) rc = api_keys_visit_tenants(keys, share_format, NULL, err);
    base_buffer_free(&text);
    return rc;
}

/* ---- public ---- */

int api_keys_new(api_keys **out, const char *path, rp_error *err) {
    api_keys *keys = base_calloc(1, sizeof(*keys));
    *out = NULL;
    if (!keys) return base_fail_memory(err, sizeof(*keys), "keys");
    keys->open = path == NULL;
    keys->everybody.auto_reuse = -1;
    keys->everybody.rights = SERVER_REQUEST | SERVER_SCHEMAS | SERVER_SHARE | SERVER_OPERATE | SERVER_PRIORITY;
    int rc = path ? api_keys_read_file(keys, path, err) : RP_OK;
    if (rc) api_keys_free(keys);
    else *out = keys;
    return rc;
}

void api_keys_free(api_keys *keys) {
    if (!keys) return;
    for (size_t i = 0; i < keys->n; i++) {
        BASE_ASSERT(atomic_load(&keys->keys[i].running) == 0); /* their requests have ended */
        base_free(keys->keys[i].tenant);
        base_budget_unref(keys->keys[i].memory);
    }
    base_free(keys->keys);
    base_free(keys);
}

int api_keys_set_quotas(const api_keys *keys, rp_engine *engine, rp_error *err) {
    int rc = RP_OK;
    for (size_t i = 0; i < keys->n && !rc; i++) {
        const server_key *k = &keys->keys[i];
        if (k->quota.kv_bytes || k->quota.store_bytes) rc = rp_engine_set_quota(engine, k->tenant, &k->quota, err);
    }
    return rc;
}

typedef struct memory_limits {
    base_budget *all;
    uint64_t limit;
} memory_limits;

static int share_memory(server_key *const *of_tenant, size_t n, void *user) {
    const memory_limits *m = user;
    BASE_ASSERT(n > 0 && !of_tenant[0]->memory && !of_tenant[0]->bodies); /* once */
    of_tenant[0]->memory = base_budget_new(m->all, m->limit);
    for (size_t i = 1; i < n; i++) of_tenant[i]->memory = base_budget_ref(of_tenant[0]->memory);
    for (size_t i = 0; i < n; i++) of_tenant[i]->bodies = &of_tenant[0]->own_bodies;
    return of_tenant[0]->memory ? RP_OK : RP_ERR_MEMORY;
}

int api_keys_limit_memory(api_keys *keys, base_budget *all, uint64_t limit, rp_error *err) {
    memory_limits m = {all, limit};
    return keys->open ? RP_OK : api_keys_visit_tenants(keys, share_memory, &m, err);
}

const char *api_keys_kv_format(const api_keys *keys, const char *tenant) {
    for (size_t i = 0; i < keys->n && tenant; i++)
        if (strcmp(keys->keys[i].tenant, tenant) == 0) return keys->keys[i].kv_format;
    return NULL;
}

server_key *api_keys_find(api_keys *keys, const char *secret) {
    base_key hash;
    server_key *found = NULL;
    if (keys->open) return &keys->everybody;
    if (!secret || strlen(secret) > RP_SERVER_MAX_KEY_BYTES) return NULL;
    hash_secret(secret, &hash);
    for (size_t i = 0; i < keys->n; i++) /* to the end, wherever it is found */
        if (sodium_memcmp(hash.bytes, keys->keys[i].hash.bytes, BASE_KEY_BYTES) == 0) found = &keys->keys[i];
    BASE_ASSERT(!found || found->tenant);
    return found;
}

bool api_keys_begin(server_key *key) {
    int running = atomic_fetch_add(&key->running, 1) + 1;
    BASE_ASSERT(running > 0);
    if (key->max_running == 0 || running <= key->max_running) return true;
    atomic_fetch_sub(&key->running, 1);
    return false;
}

void api_keys_end(server_key *key) {
    const int running = atomic_fetch_sub(&key->running, 1);
    BASE_ASSERT(running > 0);
}
