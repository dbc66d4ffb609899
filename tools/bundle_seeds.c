/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_seeds.c: writes small bundles as seeds for a fuzzer: bundle_seeds DIR (fuzz/corpus/bundle).
 *
 * The first byte of each is a mode of fuzz/fuzz_bundle.c: the fields that the fuzzer corrects.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/bundle_forge.h"

static const struct {
    const char *file, *name;
    uint8_t mode;
    size_t n, n_reduced;
    bool with_text;
} seeds[] = {
    {"one", "cities/plan/miami", 0, 1, 0, false},
    {"three", "cities", 0, 3, 0, false},
    {"made-right", "cities/plan", 7, 2, 0, false},
    {"with-a-text", "cities", 3, 2, 0, true},
    {"another-module", "paris", 2, 1, 0, false},
    {"with-reduced", "cities", 7, 3, 2, false},
    {"reduced", "cities/plan", 0, 1, 1, false},
};

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: bundle_seeds DIR\n"), 2;
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        char path[1024];
        forged f = bundle_forge(seeds[i].name, seeds[i].n, seeds[i].n_reduced, seeds[i].with_text);
        uint8_t *out = malloc(f.n + 1);
        if (!out) abort();
        out[0] = seeds[i].mode;
        memcpy(out + 1, f.bytes, f.n);
        snprintf(path, sizeof path, "%s/%s", argv[1], seeds[i].file);
        forge_save(path, out, f.n + 1);
        free(out);
        forge_free(&f);
    }
    return 0;
}
