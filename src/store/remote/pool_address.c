/* SPDX-License-Identifier: Apache-2.0 */
/* pool_address.c: addresses of pools as text (pool_driver.h), for the drivers and their table. */
#include <stdio.h>
#include <string.h>

#include "store/remote/pool_driver.h"

const char *pool_address_text(const char *address, char *out, size_t n) {
    const char *host = strstr(address, "://"), *at = host ? strpbrk(host + 3, "@/?") : NULL;
    const int n_scheme = host ? (int)(host + 3 - address) : 0;
    if (at && *at == '@') snprintf(out, n, "%.*s%s", n_scheme, address, at + 1);
    else snprintf(out, n, "%s", address);
    return out;
}
