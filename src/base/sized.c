/* SPDX-License-Identifier: Apache-2.0 */
/* sized.c: see sized.h. Any thread. */
#include "base/sized.h"

#include <stdint.h>
#include <string.h>

#include "base/error.h"

static uint32_t sized_bytes(const void *theirs) {
    uint32_t n;
    memcpy(&n, theirs, sizeof(n));
    return n;
}

static int sized_fail_unset(const char *type, const char *how, rp_error *err) {
    return base_fail(err, RP_ERR_INVALID, "%s: struct_size is not set: %s", type, how);
}

int base_sized_read(void *own, size_t own_bytes, const void *theirs, const char *type, rp_error *err) {
    if (!theirs) return RP_OK;
    size_t n = sized_bytes(theirs), common = BASE_MIN(n, own_bytes);
    if (n < sizeof(uint32_t))
        return sized_fail_unset(type, "begin with the struct's defaults function, or with its sizeof", err);
    for (size_t i = own_bytes; i < n; i++)
        if (((const char *)theirs)[i])
            return base_fail(err, RP_ERR_UNSUPPORTED,
                             "%s: byte %zu is set, but this library knows %zu bytes: it is older than the program",
                             type, i, own_bytes);
    memcpy((char *)own + sizeof(uint32_t), (const char *)theirs + sizeof(uint32_t), common - sizeof(uint32_t));
    return RP_OK;
}

void base_sized_init(void *theirs, uint32_t struct_size, const void *own, size_t own_bytes) {
    memcpy(theirs, &struct_size, sizeof(struct_size));
    base_sized_write(theirs, own, own_bytes);
}

int base_sized_check(const void *theirs, const char *type, rp_error *err) {
    if (!theirs) return base_fail(err, RP_ERR_INVALID, "%s: NULL is no place for a report", type);
    return sized_bytes(theirs) < sizeof(uint32_t) ? sized_fail_unset(type, "set it to the struct's sizeof", err)
                                                  : RP_OK;
}

void base_sized_write(void *theirs, const void *own, size_t own_bytes) {
    size_t n = sized_bytes(theirs), common = BASE_MIN(n, own_bytes);
    if (common < sizeof(uint32_t)) return; /* struct_size is not set */
    memcpy((char *)theirs + sizeof(uint32_t), (const char *)own + sizeof(uint32_t), common - sizeof(uint32_t));
    memset((char *)theirs + common, 0, n - common);
}
