/* SPDX-License-Identifier: Apache-2.0 */
/* cache_audit.h: results of the quality audit, for `reprise cache stat`. */
#ifndef CLI_CACHE_AUDIT_H
#define CLI_CACHE_AUDIT_H

#include <jansson.h>

#include "reprise_store.h"

/* A table on standard output: schemas, each with its worst pairs. */
void cache_audit_print(const rp_audit *a, const char *model);
/* The same results with all pairs, as an object; null without a report. */
json_t *cache_audit_object(const rp_audit *a, const char *model);

#endif
