/* SPDX-License-Identifier: Apache-2.0 */
/* report_ring.h: the reports of the last answers, by the id of their request, for GET /v1/requests and
 * /v1/requests/{id}/explain. A new report replaces the oldest. Any thread; its lock is below all others. */
#ifndef SERVER_REPORT_RING_H
#define SERVER_REPORT_RING_H

#include <stdbool.h>

#include "base/buffer.h"
#include "reprise.h"

#define SERVER_MAX_REPORTS 512
#define SERVER_MAX_REPORT_BYTES ((size_t)64 << 10) /* of one report; a longer one is not stored */

typedef struct report_ring report_ring;

int report_ring_new(report_ring **out, rp_error *err);
void report_ring_free(report_ring *r);

/* Stores copies of a report and of its line in the list, both JSON; out of memory: stores nothing. tenant may be
 * NULL. */
void report_ring_put(report_ring *r, const char *id, const char *tenant, const char *text, const char *line);
/* Appends the tenant's report of that id. RP_ERR_NAME, RP_ERR_MEMORY. */
int report_ring_get(report_ring *r, const char *id, const char *tenant, base_buffer *out);
/* Appends the lines of up to n of the tenant's last reports, newest first, separated by commas. *more: more follow.
 * RP_ERR_MEMORY, RP_ERR_LIMIT. */
int report_ring_list(report_ring *r, const char *tenant, size_t n, base_buffer *out, bool *more);

#endif
