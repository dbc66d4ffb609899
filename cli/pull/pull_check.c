/* SPDX-License-Identifier: Apache-2.0 */
/* pull_check.c: see pull_check.h. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp, symlink */
#define _XOPEN_SOURCE 700       /* realpath */

#include "pull/pull_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/console.h"
#include "reprise.h"

/* ---- checksums ---- */

bool pull_digest_read(const char *text, char hex[65]) {
    if (strspn(text, "0123456789abcdefABCDEF") != 64 || text[64] != '\0') return false;
    for (int i = 0; i < 64; i++) hex[i] = (char)(text[i] >= 'A' && text[i] <= 'F' ? text[i] + 'a' - 'A' : text[i]);
    hex[64] = '\0';
    return true;
}

bool pull_sums_find(const char *sums, const char *name, char hex[65]) {
    size_t n_name = strlen(name);
    for (const char *line = sums; *line != '\0';) {
        size_t n = strcspn(line, "\n"), end = n > 0 && line[n - 1] == '\r' ? n - 1 : n;
        char digest[65] = "";
        if (end == 66 + n_name && line[64] == ' ' && (line[65] == ' ' || line[65] == '*') &&
            memcmp(line + 66, name, n_name) == 0) {
            memcpy(digest, line, 64);
            if (pull_digest_read(digest, hex)) return true;
        }
        line += n + (line[n] == '\n');
    }
    return false;
}

/* ---- split models ---- */

int32_t pull_split_parts(const char *name, size_t *n_stem) {
    static const char form[] = "-00000-of-00000.gguf"; /* '0': a digit */
    size_t n = strlen(name), k = sizeof form - 1;
    if (n <= k) return 0;
    const char *end = name + n - k;
    for (size_t i = 0; i < k; i++) {
        bool is_digit = end[i] >= '0' && end[i] <= '9';
        if (form[i] == '0' ? !is_digit : end[i] != form[i]) return 0;
    }
    long part = strtol(end + 1, NULL, 10), parts = strtol(end + 10, NULL, 10);
    if (part < 1 || part > parts || parts > PULL_MAX_PARTS) return 0;
    *n_stem = n - k;
    return (int32_t)parts;
}

/* ---- models ---- */

static char *pull_copy(const char *text) {
    size_t n = strlen(text) + 1;
    return memcpy(cli_alloc(n), text, n);
}

static bool pull_link(const char *folder, const char *name, const char *file) {
    char path[4096 + 512];
    char *target = realpath(file, NULL);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    bool is_linked = target != NULL && symlink(target, path) == 0;
    free(target);
    return is_linked;
}

char *pull_check_model(const char *const *files, const char *const *names, int32_t n) {
    const char *temporary = getenv("TMPDIR");
    char folder[4096], path[4096 + 512], text[CLI_MESSAGE_BYTES];
    rp_model_options options = rp_model_options_defaults();
    rp_model *model = NULL;
    rp_error err;
    int length = snprintf(folder, sizeof folder, "%s/reprise-pull-XXXXXX",
                          temporary != NULL && temporary[0] == '/' ? temporary : "/tmp");
    if (length < 0 || (size_t)length >= sizeof folder || mkdtemp(folder) == NULL)
        return pull_copy("cannot create a temporary folder: set TMPDIR");
    int rc = RP_OK;
    bool is_linked = true;
    for (int32_t i = 0; i < n && is_linked; i++) is_linked = pull_link(folder, names[i], files[i]);
    options.vocabulary_only = true; /* of any architecture */
    snprintf(path, sizeof path, "%s/%s", folder, names[0]);
    if (is_linked) rc = rp_model_open(&model, path, &options, &err);
    rp_model_close(model);
    for (int32_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    if (!is_linked) return pull_copy("cannot link it in a temporary folder: set TMPDIR");
    return rc == RP_OK ? NULL : pull_copy(cli_message(&err, text));
}
