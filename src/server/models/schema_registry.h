/* SPDX-License-Identifier: Apache-2.0 */
/* schema_registry.h: the texts of schemas uploaded by HTTP, by tenant and name, and when each was changed. In a cluster
 * the latest change of a schema counts, wherever it was made (docs/cluster.md): the registry therefore also remembers
 * removals, the last SERVER_MAX_REGISTRY of them. Any thread; its lock is below all others. */
#ifndef SERVER_SCHEMA_REGISTRY_H
#define SERVER_SCHEMA_REGISTRY_H

#include "base/buffer.h"
#include "server/core/problem.h"

#define SERVER_MAX_REGISTRY 4096                      /* schemas */
#define SERVER_MAX_REGISTRY_BYTES ((size_t)256 << 20) /* of their texts */
#define SERVER_MAX_TENANT_REGISTRY 1024               /* of a tenant */
#define SERVER_MAX_TENANT_REGISTRY_BYTES ((size_t)64 << 20)

typedef struct schema_registry schema_registry;

/* A schema, or its removal. */
typedef struct schema_entry {
    const char *tenant; /* NULL: the operator's, which all tenants share */
    const char *name;
    const char *text; /* [n]; NULL: it was removed */
    size_t n;
    uint64_t changed; /* nanoseconds since 1970, of the last change; no two changes of a schema have the same */
} schema_entry;

int schema_registry_new(schema_registry **out, rp_error *err);
void schema_registry_free(schema_registry *s);

/* Does a text of n bytes fit for the tenant's schema of that name? RP_OK, or RP_ERR_LIMIT with the exceeded limit
 * and the remedy. tenant may be NULL. */
int schema_registry_check(schema_registry *s, const char *tenant, const char *name, size_t n, rp_error *err);
/* Stores a copy; replaces an existing one. RP_ERR_LIMIT, RP_ERR_MEMORY. */
int schema_registry_put(schema_registry *s, const schema_entry *e);
/* Appends a copy of the text. RP_ERR_NAME, RP_ERR_MEMORY, RP_ERR_LIMIT. */
int schema_registry_get(schema_registry *s, const char *tenant, const char *name, base_buffer *out);
/* changed: of the removal; 0: it is not remembered, nor is that of a schema that was not there, unless `always`.
   Returns whether it was there. */
bool schema_registry_remove(schema_registry *s, const char *tenant, const char *name, uint64_t changed, bool always);
/* Of the last change that is known; 0: none. */
uint64_t schema_registry_changed(schema_registry *s, const char *tenant, const char *name);
/* Of the schemas that are there, with their times: equal sets have equal ones. 0: none is there. Does not wait. */
uint64_t schema_registry_digest(schema_registry *s);
/* Calls `visit` for each schema, and for each removal that is remembered; strings are borrowed during the callback,
 * which must not call this registry. */
void schema_registry_visit(schema_registry *s, void (*visit)(void *user, const schema_entry *e), void *user);
/* The names of the tenant's schemas, as a JSON array; NULL: out of memory. */
json_t *schema_registry_names(schema_registry *s, const char *tenant);

#endif
