/* SPDX-License-Identifier: Apache-2.0 */
/* trap_memory.c: see trap_memory.h. Each allocation is a file in memory that is mapped twice. */
#define _GNU_SOURCE /* memfd_create */

#include "support/trap_memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kv/host_memory.h"

#define MAX_ALLOCATIONS 256

typedef struct allocation {
    char *seen, *own; /* the addresses; the same pages, for operations */
    size_t bytes;     /* 0: free */
} allocation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static allocation allocations[MAX_ALLOCATIONS];
static int n_open;
static trap_memory_use use;

static void die(const char *what) {
    fprintf(stderr, "trap memory: %s\n", what);
    abort();
}

static int protection(void) { return n_open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE; }

static void protect_all(void) {
    for (allocation *a = allocations; a < allocations + MAX_ALLOCATIONS; a++)
        if (a->bytes > 0 && mprotect(a->seen, a->bytes, protection())) die("mprotect");
}

void trap_memory_open(void) {
    pthread_mutex_lock(&lock);
    if (n_open++ == 0) protect_all();
    pthread_mutex_unlock(&lock);
}

void trap_memory_close(void) {
    pthread_mutex_lock(&lock);
    if (--n_open == 0) protect_all();
    pthread_mutex_unlock(&lock);
}

/* The allocation of [at, at + bytes). The caller holds the lock. */
static allocation *find(kv_address at, size_t bytes) {
    for (allocation *a = allocations; a < allocations + MAX_ALLOCATIONS; a++) {
        const uint64_t first = (uint64_t)(uintptr_t)a->seen;
        if (at.at >= first && at.at < first + a->bytes && bytes <= first + a->bytes - at.at) return a;
    }
    die("an address outside of every allocation");
    return NULL;
}

/* Where operations reach bytes; *count += them. */
static kv_address own_address(kv_address at, size_t bytes, uint64_t *count) {
    pthread_mutex_lock(&lock);
    const allocation *a = find(at, bytes);
    const kv_address own = {(uint64_t)(uintptr_t)a->own + (at.at - (uint64_t)(uintptr_t)a->seen)};
    *count += bytes;
    pthread_mutex_unlock(&lock);
    return own;
}

static char *map(int fd, size_t bytes, int prot) {
    char *p = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) die("mmap");
    return p;
}

static kv_address trap_alloc(kv_memory *m, size_t bytes, size_t block_bytes) {
    (void)m, (void)block_bytes;
    const int fd = memfd_create("kv", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes)) die("memfd_create");
    pthread_mutex_lock(&lock);
    allocation *a = allocations;
    while (a < allocations + MAX_ALLOCATIONS && a->bytes > 0) a++;
    if (a == allocations + MAX_ALLOCATIONS) die("too many allocations");
    *a = (allocation){map(fd, bytes, protection()), map(fd, bytes, PROT_READ | PROT_WRITE), bytes};
    const kv_address at = {(uint64_t)(uintptr_t)a->seen};
    use.allocated += bytes;
    pthread_mutex_unlock(&lock);
    close(fd);
    return at;
}

static void trap_free(kv_memory *m, kv_address at) {
    (void)m;
    pthread_mutex_lock(&lock);
    allocation *a = find(at, 1);
    munmap(a->seen, a->bytes);
    munmap(a->own, a->bytes);
    *a = (allocation){0};
    pthread_mutex_unlock(&lock);
}

static void trap_read(kv_memory *m, kv_address from, size_t bytes, void *to) {
    kv_memory *host = kv_host_memory();
    (void)m;
    host->ops->read(host, own_address(from, bytes, &use.read), bytes, to);
}

static void trap_write(kv_memory *m, const void *from, size_t bytes, kv_address to) {
    kv_memory *host = kv_host_memory();
    (void)m;
    host->ops->write(host, from, bytes, own_address(to, bytes, &use.written));
}

static void trap_copy_rows(kv_memory *m, const kv_row_copy *copies, size_t n) {
    kv_memory *host = kv_host_memory();
    (void)m;
    for (size_t k = 0; k < n; k++) {
        kv_row_copy c = copies[k];
        const size_t reach = (size_t)(c.n_rows - 1) * c.stride + c.row_bytes;
        uint64_t counted = 0;
        c.from = own_address(c.from, reach, &counted);
        c.to = own_address(c.to, reach, &use.copied);
        host->ops->copy_rows(host, &c, 1);
    }
}

kv_memory *trap_memory(void) {
    static const kv_memory_ops ops = {.alloc = trap_alloc,
                                      .free = trap_free,
                                      .read = trap_read,
                                      .write = trap_write,
                                      .copy_rows = trap_copy_rows};
    static kv_memory memory = {&ops};
    return &memory;
}

trap_memory_use trap_memory_used(void) {
    pthread_mutex_lock(&lock);
    const trap_memory_use now = use;
    pthread_mutex_unlock(&lock);
    return now;
}
