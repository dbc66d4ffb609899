/* SPDX-License-Identifier: Apache-2.0 */
/* request_work.h: a request through the layers: the parts of it that each owns, and its handling on a worker
   (http/server_request.h). */
#ifndef SERVER_REQUEST_WORK_H
#define SERVER_REQUEST_WORK_H

#include "server/http/server_request.h"

/* Makes the parts of a new request: its prompt's and its answers'. RP_ERR_MEMORY. */
int request_work_open(server_request *x);
/* Ends its jobs, leaves its model and frees the parts. */
void request_work_close(server_request *x);
/* The callback of a work queue: runs a request that is QUEUED, FINISHING or CLOSED. */
void request_work_run(server_work *work);

#endif
