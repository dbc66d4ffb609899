/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: options of benchmarks: --name value, after the first argument. */
#include <stdlib.h>
#include <string.h>

#include "support.h"

const char *bench_text_after(int argc, char **argv, const char *name, const char *fallback) {
    for (int i = 2; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    return fallback;
}

int bench_number_after(int argc, char **argv, const char *name, int fallback) {
    const char *text = bench_text_after(argc, argv, name, NULL);
    return text ? atoi(text) : fallback;
}

bool bench_has_flag(int argc, char **argv, const char *name) {
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return true;
    return false;
}

#define X(NAME, number, name, keys, values) name,
const char *const bench_kv_formats[RP_N_KV_FORMATS] = {RP_KV_FORMATS(X)};
#undef X

bool bench_kv_format_parse(const char *name, size_t n, rp_kv_format *out) {
    for (int f = 0; f < RP_N_KV_FORMATS; f++) {
        if (strlen(bench_kv_formats[f]) != n || strncmp(bench_kv_formats[f], name, n) != 0) continue;
        *out = (rp_kv_format)f;
        return true;
    }
    return false;
}
