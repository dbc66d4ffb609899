/* SPDX-License-Identifier: Apache-2.0 */
/* scratch_file.c: see scratch_file.h. */
#define _POSIX_C_SOURCE 200809L /* mkstemp, pwrite, ftruncate */

#include "scratch_file.h"

#include <stdlib.h>
#include <unistd.h>

static char path[] = "/dev/shm/reprise-XXXXXX", elsewhere[] = "/tmp/reprise-XXXXXX";
static const char *used;
static int fd;

static void scratch_file_remove(void) { unlink(used); }

const char *scratch_file_path(void) {
    if (used) return used;
    used = path;
    fd = mkstemp(path);
    if (fd < 0) used = elsewhere, fd = mkstemp(elsewhere);
    if (fd < 0 || atexit(scratch_file_remove) != 0) abort();
    return used;
}

void scratch_file_write(const void *bytes, size_t n) {
    scratch_file_path();
    if (pwrite(fd, bytes, n, 0) != (ssize_t)n || ftruncate(fd, (off_t)n) != 0) abort();
}
