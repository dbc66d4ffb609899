/* response_shelf.h: the last answers of /v1/responses, each with its whole conversation, for previous_response_id and GET. In memory alone:
 * what is too much pushes out what is oldest, of the same tenant or, where all together are too many, of
 * the tenant that has most. Any thread; its lock is below all others.
 */
#ifndef SERVER_RESPONSE_SHELF_H
#define SERVER_RESPONSE_SHELF_H

#include "base/buffer.h"
#include "reprise.h"

#define SERVER_MAX_RESPONSES 1024
#define SERVER_MAX_TENANT_RESPONSES 128
#define SERVER_MAX_RESPONSE_BYTES ((size_t)4 << 20) /* of one; a longer one is not kept */
#define SERVER_MAX_TENANT_RESPONSES_BYTES ((size_t)16 << 20)
#define SERVER_MAX_RESPONSES_BYTES ((size_t)64 << 20)   /* of all */

typedef struct response_shelf response_shelf;

int response_shelf_new(response_shelf **out, rp_error *err);
void response_shelf_free(response_shelf *s);

/* Keeps a copy, where there is memory for one. tenant may be NULL, here and below. */
void response_shelf_put(response_shelf *s, const char *id, const char *tenant, const char *text, size_t n);
/* Appends the tenant's answer of that id. RP_ERR_NAME, RP_ERR_MEMORY, RP_ERR_LIMIT. */
int response_shelf_get(response_shelf *s, const char *id, const char *tenant, base_buffer *out);
/* RP_ERR_NAME. */
int response_shelf_remove(response_shelf *s, const char *id, const char *tenant);

#endif
