/* SPDX-License-Identifier: Apache-2.0 */
/* cache_audit.h: what an auditor found, as `reprise cache stat` shows it. */
#ifndef CLI_CACHE_AUDIT_H
#define CLI_CACHE_AUDIT_H

#include <jansson.h>

#include "reprise_tools.h"

/* A table on standard output: schemas, and of each the pairs that are worst. */
void cache_audit_print(const rp_audit *a, const char *model);
/* The same and all pairs as an object; null without a report. */
json_t *cache_audit_object(const rp_audit *a, const char *model);

#endif
