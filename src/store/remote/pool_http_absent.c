/* SPDX-License-Identifier: Apache-2.0 */
/* pool_http_absent.c: in place of pool_http.c in a build without libcurl (REPRISE_HTTP_POOL in CMakeLists.txt). */
#include "base/error.h"
#include "store/remote/pool_drivers.h"

static int pool_http_open(pool_driver **out, const char *address, rp_error *err) {
    char text[RP_ERROR_WHERE_BYTES];
    *out = NULL;
    return base_fail(err, RP_ERR_UNSUPPORTED,
                     "'%s': this build has no HTTP: install libcurl4-gnutls-dev (7.85 or newer) and build again",
                     pool_address_text(address, text, sizeof(text)));
}

const pool_driver_ops pool_s3_ops = {.prefix = "s3://", .open = pool_http_open};
const pool_driver_ops pool_http_ops = {.prefix = "http://", .open = pool_http_open};
const pool_driver_ops pool_https_ops = {.prefix = "https://", .open = pool_http_open};
