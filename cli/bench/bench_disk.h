/* SPDX-License-Identifier: Apache-2.0 */
/* bench_disk.h: disk usage of a store's folder, measured from outside during a load, and its growth.
 *
 *   watcher's thread   a sample every 10 ms: disk blocks of the folder with its content; the process's open files and
 *                      threads
 *
 * A sample is not atomic: names change while the folder is listed. A sample above the budget counts only if no folder
 * changed meanwhile; otherwise it is repeated.
 */
#ifndef CLI_BENCH_DISK_H
#define CLI_BENCH_DISK_H

#include <stdbool.h>
#include <stdint.h>

/* Maxima over a period; of open files and threads, which fluctuate, the minima: a leak raises them. */
typedef struct bench_disk_seen {
    uint64_t looks, bytes, index_bytes;
    int32_t files;
    int32_t open_files, threads; /* minima */
} bench_disk_seen;

typedef struct bench_disk_verdict {
    bool watched; /* a folder was watched; otherwise the fields below are unknown */
    bool judged;  /* enough written, and settled for the last quarter of the time; else `flat` is true */
    uint64_t budget_bytes, written_bytes;
    bench_disk_seen first, later;
    bool inside, flat;
} bench_disk_verdict;

typedef struct bench_disk_watch bench_disk_watch;

/* Starts the watcher. dir is borrowed. Returns an exit status. */
int bench_disk_watch_begin(bench_disk_watch **out, const char *dir, uint64_t budget_bytes);
/* Later samples belong to `later`. May be called repeatedly. */
void bench_disk_watch_settled(bench_disk_watch *w);
/* Stops the watcher and reports. written_bytes: total written to the folder. NULL is valid. */
void bench_disk_watch_end(bench_disk_watch *w, uint64_t written_bytes, bool settled_early, bench_disk_verdict *out);

#endif
