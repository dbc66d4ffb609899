/* file.h: whole-file reads and read-only maps. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "reprise.h"

/* Reads a whole regular file of at most `limit` bytes into *out (owned by the caller, base_buffer_free).
 * RP_ERR_IO (cannot open or read, a directory), RP_ERR_LIMIT (larger), RP_ERR_MEMORY. */
int base_file_read(const char *path, size_t limit, base_buffer *out, rp_error *err);

/* A read-only, private map of a whole file. data is NULL when the file is empty (bytes = 0). */
typedef struct base_map {
    const uint8_t *data;
    size_t bytes;
} base_map;

int base_map_open(base_map *out, const char *path, rp_error *err); /* RP_ERR_IO */
void base_map_close(base_map *m);                                  /* zero-initialised is fine */

/* Monotonic time in microseconds. */
uint64_t base_clock_us(void);

#endif
