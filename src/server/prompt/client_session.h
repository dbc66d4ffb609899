/* SPDX-License-Identifier: Apache-2.0 */
/* client_session.h: the session that a client's headers or fields name: a conversation, or an agent's run, and the one
 * it works for. The names are foreign text: a hash of each is kept, of those of up to RP_MAX_SESSION_BYTES; longer ones
 * name nothing. Worker. */
#ifndef SERVER_CLIENT_SESSION_H
#define SERVER_CLIENT_SESSION_H

#include "server/http/server_request.h"

/* Fills in gen.session, gen.parent_session and gen.ends_session. */
void client_session_read(server_request *x);
/* Calls fn with the name of each header that is looked at, until it returns false: for routers, which pass them on. */
bool client_session_each_header(bool (*fn)(void *user, const char *name), void *user);

#endif
