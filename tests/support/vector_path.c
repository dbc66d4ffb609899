/* SPDX-License-Identifier: Apache-2.0 */
/* vector_path.c: where the files of tests/golden are (vector_file.h). */
#include <stdio.h>
#include <stdlib.h>

#include "support/vector_file.h"

const char *vector_path(const char *name) {
    static char path[1024];
    const char *source = getenv("REPRISE_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/golden/%s", source && *source ? source : REPRISE_SOURCE_DIR, name);
    return path;
}
