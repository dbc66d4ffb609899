/* SPDX-License-Identifier: Apache-2.0 */
/* pool_driver.c: see pool_driver.h: the table of drivers, and what is the same for all of them. */
#include "store/remote/pool_driver.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "store/remote/pool_drivers.h"

#define ADDRESSES "dir:/FOLDER, redis://HOST, rediss://HOST, s3://BUCKET/PREFIX or https://HOST/PATH/"

static const pool_driver_ops *const drivers[] = {&pool_folder_ops, &pool_redis_ops, &pool_redis_tls_ops,
                                                 &pool_s3_ops, &pool_https_ops, &pool_http_ops};

int pool_driver_open(pool_driver **out, const char *address, rp_error *err) {
    char text[RP_ERROR_WHERE_BYTES];
    *out = NULL;
    for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
        if (strncmp(address, drivers[i]->prefix, strlen(drivers[i]->prefix)) == 0)
            return drivers[i]->open(out, address, err);
    return base_fail(err, RP_ERR_INVALID, "'%s' is not the address of a pool: use " ADDRESSES,
                     pool_address_text(address, text, sizeof(text)));
}

const char *pool_cause_name(int cause) {
    switch (cause) {
    case ETIMEDOUT: return "timeout";
    case ECONNREFUSED: return "refused";
    case EACCES:
    case EPERM: return "no_access";
    case ENOSPC:
    case EDQUOT: return "no_space";
    case EPROTO: return "protocol";
    case EBUSY: return "busy";
    case EAGAIN: return "not_ready";
    case EROFS: return "read_only";
    case EFBIG: return "too_large";
    case ECONNRESET:
    case EPIPE: return "lost";
    case EHOSTUNREACH:
    case ENETUNREACH: return "unreachable";
    case ENOENT:
    case ENOTDIR: return "absent";
    default: return "io_error";
    }
}
