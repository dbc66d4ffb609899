/* SPDX-License-Identifier: Apache-2.0 */
/* schema_folder.h: the schemas uploaded by HTTP, as files in the folder of --schema-dir, so that they outlive the
 * process.
 *
 *   FOLDER/64 hexadecimal digits.json    {"tenant": "acme", "name": "cities", "changed": 1790000000000000000, "pml":
 *         "<schema ..."}
 *                                        the digits are a hash of tenant and name; changed: as in schema_entry;
 *                                        missing: 1
 *
 * Files are written atomically, and are accessible to their owner alone; links, and files of other users, are not read.
 * Tenants and names are never part of a path. Any thread; the caller serializes access to one schema.
 */
#ifndef SERVER_SCHEMA_FOLDER_H
#define SERVER_SCHEMA_FOLDER_H

#include <stddef.h>

#include "server/models/schema_registry.h"

typedef struct schema_folder schema_folder;

/* Creates the folder if it does not exist. RP_ERR_IO, RP_ERR_MEMORY. */
int schema_folder_new(schema_folder **out, const char *path, rp_error *err);
void schema_folder_free(schema_folder *f);

/* Stores a schema; replaces that of the same tenant and name. RP_ERR_IO, RP_ERR_LIMIT, RP_ERR_MEMORY. */
int schema_folder_put(const schema_folder *f, const schema_entry *e, rp_error *err);
/* A missing schema is no error. RP_ERR_IO, RP_ERR_MEMORY. */
int schema_folder_remove(const schema_folder *f, const char *tenant, const char *name, rp_error *err);

/* Calls `found` for each schema, and `bad` for each file that cannot be read;
 * strings are borrowed during the callback. RP_ERR_IO (the folder), RP_ERR_MEMORY. */
int schema_folder_visit(const schema_folder *f, void (*found)(void *user, const schema_entry *e),
                        void (*bad)(void *user, const rp_error *err), void *user, rp_error *err);

#endif
