/* SPDX-License-Identifier: Apache-2.0 */
/* json_text.c: see json_text.h. Owns nothing. */
#define _POSIX_C_SOURCE 200809L /* gmtime_r */

#include "server/http/json_text.h"

#include <stdint.h>
#include <time.h>

#include "base/buffer.h"
#include "base/compiler.h"

size_t server_character(const unsigned char *s, size_t n) {
    static const struct {
        unsigned char first, last, second_min, second_max;
        size_t bytes;
    } forms[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
                 {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
                 {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t i = 0; i < BASE_ARRAY_LEN(forms); i++) {
        if (s[0] < forms[i].first || s[0] > forms[i].last) continue;
        if (n < forms[i].bytes || (forms[i].bytes > 1 && (s[1] < forms[i].second_min || s[1] > forms[i].second_max))) return 0;
        for (size_t k = 2; k < forms[i].bytes; k++)
            if ((s[k] & 0xc0) != 0x80) return 0;
        return forms[i].bytes;
    }
    return 0;
}

json_t *server_json_text(const char *bytes, size_t n) {
    json_t *text = json_stringn(bytes ? bytes : "", n);
    if (text || n > SIZE_MAX / 3 - 1) return text;
    base_buffer clean = BASE_BUFFER(3 * n + 1);
    int rc = 0;
    for (size_t i = 0; i < n && !rc;) {
        size_t length = server_character((const unsigned char *)bytes + i, n - i);
        rc = length > 0 ? base_buffer_append(&clean, bytes + i, length) : base_buffer_append(&clean, "\xef\xbf\xbd", 3);
        i += length > 0 ? length : 1;
    }
    if (!rc) text = json_stringn(clean.data ? clean.data : "", clean.len);
    base_buffer_free(&clean);
    return text;
}

json_t *server_json_time(int64_t seconds) {
    char text[32];
    time_t at = (time_t)seconds;
    struct tm utc;
    if (!gmtime_r(&at, &utc) || strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) text[0] = '\0';
    return json_string(text);
}
