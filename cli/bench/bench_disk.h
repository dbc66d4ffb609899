/* SPDX-License-Identifier: Apache-2.0 */
/* bench_disk.h: a store's folder as others see it: what it takes on disk, looked at all the while, and whether anything grows.
 *
 *   watcher's thread   look, every 10 ms: blocks of all that is in the folder, itself included; the process's open files and threads
 *
 * A look is no moment: names come and go while the folder is read. One that finds too much counts only if the folders did not change
 * meanwhile; else it is taken again.
 */
#ifndef CLI_BENCH_DISK_H
#define CLI_BENCH_DISK_H

#include <stdbool.h>
#include <stdint.h>

/* What was seen in a stretch of time: the most; of open files and threads, which come and go, the least: what leaks raises that. */
typedef struct bench_disk_seen {
    uint64_t looks, bytes, index_bytes;
    int32_t files;
    int32_t open_files, threads; /* least */
} bench_disk_seen;

typedef struct bench_disk_verdict {
    bool watched;                /* a folder was; else nothing below is known */
    bool judged;                 /* enough was written, and a quarter of the time came after it had settled; else `flat` is true */
    uint64_t budget_bytes, written_bytes;
    bench_disk_seen first, later;
    bool inside, flat;
} bench_disk_verdict;

typedef struct bench_disk_watch bench_disk_watch;

/* Begins. dir is borrowed. Returns an exit status. */
int bench_disk_watch_begin(bench_disk_watch **out, const char *dir, uint64_t budget_bytes);
/* What is seen from now on is `later`. More than once is fine. */
void bench_disk_watch_settled(bench_disk_watch *w);
/* Ends it and says what it saw. written_bytes: to the folder, all in all. NULL is fine. */
void bench_disk_watch_end(bench_disk_watch *w, uint64_t written_bytes, bool settled_early, bench_disk_verdict *out);

#endif
