/* SPDX-License-Identifier: Apache-2.0 */
/* json_time.h: JSON strings of times. */
#ifndef SERVER_JSON_TIME_H
#define SERVER_JSON_TIME_H

#include <jansson.h>
#include <stdint.h>

/* "2026-11-28T10:00:00Z", of seconds since 1970; "" for a time that has no such form. NULL: out of memory. */
json_t *server_json_time(int64_t seconds);

#endif
