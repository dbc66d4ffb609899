/* SPDX-License-Identifier: Apache-2.0 */
/* pull_check.h: names and checks of downloaded files: checksums, split models, readable GGUF. No state. One thread. */
#ifndef CLI_PULL_CHECK_H
#define CLI_PULL_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PULL_SUMS_NAME "SHA256SUMS"
#define PULL_SUMS_MAX_BYTES ((size_t)1 << 20)
#define PULL_MAX_PARTS 1024

/* Finds a file's digest in the text of a SHA256SUMS file: lines of 64 hexadecimal digits, two spaces or " *", and a
 * name. Puts it into hex in lower case. */
bool pull_sums_find(const char *sums, const char *name, char hex[65]);
/* Copies 64 hexadecimal digits in lower case. Returns false if the text is anything else. */
bool pull_digest_read(const char *text, char hex[65]);

/* "model-00002-of-00005.gguf" -> 5, and the number of bytes before "-00002"; 0: not a file of a split model. */
int32_t pull_split_parts(const char *name, size_t *n_stem);

/* Opens the files as one model: files[i] under the name names[i], which split models need. Checks structure, extents of
 * all tensors and the vocabulary, not the architecture: "" or the reason, which the caller frees. NULL: readable. */
char *pull_check_model(const char *const *files, const char *const *names, int32_t n);

#endif
