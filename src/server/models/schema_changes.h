/* SPDX-License-Identifier: Apache-2.0 */
/* schema_changes.h: changes of a model's uploaded schemas: in its engine, its registry and its folder, or in none of
 * them. One at a time (server_model.schema_lock). The model is loaded, and stays so: its user calls. */
#ifndef SERVER_SCHEMA_CHANGES_H
#define SERVER_SCHEMA_CHANGES_H

#include "server/models/model_pool.h"

/* Loads and keeps a schema, e->text. e->changed 0: it happens now; receives its time. A change that is known already is
 * done. SERVER_CONFLICT: a later change of it is known. A server_problem_kind. */
int schema_change_put(rp_server *server, server_model *m, schema_entry *e, server_problem *problem);
/* Likewise a removal. SERVER_NOT_FOUND: it is not there; the removal is remembered all the same if e->changed was
   given. */
int schema_change_remove(rp_server *server, server_model *m, schema_entry *e, server_problem *problem);
/* Into the engine alone. */
int schema_change_parse(rp_server *server, const server_model *m, const schema_entry *e, rp_error *err);

#endif
