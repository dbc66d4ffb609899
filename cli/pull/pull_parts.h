/* SPDX-License-Identifier: Apache-2.0 */
/* pull_parts.h: the files of one model: download of each, checksums, and the check that all together are a model. One
   thread. */
#ifndef CLI_PULL_PARTS_H
#define CLI_PULL_PARTS_H

#include "pull/pull_file.h"

/* A file to download. Texts are owned. */
typedef struct pull_part {
    char *url, *path, *name;                  /* name: without folders, as split models need it */
    char label[40], digest[65], expected[65]; /* "": no checksum known */
    uint64_t size;                            /* that the file must have; 0: unknown */
    bool is_here;                             /* `path` exists already, and is not downloaded */
    pull_file file;
} pull_part;

/* Downloads what is missing, compares checksums and sizes, and checks with settings->is_model that the files are a
 * readable model. The files stay parts, for pull_file_publish. What fails a check is deleted. sums_from: where
 * checksums come from, for messages; url: of the model. Returns an exit status. */
int pull_parts_download(pull_part *parts, int32_t n, const pull_settings *settings, const char *sums_from,
                        const char *url);
/* The parts' files are closed, and what is incomplete stays for the next run. */
void pull_parts_free(pull_part *parts, int32_t n);

#endif
