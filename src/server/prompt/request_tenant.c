/* SPDX-License-Identifier: Apache-2.0 */
/* request_tenant.c: see request_tenant.h. */
#include "server/prompt/request_tenant.h"

#include <string.h>

#include "server/prompt/generation.h"

/* A hash, so that no key can name the tenant that a salt makes. */
const char *request_tenant(const server_request *x, char salted[SERVER_SALTED_BYTES]) {
    base_key key;
    base_hash h;
    if (!x->gen->cache_salt || !x->gen->cache_salt[0]) return x->key->tenant;
    base_hash_init(&h, "reprise cache salt 1");
    base_hash_bytes(&h, x->key->tenant ? x->key->tenant : "", x->key->tenant ? strlen(x->key->tenant) : 0);
    base_hash_bytes(&h, x->gen->cache_salt, strlen(x->gen->cache_salt));
    base_hash_final(&h, &key);
    base_key_hex(&key, salted, SERVER_SALTED_BYTES - 1);
    return salted;
}
