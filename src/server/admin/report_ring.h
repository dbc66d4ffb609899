/* SPDX-License-Identifier: Apache-2.0 */
/* report_ring.h: the reports of the last answers, by the id of their request, for GET /v1/requests and /v1/requests/{id}/explain. A new one takes
 * the place of the oldest. Any thread; its lock is below all others. */
#ifndef SERVER_REPORT_RING_H
#define SERVER_REPORT_RING_H

#include <stdbool.h>

#include "base/buffer.h"
#include "reprise.h"

#define SERVER_MAX_REPORTS 512
#define SERVER_MAX_REPORT_BYTES ((size_t)64 << 10) /* of one; a longer one is not kept */

typedef struct report_ring report_ring;

int report_ring_new(report_ring **out, rp_error *err);
void report_ring_free(report_ring *r);

/* Keeps copies, where there is memory for them: of a report, and of a line for the list, both JSON. tenant may be NULL. */
void report_ring_put(report_ring *r, const char *id, const char *tenant, const char *text, const char *line);
/* Appends the tenant's report of that id. RP_ERR_NAME, RP_ERR_MEMORY. */
int report_ring_get(report_ring *r, const char *id, const char *tenant, base_buffer *out);
/* Appends the lines of the tenant's last reports, the newest first and up to n, with commas between them. *more: there are others. RP_ERR_MEMORY,
 * RP_ERR_LIMIT. */
int report_ring_list(report_ring *r, const char *tenant, size_t n, base_buffer *out, bool *more);

#endif
