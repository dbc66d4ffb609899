/* SPDX-License-Identifier: Apache-2.0 */
/* document_src.c: the texts of src files.
 *
 * The path of a file must stay inside the schema's directory. First its syntax is checked (relative, no ".."). Then the
 * directory and the file are resolved through all links and compared. Then the resolved path, now without links, is
 * opened from the directory's descriptor, component by component, without following links: a link that is created in
 * between makes the open fail.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "pml/document_internal.h"

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

typedef struct src_file {
    pml_builder *b;
    size_t offset; /* of the module with the src attribute */
    const char *path;
} src_file;

static int fail_src(const src_file *s, const char *what) {
    return pml_builder_fail(s->b, s->offset, RP_ERR_IO, "src=\"%.*s\": %s", PML_SHOWN(s->path), what);
}

static int fail_errno(const src_file *s, const char *advice) {
    char text[128];
    if (strerror_r(errno, text, sizeof text) != 0) snprintf(text, sizeof text, "unknown error");
    return pml_builder_fail(s->b, s->offset, RP_ERR_IO, "src=\"%.*s\": %s: %s", PML_SHOWN(s->path), text, advice);
}

static int check_spelling(const src_file *s) {
    if (s->path[0] == '\0') return fail_src(s, "empty: name a file in the schema's directory");
    if (s->path[0] == '/') return fail_src(s, "an absolute path: name a file relative to the schema's directory");
    for (const char *p = s->path; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0'))
            return fail_src(s, "leaves the schema's directory with \"..\": move the file into it");
    }
    return 0;
}

/* Resolves the directory, and finds where in `real` the file's resolved path continues after it. */
static int src_file_resolve(const src_file *s, char root[PATH_MAX], char real[PATH_MAX], char **rest) {
    char joined[PATH_MAX];
    if (!realpath(s->b->dir[0] ? s->b->dir : ".", root)) return fail_errno(s, "the schema's directory was not found");
    int n = snprintf(joined, sizeof joined, "%s/%s", root, s->path);
    if (n < 0 || (size_t)n >= sizeof joined) return fail_src(s, "the path is too long: shorten it");
    if (!realpath(joined, real))
        return fail_errno(s, "put the file there, relative to the schema's directory, or correct the name");
    size_t n_root = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(root, real, n_root) != 0 || (real[n_root] != '/' && real[n_root] != '\0'))
        return fail_src(s, "a symbolic link leaves the schema's directory: move the file into it");
    *rest = real + n_root + (real[n_root] == '/');
    return 0;
}

/* Opens root/rest without following a link in rest. Cuts rest into its components. -1 and errno on failure. */
static int open_below(const char *root, char *rest) {
    int dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (dir >= 0) {
        char *slash = strchr(rest, '/');
        if (slash) *slash = '\0';
        int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | (slash ? O_DIRECTORY : O_NONBLOCK | O_NOCTTY);
        int fd = openat(dir, *rest ? rest : ".", flags);
        int saved = errno;
        close(dir);
        errno = saved;
        if (!slash) return fd;
        dir = fd;
        rest = slash + 1;
    }
    return -1;
}

/* Reads to the end of the file: its size may have changed since it was checked. */
static int src_file_read_all(const src_file *s, int fd, base_buffer *out) {
    char piece[16384];
    for (;;) {
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(s, "the file cannot be read");
        if (n == 0) return 0;
        int rc = base_buffer_append(out, piece, (size_t)n);
        if (rc == RP_ERR_LIMIT)
            return pml_builder_fail(s->b, s->offset, RP_ERR_LIMIT, "src=\"%.*s\": more than %zu bytes: split the file",
                                    PML_SHOWN(s->path), PML_MAX_BYTES);
        if (rc != 0) return pml_builder_memory(s->b, s->offset, out->len + (size_t)n, "a src file");
    }
}

static int read_regular(const src_file *s, int fd, base_buffer *out) {
    struct stat st;
    if (fstat(fd, &st) != 0) return fail_errno(s, "the file cannot be examined");
    if (S_ISDIR(st.st_mode)) return fail_src(s, "a directory: name a text file in it");
    if (!S_ISREG(st.st_mode)) return fail_src(s, "not a regular file: name a text file");
    return src_file_read_all(s, fd, out);
}

/* Removes a byte order mark, and white space at both ends. */
static void document_src_trim(base_buffer *text) {
    size_t start = 0, end = text->len;
    if (end >= 3 && memcmp(text->data, "\xEF\xBB\xBF", 3) == 0) start = 3;
    while (start < end && pml_is_space(text->data[start])) start++;
    while (end > start && pml_is_space(text->data[end - 1])) end--;
    if (text->len == 0) return;
    BASE_ASSERT(start <= end && end <= text->len);
    memmove(text->data, text->data + start, end - start);
    text->len = end - start;
    text->data[text->len] = '\0';
}

int pml_src_read(pml_builder *b, size_t offset, const char *path, base_buffer *out) {
    char root[PATH_MAX], real[PATH_MAX], *rest = NULL;
    src_file s = {.b = b, .offset = offset, .path = path};
    *out = BASE_BUFFER(PML_MAX_BYTES);
    if (!b->dir) return fail_src(&s, "the schema has no directory: write the text into the module");
    if (check_spelling(&s) != 0 || src_file_resolve(&s, root, real, &rest) != 0) return b->rc;
    int fd = open_below(root, rest);
    if (fd < 0) return fail_errno(&s, "the file cannot be opened");
    int rc = read_regular(&s, fd, out);
    close(fd);
    if (rc != 0) return rc;
    size_t bad = pml_utf8_check(out->data, out->len), line_start = 0;
    int32_t line = 1;
    if (bad == out->len) {
        document_src_trim(out);
        return 0;
    }
    pml_count_lines(out->data, out->len, 0, bad, &line, &line_start);
    return pml_builder_fail(b, offset, RP_ERR_SYNTAX,
                            "src=\"%.*s\": line %d, column %zu: byte 0x%02X is not text in UTF-8: save it so",
                            PML_SHOWN(path), (int)line, bad - line_start + 1, (unsigned)(unsigned char)out->data[bad]);
}
