/* SPDX-License-Identifier: Apache-2.0 */
/* routes.h: the server's routes. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "server/http/routing.h"

server_routes server_all_routes(void); /* constant */

#endif
