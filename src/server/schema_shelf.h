/* schema_shelf.h: the texts of schemas that came by HTTP, by tenant and name. Any thread; its lock is below all others. */
#ifndef SERVER_SCHEMA_SHELF_H
#define SERVER_SCHEMA_SHELF_H

#include "base/buffer.h"
#include "server/problem.h"

#define SERVER_MAX_SHELF 4096                              /* schemas */
#define SERVER_MAX_SHELF_BYTES ((size_t)256 << 20)         /* of their texts */
#define SERVER_MAX_TENANT_SHELF 1024                       /* of a tenant */
#define SERVER_MAX_TENANT_SHELF_BYTES ((size_t)64 << 20)

typedef struct schema_shelf schema_shelf;

int schema_shelf_new(schema_shelf **out, rp_error *err);
void schema_shelf_free(schema_shelf *s);

/* May the tenant's schema of that name have a text of n bytes? RP_OK, or RP_ERR_LIMIT with what is full and what to do. tenant may be NULL. */
int schema_shelf_check(schema_shelf *s, const char *tenant, const char *name, size_t n, rp_error *err);
/* Keeps a copy; one that is there is replaced. tenant may be NULL. RP_ERR_LIMIT, RP_ERR_MEMORY. */
int schema_shelf_put(schema_shelf *s, const char *tenant, const char *name, const char *text, size_t n);
/* Appends a copy of the text. RP_ERR_NAME, RP_ERR_MEMORY, RP_ERR_LIMIT. */
int schema_shelf_get(schema_shelf *s, const char *tenant, const char *name, base_buffer *out);
bool schema_shelf_remove(schema_shelf *s, const char *tenant, const char *name);
/* The names of a tenant's, as a JSON array; NULL: no memory. */
json_t *schema_shelf_names(schema_shelf *s, const char *tenant);

#endif
