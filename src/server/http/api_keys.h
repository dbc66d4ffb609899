/* SPDX-License-Identifier: Apache-2.0 */
/* api_keys.h: API keys, their tenants, rights and quotas. A key file has a line per key:
 *
 *   HASH [tenant=NAME] [rights=request,schemas,share,operate,priority] [running=N] [ram=BYTES] [disk=BYTES]
 *        [kv=FORMAT] [reuse=on|modular] [auto=off|ask|on]
 *
 * HASH is BLAKE2b of the key, 64 hexadecimal digits (rp_server_hash_key). Keys with the same tenant= share cached text,
 * modules and schemas. A key without it has a tenant of its own, "key:" and 32 digits derived from HASH: stable across
 * restarts, and different for each key. rights: default request. running: maximum concurrent requests of the key. ram,
 * disk: quotas of the tenant; kv: KV format of its modules, if they name none. The last of the tenant's lines counts.
 * reuse: of the key's requests that name none; else the server's. auto: whether its requests may have automatic
 * modules, and have them unless they say otherwise; else the server's. '#' begins a comment line. Immutable except the
 * counts; any thread.
 */
#ifndef SERVER_API_KEYS_H
#define SERVER_API_KEYS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/budget.h"
#include "base/hash.h"
#include "reprise.h"

#define SERVER_MAX_KEYS ((size_t)1 << 16)
#define SERVER_MAX_KEY_FILE ((size_t)32 << 20)

typedef struct server_key {
    base_key hash;
    char *tenant;                /* NULL: no key file, every client is the operator */
    unsigned rights;             /* of server_right */
    int max_running;             /* 0: any number */
    rp_quota quota;              /* the tenant's; zeros: none */
    const char *reuse;           /* "on" or "modular"; NULL: the server's. Static */
    int auto_reuse;              /* rp_auto_reuse; -1: the server's */
    const char *kv_format;       /* the tenant's: rp_schema_options.kv_format; NULL: none. Static */
    _Atomic int running;         /* current requests */
    base_budget *memory;         /* the tenant's, of its requests; NULL: no key file */
    _Atomic uint64_t *bodies;    /* bytes of the tenant's bodies in memory; NULL likewise */
    _Atomic uint64_t own_bodies; /* that of the tenant's first key */
} server_key;

typedef struct api_keys api_keys;

/* path NULL: no file; every client is the operator. RP_ERR_IO, RP_ERR_FORMAT (with path:line), RP_ERR_LIMIT,
 * RP_ERR_MEMORY. */
int api_keys_new(api_keys **out, const char *path, rp_error *err);
void api_keys_free(api_keys *keys);

/* Sets the quotas of the tenants. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int api_keys_set_quotas(const api_keys *keys, rp_engine *engine, rp_error *err);
/* Limits the memory of each tenant's requests within `all`. Once, before requests. RP_ERR_MEMORY. */
int api_keys_limit_memory(api_keys *keys, base_budget *all, uint64_t limit, rp_error *err);
/* The KV format of a tenant; NULL: none. */
const char *api_keys_kv_format(const api_keys *keys, const char *tenant);
/* Finds a key by its secret (may be NULL); NULL: unknown. The duration depends only on the number of keys. */
server_key *api_keys_find(api_keys *keys, const char *secret);
/* Counts a request of the key. false: it is at its limit. */
bool api_keys_begin(server_key *key);
void api_keys_end(server_key *key);

#endif
