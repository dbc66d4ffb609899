/* SPDX-License-Identifier: Apache-2.0 */
/* pool_check.h: what every driver of a pool (store/remote/pool_driver.h) must do, checked over real storage. */
#ifndef SUPPORT_POOL_CHECK_H
#define SUPPORT_POOL_CHECK_H

#include "store/remote/pool_driver.h"

/* Objects of every size around a chunk, whole and by ranges, missing, replaced and removed; many in one call; several
 * links at once, of two drivers. The storage is empty before, and empty of these objects after it. A difference fails
 * the test. */
void pool_check(const char *address);
/* An operation fails within its deadline and some tolerance, with one of two causes (errno); the link can be used
 * again. */
void pool_check_fails(pool_link *l, int cause, int or_cause);
/* An address's driver, and a link of it; a failure ends the program. */
pool_driver *pool_check_driver(const char *address);
pool_link *pool_check_link(pool_driver *d);
/* A name of 64 digits that depends on i alone. */
void pool_check_name(int i, char out[POOL_NAME_CHARS + 1]);

#endif
