/* SPDX-License-Identifier: Apache-2.0 */
/* pull_parts.c: see pull_parts.h. Owns nothing. */
#include "pull/pull_parts.h"

#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "pull/pull_check.h"

static int pull_download(pull_part *p, const pull_settings *settings, const char *sums_from) {
    int status = pull_file_open(&p->file, settings, p->url, p->path, p->label);
    p->file.size = p->size;
    if (status == CLI_OK) status = pull_file_run(&p->file);
    if (status != CLI_OK) return status;
    if (p->size > 0 && p->file.bytes != p->size) {
        unsigned long long bytes = p->file.bytes;
        pull_file_discard(&p->file);
        return cli_fail(CLI_FAILED, "'%s' has %llu bytes instead of %llu (%s): the download is deleted; try again",
                        p->url, bytes, (unsigned long long)p->size, sums_from);
    }
    pull_file_digest(&p->file, p->digest);
    if (p->expected[0] == '\0' || strcmp(p->digest, p->expected) == 0) return CLI_OK;
    pull_file_discard(&p->file);
    return cli_fail(
        CLI_FAILED,
        "'%s': SHA-256 is %s instead of %s (%s): the download is deleted; try again, or ask who published it", p->url,
        p->digest, p->expected, sums_from);
}

static int pull_check(pull_part *parts, int32_t n, const char *url) {
    const char **files = cli_alloc((size_t)n * sizeof *files), **names = cli_alloc((size_t)n * sizeof *names);
    for (int32_t i = 0; i < n; i++) {
        files[i] = parts[i].is_here ? parts[i].path : parts[i].file.part;
        names[i] = parts[i].name;
    }
    char *why = pull_check_model(files, names, n);
    free(files);
    free(names);
    int status = CLI_OK;
    for (int32_t i = 0; i < n && why == NULL && status == CLI_OK; i++)
        if (!parts[i].is_here) status = pull_file_check_size(&parts[i].file);
    if (why == NULL) return status;
    status = cli_fail(CLI_FAILED,
                      "'%s' is not a readable GGUF model, and is deleted: %s: give --unchecked to keep such a file",
                      url, why);
    for (int32_t i = 0; i < n; i++)
        if (!parts[i].is_here) pull_file_discard(&parts[i].file);
    free(why);
    return status;
}

int pull_parts_download(pull_part *parts, int32_t n, const pull_settings *settings, const char *sums_from,
                        const char *url) {
    int status = CLI_OK;
    for (int32_t i = 0; i < n && status == CLI_OK; i++)
        if (!parts[i].is_here) status = pull_download(&parts[i], settings, sums_from);
    return status == CLI_OK && settings->is_model ? pull_check(parts, n, url) : status;
}

void pull_parts_free(pull_part *parts, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        pull_part *p = &parts[i];
        pull_file_close(&p->file);
        free(p->url);
        free(p->path);
        free(p->name);
    }
    free(parts);
}
