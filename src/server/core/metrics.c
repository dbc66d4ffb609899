/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c: see metrics.h. */
#include "server/core/metrics.h"

#include <inttypes.h>

int metrics_append(base_buffer *b, const server_metric *list, size_t n) {
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = base_buffer_printf(b, "# HELP reprise_%s %s\n# TYPE reprise_%s %s\nreprise_%s %" PRIu64 "\n", list[i].name,
                                list[i].help, list[i].name, list[i].type, list[i].name, list[i].value);
    return rc;
}
