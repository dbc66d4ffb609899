/* SPDX-License-Identifier: Apache-2.0 */
/* json_time.c: see json_time.h. Owns nothing. */
#define _POSIX_C_SOURCE 200809L /* gmtime_r */

#include "server/core/json_time.h"

#include <time.h>

json_t *server_json_time(int64_t seconds) {
    char text[32];
    time_t at = (time_t)seconds;
    struct tm utc;
    if (!gmtime_r(&at, &utc) || strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) text[0] = '\0';
    return json_string(text);
}
