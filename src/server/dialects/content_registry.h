/* SPDX-License-Identifier: Apache-2.0 */
/* content_registry.h: what was sent to Gemini's cachedContents: the contents as JSON, their tenant and their expiry.
 * Their KV is in the engine's store like that of all other text; this registry holds the JSON that is prepended to a
 * request that names them, in memory only. Any thread; its lock is below all others. Times are milliseconds since 1970,
 * given by the caller.
 */
#ifndef SERVER_CONTENT_REGISTRY_H
#define SERVER_CONTENT_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "server/http/routing.h"

#define SERVER_MAX_CONTENTS 4096 /* of all tenants */
#define SERVER_MAX_TENANT_CONTENTS 256
#define SERVER_MAX_TENANT_CONTENTS_BYTES ((size_t)64 << 20)
#define SERVER_MAX_CONTENTS_BYTES ((size_t)256 << 20) /* of their JSON */
#define SERVER_CONTENT_ID_BYTES 56
#define SERVER_CONTENT_NAME_BYTES 520 /* displayName: 128 characters */

typedef struct registry_content {
    uint64_t number; /* rising: the order of creation */
    char id[SERVER_CONTENT_ID_BYTES];
    char display_name[SERVER_CONTENT_NAME_BYTES]; /* "" none */
    char model[SERVER_MODEL_NAME_BYTES];          /* that computed it */
    int64_t created, updated, expires;
    int64_t n_tokens;
} registry_content;

typedef struct content_registry content_registry;

int content_registry_new(content_registry **out, rp_error *err);
void content_registry_free(content_registry *s);

/* Is there capacity for one more entry of the tenant, of `bytes` bytes? tenant may be NULL, here and below. */
bool content_registry_has_capacity(content_registry *s, const char *tenant, size_t bytes, int64_t now);
/* Keeps copies; sets content->number. RP_ERR_LIMIT, RP_ERR_MEMORY. */
int content_registry_put(content_registry *s, const char *tenant, registry_content *content, const char *json, size_t n,
                         int64_t now);
/* The tenant's content of that id, unless it has expired. json may be NULL; else its text is appended. RP_ERR_NAME,
 * RP_ERR_MEMORY. */
int content_registry_get(content_registry *s, const char *tenant, const char *id, int64_t now, registry_content *out,
                         base_buffer *json);
/* Changes when it expires. *out: what it is then. RP_ERR_NAME. */
int content_registry_extend(content_registry *s, const char *tenant, const char *id, int64_t now, int64_t expires,
                            registry_content *out);
bool content_registry_remove(content_registry *s, const char *tenant, const char *id, int64_t now);
/* Up to n of the tenant's entries with numbers above `after`, in order of creation. *more: more follow. Returns the
 * number. */
size_t content_registry_list(content_registry *s, const char *tenant, uint64_t after, int64_t now,
                             registry_content *out, size_t n, bool *more);

#endif
