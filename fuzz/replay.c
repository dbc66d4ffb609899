/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c: runs a fuzz target on the files of a corpus, with any compiler, so that every finding stays a regression
 * test.
 *
 *   replay_x FOLDER...
 */
#define _POSIX_C_SOURCE 200809L /* opendir */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int replay_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return perror(path), 1;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    uint8_t *data = size >= 0 ? malloc((size_t)size + 1) : NULL;
    size_t n = data ? fread(data, 1, (size_t)size, f) : 0;
    fclose(f);
    if (!data || n != (size_t)size) return free(data), fprintf(stderr, "%s: cannot be read\n", path), 1;
    LLVMFuzzerTestOneInput(data, n);
    free(data);
    return 0;
}

static int replay_folder(const char *folder, int *n_files) {
    DIR *d = opendir(folder);
    if (!d) return perror(folder), 1;
    int failed = 0;
    for (struct dirent *e; !failed && (e = readdir(d));) {
        char path[4096];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        failed = replay_file(path);
        ++*n_files;
    }
    closedir(d);
    return failed;
}

int main(int argc, char **argv) {
    int n_files = 0, failed = 0;
    for (int i = 1; i < argc && !failed; i++) failed = replay_folder(argv[i], &n_files);
    printf("%d files replayed\n", n_files);
    return failed || n_files == 0;
}
