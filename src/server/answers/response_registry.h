/* SPDX-License-Identifier: Apache-2.0 */
/* response_registry.h: the last answers of /v1/responses and /v1/interactions, each with its whole conversation, for
 * the request after it and GET (kept_answers.h). In memory only. Over a tenant's limit, its oldest responses are
 * removed; over the total limit, those of the tenant that has most. Any thread; its lock is below all others.
 */
#ifndef SERVER_RESPONSE_REGISTRY_H
#define SERVER_RESPONSE_REGISTRY_H

#include "base/buffer.h"
#include "reprise.h"

#define SERVER_MAX_RESPONSES 1024
#define SERVER_MAX_TENANT_RESPONSES 128
#define SERVER_MAX_RESPONSE_BYTES ((size_t)4 << 20) /* of one response; a longer one is not stored */
#define SERVER_MAX_TENANT_RESPONSES_BYTES ((size_t)16 << 20)
#define SERVER_MAX_RESPONSES_BYTES ((size_t)64 << 20) /* of all */

typedef struct response_registry response_registry;

int response_registry_new(response_registry **out, rp_error *err);
void response_registry_free(response_registry *s);

/* Stores a copy; out of memory: stores nothing. tenant may be NULL, here and below. */
void response_registry_put(response_registry *s, const char *id, const char *tenant, const char *text, size_t n);
/* Appends the tenant's answer of that id. RP_ERR_NAME, RP_ERR_MEMORY, RP_ERR_LIMIT. */
int response_registry_get(response_registry *s, const char *id, const char *tenant, base_buffer *out);
/* RP_ERR_NAME. */
int response_registry_remove(response_registry *s, const char *id, const char *tenant);

#endif
