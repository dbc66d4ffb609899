/* SPDX-License-Identifier: Apache-2.0 */
/* api_keys.h: who is who. A file has a line for each key:
 *
 *   HASH [tenant=NAME] [rights=request,schemas,share,operate,priority] [running=N] [ram=BYTES] [disk=BYTES]
 *
 * HASH is BLAKE2b of the key, 64 hexadecimal digits (rp_server_hash_key). Keys with the same tenant= share texts, states and schemas. A
 * key without it has a tenant of its own, "key:" and 32 digits that are derived from HASH: the same after a restart, and another one for
 * another key. rights default to request. running: exchanges of the key at one time. ram, disk: what the tenant may keep; of several lines of a tenant the last counts. '#' begins a comment line. Immutable but for the counts; any thread.
 */
#ifndef SERVER_API_KEYS_H
#define SERVER_API_KEYS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/hash.h"
#include "reprise.h"

#define SERVER_MAX_KEYS ((size_t)1 << 16)
#define SERVER_MAX_KEY_FILE ((size_t)32 << 20)

typedef struct server_key {
    base_key hash;
    char *tenant;        /* NULL: there is no file of keys, and everybody is the operator */
    unsigned rights;     /* of server_right */
    int max_running;     /* 0: any number */
    rp_quota quota;      /* the tenant's; zeros: none */
    _Atomic int running; /* exchanges */
} server_key;

typedef struct api_keys api_keys;

/* path NULL: no file; everybody is the operator. RP_ERR_IO, RP_ERR_FORMAT (with path:line), RP_ERR_LIMIT, RP_ERR_MEMORY. */
int api_keys_new(api_keys **out, const char *path, rp_error *err);
void api_keys_free(api_keys *keys);

/* Gives the tenants their quotas. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int api_keys_set_quotas(const api_keys *keys, rp_engine *engine, rp_error *err);
/* Whose this key is; NULL: nobody's. The time it takes depends on the number of keys alone. secret may be NULL. */
server_key *api_keys_find(api_keys *keys, const char *secret);
/* Counts an exchange of the key. false: it has as many as it may. */
bool api_keys_begin(server_key *key);
void api_keys_end(server_key *key);

#endif
