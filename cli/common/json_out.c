/* SPDX-License-Identifier: Apache-2.0 */
/* json_out.c: see json_out.h. Owns nothing. One thread. */
#include "common/json_out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "common/text.h"

#define REAL_DIGITS 12 /* enough for hours in microseconds */

json_t *cli_json_text(const char *s) {
    if (s == NULL) s = "";
    size_t n = 0;
    char *clean = cli_utf8_clean(s, strlen(s), &n);
    json_t *text = json_stringn(clean, n);
    free(clean);
    return text;
}

json_t *cli_json_real(double v) { return json_real(isfinite(v) ? round(v * 1e3) / 1e3 : 0.0); }

static void json_out_check(int failed) {
    if (failed != 0) exit(cli_fail(CLI_FAILED, "out of memory while writing JSON"));
}

void cli_json_set(json_t *object, const char *field, json_t *value) {
    json_out_check(json_object_set_new(object, field, value));
}

void cli_json_append(json_t *array, json_t *value) { json_out_check(json_array_append_new(array, value)); }

int cli_json_print(json_t *object) {
    int failed = json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(REAL_DIGITS));
    json_decref(object);
    if (failed == 0) fputc('\n', stdout);
    return cli_finish_output();
}
